"""Which classes a step of extreme classification scores."""

import tensorflow as tf

from rank4class_tf import _random, ops
from rank4class_tf._types import TensorLike


def draw_own(positives: tf.Tensor, seed: TensorLike) -> tf.Tensor:
    """Draws one of the ids `[batch, P]` of each example, uniformly; 0 where all are padding."""
    if positives.shape[1] != 1:
        draws = ops.uniform(tf.shape(positives), _random.on_this_device(seed, 1))
        draws = tf.where(positives >= 0, draws, -1.0)
        positives = tf.gather(positives, tf.argmax(draws, axis=1), batch_dims=1)[:, tf.newaxis]
    return tf.maximum(positives[:, 0], 0)


def draw_negatives(num_classes: int, size: int, batch: TensorLike, seed: TensorLike) -> tf.Tensor:
    """Distinct class ids, uniformly.

    Args:
        num_classes: an int.
        size: how many; `num_classes` for all, in order.
        batch: None for a sample `[size]` that all examples and all devices share, or the number of
            examples, for `[batch, size]`.
        seed: two int64.
    """
    if size == num_classes:
        return tf.range(num_classes)
    if batch is None:
        return ops.sample_distinct(num_classes, size, seed)[0]
    return ops.sample_distinct(num_classes, size, _random.on_this_device(seed, 0), batch)
