"""InteractionScorer."""

from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import layers
from rank4class_tf.tfr import _load

_tfr: Any = _load.load()


class InteractionScorer(_tfr.keras.model.Scorer):
    r"""Scores a list by how its context and its examples interact, for `ModelBuilder`.

    $$s_i = f(h, c_i), \qquad h = \mathrm{encoder}(\mathrm{context}), \quad
    c_i = \mathrm{class\_encoder}(\mathrm{example}_i)$$

    f is an interaction: the dot product $c_i^\top h$, the latent cross
    $\mathrm{MLP}(h \odot (1 + c_i))$, $\mathrm{MLP}([h; c_i])$, or another.

    Source: Rank4Class, sections 3.2 and 4.2, where the examples are the classes.

    A masked example changes nothing: zeros replace its features before they are encoded, and its
    score is the lowest finite number of the scores' type.

    Args:
        encoder: a layer or function from the context to h, `[batch, d]`. It gets the feature if
            there is only one, otherwise a dict of them. Under a strategy it should be a function
            that makes its layers when it is called.
        class_encoder: the same from the examples to their embeddings, `[batch, n, d]`. An integer
            feature `[batch, n, 1]`, such as class ids, arrives as `[batch, n]`, so that
            you can pass `keras.layers.Embedding(num_classes, d)`.
        interaction: the name of an interaction of `rank4class_tf.layers`, such as `"dot_product"`,
            `"latent_cross"` or `"concat"`, or your own subclass of `layers.Interaction`.
        tasks: names of several outputs, each with its own interaction, or None for one output.
        **kwargs: arguments of the interaction, such as `units` of the MLP.

    Returns:
        Called by `ModelBuilder` with context features, example features and mask: scores
        `[batch, n]`, or a dict of them.

    Raises:
        ValueError: if `interaction` is unknown or takes other arguments.

    Example:
        >>> scorer = InteractionScorer(
        ...     keras.layers.Dense(8), keras.layers.Embedding(5, 8), "latent_cross", units=(16,)
        ... )
        >>> mask = tf.constant([[True, True, False]])
        >>> class_ids = tf.constant([[[3], [1], [-1]]])
        >>> scorer({"x": tf.ones([1, 4])}, {"class_id": class_ids}, mask).shape
        TensorShape([1, 3])
    """

    def __init__(
        self,
        encoder: Any,
        class_encoder: Any,
        interaction: Any = "latent_cross",
        tasks: Any = None,
        **kwargs: Any,
    ) -> None:
        if isinstance(interaction, type) and issubclass(interaction, layers.Interaction):
            self._make = lambda: interaction(**kwargs)
        else:
            layers.get_interaction(interaction, **kwargs)  # Mistakes raise here, not in training.
            self._make = lambda: layers.get_interaction(interaction, **kwargs)
        self._encoder = encoder
        self._class_encoder = class_encoder
        self._tasks = tasks

    def __call__(
        self, context_features: dict[str, Any], example_features: dict[str, Any], mask: tf.Tensor
    ) -> Any:
        """Scores all examples."""
        example_features = {
            name: _without_padding(value, mask) for name, value in example_features.items()
        }
        encodings = self._encoder(_one_or_all(context_features))
        candidates = self._class_encoder(_one_or_all(example_features))
        if self._tasks is None:
            return self._scores(encodings, candidates, mask, None)
        return {task: self._scores(encodings, candidates, mask, task) for task in self._tasks}

    def _scores(self, encodings, candidates, mask, name):
        scores = self._make()([encodings, candidates])
        if scores.dtype != tf.float64:
            scores = tf.cast(scores, tf.float32)  # Mixed precision ends here.
        scores = tf.where(mask, scores, scores.dtype.min)
        # Keras names an output after the layer that makes it.
        return keras.layers.Activation("linear", dtype=scores.dtype, name=name)(scores)


def _one_or_all(features):
    return next(iter(features.values())) if len(features) == 1 else features


def _without_padding(value, mask):
    """A feature with zeros for masked examples; integers `[batch, n, 1]` lose their last axis."""
    if value.dtype.is_integer and value.shape.rank == 3 and value.shape[2] == 1:
        value = tf.squeeze(value, axis=2)
    shape = tf.concat([tf.shape(mask), tf.ones([value.shape.rank - 2], tf.int32)], axis=0)
    return tf.where(tf.reshape(mask, shape), value, tf.zeros_like(value))
