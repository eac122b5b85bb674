"""SamplingProbabilityCorrection."""

from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _keras
from rank4class_tf._tf.gather import indices
from rank4class_tf.layers._columns import of_columns, scores_and_columns


@_keras.register
class SamplingProbabilityCorrection(keras.layers.Layer):
    r"""Log-Q correction: makes a softmax over samples estimate a softmax over all candidates.

    $$s_j - \log E_j$$

    for a negative that is expected $E_j$ times among the negatives. $E_j$ is the number of draws
    times its probability. The positive, which is not drawn, keeps its score. Then
    $e^{s_y} + \sum_j e^{s_j} / E_j$ has the expectation $\sum_i e^{s_i}$ over all candidates, if no
    negative is the positive (`RemoveAccidentalHits`).

    It is for `SoftmaxLoss` and similar losses. A temperature must divide the scores before this
    layer, not in the loss. TensorFlow's `sampled_softmax_loss` corrects the positive's score too;
    then the sum has another expectation.

    Source: Bengio and Senécal 2008; Yi et al. 2019, "Sampling-Bias-Corrected Neural Modeling for
    Large Corpus Item Recommendations".

    Args:
        **kwargs: arguments of Keras, such as `name`. `dtype` is float32 unless given.

    Inputs: scores `[batch, n]`; labels `[batch]` or `[batch, P]`, the columns of the positives, -1
    for none; and expected counts, > 0, `[n]` shared by all lists or `[batch, n]`.

    Output: scores `[batch, n]`; NaN for a negative whose expected count is not > 0, or is infinite.

    Raises:
        ValueError: if a shape is wrong or a column does not exist; under XLA, a list with such a
            column gets a NaN instead.

    Example:
        >>> scores, labels, counts = [[3.0, 1.0, 2.0]], [0], [0.5, 1.0, 2.0]
        >>> SamplingProbabilityCorrection()(*map(tf.constant, (scores, labels, counts))).numpy()
        array([[3.       , 1.       , 1.3068528]], dtype=float32)
    """

    def __init__(self, **kwargs: Any) -> None:
        # Half precision would make small counts 0.
        super().__init__(**{"dtype": "float32", **kwargs})

    def call(self, scores: Any, labels: Any, expected_counts: Any) -> tf.Tensor:
        """Returns the corrected scores."""
        scores, column, there, zero = scores_and_columns(scores, labels)
        counts = of_columns("expected_counts", expected_counts, scores)
        counts = tf.cast(counts, scores.dtype)
        # The logarithm of other counts is infinite or does not exist.
        right = (counts > 0) & tf.math.is_finite(counts)
        counts = tf.where(right, counts, tf.constant(float("nan"), scores.dtype))
        logs = tf.broadcast_to(tf.math.log(counts), tf.shape(scores))
        # That of a positive, which may be NaN, becomes 0.
        some = tf.reduce_any(there, axis=1, keepdims=True)
        own = tf.where(some, zero, tf.gather(logs, column, batch_dims=1) + zero)
        return scores - tf.tensor_scatter_nd_update(logs, indices(column), own)
