"""The one module that knows this process's Keras, and how the versions differ.

Each section is a thing that we ask of Keras. Where a private name is gone, the call
that asks for it raises an error that names the versions (`_tf/private.py`); a section
says where that is not so. `tests/test_private_names.py` lists the names, and calls
them.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf._tf.loops import States
from rank4class_tf._tf.memory import owned
from rank4class_tf._tf.private import private
from rank4class_tf._types import Array, Tensor

# `tensorflow.keras` is Keras 3 from TensorFlow 2.16 on, Keras 2 before that, and
# tf_keras (Keras 2) when `TF_USE_LEGACY_KERAS=1`.
try:
    KERAS_3 = hasattr(keras, "ops")  # This access runs the lazy import.
    _backend = keras.backend.backend() if KERAS_3 else "tensorflow"
except ImportError as error:
    # The module that Keras did not find.
    _backend = getattr(error.__context__, "name", None)
    if _backend in (None, "keras", "tf_keras"):
        raise ImportError(
            "TensorFlow's Keras is not installed. TF_USE_LEGACY_KERAS=1 needs "
            "tf_keras, in the version of TensorFlow: pip install "
            f"'tf_keras=={tf.__version__.rpartition('.')[0]}.*'"
        ) from error
if _backend != "tensorflow":
    raise ImportError(
        "Keras must run on TensorFlow: set KERAS_BACKEND=tensorflow before it is "
        "imported, or `backend` in ~/.keras/keras.json. Received: Keras on "
        f"{_backend}."
    )

register = keras.utils.register_keras_serializable(package="rank4class_tf")


# AutoGraph: it must leave our code as it is, and convert a user's. The former is set at
# import, so that without its names nothing can be imported.


def _keep_from_autograph() -> None:
    """Has AutoGraph leave this package as it is, as it leaves TensorFlow's modules."""
    # Rewriting the source of everything that a loss or a layer calls takes seconds in
    # the first step of Keras 2's `fit` and of a user's `tf.function`. Keras 3's `fit`
    # does not use AutoGraph.
    config = private("tensorflow.python.autograph.core", "config")
    ours = private(config, "DoNotConvert")("rank4class_tf")
    config.CONVERSION_RULES = ours, *private(config, "CONVERSION_RULES")


_keep_from_autograph()


def with_autograph_of_caller(formula: Callable) -> Callable:
    """Has AutoGraph convert a user's formula where it converts the code calling it."""
    autograph = private(tf.__internal__, "autograph")
    context = autograph.control_status_ctx()
    is_ours = formula.__module__.startswith("rank4class_tf.")
    if is_ours or context.status.name != "ENABLED":
        return formula
    return autograph.tf_convert(formula, context, user_requested=True)


# Losses: Keras 2 and 3 construct and reduce them differently. The one private name is
# of Keras 2, which changes no more.


class _PerExampleLosses(keras.losses.Loss):
    def call(self, y_true: Array, y_pred: Array) -> Array:
        del y_true
        return y_pred


def reduced(
    loss: keras.losses.Loss, losses: Tensor, sample_weight: Array | None
) -> Tensor:
    """Reduces the losses of examples, `[batch]`, as Keras reduces those of `loss`."""
    # Keras 3's `Loss` casts labels to float32 first, which changes class ids above
    # 2**24.
    if losses.shape == (0,) and loss.reduction != "none":
        return tf.reduce_sum(losses)  # Keras 3 would return the empty tensor.
    options = {"dtype": loss.dtype} if KERAS_3 else {}
    reducer = _PerExampleLosses(name=loss.name, reduction=loss.reduction, **options)
    share_permission_for_means(loss, reducer)
    return reducer(losses, losses, sample_weight)


def init_loss(
    loss: keras.losses.Loss, name: str, reduction: str | None, dtype: Any
) -> None:
    """Calls the constructor of Keras's loss; Keras 2 takes no dtype."""
    if KERAS_3:
        keras.losses.Loss.__init__(loss, name, standardize_reduction(reduction), dtype)
    else:
        keras.losses.Loss.__init__(loss, standardize_reduction(reduction), name)
        loss.dtype = dtype


def standardize_reduction(reduction: str | None) -> str | None:
    """Maps `reduction` to a name that this Keras knows; only Keras 2 has `"auto"`."""
    known: tuple[str, ...] = ("sum_over_batch_size", "sum", "none", "auto")
    known += ("mean", "mean_with_sample_weight") if KERAS_3 else ()
    name = "none" if reduction is None else reduction
    if name not in known:
        raise ValueError(
            f"`reduction` must be one of {known} or None. Received: {reduction!r}."
        )
    return "sum_over_batch_size" if KERAS_3 and name == "auto" else name


def as_losses(x: Tensor) -> Tensor:
    """Marks a tensor as losses of examples; as a loss's `y_pred` it is only reduced."""
    x = with_mask(tf.identity(x), mask_of(x))
    x._rank4class_tf_losses = True
    return x


def are_losses(x: Any) -> bool:
    """Whether `as_losses` made a tensor."""
    return getattr(x, "_rank4class_tf_losses", False)


def share_permission_for_means(
    outer: keras.losses.Loss, inner: keras.losses.Loss
) -> None:
    """Lets the loss `inner` take means under a strategy exactly where `outer` may."""
    # Keras 2 refuses `"sum_over_batch_size"` under a strategy but for the losses given
    # to `compile`, whose means it scales itself; a loss within such a loss is the same
    # case.
    if not KERAS_3:
        may = private(outer, "_allow_sum_over_batch_size")
        inner._allow_sum_over_batch_size = may


# Masks: Keras's layers attach them to tensors. Most tensors have none, so a Keras that
# names the attribute otherwise raises nothing here; only that test would fail.


def mask_of(x: Any) -> Tensor | None:
    """The mask that Keras's layers attach to a tensor, as booleans; None for none."""
    mask = getattr(x, "_keras_mask", None)
    return None if mask is None else tf.cast(mask, tf.bool)


def with_mask(x: Tensor, mask: Tensor | None) -> Tensor:
    """A tensor with a mask attached, which Keras's layers, losses and metrics read."""
    if mask is not None:
        x = tf.identity(x)
        x._keras_mask = mask
    return x


def mask_of_items(y_pred: Tensor) -> Tensor | None:
    """The mask `[batch, n]` of scores, False for an absent item."""
    mask = mask_of(y_pred)
    if mask is not None and not mask.shape.is_compatible_with(y_pred.shape):
        rule = "The mask that comes with `y_pred` must have its shape, [batch, n]."
        raise ValueError(
            f"{rule} Received: a mask of {mask.shape}, scores of {y_pred.shape}."
        )
    return mask


def weights_of_lists(sample_weight: Array, y_pred: Array) -> Array:
    """Weights `[batch]` where Keras 2 has multiplied them by the mask of the items."""
    mask = None if KERAS_3 else mask_of_items(y_pred)
    if mask is None:
        return sample_weight
    weights = tf.convert_to_tensor(sample_weight)
    num_items = tf.reduce_sum(tf.cast(mask, weights.dtype), axis=-1)
    return tf.math.divide_no_nan(tf.reduce_sum(weights, axis=-1), num_items)


# Building: models have symbolic inputs, or Keras 3 builds them in a graph that never
# runs.


def checked_layer(name: str, value: Any) -> Any:
    """Raises unless `value` is a layer or a model of this Keras; returns it."""
    if not isinstance(value, keras.layers.Layer):
        raise ValueError(
            f"`{name}` must be a Keras layer or model. Received: {name}={value!r}."
        )
    return value


def symbolic_inputs(layer: keras.Model) -> Any:
    """The symbolic inputs of a model, in their structure; None where it has none."""
    if not getattr(layer, "inputs", None):
        return None
    # A Sequential of Keras 3 has no `input`.
    return layer.inputs[0] if isinstance(layer, keras.Sequential) else layer.input


def builds_symbolically() -> bool:
    """Whether Keras 3 builds a model in a graph that never runs."""
    scope = "keras.src.backend.common.symbolic_scope"
    return KERAS_3 and private(scope, "in_symbolic_scope")()


def given_labels(y_true: Array) -> Array:
    """Labels as the user gave them, in memory of their own."""
    # Where Keras 3 builds a model that a strategy trains, in a graph that never runs,
    # it passes the mean of the devices' labels, which is float64 even for integers. We
    # cast it to integers, so that ids look like ids.
    is_float64 = getattr(y_true, "dtype", None) == tf.float64
    if is_float64 and builds_symbolically():
        return tf.cast(y_true, tf.int64)
    return owned(y_true)


# Configurations: objects are read from those of any Keras. The calls of a layer, which
# Keras 3 numbers, are in a private list.


def deserialized(config: Any, custom_objects: dict[str, Any] | None = None) -> Any:
    """Object of a `serialize_keras_object` config, even from a Keras 2 `.h5` file."""
    # Keras 2 reads older formats, and looks for their classes by bare names.
    classes = {} if KERAS_3 else dict(_classes_within(config))
    classes |= custom_objects or {}
    return keras.utils.deserialize_keras_object(config, custom_objects=classes)


def deserialized_in_turn(
    configs: Iterable, custom_objects: dict | None = None
) -> list[Any]:
    """Objects of configs, as by `deserialized`; models among them may share layers."""
    # A model's configuration names a call of a layer as `["dense", 0, 0]`: its first
    # call in this model, and the first output. Keras 3 takes the 0 for the first call
    # of all, which is one of an earlier model where that has the same layer. So we add
    # the number of earlier calls. One model around all of them would not help: neither
    # Keras loads a model that calls them, and a model of their outputs would flatten
    # them, and lose a `Sequential` or a subclass.
    models: list[Any] = []
    num_calls: dict[int, int] = {}  # By earlier models, of each shared layer.
    for config in configs:
        renumbered = _renumbered(config, num_calls, {})
        models.append(deserialized(renumbered, custom_objects))
        if KERAS_3:
            num_calls |= _num_calls(config, models[-1])
    return models


def _renumbered(part: Any, num_calls: dict[int, int], earlier: dict[str, int]) -> Any:
    """A copy of a part of a configuration, where calls count from the earlier ones.

    `num_calls` has the earlier calls by the numbers that mark shared objects, `earlier`
    those of the layers of the model around this part, by their names.
    """
    match part:
        case dict():
            layers = _layer_configs(part)
            if layers:
                earlier = {
                    layer["config"].get("name"): num_calls[layer["shared_object_id"]]
                    for layer in layers
                    if layer.get("shared_object_id") in num_calls
                }
            # Keras removes items from what it reads: a copy even if nothing changes.
            return {
                name: _renumbered(value, num_calls, earlier)
                for name, value in part.items()
            }
        case [str() as layer, int() as call, output] if layer in earlier:
            return [layer, call + earlier[layer], output]
        case list() | tuple():
            copied = [_renumbered(value, num_calls, earlier) for value in part]
            return tuple(copied) if isinstance(part, tuple) else copied
    return part


def _layer_configs(config: Any) -> list[dict]:
    """The configurations of layers in that of a model; none in others."""
    # A layer of the user may have an option `layers=[64, 32]`.
    layers = config.get("layers") if isinstance(config, dict) else None
    if not isinstance(layers, list):
        return []
    return [x for x in layers if isinstance(x, dict) and "config" in x]


def _num_calls(config: Any, model: Any) -> dict[int, int]:
    """How often a model's layers were called, by the numbers marking shared objects."""
    # Other layers may have an attribute `layers` of their own.
    layers = model.layers if isinstance(model, keras.Model) else []
    layers_by_name = {layer.name: layer for layer in layers}
    num_calls: dict[int, int] = {}
    for layer_config in _layer_configs(config["config"]):
        layer = layers_by_name.get(layer_config["config"].get("name"))
        if layer is None:
            continue
        if "shared_object_id" in layer_config:  # Set only while saving.
            calls = private(layer, "_inbound_nodes")
            num_calls[layer_config["shared_object_id"]] = len(calls)
        num_calls |= _num_calls(layer_config, layer)
    return num_calls


def _classes_within(config: Any) -> Iterator[tuple[str, Any]]:
    """The bare name and class of each object in a config, as far as Keras knows it."""
    if isinstance(config, dict) and "registered_name" in config:
        name = config["class_name"]
        cls = keras.utils.get_registered_object(config["registered_name"])
        package, *modules = str(config["module"]).split(".")
        if cls is None and package == "keras":
            cls = keras
            for part in (*modules, name):
                cls = getattr(cls, part, None)
        if cls is not None:
            yield name, cls
    if isinstance(config, dict):
        config = list(config.values())
    if isinstance(config, list | tuple):
        for part in config:
            yield from _classes_within(part)


# Weights: how they are added, and what Keras and gradient tapes do with them by
# themselves. Keras 3 locks what a built layer has; only a private tracker unlocks it.


def add_table(
    layer: Any, name: str, shape: tuple, initializer: Any, **kwargs: Any
) -> Any:
    """Adds a weight for row lookups; mixed precision does not cast all of it."""
    options: dict[str, Any] = {"dtype": layer.variable_dtype, **kwargs}
    options["autocast" if KERAS_3 else "experimental_autocast"] = False
    weight = layer.add_weight(
        name=name, shape=shape, initializer=initializer, **options
    )
    variable(weight)._rank4class_tf_table = True
    return weight


def is_table(variable: tf.Variable) -> bool:
    """Whether `add_table` made a variable or the distributed variable containing it."""
    container = tf.distribute.get_strategy().extended.value_container(variable)
    return getattr(container, "_rank4class_tf_table", False)


def add_state(
    layer: Any, name: str, shape: tuple[int, ...], dtype: str, start: Array = 0
) -> Any:
    """Adds a weight that no optimizer changes, the same on all devices."""

    def initializer(shape: tuple[int, ...], **kwargs: Any) -> Tensor:
        return tf.broadcast_to(tf.cast(start, dtype), shape)

    of_keras_2 = tf.VariableAggregation.ONLY_FIRST_REPLICA
    return layer.add_weight(
        name=name,
        shape=shape,
        initializer=initializer,
        dtype=dtype,
        trainable=False,
        aggregation="only_first_replica" if KERAS_3 else of_keras_2,
    )


def variable(weight: Any) -> tf.Variable:
    """A weight's `tf.Variable`; gathering rows of a Keras 3 variable copies it all."""
    return weight.value if KERAS_3 else weight


def unwatch(variable: tf.Variable) -> None:
    """Keeps gradient tapes from watching a variable by themselves."""
    private(variable, "_trainable")  # Without it, what is set here would do nothing.
    variable._trainable = False


def unlock(layer: keras.layers.Layer) -> None:
    """Lets a subclass of a model that is built add layers and weights of its own."""
    if KERAS_3:
        private(layer, "_tracker").unlock()


@contextlib.contextmanager
def changing_weights(layer: keras.layers.Layer) -> Iterator[None]:
    """Lets a layer that is built delete weights and add others."""
    unlock(layer)
    if not KERAS_3:
        # They regularize the weights that are deleted.
        private(layer, "_callable_losses").clear()
    try:
        yield
    finally:
        if KERAS_3:
            private(layer, "_tracker").lock()


# What is within a layer or a model: its layers, and what a call changes.


def layers_of(model: keras.layers.Layer) -> list[keras.layers.Layer]:
    """A layer or model and all layers within it."""
    return [*private(model, "_flatten_layers")()]


def states_of(layer: keras.layers.Layer) -> States:
    """Variables that a layer and its sublayers change."""
    name = "_non_trainable_variables" if KERAS_3 else "_non_trainable_weights"
    generators = []
    others = []
    for part in layers_of(layer):
        generators += [variable(of_part.state) for of_part in _generators_of(part)]
        others += [variable(weight) for weight in private(part, name)]
    return States(generators=generators, others=others)


def _generators_of(layer: keras.layers.Layer) -> list[Any]:
    """The random generators of a layer, without those of its sublayers."""
    if KERAS_3:
        return private(layer, "_seed_generators")
    # Dropout of Keras 2 has a state only after `enable_tf_random_generator`, and most
    # layers have no generator.
    wrapper = getattr(layer, "_random_generator", None)
    generator = getattr(wrapper, "_generator", None)
    return [] if generator is None else [generator]


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
