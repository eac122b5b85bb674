"""GumbelApproxMRRLoss."""

from rank4class_tf import _registry
from rank4class_tf.losses._gumbel_noise import GumbelNoise
from rank4class_tf.losses.approx_mrr_loss import ApproxMRRLoss


@_registry.register("loss")
class GumbelApproxMRRLoss(GumbelNoise, ApproxMRRLoss):
    r"""ApproxMRR, averaged over scores with Gumbel noise, fresh at each step.

    $$\ell(s, y) = \frac{1}{m} \sum_{t=1}^{m}
    \mathrm{ApproxMRR}\left(\frac{s + G_t}{\beta}\right), \qquad
    G_{t,i} \sim \mathrm{Gumbel}(0, 1)$$

    Source: Bruch et al. 2020, "A stochastic treatment of learning to rank scoring functions".

    Args:
        num_samples: m >= 1. Time grows with m, memory does not.
        gumbel_temperature: $\beta$ > 0; the smaller, the less the noise counts.
        temperature: T > 0 of ApproxMRR's sigmoid.
        seed: integer >= 0. Losses with the same seed draw the same noise, step by step.
        ranker: what ranks the items in the sigmoid's place; see `MetricLoss`.
        **kwargs: `label_format`, `class_weight`, `reduction` and more: see `RankingLoss`.

    Raises:
        ValueError: if a number is out of range.

    Example:
        >>> loss = GumbelApproxMRRLoss(seed=1)
        >>> float(loss([0], [[99.0, 0.0, 0.0]]))  # noise can't change this order
        -1.0
    """
