"""The candidates of a two-tower model: those of a batch, and all of an index."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _keras
from rank4class_tf._lists import labels as _labels
from rank4class_tf._tf.raising import check, same_sizes
from rank4class_tf._tf.search import places_in
from rank4class_tf._types import TensorLike
from rank4class_tf.layers import ClassTable, SampledScores, ShardedClassTable


class Catalogue:
    """Ids and encodings of all candidates, and their features or where these come from.

    Keras does not save it with a model. The candidates of the dataset come before the others.

    Args:
        features: arrays with a row for each candidate that is not from the dataset; None for none.
        ids: `[N]` integers or strings; None for the numbers of the rows.
        dataset: None, or a dataset of batches of features.
        num_of_dataset: how many candidates are from it.
        in_shards: whether each replica holds only some of the encodings.

    Attributes:
        ids: `[N]`, as given.
        keys: `[N]` int64, the `id_keys` of the ids.
        head: what scores the candidates, once they have encodings.
        encoded_with: the `fingerprint` of the encoder then.
    """

    def __init__(
        self,
        features: Any,
        ids: tf.Tensor | None,
        dataset: tf.data.Dataset | None = None,
        num_of_dataset: int = 0,
        in_shards: bool = False,
    ) -> None:
        self.features = None if features is None else tf.nest.map_structure(_as_tensor, features)
        self.dataset, self.num_of_dataset = dataset, num_of_dataset
        self.in_shards = in_shards
        arrays = [] if features is None else tf.nest.flatten(self.features)
        sizes = {x.shape[0] if x.shape.rank else None for x in arrays}
        size = num_of_dataset + (max(sizes, default=0, key=bool) or 0)
        if len(sizes) > 1 or not size:
            raise ValueError(
                "`candidates` must have a row for each candidate, and at least one. "
                f"Received: arrays with {sorted(sizes, key=str)} rows."
            )
        self.size = size
        self.ids = tf.range(size) if ids is None else _one_each(ids)
        if len(self.ids) != size:
            raise ValueError(
                "`candidates` must have an id for each candidate. "
                f"Received: {len(self.ids)} ids for {size} rows."
            )
        self.keys = id_keys(self.ids)
        if self.ids.dtype != tf.string and tf.reduce_any(self.keys == -1):
            raise ValueError("`candidates` must have ids other than -1, which marks padding.")
        order = np.argsort(self.keys.numpy(), kind="stable")
        self._order = tf.constant(order, tf.int32)
        self._sorted = tf.gather(self.keys, self._order)
        repeated = self._sorted[1:] == self._sorted[:-1]
        if tf.reduce_any(repeated):
            row = int(self._order[int(tf.argmax(repeated))])
            raise ValueError(
                "`candidates` must have different ids. "
                f"Received: {tf.compat.as_str_any(self.ids[row].numpy())} more than once."
            )
        self.head: SampledScores = None  # type: ignore[assignment]
        self.encoded_with: Any = None

    @classmethod
    def of(
        cls,
        candidates: Any,
        ids_of: Callable,
        encoder: Callable,
        batch_size: int,
        in_shards: bool = False,
    ) -> Self:
        """The catalogue of features or of a dataset of batches of them, encoded.

        Args:
            candidates: features with a row for each candidate, or a dataset.
            ids_of: maps features to ids, or to None.
            encoder: maps features to encodings.
            batch_size: how many candidates are encoded at once where the features are given.
            in_shards: as in the constructor.
        """
        if not isinstance(candidates, tf.data.Dataset):
            made = cls(candidates, ids_of(candidates), in_shards=in_shards)
            made.encode(ids_of, encoder, batch_size)
            return made
        batches = [(ids_of(features), encoder(features)) for features in candidates]
        size = sum(len(rows) for _, rows in batches)
        has_ids = size and batches[0][0] is not None
        ids = tf.concat([of for of, _ in batches], axis=0) if has_ids else None
        made = cls(None, ids, candidates, size, in_shards)
        made.set_rows(tf.concat([rows for _, rows in batches], axis=0))
        return made

    def encode(self, ids_of: Callable, encoder: Callable, batch_size: int) -> None:
        """Encodes all candidates."""
        parts = []
        if self.dataset is not None:
            parts.append(self._rows_of_dataset(ids_of, encoder))
        for i in range(0, self.size - self.num_of_dataset, batch_size):
            parts.append(encoder(_selected(self.features, slice(i, i + batch_size))))
        self.set_rows(tf.concat(parts, axis=0))

    def _rows_of_dataset(self, ids_of, encoder):
        found: dict[int, np.ndarray] = {}
        first = 0
        for features in self.dataset:  # type: ignore[union-attr]
            rows, ids = encoder(features).numpy(), ids_of(features)
            numbers = range(first, first + len(rows))
            places = numbers if ids is None else self.places(_one_each(ids), "candidates").numpy()
            first += len(rows)
            # Those that were removed or changed since have no place among the first.
            both = zip(places, rows, strict=True)
            found |= {i: row for i, row in both if 0 <= i < self.num_of_dataset}
        if len(found) != self.num_of_dataset:
            raise ValueError(
                "`candidates` must be a dataset that gives the same candidates each time. "
                f"Received: {len(found)} of {self.num_of_dataset}."
            )
        return np.stack([found[i] for i in range(self.num_of_dataset)])

    def set_rows(self, rows: tf.Tensor) -> None:
        """Sets the encodings `[N, d]`."""
        if self.head is None:
            table = ShardedClassTable if self.in_shards else ClassTable
            self.head = SampledScores(table.from_rows(rows, dtype="float32"), normalize=False)
            self.head.build((None, rows.shape[1]))
        else:
            self.head.classes.assign(rows)

    def with_candidates(self, features: Any, ids: tf.Tensor, rows: tf.Tensor) -> Self:
        """A catalogue with further candidates; one with a known id takes the place of the older.

        Args:
            features: as those here.
            ids: `[n]` or `[n, 1]`.
            rows: `[n, d]`, their encodings.
        """
        new = type(self)(features, ids)
        places = self.places(new.ids, "candidates").numpy()
        kept = np.setdiff1d(np.arange(self.size), places)
        return self._joined(kept, new, rows)

    def without(self, ids: tf.Tensor) -> Self:
        """A catalogue without some candidates, which must be here."""
        places = self.places(_one_each(ids, "ids"), "ids").numpy()
        if (places < 0).any():
            unknown = tf.compat.as_str_any(tf.reshape(ids, [-1])[int(np.argmin(places))].numpy())
            raise ValueError(f"`ids` must be in the index. Received: {unknown}.")
        return self._joined(np.setdiff1d(np.arange(self.size), places), None, None)

    def _joined(self, kept, new, rows):
        """The candidates `kept` and new ones with their encodings."""
        of_features = kept[kept >= self.num_of_dataset] - self.num_of_dataset
        parts = [] if self.features is None else [_selected(self.features, of_features)]
        ids, all_rows = [tf.gather(self.ids, kept)], [self.head.classes.rows(kept)]
        if new is not None:
            parts.append(new.features)
            ids.append(tf.cast(new.ids, self.ids.dtype))
            all_rows.append(rows)
        joined = None
        if parts:
            joined = tf.nest.map_structure(lambda *x: tf.concat(x, axis=0), *parts)
        num_of_dataset = len(kept) - len(of_features)
        made = type(self)(
            joined, tf.concat(ids, axis=0), self.dataset, num_of_dataset, self.in_shards
        )
        made.set_rows(tf.concat(all_rows, axis=0))
        made.encoded_with = self.encoded_with
        return made

    def rows(self, places: tf.Tensor) -> Any:
        """Features of some candidates."""
        if self.dataset is not None:
            raise ValueError(
                "`index` must be given the features, not a dataset, where `num_random` draws from "
                "them."
            )
        return _selected(self.features, places)

    def places(self, ids: tf.Tensor, argument: str) -> tf.Tensor:
        """The row of each id, int32; -1 for an unknown id.

        Args:
            ids: integers or strings, as those of the candidates.
            argument: their name in an error.
        """
        keys = id_keys(ids, argument)
        empty = ids.shape.num_elements() == 0
        if not empty and (ids.dtype == tf.string) != (self.ids.dtype == tf.string):
            raise ValueError(
                f"`{argument}` must hold ids like those of the index, {self.ids.dtype.name}. "
                f"Received: {ids.dtype.name}."
            )
        found = tf.minimum(places_in(self._sorted, keys), self.size - 1)
        same = tf.equal(tf.gather(self._sorted, found), keys)
        return tf.where(same, tf.gather(self._order, found), -1)


def fingerprint(layer: keras.layers.Layer) -> list[int]:
    """Numbers that change with the weights of a layer."""
    arrays = (np.ascontiguousarray(weight.numpy()) for weight in layer.weights)
    return [zlib.crc32(array.reshape(-1).view(np.uint8).data) for array in arrays]


def _as_tensor(x):
    return x if isinstance(x, tf.RaggedTensor) else tf.convert_to_tensor(x)


def _selected(features, places):
    if isinstance(places, slice):
        return tf.nest.map_structure(lambda x: x[places], features)
    return tf.nest.map_structure(lambda x: tf.gather(x, places), features)


def _one_each(ids, argument="candidates"):
    """Ids `[N]` or `[N, 1]` as `[N]`."""
    ids = _checks.ids(argument, ids)
    if ids.shape.rank == 2 and ids.shape[1] == 1:
        ids = tf.squeeze(ids, axis=1)
    if ids.shape.rank != 1:
        raise ValueError(
            "`candidates` must have ids of the shape [N] or [N, 1]; where the features of a "
            "candidate are several integers, `candidate_id` must be given. Received: ids of shape "
            f"{ids.shape}."
        )
    return ids


def id_keys(ids: TensorLike, argument: str = "candidate_id") -> tf.Tensor:
    """Ids as int64; strings are hashed to so many buckets that no two share one in practice."""
    ids = _checks.ids(argument, ids)
    if ids.dtype == tf.string:
        return tf.strings.to_hash_bucket_fast(ids, 2**63 - 1)
    return tf.cast(ids, tf.int64)


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
