"""The one door: what a caller hands to a loss, a metric or a model, as a `Batch`.

Labels of any form, scores, weights, items to leave out and positions of sequences are
read here, and so are the encodings of classes that are scored by blocks. What follows
sees one list a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import tensorflow as tf

from rank4class_tf import _keras
from rank4class_tf._lists import labels as _labels
from rank4class_tf._lists.labels import Labels
from rank4class_tf._lists.positions import Positions, positions_of
from rank4class_tf._tf.memory import owned
from rank4class_tf._types import Array, Tensor

if TYPE_CHECKING:
    from rank4class_tf.ops import Ranks


class Rows(NamedTuple):
    """What a caller hands in, a row for each list, in the form that it came in."""

    y_true: Array
    y_pred: Tensor | tf.RaggedTensor  # Scores, or encodings.
    sample_weight: Array | None
    exclude: Array | None
    positions: Positions | None  # Where the lists stand, if in sequences.

    @classmethod
    def of(
        cls,
        y_true: Array,
        y_pred: Array,
        sample_weight: Array | None = None,
        exclude: Array | None = None,
    ) -> Rows:
        """Makes a row of each position, which counts unless its mask leaves it out."""
        y_true = _keras.given_labels(y_true)
        if sample_weight is not None:
            sample_weight = owned(sample_weight)
        positions = positions_of(y_pred)
        if positions is None:
            return cls(y_true, y_pred, sample_weight, exclude, None)

        if sample_weight is not None:
            sample_weight = positions.weights(sample_weight)
        if exclude is not None and positions.shape.rank > 1:
            exclude = positions.broadcast(exclude, "exclude", 1)
        labels = positions.labels(y_true)
        if isinstance(y_true, tf.RaggedTensor):
            # Ragged ids stay ragged, and so ids, also where they are as wide as the
            # scores.
            labels = tf.RaggedTensor.from_tensor(labels)
        return cls(labels, positions.rows(), sample_weight, exclude, positions)


class Batch(NamedTuple):
    """Lists and their labels, brought to one form."""

    # One of the two may be absent: a model that counts ranks has no labels. Ranks
    # beside labels are those that metrics share.
    given_labels: Labels | None = None
    given_ranks: Ranks | None = None
    list_weights: Tensor | None = None  # A scalar or `[lists]`; None means 1.
    item_weights: Tensor | None = None  # `[lists, n]`, in the dtype of the scores.
    positions: Positions | None = None  # Where the lists stand, and which count.
    # The name of the dtype that labels were given in, to which bounds on them round.
    given_dtype: str | None = None

    @classmethod
    def of(
        cls,
        y_true: Array,
        y_pred: Array,
        sample_weight: Array | None = None,
        exclude: Array | None = None,
        *,
        num_classes: int | None = None,
        label_format: str | None = None,
        ignore_class: int | None = None,
        max_positives: int | None = None,
        item_weights: bool = True,
        signed: bool = False,
    ) -> Batch:
        """Reads labels and scores of any form; with `num_classes`, ids and encodings.

        Weights of items raise unless `item_weights`. Negative ones raise unless
        `signed`; if not, a position that does not count has the weight 0.
        """
        rows = Rows.of(y_true, y_pred, sample_weight, exclude)
        positions = rows.positions
        in_sequences = positions is not None and positions.shape.rank > 1
        # Else an example without a class counts, with a loss of 0.
        padding_leaves = in_sequences or ignore_class is not None
        labels = _labels.parse(
            rows.y_true,
            rows.y_pred,
            rows.exclude,
            label_format=label_format,
            max_positives=max_positives,
            num_classes=num_classes,
            ignore_class=ignore_class,
            finds_padding=padding_leaves,
        )
        if padding_leaves:
            positions = positions or Positions(labels.scores)
            positions = positions.without(labels.is_padding)
        given_dtype = getattr(getattr(y_true, "dtype", None), "name", None)
        batch = cls(labels, positions=positions, given_dtype=given_dtype)

        weights = rows.sample_weight
        if positions is not None and not signed:
            weights = positions.masked(weights)  # Padding may have any weight.
        if weights is None:
            return batch
        if not item_weights:
            weights = _keras.weights_of_lists(weights, rows.y_pred)
        weights = _labels.example_weights(
            weights, rows.y_pred, per_item=item_weights, signed=signed
        )
        if weights.shape.rank != 2:
            return batch._replace(list_weights=weights)
        weights = _labels.weights_of_items(weights, labels.scores)
        return batch._replace(item_weights=weights)

    @classmethod
    def of_ranks(
        cls,
        ranks: Ranks,
        sample_weight: Array | None = None,
        positions: Positions | None = None,
    ) -> Batch:
        """Ranks that a model or an index counted, with the weights of their lists."""
        weights = None if sample_weight is None else owned(sample_weight)
        if positions is not None:
            if weights is not None:
                weights = positions.weights(weights)
            weights = positions.masked(weights)
        if weights is not None:
            weights = _labels.example_weights(
                weights, ranks.above, per_item=False, signed=False
            )
        return cls(given_ranks=ranks, list_weights=weights, positions=positions)

    @staticmethod
    def static_format(
        y_true: Array, y_pred: Array, label_format: str | None
    ) -> str | None:
        """`label_format` for `of` in a graph that does not know the widths of both.

        Ids stay to be inferred there, since their checks depend on it.
        """
        rows = Rows.of(y_true, y_pred)
        is_known = label_format or isinstance(rows.y_true, tf.RaggedTensor)
        if is_known or isinstance(rows.y_pred, tf.RaggedTensor):
            return label_format
        labels = _labels.as_numbers("y_true", rows.y_true)
        scores = _labels.as_scores("y_pred", rows.y_pred)
        return None if _labels.are_ids(labels, scores.shape, None) else "relevance"

    @property
    def labels(self) -> Labels:
        """The labels of a batch that has some."""
        assert self.given_labels is not None
        return self.given_labels

    @property
    def ranks(self) -> Ranks:
        """The ranks of a batch that has some."""
        assert self.given_ranks is not None
        return self.given_ranks

    @property
    def value_if_empty(self) -> Tensor:
        """`[lists]`: 0, or NaN for a list that breaks a rule where XLA compiles."""
        if self.given_labels is not None:
            return self.given_labels.value_if_empty
        is_broken = tf.reduce_any(tf.math.is_nan(self.ranks.above), axis=-1)
        nan = tf.constant(float("nan"), self.ranks.above.dtype)
        return tf.where(is_broken, nan, 0)

    def with_labels(self, labels: Labels) -> Batch:
        """The same lists with other labels, whose ranks are not counted."""
        return self._replace(given_labels=labels, given_ranks=None)

    def counted(self) -> tuple[Batch, Tensor | None]:
        """The lists that count, and their places `[m, 1]`; None for all of them."""
        mask = None if self.positions is None else self.positions.flat_mask
        if mask is None:
            return self, None
        places = tf.where(mask)
        lists = self._replace(positions=None)
        rows = [
            tf.gather_nd(x, places) if tf.is_tensor(x) and x.shape.rank != 0 else x
            for x in tf.nest.flatten(lists)
        ]
        return tf.nest.pack_sequence_as(lists, rows), places

    def mean_weights(self) -> Tensor | None:
        """The weights of lists; the mean of its positives' where items have weights."""
        if self.item_weights is None:
            return self.list_weights
        return _labels.mean_weights(self.labels, self.item_weights)
