"""GumbelApproxMRRLoss."""

from rank4class_tf import _registry
from rank4class_tf.losses._gumbel_noise import GumbelNoise
from rank4class_tf.losses.approx_mrr_loss import ApproxMRRLoss


@_registry.register("loss")
class GumbelApproxMRRLoss(GumbelNoise, ApproxMRRLoss):
    """ApproxMRR, averaged over scores with Gumbel noise, fresh at each step.

    It is defined like `GumbelApproxNDCGLoss`, with ApproxMRR instead of ApproxNDCG.

    Source: Bruch et al. 2020, "A stochastic treatment of learning to rank scoring functions".

    Args:
        **kwargs: the arguments of `GumbelApproxNDCGLoss`, except `gain` and `discount`.

    Raises:
        ValueError: if a number is out of range.

    Example:
        >>> loss = GumbelApproxMRRLoss(seed=1)
        >>> float(loss([0], [[99.0, 0.0, 0.0]]))  # noise can't change this order
        -1.0
    """
