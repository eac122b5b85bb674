"""The LSTM of `RecurrentSorter`, which reads lists from both ends and passes over masked items."""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from rank4class_tf._types import Tensor, TensorPair, Tensors


class LSTMWeights(NamedTuple):
    """Weights of one direction: `[features, 4 units]`, `[units, 4 units]` and `[4 units]`."""

    kernel: Tensor
    recurrent_kernel: Tensor
    bias: Tensor


def bidirectional_lstm(
    inputs: Tensor, forward: LSTMWeights, backward: LSTMWeights, mask: Tensor | None = None
) -> Tensor:
    r"""States of two LSTMs, one that reads from the front and one that reads from the end.

    $$c_t = \sigma(f_t + 1) c_{t-1} + \sigma(i_t) \tanh(g_t), \qquad
    h_t = \sigma(o_t) \tanh(c_t), \qquad [i, f, o, g]_t = W x_t + U h_{t-1} + b$$

    A masked item leaves the state unchanged, so that the others get the same as without it. Keras's
    layer requires masked items at the end, and on a GPU other kernels.

    Source: Hochreiter and Schmidhuber 1997, with forget gates (Gers et al. 2000), whose bias
    starts at 1 (Jozefowicz et al. 2015).

    Inputs `[batch, d, features]` are finite also at masked items; the result is
    `[batch, d, 2 units]`.
    """
    length = inputs.shape[1] or tf.shape(inputs)[1]
    units = forward.recurrent_kernel.shape[0]
    # One product serves all items; only the product with the state must go step by step.
    # The gradient of a slice would hold all steps at each step.
    from_front, from_end = (
        tf.TensorArray(inputs.dtype, length).unstack(tf.transpose(gates, [1, 0, 2]))
        for gates in (
            inputs @ forward.kernel + forward.bias,
            (inputs @ backward.kernel + backward.bias)[:, ::-1],
        )
    )
    present = None if mask is None else tf.transpose(mask)[:, :, None]

    def step(
        gates: Tensor, recurrent_kernel: Tensor, state: Tensor, cell: Tensor, present: Tensor | None
    ) -> TensorPair:
        i, f, o, g = tf.split(gates + state @ recurrent_kernel, 4, axis=1)
        new_cell = tf.sigmoid(f + 1) * cell + tf.sigmoid(i) * tf.tanh(g)
        new_state = tf.sigmoid(o) * tf.tanh(new_cell)
        if present is None:
            return new_state, new_cell
        return tf.where(present, new_state, state), tf.where(present, new_cell, cell)

    def body(t: Tensor, states: Tensors, cells: Tensors, states_so_far: Sequence) -> tuple:
        here = (None, None) if present is None else (present[t], present[length - 1 - t])
        first = step(from_front.read(t), forward.recurrent_kernel, states[0], cells[0], here[0])
        second = step(from_end.read(t), backward.recurrent_kernel, states[1], cells[1], here[1])
        of_front, of_end = states_so_far
        written = of_front.write(t, first[0]), of_end.write(t, second[0])
        return t + 1, (first[0], second[0]), (first[1], second[1]), written

    zeros = tf.zeros_like(tf.reduce_sum(inputs, axis=1)[:, :1] * forward.bias[:units])
    arrays = tuple(
        tf.TensorArray(inputs.dtype, length, element_shape=zeros.shape) for _ in range(2)
    )
    start = (0, (zeros, zeros), (zeros, zeros), arrays)
    *_, (of_front, of_end) = tf.while_loop(
        lambda t, *_: t < length, body, start, maximum_iterations=length
    )
    both = [of_front.stack(), of_end.stack()[::-1]]
    return tf.transpose(tf.concat(both, axis=2), [1, 0, 2])
