"""Exact ranks, as a sorter and by SciPy."""

import numpy as np
import scipy.stats
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import layers


@keras.utils.register_keras_serializable()
class ExactSorter(layers.Sorter):
    """Ranks by comparing all pairs; without a gradient."""

    def soft_ranks(self, scores, mask):
        above = scores[:, tf.newaxis] > scores[..., tf.newaxis]
        if mask is not None:
            above &= mask[:, tf.newaxis]
        return 1 + tf.reduce_sum(tf.cast(above, scores.dtype), axis=-1)


def ranks(values):
    """Descending, 1-based."""
    return scipy.stats.rankdata(-np.asarray(values))
