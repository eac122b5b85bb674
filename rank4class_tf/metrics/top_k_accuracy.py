"""TopKAccuracy."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from rank4class_tf import _registry, ops
from rank4class_tf.metrics._base import CutoffMetric
from rank4class_tf.metrics._best_positive import best_positive
from rank4class_tf.metrics._hits import hits


@_registry.register("metric")
class TopKAccuracy(CutoffMetric):
    r"""Share of lists with a positive among the k highest scores.

    $$1(Y \cap \mathrm{Top}_k \ne \emptyset)$$

    In retrieval it is called the hit rate; `HitRate` is another name of this class. A tie counts by
    the probability that its random order puts a positive into the first k: with $a$ items above the
    best positive and $m$ tied with it, $q$ of them positive, and $r = \min(\max(k - a, 0), m)$
    places left,

    $$1 - \binom{m - q}{r} \Big/ \binom{m}{r} = 1 - \prod_{i=0}^{q-1} \frac{m - r - i}{m - i}$$

    Source: Rank4Class, section 2.2.

    Args:
        k: how many of the highest scores count, >= 1, or a list of such cutoffs.
        name: None means `"top_k_accuracy_at_<k>"`.
        **kwargs: `count_empty`, `label_format`, `dtype`: see `RankingMetric`.

    Raises:
        ValueError: if `k` is not a positive integer, or a list of these.

    Example:
        >>> metric = TopKAccuracy(k=1)
        >>> metric.update_state([0, 0], [[1.0, 0.0], [1.0, 1.0]])  # a hit, and a tie of two
        >>> float(metric.result())
        0.75
    """

    _reads = "best"
    bounds = (0.0, 1.0)
    all_ranks = False

    def __init__(self, k: int | Sequence[int] = 1, name: str | None = None, **kwargs: Any) -> None:
        super().__init__(k, name=name, **kwargs)

    def compute_at(self, ranks: ops.Ranks, k: int) -> tf.Tensor:
        """The formula."""
        if ranks.tied.shape[1] == 1:
            return hits(ranks, k)
        above, tied, positives = best_positive(ranks)
        places = tf.clip_by_value(k - above, 0, tied)
        before = tf.range(tf.shape(ranks.tied)[1])[tf.newaxis]
        left = tied[:, tf.newaxis] - tf.cast(before, tied.dtype)
        share = tf.minimum(places[:, tf.newaxis] / tf.maximum(left, 1), 1)
        counted = tf.cast(before, tied.dtype) < positives[:, tf.newaxis]
        log_misses = tf.math.log1p(-tf.where(counted, share, tf.zeros_like(share)))
        return -tf.math.expm1(tf.reduce_sum(log_misses, axis=-1))


for _name in ("hit_rate", "hits"):  # Those of retrieval and of TF-Ranking.
    _registry.named("metric", _name, TopKAccuracy)
