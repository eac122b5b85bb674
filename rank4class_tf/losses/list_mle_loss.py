"""ListMLELoss."""

import tensorflow as tf

from rank4class_tf import _registry, ops
from rank4class_tf.losses._log_total import SoftmaxOfRivalsLoss, log_total


@_registry.register("loss")
class ListMLELoss(SoftmaxOfRivalsLoss):
    r"""Negative log-likelihood of the positives' order, the most relevant first.

    $$\ell(s, y) = -\sum_{i : y_i > 0} \log
    \frac{e^{s_i / T}}{\sum_{j : y_j \le y_i} e^{s_j / T}}$$

    Without ties among the labels this is the Plackett-Luce likelihood of ListMLE. Where positives
    tie, each competes with all of them (Breslow's form): the loss does not depend on an order of
    the tied items, and bounds that of every order from above. The order of the items with label 0,
    which the labels do not tell, does not count. With one positive the loss is softmax
    cross-entropy.

    Weights of items become the weight $\sum_i w_i y_i / \sum_i y_i$ of the list, as in TF-Ranking.

    Source: Xia et al. 2008, "Listwise approach to learning to rank"; Breslow 1974 for ties.

    Args:
        temperature: T > 0.
        **kwargs: `label_format`, `class_weight`, `reduction` and more: see `RankingLoss`.

    Raises:
        ValueError: if `temperature` is not > 0.

    Example:
        >>> loss = ListMLELoss()
        >>> float(loss([[1.0, 2.0, 0.0]], [[0.0, 0.0, 0.0]]))  # log(3) + log(2)
        1.7917594...
    """

    def compute(self, lists: ops.Lists) -> tf.Tensor:
        """The formula."""
        return lists.sum_of_positives(log_total(lists, self.temperature, with_ties=True))
