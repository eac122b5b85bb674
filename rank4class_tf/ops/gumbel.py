"""Losses on scores with Gumbel noise."""

import tensorflow as tf

from rank4class_tf.ops import random
from rank4class_tf.ops._ready_gradients import with_ready_gradients
from rank4class_tf.ops.approx import approx_ndcg_loss


def gumbel_approx_ndcg_loss(
    scores,
    class_ids,
    relevance=None,
    num_samples=8,
    gumbel_temperature=1.0,
    temperature=0.1,
    seed=(0, 0),
):
    r"""ApproxNDCG, averaged over scores with Gumbel noise.

    $$\frac{1}{m} \sum_{t=1}^{m} \mathrm{ApproxNDCG}\left(\frac{s + G_t}{\beta}\right), \qquad
    G_{t,i} \sim \mathrm{Gumbel}(0, 1)$$

    The paper takes the log-softmax of the noisy scores, which shifts all alike and changes nothing
    here. The samples are taken one after the other, so that memory does not grow with their number.

    Source: Bruch et al. 2020, "A stochastic treatment of learning to rank scoring functions".

    Args:
        scores: `[batch, n]`; -inf marks an item that is not there.
        class_ids: `[batch, P]` integers, padded with -1.
        relevance: `[batch, P]`, the label of each positive; None means 1.
        num_samples: m >= 1.
        gumbel_temperature: $\beta$ > 0; the smaller, the less the noise counts.
        temperature: > 0, of ApproxNDCG's sigmoid.
        seed: two integers. The same seed gives the same noise, in all modes.

    Returns:
        `[batch]`, in [-1, 0]; 0 for a list without positives.

    Example:
        >>> gumbel_approx_ndcg_loss([[99.0, 0.0, 0.0]], [[0]]).numpy()  # noise can't change this
        array([-1.], dtype=float32)
    """
    scores = tf.convert_to_tensor(scores)

    def sample_loss(scores, sample):
        sample_seed = random.fold_in(seed, sample)
        noisy = scores - _negative_gumbel_noise(tf.shape(scores), sample_seed, scores.dtype)
        # A temperature of the scores is one of the sigmoid, at no further cost.
        return approx_ndcg_loss(noisy, class_ids, relevance, temperature * gumbel_temperature)

    def mean(scores):
        def add_sample(sample, total, gradient):
            with tf.GradientTape() as tape:
                tape.watch(scores)
                losses = sample_loss(scores, sample)
            return sample + 1, total + losses, gradient + tape.gradient(losses, scores)

        start = (tf.constant(0), tf.zeros_like(scores[:, 0]), tf.zeros_like(scores))
        _, total, gradient = tf.while_loop(
            lambda sample, *_: sample < num_samples, add_sample, start
        )
        return total / num_samples, [gradient / num_samples]

    return with_ready_gradients(mean, scores)


def gumbel_noise(shape, seed, dtype=tf.float32):
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
    return -_negative_gumbel_noise(shape, seed, dtype)


def _negative_gumbel_noise(shape, seed, dtype):
    return tf.math.log(-tf.math.log(random.uniform(shape, seed, dtype)))
