"""First and last serving layers: sparse inputs, probabilities, top classes, sets."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _keras, _registry, ops
from rank4class_tf._lists.labels import excluded_items
from rank4class_tf._tf.exact import as_floating
from rank4class_tf._tf.search import first_and_last_ranks
from rank4class_tf._types import Array, Tensor


class ScoreLayer(_registry.Configured, keras.layers.Layer):
    """Base of layers in float32: half precision would round scores and small counts."""

    def __init__(self, **kwargs: Any):
        super().__init__(**{"dtype": "float32", **kwargs})


@_keras.register
class SparseDense(_registry.Configured, keras.layers.Layer):
    r"""A dense layer for sparse features; a step updates only its features' rows.

    $$h = b + \sum_f x_f W_f$$

    Args:
        units: width of the output, >= 1.

    Input: `tf.SparseTensor` `[batch, features]`. Output: `[batch, units]`.

    Example:
        >>> features = tf.sparse.from_dense([[0.0, 2.0, 0.0]])
        >>> SparseDense(units=4)(features).shape
        TensorShape([1, 4])
    """

    def __init__(self, units: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.supports_jit = False  # XLA compiles no sparse tensors.
        self.units = _checks.positive_int("units", units)

    def build(self, input_shape: Any) -> None:
        is_right = len(input_shape) == 2 and input_shape[-1] is not None
        rule = "`inputs` must have the shape [batch, features] with features known."
        _checks.require(is_right, rule, tuple(input_shape))
        shape = (int(input_shape[-1]), self.units)
        self.kernel = _keras.add_table(self, "kernel", shape, "glorot_uniform")
        self.bias = self.add_weight(
            name="bias", shape=(self.units,), initializer="zeros"
        )
        self.built = True

    def call(self, inputs: Any) -> Tensor:
        rule = "`inputs` must be a SparseTensor [batch, features]."
        _checks.require(
            isinstance(inputs, tf.SparseTensor), rule, type(inputs).__name__
        )
        features, columns = tf.unique(inputs.indices[:, 1])
        rows = tf.gather(_keras.variable(self.kernel), features)
        indices = tf.stack([inputs.indices[:, 0], tf.cast(columns, tf.int64)], axis=1)
        shape = tf.stack([inputs.dense_shape[0], tf.size(features, tf.int64)])
        # The columns of a row may be out of order now, which the product allows.
        product = tf.sparse.sparse_dense_matmul(
            tf.SparseTensor(indices, tf.cast(inputs.values, rows.dtype), shape), rows
        )
        return tf.cast(product, self.compute_dtype) + tf.cast(
            self.bias, self.compute_dtype
        )

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, int]:
        return (input_shape[0], self.units)


@_keras.register
class ExcludeItems(ScoreLayer):
    """Sets the score of some items to -inf, such as those that a user has already seen.

    Put it at the end of a model that is evaluated or served; a metric ranks -inf last.
    In training, do not exclude a positive: its loss would be undefined.

    Input: scores `[batch, n]`, and item ids `[batch, E]`, padded with -1, or booleans
    `[batch, n]`, True for an item to exclude. An item that does not exist raises
    `ValueError`; under XLA, the scores of its list become NaN instead. Output: scores
    `[batch, n]`.

    Example:
        >>> ExcludeItems()(
        ...     [tf.constant([[3.0, 1.0, 2.0]]), tf.constant([[0, -1]])]
        ... ).numpy()
        array([[-inf,   1.,   2.]], dtype=float32)
    """

    def call(self, inputs: Any) -> Tensor:
        scores, exclude = inputs
        scores = as_floating(scores)
        is_excluded, scores = excluded_items(exclude, scores, scores)
        return tf.where(is_excluded, tf.constant(-float("inf"), scores.dtype), scores)


@_keras.register
class Probabilities(ScoreLayer):
    r"""Maps scores to probabilities: softmax with a temperature, or another projection.

    $$p = \arg\max_{x \in \Delta} \langle s / T, x \rangle - \sum_i h(x_i)$$

    over all x that sum to 1. For the entropy, this is $\mathrm{softmax}(s / T)$; for
    the Euclidean regulariser, it is Sparsemax, $(s_i / T - \tau)_+$.
    `rank4class_tf.calibrate` fits the temperature. `loss.probabilities` is the layer
    that belongs to a loss, None if there is none.

    Source: Guo et al. 2017, "On Calibration of Modern Neural Networks", for the
    temperature; Blondel et al. 2020, "Learning with Fenchel-Young Losses", for the
    projections.

    Args:
        temperature: T > 0.
        regularizer: `"entropy"`, `"euclidean"` or an `ops.Regularizer` of your own.

    Input: scores `[batch, n]`; -inf masks a class. Output: `[batch, n]`; each row sums
    to 1.

    Example:
        >>> Probabilities(temperature=2.0)(tf.math.log([[16.0, 1.0]])).numpy().round(4)
        array([[0.8, 0.2]], dtype=float32)
        >>> Probabilities(regularizer="euclidean")(
        ...     tf.constant([[2.0, 1.5, 0.0]])
        ... ).numpy()
        array([[0.75, 0.25, 0.  ]], dtype=float32)
    """

    def __init__(
        self, temperature: float = 1.0, regularizer: Any = "entropy", **kwargs: Any
    ):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.temperature = _checks.positive_float("temperature", temperature)
        ops.get_regularizer(regularizer)
        self.regularizer = regularizer

    def call(self, inputs: Tensor) -> Tensor:
        # Eager mode would have to guess from the values.
        if tf.is_symbolic_tensor(inputs):
            _checks.no_probabilities("inputs", _checks.function_behind(inputs))
        if self.regularizer != "entropy":
            return ops.simplex_projection(
                inputs, self.regularizer, alpha=1 / self.temperature
            )
        # As the projection, in a third of the time (64 x 100,000) and with operations
        # of TFLite. Unlike `tf.nn.softmax`, a list with a NaN is all NaN, and one that
        # is all masked is 0.
        unmasked = inputs != -float("inf")
        scores = tf.where(unmasked, inputs / self.temperature, inputs.dtype.min)
        exponentials = tf.exp(scores - tf.reduce_max(scores, axis=-1, keepdims=True))
        probabilities = exponentials / tf.reduce_sum(
            exponentials, axis=-1, keepdims=True
        )
        return tf.where(unmasked, probabilities, tf.zeros_like(probabilities))

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape

    def __repr__(self) -> str:
        arguments = _registry.constructor_arguments(self)
        values = ", ".join(f"{x}={getattr(self, x)!r}" for x in arguments)
        return f"{type(self).__name__}({values})"


def _mass_not_above(probabilities: Tensor) -> Tensor:
    """The probability of the classes not above each class, `[..., n]`."""
    shape = tf.shape(probabilities)
    probabilities = tf.reshape(probabilities, [-1, shape[-1]])

    # This is 1 - (the APS score without the class's own probability), so that the best
    # class is in each set. Not computed as a difference, small sums keep their digits.
    first_ranks, _ = first_and_last_ranks(-probabilities)
    ranked = tf.sort(probabilities, axis=-1, direction="DESCENDING")
    # By rounding, a sum may exceed 1.
    sums_from_rank = tf.minimum(tf.cumsum(ranked, axis=-1, reverse=True), 1)
    sums = tf.gather(sums_from_rank, first_ranks - 1, batch_dims=1)
    return tf.reshape(sums, shape)


# Functions of probabilities `[..., n]`. A set has the classes whose conformity is
# high enough.
_CONFORMITY = {"lac": tf.identity, "aps": _mass_not_above}


@_keras.register
class PredictionSets(ScoreLayer):
    r"""Predicts a set that probably has the right class (split conformal prediction).

    $$C(s) = \{i : p_i \ge t\} \;\text{("lac")} \qquad \text{or} \qquad
    C(s) = \{i : \textstyle\sum_{j : p_j > p_i} p_j \le 1 - t\} \;\text{("aps")}$$

    and always the best class, so that no set is empty. In doubt, sets of "aps" are
    larger. One of "lac" may then have one class because no other passed, or none at
    all. `rank4class_tf.conformalize` finds the threshold for a coverage.

    Source: Vovk et al. 2005, "Algorithmic Learning in a Random World"; Sadinle et al.
    2019, "Least Ambiguous Set-Valued Classifiers with Bounded Error Levels" (LAC);
    Romano et al. 2020, "Classification with Valid and Adaptive Coverage" (APS, here
    without its random part).

    Args:
        threshold: t in [0, 1]; 0 means all classes.
        method: `"lac"` for the smallest sets on average, `"aps"` for a coverage that
            depends less on how hard an example is.
        probabilities: a layer that maps scores to probabilities; None for softmax.

    Input: scores `[..., n]`. Output: booleans of the same shape, True for a class of
    the set. If the probabilities of a list are NaN, all its classes are True.

    Example:
        >>> sets = PredictionSets(threshold=0.2)
        >>> sets(tf.math.log([[0.7, 0.25, 0.05], [0.15, 0.8, 0.05]])).numpy()
        array([[ True,  True, False],
               [False,  True, False]])
        >>> doubt = tf.math.log([[0.4, 0.35, 0.25]])
        >>> for method in ("lac", "aps"):
        ...     PredictionSets(0.5, method)(doubt).numpy()
        array([[ True, False, False]])
        array([[ True,  True, False]])
    """

    def __init__(
        self,
        threshold: float,
        method: str = "lac",
        probabilities: Any = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.threshold = _checks.fraction("threshold", threshold)
        self.method = _checks.one_of("method", method, tuple(_CONFORMITY))
        _checks.layer_or_none("probabilities", probabilities)
        self.probabilities = Probabilities() if probabilities is None else probabilities

    def conformity(self, scores: Tensor) -> Tensor:
        """Numbers `[..., n]`; a class with at least `threshold` is in the set."""
        return _CONFORMITY[self.method](self.probabilities(scores))

    def call(self, inputs: Tensor) -> Tensor:
        conformity = self.conformity(inputs)
        best = tf.reduce_max(conformity, axis=-1, keepdims=True)
        in_set = conformity >= tf.minimum(tf.cast(self.threshold, best.dtype), best)
        return in_set | tf.math.is_nan(conformity)

    def compute_output_spec(self, inputs: Any) -> Any:
        """Returns what Keras 3 expects of a call."""
        return keras.KerasTensor(inputs.shape, "bool")

    compute_output_shape = Probabilities.compute_output_shape
    __repr__ = Probabilities.__repr__


@_keras.register
class TopClasses(ScoreLayer):
    """A served model's last layer: the k best classes, with names and probabilities.

    `rank4class_tf.export_top_k` writes a SavedModel that does the same without this
    package.

    Args:
        k: how many classes, >= 1.
        class_names: None, or the name of each class.
        probabilities: None, or a layer that maps scores to probabilities: the result of
            `calibrate`, or `loss.probabilities`.
        prediction_sets: None, or the result of `rank4class_tf.conformalize`.

    Input: scores `[batch, n]`, n >= k. Output: a dict, the best class first, of

    - `scores`: `[batch, k]`; where fewer than k classes are left, as after
      `ExcludeItems`, -inf, with the class id -1, the name "" and the probability 0,
    - `class_ids`: int32 `[batch, k]`,
    - `class_names`: strings `[batch, k]`, if there are names,
    - `probabilities`: `[batch, k]`, with `probabilities`,
    - `set_sizes`: int32 `[batch]`, with `prediction_sets`: how many classes are in the
      set, which may be more than k.

    Example:
        >>> best = TopClasses(2, ["cat", "dog", "eel"], Probabilities())
        >>> result = best(tf.math.log([[0.25, 0.625, 0.125]]))
        >>> result["class_names"].numpy(), result["probabilities"].numpy().round(3)
        (array([[b'dog', b'cat']], dtype=object),
         array([[0.625, 0.25 ]], dtype=float32))
    """

    def __init__(
        self,
        k: int,
        class_names: Sequence[str] | None = None,
        probabilities: Any = None,
        prediction_sets: Any = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.supports_jit = class_names is None  # XLA compiles no strings.
        self.k = _checks.positive_int("k", k)
        self.class_names = None if class_names is None else as_names(class_names)
        self.probabilities = _checks.layer_or_none("probabilities", probabilities)
        self.prediction_sets = _checks.layer_or_none("prediction_sets", prediction_sets)

    def build(self, input_shape: Any) -> None:
        if input_shape[-1] is not None:
            check_classes(self.k, self.class_names, input_shape[-1])
        self.built = True

    def call(self, inputs: Tensor) -> dict[str, Tensor]:
        result = self.best(inputs, self.k)
        if self.class_names is not None:
            names = tf.constant([*self.class_names, ""])
            result["class_names"] = names_at(names, result["class_ids"])
        return result

    def best(self, scores: Tensor, k: Array) -> dict[str, Tensor]:
        """The outputs without the names, for any k, an int or a scalar tensor."""
        scores = tf.cast(scores, self.compute_dtype)
        values, class_ids = tf.math.top_k(scores, k)
        # In TFLite an excluded class has the lowest finite score. A NaN keeps its class
        # id.
        ids_or_padding = tf.where(values <= scores.dtype.min, -1, class_ids)
        result = {"scores": values, "class_ids": ids_or_padding}
        if self.probabilities is not None:
            result["probabilities"] = tf.gather(
                self.probabilities(scores), class_ids, batch_dims=1
            )
        if self.prediction_sets is not None:
            in_set = tf.cast(self.prediction_sets(scores), tf.int32)
            result["set_sizes"] = tf.reduce_sum(in_set, axis=-1)
        return result


def names_at(names: Tensor, ids: Tensor) -> Tensor:
    """Looks up ids in `names` `[n + 1]`; the last one, "", stands for the id -1."""
    # TFLite has no `tf.where` of strings, so we choose among ids.
    return tf.gather(names, tf.where(ids < 0, names.shape[0] - 1, ids))


def as_names(class_names: Any) -> list[str]:
    """Names of classes, in a list, an array or a tensor, as str."""
    if isinstance(class_names, str | bytes | Mapping) or not isinstance(
        class_names, Iterable
    ):
        raise ValueError(
            f"`class_names` must be a list of names. Received: {class_names!r}."
        )
    names = (name.numpy() if tf.is_tensor(name) else name for name in class_names)
    return [tf.compat.as_str_any(name) for name in names]


def check_classes(k: int, class_names: Sequence[str] | None, num_classes: int) -> None:
    """Raises unless at least k classes exist, each with a name if there are names."""
    _checks.require(k <= num_classes, f"`k` must be in [1, {num_classes}].", f"k={k}")
    if class_names is not None:
        rule = f"`class_names` must have a name for each of the {num_classes} classes."
        number = len(class_names)
        _checks.require(number == num_classes, rule, f"{number} names")
