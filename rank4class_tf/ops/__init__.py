"""The parts of formulas: pure functions on tensors, without layers or models.

Lists are scores `[batch, n]`, class ids `[batch]` or `[batch, P]` padded with -1,
relevance `[batch, P]` and a mask, or `Lists`. A number outside its range raises; a
tensor is not checked.
"""

from rank4class_tf._lists.dense import as_lists
from rank4class_tf._lists.lists import Lists
from rank4class_tf.ops.projections import (
    Regularizer,
    entropy_projection,
    euclidean_projection,
    get_regularizer,
    rankmax,
    simplex_projection,
)
from rank4class_tf.ops.ranks import (
    Ranks,
    expected_ranks,
    mean_over_ties,
    ranks_of_positives,
)
from rank4class_tf.ops.sampling import (
    fold_in,
    gumbel_noise,
    sample_distinct,
    sample_items,
    uniform,
)
from rank4class_tf.ops.soft_metrics import (
    soft_average_precision,
    soft_ndcg,
    soft_recall,
    soft_reciprocal_rank,
)
from rank4class_tf.ops.soft_ranks import sigmoid_ranks, sigmoid_ranks_among_positives
from rank4class_tf.ops.weights import (
    ListedWeights,
    NDCGLambdaWeights,
    PowerLawWeights,
    Ramp,
    RankWeights,
    Scaled,
    StaircaseWeights,
    TopKWeights,
    UniformWeights,
    get_discount,
    get_gain,
    get_phi,
    get_rank_weights,
)

__all__ = [
    "Lists",
    "as_lists",
    "Ranks",
    "expected_ranks",
    "mean_over_ties",
    "ranks_of_positives",
]
__all__ += ["sigmoid_ranks", "sigmoid_ranks_among_positives"]
__all__ += [
    "soft_average_precision",
    "soft_ndcg",
    "soft_recall",
    "soft_reciprocal_rank",
]
__all__ += [
    "Regularizer",
    "entropy_projection",
    "euclidean_projection",
    "get_regularizer",
]
__all__ += ["rankmax", "simplex_projection"]
__all__ += [
    "RankWeights",
    "ListedWeights",
    "NDCGLambdaWeights",
    "PowerLawWeights",
    "Ramp",
]
__all__ += ["Scaled", "StaircaseWeights", "TopKWeights", "UniformWeights"]
__all__ += ["get_discount", "get_gain", "get_phi", "get_rank_weights"]
__all__ += ["fold_in", "gumbel_noise", "sample_distinct", "sample_items", "uniform"]
