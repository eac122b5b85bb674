"""Stochastic negative mining (Reddi et al. 2019)."""

import warnings
from collections.abc import Callable

import tensorflow as tf

from rank4class_tf import _checks
from rank4class_tf._lists.lists import Lists, as_lists
from rank4class_tf._types import TensorLike
from rank4class_tf.ops.losses.owl.ordered_weighted import against, ordered_weighted_loss
from rank4class_tf.ops.losses.owl.rank_weights import RankWeights, get_rank_weights
from rank4class_tf.ops.sampling.subsets import sample_items


@_checks.arguments
def stochastic_negative_mining_loss(
    scores: TensorLike | Lists,
    class_ids: TensorLike | None = None,
    relevance: TensorLike | None = None,
    mask: TensorLike | None = None,
    *,
    num_sampled: int,
    seed: TensorLike,
    kind: str = "pairwise",
    phi: str | Callable = "hinge",
    rank_weights: RankWeights | TensorLike,
    rescale: bool = True,
) -> tf.Tensor:
    r"""Ordered weighted loss of a random sample of the negatives.

    The sample $\mathcal B$ of B of a list's N negatives is uniform, without replacement, and shared
    by the positives of the list. With `rescale`, the weights are $\vartheta_j = \theta_j N / B$:
    the mean over all samples then is the ordered weighted loss with the weights
    `snm_expected_weights`, of which the first k are $1/k$ for `TopKWeights(k)`, and all are 1 for
    `UniformWeights()`.

    Source: Stochastic Negative Mining, algorithm 1 and lemma 2.

    Args:
        scores: `[batch, n]`, or `Lists`, which need no labels; -inf masks an item.
        class_ids: `[batch]` or `[batch, P]` integers, padded with -1.
        relevance: `[batch, P]`, the weight of each positive; None means 1.
        mask: `[batch, n]` booleans, False for a masked item; None if no item is masked.
        num_sampled: B, positive integer. Where a list has no more negatives, all are taken.
        seed: `[2]` integers; the same seed gives the same sample.
        kind: `"pairwise"` or `"binary"`.
        phi: the margin function; see `get_phi`.
        rank_weights: of the ordered sample, a `RankWeights` or a list.
        rescale: whether to multiply the weights by N / B.

    Returns:
        `[batch]`, >= 0.

    Raises:
        ValueError: if more weights lead than items are sampled.

    Example:
        >>> loss = stochastic_negative_mining_loss(
        ...     [[1.0, 0.5, 0.5]], [[0]], num_sampled=1, seed=[1, 2], rank_weights=[1.0]
        ... )
        >>> loss.numpy()  # 0.5 * N / B
        array([1.], dtype=float32)
    """
    rank_weights = get_rank_weights(rank_weights)
    check_weights_fit(rank_weights, num_sampled)
    lists = as_lists(scores, class_ids, relevance, mask)
    n = lists.num_columns_of_items
    if isinstance(n, int) and num_sampled >= n - 1:
        warnings.warn(
            f"num_sampled={num_sampled} is no less than the number of negatives among {n} items: "
            "all are taken, and nothing is random.",
            stacklevel=2,
        )
        return ordered_weighted_loss(lists, kind=kind, phi=phi, rank_weights=rank_weights)

    negatives = lists.negatives()
    sample = negatives.only(sample_items(seed, negatives.mask, num_sampled))
    scale = tf.maximum(negatives.num_items / num_sampled, 1) if rescale else 1.0
    return lists.keep_nan(against(sample, kind, phi, rank_weights, scale))


def check_weights_fit(rank_weights: RankWeights, num_sampled: int) -> None:
    """Raises if more weights lead than items are sampled."""
    if rank_weights.num_leading is not None and rank_weights.num_leading > num_sampled:
        raise ValueError(
            f"`rank_weights` must lead with at most num_sampled={num_sampled} weights. "
            f"Received: {rank_weights!r}."
        )
