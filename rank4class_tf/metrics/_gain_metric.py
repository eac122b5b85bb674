"""What the metrics with gains and discounts share."""

from rank4class_tf import ops
from rank4class_tf.metrics._base import CutoffMetric


class GainMetric(CutoffMetric):
    """Base of `DCG` and `NDCG`: cutoff, gain and discount."""

    def __init__(self, k=None, gain="exponential", discount="logarithmic", name=None, **kwargs):
        ops.get_gain(gain)
        ops.get_discount(discount)
        self.gain = gain
        self.discount = discount
        super().__init__(k, name=name, **kwargs)
