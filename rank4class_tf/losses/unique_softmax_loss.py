"""UniqueSoftmaxLoss."""

import tensorflow as tf

from rank4class_tf import _registry, ops
from rank4class_tf._tf.raising import check
from rank4class_tf.losses._log_total import SoftmaxOfRivalsLoss, log_total


@_registry.register("loss")
class UniqueSoftmaxLoss(SoftmaxOfRivalsLoss):
    r"""Softmax in which each positive competes only with less relevant items.

    $$\ell(s, y) = -\sum_i (2^{y_i} - 1) \log
    \frac{e^{s_i / T}}{e^{s_i / T} + \sum_{j : y_j < y_i} e^{s_j / T}}$$

    Weights of items become the weight $\sum_i w_i y_i / \sum_i y_i$ of the list, as in TF-Ranking.

    Source: Zhu & Klabjan 2020, "Listwise learning to rank by exploring unique ratings", as in
    TF-Ranking.

    Args:
        temperature: T > 0.
        **kwargs: `label_format`, `class_weight`, `reduction` and more: see `RankingLoss`.

    Raises:
        ValueError: if `temperature` is not > 0; in the call, if a gain is too large for the dtype:
            that of a label of 128 in float32. Where XLA compiles this, the loss is infinite or NaN.

    Example:
        >>> loss = UniqueSoftmaxLoss()
        >>> float(loss([[1.0, 1.0, 0.0]], [[0.0, 0.0, 0.0]]))  # 2 log(2)
        1.3862943...
    """

    def compute(self, lists: ops.Lists) -> tf.Tensor:
        """The formula."""
        gains = ops.get_gain("exponential")(lists.relevance)
        rule = f"`relevance` must have a gain 2**y - 1 that {lists.dtype.name} holds"
        check(~tf.math.is_finite(gains), lists.relevance, rule)
        losses = tf.nn.softplus(log_total(lists, self.temperature, with_ties=False))
        return lists.sum_of_positives(gains * losses)
