"""RankmaxLoss."""

from rank4class_tf import _checks, _keras, ops
from rank4class_tf.losses._base import RankingLoss


@_keras.register
class RankmaxLoss(RankingLoss):
    r"""Cross-entropy of the Rankmax projection, which adapts to each positive.

    $$\ell(z, Y) = \sum_{y \in Y} w_y \left( \log \sum_i (z_i - z_y + \eta)_+ - \log \eta \right)$$

    Items that score more than the margin $\eta$ below the positive have no gradient.

    Source: Kong et al. 2020, "Rankmax", equations 14 and 15; see `ops.rankmax_loss` for a
    correction of its equation 16.

    Args:
        k: number of items to select; 1.
        margin: $\eta$ > 0.
        **kwargs: `label_format`, `max_positives`, `reduction`, `name`: see `RankingLoss`.

    Raises:
        ValueError: if `k` is not 1 or `margin` is not > 0.

    Example:
        >>> loss = RankmaxLoss()
        >>> float(loss([0], [[1.0, 0.5, 0.0]]))  # log(1 + 0.5)
        0.405465...
    """

    def __init__(self, k=1, margin=1.0, **kwargs):
        super().__init__(**kwargs)
        if k != 1:
            raise ValueError(f"`k` must be 1. Received: k={k!r}.")
        self.k = k
        self.margin = _checks.positive_float("margin", margin)

    def compute(self, scores, class_ids, relevance):
        """The formula."""
        return ops.rankmax_loss(scores, class_ids, relevance, margin=self.margin)
