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
from rank4class_tf.ops.rankmax import rankmax_loss
from rank4class_tf.ops.ranks import (
    count_above_and_tied,
    expected_discount,
    sigmoid_ranks,
    top_k_hit_probability,
)

__all__ = [
    "approx_ndcg_loss",
    "count_above_and_tied",
    "expected_discount",
    "ndcg",
    "ndcg_from_discount",
    "pairwise_logistic_loss",
    "rankmax_loss",
    "sigmoid_ranks",
    "softmax_loss",
    "top_k_hit_probability",
]
