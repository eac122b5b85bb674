"""Metrics of graded gains: DCG and NDCG.

Gains, discounts and the ideal order are in `ops.weights`.
"""

from typing import Any

import tensorflow as tf

from rank4class_tf import _registry, ops
from rank4class_tf._tf.exact import power_of_two
from rank4class_tf._tf.shapes import num_rows
from rank4class_tf._types import Array, Choice, Cutoffs, Tensor
from rank4class_tf.metrics.base import CutoffMetric, ReadsLeadingRanks
from rank4class_tf.ops.ranks import (
    highest,
    mean_over_ties,
    num_counted,
    table_by_rank,
)
from rank4class_tf.ops.weights import discounted_sum, gain_cancels, gains_up_to_a_factor


@_registry.register("metric")
class DCG(ReadsLeadingRanks, CutoffMetric):
    r"""Discounted cumulative gain, over the first k ranks.

    $$\mathrm{DCG@}k = \sum_{i : \pi(i) \le k} g(y_i) \, d(\pi(i)), \qquad
    g(y) = 2^y - 1, \quad d(r) = \frac{1}{\log_2(1 + r)}$$

    With the exponential gain, the result is infinite for labels from 1,024 on, or from
    128 on if the dtype is not float64.

    With item weights $w_i$, a list has the weight
    $w = \sum_i w_i g(y_i) / \sum_i g(y_i)$, and the gain of an item is multiplied by
    $w_i / w$.

    Source: Järvelin & Kekäläinen 2002; Rank4Class, equation 1.

    Args:
        gain: `"exponential"` for `2**y - 1`, `"linear"` for y, or a function of labels
            that is 0 at 0, registered with Keras if the metric is to be saved.
        discount: `"logarithmic"` for `1 / log2(1 + r)`, `"reciprocal"` for `1 / r`, or
            a function of float64 ranks >= 1, registered like `gain`.

    Example:
        >>> metric = DCG(k=5)
        >>> metric.update_state([[0.0, 2.0]], [[0.0, 1.0]])  # (2**2 - 1) / log2(1 + 1)
        >>> float(metric.result())
        3.0
    """

    bounds = (0.0, float("inf"))

    def __init__(
        self,
        k: Cutoffs = None,
        gain: Choice = "exponential",
        discount: Choice = "logarithmic",
        **kwargs: Any,
    ):
        ops.get_gain(gain)
        ops.get_discount(discount)
        self.gain = gain
        self.discount = discount
        super().__init__(k, **kwargs)

    def compute_at(self, ranks: ops.Ranks, k: int | None) -> Tensor:
        gains = ops.get_gain(self.gain)(ranks.relevance)
        weights = ranks.weights
        if weights is not None:
            shares = self._shares_of_weight(ranks.relevance)
            total = tf.reduce_sum(shares, axis=-1, keepdims=True)
            weighted = tf.reduce_sum(shares * weights, axis=-1, keepdims=True)
            gains *= tf.math.divide_no_nan(weights * total, weighted)
        return self._discounted(ranks, gains, self._discounts(ranks, k))

    def _shares_of_weight(self, relevance: Tensor) -> Tensor:
        return gains_up_to_a_factor(self.gain, relevance)

    def _discounted(self, ranks: ops.Ranks, gains: Tensor, table: Array) -> Tensor:
        discounts = mean_over_ties(table, ranks.above, ranks.tied)
        return tf.reduce_sum(gains * discounts, axis=-1)

    def _discounts(self, ranks: ops.Ranks, k: int | None) -> Array:
        """`[R]` float64, the discounts of the first R = min(k, n) ranks."""
        discount = ops.get_discount(self.discount)
        return table_by_rank(discount, num_counted(ranks, k))


@_registry.register("metric")
class NDCG(DCG):
    r"""Normalised discounted cumulative gain, over the first k ranks.

    $$\mathrm{NDCG@}k = \frac{\mathrm{DCG@}k}{\mathrm{idealDCG@}k}$$

    The ideal DCG is the DCG of the items in the order of their labels; see `DCG`. For
    one positive, NDCG@1 is Top-1 accuracy. With item weights $w_i$, the gain of an item
    is $w_i g(y_i)$, in the ideal order too, and the weight of a list is the same as in
    `DCG`.

    Args:
        gain, discount: as in `DCG`; functions must increase and decrease.

    Example:
        >>> metric = NDCG(k=5)
        >>> metric.update_state([0], [[1.0, 3.0, 2.0]])  # rank 3: 1 / log2(1 + 3)
        >>> float(metric.result())
        0.5
    """

    bounds = (0.0, 1.0)

    def compute_at(self, ranks: ops.Ranks, k: int | None) -> Tensor:
        table = self._discounts(ranks, k)
        relevance = ranks.relevance
        weights = ranks.weights
        if gain_cancels(self.gain, relevance):
            # With a single positive its gain cancels, and 2**y - 1 need not be
            # computed.
            gains = best = tf.nn.relu(tf.sign(relevance))
        else:
            gains = gains_up_to_a_factor(self.gain, relevance)
            if weights is not None:
                # A common divisor of the list changes nothing, and keeps products from
                # overflow.
                largest = tf.reduce_max(weights, axis=-1, keepdims=True)
                gains *= weights / tf.cast(power_of_two(largest), weights.dtype)
            best = highest(gains, num_rows(table))
        ideal = discounted_sum(best, table)
        return tf.math.divide_no_nan(self._discounted(ranks, gains, table), ideal)
