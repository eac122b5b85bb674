"""What this package knows of this process's Keras, and how the versions differ.

Each section of a module is a thing that we ask of Keras. Where a private name is gone,
the call that asks for it raises an error that names the versions (`_tf/private.py`); a
section says where that is not so. `tests/test_private_names.py` lists the names, and
calls them.
"""

from rank4class_tf._keras.building import (
    builds_symbolically,
    checked_layer,
    deserialized,
    deserialized_in_turn,
    given_labels,
    symbolic_inputs,
)
from rank4class_tf._keras.layers import (
    add_state,
    add_table,
    changing_weights,
    is_table,
    layers_of,
    states_of,
    unlock,
    unwatch,
    variable,
)
from rank4class_tf._keras.losses import (
    are_losses,
    as_losses,
    init_loss,
    mask_of,
    mask_of_items,
    reduced,
    share_permission_for_means,
    standardize_reduction,
    weights_of_lists,
    with_mask,
)
from rank4class_tf._keras.training import (
    add_loss,
    build_from_one_device,
    build_optimizer,
    compiled_metrics,
    current_rate,
    logs_over_workers,
    metrics_not_compiled,
    step_of_workers,
    worker_number,
)
from rank4class_tf._keras.version import (
    KERAS_3,
    register,
    with_autograph_of_caller,
)

__all__ = [
    "KERAS_3",
    "register",
    "with_autograph_of_caller",
    "reduced",
    "init_loss",
    "standardize_reduction",
    "as_losses",
    "are_losses",
    "share_permission_for_means",
    "mask_of",
    "with_mask",
    "mask_of_items",
    "weights_of_lists",
    "checked_layer",
    "symbolic_inputs",
    "builds_symbolically",
    "given_labels",
    "deserialized",
    "deserialized_in_turn",
    "add_table",
    "is_table",
    "add_state",
    "variable",
    "unwatch",
    "unlock",
    "changing_weights",
    "layers_of",
    "states_of",
    "worker_number",
    "add_loss",
    "build_optimizer",
    "current_rate",
    "compiled_metrics",
    "metrics_not_compiled",
    "step_of_workers",
    "build_from_one_device",
    "logs_over_workers",
]
