"""Soft ranks of all items by the Laplace distribution, in O(d log d)."""

import tensorflow as tf

from rank4class_tf._tf.raising import in_xla
from rank4class_tf._types import TensorLike
from rank4class_tf.ops.ranking._best_first import best_first
from rank4class_tf.ops.ranking._powers_of_two import over_powers_of_two


def laplace_ranks(
    scores: TensorLike, temperature: float, mask: tf.Tensor | None = None
) -> tf.Tensor:
    """The ranks of `layers.LaplaceSorter`, which has the formula.

    Along the sorted scores the terms from above and from below are decaying sums, so that a list
    takes O(d log d). The ranks are as exact as their dtype. The gradient takes two more such sums.

    The arguments and the result are those of `all_sigmoid_ranks`.
    """
    scores = tf.convert_to_tensor(scores)

    @tf.custom_gradient
    def ranks(scores):
        items = best_first(scores, mask)
        places = tf.cast(tf.range(1, tf.shape(scores)[1] + 1), scores.dtype)
        above, below = _decaying_sums(items.scores, temperature, tf.ones_like(scores))

        def gradient(upstream):
            values = items.sort(upstream)
            # Only differences count, so subtracting the mean keeps their digits.
            values -= tf.reduce_mean(values, axis=1, keepdims=True)
            from_above, from_below = _decaying_sums(items.scores, temperature, values)
            pulls = from_above + from_below - values * (above + below)
            result = items.restore(pulls / (2 * temperature))
            return result if mask is None else tf.where(mask, result, tf.zeros_like(result))

        return items.restore(places + (below - above) / 2), gradient

    return ranks(scores)


def _decaying_sums(scores, temperature, values):
    r"""Sums $\sum_j e^{-|s_j - s_k| / T} v_j$ over $j \le k$ and over $j \ge k$.

    Each power of two doubles the number of neighbours in a sum. Each factor comes from a difference
    of two scores, so it cannot overflow, and rounding errors do not add up along the list, as they
    would if we multiplied factors of neighbours or subtracted one offset from all.

    Args:
        scores: `[batch, d]`, falling.
        temperature: > 0.
        values: `[batch, d]`.

    Returns:
        Two tensors `[batch, d]`.
    """

    def step(power, above, below):
        # The decay from the item so many places above; 0 where the list has no such item.
        decay = tf.exp((scores - _moved(scores, power, scores.dtype.max)) / temperature)
        return above + decay * _moved(above, power), below + _moved(decay * below, power, left=True)

    return over_powers_of_two(step, scores.shape[1] or tf.shape(scores)[1], (values, values))


def _moved(rows, by, fill=0, left=False):
    """The rows moved to the right, or to the left."""
    if isinstance(by, int) or not in_xla():
        kept, pad = (rows[:, by:], [0, by]) if left else (rows[:, :-by], [by, 0])
        return tf.pad(kept, [[0, 0], pad], constant_values=fill)
    # XLA cannot take slices whose size a loop computes.
    by = -by if left else by
    places = tf.range(tf.shape(rows)[1]) - by
    inside = (places >= 0) & (places < tf.shape(rows)[1])
    return tf.where(inside, tf.roll(rows, by, axis=1), tf.cast(fill, rows.dtype))
