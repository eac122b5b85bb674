"""Stochastic negative mining (Reddi et al. 2019)."""

import warnings

import tensorflow as tf

from rank4class_tf.ops import _positives
from rank4class_tf.ops._gather import gather
from rank4class_tf.ops.ordered_weighted import ordered_weighted, ordered_weighted_loss
from rank4class_tf.ops.ordered_weights import get_weights
from rank4class_tf.ops.sampling import sample_items


def stochastic_negative_mining_loss(
    scores,
    class_ids,
    relevance=None,
    *,
    num_sampled,
    seed,
    kind="pairwise",
    phi="hinge",
    weights,
    rescale=True,
):
    r"""Ordered weighted loss of a random sample of the negatives.

    The sample $\mathcal B$ of B of a list's N negatives is uniform, without replacement, and shared
    by the positives of the list. With `rescale`, the weights are $\vartheta_j = \theta_j N / B$:
    the mean over all samples then is the ordered weighted loss with the weights
    `snm_expected_weights`, of which the first k are $1/k$ for `TopKWeights(k)`, and all are 1 for
    `UniformWeights()`.

    Source: Stochastic Negative Mining, algorithm 1 and lemma 2.

    Args:
        scores: `[batch, n]`; -inf marks an item that is not there.
        class_ids: `[batch, P]` integers, padded with -1.
        relevance: `[batch, P]`, the weight of each positive; None means 1.
        num_sampled: B, positive integer. Where a list has no more negatives, all are taken.
        seed: `[2]` integers; the same seed gives the same sample.
        kind: `"pairwise"` or `"binary"`.
        phi: the margin function; see `get_phi`.
        weights: of the ordered sample, an `OrderedWeights` or a list.
        rescale: whether to multiply the weights by N / B.

    Returns:
        `[batch]`, >= 0.

    Raises:
        ValueError: if more weights lead than items are sampled.

    Example:
        >>> loss = stochastic_negative_mining_loss(
        ...     [[1.0, 0.5, 0.5]], [[0]], num_sampled=1, seed=[1, 2], weights=[1.0]
        ... )
        >>> loss.numpy()  # 0.5 * N / B
        array([1.], dtype=float32)
    """
    weights = get_weights(weights)
    check_weights_fit(weights, num_sampled)
    n = tf.convert_to_tensor(scores).shape[1]
    of_owl = {"kind": kind, "phi": phi, "weights": weights}
    if n is not None and num_sampled >= n - 1:
        warnings.warn(
            f"num_sampled={num_sampled} is no less than the number of negatives among {n} items: "
            "all are taken, and nothing is random.",
            stacklevel=2,
        )
        return ordered_weighted(scores, class_ids, relevance, **of_owl)

    lists = _positives.prepare(scores, class_ids, relevance)
    negatives = lists.negative_scores()
    eligible = _positives.is_there(negatives)
    ids = sample_items(seed, eligible, num_sampled)
    sampled = gather(negatives, tf.maximum(ids, 0))
    sampled = tf.where(ids >= 0, sampled, tf.constant(-float("inf"), sampled.dtype))
    scale = 1.0
    if rescale:
        count = tf.reduce_sum(tf.cast(eligible, negatives.dtype), axis=-1)
        scale = tf.maximum(count / num_sampled, 1)
    losses = ordered_weighted_loss(
        lists.positive_scores, sampled, lists.relevance, negative_scale=scale, **of_owl
    )
    return _positives.keep_nan(losses, lists.scores)


def check_weights_fit(weights, num_sampled):
    """Raises if more weights lead than items are sampled."""
    if weights.num_leading is not None and weights.num_leading > num_sampled:
        raise ValueError(
            f"`weights` must lead with at most num_sampled={num_sampled} weights. "
            f"Received: {weights!r}."
        )
