"""Keras losses that treat classification as ranking."""

from typing import Any

from rank4class_tf import _registry
from rank4class_tf.losses.base import RandomRankingLoss, RankingLoss, WeightedSumLoss
from rank4class_tf.losses.metric import (
    ApproxMRRLoss,
    ApproxNDCGLoss,
    GumbelApproxMRRLoss,
    GumbelApproxNDCGLoss,
    GumbelNoise,
    MetricLoss,
)
from rank4class_tf.losses.noisy import (
    ForwardCorrectionLoss,
    GeneralizedCrossEntropyLoss,
    estimate_transition,
)
from rank4class_tf.losses.ordered import (
    OrderedLoss,
    OrderedWeightedLoss,
    StochasticNegativeMiningLoss,
    WARPLoss,
)
from rank4class_tf.losses.pairwise import (
    MeanSquaredLoss,
    PairwiseHingeLoss,
    PairwiseLogisticLoss,
    PairwiseMeanSquaredLoss,
    PairwiseSoftZeroOneLoss,
    SigmoidCrossEntropyLoss,
    gbce_power,
)
from rank4class_tf.losses.projections import (
    FenchelYoungLoss,
    RankmaxLoss,
    SparsemaxLoss,
)
from rank4class_tf.losses.softmax import (
    ListMLELoss,
    SoftmaxLoss,
    UniqueSoftmaxLoss,
    class_prior,
)
from rank4class_tf.losses.sorted import (
    MeanAveragePrecisionLoss,
    RankTripletLoss,
    SorterLoss,
    SpearmanLoss,
)
from rank4class_tf.ops import (
    NDCGLambdaWeights,
    PowerLawWeights,
    StaircaseWeights,
    TopKWeights,
    UniformWeights,
)

__all__ = ["SoftmaxLoss", "class_prior", "UniqueSoftmaxLoss", "ListMLELoss"]
__all__ += ["RankmaxLoss", "SparsemaxLoss", "FenchelYoungLoss"]
__all__ += [
    "GeneralizedCrossEntropyLoss",
    "ForwardCorrectionLoss",
    "estimate_transition",
]
__all__ += [
    "ApproxNDCGLoss",
    "ApproxMRRLoss",
    "GumbelApproxNDCGLoss",
    "GumbelApproxMRRLoss",
]
__all__ += ["PairwiseLogisticLoss", "PairwiseHingeLoss", "PairwiseSoftZeroOneLoss"]
__all__ += ["PairwiseMeanSquaredLoss", "NDCGLambdaWeights"]
__all__ += ["MeanSquaredLoss", "SigmoidCrossEntropyLoss", "gbce_power"]
__all__ += ["OrderedWeightedLoss", "StochasticNegativeMiningLoss", "WARPLoss"]
__all__ += ["TopKWeights", "UniformWeights", "PowerLawWeights", "StaircaseWeights"]
__all__ += [
    "SpearmanLoss",
    "MeanAveragePrecisionLoss",
    "RankTripletLoss",
    "WeightedSumLoss",
    "get",
]
__all__ += [
    "RankingLoss",
    "RandomRankingLoss",
    "MetricLoss",
    "GumbelNoise",
    "OrderedLoss",
]
__all__ += ["SorterLoss"]


def get(
    identifier: str | dict | RankingLoss | SorterLoss | WeightedSumLoss,
    /,
    **kwargs: Any,
) -> RankingLoss | SorterLoss | WeightedSumLoss:
    """Returns a loss by name, such as `"rankmax_loss"`.

    Args:
        identifier: a name, a serialized config, or a loss, which is returned as it is.
        **kwargs: constructor arguments, with a name only.

    Example:
        >>> get("rankmax_loss", margin=2.0).margin
        2.0
    """
    return _registry.get(
        "loss", (RankingLoss, SorterLoss, WeightedSumLoss), identifier, **kwargs
    )
