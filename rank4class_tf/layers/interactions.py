"""Interactions: how an example's encoding and a class's are combined into a score.

Heads and TF-Ranking scorers call an interaction, which knows neither a layer of classes
nor biases.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _keras, _random, _registry, ops
from rank4class_tf._tf.raising import same_sizes
from rank4class_tf._types import Array, Changing, Choice, Tensor, Tensors
from rank4class_tf.ops import blocks


class Interaction(_registry.Configured, keras.layers.Layer):
    """Base: computes scores from encodings of an example and of classes or documents.

    A subclass has `score_candidates`, and `build_for` if it has weights. `Head` makes
    it a head.

    Input: a list of encodings `[batch, d]` and candidates, `[n, c]` shared by all
    examples or `[batch, n, c]`. Output: `[batch, n]`.

    Example:
        >>> class NegativeDistance(Interaction):
        ...     def score_candidates(self, encodings, candidates, training=None):
        ...         return -tf.norm(encodings[:, tf.newaxis] - candidates, axis=-1)
        >>> NegativeDistance()([tf.zeros([1, 2]), tf.constant([[3.0, 4.0]])]).numpy()
        array([[-5.]], dtype=float32)
    """

    def build(self, input_shape: Any) -> None:
        encodings_shape, candidates_shape = input_shape
        self.build_for(int(encodings_shape[-1]), int(candidates_shape[-1]))
        self.built = True

    def build_for(self, width: int, class_width: int) -> None:
        """Creates the weights for encodings and candidates of these widths."""

    def call(self, inputs: Any, training: bool | None = None) -> Tensor:
        encodings, candidates = inputs
        if len(candidates.shape) == 3:
            rule = "`candidates` must have a row for each encoding."
            candidates = same_sizes(candidates, encodings, rule)
        score_candidates = _keras.with_autograph_of_caller(self.score_candidates)
        return score_candidates(encodings, candidates, training)

    def score_candidates(
        self, encodings: Array, candidates: Array, training: bool | None = None
    ) -> Tensor:
        """Scores `[batch, n]` of encodings `[batch, d]` and candidates as in a call."""
        raise NotImplementedError

    def start_as_dot_product(self) -> None:
        """Sets the built weights so that the scores are dot products."""
        rule = "`from_dense` needs an interaction that can start as a dot product"
        remedy = f"implement `start_as_dot_product`. Received: {type(self).__name__}."
        raise ValueError(f"{rule}: {remedy}")

    def compute_output_shape(self, input_shape: Any) -> tuple:
        encodings_shape, candidates_shape = input_shape
        return (encodings_shape[0], candidates_shape[-2])


@_registry.register("interaction")
class DotProductInteraction(Interaction):
    r"""The dot product; without weights.

    $$s_i = c_i^\top h$$

    Source: Rank4Class, section 3.2.

    Example:
        >>> DotProductInteraction()(
        ...     [tf.ones([1, 2]), tf.constant([[3.0, 4.0]])]
        ... ).numpy()
        array([[7.]], dtype=float32)
    """

    def build_for(self, width: int, class_width: int) -> None:
        _check_same_width(width, class_width)

    def score_candidates(
        self, encodings: Array, candidates: Array, training: Any = None
    ) -> Tensor:
        return blocks.dot_products(encodings, candidates)

    def start_as_dot_product(self) -> None:
        pass  # There are no weights.


@_registry.register("interaction")
class BilinearInteraction(Interaction):
    r"""A bilinear form; encodings and candidates may differ in width.

    $$s_i = h^\top W c_i$$

    Args:
        kernel_initializer: initializer of W, `[d, c]`.

    Example:
        >>> BilinearInteraction("ones")(
        ...     [tf.ones([1, 2]), tf.constant([[3.0, 4.0, 5.0]])]
        ... ).numpy()
        array([[24.]], dtype=float32)
    """

    def __init__(self, kernel_initializer: Any = "glorot_uniform", **kwargs: Any):
        super().__init__(**kwargs)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build_for(self, width: int, class_width: int) -> None:
        self.kernel = self.add_weight(
            name="kernel",
            shape=(width, class_width),
            initializer=self.kernel_initializer,
        )

    def score_candidates(
        self, encodings: Array, candidates: Array, training: Any = None
    ) -> Tensor:
        return blocks.dot_products(tf.matmul(encodings, self.kernel), candidates)

    def start_as_dot_product(self) -> None:
        _check_same_width(*self.kernel.shape)
        self.kernel.assign(tf.eye(self.kernel.shape[0], dtype=self.kernel.dtype))


@_registry.register("interaction")
class CosineInteraction(Interaction):
    r"""The cosine of the angle, times a scale; 0 for a vector shorter than 1e-7.

    $$s_i = a \, \frac{h^\top c_i}{\|h\| \|c_i\|}$$

    Source: Wang et al. 2018, "CosFace"; Deng et al. 2019, "ArcFace", for the scale.

    Args:
        scale: a, > 0. Losses of the softmax family need a scale well above 1, since
            cosines differ by at most 2.

    Example:
        >>> interaction = CosineInteraction(scale=10.0)
        >>> interaction([tf.constant([[1.0, 0.0]]), tf.constant([[3.0, 4.0]])]).numpy()
        array([[6.]], dtype=float32)
    """

    def __init__(self, scale: Changing = 16.0, **kwargs: Any):
        super().__init__(**kwargs)
        self.scale = _checks.changing("scale", scale, _checks.positive_float)

    def build_for(self, width: int, class_width: int) -> None:
        _check_same_width(width, class_width)

    def score_candidates(
        self, encodings: Tensor, candidates: Tensor, training: bool | None = None
    ) -> Tensor:
        dtype = encodings.dtype
        if dtype.size < 4:  # Lengths need the range of float32.
            encodings, candidates = (
                tf.cast(x, tf.float32) for x in (encodings, candidates)
            )
        scores = blocks.cosines(blocks.unit_rows(encodings), candidates)
        return tf.cast(self.scale * scores, dtype)


class MLPInteraction(Interaction):
    """Base: an MLP on each pair of an encoding and a candidate.

    A subclass defines the first layer, which reads the pair: `build_first` and
    `first_layer`. More than two thousand shared candidates are scored in blocks of a
    thousand, computed again by the backward pass. This needs the memory of only one
    block, and a third more time.

    Args:
        units: widths of the hidden layers, at least one, each >= 1.
        activation: of the hidden layers, a name or a function of tensors without
            weights.
        dropout: share of the hidden numbers that training sets to zero, in [0, 1).
        add_dot_product: whether to add the dot product, of equally wide pairs, to the
            MLP's score.
        kernel_initializer: initializer of the kernels.
        seed: an int, for the dropout; None draws one from NumPy's global generator.

    Example:
        >>> class GatedInteraction(MLPInteraction):
        ...     def build_first(self, width, class_width):
        ...         shapes = {
        ...             "first": (width, self.units[0]),
        ...             "gate": (class_width, width),
        ...         }
        ...         return [
        ...             self.add_kernel(name, shape) for name, shape in shapes.items()
        ...         ]
        ...
        ...     def first_layer(self, encodings, candidates, kernels):
        ...         first, gate = kernels
        ...         gates = tf.sigmoid(tf.tensordot(candidates, gate, axes=1))
        ...         return tf.tensordot(encodings[:, tf.newaxis] * gates, first, axes=1)
        >>> GatedInteraction(units=(16,))([tf.ones([2, 8]), tf.ones([5, 3])]).shape
        TensorShape([2, 5])
    """

    def __init__(
        self,
        units: Sequence[int] = (256, 256),
        activation: Choice = "relu",
        dropout: float = 0.0,
        add_dot_product: bool = False,
        kernel_initializer: Any = "glorot_uniform",
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        has_units = isinstance(units, (list, tuple)) and len(units) > 0
        _checks.require(
            has_units, "`units` must hold at least one width.", f"units={units!r}"
        )
        self.units = tuple(_checks.positive_int("units", width) for width in units)
        self.activation = keras.activations.get(activation)
        self.dropout = _checks.fraction_below(1)("dropout", dropout)
        self.add_dot_product = _checks.flag("add_dot_product", add_dot_product)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.seed = _random.start_seed(seed)

    def build_for(self, width: int, class_width: int) -> None:
        if self.add_dot_product:
            _check_same_width(width, class_width)
        sizes = [*self.units, 1]
        self.first = self.build_first(width, class_width)
        first_bias = self._add("first_bias", sizes[:1], "zeros")
        shapes = list(enumerate(pairwise(sizes), 1))
        self.kernels = [self.add_kernel(f"kernel_{i}", shape) for i, shape in shapes]
        later_biases = [
            self._add(f"bias_{i}", shape[1:], "zeros") for i, shape in shapes
        ]
        self.biases = [first_bias, *later_biases]
        if self.dropout:
            self.random_state = _random.add_state(self, self.seed)

    def build_first(self, width: int, class_width: int) -> list[Any]:
        """Creates the kernels of the first layer by `add_kernel`."""
        raise NotImplementedError

    def first_layer(
        self, encodings: Tensor, candidates: Tensor, kernels: Tensors
    ) -> Tensor:
        """The first layer, `[batch, n, units[0]]`, before bias and activation."""
        raise NotImplementedError

    def add_kernel(self, name: str, shape: tuple[int, ...]) -> Any:
        """Adds a kernel with the initializer of the constructor."""
        # An initializer that is used twice would give the same numbers twice.
        initializer = keras.initializers.get(
            keras.initializers.serialize(self.kernel_initializer)
        )
        return self._add(name, shape, initializer)

    def _add(self, name: str, shape: Sequence[int], initializer: Any) -> Any:
        weight = self.add_weight(name=name, shape=shape, initializer=initializer)
        # An attribute as well, since `tf.train.Checkpoint` does not look into Keras 3's
        # lists.
        setattr(self, f"_of_{name}", weight)
        return weight

    def score_candidates(
        self, encodings: Tensor, candidates: Tensor, training: bool | None = None
    ) -> Tensor:
        has_dropout = self.dropout > 0 and training
        if has_dropout:
            # Keras's dropout would draw other numbers when a block is computed again.
            seed = _random.step_seed(self.random_state, training)
            seed = _random.replica_seed(seed, stream=0)
        first_layer = _keras.with_autograph_of_caller(self.first_layer)
        weights = [
            [tf.cast(tf.convert_to_tensor(weight), encodings.dtype) for weight in group]
            for group in (self.first, self.kernels, self.biases)
        ]

        def score(candidates: Tensor, block: int | Tensor, tensors: tuple) -> Tensor:
            encodings, (first, kernels, biases) = tensors
            hidden = first_layer(encodings, candidates, first) + biases[0]
            for i, (kernel, bias) in enumerate(zip(kernels, biases[1:], strict=True)):
                hidden = self.activation(hidden)
                if has_dropout:
                    draws = ops.uniform(
                        tf.shape(hidden), ops.fold_in(ops.fold_in(seed, block), i)
                    )
                    hidden = tf.where(
                        draws >= self.dropout, hidden / (1 - self.dropout), 0
                    )
                hidden = tf.tensordot(hidden, kernel, axes=1) + bias
            return tf.squeeze(hidden, axis=-1)

        # Candidates that all examples share are scored in blocks; others are few.
        tensors = (encodings, weights)
        if candidates.shape.rank == 2:
            scores = blocks.score_by_recomputed_blocks(score, candidates, tensors)
        else:
            scores = score(candidates, 0, tensors)
        if self.add_dot_product:
            scores += blocks.dot_products(encodings, candidates)
        return scores

    def start_as_dot_product(self) -> None:
        rule = "`add_dot_product` must be True."
        _checks.require(self.add_dot_product, rule, "add_dot_product=False")
        self.kernels[-1].assign(tf.zeros_like(self.kernels[-1]))  # The MLP scores 0.

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "activation": keras.activations.serialize(self.activation),
        }


@_registry.register("interaction")
class LatentCrossInteraction(MLPInteraction):
    r"""Latent cross of encoding and candidate, then an MLP.

    The arguments are as in `MLPInteraction`.

    $$s_i = \mathrm{MLP}\left(h \odot (1 + c_i)\right)$$

    Source: Rank4Class, section 4.2; latent cross: Beutel et al. 2018.

    Example:
        >>> LatentCrossInteraction(units=(16,))(
        ...     [tf.ones([2, 8]), tf.ones([5, 8])]
        ... ).shape
        TensorShape([2, 5])
    """

    def build_first(self, width: int, class_width: int) -> list[Any]:
        _check_same_width(width, class_width)
        return [self.add_kernel("first", (width, self.units[0]))]

    def first_layer(
        self, encodings: Tensor, candidates: Tensor, kernels: Tensors
    ) -> Tensor:
        return blocks.latent_cross(encodings, candidates, *kernels)


@_registry.register("interaction")
class ConcatInteraction(MLPInteraction):
    r"""Encoding and candidate side by side, then an MLP.

    The arguments are as in `MLPInteraction`.

    $$s_i = \mathrm{MLP}\left([h; c_i]\right)$$

    The two may differ in width. Source: Rank4Class, section 4.2.

    Example:
        >>> ConcatInteraction(units=(16,))([tf.ones([2, 8]), tf.ones([5, 3])]).shape
        TensorShape([2, 5])
    """

    def build_first(self, width: int, class_width: int) -> list[Any]:
        widths = {"first_of_encodings": width, "first_of_candidates": class_width}
        return [
            self.add_kernel(name, (size, self.units[0]))
            for name, size in widths.items()
        ]

    def first_layer(
        self, encodings: Tensor, candidates: Tensor, kernels: Tensors
    ) -> Tensor:
        # The first layer acts on each half separately, so that pairs are formed only
        # after it.
        encodings_kernel, candidates_kernel = kernels
        hidden = tf.matmul(encodings, encodings_kernel)[:, tf.newaxis]
        return hidden + tf.tensordot(candidates, candidates_kernel, axes=1)


def get_interaction(identifier: Any, **kwargs: Any) -> Interaction:
    """Returns an interaction by name and arguments, from a serialized config, or as is.

    Example:
        >>> get_interaction("cosine", scale=8.0).scale
        8.0
    """
    return _registry.get("interaction", Interaction, identifier, **kwargs)


def _check_same_width(width: int, class_width: int) -> None:
    rule = "`classes` must be as wide as the encodings for this interaction."
    received = f"classes of width {class_width}, encodings of width {width}"
    _checks.require(width == class_width, rule, received)
