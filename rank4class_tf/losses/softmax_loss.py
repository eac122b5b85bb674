"""SoftmaxLoss."""

from rank4class_tf import _checks, _keras, ops
from rank4class_tf.losses._base import RankingLoss


@_keras.register
class SoftmaxLoss(RankingLoss):
    r"""Softmax cross-entropy, the baseline, with every label form.

    $$\ell(s, y) = -\sum_i y_i \log \mathrm{softmax}(s / T)_i$$

    Source: Rank4Class, section 4.1.

    Args:
        temperature: T > 0; 1 is plain softmax.
        **kwargs: `label_format`, `max_positives`, `reduction`, `name`: see `RankingLoss`.

    Raises:
        ValueError: if `temperature` is not > 0.

    Example:
        >>> loss = SoftmaxLoss()
        >>> float(loss([1], [[0.0, 0.0]]))  # log(2)
        0.6931471...
    """

    def __init__(self, temperature=1.0, **kwargs):
        super().__init__(**kwargs)
        self.temperature = _checks.positive_float("temperature", temperature)

    def compute(self, scores, class_ids, relevance):
        """The formula."""
        return ops.softmax_loss(scores, class_ids, relevance, temperature=self.temperature)
