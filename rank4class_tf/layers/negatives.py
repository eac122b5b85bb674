"""Layers that choose and correct a step's negatives, for `TwoTower` or a user's model.

Negatives that a head scores by class id are in `sampled.py`. The dtype of layers
of scores or encodings is float32, also under mixed precision, unless another is set.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _keras, _random, _registry, ops
from rank4class_tf._counts import checked_counts
from rank4class_tf._lists import labels as _labels
from rank4class_tf._tf import raising, search
from rank4class_tf._tf.exact import as_floating
from rank4class_tf._tf.gather import gather, indices
from rank4class_tf._tf.gradients import has_nan
from rank4class_tf._tf.raising import checked, same_sizes
from rank4class_tf._tf.shapes import smaller, width_of
from rank4class_tf._types import Array, Shape, Tensor, TensorPair
from rank4class_tf.layers.serving import ScoreLayer


class _Checked(NamedTuple):
    """Scores and labels that were checked."""

    scores: Tensor  # `[batch, n]`, floating.
    # `[batch, P]`, the columns of the positives. In place of padding they repeat a
    # positive of the list, or are 0.
    columns: Tensor
    is_present: Tensor  # `[batch, P]`, False for padding.
    zero: Tensor  # `[batch, 1]`, NaN where a label is no column.

    @classmethod
    def of(cls, scores: Tensor, labels: Tensor) -> Self:
        scores = as_floating(scores)
        labels = tf.convert_to_tensor(labels)
        rule = "`scores` must have the shape [batch, n]."
        _checks.require(scores.shape.rank == 2, rule, f"{scores.shape}")
        rule = (
            "`labels` must hold the columns of the positives, each once, not one-hot "
            "labels"
        )
        has_several = labels.shape.rank == 2 and labels.shape[1] != 1
        is_one_hot = has_several and labels.dtype.is_floating
        is_right = labels.shape.rank in (1, 2) and not is_one_hot
        received = f"{labels.dtype.name} {labels.shape}"
        _checks.require(is_right, f"{rule}: integers [batch] or [batch, P].", received)

        zero = tf.zeros([tf.shape(scores)[0], 1], scores.dtype)
        columns, zero = _labels.padded_ids(labels, width_of(scores), zero, "labels")
        filler = columns
        if has_several:
            # A column that is given twice would count as two positives.
            rising = tf.sort(columns, axis=1)
            is_repeated = (rising[:, 1:] == rising[:, :-1]) & (rising[:, 1:] >= 0)
            zero = checked(zero, tf.pad(is_repeated, [[0, 0], [1, 0]]), rising, rule)
            filler = tf.reduce_max(columns, axis=1, keepdims=True)
        is_present = columns >= 0
        columns = tf.where(is_present, columns, tf.maximum(filler, 0))
        return cls(scores, columns, is_present, zero)

    def with_positives(
        self, values: Tensor, of_positives: Tensor, of_others: Tensor
    ) -> Tensor:
        """Values `[batch, n]` with others in the columns, by whether there is one."""
        has_positive = tf.reduce_any(self.is_present, axis=1, keepdims=True)
        updates = tf.where(has_positive, of_positives, of_others)
        return tf.tensor_scatter_nd_update(values, indices(self.columns), updates)


def _item_values(name: str, values: Tensor, scores: Tensor) -> Tensor:
    """Values of items, `[n]` or `[batch, n]`, after a check of their shape."""
    values = tf.convert_to_tensor(values)
    rank = values.shape.rank
    rule = f"`{name}` must have the shape [n] or [batch, n] of `scores`."
    _checks.require(rank in (1, 2), rule, f"{values.shape} for scores {scores.shape}")
    lists = scores if rank == 2 else tf.zeros(tf.shape(scores)[1:])
    return same_sizes(values, lists, rule, num_axes=rank)


@_keras.register
class CandidateFrequencies(_registry.Configured, keras.layers.Layer):
    r"""The share of each candidate among the positives, counted in training or given.

    $$\hat p_i = \max(c_i, 1) / \max(\textstyle\sum_j c_j, 1)$$

    where $c_i$ is how often training has seen the bucket of id i, i modulo
    `num_buckets`. Ids that share a bucket count as more frequent than they are.

    Source: Yi et al. 2019, "Sampling-Bias-Corrected Neural Modeling for Large Corpus
    Item Recommendations", who estimate the gap between two occurrences instead.

    Args:
        num_buckets: how many counts are kept, >= 1.
        running: whether a call in training counts its ids; if not, these are below
            `num_buckets`.

    Input: integers of any shape; -1 is padding, which is not counted. Output: float32
    frequencies.

    Example:
        >>> frequencies = CandidateFrequencies(num_buckets=10)
        >>> frequencies(tf.constant([3, 3, 3, 5]), training=True).numpy()
        array([0.75, 0.75, 0.75, 0.25], dtype=float32)
        >>> CandidateFrequencies.from_counts([6, 2])(
        ...     tf.constant([0, 1]), training=True
        ... ).numpy()
        array([0.75, 0.25], dtype=float32)
    """

    def __init__(self, num_buckets: int, running: bool = True, **kwargs: Any):
        super().__init__(**kwargs)
        self.num_buckets = _checks.positive_int("num_buckets", num_buckets)
        self.running = _checks.flag("running", running)

    @classmethod
    def from_counts(cls, counts: Array, **kwargs: Any) -> Self:
        """Returns a layer with fixed integer counts of ids from 0 on as positives."""
        counts = checked_counts(counts)
        layer = cls(len(counts), running=False, **kwargs)
        layer.build(None)
        layer.counts.assign(counts)
        return layer

    def build(self, input_shape: Shape | None) -> None:
        self.counts = _keras.add_state(self, "counts", (self.num_buckets,), "int64")
        self.built = True

    def call(self, ids: Tensor, training: bool | None = None) -> Tensor:
        ids = _checks.ids("ids", ids, strings=False)
        buckets = tf.cast(ids, tf.int64) % self.num_buckets
        # A call in training counts its ids before it reads how frequent they are.
        counts = tf.identity(_keras.variable(self.counts))
        if training and self.running:
            flat_buckets = tf.reshape(buckets, [-1])
            increments = tf.cast(tf.reshape(ids, [-1]) != -1, tf.int64)
            counts += tf.math.unsorted_segment_sum(
                increments, flat_buckets, self.num_buckets
            )
            self.counts.assign(counts)
        total = tf.maximum(tf.reduce_sum(counts), 1)
        id_counts = tf.cast(tf.maximum(tf.gather(counts, buckets), 1), tf.float64)
        shares = tf.cast(id_counts / tf.cast(total, tf.float64), tf.float32)
        if self.running:
            return shares
        rule = "`ids` must be below `num_buckets`, the number of counts that were given"
        id_rows = tf.reshape(ids, [-1, 1])
        is_invalid = (id_rows < -1) | (id_rows >= self.num_buckets)
        shares = checked(tf.reshape(shares, [-1]), is_invalid, id_rows, rule)
        return tf.reshape(shares, tf.shape(ids))


@_keras.register
class CrossBatchMemory(ScoreLayer):
    """Keeps encodings of candidates of earlier batches, to serve as further negatives.

    Each call in training adds its batch and drops the oldest candidates. The encodings
    that it returns have no gradient.

    Source: Wang et al. 2020, "Cross-Batch Memory for Embedding Learning"; for two
    towers, Wang et al. 2021, "Cross-Batch Negative Sampling for Training Two-Tower
    Recommenders".

    Args:
        size: how many candidates it holds, >= 1.

    Inputs: encodings `[batch, d]` and int64 ids `[batch]`. Outputs: the previous
    content, the oldest first: encodings `[size, d]`, ids `[size]`, and booleans
    `[size]`, False where empty.

    Example:
        >>> memory = CrossBatchMemory(3)
        >>> for batch in ([[1.0], [2.0]], [[3.0]]):
        ...     ids = tf.fill([len(batch)], 7)
        ...     encodings, _, filled = memory(tf.constant(batch), ids, training=True)
        >>> encodings[:, 0].numpy(), filled.numpy()
        (array([0., 1., 2.], dtype=float32), array([False,  True,  True]))
    """

    def __init__(self, size: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.size = _checks.positive_int("size", size)

    def build(
        self, encodings_shape: tuple[Any, ...], ids_shape: Shape | None = None
    ) -> None:
        width = encodings_shape[-1]
        self.encodings = _keras.add_state(
            self, "encodings", (self.size, width), "float32"
        )
        self.ids = _keras.add_state(self, "ids", (self.size,), "int64")
        self.num_filled = _keras.add_state(self, "num_filled", (), "int64")
        self.built = True

    def call(
        self, encodings: Tensor, ids: Tensor, training: bool | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        encodings = tf.convert_to_tensor(encodings)
        ids = _checks.ids("ids", ids, strings=False)
        rule = "`ids` must have the shape [batch] of `encodings`."
        received = f"{ids.shape} for encodings {encodings.shape}"
        _checks.require(ids.shape.rank in (None, 1), rule, received)
        ids = same_sizes(ids, encodings, rule)
        # What the memory held before this batch, which is added below.
        kept_encodings = tf.identity(_keras.variable(self.encodings))
        kept_ids = tf.identity(_keras.variable(self.ids))
        num_filled = tf.identity(_keras.variable(self.num_filled))
        is_filled = tf.range(self.size, dtype=tf.int64) >= self.size - num_filled
        if training:
            self._keep(self.encodings, kept_encodings, tf.stop_gradient(encodings))
            self._keep(self.ids, kept_ids, ids)
            num_filled += tf.size(ids, tf.int64)
            self.num_filled.assign(tf.minimum(num_filled, self.size))
        return kept_encodings, kept_ids, is_filled

    def _keep(self, state: tf.Variable, kept: Tensor, new: Tensor) -> None:
        rows = tf.concat([kept, tf.cast(new, kept.dtype)], axis=0)
        state.assign(rows[-self.size :])

    def load_own_variables(self, store: Mapping[str, np.ndarray]) -> None:
        # A layer that has not seen encodings learns their width from the file.
        if not self.built and store:
            self.build(store["0"].shape)
        super().load_own_variables(store)


@_keras.register
class HardNegativeMining(ScoreLayer):
    """Keeps the positives of each list and the negatives with the highest scores.

    Source: Reddi et al. 2019, "Stochastic Negative Mining for Learning with Large
    Output Spaces".

    Args:
        num_hard_negatives: how many negatives to keep, >= 1; all if a list has fewer
            columns.

    Inputs: scores `[batch, n]`, -inf for a masked item; labels `[batch]` or
    `[batch, P]`, the columns of the positives, -1 for none. A column that does not
    exist raises `ValueError`; under XLA, its list gets a NaN instead.

    Outputs: scores `[batch, P + m]`, of the positives and then of the negatives from
    high to low, -inf for a missing one; labels `[batch]`, or `[batch, P]` if P > 1: 0
    to P - 1, or -1 for none.

    Example:
        >>> scores, labels = tf.constant([[3.0, 1.0, 2.0, 4.0]]), tf.constant([1])
        >>> scores, labels = HardNegativeMining(2)(scores, labels)
        >>> scores.numpy(), labels.numpy()
        (array([[1., 4., 3.]], dtype=float32), array([0], dtype=int32))
    """

    def __init__(self, num_hard_negatives: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.num_hard_negatives = _checks.positive_int(
            "num_hard_negatives", num_hard_negatives
        )

    def call(self, scores: Tensor, labels: Tensor) -> TensorPair:
        lists = _Checked.of(scores, labels)
        scores, columns = lists.scores, lists.columns
        num_mined = smaller(self.num_hard_negatives, width_of(scores))
        minus_infinity = tf.constant(-float("inf"), scores.dtype)
        column_scores = gather(scores, columns)
        positive_scores = tf.where(lists.is_present, column_scores, minus_infinity)
        positive_scores += lists.zero

        # The search leaves out the columns of positives, if there are any.
        fixed_scores = tf.stop_gradient(scores)
        search_scores = lists.with_positives(
            fixed_scores, minus_infinity, tf.stop_gradient(column_scores)
        )
        highest, mined = search.top_k(search_scores, num_mined)

        # In a list with fewer negatives the search may return the positive.
        is_mined = highest > minus_infinity
        mined_scores = tf.where(is_mined, gather(scores, mined), minus_infinity)
        # A search may miss a NaN, so that a list with one becomes NaN.
        is_known = ~has_nan(fixed_scores)[:, tf.newaxis]
        mined_scores = tf.where(is_known, mined_scores, float("nan"))

        num_columns = tf.shape(columns)[1]
        labels = tf.where(lists.is_present, tf.range(num_columns), -1)
        if columns.shape[1] == 1:
            labels = labels[:, 0]
        return tf.concat([positive_scores, mined_scores], axis=1), labels


@_keras.register
class RemoveAccidentalHits(ScoreLayer):
    """Masks negatives that equal the positive: other columns with the same candidate.

    If the candidates of a batch are negatives of each other, a frequent candidate
    occurs more than once. The losses of this package leave out a masked item, which has
    the score -inf, and so does Keras's
    `SparseCategoricalCrossentropy(from_logits=True)`.

    Source: Bengio and Senécal 2008 for the idea; TensorFlow's
    `compute_accidental_hits`.

    Inputs: scores `[batch, n]` and labels as in `HardNegativeMining`; and candidate
    ids, integers or strings, `[n]` shared by all lists or `[batch, n]`. Output: scores
    `[batch, n]`.

    Example:
        >>> scores, labels, ids = [[3.0, 1.0, 2.0]], [0], [7, 8, 7]
        >>> RemoveAccidentalHits()(*map(tf.constant, (scores, labels, ids))).numpy()
        array([[  3.,   1., -inf]], dtype=float32)
    """

    def call(self, scores: Tensor, labels: Tensor, candidate_ids: Tensor) -> Tensor:
        lists = _Checked.of(scores, labels)
        scores, columns = lists.scores, lists.columns
        ids = _checks.ids("candidate_ids", candidate_ids)
        ids = _item_values("candidate_ids", ids, scores)
        positive_ids = tf.gather(ids, columns, batch_dims=ids.shape.rank - 1)

        def with_hits(hits: Tensor, positive: TensorPair) -> Tensor:
            positive_id, is_present = positive
            is_hit = positive_id[:, tf.newaxis] == ids
            return hits | is_hit & is_present[:, tf.newaxis]

        if positive_ids.shape[1] == 1:
            hits = (positive_ids == ids) & lists.is_present
        # One positive at a time, so that no [batch, P, n] appears.
        else:
            hits = tf.foldl(
                with_hits,
                (tf.transpose(positive_ids), tf.transpose(lists.is_present)),
                tf.zeros_like(scores, tf.bool),
                parallel_iterations=1,
            )
        absent = tf.zeros_like(lists.is_present)
        hits = tf.tensor_scatter_nd_update(hits, indices(columns), absent)
        # An addition costs nothing in the backward pass. XLA cannot raise, so `zero`
        # may be NaN.
        scores += tf.where(hits, tf.constant(-float("inf"), scores.dtype), 0.0)
        return scores + lists.zero if raising.in_xla() else scores


@_keras.register
class SamplingProbabilityCorrection(ScoreLayer):
    r"""Log-Q correction: a softmax over samples estimates one over all candidates.

    $$s_j - \log E_j$$

    for a negative that is expected $E_j$ times among the negatives, the number of draws
    times its probability. The positive, which is not drawn, keeps its score. Then
    $e^{s_y} + \sum_j e^{s_j} / E_j$ has the expectation $\sum_i e^{s_i}$ over all
    candidates, if no negative is the positive (`RemoveAccidentalHits`). TensorFlow's
    `sampled_softmax_loss` corrects the positive's score too, so its sum has another
    expectation.

    For `SoftmaxLoss` and similar losses. A temperature must divide the scores before
    this layer.

    Source: Bengio and Senécal 2008; Yi et al. 2019, see `CandidateFrequencies`.

    Inputs: scores `[batch, n]` and labels as in `HardNegativeMining`; and expected
    counts, > 0, `[n]` shared by all lists or `[batch, n]`. Output: scores `[batch, n]`;
    NaN for a negative whose expected count is not > 0, or is infinite.

    Example:
        >>> scores, labels, counts = [[3.0, 1.0, 2.0]], [0], [0.5, 1.0, 2.0]
        >>> SamplingProbabilityCorrection()(
        ...     *map(tf.constant, (scores, labels, counts))
        ... ).numpy()
        array([[3.       , 1.       , 1.3068528]], dtype=float32)
    """

    def call(self, scores: Tensor, labels: Tensor, expected_counts: Tensor) -> Tensor:
        lists = _Checked.of(scores, labels)
        scores = lists.scores
        counts = _item_values("expected_counts", expected_counts, scores)
        counts = tf.cast(counts, scores.dtype)
        # The logarithm of other counts is infinite or does not exist.
        is_valid = (counts > 0) & tf.math.is_finite(counts)
        counts = tf.where(is_valid, counts, tf.constant(float("nan"), scores.dtype))
        logs = tf.broadcast_to(tf.math.log(counts), tf.shape(scores))
        # The logarithm of a positive's count, which may be NaN, becomes 0.
        logs_in_columns = tf.gather(logs, lists.columns, batch_dims=1)
        others = logs_in_columns + lists.zero
        return scores - lists.with_positives(logs, lists.zero, others)


@_keras.register
class UniformNegatives(_registry.Configured, keras.layers.Layer):
    """Draws negatives from all candidates, uniformly without replacement.

    In-batch negatives are mostly frequent candidates. Each call in training draws anew,
    the same on all devices of a strategy.

    Source: Yang et al. 2020, "Mixed Negative Sampling for Learning Two-tower Neural
    Networks in Recommendations".

    Args:
        num_sampled: how many, >= 1; all candidates, if these are fewer.
        seed: an int; None draws one from NumPy's global generator.

    Input: a tensor with a row for each candidate; only its static number of rows is
    read. Output: row numbers, int32.

    Example:
        >>> rows = UniformNegatives(3, seed=1)(tf.zeros([100]))
        >>> rows.shape, bool(tf.reduce_all(rows < 100))
        (TensorShape([3]), True)
    """

    def __init__(self, num_sampled: int, seed: int | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self.num_sampled = _checks.positive_int("num_sampled", num_sampled)
        self.seed = _random.start_seed(seed)

    def build(self, input_shape: Shape | None) -> None:
        self.random_state = _random.add_state(self, self.seed)
        self.built = True

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        has_size = inputs.shape.rank and inputs.shape[0] is not None
        rule = "`inputs` must have a known number of rows, one for each candidate."
        _checks.require(has_size, rule, f"shape {inputs.shape}")
        num_candidates = inputs.shape[0]
        size = min(self.num_sampled, num_candidates)
        seed = _random.step_seed(self.random_state, training)
        return ops.sample_distinct(num_candidates, size, seed)[0]  # Its one row.
