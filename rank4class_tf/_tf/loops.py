"""Loops: over blocks of indices, and over pieces of a batch that the gradient computes again.

Every loop of the package over parts of something large is one of these two. Both take one part
after the other: parts at the same time would take their memory at the same time.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from rank4class_tf._tf.gradients import together
from rank4class_tf._types import Tensor, Tensors, WithGradient


def fold(step: Callable, count: Any, state: Sequence, first: int = 0) -> list:
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


def fold_blocks(step: Callable, number: Any, size: int, state: Sequence = ()) -> list:
    """Folds `state = step(ids, *state)` over blocks of `size` of the ids in [0, number)."""
    # The last block may be shorter. The lengths of blocks are static only if the number is an int.
    if not isinstance(number, int):

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
    rows: Any,
    size: int,
    spec: tf.TensorSpec,
    of_rows: Tensors = (),
    shared: Tensors = (),
    states: tuple[Sequence, Sequence] = ((), ()),
) -> Tensor:
    """Values `[batch, ...]` of a function, piece by piece; the gradient computes pieces again."""
    # The function maps pieces of `rows`, in any structure, without gradients, of each of `of_rows`,
    # with gradients, and all of each of `shared`, with gradients, to values; it may read variables.
    # `spec` describes the values of a full piece, `[size, ...]`. The function changes the variables
    # `states`: states of random generators, and others. A layer may look at all rows of a
    # piece, so that the last piece has its own length.
    draws, others = states
    first = tf.nest.flatten([rows, of_rows])[0]
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
        given, common = tensors[: len(of_rows)], tensors[len(of_rows) :]

        def of_piece(piece: int | Tensor, length: int | Tensor) -> tuple[Any, list[Tensor]]:
            places = piece * size + tf.range(length)
            return tf.nest.map_structure(lambda x: tf.gather(x, places), (rows, [*given]))

        def forward(
            piece: int | Tensor, *arrays: tf.TensorArray, length: int | Tensor = size
        ) -> list[tf.TensorArray]:
            before = [tf.identity(state) for state in draws]
            fixed, own = of_piece(piece, length)
            new = [padded(function(fixed, *own, *common), size), *before]
            return [array.write(piece, x) for array, x in zip(arrays, new, strict=True)]

        arrays = [tf.TensorArray(x.dtype, full + 1, element_shape=x.shape) for x in (spec, *draws)]
        arrays = forward(full, *fold(forward, full, arrays), length=last)
        pieces, *before = [array.stack() for array in arrays]

        def gradient(upstream: Tensor, variables: Sequence | None = None) -> Sequence:
            variables = variables or []
            upstream = tf.reshape(padded(upstream, (full + 1) * size), tf.shape(pieces))
            after = [tf.identity(state) for state in (*draws, *others)]

            @tf.function(autograph=False)
            def backward(piece: Tensor, length: int | Tensor = size) -> list[Tensor]:
                for state, values in zip(draws, before, strict=True):
                    state.assign(values[piece])
                fixed, own = of_piece(piece, length)
                with tf.GradientTape() as tape:
                    tape.watch([own, common])
                    found = function(fixed, *own, *common)
                sources = [*own, *common, *variables]
                of_found = upstream[piece][:length]
                return tape.gradient(found, sources, of_found, unconnected_gradients="zero")

            sums = _over_pieces(backward, full, last, len(given), [*common, *variables])
            sums = together(sums)
            for state, values in zip((*draws, *others), after, strict=True):
                state.assign(values)
            of_inputs = [tf.convert_to_tensor(x) for x in sums[: len(tensors)]]
            return (of_inputs, sums[len(tensors) :]) if variables else of_inputs

        # `[pieces, size, ...]` -> `[pieces size, ...]`.
        joined = tf.reshape(pieces, tf.concat([[-1], tf.shape(pieces)[2:]], axis=0))
        return joined[:batch], gradient

    return tf.ensure_shape(values(*of_rows, *shared), [None, *spec.shape[1:]])


def _over_pieces(
    gradients_of: Any, full: int | Tensor, last: int | Tensor, num_of_rows: int, summed: Tensors
) -> list:
    """Gradients by all pieces: of rows one below the other, of others sums, or rows of a table."""
    of_last = gradients_of(tf.convert_to_tensor(full), last)
    if isinstance(full, int) and not full:
        return list(of_last)
    known = gradients_of.get_concrete_function(tf.TensorSpec([], tf.int32)).structured_outputs
    slices = tf.IndexedSlices | tf.IndexedSlicesSpec
    kinds = ["rows"] * num_of_rows
    kinds += ["sparse" if isinstance(g, slices) else "dense" for g in known[num_of_rows:]]

    def parts_of(kind: str, gradient: Any) -> list[Tensor]:
        return [gradient.values, gradient.indices] if kind == "sparse" else [gradient]

    def start(kind: str, gradient: Any, of: Any) -> Any:
        if kind == "dense":
            return tf.zeros(of.shape if of.shape.is_fully_defined() else tf.shape(of), of.dtype)
        parts = parts_of(kind, gradient)
        return [tf.TensorArray(x.dtype, full, element_shape=x.shape) for x in parts]

    def added(kind: str, total: Any, new: Any, piece: Tensor) -> Any:
        if kind == "dense":
            return total + new
        return [a.write(piece, x) for a, x in zip(total, parts_of(kind, new), strict=True)]

    def step(piece: Tensor, *sums: Any) -> list:
        return [added(*of, piece) for of in zip(kinds, sums, gradients_of(piece), strict=True)]

    of_sums = [*[None] * num_of_rows, *summed]
    sums = fold(step, full, [start(*of) for of in zip(kinds, known, of_sums, strict=True)])
    for i, kind in enumerate(kinds):
        if kind == "dense":
            sums[i] += of_last[i]
            continue
        # Of ragged rows, pieces read different numbers of rows of a table.
        both = zip(sums[i], parts_of(kind, of_last[i]), strict=True)
        parts = [tf.concat([array.concat(), x], axis=0) for array, x in both]
        shape = tf.constant([*of_sums[i].shape]) if kind == "sparse" else None
        sums[i] = tf.IndexedSlices(*parts, shape) if kind == "sparse" else parts[0]
    return sums
