"""The candidates that a two-tower model searches."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class_tf._tf.search import places_in
from rank4class_tf._types import TensorLike
from rank4class_tf.layers import ClassTable, SampledScores


class Catalogue:
    """Features, ids and encodings of all candidates. Keras does not save it with a model.

    Args:
        features: an array, or a dict or tuple of arrays, with a row for each candidate.
        ids: `[N]` integers or strings; None for the numbers of the rows.

    Attributes:
        ids: `[N]`, as given.
        keys: `[N]` int64, the `id_keys` of the ids.
        head: what scores the candidates, once `encode` has made it.
    """

    def __init__(self, features: Any, ids: tf.Tensor | None) -> None:
        self.features = tf.nest.map_structure(tf.convert_to_tensor, features)
        sizes = {x.shape[0] if x.shape.rank else None for x in tf.nest.flatten(self.features)}
        if len(sizes) > 1 or not max(sizes, key=bool):
            raise ValueError(
                "`candidates` must have a row for each candidate, of at least one. "
                f"Received: numbers of rows {sorted(sizes, key=str)}."
            )
        self.size = int(sizes.pop() or 0)
        self.ids = tf.range(self.size) if ids is None else _checked_ids(tf.convert_to_tensor(ids))
        self.keys = id_keys(self.ids)
        if self.ids.dtype != tf.string and tf.reduce_any(self.keys == -1):
            raise ValueError("`candidates` must have other ids than -1, which is padding.")
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

    def encode(self, encoder: Callable, batch_size: int) -> None:
        """Encodes all candidates by a function of their features, `batch_size` at once."""
        starts = range(0, self.size, batch_size)
        rows = tf.concat([encoder(self.rows(slice(i, i + batch_size))) for i in starts], axis=0)
        if self.head is None:
            self.head = SampledScores(ClassTable.from_rows(rows, dtype="float32"), normalize=False)
            self.head.build((None, rows.shape[1]))
        else:
            self.head.classes.embeddings.assign(rows)

    def rows(self, places: slice | tf.Tensor) -> Any:
        """Features of some candidates."""
        if isinstance(places, slice):
            return tf.nest.map_structure(lambda x: x[places], self.features)
        return tf.nest.map_structure(lambda x: tf.gather(x, places), self.features)

    def places(self, ids: tf.Tensor, argument: str) -> tf.Tensor:
        """The row of each id, int32; -1 for an unknown id.

        Args:
            ids: integers or strings, as those of the candidates.
            argument: their name in an error.
        """
        empty = ids.shape.num_elements() == 0
        if not empty and (ids.dtype == tf.string) != (self.ids.dtype == tf.string):
            raise ValueError(
                f"`{argument}` must hold ids like those of the index, {self.ids.dtype.name}. "
                f"Received: {ids.dtype.name}."
            )
        keys = id_keys(ids)
        found = tf.minimum(places_in(self._sorted, keys), self.size - 1)
        same = tf.equal(tf.gather(self._sorted, found), keys)
        return tf.where(same, tf.gather(self._order, found), -1)


def _checked_ids(ids):
    """Ids `[N]` or `[N, 1]` as `[N]`."""
    if ids.shape.rank == 2 and ids.shape[1] == 1:
        ids = tf.squeeze(ids, axis=1)
    if ids.shape.rank != 1:
        raise ValueError(
            "`candidates` must have ids of the shape [N] or [N, 1]; where the features of a "
            "candidate are several integers, `candidate_id` must be given. Received: ids of shape "
            f"{ids.shape}."
        )
    if not (ids.dtype.is_integer or ids.dtype == tf.string):
        raise ValueError(
            "`candidates` must have integers or strings for ids. "
            f"Received: ids of {ids.dtype.name}."
        )
    return ids


def id_keys(ids: TensorLike) -> tf.Tensor:
    """Ids as int64; strings are hashed to so many buckets that no two share one in practice."""
    ids = tf.convert_to_tensor(ids)
    if ids.dtype == tf.string:
        return tf.strings.to_hash_bucket_fast(ids, 2**63 - 1)
    return tf.cast(ids, tf.int64)
