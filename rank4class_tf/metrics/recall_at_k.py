"""RecallAtK."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from rank4class_tf import _keras, _registry, ops
from rank4class_tf.metrics._base import CutoffMetric
from rank4class_tf.metrics._hits import hits


@_registry.register("metric")
class RecallAtK(CutoffMetric):
    r"""Share of the positives that are among the k highest scores.

    $$\frac{|Y \cap \mathrm{Top}_k|}{|Y|}$$

    Ties count in expectation. Without a cutoff it is 1, except for scores that are NaN.

    `average="samples"`, the default, is the mean over lists, which all count equally. With
    `"micro"`, all positives count equally: hits of all lists over positives of all lists.

    Source: Manning, Raghavan & Schütze 2008, section 8.4.

    Args:
        k: cutoff, >= 1, None for all ranks, or a list of cutoffs.
        average: `"samples"` or `"micro"`.
        name: None means `"recall_at_<k>"`.
        **kwargs: `count_empty`, `label_format`, `dtype`: see `RankingMetric`.

    Raises:
        ValueError: if `k` is not a positive integer or None, or a list of these; if `average` is
            unknown.

    Example:
        >>> metric = RecallAtK(k=[1, 3])
        >>> metric.update_state([[0, 2]], [[0.0, 1.0, 2.0]])  # ranks 3 and 1
        >>> {name: float(value) for name, value in metric.result().items()}
        {'recall_at_1': 0.5, 'recall_at_3': 1.0}
    """

    _reads = "leading"
    bounds = (0.0, 1.0)

    def __init__(
        self,
        k: int | Sequence[int] | None = None,
        average: str = "samples",
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        if average not in ("samples", "micro"):
            raise ValueError(f"`average` must be 'samples' or 'micro'. Received: {average!r}.")
        super().__init__(k, name=name, **kwargs)
        self.average = average

    def compute_at(self, ranks: ops.Ranks, k: int | None) -> tf.Tensor:
        """The formula."""
        return tf.math.divide_no_nan(hits(ranks, k), ranks.num_positives)

    def _values_and_weights(self, *args, **kwargs):
        # With `average="micro"` the weight is the number of positives.
        if self.average == "samples":
            return super()._values_and_weights(*args, **kwargs)

        def compute(ranks):
            return [*_keras.with_autograph_of_caller(self.compute)(ranks), ranks.num_positives]

        values, weights = super()._values_and_weights(*args, compute=compute)
        return values[:, :-1], weights * values[:, -1]
