"""How an encoding and the embeddings of classes, or of documents, meet in a score."""

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _config, _keras


class Interaction(keras.layers.Layer):
    """Base: scores candidates `[n, d]` or `[batch, n, d]` for encodings `[batch, d]`."""

    def build(self, input_shape):
        """Creates the weights for encodings of this shape."""
        self.build_for(int(input_shape[-1]))
        self.built = True

    def build_for(self, width):
        """Creates the weights for encodings and candidates of this width."""

    def call(self, encodings, candidates):
        """Returns the scores, `[batch, n]`."""
        raise NotImplementedError

    def get_config(self):
        """Returns the constructor arguments."""
        return {**super().get_config(), **_config.constructor_arguments(self, Interaction)}


@_keras.register
class DotProduct(Interaction):
    """The dot product; without weights."""

    def call(self, encodings, candidates):
        """Returns the scores, `[batch, n]`."""
        return tf.linalg.matvec(candidates, encodings)


class MLPInteraction(Interaction):
    """Base of those that end in an MLP; a subclass is its first layer."""

    def __init__(self, units=(256, 256), activation="relu", **kwargs):
        super().__init__(**kwargs)
        if not isinstance(units, (list, tuple)) or not units:
            raise ValueError(f"`units` must hold at least one width. Received: units={units!r}.")
        self.units = tuple(_checks.positive_int("units", width) for width in units)
        self.activation = activation
        self.activate = keras.layers.Activation(activation)
        self.hidden = [keras.layers.Dense(width, activation) for width in self.units[1:]]
        self.score = keras.layers.Dense(1)

    def build_for(self, width):
        """Creates the MLP."""
        self.build_first(width)
        for layer, size in zip([*self.hidden, self.score], self.units, strict=True):
            layer.build((None, None, size))

    def build_first(self, width):
        """Creates the first layer."""
        raise NotImplementedError

    def first_layer(self, encodings, candidates):
        """The first layer before its activation: `[batch, n, units[0]]`."""
        raise NotImplementedError

    def call(self, encodings, candidates):
        """Returns the scores, `[batch, n]`."""
        hidden = self.activate(self.first_layer(encodings, candidates))
        for layer in self.hidden:
            hidden = layer(hidden)
        return tf.squeeze(self.score(hidden), axis=-1)


@_keras.register
class LatentCross(MLPInteraction):
    """An MLP on the encoding times one plus the candidate."""

    def __init__(self, units=(256, 256), activation="relu", **kwargs):
        super().__init__(units, activation, **kwargs)
        self.first = keras.layers.Dense(self.units[0])

    def build_first(self, width):
        """Creates the first layer."""
        self.first.build((None, None, width))

    def first_layer(self, encodings, candidates):
        """The first layer before its activation: `[batch, n, units[0]]`."""
        return self.first(encodings[:, None, :] * (1 + candidates))


@_keras.register
class Concat(MLPInteraction):
    """An MLP on encoding and candidate side by side.

    The first layer acts on each half alone, so that the pairs are formed only after it.
    """

    def __init__(self, units=(256, 256), activation="relu", **kwargs):
        super().__init__(units, activation, **kwargs)
        self.of_encodings = keras.layers.Dense(self.units[0])
        self.of_candidates = keras.layers.Dense(self.units[0], use_bias=False)

    def build_first(self, width):
        """Creates the first layer."""
        self.of_encodings.build((None, width))
        self.of_candidates.build((None, width))

    def first_layer(self, encodings, candidates):
        """The first layer before its activation: `[batch, n, units[0]]`."""
        return self.of_encodings(encodings)[:, None, :] + self.of_candidates(candidates)


INTERACTIONS = {"concat": Concat, "dot_product": DotProduct, "latent_cross": LatentCross}
