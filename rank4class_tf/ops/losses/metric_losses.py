"""Losses that are metrics of soft ranks."""

import tensorflow as tf

from rank4class_tf import _checks
from rank4class_tf._lists.lists import Lists, as_lists
from rank4class_tf._types import TensorLike
from rank4class_tf.ops.losses.gumbel import mean_over_gumbel_noise
from rank4class_tf.ops.ranking.soft import sigmoid_ranks
from rank4class_tf.ops.soft_metrics import soft_ndcg, soft_reciprocal_rank


@_checks.arguments
def approx_ndcg_loss(
    scores: TensorLike | Lists,
    class_ids: TensorLike | None = None,
    relevance: TensorLike | None = None,
    mask: TensorLike | None = None,
    *,
    temperature: float = 0.1,
) -> tf.Tensor:
    r"""Negative NDCG with soft ranks.

    $$-\frac{1}{\mathrm{idealDCG}} \sum_i \frac{2^{y_i} - 1}{\log_2(1 + \pi(i))}, \qquad
    \pi(i) = 1 + \sum_{j \ne i} \sigma\left(\frac{s_j - s_i}{T}\right)$$

    Source: Qin et al. 2010; Rank4Class, section 4.1.

    Args:
        scores: `[batch, n]`, or `Lists`, which need no labels; -inf masks an item.
        class_ids: `[batch]` or `[batch, P]` integers, padded with -1.
        relevance: `[batch, P]`, the label of each positive; None means 1.
        mask: `[batch, n]` booleans, False for a masked item; None if no item is masked.
        temperature: > 0, of the sigmoid.

    Returns:
        `[batch]`, in [-1, 0]; 0 for a list without positives.

    Example:
        >>> approx_ndcg_loss([[9.0, 0.0, 0.0]], [[0]]).numpy()
        array([-1.], dtype=float32)
    """
    lists = as_lists(scores, class_ids, relevance, mask)
    return -soft_ndcg(sigmoid_ranks(lists, temperature=temperature), lists.relevance)


@_checks.arguments
def approx_mrr_loss(
    scores: TensorLike | Lists,
    class_ids: TensorLike | None = None,
    relevance: TensorLike | None = None,
    mask: TensorLike | None = None,
    *,
    temperature: float = 0.1,
) -> tf.Tensor:
    r"""Negative reciprocal rank with soft ranks, averaged over the positives.

    $$-\frac{1}{\sum_i y_i} \sum_i \frac{y_i}{\pi(i)}, \qquad
    \pi(i) = 1 + \sum_{j \ne i} \sigma\left(\frac{s_j - s_i}{T}\right)$$

    Source: Qin et al. 2010.

    Args:
        scores: `[batch, n]`, or `Lists`, which need no labels; -inf masks an item.
        class_ids: `[batch]` or `[batch, P]` integers, padded with -1.
        relevance: `[batch, P]`, the label of each positive; None means 1.
        mask: `[batch, n]` booleans, False for a masked item; None if no item is masked.
        temperature: > 0, of the sigmoid.

    Returns:
        `[batch]`, in [-1, 0]; 0 for a list without positives.

    Example:
        >>> approx_mrr_loss([[9.0, 9.0, 0.0]], [[1]]).numpy()  # 1 / (1 + 1/2)
        array([-0.6666667], dtype=float32)
    """
    lists = as_lists(scores, class_ids, relevance, mask)
    return -soft_reciprocal_rank(sigmoid_ranks(lists, temperature=temperature), lists.relevance)


@_checks.arguments
def gumbel_approx_ndcg_loss(
    scores: TensorLike | Lists,
    class_ids: TensorLike | None = None,
    relevance: TensorLike | None = None,
    mask: TensorLike | None = None,
    *,
    num_samples: int = 8,
    gumbel_temperature: float = 1.0,
    temperature: float = 0.1,
    seed: TensorLike = (0, 0),
) -> tf.Tensor:
    r"""ApproxNDCG, averaged over scores with Gumbel noise; see `mean_over_gumbel_noise`.

    Source: Bruch et al. 2020, "A stochastic treatment of learning to rank scoring functions".

    Args:
        scores: `[batch, n]`, or `Lists`, which need no labels; -inf masks an item.
        class_ids: `[batch]` or `[batch, P]` integers, padded with -1.
        relevance: `[batch, P]`, the label of each positive; None means 1.
        mask: `[batch, n]` booleans, False for a masked item; None if no item is masked.
        num_samples: m >= 1.
        gumbel_temperature: > 0; the smaller, the less the noise counts.
        temperature: > 0, of ApproxNDCG's sigmoid.
        seed: two integers. The same seed gives the same noise, in all modes.

    Returns:
        `[batch]`, in [-1, 0]; 0 for a list without positives.

    Example:
        >>> gumbel_approx_ndcg_loss([[99.0, 0.0, 0.0]], [[0]]).numpy()  # noise can't change this
        array([-1.], dtype=float32)
    """

    def loss(lists):
        # A temperature of the scores is one of the sigmoid, at no further cost.
        return approx_ndcg_loss(lists, temperature=temperature * gumbel_temperature)

    lists = as_lists(scores, class_ids, relevance, mask)
    return mean_over_gumbel_noise(loss, lists, num_samples=num_samples, seed=seed)
