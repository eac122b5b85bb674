"""RecurrentSorter."""

import math
from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf.layers import _learned_sorter
from rank4class_tf.layers._learned_sorter import LearnedSorter, count
from rank4class_tf.ops.ranking.lstm import LSTMWeights, bidirectional_lstm


@_learned_sorter.register
class RecurrentSorter(LearnedSorter):
    r"""A bidirectional LSTM that has learned to rank.

    $$f(s)_i = \tfrac{d + 1}{2} + d \cdot \mathrm{N}\left([(A x_i) \odot h_i; x_i]\right), \qquad
    h = \mathrm{BiLSTM}(x_1, \dots, x_d)$$

    with $x_i$ the sines and cosines of the standardised score, and N a hidden layer with a linear
    shortcut. Before training, the states are nearly means of random features over the items read so
    far. From this start, the sorter learns several times faster than from random gates. Time is
    O(d), but the items are read one after the other.

    Source: SoDeep (Engilberge et al. 2019), section 3.1.1. Its LSTM is larger, reads the scores as
    they are, and has a linear projection on top.

    Args:
        frequencies: how many sines, and how many cosines, are made from a score, >= 1.
        units: width of the LSTM in each direction, >= 1.
        trainable: whether the weights are trained with the model that the sorter serves.
        **kwargs: arguments of Keras, such as `name`.

    Ranks depend a little on the order of the items.

    Raises:
        ValueError: if `frequencies` or `units` is not a positive integer.

    Example:
        >>> sorter = RecurrentSorter.pretrained()
        >>> sorter(tf.constant([[0.3, 0.1, 0.9, 0.5]])).numpy().round().astype(int)
        array([[3, 4, 1, 2]])
    """

    def __init__(
        self, frequencies: int = 40, units: int = 80, trainable: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(frequencies, units, trainable, **kwargs)

    def _weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Name -> shape of each weight."""
        shapes: dict[str, tuple[int, ...]] = {}
        for direction in ("forward", "backward"):
            shapes[f"{direction}_kernel"] = (self._num_features, 4 * self.units)
            shapes[f"{direction}_recurrent_kernel"] = (self.units, 4 * self.units)
            shapes[f"{direction}_bias"] = (4 * self.units,)
        return {**shapes, **self._decoder_shapes(2 * self.units, self._num_features)}

    def _initializer(self, name: str) -> Any:
        """Gates that let a state start as a running mean."""
        if name.endswith("ward_kernel"):
            return _kernel_of_running_means
        if name.endswith("ward_recurrent_kernel"):
            return _weak()
        if name.endswith("ward_bias"):
            return _bias_of_running_means
        return super()._initializer(name)

    def _network(self, standardized: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
        """The formula."""
        features = self._features(standardized, mask)
        forward, backward = (
            LSTMWeights(
                self._weight(f"{direction}_kernel"),
                self._weight(f"{direction}_recurrent_kernel"),
                self._weight(f"{direction}_bias"),
            )
            for direction in ("forward", "backward")
        )
        states = bidirectional_lstm(features, forward, backward, mask)
        return 0.5 + count(standardized, mask) * (0.5 + self._decode(features, states))


def _weak():
    return keras.initializers.VarianceScaling(0.1, "fan_avg", "uniform")


def _kernel_of_running_means(shape, dtype=None):
    """Input gates of 1 / (d + 1), by the last feature, the logarithm of d over 5."""
    features, units = shape[0], shape[1] // 4
    of_log_count = tf.constant([[0.0]] * (features - 1) + [[-5.0]])
    input_gates = _weak()((features, units), "float32") * (1 + of_log_count / 5) + of_log_count
    other_gates = _weak()((features, 2 * units), "float32")
    contents = keras.initializers.RandomNormal(stddev=math.sqrt(2 / features))
    parts = [input_gates, other_gates, contents((features, units), "float32")]
    return tf.cast(tf.concat(parts, axis=1), dtype or tf.float32)


def _bias_of_running_means(shape, dtype=None):
    """Forget gates of 0.998; the LSTM itself adds 1."""
    of_gates = tf.repeat([0.0, 5.0, 0.0, 0.0], shape[0] // 4)
    return tf.cast(of_gates, dtype or tf.float32)
