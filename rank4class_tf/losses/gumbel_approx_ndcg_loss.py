"""GumbelApproxNDCGLoss."""

from rank4class_tf import _registry
from rank4class_tf.losses._gumbel_noise import GumbelNoise
from rank4class_tf.losses.approx_ndcg_loss import ApproxNDCGLoss


@_registry.register("loss")
class GumbelApproxNDCGLoss(GumbelNoise, ApproxNDCGLoss):
    r"""ApproxNDCG, averaged over scores with Gumbel noise, fresh at each step.

    $$\ell(s, y) = \frac{1}{m} \sum_{t=1}^{m}
    \mathrm{ApproxNDCG}\left(\frac{s + G_t}{\beta}\right), \qquad
    G_{t,i} \sim \mathrm{Gumbel}(0, 1)$$

    Weights of items become the weight $\sum_i w_i y_i / \sum_i y_i$ of the list, as in TF-Ranking.

    Source: Bruch et al. 2020, "A stochastic treatment of learning to rank scoring functions";
    Rank4Class, section 4.1.

    Args:
        num_samples: m >= 1. Time grows with m, memory does not.
        gumbel_temperature: $\beta$ > 0; the smaller, the less the noise counts.
        temperature: T > 0 of ApproxNDCG's sigmoid.
        seed: integer >= 0. Losses with the same seed draw the same noise, step by step.
        ranker: ranks the items instead of the sigmoid; see `MetricLoss`.
        gain: see `ApproxNDCGLoss`.
        discount: see `ApproxNDCGLoss`.
        **kwargs: `label_format`, `class_weight`, `reduction` and more: see `RankingLoss`.

    Raises:
        ValueError: if a number is out of range.

    Example:
        >>> loss = GumbelApproxNDCGLoss(seed=1)
        >>> float(loss([0], [[99.0, 0.0, 0.0]]))  # noise can't change this order
        -1.0
    """
