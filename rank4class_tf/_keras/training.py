"""A step of training of Keras, its metrics, and several machines."""

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf._keras.layers import layers_of
from rank4class_tf._keras.version import KERAS_3
from rank4class_tf._tf.private import private
from rank4class_tf._types import Tensor

# A step of training: its losses, optimizer and worker.


def worker_number(strategy: tf.distribute.Strategy) -> int | None:
    """The number of this process among a strategy's workers; None for the only one."""
    extended = strategy.extended
    if not private(extended, "_in_multi_worker_mode")():
        return None
    return private(extended, "_id_in_cluster")


def add_loss(model: keras.Model, loss: Tensor) -> None:
    """Adds a loss that a step has computed; Keras 2 takes it only within `call`."""
    if KERAS_3:
        model.add_loss(loss)
    else:
        private(model, "_eager_losses").append(loss)


def build_optimizer(model: keras.Model) -> None:
    """Adds the variables of the optimizer of a model that is built and compiled."""
    # Keras adds them in the first step, and traces that step a second time then.
    # Old optimizers have none.
    build = getattr(getattr(model, "optimizer", None), "build", None)
    if build is not None and all(layer.built for layer in layers_of(model)):
        with model.distribute_strategy.scope():
            build(model.trainable_variables)


def current_rate(optimizer: Any) -> Any:
    """An optimizer's next learning rate; Keras 2 has to compute that of a schedule."""
    if not KERAS_3:
        private(optimizer, "_compute_current_learning_rate")()
    return optimizer.learning_rate


# Metrics that a model was compiled with: Keras reports them, but does not hand them
# out.


def _metrics_container(model: keras.Model) -> Any:
    """What holds the metrics a model was compiled with; None for none."""
    return private(model, "_compile_metrics") if KERAS_3 else model.compiled_metrics


def compiled_metrics(model: keras.Model) -> list[tuple[keras.metrics.Metric, bool]]:
    """The metrics a model was compiled with, built; and whether each is weighted."""
    container = _metrics_container(model)
    if container is None:
        return []
    if not container.built:
        # Any labels and predictions.
        container.build(tf.zeros([1, 1]), tf.zeros([1, 1]))
    found = []
    for name, is_weighted in (
        ("_user_metrics", False),
        ("_user_weighted_metrics", True),
    ):
        for metric in tf.nest.flatten(private(container, name)):
            if metric is not None:
                found.append((metric, is_weighted))
    return found


def metrics_not_compiled(model: keras.Model) -> list[keras.metrics.Metric]:
    """The loss and the metrics that a model updates itself."""
    container = _metrics_container(model)
    compiled = [container] if KERAS_3 else container.metrics
    return [metric for metric in model.metrics if metric not in compiled]


# Several machines: what `models.MultiWorker` has in place of private methods of Keras.
# Where a Keras no longer calls one of these methods, nothing raises, and Keras's own
# fault is back; `tests/test_private_names.py` fails then.


def step_of_workers(model: keras.Model, step_function: Callable) -> Callable:
    """In place of what `Model._make_function` gets: a step on one of several workers.

    Keras 3 averages the results of a step over workers along their first axis. They are
    scalars, which have none, so that `fit` and `evaluate` fail.
    """
    if worker_number(model.distribute_strategy) is None:
        return step_function

    def step(data: Any) -> Any:
        results = step_function(data)
        return tf.nest.map_structure(
            lambda x: tf.convert_to_tensor(x)[tf.newaxis], results
        )

    return step


def build_from_one_device(model: keras.Model, iterator: Any, data_batch: Any) -> None:
    """In place of `Model._maybe_symbolic_build`, with batches as one device gets them.

    Keras 3 builds a model from the mean of all devices' batches, which fails for uneven
    and for ragged ones.
    """
    strategy = private(model, "_distribute_strategy")
    if strategy is None:
        return
    local = strategy.experimental_local_results

    def batches_of_one_device() -> Iterator[tuple]:
        # Keras reads a batch only if something is not built. A generator loses this
        # batch, in Keras each time.
        for first, last, batches in iterator:
            batch = next(batches, None)
            if batch is None:
                raise ValueError("`x` must have at least one batch. Received: none.")
            yield first, last, [tf.nest.map_structure(lambda x: local(x)[0], batch)]

    with strategy.scope():
        private(model, "_symbolic_build")(batches_of_one_device(), data_batch)


def logs_over_workers(model: keras.Model, logs: dict[str, Any]) -> dict[str, Any]:
    """In place of `Model._get_metrics_result_or_logs`: metrics over all workers.

    Keras reports what the last step returned if that has not all metrics: a mean over
    workers, in Keras 2, where the method is `_validate_and_get_metrics_result`, a sum.
    """
    results = model.get_metrics_result()
    numbers = {}
    for name, value in logs.items():
        x = results.get(name, value)
        is_scalar = tf.is_tensor(x) and not len(x.shape)
        # Keras 2 has Python numbers here.
        numbers[name] = x.numpy().item() if is_scalar else x
    return numbers
