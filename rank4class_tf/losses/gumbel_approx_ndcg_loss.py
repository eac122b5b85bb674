"""GumbelApproxNDCGLoss."""

from rank4class_tf import _checks, _keras, ops
from rank4class_tf.losses._random import RandomRankingLoss


@_keras.register
class GumbelApproxNDCGLoss(RandomRankingLoss):
    r"""ApproxNDCG, averaged over scores with Gumbel noise, fresh at each step.

    $$\ell(s, y) = \frac{1}{m} \sum_{t=1}^{m}
    \mathrm{ApproxNDCG}\left(\frac{s + G_t}{\beta}\right), \qquad
    G_{t,i} \sim \mathrm{Gumbel}(0, 1)$$

    Source: Bruch et al. 2020, "A stochastic treatment of learning to rank scoring functions";
    Rank4Class, section 4.1.

    Args:
        num_samples: m >= 1. Time grows with m, memory does not.
        gumbel_temperature: $\beta$ > 0; the smaller, the less the noise counts.
        temperature: T > 0 of ApproxNDCG's sigmoid.
        seed: integer >= 0. Losses with the same seed draw the same noise, call by call.
        **kwargs: `label_format`, `max_positives`, `reduction`, `name`: see `RankingLoss`.

    Raises:
        ValueError: if a number is out of range.

    Example:
        >>> loss = GumbelApproxNDCGLoss(seed=1)
        >>> float(loss([0], [[99.0, 0.0, 0.0]]))  # noise can't change this order
        -1.0
    """

    def __init__(self, num_samples=8, gumbel_temperature=1.0, temperature=0.1, seed=None, **kwargs):
        super().__init__(seed=seed, **kwargs)
        self.num_samples = _checks.positive_int("num_samples", num_samples)
        self.gumbel_temperature = _checks.positive_float("gumbel_temperature", gumbel_temperature)
        self.temperature = _checks.positive_float("temperature", temperature)

    def compute(self, scores, class_ids, relevance):
        """The formula."""
        return ops.gumbel_approx_ndcg_loss(
            scores,
            class_ids,
            relevance,
            num_samples=self.num_samples,
            gumbel_temperature=self.gumbel_temperature,
            temperature=self.temperature,
            seed=self.next_seed(),
        )
