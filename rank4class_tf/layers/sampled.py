"""The head for very many classes: trains on samples, searches all (`scoring.py`)."""

import math
import warnings
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _files, _keras, _random, _registry, ops
from rank4class_tf._lists import labels as _labels
from rank4class_tf._lists.positions import at_positions
from rank4class_tf._tf import search
from rank4class_tf._tf.gather import gather
from rank4class_tf._tf.gradients import has_nan
from rank4class_tf._types import Array, PathLike, Tensor, TensorPair
from rank4class_tf.layers.classes import ClassTable
from rank4class_tf.layers.heads import Head
from rank4class_tf.layers.interactions import CosineInteraction, DotProductInteraction
from rank4class_tf.layers.scoring import ClassScores


# In a graph, the steps of the draw reuse memory; eagerly, each step would allocate a
# whole table.
@tf.function(
    input_signature=[
        tf.TensorSpec([None], tf.int32),
        tf.TensorSpec([2], tf.int32),
        tf.TensorSpec([], tf.float32),
    ]
)
def _uniform(shape: Tensor, seed: Tensor, limit: Tensor) -> Tensor:
    return tf.random.stateless_uniform(shape, seed, -limit, limit)


@_keras.register
class AboutUnitRows(_registry.Configured, keras.initializers.Initializer):
    """Rows of length 1 or just less: uniform numbers with a variance of 1 / width."""

    def __init__(self, seed: int):
        self.seed = seed

    def __call__(self, shape: Any, dtype: Any = None, **kwargs: Any) -> Tensor:
        del kwargs  # Keras 2 passes more.
        values = _uniform(list(shape), [self.seed, 1], math.sqrt(3 / shape[-1]))
        return tf.ensure_shape(tf.cast(values, dtype or tf.float32), shape)


# Rows that `export_embeddings` computes and writes at once.
_ROWS_WRITTEN_AT_ONCE = 65_536

# With at most so many negatives for each mined one, the gradient of the product of all
# encodings and negatives costs less than gathering rows for each example. For 128
# examples of 64 numbers, a step takes .83 of the time with 64 of 1,024 negatives for
# each mined one, 1.16 with all 1,024, and 1.49 with 5 mined of 16,384.
_NEGATIVES_PER_MINED = 64


class _Positive(NamedTuple):
    """The class of each example that a call scores."""

    ids: Tensor  # `[batch, 1]`; class 0 where an example has none.
    exists: Tensor  # `[batch, 1]` booleans.


def _drawn_positive(own_ids: Tensor, seed: Tensor) -> _Positive:
    """One of an example's classes `[batch, P]`, padded with -1, drawn uniformly."""
    exists = tf.reduce_any(own_ids >= 0, axis=1, keepdims=True)
    if own_ids.shape[1] == 1:
        return _Positive(tf.maximum(own_ids, 0), exists)

    draws = ops.uniform(tf.shape(own_ids), _random.replica_seed(seed, stream=1))
    draws = tf.where(own_ids >= 0, draws, -1.0)
    column = tf.argmax(draws, axis=1)[:, tf.newaxis]
    ids = tf.gather(own_ids, column, batch_dims=1)
    return _Positive(tf.maximum(ids, 0), exists)


class _Negatives(NamedTuple):
    """The classes that a call scores for all examples; some may be an example's own."""

    ids: Tensor  # `[m]`.
    # `[batch, P]`, the columns of `ids` in which an example's own classes may be.
    own_columns: Tensor
    penalties: Tensor  # `[batch, P]`, -inf where one is there, 0 elsewhere.

    def without_own(self, scores: Tensor) -> Tensor:
        """Scores `[batch, m]`, -inf for an example's own classes."""
        return search.add_columns(scores, self.own_columns, self.penalties)


def _nan_where(is_broken: Tensor, scores: Tensor) -> Tensor:
    """Scores `[batch, m]`, NaN for an example that is broken, `[batch]`."""
    return tf.where(is_broken[:, tf.newaxis], float("nan"), scores)


@_registry.register("head")
class SampledScores(Head):
    r"""Dot products with embeddings of very many classes; training scores a sample.

    $$s_i = \frac{h}{\|h\|} \cdot \frac{c_i}{\|c_i\|}$$

    Called with only encodings, it scores all classes, as any head does. Called with
    class ids too, it scores one class of each example and negatives. Each call in
    training draws `num_sampled` classes uniformly without replacement as negatives, the
    same for the whole batch on all devices, and leaves out an example's own classes.
    With `num_mined`, at most B, only the highest-scoring negatives get gradients, so
    the cost of the backward pass and of the table update depends only on `num_mined`,
    unless the sample is not much larger.

    Source: Reddi et al. 2019, "Stochastic Negative Mining for Learning with Large
    Output Spaces", algorithm 1 and section 5.

    Args:
        classes: the number of classes K, >= 1, or a layer of classes as wide as the
            encodings.
        num_sampled: B, >= 1; None, or with a warning B >= K - 1, means all classes.
        normalize: whether encodings and class embeddings are scaled to length 1.
        seed: an int; None draws one from NumPy's global generator.
        **kwargs: Keras's. Mixed precision rounds what is multiplied; scores are
            float32.

    Input: `[batch, d]`, and class ids `[batch]`, `[batch, 1]` or `[batch, P]` padded
    with -1. If an example has several, each call draws one of them uniformly; none of
    them is a negative. An id that does not exist raises `ValueError`; under XLA, the
    scores of its example are NaN instead.

    Output: `[batch, K]`, or with class ids `[batch, 1 + m]`: the score of the class,
    then of the negatives, from high to low if they are mined. Places without a class
    have -inf.

    Example:
        >>> layer = SampledScores(1_000_000, num_sampled=100)
        >>> encodings = tf.ones([2, 8])
        >>> layer(encodings, class_ids=[7, 8], num_mined=5).shape
        TensorShape([2, 6])
        >>> layer.top_k(encodings, k=3)[1].shape
        TensorShape([2, 3])
    """

    def __init__(
        self,
        classes: Any,
        num_sampled: int | None = None,
        normalize: bool = True,
        seed: int | None = None,
        **kwargs: Any,
    ):
        start_seed = _random.start_seed(seed)
        if not isinstance(classes, keras.layers.Layer | dict):
            classes = ClassTable(
                classes, initializer=AboutUnitRows(start_seed), dtype="float32"
            )
        interaction = CosineInteraction(1.0) if normalize else DotProductInteraction()
        super().__init__(classes, interaction, **kwargs)
        self.num_sampled = _checks.positive_int_or_none("num_sampled", num_sampled)
        if num_sampled is not None and num_sampled >= self.num_classes - 1:
            rule = (
                "`num_sampled` is at least num_classes - 1, so all classes are scored."
            )
            received = f"num_sampled={num_sampled}, num_classes={self.num_classes}"
            warnings.warn(f"{rule} Received: {received}.", stacklevel=2)
        self.normalize = _checks.flag("normalize", normalize)
        self.seed = start_seed
        self._class_scores = ClassScores(self.classes, normalize, self.compute_dtype)

    @property
    def num_negatives(self) -> int:
        """How many classes a call with class ids scores besides the example's own."""
        if self.num_sampled is None or self.num_sampled >= self.num_classes - 1:
            return self.num_classes
        return self.num_sampled

    def with_classes(self, classes: Any) -> "SampledScores":
        return SampledScores(
            classes,
            num_sampled=self.num_sampled,
            normalize=self.normalize,
            seed=self.seed,
            dtype=self.dtype_policy,
        )

    def build(self, input_shape: Any) -> None:
        super().build(input_shape)
        self.random_state = _random.add_state(self, self.seed)

    def call(
        self,
        inputs: Tensor,
        class_ids: Array | None = None,
        num_mined: int | None = None,
        training: bool | None = None,
    ) -> Tensor:
        """Scores all classes or the examples' and negatives', all or the highest."""

        def score(inputs: Tensor, class_ids: Array | None = None) -> Tensor:
            encodings = self._class_scores.scaled(inputs)
            if class_ids is None:
                return self._class_scores(encodings, tf.range(self.num_classes))[0]
            return self._sampled(
                encodings, class_ids, self._checked_num_mined(num_mined), training
            )

        return at_positions(score, inputs, class_ids)

    def compute_output_spec(
        self,
        inputs: Any,
        class_ids: Any = None,
        num_mined: Any = None,
        training: Any = None,
    ) -> Any:
        """Returns what Keras 3 expects of a call."""
        width = self.num_classes
        if class_ids is not None:
            width = 1 + (self._checked_num_mined(num_mined) or self.num_negatives)
        return keras.KerasTensor((*inputs.shape[:-1], width), "float32")

    def _checked_num_mined(self, num_mined: Any) -> int | None:
        if num_mined is not None:
            rule = "`num_mined` must not exceed the number of negatives."
            sizes = f"num_sampled={self.num_sampled}, num_classes={self.num_classes}"
            is_right = (
                _checks.positive_int("num_mined", num_mined) <= self.num_negatives
            )
            _checks.require(is_right, rule, f"num_mined={num_mined}, {sizes}")
        return num_mined

    def _sampled(
        self,
        encodings: Tensor,
        class_ids: Array,
        num_mined: int | None,
        training: bool | None,
    ) -> Tensor:
        """Scores of a class of each example, then of negatives, `[batch, 1 + m]`."""
        # An id outside [0, K) makes `zero` NaN where it cannot raise.
        zero = tf.zeros_like(encodings[:, :1])
        own_ids, zero = _labels.padded_ids(
            class_ids, self.num_classes, zero, "class_ids"
        )
        own_ids = _labels.distinct_ids(own_ids)
        seed = _random.step_seed(self.random_state, training)

        positive = _drawn_positive(own_ids, seed)
        negatives = self._negatives(own_ids, seed)
        if num_mined is None or num_mined * _NEGATIVES_PER_MINED >= self.num_negatives:
            scores = self._all_scored(encodings, positive, negatives, num_mined)
        else:
            scores = self._mined_scored(encodings, positive, negatives, num_mined)
        return _nan_where(has_nan(zero), scores)

    def _negatives(self, own_ids: Tensor, seed: Tensor) -> _Negatives:
        """The classes that a call scores for all examples."""
        # We find the few columns of an example's own classes by binary search, and make
        # no mask `[batch, m]`.
        if self.num_negatives == self.num_classes:
            ids = tf.range(self.num_classes)
            columns = own_ids
        else:
            subsets = ops.sample_distinct(self.num_classes, self.num_negatives, seed)
            ids = subsets[0]
            order = tf.argsort(ids)
            places = search.places_in(tf.gather(ids, order), own_ids)
            columns = tf.gather(order, tf.minimum(places, self.num_negatives - 1))

        columns = tf.maximum(columns, 0)
        is_own = tf.gather(ids, columns) == own_ids
        return _Negatives(ids, columns, tf.where(is_own, -float("inf"), 0.0))

    def _all_scored(
        self,
        encodings: Tensor,
        positive: _Positive,
        negatives: _Negatives,
        num_mined: int | None,
    ) -> Tensor:
        """All negatives get gradients, by one product; returns all, or the highest."""
        positive_scores, scores = self._class_scores(
            encodings, positive.ids, negatives.ids
        )
        positive_scores = tf.where(positive.exists, positive_scores, -float("inf"))
        scores = negatives.without_own(scores)
        if num_mined is None:
            return tf.concat([positive_scores, scores], axis=1)

        highest, columns = search.top_k(tf.stop_gradient(scores), num_mined)
        # In a list with fewer negatives the search may return the positive.
        mined_scores = gather(scores, columns)
        mined_scores = tf.where(highest > -float("inf"), mined_scores, -float("inf"))
        found = tf.concat([positive_scores, mined_scores], axis=1)
        return _nan_where(has_nan(scores), found)  # A search may miss a NaN.

    def _mined_scored(
        self,
        encodings: Tensor,
        positive: _Positive,
        negatives: _Negatives,
        num_mined: int,
    ) -> Tensor:
        """Only the highest negatives get gradients: Reddi et al., algorithm 1."""
        # A search without gradients, then the scores of what it returns.
        search_scores = self._class_scores.without_gradient(
            tf.stop_gradient(encodings), negatives.ids
        )
        search_scores = negatives.without_own(search_scores)
        highest, columns = search.top_k(search_scores, num_mined)

        mined_ids = tf.gather(negatives.ids, columns)
        ids = tf.concat([positive.ids, mined_ids], axis=1)
        (scores,) = self._class_scores(encodings, ids)
        exists = tf.concat([positive.exists, highest > -float("inf")], axis=1)
        scores = tf.where(exists, scores, -float("inf"))
        return _nan_where(has_nan(search_scores), scores)  # A search may miss a NaN.

    def top_k(
        self, encodings: Array, k: int | Tensor, exclude: Array | None = None
    ) -> TensorPair:
        """Finds the k classes with the highest scores, in blocks of classes.

        Args:
            encodings: `[batch, d]`.
            k: in [1, K], an int or a scalar tensor.
            exclude: None, or classes whose score is -inf, `[batch, E]` padded with -1.

        Returns:
            Scores and class ids, both `[batch, k]`, the best first; -inf and -1 where
            fewer than k classes are left, and for an encoding of zeros, which says
            nothing unless classes have biases. Classes whose scores differ only by
            rounding may come in any order.
        """
        static_k = tf.get_static_value(k)
        is_right = (
            isinstance(static_k, int | np.integer) and 1 <= static_k <= self.num_classes
        )
        rule = f"`k` must be in [1, {self.num_classes}]."
        _checks.require(static_k is None or bool(is_right), rule, f"k={k}")
        class_scores = self._built_scores()

        def best(rows: Tensor, exclude: Array | None = None) -> TensorPair:
            scores, ids = class_scores.top_k(rows, k, exclude)
            if self._has_biases():
                return scores, ids
            is_zero = tf.reduce_all(tf.equal(rows, 0), axis=1, keepdims=True)
            return tf.where(is_zero, -float("inf"), scores), ids

        scores, ids = at_positions(best, encodings, exclude=exclude)
        return scores, tf.where(scores == -float("inf"), -1, ids)

    def ranks(
        self, encodings: Array, class_ids: Array, exclude: Array | None = None
    ) -> TensorPair:
        r"""Counts the classes above and tied with the class ids, in blocks of classes.

        Args:
            encodings: `[batch, d]`.
            class_ids: `[batch]`, `[batch, 1]` or `[batch, P]`, padded with -1.
            exclude: None, or other classes to leave out, `[batch, E]` padded with -1.

        Returns:
            Two int32 tensors `[batch, P]`: how many classes score higher, and how many
            the same, itself included. Scores are the same up to what float32 may round
            in any order of the sum, about $n \|h\| \|c\| 2^{-23}$ for rows of $n$
            numbers, one and a half times as much with `normalize`. So identical rows
            tie on every processor. An id, also of `exclude`, that is neither in [0, K)
            nor -1 raises; where XLA compiles, both numbers of its example are -1.
        """
        return at_positions(self._built_scores().ranks, encodings, class_ids, exclude)

    def export_embeddings(self, path: PathLike) -> None:
        """Writes the class embeddings `[K, d]` to a NumPy file, block by block.

        Args:
            path: the file, which `np.load(path, mmap_mode="r")` reads without loading
                all. Its rows are float32, of length 1 if `normalize` is True, so inner
                products with them rank as the layer does. It appears once complete; an
                `OSError` leaves an older file as is.
        """
        classes = self._built_scores().classes
        class_scores = ClassScores(classes, self.normalize)  # Not rounded.
        if self._has_biases():
            raise ValueError(
                "`classes` must have no biases, which inner products would leave out."
            )
        size = classes.num_classes
        with _files.appending_rows(path, (classes.width,)) as append:
            for start in range(0, size, _ROWS_WRITTEN_AT_ONCE):
                ids = tf.range(start, min(start + _ROWS_WRITTEN_AT_ONCE, size))
                append(class_scores.scaled(classes.rows(ids)))

    def _has_biases(self) -> bool:
        return self.classes.biases(tf.constant([0])) is not None

    def _built_scores(self) -> ClassScores:
        if not self.built:
            rule = (
                f"`{self.name}` must be built, by a call or by `build((None, width))`"
            )
            raise ValueError(f"{rule}, before its classes are ranked or exported.")
        return self._class_scores
