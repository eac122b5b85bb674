"""Calibration error over bins of confidence."""

import tensorflow as tf

from rank4class_tf import _checks


@_checks.arguments
def calibration_bins(confidence: tf.Tensor, num_bins: int) -> tf.Tensor:
    r"""The bin $((b - 1) / M, b / M]$ of each confidence, counted from 0.

    Args:
        confidence: `[batch]`, in [0, 1].
        num_bins: M, a positive integer.

    Returns:
        `[batch]` int32.

    Example:
        >>> calibration_bins(tf.constant([0.0, 0.5, 0.51]), num_bins=2).numpy()
        array([0, 0, 1], dtype=int32)
    """
    bins = tf.cast(tf.math.ceil(confidence * num_bins), tf.int32) - 1
    return tf.clip_by_value(bins, 0, num_bins - 1)


def expected_calibration_error(sums: tf.Tensor) -> tf.Tensor:
    r"""Mean over predictions of the gap between confidence and accuracy in their bin.

    $$\mathrm{ECE} = \sum_b \frac{|B_b|}{N} \left| \mathrm{acc}(B_b) - \mathrm{conf}(B_b) \right|$$

    Source: Naeini et al. 2015; Guo et al. 2017, "On Calibration of Modern Neural Networks",
    equation 3.

    Args:
        sums: `[M, 3]`, over the predictions in each bin: of the weights, of the weighted confidence
            and of the weighted accuracy.

    Returns:
        A scalar, 0 where there is no prediction.

    Example:
        >>> sums = tf.constant([[1.0, 0.2, 0.0], [3.0, 2.7, 3.0]])
        >>> round(float(expected_calibration_error(sums)), 6)  # (0.2 + 0.3) / 4
        0.125
    """
    weight, confidence, accuracy = tf.unstack(sums, axis=-1)
    gaps = tf.reduce_sum(tf.abs(accuracy - confidence))
    return tf.math.divide_no_nan(gaps, tf.reduce_sum(weight))
