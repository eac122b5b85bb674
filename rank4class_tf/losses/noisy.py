"""Losses for labels of which some are wrong, and an estimate of how many are."""

from typing import Any

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks, _registry, ops
from rank4class_tf._types import Array, Changing, Tensor
from rank4class_tf.layers import Probabilities
from rank4class_tf.losses.base import RankingLoss, present
from rank4class_tf.losses.softmax import cross_entropies


@_registry.register("loss")
class GeneralizedCrossEntropyLoss(RankingLoss):
    r"""Between softmax cross-entropy and the probability of mistakes, for noisy labels.

    $$\ell(s, y) = \sum_i y_i \frac{1 - p_i^q}{q}, \qquad p = \mathrm{softmax}(s)$$

    The gradient is $p_i^q$ times that of the softmax loss, so a label that the model
    contradicts has less influence. Near q = 0 it is the softmax loss; q = 1, $1 - p_i$,
    is robust but slow.

    Source: Zhang & Sabuncu 2018, "Generalized Cross Entropy Loss for Training Deep
    Neural Networks with Noisy Labels", equation 6.

    Args:
        q: in (0, 1], a number or a scalar `tf.Variable`, which gets no gradient. The
            paper's: 0.7.

    Example:
        >>> loss = GeneralizedCrossEntropyLoss(q=0.5)
        >>> float(loss([0], [[0.0, 0.0, 0.0, 0.0]]))  # (1 - sqrt(1 / 4)) / 0.5
        1.0
    """

    searches_positives = False  # No pass over the items for each positive.
    tunable = ("q",)

    def __init__(self, q: Changing = 0.7, **kwargs: Any):
        super().__init__(**kwargs)
        self.q = _checks.changing("q", q, _checks.positive_fraction)

    @property
    def probabilities(self) -> Probabilities | None:
        """Softmax with temperature 1 / (1 - q); None if q = 1, which fits one class."""
        # Where the classes have the probabilities c, the least loss is at
        # p ~ c^(1 / (1 - q)).
        q = float(present(self.q, tf.float64))
        return None if q == 1 else Probabilities(1 / (1 - q))

    def compute(self, lists: ops.Lists) -> Tensor:
        q = present(self.q, lists.dtype)
        cross_entropy = cross_entropies(lists)
        # exp(-q x) - 1 keeps its digits where q x is small.
        losses = -tf.math.expm1(-q * cross_entropy) / q
        return lists.sum_of_positives(losses, lists.relevance)


# It stands for the logarithm of 0, so that no list has an infinite loss.
_LOWEST_LOGARITHM = -1e30


@_registry.register("loss")
class ForwardCorrectionLoss(RankingLoss):
    r"""Softmax cross-entropy for labels with known error rates (forward correction).

    $$\ell(s, y) = -\sum_i y_i \log \sum_j T_{ji} p_j, \qquad p = \mathrm{softmax}(s)$$

    with $T_{ji}$ the probability that an example of class j carries the label i. The
    softmax of the scores fits the true classes.

    Source: Patrini et al. 2017, "Making Deep Neural Networks Robust to Label Noise: a
    Loss Correction Approach", theorem 2.

    Args:
        transition: T, `[n, n]`, such as of `estimate_transition`. The row of a true
            class adds up to 1; no column is all 0. Memory is `[batch, P, n]` for P
            labels.

    Example:
        >>> loss = ForwardCorrectionLoss([[0.75, 0.25], [0.0, 1.0]])
        >>> float(loss([0], [[0.0, 0.0]]))  # -log(0.75 / 2)
        0.980829...
    """

    by_class_id = ("class_weight", "transition")  # They have an entry for each class.

    def __init__(self, transition: Array, **kwargs: Any):
        super().__init__(**kwargs)
        self.transition = _checked_transition(transition)

    @property
    def probabilities(self) -> Probabilities:
        return Probabilities()

    def compute(self, lists: ops.Lists) -> Tensor:
        n = len(self.transition)
        size = lists.max_items
        rule = "`transition` must have a row for each class that `y_pred` scores."
        is_right = not isinstance(size, int) or size == n
        _checks.require(is_right, rule, f"{n} rows for {size} classes")

        # The logarithm of T, with a row for each label.
        columns = np.transpose(self.transition)
        log_t = np.full(columns.shape, _LOWEST_LOGARITHM)
        np.log(columns, out=log_t, where=columns > 0)

        # Theorem 2: log sum_j e^s_j, less log sum_j T_ji e^s_j, both with s less the
        # highest score.
        lists = lists.dense().from_top()
        labels = lists.at_positives(tf.broadcast_to(tf.range(n), tf.shape(lists.mask)))
        log_t = tf.gather(tf.constant(log_t, lists.dtype), labels)  # [batch, P, n].
        terms = lists.scores[:, tf.newaxis] + log_t
        # A masked class has the probability 0 and counts for less than a log 0 of T.
        terms = tf.where(lists.mask[:, tf.newaxis], terms, 2 * _LOWEST_LOGARITHM)
        total, _ = lists.log_sum_exp()
        losses = total - tf.reduce_logsumexp(terms, axis=-1)
        return lists.sum_of_positives(losses, lists.relevance)


def estimate_transition(probabilities: Array, labels: Array) -> np.ndarray:
    r"""Estimates T of `ForwardCorrectionLoss`, `[n, n]` float64, from probabilities.

    The threshold of class j is its mean probability over the examples with the label j.
    An example with the label i counts as one of the most probable class that reaches
    its threshold. The counts of a label are scaled to the number of its examples, and
    those of a class to the sum 1. A label or a class without a count is taken to be
    right. The model's own mistakes count as wrong labels: if classes are hard to
    distinguish, the loss may be far worse than without a correction.

    Source: Northcutt et al. 2021, "Confident Learning: Estimating Uncertainty in
    Dataset Labels", equations 1 to 3, the confident joint.

    Args:
        probabilities: `[N, n]`, of a model that was not trained on these examples, such
            as the softmax of its scores for the validation part.
        labels: `[N]` integers in [0, n), right or wrong.

    Example:
        >>> probabilities = [[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.9, 0.1]]
        >>> estimate_transition(probabilities, [0, 0, 1, 1])  # the last label is wrong
        array([[0.66666667, 0.33333333],
               [0.        , 1.        ]])
    """
    probabilities = np.asarray(probabilities, np.float64)
    labels = np.asarray(labels)
    rule = "`probabilities` must have the shape [N, n], with N >= 1."
    is_right = probabilities.ndim == 2 and len(probabilities) > 0
    _checks.require(is_right, rule, probabilities.shape)

    number, n = probabilities.shape
    is_right = labels.shape == (number,) and np.issubdtype(labels.dtype, np.integer)
    is_right = is_right and labels.min() >= 0 and labels.max() < n
    rule = (
        f"`labels` must be {number} integers in [0, {n}), one for each row of "
        "`probabilities`."
    )
    _checks.require(is_right, rule, labels)

    # A class that is no label has no threshold, and no example is counted for it.
    is_labelled = np.eye(n)[labels]
    num_labelled = is_labelled.sum(axis=0)
    sums = (is_labelled * probabilities).sum(axis=0)
    thresholds = np.full(n, np.inf)
    np.divide(sums, num_labelled, thresholds, where=num_labelled > 0)

    # The confident joint: how often an example of a class has a label.
    confident = np.where(probabilities >= thresholds, probabilities, -1.0)
    counted = confident.max(axis=1) >= 0
    classes = confident.argmax(axis=1)
    counts = np.zeros((n, n))
    np.add.at(counts, (classes[counted], labels[counted]), 1.0)

    # Where a label has the same probability in all its examples, rounding may leave it
    # no count.
    label_totals = counts.sum(axis=0)
    counts = np.where(label_totals > 0, counts, np.eye(n))
    counts *= num_labelled / np.maximum(label_totals, 1)
    class_totals = counts.sum(axis=1, keepdims=True)
    return np.divide(counts, class_totals, np.eye(n), where=class_totals > 0)


def _checked_transition(transition: Array) -> list[list[float]]:
    """A matrix of transitions as nested lists, which Keras can save."""
    try:
        matrix = np.asarray(transition, np.float64)
    except (TypeError, ValueError) as error:
        rule = "`transition` must be a matrix of numbers."
        raise ValueError(f"{rule} Received: {transition!r}.") from error

    shape = matrix.shape
    is_square = len(shape) == 2 and shape[0] == shape[1] > 0
    rule = "`transition` must be a square matrix."
    _checks.require(is_square, rule, f"the shape {shape}")

    is_right = bool(np.isfinite(matrix).all() and (matrix >= 0).all())
    rule = "`transition` must have finite entries >= 0."
    _checks.require(is_right, rule, f"{matrix.min()}")

    # Rows are distributions.
    sums = matrix.sum(axis=1)
    worst = np.abs(sums - 1).argmax()
    is_right = np.allclose(sums, 1, rtol=0, atol=1e-5)
    rule = "`transition` must have rows that add up to 1."
    _checks.require(is_right, rule, f"{sums[worst]}")

    # A label that no class gives would have an infinite loss.
    sums = matrix.sum(axis=0)
    rule = "`transition` must have an entry > 0 in each column."
    _checks.require(sums.all(), rule, f"a column of zeros, {sums.argmin()}")
    return matrix.tolist()
