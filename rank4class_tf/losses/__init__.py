"""Keras losses that treat classification as ranking."""

from typing import Any

from rank4class_tf import _registry
from rank4class_tf.losses._base import RankingLoss
from rank4class_tf.losses._class_prior import class_prior
from rank4class_tf.losses._gumbel_noise import GumbelNoise
from rank4class_tf.losses._metric_loss import MetricLoss
from rank4class_tf.losses._ordered import OrderedLoss
from rank4class_tf.losses._random import RandomRankingLoss
from rank4class_tf.losses._sorter_loss import SorterLoss
from rank4class_tf.losses.alignment_schedule import AlignmentSchedule
from rank4class_tf.losses.approx_mrr_loss import ApproxMRRLoss
from rank4class_tf.losses.approx_ndcg_loss import ApproxNDCGLoss
from rank4class_tf.losses.fenchel_young_loss import FenchelYoungLoss
from rank4class_tf.losses.forward_correction_loss import ForwardCorrectionLoss, estimate_transition
from rank4class_tf.losses.generalized_cross_entropy_loss import GeneralizedCrossEntropyLoss
from rank4class_tf.losses.gumbel_approx_mrr_loss import GumbelApproxMRRLoss
from rank4class_tf.losses.gumbel_approx_ndcg_loss import GumbelApproxNDCGLoss
from rank4class_tf.losses.list_mle_loss import ListMLELoss
from rank4class_tf.losses.mean_average_precision_loss import MeanAveragePrecisionLoss
from rank4class_tf.losses.mean_squared_loss import MeanSquaredLoss
from rank4class_tf.losses.ordered_weighted_loss import OrderedWeightedLoss
from rank4class_tf.losses.pairwise_hinge_loss import PairwiseHingeLoss
from rank4class_tf.losses.pairwise_logistic_loss import PairwiseLogisticLoss
from rank4class_tf.losses.rank_triplet_loss import RankTripletLoss
from rank4class_tf.losses.rankmax_loss import RankmaxLoss
from rank4class_tf.losses.softmax_loss import SoftmaxLoss
from rank4class_tf.losses.sparsemax_loss import SparsemaxLoss
from rank4class_tf.losses.spearman_loss import SpearmanLoss
from rank4class_tf.losses.stochastic_negative_mining_loss import StochasticNegativeMiningLoss
from rank4class_tf.losses.temperature_annealing import TemperatureAnnealing
from rank4class_tf.losses.unique_softmax_loss import UniqueSoftmaxLoss
from rank4class_tf.losses.warp_loss import WARPLoss
from rank4class_tf.losses.weighted_sum_loss import WeightedSumLoss
from rank4class_tf.ops import (
    NDCGLambdaWeights,
    PowerLawWeights,
    StaircaseWeights,
    TopKWeights,
    UniformWeights,
)

__all__ = [
    "AlignmentSchedule",
    "ApproxMRRLoss",
    "ApproxNDCGLoss",
    "FenchelYoungLoss",
    "ForwardCorrectionLoss",
    "GeneralizedCrossEntropyLoss",
    "GumbelApproxMRRLoss",
    "GumbelApproxNDCGLoss",
    "GumbelNoise",
    "ListMLELoss",
    "MeanAveragePrecisionLoss",
    "MeanSquaredLoss",
    "MetricLoss",
    "NDCGLambdaWeights",
    "OrderedLoss",
    "OrderedWeightedLoss",
    "PairwiseHingeLoss",
    "PairwiseLogisticLoss",
    "PowerLawWeights",
    "RandomRankingLoss",
    "RankTripletLoss",
    "RankingLoss",
    "RankmaxLoss",
    "SoftmaxLoss",
    "SorterLoss",
    "SparsemaxLoss",
    "SpearmanLoss",
    "StaircaseWeights",
    "StochasticNegativeMiningLoss",
    "TemperatureAnnealing",
    "TopKWeights",
    "UniformWeights",
    "UniqueSoftmaxLoss",
    "WARPLoss",
    "WeightedSumLoss",
    "class_prior",
    "estimate_transition",
    "get",
]


def get(
    identifier: str | dict | RankingLoss | SorterLoss | WeightedSumLoss, /, **kwargs: Any
) -> RankingLoss | SorterLoss | WeightedSumLoss:
    """Returns a loss by name, such as `"rankmax_loss"`.

    Args:
        identifier: a name, a serialized config, or a loss, which is returned as it is.
        **kwargs: constructor arguments, with a name only.

    Raises:
        ValueError: if the name is unknown; the error lists the known ones.

    Example:
        >>> get("rankmax_loss", margin=2.0).margin
        2.0
    """
    return _registry.get("loss", (RankingLoss, SorterLoss, WeightedSumLoss), identifier, **kwargs)
