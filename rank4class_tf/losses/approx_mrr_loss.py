"""ApproxMRRLoss."""

from rank4class_tf import _checks, _keras, ops
from rank4class_tf.losses._base import RankingLoss


@_keras.register
class ApproxMRRLoss(RankingLoss):
    r"""Negative reciprocal rank with soft ranks, averaged over the positives.

    $$\ell(s, y) = -\frac{1}{\sum_i y_i} \sum_i \frac{y_i}{\pi(i)}, \qquad
    \pi(i) = 1 + \sum_{j \ne i} \mathrm{sigmoid}\left(\frac{s_j - s_i}{T}\right)$$

    Source: Qin et al. 2010.

    Args:
        temperature: T > 0 of the sigmoid, as in `ApproxNDCGLoss`.
        **kwargs: `label_format`, `max_positives`, `reduction`, `name`: see `RankingLoss`.

    Raises:
        ValueError: if `temperature` is not > 0.

    Example:
        >>> loss = ApproxMRRLoss()
        >>> float(loss([1], [[9.0, 9.0, 0.0]]))  # 1 / (1 + 1/2)
        -0.6666666...
    """

    def __init__(self, temperature=0.1, **kwargs):
        super().__init__(**kwargs)
        self.temperature = _checks.positive_float("temperature", temperature)

    def compute(self, scores, class_ids, relevance):
        """The formula."""
        return ops.approx_mrr_loss(scores, class_ids, relevance, temperature=self.temperature)
