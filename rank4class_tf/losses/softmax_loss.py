"""SoftmaxLoss."""

from typing import Any

import tensorflow as tf

from rank4class_tf import _checks, _registry, ops
from rank4class_tf._lists.pairs import are_few
from rank4class_tf.layers import Probabilities
from rank4class_tf.losses._base import RankingLoss
from rank4class_tf.losses.temperature_annealing import TemperatureAnnealing


@_registry.register("loss")
class SoftmaxLoss(RankingLoss):
    r"""Softmax cross-entropy, the baseline, with every label form.

    $$\ell(s, y) = -\sum_i y_i \log \mathrm{softmax}(s / T)_i$$

    Label smoothing replaces $y_i$ by $(1 - \epsilon) y_i + \epsilon \sum_j y_j / n$ over the n
    items that are not masked, and only in the loss: metrics still see the class of each example.
    Labels that mixup blends are relevance, such as 0.7 for one class and 0.3 for another, and the
    loss is then that mixture of the two classes' losses.

    Source: Rank4Class, section 4.1; Szegedy et al. 2016, "Rethinking the Inception Architecture",
    for label smoothing.

    Args:
        temperature: T > 0, a number or a `TemperatureAnnealing`; 1 is plain softmax.
        label_smoothing: $\epsilon$, in [0, 1).
        **kwargs: `label_format`, `class_weight`, `reduction` and more: see `RankingLoss`.

    Raises:
        ValueError: if `temperature` is not > 0, or `label_smoothing` not in [0, 1).

    Example:
        >>> loss = SoftmaxLoss()
        >>> float(loss([1], [[0.0, 0.0]]))  # log(2)
        0.6931471...
    """

    def __init__(
        self,
        temperature: float | TemperatureAnnealing = 1.0,
        label_smoothing: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        # The formula takes labels of all items; in long lists it is faster with the few positives.
        self._searches_positives = are_few(self.max_positives, None)
        if not isinstance(temperature, TemperatureAnnealing):
            temperature = _checks.positive_float("temperature", temperature)
        self.temperature = temperature
        self.label_smoothing = _checks.fraction_below("label_smoothing", label_smoothing, 1)

    @property
    def probabilities(self) -> Probabilities:
        """Softmax with the temperature, or with the present one if it is annealed."""
        temperature = self.temperature
        if isinstance(temperature, TemperatureAnnealing):
            temperature = float(temperature.value)
        return Probabilities(temperature)

    def compute(self, lists: ops.Lists) -> tf.Tensor:
        """The formula."""
        temperature = self.temperature
        if isinstance(temperature, TemperatureAnnealing):
            temperature = tf.cast(temperature.value, lists.dtype)
        lists = lists.from_top()
        log_total = lists.log_sum_exp(temperature)[:, tf.newaxis]
        scores = lists.positive_scores
        if self.label_smoothing:
            mean = lists.sum(tf.identity) / tf.maximum(lists.num_items, 1)
            scores = (1 - self.label_smoothing) * scores
            scores += self.label_smoothing * mean[:, tf.newaxis]
        losses = log_total - scores / temperature
        return lists.sum_of_positives(lists.relevance * losses)
