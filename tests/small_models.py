"""The model that most tests train, and what a model answers where it is served."""

import tensorflow as tf
from tensorflow import keras


def linear(*sizes, loss=None, optimizer="sgd", **options):
    """Maps `[batch, ..., width]` to `[batch, ..., outputs]`, as the sizes say.

    With a loss it is compiled.
    """
    *shape, outputs = sizes
    model = keras.Sequential([keras.Input(shape), keras.layers.Dense(outputs)])
    if loss is not None:
        model.compile(optimizer, loss, **options)
    return model


def served(folder, *inputs, signature="serving_default", **features):
    """The answer of a SavedModel to inputs, or to features by their names."""
    answer = tf.saved_model.load(str(folder)).signatures[signature]
    tensors = {name: tf.constant(value) for name, value in features.items()}
    return answer(*map(tf.constant, inputs), **tensors)
