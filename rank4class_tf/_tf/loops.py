"""Loops over blocks of indices and over pieces of a batch that the gradient recomputes.

Blocks and pieces run one after the other: parallel ones would need all their memory at
once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from rank4class_tf._tf.gather import sums_once
from rank4class_tf._tf.gradients import together
from rank4class_tf._tf.raising import in_xla
from rank4class_tf._tf.shapes import larger, num_rows
from rank4class_tf._types import (
    Features,
    Function,
    Size,
    Tensor,
    Tensors,
    WithGradient,
)


def fold(step: Callable, count: Size, state: Sequence, first: int = 0) -> list:
    """Folds `state = step(index, *state)` over [first, count), without a gradient."""
    # XLA compiles the gradient of a variable that a step reads only if it knows this
    # number.
    num_steps = count - first if isinstance(count, int) else None
    if num_steps is not None and num_steps <= 0:
        return list(state)

    def is_before_end(index: Tensor, *_: Any) -> Tensor:
        return index < count

    def next_step(index: Tensor, *state: Any) -> tuple:
        return index + 1, *step(index, *state)

    _, *result = tf.while_loop(
        is_before_end,
        next_step,
        (tf.constant(first), *state),
        parallel_iterations=1,
        maximum_iterations=num_steps,
    )
    return result


def fold_blocks(step: Callable, number: Size, size: Size, state: Sequence = ()) -> list:
    """Folds `state = step(ids, *state)` over blocks of `size` ids in [0, number)."""
    # The last block may be shorter. The lengths of blocks are static only if both are
    # ints.
    is_static = isinstance(number, int)
    if is_static and number == 0:
        return list(state)
    if is_static and isinstance(size, int):
        return _fold_static_blocks(step, number, size, state)
    if is_static and in_xla():
        # The size is a constant by the time XLA compiles, so the blocks of the loop
        # must be of this size: all but the last, which has 1 to `size` ids.
        num_full = -(-number // size) - 1
        state = _fold_full_blocks(step, num_full, size, state)
        return list(step(tf.range(num_full * size, number), *state))

    def block_step(block: Tensor, *state: Any) -> Sequence:
        start = block * size
        end = tf.minimum(start + size, number)
        return step(tf.range(start, end), *state)

    return fold(block_step, -(-number // size), state)


def _fold_static_blocks(
    step: Callable, number: int, size: int, state: Sequence
) -> list:
    size = min(size, number)
    num_full, rest = divmod(number, size)
    if num_full == 1:  # Needs no loop.
        state = step(tf.range(size), *state)
    else:
        state = _fold_full_blocks(step, num_full, size, state)
    if rest:
        state = step(tf.range(num_full * size, number), *state)
    return list(state)


def _fold_full_blocks(
    step: Callable, num_full: Size, size: Size, state: Sequence
) -> list:
    def block_step(block: Tensor, *state: Any) -> Sequence:
        return step(block * size + tf.range(size), *state)

    return fold(block_step, num_full, state)


class States(NamedTuple):
    """Variables that a function changes each time it runs."""

    generators: Sequence[tf.Variable] = ()  # Of random numbers.
    others: Sequence[tf.Variable] = ()  # Such as moving averages.


_STATELESS = States()


class Arguments(NamedTuple):
    """What a function in pieces takes: `function(data, *inputs, *shared)`."""

    data: Features = ()  # A piece of each array, in any structure; without a gradient.
    inputs: Tensors = ()  # A piece of each.
    shared: Tensors = ()  # Each of them whole.


def in_pieces(
    function: Function,
    arguments: Arguments,
    spec: tf.TensorSpec,
    states: States = _STATELESS,
) -> Tensor:
    """A function's values `[batch, ...]`, in pieces that the gradient recomputes."""
    # Inputs, what is shared and variables that the function reads get gradients. `spec`
    # describes the values of a full piece, `[size, ...]`. A layer may look at all rows
    # of a piece, so the last piece is not padded.
    data, inputs, shared = arguments
    size = spec.shape[0]
    batch = num_rows(tf.nest.flatten([data, inputs])[0])
    # The last piece runs outside the loops, so that their shapes are static. Only that
    # of an empty batch is empty.
    num_full = larger(batch - 1, 0) // size
    pieces = _Pieces(
        function=function,
        data=data,
        spec=spec,
        num_inputs=len(inputs),
        states=states,
        num_full=num_full,
        last_size=batch - num_full * size,
    )

    @tf.custom_gradient
    def values(*tensors: Tensor) -> WithGradient:
        forward = pieces.forward(tensors)

        def gradient(upstream: Tensor, variables: Tensors | None = None) -> Any:
            found = pieces.backward(tensors, variables or [], forward, upstream)
            of_tensors = [tf.convert_to_tensor(x) for x in found[: len(tensors)]]
            of_variables = found[len(tensors) :]
            return (of_tensors, of_variables) if variables else of_tensors

        # `[pieces, size, ...]` -> `[pieces size, ...]`.
        row_shape = tf.shape(forward.values)[2:]
        rows = tf.reshape(forward.values, tf.concat([[-1], row_shape], axis=0))
        return rows[:batch], gradient

    result = values(*inputs, *shared)
    return tf.ensure_shape(result, [None, *spec.shape[1:]])


class _Forward(NamedTuple):
    """What a forward pass over all pieces leaves."""

    values: Tensor  # `[pieces, size, ...]`, the last piece padded.
    # `[pieces, ...]` of each generator, its state before each piece.
    generators: list[Tensor]


class _Piece(NamedTuple):
    """Some rows of a batch, as the function takes them."""

    data: Features
    arguments: list[Tensor]  # Rows of the inputs, then all of what is shared.


class _Pieces(NamedTuple):
    """A batch cut into `num_full` pieces of `size` rows, and a last one."""

    function: Function
    data: Features
    spec: tf.TensorSpec
    num_inputs: int
    states: States
    num_full: Size
    last_size: Size

    @property
    def size(self) -> int:
        return self.spec.shape[0]

    def forward(self, tensors: Tensors) -> _Forward:
        """Each piece writes its values, and the generators' states before it."""
        generators = self.states.generators

        def step(
            number: Size, *arrays: tf.TensorArray, length: Size = self.size
        ) -> list[tf.TensorArray]:
            before = [tf.identity(state) for state in generators]
            piece = self._piece(number, length, tensors)
            values = self.function(piece.data, *piece.arguments)
            values = self._padded(values, self.size)
            written = zip(arrays, [values, *before], strict=True)
            return [array.write(number, x) for array, x in written]

        arrays = [
            tf.TensorArray(x.dtype, self.num_full + 1, element_shape=x.shape)
            for x in (self.spec, *generators)
        ]
        arrays = fold(step, self.num_full, arrays)
        arrays = step(self.num_full, *arrays, length=self.last_size)
        values, *before = [array.stack() for array in arrays]
        return _Forward(values, before)

    def backward(
        self, tensors: Tensors, variables: Tensors, forward: _Forward, upstream: Tensor
    ) -> list[Tensor]:
        """The gradients of tensors and variables, from those of the batch's values."""
        upstream = self._padded(upstream, (self.num_full + 1) * self.size)
        upstream = tf.reshape(upstream, tf.shape(forward.values))
        generators = self.states.generators
        changed = [*generators, *self.states.others]
        after = [tf.identity(state) for state in changed]

        @tf.function(autograph=False)
        def step(number: Tensor, length: Size = self.size) -> list[Tensor]:
            # The piece draws the numbers that it drew in the forward pass.
            for state, before in zip(generators, forward.generators, strict=True):
                state.assign(before[number])
            piece = self._piece(number, length, tensors)
            with tf.GradientTape() as tape:
                tape.watch(piece.arguments)
                values = self.function(piece.data, *piece.arguments)
            return tape.gradient(
                values,
                [*piece.arguments, *variables],
                upstream[number][:length],
                unconnected_gradients="zero",
            )

        shared = [*tensors[self.num_inputs :], *variables]
        # All is read before the optimizer writes.
        gradients = together(self._over_pieces(step, shared))
        # The second run of the function leaves no trace.
        for state, later in zip(changed, after, strict=True):
            state.assign(later)
        return gradients

    def _over_pieces(self, step: Any, shared: Tensors) -> list[Tensor]:
        """Gradients of the inputs for all rows, and of what is shared, summed."""
        last = step(tf.convert_to_tensor(self.num_full), self.last_size)
        if isinstance(self.num_full, int) and not self.num_full:
            return list(last)
        traced = step.get_concrete_function(tf.TensorSpec([], tf.int32))
        specs = traced.structured_outputs
        totals: list[_Total] = [
            _Rows(spec, self.num_full) for spec in specs[: self.num_inputs]
        ]
        for spec, source in zip(specs[self.num_inputs :], shared, strict=True):
            totals.append(self._total_of_shared(spec, source))

        def add_piece(number: Tensor, *states: Any) -> list:
            parts = zip(totals, states, step(number), strict=True)
            return [total.add(state, number, part) for total, state, part in parts]

        start = [total.start() for total in totals]
        states = fold(add_piece, self.num_full, start)
        parts = zip(totals, states, last, strict=True)
        return [total.finish(state, part) for total, state, part in parts]

    def _total_of_shared(self, spec: tf.TypeSpec, source: Tensor) -> _Total:
        if not isinstance(spec, tf.IndexedSlices | tf.IndexedSlicesSpec):
            return _Sum(source)
        values = _Rows(spec.values, self.num_full)
        indices = _Rows(spec.indices, self.num_full)
        return _Slices(values, indices, source.shape)

    def _piece(self, number: Size, length: Size, tensors: Tensors) -> _Piece:
        rows = number * self.size + tf.range(length)

        def taken(x: Tensor | tf.RaggedTensor) -> Tensor | tf.RaggedTensor:
            return tf.gather(x, rows)

        data = tf.nest.map_structure(taken, self.data)
        inputs = [taken(x) for x in tensors[: self.num_inputs]]
        return _Piece(data, [*inputs, *tensors[self.num_inputs :]])

    def _padded(self, x: Tensor, number: Size) -> Tensor:
        """`[m, ...]` -> `[number, ...]`, padded with zeros."""
        of_rows = [0, number - tf.shape(x)[0]]
        of_others = [[0, 0]] * (self.spec.shape.rank - 1)
        return tf.pad(x, [of_rows, *of_others])


class _Total(Protocol):
    """How gradients of the pieces become one, over a loop with a state of its own."""

    def start(self) -> Any:
        """The state of the loop over the full pieces."""

    def add(self, state: Any, number: Tensor, gradient: Any) -> Any:
        """The state after the piece of a number."""

    def finish(self, state: Any, last: Any) -> Any:
        """The gradient of all, with that of the last, shorter piece."""


class _Sum(NamedTuple):
    """A dense gradient of what pieces share: those of all pieces are added."""

    source: Tensor

    def start(self) -> Tensor:
        shape = self.source.shape
        if not shape.is_fully_defined():
            shape = tf.shape(self.source)
        return tf.zeros(shape, self.source.dtype)

    def add(self, state: Tensor, number: Tensor, gradient: Tensor) -> Tensor:
        return state + gradient

    def finish(self, state: Tensor, last: Tensor) -> Tensor:
        return state + last


class _Rows(NamedTuple):
    """A gradient of rows. Each piece has the rows after those of the last one."""

    spec: tf.TensorSpec
    num_pieces: Size

    def start(self) -> tf.TensorArray:
        return tf.TensorArray(
            self.spec.dtype, self.num_pieces, element_shape=self.spec.shape
        )

    def add(
        self, state: tf.TensorArray, number: Tensor, gradient: Tensor
    ) -> tf.TensorArray:
        return state.write(number, gradient)

    def finish(self, state: tf.TensorArray, last: Tensor) -> Tensor:
        # `concat`: with ragged rows, pieces read different numbers of a table's rows.
        return tf.concat([state.concat(), last], axis=0)


class _Slices(NamedTuple):
    """A gradient of some rows of a table, which keep one part for each row."""

    values: _Rows
    indices: _Rows
    shape: tf.TensorShape

    def start(self) -> list[tf.TensorArray]:
        return [self.values.start(), self.indices.start()]

    def add(
        self, state: list[tf.TensorArray], number: Tensor, gradient: tf.IndexedSlices
    ) -> list[tf.TensorArray]:
        values, indices = state
        return [
            self.values.add(values, number, gradient.values),
            self.indices.add(indices, number, gradient.indices),
        ]

    def finish(
        self, state: list[tf.TensorArray], last: tf.IndexedSlices
    ) -> tf.IndexedSlices:
        values = self.values.finish(state[0], last.values)
        indices = self.indices.finish(state[1], last.indices)
        shape = tf.constant([*self.shape])
        return tf.IndexedSlices(sums_once(indices, values), indices, shape)
