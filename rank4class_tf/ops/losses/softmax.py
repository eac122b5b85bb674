"""Softmax cross-entropy, and its forms in which an item competes with less relevant ones only."""

import tensorflow as tf

from rank4class_tf import _checks
from rank4class_tf._lists.lists import Lists, as_lists
from rank4class_tf._tf import scan
from rank4class_tf._tf.gather import gather
from rank4class_tf._tf.raising import check
from rank4class_tf._tf.search import searchsorted
from rank4class_tf._types import TensorLike
from rank4class_tf.ops.gains import exponential_gain


@_checks.arguments
def softmax_loss(
    scores: TensorLike | Lists,
    class_ids: TensorLike | None = None,
    relevance: TensorLike | None = None,
    mask: TensorLike | None = None,
    *,
    temperature: TensorLike = 1.0,
    label_smoothing: float = 0.0,
) -> tf.Tensor:
    r"""Softmax cross-entropy.

    $$-\sum_i \left((1 - \epsilon) y_i + \epsilon \frac{\sum_j y_j}{n}\right)
    \log \mathrm{softmax}(s / T)_i$$

    Source: Rank4Class, section 4.1; Szegedy et al. 2016 for label smoothing.

    Args:
        scores: `[batch, n]`, or `Lists`, which need no labels; -inf masks an item.
        class_ids: `[batch]` or `[batch, P]` integers, padded with -1.
        relevance: `[batch, P]`, the label of each positive; None means 1.
        mask: `[batch, n]` booleans, False for a masked item; None if no item is masked.
        temperature: > 0.
        label_smoothing: $\epsilon$ in [0, 1), the share of each label that is spread evenly over
            the n items that are not masked.

    Returns:
        `[batch]`, >= 0.

    Example:
        >>> softmax_loss([[0.0, 0.0]], [[1]]).numpy()  # log(2)
        array([0.6931472], dtype=float32)
    """
    lists = as_lists(scores, class_ids, relevance, mask).from_top()
    log_total = lists.log_sum_exp(temperature)[:, tf.newaxis]
    scores = lists.positive_scores
    if label_smoothing:
        if not _checks.is_array(label_smoothing):
            _checks.fraction_below("label_smoothing", label_smoothing, 1)
        mean = lists.sum(tf.identity) / tf.maximum(lists.num_items, 1)
        scores = (1 - label_smoothing) * scores + label_smoothing * mean[:, tf.newaxis]
    losses = log_total - scores / temperature
    return lists.sum_of_positives(lists.relevance * losses)


@_checks.arguments
def unique_softmax_loss(
    scores: TensorLike | Lists,
    class_ids: TensorLike | None = None,
    relevance: TensorLike | None = None,
    mask: TensorLike | None = None,
    *,
    temperature: float = 1.0,
) -> tf.Tensor:
    r"""Softmax in which each positive competes with the less relevant items only.

    $$-\sum_i (2^{y_i} - 1) \log
    \frac{e^{s_i / T}}{e^{s_i / T} + \sum_{j : y_j < y_i} e^{s_j / T}}$$

    Source: Zhu & Klabjan 2020, "Listwise learning to rank by exploring unique ratings", as in
    TF-Ranking.

    Args:
        scores: `[batch, n]`, or `Lists`, which need no labels; -inf masks an item.
        class_ids: `[batch]` or `[batch, P]` integers, padded with -1.
        relevance: `[batch, P]`, the label of each positive; None means 1.
        mask: `[batch, n]` booleans, False for a masked item; None if no item is masked.
        temperature: > 0.

    Returns:
        `[batch]`, >= 0.

    Raises:
        ValueError: if a gain is too large for the dtype: that of a label of 128 in float32. Where
            XLA compiles this, the loss is infinite or NaN.

    Example:
        >>> unique_softmax_loss([[0.0, 0.0, 0.0]], [[0, 1]]).numpy()  # 2 log(2)
        array([1.3862944], dtype=float32)
    """
    lists = as_lists(scores, class_ids, relevance, mask)
    gains = exponential_gain(lists.relevance)
    rule = f"`relevance` must have a gain 2**y - 1 that {lists.dtype.name} holds"
    check(~tf.math.is_finite(gains), lists.relevance, rule)
    losses = tf.nn.softplus(_log_total(lists, temperature, with_ties=False))
    return lists.sum_of_positives(gains * losses)


@_checks.arguments
def list_mle_loss(
    scores: TensorLike | Lists,
    class_ids: TensorLike | None = None,
    relevance: TensorLike | None = None,
    mask: TensorLike | None = None,
    *,
    temperature: float = 1.0,
) -> tf.Tensor:
    r"""Negative log-likelihood of the positives' order, the most relevant first.

    $$-\sum_{i : y_i > 0} \log \frac{e^{s_i / T}}{\sum_{j : y_j \le y_i} e^{s_j / T}}$$

    Without ties among the labels this is the Plackett-Luce likelihood of ListMLE. Where positives
    tie, each competes with all of them (Breslow's form): the loss depends on no order of the tied
    items, and bounds that of every order from above. The order of the items with label 0, which is
    no information, does not count. With one positive the loss is softmax cross-entropy.

    Source: Xia et al. 2008, "Listwise approach to learning to rank"; Breslow 1974 for ties.

    Args:
        scores: `[batch, n]`, or `Lists`, which need no labels; -inf masks an item.
        class_ids: `[batch]` or `[batch, P]` integers, padded with -1.
        relevance: `[batch, P]`, the label of each positive; None means 1.
        mask: `[batch, n]` booleans, False for a masked item; None if no item is masked.
        temperature: > 0.

    Returns:
        `[batch]`, >= 0.

    Example:
        >>> list_mle_loss([[0.0, 0.0, 0.0]], [[0, 1]], [[1.0, 2.0]]).numpy()  # log(3) + log(2)
        array([1.7917595], dtype=float32)
    """
    lists = as_lists(scores, class_ids, relevance, mask)
    losses = _log_total(lists, temperature, with_ties=True)
    return lists.sum_of_positives(losses)


def _log_total(lists, temperature, with_ties):
    r"""$\log \sum_j e^{(s_j - s_i) / T}$ over the less relevant items, for each positive i.

    Each sum is relative to scores that are in it, so that no other costs it digits.

    Args:
        lists: `Lists`.
        temperature: > 0.
        with_ties: whether equally relevant items, the positive included, belong to the sum.

    Returns:
        `[batch, P]`; finite where padded.
    """
    negatives = lists.negatives()
    highest = tf.stop_gradient(negatives.max())[:, tf.newaxis]
    # Where all items are positive the sum is that of masked ones; `relative` makes it vanish.
    total = negatives.sum(lambda s, top: tf.exp((s - top) / temperature), highest, vanishes=True)
    own = tf.where(lists.is_positive, lists.positive_scores, highest)
    # The maximum keeps the sum finite, and the graph from being rewritten.
    relative = tf.maximum((highest - own) / temperature, own.dtype.min / 8)
    irrelevant = tf.math.log(total)[:, tf.newaxis] + relative

    if lists.has_few_columns:
        relevant = _log_total_by_pairs(own, lists.relevance, temperature, with_ties)
    else:
        relevant = _log_total_by_sorting(own, lists.relevance, temperature, with_ties)
    return tf.reduce_logsumexp(tf.stack([irrelevant, relevant]), axis=0)


def _log_total_by_pairs(own, relevance, temperature, with_ties):
    compare = tf.less_equal if with_ties else tf.less
    other = relevance[:, tf.newaxis, :]
    competes = compare(other, relevance[:, :, tf.newaxis]) & (other > 0)
    differences = (own[:, tf.newaxis, :] - own[:, :, tf.newaxis]) / temperature
    floor = tf.constant(own.dtype.min / 8, own.dtype)
    return tf.reduce_logsumexp(tf.where(competes, differences, floor), axis=-1)


def _log_total_by_sorting(own, relevance, temperature, with_ties):
    floor = tf.constant(own.dtype.min / 8, own.dtype)
    # In falling order of relevance a sum over the less relevant is a suffix. It is relative to its
    # highest score, so that what is far above it, before it, costs it no digits.
    order = tf.argsort(relevance, axis=-1, direction="DESCENDING")
    ranked = -tf.gather(relevance, order, batch_dims=1)
    suffix = gather(tf.where(relevance > 0, own, floor), order)
    highest = scan.maxima(suffix)
    drops = tf.exp((highest[:, 1:] - highest[:, :-1]) / temperature)
    sums = tf.exp((suffix - highest) / temperature)
    sums = scan.decaying_sums(sums, tf.pad(drops, [[0, 0], [0, 1]]))
    highest = tf.pad(highest, [[0, 0], [0, 1]], constant_values=floor)
    sums = tf.pad(sums, [[0, 0], [0, 1]], constant_values=1)
    start = searchsorted(ranked, -relevance, side="left" if with_ties else "right")
    relative = (tf.gather(highest, start, batch_dims=1) - own) / temperature
    return tf.maximum(relative + tf.math.log(gather(sums, start)), floor)
