"""What losses share in which a positive competes only with less relevant items."""

from typing import Any

import tensorflow as tf

from rank4class_tf import _checks
from rank4class_tf._tf import scan
from rank4class_tf._tf.gather import gather
from rank4class_tf._tf.search import searchsorted
from rank4class_tf._tf.where import where
from rank4class_tf.layers import Probabilities
from rank4class_tf.losses._base import RankingLoss
from rank4class_tf.ops import Lists


class SoftmaxOfRivalsLoss(RankingLoss):
    """Base of losses of a softmax with a temperature."""

    _item_weights = "lists"

    def __init__(self, temperature: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.temperature = _checks.positive_float("temperature", temperature)

    @property
    def probabilities(self) -> Probabilities:
        """Softmax with the temperature; for orders, the probabilities of the first place."""
        return Probabilities(self.temperature)


def log_total(lists: Lists, temperature: float, with_ties: bool) -> tf.Tensor:
    r"""$\log \sum_j e^{(s_j - s_i) / T}$ over the less relevant items j, for each positive i.

    Each sum is relative to scores that are in it, so that no other costs it digits.

    Args:
        lists: `Lists`.
        temperature: T > 0.
        with_ties: whether equally relevant items, the positive included, belong to the sum.

    Returns:
        `[batch, P]`; finite where padded.
    """
    negatives = lists.negatives()
    highest = negatives.constant().max()[:, tf.newaxis]
    # If all items are positive, the sum runs over masked items; `relative` brings it to 0.
    total = negatives.sum(
        lambda s, top: tf.exp((s - top) / temperature), highest, tends_to_zero=True
    )
    own = tf.where(lists.is_positive, lists.positive_scores, highest)
    # The maximum keeps the sum finite, and the graph from being rewritten.
    relative = tf.maximum((highest - own) / temperature, own.dtype.min / 8)
    irrelevant = tf.math.log(total)[:, tf.newaxis] + relative

    if lists.has_few_columns:
        relevant = _by_pairs(own, lists.relevance, temperature, with_ties)
    else:
        most = lists.num_columns_of_items
        most = most if isinstance(most, int) else None
        relevant = _by_sorting(own, lists.relevance, temperature, with_ties, most)
    return tf.reduce_logsumexp(tf.stack([irrelevant, relevant]), axis=0)


def _by_pairs(own, relevance, temperature, with_ties):
    compare = tf.less_equal if with_ties else tf.less
    other = tf.where(relevance > 0, relevance, relevance.dtype.max)[:, tf.newaxis, :]
    competes = compare(other, relevance[:, :, tf.newaxis])
    differences = (own[:, tf.newaxis, :] - own[:, :, tf.newaxis]) / temperature
    floor = tf.constant(own.dtype.min / 8, own.dtype)
    return tf.reduce_logsumexp(where(competes, differences, floor), axis=-1)


def _by_sorting(own, relevance, temperature, with_ties, most):
    floor = tf.constant(own.dtype.min / 8, own.dtype)
    # In falling order of relevance a sum over the less relevant is a suffix. It is relative to its
    # highest score, so that what is far above it, before it, costs it no digits.
    order = tf.argsort(relevance, axis=-1, direction="DESCENDING")
    ranked = -tf.gather(relevance, order, batch_dims=1)
    suffix = gather(tf.where(relevance > 0, own, floor), order)
    highest = scan.maxima(suffix, most)
    drops = tf.exp((highest[:, 1:] - highest[:, :-1]) / temperature)
    sums = tf.exp((suffix - highest) / temperature)
    sums = scan.decaying_sums(sums, tf.pad(drops, [[0, 0], [0, 1]]), most)
    highest = tf.pad(highest, [[0, 0], [0, 1]], constant_values=floor)
    sums = tf.pad(sums, [[0, 0], [0, 1]], constant_values=1)
    start = searchsorted(ranked, -relevance, side="left" if with_ties else "right")
    relative = (tf.gather(highest, start, batch_dims=1) - own) / temperature
    return tf.maximum(relative + tf.math.log(gather(sums, start)), floor)
