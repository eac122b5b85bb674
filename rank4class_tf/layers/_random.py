"""Seeds of layers that draw random numbers: fresh at each step, the same in each run."""

from typing import Any

import numpy as np
import tensorflow as tf

from rank4class_tf import _keras, ops
from rank4class_tf._types import TensorLike


def start_seed(seed: int | None) -> int:
    """The seed of a layer, an int; None draws one from NumPy's global generator."""
    return int(np.random.randint(2**31)) if seed is None else int(seed)


def next_seed(seed: int, steps: Any, training: bool | None) -> tf.Tensor:
    """Two int64 that change with each call in training.

    Args:
        seed: an int.
        steps: the layer's counter, see `_keras.add_counter`.
        training: whether the counter goes up.
    """
    step = tf.identity(_keras.variable(steps))
    if training:
        steps.assign_add(1)
    return ops.fold_in([seed, 0], step)


def on_this_device(seed: TensorLike, stream: int) -> tf.Tensor:
    """A seed for what must differ between the devices of a strategy."""
    replica = tf.distribute.get_replica_context()
    device = replica.replica_id_in_sync_group if replica else 0
    return ops.fold_in(ops.fold_in(seed, 1 + stream), device)
