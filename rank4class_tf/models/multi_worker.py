"""`MultiWorker`, which repairs Keras 3 on several machines.

It overrides private methods of Keras, each by a function of `_keras` that says what it
repairs, and why.
"""

from collections.abc import Callable
from typing import Any

from rank4class_tf import _keras


class MultiWorker:
    """Lets a Keras model train on several machines.

    Keras 3.15 fails under `tf.distribute.MultiWorkerMirroredStrategy` in `fit` and
    `evaluate`, with any model. In your own model, put this class before Keras's class
    among the bases, `keras.Model` or `keras.Sequential`; `ExtremeClassifier` and
    `TwoTower` do so. Nothing changes without a strategy, or in Keras 2, which does not
    need this class. Under any strategy, the first batch may be uneven, labels may be
    ragged, and only the first call after `compile` skips batches of a generator.
    `docs/distribution.md` has an example program.

    Example:
        >>> import tensorflow as tf
        >>> from tensorflow import keras
        >>> class MyModel(MultiWorker, keras.Model):
        ...     pass
        >>> inputs = keras.layers.Input((4,))
        >>> MyModel(inputs, keras.layers.Dense(3)(inputs)).predict(
        ...     tf.ones([2, 4]), verbose=0
        ... ).shape
        (2, 3)
    """

    # Each calls a function that says what Keras asks here. Only Keras 3 calls the first
    # two. Keras 2 and 3 name the third differently.

    def _make_function(self: Any, step_function: Callable) -> Callable:
        step_function = _keras.step_of_workers(self, step_function)
        return super()._make_function(step_function)  # type: ignore[misc]

    def _maybe_symbolic_build(
        self: Any, iterator: Any = None, data_batch: Any = None
    ) -> None:
        _keras.build_from_one_device(self, iterator, data_batch)

    def _get_metrics_result_or_logs(self: Any, logs: dict[str, Any]) -> dict[str, Any]:
        return _keras.logs_over_workers(self, logs)

    _validate_and_get_metrics_result = _get_metrics_result_or_logs
