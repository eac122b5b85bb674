"""Scores of all classes block by block: passes over them, and their one backward pass.

Where each replica of a strategy has a shard of the classes, all replicas run the formula on the
examples of all. What they exchange does not grow with the number of classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from rank4class_tf._lists.lists import EveryItemNeeded
from rank4class_tf._tf import raising
from rank4class_tf._tf.exchange import Exchange
from rank4class_tf._tf.gather import within
from rank4class_tf._tf.gradients import together
from rank4class_tf._tf.loops import fold_blocks
from rank4class_tf._types import Function, Tensor, TensorPair, Tensors

# Scores of 256 examples take 1 MB a block. Blocks of 512 take a tenth longer, larger ones are no
# faster (100,000 classes of 64 numbers).
CLASSES_PER_BLOCK = 1024

# Blocks of the positions of sequences, which are many rows, have at most so many scores, 4 MB.
_SCORES_PER_BLOCK = 1 << 20

# Where no example needs more than one class of so many, the backward pass leaves the others out:
# .76 of the time for 16 examples of 50,000 classes.
_PER_USED = 4

Table: TypeAlias = tf.Variable | tf.Tensor


class Shard(NamedTuple):
    """The part of the classes that a replica of a strategy has."""

    first: int  # The id of the first class here; those after it follow.
    num_classes: int  # K, of all replicas.
    exchange: Exchange
    anchor: Tensor  # Without effect; by it tapes see that the tables are trained.
    update: Callable  # Takes the gradients of the tables and updates them.


class ClassProducts(NamedTuple):
    """What a head gives a loss in place of scores `[batch, K]`, before anything is computed."""

    encodings: Tensor  # `[batch, d]`, float32.
    tables: tuple[Table, ...]  # Rows `[K, width]`, perhaps biases `[K]`: variables or tensors.
    # A function of encodings and some rows of each table that returns scores `[batch, m]`. Rows are
    # `[m, ...]`, of classes shared by all examples, or `[batch, m, ...]`. It reads no variables.
    score: Callable
    shard: Shard | None = None  # The shard that the tables belong to, if any.
    handles: tuple[Tensor, ...] = ()  # What stands for the tables in a gradient.
    mask: Tensor | None = None  # Of encodings `[..., d]` of many positions; see `Positions`.
    block_size: int | Tensor = CLASSES_PER_BLOCK

    def of_rows(self, encodings: Tensor) -> ClassProducts:
        """The same for encodings `[rows, d]` of many positions, with blocks that are not larger."""
        rows, largest, smallest = encodings.shape[0], max, min
        if rows is None:
            rows, largest, smallest = tf.shape(encodings)[0], tf.maximum, tf.minimum
        most = largest(_SCORES_PER_BLOCK // largest(rows, 1), 1)
        size = smallest(most, CLASSES_PER_BLOCK)
        return self._replace(encodings=encodings, mask=None, block_size=size)

    @property
    def num_classes(self) -> int:
        """K."""
        return self.num_here if self.shard is None else self.shard.num_classes

    @property
    def num_here(self) -> int:
        """How many of the classes the tables hold."""
        return self.tables[0].shape[0]

    @property
    def exchange(self) -> Exchange:
        """Between the replicas that have the other classes."""
        return Exchange(is_alone=True) if self.shard is None else self.shard.exchange

    def rows(self, places: Tensor) -> list[Tensor]:
        """Rows of each table by their places in it; a table is never read as a whole."""

        def table_rows(handle: Tensor, table: Table) -> Tensor:
            if handle.dtype != tf.resource:
                return tf.gather(handle, places)
            rows = tf.raw_ops.ResourceGather(resource=handle, indices=places, dtype=table.dtype)
            return tf.ensure_shape(rows, [*places.shape, *table.shape[1:]])

        return list(map(table_rows, self.handles or self.tables, self.tables))

    def ids(self, places: Tensor) -> Tensor:
        """The ids of the classes at some places of the tables."""
        return places if self.shard is None else self.shard.first + places

    def block(self, places: Tensor) -> TensorPair:
        """Scores and ids of the classes at some places of the tables."""
        return self.score(self.encodings, *self.rows(places)), self.ids(places)


def handle_of(table: Table) -> Tensor:
    """What stands for a table: TensorFlow would copy all of a variable that a function captures."""
    if not isinstance(table, tf.Variable):
        return table
    # Keras 3 builds models outside of replicas, where variables have no handle.
    outside = tf.distribute.in_cross_replica_context()
    return tf.convert_to_tensor(table) if outside else table.handle


class _Sum(NamedTuple):
    """The sum over all classes that a formula has asked for."""

    block_sum: Callable  # Raw scores of a block, its ids and the parameters -> sums `[batch, ...]`.
    parameters: list[Tensor]  # They get a gradient.
    result: Tensor
    # `[K]` booleans, which classes have a term that is not 0; None where this was not asked: other
    # terms have slopes even where they are 0.
    used: Tensor | None


class _Single(NamedTuple):
    """Scores of single classes of each example, and what the forward pass read for them."""

    # The backward pass must not read rows again. Only a control edge would keep that read before
    # the optimizer's write, and TensorFlow's grappler drops some of these edges.
    scores: Tensor  # `[batch, m]`.
    rows: list[Tensor]  # `[batch, m, ...]` of each table.
    places: Tensor  # `[batch, m]`.
    is_here: Tensor | None  # `[batch, m]` booleans; None if all classes are here.


class Record:
    """What a formula has seen of the scores; the formula runs under the `tape`."""

    # Only scores of single classes and one sum over all of them have a gradient. A second sum
    # would need a second backward pass, or be a parameter of another: it is refused.

    def __init__(self, products: ClassProducts):
        self.products = products
        self.tape = tf.GradientTape(persistent=True)
        self._single: list[_Single] = []
        self._sum: _Sum | None = None

    def single_scores(self, ids: Tensor) -> Tensor:
        """Scores of classes of each example, `[batch, m]`."""
        products, places, is_here = self.products, ids, None
        with self.tape.stop_recording():
            if products.shard is not None:
                places, is_here = within(ids - products.shard.first, products.num_here)
            rows = products.rows(places)
            if is_here is not None:  # Any rows do for a class of another shard.
                rows = [tf.where(is_here[..., tf.newaxis], x, 1.0) for x in rows]
            scores = tf.stop_gradient(products.score(products.encodings, *rows))
            if is_here is not None:
                scores = products.exchange.total(tf.where(is_here, scores, 0.0))
        self.tape.watch(scores)
        self._single.append(_Single(scores, rows, places, is_here))
        return scores

    def fold(self, step: Callable, *state: Any) -> list:
        """Folds `step(raw scores, ids, *state)` over the blocks of this shard, no gradients."""
        products = self.products
        with self.tape.stop_recording():
            return fold_blocks(
                lambda places, *state: step(*products.block(places), *state),
                products.num_here,
                products.block_size,
                state,
            )

    def check_constant(self, tensors: Tensors) -> None:
        """Raises if tensors that a pass reads as constants have a gradient."""
        sources = [x.scores for x in self._single] + [*self.tape.watched_variables()]
        if self._sum is not None:
            sources.append(self._sum.result)
        with self.tape.stop_recording():
            if tensors and any(x is not None for x in self.tape.gradient([*tensors], sources)):
                raise EveryItemNeeded("A sum over all classes reads what has a gradient.")

    def sum(
        self,
        terms: Callable,
        parameters: Tensors,
        start: Tensor,
        has_gradient: bool,
        vanishes: bool = False,
        value: Tensor | None = None,
    ) -> Tensor:
        """The sum of `terms(raw scores, ids, *parameters)`, of their last axis and all blocks."""
        # It starts with zeros of its shape. Of all sums only one can have a gradient.
        # Terms that vanish are never negative, have no slope where they are 0, and stand for single
        # classes, `[batch, ..., size of the block]`. A `value` that is known saves the pass.
        if has_gradient and self._sum is not None:
            raise EveryItemNeeded("A formula asks for several sums over all classes.")
        # Copies: the gradient of a tensor passed twice would count twice.
        parameters = [tf.identity(x) for x in parameters]

        def block_sum(*block: Tensor) -> Tensor:
            return tf.reduce_sum(terms(*block), axis=-1)

        def add(raw: Tensor, ids: Tensor, total: Tensor) -> list[Tensor]:
            return [total + block_sum(raw, ids, *parameters)]

        used = None
        if value is None:
            if vanishes and has_gradient and not raising.in_xla():
                value, used = self._sum_and_used(terms, parameters, start)
            else:
                (value,) = self.fold(add, start)
            with self.tape.stop_recording():
                value = self.products.exchange.total(value)
        value = tf.stop_gradient(value)
        if has_gradient:
            self.tape.watch(value)
            self._sum = _Sum(block_sum, parameters, value, used)
        return value

    def _sum_and_used(self, terms_of: Function, parameters: Tensors, start: Tensor) -> TensorPair:
        """The sum of terms of single classes here, and which classes have a term above 0."""
        products = self.products
        number, first = products.num_here, products.ids(tf.constant(0))

        def add(raw: Tensor, ids: Tensor, total: Tensor, used: tf.TensorArray) -> list:
            terms = terms_of(raw, ids, *parameters)
            # A product with ones takes a fifth of the time of a maximum over examples.
            by_class = tf.reshape(terms, [-1, tf.size(ids)])
            ones = tf.ones([1, tf.shape(by_class)[0]], terms.dtype)
            is_used = ~(tf.matmul(ones, by_class)[0] <= 0)  # A NaN is one.
            total += tf.reduce_sum(terms, axis=-1)
            return [total, used.write((ids[0] - first) // products.block_size, is_used)]

        count = -(-number // products.block_size)
        blocks = tf.TensorArray(tf.bool, count, infer_shape=False, element_shape=[None])
        value, blocks = self.fold(add, start, blocks)
        return value, tf.ensure_shape(blocks.concat(), [number])

    def gradients(
        self, values: Tensor, upstream: Tensor, variables: Sequence[tf.Variable]
    ) -> tuple[Tensor, list[Tensor | tf.IndexedSlices | None], list[Tensor | None]]:
        """Gradients of the encodings, of the tables, and of variables, such as a temperature."""
        products, tape = self.products, self.tape
        # What the formula read: scores of single classes, variables, and the sum over all classes.
        leaves = [x.scores for x in self._single]
        sums = [] if self._sum is None else [self._sum.result]
        results = tape.gradient(values, [*leaves, *variables, *sums], upstream)
        gradients = results[: len(leaves) + len(variables)]

        # Through the sum, in one backward pass over all classes.
        encoding_gradient, slices = tf.zeros_like(products.encodings), _Slices([])
        if self._sum is not None and results[-1] is not None:
            encoding_gradient, slices, slopes = self._backward_pass(self._sum, results[-1])
            slopes = [products.exchange.total(x) for x in slopes]
            more = tape.gradient(self._sum.parameters, [*leaves, *variables], slopes)
            gradients = [_add(a, b) for a, b in zip(gradients, more, strict=True)]
        leaf_gradients, variable_gradients = gradients[: len(leaves)], gradients[len(leaves) :]

        # Through the single classes, from the rows that the forward pass read.
        pairs = zip(self._single, leaf_gradients, strict=True)
        if single := [(x, g) for x, g in pairs if g is not None]:
            rows = [tf.concat(x, axis=1) for x in zip(*(x.rows for x, _ in single), strict=True)]
            places = tf.concat([x.places for x, _ in single], axis=1)
            upstream = tf.concat([g for _, g in single], axis=1)
            with tf.GradientTape() as single_tape:
                single_tape.watch([products.encodings, *rows])
                scores = products.score(products.encodings, *rows)
            if products.shard is not None:
                is_here = tf.concat([x.is_here for x, _ in single], axis=1)
                upstream = tf.where(is_here, upstream, 0.0)
            more, *rows = single_tape.gradient(scores, [products.encodings, *rows], upstream)
            encoding_gradient += more
            if products.shard is None:
                places, *rows = (tf.reshape(x, [-1, *x.shape[2:]]) for x in (places, *rows))
            else:  # An optimizer must not touch rows of other shards.
                places, *rows = (tf.boolean_mask(x, is_here) for x in (places, *rows))
            slices = slices.plus(places, rows)
        encoding_gradient, slices = together([encoding_gradient, slices])
        encoding_gradient = products.exchange.total(encoding_gradient)
        return encoding_gradient, slices.by_table(products.tables), variable_gradients

    def _backward_pass(self, total: _Sum, upstream: Tensor) -> tuple[Tensor, _Slices, list[Tensor]]:
        """Gradients of encodings, tables and parameters by the sum."""
        products = self.products
        tables, number = products.tables, products.num_here
        places = is_few = None
        if total.used is not None:
            used_places = tf.cast(tf.where(total.used)[:, 0], tf.int32)
            is_few = tf.size(used_places) * _PER_USED <= number
            places = tf.cond(is_few, lambda: used_places, lambda: tf.range(number))
            number = tf.size(places)

        def step(
            numbers: Tensor, total_gradient: Tensor, all_rows: list[Tensor], *slopes: Tensor
        ) -> list:
            block = numbers if places is None else tf.gather(places, numbers)
            rows = products.rows(block)
            inputs = [products.encodings, *rows, *total.parameters]
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                raw = products.score(products.encodings, *rows)
                part = total.block_sum(raw, products.ids(block), *total.parameters)
            new, *more = tape.gradient(part, inputs, upstream, unconnected_gradients="zero")
            rows, more = more[: len(tables)], more[len(tables) :]
            all_rows = [_set_rows(x, numbers, g) for x, g in zip(all_rows, rows, strict=True)]
            return [total_gradient + new, all_rows, *map(tf.add, slopes, more)]

        start = [tf.zeros_like(products.encodings), [_empty(x, number) for x in tables]]
        start += map(tf.zeros_like, total.parameters)
        encoding_gradient, rows, *slopes = fold_blocks(step, number, products.block_size, start)
        return encoding_gradient, _Slices(rows, places, is_few), slopes


class _Slices(NamedTuple):
    """Gradients of rows of the tables."""

    rows: list[Tensor]  # One for each table; empty without a gradient.
    places: Tensor | None = None  # None for all of them in order.
    is_few: Tensor | None = None  # Whether the places may be any; else they are all in order.

    def plus(self, places: Tensor, rows: list[Tensor]) -> _Slices:
        """These and other rows, among which a place may come twice."""
        if not self.rows:
            return _Slices(rows, places)

        def in_place() -> list[Tensor]:
            return [_add_rows(total, places, g) for total, g in zip(self.rows, rows, strict=True)]

        def one_below_other() -> list[Tensor]:
            return [tf.concat(x, axis=0) for x in zip(self.rows, rows, strict=True)]

        if self.places is None:
            return _Slices(in_place())
        all_rows = tf.cond(self.is_few, one_below_other, in_place)
        both = tf.concat([self.places, places], axis=0)
        all_places = tf.cond(self.is_few, lambda: both, lambda: self.places)
        return _Slices(all_rows, all_places, self.is_few)

    def by_table(self, tables: Sequence[Table]) -> list[Tensor | tf.IndexedSlices | None]:
        """The gradient of each table."""
        if not self.rows:
            return [None] * len(tables)
        both = [(rows, table.shape) for rows, table in zip(self.rows, tables, strict=True)]
        if self.places is None:
            return [tf.ensure_shape(rows, shape) for rows, shape in both]
        return [tf.IndexedSlices(rows, self.places, tf.constant([*shape])) for rows, shape in both]


def _empty(table: Table, number: int | Tensor) -> Tensor:
    """A tensor of so many rows as those of a table, each of which `_set_rows` will set."""
    shape = tf.concat([[number], table.shape[1:]], axis=0)
    if raising.in_xla():
        return tf.zeros(shape, table.dtype)
    # Not zeros, which a graph may share with others.
    empty = tf.raw_ops.Empty(shape=shape, dtype=table.dtype, init=False)
    known = number if isinstance(number, int) else None
    return tf.ensure_shape(empty, [known, *table.shape[1:]])


def _set_rows(x: Tensor, places: Tensor, rows: Tensor) -> Tensor:
    """Sets rows in place: a loop with any other operation takes the memory of the table twice."""
    rows = tf.cast(rows, x.dtype)
    if raising.in_xla():
        return tf.tensor_scatter_nd_update(x, places[:, tf.newaxis], rows)
    return tf.raw_ops.InplaceUpdate(x=x, i=places, v=rows)


def _add_rows(x: Tensor, places: Tensor, rows: Tensor) -> Tensor:
    """Adds rows in place, among which a place may come twice; nothing else may read `x`."""
    if raising.in_xla():
        return tf.tensor_scatter_nd_add(x, places[:, tf.newaxis], rows)
    places, slot = tf.unique(places)
    sums = tf.math.unsorted_segment_sum(rows, slot, tf.size(places))
    return _set_rows(x, places, tf.gather(x, places) + sums)


def _add(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return b if a is None else a if b is None else a + b
