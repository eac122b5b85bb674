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
    # Its derivative counts only in second derivatives.
    threshold = regularizer.threshold(lists.constant(), top, selected)
    threshold = lists.root(threshold, regularizer.project)
    total = tf.cast(selected, lists.dtype)
    fixed = tf.stop_gradient(threshold)

    @tf.custom_gradient
    def conjugate(scores):
        # The dual form does not depend on the threshold, to first order; its gradient does.
        def gradient(upstream):
            return upstream * regularizer.project(scores, threshold)

        return regularizer.conjugate(scores, fixed), gradient

    conjugates = total * fixed[:, 0] + lists.sum(
        conjugate, tends_to_zero=regularizer.tends_to_zero, vanishes=regularizer.vanishes
    )
    share = total / tf.maximum(count, 1)
    own = share * lists.sum_of_positives(lists.positive_scores)
    losses = conjugates + count * regularizer.value(share) - own
    return tf.where(count > 0, losses, 0) / as_dtype(alpha, lists.dtype)
