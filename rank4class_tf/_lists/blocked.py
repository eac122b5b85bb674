"""Lists over all classes of a large output layer, whose scores are made block by block.

The scores `[batch, K]` of a million classes do not fit in memory, and most formulas do not need
them at once. `BlockedLists` answer each sum that a formula asks for by a pass over blocks of
classes, and record it. One backward pass over the blocks then makes the gradients of all recorded
sums together. A formula that asks for no sum, since it reads only the highest classes, has a sparse
gradient and no such pass.

Where each replica of a strategy has a shard of the classes, all replicas run the formula on the
examples of all of them, and each makes the scores of its own classes. They exchange encodings,
labels, sums and gradients of encodings, none of which grows with the number of classes.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import tensorflow as tf

from rank4class_tf._lists import positives as _positives
from rank4class_tf._lists.dense import fill_masked, of_columns, others, without_padding
from rank4class_tf._lists.lists import LOWEST, EveryItemNeeded, Lists
from rank4class_tf._lists.positives import excess
from rank4class_tf._tf import raising
from rank4class_tf._tf.exact import violation
from rank4class_tf._tf.exchange import Exchange
from rank4class_tf._tf.gather import scatter_add, where
from rank4class_tf._tf.gradients import cond, has_nan
from rank4class_tf._tf.loops import in_pieces
from rank4class_tf._tf.search import add_columns
from rank4class_tf._types import TensorLike
from rank4class_tf.ops.blocks import top_k_by_blocks

# The scores of a block of 256 examples take 1 MB. Blocks of 512 take a tenth longer, larger ones
# are no faster.
_BLOCK = 1024

# Where no example needs more than one class of so many, the backward pass leaves the others out.
_PER_USED = 4

# What needs every item takes chunks of examples with about so many scores, 16 MB.
_CHUNK = 1 << 22


class Shard(NamedTuple):
    """The part of the classes that a replica of a strategy has.

    Attributes:
        first: the id of the first class here; those after it follow.
        num_classes: K, of all replicas.
        exchange: between the replicas.
        anchor: a number without effect, by which tapes see that the tables are trained.
        update: takes the gradients of the tables and updates them.
    """

    first: int
    num_classes: int
    exchange: Exchange
    anchor: tf.Tensor
    update: Callable


class ClassProducts(NamedTuple):
    """Scores `[batch, K]` of encodings with all classes, before anything is computed.

    Attributes:
        encodings: `[batch, d]`, float32.
        tables: rows `[K, width]` and, if there are any, biases `[K]`: variables or tensors.
        score: a function of encodings and some rows of each table that returns scores. Rows of the
            shape `[m, ...]` are those of classes shared by all examples, and give `[batch, m]`, as
            do rows of the shape `[batch, m, ...]`, of classes of each example. It reads no
            variables.
        shard: where the tables are those of a shard, what it is; else None.
    """

    encodings: tf.Tensor
    tables: tuple[Any, ...]
    score: Callable
    shard: Shard | None = None
    handles: tuple[tf.Tensor, ...] = ()  # What stands for the tables in their gradient.

    @property
    def num_classes(self) -> int:
        """K."""
        return self.num_here if self.shard is None else self.shard.num_classes

    @property
    def num_here(self) -> int:
        """How many of the classes the tables hold."""
        return self.tables[0].shape[0]

    def rows(self, places: tf.Tensor) -> list[tf.Tensor]:
        """Rows of each table by their places in it; a table is never read as a whole."""
        handles = self.handles or self.tables
        return [_rows(x, table, places) for x, table in zip(handles, self.tables, strict=True)]

    def ids(self, places: tf.Tensor) -> tf.Tensor:
        """The ids of the classes at some places of the tables."""
        return places if self.shard is None else self.shard.first + places

    def block(self, places: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Scores and ids of the classes at some places of the tables."""
        return self.score(self.encodings, *self.rows(places)), self.ids(places)

    def rows_of(self, ids: tf.Tensor) -> tuple[list[tf.Tensor], tf.Tensor, tf.Tensor | None]:
        """Rows of classes by their ids.

        Returns:
            The rows, ones for a class of another shard; the places of the classes; and booleans,
            whether a class is here, or None if all are.
        """
        if self.shard is None:
            return self.rows(ids), ids, None
        places = ids - self.shard.first
        here = (places >= 0) & (places < self.num_here)
        places = tf.where(here, places, 0)
        rows = [tf.where(here[..., tf.newaxis], x, 1.0) for x in self.rows(places)]
        return rows, places, here

    def total(self, x: tf.Tensor) -> tf.Tensor:
        """The sum of a tensor over the shards."""
        return x if self.shard is None else self.shard.exchange.total(x)

    def highest(self, x: tf.Tensor) -> tf.Tensor:
        """The highest of each number over the shards."""
        return x if self.shard is None else self.shard.exchange.highest(x)

    def all_scores(self) -> tf.Tensor:
        """`[batch, K]`."""
        return self.score(self.encodings, *map(tf.convert_to_tensor, self.tables))


def losses_of_classes(
    compute: Callable, products: ClassProducts, class_ids: tf.Tensor, relevance: tf.Tensor
) -> tf.Tensor:
    """Applies a formula to lists of all classes, without their scores `[batch, K]`.

    Args:
        compute: `Lists`, and the number of a chunk of examples or None -> `[batch]`.
        products: `ClassProducts`.
        class_ids: `[batch, P]` int32, the positives, padded with -1.
        relevance: `[batch, P]`, 0 where padded.

    Returns:
        `[batch]`. It has no second derivative.
    """
    try:
        if products.shard is None:
            return _by_classes(compute, products, without_padding(class_ids, relevance), relevance)
        return _by_shards(compute, products, class_ids, relevance)
    except EveryItemNeeded as error:
        if products.shard is None:
            return _by_examples(compute, products, class_ids, relevance)
        raise ValueError(
            f"`loss` must be one that takes classes by blocks where these are in shards. {error}"
        ) from error


def _by_examples(compute, products, class_ids, relevance):
    """All classes for a few examples at a time, whose scores are made again for the gradient."""
    size = max(1, _CHUNK // products.num_classes)
    batch = products.encodings.shape[0]
    if batch is not None:
        size = max(1, min(size, batch))
    elif not raising.in_xla():  # The last chunk is as long as the others: no longer than the batch.
        size = tf.clip_by_value(tf.shape(class_ids)[0], 1, size)
    length = size if isinstance(size, int) else None
    dtype = products.encodings.dtype

    def of_chunk(labels, encodings, *tables):
        chunk, *columns = labels
        scores = fill_masked(products.score(encodings, *tables))
        return compute(of_columns(scores, *columns), chunk[0])

    return in_pieces(
        of_chunk,
        (tf.range(tf.shape(class_ids)[0]) // size, class_ids, relevance),
        size,
        tf.TensorSpec([length], dtype),
        of_rows=[products.encodings],
        shared=[tf.convert_to_tensor(table) for table in products.tables],
    )


def _by_classes(compute, products, class_ids, relevance):
    """All examples, and classes block by block."""
    for table in products.tables:
        if isinstance(table, tf.Variable):
            tf.gather(table, tf.zeros([0], tf.int32))  # Tapes watch it from now on.

    @tf.custom_gradient
    def losses(encodings, *handles):
        stopped = tf.stop_gradient(encodings)
        record = _Record(products._replace(encodings=stopped, handles=handles))
        with record.tape:
            values = compute(BlockedLists(record, class_ids, relevance), None)
        record.check()

        def gradient(upstream, variables=()):
            of_encodings, of_tables, of_variables = record.gradients(values, upstream, variables)
            of_inputs = (of_encodings, *of_tables)
            return (of_inputs, of_variables) if variables else of_inputs

        return values, gradient

    return losses(products.encodings, *map(_handle, products.tables))


def _by_shards(compute, products, class_ids, relevance):
    """The examples of all replicas, and the classes here block by block."""
    shard, exchange = products.shard, products.shard.exchange
    number = tf.shape(class_ids)[0]
    first = exchange.first_row(number)
    class_ids = exchange.joined_lists(class_ids, -1)
    relevance = exchange.joined_lists(relevance, 0)

    @tf.custom_gradient
    def losses(encodings, anchor):
        handles = tuple(map(_handle, products.tables))
        every = exchange.joined(encodings)
        record = _Record(products._replace(encodings=every, handles=handles))
        with record.tape:
            lists = BlockedLists(record, without_padding(class_ids, relevance), relevance)
            values = compute(lists, None)
        record.check()

        def gradient(upstream, variables=()):
            upstream = exchange.joined(upstream)
            of_encodings, of_tables, of_variables = record.gradients(values, upstream, variables)
            shard.update(of_tables)
            of_inputs = (of_encodings[first : first + number], tf.zeros_like(anchor))
            # All replicas have the same gradient of a variable, and optimizers add them up.
            of_variables = [x if x is None else x / exchange.size for x in of_variables]
            return (of_inputs, of_variables) if variables else of_inputs

        return values[first : first + number], gradient

    return losses(products.encodings, shard.anchor)


def _handle(table):
    """What stands for a table: TensorFlow would copy all of a variable that a function captures."""
    if not isinstance(table, tf.Variable):
        return table
    # Keras 3 builds models outside of replicas, where variables have no handle.
    outside = tf.distribute.in_cross_replica_context()
    return tf.convert_to_tensor(table) if outside else table.handle


def _rows(handle, table, ids):
    if handle.dtype != tf.resource:
        return tf.gather(handle, ids)
    rows = tf.raw_ops.ResourceGather(resource=handle, indices=ids, dtype=table.dtype)
    return tf.ensure_shape(rows, [*ids.shape, *table.shape[1:]])


class _Sum(NamedTuple):
    """A sum over all classes that a formula has asked for.

    Attributes:
        of_block: raw scores of a block, its ids and the parameters -> the terms, `[batch, ...]`.
        parameters: tensors that get a gradient.
        result: the sum.
        used: `[K]` booleans, which classes have a term that is not 0; None where this was not
            asked: other terms have slopes even where they are 0.
    """

    of_block: Callable
    parameters: list[tf.Tensor]
    result: tf.Tensor
    used: tf.Tensor | None


class _Record:
    """What a formula has seen of the scores: sums over all classes, and scores of single ones."""

    def __init__(self, products: ClassProducts) -> None:
        self.products = products
        self.tape = tf.GradientTape(persistent=True)
        self._sums: list[_Sum] = []
        self._fixed: list[tf.Tensor] = []  # Tensors that sums read as constants.
        self._single: list[tuple[tf.Tensor, tf.Tensor]] = []

    def single_scores(self, ids: tf.Tensor, with_gradient: bool) -> tf.Tensor:
        """Scores of classes of each example, `[batch, m]`."""
        products = self.products
        with self.tape.stop_recording():
            rows, _, here = products.rows_of(ids)
            scores = tf.stop_gradient(products.score(products.encodings, *rows))
            if here is not None:
                scores = products.total(tf.where(here, scores, 0.0))
        if with_gradient:
            self.tape.watch(scores)
            self._single.append((ids, scores))
        return scores

    def fold(self, step: Callable, *state: tf.Tensor) -> list[tf.Tensor]:
        """Folds `step(raw scores, ids, *state)` over the blocks of this shard, no gradients."""
        products = self.products
        with self.tape.stop_recording():
            return _fold(
                lambda places, *state: step(*products.block(places), *state),
                products.num_here,
                state,
            )

    def total(self, x: tf.Tensor) -> tf.Tensor:
        """The sum over the shards of what each has folded."""
        with self.tape.stop_recording():
            return self.products.total(x)

    def highest(self, x: tf.Tensor) -> tf.Tensor:
        """The highest over the shards of what each has folded."""
        with self.tape.stop_recording():
            return self.products.highest(x)

    def sum(
        self,
        of_block: Callable,
        parameters: Sequence[tf.Tensor],
        start: tf.Tensor,
        with_gradient: bool,
        vanishes: bool = False,
        value: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """The sum of `of_block(raw scores, ids, *parameters)` over the blocks.

        Args:
            of_block: see `_Sum`.
            parameters: tensors that get a gradient.
            start: zeros of the shape of the sum.
            with_gradient: whether the sum is recorded.
            vanishes: whether terms are >= 0, and have no slope where they are 0. They are then
                terms of single classes, `[batch, ..., size of the block]`.
            value: the sum, if it is known already, which saves the pass.
        """
        # Each its own: the gradient of a tensor that is listed twice would count twice.
        parameters = [tf.identity(x) for x in parameters]
        used = None
        if value is None and vanishes and with_gradient and not raising.in_xla():
            value, used = self._sum_and_used(of_block, parameters, start)
        elif value is None:
            (value,) = self.fold(
                lambda raw, ids, total: [total + _total(of_block(raw, ids, *parameters), vanishes)],
                start,
            )
            value = self.total(value)
        value = tf.stop_gradient(value)
        if with_gradient:
            self.tape.watch(value)

            def whole(*block):
                return _total(of_block(*block), vanishes)

            self._sums.append(_Sum(whole, parameters, value, used))
        return value

    def _sum_and_used(self, of_block, parameters, start):
        """The sum, and which classes have a term above 0."""
        number, first = self.products.num_here, self.products.ids(tf.constant(0))

        def add(raw, ids, total, used):
            terms = of_block(raw, ids, *parameters)
            # A product with ones takes a fifth of the time of a maximum over examples.
            by_class = tf.reshape(terms, [-1, tf.size(ids)])
            ones = tf.ones([1, tf.shape(by_class)[0]], terms.dtype)
            is_used = ~(tf.matmul(ones, by_class)[0] <= 0)  # A NaN is one.
            return [total + _total(terms, True), used.write((ids[0] - first) // _BLOCK, is_used)]

        blocks = tf.TensorArray(
            tf.bool, -(-number // _BLOCK), infer_shape=False, element_shape=[None]
        )
        value, blocks = self.fold(add, start, blocks)
        return self.total(value), tf.ensure_shape(blocks.concat(), [number])

    def fix(self, tensors: Sequence[tf.Tensor]) -> None:
        """Notes tensors that sums read as constants."""
        self._fixed += tensors

    def check(self) -> None:
        """Raises if one backward pass cannot make the gradient."""
        parameters = [x for of in self._sums for x in of.parameters]
        results = [of.result for of in self._sums]
        if self._depend([*parameters, *self._fixed], results):
            raise EveryItemNeeded("A sum over all classes has another as a parameter.")
        if self._depend(
            self._fixed, [x for _, x in self._single] + [*self.tape.watched_variables()]
        ):
            raise EveryItemNeeded("A sum reads, as a constant, what has a gradient.")

    def _depend(self, tensors, sources):
        return tensors and any(x is not None for x in self.tape.gradient(tensors, sources))

    def gradients(
        self, values: tf.Tensor, upstream: tf.Tensor, variables: Sequence[tf.Variable]
    ) -> tuple[tf.Tensor, list[Any], list[Any]]:
        """Gradients of the encodings, of the tables, and of variables, such as a temperature."""
        products, tape = self.products, self.tape
        leaves = [scores for _, scores in self._single]
        of_all = tape.gradient(
            values, [*leaves, *(of.result for of in self._sums), *variables], upstream
        )
        of_leaves = of_all[: len(leaves)]
        of_results = of_all[len(leaves) : len(leaves) + len(self._sums)]
        of_variables = of_all[len(leaves) + len(self._sums) :]

        # What does not count for the values takes no pass.
        pairs_of = zip(self._sums, of_results, strict=True)
        counted = [(of, upstream) for of, upstream in pairs_of if upstream is not None]
        of_encodings, slices = tf.zeros_like(products.encodings), _Slices([])
        if counted:
            of_encodings, slices, of_parameters = self._backward_pass(counted)
            of_parameters = [products.total(x) for x in of_parameters]
            flat = [x for of, _ in counted for x in of.parameters]
            more = tape.gradient(flat, [*leaves, *variables], of_parameters)
            total = [_add(a, b) for a, b in zip([*of_leaves, *of_variables], more, strict=True)]
            of_leaves, of_variables = total[: len(leaves)], total[len(leaves) :]

        single = [
            (ids, g) for (ids, _), g in zip(self._single, of_leaves, strict=True) if g is not None
        ]
        if single:
            rows, places, here = products.rows_of(tf.concat([ids for ids, _ in single], axis=1))
            with tf.GradientTape() as tape:
                tape.watch([products.encodings, *rows])
                scores = products.score(products.encodings, *rows)
            of_single = tf.concat([g for _, g in single], axis=1)
            if here is not None:
                of_single = tf.where(here, of_single, 0.0)
            more, *of_rows = tape.gradient(scores, [products.encodings, *rows], of_single)
            of_encodings += more
            if here is None:
                places, *of_rows = (tf.reshape(x, [-1, *x.shape[2:]]) for x in (places, *of_rows))
            else:  # An optimizer must not touch rows of other shards.
                places, *of_rows = (tf.boolean_mask(x, here) for x in (places, *of_rows))
            slices = slices.plus(places, of_rows)
        return products.total(of_encodings), slices.of(products.tables), of_variables

    def _backward_pass(self, counted):
        """Gradients of encodings, tables and parameters by the sums with their upstreams."""
        tables, flat = self.products.tables, [x for of, _ in counted for x in of.parameters]

        def over(number, place_of):
            """A pass over so many classes; `place_of` tells where each is in the tables."""

            def step(numbers, of_encodings, of_rows, *of_flat):
                new, rows, more = self._gradients_of_block(place_of(numbers), counted)
                of_rows = [_set_rows(x, numbers, g) for x, g in zip(of_rows, rows, strict=True)]
                sums = [a + b for a, b in zip(of_flat, more, strict=True)]
                return [of_encodings + new, of_rows, *sums]

            start = [tf.zeros_like(self.products.encodings), [_empty(x, number) for x in tables]]
            return _fold(step, number, [*start, *map(tf.zeros_like, flat)])

        number = self.products.num_here
        if any(of.used is None for of, _ in counted):
            of_encodings, of_rows, *of_flat = over(number, tf.identity)
            return of_encodings, _Slices(of_rows), of_flat

        used = functools.reduce(tf.logical_or, [of.used for of, _ in counted])
        places = tf.cast(tf.where(used)[:, 0], tf.int32)
        is_few = tf.size(places) * _PER_USED <= number
        of_encodings, of_rows, *of_flat = tf.cond(
            is_few,
            lambda: over(tf.size(places), lambda numbers: tf.gather(places, numbers)),
            lambda: over(number, tf.identity),
        )
        places = tf.cond(is_few, lambda: places, lambda: tf.range(number))
        return of_encodings, _Slices(of_rows, places, is_few), of_flat

    def _gradients_of_block(self, places, counted):
        """Gradients of encodings, of the rows of some classes, and of parameters."""
        products, rows = self.products, self.products.rows(places)
        flat = [x for of, _ in counted for x in of.parameters]
        inputs = [products.encodings, *rows, *flat]
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            raw = products.score(products.encodings, *rows)
            ids = products.ids(places)
            parts = [of.of_block(raw, ids, *of.parameters) for of, _ in counted]
        upstream = [x for _, x in counted]
        new, *more = tape.gradient(parts, inputs, upstream, unconnected_gradients="zero")
        return new, more[: len(rows)], more[len(rows) :]


class _Slices(NamedTuple):
    """Gradients of rows of the tables.

    Attributes:
        rows: of each table; none where there is no gradient.
        ids: places of the rows; None for all of them in order.
        is_few: a scalar boolean, whether the places may be any; else they are all in order.
    """

    rows: list[tf.Tensor]
    ids: tf.Tensor | None = None
    is_few: tf.Tensor | None = None

    def plus(self, ids: tf.Tensor, rows: list[tf.Tensor]) -> _Slices:
        """These and other rows, among which an id may come twice."""
        if not self.rows:
            return _Slices(rows, ids)

        def in_place():
            return [_add_rows(total, ids, g) for total, g in zip(self.rows, rows, strict=True)]

        if self.ids is None:
            return _Slices(in_place())
        is_few = self.is_few
        return _Slices(
            tf.cond(
                is_few,
                lambda: [tf.concat(x, axis=0) for x in zip(self.rows, rows, strict=True)],
                in_place,
            ),
            tf.cond(is_few, lambda: tf.concat([self.ids, ids], axis=0), lambda: self.ids),
            is_few,
        )

    def of(self, tables: Sequence[Any]) -> list[Any]:
        """The gradient of each table."""
        if not self.rows:
            return [None] * len(tables)
        both = zip(self.rows, tables, strict=True)
        if self.ids is None:
            return [tf.ensure_shape(g, table.shape) for g, table in both]
        return [
            tf.IndexedSlices(g, self.ids, tf.constant(table.shape.as_list())) for g, table in both
        ]


class BlockedLists(Lists):
    """All classes of each example as items; see the module and `Lists`."""

    def __init__(self, record: _Record, class_ids: tf.Tensor, relevance: tf.Tensor) -> None:
        """Not for users; the losses make lists.

        Args:
            record: of the formula that reads these lists.
            class_ids: `[batch, P]` int32, that of a positive where padded.
            relevance: `[batch, P]`, 0 where padded.
        """
        self._record = record
        self._class_ids = class_ids
        self.relevance = relevance
        # Its length is known only when running, which XLA does not allow.
        single = relevance.shape[1] == 1 or raising.in_xla()
        self._flat = None if single else _positives.Flat.of(relevance)
        self._own = record.single_scores(class_ids, with_gradient=True)
        self._has_gradient = True
        self._excluded: tf.Tensor | None = None  # `[batch, E]`, padded with -1.
        # Scores are: factor * raw + by class - shift - top.
        self._factor: tf.Tensor | None = None  # A scalar or `[batch, 1]`.
        self._by_class: tf.Tensor | None = None  # `[1, K]`.
        self._shift: tf.Tensor | None = None  # `[batch, 1]`.
        self._top: _Top | None = None
        self._is_fresh = False  # Whether nothing has changed since the top was subtracted.

    def _changed(self, **changes):
        lists = copy.copy(self)
        vars(lists).update({"_is_fresh": False, **changes})
        return lists

    def _current_shift(self):
        if self._top is None:
            return self._shift
        top = self._top.value()
        return top if self._shift is None else self._shift + top

    # What there is.

    @property
    def dtype(self) -> tf.DType:
        return self._own.dtype

    @property
    def positive_scores(self) -> tf.Tensor:
        own = self._own if self._has_gradient else tf.stop_gradient(self._own)
        return self._seen(own, self._class_ids, *self._transform())

    @property
    def num_items(self) -> tf.Tensor:
        count = tf.fill(
            tf.shape(self.relevance)[:1], tf.cast(self.num_columns_of_items, self.dtype)
        )
        if self._excluded is None:
            return count
        return count - tf.reduce_sum(tf.cast(self._excluded >= 0, self.dtype), axis=-1)

    @property
    def num_columns_of_items(self) -> int:
        return self._record.products.num_classes

    @property
    def has_few_columns(self) -> bool:
        return True

    @property
    def num_worth_finding(self) -> int:
        # A pass over many classes takes long: over 20,000 Sparsemax takes a third of the time.
        return 63 if self.num_columns_of_items > 4 * _BLOCK else 15

    def by_item(self, values: tf.Tensor) -> _ByItem:
        self._record.fix([values])
        return _ByItem(values, self._class_ids)

    # The scores of a block.

    def _transform(self):
        """What changes raw scores and may have a gradient."""
        return [x for x in (self._factor, self._current_shift()) if x is not None]

    def _seen(self, raw, ids, *transform):
        """Scores of these lists from raw ones; `transform` is that of `_transform`."""
        rest = iter(transform)
        if self._factor is not None:
            raw *= next(rest)
        if self._by_class is not None:
            raw += tf.gather(self._by_class[0], ids)
        shift = next(rest, None)
        return raw if shift is None else raw - shift

    def _filled(self, raw, ids, *transform):
        """Scores of a block, in which a class that is none of the items has the lowest."""
        scores = self._seen(raw, ids, *transform)
        if self._excluded is not None:
            place, here = _places(ids, self._excluded)
            # Those of other blocks add 0.
            low = tf.where(here, tf.constant(-float("inf"), scores.dtype), 0.0)
            scores = add_columns(scores, place, low)
        return fill_masked(scores)

    def _sum(self, function, parameters, start=None, tends_to_zero=True, **how):
        """Sums `function(scores, ids, mask, *parameters)` over the blocks; see `_Record.sum`.

        The sum has the shape of `start`, by default `[batch]`.
        """
        transform = self._transform()
        number = len(transform)

        def of_block(raw, ids, *parameters):
            scores = self._filled(raw, ids, *parameters[:number])
            if tends_to_zero:
                return function(scores, ids, None, *parameters[number:])
            mask = scores != LOWEST[self.dtype]
            return function(where(mask, scores, 0.0), ids, mask, *parameters[number:])

        if not self._has_gradient:
            self._record.fix(parameters)
        start = tf.zeros_like(self.relevance[:, 0] if start is None else start)
        return self._record.sum(
            of_block, [*transform, *parameters], start, self._has_gradient, **how
        )

    def _sum_for_positives(
        self, function, items, positives, tends_to_zero=True, vanishes=False, many=None
    ):
        """Sums `function(scores, *items, *positives)` for each positive, `[batch, P]`.

        `many(*items, *positives)` is the sum where lists have many positives.
        """
        flat, few = self._flat, _positives.are_few(self.num_columns, None)
        vanishes = vanishes and few
        if flat is not None:
            positives = [flat.take(x) for x in positives]

        def of_block(scores, ids, mask, *positives):
            given, of_pair = [scores, *(values.of_block(ids) for values in items)], function
            if mask is not None:
                given = [tf.cast(mask, self.dtype), *given]

                def of_pair(mask, *arguments):
                    values = function(*arguments)
                    return tf.where(mask > 0, values, tf.zeros_like(values))

            if few:
                terms = _positives.terms if flat is None else flat.terms
                return _total(terms(of_pair, given, positives), not vanishes)
            number = len(given)

            def sum_many(*tensors):
                given, positives = tensors[:number], tensors[number:]
                if many is not None:
                    return many(*given, *positives)
                return _positives.sum_over_items(
                    of_pair, given, positives, lambda: self.num_visited
                )

            if flat is None:
                return sum_many(*given, *positives)
            return cond(
                flat.are_few,
                lambda *x: tf.reduce_sum(flat.terms(of_pair, x[:number], x[number:]), axis=-1),
                lambda *x: flat.take(sum_many(*x[:number], *map(flat.columns, x[number:]))),
                *given,
                *positives,
            )

        start = self.relevance if flat is None else flat.take(self.relevance)
        result = self._sum(
            of_block, positives, start, tends_to_zero=tends_to_zero or vanishes, vanishes=vanishes
        )
        return result if flat is None else flat.columns(result)

    # Reductions over the items.

    def sum(
        self,
        function: Callable,
        *parameters: tf.Tensor,
        items: Sequence[Any] = (),
        tends_to_zero: bool = False,
        vanishes: bool = False,
    ) -> tf.Tensor:
        def of_block(scores, ids, mask, *parameters):
            values = function(scores, *(values.of_block(ids) for values in items), *parameters)
            return _total(values if mask is None else where(mask, values, 0.0), not vanishes)

        tends_to_zero |= vanishes
        return self._sum(of_block, parameters, tends_to_zero=tends_to_zero, vanishes=vanishes)

    def sum_over_items(
        self,
        function: Callable,
        items: Sequence[Any] = (),
        positives: Sequence[tf.Tensor] = (),
        tends_to_zero: bool = False,
        vanishes: bool = False,
    ) -> tf.Tensor:
        positives = [self.positive_scores, *positives]
        return self._sum_for_positives(function, items, positives, tends_to_zero, vanishes)

    def sum_of_violations(self, margin: float, levels: tf.Tensor | None = None) -> tf.Tensor:
        return self._sum_for_positives(
            lambda s, p: violation(s - p, margin),
            [],
            [self.positive_scores if levels is None else levels],
            vanishes=True,
            many=lambda scores, levels: excess(scores, levels, margin),
        )

    def max(self) -> tf.Tensor:
        if self._has_gradient:
            return self.top_k(1)[0][:, 0]
        transform = self._transform()
        lowest = tf.fill(tf.shape(self.relevance)[:1], LOWEST[self.dtype])
        (highest,) = self._record.fold(
            lambda raw, ids, best: [
                tf.maximum(best, tf.reduce_max(self._filled(raw, ids, *transform), axis=-1))
            ],
            lowest,
        )
        return self._record.highest(highest)

    def log_sum_exp(self, temperature: TensorLike = 1.0) -> tf.Tensor:
        if self._top is not None and self._is_fresh:
            return self._top.log_total(temperature)
        highest, log_total = self._log_total(temperature)
        return highest / temperature + log_total

    def _log_total(self, temperature):
        """The highest score, a constant, and `log_sum_exp` relative to it, in one pass."""
        constant = self._transform()

        def add(raw, ids, best, total):
            scores = self._filled(raw, ids, *constant)
            highest = tf.maximum(best, tf.reduce_max(scores, axis=-1))
            total *= tf.exp((best - highest) / temperature)
            powers = tf.exp((scores - highest[:, tf.newaxis]) / temperature)
            return [highest, total + tf.reduce_sum(powers, axis=-1)]

        lowest = tf.fill(tf.shape(self.relevance)[:1], LOWEST[self.dtype])
        here, total = self._record.fold(add, lowest, tf.zeros_like(lowest))
        highest = self._record.highest(here)
        total = self._record.total(total * tf.exp((here - highest) / temperature))
        log_total = tf.math.log(total)
        level, log_level = highest[:, tf.newaxis], log_total[:, tf.newaxis]

        # The sum of shares is 1, and its gradient that of the logarithm. Only this takes a pass.
        def shares(scores, ids, mask, *parameters):
            (by,) = parameters or (temperature,)
            return tf.reduce_sum(tf.exp((scores - level) / by - log_level), axis=-1)

        given = [] if isinstance(temperature, int | float) else [temperature]
        zero = self._sum(shares, given, value=tf.zeros_like(log_total))
        return highest, log_total + zero

    def top_k(self, k: int) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        ids, there = self._search(k)
        values = tf.where(there, self._scores_at(ids), LOWEST[self.dtype])
        found = tf.reduce_sum(tf.cast(there, tf.int32), axis=-1)
        return values, ids, tf.maximum(found, 1)

    def _search(self, k):
        """Ids of the k highest, and booleans, False where a list has fewer; `[batch, k]`."""
        n = self.num_columns_of_items
        if k > n:
            raise ValueError(f"`k` must be at most the number of items, {n}. Received: k={k}.")
        if k > _BLOCK:
            raise EveryItemNeeded(f"The {k} highest of {n} classes are too many for a block.")
        products, transform = self._record.products, self._transform()

        def score(places):
            return self._filled(*products.block(places), *transform)

        with self._record.tape.stop_recording():
            values, places = top_k_by_blocks(score, products.num_here, min(k, products.num_here))
            ids = products.ids(places)
            if products.shard is not None:
                values, ids = products.shard.exchange.best(values, ids, k)
        return ids, values > LOWEST[self.dtype]

    def _scores_at(self, ids):
        """Scores of single classes of each example."""
        raw = self._record.single_scores(ids, self._has_gradient)
        return self._seen(raw, ids, *self._transform())

    def root(self, value: tf.Tensor, function: Callable) -> tf.Tensor:
        # There is no second derivative for which its gradient would count.
        return tf.stop_gradient(value)

    # Other lists from these.

    def constant(self) -> Lists:
        return self._changed(_has_gradient=False)

    def from_top(self) -> Lists:
        return self._changed(_shift=self._current_shift(), _top=_Top(self), _is_fresh=True)

    def relative_to(self, level: tf.Tensor) -> Lists:
        return self._changed(_shift=level if self._shift is None else self._shift + level)

    def scaled(self, factor: TensorLike) -> Lists:
        if self._by_class is not None:
            raise EveryItemNeeded("Scores are scaled after a shift by class.")
        factor, shift = tf.convert_to_tensor(factor, self.dtype), self._current_shift()
        return self._changed(
            _factor=factor if self._factor is None else self._factor * factor,
            _shift=None if shift is None else shift * factor,
            _top=None,
        )

    def shifted(self, shift: tf.Tensor) -> Lists:
        if shift.shape != (1, self.num_columns_of_items):
            raise EveryItemNeeded("Each score of each list is shifted.")
        self._record.fix([shift])
        shift = tf.stop_gradient(shift)
        return self._changed(_by_class=shift if self._by_class is None else self._by_class + shift)

    def negatives(self) -> Lists:
        return self.without(tf.where(self.is_positive, self._class_ids, -1))

    def positives_only(self) -> Lists:
        own = where(self.is_positive, self.positive_scores, self.dtype.min / 8)
        return others(own, self.relevance, self.positive_scores)

    def without(self, columns: tf.Tensor) -> Lists:
        if self._excluded is not None:
            columns = tf.concat([self._excluded, columns], axis=1)
        return self._changed(_excluded=columns)

    def only(self, columns: tf.Tensor) -> Lists:
        scores = self._scores_at(tf.maximum(columns, 0))
        filled = tf.where(columns >= 0, scores, LOWEST[self.dtype])
        return others(filled, self.relevance, self.positive_scores)

    def highest(self, k: TensorLike) -> Lists:
        ids, there = self._search(k)
        return self.only(tf.where(there, ids, -1))

    def keep_nan(self, losses: tf.Tensor) -> tf.Tensor:
        # A sum is NaN by itself. A search may miss the NaN of a row.
        products = self._record.products

        def look(places, broken):
            found = [tf.reduce_any(tf.math.is_nan(x)) for x in products.rows(places)]
            return [functools.reduce(tf.logical_or, found, broken)]

        with self._record.tape.stop_recording():
            (broken,) = _fold(look, products.num_here, [tf.constant(False)])
            broken = products.total(tf.cast(broken, tf.int32)) > 0
        broken |= has_nan(products.encodings)
        return tf.where(broken, tf.constant(float("nan"), losses.dtype), losses)


class _ByItem:
    """Values by item, for sums; what computes with them otherwise needs every item.

    Args:
        values: of the positives, `[batch, P]`.
        class_ids: of the positives.
    """

    def __init__(self, values: tf.Tensor, class_ids: tf.Tensor) -> None:
        self._values = values
        self._class_ids = class_ids

    def of_block(self, ids: tf.Tensor) -> tf.Tensor:
        """`[batch, size of the block]`."""
        values = self._values
        place, here = _places(ids, self._class_ids)
        shape = tf.stack([tf.shape(values)[0], tf.size(ids)])
        block = scatter_add(place, where(here, values, 0.0), shape)
        return tf.ensure_shape(block, [values.shape[0], ids.shape[0]])

    def _need_every_item(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise EveryItemNeeded("A formula computes with values by item outside of a sum.")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _need_every_item
    __truediv__ = __rtruediv__ = __pow__ = __neg__ = __getitem__ = _need_every_item
    __lt__ = __le__ = __gt__ = __ge__ = __tf_tensor__ = _need_every_item


class _Top:
    """The highest score of each list, a constant, found when it is asked for."""

    def __init__(self, lists: BlockedLists) -> None:
        self._lists = lists
        self._highest: tf.Tensor | None = None

    def value(self) -> tf.Tensor:
        """`[batch, 1]`."""
        if self._highest is None:
            self._highest = self._lists.constant().max()
        return self._highest[:, tf.newaxis]

    def log_total(self, temperature: TensorLike) -> tf.Tensor:
        """`log_sum_exp` relative to the highest score, which the same pass finds."""
        self._highest, log_total = self._lists._log_total(temperature)
        return log_total


def _fold(step, number, state):
    """Folds `step(ids, *state)` over blocks of ids in [0, number); the last one may be smaller."""
    if not isinstance(number, int):  # Only running tells.

        def body(start, *state):
            ids = tf.range(start, tf.minimum(start + _BLOCK, number))
            return start + _BLOCK, *step(ids, *state)

        start = (tf.constant(0), *state)
        _, *state = tf.while_loop(lambda s, *_: s < number, body, start, parallel_iterations=1)
        return state
    size = min(_BLOCK, number)
    full, rest = divmod(number, size)
    if full == 1:
        state = step(tf.range(size), *state)
    else:
        _, *state = tf.while_loop(
            lambda block, *_: block < full,
            lambda block, *state: (block + 1, *step(block * size + tf.range(size), *state)),
            (tf.constant(0), *state),
            parallel_iterations=1,  # More blocks at once would take their memory at once.
            maximum_iterations=full,
        )
    return step(tf.range(full * size, number), *state) if rest else state


def _total(terms, vanishes):
    return tf.reduce_sum(terms, axis=-1) if vanishes else terms


def _places(ids, wanted):
    """Where wanted ids `[batch, m]` stand among the rising ids of a block, and whether they do."""
    flat = tf.reshape(wanted, [-1])
    place = tf.minimum(tf.searchsorted(ids, flat), tf.size(ids) - 1)
    here = tf.equal(tf.gather(ids, place), flat)
    return tf.reshape(place, tf.shape(wanted)), tf.reshape(here, tf.shape(wanted))


def _empty(table, number):
    """A tensor of so many rows as those of a table, each of which `_set_rows` will set."""
    shape = tf.concat([[number], table.shape[1:]], axis=0)
    if raising.in_xla():
        return tf.zeros(shape, table.dtype)
    # Not zeros, which a graph may share with others.
    empty = tf.raw_ops.Empty(shape=shape, dtype=table.dtype, init=False)
    known = number if isinstance(number, int) else None
    return tf.ensure_shape(empty, [known, *table.shape[1:]])


def _set_rows(x, ids, rows):
    """Sets rows in place: a loop with any other operation takes the memory of the table twice."""
    rows = tf.cast(rows, x.dtype)
    if raising.in_xla():
        return tf.tensor_scatter_nd_update(x, ids[:, tf.newaxis], rows)
    return tf.raw_ops.InplaceUpdate(x=x, i=ids, v=rows)


def _add_rows(x, ids, rows):
    """Adds rows in place, among which an id may come twice; nothing else may read `x`."""
    if raising.in_xla():
        return tf.tensor_scatter_nd_add(x, ids[:, tf.newaxis], rows)
    ids, place = tf.unique(ids)
    sums = tf.math.unsorted_segment_sum(rows, place, tf.size(ids))
    return _set_rows(x, ids, tf.gather(x, ids) + sums)


def _add(a, b):
    return b if a is None else a if b is None else a + b
