"""Losses averaged over scores with Gumbel noise (Bruch et al. 2020)."""

from collections.abc import Callable

import tensorflow as tf

from rank4class_tf import _checks
from rank4class_tf._lists.lists import Lists
from rank4class_tf._tf.gradients import value_and_gradients
from rank4class_tf._types import TensorLike
from rank4class_tf.ops.sampling import random


@_checks.arguments
def mean_over_gumbel_noise(
    loss: Callable[[Lists], tf.Tensor],
    lists: Lists,
    *,
    num_samples: int = 8,
    gumbel_temperature: float = 1.0,
    seed: TensorLike = (0, 0),
) -> tf.Tensor:
    r"""The mean of a loss over scores with Gumbel noise.

    $$\frac{1}{m} \sum_{t=1}^{m} \ell\left(\frac{s + G_t}{\beta}\right), \qquad
    G_{t,i} \sim \mathrm{Gumbel}(0, 1)$$

    The paper takes the log-softmax of the noisy scores, which shifts all alike and changes nothing
    in a loss of differences. The samples are taken one after the other, so that memory does not
    grow with their number.

    Source: Bruch et al. 2020, "A stochastic treatment of learning to rank scoring functions".

    Args:
        loss: maps `Lists` to `[batch]`.
        lists: `Lists`.
        num_samples: m >= 1.
        gumbel_temperature: $\beta$ > 0; the smaller, the less the noise counts.
        seed: two integers. The same seed gives the same noise, in all modes.

    Returns:
        `[batch]`.
    """

    def sample_loss(lists, sample):
        shape = [tf.shape(lists.relevance)[0], lists.num_columns_of_items]
        noise = gumbel_noise(shape, random.fold_in(seed, sample), lists.dtype)
        noisy = lists.shifted(noise)
        return loss(noisy if gumbel_temperature == 1 else noisy.scaled(1 / gumbel_temperature))

    def mean(lists, *tensors):
        def add_sample(sample, total, gradients):
            value, new = value_and_gradients(
                lambda *tensors: sample_loss(lists.on(*tensors), sample), *tensors
            )
            added = [old + more for old, more in zip(gradients, new, strict=True)]
            return sample + 1, total + value, added

        start = (
            tf.constant(0),
            tf.zeros_like(tensors[0][:, 0]),
            [tf.zeros_like(x) for x in tensors],
        )
        _, total, gradients = tf.while_loop(
            lambda sample, *_: sample < num_samples,
            add_sample,
            start,
            maximum_iterations=num_samples,
        )
        return total / num_samples, [g / num_samples for g in gradients]

    return lists.with_ready_gradients(mean)


def gumbel_noise(shape: TensorLike, seed: TensorLike, dtype: tf.DType = tf.float32) -> tf.Tensor:
    r"""Independent draws of the standard Gumbel distribution, $-\log(-\log U)$.

    Args:
        shape: of the result.
        seed: two integers.
        dtype: floating type.

    Returns:
        A tensor of finite values; their mean is Euler's constant, 0.577, their variance π² / 6.

    Example:
        >>> round(float(tf.reduce_mean(gumbel_noise([10_000], seed=[1, 2]))), 1)
        0.6
    """
    dtype = tf.as_dtype(dtype)
    # Half precision rounds draws to 0 and 1.
    draws = random.uniform(shape, seed, dtype if dtype.size > 2 else tf.float32)
    return tf.cast(-tf.math.log(-tf.math.log(draws)), dtype)
