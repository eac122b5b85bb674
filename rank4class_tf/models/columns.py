"""The candidates that the queries of a `TwoTower` step score, column by column."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple, Self

import tensorflow as tf

from rank4class_tf._tf.exchange import Exchange
from rank4class_tf._types import Size, Tensor
from rank4class_tf.layers import (
    CandidateFrequencies,
    CrossBatchMemory,
    UniformNegatives,
)
from rank4class_tf.models.candidates import Candidates
from rank4class_tf.models.catalogue import Index


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
        keys = None
        is_positive = None
        weights = None
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

    rate: Tensor | float  # `[n]`, or one number for all columns.
    base: Tensor | float

    def weighted(self, weights: Tensor) -> Expected:
        """The same for columns of which one of weight w is expected 1 / w times."""
        return Expected(self.rate / weights, self.base / weights)


class Columns(NamedTuple):
    """A step's candidates of all replicas, memory and index; all queries score them."""

    encodings: Tensor  # `[n, d]`
    keys: Tensor | None  # `[n]` int64; None without ids.
    # `[n]` booleans, False for an empty column; None if all hold one.
    is_present: Tensor | None
    num_draws: Tensor  # How many of them are draws by frequency; a scalar.
    expected: Expected | None  # None without a correction.


@dataclasses.dataclass
class Sources:
    """Where a step's columns come from: the batch, the memory and the index."""

    # No named tuple, into which Keras would look: the model tracks these layers itself.
    index: Index
    frequencies: CandidateFrequencies | None
    memory: CrossBatchMemory | None
    random: UniformNegatives | None

    def columns(
        self, candidates: Candidates, encodings: Tensor, training: bool
    ) -> Columns:
        """Joins the candidates of all sources; the memory then takes the batch."""
        self._check_ids(candidates)
        batch = BatchOfAll.gathered(candidates, encodings)
        if self.frequencies is not None:
            self.frequencies(batch.drawn_keys, training=training)

        # The batch comes first: a label is the column of a candidate in it.
        num_draws = tf.math.count_nonzero(batch.is_draw, dtype=tf.int32)
        sources = [Source(batch.encodings, batch.keys, batch.is_present)]

        if self.memory is not None:
            encodings, keys, is_filled = self.memory(
                batch.encodings, batch.drawn_keys, training=training
            )
            earlier = Source(encodings, keys, is_filled & (keys != -1))
            num_draws += tf.math.count_nonzero(earlier.is_present, dtype=tf.int32)
            sources.append(earlier)

        if self.random is not None:
            catalogue = self.index.catalogue
            rows = self.random(catalogue.keys, training=training)
            drawn = self.index.encode(catalogue.features_at(rows), training)
            keys = tf.gather(catalogue.keys, rows)
            sources.append(Source(drawn, keys, tf.ones(rows.shape, tf.bool)))

        is_present = tf.concat([x.is_present for x in sources], axis=0)
        keys = None
        if batch.keys is not None:
            keys = tf.concat([x.keys for x in sources], axis=0)
        has_gaps = batch.has_padding or self.memory is not None
        return Columns(
            encodings=tf.concat([x.encodings for x in sources], axis=0),
            keys=keys,
            is_present=is_present if has_gaps else None,
            num_draws=tf.cast(num_draws, tf.float32),
            expected=self._expected(batch, keys, tf.size(is_present)),
        )

    def num_draws(self, labels: Tensor, columns: Columns) -> Tensor:
        """How many draws are negatives of a query: its own positives are none."""
        num_positives: Size = 1
        if labels.shape.rank == 2:
            num_positives = tf.math.count_nonzero(labels >= 0, axis=1, keepdims=True)
        num_draws = columns.num_draws - tf.cast(num_positives, tf.float32)
        if self.random is not None:
            return num_draws
        # A batch of one example has no draws, and 0 no logarithm.
        return tf.maximum(num_draws, 1.0)

    def _check_ids(self, candidates: Candidates) -> None:
        needs_ids = self.frequencies is not None or self.memory is not None
        if needs_ids and candidates.keys is None:
            raise ValueError(
                "`candidate_id` must be given with `frequencies` or `memory_size`, "
                "unless the features are ids. Received: candidate_id=None, "
                f"features={candidates.features!r}."
            )

    def _expected(
        self, batch: BatchOfAll, keys: Tensor | None, num_columns: Tensor
    ) -> Expected | None:
        """What log-Q and weights correct for the columns; None for nothing."""
        if self.frequencies is None and batch.weights is None:
            return None
        expected = Expected(rate=0.0, base=1.0)
        if self.frequencies is not None:
            rate = self.frequencies(keys, training=False)
            expected = self._expected_by_frequency(rate, batch)
        if batch.weights is not None:
            weights = _extended(batch.weights, num_columns, filler=1.0)
            expected = expected.weighted(weights)
        return expected

    def _expected_by_frequency(self, rate: Tensor, batch: BatchOfAll) -> Expected:
        """The log-Q correction: draws have the rates, the user's negatives are none."""
        random_rate = 0.0
        if self.random is not None:
            size = self.index.catalogue.size
            random_rate = min(self.random.num_sampled, size) / size
        base = tf.fill(tf.shape(rate), random_rate)
        if batch.is_positive is not None:
            is_draw = _extended(batch.is_positive, tf.size(rate), filler=True)
            rate = tf.where(is_draw, rate, 0.0)
            base = tf.where(is_draw, base, 1.0)
        return Expected(rate, base)


def _extended(values: Tensor, num_columns: Tensor, filler: float | bool) -> Tensor:
    """Values of the batch's candidates, and one value for those of other sources."""
    others = tf.fill([num_columns - tf.size(values)], filler)
    return tf.concat([values, others], axis=0)
