"""Lists over all classes of a large output layer, whose scores exceed the memory.

Each reduction is a pass over blocks of classes; a `Record` (classes.py) keeps what the
gradient needs. A formula that reads only the highest classes has a sparse gradient, and
no backward pass.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import tensorflow as tf

from rank4class_tf._checks import require
from rank4class_tf._lists import classes
from rank4class_tf._lists import positives as _positives
from rank4class_tf._lists.classes import ClassProducts, Record, handle_of
from rank4class_tf._lists.dense import (
    UnlinkedLists,
    dense_lists,
    fill_masked,
    without_padding,
)
from rank4class_tf._lists.lists import LOWEST, EveryItemNeeded, Lists
from rank4class_tf._lists.positives import FlatPositives, are_few, excess, masked
from rank4class_tf._tf import raising
from rank4class_tf._tf.exact import is_zero, violation
from rank4class_tf._tf.gather import scatter_add
from rank4class_tf._tf.gradients import cond, has_nan
from rank4class_tf._tf.loops import fold_blocks, in_pieces
from rank4class_tf._tf.search import SEARCH_BLOCK, add_columns, top_k_by_blocks
from rank4class_tf._tf.seeds import fold_in
from rank4class_tf._types import (
    Array,
    Function,
    Tensor,
    TensorPair,
    Tensors,
    WithGradient,
)

# A formula that needs every score gets chunks of examples with about so many scores, 16
# MB.
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
    chunk_size = max(1, _SCORES_PER_CHUNK // products.num_classes)

    def chunk_losses(labels: Tensors, encodings: Tensor, *tables: Tensor) -> Tensor:
        chunk_index, class_ids, relevance = labels
        scores = fill_masked(products.score(encodings, *tables))
        # Each chunk has different draws, which the gradient repeats.
        chunk_seed = seed if seed is None else fold_in(seed, tf.reduce_max(chunk_index))
        return compute(dense_lists(scores, class_ids, relevance, seed=chunk_seed))

    return in_pieces(
        chunk_losses,
        (tf.range(tf.shape(class_ids)[0]) // chunk_size, class_ids, relevance),
        chunk_size,
        tf.TensorSpec([chunk_size], products.encodings.dtype),
        inputs=[products.encodings],
        shared=[tf.convert_to_tensor(table) for table in products.tables],
    )


def _by_classes(
    compute: Function,
    products: ClassProducts,
    class_ids: Tensor,
    relevance: Tensor,
    seed: Tensor | None,
) -> Tensor:
    """Losses of the examples of this replica, by passes over blocks of classes."""
    # With shards, every replica runs the formula on the examples of all replicas.
    shard, exchange = products.shard, products.exchange
    own_rows = slice(None)
    if exchange.size > 1:
        first_row = exchange.first_row(class_ids)
        own_rows = slice(first_row, first_row + tf.shape(class_ids)[0])
    class_ids = exchange.joined_lists(class_ids, -1)
    relevance = exchange.joined_lists(relevance, 0)
    class_ids = without_padding(class_ids, relevance)

    # The custom gradient takes the tables, or a shard's anchor, which stands for them
    # on tapes.
    if shard is None:
        for table in products.tables:
            if isinstance(table, tf.Variable):
                tf.gather(table, tf.zeros([0], tf.int32))  # Tapes watch it from now on.
        sources = [handle_of(table) for table in products.tables]
    else:
        sources = [shard.anchor]

    @tf.custom_gradient
    def losses(encodings: Tensor, *sources: Tensor) -> WithGradient:
        handles = sources if shard is None else tuple(map(handle_of, products.tables))
        joined = exchange.joined(tf.stop_gradient(encodings))
        record = Record(products._replace(encodings=joined, handles=handles))
        with record.tape:
            values = compute(BlockedLists(record, class_ids, relevance, seed))

        def gradient(
            upstream: Tensor, variables: Sequence[tf.Variable] = ()
        ) -> tuple[Any, ...]:
            upstream = exchange.joined(upstream)
            of_encodings, of_tables, of_variables = record.gradients(
                values, upstream, variables
            )
            if shard is not None:
                shard.update(of_tables)
                of_tables = [tf.zeros_like(shard.anchor)]
            if exchange.size > 1:
                # All replicas have the same gradient of a variable; optimizers add them
                # up.
                of_variables = [
                    x if x is None else x / exchange.size for x in of_variables
                ]
            gradients = (of_encodings[own_rows], *of_tables)
            return (gradients, of_variables) if variables else gradients

        return values[own_rows], gradient

    return losses(products.encodings, *sources)


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
        needs_columns = relevance.shape[1] == 1 or raising.in_xla()
        self._flat = None if needs_columns else FlatPositives.from_relevance(relevance)
        self._raw_positive_scores = record.single_scores(class_ids)
        self._has_gradient = True
        self._excluded: Tensor | None = None  # `[batch, E]`, padded with -1.
        # Scores are: factor * raw + by class + shift.
        self._factor: Tensor | None = None  # A scalar or `[batch, 1]`.
        self._by_class: Tensor | None = None  # `[1, K]`.
        self._shift: Tensor | None = None  # `[batch, 1]`.

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
        return count - tf.reduce_sum(tf.cast(self._excluded >= 0, self.dtype), axis=-1)

    @property
    def max_items(self) -> int:
        return self._record.products.num_classes

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

    def _transform(self) -> list[Tensor]:
        """Any factor and shift: only these change raw scores and have gradients."""
        return [x for x in (self._factor, self._shift) if x is not None]

    def _transformed(self, raw: Tensor, ids: Tensor, *transform: Tensor) -> Tensor:
        """Scores of these lists from raw ones; `transform` comes from `_transform`."""
        rest = iter(transform)
        if self._factor is not None:
            raw *= next(rest)
        if self._by_class is not None:
            raw += tf.gather(self._by_class[0], ids)
        return raw if self._shift is None else raw + next(rest)

    def _scores_of(self, raw: Tensor, ids: Tensor) -> Tensor:
        """Scores of single classes from raw ones, `[batch, m]`."""
        scores = self._transformed(raw, ids, *self._transform())
        return scores if self._has_gradient else tf.stop_gradient(scores)

    def _filled(self, raw: Tensor, ids: Tensor, *transform: Tensor) -> Tensor:
        """Scores of a block, in which a class that is not an item has the lowest."""
        scores = self._transformed(raw, ids, *transform)
        if self._excluded is not None:
            column, is_in_block = _columns(ids, self._excluded)
            # Classes of other blocks add 0.
            low = tf.where(is_in_block, tf.constant(-float("inf"), scores.dtype), 0.0)
            scores = add_columns(scores, column, low)
        return fill_masked(scores)

    def _sum(
        self,
        function: Callable,
        parameters: Tensors,
        start: Tensor,
        items: Sequence[Function] = (),
        tends_to_zero: bool = False,
        vanishes: bool = False,
        terms: Function = lambda f, items, parameters: f(*items, *parameters),
        value: Tensor | None = None,
    ) -> Tensor:
        """Sums `terms(function, [scores, *items], parameters)` over all classes."""
        # The function is masked unless it `tends_to_zero` or `vanishes`, as in
        # `Lists.sum`; one that vanishes has a term for each class. `start` has the
        # shape of the sum; its `value`, if known, saves the pass. The gradient flows to
        # the scores and the `parameters`.
        transform = self._transform()

        def block_terms(raw: Tensor, ids: Tensor, *tensors: Tensor) -> Tensor:
            scores = self._filled(raw, ids, *tensors[: len(transform)])
            parameters = tensors[len(transform) :]
            item_values = [values_of(ids) for values_of in items]
            if tends_to_zero or vanishes:
                return terms(function, [scores, *item_values], parameters)
            is_item = scores != LOWEST[self.dtype]
            mask, scores = tf.cast(is_item, self.dtype), tf.where(is_item, scores, 0.0)
            return terms(masked(function), [mask, scores, *item_values], parameters)

        if not self._has_gradient:
            self._record.check_constant(parameters)
        tensors, zeros = [*transform, *parameters], tf.zeros_like(start)
        return self._record.sum(
            block_terms, tensors, zeros, self._has_gradient, vanishes, value
        )

    def _sum_for_positives(
        self,
        function: Function,
        positives: Tensors,
        items: Sequence[Function] = (),
        tends_to_zero: bool = False,
        vanishes: bool = False,
        sum_many: Function = _positives.sum_over_items,
    ) -> Tensor:
        """Sums `function(scores, *items, *positives)` per positive, `[batch, P]`."""
        # The positives stand in columns, or flat, without padding. Few are compared
        # with all classes of a block at once, many by `sum_many`.
        flat, has_few = self._flat, are_few(self.max_positives, num_items=None)

        def sum_columns(f: Function, items: Tensors, positives: Tensors) -> Tensor:
            return sum_many(f, items, positives, self.relevance)

        def terms(f: Function, items: Tensors, positives: Tensors) -> Tensor:
            if has_few:
                return (_positives.terms if flat is None else flat.terms)(
                    f, items, positives
                )
            if flat is None:
                return sum_columns(f, items, positives)[..., tf.newaxis]
            m = len(items)  # `cond` passes the items and positives as one sequence.
            sums = cond(  # Few on average, or many: known only at run time.
                flat.are_few,
                lambda *x: tf.reduce_sum(flat.terms(f, x[:m], x[m:]), axis=-1),
                lambda *x: flat.to_flat(
                    sum_columns(f, x[:m], [flat.to_columns(p) for p in x[m:]])
                ),
                *items,
                *positives,
            )
            return sums[..., tf.newaxis]

        start = self.relevance
        if flat is not None:
            start, *positives = (flat.to_flat(x) for x in (start, *positives))
        # Only few positives have terms of single classes, which show the classes with a
        # gradient.
        tends_to_zero, vanishes = tends_to_zero or vanishes, vanishes and has_few
        result = self._sum(
            function, positives, start, items, tends_to_zero, vanishes, terms
        )
        return result if flat is None else flat.to_columns(result)

    def sum(
        self,
        function: Function,
        *parameters: Tensor,
        items: Sequence[Function] = (),
        tends_to_zero: bool = False,
        vanishes: bool = False,
    ) -> Tensor:
        start = self.relevance[:, 0]
        return self._sum(function, parameters, start, items, tends_to_zero, vanishes)

    def sum_over_items(
        self,
        function: Function,
        items: Sequence[Function] = (),
        positives: Tensors = (),
        tends_to_zero: bool = False,
        vanishes: bool = False,
    ) -> Tensor:
        positives = [self.positive_scores, *positives]
        return self._sum_for_positives(
            function, positives, items, tends_to_zero, vanishes
        )

    def sum_of_violations(self, margin: float, levels: Tensor | None = None) -> Tensor:
        return self._sum_for_positives(
            lambda s, p: violation(s - p, margin),
            [self.positive_scores if levels is None else levels],
            vanishes=True,
            sum_many=lambda _, items, positives, *rest: excess(
                items[0], positives[0], margin
            )[0],
        )

    def log_sum_exp(
        self, temperature: Array = 1.0, smoothing: Array = 0.0
    ) -> TensorPair:
        transform, exchange = self._transform(), self._record.products.exchange
        is_smoothed = not is_zero(smoothing)

        # The value takes one pass, which keeps the highest score so far and the sum
        # relative to it.
        def add(
            raw: Tensor, ids: Tensor, previous: Tensor, total: Tensor
        ) -> list[Tensor]:
            scores = self._filled(raw, ids, *transform)
            highest = tf.maximum(
                previous, tf.reduce_max(scores, axis=-1, keepdims=True)
            )
            total *= tf.exp((previous - highest) / temperature)
            powers = tf.exp((scores - highest) / temperature)
            return [highest, total + tf.reduce_sum(powers, axis=-1, keepdims=True)]

        lowest = tf.fill([tf.shape(self.relevance)[0], 1], LOWEST[self.dtype])
        highest_here, total = self._record.fold(add, lowest, tf.zeros_like(lowest))
        with self._record.tape.stop_recording():
            highest = exchange.highest(highest_here)
            total = exchange.total(
                total * tf.exp((highest_here - highest) / temperature)
            )
            log_total = tf.math.log(total)
            mean_weight = smoothing / tf.maximum(self.num_items, 1)[:, tf.newaxis]

        def smoothing_term(scores: Tensor, temperature: Array) -> Tensor:
            return -mean_weight * (scores - highest) / temperature

        mean = tf.zeros_like(log_total[:, 0])
        if is_smoothed:
            mean = self.constant().sum(
                lambda scores: smoothing_term(scores, temperature)
            )

        # d log sum e^s = sum softmax * ds, as of a sum of softmax with a constant
        # denominator. That sum is recorded for its gradient only, with a known value.
        def softmax(scores: Tensor, temperature: Array = temperature) -> Tensor:
            share = tf.exp((scores - highest) / temperature - log_total)
            return share + smoothing_term(scores, temperature) if is_smoothed else share

        parameters = [] if isinstance(temperature, int | float) else [temperature]
        result = self._sum(
            softmax, parameters, mean, tends_to_zero=not is_smoothed, value=mean
        )
        return log_total + result[:, tf.newaxis], highest

    def top_k(self, k: Any) -> tuple[Tensor, Tensor, Tensor]:  # k is an int.
        n = self.max_items
        require(k <= n, f"`k` must be at most the number of items, {n}.", f"k={k}")
        if k > classes.CLASSES_PER_BLOCK:
            raise EveryItemNeeded(
                f"The {k} highest of {n} classes are too many for a block."
            )
        products, transform = self._record.products, self._transform()

        def score(
            local_places: Tensor,
        ) -> Tensor:  # In the tables, which may be of a shard.
            return self._filled(*products.block(local_places), *transform)

        with self._record.tape.stop_recording():
            local_k = min(k, products.num_local)
            size = products.block_size * (SEARCH_BLOCK // classes.CLASSES_PER_BLOCK)
            values, local_places = top_k_by_blocks(
                score, products.num_local, local_k, size
            )
            values, ids = products.exchange.best(values, products.ids(local_places), k)
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
        return self._replace(
            _factor=factor if self._factor is None else self._factor * factor,
            _shift=None if self._shift is None else self._shift * factor,
        )

    def shifted(self, shift: Tensor) -> BlockedLists:
        if shift.shape[1] == 1:
            return self._replace(
                _shift=shift if self._shift is None else self._shift + shift
            )
        if shift.shape != (1, self.max_items):
            raise EveryItemNeeded("Each score of each list is shifted.")
        self._record.check_constant([shift])
        shift = tf.stop_gradient(shift)
        return self._replace(
            _by_class=shift if self._by_class is None else self._by_class + shift
        )

    def negatives(self) -> BlockedLists:
        return self.without(tf.where(self.is_positive, self._class_ids, -1))

    def without(self, places: Tensor) -> BlockedLists:
        if self._excluded is not None:
            places = tf.concat([self._excluded, places], axis=1)
        return self._replace(_excluded=places)  # As `top_k` returns them: class ids.

    def only(self, places: Tensor) -> Lists:
        filled = tf.where(places >= 0, self._scores_at(places), LOWEST[self.dtype])
        class_ids, relevance, scores = None, self.relevance, self.positive_scores
        return UnlinkedLists(filled, class_ids, relevance, scores, seed=self.seed)

    def keep_nan(self, losses: Tensor) -> Tensor:
        # A sum of a NaN is NaN by itself, but a search may miss the NaN of a row.
        products = self._record.products

        def find_nan(local_places: Tensor, is_broken: Tensor) -> list[Tensor]:
            are_nan = [
                tf.reduce_any(tf.math.is_nan(x)) for x in products.rows(local_places)
            ]
            return [functools.reduce(tf.logical_or, are_nan, is_broken)]

        with self._record.tape.stop_recording():
            num_local, start = products.num_local, [tf.constant(False)]
            (is_broken,) = fold_blocks(
                find_nan, num_local, classes.CLASSES_PER_BLOCK, start
            )
            is_broken = products.exchange.total(tf.cast(is_broken, tf.int32)) > 0
        is_broken |= has_nan(products.encodings)
        return tf.where(is_broken, tf.constant(float("nan"), losses.dtype), losses)


def _columns(ids: Tensor, wanted: Tensor) -> TensorPair:
    """Columns of wanted ids `[batch, m]` in a block's rising ids, and which exist."""
    flat = tf.reshape(wanted, [-1])
    column = tf.minimum(tf.searchsorted(ids, flat), tf.size(ids) - 1)
    is_in_block = tf.equal(tf.gather(ids, column), flat)
    return tf.reshape(column, tf.shape(wanted)), tf.reshape(
        is_in_block, tf.shape(wanted)
    )
