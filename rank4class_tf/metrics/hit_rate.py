"""HitRate."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from rank4class_tf import _registry, ops
from rank4class_tf.metrics._base import CutoffMetric


@_registry.register("metric")
class HitRate(CutoffMetric):
    r"""Share of lists with a positive among the k highest scores.

    $$1(Y \cap \mathrm{Top}_k \ne \emptyset)$$

    What classification calls Top-k accuracy; see `TopKAccuracy`. Ties count with the probability
    that their random order puts a positive into the first k.

    Args:
        k: cutoff, >= 1, or a list of cutoffs.
        name: None means `"hit_rate_at_<k>"`.
        **kwargs: `count_empty`, `label_format`, `dtype`: see `RankingMetric`.

    Raises:
        ValueError: if `k` is not a positive integer, or a list of these.

    Example:
        >>> metric = HitRate(k=1)
        >>> metric.update_state([[0, 2], [1, -1]], [[1.0, 0.0, 0.5], [1.0, 0.0, 0.5]])
        >>> float(metric.result())
        0.5
    """

    _reads = "best"
    all_ranks = False

    def __init__(self, k: int | Sequence[int], name: str | None = None, **kwargs: Any) -> None:
        super().__init__(k, name=name, **kwargs)

    def compute_at(self, ranks: ops.Ranks, k: int) -> tf.Tensor:
        """The formula."""
        return ops.hit_rate(ranks, k)
