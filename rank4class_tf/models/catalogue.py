"""All candidates of a `TwoTower`: what `index` was given, with ids and encodings.

The model keeps the catalogue where Keras does not see it: it is no part of a saved model. Its head
searches and ranks the candidates in blocks, by the rows of the catalogue.
"""

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
    """Ids and encodings of all candidates, and their features or where these come from.

    `features` have a row for each candidate that is not from the `dataset`, whose `num_of_dataset`
    candidates come before the others; `ids` are `[N]`, or None for the numbers of the rows. With
    `in_shards` each replica holds only some of the encodings.

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
    ):
        self.features = features
        self.dataset, self.num_of_dataset = dataset, num_of_dataset
        self.in_shards = in_shards
        arrays = [] if features is None else tf.nest.flatten(self.features)
        sizes = {x.shape[0] if x.shape.rank else None for x in arrays}
        size = num_of_dataset + (max(sizes, default=0, key=bool) or 0)
        rule = "`candidates` must have a row for each candidate, and at least one."
        received = f"arrays with {sorted(sizes, key=str)} rows"
        _checks.require(len(sizes) <= 1 and size > 0, rule, received)
        self.size = size
        self.ids = tf.range(size) if ids is None else _one_each(ids)
        rule = "`candidates` must have an id for each candidate."
        _checks.require(len(self.ids) == size, rule, f"{len(self.ids)} ids for {size} rows")
        self.keys = id_keys(self.ids)
        if self.ids.dtype != tf.string and tf.reduce_any(self.keys == -1):
            raise ValueError("`candidates` must have ids other than -1, which marks padding.")
        order = np.argsort(self.keys.numpy(), kind="stable")
        self._order = tf.constant(order, tf.int32)
        self._sorted = tf.gather(self.keys, self._order)
        repeated = self._sorted[1:] == self._sorted[:-1]
        if tf.reduce_any(repeated):
            row = int(self._order[int(tf.argmax(repeated))])
            twice = tf.compat.as_str_any(self.ids[row].numpy())
            rule = "`candidates` must have different ids."
            raise ValueError(f"{rule} Received: {twice} more than once.")
        self.head: SampledScores = None  # type: ignore[assignment]
        self.encoded_with: Any = None

    @classmethod
    def of(
        cls, candidates: Any, ids_of: Any, encoder: Any, batch_size: int, in_shards: bool = False
    ) -> Self:
        """The catalogue of features or of a dataset of batches of them, encoded.

        `ids_of` maps features to ids, or to None, and `encoder` to encodings. So many candidates
        as `batch_size` are encoded at once, unless a dataset has batches.
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
        parts = [] if self.dataset is None else [self._rows_of_dataset(ids_of, encoder)]
        for i in range(0, self.size - self.num_of_dataset, batch_size):
            parts.append(encoder(_selected(self.features, slice(i, i + batch_size))))
        self.set_rows(tf.concat(parts, axis=0))

    def _rows_of_dataset(self, ids_of: Callable, encoder: Callable) -> np.ndarray:
        found: dict[int, np.ndarray] = {}
        first = 0
        for features in self.dataset:  # type: ignore[union-attr]
            rows, ids = encoder(features).numpy(), ids_of(features)
            ids = tf.range(first, first + len(rows)) if ids is None else _one_each(ids)
            places = self.places(ids, "candidates").numpy()
            first += len(rows)
            # Those that were removed or changed since have no place among the first.
            both = zip(places, rows, strict=True)
            found |= {i: row for i, row in both if 0 <= i < self.num_of_dataset}
        rule = "`candidates` must be a dataset that gives the same candidates each time."
        number = self.num_of_dataset
        _checks.require(len(found) == number, rule, f"{len(found)} of {number}")
        return np.stack([found[i] for i in range(self.num_of_dataset)])

    def set_rows(self, rows: tf.Tensor) -> None:
        """Sets the encodings `[N, d]`."""
        if self.head is None:
            table = ShardedClassTable if self.in_shards else ClassTable
            how = {} if self.in_shards else {"initializer": "zeros"}  # Random rows cost more.
            classes = table.from_rows(rows, dtype="float32", **how)
            self.head = SampledScores(classes, normalize=False)
            self.head.build((None, rows.shape[1]))
        else:
            self.head.classes.assign(rows)

    def with_candidates(self, features: Any, ids: tf.Tensor, rows: tf.Tensor) -> Self:
        """A catalogue with further candidates; one with a known id takes the place of the older."""
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

    def _joined(self, kept: np.ndarray, new: Catalogue | None, rows: tf.Tensor | None) -> Self:
        """The candidates `kept` and new ones with their encodings."""
        of_features = kept[kept >= self.num_of_dataset] - self.num_of_dataset
        parts = [] if self.features is None else [_selected(self.features, of_features)]
        ids, all_rows = [tf.gather(self.ids, kept)], [self.head.classes.rows(kept)]
        joined = functools.partial(_checks.joined, "candidates")
        if new is not None:
            parts.append(new.features)
            ids.append(new.ids)
            all_rows.append(rows)
        features = tf.nest.map_structure(joined, *parts) if parts else None
        num_of_dataset = len(kept) - len(of_features)
        dataset = self.dataset if num_of_dataset else None
        made = type(self)(features, joined(*ids), dataset, num_of_dataset, self.in_shards)
        made.set_rows(tf.concat(all_rows, axis=0))
        made.encoded_with = self.encoded_with
        return made

    def rows(self, places: tf.Tensor) -> Any:
        """Features of some candidates."""
        if self.dataset is not None:
            what = "where `num_random` draws from them"
            raise ValueError(f"`index` must be given the features, not a dataset, {what}.")
        return _selected(self.features, places)

    def places(self, ids: tf.Tensor, argument: str) -> tf.Tensor:
        """The row of each id, int32; -1 for an unknown id. Errors call the ids `argument`."""
        keys = id_keys(ids, argument)
        empty = ids.shape.num_elements() == 0
        alike = empty or (ids.dtype == tf.string) == (self.ids.dtype == tf.string)
        rule = f"`{argument}` must hold ids like those of the index, {self.ids.dtype.name}."
        _checks.require(alike, rule, ids.dtype.name)
        found = tf.minimum(places_in(self._sorted, keys), self.size - 1)
        same = tf.equal(tf.gather(self._sorted, found), keys)
        return tf.where(same, tf.gather(self._order, found), -1)


def fingerprint(layer: keras.layers.Layer) -> list[int]:
    """Numbers that change with the weights of a layer."""
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


def _selected(features: Any, places: slice | np.ndarray | tf.Tensor) -> Any:
    if isinstance(places, slice):
        return tf.nest.map_structure(lambda x: x[places], features)
    return tf.nest.map_structure(lambda x: tf.gather(x, places), features)


def _one_each(ids: Any, argument: str = "candidates") -> tf.Tensor:
    """Ids `[N]` or `[N, 1]` as `[N]`."""
    ids = _checks.ids(argument, ids)
    if ids.shape.rank == 2 and ids.shape[1] == 1:
        ids = tf.squeeze(ids, axis=1)
    rule = (
        "`candidates` must have ids of the shape [N] or [N, 1]; where the features of a candidate "
        "are several integers, `candidate_id` must be given."
    )
    _checks.require(ids.shape.rank == 1, rule, f"ids of shape {ids.shape}")
    return ids
