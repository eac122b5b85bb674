"""ApproxNDCGLoss."""

from rank4class_tf import _checks, _keras, ops
from rank4class_tf.losses._base import RankingLoss


@_keras.register
class ApproxNDCGLoss(RankingLoss):
    r"""Negative NDCG with soft ranks; it optimises the metric itself.

    $$\ell(s, y) = -\frac{1}{\mathrm{idealDCG}} \sum_i \frac{2^{y_i} - 1}{\log_2(1 + \pi(i))},
    \qquad \pi(i) = 1 + \sum_{j \ne i} \mathrm{sigmoid}\left(\frac{s_j - s_i}{T}\right)$$

    Source: Qin et al. 2010; Rank4Class, section 4.1.

    Args:
        temperature: T > 0 of the sigmoid. The smaller, the closer to NDCG, and the smaller the
            gradient of items that are far apart.
        **kwargs: `label_format`, `max_positives`, `reduction`, `name`: see `RankingLoss`.

    Raises:
        ValueError: if `temperature` is not > 0.

    Example:
        >>> loss = ApproxNDCGLoss()
        >>> float(loss([0], [[9.0, 0.0, 0.0]]))
        -1.0
    """

    def __init__(self, temperature=0.1, **kwargs):
        super().__init__(**kwargs)
        self.temperature = _checks.positive_float("temperature", temperature)

    def compute(self, scores, class_ids, relevance):
        """The formula."""
        return ops.approx_ndcg_loss(scores, class_ids, relevance, temperature=self.temperature)
