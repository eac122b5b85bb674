"""The mathematics: pure functions on tensors.

Conventions: `scores` is `[batch, n]`, -inf for an item that is not there; `class_ids` is
`[batch, P]`, padded with -1; `relevance` is `[batch, P]`, the label of each positive.
"""

from rank4class_tf.ops.listwise import (
    approx_ndcg_loss,
    ndcg,
    ndcg_from_discount,
    pairwise_logistic_loss,
    softmax_loss,
)
from rank4class_tf.ops.ordered_weighted import (
    check_kind,
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
from rank4class_tf.ops.phi import (
    Ramp,
    exponential,
    get_phi,
    hinge,
    logistic,
    squared_hinge,
)
from rank4class_tf.ops.rankmax import rankmax_loss
from rank4class_tf.ops.ranks import (
    count_above_and_tied,
    expected_discount,
    sigmoid_ranks,
    top_k_hit_probability,
)

__all__ = [
    "ListedWeights",
    "OrderedWeights",
    "PowerLawWeights",
    "Ramp",
    "StaircaseWeights",
    "TopKWeights",
    "UniformWeights",
    "approx_ndcg_loss",
    "check_kind",
    "count_above_and_tied",
    "expected_discount",
    "exponential",
    "get_phi",
    "get_weights",
    "hinge",
    "logistic",
    "ndcg",
    "ndcg_from_discount",
    "ordered_weighted",
    "ordered_weighted_loss",
    "pairwise_logistic_loss",
    "rankmax_loss",
    "sigmoid_ranks",
    "snm_expected_weights",
    "softmax_loss",
    "squared_hinge",
    "top_k_hit_probability",
]
