"""PrecisionAtK."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from rank4class_tf import _registry, ops
from rank4class_tf.metrics._base import CutoffMetric
from rank4class_tf.metrics._hits import hits


@_registry.register("metric")
class PrecisionAtK(CutoffMetric):
    r"""Share of positives among the k highest scores.

    $$\frac{|Y \cap \mathrm{Top}_k|}{k}$$

    The divisor is k even if a list has fewer items; without a cutoff it is the number of items.
    Ties count in expectation.

    Source: Manning, Raghavan & Schütze 2008, section 8.4.

    Args:
        k: cutoff, >= 1, None for all ranks, or a list of cutoffs.
        name: None means `"precision_at_<k>"`.
        **kwargs: `count_empty`, `label_format`, `dtype`: see `RankingMetric`.

    Raises:
        ValueError: if `k` is not a positive integer or None, or a list of these.

    Example:
        >>> metric = PrecisionAtK(k=2)
        >>> metric.update_state([[0, 2]], [[0.0, 1.0, 2.0]])  # ranks 3 and 1
        >>> float(metric.result())
        0.5
    """

    _reads = "leading"
    bounds = (0.0, 1.0)

    def __init__(
        self, k: int | Sequence[int] | None = None, name: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(k, name=name, **kwargs)

    def compute_at(self, ranks: ops.Ranks, k: int | None) -> tf.Tensor:
        """The formula."""
        return hits(ranks, k) / (tf.maximum(ranks.num_items, 1) if k is None else k)
