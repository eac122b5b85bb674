"""The negatives with the highest scores."""

import tensorflow as tf

from rank4class_tf._tf import top as _top
from rank4class_tf._tf.nan import has_nan
from rank4class_tf._tf.search import places_in
from rank4class_tf.layers._class_scores import ClassScores

# Where each example has its own negatives and at most so many positives, it costs less to search as
# many more negatives and drop the positives among them than to mask the positives first.
_FEW_POSITIVES = 32


def score_negatives(
    scores_of: ClassScores,
    encodings: tf.Tensor,
    negatives: tf.Tensor,
    positives: tf.Tensor,
    num_classes: int,
    gradient: bool = True,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Scores of negatives, -inf where one is a class of the example, and their class ids.

    Negatives `[batch, B]` come back in another order.

    Args:
        scores_of: a `ClassScores`.
        encodings: `[batch, d]`, scaled.
        negatives: distinct class ids, `[B]` for all examples alike or `[batch, B]`.
        positives: class ids `[batch, P]`, padded with -1.
        num_classes: an int.
        gradient: whether the classes get a gradient.
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
    scores = scores_of(encodings, negatives, gradient)
    # An addition can be done in place, without a copy of the scores.
    scores = _top.add_columns(scores, place, tf.where(same, -float("inf"), 0.0))
    return scores, negatives


def mine(
    scores_of: ClassScores,
    encodings: tf.Tensor,
    negatives: tf.Tensor,
    positives: tf.Tensor,
    num_classes: int,
    num_mined: int,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The `num_mined` highest scores of negatives, without gradients; see `score_negatives`.

    Returns:
        The scores `[batch, num_mined]`, -inf where a list has fewer negatives; their classes; and
        `[batch]` booleans, True where a score is NaN, which a search may miss.
    """
    encodings = tf.stop_gradient(encodings)
    num_positives = positives.shape[1]
    shared = negatives.shape.rank == 1
    if shared or num_positives is None or num_positives > _FEW_POSITIVES:
        scores, negatives = score_negatives(
            scores_of, encodings, negatives, positives, num_classes, gradient=False
        )
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
