"""The candidates of a `TwoTower` step, which `Reader` reads from the `y` of `fit`.

A query has one candidate, or several, all positives. The form of the ids tells which:

- none, or ids `[batch]`: one.
- ids `[batch, P]`, padded with -1, or ragged ids: several.
- ids `[batch, 1]`: one, unless a feature has the axis of P = 1, too: `_are_one_each`.
- ids of unknown rank, as `y` has them where Keras trains on several ranks: one, unless
  the encoder takes only ids: `Reader._with_known_rank`.

`Candidates.positive_rows` keeps the answer, as `[batch]` or `[batch, P]`.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple, TypeAlias

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _keras
from rank4class_tf._lists import labels as _labels
from rank4class_tf._tf.raising import check, in_xla, same_sizes
from rank4class_tf._tf.shapes import num_rows
from rank4class_tf._types import Array, Features, Tensor

# Integers or strings.
Ids: TypeAlias = tf.Tensor | tf.RaggedTensor


class Candidates(NamedTuple):
    """Candidates in rows, as the encoder takes them."""

    features: Features  # What the encoder takes, with m rows.
    # `[m]` int64, `id_keys` of the ids, -1 for padding; None without ids.
    keys: Tensor | None
    # Of each query, `[batch]`, or `[batch, P]` padded with -1.
    positive_rows: Tensor
    # `[m]`, the `negative_weight`; None for 1.
    weights: Tensor | None = None
    # How many of the first rows are positives; None for all.
    num_positives: Tensor | None = None
    # `[batch]`, True for a query that breaks a rule.
    is_invalid: Tensor | None = None

    @property
    def allows_several(self) -> bool:
        """Whether queries may have several positives."""
        return self.positive_rows.shape.rank == 2

    @property
    def all_weights(self) -> Tensor:
        """`[m]`, also where none are given."""
        return tf.ones(tf.shape(self.keys)) if self.weights is None else self.weights

    def with_negatives(self, negatives: Candidates) -> Candidates:
        """These, which are positives, and then negatives of all queries."""

        def joined(positive: Tensor, negative: Tensor) -> Tensor:
            return tf.concat([positive, negative], axis=0)

        weights = None
        if self.weights is not None or negatives.weights is not None:
            weights = joined(self.all_weights, negatives.all_weights)
        return self._replace(
            features=tf.nest.map_structure(joined, self.features, negatives.features),
            keys=joined(self.keys, negatives.keys),
            weights=weights,
            num_positives=tf.size(self.keys),
        )


class _Batch(NamedTuple):
    """The labels of a batch, whose ids have a known rank."""

    features: Features
    ids: Ids | None
    # `[batch]`, True for a query whose label cannot be read; None if all can be.
    is_invalid: Tensor | None = None


@dataclasses.dataclass(frozen=True)
class Reader:
    """Reads candidates from features; the arguments are those of `TwoTower`."""

    encoder: keras.layers.Layer  # Of candidates.
    candidate_id: str | None
    negatives: str | None
    negative_weight: str | None

    def ids(self, features: Features) -> Ids | None:
        """The ids among features of candidates; None if they have no ids."""
        if self.candidate_id is not None:
            ids = feature_at("candidate_id", self.candidate_id, features)
            return _checks.ids("candidate_id", ids)
        if isinstance(features, (dict, tuple, list)):
            return None
        if not isinstance(features, tf.RaggedTensor):
            features = tf.convert_to_tensor(features)
        if features.shape.rank == 1:  # A number for each candidate.
            return _checks.ids("candidates", features)
        is_id = features.dtype.is_integer or features.dtype == tf.string
        return features if is_id and features.shape.rank in (None, 2) else None

    def has_features(self, candidates: Features, ids: Ids | None) -> bool:
        """Whether the features of the candidates are present, not only the ids."""
        if not _hold_several(ids):
            return True
        if not isinstance(candidates, dict):
            return self._encodes_ids
        inputs = _keras.symbolic_inputs(self.encoder)
        if isinstance(inputs, dict):
            return set(inputs) <= set(candidates)
        return len(candidates) > 1

    @property
    def _encodes_ids(self) -> bool:
        """Whether the encoder takes a number of each candidate, and nothing else."""
        shape = getattr(_keras.symbolic_inputs(self.encoder), "shape", None)
        return shape is not None and len(shape) == 1

    def candidates(self, y: Features, ids: Ids | None, training: bool) -> Candidates:
        """A batch's positives, and the user's own negatives, from features and ids."""
        batch = self._with_known_rank(y, ids, training)
        self._check_id_key(batch.ids)
        inputs = _keras.symbolic_inputs(self.encoder)
        # Numbers `[batch, 1]` are features of one candidate, since Keras drops a last
        # axis of size 1 itself.
        positives = self._in_rows("y", batch.features, batch.ids, inputs, min_rank=3)
        is_invalid = batch.is_invalid
        if training and positives.keys is not None and not positives.allows_several:
            rule = (
                "`y` must have an id other than -1 for each query, or ids `[batch, P]`"
            )
            keys = positives.keys[:, tf.newaxis]
            missing = check(keys == -1, keys, rule)
            is_invalid = missing if is_invalid is None else is_invalid | missing
        positives = positives._replace(is_invalid=is_invalid)

        if self.negatives is None:
            return positives
        names = batch.features if isinstance(batch.features, dict) else ()
        if not training and self.negatives not in names:
            return positives
        features = feature_at("negatives", self.negatives, batch.features)
        ids = self.ids(features)
        of_one = positives.features
        negatives = self._in_rows("negatives", features, ids, of_one, min_rank=2)
        return positives.with_negatives(negatives)

    def _with_known_rank(self, y: Features, ids: Ids | None, training: bool) -> _Batch:
        """The labels; Keras may have traced the step for ids of several ranks."""
        if ids is None or ids.shape.rank is not None:
            return _Batch(y, ids)
        rows = _labels.in_rows(ids)
        if self.candidate_id is None and self._encodes_ids:
            return _Batch(rows, rows)

        # Features of several candidates would need another rank too: one id each.
        has_several = tf.fill(tf.shape(rows), tf.shape(rows)[1] != 1)
        if training:  # Raises in a graph that can raise.
            rule = (
                "`y` must hold one id per query once the model has been called with "
                "ids of another rank"
            )
            check(has_several, rows, rule)
        ids = rows[:, 0]
        features = {**y, self.candidate_id: ids} if isinstance(y, dict) else ids
        return _Batch(features, ids, is_invalid=has_several[:, 0])

    def _check_id_key(self, ids: Ids | None) -> None:
        """Raises where the integers that one candidate has would be read as ids."""
        if ids is None or self.candidate_id is not None:
            return
        if _hold_several(ids) and not self._encodes_ids:
            raise ValueError(
                "`candidate_id` must be given where the features of a candidate "
                "are several integers. Received: candidate_id=None, ids of shape "
                f"{ids.shape}."
            )

    def _in_rows(
        self,
        argument: str,
        features: Features,
        ids: Ids | None,
        of_one: Features,
        min_rank: int,
    ) -> Candidates:
        """The candidates of a batch, which an argument gave, in rows.

        Features are `[batch, ...]`, or `[batch, P, ...]` or ragged if ids are so. Ids
        are None, `[batch]`, `[batch, 1]`, `[batch, P]` padded with -1, or ragged.
        `of_one` has the ranks of features of one candidate for each query, and no
        feature of fewer axes than `min_rank` is of P of them.
        """
        # Weights and negatives are among the features, but the encoder takes neither.
        weights = None
        if isinstance(features, dict):
            features = {**features}
            weights = features.pop(self.negative_weight, None)
            features.pop(self.negatives, None)
        features = inputs_for(self.encoder, features, argument)

        if isinstance(ids, tf.RaggedTensor):
            _check_ragged(argument, features, weights)
            candidates = _of_ragged_ids(features, ids)
            weights = None if weights is None else weights.values
        elif _are_one_each(features, ids, of_one, min_rank):
            candidates = _one_for_each_query(features, ids)
        else:
            candidates = _of_padded_ids(features, _labels.in_rows(ids))
        if weights is None:
            return candidates
        return candidates._replace(weights=_checked_weights(weights, candidates.keys))


def _hold_several(ids: Ids | None) -> bool:
    """Whether ids are ragged or `[batch, P]`; those `[batch, 1]` may be of one each."""
    if ids is None or ids.shape.rank in (None, 1):
        return False
    return ids.shape[1:] != [1]


def _check_ragged(argument: str, features: Features, weights: Features) -> None:
    rule = f"`{argument}` must be ragged where ids are, weights too."
    for part in (*tf.nest.flatten(features), weights):
        is_ragged = part is None or isinstance(part, tf.RaggedTensor)
        _checks.require(is_ragged, rule, "a dense tensor")


def _are_one_each(
    features: Features, ids: Tensor | None, of_one: Features, min_rank: int
) -> bool:
    """Whether each query has one candidate, rather than P of them."""
    if ids is None or ids.shape.rank == 1:
        return True
    if ids.shape.rank is None or _hold_several(ids):
        return False

    # Ids are `[batch, 1]`, where P = 1 if a feature has the axis of P.
    ranks = zip(_ranks(features), _ranks(of_one), strict=False)
    for rank, rank_of_one in ranks:
        if rank is not None and rank >= min_rank and rank - 1 == rank_of_one:
            return False
    return True


def _ranks(features: Features) -> list[int | None]:
    parts = tf.nest.flatten(features)
    return [tf.TensorShape(x.shape).rank for x in parts if x is not None]


def _one_for_each_query(features: Features, ids: Tensor | None) -> Candidates:
    """Candidates `[batch]`, which may have no ids."""
    batch = num_rows(tf.nest.flatten(features)[0])
    keys = None if ids is None else id_keys(tf.reshape(ids, [-1]))
    return Candidates(features, keys, tf.range(batch))


def _of_padded_ids(features: Features, ids: Tensor) -> Candidates:
    """Candidates `[batch, P]`, where padding is a row without a key."""
    keys = id_keys(tf.reshape(ids, [-1]))
    rows = tf.where(keys == -1, -1, tf.range(tf.size(keys)))
    # Encode padding as the first candidate: the encoder may reject -1.
    encoded = tf.maximum(rows, tf.cast(tf.argmax(rows >= 0), tf.int32))
    features = tf.nest.map_structure(lambda x: tf.gather(_merged(x), encoded), features)
    return Candidates(features, keys, tf.reshape(rows, tf.shape(ids)))


def _of_ragged_ids(features: Features, ids: tf.RaggedTensor) -> Candidates:
    """Ragged candidates, which have no padding: their values are the rows."""
    keys = id_keys(ids.values)
    features = tf.nest.map_structure(lambda x: x.values, features)
    rows = ids.with_values(tf.range(tf.size(keys)))
    return Candidates(features, keys, rows.to_tensor(-1))


def _checked_weights(weights: Array, keys: Tensor | None) -> Tensor:
    """The weights of candidates `[m]`; NaN for a wrong one where XLA cannot raise."""
    weights = tf.reshape(tf.cast(weights, tf.float32), [-1])
    if keys is not None:
        rule = "`negative_weight` must have the shape of the ids."
        weights = same_sizes(weights, keys, rule)
        weights = tf.where(keys == -1, 1.0, weights)  # Padding has any weight.
    column = weights[:, tf.newaxis]
    # Graphs rewrite `~(column > 0)`, and miss a NaN.
    is_wrong = (column <= 0) | ~tf.math.is_finite(column)
    rule = "`negative_weight` must hold finite numbers > 0"
    is_wrong = check(is_wrong, column, rule)
    return tf.where(is_wrong, tf.constant(float("nan")), weights)


def _merged(x: Tensor | tf.RaggedTensor) -> Tensor:
    """Features `[batch, P, ...]` as `[batch P, ...]`."""
    if isinstance(x, tf.RaggedTensor):
        return x.merge_dims(0, 1)
    x = tf.convert_to_tensor(x)
    return tf.reshape(x, tf.concat([[-1], tf.shape(x)[2:]], axis=0))


def id_keys(ids: Ids, argument: str = "candidate_id") -> Tensor:
    """Ids as int64; strings are hashed to enough buckets not to collide in practice."""
    ids = _checks.ids(argument, ids)
    if ids.dtype == tf.string:
        rule = f"`{argument}` may hold strings only with `compile(jit_compile=False)`"
        _checks.require(not in_xla(), f"{rule}: XLA compiles none.", "strings")
        return tf.strings.to_hash_bucket_fast(ids, 2**63 - 1)
    return tf.cast(ids, tf.int64)


def inputs_for(
    encoder: keras.layers.Layer, features: Features, argument: str
) -> Features:
    """The features that an encoder takes: of a dict, those of its named inputs."""
    inputs = _keras.symbolic_inputs(encoder)
    if isinstance(features, dict) and isinstance(inputs, dict):
        missing = sorted(set(inputs) - set(features))
        rule = f"`{argument}` must have the inputs of its encoder."
        _checks.require(not missing, rule, f"{sorted(features)}, without {missing}")
        return {name: features[name] for name in inputs}
    if inputs is None or isinstance(features, dict):
        return features
    num_inputs = len(tf.nest.flatten(inputs))
    num_parts = len(tf.nest.flatten(features))
    rule = (
        f"`{argument}` must have a part for each of the {num_inputs} inputs of its "
        "encoder. A dict may have more if the inputs have names."
    )
    _checks.require(num_inputs == num_parts, rule, f"{num_parts} parts")
    return features


def feature_at(argument: str, key: str, features: Features) -> Features:
    """The features under a key that the argument of this name gave."""
    received = type(features).__name__
    if isinstance(features, dict):
        if key in features:
            return features[key]
        received = str(sorted(features))
    rule = f"`{argument}` must be a key of the features."
    raise ValueError(f"{rule} Received: {argument}={key!r}, features {received}.")
