"""SampledScores."""

import warnings
from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _random, _registry
from rank4class_tf._lists import labels as _labels
from rank4class_tf._tf import top as _top
from rank4class_tf._tf.gather import gather
from rank4class_tf._tf.nan import has_nan
from rank4class_tf._tf.where import where
from rank4class_tf._types import TensorLike
from rank4class_tf.layers import _mining, _retrieval, _sampling
from rank4class_tf.layers._class_scores import ClassScores
from rank4class_tf.layers._initializers import AboutUnitRows
from rank4class_tf.layers.classes import Classes, ClassTable
from rank4class_tf.layers.heads import Head
from rank4class_tf.layers.interactions import CosineInteraction, DotProductInteraction

# With at most so many shared negatives for each mined one, the gradient of the product of all
# encodings and all negatives costs less than rows that are gathered for each example.
_NEGATIVES_PER_MINED = 64


@_registry.register("head")
class SampledScores(Head):
    r"""Dot products with the embeddings of very many classes; a training step scores only a sample.

    $$s_i = \frac{h}{\|h\|} \cdot \frac{c_i}{\|c_i\|}$$

    Called with only encodings, it scores all classes, as any head does. Called with encodings and
    class ids, it scores one class of each example and negatives. Each call in training draws
    `num_sampled` classes uniformly without replacement as negatives, and leaves out those of the
    example. With `num_mined`, a call finds the highest-scoring negatives without gradients and
    scores only these again with gradients, so the cost of the backward pass and of the table update
    depends only on `num_mined`. If the shared sample is not much larger than `num_mined`, computing
    the gradient of all scores is cheaper and is done instead.

    Source: Reddi et al. 2019, "Stochastic Negative Mining for Learning with Large Output Spaces",
    algorithm 1 and section 5.

    Args:
        classes: the number of classes K, >= 1, for a `ClassTable`, or a layer of classes as wide
            as the encodings.
        num_sampled: number of sampled classes B, >= 1. None means all classes. So does B >= K - 1,
            with a warning.
        normalize: whether encodings and class embeddings are scaled to length 1.
        shared_negatives: whether one sample serves the whole batch, on all devices. Otherwise each
            example has its own, and memory is O(batch B d).
        seed: an int; None draws one from NumPy's global generator.
        **kwargs: arguments of Keras, such as `name`. The dtype is float32 unless it is given, also
            under mixed precision.

    Input: `[batch, d]`, and class ids `[batch]`, `[batch, 1]` or `[batch, P]` padded with -1. If an
    example has several, each call draws one of them uniformly; none of them is a negative.

    Output: `[batch, K]`, or with class ids `[batch, 1 + m]`: the score of the class, then of the
    negatives, from high to low if they are mined. Places without a class have -inf.

    Raises:
        ValueError: if a number is out of range, a class id does not exist (under XLA, the scores
            of the example are NaN instead), or `num_mined` exceeds the number of negatives.

    Example:
        >>> layer = SampledScores(1_000_000, num_sampled=100)
        >>> encodings = tf.ones([2, 8])
        >>> layer(encodings, class_ids=[7, 8], num_mined=5).shape
        TensorShape([2, 6])
        >>> scores, class_ids = layer.top_k(encodings, k=3)
        >>> class_ids.shape
        TensorShape([2, 3])
    """

    def __init__(
        self,
        classes: Any,
        num_sampled: int | None = None,
        normalize: bool = True,
        shared_negatives: bool = True,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        own_seed = _random.start_seed(seed)
        if not isinstance(classes, (Classes, dict)):
            initializer = AboutUnitRows(own_seed)
            classes = ClassTable(classes, initializer=initializer, dtype="float32")
        interaction = CosineInteraction(1.0) if normalize else DotProductInteraction()
        # Mixed precision would round the encodings and so mine other negatives.
        super().__init__(classes, interaction, **{"dtype": "float32", **kwargs})
        if num_sampled is not None:
            num_sampled = _checks.positive_int("num_sampled", num_sampled)
            if num_sampled >= self.num_classes - 1:
                warnings.warn(
                    "`num_sampled` is at least num_classes - 1, so all classes are scored. "
                    f"Received: num_sampled={num_sampled}, num_classes={self.num_classes}.",
                    stacklevel=2,
                )
        self.num_sampled = num_sampled
        self.normalize = _checks.flag("normalize", normalize)
        self.shared_negatives = _checks.flag("shared_negatives", shared_negatives)
        self.seed = own_seed
        self._scores_of = ClassScores(self.classes, normalize)

    @property
    def num_negatives(self) -> int:
        """How many classes a call with class ids scores in addition to the example's own."""
        if self.num_sampled is None or self.num_sampled >= self.num_classes - 1:
            return self.num_classes
        return self.num_sampled

    def _build_head(self, width: int) -> None:
        """Creates the random state, and checks the width of the classes."""
        super()._build_head(width)
        self.random_state = _random.add_state(self, self.seed)

    def call(
        self, inputs: Any, class_ids: Any = None, num_mined: int | None = None, training: Any = None
    ) -> tf.Tensor:
        """Scores all classes, or those of the examples and negatives.

        Args:
            inputs: encodings `[batch, d]`.
            class_ids: None, or the classes of each example.
            num_mined: None for all negatives, or how many of the highest, <= B.
            training: whether the next call draws different classes.
        """
        encodings = self._scores_of.scaled(inputs)
        if class_ids is None:
            return self._scores_of(encodings, tf.range(self.num_classes))
        return self._sampled(encodings, class_ids, self._checked(num_mined), training)

    def compute_output_spec(
        self, inputs: Any, class_ids: Any = None, num_mined: int | None = None, training: Any = None
    ) -> Any:
        """Returns what Keras 3 expects of a call: `[batch, K]` or `[batch, 1 + m]`."""
        del training
        width = self.num_classes
        if class_ids is not None:
            width = 1 + (self._checked(num_mined) or self.num_negatives)
        return keras.KerasTensor((inputs.shape[0], width), "float32")

    def _checked(self, num_mined):
        if num_mined is not None and _checks.positive_int("num_mined", num_mined) > (
            self.num_negatives
        ):
            raise ValueError(
                "`num_mined` must not exceed the number of negatives. Received: "
                f"num_mined={num_mined}, num_sampled={self.num_sampled}, "
                f"num_classes={self.num_classes}."
            )
        return num_mined

    def _sampled(self, encodings, class_ids, num_mined, training):
        scores_of, num_classes = self._scores_of, self.num_classes
        positives, invalid = _labels.padded_ids(class_ids, num_classes, encodings, "class_ids")
        positives = _labels.distinct_ids(positives)
        has_positive = tf.reduce_any(positives >= 0, axis=1, keepdims=True)
        seed = _random.step_seed(self.random_state, training)
        own = _sampling.draw_own(positives, seed)
        batch = None if self.shared_negatives else tf.shape(positives)[0]
        negatives = _sampling.draw_negatives(num_classes, self.num_negatives, batch, seed)

        shared = negatives.shape.rank == 1
        per_mined = _NEGATIVES_PER_MINED if shared else 1
        if num_mined is None or num_mined * per_mined >= self.num_negatives:
            negatives, penalized = _mining.penalties(negatives, positives, num_classes)
            of_own, scores = scores_of.of_step(encodings, own[:, tf.newaxis], negatives)
            scores = penalized(scores)
            if num_mined is not None:
                # A search may miss a NaN.
                invalid |= has_nan(scores)
                highest, index = _top.top_k(tf.stop_gradient(scores), num_mined)
                # In a list with fewer negatives the search may return the positive.
                scores = where(highest > -float("inf"), gather(scores, index), -float("inf"))
            of_own = where(has_positive, of_own, -float("inf"))
            scores = tf.concat([of_own, scores], axis=1)
        else:
            highest, mined, broken = _mining.mine(
                scores_of, encodings, negatives, positives, num_classes, num_mined
            )
            invalid |= broken
            scores = scores_of(encodings, tf.concat([own[:, tf.newaxis], mined], axis=1))
            there = tf.concat([has_positive, highest > -float("inf")], axis=1)
            scores = where(there, scores, -float("inf"))
        return where(~invalid, scores, float("nan"))

    def top_k(
        self, encodings: Any, k: Any, exclude: TensorLike | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Finds the k classes with the highest scores, in blocks of classes.

        Args:
            encodings: `[batch, d]`.
            k: in [1, K], an int or a scalar tensor.
            exclude: None, or classes to leave out, `[batch, E]` padded with -1: their score is
                -inf.

        Returns:
            Scores and class ids, both `[batch, k]`, the best first.
        """
        return _retrieval.top_k(self._built_scores(), encodings, k, exclude)

    def ranks(
        self, encodings: Any, class_ids: Any, exclude: TensorLike | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Counts the classes above and the classes tied with given ones, in blocks of classes.

        Args:
            encodings: `[batch, d]`.
            class_ids: `[batch]`, `[batch, 1]` or `[batch, P]`, padded with -1.
            exclude: None, or other classes to leave out, `[batch, E]` padded with -1.

        Returns:
            Two int32 tensors `[batch, P]`: how many classes score higher, and how many score the
            same, including the class itself. Without ties, the rank is 1 + the first number.
        """
        return _retrieval.ranks(self._built_scores(), encodings, class_ids, exclude)

    def export_embeddings(self, path: Any) -> None:
        """Writes the class embeddings `[K, d]` to a NumPy file, block by block.

        Args:
            path: the file, for `np.load(path, mmap_mode="r")`. Its rows are float32, and have
                length 1 if `normalize` is True: inner products with them rank as the layer does.
                The file appears under its name only once it is complete.

        Raises:
            OSError: if it cannot be written, as on a full disk; an existing file of that name stays
                unchanged.
            ValueError: if the classes have biases, or the layer is not built.
        """
        _retrieval.export_rows(self._built_scores(), path)

    def _built_scores(self):
        if not self.built:
            raise ValueError(
                f"`{self.name}` must be built, by a call or by `build((None, width))`, before its "
                "classes are ranked or exported."
            )
        return self._scores_of

    def get_config(self) -> dict:
        """Returns the constructor arguments."""
        return {
            **super().get_config(),
            "num_sampled": self.num_sampled,
            "normalize": self.normalize,
            "shared_negatives": self.shared_negatives,
            "seed": self.seed,
        }
