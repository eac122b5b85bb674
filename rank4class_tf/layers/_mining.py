"""The negatives with the highest scores."""

from collections.abc import Callable

import tensorflow as tf

from rank4class_tf._tf import top as _top
from rank4class_tf._tf.nan import has_nan
from rank4class_tf._tf.search import places_in
from rank4class_tf.layers._class_scores import ClassScores

# Where each example has its own negatives and at most so many positives, it costs less to search as
# many more negatives and drop the positives among them than to mask the positives first.
_FEW_POSITIVES = 32


def penalties(
    negatives: tf.Tensor, positives: tf.Tensor, num_classes: int
) -> tuple[tf.Tensor, Callable]:
    """The negatives, and a function that sets scores of an example's own classes to -inf.

    Negatives `[batch, B]` come back in another order.

    Args:
        negatives: distinct class ids, `[B]` shared by all examples or `[batch, B]`.
        positives: class ids `[batch, P]`, padded with -1.
        num_classes: an int.
    """
    size = negatives.shape[-1]
    if negatives.shape.rank == 2:
        negatives = tf.sort(negatives)
        place = tf.minimum(tf.searchsorted(negatives, positives), size - 1)
        same = tf.gather(negatives, place, batch_dims=1) == positives
    else:
        place = positives
        if size < num_classes:
            order = tf.argsort(negatives)
            place = places_in(tf.gather(negatives, order), positives)
            place = tf.gather(order, tf.minimum(place, size - 1))
        place = tf.maximum(place, 0)
        same = tf.gather(negatives, place) == positives

    def penalized(scores):
        # An addition can be done in place, without a copy of the scores.
        return _top.add_columns(scores, place, tf.where(same, -float("inf"), 0.0))

    return negatives, penalized


def mine(
    scores_of: ClassScores,
    encodings: tf.Tensor,
    negatives: tf.Tensor,
    positives: tf.Tensor,
    num_classes: int,
    num_mined: int,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The `num_mined` highest scores of negatives, without gradients.

    Args:
        scores_of: a `ClassScores`.
        encodings: `[batch, d]`, scaled.
        negatives: as in `penalties`.
        positives: as in `penalties`.
        num_classes: an int.
        num_mined: how many.

    Returns:
        The scores `[batch, num_mined]`, -inf where a list has fewer negatives; their classes; and
        `[batch]` booleans, True where a score is NaN, which a search may miss.
    """
    encodings = tf.stop_gradient(encodings)
    num_positives = positives.shape[1]
    shared = negatives.shape.rank == 1
    if shared or num_positives is None or num_positives > _FEW_POSITIVES:
        negatives, penalized = penalties(negatives, positives, num_classes)
        scores = penalized(scores_of(encodings, negatives, gradient=False))
        highest, index = _top.top_k(scores, num_mined)
        classes = tf.gather(negatives, index, batch_dims=negatives.shape.rank - 1)
        return highest, classes, has_nan(scores)
    scores = scores_of(encodings, negatives, gradient=False)
    sought = min(num_mined + num_positives, negatives.shape[1])
    highest, index = _top.top_k(scores, sought)
    classes = tf.gather(negatives, index, batch_dims=1)
    is_positive = tf.reduce_any(classes[:, :, tf.newaxis] == positives[:, tf.newaxis], axis=2)
    highest = tf.where(is_positive, -float("inf"), highest)
    highest, index = tf.math.top_k(highest, num_mined)
    return highest, tf.gather(classes, index, batch_dims=1), has_nan(scores)
