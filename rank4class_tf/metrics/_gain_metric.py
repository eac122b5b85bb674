"""What the metrics with gains and discounts share."""

from tensorflow import keras

from rank4class_tf import ops
from rank4class_tf.metrics._base import CutoffMetric


class GainMetric(CutoffMetric):
    """Base of `DCG` and `NDCG`: cutoff, gain and discount."""

    def __init__(self, k=None, gain="exponential", discount="logarithmic", name=None, **kwargs):
        self.gain, self.discount = (
            keras.utils.deserialize_keras_object(x) if isinstance(x, dict) else x
            for x in (gain, discount)
        )
        ops.get_gain(self.gain)
        ops.get_discount(self.discount)
        super().__init__(k, name=name, **kwargs)
