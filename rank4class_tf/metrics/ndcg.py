"""NDCG."""

import tensorflow as tf

from rank4class_tf import _registry, ops
from rank4class_tf.metrics.dcg import DCG
from rank4class_tf.ops.gains import discounted_sum, gain_cancels, gains_up_to_a_factor
from rank4class_tf.ops.ranking.exact import num_ranks


@_registry.register("metric")
class NDCG(DCG):
    r"""Normalised discounted cumulative gain, over the first k ranks.

    $$\mathrm{NDCG@}k = \frac{\mathrm{DCG@}k}{\mathrm{idealDCG@}k}$$

    The ideal DCG is the DCG of the items in the order of their labels; see `DCG`. For one positive,
    NDCG@1 is Top-1 accuracy. Ties count in expectation over their random order. With item weights
    $w_i$, the gain of an item is $w_i g(y_i)$, in the ideal order too, and the weight of a list is
    the same as in `DCG`.

    Source: Järvelin & Kekäläinen 2002; Rank4Class, equation 1.

    Args:
        k: cutoff, >= 1, None for all ranks, or a list of cutoffs.
        gain: `"exponential"`, `"linear"` or an increasing function, as in `DCG`.
        discount: `"logarithmic"`, `"reciprocal"` or a decreasing function, as in `DCG`.
        name: None means `"ndcg_at_<k>"`.
        **kwargs: `count_empty`, `label_format`, `dtype`: see `RankingMetric`.

    Raises:
        ValueError: as `DCG` does.

    Example:
        >>> metric = NDCG(k=5)
        >>> metric.update_state([0], [[1.0, 3.0, 2.0]])  # rank 3: 1 / log2(1 + 3)
        >>> float(metric.result())
        0.5
    """

    _reads = "leading"
    bounds = (0.0, 1.0)

    def compute_at(self, ranks: ops.Ranks, k: int | None) -> tf.Tensor:
        """The formula."""
        table = self._discounts(ranks, k)
        if gain_cancels(self.gain, ranks.relevance):
            gains = best = tf.nn.relu(tf.sign(ranks.relevance))
        else:
            gains = gains_up_to_a_factor(self.gain, ranks.relevance)
            if ranks.weights is not None:
                gains *= ranks.weights
            best = tf.math.top_k(gains, tf.minimum(num_ranks(table), tf.shape(gains)[1])).values
        ideal = discounted_sum(best, table)
        return tf.math.divide_no_nan(self._discounted(ranks, gains, table), ideal)
