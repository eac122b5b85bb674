"""ApproxNDCGLoss."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from rank4class_tf import _registry, ops
from rank4class_tf.losses._metric_loss import MetricLoss
from rank4class_tf.losses._temperature import Temperature


@_registry.register("loss")
class ApproxNDCGLoss(MetricLoss):
    r"""Negative NDCG with soft ranks: a smooth form of the metric itself.

    $$\ell(s, y) = -\frac{1}{\mathrm{idealDCG}} \sum_i \frac{2^{y_i} - 1}{\log_2(1 + \pi(i))},
    \qquad \pi(i) = 1 + \sum_{j \ne i} \mathrm{sigmoid}\left(\frac{s_j - s_i}{T}\right)$$

    Weights of items become the weight $\sum_i w_i y_i / \sum_i y_i$ of the list, as in TF-Ranking.

    Source: Qin et al. 2010; Rank4Class, section 4.1.

    Args:
        temperature: T > 0 of the sigmoid. The smaller, the closer to NDCG, and the smaller the
            gradient of items that are far apart.
        ranker: ranks the items instead of the sigmoid, such as a sorter of `rank4class_tf.layers`;
            see `MetricLoss`.
        gain: `"exponential"` for `2**y - 1`, `"linear"` for y, or a function of labels that
            increases from 0 at 0; registered with Keras, if the loss is to be saved.
        discount: `"logarithmic"` for `1 / log2(1 + r)`, `"reciprocal"` for `1 / r`, or a function
            of ranks >= 1 that decreases; registered like `gain`.
        **kwargs: `label_format`, `class_weight`, `reduction` and more: see `RankingLoss`.

    Raises:
        ValueError: if `temperature` is not > 0.

    Example:
        >>> loss = ApproxNDCGLoss()
        >>> float(loss([0], [[9.0, 0.0, 0.0]]))
        -1.0
    """

    def __init__(
        self,
        temperature: Temperature = 0.1,
        ranker: Callable | None = None,
        gain: str | Callable = "exponential",
        discount: str | Callable = "logarithmic",
        **kwargs: Any,
    ) -> None:
        super().__init__(temperature, ranker, **kwargs)
        ops.get_gain(gain)
        ops.get_discount(discount)
        self.gain = gain
        self.discount = discount

    def metric(self, ranks: tf.Tensor, lists: ops.Lists) -> tf.Tensor:
        """The formula."""
        return ops.soft_ndcg(ranks, lists.relevance, self.gain, self.discount)
