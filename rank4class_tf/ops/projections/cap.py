"""The cap of a projection on the (n, k)-simplex."""

import tensorflow as tf

from rank4class_tf._types import TensorLike


def cap(top: tf.Tensor, tail: tf.Tensor, k: TensorLike) -> tuple[tf.Tensor, tf.Tensor]:
    r"""The width w for which $\sum_i \min(1, d_i / w) = k$.

    With $P_t$ the sum of the t largest $d_i$ and D the sum of all,

    $$w = \frac{D - P_t}{k - t}, \qquad
    t = \min \{ t : (k - t) \, d_{[t+1]} \le D - P_t \}$$

    Sums run from the smallest up, so that a large $d_{[1]}$ costs no digits.

    Source: Rankmax, Proposition 3.

    Args:
        top: `[..., K]`, the largest $d_i$, all positive, in falling order.
        tail: `[...]`, the sum of the others, >= 0.
        k: how many to select, at most K: an integer, or of the shape of `tail`.

    Returns:
        $D - P_t$ and the integer t, the number of $d_i$ that are cut, both of the shape of `tail`.
    """
    rest = tail[..., tf.newaxis] + tf.cumsum(top, axis=-1, reverse=True)
    left = tf.cast(k, top.dtype)[..., tf.newaxis] - tf.range(top.shape[-1], dtype=top.dtype)
    cut = tf.argmax(tf.cast(left * top <= rest, tf.int32), axis=-1, output_type=tf.int32)
    return tf.gather(rest, cut, batch_dims=cut.shape.rank), cut
