"""What metrics share: `update_state` parses labels, ranks positives and sums values."""

from collections.abc import Iterable, Sequence
from typing import Any, Self

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _keras, _registry, ops
from rank4class_tf._lists.batch import Batch
from rank4class_tf._lists.labels import (
    Labels,
    check_label_format,
    checked_ignore_class,
    in_rows,
    mean_weights,
    without,
    without_class,
)
from rank4class_tf._lists.positions import Positions
from rank4class_tf._types import Array, Cutoffs, Function, Tensor, TensorPair
from rank4class_tf.metrics.ranked_ids import RankedIds
from rank4class_tf.metrics.sums import RunningSums
from rank4class_tf.ops.ranks import BestPositive, best_positive, over_ranks


class Metric(_registry.Configured, keras.metrics.Metric):
    """Base of all metrics."""

    higher_is_better: bool = True

    @property
    def _direction(self) -> str:
        # Callbacks of Keras 3 ask for it if they are not given a mode.
        return "up" if self.higher_is_better else "down"

    def reset_state(self) -> None:
        for variable in self.variables:
            variable.assign(tf.zeros_like(variable))


class RankingMetric(Metric):
    """Base of metrics of lists; a subclass defines the formula and the configuration.

    The result is the weighted mean over lists; those without positives are left out.
    **Labels** `y_true` are class ids (`[batch]`, `[batch, 1]`, `[batch, P]` padded with
    -1, or ragged) or relevance `[batch, n]`, where a negative entry masks the item.
    **Scores** `y_pred` are `[batch, n]`, or ragged with ragged relevance, or
    `RankedIds` where only the best items are known. A NaN ranks last and is never a
    hit; -inf is an ordinary score. A metric, but `BPref`, averages over all orders of
    tied items, so equal scores give the value of random guessing.

    **Cutoffs** `k` are an integer >= 1, None for all ranks, or a list of these, which
    costs one pass and makes the result a dictionary. With `count_empty=True`, metrics
    with a cutoff count a list without positives as 0, as TF-Ranking does.

    **Items to leave out**, such as those that a user has seen, are given to
    `update_state` as `exclude`, or removed by `rank4class_tf.layers.ExcludeItems` at
    the end of a model, or by a negative relevance.

    **Weights** `sample_weight` are one number, or one per list, `[batch]` or
    `[batch, 1]`. Item weights `[batch, n]` work as in TF-Ranking: an item of weight 0
    is removed from the ranking, and a list has the mean weight of its positives, or of
    its items if it has no positives. In `NDCG`, `DCG` and `AveragePrecisionAtK`, a
    positive also counts in proportion to its weight.

    Args:
        relevant_from: the lowest grade of a positive, > 0; an item of a lower one
            counts as wrong. None means any grade above 0. Class ids have the grade 1.
        label_format: as in `losses.RankingLoss`.
        ignore_class: an id that is padding, as -1 is; None means no other.
        dtype: that of the result. If it is not float64, values of lists are float32,
            and their sums are kept to twice as many digits.
    """

    # How many ranks matter, None for all; and which of them `compute` reads, see
    # `over_ranks`.
    depth: int | None = None
    _reads: str = "all"

    # The lowest and the highest value that a list can have, which bound intervals.
    bounds: tuple[float, float] = (-float("inf"), float("inf"))

    # Whether a list without positives counts, with the value 0.
    count_empty: bool = False

    def __init__(
        self,
        *,
        relevant_from: float | None = None,
        label_format: str | None = None,
        ignore_class: int | None = None,
        name: str | None = None,
        dtype: Any = None,
    ):
        check_label_format(label_format)
        if relevant_from is not None:
            relevant_from = _checks.positive_float("relevant_from", relevant_from)
        self.relevant_from = relevant_from
        super().__init__(
            name=name or _registry.snake_case(type(self).__name__), dtype=dtype
        )
        self.label_format = label_format
        self.ignore_class = checked_ignore_class(ignore_class, label_format)
        self._add_states()

    def _add_states(self) -> None:
        # Sums of the weighted values and, in the last place, of the weights.
        self.sums = RunningSums(self, "sums", (len(self.result_names) + 1,))

    @property
    def is_mean(self) -> bool:
        """Whether the result is the weighted mean of the values of `per_list`."""
        return type(self)._add_states is RankingMetric._add_states

    @property
    def result_names(self) -> Sequence[str]:
        """Names of the values that one pass gives."""
        return [self.name]

    def compute(self, ranks: Any) -> list[Tensor]:
        """The formula: `rank4class_tf.ops.Ranks` -> `[batch]` for each result.

        The results have the dtype of the ranks.
        """
        raise NotImplementedError

    def per_list(
        self,
        y_true: Array | ops.Ranks,
        y_pred: Array | RankedIds | None,
        sample_weight: Array | None = None,
        exclude: Array | None = None,
    ) -> TensorPair:
        """The float64 values `[batch, r]`, a column per result, and weights `[batch]`.

        A list without positives has the weight 0, unless `count_empty`.

        Args:
            y_true: labels of any form; or `ops.Ranks` that a model counted in blocks,
                with which `y_pred` and `exclude` are not read.
            y_pred: scores `[batch, n]`, or `RankedIds`.
            sample_weight: scalar, `[batch]`, `[batch, 1]` or `[batch, n]`; None means
                1.
            exclude: items to mask: ids `[batch, E]`, padded with -1 or ragged; or
                booleans `[batch, n]`.
        """
        return self.of_batch(self._read(y_true, y_pred, sample_weight, exclude))

    def of_batch(self, batch: Batch) -> TensorPair:
        """`per_list` of what `read` gave, for callers with several metrics."""
        values, weights = self._values_and_weights(self._prepared(batch), tf.float64)
        return tf.stack(values, axis=-1), weights

    def update_state(
        self,
        y_true: Array | ops.Ranks,
        y_pred: Array | RankedIds | None,
        sample_weight: Array | None = None,
        exclude: Array | None = None,
    ) -> None:
        """Adds a batch; the arguments are those of `per_list`."""
        batch = self._read(y_true, y_pred, sample_weight, exclude)
        self._add_batch(self._prepared(batch))

    def _read(
        self, y_true: Any, y_pred: Any, sample_weight: Any, exclude: Any
    ) -> Batch:
        formats = self.label_format, self.ignore_class
        return read(y_true, y_pred, sample_weight, exclude, *formats)

    def _prepared(self, batch: Batch) -> Batch:
        """The batch as this metric measures it."""
        ranks = batch.given_ranks
        if ranks is not None and ranks.num_items is None:
            self._check_depth(ranks.max_items)
        if batch.item_weights is not None:
            batch = batch.with_labels(without_weightless(batch))
        if self.relevant_from is None:
            return batch
        # The bound is rounded as the grades are: 0.7 of any dtype reaches 0.7.
        is_short = batch.given_dtype in ("float16", "bfloat16")
        dtype = batch.given_dtype if is_short else tf.float32
        bound = tf.constant(self.relevant_from, dtype)
        return self._with_relevant(batch, tf.cast(bound, tf.float32))

    def _with_relevant(self, batch: Batch, bound: Tensor) -> Batch:
        """The batch, in which items of a grade below the bound are wrong."""
        labels = batch.given_labels
        graded: Any = batch.ranks if labels is None else labels
        is_relevant = tf.cast(graded.relevance, tf.float32) >= bound
        ids = graded.class_ids
        if ids is not None:
            ids = tf.where(is_relevant, ids, -1)
        relevance = tf.where(is_relevant, graded.relevance, 0)
        relevant = graded._replace(relevance=relevance, class_ids=ids)
        if labels is not None:
            return batch.with_labels(relevant._replace(highest=None))
        rule = (
            "`relevant_from` must be None for `Ranks` with `counted`: it has no grades."
        )
        _checks.require(graded.counted is None, rule, self.relevant_from)
        # As padding has it; a NaN, of a list that breaks a rule, stays.
        is_hit = tf.cast(is_relevant, graded.above.dtype)
        above = graded.above * is_hit
        ranks = relevant._replace(above=above, tied=graded.tied * is_hit)
        return batch._replace(given_ranks=ranks)

    def _check_depth(self, width: int | Tensor) -> None:
        """Raises if ranks count that a list of the best ids does not tell."""
        depth = self.depth
        is_right = depth is not None and isinstance(width, int) and depth <= width
        rule = (
            f"`{self.name}` must have a cutoff k of at most the number of "
            "`RankedIds`, such as "
            '"mrr_at_10" for ten: what ranks below them is not known.'
        )
        _checks.require(is_right, rule, f"k={depth} and {width} ids")

    def _add_batch(self, batch: Batch) -> None:
        values, weights = self._values_and_weights(batch, self.sums.dtype)
        self.sums.add(weighted(values, weights))

    # A batch meets, in this order: `_prepared`, which items count and are relevant;
    # `_with_item_weights` by `_shares_of_weight`, what a list weighs; `_with_gains`,
    # what a hit is worth; `_formula`.

    def _formula(self) -> Function:
        """What is computed of the ranks, `compute` unless a subclass needs more."""
        return _keras.with_autograph_of_caller(self.compute)

    def _values_and_weights(
        self, batch: Batch, dtype: tf.DType
    ) -> tuple[list[Tensor], Tensor]:
        """Values, a list, and weights, `[batch]`."""
        compute = self._formula()

        def values_of(ranks: ops.Ranks | BestPositive) -> list[Tensor]:
            return [tf.cast(values, dtype) for values in compute(ranks)]

        batch = self._with_gains(self._with_item_weights(batch), dtype)
        ranks = batch.given_ranks
        # A list whose labels break a rule has a NaN in `Ranks.above`, or as
        # `value_if_empty`.
        value_if_empty = tf.cast(batch.value_if_empty, dtype)
        is_broken = tf.math.is_nan(value_if_empty)
        if ranks is None:
            labels = batch.labels
            has_positive = labels.has_positive
            values = over_ranks(values_of, labels, dtype, self.depth, self._reads)
        else:
            if ranks.above.dtype != tf.float64 == dtype:
                ranks = tf.nest.map_structure(_wide, ranks)
            has_positive = (ranks.num_positives > 0) & ~is_broken
            is_number = ~tf.math.is_nan(ranks.above)
            ranks = ranks._replace(above=tf.where(is_number, ranks.above, 0))
            values = values_of(best_positive(ranks) if self._reads == "best" else ranks)
        values = [tf.where(has_positive, x, value_if_empty) for x in values]

        # A broken list counts, so that its NaN reaches the result.
        weights = tf.ones_like(value_if_empty)
        if not self.count_empty:
            weights = tf.cast(has_positive | is_broken, dtype)
        if batch.list_weights is not None:
            weights *= tf.cast(batch.list_weights, dtype)
        return values, weights

    def _with_item_weights(self, batch: Batch) -> Batch:
        """The batch, whose labels have the weights of items, and lists their means."""
        item_weights = batch.item_weights
        if item_weights is None:
            return batch
        labels = batch.labels
        item_weights = tf.where(labels.mask, item_weights, 0.0)
        # As TF-Ranking: a list weighs as the mean of its positives' weights, by their
        # gains in DCG.
        shares = self._shares_of_weight(labels.relevance)
        list_weights = mean_weights(labels._replace(relevance=shares), item_weights)
        if self.count_empty:
            num_items = tf.math.count_nonzero(
                labels.mask, axis=-1, dtype=item_weights.dtype
            )
            mean = tf.math.divide_no_nan(
                tf.reduce_sum(item_weights, axis=-1), num_items
            )
            list_weights = tf.where(labels.has_positive, list_weights, mean)
        labels = labels._replace(item_weights=item_weights)
        return Batch(labels, list_weights=list_weights)

    def _shares_of_weight(self, relevance: Tensor) -> Tensor:
        """Coefficients averaging positives' item weights `[batch, P]` to a list's."""
        return tf.cast(relevance > 0, relevance.dtype)

    def _with_gains(self, batch: Batch, dtype: tf.DType) -> Batch:
        """The batch, with the relevance that the formula is to read."""
        return batch

    def result(self) -> Any:
        """Returns the weighted mean; 0 if there was no list with a positive yet."""
        return self._by_name(self.sums.means())

    def _by_name(self, means: Tensor) -> Tensor | dict[str, Tensor]:
        """The one result, or several by their names."""
        results = tf.unstack(tf.cast(means, self.dtype))
        if self.result_names == [self.name]:
            return results[0]
        return dict(zip(self.result_names, results, strict=True))

    def merge_state(self, metrics: Iterable[Self]) -> None:
        """Adds the states of other metrics with the same configuration."""
        for metric in metrics:
            for total, part in zip(self.variables, metric.variables, strict=True):
                total.assign_add(tf.convert_to_tensor(part))


class ReadsLeadingRanks(RankingMetric):
    """Base of metrics that read only the positives among the first `depth` ranks."""

    # `compute` may also read the relevance of the `depth` most relevant positives, for
    # the ideal order, and the number of positives. In long lists this takes half of the
    # time.
    _reads = "leading"


class ReadsBestPositive(RankingMetric):
    """Base of the metrics whose `compute` gets `BestPositive` in place of `Ranks`."""

    _reads = "best"


class CutoffMetric(RankingMetric):
    """Base of metrics at a cutoff k; subclasses define `compute_at`, in `bounds`."""

    bounds = (0.0, 1.0)
    _check_cutoff: Function = staticmethod(_checks.positive_int_or_none)

    def __init__(
        self,
        k: Cutoffs = None,
        name: str | None = None,
        *,
        count_empty: bool = False,
        **kwargs: Any,
    ):
        several = isinstance(k, list | tuple)
        values: Any = k if several else [k]
        # One or more, None for all ranks.
        self.cutoffs = cutoffs = tuple(
            self._check_cutoff("k", cutoff) for cutoff in values
        )
        rule = "`k` must be a cutoff or a non-empty list of distinct cutoffs."
        _checks.require(0 < len(cutoffs) == len(set(cutoffs)), rule, f"k={k!r}")
        self.k = cutoffs if several else cutoffs[0]
        self.depth = None if None in cutoffs else max(cutoffs)
        self.count_empty = _checks.flag("count_empty", count_empty)
        family = _registry.snake_case(type(self).__name__.removesuffix("AtK"))
        super().__init__(
            name=name or (family if several else self._name_at(family, k)), **kwargs
        )

    @property
    def result_names(self) -> Sequence[str]:
        several = isinstance(self.k, tuple)
        return [self._name_at(self.name, k) for k in self.k] if several else [self.name]

    def compute_at(self, ranks: Any, k: Any) -> Tensor:
        """The formula: `rank4class_tf.ops.Ranks`, cutoff -> `[batch]`, same dtype."""
        raise NotImplementedError

    def compute(self, ranks: Any) -> list[Tensor]:
        compute_at = _keras.with_autograph_of_caller(self.compute_at)
        return [compute_at(ranks, k) for k in self.cutoffs]

    def _name_at(self, name: str, k: Any) -> str:
        return name if k is None else f"{name}_at_{k}"


def read(
    y_true: Array | ops.Ranks,
    y_pred: Array | RankedIds | None,
    sample_weight: Array | None = None,
    exclude: Array | None = None,
    label_format: str | None = None,
    ignore_class: int | None = None,
) -> Batch:
    """The batch that a metric measures, in which padding of sequences weighs 0."""
    if isinstance(y_true, ops.Ranks):
        return Batch.of_ranks(y_true, sample_weight)
    if isinstance(y_pred, RankedIds):
        rule = (
            "`exclude` must be None for `RankedIds`: leave the items out before "
            "you cut the ids."
        )
        _checks.require(exclude is None, rule, "items")
        rule = "`label_format` must not be 'relevance' for `RankedIds`."
        _checks.require(label_format != "relevance", rule, "'relevance'")
        positions = None
        if ignore_class is not None:
            y_true = in_rows(without_class(y_true, ignore_class))
            is_padding = ~tf.reduce_any(y_true >= 0, axis=-1)
            positions = Positions(y_pred.ids).without(is_padding)
        return Batch.of_ranks(y_pred.ranks(y_true), sample_weight, positions)
    return Batch.of(
        y_true,
        y_pred,
        sample_weight,
        exclude,
        label_format=label_format,
        ignore_class=ignore_class,
    )


def ids_of_positives(ranks: ops.Ranks) -> Tensor:
    """The class ids of ranks, which may have none."""
    rule = "`y_true` must have the class ids of its positives."
    _checks.require(ranks.class_ids is not None, rule, None)
    return ranks.class_ids


def _wide(x: Tensor | int | None) -> Tensor | int | None:
    is_narrow = getattr(x, "dtype", None) == tf.float32
    return tf.cast(x, tf.float64) if is_narrow else x


def without_weightless(batch: Batch) -> Labels:
    """Labels without the items whose weight is 0, which are positives of no class."""
    if batch.item_weights is None:
        return batch.labels
    # A NaN stays, and makes the result NaN.
    return without(batch.labels, batch.item_weights <= 0)


def weighted(values: list[Tensor], weights: Tensor) -> Tensor:
    """Weighted values `[batch]`, each as a column, and the weights as the last one."""
    return tf.stack([*(x * weights for x in values), weights], axis=1)
