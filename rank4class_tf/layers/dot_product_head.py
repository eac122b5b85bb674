"""DotProductHead."""

from tensorflow import keras

from rank4class_tf import _keras
from rank4class_tf.layers._base import Head


@_keras.register
class DotProductHead(Head):
    r"""The classical last layer, seen as a ranker: a dot product with each class embedding.

    $$s_i = c_i^\top h + b_i$$

    Source: Rank4Class, section 3.2.

    Args:
        num_classes: number of classes n, >= 1.
        **kwargs: Keras's own, such as `name`.

    Input: `[batch, d]`. Output: `[batch, n]`.

    Raises:
        ValueError: if `num_classes` is not a positive integer or the input is not `[batch, d]`.

    Example:
        >>> DotProductHead(num_classes=28).compute_output_shape((None, 16))
        (None, 28)
    """

    def __init__(self, num_classes, **kwargs):
        super().__init__(num_classes, **kwargs)
        self.dense = keras.layers.Dense(self.num_classes)

    def build_head(self, width):
        """Creates the weights for encodings `[batch, width]`."""
        self.dense.build((None, width))

    def call(self, inputs):
        """Scores every class."""
        return self.dense(inputs)
