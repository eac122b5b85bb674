"""Averages over groups of examples, by class or by confidence, not over lists."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks, _keras, _registry, ops
from rank4class_tf._lists.batch import Batch
from rank4class_tf._lists.labels import distinct_ids, padded_ids
from rank4class_tf._tf.raising import checked
from rank4class_tf._types import Array, Tensor
from rank4class_tf.metrics.base import (
    RankingMetric,
    ids_of_positives,
    weighted,
)
from rank4class_tf.metrics.hits import hits
from rank4class_tf.metrics.ranked_ids import RankedIds
from rank4class_tf.metrics.sums import RunningSums


@_keras.register
class MacroAverage(RankingMetric):
    r"""Averages a metric in each class (or other group of lists), then over classes.

    $$\frac{1}{|G|} \sum_{g \in G} \frac{\sum_{i \in g} w_i v_i}{\sum_{i \in g} w_i}$$

    with the values $v$ and weights $w$ of the lists; a group without lists is left out.
    Rare classes count as much as frequent ones. A list with several positives belongs
    to each of their classes. `group_means()` gives the mean of each group.

    Args:
        metric: a metric of this package that is a mean over lists.
        num_groups: how many groups there are; the number of classes, if these are the
            groups.
        name: None means `"macro_"` and the name of the metric; with several cutoffs,
            the start of each value's name.

    Example:
        >>> from rank4class_tf.metrics import TopKAccuracy
        >>> metric = MacroAverage(TopKAccuracy(1), num_groups=2)
        >>> metric.update_state([0, 0, 0, 1], [[1.0, 0.0]] * 4)  # 3 of 3, 0 of 1
        >>> float(metric.result())
        0.5
    """

    def __init__(
        self, metric: Any, num_groups: int, name: str | None = None, dtype: Any = None
    ):
        if not isinstance(metric, RankingMetric) or not metric.is_mean:
            raise ValueError(
                f"`metric` must be a mean over lists. Received: {metric!r}."
            )
        self.num_groups = _checks.positive_int("num_groups", num_groups)
        super().__init__(
            name=name or f"macro_{metric.name}",
            label_format=metric.label_format,
            ignore_class=metric.ignore_class,
            dtype=dtype,
        )
        self.metric = metric
        self.depth = metric.depth
        self.relevant_from = metric.relevant_from
        self.higher_is_better = metric.higher_is_better
        num_sums = len(metric.result_names) + 1
        self.sums = RunningSums(self, "sums", (self.num_groups, num_sums))

    def _add_states(self) -> None:
        # `__init__` adds them once `name` and `metric` are set, which `result_names`
        # needs.
        pass

    @property
    def result_names(self) -> Sequence[str]:
        old = self.metric.name
        new = self.name
        return [
            x.replace(old, new, 1) if x.startswith(old) else f"{new}_{x}"
            for x in self.metric.result_names
        ]

    def _values_and_weights(
        self, batch: Batch, dtype: tf.DType
    ) -> tuple[list[Tensor], Tensor]:
        return self.metric._values_and_weights(batch, dtype)

    def update_state(
        self,
        y_true: Array | ops.Ranks,
        y_pred: Array | RankedIds | None,
        sample_weight: Array | None = None,
        exclude: Array | None = None,
        groups: Array | None = None,
    ) -> None:
        """Adds a batch; the first four arguments are those of `RankingMetric.per_list`.

        `groups` are integers `[batch]` or `[batch, P]` in [0, num_groups), or -1 for
        none; None means the classes of the positives.
        """
        dtype = self.sums.dtype
        batch = self._read(y_true, y_pred, sample_weight, exclude)
        batch = self._prepared(batch)
        values, weights = self._values_and_weights(batch, dtype)

        nan_or_0 = tf.zeros_like(weights)
        are_distinct = False
        if groups is not None:
            if batch.positions is not None:
                groups = batch.positions.flat(groups, "groups")
        elif batch.given_labels is None:
            groups = ids_of_positives(batch.ranks)
        else:
            # A list counts in the class of each of its positives.
            groups = batch.labels.positives
            nan_or_0 = tf.cast(batch.labels.value_if_empty, dtype)
            are_distinct = True
        groups, nan_or_0 = padded_ids(groups, self.num_groups, nan_or_0, "groups")
        if not are_distinct:
            groups = distinct_ids(groups)

        # XLA cannot raise: a list with invalid labels or groups makes the first group
        # NaN.
        is_valid = tf.equal(nan_or_0, 0)
        values = [tf.where(is_valid, x, nan_or_0) for x in values]
        weights = tf.where(is_valid, weights, 1)
        groups = tf.where(is_valid[:, tf.newaxis], groups, 0)
        terms = tf.repeat(weighted(values, weights), tf.shape(groups)[1], axis=0)
        self.sums.add(terms, tf.reshape(groups, [-1]))

    def group_means(self) -> Tensor:
        """Returns each group's mean, `[num_groups, r]`; NaN for one without lists."""
        has_lists = self._has_lists()
        return tf.where(has_lists, self.sums.means(), float("nan"))

    def _has_lists(self) -> Tensor:
        weights = self.sums.totals()[:, -1:]
        return weights != 0

    def result(self) -> Tensor | dict[str, Tensor]:
        """Returns the mean over groups; 0 if there was no list with a positive yet."""
        has_lists = self._has_lists()
        total = tf.reduce_sum(tf.where(has_lists, self.group_means(), 0), axis=0)
        count = tf.reduce_sum(tf.cast(has_lists, total.dtype))
        return self._by_name(tf.math.divide_no_nan(total, count))

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        # `metric` has these.
        del config["label_format"]
        del config["ignore_class"]
        del config["relevant_from"]
        return config


@_registry.register("metric")
class ExpectedCalibrationError(RankingMetric):
    r"""The gap between the top class's predicted probability and how often it is right.

    $$\mathrm{ECE} = \sum_{b=1}^{M} \frac{|B_b|}{N}
    \left| \mathrm{acc}(B_b) - \mathrm{conf}(B_b) \right|, \qquad
    B_b = \{i : \tfrac{b - 1}{M} < \max_j p_{ij} \le \tfrac{b}{M}\}$$

    0 is perfect: of the examples with the probability 0.8, 80 % are right. With few
    examples, the error is biased upwards. If several classes tie for the best, the
    metric takes the expectation over a random choice among them.

    Source: Naeini et al. 2015; Guo et al. 2017, "On Calibration of Modern Neural
    Networks", equation 3.

    Args:
        num_bins: M >= 1.
        probabilities: None if `y_pred` are probabilities, of which one outside [0, 1]
            raises; or a layer that converts scores to probabilities, such as
            `layers.Probabilities()`.

    Example:
        >>> metric = ExpectedCalibrationError()
        >>> metric.update_state([0, 1], [[0.75, 0.25]] * 2)  # right one time of two
        >>> float(metric.result())
        0.25
    """

    higher_is_better = False

    def __init__(self, num_bins: int = 15, probabilities: Any = None, **kwargs: Any):
        self.num_bins = _checks.positive_int("num_bins", num_bins)
        super().__init__(**kwargs)
        self.probabilities = _checks.layer_or_none("probabilities", probabilities)

    def _add_states(self) -> None:
        # In each bin, sums of the weights, the weighted confidences and the weighted
        # accuracies.
        self.sums = RunningSums(self, "sums", (self.num_bins, 3))

    def compute(self, ranks: ops.Ranks) -> list[Tensor]:
        return [hits(ranks, k=1)]

    def _prepared(self, batch: Batch) -> Batch:
        rule = "`y_pred` must be probabilities or scores, which ranks do not tell."
        _checks.require(batch.given_labels is not None, rule, "ranks")
        batch = super()._prepared(batch)
        if self.probabilities is None:
            return batch
        labels = batch.labels
        scores = labels.scores
        if labels.mask is not None:
            scores = tf.where(labels.mask, scores, -np.inf)
        labels = labels._replace(scores=self.probabilities(scores))
        return batch._replace(given_labels=labels)

    def _add_batch(self, batch: Batch) -> None:
        dtype = self.sums.dtype
        (accuracy,), weights = self._values_and_weights(batch, dtype)
        probabilities = batch.labels.scores
        mask = batch.labels.mask
        if mask is not None:
            probabilities = tf.where(mask, probabilities, 0)
        highest = tf.reduce_max(probabilities, axis=-1, keepdims=True)

        # A confidence outside [0, 1] raises, or is NaN where nothing can raise.
        counted = weights > 0
        is_right = (highest >= 0) & (highest <= 1 + 1e-5)  # Beyond 1 by rounding.
        bad = ~is_right & counted[:, tf.newaxis]
        rule = (
            "`y_pred` must be probabilities in [0, 1]; for scores, set "
            "`probabilities`, for example to layers.Probabilities()"
        )
        clipped = tf.clip_by_value(tf.cast(highest[:, 0], dtype), 0, 1)
        clipped = tf.where(counted, clipped, 0)
        confidence = checked(clipped, bad, highest, rule)

        terms = tf.stack([weights, weights * confidence, weights * accuracy], axis=-1)
        bins = tf.cast(tf.math.ceil(confidence * self.num_bins), tf.int32) - 1
        self.sums.add(terms, tf.clip_by_value(bins, 0, self.num_bins - 1))

    def result(self) -> Tensor:
        """Returns the error; 0 if there was no list with a positive yet."""
        # |B_b| cancels: acc and conf are sums over the bin, divided by it.
        weights, confidences, accuracies = tf.unstack(self.sums.totals(), axis=-1)
        gap = tf.reduce_sum(tf.abs(accuracies - confidences))
        return tf.cast(tf.math.divide_no_nan(gap, tf.reduce_sum(weights)), self.dtype)
