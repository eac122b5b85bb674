"""Loops: over blocks of indices, and over pieces of a batch that the gradient computes again.

They take one part after the other: parts at the same time would take their memory together.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from rank4class_tf._tf.gradients import together
from rank4class_tf._types import Tensor, Tensors, WithGradient


def fold(step: Callable, count: int | Tensor, state: Sequence, first: int = 0) -> list:
    """Folds `state = step(index, *state)` over the indices in [first, count); no gradient."""
    if isinstance(count, int) and count <= first:
        return list(state)
    _, *result = tf.while_loop(
        lambda index, *_: index < count,
        lambda index, *state: (index + 1, *step(index, *state)),
        (tf.constant(first), *state),
        parallel_iterations=1,
        # XLA compiles the gradient of a variable that a step reads only if it knows this number.
        maximum_iterations=count - first if isinstance(count, int) else None,
    )
    return result


def fold_blocks(
    step: Callable, number: int | Tensor, size: int | Tensor, state: Sequence = ()
) -> list:
    """Folds `state = step(ids, *state)` over blocks of `size` of the ids in [0, number)."""
    # The last block may be shorter. The lengths of blocks are static only if both are ints.
    if not (isinstance(number, int) and isinstance(size, int)):

        def part(block: Tensor, *state: Any) -> Sequence:
            return step(tf.range(block * size, tf.minimum((block + 1) * size, number)), *state)

        return fold(part, -(-number // size), state)
    size = min(size, number)
    full, rest = divmod(number, size)
    if full == 1:
        state = step(tf.range(size), *state)
    else:
        state = fold(lambda block, *s: step(block * size + tf.range(size), *s), full, state)
    return list(step(tf.range(full * size, number), *state) if rest else state)


def in_pieces(
    function: Callable,
    data: Any,
    size: int,
    spec: tf.TensorSpec,
    inputs: Tensors = (),
    shared: Tensors = (),
    states: tuple[Sequence, Sequence] = ((), ()),
) -> Tensor:
    """Values `[batch, ...]` of a function, piece by piece; the gradient computes pieces again."""
    # The function maps pieces of `data`, in any structure, without gradients, of each of `inputs`,
    # with gradients, and all of each of `shared`, with gradients, to values; it may read variables.
    # `spec` describes the values of a full piece, `[size, ...]`. The function changes the variables
    # `states`: states of random generators, and others. A layer may look at all rows of a piece, so
    # that the last piece has its own length.
    generators, others = states
    first = tf.nest.flatten([data, inputs])[0]
    batch, most = first.shape[0], max
    if batch is None:
        batch = first.nrows() if isinstance(first, tf.RaggedTensor) else tf.shape(first)[0]
        batch, most = tf.cast(batch, tf.int32), tf.maximum
    # The last piece stands outside the loops, whose shapes are static then.
    full = most(batch - 1, 0) // size
    last = batch - full * size

    def padded(x: Tensor, number: int | Tensor) -> Tensor:
        return tf.pad(x, [[0, number - tf.shape(x)[0]], *[[0, 0]] * (spec.shape.rank - 1)])

    @tf.custom_gradient
    def values(*tensors: Tensor) -> WithGradient:
        batch_inputs, common = tensors[: len(inputs)], tensors[len(inputs) :]

        def rows_of(piece: int | Tensor, length: int | Tensor) -> tuple[Any, list[Tensor]]:
            places = piece * size + tf.range(length)
            return tf.nest.map_structure(lambda x: tf.gather(x, places), (data, [*batch_inputs]))

        # Forward: each piece writes its values, and the states of the generators before it.
        def forward(
            piece: int | Tensor, *arrays: tf.TensorArray, length: int | Tensor = size
        ) -> list[tf.TensorArray]:
            before = [tf.identity(state) for state in generators]
            constants, rows = rows_of(piece, length)
            new = [padded(function(constants, *rows, *common), size), *before]
            return [array.write(piece, x) for array, x in zip(arrays, new, strict=True)]

        specs = (spec, *generators)
        arrays = [tf.TensorArray(x.dtype, full + 1, element_shape=x.shape) for x in specs]
        arrays = forward(full, *fold(forward, full, arrays), length=last)
        pieces, *before = [array.stack() for array in arrays]

        def gradient(upstream: Tensor, variables: Sequence | None = None) -> Sequence:
            variables = variables or []
            upstream = tf.reshape(padded(upstream, (full + 1) * size), tf.shape(pieces))
            after = [tf.identity(state) for state in (*generators, *others)]

            @tf.function(autograph=False)
            def backward(piece: Tensor, length: int | Tensor = size) -> list[Tensor]:
                for state, earlier in zip(generators, before, strict=True):
                    state.assign(earlier[piece])
                constants, rows = rows_of(piece, length)
                with tf.GradientTape() as tape:
                    tape.watch([rows, common])
                    result = function(constants, *rows, *common)
                sources = [*rows, *common, *variables]
                part = upstream[piece][:length]
                return tape.gradient(result, sources, part, unconnected_gradients="zero")

            sums = _over_pieces(backward, full, last, len(inputs), [*common, *variables])
            sums = together(sums)  # All is read before the optimizer writes.
            for state, later in zip((*generators, *others), after, strict=True):
                state.assign(later)
            gradients = [tf.convert_to_tensor(x) for x in sums[: len(tensors)]]
            return (gradients, sums[len(tensors) :]) if variables else gradients

        # `[pieces, size, ...]` -> `[pieces size, ...]`.
        joined = tf.reshape(pieces, tf.concat([[-1], tf.shape(pieces)[2:]], axis=0))
        return joined[:batch], gradient

    return tf.ensure_shape(values(*inputs, *shared), [None, *spec.shape[1:]])


def _over_pieces(
    backward: Any, full: int | Tensor, last: int | Tensor, num_inputs: int, summed: Tensors
) -> list:
    """Gradients by all pieces: of inputs one below the other, of others sums, or table rows."""
    last_gradients = backward(tf.convert_to_tensor(full), last)
    if isinstance(full, int) and not full:
        return list(last_gradients)
    known = backward.get_concrete_function(tf.TensorSpec([], tf.int32)).structured_outputs
    slices = tf.IndexedSlices | tf.IndexedSlicesSpec
    kinds = ["rows"] * num_inputs
    kinds += ["sparse" if isinstance(g, slices) else "dense" for g in known[num_inputs:]]
    sources = [*[None] * num_inputs, *summed]

    def parts(kind: str, gradient: Any) -> list[Tensor]:
        return [gradient.values, gradient.indices] if kind == "sparse" else [gradient]

    def start(kind: str, gradient: Any, source: Any) -> Any:
        if kind == "dense":
            is_known = source.shape.is_fully_defined()
            return tf.zeros(source.shape if is_known else tf.shape(source), source.dtype)
        arrays = parts(kind, gradient)
        return [tf.TensorArray(x.dtype, full, element_shape=x.shape) for x in arrays]

    def added(piece: Tensor, kind: str, total: Any, gradient: Any) -> Any:
        if kind == "dense":
            return total + gradient
        both = zip(total, parts(kind, gradient), strict=True)
        return [array.write(piece, x) for array, x in both]

    def step(piece: Tensor, *sums: Any) -> list:
        return [added(piece, *x) for x in zip(kinds, sums, backward(piece), strict=True)]

    sums = fold(step, full, [start(*x) for x in zip(kinds, known, sources, strict=True)])
    for i, kind in enumerate(kinds):
        if kind == "dense":
            sums[i] += last_gradients[i]
            continue
        # Of ragged rows, pieces read different numbers of rows of a table.
        both = zip(sums[i], parts(kind, last_gradients[i]), strict=True)
        rows = [tf.concat([array.concat(), x], axis=0) for array, x in both]
        shape = tf.constant([*sources[i].shape]) if kind == "sparse" else None
        sums[i] = tf.IndexedSlices(*rows, shape) if kind == "sparse" else rows[0]
    return sums
