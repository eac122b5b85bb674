"""Prediction sets by split conformal prediction."""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks
from rank4class_tf._tf.ties import first_and_last_ranks


def mass_not_above(probabilities: tf.Tensor) -> tf.Tensor:
    r"""The probability that no class above has, for each class.

    $$s_i = \sum_{j : p_j \le p_i} p_j$$

    1 less it is the score of adaptive prediction sets, without the class's own share, so that the
    best class is in each set. Small sums keep their digits.

    Source: Romano et al. 2020, "Classification with Valid and Adaptive Coverage", section 2.

    Args:
        probabilities: `[batch, n]`.

    Returns:
        `[batch, n]`.

    Example:
        >>> mass_not_above(tf.constant([[0.25, 0.5, 0.125, 0.125]])).numpy()
        array([[0.5 , 1.  , 0.25, 0.25]], dtype=float32)
    """
    first, _ = first_and_last_ranks(-probabilities)
    ranked = tf.sort(probabilities, axis=-1, direction="DESCENDING")
    # Rounded, a sum may exceed 1.
    rest = tf.minimum(tf.cumsum(ranked, axis=-1, reverse=True), 1)
    return tf.gather(rest, first - 1, batch_dims=1)


# What a class must have much of to be in a set, from the probabilities `[batch, n]`.
CONFORMITY: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "lac": tf.identity,
    "aps": mass_not_above,
}


def conformal_threshold(conformity: np.ndarray, coverage: float) -> float:
    r"""The value that the right class of a new example reaches with a given probability.

    It is the $\lceil (N + 1) c \rceil$-th highest of N values: where these and that of the new
    example are exchangeable, it is reached with a probability of at least c, and of at most
    $c + 1 / (N + 1)$ if no two are the same.

    Source: Vovk et al. 2005, "Algorithmic Learning in a Random World"; Angelopoulos & Bates 2021,
    "A Gentle Introduction to Conformal Prediction", appendix D.

    Args:
        conformity: `[N]`, of the right class of each example.
        coverage: c, in (0, 1).

    Raises:
        ValueError: if the coverage is out of range, or there are fewer than $c / (1 - c)$
            examples, for which there is no such value.

    Example:
        >>> conformal_threshold(np.arange(19) / 19, coverage=0.95)  # ceil(20 * 0.95) = 19
        0.0
    """
    _checks.inner_fraction("coverage", coverage)
    # The decimal number that is meant: 100 * 0.07 is above 7.
    share = Fraction(str(coverage))
    place = math.ceil((len(conformity) + 1) * share)
    if place > len(conformity):
        raise ValueError(
            f"`dataset` must have at least {math.ceil(share / (1 - share))} examples for "
            f"coverage={coverage}. Received: {len(conformity)}."
        )
    return float(-np.sort(-np.asarray(conformity))[place - 1])
