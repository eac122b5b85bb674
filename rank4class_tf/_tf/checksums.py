"""Checksums that show whether weights have changed since they were last used."""

import tensorflow as tf

from rank4class_tf._tf.loops import fold_blocks
from rank4class_tf._types import Tensor

# Weights of at most so many numbers are summed word by word. Of larger ones, so many
# numbers are read at once: 8 times as many took 1.1 of the time, an eighth 2.4.
_WORDS = {1: tf.int8, 2: tf.int16, 4: tf.int32, 8: tf.int64}
_MOST_WORDS = 1 << 16
_READ_AT_ONCE = 1 << 19


def checksums(weights: list[tf.Variable]) -> list[Tensor]:
    """The checksum of each weight, an int64 scalar."""
    return [_of_weight(weight) for weight in weights]


def _of_weight(weight: tf.Variable) -> Tensor:
    size = weight.shape.num_elements()  # Keras 2 counts documents in `(None,)`.
    if size is None or size <= _MOST_WORDS:
        return _of_words(tf.convert_to_tensor(weight))

    # A large table has the checksum of its rows' sums. The words of a million rows of
    # 64 numbers would take more time to sum than a search of these rows takes. A change
    # that rounding hides in the sum of a row stays unseen.
    is_short = weight.dtype.is_floating and weight.dtype.size <= 4
    dtype = tf.float32 if is_short else tf.float64
    row_size = weight.shape[1:].num_elements()
    factors = tf.random.stateless_uniform([row_size, 1], [0, 2], 1, 2, dtype)

    # In blocks, since TensorFlow copies a table that it reads whole, once rows of it
    # have been looked up.
    def add_rows(rows: Tensor, total: Tensor) -> list[Tensor]:
        values = tf.reshape(tf.gather(weight, rows), [-1, row_size])
        return [3 * total + _of_words(tf.matmul(tf.cast(values, dtype), factors))]

    num_rows = weight.shape[0]
    rows_at_once = max(_READ_AT_ONCE // row_size, 1)
    zero = tf.constant(0, tf.int64)
    return fold_blocks(add_rows, num_rows, rows_at_once, [zero])[0]


def _of_words(values: Tensor) -> Tensor:
    """The sum of the words of some values, times odd numbers, so that swaps count."""
    values = tf.reshape(values, [-1])
    if values.dtype != tf.bool:
        values = tf.bitcast(values, _WORDS[values.dtype.size])
    # The sum of an even number of signs would be 0 in the words' own size.
    words = tf.cast(values, tf.int64)
    draws = tf.random.stateless_uniform([tf.size(words)], [0, 1], None, None, tf.int64)
    return tf.reduce_sum(words * (2 * draws + 1))
