"""Loops over pieces of a batch."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


def in_pieces(
    function: Callable,
    rows: Any,
    size: int,
    spec: tf.TensorSpec,
    of_rows: Sequence[tf.Tensor] = (),
    shared: Sequence[tf.Tensor] = (),
    states: tuple[list, list] = ((), ()),  # type: ignore[assignment]
) -> tf.Tensor:
    """Values of a function of each example, piece by piece.

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
    first = tf.nest.flatten(rows)[0]
    batch = first.nrows() if isinstance(first, tf.RaggedTensor) else tf.shape(first)[0]
    batch = tf.cast(batch, tf.int32)
    num_pieces = -(-batch // size)

    def piece_of(x, piece):
        # The last piece is as long as the others, with its last row again: shapes stay static.
        return tf.gather(x, tf.minimum(piece * size + tf.range(size), batch - 1))

    @tf.custom_gradient
    def values(*tensors):
        given, common = tensors[: len(of_rows)], tensors[len(of_rows) :]

        def of_forward(piece):
            before = [tf.identity(state) for state in draws]
            own = [piece_of(x, piece) for x in given]
            fixed = tf.nest.map_structure(lambda x: piece_of(x, piece), rows)
            return function(fixed, *own, *common), before

        signature = spec, [tf.TensorSpec(state.shape, state.dtype) for state in draws]
        pieces, before = tf.map_fn(
            of_forward, tf.range(num_pieces), fn_output_signature=signature, parallel_iterations=1
        )

        def gradient(upstream, variables=None):
            variables = variables or []
            missing = [[0, num_pieces * size - batch], *[[0, 0]] * (spec.shape.rank - 1)]
            upstream = tf.reshape(tf.pad(upstream, missing), tf.shape(pieces))
            after = [tf.identity(state) for state in (*draws, *others)]

            @tf.function(autograph=False)
            def of_piece(piece):
                for state, values in zip(draws, before, strict=True):
                    state.assign(values[piece])
                own = [piece_of(x, piece) for x in given]
                fixed = tf.nest.map_structure(lambda x: piece_of(x, piece), rows)
                with tf.GradientTape() as tape:
                    tape.watch([own, common])
                    found = function(fixed, *own, *common)
                sources = [*own, *common, *variables]
                return tape.gradient(found, sources, upstream[piece], unconnected_gradients="zero")

            sums = _over_pieces(of_piece, num_pieces, len(given), [*common, *variables])
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

    def start(kind, of):
        if kind == "dense":
            return tf.zeros(of.shape if of.shape.is_fully_defined() else tf.shape(of), of.dtype)
        parts = [of] if kind == "rows" else [of.values, of.indices]
        return [tf.TensorArray(x.dtype, count, element_shape=x.shape) for x in parts]

    def add(piece, sums):
        return piece + 1, [
            _added(*of, piece) for of in zip(kinds, sums, gradients_of(piece), strict=True)
        ]

    start_of = [
        start(kind, summed[i - num_of_rows] if kind == "dense" else known[i])
        for i, kind in enumerate(kinds)
    ]
    _, sums = tf.while_loop(
        lambda piece, _: piece < count, add, (tf.constant(0), start_of), parallel_iterations=1
    )
    result = []
    for i, (total, kind) in enumerate(zip(sums, kinds, strict=True)):
        if kind == "dense":
            result.append(total)
            continue
        parts = [_joined(array.stack()) for array in total]
        if kind == "sparse":
            shape = tf.constant([*summed[i - num_of_rows].shape])
            parts = [tf.IndexedSlices(*parts, dense_shape=shape)]
        result += parts
    return result


def _added(kind, total, new, piece):
    if kind == "dense":
        return total + new
    parts = [new] if kind == "rows" else [new.values, new.indices]
    return [array.write(piece, x) for array, x in zip(total, parts, strict=True)]


def _joined(pieces):
    """`[pieces, size, ...]` -> `[pieces size, ...]`."""
    return tf.reshape(pieces, tf.concat([[-1], tf.shape(pieces)[2:]], axis=0))
