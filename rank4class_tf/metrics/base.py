"""What metrics share: `update_state` parses labels, ranks positives and sums values."""

from collections.abc import Iterable, Sequence
from typing import Any, Self

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _keras, _registry, ops
from rank4class_tf._lists.labels import (
    Labels,
    check_label_format,
    example_weights,
    mean_weights,
    parse,
    weights_of_items,
    without,
)
from rank4class_tf._lists.positions import Positions, positions_of
from rank4class_tf._tf.memory import owned
from rank4class_tf._types import Array, Cutoffs, Function, Tensor, TensorPair
from rank4class_tf.metrics.ranked_ids import RankedIds
from rank4class_tf.metrics.sums import ExactSum
from rank4class_tf.ops.ranks import best_positive, over_ranks


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
        dtype: that of the result. If it is not float64, values of lists are float32,
            and their sums are kept to twice as many digits.
    """

    # How many ranks matter, None for all; and which of them `compute` reads, see
    # `over_ranks`.
    depth: int | None = None
    _reads: str = "all"

    # The lowest and the highest value that a list can have, which bound intervals.
    bounds: tuple[float, float] = (-float("inf"), float("inf"))

    count_empty: bool = (
        False  # Whether a list without positives counts, with the value 0.
    )

    def __init__(
        self,
        *,
        relevant_from: float | None = None,
        label_format: str | None = None,
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
        self._add_states()

    def _add_states(self) -> None:
        # Sums of the weighted values and, in the last place, of the weights.
        self.sums = ExactSum(self, "sums", (len(self.result_names) + 1,))

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
        y_true: Array,
        y_pred: Array,
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
        labels, sample_weight = self._parsed(y_true, y_pred, sample_weight, exclude)
        values, weights = self._values_and_weights(labels, sample_weight, tf.float64)
        return tf.stack(values, axis=-1), weights

    def update_state(
        self,
        y_true: Array,
        y_pred: Array,
        sample_weight: Array | None = None,
        exclude: Array | None = None,
    ) -> None:
        """Adds a batch; the arguments are those of `per_list`."""
        self._add_batch(*self._parsed(y_true, y_pred, sample_weight, exclude))

    def _parsed(
        self,
        y_true: Any,
        y_pred: Array,
        sample_weight: Array | None,
        exclude: Array | None,
    ) -> tuple[Any, Array | None]:
        """`Labels`, or `Ranks` in their place; and weights of lists or their items."""
        labels: Any
        if isinstance(y_true, ops.Ranks):
            labels = y_true
        elif isinstance(y_pred, RankedIds):
            self._check_ranked_ids(y_pred, exclude)
            labels = y_pred.ranks(y_true)
        else:
            y_true, sample_weight = _keras.given_labels(y_true), owned(sample_weight)
            lists, _ = flatten_positions(
                y_true, y_pred, sample_weight, exclude, self.label_format
            )
            labels, scores, sample_weight, exclude = lists
            labels = parse(labels, scores, self.label_format, exclude=exclude)

        # Items of a grade below `relevant_from` are wrong.
        if self.relevant_from is not None:
            # The bound is rounded as the grades are: 0.7 of any dtype reaches 0.7.
            dtype_name = getattr(getattr(y_true, "dtype", None), "name", None)
            is_short = dtype_name in ("float16", "bfloat16")
            bound = tf.constant(
                self.relevant_from, dtype_name if is_short else tf.float32
            )
            grades, ids = tf.cast(labels.relevance, tf.float32), labels.class_ids
            is_relevant = grades >= tf.cast(bound, tf.float32)
            ids = None if ids is None else tf.where(is_relevant, ids, -1)
            relevance = tf.where(is_relevant, labels.relevance, 0)
            labels = labels._replace(relevance=relevance, class_ids=ids)
            if isinstance(labels, Labels):
                labels = labels._replace(highest=None)
            else:
                rule = (
                    "`relevant_from` must be None for `Ranks` with `counted`: it "
                    "has no grades."
                )
                _checks.require(labels.counted is None, rule, self.relevant_from)
                # As padding has it; a NaN, of a list that breaks a rule, stays.
                is_hit = tf.cast(is_relevant, labels.above.dtype)
                labels = labels._replace(
                    above=labels.above * is_hit, tied=labels.tied * is_hit
                )
        return labels, sample_weight

    def _check_ranked_ids(self, y_pred: RankedIds, exclude: Array | None) -> None:
        depth, width = self.depth, y_pred.ids.shape[-1]
        rule = (
            "`exclude` must be None for `RankedIds`: leave the items out before "
            "you cut the ids."
        )
        _checks.require(exclude is None, rule, "items")
        rule = "`label_format` must not be 'relevance' for `RankedIds`."
        _checks.require(self.label_format != "relevance", rule, "'relevance'")
        rule = (
            f"`{self.name}` must have a cutoff k of at most the number of "
            "`RankedIds`, such as "
            '"mrr_at_10" for ten: what ranks below them is not known.'
        )
        is_right = None not in (depth, width) and depth <= width
        _checks.require(is_right, rule, f"k={depth} and {width} ids")

    def _add_batch(self, labels: Any, sample_weight: Array | None) -> None:
        self.sums.add(
            weighted(*self._values_and_weights(labels, sample_weight, self.sums.dtype))
        )

    def _values_and_weights(
        self,
        labels: Any,
        sample_weight: Any,
        dtype: tf.DType,
        compute: Function | None = None,
    ) -> tuple[list[Tensor], Tensor]:
        """Values, a list, and weights, `[batch]`; `compute` may replace the formula."""
        compute = compute or _keras.with_autograph_of_caller(self.compute)
        is_ranked = isinstance(labels, ops.Ranks)
        if is_ranked and dtype == tf.float64:
            labels = tf.nest.map_structure(
                lambda x: (
                    tf.cast(x, dtype) if getattr(x, "dtype", None) == tf.float32 else x
                ),
                labels,
            )
        list_weight = None
        if sample_weight is not None:
            lists = labels.above if is_ranked else labels.scores
            list_weight = example_weights(
                sample_weight, lists, not is_ranked, signed=False
            )
            if list_weight.shape.rank == 2:
                labels, list_weight = self._with_item_weights(labels, list_weight)
        labels = self._weighed(labels, dtype)

        def values_of(ranks: Any) -> list[Tensor]:
            return [tf.cast(values, dtype) for values in compute(ranks)]

        # A list whose labels break a rule has a NaN in `Ranks.above`, or as
        # `value_if_empty`.
        if is_ranked:
            is_nan = tf.math.is_nan(labels.above)
            is_broken = tf.reduce_any(is_nan, axis=-1)
            has_positive = (labels.num_positives > 0) & ~is_broken
            value_if_empty = tf.where(is_broken, tf.constant(float("nan"), dtype), 0)
            ranks = labels._replace(above=tf.where(~is_nan, labels.above, 0))
            values = values_of(best_positive(ranks) if self._reads == "best" else ranks)
        else:
            has_positive = labels.has_positive
            value_if_empty = tf.cast(labels.value_if_empty, dtype)
            values = over_ranks(values_of, labels, dtype, self.depth, self._reads)
        values = [tf.where(has_positive, x, value_if_empty) for x in values]
        # A broken list counts, so that its NaN reaches the result.
        counted = has_positive | tf.math.is_nan(value_if_empty)
        weights = (
            tf.ones_like(value_if_empty)
            if self.count_empty
            else tf.cast(counted, dtype)
        )
        return values, weights if list_weight is None else weights * tf.cast(
            list_weight, dtype
        )

    def _with_item_weights(
        self, labels: Labels, item_weights: Tensor
    ) -> tuple[Labels, Tensor]:
        """The labels with weights of items `[batch, n]`, and of lists, `[batch]`."""
        item_weights = weights_of_items(item_weights, labels.scores)
        # A NaN stays, and makes the result NaN.
        labels = without(labels, item_weights <= 0)
        item_weights = tf.where(labels.mask, item_weights, 0.0)
        # As TF-Ranking: a list weighs as the mean of its positives' weights, by their
        # gains in DCG.
        shares = self._shares_of_weight(labels.relevance)
        list_weight = mean_weights(labels._replace(relevance=shares), item_weights)
        if self.count_empty:
            num_items = tf.math.count_nonzero(
                labels.mask, axis=-1, dtype=item_weights.dtype
            )
            mean = tf.math.divide_no_nan(
                tf.reduce_sum(item_weights, axis=-1), num_items
            )
            list_weight = tf.where(labels.has_positive, list_weight, mean)
        return labels._replace(item_weights=item_weights), list_weight

    def _shares_of_weight(self, relevance: Tensor) -> Tensor:
        """Coefficients averaging positives' item weights `[batch, P]` to a list's."""
        return tf.cast(relevance > 0, relevance.dtype)

    def _weighed(self, labels: Any, dtype: tf.DType) -> Any:
        """The labels, or ranks, with the relevance that the formula is to read."""
        return labels

    def result(self) -> Any:
        """Returns the weighted mean; 0 if there was no list with a positive yet."""
        return self._by_name(self.sums.means())

    def _by_name(self, means: Tensor) -> Tensor | dict[str, Tensor]:
        """The one result, or several by their names."""
        results, names = tf.unstack(tf.cast(means, self.dtype)), self.result_names
        return (
            results[0]
            if names == [self.name]
            else dict(zip(names, results, strict=True))
        )

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


def flatten_positions(
    y_true: Any,
    y_pred: Any,
    sample_weight: Array | None,
    exclude: Array | None,
    label_format: str | None,
) -> tuple[tuple, Positions | None]:
    """A metric's arguments with a list per position, and the positions that count."""
    # A position that does not count weighs 0.
    positions = positions_of(y_pred)
    if positions is None:
        return (y_true, y_pred, sample_weight, exclude), None
    labels, positions = positions.labels(y_true, label_format)
    if exclude is not None and positions.shape.rank > 1:
        exclude = positions.broadcast(exclude, "exclude", 1)
    weights = masked_weights(positions, sample_weight)
    return (labels, positions.rows(), weights, exclude), positions


def masked_weights(positions: Positions, sample_weight: Array | None) -> Tensor:
    """Weights of positions, `[lists]` or `[lists, n]`, 0 for a masked one."""
    weights = tf.ones([]) if sample_weight is None else positions.weights(sample_weight)
    if positions.mask is None:
        return weights
    is_counted = tf.reshape(
        positions.mask, [-1, 1] if weights.shape.rank == 2 else [-1]
    )
    return tf.where(is_counted, weights, tf.zeros([], weights.dtype))


def without_weightless(labels: Labels, sample_weight: Array | None) -> Labels:
    """Labels without the items whose weight is 0, which are positives of no class."""
    if sample_weight is None:
        return labels
    weights = example_weights(sample_weight, labels.scores, True, signed=False)
    if weights.shape.rank != 2:
        return labels
    return without(labels, weights_of_items(weights, labels.scores) <= 0)


def weighted(values: list[Tensor], weights: Tensor) -> Tensor:
    """Weighted values `[batch]`, each as a column, and the weights as the last one."""
    return tf.stack([*(x * weights for x in values), weights], axis=1)
