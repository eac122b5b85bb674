"""The parts of formulas: pure functions on tensors, without Keras.

Conventions: a function of scored lists takes scores `[batch, n]`, class ids `[batch]` or
`[batch, P]`, padded with -1, the relevance `[batch, P]` of each positive, and a mask `[batch, n]`,
or `Lists`, which hold all of these. Metrics read the positives' `Ranks`, in which a NaN score ranks
last and -inf is a score. Their soft forms, such as `soft_ndcg`, take any ranks `[batch, P]`: those
of `sigmoid_ranks` or of a learned sorter.

A number outside the documented range of an argument raises a ValueError. A tensor, such as a
temperature that falls, is not checked.
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
from rank4class_tf.ops.ranks import Ranks, expected_ranks, mean_over_ties, ranks_of_positives
from rank4class_tf.ops.sampling import fold_in, gumbel_noise, sample_distinct, sample_items, uniform
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

__all__ = ["Lists", "as_lists"]
__all__ += ["Ranks", "expected_ranks", "mean_over_ties", "ranks_of_positives"]
__all__ += ["sigmoid_ranks", "sigmoid_ranks_among_positives"]
__all__ += ["soft_average_precision", "soft_ndcg", "soft_recall", "soft_reciprocal_rank"]
__all__ += ["Regularizer", "entropy_projection", "euclidean_projection", "get_regularizer"]
__all__ += ["rankmax", "simplex_projection"]
__all__ += ["RankWeights", "ListedWeights", "NDCGLambdaWeights", "PowerLawWeights", "Ramp"]
__all__ += ["Scaled", "StaircaseWeights", "TopKWeights", "UniformWeights"]
__all__ += ["get_discount", "get_gain", "get_phi", "get_rank_weights"]
__all__ += ["fold_in", "gumbel_noise", "sample_distinct", "sample_items", "uniform"]
