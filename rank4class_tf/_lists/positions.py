"""Positions of sequences: leading axes become one axis of lists, restored afterwards.

Scores `[batch, time, n]` are batch * time lists. A mask `[batch, time]` or labels of -1
leave out some of them. Code below losses, metrics, heads and models sees only lists
`[batch, n]`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks, _keras
from rank4class_tf._checks import require
from rank4class_tf._lists.classes import ClassProducts
from rank4class_tf._lists.labels import dense_ids
from rank4class_tf._tf import raising
from rank4class_tf._types import Array, Tensor


class Positions(NamedTuple):
    """The leading axes of scores or encodings, at each of which a list stands."""

    tensor: Tensor  # The scores or encodings, `[..., r]`.
    # Booleans `[...]`, False for a position that counts for nothing.
    mask: Tensor | None = None

    @property
    def shape(self) -> tf.TensorShape:
        """The static sizes of the leading axes."""
        return self.tensor.shape[:-1]

    @property
    def flat_mask(self) -> Tensor | None:
        """The mask `[lists]`."""
        return None if self.mask is None else tf.reshape(self.mask, [-1])

    def rows(self) -> Tensor:
        """Scores or encodings, `[lists, r]`, with a mask of items if they have one."""
        rows = tf.reshape(self.tensor, [-1, tf.shape(self.tensor)[-1]])
        rows = tf.ensure_shape(rows, [self.shape.num_elements(), self.tensor.shape[-1]])
        mask = _keras.mask_of(self.tensor)
        if mask is not None and mask.shape.rank == self.tensor.shape.rank:
            rows = _keras.with_mask(rows, tf.reshape(mask, tf.shape(rows)))
        return rows

    def flat(self, values: Array, argument: str) -> Tensor:
        """Values `[...]` or `[..., r]` of positions, as `[lists]` or `[lists, r]`."""
        rank = self.shape.rank
        if isinstance(values, tf.RaggedTensor):  # Class ids.
            values = values.to_tensor(-1)
        values = tf.convert_to_tensor(values)
        rule = (
            f"`{argument}` must have the positions of the scores, {self.shape}, as "
            "first axes."
        )
        fits = values.shape.rank is None or rank <= values.shape.rank <= rank + 1
        require(fits, rule, f"shape {values.shape}")
        if values.shape.rank is None:  # Keras loses the rank of ids only, `[..., P]`.
            return tf.reshape(values, [tf.reduce_prod(tf.shape(self.tensor)[:-1]), -1])
        values = raising.same_sizes(values, self.tensor, rule, num_axes=rank)
        return tf.reshape(values, tf.concat([[-1], tf.shape(values)[rank:]], axis=0))

    def labels(self, y_true: Array) -> Tensor:
        """Labels `[lists, ...]`; a position that the mask leaves out gets -1."""
        labels = dense_ids(self.flat(y_true, "y_true"))  # Of a signed dtype.
        is_kept = self.flat_mask
        if is_kept is None:
            return labels
        if labels.shape.rank != 1:
            is_kept = is_kept[:, tf.newaxis]
        return tf.where(is_kept, labels, tf.cast(-1, labels.dtype))

    def without(self, is_padding: Tensor) -> Positions:
        """The same, without the positions whose labels are padding, `[lists]`."""
        is_counted = self.unflat(~is_padding)
        if self.mask is not None:
            is_counted &= self.mask
        return self._replace(mask=is_counted)

    def broadcast(self, values: Array, argument: str, axes: int = 0) -> Tensor:
        """Broadcasts values to positions, `[lists, ...]`; the last `axes` axes stay."""
        # Weights `[batch]`, of sequences, are refused: Keras 3 would apply them along
        # time.
        values = tf.convert_to_tensor(values)
        rank = self.shape.rank
        fits = values.shape.rank == rank + axes
        if fits:
            pairs = zip(values.shape[:rank], self.shape, strict=True)
            fits = all(size in (1, None) or own in (size, None) for size, own in pairs)
        rule = (
            f"`{argument}` must have the axes of the positions, {self.shape}, each "
            "of its size"
        )
        require(fits, f"{rule} or 1, such as [batch, 1].", f"shape {values.shape}")
        sizes = tf.concat([tf.shape(self.tensor)[:-1], tf.shape(values)[rank:]], axis=0)
        rows = tf.concat([[-1], sizes[rank:]], axis=0)
        return tf.reshape(tf.broadcast_to(values, sizes), rows)

    def weights(self, sample_weight: Array) -> Tensor:
        """Weights of all positions, a scalar, `[lists]`, or for items `[lists, n]`."""
        weights = tf.convert_to_tensor(sample_weight)
        if not weights.shape.rank or self.shape.rank == 1:
            return weights
        return self.broadcast(
            weights, "sample_weight", int(weights.shape.rank > self.shape.rank)
        )

    def masked(self, weights: Tensor | None) -> Tensor | None:
        """Weights as by `weights`, or 1; 0 for a position that does not count."""
        counted = self.flat_mask
        if counted is None:
            return weights
        if weights is None:
            weights = tf.ones([])
        if weights.shape.rank == 2:
            counted = counted[:, tf.newaxis]
        return tf.where(counted, weights, tf.zeros([], weights.dtype))

    def unflat(self, values: Tensor) -> Tensor:
        """Values `[lists, ...]` with the leading axes restored."""
        sizes = tf.concat([tf.shape(self.tensor)[:-1], tf.shape(values)[1:]], axis=0)
        return tf.ensure_shape(
            tf.reshape(values, sizes), [*self.shape, *values.shape[1:]]
        )


def positions_of(scores: Any) -> Positions | None:
    """Positions of scores or encodings `[..., r]`; None for one axis and no mask."""
    # Not scored yet; what needs scores refuses it.
    if isinstance(scores, ClassProducts):
        return None
    scores = scores if hasattr(scores, "shape") else tf.convert_to_tensor(scores)
    rank = tf.TensorShape(scores.shape).rank
    if isinstance(scores, tf.RaggedTensor | tf.SparseTensor):
        rule = (
            "Positions must not be ragged: call `to_tensor()`, and use labels of "
            "-1 or a mask."
        )
        require(rank is None or rank <= 2, rule, f"shape {scores.shape}")
        return None
    mask = _keras.mask_of(scores)
    if rank is None or mask is None or mask.shape.rank != rank - 1:
        mask = None
    if mask is None and (rank or 0) <= 2:
        return None
    return Positions(tf.convert_to_tensor(scores), mask)


def at_positions(
    function: Callable,
    rows: Array,
    class_ids: Array | None = None,
    exclude: Array | None = None,
) -> Any:
    """Applies a function of `[batch, d]` to `[..., d]`, with the ids that are given."""
    ids = {"class_ids": class_ids, "exclude": exclude}
    ids = {name: x for name, x in ids.items() if x is not None}
    positions = positions_of(rows)
    if positions is None or positions.shape.rank == 1:
        return function(rows, **ids)
    if class_ids is not None:
        ids["class_ids"] = positions.labels(class_ids)
    if exclude is not None:
        ids["exclude"] = positions.broadcast(exclude, "exclude", 1)
    results = function(positions.rows(), **ids)
    return tf.nest.map_structure(positions.unflat, results)


def last_of(encodings: Tensor, last: Any, model_name: str) -> Tensor:
    """One of the encodings `[batch, time, d]` of each sequence, `[batch, d]`.

    `last` holds its position, `[batch]`; True means the last one that the mask does not
    leave out, or zeros if there is none; False means all positions.
    """
    rule = "`last` must be True, False, positions [batch], or a function to these."
    is_bool = isinstance(last, bool | np.bool_)
    require(is_bool or _checks.is_array(last), rule, repr(last))
    if is_bool and not last:
        return encodings
    rule = "`last` needs encodings of sequences, [batch, time, d]."
    require(encodings.shape.rank == 3, rule, f"shape {encodings.shape}")
    length = tf.shape(encodings, tf.int64)[1]
    if is_bool:
        mask = _keras.mask_of(encodings)
        if mask is None:
            warnings.warn(
                "`last=True` takes the very last position, even if it is padding, "
                f"because the encodings of {model_name!r} have no mask. Let all layers "
                "of the encoder keep the mask, or pass as `last` the positions, or a "
                "function of the features.",
                stacklevel=3,
            )
            return encodings[:, -1]
        # Zeros come before the first position, for a sequence of which none is kept.
        encodings = tf.pad(encodings, [[0, 0], [1, 0], [0, 0]])
        places = tf.pad(tf.where(mask, tf.range(1, length + 1), 0), [[0, 0], [1, 0]])
        return tf.gather(encodings, tf.reduce_max(places, axis=1), batch_dims=1)
    places = tf.cast(_checks.ids("last", last, strings=False), tf.int64)
    rule = "`last` must hold a position for each sequence, [batch]."
    require(places.shape.rank == 1, rule, f"shape {places.shape}")
    places = raising.same_sizes(places, encodings, rule)[:, tf.newaxis]
    rows = tf.gather(
        encodings, tf.clip_by_value(places[:, 0], 0, length - 1), batch_dims=1
    )
    rule = f"`last` must hold positions in [0, {encodings.shape[1] or 'time'})"
    return raising.checked(rows, (places < 0) | (places >= length), places, rule)
