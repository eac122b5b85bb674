"""What all losses share: label forms, masks, weights, dtypes, reduction."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _config, _keras, _registry
from rank4class_tf._lists.columns import losses_of
from rank4class_tf._lists.labels import (
    check_label_format,
    list_weights,
    mean_weights,
    parse,
)
from rank4class_tf._lists.lists import Lists, fill_masked, of_columns
from rank4class_tf._tf.eager import as_graph, forget
from rank4class_tf._types import TensorLike
from rank4class_tf.layers import Probabilities
from rank4class_tf.losses._probabilities import function_behind


class RankingLoss(keras.losses.Loss):
    """Base of the losses; a subclass is its formula and its configuration.

    **Labels** `y_true` are class ids (`[batch]`, `[batch, 1]`, `[batch, P]` padded with -1, or
    ragged) or relevance `[batch, n]`, where a negative entry masks the item. **Scores** `y_pred`
    are `[batch, n]`, not probabilities: a model that ends in a softmax or a sigmoid makes the loss
    warn. The result is one value per list, reduced by Keras. Masked items change nothing; a list
    without positives has loss 0 and gradient 0.
    """

    # Whether probabilities are valid as `y_pred`, so that they are not warned of.
    _takes_probabilities = False

    # Whether the formula takes a pass over the items for each positive, or sorts the positives. If
    # not, it gets labels of all items as they are, without a search for positives.
    _searches_positives = True

    def __init__(
        self,
        *,
        label_format: str | None = None,
        max_positives: int | None = None,
        class_weight: Mapping[int, float] | Sequence[float] | None = None,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = None,
    ) -> None:
        """Args shared by all losses.

        Args:
            label_format: `"ids"`, `"relevance"`, or None to tell them apart by static shapes:
                labels as wide as the scores (n > 1) are relevance. Ids `[batch, P]` of a
                floating dtype need `"ids"`.
            max_positives: the most positives that a list of relevance labels has, None for no
                bound; 1 for one-hot labels. A bound saves time and memory, and one of at most 16 is
                needed for second derivatives where n is above 16. A list that exceeds it raises, or
                has a NaN loss where XLA compiles this.
            class_weight: the weight, >= 0, of each of the n classes, or of some by their ids, the
                others having 1. A list weighs `sum_i w_i y_i / sum_i y_i`: as its class, or as the
                mean of its classes. Keras's own, an argument of `fit`, takes ids `[batch, P]` for
                one-hot labels and weighs by position. None means 1.
            reduction: `"sum_over_batch_size"`, `"sum"` or `"none"`; `"auto"` is the first.
            name: name of the loss.
        """
        check_label_format(label_format)
        if max_positives is not None:
            max_positives = _checks.positive_int("max_positives", max_positives)
        super().__init__(
            reduction=_keras.standardize_reduction(reduction),
            name=name or _registry.snake_case(type(self).__name__),
        )
        self.label_format = label_format
        self.max_positives = max_positives
        self.class_weight = None if class_weight is None else _checked_class_weight(class_weight)
        self._looks_at_scores = not self._takes_probabilities

    @property
    def num_mined(self) -> int | None:
        """How many of the highest negatives the loss reads; None for all.

        A model may find these among many without gradients, and score only these.
        """
        return None

    @property
    def probabilities(self) -> Probabilities | None:
        """The layer that maps scores to the probabilities that the loss fits; None for none.

        They are those of a label that is one class. Where there are none, as where the projection
        needs the label, `rank4class_tf.calibrate` fits a softmax.
        """
        return None

    def compute(self, lists: Lists) -> tf.Tensor:
        """The formula: `Lists` -> `[batch]`.

        The loss of a list depends only on that list. The formula may use Keras layers. A graph of
        long lists may hold it twice, for few and for many positives, if the number of positives is
        known only when the graph runs. What it returns for a list without positives does not
        matter, as long as it is finite.
        """
        raise NotImplementedError

    def __call__(
        self, y_true: TensorLike, y_pred: TensorLike, sample_weight: TensorLike | None = None
    ) -> tf.Tensor:
        """Computes the loss; weights are a scalar, `[batch]`, `[batch, 1]` or `[batch, n]`."""
        if getattr(self, "ranker", None) is None:  # A layer may change.
            return as_graph(self, self._reduced, y_true, y_pred, sample_weight)
        return self._reduced(y_true, y_pred, sample_weight)

    def __setattr__(self, name, value):
        if not name.startswith("_"):  # It may be a part of the configuration.
            forget(self)
        super().__setattr__(name, value)

    def _reduced(self, y_true, y_pred, sample_weight):
        y_true = _keras.given_labels(y_true)
        if sample_weight is not None:
            sample_weight = list_weights(sample_weight, y_true, y_pred, self.label_format)
        return _keras.call_loss(self, y_true, y_pred, sample_weight)

    def call(self, y_true: TensorLike, y_pred: TensorLike) -> tf.Tensor:
        """Computes the loss of each list, `[batch]`."""
        labels = parse(y_true, y_pred, self.label_format, self.max_positives)
        if self._looks_at_scores:
            self._look_at(y_pred)
        counted = labels.has_positive & ~labels.invalid
        filled = fill_masked(labels.scores, labels.mask, counted)
        compute = _keras.with_autograph_of_caller(self.compute)
        if self._searches_positives:
            losses = losses_of(compute, labels, filled)
        else:
            losses = compute(of_columns(filled, labels.class_ids, labels.relevance))
        if losses.shape.rank not in (None, 1):
            raise ValueError(
                f"`compute` must return the losses [batch]. Received: shape {losses.shape}."
            )
        if self.class_weight is not None:
            weights = _weights_of_classes(self.class_weight, labels.scores.shape[1])
            losses *= mean_weights(labels, tf.constant(weights, losses.dtype))
        nan = tf.constant(float("nan"), losses.dtype)
        return tf.where(counted, losses, tf.where(labels.invalid, nan, tf.zeros_like(nan)))

    def _look_at(self, scores):
        """Warns once if scores are probabilities; in eager mode only the first batch counts."""
        function = function_behind(scores)
        # Looking at a graph costs nothing, and the next graph may show more.
        self._looks_at_scores = function is None and not tf.executing_eagerly()
        if function is not None:
            warnings.warn(
                "`y_pred` should hold scores, not probabilities. Received: the output of a "
                f"{function}, which `{self.name}` learns less from. Leave the {function} away, and "
                "apply it to predictions where probabilities are needed.",
                stacklevel=2,
            )

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments."""
        return _config.constructor_arguments(self, RankingLoss)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Builds the loss that `get_config` describes."""
        return cls(**_config.deserialized(config))


def _checked_class_weight(given):
    """A list of weights, or a dict of those of some classes, as plain numbers."""
    is_mapping = isinstance(given, Mapping)
    if not is_mapping and (isinstance(given, str) or np.ndim(given) != 1):
        raise ValueError(
            "`class_weight` must be a list of weights, or a dict of those of some class ids. "
            f"Received: {given!r}."
        )
    weights = [*given.values()] if is_mapping else [*given]
    weights = [_checks.non_negative_float("class_weight", weight) for weight in weights]
    if not is_mapping:
        return weights
    # In a file the ids are strings.
    ids = [int(i) if isinstance(i, str) and i.isdecimal() else i for i in given]
    ids = [_checks.non_negative_int("class_weight", class_id) for class_id in ids]
    return dict(zip(ids, weights, strict=True))


def _weights_of_classes(given, n):
    """The weights of n classes, an array, of what `_checked_class_weight` returns."""
    is_list = isinstance(given, list)
    if n is None or (len(given) != n if is_list else max(given, default=0) >= n):
        what = f"{len(given)} weights" if is_list else f"weights of {[*given]}"
        raise ValueError(
            "`class_weight` must hold a weight for each class that `y_pred` scores, or for ids "
            f"of these. Received: {what} for {n} classes."
        )
    if is_list:
        return np.array(given)
    weights = np.ones(n)
    weights[list(given)] = list(given.values())
    return weights
