"""A loop over powers of two, with a limit that may be known only while running."""

from collections.abc import Callable

import tensorflow as tf


def over_powers_of_two(
    step: Callable[..., tuple], limit: int | tf.Tensor, state: tuple[tf.Tensor, ...]
) -> tuple[tf.Tensor, ...]:
    """Applies `state = step(power, *state)` for 1, 2, 4, ... below a limit.

    Args:
        step: takes the power, of the limit's type, and the state, and returns a state of the same
            shapes.
        limit: a scalar tensor, or an int, which unrolls the loop.
        state: tensors.

    Returns:
        The last state.
    """
    if isinstance(limit, int):
        power = 1
        while power < limit:
            state = step(power, *state)
            power *= 2
        return state

    def double(power, *state):
        stepped = zip(step(power, *state), state, strict=True)
        return 2 * power, *(tf.ensure_shape(new, old.shape) for new, old in stepped)

    _, *state = tf.while_loop(lambda power, *_: power < limit, double, (tf.constant(1), *state))
    return tuple(state)
