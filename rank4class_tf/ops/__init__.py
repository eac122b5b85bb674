"""The mathematics: pure functions on tensors.

Conventions: `scores` is `[batch, n]`, -inf for an item that is not there; `class_ids` is
`[batch, P]`, padded with -1; `relevance` is `[batch, P]`, the label of each positive. Metrics are
functions of the positives' `Ranks`, in which a NaN score ranks last and -inf is a score.
"""

from rank4class_tf.ops.approx import approx_mrr_loss, approx_ndcg_loss
from rank4class_tf.ops.blocks import ranks_by_blocks, top_k_by_blocks
from rank4class_tf.ops.dcg import (
    dcg_at_k,
    exponential_gain,
    get_discount,
    get_gain,
    logarithmic_discount,
    ndcg_at_k,
)
from rank4class_tf.ops.distinct import sample_distinct
from rank4class_tf.ops.first_rank import (
    best_group,
    expected_first_rank,
    first_rank_histogram,
    reciprocal_rank,
    top_k_hit_probability,
)
from rank4class_tf.ops.gumbel import gumbel_approx_ndcg_loss, gumbel_noise
from rank4class_tf.ops.hits import average_precision_at_k, hits_at_k, precision_at_k, recall_at_k
from rank4class_tf.ops.lambda_weights import NDCGLambdaWeights
from rank4class_tf.ops.ordered_weighted import (
    ordered_weighted,
    ordered_weighted_loss,
    snm_expected_weights,
)
from rank4class_tf.ops.ordered_weights import (
    ListedWeights,
    OrderedWeights,
    PowerLawWeights,
    StaircaseWeights,
    TopKWeights,
    UniformWeights,
    get_weights,
)
from rank4class_tf.ops.pairwise import pairwise_hinge_loss, pairwise_logistic_loss
from rank4class_tf.ops.phi import Ramp, exponential, get_phi, hinge, logistic, squared_hinge
from rank4class_tf.ops.random import fold_in, uniform
from rank4class_tf.ops.rankmax import rankmax, rankmax_loss
from rank4class_tf.ops.ranks import (
    Ranks,
    count_above_and_tied,
    count_greater_and_equal,
    expected_ranks,
    mean_over_ties,
    ranks_of_positives,
    reciprocals,
    sigmoid_ranks,
    sigmoid_ranks_among_positives,
)
from rank4class_tf.ops.sampling import sample_items
from rank4class_tf.ops.simplex import (
    adaptive_fenchel_young_loss,
    entropy_projection,
    euclidean_projection,
    fenchel_young_loss,
    separable_projection,
)
from rank4class_tf.ops.smooth_metrics import average_precision, mean_reciprocal_rank, ndcg, recall
from rank4class_tf.ops.softmax import list_mle_loss, softmax_loss, unique_softmax_loss
from rank4class_tf.ops.squared import mean_squared_loss
from rank4class_tf.ops.stochastic_negative_mining import (
    check_weights_fit,
    stochastic_negative_mining_loss,
)
from rank4class_tf.ops.warp import warp_loss

__all__ = [
    "ListedWeights",
    "NDCGLambdaWeights",
    "OrderedWeights",
    "PowerLawWeights",
    "Ramp",
    "Ranks",
    "StaircaseWeights",
    "TopKWeights",
    "UniformWeights",
    "adaptive_fenchel_young_loss",
    "approx_mrr_loss",
    "approx_ndcg_loss",
    "average_precision",
    "average_precision_at_k",
    "best_group",
    "check_weights_fit",
    "count_above_and_tied",
    "count_greater_and_equal",
    "dcg_at_k",
    "entropy_projection",
    "euclidean_projection",
    "expected_first_rank",
    "expected_ranks",
    "exponential",
    "exponential_gain",
    "fenchel_young_loss",
    "first_rank_histogram",
    "fold_in",
    "get_discount",
    "get_gain",
    "get_phi",
    "get_weights",
    "gumbel_approx_ndcg_loss",
    "gumbel_noise",
    "hinge",
    "hits_at_k",
    "list_mle_loss",
    "logarithmic_discount",
    "logistic",
    "mean_over_ties",
    "mean_reciprocal_rank",
    "mean_squared_loss",
    "ndcg",
    "ndcg_at_k",
    "ordered_weighted",
    "ordered_weighted_loss",
    "pairwise_hinge_loss",
    "pairwise_logistic_loss",
    "precision_at_k",
    "rankmax",
    "rankmax_loss",
    "ranks_by_blocks",
    "ranks_of_positives",
    "recall",
    "recall_at_k",
    "reciprocal_rank",
    "reciprocals",
    "sample_distinct",
    "sample_items",
    "separable_projection",
    "sigmoid_ranks",
    "sigmoid_ranks_among_positives",
    "snm_expected_weights",
    "softmax_loss",
    "squared_hinge",
    "stochastic_negative_mining_loss",
    "top_k_by_blocks",
    "top_k_hit_probability",
    "uniform",
    "unique_softmax_loss",
    "warp_loss",
]
