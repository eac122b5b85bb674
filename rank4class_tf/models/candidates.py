"""The candidates of a `TwoTower` step, which `Reader` reads from the `y` of `fit`."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _keras
from rank4class_tf._lists import labels as _labels
from rank4class_tf._tf.raising import check, in_xla, same_sizes
from rank4class_tf._types import Array, Tensor


class Candidates(NamedTuple):
    """Candidates in rows, as the encoder takes them."""

    features: Any  # What the encoder takes, with m rows.
    # `[m]` int64, `id_keys` of the ids, -1 for padding; None without ids.
    keys: Tensor | None
    positive_rows: Tensor  # Of each query, `[batch]`, or `[batch, P]` padded with -1.
    weights: Tensor | None = None  # `[m]`, the `negative_weight`; None for 1.
    num_positives: Tensor | None = (
        None  # How many of the first rows are positives; None for all.
    )
    is_invalid: Tensor | None = None  # `[batch]`, True for a query that breaks a rule.

    @property
    def allows_several(self) -> bool:
        """Whether queries may have several positives."""
        return self.positive_rows.shape.rank == 2


class Columns(NamedTuple):
    """A step's candidates of all replicas, memory and index; all queries score them."""

    encodings: Tensor  # `[n, d]`
    keys: Tensor | None  # `[n]` int64; None without ids.
    # `[n]` booleans, False for an empty column; None if all hold one.
    is_present: Tensor | None
    num_draws: Tensor  # How many of them are draws by frequency; a scalar.
    rate: Tensor | None  # `[n]`: each column is expected num_draws * rate + base times.
    base: Tensor | None  # `[n]`; None, like `rate`, without a correction.


class Reader:
    """Reads candidates from features; the arguments are those of `TwoTower`."""

    def __init__(
        self,
        encoder: keras.layers.Layer,
        candidate_id: str | None,
        negatives: str | None,
        negative_weight: str | None,
    ):
        self._encoder, self._candidate_id = encoder, candidate_id
        self._negatives, self._negative_weight = negatives, negative_weight

    def ids(self, features: Any) -> Any:
        """The ids among features of candidates; None if they have no ids."""
        if self._candidate_id is not None:
            ids = feature_at("candidate_id", self._candidate_id, features)
            return _checks.ids("candidate_id", ids)
        if isinstance(features, (dict, tuple, list)):
            return None
        if not isinstance(features, tf.RaggedTensor):
            features = tf.convert_to_tensor(features)
        if features.shape.rank == 1:  # A number for each candidate.
            return _checks.ids("candidates", features)
        is_id = features.dtype.is_integer or features.dtype == tf.string
        return features if is_id and features.shape.rank in (None, 2) else None

    def has_features(self, candidates: Any, ids: Any) -> bool:
        """Whether the features of several candidates are present, not only the ids."""
        if ids is None or ids.shape.rank in (None, 1) or ids.shape[1:] == [1]:
            return True
        if not isinstance(candidates, dict):
            return self._encodes_ids
        inputs = _keras.symbolic_inputs(self._encoder)
        return (
            set(inputs) <= set(candidates)
            if isinstance(inputs, dict)
            else len(candidates) > 1
        )

    @property
    def _encodes_ids(self) -> bool:
        """Whether the encoder takes a number of each candidate, and nothing else."""
        shape = getattr(_keras.symbolic_inputs(self._encoder), "shape", None)
        return shape is not None and len(shape) == 1

    def candidates(self, y: Any, ids: Any, training: bool) -> Candidates:
        """A batch's positives, and the user's own negatives, from features and ids."""
        is_invalid = None
        features_are_ids = ids is not None and self._candidate_id is None
        encodes_ids = features_are_ids and self._encodes_ids
        if (
            ids is not None and ids.shape.rank is None
        ):  # Keras traced for ids of several ranks.
            if encodes_ids:
                y = ids = _labels.in_rows(ids)
            else:
                rows = _labels.in_rows(ids)
                has_several = tf.fill(tf.shape(rows), tf.shape(rows)[1] != 1)
                if training:  # Raises in a graph that can raise.
                    rule = (
                        "`y` must hold one id per query once the model has been "
                        "called with ids "
                    )
                    check(has_several, rows, f"{rule}of another rank")
                ids, is_invalid = rows[:, 0], has_several[:, 0]
                y = ids if features_are_ids else {**y, self._candidate_id: ids}
        elif (
            features_are_ids
            and not encodes_ids
            and ids.shape.rank == 2
            and ids.shape[1] != 1
        ):
            raise ValueError(
                "`candidate_id` must be given where the features of a candidate are "
                "several integers. Received: candidate_id=None, ids of shape "
                f"{ids.shape}."
            )
        positives = self._flat(y, ids, "y", _keras.symbolic_inputs(self._encoder))
        if training and positives.keys is not None and not positives.allows_several:
            rule = (
                "`y` must have an id other than -1 for each query, or ids `[batch, P]`"
            )
            keys = positives.keys[:, tf.newaxis]
            missing = check(keys == -1, keys, rule)
            is_invalid = missing if is_invalid is None else is_invalid | missing
        positives = positives._replace(is_invalid=is_invalid)
        if self._negatives is None or not training and self._negatives not in y:
            return positives
        features = feature_at("negatives", self._negatives, y)
        negatives = self._flat(
            features, self.ids(features), "negatives", positives.features
        )

        def joined(positive: Tensor, negative: Tensor) -> Tensor:
            return tf.concat([positive, negative], axis=0)

        weights = None
        if positives.weights is not None or negatives.weights is not None:
            parts = (positives, negatives)
            weights = [
                tf.ones(tf.shape(x.keys)) if x.weights is None else x.weights
                for x in parts
            ]
            weights = joined(*weights)
        return positives._replace(
            features=tf.nest.map_structure(
                joined, positives.features, negatives.features
            ),
            keys=joined(positives.keys, negatives.keys),
            weights=weights,
            num_positives=tf.size(positives.keys),
        )

    def _flat(self, features: Any, ids: Any, argument: str, single: Any) -> Candidates:
        """A batch's candidates in rows; `single` is like features of one candidate."""
        # Features are `[batch, ...]`, or `[batch, P, ...]` or ragged if ids are so. Ids
        # are None, `[batch]`, `[batch, 1]`, `[batch, P]` padded with -1, or ragged.
        weights = None
        if isinstance(features, dict):
            weights = features.get(self._negative_weight)
            other_keys = (self._negatives, self._negative_weight)
            features = {
                name: x for name, x in features.items() if name not in other_keys
            }
        features = inputs_for(self._encoder, features, argument)
        ranks, single_ranks = (
            [
                tf.TensorShape(x.shape).rank
                for x in tf.nest.flatten(part)
                if x is not None
            ]
            for part in (features, single)
        )
        # Keras itself drops a last axis of size 1: `[batch, 1]` numbers are not several
        # candidates.
        min_rank = 3 if argument == "y" else 2
        has_several = any(
            rank is not None and rank >= min_rank and rank - 1 == single_rank
            for rank, single_rank in zip(ranks, single_ranks, strict=False)
        )
        # Ragged candidates have no padding: their values are the rows.
        if isinstance(ids, tf.RaggedTensor):
            keys = id_keys(ids.values)
            features = tf.nest.map_structure(lambda x: x.values, features)
            positive_rows = ids.with_values(tf.range(tf.size(keys))).to_tensor(-1)
            weights = None if weights is None else weights.values
        elif (
            ids is not None
            and ids.shape.rank != 1
            and (has_several or ids.shape[1:] != [1])
        ):
            ids = _labels.in_rows(ids)
            # `[batch, P]`, where padding is a row without a key.
            keys = id_keys(tf.reshape(ids, [-1]))
            rows = tf.where(keys == -1, -1, tf.range(tf.size(keys)))
            # Encode padding as the first candidate: the encoder may reject -1.
            encoded = tf.maximum(rows, tf.cast(tf.argmax(rows >= 0), tf.int32))
            features = tf.nest.map_structure(
                lambda x: tf.gather(_merged(x), encoded), features
            )
            positive_rows = tf.reshape(rows, tf.shape(ids))
        else:  # One candidate for each query.
            first = tf.nest.flatten(features)[0]
            batch = (
                first.nrows()
                if isinstance(first, tf.RaggedTensor)
                else tf.shape(first)[0]
            )
            positive_rows = tf.range(tf.cast(batch, tf.int32))
            keys = None if ids is None else id_keys(tf.reshape(ids, [-1]))
        if weights is not None:
            weights = tf.reshape(tf.cast(weights, tf.float32), [-1])
            if keys is not None:
                rule = "`negative_weight` must have the shape of the ids."
                weights = same_sizes(weights, keys, rule)
                weights = tf.where(keys == -1, 1.0, weights)  # Padding has any weight.
            # Graphs rewrite `~(column > 0)`, and miss a NaN. XLA cannot raise: it gets
            # NaN weights.
            column = weights[:, tf.newaxis]
            is_wrong = (column <= 0) | ~tf.math.is_finite(column)
            is_wrong = check(
                is_wrong, column, "`negative_weight` must hold finite numbers > 0"
            )
            weights = tf.where(is_wrong, tf.constant(float("nan")), weights)
        return Candidates(features, keys, positive_rows, weights)


def _merged(x: Array) -> Tensor:
    """Features `[batch, P, ...]` as `[batch P, ...]`."""
    if isinstance(x, tf.RaggedTensor):
        return x.merge_dims(0, 1)
    x = tf.convert_to_tensor(x)
    return tf.reshape(x, tf.concat([[-1], tf.shape(x)[2:]], axis=0))


def id_keys(ids: Array, argument: str = "candidate_id") -> Tensor:
    """Ids as int64; strings are hashed to enough buckets not to collide in practice."""
    ids = _checks.ids(argument, ids)
    if ids.dtype == tf.string:
        rule = f"`{argument}` may hold strings only with `compile(jit_compile=False)`"
        _checks.require(not in_xla(), f"{rule}: XLA compiles none.", "strings")
        return tf.strings.to_hash_bucket_fast(ids, 2**63 - 1)
    return tf.cast(ids, tf.int64)


def inputs_for(encoder: keras.layers.Layer, features: Any, argument: str) -> Any:
    """The features that an encoder takes: of a dict, those of its named inputs."""
    inputs = _keras.symbolic_inputs(encoder)
    is_dict = isinstance(features, dict)
    if is_dict and isinstance(inputs, dict):
        missing = sorted(set(inputs) - set(features))
        rule = f"`{argument}` must have the inputs of its encoder."
        _checks.require(not missing, rule, f"{sorted(features)}, without {missing}")
        return {name: features[name] for name in inputs}
    num_inputs, num_parts = (len(tf.nest.flatten(x)) for x in (inputs, features))
    rule = (
        f"`{argument}` must have a part for each of the {num_inputs} inputs of its "
        "encoder. A dict may have more if the inputs have names."
    )
    is_right = inputs is None or is_dict or num_inputs == num_parts
    _checks.require(is_right, rule, f"{num_parts} parts")
    return features


def feature_at(argument: str, key: str, features: Any) -> Any:
    """The features under a key that the argument of this name gave."""
    is_dict = isinstance(features, dict)
    if not is_dict or key not in features:
        received = sorted(features) if is_dict else type(features).__name__
        rule = f"`{argument}` must be a key of the features."
        raise ValueError(f"{rule} Received: {argument}={key!r}, features {received}.")
    return features[key]
