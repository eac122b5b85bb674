"""TopKAccuracy."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from rank4class_tf import _registry, ops
from rank4class_tf.metrics._base import CutoffMetric


@_registry.register("metric")
class TopKAccuracy(CutoffMetric):
    r"""Share of lists with a positive among the k highest scores.

    $$\min(1, k \cdot \mathrm{Precision@}k)$$

    Ties count with the probability that their random order puts a positive into the first k.

    Source: Rank4Class, section 2.2.

    Args:
        k: how many of the highest scores count, >= 1, or a list of such cutoffs.
        name: None means `"top_<k>_accuracy"`.
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
    all_ranks = False

    def __init__(self, k: int | Sequence[int] = 1, name: str | None = None, **kwargs: Any) -> None:
        super().__init__(k, name=name, **kwargs)

    def compute_at(self, ranks: ops.Ranks, k: int) -> tf.Tensor:
        """The formula."""
        return ops.hit_rate(ranks, k)

    def _name_at(self, name, k):
        return f"top_{k}_accuracy" if name == "top_k_accuracy" else super()._name_at(name, k)
