"""The candidates in a batch of pairs: positives, and the user's own negatives."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _keras
from rank4class_tf._lists import labels as _labels
from rank4class_tf._tf.raising import check, same_sizes
from rank4class_tf.models._catalogue import id_keys


class Candidates(NamedTuple):
    """Candidates one below the other.

    Attributes:
        features: what the encoder takes, with m rows.
        keys: `[m]` int64, those of the ids, -1 for padding; None without ids.
        places: the rows of the positives of each query, `[batch]`, or `[batch, P]` padded with -1.
        weights: `[m]`, of negatives; None for 1.
        num_own: how many rows, the first ones, are positives; None for all.
        wrong: `[batch]` booleans, True for a query that breaks a rule; None for no such query.
    """

    features: Any
    keys: tf.Tensor | None
    places: tf.Tensor
    weights: tf.Tensor | None = None
    num_own: tf.Tensor | None = None
    wrong: tf.Tensor | None = None

    @property
    def several(self) -> bool:
        """Whether queries may have several positives."""
        return self.places.shape.rank == 2

    @property
    def is_own(self) -> tf.Tensor:
        """`[m]` booleans, True for a positive."""
        return tf.range(tf.shape(self.keys)[0]) < self.num_own

    @property
    def padded(self) -> tf.Tensor:
        """`[m]` booleans, True for what only pads the positives."""
        padded = self.keys == -1
        return padded if self.num_own is None else padded & self.is_own

    def with_negatives(self, others: Candidates) -> Candidates:
        """These, and others that are no positives."""

        def joined(x, y):
            return tf.concat([x, y], axis=0)

        weights = None
        if self.weights is not None or others.weights is not None:
            both = self, others
            ones = (tf.ones(tf.shape(of.keys)) for of in both)
            given = (of.weights for of in both)
            weights = joined(*(w if o is None else o for w, o in zip(ones, given, strict=True)))
        return self._replace(
            features=tf.nest.map_structure(joined, self.features, others.features),
            keys=joined(self.keys, others.keys),
            weights=weights,
            num_own=tf.size(self.keys),
        )


class Columns(NamedTuple):
    """The candidates of a step, which all its queries score.

    Attributes:
        encodings: `[n, d]`.
        keys: `[n]` int64; None without ids.
        there: `[n]` booleans, False for an empty place; None if there is none.
        draws: how many of them are draws by frequency.
        rate: `[n]`, how often each is expected for a draw; None for no correction.
        base: `[n]`, how often besides.
    """

    encodings: tf.Tensor
    keys: tf.Tensor | None
    there: tf.Tensor | None
    draws: tf.Tensor
    rate: tf.Tensor | None
    base: tf.Tensor | None


def in_rows(features: Any, ids: Any, weights: Any = None) -> Candidates:
    """Brings candidates of a batch to one below the other.

    Args:
        features: tensors `[batch, ...]`, or `[batch, P, ...]` or ragged if `ids` are so.
        ids: None, `[batch]`, `[batch, 1]`, `[batch, P]` padded with -1, or ragged.
        weights: None, or numbers of the shape of the ids.
    """
    if isinstance(ids, tf.RaggedTensor):
        rows = tf.range(tf.size(ids.values))
        keys = id_keys(ids.values)
        return Candidates(
            tf.nest.map_structure(lambda x: x.values, features),
            keys,
            ids.with_values(rows).to_tensor(-1),
            None if weights is None else _checked_weights(weights.values, keys),
        )
    if ids is not None and ids.shape.rank != 1 and ids.shape[1:] != [1]:
        ids = _labels.in_rows(ids)
        keys = id_keys(tf.reshape(ids, [-1]))
        rows = tf.range(tf.size(keys))
        places = tf.where(keys == -1, -1, rows)
        # In place of padding, which the encoder may not know, stands the first candidate.
        there = tf.maximum(places, tf.cast(tf.argmax(places >= 0), tf.int32))
        return Candidates(
            tf.nest.map_structure(lambda x: tf.gather(_merged(x), there), features),
            keys,
            tf.reshape(places, tf.shape(ids)),
            None if weights is None else _checked_weights(weights, keys),
        )
    first = tf.nest.flatten(features)[0]
    batch = first.nrows() if isinstance(first, tf.RaggedTensor) else tf.shape(first)[0]
    places = tf.range(tf.cast(batch, tf.int32))
    keys = None if ids is None else id_keys(tf.reshape(ids, [-1]))
    if weights is not None:
        weights = _checked_weights(weights, keys)
    return Candidates(features, keys, places, weights)


def _checked_weights(weights, keys):
    """Weights `[m]`; raises unless those of candidates are > 0, and gives NaN under XLA."""
    weights = tf.reshape(tf.cast(weights, tf.float32), [-1])
    if keys is not None:
        weights = same_sizes(weights, keys, "`negative_weight` must have the shape of the ids.")
        weights = tf.where(keys == -1, 1.0, weights)  # Padding has any weight.
    # Graphs would make "not greater than 0" of a NaN "less".
    rows = weights[:, tf.newaxis]
    bad = (rows <= 0) | ~tf.math.is_finite(rows)
    bad = check(bad, rows, "`negative_weight` must hold finite numbers > 0")
    return tf.where(bad, tf.constant(float("nan")), weights)


def one_each(ids: tf.Tensor, training: bool) -> tuple[tf.Tensor, tf.Tensor]:
    """Ids of an unknown rank as `[batch]`, and `[batch]` booleans, True where there are several.

    In training these raise, where something can.
    """
    rows = _labels.in_rows(ids)
    wrong = tf.fill(tf.shape(rows), tf.shape(rows)[1] != 1)
    if training:
        rule = (
            "`y` must hold one id per query once the model has been called with ids of another rank"
        )
        check(wrong, rows, rule)
    return rows[:, 0], wrong[:, 0]


def known_to(encoder: keras.layers.Layer, features: Any, argument: str) -> Any:
    """The features that an encoder takes: of a dict, those of its named inputs."""
    inputs = _keras.symbolic_inputs(encoder)
    if isinstance(features, dict) and isinstance(inputs, dict):
        if missing := sorted(set(inputs) - set(features)):
            raise ValueError(
                f"`{argument}` must have the inputs of its encoder. "
                f"Received: {sorted(features)}, without {missing}."
            )
        return {name: features[name] for name in inputs}
    numbers = [len(tf.nest.flatten(x)) for x in (inputs, features)]
    if inputs is not None and not isinstance(features, dict) and numbers[0] != numbers[1]:
        raise ValueError(
            f"`{argument}` must have a part for each of the {numbers[0]} inputs of its encoder. "
            f"A dict may have more if the inputs have names. Received: {numbers[1]} parts."
        )
    return features


def of_key(argument: str, key: str, features: Any) -> Any:
    """What features have under the key that an argument gave."""
    is_dict = isinstance(features, dict)
    if not is_dict or key not in features:
        received = sorted(features) if is_dict else type(features).__name__
        raise ValueError(
            f"`{argument}` must be a key of the features. "
            f"Received: {argument}={key!r}, features {received}."
        )
    return features[key]


def _merged(x):
    """Features `[batch, P, ...]` as `[batch P, ...]`."""
    if isinstance(x, tf.RaggedTensor):
        return x.merge_dims(0, 1)
    x = tf.convert_to_tensor(x)
    return tf.reshape(x, tf.concat([[-1], tf.shape(x)[2:]], axis=0))
