"""GeneralizedCrossEntropyLoss."""

from typing import Any

import tensorflow as tf

from rank4class_tf import _checks, _registry, ops
from rank4class_tf.layers import Probabilities
from rank4class_tf.losses._base import RankingLoss


@_registry.register("loss")
class GeneralizedCrossEntropyLoss(RankingLoss):
    r"""Between softmax cross-entropy and the probability of a mistake, for noisy labels.

    $$\ell(s, y) = \sum_i y_i \frac{1 - p_i^q}{q}, \qquad p = \mathrm{softmax}(s)$$

    The gradient is $p_i^q$ times that of the softmax loss, so a label that the model contradicts
    has less influence. With q near 0 it is the softmax loss. With q = 1 it is $1 - p_i$, which is
    bounded, but slow to learn.

    Source: Zhang & Sabuncu 2018, "Generalized Cross Entropy Loss for Training Deep Neural Networks
    with Noisy Labels", equation 6.

    Args:
        q: in (0, 1]; the paper takes 0.7.
        **kwargs: `label_format`, `class_weight`, `reduction` and more: see `RankingLoss`.

    Raises:
        ValueError: if `q` is not in (0, 1].

    Example:
        >>> loss = GeneralizedCrossEntropyLoss(q=0.5)
        >>> float(loss([0], [[0.0, 0.0, 0.0, 0.0]]))  # (1 - sqrt(1 / 4)) / 0.5
        1.0
    """

    _searches_positives = False

    def __init__(self, q: float = 0.7, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.q = _checks.positive_fraction("q", q)

    @property
    def probabilities(self) -> Probabilities | None:
        """Softmax with the temperature 1 / (1 - q); None for q = 1, which fits the best class only.

        Where the classes have the probabilities c, the loss is least at $p_i$ in proportion to
        $c_i^{1 / (1 - q)}$.
        """
        return None if self.q == 1 else Probabilities(1 / (1 - self.q))

    def compute(self, lists: ops.Lists) -> tf.Tensor:
        """The formula."""
        lists = lists.from_top()
        cross_entropy = lists.log_sum_exp()[:, tf.newaxis] - lists.positive_scores
        # exp(-q x) - 1 keeps its digits where q x is small.
        losses = -tf.math.expm1(-self.q * cross_entropy) / self.q
        return lists.sum_of_positives(lists.relevance * losses)
