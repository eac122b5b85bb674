"""Base of the interactions that end in an MLP."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from rank4class_tf import _checks, _random, ops
from rank4class_tf._keras import keras
from rank4class_tf.layers.interactions._base import Interaction, check_same_width, dot_products


class MLPInteraction(Interaction):
    """Base: an MLP on what a subclass forms of each pair; the subclass is its first layer.

    Up to some thousand shared candidates it scores at once; more go by blocks, which are computed
    again in the backward pass.
    """

    scales: list[Any]
    offsets: list[Any]

    def __init__(
        self,
        units: Sequence[int] = (256, 256),
        activation: str | Callable = "relu",
        dropout: float = 0.0,
        layer_norm: bool = False,
        add_dot_product: bool = False,
        kernel_initializer: Any = "glorot_uniform",
        kernel_regularizer: Any = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Args shared by the interactions with an MLP.

        Args:
            units: widths of the hidden layers, at least one, each >= 1.
            activation: of the hidden layers, a name or a function of tensors without weights.
            dropout: share of the hidden numbers that training sets to zero, in [0, 1).
            layer_norm: whether each hidden layer is normalised before its activation.
            add_dot_product: whether the score is the MLP's plus the dot product of encoding and
                candidate, which are then equally wide.
            kernel_initializer: of the kernels.
            kernel_regularizer: None or a regularizer of the kernels.
            seed: of the dropout, an int; None draws one from NumPy's global generator.
            **kwargs: Keras's own, such as `name`.
        """
        super().__init__(**kwargs)
        if not isinstance(units, (list, tuple)) or not units:
            raise ValueError(f"`units` must hold at least one width. Received: units={units!r}.")
        self.units = tuple(_checks.positive_int("units", width) for width in units)
        self.activation = keras.activations.get(activation)
        self.dropout = _checks.fraction_below("dropout", dropout, 1)
        self.layer_norm = _checks.flag("layer_norm", layer_norm)
        self.add_dot_product = _checks.flag("add_dot_product", add_dot_product)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.seed = _random.start_seed(seed)

    def build_for(self, width: int, class_width: int) -> None:
        """Creates the MLP."""
        if self.add_dot_product:
            check_same_width(width, class_width)
        self.first = self._build_first(width, class_width)
        self.first_bias = self._add("first_bias", (self.units[0],), "zeros")
        sizes = zip(self.units, [*self.units[1:], 1], strict=True)
        self.kernels = [self._add_kernel(f"kernel_{i}", size) for i, size in enumerate(sizes, 1)]
        self.biases = [
            self._add(f"bias_{i}", (size,), "zeros")
            for i, size in enumerate([*self.units[1:], 1], 1)
        ]
        self.scales, self.offsets = [], []
        if self.layer_norm:
            for name, start in (("scale", "ones"), ("offset", "zeros")):
                weights = [
                    self._add(f"{name}_{i}", (size,), start) for i, size in enumerate(self.units)
                ]
                setattr(self, f"{name}s", weights)
        if self.dropout:
            self.random_state = _random.add_state(self, self.seed)

    def _build_first(self, width: int, class_width: int) -> list[Any]:
        """Creates the kernels of the first layer and returns them in a list."""
        raise NotImplementedError

    def _first_layer(
        self, encodings: tf.Tensor, candidates: tf.Tensor, kernels: Sequence[tf.Tensor]
    ) -> tf.Tensor:
        """The first layer without bias and activation: `[batch, n, units[0]]`."""
        raise NotImplementedError

    def _add_kernel(self, name: str, shape: tuple[int, ...]) -> Any:
        """Adds a kernel of this shape."""
        # The same initializer gives the same numbers again.
        initializer = keras.initializers.get(keras.initializers.serialize(self.kernel_initializer))
        return self._add(name, shape, initializer, self.kernel_regularizer)

    def _add(self, name, shape, initializer, regularizer=None):
        weight = self.add_weight(
            name=name, shape=shape, initializer=initializer, regularizer=regularizer
        )
        # `tf.train.Checkpoint` does not look into the lists of Keras 3.
        setattr(self, f"_of_{name}", weight)
        return weight

    def score_candidates(
        self, encodings: tf.Tensor, candidates: tf.Tensor, training: bool | None = None
    ) -> tf.Tensor:
        """Returns the scores, `[batch, n]`."""
        drops = self.dropout > 0 and training
        if drops:
            # Keras's own would draw other numbers when a block is computed again.
            seed = _random.step_seed(self.random_state, training)
            seed = _random.on_this_device(seed, 0)
        groups = (self.first, [self.first_bias], self.kernels, self.biases)
        weights = [
            [tf.cast(tf.convert_to_tensor(w), encodings.dtype) for w in group]
            for group in (*groups, self.scales, self.offsets)
        ]

        def score(candidates, block, tensors):
            encodings, weights = tensors
            first, (first_bias,), kernels, biases, scales, offsets = weights
            hidden = self._first_layer(encodings, candidates, first) + first_bias
            for i, (kernel, bias) in enumerate(zip(kernels, biases, strict=True)):
                if self.layer_norm:
                    hidden = _normalised(hidden) * scales[i] + offsets[i]
                hidden = self.activation(hidden)
                if drops:
                    kept = ops.uniform(tf.shape(hidden), ops.fold_in(ops.fold_in(seed, block), i))
                    hidden = tf.where(kept >= self.dropout, hidden / (1 - self.dropout), 0)
                hidden = tf.tensordot(hidden, kernel, axes=1) + bias
            return tf.squeeze(hidden, axis=-1)

        tensors = (encodings, weights)
        if candidates.shape.rank == 2:
            scores = ops.score_by_recomputed_blocks(score, candidates, tensors)
        else:
            scores = score(candidates, 0, tensors)
        if self.add_dot_product:
            scores += dot_products(encodings, candidates)
        return scores

    def start_as_dot_product(self) -> None:
        """Lets the MLP score 0 at first."""
        if not self.add_dot_product:
            raise ValueError("`add_dot_product` must be True. Received: add_dot_product=False.")
        self.kernels[-1].assign(tf.zeros_like(self.kernels[-1]))

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments."""
        return {
            **super().get_config(),
            "activation": keras.activations.serialize(self.activation),
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "kernel_regularizer": keras.regularizers.serialize(self.kernel_regularizer),
        }


def _normalised(hidden):
    """Rows of mean 0 and variance 1; half precision is left for it."""
    wide = tf.cast(hidden, tf.float32) if hidden.dtype.size < 4 else hidden
    mean, variance = tf.nn.moments(wide, axes=[-1], keepdims=True)
    return tf.cast((wide - mean) * tf.math.rsqrt(variance + 1e-6), hidden.dtype)
