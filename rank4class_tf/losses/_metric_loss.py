"""What the losses that are metrics of soft ranks share."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from rank4class_tf import _keras, ops
from rank4class_tf.losses._base import RankingLoss
from rank4class_tf.losses._temperature import (
    Temperature,
    check_temperature,
    present_temperature,
)
from rank4class_tf.losses._unsaved_layer import UnsavedLayer


class MetricLoss(UnsavedLayer, RankingLoss):
    r"""Base of the losses that negate a metric of soft ranks; a subclass defines the metric.

    $$\ell(s, y) = -\mathrm{metric}(\pi(s), y), \qquad
    \pi(i) = 1 + \sum_{j \ne i} \mathrm{sigmoid}\left(\frac{s_j - s_i}{T}\right)$$

    or the ranks that a `ranker` gives. Add `GumbelNoise` for scores with noise.

    Example:
        >>> class ApproxRecall(MetricLoss):
        ...     def metric(self, ranks, lists):
        ...         return ops.soft_recall(ranks, lists.relevance, k=5)
        >>> float(ApproxRecall()([0], [[9.0, 0.0, 0.0]])) < -0.9
        True
    """

    _item_weights = "lists"

    def __init__(
        self, temperature: Temperature = 0.1, ranker: Callable | None = None, **kwargs: Any
    ) -> None:
        """Args shared by the losses that are metrics of soft ranks.

        Args:
            temperature: T > 0 of the sigmoid: a number, a `TemperatureAnnealing` or a scalar
                `tf.Variable`, which gets no gradient. The smaller, the closer to the metric, and
                the smaller the gradient of items that are far apart.
            ranker: a sorter of `rank4class_tf.layers`, or any function or layer that takes scores
                `[batch, n]` and `mask`, booleans `[batch, n]`, and returns ranks `[batch, n]`, 1
                for the best. It replaces the sigmoid, and `temperature` then has no effect.
            **kwargs: `label_format`, `class_weight`, `reduction` and more: see `RankingLoss`.

        Raises:
            ValueError: if `temperature` is not > 0 or `ranker` is not callable.
        """
        super().__init__(**kwargs)
        self.temperature = check_temperature(temperature)
        if ranker is not None and not callable(ranker):
            raise ValueError(
                f"`ranker` must be None, a layer or a function. Received: ranker={ranker!r}."
            )
        self.ranker = ranker
        # A ranker ranks all items, whatever the number of positives.
        self._searches_positives = ranker is None

    def metric(self, ranks: tf.Tensor, lists: ops.Lists) -> tf.Tensor:
        """The metric of each list, higher for better.

        Args:
            ranks: `[batch, P]`, of the positives; anything in a column without one.
            lists: `Lists`, with the positives' `relevance`, `[batch, P]`.

        Returns:
            `[batch]`.
        """
        raise NotImplementedError

    def ranks(self, lists: ops.Lists) -> tf.Tensor:
        """Soft ranks of the positives, `[batch, P]`."""
        if self.ranker is None:
            temperature = present_temperature(self.temperature, lists.dtype)
            return ops.sigmoid_ranks(lists, temperature=temperature)
        return lists.at_positives(self.ranker(lists.scores, mask=lists.mask))

    def ranks_among_positives(self, lists: ops.Lists) -> tf.Tensor:
        """Soft ranks of the positives among themselves, `[batch, P]`."""
        if self.ranker is None:
            temperature = present_temperature(self.temperature, lists.dtype)
            return ops.sigmoid_ranks_among_positives(lists, temperature=temperature)
        return self.ranker(lists.positive_scores, mask=lists.is_positive)

    def compute(self, lists: ops.Lists) -> tf.Tensor:
        """The formula."""
        return -_keras.with_autograph_of_caller(self.metric)(self.ranks(lists), lists)
