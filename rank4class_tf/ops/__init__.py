"""What formulas are built from: pure functions on tensors, without Keras.

Conventions: a function of scored lists takes scores `[batch, n]`, class ids `[batch]` or
`[batch, P]`, padded with -1, the relevance `[batch, P]` of each positive, and a mask `[batch, n]`,
or `Lists`, which hold all of these. A metric takes the positives' `Ranks`, in which a NaN score
ranks last and -inf is a score; its `soft_` form takes any ranks `[batch, P]`, those of
`sigmoid_ranks` or of a learned sorter.

A number outside the range that an argument has by its description raises a ValueError. Tensors in
its place, such as a temperature that falls, are taken as they are.
"""

from rank4class_tf._lists.lists import Lists, as_lists
from rank4class_tf.ops.calibration.conformal import (
    CONFORMITY,
    conformal_threshold,
    mass_not_above,
)
from rank4class_tf.ops.calibration.expected_calibration_error import (
    calibration_bins,
    expected_calibration_error,
)
from rank4class_tf.ops.calibration.temperature import best_temperature
from rank4class_tf.ops.classes.interactions import latent_cross
from rank4class_tf.ops.classes.recomputed_blocks import score_by_recomputed_blocks
from rank4class_tf.ops.gumbel import gumbel_noise
from rank4class_tf.ops.lambda_weights import NDCGLambdaWeights
from rank4class_tf.ops.metrics.average_precision import average_precision, soft_average_precision
from rank4class_tf.ops.metrics.best_positive import (
    best_positive,
    hit_rate,
    rank_of_best,
    reciprocal_rank,
    soft_reciprocal_rank,
)
from rank4class_tf.ops.metrics.hits import hits, precision, recall, soft_recall
from rank4class_tf.ops.metrics.ndcg import (
    dcg,
    exponential_gain,
    get_discount,
    get_gain,
    logarithmic_discount,
    ndcg,
    soft_ndcg,
)
from rank4class_tf.ops.metrics.spearman_correlation import spearman_correlation
from rank4class_tf.ops.metrics.weighted_average_precision import weighted_average_precision
from rank4class_tf.ops.phi import Ramp, Scaled, get_phi
from rank4class_tf.ops.projections.rankmax import rankmax
from rank4class_tf.ops.projections.regularizers import Regularizer, get_regularizer
from rank4class_tf.ops.projections.simplex import (
    entropy_projection,
    euclidean_projection,
    simplex_projection,
)
from rank4class_tf.ops.rank_weights import (
    ListedWeights,
    PowerLawWeights,
    RankWeights,
    StaircaseWeights,
    TopKWeights,
    UniformWeights,
    get_rank_weights,
    snm_expected_weights,
)
from rank4class_tf.ops.ranking.exact import (
    Ranks,
    count_above_and_tied,
    expected_ranks,
    mean_over_ties,
    ranks_of_positives,
)
from rank4class_tf.ops.ranking.laplace_sort import laplace_ranks
from rank4class_tf.ops.ranking.sigmoid_sort import all_sigmoid_ranks
from rank4class_tf.ops.ranking.soft import sigmoid_ranks, sigmoid_ranks_among_positives
from rank4class_tf.ops.ranking.soft_rank import isotonic_regression, projected_ranks
from rank4class_tf.ops.sampling.blocks import count_above_and_tied_by_blocks, top_k_by_blocks
from rank4class_tf.ops.sampling.random import fold_in, uniform
from rank4class_tf.ops.sampling.subsets import sample_distinct, sample_items

__all__ = [
    "CONFORMITY",
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
    "all_sigmoid_ranks",
    "as_lists",
    "average_precision",
    "best_positive",
    "best_temperature",
    "calibration_bins",
    "conformal_threshold",
    "count_above_and_tied",
    "count_above_and_tied_by_blocks",
    "dcg",
    "entropy_projection",
    "euclidean_projection",
    "expected_calibration_error",
    "expected_ranks",
    "exponential_gain",
    "fold_in",
    "get_discount",
    "get_gain",
    "get_phi",
    "get_rank_weights",
    "get_regularizer",
    "gumbel_noise",
    "hit_rate",
    "hits",
    "isotonic_regression",
    "laplace_ranks",
    "latent_cross",
    "logarithmic_discount",
    "mass_not_above",
    "mean_over_ties",
    "ndcg",
    "precision",
    "projected_ranks",
    "rank_of_best",
    "rankmax",
    "ranks_of_positives",
    "recall",
    "reciprocal_rank",
    "sample_distinct",
    "sample_items",
    "score_by_recomputed_blocks",
    "sigmoid_ranks",
    "sigmoid_ranks_among_positives",
    "simplex_projection",
    "snm_expected_weights",
    "soft_average_precision",
    "soft_ndcg",
    "soft_recall",
    "soft_reciprocal_rank",
    "spearman_correlation",
    "top_k_by_blocks",
    "uniform",
    "weighted_average_precision",
]
