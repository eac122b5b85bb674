"""The candidates that the queries of a `TwoTower` step score, column by column."""

from __future__ import annotations

from typing import NamedTuple, Self

import tensorflow as tf

from rank4class_tf._tf.exchange import Exchange
from rank4class_tf._types import Tensor
from rank4class_tf.models.candidates import Candidates


class BatchOfAll(NamedTuple):
    """The candidates in the batches of all replicas: positives, then negatives."""

    encodings: Tensor  # `[m, d]`
    keys: Tensor | None  # `[m]` int64, -1 for padding; None without ids.
    is_positive: Tensor | None  # `[m]` booleans; None if all are.
    weights: Tensor | None  # `[m]`, the `negative_weight`; None for 1.
    has_padding: bool

    @classmethod
    def gathered(cls, candidates: Candidates, encodings: Tensor) -> Self:
        """Candidates and encodings of this replica, with those of the others."""
        joined = Exchange().joined
        encodings = joined(encodings)
        keys = is_positive = weights = None
        if candidates.keys is not None:
            keys = joined(candidates.keys)
        if candidates.num_positives is not None:
            is_first = tf.range(tf.size(candidates.keys)) < candidates.num_positives
            # Strategies exchange no booleans.
            is_positive = joined(tf.cast(is_first, tf.int32)) > 0
        if candidates.weights is not None:
            weights = joined(candidates.weights)
        has_padding = candidates.allows_several or is_positive is not None
        return cls(encodings, keys, is_positive, weights, has_padding)

    @property
    def is_present(self) -> Tensor:
        """`[m]` booleans, False for padding."""
        if self.has_padding:
            return self.keys != -1
        return tf.ones(tf.shape(self.encodings)[:1], tf.bool)

    @property
    def is_draw(self) -> Tensor:
        """`[m]` booleans: only positives are draws from the frequencies."""
        if self.is_positive is None:
            return self.is_present
        return self.is_present & self.is_positive

    @property
    def drawn_keys(self) -> Tensor | None:
        """`[m]`, -1 for what is no draw."""
        if self.keys is None:
            return None
        return tf.where(self.is_draw, self.keys, -1)


class Source(NamedTuple):
    """Candidates from the batch, the memory or the index."""

    encodings: Tensor  # `[m, d]`
    keys: Tensor | None  # `[m]`
    is_present: Tensor  # `[m]` booleans.


class Expected(NamedTuple):
    """How often each column is expected: `rate` times the draws, and `base` besides."""

    rate: Tensor  # `[n]`
    base: Tensor  # `[n]`


class Columns(NamedTuple):
    """A step's candidates of all replicas, memory and index; all queries score them."""

    encodings: Tensor  # `[n, d]`
    keys: Tensor | None  # `[n]` int64; None without ids.
    # `[n]` booleans, False for an empty column; None if all hold one.
    is_present: Tensor | None
    num_draws: Tensor  # How many of them are draws by frequency; a scalar.
    expected: Expected | None  # None without a correction.
