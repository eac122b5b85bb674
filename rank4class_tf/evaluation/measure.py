"""Measures a model on a dataset; the confidence intervals are in `_intervals`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _intervals
from rank4class_tf import metrics as _metrics
from rank4class_tf._batches import (
    Dataset,
    Scorer,
    batches,
    compiled_scores,
    graph_of,
    one_output,
)
from rank4class_tf._lists.batch import Batch
from rank4class_tf._types import TensorPair
from rank4class_tf.evaluation.given import Format, Given, as_tensor, of_any_size
from rank4class_tf.evaluation.kept import Items
from rank4class_tf.evaluation.results import Evaluation
from rank4class_tf.models import TwoTower
from rank4class_tf.models.base import RetrievalModel

Metrics: TypeAlias = Sequence[str | keras.metrics.Metric]


def evaluate(
    model: Scorer,
    dataset: Dataset,
    metrics: Metrics,
    confidence: float = 0.95,
    method: str = "normal",
    exclude: Callable[[Any], Any] | None = None,
    samples: int = 1000,
    seed: int = 0,
    batch_size: int = 256,
) -> Evaluation:
    r"""Evaluates a model in one pass, with a confidence interval for each metric.

    `method="normal"` uses the standard error
    $s = \sqrt{\frac{m}{m - 1} \sum_i w_i^2 (v_i - \bar v)^2} / \sum_i w_i$ of the mean
    $\bar v$ over the values $v_i$ and weights $w_i$ of the lists, where
    $m = (\sum_i w_i)^2 / \sum_i w_i^2$ is their number if they weigh the same. A metric
    in [0, 1] gets Wilson's interval

    $$\frac{\bar v + q^2 / 2 n \pm q \sqrt{\bar v (1 - \bar v) / n + q^2 / 4 n^2}}
    {1 + q^2 / n},
    \qquad n = \frac{\bar v (1 - \bar v)}{s^2}$$

    with q from Student's distribution. If every value is 0 or 1, q is from the normal
    distribution and n = m, as for a proportion. Metrics with other bounds get
    $\bar v \pm q s$, clipped to them. `method="bootstrap"` uses the percentiles of
    means over lists drawn with replacement.

    Source: Wilson 1927, "Probable Inference, the Law of Succession, and Statistical
    Inference"; Korn & Graubard 1998, "Confidence Intervals for Proportions with Small
    Expected Number of Positive Counts Estimated from Survey Data", for n.

    Args:
        model: a Keras model, or a function of TensorFlow operations, that maps features
            to scores `[batch, n]` or `metrics.RankedIds`; None if `dataset` has these
            in place of features, such as `(model.predict(x), labels)` or
            `(RankedIds(ids), right_ids)`; or an `ExtremeClassifier`, or a `TwoTower`
            with an index, with the labels that they take.
        dataset: batches `(features, labels)` or `(features, labels, sample_weight)`,
            such as a `tf.data.Dataset`; or one such tuple of all examples.
        metrics: metrics that are means over lists, or their names, such as
            `"ndcg_at_5"`; or a `MacroAverage`, or a name such as `"macro_ndcg_at_5"`,
            for the mean over classes.
        confidence: the probability that an interval covers the mean, in (0, 1).
        method: `"normal"` or `"bootstrap"`.
        exclude: None, or a function from the features of a batch to the items to leave
            out: ids `[batch, E]` padded with -1, or booleans `[batch, n]`.
        samples: how many times the bootstrap draws.
        seed: for the bootstrap, in [0, 2**32).
        batch_size: examples per batch if `dataset` is a tuple of all examples, >= 1.

    Example:
        >>> scores, class_ids = [[3.0, 1.0, 2.0]] * 4, [0, 0, 0, 1]
        >>> print(evaluate(None, (scores, class_ids), ["top_k_accuracy_at_1", "mrr"]))
        metric                 value      low     high
        top_k_accuracy_at_1   0.7500   0.3006   0.9544
        mrr                   0.8333   0.2323   0.9880
        4 lists
    """
    confidence = _checks.inner_fraction("confidence", confidence)
    _checks.one_of("method", method, ("normal", "bootstrap"))
    _checks.positive_int("samples", samples)
    seed = _checks.seed(seed)
    batch_size = _checks.positive_int("batch_size", batch_size)
    measured = Evaluator(model, metrics, exclude)(dataset, batch_size)

    rng = np.random.default_rng(seed)
    estimates = {}
    for name, values in measured.values.items():
        weights = measured.weights[name]
        if method == "normal":
            bounds = measured.bounds[name]
            estimate = _intervals.interval(values, weights, confidence, bounds)
        else:
            estimate = _intervals.bootstrap(values, weights, confidence, samples, rng)
        estimates[name] = estimate
    return dataclasses.replace(measured, estimates=estimates)


class _Measured(NamedTuple):
    """What is measured of the lists of a batch."""

    items: Items
    mean_rank: TensorPair
    values: dict[str, TensorPair]  # And weights, by the key of a `MeanMetric`.


class Evaluator:
    """`evaluate` for one model, without estimates; its graph serves many calls."""

    def __init__(self, model: Any, metrics: Metrics, exclude: Callable | None = None):
        self._metrics = mean_metrics(metrics)
        self.names = [name for mean in self._metrics for name in mean.names]
        # The names of the metrics of which higher values are better.
        rising = [mean for mean in self._metrics if mean.metric.higher_is_better]
        self.rising = [name for mean in rising for name in mean.names]

        self._model = model
        self._exclude = exclude
        self._ranks_all = isinstance(model, RetrievalModel)
        self._check_exclude()

        # A user's metric may have a `per_list` of its own, which reads the batch anew.
        self._own = [mean for mean in self._metrics if mean.reads_by_itself]
        self._shared = [mean for mean in self._metrics if not mean.reads_by_itself]
        formats = [Format.of(mean.metric) for mean in self._metrics] or [Format()]
        self._formats = list(dict.fromkeys(formats))
        self._check_ignored()
        # The classes of each list are kept only for an average over classes.
        self._keeps_classes = any(mean.prefix for mean in self._metrics)
        self._mean_rank = _metrics.MeanRank()

        self._items: Any = None  # Those that the graph of a `TwoTower` ranks.
        self._of_model = graph_of(self._ranked)
        self._scores = compiled_scores(model)
        # Batches of many widths share a graph. A user's `per_list` may read static
        # shapes.
        self._of_scores = graph_of(self._measured, reduce_retracing=True)
        self._of_own = graph_of(self._measured_by_own)

    def _check_exclude(self) -> None:
        exclude = self._exclude
        rule = "`exclude` must be a function of features."
        _checks.require(exclude is None or callable(exclude), rule, repr(exclude))
        rule = (
            "`exclude` must be None for a model that ranks all items itself; a "
            "`TwoTower` has an `exclude` of its own."
        )
        _checks.require(not self._ranks_all or exclude is None, rule, exclude)

    def _check_ignored(self) -> None:
        """Raises if metrics would count different lists."""
        ignored = [format_.ignore_class for format_ in self._formats]
        rule = "`metrics` must have one `ignore_class`."
        _checks.require(len({*ignored}) == 1, rule, ignored)
        if self._ranks_all:
            of_loss = self._model.ignored_class
            rule = (
                "`metrics` must have the `ignore_class` of the loss that the model was "
                "compiled with, or None."
            )
            _checks.require(ignored[0] in (None, of_loss), rule, ignored[0])

    def _measure(
        self, features: Any, labels: Any, sample_weight: Any = None
    ) -> _Measured:
        """Measures a batch."""
        if self._ranks_all:
            return self._of_model(features, labels, sample_weight)
        labels = one_output("`dataset` must give labels", labels)
        scores, mask = self._scores(features)
        exclude = None if self._exclude is None else self._exclude(features)
        given = Given(
            labels=as_tensor(labels),
            scores=scores,
            mask=mask,
            sample_weight=as_tensor(sample_weight),
            exclude=as_tensor(exclude),
        )
        formats = [*map(given.static_format, self._formats)]
        arguments = (given, formats)
        # Batches of any size share a graph, so also the last one of a dataset.
        form = tf.nest.map_structure(of_any_size, arguments)
        measured = self._of_scores.get_concrete_function(*form)(*arguments)
        if self._own:
            measured.values.update(self._of_own(given))
        return measured

    def _ranked(self, features: Any, labels: Any, sample_weight: Any) -> _Measured:
        """Measures a batch of a model that ranks all items itself."""
        encodings = self._model(features, training=False)
        ranks, positions = self._model.ranks_of_batch(
            features, labels, encodings, tf.float64
        )
        # Padding is no list.
        batch, _ = Batch.of_ranks(ranks, sample_weight, positions).counted()
        values = {}
        for mean in self._shared:
            values[mean.key] = mean.metric.of_batch(batch)
        for mean in self._own:
            of_lists = mean.metric.per_list(batch.ranks, None, batch.list_weights)
            values[mean.key] = of_lists
        items = self._kept(Items.of_ranks(batch.ranks))
        return _Measured(items, self._mean_rank.of_batch(batch), values)

    def _measured(self, given: Given, static_formats: list[Format]) -> _Measured:
        """Measures scores by the metrics that share what is read of a batch."""
        batches = {}
        for format_, static in zip(self._formats, static_formats, strict=True):
            batches[format_], _ = given.read(static)
        values = {}
        for mean in self._shared:
            values[mean.key] = mean.metric.of_batch(batches[Format.of(mean.metric)])

        batch = batches[self._formats[0]]
        if isinstance(given.scores, _metrics.RankedIds):
            items = Items.of_ranks(batch.ranks, given.scores)
            # The mean rank of a list without a hit is infinite.
            beyond = tf.fill(tf.shape(items.most_relevant), float("inf"))
            batch = Batch(given_ranks=batch.ranks._replace(num_items=beyond))
        else:
            items = Items.of_labels(batch)
        return _Measured(self._kept(items), self._mean_rank.of_batch(batch), values)

    def _measured_by_own(self, given: Given) -> dict[str, TensorPair]:
        """Measures scores by the metrics with a `per_list` of their own."""
        return {mean.key: given.measured_by(mean.metric) for mean in self._own}

    def _kept(self, items: Items) -> Items:
        if self._keeps_classes:
            return items
        return items._replace(positives=items.positives[:, :0])

    def __call__(
        self, dataset: Dataset, batch_size: int = 256, name: str = "dataset"
    ) -> Evaluation:
        """Measures a dataset, the argument `name`; see `evaluate`."""
        if isinstance(self._model, TwoTower):
            self._model.encode_what_changed()  # As `TwoTower.evaluate` does.
            items = self._model.ranked_items()
            if items is not self._items:
                self._items = items
                self._of_model = graph_of(self._ranked)
        results = []
        for batch in batches(dataset, batch_size, name):
            measured = self._measure(*batch)
            results.append(tf.nest.map_structure(lambda x: x.numpy(), measured))
        _checks.require(results, f"`{name}` must have at least one batch.", "none")
        return self._evaluation(results)

    def _evaluation(self, results: list[_Measured]) -> Evaluation:
        """Joins what was measured of all batches, as arrays."""
        of_batches = [result.items for result in results]
        items = Items(*map(_joined, zip(*of_batches, strict=True)))

        values = {}
        weights = {}
        bounds = {}
        for mean in self._metrics:
            pairs = [result.values[mean.key] for result in results]
            columns, list_weights = _joined_pairs(pairs)
            if mean.prefix:
                list_weights = _class_weights(list_weights, items.positives)
            for column, name in enumerate(mean.names):
                values[name] = columns[:, column]
                weights[name] = list_weights
                bounds[name] = mean.metric.bounds

        # The rank of a list without a positive is 0, also if all its positives weigh 0.
        ranks, _ = _joined_pairs([result.mean_rank for result in results])
        ranks = ranks[:, 0]
        return Evaluation(
            estimates={},
            values=values,
            weights=weights,
            ranks=np.where(ranks == 0, np.nan, ranks),
            class_ids=items.most_relevant,
            top_classes=None if self._ranks_all else items.top,
            bounds=bounds,
        )

    def mean(
        self,
        metric: str,
        dataset: Dataset,
        batch_size: int = 256,
        name: str = "dataset",
    ) -> float:
        """The mean of one of `names`, to choose by: a list must have a positive."""
        measured = self(dataset, batch_size, name)
        weights = measured.weights[metric]
        counts = (weights != 0) & ~np.isnan(measured.ranks)
        rule = f"`{name}` must have a positive label, in a list of a weight above 0."
        _checks.require(counts.any(), rule, f"none in {len(counts)} lists")
        return _intervals.weighted_mean(measured.values[metric], weights)


class MeanMetric(NamedTuple):
    """A metric that is a mean over lists."""

    metric: _metrics.RankingMetric
    prefix: str  # Of its names: "macro_" for a mean over classes, or "".
    names: list[str]  # Of its values in an `Evaluation`.

    @property
    def key(self) -> str:
        """The first of its names, which differ."""
        return self.names[0]

    @property
    def reads_by_itself(self) -> bool:
        """Whether the metric has a `per_list` of its own."""
        return type(self.metric).per_list is not _metrics.RankingMetric.per_list


def mean_metrics(metrics: Metrics) -> list[MeanMetric]:
    """Metrics by identifiers; a name with "macro_" is for a mean over classes."""
    rule = "`metrics` must be a list."
    _checks.require(isinstance(metrics, list | tuple), rule, repr(metrics))
    means = []
    for identifier in metrics:
        prefix = ""
        if isinstance(identifier, str) and identifier.startswith("macro_"):
            prefix = "macro_"
            identifier = identifier.removeprefix(prefix)
        metric = _metrics.get(identifier)
        if isinstance(metric, _metrics.MacroAverage):
            metric = metric.metric
            prefix = "macro_"

        is_mean = isinstance(metric, _metrics.RankingMetric) and metric.is_mean
        rule = "`metrics` must be means over lists."
        _checks.require(is_mean, rule, repr(metric.name))
        is_right = not prefix or metric.relevant_from is None
        rule = (
            "`metrics` over classes must have no `relevant_from`; update a "
            "`MacroAverage`."
        )
        _checks.require(is_right, rule, metric.name)
        names = [prefix + name for name in metric.result_names]
        means.append(MeanMetric(metric, prefix, names))

    names = [name for mean in means for name in mean.names]
    differ = len(set(names)) == len(names)
    _checks.require(differ, "`metrics` must have different names.", names)
    return means


def _joined(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Arrays `[n]` or `[n, width]` of batches, joined, narrow ones padded with -1."""
    if arrays[0].ndim == 1:
        return np.concatenate(arrays)
    width = max(x.shape[1] for x in arrays)
    padded = [
        np.pad(x, [(0, 0), (0, width - x.shape[1])], constant_values=-1) for x in arrays
    ]
    return np.concatenate(padded)


def _joined_pairs(pairs: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
    """Values and weights of all batches."""
    return [np.concatenate(arrays) for arrays in zip(*pairs, strict=True)]


def _class_weights(weights: np.ndarray, positives: np.ndarray) -> np.ndarray:
    """Weights of lists `[n]`, with classes `[n, P]`, for a mean over classes."""
    # A list weighs as its share of the weights of its class, or the sum of such shares.
    is_class = positives >= 0
    id_weights = np.where(is_class, weights[:, np.newaxis], 0)
    _, indices = np.unique(positives, return_inverse=True)
    indices = indices.reshape(positives.shape)
    totals = np.bincount(indices.ravel(), id_weights.ravel())[indices]
    counted = is_class & (totals > 0)
    shares = np.divide(id_weights, totals, out=np.zeros_like(id_weights), where=counted)
    return shares.sum(axis=1)
