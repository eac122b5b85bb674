"""What Keras does with the weights of layers, and what is within them."""

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf._keras.version import KERAS_3
from rank4class_tf._tf.loops import States
from rank4class_tf._tf.private import private
from rank4class_tf._types import Array, Tensor

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
