"""Lists over all classes of a large output layer, whose scores exceed the memory.

Each reduction is a pass over blocks of classes by a `Record` (classes.py), which keeps
what the gradient needs. Tables, shards and gradients are there; labels, positives and
formulas are here. A formula that reads only the highest classes has a sparse gradient,
and no backward pass.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import tensorflow as tf

from rank4class_tf._checks import require
from rank4class_tf._lists import positives as _positives
from rank4class_tf._lists.block_rows import (
    ByList,
    BySum,
    ColumnPositives,
    FlatPositives,
    RowKind,
)
from rank4class_tf._lists.classes import Block, ClassProducts, Record, with_record
from rank4class_tf._lists.dense import (
    ChosenLists,
    dense_lists,
    fill_masked,
    without_padding,
)
from rank4class_tf._lists.labels import distinct_ids
from rank4class_tf._lists.lists import LOWEST, EveryItemNeeded, Lists
from rank4class_tf._lists.positives import are_few, excess, masked
from rank4class_tf._tf import raising, sizes
from rank4class_tf._tf.exact import is_zero, violation
from rank4class_tf._tf.gather import scatter_add
from rank4class_tf._tf.loops import Arguments, in_pieces
from rank4class_tf._tf.search import add_columns
from rank4class_tf._tf.seeds import fold_in
from rank4class_tf._types import Array, Function, Tensor, TensorPair, Tensors

# On a CPU, a formula that needs every score gets chunks of examples with about so many
# scores, 16 MB.
_SCORES_PER_CHUNK = 1 << 22


def losses_of_classes(
    compute: Function,
    products: ClassProducts,
    class_ids: Tensor,
    relevance: Tensor,
    seed: Tensor | None = None,
) -> Tensor:
    """Applies a formula to lists over all classes without their scores `[batch, K]`."""
    # Class ids `[batch, P]` are int32, padded with -1, where the relevance is 0.
    try:
        return _by_classes(compute, products, class_ids, relevance, seed)
    except EveryItemNeeded as error:
        if products.shard is not None:
            rule = (
                "`loss` must be one that takes classes by blocks where these are "
                "in shards."
            )
            raise ValueError(f"{rule} {error}") from error
    # All classes for a few examples at a time; the gradient computes their scores
    # again.
    is_on_cpu = sizes.device_type() == "CPU"
    most_scores = _SCORES_PER_CHUNK if is_on_cpu else sizes.MOST_SCORES
    chunk_size = max(1, most_scores // products.num_classes)

    def chunk_losses(labels: Tensors, encodings: Tensor, *tables: Tensor) -> Tensor:
        chunk_index, class_ids, relevance = labels
        scores = fill_masked(products.score(encodings, *tables))
        # Each chunk has different draws, which the gradient repeats.
        chunk_seed = seed if seed is None else fold_in(seed, tf.reduce_max(chunk_index))
        return compute(dense_lists(scores, class_ids, relevance, seed=chunk_seed))

    chunk_of_example = tf.range(tf.shape(class_ids)[0]) // chunk_size
    arguments = Arguments(
        data=(chunk_of_example, class_ids, relevance),
        inputs=[products.encodings],
        shared=[tf.convert_to_tensor(table) for table in products.tables],
    )
    spec = tf.TensorSpec([chunk_size], products.encodings.dtype)
    return in_pieces(chunk_losses, arguments, spec)


def _by_classes(
    compute: Function,
    products: ClassProducts,
    class_ids: Tensor,
    relevance: Tensor,
    seed: Tensor | None,
) -> Tensor:
    """Losses of the examples of this replica, by passes over blocks of classes."""
    exchange = products.exchange
    class_ids = exchange.joined_lists(class_ids, -1)
    relevance = exchange.joined_lists(relevance, 0)
    class_ids = without_padding(class_ids, relevance)
    return with_record(
        lambda record: compute(BlockedLists(record, class_ids, relevance, seed)),
        products,
    )


class _Terms(NamedTuple):
    """What is summed: `function(scores, *items, *values)` of each class."""

    # The function is masked unless it `tends_to_zero` or `vanishes`, as in `Lists.sum`;
    # one that vanishes has a term for each class.
    function: Function
    items: Sequence[Function] = ()  # Of the ids of a block, its values of each class.
    tends_to_zero: bool = False
    vanishes: bool = False
    rows: RowKind = ByList()

    def of_block(self, scores: Tensor, ids: Tensor, values: Tensors) -> Tensor:
        """The terms of a block, with the values of the rows of the sum."""
        items = [values_of(ids) for values_of in self.items]
        if self.tends_to_zero or self.vanishes:
            return self.rows.terms(self.function, [scores, *items], values)
        is_item = scores != LOWEST[scores.dtype]
        mask = tf.cast(is_item, scores.dtype)
        scores = tf.where(is_item, scores, 0.0)
        return self.rows.terms(masked(self.function), [mask, scores, *items], values)


class BlockedLists(Lists):
    """All classes of each example as items; see the module and `Lists`."""

    def __init__(
        self,
        record: Record,
        class_ids: Tensor,
        relevance: Tensor,
        seed: Tensor | None = None,
    ):
        """Class ids are int32 `[batch, P]`; at relevance 0, an id is any positive's."""
        self._record = record
        self._class_ids = class_ids
        self.relevance = relevance
        self.seed = seed
        # The flat length is known only at run time, so XLA gets the padded columns.
        self._positives: ColumnPositives | FlatPositives
        if relevance.shape[1] == 1 or raising.in_xla():
            self._positives = ColumnPositives(relevance)
        else:
            self._positives = FlatPositives.from_relevance(relevance)
        self._raw_positive_scores = record.single_scores(class_ids)
        self._has_gradient = True
        self._excluded: Tensor | None = None  # `[batch, E]`, padded with -1.
        # Scores are: factor * raw + by class + shift. The transform holds any "factor",
        # a scalar or `[batch, 1]`, and any "shift", `[batch, 1]`: these have gradients.
        self._transform: dict[str, Tensor] = {}
        self._by_class: Tensor | None = None  # `[1, K]`.

    def _replace(self, **changes: Any) -> BlockedLists:
        lists = copy.copy(self)
        vars(lists).update(changes)
        return lists

    @property
    def dtype(self) -> tf.DType:
        return self._raw_positive_scores.dtype

    @property
    def positive_scores(self) -> Tensor:
        return self._scores_of(self._raw_positive_scores, self._class_ids)

    @property
    def num_items(self) -> Tensor:
        count = tf.fill(
            tf.shape(self.relevance)[:1], tf.cast(self.max_items, self.dtype)
        )
        if self._excluded is None:
            return count
        # A positive may be left out twice.
        is_excluded = distinct_ids(self._excluded) >= 0
        return count - tf.reduce_sum(tf.cast(is_excluded, self.dtype), axis=-1)

    @property
    def max_items(self) -> int:
        return self._record.num_classes

    def item_relevance(self) -> Callable:
        def block_relevance(ids: Tensor) -> Tensor:
            """Relevance of the classes of a block, `[batch, size of the block]`."""
            column, is_in_block = _columns(ids, self._class_ids)
            shape = tf.stack([tf.shape(self.relevance)[0], tf.size(ids)])
            block = scatter_add(
                column, tf.where(is_in_block, self.relevance, 0.0), shape
            )
            return tf.ensure_shape(block, [self.relevance.shape[0], ids.shape[0]])

        return block_relevance

    def dense(self) -> NoReturn:
        raise EveryItemNeeded("A formula needs the scores of all items at once.")

    # Scores of a block.

    def _transformed(
        self,
        raw: Tensor,
        ids: Tensor,
        factor: Tensor | None = None,
        shift: Tensor | None = None,
    ) -> Tensor:
        """Scores of these lists from raw ones, by the tensors of the transform."""
        if factor is not None:
            raw *= factor
        if self._by_class is not None:
            raw += tf.gather(self._by_class[0], ids)
        return raw if shift is None else raw + shift

    def _scores_of(self, raw: Tensor, ids: Tensor) -> Tensor:
        """Scores of single classes from raw ones, `[batch, m]`."""
        scores = self._transformed(raw, ids, **self._transform)
        return scores if self._has_gradient else tf.stop_gradient(scores)

    def _filled(self, block: Block, transform: dict[str, Tensor]) -> Tensor:
        """Scores of a block, in which a class that is not an item has the lowest."""
        scores = self._transformed(block.scores, block.ids, **transform)
        if self._excluded is not None:
            column, is_in_block = _columns(block.ids, self._excluded)
            # Classes of other blocks add 0.
            low = tf.where(is_in_block, tf.constant(-float("inf"), scores.dtype), 0.0)
            scores = add_columns(scores, column, low)
        return fill_masked(scores)

    def _sum(self, terms: _Terms, values: Tensors, start: Tensor) -> Tensor:
        """Sums terms over all classes, with a gradient of the scores and the values."""
        # `start` has the shape of the sum.
        return self._record.sum(
            self._block_terms(terms),
            self._parameters(values),
            start=tf.zeros_like(start),
            has_gradient=self._has_gradient,
            vanishes=terms.vanishes,
        )

    def _parameters(self, values: Tensors) -> dict[str, Any]:
        """What `_block_terms` take besides a block."""
        if not self._has_gradient:
            self._record.check_constant(values)
        return {"transform": self._transform, "values": [*values]}

    def _block_terms(self, terms: _Terms) -> Function:
        """A function from a block to its terms, for `Record`."""

        def block_terms(
            block: Block, transform: dict[str, Tensor], values: list[Tensor]
        ) -> Tensor:
            scores = self._filled(block, transform)
            return terms.of_block(scores, block.ids, values)

        return block_terms

    def _sum_for_positives(
        self,
        terms: _Terms,
        values: Tensors,
        sum_columns: Function = _positives.sum_over_items,
    ) -> Tensor:
        """Sums `function(scores, *items, *values)` per positive, `[batch, P]`."""
        # Few positives are compared with all classes of a block at once, many by
        # `sum_columns`.
        positives = self._positives
        has_few = are_few(self.max_positives, num_items=None)
        terms = terms._replace(
            tends_to_zero=terms.tends_to_zero or terms.vanishes,
            # Only terms of single classes show which classes have a gradient.
            vanishes=terms.vanishes and has_few,
            rows=positives if has_few else BySum(positives, sum_columns),
        )
        result = self._sum(
            terms,
            [positives.from_columns(x) for x in values],
            start=positives.from_columns(self.relevance),
        )
        return positives.to_columns(result)

    def sum(
        self,
        function: Function,
        *parameters: Tensor,
        items: Sequence[Function] = (),
        tends_to_zero: bool = False,
        vanishes: bool = False,
    ) -> Tensor:
        terms = _Terms(function, items, tends_to_zero, vanishes)
        return self._sum(terms, parameters, start=self.relevance[:, 0])

    def sums(self, functions: Sequence[Function], *parameters: Tensor) -> list[Tensor]:
        def stacked(*values: Tensor) -> Tensor:
            return tf.stack([function(*values) for function in functions])

        start = tf.stack([self.relevance[:, 0]] * len(functions))
        terms = _Terms(stacked, tends_to_zero=True)
        return tf.unstack(self._sum(terms, parameters, start))

    def sum_over_items(
        self,
        function: Function,
        items: Sequence[Function] = (),
        positives: Tensors = (),
        tends_to_zero: bool = False,
        vanishes: bool = False,
    ) -> Tensor:
        terms = _Terms(function, items, tends_to_zero, vanishes)
        return self._sum_for_positives(terms, [self.positive_scores, *positives])

    def sum_of_violations(self, margin: float, levels: Tensor | None = None) -> Tensor:
        if levels is None:
            levels = self.positive_scores

        def sums_of_columns(
            _: Function, items: Tensors, values: Tensors, relevance: Tensor
        ) -> Tensor:
            # Scores, before which no mask comes where terms vanish, and levels.
            sums, _ = excess(items[0], values[0], margin)
            return sums

        terms = _Terms(lambda s, p: violation(s - p, margin), vanishes=True)
        return self._sum_for_positives(terms, [levels], sum_columns=sums_of_columns)

    def log_sum_exp(
        self, temperature: Array = 1.0, smoothing: Array = 0.0
    ) -> TensorPair:
        is_smoothed = not is_zero(smoothing)
        highest, log_total = self._log_total(temperature)
        with self._record.tape.stop_recording():
            mean_weight = smoothing / tf.maximum(self.num_items, 1)[:, tf.newaxis]

        def smoothing_term(scores: Tensor, temperature: Array) -> Tensor:
            return -mean_weight * (scores - highest) / temperature

        # What the value has besides: nothing, but it carries the gradient.
        rest = tf.zeros_like(log_total[:, 0])
        if is_smoothed:
            rest = self.constant().sum(
                lambda scores: smoothing_term(scores, temperature)
            )

        # d log sum e^s = sum softmax * ds, as of a sum of softmax with a constant
        # denominator. That sum is recorded for its gradient only, with a known value.
        def softmax(scores: Tensor, temperature: Array = temperature) -> Tensor:
            share = tf.exp((scores - highest) / temperature - log_total)
            if is_smoothed:
                share += smoothing_term(scores, temperature)
            return share

        is_number = isinstance(temperature, int | float)
        parameters = self._parameters([] if is_number else [temperature])
        if self._has_gradient:
            terms = _Terms(softmax, tends_to_zero=not is_smoothed)
            rest = self._record.known_sum(rest, self._block_terms(terms), parameters)
        return log_total + rest[:, tf.newaxis], highest

    def _log_total(self, temperature: Array) -> TensorPair:
        """The highest score, and the value of `log_sum_exp`, constants `[batch, 1]`."""

        # One pass keeps the highest score so far and the sum relative to it.
        def add(block: Block, previous: Tensor, total: Tensor) -> list[Tensor]:
            scores = self._filled(block, self._transform)
            highest = tf.reduce_max(scores, axis=-1, keepdims=True)
            highest = tf.maximum(previous, highest)
            total *= tf.exp((previous - highest) / temperature)
            powers = tf.exp((scores - highest) / temperature)
            return [highest, total + tf.reduce_sum(powers, axis=-1, keepdims=True)]

        exchange = self._record.exchange
        lowest = tf.fill([tf.shape(self.relevance)[0], 1], LOWEST[self.dtype])
        highest_here, total = self._record.fold(add, lowest, tf.zeros_like(lowest))
        with self._record.tape.stop_recording():
            highest = exchange.highest(highest_here)
            total *= tf.exp((highest_here - highest) / temperature)
            return highest, tf.math.log(exchange.total(total))

    def top_k(self, k: Any) -> tuple[Tensor, Tensor, Tensor]:  # k is an int.
        n = self.max_items
        require(k <= n, f"`k` must be at most the number of items, {n}.", f"k={k}")
        values, ids = self._record.top_k(
            lambda block: self._filled(block, self._transform), k
        )
        with self._record.tape.stop_recording():
            is_item = values > LOWEST[self.dtype]
            ids = tf.where(is_item, ids, -1)
        values = tf.where(is_item, self._scores_at(ids), LOWEST[self.dtype])
        num_found = tf.reduce_sum(tf.cast(is_item, tf.int32), axis=-1)
        return values, ids, tf.maximum(num_found, 1)

    def _scores_at(self, ids: Tensor) -> Tensor:
        """Scores of single classes of each example; those of the first class for -1."""
        ids = tf.maximum(ids, 0)
        return self._scores_of(self._record.single_scores(ids), ids)

    def constant(self) -> BlockedLists:
        return self._replace(_has_gradient=False)

    def scaled(self, factor: Array) -> BlockedLists:
        if self._by_class is not None:
            raise EveryItemNeeded("Scores are scaled after a shift by class.")
        factor = tf.convert_to_tensor(factor, self.dtype)
        scaled = {name: x * factor for name, x in self._transform.items()}
        return self._replace(_transform={"factor": factor, **scaled})

    def shifted(self, shift: Tensor) -> BlockedLists:
        if shift.shape[1] == 1:
            if "shift" in self._transform:
                shift = self._transform["shift"] + shift
            return self._replace(_transform={**self._transform, "shift": shift})
        if shift.shape != (1, self.max_items):
            raise EveryItemNeeded("Each score of each list is shifted.")
        self._record.check_constant(shift)
        shift = tf.stop_gradient(shift)
        if self._by_class is not None:
            shift = self._by_class + shift
        return self._replace(_by_class=shift)

    def negatives(self) -> BlockedLists:
        return self.without(tf.where(self.is_positive, self._class_ids, -1))

    def without(self, places: Tensor) -> BlockedLists:
        if self._excluded is not None:
            places = tf.concat([self._excluded, places], axis=1)
        return self._replace(_excluded=places)  # As `top_k` returns them: class ids.

    def only(self, places: Tensor) -> Lists:
        return ChosenLists(
            filled=tf.where(places >= 0, self._scores_at(places), LOWEST[self.dtype]),
            class_ids=None,
            relevance=self.relevance,
            positive_scores=self.positive_scores,
            seed=self.seed,
        )

    def keep_nan(self, losses: Tensor) -> Tensor:
        # A sum of a NaN is NaN by itself, but a search may miss the NaN of a row.
        is_broken = self._record.has_nan()
        return tf.where(is_broken, tf.constant(float("nan"), losses.dtype), losses)


def _columns(ids: Tensor, wanted: Tensor) -> TensorPair:
    """Columns of wanted ids `[batch, m]` in a block's rising ids, and which exist."""
    flat = tf.reshape(wanted, [-1])
    column = tf.minimum(tf.searchsorted(ids, flat), tf.size(ids) - 1)
    is_in_block = tf.equal(tf.gather(ids, column), flat)
    shape = tf.shape(wanted)
    return tf.reshape(column, shape), tf.reshape(is_in_block, shape)
