"""The base of layers that take scores: those for negatives and those of a served model."""

from typing import Any

from tensorflow import keras

from rank4class_tf import _registry


class ScoreLayer(_registry.Configured, keras.layers.Layer):
    """Base of layers that stay float32: half precision would round scores and small counts."""

    def __init__(self, **kwargs: Any):
        super().__init__(**{"dtype": "float32", **kwargs})
