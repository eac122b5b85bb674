"""All classes of a large output layer, block by block: passes over them and gradients.

A head gives `ClassProducts`; a `Record` of them keeps what a formula reads. Nothing
here knows of labels or formulas: those are in `blocked.py`.

Where each replica of a strategy has a shard of the classes, all replicas run the
formula on the examples of all. What they exchange does not grow with the number of
classes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from rank4class_tf._lists.lists import EveryItemNeeded
from rank4class_tf._tf import raising, sizes
from rank4class_tf._tf.exchange import Exchange
from rank4class_tf._tf.gather import sums_once, within
from rank4class_tf._tf.gradients import has_nan, together
from rank4class_tf._tf.loops import fold_blocks
from rank4class_tf._tf.search import top_k_by_blocks
from rank4class_tf._tf.shapes import num_rows
from rank4class_tf._types import Function, Tensor, TensorPair, Tensors, WithGradient

# If at most one class of so many has a term in a sum, the backward pass leaves the
# others out: .76 of the time for 16 examples of 50,000 classes.
_CLASSES_PER_USED = 4

Table: TypeAlias = tf.Variable | tf.Tensor
TableGradient: TypeAlias = tf.Tensor | tf.IndexedSlices | None


class Shard(NamedTuple):
    """The part of the classes that a replica of a strategy has."""

    # The id of the first class of this replica; its other ids follow in order.
    first: int
    num_classes: int  # K, the classes of all replicas.
    exchange: Exchange
    anchor: Tensor  # It has no effect, but shows tapes that the tables are trained.
    update: Callable  # Takes the gradients of the tables and updates them.


class Block(NamedTuple):
    """Some classes, as a pass over all of them meets them."""

    ids: Tensor  # `[m]`, rising.
    scores: Tensor  # `[batch, m]`.


class ClassProducts(NamedTuple):
    """What a head gives a loss instead of scores `[batch, K]`, not yet computed."""

    encodings: Tensor  # `[batch, d]`, float32.
    # Rows `[K, width]`, perhaps biases `[K]`: variables or tensors.
    tables: tuple[Table, ...]
    # A function of encodings and some rows of each table that returns scores
    # `[batch, m]`. Rows are `[m, ...]`, of classes shared by all examples, or
    # `[batch, m, ...]`. It reads no variables.
    score: Function
    shard: Shard | None = None  # The shard that the tables belong to, if any.
    # Of encodings `[..., d]` of many positions; see `Positions`.
    mask: Tensor | None = None
    # Whether the encodings are of positions: many rows, if a graph does not know their
    # number.
    has_positions: bool = False
    # Whether gradients of tables are dense, also of a few rows.
    dense_gradients: bool = False

    def with_encodings(self, encodings: Tensor) -> ClassProducts:
        """The same for encodings `[rows, d]` of many positions."""
        return self._replace(encodings=encodings, mask=None, has_positions=True)

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


def with_record(formula: Function, products: ClassProducts) -> Tensor:
    """The values `[batch]` of a formula of a `Record`, differentiable by its record."""
    if products.shard is None:
        return _of_whole_tables(formula, products)
    return _of_shard(formula, products, products.shard)


def _of_whole_tables(formula: Function, products: ClassProducts) -> Tensor:
    """`with_record` where tapes ask for the gradients of the tables."""
    for table in products.tables:
        if isinstance(table, tf.Variable):
            tf.gather(table, tf.zeros([0], tf.int32))  # Tapes watch it from now on.

    @tf.custom_gradient
    def values(encodings: Tensor, *handles: Tensor) -> WithGradient:
        encodings = tf.stop_gradient(encodings)
        record = Record(products._replace(encodings=encodings), handles)
        with record.tape:
            values = formula(record)

        def gradient(upstream: Tensor, variables: Tensors = ()) -> Any:
            found = record.gradients(values, upstream, variables)
            gradients = (found.encodings, *found.tables)
            return (gradients, found.variables) if variables else gradients

        return values, gradient

    return values(products.encodings, *map(_handle_of, products.tables))


def _of_shard(formula: Function, products: ClassProducts, shard: Shard) -> Tensor:
    """`with_record` where the shard takes the gradients of its tables."""
    # Every replica runs the formula on the examples of all replicas.
    exchange = shard.exchange
    own_rows = exchange.own_rows(products.encodings)

    @tf.custom_gradient
    def values(encodings: Tensor, anchor: Tensor) -> WithGradient:
        joined = exchange.joined(tf.stop_gradient(encodings))
        handles = [*map(_handle_of, products.tables)]
        record = Record(products._replace(encodings=joined), handles)
        with record.tape:
            values = formula(record)

        def gradient(upstream: Tensor, variables: Tensors = ()) -> Any:
            found = record.gradients(values, exchange.joined(upstream), variables)
            shard.update(found.tables)
            gradients = (found.encodings[own_rows], tf.zeros_like(anchor))
            if not variables:
                return gradients
            if exchange.size == 1:
                return gradients, found.variables
            # All replicas have the same gradient of a variable; optimizers add them up.
            # `tf.truediv`, since they may be `IndexedSlices`.
            size = exchange.size
            parts = [x if x is None else tf.truediv(x, size) for x in found.variables]
            return gradients, parts

        return values[own_rows], gradient

    # The anchor stands for the tables on tapes.
    return values(products.encodings, shard.anchor)


def _handle_of(table: Table) -> Tensor:
    """A variable's handle, as capturing would copy the variable; a tensor as it is."""
    if not isinstance(table, tf.Variable):
        return table
    # Keras 3 builds models outside of replicas, where variables have no handle.
    is_cross_replica = tf.distribute.in_cross_replica_context()
    return tf.convert_to_tensor(table) if is_cross_replica else table.handle


class _Single(NamedTuple):
    """Scores of single classes per example, and what the forward pass read for them."""

    # The backward pass must not read rows again: only a control edge would keep that
    # read before the optimizer's write, and TensorFlow's grappler drops some of these
    # edges.
    scores: Tensor  # `[batch, m]`.
    rows: list[Tensor]  # `[batch, m, ...]` of each table.
    places: Tensor  # `[batch, m]`.
    is_local: Tensor | None  # `[batch, m]` booleans; None if all classes are local.


class _RecordedSum(NamedTuple):
    """The sum over all classes that a formula has asked for."""

    terms_of: Function  # Of a block and `**parameters`, `[batch, ..., m]`.
    parameters: dict[str, Any]  # Tensors, in any structure, that get a gradient.
    result: Tensor
    # `[K]` booleans, the classes with a term above 0; None if terms of 0 may have
    # slopes.
    is_used: Tensor | None


class _PerBlock(NamedTuple):
    """What the backward pass differentiates by, and in the same form its gradients."""

    encodings: Tensor
    rows: list[Tensor]  # Of each table, `[m, ...]`: of a block, or of all classes.
    parameters: dict[str, Any]


class _Leaves(NamedTuple):
    """Where the tape of a formula begins, and in the same form the gradients there."""

    scores: list[Tensor | None]  # Of single classes, `[batch, m]` each.
    variables: Sequence[Tensor | None]  # That the formula reads.

    def plus(self, other: _Leaves) -> _Leaves:
        """The sum of two gradients."""
        return _Leaves(
            [*map(_add, self.scores, other.scores)],
            [*map(_add, self.variables, other.variables)],
        )


class Gradients(NamedTuple):
    """Gradients of what a formula read."""

    encodings: Tensor
    tables: list[TableGradient]
    variables: list[Tensor | None]  # Such as a temperature.


class Record:
    """The scores of all classes, and a record of what a formula reads of them.

    The formula runs under the `tape`. Only the scores of single classes and one sum
    over all classes have a gradient. A second sum is refused: it would need a second
    backward pass, or be a parameter of the first.
    """

    def __init__(self, products: ClassProducts, handles: Sequence[Tensor]):
        """Handles are of the tables."""
        self.num_classes = products.num_classes
        self.exchange = products.exchange
        self.tape = tf.GradientTape(persistent=True)
        self._products = products
        self._handles = handles
        self._singles: list[_Single] = []
        self._sum: _RecordedSum | None = None
        self._block_size = self._size_of_blocks(sizes.TRAINED)

    def _size_of_blocks(self, on_cpu: sizes.CpuBlocks) -> int | Tensor:
        products = self._products
        device = sizes.device_type()
        rows = num_rows(products.encodings)
        if device == "CPU" and not products.has_positions:
            rows = sizes.FEW_ROWS
        return sizes.block_size(device, rows, products.num_local, on_cpu)

    def single_scores(self, ids: Tensor) -> Tensor:
        """Scores of classes of each example, `[batch, m]`."""
        products = self._products
        places = ids
        is_local = None
        with self.tape.stop_recording():
            if products.shard is not None:
                places, is_local = within(
                    ids - products.shard.first, products.num_local
                )
            rows = self._rows(places)
            if is_local is not None:  # Any rows do for a class of another shard.
                rows = [tf.where(is_local[..., tf.newaxis], x, 1.0) for x in rows]
            scores = tf.stop_gradient(products.score(products.encodings, *rows))
            if is_local is not None:
                scores = self.exchange.total(tf.where(is_local, scores, 0.0))
        self.tape.watch(scores)
        self._singles.append(_Single(scores, rows, places, is_local))
        return scores

    # Passes over the classes of this replica, without a gradient.

    def fold(self, step: Callable, *state: Any) -> list:
        """Folds `step(block, *state)` over local blocks."""
        with self.tape.stop_recording():
            return fold_blocks(
                lambda places, *state: step(self._block(places), *state),
                self._products.num_local,
                self._block_size,
                state,
            )

    def top_k(self, scores_of: Function, k: int) -> TensorPair:
        """The k highest `scores_of(block)` and their ids, `[batch, k]`."""
        if k > sizes.TRAINED.classes:
            raise EveryItemNeeded(f"k={k} is above {sizes.TRAINED.classes}.")
        num_local = self._products.num_local
        with self.tape.stop_recording():
            values, places = top_k_by_blocks(
                lambda places: scores_of(self._block(places)),
                num_local,
                min(k, num_local),
                self._size_of_blocks(sizes.SEARCHED),
            )
            return self.exchange.best(values, self._ids(places), k)

    def has_nan(self) -> Tensor:
        """`[batch]` booleans, whether a NaN is in the encoding or in any table."""

        def find_nan(places: Tensor, is_broken: Tensor) -> list[Tensor]:
            are_nan = [tf.reduce_any(tf.math.is_nan(x)) for x in self._rows(places)]
            return [tf.reduce_any([is_broken, *are_nan])]

        with self.tape.stop_recording():
            (is_broken,) = fold_blocks(
                find_nan,
                self._products.num_local,
                self._block_size,
                [tf.constant(False)],
            )
            is_broken = self.exchange.total(tf.cast(is_broken, tf.int32)) > 0
        return is_broken | has_nan(self._products.encodings)

    def _rows(self, places: Tensor) -> list[Tensor]:
        """Rows of each table by their places in it; a table is never read whole."""

        def table_rows(handle: Tensor, table: Table) -> Tensor:
            if places.shape.rank == 1 and raising.in_xla():
                # A pass takes classes that follow one another: a slice, which XLA joins
                # with what reads it. It does not copy the variable.
                if handle.dtype == tf.resource:
                    handle = tf.raw_ops.ReadVariableOp(
                        resource=handle, dtype=table.dtype
                    )
                begin = tf.pad(places[:1], [[0, handle.shape.rank - 1]])
                size = tf.concat([[tf.size(places)], table.shape[1:]], axis=0)
                return tf.slice(handle, begin, size)
            if handle.dtype != tf.resource:
                return tf.gather(handle, places)
            rows = tf.raw_ops.ResourceGather(
                resource=handle, indices=places, dtype=table.dtype
            )
            return tf.ensure_shape(rows, [*places.shape, *table.shape[1:]])

        return list(map(table_rows, self._handles, self._products.tables))

    def _ids(self, places: Tensor) -> Tensor:
        """The ids of the classes at some places of the tables."""
        shard = self._products.shard
        return places if shard is None else shard.first + places

    def _block(self, places: Tensor) -> Block:
        products = self._products
        scores = products.score(products.encodings, *self._rows(places))
        return Block(self._ids(places), scores)

    # The one sum that has a gradient.

    def check_constant(self, tensors: Any) -> None:
        """Raises if tensors that a pass reads as constants have a gradient."""
        tensors = tf.nest.flatten(tensors)
        sources = [x.scores for x in self._singles] + [*self.tape.watched_variables()]
        if self._sum is not None:
            sources.append(self._sum.result)
        with self.tape.stop_recording():
            found = self.tape.gradient(tensors, sources) if tensors else []
        if any(x is not None for x in found):
            raise EveryItemNeeded("A sum over all classes reads what has a gradient.")

    def sum(
        self,
        terms_of: Function,
        parameters: dict[str, Any],
        start: Tensor,
        has_gradient: bool,
        vanishes: bool = False,
    ) -> Tensor:
        """Sums `terms_of(block, **parameters)`, `[batch, ..., m]`, over all classes."""
        # The parameters are tensors, in any structure, which get gradients. `start` is
        # zeros of the shape of the sum. Terms that vanish are never negative, have no
        # slope where they are 0, and are one for each class.
        if has_gradient:
            self._check_is_first_sum()  # Before the pass, which would be in vain.
        is_used = None
        if vanishes and has_gradient and not raising.in_xla():
            value, is_used = self._sum_and_used(terms_of, parameters, start)
        else:

            def add(block: Block, total: Tensor) -> list[Tensor]:
                return [total + tf.reduce_sum(terms_of(block, **parameters), axis=-1)]

            (value,) = self.fold(add, start)
        with self.tape.stop_recording():
            value = self.exchange.total(value)
        if not has_gradient:
            return tf.stop_gradient(value)
        return self.known_sum(value, terms_of, parameters, is_used)

    def known_sum(
        self,
        value: Tensor,
        terms_of: Function,
        parameters: dict[str, Any],
        is_used: Tensor | None = None,
    ) -> Tensor:
        """Records a sum whose value is known, so that its terms get a gradient."""
        self._check_is_first_sum()
        value = tf.stop_gradient(value)
        self.tape.watch(value)
        # Copies: the gradient of a tensor passed twice would count twice.
        copies = tf.nest.map_structure(tf.identity, parameters)
        self._sum = _RecordedSum(terms_of, copies, value, is_used)
        return value

    def _check_is_first_sum(self) -> None:
        if self._sum is not None:
            raise EveryItemNeeded("A formula asks for several sums over all classes.")

    def _sum_and_used(
        self, terms_of: Function, parameters: dict[str, Any], start: Tensor
    ) -> TensorPair:
        """The sum over local classes of their terms, and which have a term above 0."""
        num_local = self._products.num_local
        first_id = self._ids(tf.constant(0))

        def add(block: Block, total: Tensor, used_blocks: tf.TensorArray) -> list:
            terms = terms_of(block, **parameters)
            # A product with ones takes a fifth of the time of a maximum over examples.
            by_class = tf.reshape(terms, [-1, tf.size(block.ids)])
            ones = tf.ones([1, tf.shape(by_class)[0]], terms.dtype)
            totals = tf.matmul(ones, by_class)[0]
            # The negation of `<=` would catch a NaN, but TensorFlow rewrites it as `>`
            # in graphs.
            is_used = (totals > 0) | tf.math.is_nan(totals)
            index = (block.ids[0] - first_id) // self._block_size
            return [
                total + tf.reduce_sum(terms, axis=-1),
                used_blocks.write(index, is_used),
            ]

        num_blocks = -(-num_local // self._block_size)
        used_blocks = tf.TensorArray(
            tf.bool, num_blocks, infer_shape=False, element_shape=[None]
        )
        value, used_blocks = self.fold(add, start, used_blocks)
        return value, tf.ensure_shape(used_blocks.concat(), [num_local])

    # Gradients.

    def gradients(
        self, values: Tensor, upstream: Tensor, variables: Sequence[tf.Variable]
    ) -> Gradients:
        """Gradients of the formula's values."""
        # The tape reaches from the values to the scores of single classes, to variables
        # and to the sum. Beyond the sum lies one backward pass over all classes, which
        # may lead to single classes and variables again, through its parameters.
        products = self._products
        leaves = _Leaves([x.scores for x in self._singles], variables)
        total = self._sum
        of_sum = None
        if total is None:
            found = self.tape.gradient(values, leaves, upstream)
        else:
            sources = [leaves, total.result]
            found, of_sum = self.tape.gradient(values, sources, upstream)

        of_encodings = tf.zeros_like(products.encodings)
        of_rows = None
        if total is not None and of_sum is not None:
            of_encodings, of_rows, of_parameters = self._backward_pass(total, of_sum)
            through_sum = self.tape.gradient(total.parameters, leaves, of_parameters)
            found = found.plus(through_sum)

        if any(upstream is not None for upstream in found.scores):
            through_singles, more_rows = self._of_singles(found.scores)
            of_encodings += through_singles
            of_rows = more_rows.once() if of_rows is None else of_rows.plus(more_rows)

        of_encodings, of_rows = together([of_encodings, of_rows])
        of_tables: list[TableGradient] = [None] * len(products.tables)
        if of_rows is not None:
            of_tables = of_rows.by_table(products)
        of_encodings = self.exchange.total(of_encodings)
        return Gradients(of_encodings, of_tables, found.variables)

    def _of_singles(
        self, upstreams: Sequence[Tensor | None]
    ) -> tuple[Tensor, _RowGradients]:
        """The gradients of encodings and of rows, whose places may repeat."""
        products = self._products
        pairs = zip(self._singles, upstreams, strict=True)
        singles = [single for single, upstream in pairs if upstream is not None]
        upstreams = [upstream for upstream in upstreams if upstream is not None]
        # From the rows that the forward pass read.
        rows_by_table = zip(*(x.rows for x in singles), strict=True)
        rows = [tf.concat(rows, axis=1) for rows in rows_by_table]
        places = tf.concat([x.places for x in singles], axis=1)
        upstream = tf.concat(upstreams, axis=1)
        with tf.GradientTape() as tape:
            tape.watch([products.encodings, rows])
            scores = products.score(products.encodings, *rows)
        flat = _flat
        if products.shard is not None:
            # An optimizer must not touch rows of other shards.
            is_local = tf.concat([x.is_local for x in singles], axis=1)
            upstream = tf.where(is_local, upstream, 0.0)
            flat = functools.partial(tf.boolean_mask, mask=is_local)
        of_encodings, of_rows = tape.gradient(
            scores, [products.encodings, rows], upstream
        )
        return of_encodings, _RowGradients([*map(flat, of_rows)], flat(places))

    def _backward_pass(
        self, total: _RecordedSum, upstream: Tensor
    ) -> tuple[Tensor, _RowGradients, dict[str, Any]]:
        """The gradients of the sum in encodings, tables and parameters."""
        products = self._products
        taken = _Taken.of(total.is_used, products.num_local)

        def step(indices: Tensor, sums: _PerBlock) -> list[_PerBlock]:
            # The scores of the block are made again: all of them, kept from the forward
            # pass, would be the matrix that blocks are there to avoid.
            places = taken.at(indices)
            read = _PerBlock(products.encodings, self._rows(places), total.parameters)
            with tf.GradientTape() as tape:
                tape.watch(read)
                scores = products.score(read.encodings, *read.rows)
                block = Block(self._ids(places), scores)
                terms = total.terms_of(block, **read.parameters)
                value = tf.reduce_sum(terms, axis=-1)
            found = tape.gradient(value, read, upstream, unconnected_gradients="zero")
            # All blocks share the encodings and parameters, so their gradients add up;
            # each class is in one block, so its row is written once.
            rows = zip(sums.rows, found.rows, strict=True)
            return [
                _PerBlock(
                    sums.encodings + found.encodings,
                    [_set_rows(x, indices, g) for x, g in rows],
                    tf.nest.map_structure(tf.add, sums.parameters, found.parameters),
                )
            ]

        start = _PerBlock(
            tf.zeros_like(products.encodings),
            [_empty(x, taken.size) for x in products.tables],
            tf.nest.map_structure(tf.zeros_like, total.parameters),
        )
        (sums,) = fold_blocks(step, taken.size, self._block_size, [start])
        of_parameters = tf.nest.map_structure(self.exchange.total, sums.parameters)
        of_rows = _RowGradients(sums.rows, taken.places, taken.are_few)
        return sums.encodings, of_rows, of_parameters


class _Taken(NamedTuple):
    """The classes of this replica that a backward pass takes."""

    size: int | Tensor
    places: Tensor | None = None  # int32 `[m]`, rising; None for all in order.
    # Whether they are only those with a gradient, known when the graph runs; None if
    # they are all whatever their gradients.
    are_few: Tensor | None = None

    @classmethod
    def of(cls, is_used: Tensor | None, num_local: int) -> _Taken:
        """Chooses from which classes have a gradient, `[K]`; None if all may have."""
        if is_used is None:
            return cls(num_local)
        # Where most have none, the pass gathers the others; where few have none, it
        # takes all in order, since gathering costs more than it saves.
        used = tf.cast(tf.where(is_used)[:, 0], tf.int32)
        are_few = tf.size(used) * _CLASSES_PER_USED <= num_local
        places = tf.cond(are_few, lambda: used, lambda: tf.range(num_local))
        return cls(tf.size(places), places, are_few)

    def at(self, indices: Tensor) -> Tensor:
        """The places of some of them."""
        return indices if self.places is None else tf.gather(self.places, indices)


class _RowGradients(NamedTuple):
    """Gradients of rows of the tables, of each table a tensor `[m, ...]`."""

    rows: list[Tensor]
    places: Tensor | None  # Of the rows, `[m]`; None for all rows in order.
    are_few: Tensor | None = None  # As of what a backward pass has `_Taken`.

    def once(self) -> _RowGradients:
        """The same, with the sum of a place where it occurs first, and then 0."""
        return self._replace(rows=[sums_once(self.places, x) for x in self.rows])

    def plus(self, more: _RowGradients) -> _RowGradients:
        """The gradients of a backward pass, and those of further rows."""
        pairs = [*zip(self.rows, more.rows, strict=True)]

        def added() -> list[Tensor]:
            return [_add_rows(rows, more.places, new) for rows, new in pairs]

        if self.are_few is None:
            return _RowGradients(added(), self.places)
        places = tf.concat([self.places, more.places], axis=0)

        def joined() -> list[Tensor]:
            return [sums_once(places, tf.concat(pair, axis=0)) for pair in pairs]

        return _RowGradients(
            rows=tf.cond(self.are_few, joined, added),
            places=tf.cond(self.are_few, lambda: places, lambda: self.places),
        )

    def by_table(self, products: ClassProducts) -> list[TableGradient]:
        """The gradient of each table."""

        def gradient(rows: Tensor, table: Table) -> TableGradient:
            if self.places is None:
                return tf.ensure_shape(rows, table.shape)
            if products.dense_gradients:
                return tf.math.unsorted_segment_sum(rows, self.places, table.shape[0])
            return tf.IndexedSlices(rows, self.places, tf.constant([*table.shape]))

        return list(map(gradient, self.rows, products.tables))


def _flat(x: Tensor) -> Tensor:
    """`[batch, m, ...]` -> `[batch m, ...]`."""
    return tf.reshape(x, [-1, *x.shape[2:]])


def _empty(table: Table, num_rows: int | Tensor) -> Tensor:
    """Uninitialized rows like those of a table, all of which `_set_rows` must set."""
    shape = tf.concat([[num_rows], table.shape[1:]], axis=0)
    if raising.in_xla():
        return tf.zeros(shape, table.dtype)
    # Not zeros: a graph may share them with other operations, and writes are in place.
    return tf.raw_ops.Empty(shape=shape, dtype=table.dtype, init=False)


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
    if a is None:
        return b
    if b is None:
        return a
    return a + b
