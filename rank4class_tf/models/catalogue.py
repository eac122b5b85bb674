"""All candidates of a `TwoTower`, with ids and encodings; the index in `search.py` keeps them."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks
from rank4class_tf._tf.search import places_in
from rank4class_tf.layers import ClassTable, SampledScores, ShardedClassTable
from rank4class_tf.models.candidates import id_keys


class Catalogue:
    """Ids and encodings of all candidates, and their features or a dataset of these."""

    # `features` have a row for each candidate that is not from the `dataset`, whose
    # `num_from_dataset` candidates come before the others. `ids` are `[N]`, or None for the numbers
    # of the rows. With `in_shards` each replica holds only some of the encodings. `keys` are the
    # ids as int64, strings by a hash, and `head` scores the candidates, once they have encodings.

    def __init__(
        self,
        features: Any,
        ids: tf.Tensor | None,
        dataset: tf.data.Dataset | None = None,
        num_from_dataset: int = 0,
        in_shards: bool = False,
    ):
        self.features, self.in_shards = features, in_shards
        self.dataset, self.num_from_dataset = dataset, num_from_dataset
        arrays = [] if features is None else tf.nest.flatten(features)
        sizes = {x.shape[0] if x.shape.rank else None for x in arrays}
        size = num_from_dataset + (max(sizes, default=0, key=bool) or 0)
        rule = "`candidates` must have a row for each candidate, and at least one."
        received = f"arrays with {sorted(sizes, key=str)} rows"
        _checks.require(len(sizes) <= 1 and size > 0, rule, received)
        self.size = size
        self.ids = tf.range(size) if ids is None else _flat_ids(ids)
        rule = "`candidates` must have an id for each candidate."
        _checks.require(len(self.ids) == size, rule, f"{len(self.ids)} ids for {size} rows")
        self.keys = id_keys(self.ids)
        if self.ids.dtype != tf.string and tf.reduce_any(self.keys == -1):
            raise ValueError("`candidates` must have ids other than -1, which marks padding.")
        # Sorted keys find the row of an id, and show an id that occurs twice.
        order = np.argsort(self.keys.numpy(), kind="stable")
        self._order = tf.constant(order, tf.int32)
        self._sorted = tf.gather(self.keys, self._order)
        repeated = self._sorted[1:] == self._sorted[:-1]
        if tf.reduce_any(repeated):
            row = int(self._order[int(tf.argmax(repeated))])
            repeated_id = tf.compat.as_str_any(self.ids[row].numpy())
            rule = "`candidates` must have different ids."
            raise ValueError(f"{rule} Received: {repeated_id} more than once.")
        self.head: SampledScores = None  # type: ignore[assignment]
        self.search: Callable = None  # type: ignore[assignment]
        # The class id of each candidate in `Ranks`: at first its row, which may move later.
        self.numbers = np.arange(size, dtype=np.int32)

    @classmethod
    def from_candidates(
        cls,
        candidates: Any,
        read_ids: Callable[[Any], Any],
        encode: Callable[[Any], tf.Tensor],
        batch_size: int,
        in_shards: bool = False,
    ) -> Self:
        """The catalogue of features or of a dataset of batches of them, encoded."""
        if not isinstance(candidates, tf.data.Dataset):
            catalogue = cls(candidates, read_ids(candidates), in_shards=in_shards)
            catalogue.encode(read_ids, encode, batch_size)
            return catalogue
        batches = [(read_ids(features), encode(features)) for features in candidates]
        size = sum(len(encodings) for _, encodings in batches)
        has_ids = size and batches[0][0] is not None
        ids = tf.concat([ids for ids, _ in batches], axis=0) if has_ids else None
        catalogue = cls(None, ids, candidates, size, in_shards)
        catalogue._set_encodings(tf.concat([encodings for _, encodings in batches], axis=0))
        return catalogue

    def encode(
        self, read_ids: Callable[[Any], Any], encode: Callable[[Any], tf.Tensor], batch_size: int
    ) -> None:
        """Encodes all candidates."""
        num_rows = self.num_from_dataset
        parts: list[Any] = []
        if self.dataset is not None:
            # The dataset may give its candidates in another order each time.
            encodings: dict[int, np.ndarray] = {}
            first = 0
            for features in self.dataset:
                batch, ids = encode(features).numpy(), read_ids(features)
                ids = tf.range(first, first + len(batch)) if ids is None else _flat_ids(ids)
                rows = self.rows(ids, "candidates").numpy()
                first += len(batch)
                # Candidates that were removed or replaced since have no row among the first.
                pairs = zip(rows, batch, strict=True)
                encodings |= {row: x for row, x in pairs if 0 <= row < num_rows}
            rule = "`candidates` must be a dataset that gives the same candidates each time."
            _checks.require(len(encodings) == num_rows, rule, f"{len(encodings)} of {num_rows}")
            parts.append(np.stack([encodings[row] for row in range(num_rows)]))
        for i in range(0, self.size - num_rows, batch_size):
            parts.append(encode(_selected(self.features, slice(i, i + batch_size))))
        self._set_encodings(tf.concat(parts, axis=0))

    def _set_encodings(self, encodings: tf.Tensor | np.ndarray) -> None:
        """Sets the encodings `[N, d]`."""
        if self.head is not None:
            self.head.classes.assign(encodings)
            return
        if self.in_shards:
            classes = ShardedClassTable.from_rows(encodings, dtype="float32")
        else:  # Random rows, which are replaced, would cost more than zeros.
            classes = ClassTable.from_rows(encodings, initializer="zeros", dtype="float32")
        self.head = SampledScores(classes, normalize=False)
        self.head.build((None, encodings.shape[1]))
        # Eagerly, a query of a million rows would make thousands of calls. Replicas that exchange
        # scores cannot do so inside a function of their own.
        self.search = self.head.top_k
        if not self.in_shards:
            self.search = tf.function(self.head.top_k, reduce_retracing=True)

    def with_candidates(self, features: Any, ids: tf.Tensor, encodings: tf.Tensor) -> Self:
        """A catalogue with further candidates; one with a known id replaces the older."""
        new = type(self)(features, ids)
        replaced = self.rows(new.ids, "candidates").numpy()
        new_numbers = self.numbers.max() + np.cumsum(replaced < 0)
        new.numbers = np.where(replaced < 0, new_numbers, self.numbers[replaced]).astype(np.int32)
        return self._joined(np.setdiff1d(np.arange(self.size), replaced), new, encodings)

    def without(self, ids: tf.Tensor) -> Self:
        """A catalogue without some candidates, which must be here."""
        removed = self.rows(_flat_ids(ids, "ids"), "ids").numpy()
        for unknown in tf.reshape(ids, [-1]).numpy()[removed < 0][:1]:
            rule = "`ids` must be in the index."
            raise ValueError(f"{rule} Received: {tf.compat.as_str_any(unknown)}.")
        return self._joined(np.setdiff1d(np.arange(self.size), removed), None, None)

    # A change makes a new catalogue, so that an error leaves the older one intact.

    def _joined(self, kept: np.ndarray, new: Catalogue | None, encodings: tf.Tensor | None) -> Self:
        """A catalogue of the candidates in the rows `kept`, and new ones with their encodings."""
        kept_features = kept[kept >= self.num_from_dataset] - self.num_from_dataset
        parts = [] if self.features is None else [_selected(self.features, kept_features)]
        ids, all_encodings = [tf.gather(self.ids, kept)], [self.head.classes.rows(kept)]
        numbers = [self.numbers[kept]]
        if new is not None:
            numbers.append(new.numbers)
            parts.append(new.features)
            ids.append(new.ids)
            all_encodings.append(encodings)
        joined = functools.partial(_checks.joined, "candidates")
        features = tf.nest.map_structure(joined, *parts) if parts else None
        num_from_dataset = len(kept) - len(kept_features)
        dataset = self.dataset if num_from_dataset else None
        catalogue = type(self)(features, joined(*ids), dataset, num_from_dataset, self.in_shards)
        catalogue._set_encodings(tf.concat(all_encodings, axis=0))
        catalogue.numbers = np.concatenate(numbers)
        return catalogue

    def features_at(self, rows: tf.Tensor) -> Any:
        """Features of the candidates of some rows."""
        if self.dataset is not None:
            rule = "`index` must be given the features, not a dataset"
            raise ValueError(f"{rule}, where `num_random` draws from them.")
        return _selected(self.features, rows)

    def rows(self, ids: tf.Tensor, argument: str) -> tf.Tensor:
        """The row of each id, int32; -1 for an unknown id. Errors call the ids `argument`."""
        # Without this check numbers would be compared with hashes of strings.
        keys = id_keys(ids, argument)
        is_empty = ids.shape.num_elements() == 0
        is_same_kind = is_empty or (ids.dtype == tf.string) == (self.ids.dtype == tf.string)
        rule = f"`{argument}` must hold ids like those of the index, {self.ids.dtype.name}."
        _checks.require(is_same_kind, rule, ids.dtype.name)
        nearest = tf.minimum(places_in(self._sorted, keys), self.size - 1)
        is_known = tf.equal(tf.gather(self._sorted, nearest), keys)
        return tf.where(is_known, tf.gather(self._order, nearest), -1)


def fingerprint(layer: keras.layers.Layer) -> list[int]:
    """Checksums of a layer's weights; copies would take the memory of another encoder."""
    arrays = (np.ascontiguousarray(weight.numpy()) for weight in layer.weights)
    return [zlib.crc32(array.reshape(-1).view(np.uint8).data) for array in arrays]


def arrays(features: Any) -> Any:
    """Features as tensors, in dicts, tuples and lists of arrays; other lists are arrays."""
    if isinstance(features, tf.data.Dataset | tf.RaggedTensor):
        return features
    if isinstance(features, dict):
        return {name: arrays(x) for name, x in features.items()}
    if isinstance(features, tuple):
        return tuple(map(arrays, features))
    if isinstance(features, list) and features and hasattr(features[0], "shape"):
        return list(map(arrays, features))
    return tf.convert_to_tensor(features)


def _selected(features: Any, rows: slice | np.ndarray | tf.Tensor) -> Any:
    if isinstance(rows, slice):
        return tf.nest.map_structure(lambda x: x[rows], features)
    return tf.nest.map_structure(lambda x: tf.gather(x, rows), features)


def _flat_ids(ids: Any, argument: str = "candidates") -> tf.Tensor:
    """Ids `[N]` or `[N, 1]` as `[N]`."""
    ids = _checks.ids(argument, ids)
    if ids.shape.rank == 2 and ids.shape[1] == 1:
        ids = tf.squeeze(ids, axis=1)
    rule = f"`{argument}` must have ids of the shape [N] or [N, 1]"
    if argument == "candidates":
        rule += "; where the features of a candidate are several integers, `candidate_id` must be"
        rule += " given"
    rule += "."
    _checks.require(ids.shape.rank == 1, rule, f"ids of shape {ids.shape}")
    return ids
