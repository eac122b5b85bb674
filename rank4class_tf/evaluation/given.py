"""What a user and a model hand in for a batch, and how a metric reads it."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from rank4class_tf import _keras
from rank4class_tf import metrics as _metrics
from rank4class_tf._lists.batch import Batch, Rows
from rank4class_tf._types import Tensor, TensorPair
from rank4class_tf.metrics.base import read
from rank4class_tf.ops.ranks import ranks_of_few


class Format(NamedTuple):
    """How a metric reads labels."""

    label_format: str | None = None
    ignore_class: int | None = None

    @classmethod
    def of(cls, metric: _metrics.RankingMetric) -> Format:
        """That of a metric."""
        return cls(metric.label_format, metric.ignore_class)


class Given(NamedTuple):
    """A batch of scores, as the user and the model give it."""

    labels: Tensor
    scores: Tensor | _metrics.RankedIds
    mask: Tensor | None  # Keras's, which a tensor loses between graphs.
    sample_weight: Tensor | None
    exclude: Tensor | None

    @property
    def arguments(self) -> tuple:
        """Those of `per_list`."""
        scores = _keras.with_mask(self.scores, self.mask)
        return self.labels, scores, self.sample_weight, self.exclude

    def static_format(self, format_: Format) -> Format:
        """The format to read in a graph that does not know the widths."""
        if isinstance(self.scores, _metrics.RankedIds):
            return format_
        labels, scores, *_ = self.arguments
        label_format = Batch.static_format(labels, scores, format_.label_format)
        return format_._replace(label_format=label_format)

    def read(self, format_: Format) -> tuple[Batch, Tensor | None]:
        """The lists that count, and their places; None for all of them.

        Where ranks are cheap, all metrics share them.
        """
        labels, scores, sample_weight, exclude = self.arguments
        batch = read(labels, scores, sample_weight, exclude, *format_)
        batch, places = batch.counted()
        if batch.given_labels is None or batch.item_weights is not None:
            return batch, places
        ranks = ranks_of_few(batch.labels, tf.float64)
        return batch if ranks is None else batch._replace(given_ranks=ranks), places

    def measured_by(self, metric: _metrics.RankingMetric) -> TensorPair:
        """What a `per_list` of a user's makes of the lists that count."""
        _, places = self.read(Format.of(metric))
        if places is None:
            return metric.per_list(*self.arguments)
        arguments = self.arguments
        if not isinstance(self.scores, _metrics.RankedIds):  # Which has a list a row.
            rows = Rows.of(*arguments)
            arguments = rows.y_true, rows.y_pred, rows.sample_weight, rows.exclude
        values, weights = metric.per_list(*arguments)
        return tf.gather_nd(values, places), tf.gather_nd(weights, places)


def as_tensor(values: Any) -> Any:
    """A list or an array as a tensor: a graph would hold the numbers of a list."""
    is_ready = values is None or tf.is_tensor(values)
    return values if is_ready else tf.convert_to_tensor(values)


def of_any_size(x: Any) -> Any:
    """What stands for rows of a batch in a graph that takes any number of them."""
    if isinstance(x, _metrics.RankedIds):
        return _metrics.RankedIds.Spec(of_any_size(x.ids))
    if not tf.is_tensor(x) or x.shape.rank == 0:
        return x
    shape = [None, *x.shape[1:]]
    if isinstance(x, tf.RaggedTensor):
        splits_dtype = x.row_splits.dtype
        return tf.RaggedTensorSpec(shape, x.dtype, x.ragged_rank, splits_dtype)
    return tf.TensorSpec(shape, x.dtype) if isinstance(x, tf.Tensor) else x
