"""Pretrained encoders of keras-hub, for Keras 3; they need the `encoders` extra."""

from rank4class_tf.encoders.image_encoder import ImageEncoder
from rank4class_tf.encoders.text_encoder import TextEncoder

__all__ = ["ImageEncoder", "TextEncoder"]
