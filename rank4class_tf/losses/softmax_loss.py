"""SoftmaxLoss."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks, _registry, ops
from rank4class_tf._lists.pairs import are_few
from rank4class_tf._tf.dtypes import divided
from rank4class_tf.layers import Probabilities
from rank4class_tf.losses._base import RankingLoss
from rank4class_tf.losses._class_prior import check_class_prior
from rank4class_tf.losses._temperature import (
    Temperature,
    check_temperature,
    present_temperature,
)


@_registry.register("loss")
class SoftmaxLoss(RankingLoss):
    r"""Softmax cross-entropy, the baseline, with every label form.

    $$\ell(s, y) = -\sum_i y_i \log \mathrm{softmax}(s / T)_i$$

    With weights $w_i$ of items each term is multiplied by $w_i$, as in TF-Ranking.

    Label smoothing replaces $y_i$ by $(1 - \epsilon) y_i + \epsilon \sum_j y_j / n$ over the n
    items that are not masked, and only in the loss: metrics still see the class of each example.
    Labels that mixup blends are relevance, such as 0.7 for one class and 0.3 for another, and the
    loss is then that mixture of the two classes' losses.

    Logit adjustment, for rare classes, adds $\log \pi_i$ to $s_i / T$, and only in the loss: the
    scores of the model then rank the classes as if all were equally frequent.

    Source: Rank4Class, section 4.1; Szegedy et al. 2016, "Rethinking the Inception Architecture",
    for label smoothing; Menon et al. 2021, "Long-tail learning via logit adjustment", equation 10.

    Args:
        temperature: T > 0: a number, a `TemperatureAnnealing` or a scalar `tf.Variable`; 1 is plain
            softmax.
        label_smoothing: $\epsilon$, in [0, 1).
        class_prior: $\pi$, how frequent each class is in training, numbers > 0 that add up to 1,
            such as `losses.class_prior(labels, num_classes)`; None for no adjustment.
        positive_reduction: `"sum"` over the positives as above, or `"mean"`, which divides by
            $\sum_i y_i$, so that examples with many labels count as much as others.
        **kwargs: `label_format`, `class_weight`, `reduction` and more: see `RankingLoss`.

    Raises:
        ValueError: if `temperature` is not > 0, `label_smoothing` not in [0, 1), `class_prior` not
            a distribution or `positive_reduction` unknown; in the call, if the prior has another
            number of classes than the scores.

    Example:
        >>> loss = SoftmaxLoss()
        >>> float(loss([1], [[0.0, 0.0]]))  # log(2)
        0.6931471...
    """

    _item_weights = "formula"

    def __init__(
        self,
        temperature: Temperature = 1.0,
        label_smoothing: float = 0.0,
        class_prior: Sequence[float] | None = None,
        positive_reduction: str = "sum",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        # The formula takes labels of all items; in long lists it is faster with the few positives.
        self._searches_positives = are_few(self.max_positives, None)
        self.temperature = check_temperature(temperature)
        self.label_smoothing = _checks.fraction_below("label_smoothing", label_smoothing, 1)
        self.class_prior = check_class_prior(class_prior)
        self.positive_reduction = _checks.one_of(
            "positive_reduction", positive_reduction, ("sum", "mean")
        )

    @property
    def probabilities(self) -> Probabilities | None:
        """Softmax with the temperature of now; None with a prior, which the scores leave out."""
        if self.class_prior is not None:
            return None
        return Probabilities(float(present_temperature(self.temperature, tf.float32)))

    def compute(self, lists: ops.Lists) -> tf.Tensor:
        """The formula."""
        temperature = present_temperature(self.temperature, lists.dtype, with_gradient=True)
        if self.class_prior is not None:
            log_prior = _log_prior(self.class_prior, lists.num_columns_of_items, lists.dtype)
            lists = lists.scaled(1 / temperature).shifted(log_prior)
            temperature = 1.0
        lists = lists.from_top()
        log_total = tf.expand_dims(lists.log_sum_exp(temperature), 1)
        scores = lists.positive_scores
        if self.label_smoothing:
            mean = lists.sum(tf.identity) / tf.maximum(lists.num_items, 1)
            scores = (1 - self.label_smoothing) * scores
            scores += self.label_smoothing * mean[:, tf.newaxis]
        losses = log_total - divided(scores, temperature)
        total = lists.sum_of_positives(lists.relevance * losses)
        if self.positive_reduction == "sum":
            return total
        return tf.math.divide_no_nan(total, tf.reduce_sum(lists.relevance, axis=-1))


def _log_prior(class_prior, n, dtype):
    """`[1, n]`."""
    if isinstance(n, int) and n != len(class_prior):
        raise ValueError(
            "`class_prior` must have a number for each class that `y_pred` scores. "
            f"Received: {len(class_prior)} for {n} classes."
        )
    return tf.constant(np.log([class_prior]), dtype)
