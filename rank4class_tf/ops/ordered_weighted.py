"""Ordered weighted losses (Reddi et al. 2019, "Stochastic Negative Mining")."""

import tensorflow as tf

from rank4class_tf import _checks
from rank4class_tf.ops import _pairs, _positives
from rank4class_tf.ops._binomial import log_binomial
from rank4class_tf.ops._gather import gather
from rank4class_tf.ops._where import where
from rank4class_tf.ops.ordered_weights import get_weights
from rank4class_tf.ops.phi import get_phi

KINDS = ("pairwise", "binary")


def ordered_weighted_loss(
    positive_scores,
    negative_scores,
    relevance=None,
    *,
    kind="pairwise",
    phi="hinge",
    weights,
    negative_scale=1.0,
):
    r"""Ordered weighted loss of given positives and negatives.

    With $v_{[j]}$ the j-th highest negative score, pairwise (POWL) or binary (BOWL):

    $$\sum_y w_y \, c \sum_j \theta_j \varphi(v_y - v_{[j]}), \qquad
    \sum_y w_y \Big( \varphi(v_y) + c \sum_j \theta_j \varphi(-v_{[j]}) \Big)$$

    Weights that are constant after the first h need a search for the h highest scores, not a sort.

    Source: Stochastic Negative Mining, definitions 3 and 4.

    Args:
        positive_scores: `[batch, P]`.
        negative_scores: `[batch, B]`, in any order; -inf marks a negative that is not there.
        relevance: `[batch, P]`, the weight $w_y$ of each positive, 0 where padded; None means 1.
        kind: `"pairwise"` or `"binary"`.
        phi: the margin function $\varphi$; see `get_phi`.
        weights: $\theta$, an `OrderedWeights` or a list. Weights beyond the number of negatives
            have no effect.
        negative_scale: c, `[batch]` or a scalar.

    Returns:
        `[batch]`, >= 0. NaN where a score of a negative or of a positive is.

    Raises:
        ValueError: if `kind`, `phi` or `weights` is unknown.

    Example:
        >>> ordered_weighted_loss([[1.0]], [[0.5, 0.0, 0.7]], weights=[1.0, 0.5]).numpy()
        array([0.95], dtype=float32)
    """
    _checks.one_of("kind", kind, KINDS)
    phi, weights = get_phi(phi), get_weights(weights)
    positives = tf.convert_to_tensor(positive_scores)
    dtype = positives.dtype
    negatives = _positives.with_floor(negative_scores, dtype)
    relevance = tf.ones_like(positives) if relevance is None else _of_dtype(relevance, dtype)
    # The margin of padding is so large that phi is 0.
    positives = where(relevance > 0, positives, dtype.max / 8)
    scale = _of_dtype(negative_scale, dtype)

    if kind == "pairwise":
        count = _pairs.visited(relevance)

        def sum_over(items, f):
            return _pairs.sum_over_items(lambda s, p: f(p - s), [items], [positives], count)

        losses = _weighted_sum(sum_over, phi, weights, negatives)
        losses = scale * tf.reduce_sum(relevance * losses, axis=-1)
    else:

        def sum_over(items, f):
            return tf.reduce_sum(f(-items), axis=-1)

        of_positives = tf.reduce_sum(relevance * phi(positives), axis=-1)
        of_negatives = scale * _weighted_sum(sum_over, phi, weights, negatives)
        losses = of_positives + tf.reduce_sum(relevance, axis=-1) * of_negatives
    # The highest scores alone would not show a NaN.
    return _positives.keep_nan(losses, negatives, positives)


def _of_dtype(value, dtype):
    """A tensor; unlike `tf.cast`, Python numbers do not pass through float32."""
    return tf.cast(tf.convert_to_tensor(value, dtype_hint=dtype), dtype)


def _weighted_sum(sum_over, phi, weights, negatives):
    r"""$\sum_j \theta_j \varphi(p - v_{[j]})$, with `sum_over(items, f)` the sum of f(p - item)."""
    dtype = negatives.dtype
    tail = tf.constant(weights.tail, dtype)
    if weights.num_leading == 0:
        return tail * sum_over(negatives, phi)
    n = _at_most(negatives.shape[1] or tf.shape(negatives)[1], weights.num_leading)
    # The gradient of a gather costs less than that of top_k.
    ids = tf.math.top_k(tf.stop_gradient(negatives), n).indices
    theta = weights.leading(n, dtype) - tail
    total = sum_over(gather(negatives, ids), lambda margins: theta * phi(margins))
    return total + tail * sum_over(negatives, phi) if weights.tail else total


def ordered_weighted(scores, class_ids, relevance=None, *, kind="pairwise", phi="hinge", weights):
    r"""Ordered weighted loss of lists; the negatives are the items that are not positive.

    Source: Stochastic Negative Mining, definitions 3 and 4; see `ordered_weighted_loss`.

    Args:
        scores: `[batch, n]`; -inf marks an item that is not there.
        class_ids: `[batch, P]` integers, padded with -1.
        relevance: `[batch, P]`, the weight of each positive; None means 1.
        kind: `"pairwise"` or `"binary"`.
        phi: the margin function; see `get_phi`.
        weights: of the ordered negatives, an `OrderedWeights` or a list.

    Returns:
        `[batch]`, >= 0.

    Example:
        >>> ordered_weighted([[1.0, 0.5, 0.0]], [[0]], weights=[1.0]).numpy()
        array([0.5], dtype=float32)
    """
    lists = _positives.prepare(scores, class_ids, relevance)
    return ordered_weighted_loss(
        lists.positive_scores,
        lists.negative_scores(),
        lists.relevance,
        kind=kind,
        phi=phi,
        weights=weights,
    )


def snm_expected_weights(weights, num_sampled, num_negatives):
    r"""Weights of the loss that stochastic negative mining estimates without bias.

    $$\theta_j = \sum_{i=1}^B \vartheta_i \binom{j-1}{i-1} \binom{N-j}{B-i} \Big/ \binom{N}{B}$$

    Source: Stochastic Negative Mining, lemma 2 and its proof.

    Args:
        weights: $\vartheta$ of the ordered sample, an `OrderedWeights` or a list.
        num_sampled: B, positive integer.
        num_negatives: N >= B, how many negatives there are; K - 1 for K classes.

    Returns:
        `[N]` float64.

    Raises:
        ValueError: unless 1 <= `num_sampled` <= `num_negatives`.

    Example:
        >>> snm_expected_weights([1.0], num_sampled=2, num_negatives=3).numpy()  # 2/3, 1/3, 0
        array([0.66666667, 0.33333333, 0.        ])
    """
    if not 1 <= num_sampled <= num_negatives:
        raise ValueError(
            "`num_sampled` must be in [1, num_negatives]. "
            f"Received: num_sampled={num_sampled}, num_negatives={num_negatives}."
        )
    weights = get_weights(weights)
    sampled = tf.constant(num_sampled, tf.float64)
    total = tf.constant(num_negatives, tf.float64)
    leading = weights.leading(_at_most(num_sampled, weights.num_leading), tf.float64)
    i = tf.range(1, len(leading) + 1, dtype=tf.float64)
    j = tf.range(1, total + 1)[:, tf.newaxis]
    log_probability = (
        log_binomial(j - 1, i - 1) + log_binomial(total - j, sampled - i)
    ) - log_binomial(total, sampled)
    # A negative of any rank is in the sample with probability B / N.
    constant = weights.tail * sampled / total
    return tf.linalg.matvec(tf.exp(log_probability), leading - weights.tail) + constant


def _at_most(n, limit):
    """The smaller of two counts, an int where both are; the limit may be None."""
    if limit is None:
        return n
    return min(n, limit) if isinstance(n, int) else tf.minimum(n, limit)
