"""Encodings of a large batch with the memory of a piece of it."""

from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _keras
from rank4class_tf._tf.pieces import in_pieces


def encode_in_pieces(encoder: keras.layers.Layer, features: Any, size: int) -> tf.Tensor:
    """Encodes a batch in training, and each piece again in the backward pass.

    Both passes draw the same random numbers, and other state of the encoder changes once.

    Source: Gao et al. 2021, "Scaling Deep Contrastive Learning Batch Size under Memory Limited
    Setup".

    Args:
        encoder: a layer that is built, and adds no losses of its activities.
        features: what it takes, tensors with a row for each example.
        size: how many examples are encoded at once, >= 1.

    Returns:
        `[batch, d]`.
    """
    width = getattr(encoder, "output_shape", (None,))[-1]
    spec = tf.TensorSpec([size, width], encoder.compute_dtype)
    states = _keras.states_of(encoder)
    return in_pieces(lambda rows: encoder(rows, training=True), features, size, spec, states=states)
