"""BPref."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from rank4class_tf import _registry, ops
from rank4class_tf.metrics._base import CutoffMetric
from rank4class_tf.metrics._hits import hit_shares
from rank4class_tf.ops.ranking.exact import count_of_all


@_registry.register("metric")
class BPref(CutoffMetric):
    r"""Binary preference: high if few items that were judged wrong rank above right ones.

    $$\frac{1}{R} \sum_{p \in Y : \pi(p) \le k}
    \left(1 - \frac{\min(n_p, R)}{\min(R, N)}\right)$$

    with R positives, N items that are judged and wrong, and $n_p$ of these above the positive p.
    Mask items that nobody has judged, so that they change nothing. An item that is tied with a
    positive counts as half above it.

    Source: Buckley & Voorhees 2004, "Retrieval evaluation with incomplete information", in the form
    of trec_eval and TF-Ranking.

    Args:
        k: cutoff, >= 1, None for all ranks, or a list of cutoffs.
        name: None means `"bpref_at_<k>"`.
        **kwargs: `count_empty`, `label_format`, `dtype`: see `RankingMetric`.

    Raises:
        ValueError: if `k` is not a positive integer or None, or a list of these.

    Example:
        >>> metric = BPref()
        >>> metric.update_state([[1, 0, 1, -1, 0]], [[5.0, 4.0, 3.0, 2.0, 1.0]])
        >>> float(metric.result())  # ((1 - 0) + (1 - 1 / 2)) / 2
        0.75
    """

    _reads = "leading"
    bounds = (0.0, 1.0)

    def __init__(
        self, k: int | Sequence[int] | None = None, name: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(k, name=name, **kwargs)

    def compute_at(self, ranks: ops.Ranks, k: int | None) -> tf.Tensor:
        """The formula."""
        above, tied = ranks.above, ranks.tied
        # Positives in the order of their ranks; one that is never a hit is left out.
        order = tf.where(tied > 0, -above, tf.constant(float("nan"), above.dtype))
        positives_above, positives_tied = (tf.cast(c, above.dtype) for c in count_of_all(order))
        wrong_above = above - positives_above + (tied - positives_tied) / 2
        right = ranks.num_positives[:, tf.newaxis]
        wrong = ranks.num_items[:, tf.newaxis] - right
        lost = tf.math.divide_no_nan(tf.minimum(wrong_above, right), tf.minimum(right, wrong))
        total = tf.reduce_sum(hit_shares(ranks, k) * (1 - lost), axis=-1)
        return tf.math.divide_no_nan(total, ranks.num_positives)
