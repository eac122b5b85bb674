"""Scores of all classes block by block: passes over them, and their one backward pass.

Where each replica of a strategy has a shard of the classes, all replicas run the
formula on the examples of all. What they exchange does not grow with the number of
classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from rank4class_tf._lists.lists import EveryItemNeeded
from rank4class_tf._tf import raising
from rank4class_tf._tf.exchange import Exchange
from rank4class_tf._tf.gather import sums_once, within
from rank4class_tf._tf.gradients import together
from rank4class_tf._tf.loops import fold_blocks
from rank4class_tf._types import Function, Tensor, TensorPair, Tensors

# Scores of 256 examples take 1 MB a block. Blocks of 512 take a tenth longer, larger
# ones are no faster (100,000 classes of 64 numbers).
CLASSES_PER_BLOCK = 1024

# Blocks of the positions of sequences, which are many rows, have at most so many
# scores, 4 MB; under XLA only where the number of positions is static.
_SCORES_PER_BLOCK = 1 << 20

# If at most one class of so many has a term in a sum, the backward pass leaves the
# others out: .76 of the time for 16 examples of 50,000 classes.
_CLASSES_PER_USED = 4

Table: TypeAlias = tf.Variable | tf.Tensor


class Shard(NamedTuple):
    """The part of the classes that a replica of a strategy has."""

    first: (
        int  # The id of the first class of this replica; its other ids follow in order.
    )
    num_classes: int  # K, the classes of all replicas.
    exchange: Exchange
    anchor: Tensor  # It has no effect, but shows tapes that the tables are trained.
    update: Callable  # Takes the gradients of the tables and updates them.


class ClassProducts(NamedTuple):
    """What a head gives a loss instead of scores `[batch, K]`, not yet computed."""

    encodings: Tensor  # `[batch, d]`, float32.
    # Rows `[K, width]`, perhaps biases `[K]`: variables or tensors.
    tables: tuple[Table, ...]
    # A function of encodings and some rows of each table that returns scores
    # `[batch, m]`. Rows are `[m, ...]`, of classes shared by all examples, or
    # `[batch, m, ...]`. It reads no variables.
    score: Callable
    shard: Shard | None = None  # The shard that the tables belong to, if any.
    handles: tuple[Tensor, ...] = ()  # Their `handle_of`, where a gradient needs it.
    mask: Tensor | None = (
        None  # Of encodings `[..., d]` of many positions; see `Positions`.
    )
    block_size: int | Tensor = CLASSES_PER_BLOCK
    dense_gradients: bool = (
        False  # Whether gradients of tables are dense, also of a few rows.
    )

    def with_encodings(self, encodings: Tensor) -> ClassProducts:
        """The same for encodings `[rows, d]` of many positions, in no larger blocks."""
        rows, largest, smallest = encodings.shape[0], max, min
        if rows is None and raising.in_xla():  # XLA needs blocks of a static size.
            return self._replace(encodings=encodings, mask=None)
        if rows is None:
            rows, largest, smallest = tf.shape(encodings)[0], tf.maximum, tf.minimum
        max_classes = largest(_SCORES_PER_BLOCK // largest(rows, 1), 1)
        size = smallest(max_classes, CLASSES_PER_BLOCK)
        return self._replace(encodings=encodings, mask=None, block_size=size)

    @property
    def num_classes(self) -> int:
        """K."""
        return self.num_local if self.shard is None else self.shard.num_classes

    @property
    def num_local(self) -> int:
        """How many classes the tables of this replica hold."""
        return self.tables[0].shape[0]

    @property
    def exchange(self) -> Exchange:
        """The exchange between the replicas, each with a shard of the classes."""
        return Exchange(is_alone=True) if self.shard is None else self.shard.exchange

    def rows(self, places: Tensor) -> list[Tensor]:
        """Rows of each table by their places in it; a table is never read whole."""

        def table_rows(handle: Tensor, table: Table) -> Tensor:
            if handle.dtype != tf.resource:
                return tf.gather(handle, places)
            rows = tf.raw_ops.ResourceGather(
                resource=handle, indices=places, dtype=table.dtype
            )
            return tf.ensure_shape(rows, [*places.shape, *table.shape[1:]])

        return list(map(table_rows, self.handles or self.tables, self.tables))

    def ids(self, places: Tensor) -> Tensor:
        """The ids of the classes at some places of the tables."""
        return places if self.shard is None else self.shard.first + places

    def block(self, places: Tensor) -> TensorPair:
        """Scores and ids of the classes at some places of the tables."""
        return self.score(self.encodings, *self.rows(places)), self.ids(places)


def handle_of(table: Table) -> Tensor:
    """A variable's handle, as capturing would copy the variable; a tensor as it is."""
    if not isinstance(table, tf.Variable):
        return table
    # Keras 3 builds models outside of replicas, where variables have no handle.
    is_cross_replica = tf.distribute.in_cross_replica_context()
    return tf.convert_to_tensor(table) if is_cross_replica else table.handle


class _Sum(NamedTuple):
    """The sum over all classes that a formula has asked for."""

    # Raw scores of a block, its ids and the parameters -> sums `[batch, ...]`.
    block_sum: Callable
    parameters: list[Tensor]  # They get a gradient.
    result: Tensor
    # `[K]` booleans, the classes with a term above 0; None if terms of 0 may have
    # slopes.
    is_used: Tensor | None


class _Single(NamedTuple):
    """Scores of single classes per example, and what the forward pass read for them."""

    # The backward pass must not read rows again: only a control edge would keep that
    # read before the optimizer's write, and TensorFlow's grappler drops some of these
    # edges.
    scores: Tensor  # `[batch, m]`.
    rows: list[Tensor]  # `[batch, m, ...]` of each table.
    places: Tensor  # `[batch, m]`.
    is_local: Tensor | None  # `[batch, m]` booleans; None if all classes are local.


class Record:
    """Records what a formula reads of the scores; the formula runs under the `tape`."""

    # Only scores of single classes and one sum over all classes have a gradient. A
    # second sum is refused: it would need a second backward pass, or be a parameter of
    # the first.

    def __init__(self, products: ClassProducts):
        self.products = products
        self.tape = tf.GradientTape(persistent=True)
        self._singles: list[_Single] = []
        self._sum: _Sum | None = None

    def single_scores(self, ids: Tensor) -> Tensor:
        """Scores of classes of each example, `[batch, m]`."""
        products, places, is_local = self.products, ids, None
        with self.tape.stop_recording():
            if products.shard is not None:
                places, is_local = within(
                    ids - products.shard.first, products.num_local
                )
            rows = products.rows(places)
            if is_local is not None:  # Any rows do for a class of another shard.
                rows = [tf.where(is_local[..., tf.newaxis], x, 1.0) for x in rows]
            scores = tf.stop_gradient(products.score(products.encodings, *rows))
            if is_local is not None:
                scores = products.exchange.total(tf.where(is_local, scores, 0.0))
        self.tape.watch(scores)
        self._singles.append(_Single(scores, rows, places, is_local))
        return scores

    def fold(self, step: Callable, *state: Any) -> list:
        """Folds `step(raw scores, ids, *state)` over local blocks; no gradients."""
        products = self.products
        with self.tape.stop_recording():
            return fold_blocks(
                lambda places, *state: step(*products.block(places), *state),
                products.num_local,
                products.block_size,
                state,
            )

    def check_constant(self, tensors: Tensors) -> None:
        """Raises if tensors that a pass reads as constants have a gradient."""
        sources = [x.scores for x in self._singles] + [*self.tape.watched_variables()]
        if self._sum is not None:
            sources.append(self._sum.result)
        with self.tape.stop_recording():
            if tensors and any(
                x is not None for x in self.tape.gradient([*tensors], sources)
            ):
                raise EveryItemNeeded(
                    "A sum over all classes reads what has a gradient."
                )

    def sum(
        self,
        terms: Callable,
        parameters: Tensors,
        start: Tensor,
        has_gradient: bool,
        vanishes: bool = False,
        value: Tensor | None = None,
    ) -> Tensor:
        """Sums `terms(raw scores, ids, *parameters)` over the last axis and blocks."""
        # `start` is zeros of the shape of the sum. Only one sum of a formula can have a
        # gradient. Terms that vanish are never negative, have no slope where they are
        # 0, and are one for each class, `[batch, ..., size of the block]`. A known
        # `value` saves the pass.
        if has_gradient and self._sum is not None:
            raise EveryItemNeeded("A formula asks for several sums over all classes.")
        # Copies: the gradient of a tensor passed twice would count twice.
        parameters = [tf.identity(x) for x in parameters]

        def block_sum(*block: Tensor) -> Tensor:
            return tf.reduce_sum(terms(*block), axis=-1)

        def add(raw: Tensor, ids: Tensor, total: Tensor) -> list[Tensor]:
            return [total + block_sum(raw, ids, *parameters)]

        is_used = None
        if value is None:
            if vanishes and has_gradient and not raising.in_xla():
                value, is_used = self._sum_and_used(terms, parameters, start)
            else:
                (value,) = self.fold(add, start)
            with self.tape.stop_recording():
                value = self.products.exchange.total(value)
        value = tf.stop_gradient(value)
        if has_gradient:
            self.tape.watch(value)
            self._sum = _Sum(block_sum, parameters, value, is_used)
        return value

    def _sum_and_used(
        self, terms_of: Function, parameters: Tensors, start: Tensor
    ) -> TensorPair:
        """The sum over local classes of their terms, and which have a term above 0."""
        products = self.products
        num_local, first_id = products.num_local, products.ids(tf.constant(0))

        def add(
            raw: Tensor, ids: Tensor, total: Tensor, blocks: tf.TensorArray
        ) -> list:
            terms = terms_of(raw, ids, *parameters)
            # A product with ones takes a fifth of the time of a maximum over examples.
            by_class = tf.reshape(terms, [-1, tf.size(ids)])
            ones = tf.ones([1, tf.shape(by_class)[0]], terms.dtype)
            is_used = ~(tf.matmul(ones, by_class)[0] <= 0)  # A NaN counts as used.
            total += tf.reduce_sum(terms, axis=-1)
            return [
                total,
                blocks.write((ids[0] - first_id) // products.block_size, is_used),
            ]

        num_blocks = -(-num_local // products.block_size)
        blocks = tf.TensorArray(
            tf.bool, num_blocks, infer_shape=False, element_shape=[None]
        )
        value, blocks = self.fold(add, start, blocks)
        return value, tf.ensure_shape(blocks.concat(), [num_local])

    def gradients(
        self, values: Tensor, upstream: Tensor, variables: Sequence[tf.Variable]
    ) -> tuple[Tensor, list[Tensor | tf.IndexedSlices | None], list[Tensor | None]]:
        """Gradients of encodings, tables, and variables such as a temperature."""
        products, tape = self.products, self.tape
        # What the formula read: scores of single classes, variables, and the sum over
        # all classes.
        leaves = [x.scores for x in self._singles]
        sums = [] if self._sum is None else [self._sum.result]
        results = tape.gradient(values, [*leaves, *variables, *sums], upstream)
        gradients = results[: len(leaves) + len(variables)]

        # Through the sum, in one backward pass over all classes.
        encoding_gradient, slices = tf.zeros_like(products.encodings), _Slices([])
        if self._sum is not None and results[-1] is not None:
            encoding_gradient, slices, upstreams = self._backward_pass(
                self._sum, results[-1]
            )
            upstreams = [products.exchange.total(x) for x in upstreams]
            through_sum = tape.gradient(
                self._sum.parameters, [*leaves, *variables], upstreams
            )
            gradients = [
                _add(a, b) for a, b in zip(gradients, through_sum, strict=True)
            ]
        leaf_gradients, variable_gradients = (
            gradients[: len(leaves)],
            gradients[len(leaves) :],
        )

        # Through the single classes, from the rows that the forward pass read.
        pairs = zip(self._singles, leaf_gradients, strict=True)
        if singles := [(x, g) for x, g in pairs if g is not None]:
            rows = [
                tf.concat(x, axis=1)
                for x in zip(*(x.rows for x, _ in singles), strict=True)
            ]
            places = tf.concat([x.places for x, _ in singles], axis=1)
            upstream = tf.concat([g for _, g in singles], axis=1)
            inputs = [products.encodings, *rows]
            with tf.GradientTape() as single_tape:
                single_tape.watch(inputs)
                scores = products.score(*inputs)
            if products.shard is not None:
                is_local = tf.concat([x.is_local for x, _ in singles], axis=1)
                upstream = tf.where(is_local, upstream, 0.0)
            through_singles, *rows = single_tape.gradient(scores, inputs, upstream)
            encoding_gradient += through_singles
            if products.shard is None:
                places, *rows = (
                    tf.reshape(x, [-1, *x.shape[2:]]) for x in (places, *rows)
                )
            else:  # An optimizer must not touch rows of other shards.
                places, *rows = (tf.boolean_mask(x, is_local) for x in (places, *rows))
            slices = slices.plus(places, rows)
        encoding_gradient, slices = together([encoding_gradient, slices])
        encoding_gradient = products.exchange.total(encoding_gradient)
        table_gradients = slices.by_table(products.tables, products.dense_gradients)
        return encoding_gradient, table_gradients, variable_gradients

    def _backward_pass(
        self, total: _Sum, upstream: Tensor
    ) -> tuple[Tensor, _Slices, list[Tensor]]:
        """The gradients of the sum in encodings, tables and parameters."""
        products = self.products
        tables, num_rows = products.tables, products.num_local
        places = is_few = None
        if total.is_used is not None:
            used_places = tf.cast(tf.where(total.is_used)[:, 0], tf.int32)
            is_few = tf.size(used_places) * _CLASSES_PER_USED <= num_rows
            places = tf.cond(is_few, lambda: used_places, lambda: tf.range(num_rows))
            num_rows = tf.size(places)

        def step(
            indices: Tensor,
            encoding_sum: Tensor,
            table_rows: list[Tensor],
            *parameter_sums: Tensor,
        ) -> list:
            block = indices if places is None else tf.gather(places, indices)
            rows = products.rows(block)
            inputs = [products.encodings, *rows, *total.parameters]
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                raw = products.score(products.encodings, *rows)
                value = total.block_sum(raw, products.ids(block), *total.parameters)
            gradients = tape.gradient(
                value, inputs, upstream, unconnected_gradients="zero"
            )
            rows, new = gradients[1 : len(tables) + 1], gradients[len(tables) + 1 :]
            table_rows = [
                _set_rows(x, indices, g) for x, g in zip(table_rows, rows, strict=True)
            ]
            return [
                encoding_sum + gradients[0],
                table_rows,
                *map(tf.add, parameter_sums, new),
            ]

        start = [
            tf.zeros_like(products.encodings),
            [_empty(x, num_rows) for x in tables],
        ]
        start += map(tf.zeros_like, total.parameters)
        of_encodings, rows, *of_parameters = fold_blocks(
            step, num_rows, products.block_size, start
        )
        return of_encodings, _Slices(rows, places, is_few), of_parameters


class _Slices(NamedTuple):
    """Gradients of rows of the tables."""

    rows: list[Tensor]  # One for each table; empty without a gradient.
    places: Tensor | None = None  # None for all of them in order.
    is_few: Tensor | None = (
        None  # Whether they are only some; else they are all, in order.
    )

    def plus(self, places: Tensor, rows: list[Tensor]) -> _Slices:
        """Adds further rows, whose places may repeat."""
        if not self.rows:
            return _Slices([sums_once(places, x) for x in rows], places)

        def added() -> list[Tensor]:
            return [
                _add_rows(total, places, g)
                for total, g in zip(self.rows, rows, strict=True)
            ]

        if self.places is None:
            return _Slices(added())
        all_places = tf.concat([self.places, places], axis=0)

        def concatenated() -> list[Tensor]:
            pairs = zip(self.rows, rows, strict=True)
            return [sums_once(all_places, tf.concat(x, axis=0)) for x in pairs]

        all_rows = tf.cond(self.is_few, concatenated, added)
        chosen_places = tf.cond(self.is_few, lambda: all_places, lambda: self.places)
        return _Slices(all_rows, chosen_places, self.is_few)

    def by_table(
        self, tables: Sequence[Table], as_dense: bool
    ) -> list[Tensor | tf.IndexedSlices | None]:
        """The gradient of each table."""
        if not self.rows:
            return [None] * len(tables)
        pairs = [
            (rows, table.shape) for rows, table in zip(self.rows, tables, strict=True)
        ]
        if self.places is None:
            return [tf.ensure_shape(rows, shape) for rows, shape in pairs]
        if as_dense:
            return [
                tf.math.unsorted_segment_sum(x, self.places, shape[0])
                for x, shape in pairs
            ]
        return [
            tf.IndexedSlices(rows, self.places, tf.constant([*shape]))
            for rows, shape in pairs
        ]


def _empty(table: Table, num_rows: int | Tensor) -> Tensor:
    """Uninitialized rows like those of a table, all of which `_set_rows` must set."""
    shape = tf.concat([[num_rows], table.shape[1:]], axis=0)
    if raising.in_xla():
        return tf.zeros(shape, table.dtype)
    # Not zeros: a graph may share them with other operations, and writes are in place.
    empty = tf.raw_ops.Empty(shape=shape, dtype=table.dtype, init=False)
    static_size = num_rows if isinstance(num_rows, int) else None
    return tf.ensure_shape(empty, [static_size, *table.shape[1:]])


def _set_rows(x: Tensor, places: Tensor, rows: Tensor) -> Tensor:
    """Sets rows in place: a loop with any other operation holds the table twice."""
    rows = tf.cast(rows, x.dtype)
    if raising.in_xla():
        return tf.tensor_scatter_nd_update(x, places[:, tf.newaxis], rows)
    return tf.raw_ops.InplaceUpdate(x=x, i=places, v=rows)


def _add_rows(x: Tensor, places: Tensor, rows: Tensor) -> Tensor:
    """Adds rows in place; places may repeat, and nothing else may read `x`."""
    if raising.in_xla():
        return tf.tensor_scatter_nd_add(x, places[:, tf.newaxis], rows)
    places, slot = tf.unique(places)
    sums = tf.math.unsorted_segment_sum(rows, slot, tf.size(places))
    return _set_rows(x, places, tf.gather(x, places) + sums)


def _add(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return b if a is None else a if b is None else a + b
