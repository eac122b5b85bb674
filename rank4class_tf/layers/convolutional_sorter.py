"""ConvolutionalSorter."""

from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks
from rank4class_tf.layers import _learned_sorter
from rank4class_tf.layers._learned_sorter import LearnedSorter, count, dense_shapes


@_learned_sorter.register
class ConvolutionalSorter(LearnedSorter):
    r"""A convolutional network that has learned to rank lists of one length.

    Convolutions of size and stride 2, each with a ReLU beside the mean of the two, reduce the list
    to one vector c, which is combined with each item:

    $$f(s)_i = \tfrac{d + 1}{2} + d \cdot \mathrm{N}\left([(A x_i) \odot c; x_i]\right)$$

    with $x_i$ the sines and cosines of the standardised score, and N a hidden layer with a linear
    shortcut.

    Source: SoDeep (Engilberge et al. 2019), section 3.1.1. Its network has 8 convolutions with
    batch normalization, reads the scores as they are, and ends with a channel for each item.

    Args:
        length: how many items a list has. Pad shorter lists and mask the padding.
        frequencies: how many sines, and how many cosines, are made from a score, >= 1.
        units: channels, >= 1.
        trainable: whether the weights are trained with the model that the sorter serves.
        **kwargs: arguments of Keras, such as `name`.

    Ranks depend a little on the order of the items.

    Raises:
        ValueError: if `length`, `frequencies` or `units` is not a positive integer, or the scores
            have another length.

    Example:
        >>> sorter = ConvolutionalSorter.pretrained()
        >>> sorter(tf.linspace([1.0], [0.0], 100, axis=1)).numpy()[0, [0, 49]].round()
        array([ 1., 50.], dtype=float32)
    """

    def __init__(
        self,
        length: int = 100,
        frequencies: int = 16,
        units: int = 64,
        trainable: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(frequencies, units, trainable, **kwargs)
        self.length = _checks.positive_int("length", length)
        self._halvings = (self.length - 1).bit_length()

    def _weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Name -> shape of each weight."""
        shapes = dense_shapes("items", self._num_features, self.units)
        for i in range(self._halvings):
            shapes |= dense_shapes(f"convolution_{i}", 2 * self.units, self.units)
        return {**shapes, **self._decoder_shapes(self.units, self._num_features)}

    def _initializer(self, name: str) -> Any:
        """The way down starts near a mean of the list."""
        if name.startswith("convolution_") and name.endswith("_kernel"):
            return keras.initializers.VarianceScaling(0.01, "fan_avg", "uniform")
        return super()._initializer(name)

    def soft_ranks(self, scores: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
        """The formula."""
        if scores.shape[1] not in (None, self.length):
            raise ValueError(
                f"`scores` must be lists of `length` = {self.length} items; pad shorter ones and "
                f"mask the padding. Received: {tuple(scores.shape)}."
            )
        scores = tf.ensure_shape(scores, [None, self.length])
        if mask is None:
            return super().soft_ranks(scores, None)
        # The places of masked items must change nothing, so they go to the end.
        order = tf.argsort(tf.cast(~mask, tf.int32), axis=1, stable=True)
        back = tf.argsort(order, axis=1)
        scores, mask = (tf.gather(x, order, axis=1, batch_dims=1) for x in (scores, mask))
        return tf.gather(super().soft_ranks(scores, mask), back, axis=1, batch_dims=1)

    def _network(self, standardized: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
        """The formula."""
        features = self._features(standardized, mask)
        items = tf.nn.relu(self._dense("items", features))
        if mask is not None:
            items *= tf.cast(mask, tf.float32)[:, :, None]
        num_items = count(standardized, mask)
        size = 2**self._halvings
        # Means of the valid items: masked items and the padding to a power of two add 0.
        context = tf.pad(items, [[0, 0], [0, size - self.length], [0, 0]])
        context *= size / num_items[:, :, None]
        for i in range(self._halvings):
            size //= 2
            pairs = tf.reshape(context, [-1, size, 2 * self.units])
            first, second = tf.split(pairs, 2, axis=2)
            context = (first + second) / 2 + tf.nn.relu(self._dense(f"convolution_{i}", pairs))
        return 0.5 + num_items * (0.5 + self._decode(features, context))
