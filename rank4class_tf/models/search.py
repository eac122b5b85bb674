"""`Index`: all candidates of a `TwoTower`, as its encoder encodes them, and search among them."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, ops
from rank4class_tf._lists import labels as _labels
from rank4class_tf._tf.raising import same_sizes
from rank4class_tf._types import Array, Tensor, TensorPair
from rank4class_tf.models.candidates import id_keys
from rank4class_tf.models.catalogue import Catalogue, arrays, fingerprint


class Index:
    """The candidates that a model ranks, and a fingerprint of the encoder that encoded them."""

    # `encode` maps features of candidates to encodings `[n, d]`, as they are scored, and `read_ids`
    # maps them to ids, or to None if they have none. Keras does not look into this object, and so
    # saves nothing of it as a part of the model.
    def __init__(
        self,
        encoder: keras.layers.Layer,
        encode: Callable[[Any], Tensor],
        read_ids: Callable[[Any], Any],
    ):
        self._encoder, self.encode, self._read_ids = encoder, encode, read_ids
        self._catalogue: Catalogue | None = None
        self._encoded_with: list[int] | None = None

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
        return self._encoded_with == fingerprint(self._encoder)

    def replace(self, candidates: Any, batch_size: int, in_shards: bool) -> None:
        """Encodes other candidates; after an error the older ones stay in use."""
        self._catalogue = Catalogue.from_candidates(
            arrays(candidates), self._read_ids, self.encode, batch_size, in_shards
        )
        self._encoded_with = fingerprint(self._encoder)

    def encode_again(self, batch_size: int) -> None:
        """Encodes the same candidates with the present weights."""
        self.catalogue.encode(self._read_ids, self.encode, batch_size)
        self._encoded_with = fingerprint(self._encoder)

    def add(self, candidates: Any) -> None:
        """Encodes further candidates; one with a known id replaces the older."""
        candidates = arrays(candidates)
        ids = self._read_ids(candidates)
        rule = "`candidates` must have ids to be added."
        _checks.require(ids is not None, rule, "candidate_id=None")
        encodings = self.encode(candidates)
        self._catalogue = self.catalogue.with_candidates(candidates, ids, encodings)

    def remove(self, ids: Array) -> None:
        """Removes the candidates with these ids `[n]`."""
        self._catalogue = self.catalogue.without(tf.convert_to_tensor(ids))

    def top_k(self, encodings: Tensor, k: int | Tensor, exclude: Array | None) -> TensorPair:
        """Scores and ids of the k best candidates, `[batch, k]`; see `TwoTower.top_k`."""
        excluded = self._excluded_rows(exclude)
        scores, rows = self.catalogue.search(encodings, k, excluded)
        ids = self.catalogue.ids
        no_id = tf.constant("") if ids.dtype == tf.string else tf.cast(-1, ids.dtype)
        return scores, tf.where(rows < 0, no_id, tf.gather(ids, tf.maximum(rows, 0)))

    def ranks(self, encodings: Tensor, candidates: Any, exclude: Array | None) -> ops.Ranks:
        """Ranks of given candidates among all, in float64; see `TwoTower.ranks`."""
        catalogue = self.catalogue
        ids = self._read_ids(candidates)
        if ids is None:
            rule = "`candidate_id` must be given to rank candidates, unless their features are ids."
            raise ValueError(f"{rule} Received: candidate_id=None, candidates={candidates!r}.")
        rule = "`candidates` must have a row for each query."
        ids = same_sizes(_labels.in_rows(ids), encodings, rule)
        rows = catalogue.rows(ids, "candidate_id")
        is_padding = (id_keys(ids) == -1) & (ids.dtype != tf.string)
        has_unknown = tf.reduce_any((rows < 0) & ~is_padding, axis=1, keepdims=True)

        # An excluded candidate has no rank, and the others are ranked among fewer.
        excluded = self._excluded_rows(exclude)
        num_items = tf.fill(tf.shape(rows)[:1], tf.constant(catalogue.size, tf.float64))
        if excluded is not None:
            is_excluded = tf.reduce_any(rows[:, :, tf.newaxis] == excluded[:, tf.newaxis], axis=2)
            rows = tf.where(is_excluded, -1, rows)
            distinct_rows = _labels.distinct_ids(excluded)
            num_items -= tf.math.count_nonzero(distinct_rows >= 0, axis=1, dtype=tf.float64)

        # An unknown id counts as a positive whose rank is NaN, so that metrics show it.
        rows = _labels.distinct_ids(rows)
        above, tied = catalogue.head.ranks(encodings, rows, excluded)
        nan = tf.constant(float("nan"), tf.float64)
        above = tf.where(has_unknown, nan, tf.cast(above, tf.float64))
        tied = tf.cast(tied, tf.float64)
        relevance = tf.cast((rows >= 0) | has_unknown, tf.float64)
        numbers = tf.where(rows < 0, -1, tf.gather(catalogue.numbers, tf.maximum(rows, 0)))
        size = tf.constant(catalogue.size)
        return ops.Ranks(above, tied, relevance, num_items, size, class_ids=numbers)

    def _excluded_rows(self, exclude: Array | None) -> Tensor | None:
        """The rows `[batch, E]` of ids to leave out, -1 for no candidate; None for none."""
        if exclude is None:
            return None
        exclude = _checks.rows_of_ids("exclude", exclude)
        if isinstance(exclude, tf.RaggedTensor):
            # Rows are padded, not ids, since any string may be an id.
            rows = self.catalogue.rows(exclude.flat_values, "exclude")
            return exclude.with_flat_values(rows).to_tensor(-1)
        return self.catalogue.rows(exclude, "exclude")
