"""Shared code of the learned sorters: features of scores, weights, weight files and warnings."""

import hashlib
import io
import json
import os
import pathlib
import warnings
from typing import Any, Self, TypeVar

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks, _files, _keras, _registry
from rank4class_tf.layers.sorters import Sorter
from rank4class_tf.ops.ranking.standardize import standardize

# How sharply ranks bend beyond the ends. The sharper, the less they change and the smaller their
# gradient there.
_BEND = 5.0
# Stands for the file that comes with the package, wherever that is.
_SHIPPED_NAME = "shipped"
_SHIPPED = pathlib.Path(__file__).resolve().parents[1] / "weights"


_Class = TypeVar("_Class", bound=type)


def register(cls: _Class) -> _Class:
    """Registers a learned sorter with Keras and its name for `get_sorter`, with trained weights."""
    name = _registry.snake_case(cls.__name__.removesuffix("Sorter"))
    _registry.named("sorter", name, cls.pretrained)  # type: ignore[attr-defined]
    return _keras.register(cls)


class LearnedSorter(Sorter):
    """Base of the sorters that are trained on lists and their exact ranks.

    They see the scores of a list without location and scale, and sines and cosines of these. So
    $a s + b$ and s have the same ranks for all a > 0. In a list of two items, only the order is
    left, so the items have no gradient. Ranks lie between 1/2 and d + 1/2, so a loss may divide by
    them.

    A sorter has random weights until they are loaded or trained, and warns if it is used with
    them. It is frozen unless it is `trainable`. It has neither dropout nor batch normalization, so
    that training and inference mode are the same.

    A subclass names its weights in `_weight_shapes` and defines its formula, `_network`.
    """

    def __init__(
        self, frequencies: int, units: int, trainable: bool = False, **kwargs: Any
    ) -> None:
        """Sets the arguments that all learned sorters share.

        Args:
            frequencies: how many sines, and how many cosines, are made from a score, >= 1.
            units: width of the network, >= 1.
            trainable: whether the sorter's weights are trained.
            **kwargs: arguments of Keras, such as `name`.
        """
        super().__init__(trainable=trainable, **kwargs)
        self.frequencies = _checks.positive_int("frequencies", frequencies)
        self.units = _checks.positive_int("units", units)
        self._trained = False
        self._weights_file: str | None = None

    def _weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Name -> shape of each weight."""
        raise NotImplementedError

    def _network(self, standardized: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
        """The formula.

        Args:
            standardized: scores without location and scale, float32 `[batch, d]`, 0 where masked.
            mask: booleans `[batch, d]` or None.

        Returns:
            Ranks, float32 `[batch, d]`, anything finite where masked.
        """
        raise NotImplementedError

    @property
    def _num_features(self) -> int:
        """Features of an item: its score, sines and cosines of it, and the length of the list."""
        return 2 * self.frequencies + 2

    def _features(self, standardized: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
        """What the network sees of each item, `[batch, d, number of features]`."""
        angles = standardized[:, :, None] * tf.range(1, self.frequencies + 1, dtype=tf.float32) / 2
        log_count = tf.math.log(count(standardized, mask)) / 5  # About 1 for 100 items.
        parts = [
            standardized[:, :, None],
            tf.sin(angles),
            tf.cos(angles),
            (log_count * tf.ones_like(standardized))[:, :, None],
        ]
        features = tf.concat(parts, axis=2)
        return features if mask is None else features * tf.cast(mask, tf.float32)[:, :, None]

    def soft_ranks(self, scores: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
        """The formula."""
        if not (self._trained or self.trainable):
            name = type(self).__name__
            warnings.warn(
                f"{name} has random weights, so its ranks are meaningless. Use "
                f"{name}.pretrained(), or train one with scripts/reproductions/train_sorter.py.",
                stacklevel=2,
            )
        standardized = tf.cast(standardize(scores, mask), tf.float32)
        ranks = _within_half_a_rank(self._network(standardized, mask), count(standardized, mask))
        return tf.cast(ranks, scores.dtype)

    def build(self, input_shape: Any) -> None:
        """Makes the weights."""
        del input_shape
        self._of_name = {
            name: _keras.add_table(self, name, shape, self._initializer(name))
            for name, shape in self._weight_shapes().items()
        }
        for name, weight in self._of_name.items():
            # `tf.train.Checkpoint` does not look into the dicts of Keras 3.
            setattr(self, f"_of_{name}", weight)
        self.built = True

    def _initializer(self, name: str) -> Any:
        """How a weight starts, as Keras's `add_weight` takes it."""
        return "zeros" if name.endswith("_bias") else "glorot_uniform"

    def _weight(self, name: str) -> tf.Tensor:
        """The value of a weight."""
        return tf.convert_to_tensor(self._of_name[name])

    def _dense(self, name: str, inputs: tf.Tensor) -> tf.Tensor:
        """Inputs times the weight `<name>_kernel`, plus `<name>_bias`."""
        return inputs @ self._weight(f"{name}_kernel") + self._weight(f"{name}_bias")

    def _decoder_shapes(self, width: int, num_features: int) -> dict[str, tuple[int, ...]]:
        """The weights that `_decode` takes for a context of that width."""
        return {
            **dense_shapes("gate", num_features, width),
            **dense_shapes("hidden", width + num_features, self.units),
            **dense_shapes("output", self.units + width + num_features, 1),
        }

    def _decode(self, features: tf.Tensor, context: tf.Tensor) -> tf.Tensor:
        """A number for each item, from features of the item and a context of the list.

        A series of the list's distribution, evaluated at an item, is made of products of the two.

        Args:
            features: of the items, `[batch, d, number of features]`.
            context: of the list, `[batch, d or 1, width]`.

        Returns:
            `[batch, d]`.
        """
        both = tf.concat([self._dense("gate", features) * context, features], axis=2)
        hidden = tf.nn.relu(self._dense("hidden", both))
        return self._dense("output", tf.concat([hidden, both], axis=2))[:, :, 0]

    @classmethod
    def pretrained(
        cls, path: str | os.PathLike | None = None, trainable: bool = False, **kwargs: Any
    ) -> Self:
        """Returns a sorter with trained weights.

        Args:
            path: a file that `save_pretrained` wrote; None means the file that comes with the
                package.
            trainable: whether the weights are trained further; frozen if not.
            **kwargs: arguments of Keras, such as `name`.

        Returns:
            The sorter.

        Raises:
            FileNotFoundError: if the file does not exist.
            ValueError: if the file is for another kind of sorter, or if its card describes another
                file.
        """
        shipped = _SHIPPED / f"{_registry.snake_case(cls.__name__)}.npz"
        file = shipped if path is None else pathlib.Path(path)
        content = file.read_bytes()
        card = file.with_suffix(".json")
        if card.exists():
            expected = _sha256(card)
            found = hashlib.sha256(content).hexdigest()
            if found != expected:
                raise ValueError(
                    f"`path` must be the file that {card.name} describes, with the SHA-256 "
                    f"{expected}. Received: path={os.fspath(file)!r} with {found}."
                )
        description, values = _weights(file, content)
        if description["sorter"] != cls.__name__:
            raise ValueError(
                f"`path` must be a file of a {cls.__name__}. "
                f"Received: one of a {description['sorter']}."
            )
        sorter = cls(**description["config"], trainable=trainable, **kwargs)
        sorter.build((None, None))
        expected_shapes = {name: tuple(weight.shape) for name, weight in sorter._of_name.items()}
        if (shapes := {name: value.shape for name, value in values.items()}) != expected_shapes:
            raise ValueError(
                f"`path` must have weights of the shapes {expected_shapes}. Received: "
                f"path={os.fspath(file)!r} with {shapes}."
            )
        for name, weight in sorter._of_name.items():
            weight.assign(values[name])
        sorter._trained = True
        sorter._weights_file = _SHIPPED_NAME if path is None else os.fspath(path)
        return sorter

    def save_pretrained(self, path: str | os.PathLike, **card: Any) -> None:
        """Writes the weights to a file that `pretrained` reads, and a card beside it.

        The file is NumPy's .npz, the same for Keras 2 and Keras 3. The card has its name, with the
        ending .json.

        Args:
            path: the file, which ends in .npz.
            **card: further entries of the card, besides the sorter's configuration and checksum.

        Raises:
            ValueError: if `path` does not end in .npz.
        """
        file = pathlib.Path(path)
        if file.suffix != ".npz":
            raise ValueError(f"`path` must end in .npz. Received: path={os.fspath(path)!r}.")
        description = {"sorter": type(self).__name__, "config": self._network_config()}
        arrays: dict[str, Any] = {name: x.numpy() for name, x in self._of_name.items()}
        card_file = file.with_suffix(".json")
        card_file.unlink(missing_ok=True)  # It describes the file that is replaced.
        with _files.replacing(file) as temporary:
            np.savez(temporary, description=np.array(json.dumps(description)), **arrays)
        checksum = hashlib.sha256(file.read_bytes()).hexdigest()
        full_card = {**description, "sha256": checksum, **card}
        _files.write_text(card_file, json.dumps(full_card, indent=2) + "\n")

    def _network_config(self):
        keras_own = {"name", "trainable", "dtype", "weights_file"}
        return {name: x for name, x in self.get_config().items() if name not in keras_own}

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments, and the file that the weights came from."""
        return {**super().get_config(), "weights_file": self._weights_file}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """The sorter that `get_config` describes, with the weights of its file if that exists.

        With a model, Keras saves only the configuration of a loss, not the weights of its sorter.
        """
        config = dict(config)
        file = config.pop("weights_file")
        if file is None or not (file == _SHIPPED_NAME or os.path.exists(file)):
            sorter = cls(**config)
            sorter._weights_file = file
            return sorter
        own = {name: config[name] for name in ("name", "trainable", "dtype") if name in config}
        return cls.pretrained(None if file == _SHIPPED_NAME else file, **own)

    def set_weights(self, weights: Any) -> None:
        """Keras's own; the sorter counts as trained."""
        super().set_weights(weights)
        self._trained = True

    def load_own_variables(self, store: Any) -> None:
        """Keras's own; the sorter counts as trained."""
        super().load_own_variables(store)
        self._trained = True


def _sha256(card):
    """The checksum on a card."""
    try:
        return json.loads(card.read_text(encoding="utf-8"))["sha256"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{os.fspath(card)!r} must be a card that `save_pretrained` wrote, or must not exist. "
            f"Received: {error!r}."
        ) from error


def _weights(file, content):
    """The description and the weights in a file."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            values = {name: arrays[name] for name in arrays.files}
        description = json.loads(str(values.pop("description")))
        return {name: description[name] for name in ("sorter", "config")}, values
    # NumPy and zipfile raise errors of many types on a damaged file.
    except Exception as error:
        raise ValueError(
            f"`path` must be a file of weights that `save_pretrained` wrote. Received: "
            f"path={os.fspath(file)!r}, which cannot be read: {error!r}."
        ) from error


def dense_shapes(name: str, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
    """The weights that `LearnedSorter._dense` takes."""
    return {f"{name}_kernel": (inputs, outputs), f"{name}_bias": (outputs,)}


def count(standardized: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """How many items count, float32 `[batch, 1]`, at least 1."""
    present = tf.ones_like(standardized) if mask is None else tf.cast(mask, tf.float32)
    return tf.maximum(tf.reduce_sum(present, axis=1, keepdims=True), 1)


def _within_half_a_rank(ranks, num_items):
    """Bends ranks beyond 1 and d back; those between change by at most a hundredth of a rank."""
    ranks = 0.5 + tf.math.softplus(_BEND * (ranks - 0.5)) / _BEND
    return num_items + 0.5 - tf.math.softplus(_BEND * (num_items + 0.5 - ranks)) / _BEND
