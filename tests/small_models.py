"""The models that most tests train, and what a model answers where it is served."""

import tensorflow as tf
from tensorflow import keras


def sequential(shape, *layers):
    """Layers one after another, over inputs of a shape."""
    return keras.Sequential([keras.Input(shape), *layers])


def linear(*sizes, loss=None, optimizer="sgd", **options):
    """Maps `[batch, ..., width]` to `[batch, ..., outputs]`, as the sizes say.

    With a loss it is compiled.
    """
    *shape, outputs = sizes
    model = sequential(shape, keras.layers.Dense(outputs))
    if loss is not None:
        model.compile(optimizer, loss, **options)
    return model


def served(folder, *inputs, signature="serving_default", **features):
    """The answer of a SavedModel to inputs, or to features by their names."""
    answer = tf.saved_model.load(str(folder)).signatures[signature]
    tensors = {name: tf.constant(value) for name, value in features.items()}
    return answer(*map(tf.constant, inputs), **tensors)
