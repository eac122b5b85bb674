"""Calibration error over bins of confidence."""

import tensorflow as tf


def calibration_bins(
    confidence: tf.Tensor, accuracy: tf.Tensor, weights: tf.Tensor, num_bins: int
) -> tf.Tensor:
    r"""Sums over the predictions in each bin of confidence $((b - 1) / M, b / M]$.

    Args:
        confidence: `[batch]` float64, in [0, 1].
        accuracy: `[batch]` float64, in [0, 1], whether each prediction is right.
        weights: `[batch]` float64.
        num_bins: M, a positive integer.

    Returns:
        `[3, M]` float64: of the weights, of the weighted confidence and of the weighted accuracy.
        The sums of two batches add up to those of both.

    Example:
        >>> x = tf.constant([0.2, 0.9], tf.float64)
        >>> calibration_bins(x, tf.zeros_like(x), tf.ones_like(x), num_bins=2).numpy()
        array([[1. , 1. ],
               [0.2, 0.9],
               [0. , 0. ]])
    """
    bins = tf.cast(tf.math.ceil(confidence * num_bins), tf.int32) - 1
    sums = tf.stack([weights, weights * confidence, weights * accuracy], axis=-1)
    bins = tf.clip_by_value(bins, 0, num_bins - 1)
    return tf.transpose(tf.math.unsorted_segment_sum(sums, bins, num_bins))


def expected_calibration_error(bins: tf.Tensor) -> tf.Tensor:
    r"""Mean over predictions of the gap between confidence and accuracy in their bin.

    $$\mathrm{ECE} = \sum_b \frac{|B_b|}{N} \left| \mathrm{acc}(B_b) - \mathrm{conf}(B_b) \right|$$

    Source: Naeini et al. 2015; Guo et al. 2017, "On Calibration of Modern Neural Networks",
    equation 3.

    Args:
        bins: `[3, M]` from `calibration_bins`.

    Returns:
        A scalar, 0 where there is no prediction.

    Example:
        >>> bins = tf.constant([[1.0, 3.0], [0.2, 2.7], [0.0, 3.0]], tf.float64)
        >>> round(float(expected_calibration_error(bins)), 6)  # (0.2 + 0.3) / 4
        0.125
    """
    weight, confidence, accuracy = tf.unstack(bins)
    gaps = tf.reduce_sum(tf.abs(accuracy - confidence))
    return tf.math.divide_no_nan(gaps, tf.reduce_sum(weight))
