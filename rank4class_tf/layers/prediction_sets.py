"""PredictionSets."""

from collections.abc import Callable
from typing import Any, Self

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _config, _keras
from rank4class_tf._tf.ties import first_and_last_ranks
from rank4class_tf.layers.probabilities import Probabilities


def _mass_not_above(probabilities):
    r"""The probability that is not in the classes above, for each class, `[batch, n]`.

    $$s_i = \sum_{j : p_j \le p_i} p_j$$

    1 less it is the score of adaptive prediction sets, without the class's own share, so that the
    best class is in each set. Small sums keep their digits.
    """
    first, _ = first_and_last_ranks(-probabilities)
    ranked = tf.sort(probabilities, axis=-1, direction="DESCENDING")
    # Rounded, a sum may exceed 1.
    rest = tf.minimum(tf.cumsum(ranked, axis=-1, reverse=True), 1)
    return tf.gather(rest, first - 1, batch_dims=1)


# Maps probabilities `[batch, n]` to conformity: a class needs enough of it to be in a set.
_CONFORMITY: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "lac": tf.identity,
    "aps": _mass_not_above,
}


@_keras.register
class PredictionSets(keras.layers.Layer):
    r"""Predicts a set of classes that probably contains the right one (split conformal prediction).

    $$C(s) = \{i : p_i \ge t\} \;\text{("lac")} \qquad \text{or} \qquad
    C(s) = \{i : \textstyle\sum_{j : p_j > p_i} p_j \le 1 - t\} \;\text{("aps")}$$

    and always the best class, so that no set is empty. A set holds the first few classes in the
    order of the scores. The less certain the model is, the larger the set.

    `rank4class_tf.conformalize` finds the threshold for a coverage, and explains its guarantee.

    Source: Vovk et al. 2005, "Algorithmic Learning in a Random World"; Sadinle et al. 2019, "Least
    Ambiguous Set-Valued Classifiers with Bounded Error Levels" (LAC); Romano et al. 2020,
    "Classification with Valid and Adaptive Coverage" (APS, here without its random part).

    Args:
        threshold: t in [0, 1]; 0 means all classes.
        method: `"lac"` for the smallest sets on average, `"aps"` for a coverage that depends
            less on how hard an example is.
        probabilities: a layer that maps scores to probabilities; None for softmax.
        **kwargs: arguments of Keras, such as `name`. `dtype` is float32 unless given.

    Input: scores `[batch, n]`. Output: booleans `[batch, n]`, True for a class of the set. If the
    probabilities of a list are NaN, all its classes are True.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> sets = PredictionSets(threshold=0.2)
        >>> sets(tf.math.log([[0.7, 0.25, 0.05], [0.15, 0.8, 0.05]])).numpy()
        array([[ True,  True, False],
               [False,  True, False]])
    """

    def __init__(
        self, threshold: float, method: str = "lac", probabilities: Any = None, **kwargs: Any
    ) -> None:
        super().__init__(**{"dtype": "float32", **kwargs})
        self.threshold = _checks.fraction("threshold", threshold)
        self.method = _checks.one_of("method", method, tuple(_CONFORMITY))
        self.probabilities = Probabilities() if probabilities is None else probabilities
        if not callable(self.probabilities):
            raise ValueError(
                f"`probabilities` must be None or a layer. Received: {probabilities!r}."
            )

    def conformity(self, scores: tf.Tensor) -> tf.Tensor:
        """Numbers `[batch, n]`; a class with at least `threshold` is in the set."""
        return _CONFORMITY[self.method](self.probabilities(scores))

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Scores -> the sets."""
        conformity = self.conformity(inputs)
        best = tf.reduce_max(conformity, axis=-1, keepdims=True)
        in_set = conformity >= tf.minimum(tf.cast(self.threshold, best.dtype), best)
        return in_set | tf.math.is_nan(conformity)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Returns the shape of the scores."""
        return input_shape

    def __repr__(self) -> str:
        return (
            f"PredictionSets(threshold={self.threshold!r}, method={self.method!r}, "
            f"probabilities={self.probabilities!r})"
        )

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments."""
        return {**super().get_config(), **_config.constructor_arguments(self, PredictionSets)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Builds the layer that `get_config` describes."""
        return cls(**_config.deserialized(config))
