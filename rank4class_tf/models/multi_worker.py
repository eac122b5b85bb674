"""`MultiWorker`, which repairs Keras 3 on several machines; each method names the fault."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf


class MultiWorker:
    """Lets a Keras model train on several machines.

    Keras 3.15 fails under `tf.distribute.MultiWorkerMirroredStrategy` in `fit` and `evaluate`, with
    any model. In your own model, put this class before Keras's class among the bases, `keras.Model`
    or `keras.Sequential`; `ExtremeClassifier` and `TwoTower` do so. Nothing changes without a
    strategy, or in Keras 2, which does not need this class. Under any strategy, the first batch may
    be uneven, and labels may be ragged. `docs/distribution.md` has an example program.

    Example:
        >>> from tensorflow import keras
        >>> class MyModel(MultiWorker, keras.Model):
        ...     pass
        >>> inputs = keras.layers.Input((4,))
        >>> MyModel(inputs, keras.layers.Dense(3)(inputs)).predict(tf.ones([2, 4]), verbose=0).shape
        (2, 3)
    """

    # Only Keras 3 calls the first two methods. Keras 2 and 3 name the third differently.

    def _make_function(self: Any, step_function: Callable) -> Callable:
        """Gives the results of a step the axis along which Keras takes their mean over workers."""
        extended = self.distribute_strategy.extended
        if not getattr(extended, "_in_multi_worker_mode", lambda: False)():
            return super()._make_function(step_function)  # type: ignore[misc]

        def step(data: Any) -> Any:
            results = step_function(data)
            return tf.nest.map_structure(lambda x: tf.convert_to_tensor(x)[tf.newaxis], results)

        return super()._make_function(step)  # type: ignore[misc]

    def _maybe_symbolic_build(self: Any, iterator: Any = None, data_batch: Any = None) -> None:
        """Builds from the batch of one device: Keras takes the mean over those of all devices."""
        if iterator is not None and self._distribute_strategy is not None:
            local = self.distribute_strategy.experimental_local_results
            _, _, batches = next(iter(iterator))
            data_batch = tf.nest.map_structure(lambda x: local(x)[0], next(batches))
        super()._maybe_symbolic_build(data_batch=data_batch)  # type: ignore[misc]

    def _get_metrics_result_or_logs(self, logs: dict[str, Any]) -> dict[str, Any]:
        """Reports the metrics over all workers, also where a step returns only some of them."""
        # Keras then reports the results of the last step: a mean over workers, in Keras 2 a sum.
        results = self.get_metrics_result()  # type: ignore[attr-defined]
        numbers = {}
        for name, value in logs.items():
            x = results.get(name, value)
            # Keras 2 has Python numbers here.
            numbers[name] = x.numpy().item() if tf.is_tensor(x) and not len(x.shape) else x
        return numbers

    _validate_and_get_metrics_result = _get_metrics_result_or_logs
