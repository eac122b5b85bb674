"""Soft ranks of all items by the Laplace distribution, in O(d log d)."""

from typing import Any

import tensorflow as tf

from rank4class_tf import _checks
from rank4class_tf._tf.raising import in_xla
from rank4class_tf.ops.ranking._best_first import best_first
from rank4class_tf.ops.ranking._powers_of_two import over_powers_of_two


@_checks.arguments
def laplace_ranks(scores: Any, temperature: float = 0.1, mask: Any = None) -> tf.Tensor:
    r"""Soft ranks of all items by the Laplace distribution.

    $$\pi(i) = 1 + \sum_{j \ne i} F\left(\frac{s_j - s_i}{T}\right), \qquad
    F(x) = \begin{cases} e^x / 2 & x < 0 \\ 1 - e^{-x} / 2 & x \ge 0 \end{cases}$$

    Along the sorted scores both kinds of terms are decaying sums, so that a list takes
    $O(d \log d)$. The ranks are as exact as their dtype holds them. The gradient takes two such
    sums more.

    Source: Struski et al. 2025 (LapSum) have the idea of the sums.

    Args:
        scores: `[batch, d]`, finite, $|s| \le 10^{30}$.
        temperature: T > 0. The smaller, the closer to the exact ranks, and the smaller the gradient
            of items that are far apart.
        mask: booleans `[batch, d]`, False for an item that changes nothing; None means that all
            count.

    Returns:
        `[batch, d]`, each in [1, d]; meaningless where masked.

    Example:
        >>> laplace_ranks([[3.0, 1.0, 1.0, 2.0]], temperature=0.01).numpy()
        array([[1. , 3.5, 3.5, 2. ]], dtype=float32)
    """
    scores = tf.convert_to_tensor(scores)
    mask = _checks.mask(mask, scores)

    @tf.custom_gradient
    def ranks(scores):
        items = best_first(scores, mask)
        places = tf.cast(tf.range(1, tf.shape(scores)[1] + 1), scores.dtype)
        above, below = _decaying_sums(items.scores, temperature, tf.ones_like(scores))

        def gradient(upstream):
            values = items.sort(upstream)
            # Only differences count. What is near a constant should lose no digits.
            values -= tf.reduce_mean(values, axis=1, keepdims=True)
            from_above, from_below = _decaying_sums(items.scores, temperature, values)
            pulls = from_above + from_below - values * (above + below)
            result = items.restore(pulls / (2 * temperature))
            return result if mask is None else tf.where(mask, result, tf.zeros_like(result))

        return items.restore(places + (below - above) / 2), gradient

    return ranks(scores)


def _decaying_sums(scores, temperature, values):
    r"""Sums $\sum_j e^{-|s_j - s_k| / T} v_j$ over $j \le k$ and over $j \ge k$.

    They double the number of summed neighbours with each power of two. Each factor is made from
    a difference of two scores: neither can it overflow, nor do rounding errors add up along the
    list, as they do where factors of neighbours are multiplied or offsets are common to all.

    Args:
        scores: `[batch, d]`, falling.
        temperature: > 0.
        values: `[batch, d]`.

    Returns:
        Two tensors `[batch, d]`.
    """

    def step(power, above, below):
        # Of each item and the one so many places above it; 0 where there is none.
        decay = tf.exp((scores - _moved(scores, power, scores.dtype.max)) / temperature)
        return above + decay * _moved(above, power), below + _moved(decay * below, power, left=True)

    return over_powers_of_two(step, scores.shape[1] or tf.shape(scores)[1], (values, values))


def _moved(rows, by, fill=0, left=False):
    """The rows moved to the right, or to the left."""
    if isinstance(by, int) or not in_xla():
        kept, pad = (rows[:, by:], [0, by]) if left else (rows[:, :-by], [by, 0])
        return tf.pad(kept, [[0, 0], pad], constant_values=fill)
    # XLA knows no slices of a size that a loop computes.
    by = -by if left else by
    places = tf.range(tf.shape(rows)[1]) - by
    inside = (places >= 0) & (places < tf.shape(rows)[1])
    return tf.where(inside, tf.roll(rows, by, axis=1), tf.cast(fill, rows.dtype))
