"""CandidateFrequencies."""

from typing import Any, Self

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _keras
from rank4class_tf._types import TensorLike


@_keras.register
class CandidateFrequencies(keras.layers.Layer):
    r"""The share of each candidate among the positives, counted in training or given.

    $$\hat p_i = \max(c_i, 1) / \max(\textstyle\sum_j c_j, 1)$$

    where $c_i$ is how often training has seen the bucket of id i. The bucket is the remainder of
    the id divided by `num_buckets`. Ids from 0 to `num_buckets` - 1 have one bucket each. Hashed
    ids that share a bucket count as more frequent than they are.

    Source: Yi et al. 2019, "Sampling-Bias-Corrected Neural Modeling for Large Corpus Item
    Recommendations", who estimate the gap between two occurrences instead.

    Args:
        num_buckets: how many counts are kept, >= 1.
        running: whether a call in training counts its ids.
        **kwargs: arguments of Keras, such as `name`.

    Input: integers of any shape; -1 is padding, which is not counted. Output: their frequencies,
    float32.

    Raises:
        ValueError: if `num_buckets` is not a positive integer, or an id is not an integer.

    Example:
        >>> frequencies = CandidateFrequencies(num_buckets=10)
        >>> frequencies(tf.constant([3, 3, 3, 5]), training=True).numpy()
        array([0.75, 0.75, 0.75, 0.25], dtype=float32)
        >>> CandidateFrequencies.from_counts([6, 2])(tf.constant([0, 1]), training=True).numpy()
        array([0.75, 0.25], dtype=float32)
    """

    def __init__(self, num_buckets: int, running: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_buckets = _checks.positive_int("num_buckets", num_buckets)
        self.running = _checks.flag("running", running)

    @classmethod
    def from_counts(cls, counts: TensorLike, **kwargs: Any) -> Self:
        """Returns a layer with fixed frequencies for the ids from 0 on.

        Args:
            counts: `[num_buckets]` integers >= 0, how often each id is the positive.
            **kwargs: arguments of Keras, such as `name`.

        Raises:
            ValueError: if `counts` is empty, or one is negative or not a whole number.
        """
        counts = np.asarray(counts)
        if counts.ndim != 1 or not counts.size or counts.dtype.kind not in "iuf":
            raise ValueError(
                "`counts` must be integers >= 0, at least one. "
                f"Received: shape {counts.shape}, {counts.dtype}."
            )
        wrong = counts[~((counts >= 0) & (counts == np.floor(counts)) & (counts < 2**63))]
        if wrong.size:
            raise ValueError(
                f"`counts` must be integers >= 0. Received: {wrong[0].item()!r} among them."
            )
        layer = cls(len(counts), running=False, **kwargs)
        layer.build(None)
        layer.counts.assign(counts.astype(np.int64))
        return layer

    def build(self, input_shape: Any) -> None:
        """Creates the counts."""
        self.counts = _keras.add_state(self, "counts", (self.num_buckets,), "int64")
        self.built = True

    def call(self, ids: Any, training: Any = None) -> tf.Tensor:
        """Returns the frequencies of the ids, after counting them."""
        ids = _checks.ids("ids", ids, strings=False)
        buckets = tf.cast(ids, tf.int64) % self.num_buckets
        counts = tf.identity(_keras.variable(self.counts))
        if training and self.running:
            flat = tf.reshape(buckets, [-1])
            one = tf.cast(tf.reshape(ids, [-1]) != -1, tf.int64)
            new = tf.math.unsorted_segment_sum(one, flat, self.num_buckets)
            counts += new
            self.counts.assign(counts)
        total = tf.maximum(tf.reduce_sum(counts), 1)
        own = tf.maximum(tf.gather(counts, buckets), 1)
        return tf.cast(tf.cast(own, tf.float64) / tf.cast(total, tf.float64), tf.float32)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments, without given counts, which are a weight."""
        config = {"num_buckets": self.num_buckets, "running": self.running}
        return {**super().get_config(), **config}
