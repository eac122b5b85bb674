"""Shared code of the metrics that weight labels by how likely they are to be missing."""

from typing import Any

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks, _config, _registry, ops
from rank4class_tf._counts import count_labels
from rank4class_tf._lists.labels import Labels
from rank4class_tf._types import TensorLike
from rank4class_tf.metrics._base import RankingMetric


def propensities(
    labels: TensorLike | tf.data.Dataset, num_classes: int, a: float = 0.55, b: float = 1.5
) -> list[float]:
    r"""Returns the probability of each class to be among the labels of an example that it fits.

    $$p_l = \frac{1}{1 + C \, (N_l + B)^{-A}}, \qquad C = (\log N - 1) (B + 1)^A$$

    with N examples, $N_l$ of which have the label l. Pass the labels of the training data.

    Source: Jain, Prabhu & Varma 2016, "Extreme Multi-label Loss Functions for Recommendation,
    Tagging, Ranking & Other Missing Label Applications", section 5.

    Args:
        labels: class ids `[batch]` or `[batch, P]`, ragged too, padded with -1; or a dataset of
            `(features, ids)`, which is read once.
        num_classes: positive integer.
        a: A > 0. The literature uses 0.5 for Wikipedia, 0.6 for Amazon, 0.55 for other data.
        b: B > 0. The literature uses 0.4 for Wikipedia, 2.6 for Amazon, 1.5 for other data.

    Returns:
        `num_classes` numbers in (0, 1].

    Raises:
        ValueError: if an argument is out of range, if a label is not a class id in
            [0, num_classes), or if there are fewer than three examples.

    Example:
        >>> shares = propensities([[0, -1], [0, 1], [0, -1], [0, -1]], num_classes=2)
        >>> [round(share, 3) for share in shares]  # of 4 and of 1 label
        [0.8, 0.721]
    """
    num_classes = _checks.positive_int("num_classes", num_classes)
    a, b = _checks.positive_float("a", a), _checks.positive_float("b", b)
    counts, examples = count_labels(labels, num_classes)
    if examples < 3:
        raise ValueError(f"`labels` must hold at least 3 examples. Received: {examples}.")
    scale = (np.log(examples) - 1) * (b + 1) ** a
    return (1 / (1 + scale * (counts + b) ** -a)).tolist()


class PropensityScored(RankingMetric):
    """Base: the gains of all lists over the best possible gains; a subclass defines `gains`."""

    _reads = "leading"
    bounds = (0.0, 1.0)

    def __init__(
        self, k: int, propensities: TensorLike, name: str | None = None, **kwargs: Any
    ) -> None:
        """Sets the arguments that both metrics share.

        Args:
            k: cutoff, >= 1.
            propensities: a number in (0, 1] for each class.
            name: name of the metric; None means the name of the class, with the cutoff.
            **kwargs: `label_format`, `dtype`: see `RankingMetric`.
        """
        self.k = _checks.positive_int("k", k)
        self.depth: Any = self.k
        self.propensities = _checks.one_for_each_class(
            "propensities",
            propensities,
            lambda shares: ((shares > 0) & (shares <= 1)).all(),
            "a number in (0, 1] for each class",
        )
        family = _registry.snake_case(type(self).__name__.removesuffix("AtK"))
        super().__init__(name=name or f"{family}_at_{k}", **kwargs)

    def gains(self, ranks: ops.Ranks) -> list[tf.Tensor]:
        """The formula: `Ranks` -> the gain of each list, and the best possible, `[batch]` both.

        The relevance of a positive is 1 over its propensity.
        """
        raise NotImplementedError

    def compute(self, ranks: ops.Ranks) -> list[tf.Tensor]:
        """The gain over the best possible one."""
        return [tf.math.divide_no_nan(*self.gains(ranks))]

    def _values_and_weights(self, dtype, *args, compute=None, **kwargs):
        # The mean over all lists, weighted by their best possible gains, is the ratio of the sums.
        both, weights = super()._values_and_weights(dtype, *args, compute=self.gains, **kwargs)
        gains, best = tf.unstack(both, axis=1)
        known = ~tf.math.is_nan(best)
        values = tf.math.divide_no_nan(gains, best)[:, tf.newaxis]
        return values, weights * tf.where(known, best, tf.ones_like(best))

    def _weighed(self, labels: Labels, dtype: tf.DType) -> Labels:
        """The labels, each of which counts as much as its class is likely to be missing."""
        n = labels.scores.shape[1]
        if n not in (None, len(self.propensities)):
            raise ValueError(
                f"`propensities` must have one for each class. Received: {len(self.propensities)} "
                f"of them and scores of {n} classes."
            )
        relevance = self._of_classes(labels.positives, dtype)
        return labels._replace(relevance=relevance, highest=None)

    def _of_classes(self, class_ids, dtype):
        """1 over the propensities of class ids, 0 for -1."""
        weights = tf.cast(1 / np.array(self.propensities), dtype)
        found = tf.gather(weights, tf.maximum(class_ids, 0))
        return tf.where(class_ids >= 0, found, tf.zeros([], dtype))

    def _of_ranks(self, compute, dtype, ranks, sample_weight):
        if ranks.class_ids is None:
            raise ValueError("`y_true` must have the class ids of its positives. Received: None.")
        relevance = self._of_classes(ranks.class_ids, ranks.relevance.dtype)
        ranks = ranks._replace(relevance=tf.where(ranks.relevance > 0, relevance, 0))
        return super()._of_ranks(compute, dtype, ranks, sample_weight)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments."""
        return _config.constructor_arguments(self, RankingMetric)
