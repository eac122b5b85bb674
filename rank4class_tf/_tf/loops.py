"""Loops: over blocks of indices, and over pieces of a batch that the gradient computes again.

Every loop of the package over parts of something large is one of these two. Both take one part
after the other: parts at the same time would take their memory at the same time.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


def fold(step: Callable, count: Any, state: Sequence, first: int = 0) -> list:
    """Folds `state = step(index, *state)` over the indices in [first, count); no gradient."""
    _, *result = tf.while_loop(
        lambda index, *_: index < count,
        lambda index, *state: (index + 1, *step(index, *state)),
        (tf.constant(first), *state),
        parallel_iterations=1,
    )
    return result


def fold_blocks(step: Callable, number: Any, size: int, state: Sequence = ()) -> list:
    """Folds `state = step(ids, *state)` over blocks of the ids in [0, number).

    Args:
        step: takes `size` ids, or those that are left at the end.
        number: an int, or a scalar tensor; the lengths of blocks are static only for an int.
        size: the number of ids in a block, an int.
        state: tensors, in any structures.
    """
    if not isinstance(number, int):

        def part(block, *state):
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
    of_rows: Sequence[tf.Tensor] = (),
    shared: Sequence[tf.Tensor] = (),
    states: tuple[list, list] = ((), ()),  # type: ignore[assignment]
) -> tf.Tensor:
    """Values of a function of each example, piece by piece; the gradient computes pieces again.

    Args:
        function: maps pieces of `rows` and of each of `of_rows`, and all of each of `shared`, to
            values. It may read variables.
        rows: tensors with a row for each example, in any structure, without gradients.
        size: how many examples a piece has.
        spec: that of the values of a piece, `[size, ...]`.
        of_rows: tensors with a row for each example, with gradients.
        shared: tensors with gradients, the same for all pieces.
        states: variables that the function changes: states of random generators, and others.

    Returns:
        `[batch, ...]`.
    """
    draws, others = states
    first = tf.nest.flatten([rows, of_rows])[0]
    batch = first.nrows() if isinstance(first, tf.RaggedTensor) else tf.shape(first)[0]
    batch = tf.cast(batch, tf.int32)
    num_pieces = -(-batch // size)

    def piece_of(x, piece):
        # The last piece is as long as the others, with its last row again: shapes stay static.
        return tf.gather(x, tf.minimum(piece * size + tf.range(size), batch - 1))

    @tf.custom_gradient
    def values(*tensors):
        given, common = tensors[: len(of_rows)], tensors[len(of_rows) :]

        def of_piece(piece):
            fixed = tf.nest.map_structure(lambda x: piece_of(x, piece), rows)
            return fixed, [piece_of(x, piece) for x in given]

        def forward(piece):
            before = [tf.identity(state) for state in draws]
            fixed, own = of_piece(piece)
            return function(fixed, *own, *common), before

        signature = spec, [tf.TensorSpec(state.shape, state.dtype) for state in draws]
        pieces, before = tf.map_fn(
            forward, tf.range(num_pieces), fn_output_signature=signature, parallel_iterations=1
        )

        def gradient(upstream, variables=None):
            variables = variables or []
            missing = [[0, num_pieces * size - batch], *[[0, 0]] * (spec.shape.rank - 1)]
            upstream = tf.reshape(tf.pad(upstream, missing), tf.shape(pieces))
            after = [tf.identity(state) for state in (*draws, *others)]

            @tf.function(autograph=False)
            def backward(piece):
                for state, values in zip(draws, before, strict=True):
                    state.assign(values[piece])
                fixed, own = of_piece(piece)
                with tf.GradientTape() as tape:
                    tape.watch([own, common])
                    found = function(fixed, *own, *common)
                sources = [*own, *common, *variables]
                return tape.gradient(found, sources, upstream[piece], unconnected_gradients="zero")

            sums = _over_pieces(backward, num_pieces, len(given), [*common, *variables])
            for state, values in zip((*draws, *others), after, strict=True):
                state.assign(values)
            of_inputs = [x[:batch] for x in sums[: len(given)]]
            of_inputs += [tf.convert_to_tensor(x) for x in sums[len(given) : len(tensors)]]
            return (of_inputs, sums[len(tensors) :]) if variables else of_inputs

        return _joined(pieces)[:batch], gradient

    return tf.ensure_shape(values(*of_rows, *shared), [None, *spec.shape[1:]])


def _over_pieces(gradients_of, count, num_of_rows, summed):
    """Gradients by all pieces: of rows one below the other, of others sums, or rows of a table."""
    known = gradients_of.get_concrete_function(tf.TensorSpec([], tf.int32)).structured_outputs
    kinds = ["rows"] * num_of_rows
    for gradient in known[num_of_rows:]:
        sparse = isinstance(gradient, tf.IndexedSlices | tf.IndexedSlicesSpec)
        kinds.append("sparse" if sparse else "dense")

    def parts_of(kind, gradient):
        return [gradient.values, gradient.indices] if kind == "sparse" else [gradient]

    def start(kind, gradient, of):
        if kind == "dense":
            return tf.zeros(of.shape if of.shape.is_fully_defined() else tf.shape(of), of.dtype)
        parts = parts_of(kind, gradient)
        return [tf.TensorArray(x.dtype, count, element_shape=x.shape) for x in parts]

    def added(kind, total, new, piece):
        if kind == "dense":
            return total + new
        parts = zip(total, parts_of(kind, new), strict=True)
        return [array.write(piece, x) for array, x in parts]

    def step(piece, *sums):
        return [added(*of, piece) for of in zip(kinds, sums, gradients_of(piece), strict=True)]

    of_sums = [*[None] * num_of_rows, *summed]
    sums = fold(step, count, [start(*of) for of in zip(kinds, known, of_sums, strict=True)])
    for i, kind in enumerate(kinds):
        if kind != "dense":
            parts = [_joined(array.stack()) for array in sums[i]]
            shape = tf.constant([*of_sums[i].shape]) if kind == "sparse" else None
            sums[i] = tf.IndexedSlices(*parts, shape) if kind == "sparse" else parts[0]
    return sums


def _joined(pieces):
    """`[pieces, size, ...]` -> `[pieces size, ...]`."""
    return tf.reshape(pieces, tf.concat([[-1], tf.shape(pieces)[2:]], axis=0))
