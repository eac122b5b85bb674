"""Sorters that were trained to rank: convolutional, recurrent, on sets.

The base owns the features of an item, how an output becomes a rank, and the files of
weights. The files in `weights/` come from `scripts/reproductions/train_sorter.py`;
`get_sorter` loads them.
"""

import dataclasses
import io
import itertools
import json
import math
import os
import pathlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _files, _keras, _registry
from rank4class_tf._tf.shapes import width_of
from rank4class_tf._types import PathLike, Shape, Tensor
from rank4class_tf.layers.sorters import Sorter
from rank4class_tf.ops.soft_ranks import laplace_ranks, standardize

# How sharply ranks beyond 1 and d are bent back: the sharper, the smaller change and
# gradient.
_BEND = 5.0
# In a configuration, this stands for the file of the package, wherever it is installed.
_SHIPPED_NAME = "shipped"
_SHIPPED_FOLDER = pathlib.Path(__file__).resolve().parents[1] / "weights"


_Initializer: TypeAlias = str | keras.initializers.Initializer | Callable


# The parts of a network are plain objects: a sorter tracks and saves their weights
# itself, by the names that files know.


@dataclasses.dataclass
class _Dense:
    """A dense layer."""

    kernel: tf.Variable
    bias: tf.Variable

    def __call__(self, inputs: Tensor) -> Tensor:
        kernel = tf.convert_to_tensor(self.kernel)
        return inputs @ kernel + tf.convert_to_tensor(self.bias)


@dataclasses.dataclass
class _Decoder:
    """Item values `[batch, d]` from features and a context `[batch, 1, width]`."""

    # The context may also be `[batch, d, width]`. Sums of products of features and
    # context are Fourier series, such as that of the list's distribution at an item.

    gate: _Dense
    hidden: _Dense
    output: _Dense

    def __call__(self, features: Tensor, context: Tensor) -> Tensor:
        crossed = tf.concat([self.gate(features) * context, features], axis=2)
        hidden = tf.nn.relu(self.hidden(crossed))
        return self.output(tf.concat([hidden, crossed], axis=2))[:, :, 0]


class _Standardized(NamedTuple):
    """Lists as a network reads them."""

    scores: Tensor  # `[batch, d]`, standardised float32, 0 if masked.
    mask: Tensor | None  # `[batch, d]`.
    num_items: Tensor  # `[batch, 1]`, how many are valid, float32, at least 1.

    def zero_masked(self, values: Tensor) -> Tensor:
        """Values of items `[batch, d, width]`, 0 if masked."""
        if self.mask is None:
            return values
        return values * tf.cast(self.mask, tf.float32)[:, :, None]


class _Saved(NamedTuple):
    """What a file of weights holds."""

    sorter: str  # The name of its class.
    config: dict[str, Any]
    values: dict[str, np.ndarray]  # Of the weights.


def _read(file: pathlib.Path) -> _Saved:
    """What `save_pretrained` wrote."""
    content = io.BytesIO(file.read_bytes())  # `np.load` leaves a damaged file open.
    try:
        with np.load(content, allow_pickle=False) as arrays:
            values = {name: arrays[name] for name in arrays.files}
        description = json.loads(str(values.pop("description")))
        return _Saved(description["sorter"], description["config"], values)
    # NumPy and zipfile raise errors of many types on a damaged file; the format has
    # checksums.
    except Exception as error:
        rule = "`path` must be a file of weights that `save_pretrained` wrote."
        received = f"path={os.fspath(file)!r}, which cannot be read: {error!r}"
        raise ValueError(f"{rule} Received: {received}.") from error


class LearnedSorter(Sorter):
    """Base of the sorters that are trained on lists and their exact ranks.

    They see standardised scores, and sines and cosines of these. So $a s + b$ and s
    have the same ranks for all a > 0; in a list of two items, only the order is left,
    so the items have no gradient. Ranks lie between 1/2 and d + 1/2, so a loss may
    divide by them.

    A sorter warns if it is used with random weights. It is frozen unless it is
    `trainable`. A subclass adds its parts in `_build_network` and defines its formula,
    `_network`.
    """

    def __init__(
        self, frequencies: int, units: int, trainable: bool = False, **kwargs: Any
    ):
        super().__init__(trainable=trainable, **kwargs)
        self.frequencies = _checks.positive_int("frequencies", frequencies)
        self.units = _checks.positive_int("units", units)
        self._names: tuple[str, ...] = ()  # Of the weights, as files know them.
        self._has_random_weights = True
        # Where the weights come from, for a configuration: a path or `_SHIPPED_NAME`.
        self._weights_file: str | None = None

    def _build_network(self) -> None:
        raise NotImplementedError

    def _network(self, lists: _Standardized) -> Tensor:
        """The formula: ranks `[batch, d]`, anything finite if masked."""
        raise NotImplementedError

    @property
    def _num_features(self) -> int:
        """Features of an item: score, its sines and cosines, and the list's length."""
        return 2 * self.frequencies + 2

    def _features(self, lists: _Standardized) -> Tensor:
        """The features of each item, `[batch, d, number of features]`."""
        scores = lists.scores[:, :, None]
        angles = scores * tf.range(1, self.frequencies + 1, dtype=tf.float32) / 2
        # About 1 for 100 items.
        log_counts = tf.math.log(lists.num_items) / 5 * tf.ones_like(lists.scores)
        columns = [scores, tf.sin(angles), tf.cos(angles), log_counts[:, :, None]]
        return lists.zero_masked(tf.concat(columns, axis=2))

    def soft_ranks(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        if self._has_random_weights and not self.trainable:
            name = type(self).__name__
            warnings.warn(
                f"{name} has random weights, so its ranks are meaningless. Use "
                f"{name}.pretrained(), or train one with "
                "scripts/reproductions/train_sorter.py.",
                stacklevel=2,
            )

        standardized = tf.cast(standardize(scores, mask), tf.float32)
        valid = tf.ones_like(scores) if mask is None else mask
        count = tf.reduce_sum(tf.cast(valid, tf.float32), axis=1, keepdims=True)
        num_items = tf.maximum(count, 1)
        ranks = self._network(_Standardized(standardized, mask, num_items))

        # Ranks end at most half a rank beyond 1 and d; those between change by at most
        # .01.
        ranks = 0.5 + tf.math.softplus(_BEND * (ranks - 0.5)) / _BEND
        most = num_items + 0.5
        ranks = most - tf.math.softplus(_BEND * (most - ranks)) / _BEND
        return tf.cast(ranks, scores.dtype)

    def build(self, input_shape: Shape) -> None:
        self._names = ()
        self._build_network()
        self.built = True

    @property
    def _weights_by_name(self) -> dict[str, tf.Variable]:
        return {name: getattr(self, f"_of_{name}") for name in self._names}

    def _add(
        self, name: str, shape: tuple[int, ...], initializer: _Initializer
    ) -> tf.Variable:
        """Adds a weight, which files know by this name."""
        self._names += (name,)
        weight = _keras.add_table(self, name, shape, initializer, dtype="float32")
        # A checkpoint finds a weight of Keras 3 only as an attribute of its layer.
        setattr(self, f"_of_{name}", weight)
        return weight

    def _add_dense(
        self,
        name: str,
        inputs: int,
        outputs: int,
        initializer: _Initializer = "glorot_uniform",
    ) -> _Dense:
        kernel = self._add(f"{name}_kernel", (inputs, outputs), initializer)
        return _Dense(kernel, self._add(f"{name}_bias", (outputs,), "zeros"))

    def _add_decoder(self, width: int) -> _Decoder:
        crossed_width = width + self._num_features
        return _Decoder(
            gate=self._add_dense("gate", self._num_features, width),
            hidden=self._add_dense("hidden", crossed_width, self.units),
            output=self._add_dense("output", self.units + crossed_width, 1),
        )

    @classmethod
    def pretrained(
        cls, path: PathLike | None = None, trainable: bool = False, **kwargs: Any
    ) -> Self:
        """Returns a sorter with trained weights, trained further if it is `trainable`.

        They come from a file that `save_pretrained` wrote; without a path, from the
        package.
        """
        shipped = _SHIPPED_FOLDER / f"{_registry.snake_case(cls.__name__)}.npz"
        file = shipped if path is None else pathlib.Path(path)
        saved = _read(file)
        rule = f"`path` must be a file of a {cls.__name__}."
        _checks.require(saved.sorter == cls.__name__, rule, f"one of a {saved.sorter}")

        sorter = cls(**saved.config, trainable=trainable, **kwargs)
        sorter.build((None, None))
        sorter._assign(saved.values, file)
        sorter._weights_file = _SHIPPED_NAME if path is None else os.fspath(path)
        return sorter

    def _assign(self, values: dict[str, np.ndarray], file: pathlib.Path) -> None:
        """Sets the weights to the values of a file; checks their names and shapes."""
        weights = self._weights_by_name
        expected = {name: tuple(weight.shape) for name, weight in weights.items()}
        shapes = {name: value.shape for name, value in values.items()}
        rule = f"`path` must have weights of the shapes {expected}."
        received = f"path={os.fspath(file)!r} with {shapes}"
        _checks.require(shapes == expected, rule, received)
        self.set_weights([values[name] for name in weights])

    def save_pretrained(self, path: PathLike, **card: Any) -> None:
        """Writes the weights to a file that `pretrained` reads, and a card beside it.

        Args:
            path: NumPy's file, which ends in .npz; the card, a text for readers, ends
                in .json.
            **card: further entries of the card, besides the sorter's configuration.
        """
        file = pathlib.Path(path)
        rule = "`path` must end in .npz."
        _checks.require(file.suffix == ".npz", rule, f"path={os.fspath(path)!r}")
        config = _registry.constructor_arguments(self)
        del config["trainable"]
        description = {"sorter": type(self).__name__, "config": config}
        arrays: dict[str, Any] = {"description": json.dumps(description)}
        for name, weight in self._weights_by_name.items():
            arrays[name] = weight.numpy()
        with _files.replacing(file) as temporary:
            np.savez(temporary, **arrays)
        text = json.dumps({**description, **card}, indent=2) + "\n"
        _files.write_text(file.with_suffix(".json"), text)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "weights_file": self._weights_file}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """The sorter `get_config` describes, with the weights of its file if any."""
        # With a model, Keras saves only the configuration of a loss, not its sorter's
        # weights.
        config = dict(config)
        file = config.pop("weights_file")
        is_shipped = file == _SHIPPED_NAME
        if is_shipped or (file is not None and os.path.exists(file)):
            # The file has the rest of the configuration.
            names = config.keys() & {"name", "trainable", "dtype"}
            options = {name: config[name] for name in names}
            return cls.pretrained(None if is_shipped else file, **options)

        sorter = cls(**config)
        sorter._weights_file = file
        return sorter

    def set_weights(self, weights: Sequence[np.ndarray]) -> None:
        super().set_weights(weights)
        self._has_random_weights = False

    def load_own_variables(self, store: Mapping[str, np.ndarray]) -> None:
        super().load_own_variables(store)
        self._has_random_weights = False


@_registry.register("sorter")
class ConvolutionalSorter(LearnedSorter):
    r"""A convolutional network that has learned to rank lists of one length.

    Convolutions of size and stride 2, each with a ReLU beside the mean of the two,
    reduce the list to one vector c, which is combined with each item:

    $$f(s)_i = \tfrac{d + 1}{2}
    + d \cdot \mathrm{N}\left([(A x_i) \odot c; x_i]\right)$$

    with $x_i$ the sines and cosines of the standardised score, and N a hidden layer
    with a linear shortcut. Ranks depend a little on the order of the items.

    Source: SoDeep (Engilberge et al. 2019), section 3.1.1. Its network has 8
    convolutions with batch normalization, reads the scores as they are, and ends with a
    channel for each item.

    Args:
        length: how many items a list has. Pad shorter lists and mask the padding.
        frequencies: how many sines, and how many cosines, are made from a score, >= 1.
        units: channels, >= 1.
        trainable: whether the weights are trained with the model that the sorter
            serves.

    Example:
        >>> sorter = ConvolutionalSorter.pretrained()
        >>> sorter(tf.linspace([1.0], [0.0], 100, axis=1)).numpy()[0, [0, 49]].round()
        array([ 1., 50.], dtype=float32)
    """

    def __init__(
        self,
        length: int = 100,
        frequencies: int = 16,
        units: int = 64,
        trainable: bool = False,
        **kwargs: Any,
    ):
        super().__init__(frequencies, units, trainable, **kwargs)
        self.length = _checks.positive_int("length", length)
        self._num_halvings = (self.length - 1).bit_length()

    def _build_network(self) -> None:
        self._items = self._add_dense("items", self._num_features, self.units)
        halvings = range(self._num_halvings)
        self._convolutions = tuple(map(self._add_convolution, halvings))
        self._decoder = self._add_decoder(self.units)

    def _add_convolution(self, i: int) -> _Dense:
        # It starts small, so that its output is near a mean of the list.
        start = keras.initializers.VarianceScaling(0.01, "fan_avg", "uniform")
        return self._add_dense(f"convolution_{i}", 2 * self.units, self.units, start)

    def soft_ranks(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        rule = (
            f"`scores` must be lists of `length` = {self.length} items; pad shorter "
            "ones and mask the padding."
        )
        is_right = scores.shape[1] in (None, self.length)
        _checks.require(is_right, rule, f"{scores.shape}")
        scores = tf.ensure_shape(scores, [None, self.length])
        if mask is None:
            return super().soft_ranks(scores, None)

        # The positions of masked items must change nothing, so these items move to the
        # end.
        order = tf.argsort(tf.cast(~mask, tf.int32), axis=1, stable=True)
        scores = tf.gather(scores, order, batch_dims=1)
        mask = tf.gather(mask, order, batch_dims=1)
        ranks = super().soft_ranks(scores, mask)
        return tf.gather(ranks, tf.argsort(order, axis=1), batch_dims=1)

    def _network(self, lists: _Standardized) -> Tensor:
        # `features` are the $x_i$ of the formula; `items` are the inputs of the
        # convolutions.
        features = self._features(lists)
        items = lists.zero_masked(tf.nn.relu(self._items(features)))
        size = 2**self._num_halvings
        # Means of the valid items: masked items and the padding to a power of two add
        # 0.
        context = tf.pad(items, [[0, 0], [0, size - self.length], [0, 0]])
        context *= size / lists.num_items[:, :, None]
        for convolution in self._convolutions:
            size //= 2
            pairs = tf.reshape(context, [-1, size, 2 * self.units])
            first, second = tf.split(pairs, 2, axis=2)
            context = (first + second) / 2 + tf.nn.relu(convolution(pairs))
        return 0.5 + lists.num_items * (0.5 + self._decoder(features, context))


@_registry.register("sorter")
class RecurrentSorter(LearnedSorter):
    r"""A bidirectional LSTM that has learned to rank.

    $$f(s)_i = \tfrac{d + 1}{2}
    + d \cdot \mathrm{N}\left([(A x_i) \odot h_i; x_i]\right), \qquad
    h = \mathrm{BiLSTM}(x_1, \dots, x_d)$$

    with $x_i$ and N as in `ConvolutionalSorter`. Before training, the states are nearly
    means of random features over the items read so far; from this start, it learns
    several times faster than from random gates. Time is O(d), but the items are read
    one after the other, and ranks depend a little on their order.

    Source: SoDeep (Engilberge et al. 2019), section 3.1.1. Its LSTM is larger, reads
    the scores as they are, and has a linear projection on top.

    Args:
        frequencies, trainable: as in `ConvolutionalSorter`.
        units: width of the LSTM in each direction, >= 1.

    Example:
        >>> sorter = RecurrentSorter.pretrained()
        >>> sorter(tf.constant([[0.3, 0.1, 0.9, 0.5]])).numpy().round().astype(int)
        array([[3, 4, 1, 2]])
    """

    def __init__(
        self,
        frequencies: int = 40,
        units: int = 80,
        trainable: bool = False,
        **kwargs: Any,
    ):
        super().__init__(frequencies, units, trainable, **kwargs)

    def _build_network(self) -> None:
        self._forward = self._add_direction("forward")
        self._backward = self._add_direction("backward")
        self._decoder = self._add_decoder(2 * self.units)

    def _add_direction(self, name: str) -> "Direction":
        width = 4 * self.units
        inputs = self._num_features
        # Gates that let a state start as a running mean.
        return Direction(
            self._add(f"{name}_kernel", (inputs, width), _running_mean_kernel),
            self._add(f"{name}_recurrent_kernel", (self.units, width), _small_kernel()),
            self._add(f"{name}_bias", (width,), _running_mean_bias),
        )

    def _network(self, lists: _Standardized) -> Tensor:
        features = self._features(lists)
        states = bidirectional_lstm(features, self._forward, self._backward, lists.mask)
        return 0.5 + lists.num_items * (0.5 + self._decoder(features, states))


@dataclasses.dataclass
class Direction:
    """The weights of an LSTM that reads in one direction."""

    kernel: Tensor | tf.Variable  # `[features, 4 units]`.
    recurrent_kernel: Tensor | tf.Variable  # `[units, 4 units]`.
    bias: Tensor | tf.Variable  # `[4 units]`.


def bidirectional_lstm(
    inputs: Tensor, forward: Direction, backward: Direction, mask: Tensor | None = None
) -> Tensor:
    """Bidirectional LSTM states `[batch, d, 2 units]` from `[batch, d, features]`."""
    # A masked item leaves the state unchanged, so that the states of the others are the
    # same as without it; its inputs must be finite. Keras's layer requires masked items
    # at the end, and has other kernels on a GPU.
    states = []
    for weights, stride in ((forward, 1), (backward, -1)):
        # One product serves all items; only the product with the state must go step by
        # step.
        gates = _Dense(weights.kernel, weights.bias)(inputs)[:, ::stride]
        ordered_mask = None if mask is None else mask[:, ::stride]
        recurrent_kernel = tf.convert_to_tensor(weights.recurrent_kernel)
        of_direction = _lstm_states(gates, recurrent_kernel, ordered_mask)
        states.append(of_direction[:, ::stride])
    return tf.concat(states, axis=2)


def _lstm_states(
    gates: Tensor, recurrent_kernel: Tensor, mask: Tensor | None
) -> Tensor:
    """LSTM states `[batch, d, units]` from the inputs' gates `[batch, d, 4 units]`."""
    # Hochreiter and Schmidhuber 1997, with forget gates (Gers et al. 2000), whose bias
    # starts at 1 (Jozefowicz et al. 2015). The gradient of a slice of `gates` would
    # have the size of all steps.
    length = width_of(gates)
    step_gates = tf.TensorArray(gates.dtype, length).unstack(
        tf.transpose(gates, [1, 0, 2])
    )
    is_present = None if mask is None else tf.transpose(mask)[:, :, None]

    def step(t: Tensor, state: Tensor, cell: Tensor, states: tf.TensorArray) -> tuple:
        i, f, o, g = tf.split(step_gates.read(t) + state @ recurrent_kernel, 4, axis=1)
        new_cell = tf.sigmoid(f + 1) * cell + tf.sigmoid(i) * tf.tanh(g)
        new_state = tf.sigmoid(o) * tf.tanh(new_cell)
        if is_present is not None:
            new_cell = tf.where(is_present[t], new_cell, cell)
            new_state = tf.where(is_present[t], new_state, state)
        return t + 1, new_state, new_cell, states.write(t, new_state)

    # A sum, since a list may have no item to slice.
    zeros = tf.zeros_like(tf.reduce_sum(gates, axis=1)[:, : recurrent_kernel.shape[0]])
    states = tf.TensorArray(gates.dtype, length, element_shape=zeros.shape)
    *_, states = tf.while_loop(
        lambda t, *_: t < length,
        step,
        (0, zeros, zeros, states),
        maximum_iterations=length,
    )
    return tf.transpose(states.stack(), [1, 0, 2])


def _small_kernel() -> keras.initializers.Initializer:
    return keras.initializers.VarianceScaling(0.1, "fan_avg", "uniform")


def _running_mean_kernel(shape: tuple[int, ...], dtype: str | None = None) -> Tensor:
    """A kernel for input gates 1 / (d + 1): the last feature, log(d) / 5, weighs -5."""
    features, units = shape[0], shape[1] // 4
    last_row = tf.constant([[0.0]] * (features - 1) + [[-5.0]])
    small = _small_kernel()((features, units), "float32")
    input_gates = small * (1 + last_row / 5) + last_row
    forget_and_output_gates = _small_kernel()((features, 2 * units), "float32")
    cell_initializer = keras.initializers.RandomNormal(stddev=math.sqrt(2 / features))
    cell_inputs = cell_initializer((features, units), "float32")
    kernel = tf.concat([input_gates, forget_and_output_gates, cell_inputs], axis=1)
    return tf.cast(kernel, dtype or tf.float32)


def _running_mean_bias(shape: tuple[int, ...], dtype: str | None = None) -> Tensor:
    """A bias with forget gates of sigmoid(5 + 1) = 0.998; the LSTM itself adds 1."""
    return tf.cast(tf.repeat([0.0, 5.0, 0.0, 0.0], shape[0] // 4), dtype or tf.float32)


# For soft ranks of standardised scores: at the highest temperature isolated items have
# a gradient, at the lowest the ranks are nearly exact.
_TEMPERATURES = (0.1, 0.03, 0.01, 0.003)


@_registry.register("sorter")
class SetSorter(LearnedSorter):
    r"""A network on sets that has learned to correct soft ranks.

    $$f(s)_i = \pi_{T_2}(i) + \mathrm{N}\left([(A x_i) \odot c; x_i]\right), \qquad
    c = \frac{1}{d} \sum_j \mathrm{MLP}(x_j)$$

    with $x_i$ the sines and cosines of the standardised score and the differences of
    its soft ranks $\pi_T$ by the Laplace distribution at four temperatures
    (`LaplaceSorter`), and N a hidden layer with a linear shortcut. Ranks do not depend
    on the order of the items. Time is O(d log d).

    Source: DeepSets (Zaheer et al. 2017) in place of SoDeep's networks (Engilberge et
    al. 2019).

    Args:
        frequencies, trainable: as in `ConvolutionalSorter`.
        units: width of the network, >= 1.

    Example:
        >>> SetSorter.pretrained()(
        ...     tf.constant([[0.3, 0.1, 0.9]])
        ... ).numpy().round().astype(int)
        array([[2, 3, 1]])
    """

    def __init__(
        self,
        frequencies: int = 16,
        units: int = 32,
        trainable: bool = False,
        **kwargs: Any,
    ):
        super().__init__(frequencies, units, trainable, **kwargs)

    @property
    def _num_features(self) -> int:
        return super()._num_features + len(_TEMPERATURES) - 1

    def _build_network(self) -> None:
        self._items = self._add_dense("items", self._num_features, self.units)
        self._set = self._add_dense("set", self.units, self.units)
        self._decoder = self._add_decoder(self.units)

    def _network(self, lists: _Standardized) -> Tensor:
        ranks = [laplace_ranks(lists.scores, t, lists.mask) for t in _TEMPERATURES]
        differences = [narrow - wide for wide, narrow in itertools.pairwise(ranks)]
        features = self._features(lists)
        features = tf.concat([features, tf.stack(differences, axis=2)], axis=2)
        items = self._set(tf.nn.relu(self._items(features)))
        total = tf.reduce_sum(lists.zero_masked(items), axis=1, keepdims=True)
        context = total / lists.num_items[:, :, None]
        return ranks[1] + self._decoder(features, context)
