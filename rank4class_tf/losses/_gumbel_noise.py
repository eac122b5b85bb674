"""What the losses with Gumbel noise share."""

from typing import Any

import tensorflow as tf

from rank4class_tf import _checks, _keras, ops
from rank4class_tf._tf.gradients import value_and_gradients
from rank4class_tf.losses._random import RandomRankingLoss


class GumbelNoise(RandomRankingLoss):
    r"""Averages a loss over scores with Gumbel noise, fresh at each step; goes before the loss.

    $$\frac{1}{m} \sum_{t=1}^{m} \ell\left(\frac{s + G_t}{\beta}\right), \qquad
    G_{t,i} \sim \mathrm{Gumbel}(0, 1)$$

    The paper takes the log-softmax of the noisy scores, which shifts all alike and changes nothing
    in a loss of differences. The samples are taken one after the other, so that memory does not
    grow with their number.

    Source: Bruch et al. 2020, "A stochastic treatment of learning to rank scoring functions".

    Example:
        >>> from rank4class_tf.losses import ApproxMRRLoss
        >>> class GumbelMRR(GumbelNoise, ApproxMRRLoss):
        ...     pass
        >>> float(GumbelMRR(num_samples=4, seed=1)([0], [[99.0, 0.0, 0.0]]))
        -1.0
    """

    def __init__(
        self, num_samples: int = 8, gumbel_temperature: float = 1.0, **kwargs: Any
    ) -> None:
        r"""Args of the noise.

        Args:
            num_samples: m >= 1. Time grows with m, memory does not.
            gumbel_temperature: $\beta$ > 0; the smaller, the less the noise counts.
            **kwargs: those of the loss, and `seed`: see `RandomRankingLoss`.

        Raises:
            ValueError: if a number is out of range.
        """
        super().__init__(**kwargs)
        self.num_samples = _checks.positive_int("num_samples", num_samples)
        self.gumbel_temperature = _checks.positive_float("gumbel_temperature", gumbel_temperature)

    def compute(self, lists: ops.Lists) -> tf.Tensor:
        """The formula."""
        compute, seed = _keras.with_autograph_of_caller(super().compute), self.next_seed()
        scale = 1 / self.gumbel_temperature

        def sample_loss(lists, sample):
            shape = [tf.shape(lists.relevance)[0], lists.num_columns_of_items]
            noise = ops.gumbel_noise(shape, ops.fold_in(seed, sample), lists.dtype)
            noisy = lists.shifted(noise)
            return compute(noisy if scale == 1 else noisy.scaled(scale))

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
                lambda sample, *_: sample < self.num_samples,
                add_sample,
                start,
                maximum_iterations=self.num_samples,
            )
            return total / self.num_samples, [g / self.num_samples for g in gradients]

        return lists.with_ready_gradients(mean)
