"""ApproxMRRLoss."""

import tensorflow as tf

from rank4class_tf import _registry, ops
from rank4class_tf.losses._metric_loss import MetricLoss


@_registry.register("loss")
class ApproxMRRLoss(MetricLoss):
    r"""Negative reciprocal rank with soft ranks, averaged over the positives.

    $$\ell(s, y) = -\frac{1}{\sum_i y_i} \sum_i \frac{y_i}{\pi(i)}, \qquad
    \pi(i) = 1 + \sum_{j \ne i} \mathrm{sigmoid}\left(\frac{s_j - s_i}{T}\right)$$

    Weights of items become the weight $\sum_i w_i y_i / \sum_i y_i$ of the list, as in TF-Ranking.

    Source: Qin et al. 2010.

    Args:
        temperature: T > 0 of the sigmoid, as in `ApproxNDCGLoss`.
        ranker: ranks the items instead of the sigmoid, such as a sorter of `rank4class_tf.layers`;
            see `MetricLoss`.
        **kwargs: `label_format`, `class_weight`, `reduction` and more: see `RankingLoss`.

    Raises:
        ValueError: if `temperature` is not > 0.

    Example:
        >>> loss = ApproxMRRLoss()
        >>> float(loss([1], [[9.0, 9.0, 0.0]]))  # 1 / (1 + 1/2)
        -0.6666666...
    """

    def metric(self, ranks: tf.Tensor, lists: ops.Lists) -> tf.Tensor:
        """The formula."""
        return ops.soft_reciprocal_rank(ranks, lists.relevance)
