"""The LSTM of `RecurrentSorter`, which reads lists from both ends and skips masked items."""

import tensorflow as tf

from rank4class_tf._types import Tensor, Tensors


def bidirectional_lstm(
    inputs: Tensor, forward: Tensors, backward: Tensors, mask: Tensor | None = None
) -> Tensor:
    """States `[batch, d, 2 units]` of two LSTMs that read `[batch, d, features]` from both ends."""
    # The weights of a direction are a kernel `[features, 4 units]`, a recurrent kernel
    # `[units, 4 units]` and a bias `[4 units]`. A masked item leaves the state unchanged, so that
    # the states of the others are the same as without it; its inputs must be finite. Keras's layer
    # requires masked items at the end, and has other kernels on a GPU.
    states = []
    for (kernel, recurrent_kernel, bias), stride in ((forward, 1), (backward, -1)):
        # One product serves all items; only the product with the state must go step by step.
        gates = (inputs @ kernel + bias)[:, ::stride]
        ordered_mask = None if mask is None else mask[:, ::stride]
        states.append(_states(gates, recurrent_kernel, ordered_mask)[:, ::stride])
    return tf.concat(states, axis=2)


def _states(gates: Tensor, recurrent_kernel: Tensor, mask: Tensor | None) -> Tensor:
    """States `[batch, d, units]` of an LSTM, from gates `[batch, d, 4 units]` of the inputs."""
    # Hochreiter and Schmidhuber 1997, with forget gates (Gers et al. 2000), whose bias starts at 1
    # (Jozefowicz et al. 2015). The gradient of a slice of `gates` would have the size of all steps.
    length = gates.shape[1] or tf.shape(gates)[1]
    step_gates = tf.TensorArray(gates.dtype, length).unstack(tf.transpose(gates, [1, 0, 2]))
    is_present = None if mask is None else tf.transpose(mask)[:, :, None]

    def step(t: Tensor, state: Tensor, cell: Tensor, states: tf.TensorArray) -> tuple:
        i, f, o, g = tf.split(step_gates.read(t) + state @ recurrent_kernel, 4, axis=1)
        new_cell = tf.sigmoid(f + 1) * cell + tf.sigmoid(i) * tf.tanh(g)
        new_state = tf.sigmoid(o) * tf.tanh(new_cell)
        if is_present is not None:
            new_cell = tf.where(is_present[t], new_cell, cell)
            new_state = tf.where(is_present[t], new_state, state)
        return t + 1, new_state, new_cell, states.write(t, new_state)

    # A sum, since a list may have no item to slice.
    zeros = tf.zeros_like(tf.reduce_sum(gates, axis=1)[:, : recurrent_kernel.shape[0]])
    states = tf.TensorArray(gates.dtype, length, element_shape=zeros.shape)
    *_, states = tf.while_loop(
        lambda t, *_: t < length, step, (0, zeros, zeros, states), maximum_iterations=length
    )
    return tf.transpose(states.stack(), [1, 0, 2])
