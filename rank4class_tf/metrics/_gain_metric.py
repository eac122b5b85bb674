"""What the metrics with gains and discounts share."""

from collections.abc import Callable, Sequence
from typing import Any

from rank4class_tf import ops
from rank4class_tf.metrics._base import CutoffMetric


class GainMetric(CutoffMetric):
    """Base of `DCG` and `NDCG`: cutoff, gain and discount."""

    def __init__(
        self,
        k: int | Sequence[int] | None = None,
        gain: str | Callable = "exponential",
        discount: str | Callable = "logarithmic",
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        ops.get_gain(gain)
        ops.get_discount(discount)
        self.gain = gain
        self.discount = discount
        super().__init__(k, name=name, **kwargs)
