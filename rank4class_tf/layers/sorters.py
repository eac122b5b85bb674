"""Sorters give differentiable ranks: their base, three closed forms, and `get_sorter`.

The base owns shapes, masks, dtypes, infinite and NaN scores; a sorter adds one formula.
The closed forms are in `ops/soft_ranks.py`.
"""

from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _keras, _registry
from rank4class_tf._types import Shape, Tensor
from rank4class_tf.ops.soft_ranks import (
    all_sigmoid_ranks,
    laplace_ranks,
    projected_ranks,
)

# Scores beyond this limit count as equal. In float32, differences stay finite for all
# scores; sums of squared differences do for ten thousand items with scores of up to
# 1e15.
_LIMIT = 1e30


class Sorter(_registry.Configured, keras.layers.Layer):
    """Base of sorters: maps scores `[batch, d]` to differentiable ranks `[batch, d]`.

    Ranks are descending and 1-based: 1 for the best score, d for the worst. A masked
    item has the rank 0 and the gradient 0, and changes nothing for the others. If a
    valid score of a list is NaN, its ranks are NaN. Scores may have any floating dtype
    and may be infinite. Float64 stays float64; anything else is computed in float32,
    whatever Keras's dtype policy says.

    A subclass defines its formula, `soft_ranks`, keeps each argument of its constructor
    in an attribute of that name, and creates weights, if it has some, in `build`, as
    float32.

    Input: scores and `mask`, booleans `[batch, d]` or None. Output: ranks `[batch, d]`.
    """

    def __init__(self, **kwargs: Any):
        # Half precision cannot hold ranks above some hundreds.
        super().__init__(autocast=False, **kwargs)
        self.supports_masking = True

    def soft_ranks(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        """The formula: ranks of lists without special cases, anything finite if masked.

        Scores `[batch, d]` are float32 or float64, within +-1e30, and 0 where masked.
        The mask is None if all items count.
        """
        raise NotImplementedError

    def call(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        scores = tf.convert_to_tensor(scores)
        if scores.dtype != tf.float64:
            scores = tf.cast(scores, tf.float32)
        rule = "`scores` must have the shape [batch, d]."
        _checks.require(scores.shape.rank in (None, 2), rule, f"{scores.shape}")
        mask = _checks.mask(mask, scores)
        is_nan = tf.math.is_nan(scores)
        finite = tf.clip_by_value(scores, -_LIMIT, _LIMIT)
        if mask is None:
            finite = tf.where(is_nan, tf.zeros_like(scores), finite)
        else:
            finite = tf.where(mask & ~is_nan, finite, 0)
            is_nan &= mask
        ranks = _keras.with_autograph_of_caller(self.soft_ranks)(finite, mask)
        # A product, so that the gradient of a list with NaN is NaN as well.
        has_nan = tf.reduce_any(is_nan, axis=1, keepdims=True)
        ranks *= tf.where(~has_nan, tf.ones_like(ranks), float("nan"))
        return ranks if mask is None else tf.where(mask, ranks, 0)


class _TemperatureSorter(Sorter):
    def __init__(self, temperature: float = 0.1, **kwargs: Any):
        super().__init__(**kwargs)
        self.temperature = _checks.positive_float("temperature", temperature)


@_registry.register("sorter")
class SigmoidSorter(_TemperatureSorter):
    r"""Soft ranks by sigmoids of all differences, in O(d²) time and O(d) memory.

    $$\pi(i) = 1 + \sum_{j \ne i} \sigma\left(\frac{s_j - s_i}{T}\right)$$

    Ranks of all closed forms rise where scores fall, and sum to d (d + 1) / 2.
    `LaplaceSorter` has nearly the same ranks and is far faster for long lists.

    Source: SoDeep (Engilberge et al. 2019), equation 12, with $\lambda = 1 / T$; Qin et
    al. 2010.

    Args:
        temperature: T > 0. The smaller, the closer to the exact ranks, and the smaller
            the gradient of items that are far apart.

    Example:
        >>> SigmoidSorter(temperature=0.01)(tf.constant([[3.0, 1.0, 1.0, 2.0]])).numpy()
        array([[1. , 3.5, 3.5, 2. ]], dtype=float32)
    """

    def soft_ranks(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        return all_sigmoid_ranks(scores, self.temperature, mask)


@_registry.register("sorter")
class LaplaceSorter(_TemperatureSorter):
    r"""Soft ranks by the Laplace distribution, in O(d log d): for lists of any length.

    $$\pi(i) = 1 + \sum_{j \ne i} F\left(\frac{s_j - s_i}{T}\right), \qquad
    F(x) = \begin{cases} e^x / 2 & x < 0 \\ 1 - e^{-x} / 2 & x \ge 0 \end{cases}$$

    Source: Struski et al. 2025 (LapSum), for the idea of the sums.

    Args:
        temperature: as in `SigmoidSorter`.

    Example:
        >>> LaplaceSorter(temperature=0.01)(tf.constant([[3.0, 1.0, 1.0, 2.0]])).numpy()
        array([[1. , 3.5, 3.5, 2. ]], dtype=float32)
    """

    def soft_ranks(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        return laplace_ranks(scores, self.temperature, mask)


@_registry.register("sorter")
class SoftRankSorter(Sorter):
    r"""Soft ranks by projection on the permutahedron, in O(d log d).

    $$\pi = \arg\min_{\mu \in \mathcal{P}}
    \left\| \mu + \frac{s}{\varepsilon} \right\|^2, \qquad
    \mathcal{P} = \mathrm{conv} \{ \text{permutations of } (1, \dots, d) \}$$

    Along the sorted scores the projection divides the list into blocks. An item has the
    mean rank of its block and moves from it by its distance from the block's mean score
    over $\varepsilon$. Where neighbours are further apart than $\varepsilon$, ranks are
    exact and have no gradient. If XLA compiles this for lists of unknown length, time
    and memory are O(d²).

    Source: Blondel et al. 2020, equations 6 and 8 (quadratic regularisation).

    Args:
        regularization: $\varepsilon$ > 0. The smaller, the closer to the exact ranks,
            and the fewer items have a gradient.

    Example:
        >>> SoftRankSorter(regularization=0.5)(
        ...     tf.constant([[3.0, 1.0, 1.25, 2.0]])
        ... ).numpy()
        array([[1.  , 3.75, 3.25, 2.  ]], dtype=float32)
    """

    def __init__(self, regularization: float = 0.1, **kwargs: Any):
        super().__init__(**kwargs)
        self.regularization = _checks.positive_float("regularization", regularization)

    def soft_ranks(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        return projected_ranks(scores, self.regularization, mask)


def get_sorter(identifier: str | dict | Sorter, **kwargs: Any) -> Sorter:
    """Returns a sorter by name and arguments, from a serialized config, or as is.

    Example:
        >>> get_sorter("laplace", temperature=0.5).temperature
        0.5
    """
    return _registry.get("sorter", Sorter, identifier, **kwargs)


@_keras.register
class Companion(_registry.Configured, keras.layers.Layer):
    """Passes input through; makes another layer, such as a sorter, part of the model.

    Keras does not count a loss as part of the model. If its sorter is in a `Companion`
    at the end of the model, the sorter's weights are trained (if it is trainable),
    saved, loaded and checkpointed with the model's. In a model from a file it is
    `model.layers[-1].layer`. To train it further, compile the model with a loss of that
    sorter.

    Example:
        >>> model = keras.Sequential(
        ...     [keras.layers.Dense(1), Companion(LaplaceSorter())]
        ... )
        >>> model(tf.zeros([2, 3])).shape
        TensorShape([2, 1])
    """

    def __init__(self, layer: keras.layers.Layer, **kwargs: Any):
        super().__init__(autocast=False, **kwargs)
        self.supports_masking = True
        self.layer = _keras.checked_layer("layer", layer)

    def build(self, input_shape: Shape) -> None:
        if not self.layer.built:
            try:
                self.layer.build((None, None))
            except (TypeError, ValueError) as error:
                rule = "`layer` must be built, or build itself for any length."
                raise ValueError(f"{rule} Received: {self.layer!r}.") from error
        self.built = True

    def call(self, inputs: Tensor) -> Tensor:
        return tf.nest.map_structure(tf.identity, inputs)
