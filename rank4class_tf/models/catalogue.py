"""The index of a `TwoTower`: all candidates, their ids and encodings, and a search."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple, Self

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _keras, ops
from rank4class_tf._lists import labels as _labels
from rank4class_tf._tf.checksums import checksums
from rank4class_tf._tf.raising import same_sizes
from rank4class_tf._tf.search import places_in
from rank4class_tf._types import Array, Features, Size, Tensor, TensorPair
from rank4class_tf.layers import ClassTable, SampledScores, ShardedClassTable
from rank4class_tf.models.candidates import Ids, id_keys


class _Rows(NamedTuple):
    """Some of the candidates of a catalogue."""

    features: Features | None  # None if all are from a dataset.
    ids: Tensor
    encodings: Tensor
    numbers: np.ndarray


class Catalogue:
    """Ids and encodings of all candidates, and their features or a dataset of these."""

    # `features` have a row for each candidate that is not from the `dataset`, whose
    # `num_from_dataset` candidates come before the others. `ids` are `[N]`, or None for
    # the numbers of the rows. With `in_shards` each replica holds only some of the
    # encodings. `keys` are the ids as int64, strings by a hash, and `head` scores the
    # candidates, once they have encodings.

    def __init__(
        self,
        features: Features | None,
        ids: Tensor | None,
        dataset: tf.data.Dataset | None = None,
        num_from_dataset: int = 0,
        in_shards: bool = False,
        numbers: np.ndarray | None = None,
        next_number: int | None = None,
    ):
        self.features = features
        self.in_shards = in_shards
        self.dataset = dataset
        self.num_from_dataset = num_from_dataset
        self.size = _num_candidates(features, num_from_dataset)

        self.ids = tf.range(self.size) if ids is None else _flat_ids(ids)
        self.keys = id_keys(self.ids)
        # Sorted keys find the row of an id, and show an id that occurs twice.
        order = np.argsort(self.keys.numpy(), kind="stable")
        self._order = tf.constant(order, tf.int32)
        self._sorted = tf.gather(self.keys, self._order)
        self._check_ids()

        # None until the candidates are encoded, which comes after the checks of ids.
        self._head: SampledScores | None = None
        # The class id of each candidate in `Ranks`: at first its row, which may move
        # later. That of a removed candidate is not given again.
        first_numbers = np.arange(self.size, dtype=np.int32)
        self.numbers = first_numbers if numbers is None else numbers
        self._next_number = self.size if next_number is None else next_number

    def _check_ids(self) -> None:
        """Raises unless each candidate has an id of its own."""
        rule = "`candidates` must have an id for each candidate."
        received = f"{len(self.ids)} ids for {self.size} rows"
        _checks.require(len(self.ids) == self.size, rule, received)
        if self.ids.dtype != tf.string and tf.reduce_any(self.keys == -1):
            raise ValueError(
                "`candidates` must have ids other than -1, which marks padding."
            )
        repeated = self._sorted[1:] == self._sorted[:-1]
        if tf.reduce_any(repeated):
            row = int(self._order[int(tf.argmax(repeated))])
            repeated_id = tf.compat.as_str_any(self.ids[row].numpy())
            rule = "`candidates` must have different ids."
            raise ValueError(f"{rule} Received: {repeated_id} more than once.")

    def set_encodings(self, encodings: Tensor | np.ndarray) -> None:
        """Sets the encodings `[N, d]`."""
        if self._head is not None:
            self._head.classes.assign(encodings)
            return
        if self.in_shards:
            classes = ShardedClassTable.from_rows(encodings, dtype="float32")
        else:  # Random rows, which are replaced, would cost more than zeros.
            classes = ClassTable.from_rows(
                encodings, initializer="zeros", dtype="float32"
            )
        head = SampledScores(classes, normalize=False, dtype="float32")
        head.build((None, encodings.shape[1]))
        self._head = head

    @property
    def head(self) -> SampledScores:
        """The encodings as classes; what asks for it has set them."""
        assert self._head is not None
        return self._head

    @functools.cached_property
    def search(self) -> Callable:
        """`head.top_k`, compiled where it can be."""
        # Replicas that exchange scores cannot do so inside a function of their own.
        if self.in_shards:
            return self.head.top_k
        # Eagerly, a query of a million rows would make thousands of calls.
        return tf.function(self.head.top_k, reduce_retracing=True)

    def with_candidates(
        self, features: Features, ids: Tensor, encodings: Tensor
    ) -> Self:
        """A catalogue with more candidates; one with a known id replaces the older."""
        new = type(self)(features, ids)
        replaced = self.rows(new.ids, "candidates").numpy()
        is_new = replaced < 0
        new_numbers = self._next_number - 1 + np.cumsum(is_new)
        numbers = np.where(is_new, new_numbers, self.numbers[replaced])
        added = _Rows(new.features, new.ids, encodings, numbers.astype(np.int32))

        kept = np.setdiff1d(np.arange(self.size), replaced)
        return self._with_rows(kept, added, num_new=int(is_new.sum()))

    def without_candidates(self, ids: Tensor) -> Self:
        """A catalogue without some candidates, which must be here."""
        removed = self.rows(_flat_ids(ids, "ids"), "ids").numpy()
        for unknown in tf.reshape(ids, [-1]).numpy()[removed < 0][:1]:
            rule = "`ids` must be in the index."
            raise ValueError(f"{rule} Received: {tf.compat.as_str_any(unknown)}.")
        kept = np.setdiff1d(np.arange(self.size), removed)
        _checks.require(kept.size, "`ids` must leave a candidate in the index.", "all")
        return self._with_rows(kept)

    # A change makes a new catalogue, so that an error leaves the older one intact.

    def _with_rows(self, kept: np.ndarray, *added: _Rows, num_new: int = 0) -> Self:
        """A catalogue of the rows `kept` of this one, and of others, `num_new` new."""
        # Rows of a dataset have no features here, and come first.
        kept_features = kept[kept >= self.num_from_dataset] - self.num_from_dataset
        num_from_dataset = len(kept) - len(kept_features)
        features = None
        if self.features is not None:
            features = _selected(self.features, kept_features)
        old = _Rows(
            features=features,
            ids=tf.gather(self.ids, kept),
            encodings=self.head.classes.rows(kept),
            numbers=self.numbers[kept],
        )

        parts = [old, *added]
        joined = functools.partial(_checks.joined, "candidates")
        given = [part.features for part in parts if part.features is not None]
        catalogue = type(self)(
            features=tf.nest.map_structure(joined, *given) if given else None,
            ids=joined(*[part.ids for part in parts]),
            dataset=self.dataset if num_from_dataset else None,
            num_from_dataset=num_from_dataset,
            in_shards=self.in_shards,
            numbers=np.concatenate([part.numbers for part in parts]),
            next_number=self._next_number + num_new,
        )
        catalogue.set_encodings(tf.concat([part.encodings for part in parts], axis=0))
        return catalogue

    def features_at(self, rows: Tensor) -> Features:
        """Features of the candidates of some rows."""
        if self.dataset is not None:
            rule = "`index` must be given the features, not a dataset"
            raise ValueError(f"{rule}, where `num_random` draws from them.")
        return _selected(self.features, rows)

    def rows(self, ids: Tensor, argument: str) -> Tensor:
        """Each id's row, int32; -1 if unknown. Errors call the ids `argument`."""
        keys = id_keys(ids, argument)
        # Without this check numbers would be compared with hashes of strings.
        is_empty = ids.shape.num_elements() == 0
        are_strings = ids.dtype == tf.string
        is_same_kind = are_strings == (self.ids.dtype == tf.string)
        known = self.ids.dtype.name
        rule = f"`{argument}` must hold ids like those of the index, {known}."
        _checks.require(is_empty or is_same_kind, rule, ids.dtype.name)

        nearest = tf.minimum(places_in(self._sorted, keys), self.size - 1)
        is_known = tf.equal(tf.gather(self._sorted, nearest), keys)
        return tf.where(is_known, tf.gather(self._order, nearest), -1)


class Index:
    """The candidates that a model ranks, and a fingerprint of their encoder."""

    # `encode` maps features of candidates, and whether a step trains on them, to
    # encodings `[n, d]`, as they are scored. `read_ids` maps them to ids, or to None if
    # they have none. Keras does not look into this object, and so saves nothing of it
    # as a part of the model.
    def __init__(
        self,
        encoder: keras.layers.Layer,
        encode: Callable[..., Tensor],
        read_ids: Callable[[Features], Ids | None],
    ):
        self._encoder = encoder
        self.encode = encode
        self._read_ids = read_ids
        self._catalogue: Catalogue | None = None
        self._checksums = tf.function(checksums)
        self._encoded_with: list[int] | None = None
        self._batch_size = 1024

    @property
    def is_empty(self) -> bool:
        """Whether the index has no candidates yet."""
        return self._catalogue is None

    @property
    def catalogue(self) -> Catalogue:
        """The candidates in use."""
        if self._catalogue is None:
            rule = "`index(candidates)` must be called first"
            raise ValueError(f"{rule}, to give the model all candidates.")
        return self._catalogue

    @property
    def is_current(self) -> bool:
        """Whether the encoder still has the weights that encoded the candidates."""
        return self._encoded_with == self._fingerprint()

    def _fingerprint(self) -> list[int]:
        weights = [_keras.variable(weight) for weight in self._encoder.weights]
        return [int(checksum) for checksum in self._checksums(weights)]

    def replace(
        self,
        candidates: Features | tf.data.Dataset,
        batch_size: int | None,
        in_shards: bool,
    ) -> None:
        """Encodes other candidates; after an error the older ones stay in use."""
        batch_size = batch_size or self._batch_size
        candidates = arrays(candidates)
        if isinstance(candidates, tf.data.Dataset):
            catalogue = self._from_dataset(candidates, in_shards)
        else:
            ids = self._read_ids(candidates)
            catalogue = Catalogue(candidates, ids, in_shards=in_shards)
            self._encode_all(catalogue, batch_size)
        self._catalogue = catalogue
        self._batch_size = batch_size
        self._encoded_with = self._fingerprint()

    def encode_again(self, batch_size: int | None = None) -> None:
        """Encodes the same candidates with the present weights."""
        # Without a size, as many at once as before: memory may hold no more.
        batch_size = batch_size or self._batch_size
        self._encode_all(self.catalogue, batch_size)
        self._batch_size = batch_size
        self._encoded_with = self._fingerprint()

    def add(self, candidates: Features) -> None:
        """Encodes further candidates; one with a known id replaces the older."""
        candidates = arrays(candidates)
        ids = self._read_ids(candidates)
        rule = "`candidates` must have ids to be added."
        _checks.require(ids is not None, rule, "candidate_id=None")
        num_rows = _num_candidates(candidates, 0)
        parts = self._encoded_in_turn(candidates, num_rows, self._batch_size)
        encodings = tf.concat(parts, axis=0)
        self._catalogue = self.catalogue.with_candidates(candidates, ids, encodings)

    def remove(self, ids: Array) -> None:
        """Removes the candidates with these ids `[n]`."""
        self._catalogue = self.catalogue.without_candidates(tf.convert_to_tensor(ids))

    def _from_dataset(self, dataset: tf.data.Dataset, in_shards: bool) -> Catalogue:
        all_ids = []
        all_encodings = []
        for features in dataset:
            all_ids.append(self._read_ids(features))
            all_encodings.append(self.encode(features))
        size = sum(map(len, all_encodings))
        has_ids = size and all_ids[0] is not None
        ids = tf.concat(all_ids, axis=0) if has_ids else None
        catalogue = Catalogue(
            None, ids, dataset, num_from_dataset=size, in_shards=in_shards
        )
        catalogue.set_encodings(tf.concat(all_encodings, axis=0))
        return catalogue

    def _encode_all(self, catalogue: Catalogue, batch_size: int) -> None:
        parts: list[Tensor | np.ndarray] = []
        if catalogue.dataset is not None:
            parts.append(self._encode_dataset(catalogue.dataset, catalogue))
        num_rows = catalogue.size - catalogue.num_from_dataset
        parts += self._encoded_in_turn(catalogue.features, num_rows, batch_size)
        catalogue.set_encodings(tf.concat(parts, axis=0))

    def _encoded_in_turn(
        self, features: Features | None, num_rows: int, batch_size: int
    ) -> list[Tensor]:
        """The encodings of the features' rows, so many at once."""
        rows = np.arange(num_rows)
        starts = range(0, num_rows, batch_size)
        return [self.encode(_selected(features, rows[i:][:batch_size])) for i in starts]

    def _encode_dataset(
        self, dataset: tf.data.Dataset, catalogue: Catalogue
    ) -> np.ndarray:
        """The encodings of the candidates of a dataset, in the order of their rows."""
        # The dataset may give its candidates in another order each time.
        num_rows = catalogue.num_from_dataset
        encodings: dict[int, np.ndarray] = {}
        first = 0
        for features in dataset:
            batch = self.encode(features).numpy()
            ids = self._read_ids(features)
            if ids is None:
                ids = tf.range(first, first + len(batch))
            rows = catalogue.rows(_flat_ids(ids), "candidates").numpy()
            first += len(batch)
            for row, encoding in zip(rows, batch, strict=True):
                # One that was removed or replaced since has no row among the first.
                if 0 <= row < num_rows:
                    encodings[row] = encoding
        rule = (
            "`candidates` must be a dataset that gives the same candidates each time."
        )
        received = f"{len(encodings)} of {num_rows}"
        _checks.require(len(encodings) == num_rows, rule, received)
        return np.stack([encodings[row] for row in range(num_rows)])

    def top_k(self, encodings: Tensor, k: Size, exclude: Array | None) -> TensorPair:
        """The k best candidates' scores and ids, `[batch, k]`; see `TwoTower.top_k`."""
        excluded = self._excluded_rows(exclude)
        scores, rows = self.catalogue.search(encodings, k, excluded)
        ids = self.catalogue.ids
        no_id = tf.constant("") if ids.dtype == tf.string else tf.cast(-1, ids.dtype)
        return scores, tf.where(rows < 0, no_id, tf.gather(ids, tf.maximum(rows, 0)))

    def ranks(
        self, encodings: Tensor, candidates: Features, exclude: Array | None
    ) -> ops.Ranks:
        """Ranks of given candidates among all, in float64; see `TwoTower.ranks`."""
        catalogue = self.catalogue
        rows, has_unknown = self._rows_of_lists(candidates, encodings)

        # An excluded candidate has no rank, and the others are ranked among fewer.
        excluded = self._excluded_rows(exclude)
        num_items = tf.fill(tf.shape(rows)[:1], tf.constant(catalogue.size, tf.float64))
        if excluded is not None:
            is_excluded = tf.reduce_any(
                rows[:, :, tf.newaxis] == excluded[:, tf.newaxis], axis=2
            )
            rows = tf.where(is_excluded, -1, rows)
            distinct_rows = _labels.distinct_ids(excluded)
            num_items -= tf.math.count_nonzero(
                distinct_rows >= 0, axis=1, dtype=tf.float64
            )

        # An unknown id counts as a positive whose rank is NaN, so that metrics show it.
        rows = _labels.distinct_ids(rows)
        above, tied = catalogue.head.ranks(encodings, rows, excluded)
        nan = tf.constant(float("nan"), tf.float64)
        above = tf.where(has_unknown, nan, tf.cast(above, tf.float64))
        tied = tf.cast(tied, tf.float64)
        relevance = tf.cast((rows >= 0) | has_unknown, tf.float64)
        numbers = tf.where(
            rows < 0, -1, tf.gather(catalogue.numbers, tf.maximum(rows, 0))
        )
        size = tf.constant(catalogue.size)
        return ops.Ranks(above, tied, relevance, num_items, size, class_ids=numbers)

    def _rows_of_lists(self, candidates: Features, queries: Tensor) -> TensorPair:
        """Rows `[batch, P]`, -1 for none, and `[batch, 1]`, True for an unknown id."""
        ids = self._read_ids(candidates)
        if ids is None:
            rule = (
                "`candidate_id` must be given to rank candidates, unless their "
                "features are ids."
            )
            raise ValueError(
                f"{rule} Received: candidate_id=None, candidates={candidates!r}."
            )
        ids = _labels.in_rows(ids)
        flat = _values(ids)
        rows = self.catalogue.rows(flat, "candidate_id")
        is_padding = (id_keys(flat) == -1) & (flat.dtype != tf.string)
        is_unknown = (rows < 0) & ~is_padding
        is_unknown = _padded(is_unknown, ids, False)
        rule = "`candidates` must have a row for each query."
        rows = same_sizes(_padded(rows, ids, -1), queries, rule)
        return rows, tf.reduce_any(is_unknown, axis=1, keepdims=True)

    def _excluded_rows(self, exclude: Array | None) -> Tensor | None:
        """The rows `[batch, E]` of ids to omit, -1 for no candidate; None for none."""
        if exclude is None:
            return None
        exclude = _checks.rows_of_ids("exclude", exclude)
        rows = self.catalogue.rows(_values(exclude), "exclude")
        return _padded(rows, exclude, -1)


def _values(ids: Ids) -> Tensor:
    """All ids: of ragged ones, their values `[n]`."""
    return ids.flat_values if isinstance(ids, tf.RaggedTensor) else ids


def _padded(values: Tensor, ids: Ids, padding: int | bool) -> Tensor:
    """What was found for ids, with padding where these are ragged."""
    # Ids are not padded themselves, since any string may be an id.
    if isinstance(ids, tf.RaggedTensor):
        return ids.with_flat_values(values).to_tensor(padding)
    return values


def arrays(
    features: Features | tf.data.Dataset,
) -> Features | tf.data.Dataset:
    """Feature tensors, in dicts, tuples and lists of arrays; other lists are arrays."""
    if isinstance(features, tf.data.Dataset | tf.RaggedTensor):
        return features
    if isinstance(features, dict):
        return {name: arrays(x) for name, x in features.items()}
    if isinstance(features, tuple):
        return tuple(map(arrays, features))
    if isinstance(features, list) and features and hasattr(features[0], "shape"):
        return list(map(arrays, features))
    return tf.convert_to_tensor(features)


def _num_candidates(features: Features | None, num_from_dataset: int) -> int:
    """How many candidates there are, which have features or come from a dataset."""
    parts = [] if features is None else tf.nest.flatten(features)
    sizes = {x.shape[0] if x.shape.rank else None for x in parts}
    known = [size for size in sizes if size]
    num_candidates = num_from_dataset + (known[0] if known else 0)
    rule = "`candidates` must have a row for each candidate, and at least one."
    received = f"arrays with {sorted(sizes, key=str)} rows"
    _checks.require(len(sizes) <= 1 and num_candidates > 0, rule, received)
    return num_candidates


def _selected(features: Features, rows: np.ndarray | Tensor) -> Features:
    return tf.nest.map_structure(lambda x: tf.gather(x, rows), features)


def _flat_ids(ids: Ids, argument: str = "candidates") -> Tensor:
    """Ids `[N]` or `[N, 1]` as `[N]`."""
    ids = _checks.ids(argument, ids)
    if ids.shape.rank == 2 and ids.shape[1] == 1:
        ids = tf.squeeze(ids, axis=1)
    rule = f"`{argument}` must have ids of the shape [N] or [N, 1]"
    if argument == "candidates":
        rule += "; where features are several integers, `candidate_id` must be given"
    _checks.require(ids.shape.rank == 1, f"{rule}.", f"ids of shape {ids.shape}")
    return ids
