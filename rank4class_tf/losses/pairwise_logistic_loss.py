"""PairwiseLogisticLoss."""

from rank4class_tf import _checks, _keras, ops
from rank4class_tf.losses._base import RankingLoss


@_keras.register
class PairwiseLogisticLoss(RankingLoss):
    r"""Pairwise logistic loss (PairLog): each positive against each less relevant item.

    $$\ell(s, y) = \sum_{i,j} 1(y_i > y_j) \log\left(1 + e^{-(s_i - s_j) / T}\right)$$

    Source: Rank4Class, equation 2, with $\sigma = 1 / T$.

    Args:
        temperature: T > 0, one over the paper's $\sigma$.
        **kwargs: `label_format`, `max_positives`, `reduction`, `name`: see `RankingLoss`.

    Raises:
        ValueError: if `temperature` is not > 0.

    Example:
        >>> loss = PairwiseLogisticLoss()
        >>> float(loss([1], [[0.0, 0.0, 0.0]]))  # 2 log(2)
        1.3862943...
    """

    def __init__(self, temperature=1.0, **kwargs):
        super().__init__(**kwargs)
        self.temperature = _checks.positive_float("temperature", temperature)

    def compute(self, scores, class_ids, relevance):
        """The formula."""
        return ops.pairwise_logistic_loss(
            scores, class_ids, relevance, temperature=self.temperature
        )
