"""What all sorters share: dtypes, masks, NaN, extremes, shapes and configuration."""

from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _config, _keras

# Beyond it scores count as equal. Differences and squares of differences stay finite in float32
# for ten thousand items of up to 1e15, and differences for all.
_LIMIT = 1e30


class Sorter(keras.layers.Layer):
    """Base of the sorters: maps scores `[batch, d]` to differentiable ranks `[batch, d]`.

    Ranks are descending and 1-based: 1 for the best score, d for the worst. A masked item has the
    rank 0 and the gradient 0 and changes nothing for the others. A list with a NaN among its
    valid scores has NaN for ranks. Scores of any floating dtype are taken, also infinite ones;
    float64 stays float64, anything else is computed in float32, whatever Keras's dtype policy says.

    A subclass is its formula, `soft_ranks`, and its configuration: it keeps each argument of its
    constructor in an attribute of that name. One with weights makes them in `build`, as float32.
    """

    def __init__(self, **kwargs: Any) -> None:
        """Args shared by all sorters.

        Args:
            **kwargs: Keras's own, such as `name`.
        """
        # Half precision holds no rank above a few hundred.
        super().__init__(autocast=False, **kwargs)
        self.supports_masking = True

    def soft_ranks(self, scores: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
        """The formula: ranks of lists in which nothing needs care.

        Args:
            scores: `[batch, d]`, float32 or float64, finite, within +-1e30; 0 where masked.
            mask: booleans `[batch, d]`, False for an item that must change nothing for others;
                None where all items count.

        Returns:
            `[batch, d]`, of the dtype of the scores; anything finite where masked.
        """
        raise NotImplementedError

    def call(self, scores: Any, mask: Any = None) -> tf.Tensor:
        """Ranks the items.

        Args:
            scores: `[batch, d]`, of any floating dtype.
            mask: booleans `[batch, d]`, True for an item that counts; None means all.

        Returns:
            `[batch, d]`, float64 for scores of float64, else float32.

        Raises:
            ValueError: if the shapes or the dtype of the mask are other ones.
        """
        scores = tf.convert_to_tensor(scores)
        if scores.dtype != tf.float64:
            scores = tf.cast(scores, tf.float32)
        if scores.shape.rank not in (None, 2):
            raise ValueError(
                f"`scores` must have the shape [batch, d]. Received: {tuple(scores.shape)}."
            )
        nan = tf.math.is_nan(scores)
        if mask is not None:
            mask = _checks.mask(mask, scores)
            nan &= mask
        clean = tf.clip_by_value(scores, -_LIMIT, _LIMIT)
        clean = tf.where(nan if mask is None else nan | ~mask, tf.zeros_like(scores), clean)
        ranks = _keras.converted(self.soft_ranks)(clean, mask)
        # A product, so that the gradient of such a list is NaN as well.
        broken = tf.reduce_any(nan, axis=1, keepdims=True)
        ranks *= tf.where(broken, tf.constant(float("nan"), scores.dtype), tf.ones_like(ranks))
        return ranks if mask is None else tf.where(mask, ranks, tf.zeros_like(ranks))

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments."""
        return {**super().get_config(), **_config.constructor_arguments(self, Sorter)}
