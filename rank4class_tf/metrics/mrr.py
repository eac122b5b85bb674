"""MRR."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from rank4class_tf import _registry, ops
from rank4class_tf.metrics._base import CutoffMetric


@_registry.register("metric")
class MRR(CutoffMetric):
    r"""Mean reciprocal rank of the best positive, 0 beyond rank k.

    $$\frac{1(r \le k)}{r}, \qquad r = \min_{y \in Y} \pi(y)$$

    Ties count in expectation.

    Source: Voorhees 1999.

    Args:
        k: cutoff, >= 1, None for all ranks, or a list of cutoffs.
        name: None means `"mrr_at_<k>"`.
        **kwargs: `count_empty`, `label_format`, `dtype`: see `RankingMetric`.

    Raises:
        ValueError: if `k` is not a positive integer or None, or a list of these.

    Example:
        >>> metric = MRR()
        >>> metric.update_state([0], [[1.0, 2.0, 0.0]])  # rank 2
        >>> float(metric.result())
        0.5
    """

    _reads = "best"

    def __init__(
        self, k: int | Sequence[int] | None = None, name: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(k, name=name, **kwargs)

    def compute_at(self, ranks: ops.Ranks, k: int | None) -> tf.Tensor:
        """The formula."""
        return ops.reciprocal_rank(ranks, k)
