"""Evaluates a model and compares two; the confidence intervals are in `_intervals`."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import functools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _files, _intervals, _keras
from rank4class_tf import metrics as _metrics
from rank4class_tf._batches import (
    Dataset,
    Scorer,
    batches,
    compiled_scores,
    one_output,
)
from rank4class_tf._intervals import UNBOUNDED, Comparison, Estimate
from rank4class_tf._lists.batch import Batch, Rows
from rank4class_tf._types import Array, Cutoffs, PathLike, Tensor, TensorPair
from rank4class_tf.metrics.base import read, without_weightless
from rank4class_tf.metrics.ranked_ids import ids_as_integers
from rank4class_tf.models import TwoTower
from rank4class_tf.models.base import RetrievalModel
from rank4class_tf.ops import Ranks
from rank4class_tf.ops.ranks import ranks_of_few

Metrics: TypeAlias = Sequence[str | keras.metrics.Metric]

# How many of the highest items of each list an evaluation keeps.
NUM_TOP_CLASSES = 10


class _ByMetric(dict[str, Any]):
    """Values by the name of a metric, its `name` or another one for `metrics.get`."""

    def __missing__(self, name: str) -> Any:
        with contextlib.suppress(TypeError, ValueError):
            metric_name = _metrics.get(name).name
            if metric_name in self:
                return self[metric_name]
        raise KeyError(
            f"The metric must be one of: {', '.join(self)}. Received: {name!r}."
        )


class _Comparisons(_ByMetric):
    """What `compare` returns."""

    def __repr__(self) -> str:
        rows = {
            name: f"{x.difference:14.4f} {x.low:8.4f} {x.high:8.4f} {x.p_value:8.4f}"
            for name, x in self.items()
        }
        return _table(rows, "first - second      low     high  p-value")


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The result of `evaluate`: metrics with intervals, and the values of every list.

    Attributes:
        estimates: name of a metric -> `Estimate`.
        values: name of a metric -> `[lists]` float64, its value for each list.
        weights: name of a metric -> `[lists]` float64; 0 for a list without positives,
            unless the metric has `count_empty`.
        ranks: `[lists]` float64, the expected rank of each list's best positive, NaN
            without one; infinite if it is not among `metrics.RankedIds`.
        class_ids: `[lists]` int64, the most relevant item of each list, the highest id
            of several, -1 without a positive; None if not kept. Ids that are strings
            are hashes here.
        top_classes: `[lists, m]` int64, the m <= 10 highest items of each list, best
            first, padded with -1; None if not kept, as by `average` and models that
            rank in blocks.
        bounds: name of a metric -> the lowest and highest value that a list can have.
    """

    estimates: dict[str, Estimate]
    values: dict[str, np.ndarray]
    weights: dict[str, np.ndarray]
    ranks: np.ndarray
    class_ids: np.ndarray | None = None
    top_classes: np.ndarray | None = None
    bounds: dict[str, tuple[float, float]] = dataclasses.field(default_factory=dict)

    def __getitem__(self, name: str) -> Estimate:
        """The `Estimate` of a metric, by its name or another one for `metrics.get`."""
        return _ByMetric(self.estimates)[name]

    def __repr__(self) -> str:
        rows = {
            name: f"{x.value:8.4f} {x.low:8.4f} {x.high:8.4f}"
            for name, x in self.estimates.items()
        }
        lines = [_table(rows, "   value      low     high"), f"{len(self.ranks)} lists"]
        for name, values in self.values.items():
            bounds = self.bounds.get(name)
            if _intervals.are_skewed(values, self.weights[name], bounds):
                lines.append(
                    f"{name}: too few lists for values so skewed; its interval is too "
                    "short"
                )
        return "\n".join(lines)

    def save(self, path: PathLike) -> None:
        """Writes a row for each list: its rank, and value and weight of each metric.

        Args:
            path: a `.csv` file, which appears only once it is complete.
        """
        columns = {"rank": self.ranks}
        for name in self.values:
            columns[name] = self.values[name]
            columns[f"{name}_weight"] = self.weights[name]
        is_csv = os.path.splitext(path)[1] == ".csv"
        _checks.require(is_csv, "`path` must end in .csv.", repr(path))
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        with (
            _files.replacing(path) as temporary,
            open(temporary, "w", newline="", encoding="utf-8") as file,
        ):
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(rows)


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


class Evaluator:
    """`evaluate` for one model, without estimates; its graph serves many calls."""

    def __init__(self, model: Any, metrics: Metrics, exclude: Callable | None = None):
        self._metrics = mean_metrics(metrics)
        self.names = [name for mean in self._metrics for name in mean.names]
        # The names of the metrics of which higher values are better.
        rising = [mean for mean in self._metrics if mean.metric.higher_is_better]
        self.rising = [name for mean in rising for name in mean.names]

        rule = "`exclude` must be a function of features."
        _checks.require(exclude is None or callable(exclude), rule, repr(exclude))
        self._model = model
        self._exclude = exclude
        self._ranks_all = isinstance(model, RetrievalModel)
        rule = (
            "`exclude` must be None for a model that ranks all items itself; a "
            "`TwoTower` has an `exclude` of its own."
        )
        _checks.require(not self._ranks_all or exclude is None, rule, exclude)

        self._shared: list[MeanMetric] = []
        self._own: list[MeanMetric] = []
        for mean in self._metrics:
            is_own = type(mean.metric).per_list is not _metrics.RankingMetric.per_list
            (self._own if is_own else self._shared).append(mean)
        formats = [_format(mean.metric) for mean in self._metrics] or [(None, None)]
        self._formats = list(dict.fromkeys(formats))
        self._check_ignored()
        # The classes of each list are kept only for an average over classes.
        self._keeps_classes = any(mean.prefix for mean in self._metrics)
        self._mean_rank = _metrics.MeanRank()

        # TensorFlow warns if it often traces the same function. A new partial is
        # another function.
        self._of_model = tf.function(functools.partial(self._ranked))
        self._scores = compiled_scores(model)
        # Batches of many widths share a graph. A user's `per_list` may read static
        # shapes.
        self._of_scores = tf.function(
            functools.partial(self._measured), reduce_retracing=True
        )
        self._of_own = tf.function(functools.partial(self._measured_by_own))

    def _check_ignored(self) -> None:
        """Raises if metrics would count different lists."""
        ignored = [ignore_class for _, ignore_class in self._formats]
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
        given = _Given(
            labels=_as_tensor(labels),
            scores=scores,
            mask=mask,
            sample_weight=_as_tensor(sample_weight),
            exclude=_as_tensor(exclude),
        )
        arguments = given, [*map(given.static_format, self._formats)]
        # Batches of any size share a graph, so also the last one of a dataset.
        form = tf.nest.map_structure(_of_any_size, arguments)
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
        items = self._kept(_items_of_ranks(batch.ranks))
        return _Measured(items, self._mean_rank.of_batch(batch), values)

    def _measured(self, given: _Given, static_formats: list[_Format]) -> _Measured:
        """Measures scores by the metrics that share what is read of a batch."""
        batches = {}
        for format_, static in zip(self._formats, static_formats, strict=True):
            batches[format_], _ = given.read(static)
        values = {}
        for mean in self._shared:
            values[mean.key] = mean.metric.of_batch(batches[_format(mean.metric)])

        batch = batches[self._formats[0]]
        if isinstance(given.scores, _metrics.RankedIds):
            items = _items_of_ranks(batch.ranks, given.scores)
            # The mean rank of a list without a hit is infinite.
            beyond = tf.fill(tf.shape(items.most_relevant), float("inf"))
            batch = Batch(ranks=batch.ranks._replace(num_items=beyond))
        else:
            items = _items_of_labels(batch)
        return _Measured(self._kept(items), self._mean_rank.of_batch(batch), values)

    def _measured_by_own(self, given: _Given) -> dict[str, TensorPair]:
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
        results = []
        for batch in batches(dataset, batch_size, name):
            measured = self._measure(*batch)
            results.append(tf.nest.map_structure(lambda x: x.numpy(), measured))
        _checks.require(results, f"`{name}` must have at least one batch.", "none")

        # Join the batches: first the items of each list, then the values of each
        # metric.
        items = zip(*[result.items for result in results], strict=True)
        class_ids, top_classes, positives = map(_joined, items)
        ranks, _ = _joined_pairs([result.mean_rank for result in results])

        values, weights, bounds = {}, {}, {}
        for mean in self._metrics:
            pairs = [result.values[mean.key] for result in results]
            columns, list_weights = _joined_pairs(pairs)
            if mean.prefix:
                list_weights = _class_weights(list_weights, positives)
            for column, name in enumerate(mean.names):
                values[name] = columns[:, column]
                weights[name] = list_weights
                bounds[name] = mean.metric.bounds

        # The rank of a list without a positive is 0, also if all its positives weigh 0.
        ranks = ranks[:, 0]
        ranks = np.where(ranks == 0, np.nan, ranks)
        top = None if self._ranks_all else top_classes
        return Evaluation({}, values, weights, ranks, class_ids, top, bounds)

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

    @property
    def names(self) -> list[str]:
        """Names of its values in an `Evaluation`."""
        return [self.prefix + name for name in self.metric.result_names]

    @property
    def key(self) -> str:
        """The first of its names, which differ."""
        return self.names[0]


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
        means.append(MeanMetric(metric, prefix))

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


def evaluate_retrieval(
    similarity: Array,
    matches: Array | None = None,
    k: Cutoffs = (1, 5, 10),
    batch_size: int = 1024,
) -> dict[str, dict[str, float]]:
    """Evaluates a similarity matrix both ways, as in cross-modal retrieval.

    Each row ranks the columns, and each column the rows. The hit rate at k (R@k) is the
    share of queries with a match among the k best, the median rank (MedR) that of the
    best match. Ties count in expectation; a query without a match is left out. The
    result maps the queries, `"rows"` and `"columns"`, to dictionaries with
    `"hit_rate_at_<k>"` and `"median_rank"`.

    Source: SoDeep (Engilberge et al. 2019), section 5.3.

    Args:
        similarity: `[rows, columns]`.
        matches: booleans of that shape, True for a match; None for the diagonal.
        k: the cutoff, or a list of them.
        batch_size: how many queries are ranked at once.

    Example:
        >>> figures = evaluate_retrieval([[0.9, 0.5], [0.8, 0.6]], k=[1])
        >>> figures["rows"]["hit_rate_at_1"], figures["columns"]["hit_rate_at_1"]
        (0.5, 1.0)
    """
    _checks.positive_int("batch_size", batch_size)
    similarity = np.asarray(similarity)
    if matches is None:
        matches = np.eye(len(similarity), dtype=bool)
    matches = np.asarray(matches)
    rule = (
        "`similarity` and `matches` must have one shape [rows, columns]; the default "
        "of `matches` needs a square."
    )
    is_same_shape = similarity.ndim == 2 and matches.shape == similarity.shape
    _checks.require(is_same_shape, rule, f"{similarity.shape} and {matches.shape}")
    is_bool = bool(np.isin(matches, [0, 1]).all())
    rule = "`matches` must hold booleans."
    _checks.require(is_bool, rule, f"other values ({matches.dtype})")
    _checks.require(bool(matches.any()), "`matches` must hold a match.", "none")
    cutoffs: Any = [k] if np.ndim(k) == 0 else list(k)  # type: ignore[arg-type]

    # Each query is a row, of the matrix or of its transpose.
    def figures(scores: np.ndarray, matches: np.ndarray) -> dict[str, float]:
        hit_rate = _metrics.TopKAccuracy(cutoffs, "hit_rate", label_format="relevance")
        most = max(scores.shape[1], 1)
        median = _metrics.MedianRank(most, label_format="relevance")
        for start in range(0, len(scores), batch_size):
            batch = slice(start, start + batch_size)
            labels = matches[batch].astype(np.float32)
            hit_rate.update_state(labels, scores[batch])
            median.update_state(labels, scores[batch])
        results = {**hit_rate.result(), "median_rank": median.result()}
        return {name: float(value) for name, value in results.items()}

    by_row = figures(similarity, matches)
    return {"rows": by_row, "columns": figures(similarity.T, matches.T)}


def average(evaluations: Sequence[Evaluation], confidence: float = 0.95) -> Evaluation:
    """Averages evaluations of several models on the same lists, such as several seeds.

    The value of each list is the mean over the models. The intervals are those of
    `evaluate(method="normal")`, which show the uncertainty from the choice of lists,
    not of models.

    Args:
        evaluations: one or more, of the same metrics and lists in the same order.
        confidence: the probability that an interval covers the mean, in (0, 1).

    Example:
        >>> ids, lists = [0, 0, 0, 1], ([[3.0, 1.0, 2.0]] * 4, [[1.0, 3.0, 2.0]] * 4)
        >>> both = [evaluate(lambda x: x, (scores, ids), ["mrr"]) for scores in lists]
        >>> round(average(both)["mrr"].value, 4)  # of 5/6 and 1/2
        0.6667
    """
    confidence = _checks.inner_fraction("confidence", confidence)
    _checks.require(evaluations, "`evaluations` must have at least one.", "none")
    first = evaluations[0]
    for evaluation in evaluations[1:]:
        _check_same_lists(first, evaluation)

    values = {}
    estimates = {}
    for name, weights in first.weights.items():
        mean = np.mean([e.values[name] for e in evaluations], axis=0)
        values[name] = mean
        bounds = first.bounds.get(name)
        estimates[name] = _intervals.interval(mean, weights, confidence, bounds)
    ranks = np.mean([e.ranks for e in evaluations], axis=0)
    return Evaluation(
        estimates, values, first.weights, ranks, first.class_ids, bounds=first.bounds
    )


def compare(
    first: Evaluation,
    second: Evaluation,
    samples: int = 10_000,
    seed: int = 0,
    confidence: float = 0.95,
) -> dict[str, Comparison]:
    r"""Compares two models on the same lists by the paired randomisation test.

    Differences are the first model's value minus the second's.

    If the models do not differ, swapping the two values of a list makes no difference
    on average. So the test swaps them at random: the p-value is the share of draws with
    a difference at least as large. The interval is $\bar d \pm q s$ of the differences
    $d$ of the lists and of two more, because lists without a difference say little
    about rare differences: half a list at each end of the range of a difference, and
    one list without a difference. The result maps the name of a metric, its `name` or
    one for `metrics.get`, and prints as a table.

    Source: Smucker, Allan & Carterette 2007, for the test; Agresti & Min 2005, "Simple
    Improved Confidence Intervals for Comparing Matched Proportions", for the two lists.

    Args:
        first: an `Evaluation`.
        second: another one, of the same metrics and lists in the same order.
        samples: how many times swaps are drawn.
        seed: of the draws, in [0, 2**32).
        confidence: the probability that an interval covers the difference, in (0, 1).

    Example:
        >>> data = [[3.0, 1.0, 2.0]] * 4, [0, 0, 0, 1]
        >>> first = evaluate(lambda x: x, data, ["mrr"])
        >>> print(compare(first, evaluate(lambda x: -x, data, ["mrr"])))
        metric first - second      low     high  p-value
        mrr            0.3333  -0.4527   0.8971   0.6316
    """
    _checks.positive_int("samples", samples)
    seed = _checks.seed(seed)
    confidence = _checks.inner_fraction("confidence", confidence)
    _check_same_lists(first, second)
    rng = np.random.default_rng(seed)
    result = _Comparisons()
    for name, values in first.values.items():
        weights = first.weights[name]
        low, high = first.bounds.get(name) or UNBOUNDED
        differences = values - second.values[name]
        sample = differences[np.newaxis]
        interval = _intervals.mean_difference(sample, weights, confidence, high - low)

        # The test: one sign for each list and draw. A swap changes nothing where the
        # models agree.
        differences = weights * differences
        total = differences.sum()
        differences = differences[differences != 0]
        signs = (rng.integers(0, 2, len(differences)) * 2 - 1 for _ in range(samples))
        swapped = np.array([s @ differences for s in signs])
        # Sums of the same terms in another order may differ by rounding.
        slack = 1e-12 * np.abs(differences).sum()
        extreme = np.count_nonzero(np.abs(swapped) >= abs(total) - slack)
        p_value = math.nan
        if not math.isnan(total):
            p_value = float((extreme + 1) / (samples + 1))
        result[name] = dataclasses.replace(interval, p_value=p_value)
    return result


def _check_same_lists(first: Evaluation, second: Evaluation) -> None:
    names = sorted(first.values)
    other_names = sorted(second.values)
    rule = "The evaluations must have the same metrics."
    _checks.require(names == other_names, rule, f"{names} and {other_names}")
    for name, weights in first.weights.items():
        if not np.array_equal(weights, second.weights[name]):
            raise ValueError(
                f"The evaluations must have the same lists. {name!r} differs."
            )
    ids, other_ids = first.class_ids, second.class_ids
    if ids is not None and other_ids is not None and not np.array_equal(ids, other_ids):
        rule = "The evaluations must have the same lists in the same order."
        raise ValueError(f"{rule} Their labels differ.")


class Items(NamedTuple):
    """The items of each list that an `Evaluation` keeps, int64."""

    most_relevant: Tensor  # `[lists]`, -1 if there is none.
    top: Tensor  # `[lists, m]`, those with the highest scores, padded with -1.
    positives: Tensor  # `[lists, P]`, padded with -1.


# How a metric reads labels: its `label_format` and `ignore_class`.
_Format = tuple[str | None, int | None]


def _format(metric: _metrics.RankingMetric) -> _Format:
    return metric.label_format, metric.ignore_class


class _Measured(NamedTuple):
    """What is measured of the lists of a batch."""

    items: Items
    mean_rank: TensorPair
    values: dict[str, TensorPair]  # And weights, by the key of a `MeanMetric`.


class _Given(NamedTuple):
    """A batch of scores, as the user and the model give it."""

    labels: Tensor
    scores: Tensor | _metrics.RankedIds
    mask: Tensor | None  # Keras's, which a tensor loses between graphs.
    sample_weight: Tensor | None
    exclude: Tensor | None

    @property
    def arguments(self) -> tuple:
        """Those of `per_list`."""
        scores = _keras.with_mask(self.scores, self.mask)
        return self.labels, scores, self.sample_weight, self.exclude

    def static_format(self, format_: _Format) -> _Format:
        """The format to read in a graph that does not know the widths."""
        if isinstance(self.scores, _metrics.RankedIds):
            return format_
        labels, scores, *_ = self.arguments
        label_format, ignore_class = format_
        return Batch.static_format(labels, scores, label_format), ignore_class

    def read(self, format_: _Format) -> tuple[Batch, Tensor | None]:
        """The lists that count, and their places; None for all of them.

        Where ranks are cheap, all metrics share them.
        """
        labels, scores, sample_weight, exclude = self.arguments
        batch = read(labels, scores, sample_weight, exclude, *format_)
        batch, places = batch.counted()
        if batch.labels is None or batch.item_weights is not None:
            return batch, places
        ranks = ranks_of_few(batch.labels, tf.float64)
        return batch if ranks is None else batch._replace(ranks=ranks), places

    def measured_by(self, metric: _metrics.RankingMetric) -> TensorPair:
        """What a `per_list` of a user's makes of the lists that count."""
        _, places = self.read(_format(metric))
        if places is None:
            return metric.per_list(*self.arguments)
        arguments = self.arguments
        if not isinstance(self.scores, _metrics.RankedIds):  # Which has a list a row.
            rows = Rows.of(*arguments)
            arguments = rows.y_true, rows.y_pred, rows.sample_weight, rows.exclude
        values, weights = metric.per_list(*arguments)
        return tf.gather_nd(values, places), tf.gather_nd(weights, places)


def _as_tensor(values: Any) -> Any:
    """A list or an array as a tensor: a graph would hold the numbers of a list."""
    is_ready = values is None or tf.is_tensor(values)
    return values if is_ready else tf.convert_to_tensor(values)


def _of_any_size(x: Any) -> Any:
    """What stands for rows of a batch in a graph that takes any number of them."""
    if isinstance(x, _metrics.RankedIds):
        return _metrics.RankedIds.Spec(_of_any_size(x.ids))
    if not tf.is_tensor(x) or x.shape.rank == 0:
        return x
    shape = [None, *x.shape[1:]]
    if isinstance(x, tf.RaggedTensor):
        splits_dtype = x.row_splits.dtype
        return tf.RaggedTensorSpec(shape, x.dtype, x.ragged_rank, splits_dtype)
    return tf.TensorSpec(shape, x.dtype) if isinstance(x, tf.Tensor) else x


def _items_of_ranks(ranks: Ranks, ranked: _metrics.RankedIds | None = None) -> Items:
    positives = tf.where(ranks.relevance > 0, ranks.class_ids, -1)
    most_relevant = tf.cast(tf.reduce_max(positives, axis=-1), tf.int64)
    top = tf.zeros([tf.shape(positives)[0], 0], tf.int64)
    if ranked is not None:
        top = ids_as_integers(ranked.ids)[:, :NUM_TOP_CLASSES]
    return Items(most_relevant, top, positives)


def _items_of_labels(batch: Batch) -> Items:
    labels = batch.labels
    highest = tf.reduce_max(labels.relevance, axis=-1, keepdims=True)
    most_relevant = tf.where(labels.relevance == highest, labels.positives, -1)
    most_relevant = tf.cast(tf.reduce_max(most_relevant, axis=-1), tf.int64)

    # -inf is a score, and ranks above masked items.
    scores = labels.scores
    lowest = tf.constant(-float("inf"), scores.dtype)
    is_nan = tf.math.is_nan(scores)
    scores = tf.where(is_nan, lowest, tf.maximum(scores, scores.dtype.min))
    if labels.mask is not None:
        scores = tf.where(labels.mask, scores, lowest)
    num_top = tf.minimum(NUM_TOP_CLASSES, tf.shape(scores)[1])
    top_scores, top = tf.math.top_k(scores, num_top)
    top = tf.cast(tf.where(top_scores > lowest, top, -1), tf.int64)
    return Items(most_relevant, top, without_weightless(batch).positives)


def _table(rows: Mapping[str, str], head: str) -> str:
    """A line for each metric, below a head."""
    width = max([6, *map(len, rows)])
    lines = [f"{name:{width}} {row}" for name, row in rows.items()]
    return "\n".join([f"{'metric':{width}} {head}", *lines])
