"""The mathematics: pure functions on tensors.

Conventions: a loss takes scores `[batch, n]`, class ids `[batch]` or `[batch, P]`, padded with -1,
the relevance `[batch, P]` of each positive, and a mask `[batch, n]`, or `Lists`, which hold all of
these. Metrics read the positives' `Ranks`, in which a NaN score ranks last and -inf is a score. The
soft forms of metrics, such as `soft_ndcg`, take any ranks `[batch, P]`, those of `sigmoid_ranks` or
of a learned sorter.

A number outside the range that an argument has by its description raises a ValueError. Tensors in
its place, such as a temperature that falls, are taken as they are.
"""

from rank4class_tf._lists.lists import Lists, as_lists
from rank4class_tf.ops.gains import get_discount, get_gain
from rank4class_tf.ops.losses.fenchel_young import adaptive_fenchel_young_loss, fenchel_young_loss
from rank4class_tf.ops.losses.gumbel import gumbel_noise, mean_over_gumbel_noise
from rank4class_tf.ops.losses.lambda_weights import NDCGLambdaWeights
from rank4class_tf.ops.losses.metric_losses import (
    approx_mrr_loss,
    approx_ndcg_loss,
    gumbel_approx_ndcg_loss,
)
from rank4class_tf.ops.losses.owl.ordered_weighted import KINDS, ordered_weighted_loss
from rank4class_tf.ops.losses.owl.phi import (
    Ramp,
    Scaled,
    exponential,
    get_phi,
    hinge,
    logistic,
    squared_hinge,
)
from rank4class_tf.ops.losses.owl.rank_weights import (
    ListedWeights,
    PowerLawWeights,
    RankWeights,
    StaircaseWeights,
    TopKWeights,
    UniformWeights,
    get_rank_weights,
    snm_expected_weights,
)
from rank4class_tf.ops.losses.owl.stochastic_negative_mining import (
    stochastic_negative_mining_loss,
)
from rank4class_tf.ops.losses.pairwise import pairwise_hinge_loss, pairwise_logistic_loss
from rank4class_tf.ops.losses.rankmax import rankmax_loss
from rank4class_tf.ops.losses.softmax import list_mle_loss, softmax_loss, unique_softmax_loss
from rank4class_tf.ops.losses.squared import mean_squared_loss
from rank4class_tf.ops.losses.warp import warp_loss
from rank4class_tf.ops.projections.rankmax import rankmax
from rank4class_tf.ops.projections.regularizers import Regularizer, get_regularizer
from rank4class_tf.ops.projections.simplex import (
    entropy_projection,
    euclidean_projection,
    simplex_projection,
)
from rank4class_tf.ops.ranking.exact import (
    Ranks,
    expected_ranks,
    mean_over_ties,
    ranks_of_positives,
)
from rank4class_tf.ops.ranking.soft import sigmoid_ranks, sigmoid_ranks_among_positives
from rank4class_tf.ops.sampling.random import fold_in, uniform
from rank4class_tf.ops.sampling.subsets import sample_distinct, sample_items
from rank4class_tf.ops.soft_metrics import (
    soft_average_precision,
    soft_ndcg,
    soft_recall,
    soft_reciprocal_rank,
)

__all__ = [
    "KINDS",
    "ListedWeights",
    "Lists",
    "NDCGLambdaWeights",
    "PowerLawWeights",
    "Ramp",
    "RankWeights",
    "Ranks",
    "Regularizer",
    "Scaled",
    "StaircaseWeights",
    "TopKWeights",
    "UniformWeights",
    "adaptive_fenchel_young_loss",
    "approx_mrr_loss",
    "approx_ndcg_loss",
    "as_lists",
    "entropy_projection",
    "euclidean_projection",
    "expected_ranks",
    "exponential",
    "fenchel_young_loss",
    "fold_in",
    "get_discount",
    "get_gain",
    "get_phi",
    "get_rank_weights",
    "get_regularizer",
    "gumbel_approx_ndcg_loss",
    "gumbel_noise",
    "hinge",
    "list_mle_loss",
    "logistic",
    "mean_over_gumbel_noise",
    "mean_over_ties",
    "mean_squared_loss",
    "ordered_weighted_loss",
    "pairwise_hinge_loss",
    "pairwise_logistic_loss",
    "rankmax",
    "rankmax_loss",
    "ranks_of_positives",
    "sample_distinct",
    "sample_items",
    "sigmoid_ranks",
    "sigmoid_ranks_among_positives",
    "simplex_projection",
    "snm_expected_weights",
    "soft_average_precision",
    "soft_ndcg",
    "soft_recall",
    "soft_reciprocal_rank",
    "softmax_loss",
    "squared_hinge",
    "stochastic_negative_mining_loss",
    "uniform",
    "unique_softmax_loss",
    "warp_loss",
]
