"""Losses on ranks of a differentiable sorter; labels are numbers, not item lists."""

from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _keras, _registry
from rank4class_tf._lists.labels import as_numbers, example_weights
from rank4class_tf._tf.exact import as_dtype, is_zero
from rank4class_tf._tf.memory import owned
from rank4class_tf._tf.raising import check, in_xla, same_sizes
from rank4class_tf._types import Array, Changing, Tensor
from rank4class_tf.layers import LaplaceSorter, Sorter
from rank4class_tf.losses.base import UnsavedLayer, present
from rank4class_tf.ops.ranks import expected_ranks_of_all


class SorterLoss(UnsavedLayer, _registry.Configured, keras.losses.Loss):
    r"""Base of the losses on the ranks of outputs; a subclass defines the formula.

    The losses are functions of $f(\hat y) / d$, with the ranks f that a sorter gives to
    the d outputs of a list, as in the paper. The alignment
    $\lambda \, \mathrm{mean} |\hat y - y|$ is added, which brings outputs and labels to
    one scale in the first epochs.

    A list lies along the batch, one for each column of the outputs, or along the items,
    one for each row. The result is one value per example, whose mean is the loss. A
    list along the batch is the part that one device has. The sorter runs in inference
    mode and is not trained.

    Source: Engilberge et al. 2019, "SoDeep: a sorting deep net to learn ranking loss
    surrogates".

    Args:
        sorter: a sorter of `rank4class_tf.layers`; None means `LaplaceSorter()`.
        alignment: $\lambda$ >= 0, a number or a scalar `tf.Variable`.
        reduction: `"sum_over_batch_size"`, `"sum"` or `"none"`; `"auto"` is the first.
    """

    tunable: tuple[str, ...] = ()

    # Whether labels keep digits beyond float32, on which their order may depend.
    _keeps_float64 = False

    def __init__(
        self,
        sorter: Sorter | None = None,
        *,
        alignment: Changing = 0.0,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = None,
    ):
        is_right = isinstance(sorter, Sorter | None)
        rule = "`sorter` must be None or a sorter of rank4class_tf.layers."
        _checks.require(is_right, rule, f"{sorter=}")

        name = name or _registry.snake_case(type(self).__name__)
        super().__init__(reduction=_keras.standardize_reduction(reduction), name=name)
        self.sorter = LaplaceSorter() if sorter is None else sorter
        self.alignment = _checks.changing(
            "alignment", alignment, _checks.non_negative_float
        )

    def compute(self, labels: Tensor, outputs: Tensor) -> Tensor:
        """The formula: `[batch, n]`, `[batch, n]` -> `[batch]`, one per example."""
        raise NotImplementedError

    def ranks(self, outputs: Tensor, mask: Tensor | None = None) -> Tensor:
        """Soft ranks over row length, `[lists, d]` -> `[lists, d]`; 0 if masked."""
        dtype = outputs.dtype
        ranks = tf.cast(self.sorter(outputs, mask=mask), dtype)
        if mask is None:
            return ranks / tf.cast(tf.shape(outputs)[1], dtype)
        size = tf.reduce_sum(tf.cast(mask, dtype), axis=1, keepdims=True)
        return tf.math.divide_no_nan(ranks, size)

    def __call__(
        self, y_true: Array, y_pred: Array, sample_weight: Array | None = None
    ) -> Tensor:
        """Computes the loss; weights are a scalar, `[batch]` or `[batch, 1]`."""
        y_true = _keras.given_labels(y_true)
        if sample_weight is not None:
            sample_weight = example_weights(owned(sample_weight), y_pred)
        mask = _keras.mask_of(y_pred)
        if mask is None or mask.shape.rank != 1:
            losses = self.call(y_true, y_pred)
            return _keras.reduced(self, losses, sample_weight)

        # A list along the batch must not hold the examples that a mask leaves out.
        rule = "XLA cannot compile a mask of examples."
        _checks.require(not in_xla(), rule, f"{mask}")
        kept = tf.where(mask)
        losses = self.call(tf.gather_nd(y_true, kept), tf.gather_nd(y_pred, kept))
        losses = tf.scatter_nd(kept, losses, tf.shape(mask, tf.int64))
        return _keras.reduced(self, _keras.with_mask(losses, mask), sample_weight)

    def call(self, y_true: Array, y_pred: Array) -> Tensor:
        outputs = _matrix("y_pred", y_pred)
        if outputs.dtype != tf.float64:
            outputs = tf.cast(outputs, tf.float32)
        dtype = outputs.dtype

        labels = self._checked(_matrix("y_true", y_true), outputs)
        finite = tf.math.is_finite(tf.cast(labels, dtype))
        bad = check(~finite, labels, "`y_true` must hold finite numbers")

        compute = _keras.with_autograph_of_caller(self.compute)
        losses = compute(labels, outputs)
        # A list may lie along the batch, so that a bad label spoils all of it.
        losses = tf.where(~tf.reduce_any(bad), losses, float("nan"))
        if not is_zero(self.alignment):
            weight = as_dtype(present(self.alignment, dtype), dtype)
            losses += weight * self.misalignment(labels, outputs)
        return losses

    def _checked(self, labels: Tensor, outputs: Tensor) -> Tensor:
        """The labels in their dtype; raises unless their shape fits the outputs'."""
        rule = "`y_true` must have the shape of `y_pred`."
        labels = same_sizes(labels, outputs, rule, num_axes=2)
        kind = labels.dtype
        is_wide = kind == tf.float64 or kind.is_integer and kind.size > 2
        dtype = outputs.dtype
        if is_wide and self._keeps_float64:
            dtype = tf.float64
        return tf.cast(labels, dtype)

    def misalignment(self, labels: Tensor, outputs: Tensor) -> Tensor:
        """The distance of labels and outputs that the alignment weighs, `[batch]`."""
        errors = outputs - tf.cast(labels, outputs.dtype)
        return tf.reduce_mean(tf.abs(errors), axis=1)


def _matrix(name: str, values: Array) -> Tensor:
    values = as_numbers(name, values)
    if values.shape.rank == 1:
        values = values[:, tf.newaxis]
    rule = f"`{name}` must have the shape [batch] or [batch, n]."
    _checks.require(values.shape.rank == 2, rule, f"{values.shape}")
    return values


class _LossAlongAxis(SorterLoss):
    """Base of the losses whose lists lie along the batch or along the items."""

    def __init__(
        self, sorter: Sorter | None = None, axis: str = "batch", **kwargs: Any
    ):
        super().__init__(sorter, **kwargs)
        self.axis = _checks.one_of("axis", axis, ("batch", "items"))


@_registry.register("loss")
class SpearmanLoss(_LossAlongAxis):
    r"""Squared rank error, for regressions where order matters, as in Spearman's rho.

    $$\ell = \frac{1}{d} \sum_i
    \left(\frac{\mathrm{rk}(y)_i - f(\hat y)_i}{d}\right)^2$$

    with the exact ranks rk of the labels, of which equal ones share their mean rank,
    and the ranks f of the outputs. Spearman's correlation is
    $1 - 6 d^2 \ell / (d^2 - 1)$ where f is exact and nothing ties.

    Source: Engilberge et al. 2019, "SoDeep", equations 2 to 4.

    Args:
        sorter: as in `SorterLoss`.
        axis: `"batch"` for a list of each output along the batch, `"items"` for a list
            of the outputs of each example.

    Labels: `[batch]`, `[batch, 1]` or `[batch, n]` numbers. Outputs: numbers of that
    shape.

    Example:
        >>> from rank4class_tf.layers import LaplaceSorter
        >>> loss = SpearmanLoss(LaplaceSorter(temperature=0.01))
        >>> float(loss([1.0, 2.0], [[3.0], [1.0]]))  # ((2 - 1)^2 + (1 - 2)^2) / 2^3
        0.25
    """

    _keeps_float64 = True

    def compute(self, labels: Tensor, outputs: Tensor) -> Tensor:
        is_transposed = self.axis == "batch"
        if is_transposed:
            labels = tf.transpose(labels)
            outputs = tf.transpose(outputs)

        # Ranks are over d, so that the loss does not grow with the list.
        exact = tf.cast(expected_ranks_of_all(labels), outputs.dtype)
        exact /= tf.cast(tf.shape(labels)[1], outputs.dtype)
        errors = tf.square(exact - self.ranks(outputs))
        return tf.reduce_mean(errors, axis=0 if is_transposed else 1)


@_registry.register("loss")
class MeanAveragePrecisionLoss(_LossAlongAxis):
    r"""Mean rank of each class's positives: a multi-label surrogate of the mean AP.

    $$\ell = \frac{1}{|C|} \sum_{c \in C}
    \frac{1}{|R_c|} \sum_{i \in R_c} \frac{f(\hat y_c)_i}{d}$$

    with the positives R of the classes C that have one, and the ranks f of the outputs
    of a class over the batch, or of an example over the classes.

    Source: Engilberge et al. 2019, "SoDeep", equations 5 to 7, which leave the divisors
    open; these make the loss independent of the number of positives.

    Args:
        sorter: as in `SorterLoss`.
        axis: `"batch"` for a list of each class along the batch, as in the paper;
            `"items"` for a list of the classes of each example.

    Labels: `[batch, n]`, above 0 for a positive; a negative label masks the entry.
    Outputs: `[batch, n]` scores.

    Example:
        >>> loss = MeanAveragePrecisionLoss(LaplaceSorter(temperature=0.01))
        >>> float(loss([[1.0], [0.0]], [[0.0], [1.0]]))  # rank 2 of 2
        1.0
    """

    def compute(self, labels: Tensor, outputs: Tensor) -> Tensor:
        dtype = outputs.dtype
        if self.axis == "batch":
            labels = tf.transpose(labels)
            outputs = tf.transpose(outputs)

        is_positive = tf.cast(labels > 0, dtype)
        count = tf.reduce_sum(is_positive, axis=1, keepdims=True)
        share = tf.math.divide_no_nan(is_positive, count)
        ranks = self.ranks(outputs, labels >= 0)
        terms = tf.math.multiply_no_nan(ranks, share)
        if self.axis == "items":
            return tf.reduce_sum(terms, axis=1)

        # The mean over the examples is the mean over the classes that have a positive.
        num_classes = tf.math.count_nonzero(count, dtype=dtype)
        size = tf.cast(tf.shape(terms)[1], dtype)
        return tf.math.divide_no_nan(size * tf.reduce_sum(terms, axis=0), num_classes)

    def misalignment(self, labels: Tensor, outputs: Tensor) -> Tensor:
        is_known = labels >= 0
        errors = tf.abs(tf.where(is_known, outputs - labels, 0))
        count = tf.math.count_nonzero(is_known, axis=1, dtype=outputs.dtype)
        return tf.math.divide_no_nan(tf.reduce_sum(errors, axis=1), count)


@_registry.register("loss")
class RankTripletLoss(SorterLoss):
    r"""Triplet loss on ranks of a similarity matrix, for retrieval in both directions.

    $$\ell = \frac{1}{d} \sum_i \left(\alpha + \frac{f(s_i)_i - f(s_i)_n}{d}\right)_+
    + \text{the same over the columns}$$

    where $s_i$ is row i of the matrix, i its positive, and n the negative of the best
    rank. Pairs with equal labels are not negatives of each other.

    Source: Engilberge et al. 2019, "SoDeep", equations 9 and 10.

    Args:
        sorter: as in `SorterLoss`.
        **kwargs: as there; `alignment` is to 1 for equal labels, 0 for others.
        margin: $\alpha$ > 0, in ranks over d, a number or a scalar `tf.Variable`. None
            means 1/d, one rank.

    Labels: `[batch]` or `[batch, 1]` numbers, one for each pair; `range(batch)` if all
    differ. Outputs: similarities `[batch, batch]`, those of a pair on the diagonal.

    Example:
        >>> loss = RankTripletLoss(LaplaceSorter(temperature=0.01))
        >>> float(loss([0, 1], [[1.0, 0.0], [0.0, 1.0]]))  # each is a rank ahead
        0.0
    """

    tunable = ("margin",)

    def __init__(
        self,
        sorter: Sorter | None = None,
        margin: Changing | None = None,
        **kwargs: Any,
    ):
        super().__init__(sorter, **kwargs)
        if margin is not None:
            margin = _checks.changing("margin", margin, _checks.positive_float)
        self.margin = margin

    def _checked(self, labels: Tensor, outputs: Tensor) -> Tensor:
        rule = (
            "`y_pred` must be similarities [batch, batch] and `y_true` a number "
            "for each pair."
        )
        is_square = outputs.shape[:1].is_compatible_with(outputs.shape[1:])
        _checks.require(is_square, rule, f"shapes {outputs.shape} and {labels.shape}")
        column = tf.ones([tf.shape(labels)[0], 1])
        labels = same_sizes(labels, column, rule, num_axes=2)
        for side in (outputs, tf.transpose(outputs)):
            labels = same_sizes(labels, side, rule)
        return labels

    def compute(self, labels: Tensor, outputs: Tensor) -> Tensor:
        dtype = outputs.dtype
        if self.margin is None:
            margin = 1 / tf.cast(tf.shape(outputs)[1], dtype)
        else:
            margin = as_dtype(present(self.margin, dtype), dtype)
        is_same = labels == tf.transpose(labels)

        def row_losses(similarities: Tensor) -> Tensor:
            ranks = self.ranks(similarities)
            positives = tf.linalg.diag_part(ranks)
            # A row whose items are all positives has no triplet.
            negatives = tf.where(is_same, tf.constant(dtype.max, dtype), ranks)
            best = tf.reduce_min(negatives, axis=1)
            return tf.nn.relu(margin + positives - best)

        return row_losses(outputs) + row_losses(tf.transpose(outputs))

    def misalignment(self, labels: Tensor, outputs: Tensor) -> Tensor:
        target = tf.cast(labels == tf.transpose(labels), outputs.dtype)
        return tf.reduce_mean(tf.abs(outputs - target), axis=1)
