"""Parts of the interactions of encodings and candidates."""

import tensorflow as tf

# If all classes together have at least so many numbers, a product for each example takes less time
# than one of all pairs: .94 of it in a graph and .80 under XLA at 64 x 1,000, d = 2,048, u = 256,
# where memory falls from 1.6 GB to .3 GB. For 1,000 classes of 128 numbers the times are equal.
_MANY_NUMBERS = 100_000

# As in `tf.math.l2_normalize`: shorter rows keep a length below 1.
_LEAST_NORM = 1e-6


def latent_cross(encodings: tf.Tensor, candidates: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    r"""Multiplies each encoding, crossed with each candidate, by a kernel.

    $$z_i = \left(h \odot (1 + c_i)\right) W$$

    If candidates are many and W is narrow, each example has a kernel of its own,
    $(1 + c_i)\,\mathrm{diag}(h)\,W$, so that neither this nor the gradient forms the pairs
    `[batch, n, d]`.

    Source: Beutel et al. 2018, "Latent Cross"; Rank4Class, section 4.2.

    Args:
        encodings: h, `[batch, d]`.
        candidates: the c_i, `[n, d]` shared by all examples, or `[batch, n, d]`.
        kernel: W, `[d, u]`.

    Returns:
        `[batch, n, u]`.

    Example:
        >>> latent_cross(tf.constant([[2.0, 1.0]]), tf.constant([[0.5, 1.0]]), tf.eye(2)).numpy()
        array([[[3., 2.]]], dtype=float32)
    """
    n, units = candidates.shape[-2], kernel.shape[-1]
    narrow = n is not None and units is not None and units <= n
    # XLA cannot compile a loop over an empty batch.
    loops = narrow and candidates.shape.rank == 2 and encodings.shape[0] != 0
    if loops and n * (kernel.shape[0] or 0) >= _MANY_NUMBERS:
        return _by_example(encodings, candidates, kernel)
    pairs = encodings[:, tf.newaxis] * (1 + candidates)
    return tf.tensordot(pairs, kernel, axes=1)


@tf.custom_gradient
def _by_example(encodings, candidates, kernel):
    factors = 1 + candidates

    def of_example(encoding):
        return tf.matmul(factors, encoding[:, tf.newaxis] * kernel)

    def gradient(upstream):
        def add(example, of_encodings, of_candidates, of_kernel):
            encoding, of_product = encodings[example][:, tf.newaxis], upstream[example]
            of_own_kernel = tf.matmul(factors, of_product, transpose_a=True)
            of_encoding = tf.reduce_sum(kernel * of_own_kernel, axis=1)
            return (
                example + 1,
                of_encodings.write(example, of_encoding),
                of_candidates + tf.matmul(of_product, encoding * kernel, transpose_b=True),
                of_kernel + encoding * of_own_kernel,
            )

        batch = tf.shape(encodings)[0]
        rows = tf.TensorArray(encodings.dtype, batch, element_shape=encodings.shape[1:])
        start = (tf.constant(0), rows, tf.zeros_like(candidates), tf.zeros_like(kernel))
        _, rows, of_candidates, of_kernel = tf.while_loop(
            lambda example, *_: example < batch, add, start, parallel_iterations=1
        )
        return tf.reshape(rows.stack(), tf.shape(encodings)), of_candidates, of_kernel

    # One example after the other, since each uses all cores, and memory then holds only one.
    products = tf.map_fn(
        of_example,
        encodings,
        fn_output_signature=tf.TensorSpec([candidates.shape[0], kernel.shape[1]], encodings.dtype),
        parallel_iterations=1,
    )
    return products, gradient


@tf.custom_gradient
def unit_rows(rows: tf.Tensor) -> tf.Tensor:
    """As `tf.math.l2_normalize` of each row; rows near zero have no gradient.

    The gradient takes a third of the operations.

    Args:
        rows: `[..., d]`.

    Example:
        >>> unit_rows(tf.constant([[3.0, 4.0], [0.0, 0.0]])).numpy()
        array([[0.6, 0.8],
               [0. , 0. ]], dtype=float32)
    """
    lengths = norms(rows)
    unit = rows / lengths

    def gradient(upstream):
        along = tf.reduce_sum(upstream * unit, axis=-1, keepdims=True)
        # A row near zero has no direction. Divided by the least norm, its gradient would outweigh
        # all others: one example without features would turn all encodings to one side.
        factors = tf.where(lengths > _LEAST_NORM, 1 / lengths, 0.0)
        return (upstream - along * unit) * factors

    return unit, gradient


def norms(rows: tf.Tensor) -> tf.Tensor:
    """The length of each row of `[..., d]`, at least a millionth: `[..., 1]`.

    Dividing by it gives equal results for equal rows, wherever they stand. TensorFlow's `rsqrt` and
    reciprocal do not.
    """
    squares = tf.reduce_sum(tf.square(rows), axis=-1, keepdims=True)
    return tf.maximum(tf.sqrt(squares), _LEAST_NORM)
