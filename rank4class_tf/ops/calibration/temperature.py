"""The temperature at which probabilities fit labels best."""

import tensorflow as tf

from rank4class_tf._lists.lists import Lists
from rank4class_tf._tf.raising import same_sizes
from rank4class_tf.ops.projections.simplex import entropy_projection

# The inverse temperature is sought between 2**-100 and 2**100, to 2**-46 of its logarithm's base 2.
_RANGE = 100.0
_HALVINGS = 54


def best_temperature(lists: Lists, weights: tf.Tensor) -> tf.Tensor:
    r"""The temperature at which softmax has the least negative log-likelihood.

    $$\arg\min_T -\sum_i w_i \langle y_i, \log \mathrm{softmax}(z_i / T) \rangle$$

    with y shared equally by the positives. It is convex in 1 / T, with the slope
    $\sum_i w_i \langle z_i, \mathrm{softmax}(z_i / T) - y_i \rangle$, which grows with 1 / T: its
    zero is found by halving.

    Source: Guo et al. 2017, "On Calibration of Modern Neural Networks", section 4.2.

    Args:
        lists: `Lists`, float64.
        weights: `[batch]` float64, at least 0.

    Returns:
        A scalar: 0 where all positives have the highest scores, so that a lower temperature fits
        better and better; infinite where no positive has more than the mean score, on the average;
        NaN where a score is.

    Example:
        >>> from rank4class_tf import ops
        >>> scores = tf.constant([[4.0, 0.0], [4.0, 0.0], [4.0, 0.0], [4.0, 0.0]], tf.float64)
        >>> lists = ops.as_lists(scores, [0, 0, 0, 1])  # three of four: softmax of log(3)
        >>> temperature = best_temperature(lists, tf.ones([4], tf.float64))
        >>> round(float(temperature), 6), round(4 / float(tf.math.log(3.0)), 6)
        (3.640957, 3.640957)
    """
    rule = "`weights` must have a weight for each list."
    weights = same_sizes(tf.convert_to_tensor(weights), lists.positive_scores, rule)
    weights = tf.where(tf.reduce_any(lists.is_positive, axis=-1), weights, 0)
    lists = lists.from_top()
    number = tf.reduce_sum(tf.cast(lists.is_positive, lists.dtype), axis=-1)
    of_positives = tf.math.divide_no_nan(lists.sum_of_positives(lists.positive_scores), number)

    def mean(values):
        # A list of weight 0 may have any scores.
        return tf.reduce_sum(tf.math.multiply_no_nan(values - of_positives, weights))

    def slope(exponent):
        shares = entropy_projection(lists, alpha=tf.pow(two, exponent))
        return mean(tf.reduce_sum(lists.scores * shares, axis=-1))

    def halve(low, high):
        middle = (low + high) / 2
        falls = slope(middle) < 0
        return tf.where(falls, middle, low), tf.where(falls, high, middle)

    two = tf.constant(2.0, lists.dtype)
    ends = tf.constant(-_RANGE, lists.dtype), tf.constant(_RANGE, lists.dtype)
    low, high = tf.while_loop(lambda *_: True, halve, ends, maximum_iterations=_HALVINGS)
    temperature = tf.pow(two, -(low + high) / 2)
    # What the slope tends to at both ends: the highest score has all, or each has the same.
    coldest = mean(tf.zeros_like(of_positives))
    hottest = mean(tf.reduce_sum(lists.scores, axis=-1) / tf.maximum(lists.num_items, 1))
    temperature = tf.where(coldest <= 0, tf.zeros_like(two), temperature)
    temperature = tf.where((hottest >= 0) & (coldest > 0), two / 0, temperature)
    return tf.where(tf.math.is_nan(hottest), hottest, temperature)
