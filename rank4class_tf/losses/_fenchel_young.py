"""The formula of the Fenchel-Young losses."""

import tensorflow as tf

from rank4class_tf import ops
from rank4class_tf._tf.dtypes import as_dtype
from rank4class_tf.ops.projections.simplex import from_kth, scaled_by


def fenchel_young(
    lists: ops.Lists,
    regularizer: str | ops.Regularizer = "euclidean",
    k: int = 1,
    alpha: float = 1.0,
) -> tf.Tensor:
    """The loss of the uniform distribution over the positives, `[batch]`; see `FenchelYoungLoss`.

    Args:
        lists: `Lists`.
        regularizer: its name or a `Regularizer`.
        k: number of items to select, in [1, n].
        alpha: > 0.

    Raises:
        ValueError: if `k` exceeds n.
    """
    regularizer = ops.get_regularizer(regularizer)
    count = tf.reduce_sum(tf.cast(lists.is_positive, lists.dtype), axis=-1)
    limit = tf.maximum(tf.cast(count, tf.int32), 1)
    # The sum k of both sides cancels what is subtracted.
    lists, top, selected = from_kth(scaled_by(lists, alpha), k, limit)
    threshold = _threshold(lists, regularizer, top, selected)
    total = tf.cast(selected, lists.dtype)
    fixed = tf.stop_gradient(threshold)

    @tf.custom_gradient
    def conjugate(scores):
        # The dual form does not depend on the threshold, to first order; its gradient does.
        def gradient(upstream):
            return upstream * regularizer.project(scores, threshold)

        return regularizer.conjugate(scores, fixed), gradient

    conjugates = lists.sum(conjugate, tends_to_zero=regularizer.tends_to_zero) + total * fixed[:, 0]
    share = total / tf.maximum(count, 1)
    own = share * lists.sum_of_positives(lists.positive_scores)
    losses = conjugates + count * regularizer.value(share) - own
    return tf.where(count > 0, losses, 0) / as_dtype(alpha, lists.dtype)


def _threshold(lists, regularizer, top, selected):
    """The threshold, whose derivative takes no time where nothing asks for it."""
    value = tf.stop_gradient(regularizer.threshold(lists, top, selected))

    @tf.custom_gradient
    def of_scores(scores):
        def gradient(upstream):
            @tf.function(autograph=False)  # Forward-mode differentiation stops all tapes.
            def slopes_of(scores):
                shares = tf.where(lists.mask, regularizer.project(scores, value), 0)
                return tf.gradients(shares, scores)[0]

            slopes = slopes_of(scores)
            total = tf.reduce_sum(slopes, axis=-1, keepdims=True)
            return upstream * tf.math.divide_no_nan(slopes, total)

        return value, gradient

    return of_scores(lists.scores)
