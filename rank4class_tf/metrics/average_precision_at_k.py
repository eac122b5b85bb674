"""AveragePrecisionAtK."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from rank4class_tf import _checks, _registry, ops
from rank4class_tf.metrics._base import CutoffMetric


@_registry.register("metric")
class AveragePrecisionAtK(CutoffMetric):
    r"""Average precision over the first k ranks; its mean over lists is the MAP.

    $$\frac{1}{\min(k, |Y|)} \sum_{r \le k} \mathrm{Precision@}r \cdot \mathrm{rel}(r)$$

    Ties count in expectation. With `over_all_positives=True` the divisor is $|Y|$, as in TF-Ranking
    and trec_eval: more positives than k cannot reach 1 then.

    Source: Manning, Raghavan & Schütze 2008, section 8.4; Rankmax, section 5.

    Args:
        k: cutoff, >= 1, None for all ranks, or a list of cutoffs.
        over_all_positives: whether the divisor is the number of positives, even above k.
        name: None means `"average_precision_at_<k>"`.
        **kwargs: `count_empty`, `label_format`, `dtype`: see `RankingMetric`.

    Raises:
        ValueError: if `k` is not a positive integer or None, or a list of these.

    Example:
        >>> metric = AveragePrecisionAtK()
        >>> metric.update_state([[0, 2]], [[0.0, 1.0, 2.0]])  # (1 / 1 + 2 / 3) / 2
        >>> round(float(metric.result()), 6)
        0.833333
    """

    _reads = "leading"

    def __init__(
        self,
        k: int | Sequence[int] | None = None,
        name: str | None = None,
        over_all_positives: bool = False,
        **kwargs: Any,
    ) -> None:
        self.over_all_positives = _checks.flag("over_all_positives", over_all_positives)
        super().__init__(k, name=name, **kwargs)

    def compute_at(self, ranks: ops.Ranks, k: int | None) -> tf.Tensor:
        """The formula."""
        return ops.average_precision(ranks, k, self.over_all_positives)
