"""The mathematics of formulas, by NumPy's names, over TensorFlow.

A formula that reads `Lists` or `Ranks` and uses operators and slices takes from here what works
entry by entry or along an axis, and does not depend on TensorFlow by itself.
Custom gradients, loops, scatter and gather, assertions and dtypes' limits do not belong here.
"""

import tensorflow as tf

Tensor, newaxis, int32 = tf.Tensor, tf.newaxis, tf.int32
log, log1p, expm1, sign, ceil = tf.math.log, tf.math.log1p, tf.math.expm1, tf.sign, tf.math.ceil
maximum, minimum, clip = tf.maximum, tf.minimum, tf.clip_by_value
relu, softplus = tf.nn.relu, tf.math.softplus
isnan, isfinite, where, cast = tf.math.is_nan, tf.math.is_finite, tf.where, tf.cast
zeros_like, ones_like, arange = tf.zeros_like, tf.ones_like, tf.range
sum, max = tf.reduce_sum, tf.reduce_max
# x / y, and 0 where y is 0, in value and gradient.
divide_no_nan = tf.math.divide_no_nan


@tf.custom_gradient
def quick_softplus(x: tf.Tensor) -> tf.Tensor:
    """`log(1 + e^x)`, of one exponential and one logarithm for value and gradient."""
    # It takes less time than `softplus`, under XLA two thirds of it.
    sigmoid = tf.sigmoid(x)
    # log(1 - sigmoid(-|x|)), which is -log(1 + e^-|x|).
    log_rest = tf.math.log1p(-tf.minimum(sigmoid, 1 - sigmoid))
    return tf.nn.relu(x) - log_rest, lambda upstream: upstream * sigmoid
