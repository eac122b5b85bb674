"""Loops over blocks of indices and over pieces of a batch that the gradient recomputes.

Blocks and pieces run one after the other: parallel ones would need all their memory at
once.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from rank4class_tf._tf.gather import sums_once
from rank4class_tf._tf.gradients import together
from rank4class_tf._tf.raising import in_xla
from rank4class_tf._types import Tensor, Tensors, WithGradient


def fold(step: Callable, count: int | Tensor, state: Sequence, first: int = 0) -> list:
    """Folds `state = step(index, *state)` over [first, count), without a gradient."""
    if isinstance(count, int) and count <= first:
        return list(state)
    _, *result = tf.while_loop(
        lambda index, *_: index < count,
        lambda index, *state: (index + 1, *step(index, *state)),
        (tf.constant(first), *state),
        parallel_iterations=1,
        # XLA compiles the gradient of a variable that a step reads only if it knows
        # this number.
        maximum_iterations=count - first if isinstance(count, int) else None,
    )
    return result


def fold_blocks(
    step: Callable, number: int | Tensor, size: int | Tensor, state: Sequence = ()
) -> list:
    """Folds `state = step(ids, *state)` over blocks of `size` ids in [0, number)."""
    # The last block may be shorter. The lengths of blocks are static only if both are
    # ints.
    if isinstance(number, int) and not isinstance(size, int) and in_xla():
        # A constant by the time XLA compiles, so the blocks of the loop must be of this
        # size: all but the last, which has 1 to `size` ids.
        num_full = -(-number // size) - 1
        state = fold(
            lambda block, *s: step(block * size + tf.range(size), *s), num_full, state
        )
        return list(step(tf.range(num_full * size, number), *state))
    if not (isinstance(number, int) and isinstance(size, int)):

        def block_step(block: Tensor, *state: Any) -> Sequence:
            return step(
                tf.range(block * size, tf.minimum((block + 1) * size, number)), *state
            )

        return fold(block_step, -(-number // size), state)
    size = min(size, number)
    num_full, rest = divmod(number, size)
    if num_full == 1:
        state = step(tf.range(size), *state)
    else:
        state = fold(
            lambda block, *s: step(block * size + tf.range(size), *s), num_full, state
        )
    return list(step(tf.range(num_full * size, number), *state) if rest else state)


def in_pieces(
    function: Callable,
    data: Any,
    size: int,
    spec: tf.TensorSpec,
    inputs: Tensors = (),
    shared: Tensors = (),
    states: tuple[Sequence, Sequence] = ((), ()),
) -> Tensor:
    """A function's values `[batch, ...]`, in pieces that the gradient recomputes."""
    # The function takes a piece of `data`, in any structure, a piece of each of
    # `inputs`, and each of `shared` whole. All but `data` get gradients, as do
    # variables that the function reads. `spec` describes the values of a full piece,
    # `[size, ...]`. The function changes `states`: variables of random generators, and
    # others. A layer may look at all rows of a piece, so the last piece is not padded.
    generator_states, other_states = states
    tensor = tf.nest.flatten([data, inputs])[0]
    batch, maximum = tensor.shape[0], max
    if batch is None:
        batch = (
            tensor.nrows()
            if isinstance(tensor, tf.RaggedTensor)
            else tf.shape(tensor)[0]
        )
        batch, maximum = tf.cast(batch, tf.int32), tf.maximum
    # The last piece runs outside the loops, so that their shapes are static.
    num_full = maximum(batch - 1, 0) // size
    last_size = batch - num_full * size

    def padded(x: Tensor, number: int | Tensor) -> Tensor:
        return tf.pad(
            x, [[0, number - tf.shape(x)[0]], *[[0, 0]] * (spec.shape.rank - 1)]
        )

    @tf.custom_gradient
    def values(*tensors: Tensor) -> WithGradient:
        batch_inputs, common = tensors[: len(inputs)], tensors[len(inputs) :]

        def take_piece(
            piece: int | Tensor, length: int | Tensor
        ) -> tuple[Any, list[Tensor]]:
            indices = piece * size + tf.range(length)
            return tf.nest.map_structure(
                lambda x: tf.gather(x, indices), (data, [*batch_inputs])
            )

        # Forward: each piece writes its values, and the states of the generators before
        # it.
        def forward(
            piece: int | Tensor, *arrays: tf.TensorArray, length: int | Tensor = size
        ) -> list[tf.TensorArray]:
            before = [tf.identity(state) for state in generator_states]
            data_rows, input_rows = take_piece(piece, length)
            results = [padded(function(data_rows, *input_rows, *common), size), *before]
            return [
                array.write(piece, x) for array, x in zip(arrays, results, strict=True)
            ]

        specs = (spec, *generator_states)
        arrays = [
            tf.TensorArray(x.dtype, num_full + 1, element_shape=x.shape) for x in specs
        ]
        arrays = forward(num_full, *fold(forward, num_full, arrays), length=last_size)
        pieces, *before = [array.stack() for array in arrays]

        def gradient(upstream: Tensor, variables: Sequence | None = None) -> Sequence:
            variables = variables or []
            upstream = tf.reshape(
                padded(upstream, (num_full + 1) * size), tf.shape(pieces)
            )
            after = [tf.identity(state) for state in (*generator_states, *other_states)]

            @tf.function(autograph=False)
            def backward(piece: Tensor, length: int | Tensor = size) -> list[Tensor]:
                for state, earlier in zip(generator_states, before, strict=True):
                    state.assign(earlier[piece])
                data_rows, input_rows = take_piece(piece, length)
                with tf.GradientTape() as tape:
                    tape.watch([input_rows, common])
                    result = function(data_rows, *input_rows, *common)
                sources = [*input_rows, *common, *variables]
                piece_upstream = upstream[piece][:length]
                return tape.gradient(
                    result, sources, piece_upstream, unconnected_gradients="zero"
                )

            sums = _over_pieces(
                backward, num_full, last_size, len(inputs), [*common, *variables]
            )
            sums = together(sums)  # All is read before the optimizer writes.
            for state, later in zip(
                (*generator_states, *other_states), after, strict=True
            ):
                state.assign(later)
            gradients = [tf.convert_to_tensor(x) for x in sums[: len(tensors)]]
            return (gradients, sums[len(tensors) :]) if variables else gradients

        # `[pieces, size, ...]` -> `[pieces size, ...]`.
        joined = tf.reshape(pieces, tf.concat([[-1], tf.shape(pieces)[2:]], axis=0))
        return joined[:batch], gradient

    return tf.ensure_shape(values(*inputs, *shared), [None, *spec.shape[1:]])


def _over_pieces(
    backward: Any,
    num_full: int | Tensor,
    last_size: int | Tensor,
    num_inputs: int,
    summed: Tensors,
) -> list:
    """Gradients of all pieces: input rows and table slices joined, others summed."""
    last_gradients = backward(tf.convert_to_tensor(num_full), last_size)
    if isinstance(num_full, int) and not num_full:
        return list(last_gradients)
    specs = backward.get_concrete_function(
        tf.TensorSpec([], tf.int32)
    ).structured_outputs
    slices = tf.IndexedSlices | tf.IndexedSlicesSpec
    kinds = ["rows"] * num_inputs
    kinds += [
        "sparse" if isinstance(g, slices) else "dense" for g in specs[num_inputs:]
    ]
    sources = [*[None] * num_inputs, *summed]

    def components(kind: str, gradient: Any) -> list[Tensor]:
        return [gradient.values, gradient.indices] if kind == "sparse" else [gradient]

    def start(kind: str, gradient: Any, source: Any) -> Any:
        if kind == "dense":
            is_known = source.shape.is_fully_defined()
            return tf.zeros(
                source.shape if is_known else tf.shape(source), source.dtype
            )
        arrays = components(kind, gradient)
        return [
            tf.TensorArray(x.dtype, num_full, element_shape=x.shape) for x in arrays
        ]

    def accumulated(piece: Tensor, kind: str, total: Any, gradient: Any) -> Any:
        if kind == "dense":
            return total + gradient
        pairs = zip(total, components(kind, gradient), strict=True)
        return [array.write(piece, x) for array, x in pairs]

    def step(piece: Tensor, *sums: Any) -> list:
        return [
            accumulated(piece, *x)
            for x in zip(kinds, sums, backward(piece), strict=True)
        ]

    sums = fold(
        step, num_full, [start(*x) for x in zip(kinds, specs, sources, strict=True)]
    )
    for i, kind in enumerate(kinds):
        if kind == "dense":
            sums[i] += last_gradients[i]
            continue
        # `concat`: with ragged rows, pieces read different numbers of a table's rows.
        pairs = zip(sums[i], components(kind, last_gradients[i]), strict=True)
        rows = [tf.concat([array.concat(), x], axis=0) for array, x in pairs]
        if kind == "rows":
            sums[i] = rows[0]
            continue
        values, indices = rows
        shape = tf.constant([*sources[i].shape])
        sums[i] = tf.IndexedSlices(sums_once(indices, values), indices, shape)
    return sums
