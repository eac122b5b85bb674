"""CrossBatchMemory."""

from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _keras
from rank4class_tf._tf.raising import same_sizes


@_keras.register
class CrossBatchMemory(keras.layers.Layer):
    """Keeps encodings of candidates of earlier batches, to serve as further negatives.

    Each call in training puts its batch into the memory and drops the oldest candidates. The
    encodings that the memory returns have no gradient.

    Source: Wang et al. 2020, "Cross-Batch Memory for Embedding Learning"; for two towers, Wang et
    al. 2021, "Cross-Batch Negative Sampling for Training Two-Tower Recommenders".

    Args:
        size: how many candidates it holds, >= 1.
        **kwargs: arguments of Keras, such as `name`. `dtype` is float32 unless given.

    Inputs: encodings `[batch, d]` and int64 ids `[batch]`.

    Outputs: the previous content of the memory, the oldest first: encodings `[size, d]`, ids
    `[size]`, and booleans `[size]`, False for a place that is still empty.

    Raises:
        ValueError: if `size` is not a positive integer, or `ids` has another shape or dtype.

    Example:
        >>> memory = CrossBatchMemory(3)
        >>> for batch in ([[1.0], [2.0]], [[3.0]]):
        ...     ids = tf.fill([len(batch)], 7)
        ...     encodings, _, filled = memory(tf.constant(batch), ids, training=True)
        >>> encodings[:, 0].numpy(), filled.numpy()
        (array([0., 1., 2.], dtype=float32), array([False,  True,  True]))
    """

    def __init__(self, size: int, **kwargs: Any) -> None:
        super().__init__(**{"dtype": "float32", **kwargs})
        self.size = _checks.positive_int("size", size)

    def build(self, encodings_shape: Any, ids_shape: Any = None) -> None:
        """Creates the memory, for encodings `[batch, d]`."""
        width = int(encodings_shape[-1])
        self.encodings = _keras.add_state(self, "encodings", (self.size, width), "float32")
        self.ids = _keras.add_state(self, "ids", (self.size,), "int64")
        self.num_filled = _keras.add_counter(self, "num_filled")
        self.built = True

    def call(
        self, encodings: Any, ids: Any, training: Any = None
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns what earlier calls left, and keeps this batch in training."""
        encodings, ids = tf.convert_to_tensor(encodings), _checks.ids("ids", ids, strings=False)
        rule = "`ids` must have the shape [batch] of `encodings`."
        if ids.shape.rank not in (None, 1):
            raise ValueError(f"{rule} Received: {ids.shape} for encodings {encodings.shape}.")
        ids = same_sizes(ids, encodings, rule)
        kept = tf.identity(_keras.variable(self.encodings))
        kept_ids = tf.identity(_keras.variable(self.ids))
        num_filled = tf.identity(_keras.variable(self.num_filled))
        filled = tf.range(self.size, dtype=tf.int64) >= self.size - num_filled
        if training:
            new = tf.cast(tf.stop_gradient(encodings), kept.dtype)
            self.encodings.assign(tf.concat([kept, new], axis=0)[-self.size :])
            new_ids = tf.cast(ids, tf.int64)
            self.ids.assign(tf.concat([kept_ids, new_ids], axis=0)[-self.size :])
            count = tf.shape(new_ids, tf.int64)[0]
            self.num_filled.assign(tf.minimum(num_filled + count, self.size))
        return kept, kept_ids, filled

    def load_own_variables(self, store: Any) -> None:
        """Reads the memory, for Keras; a layer that has not seen encodings learns their width."""
        if not self.built and store:
            self.build(store["0"].shape)
        super().load_own_variables(store)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments."""
        return {**super().get_config(), "size": self.size}
