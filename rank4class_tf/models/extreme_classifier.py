"""ExtremeClassifier."""

import os
import warnings
from collections.abc import Sequence
from typing import Any, Self

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _export, _keras
from rank4class_tf._lists import labels as _labels
from rank4class_tf._tf.raising import check
from rank4class_tf._types import TensorLike
from rank4class_tf.layers import Classes, SampledScores
from rank4class_tf.losses import RankingLoss
from rank4class_tf.metrics import RankingMetric
from rank4class_tf.models._losses import check_loss
from rank4class_tf.optimizers import Rowwise

# So many classes that tie at a cutoff are told apart.
_TIES = 10

# Options of SGD with which it writes to rows that a step has not seen, or reads a row's gradient
# before its parts are summed.
_NOT_PLAIN = (
    *("momentum", "weight_decay", "use_ema", "gradient_accumulation_steps"),
    *("clipnorm", "global_clipnorm", "clipvalue"),
)


@_keras.register
class ExtremeClassifier(keras.Model):
    r"""A classifier for thousands to millions of classes, at the step cost of some of them.

    A step scores a class of each example and `num_sampled` classes drawn at random, and applies the
    loss to these scores; any loss of `rank4class_tf.losses` will do. For an `OrderedWeightedLoss`
    the model mines: it finds the sampled classes whose weight is not 0 without gradients, and
    scores these alone with gradients. So

    - `OrderedWeightedLoss("binary", "hinge", TopKWeights(k))` is Top-k stochastic negative mining,
    - `OrderedWeightedLoss("binary", "hinge", TopKWeights(num_sampled))` is plain negative sampling,
    - `SoftmaxLoss(temperature)` is sampled softmax: of uniform samples, a correction by the log of
      their probability is the same for all classes and changes nothing.

    `evaluate` ranks all classes, in blocks. The loss it reports is that of one fixed sample.
    The model itself maps features to encodings, for `predict`; `top_k` maps them to classes.

    Source: Reddi et al. 2019, "Stochastic Negative Mining for Learning with Large Output Spaces",
    algorithm 1 and section 5.

    Args:
        encoder: a layer or model, features -> encodings `[batch, embedding_dim]`.
        classes: the number of classes K, >= 1, for a `ClassTable`, or a layer of classes of that
            width, such as `EncodedClasses`.
        embedding_dim: width of the encodings and of the class embeddings, >= 1.
        num_sampled: number of sampled classes B. None means all, for a small K. B >= K - 1 means
            all too, and warns.
        normalize: whether encodings and class embeddings are scaled to length 1.
        shared_negatives: whether one sample serves the whole batch.
        seed: an int; None draws one from NumPy's global generator.
        **kwargs: Keras's own, such as `name`.

    Compile it with an optimizer of `rank4class_tf.optimizers`; others write to the whole table, or
    take wrong steps, and warn. Metrics need a cutoff. Fit it on `(features, class_ids)`, with ids
    `[batch]`, `[batch, 1]`, or `[batch, P]` padded with -1: then each step draws one of the P.

    Raises:
        ValueError: if a number is out of range, or if the loss weighs more than B negatives. From
            `compile`, if the loss or a metric is not of this package, or a metric has no cutoff.

    Example:
        >>> model = ExtremeClassifier(
        ...     keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(8)]),
        ...     classes=1000, embedding_dim=8, num_sampled=100,
        ... )
        >>> scores, class_ids = model.top_k(tf.ones([2, 4]), k=5)
        >>> class_ids.shape
        TensorShape([2, 5])
    """

    def __init__(
        self,
        encoder: Any,
        classes: Any,
        embedding_dim: int,
        num_sampled: int | None = 1024,
        normalize: bool = True,
        shared_negatives: bool = True,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.encoder = _keras.checked_layer("encoder", encoder)
        self.embedding_dim = _checks.positive_int("embedding_dim", embedding_dim)
        self.scores = SampledScores(
            classes, num_sampled, normalize, shared_negatives, seed, name="scores"
        )
        self.scores.build((None, embedding_dim))
        self._evaluating = False
        inputs = _keras.symbolic_inputs(encoder)
        if inputs is None:
            self.built = encoder.built
        else:
            self(inputs)  # Keras 3 exports what was called.

    @property
    def classes(self) -> Classes:
        """The layer of classes."""
        return self.scores.classes

    def compile(self, optimizer: Any = "rmsprop", loss: Any = None, **kwargs: Any) -> None:
        """Configures the model for training, as Keras does.

        Args:
            optimizer: one of `rank4class_tf.optimizers`.
            loss: a loss of `rank4class_tf.losses` without `class_weight`.
            **kwargs: Keras's own. `metrics` and `weighted_metrics` hold metrics of
                `rank4class_tf.metrics` with a cutoff.

        Raises:
            ValueError: if the loss or a metric is another: Keras's would read places in the sample
                for classes.
        """
        if loss is not None:
            check_loss(loss, "a sample of the classes")
        for name in ("metrics", "weighted_metrics"):
            _check_metrics(name, kwargs.get(name))
        super().compile(optimizer, loss, **kwargs)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compiles a model that is loaded, as Keras does where `compile` is its own."""
        self.compile(**_keras.deserialized(config))
        _keras.build_optimizer(self)

    def fit(
        self, x: Any = None, y: Any = None, *args: Any, class_weight: Any = None, **kwargs: Any
    ) -> Any:
        """Trains as Keras does.

        Raises:
            ValueError: if there is a `class_weight` and examples may have several classes: Keras
                takes such labels for one-hot ones, and their places for classes.
        """
        if class_weight is not None:
            batch = getattr(x, "element_spec", None)  # Of a dataset.
            labels = batch[1] if y is None and isinstance(batch, tuple) and batch[1:] else y
            shape = tf.TensorShape(getattr(labels, "shape", None))
            if shape.rank != 1 and shape[1:] != [1]:
                raise ValueError(
                    "`class_weight` must come with class ids [batch] or [batch, 1]: Keras weighs "
                    "others by their places. Give examples a `sample_weight`. "
                    f"Received: labels of shape {shape}."
                )
            kwargs["class_weight"] = class_weight
        _keras.build_optimizer(self)
        return super().fit(x, y, *args, **kwargs)

    def call(self, inputs: Any, training: bool | None = None) -> tf.Tensor:
        """Maps features to encodings `[batch, embedding_dim]`."""
        encodings = self.encoder(inputs, training=training)
        if encodings.shape[-1] not in (None, self.embedding_dim):
            raise ValueError(
                f"`encoder` must give encodings of embedding_dim={self.embedding_dim} numbers. "
                f"Received: encodings of shape {encodings.shape}."
            )
        return encodings

    def top_k(self, features: Any, k: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Finds the k classes with the highest scores, in blocks of classes.

        Args:
            features: a batch of what the encoder takes.
            k: in [1, K], an int or a scalar tensor.

        Returns:
            Scores and class ids, both `[batch, k]`, the best first.
        """
        return self.scores.top_k(self(features, training=False), k)

    def ranks(self, features: Any, class_ids: TensorLike) -> tuple[tf.Tensor, tf.Tensor]:
        """Counts the classes above and the classes tied with given ones, in blocks of classes.

        Args:
            features: a batch of what the encoder takes.
            class_ids: `[batch]`, `[batch, 1]` or `[batch, P]`, padded with -1.

        Returns:
            Two int32 tensors `[batch, P]`: how many classes score higher, and how many the same,
            the class itself counted. The rank is 1 + the first where there is no tie.
        """
        return self.scores.ranks(self(features, training=False), class_ids)

    def export_top_k(
        self,
        path: str | os.PathLike[str],
        features_spec: Any,
        k: int | None = None,
        class_names: Sequence[str] | None = None,
    ) -> None:
        """Writes a SavedModel that finds the k classes with the highest scores.

        It runs without this package, as in TensorFlow Serving, and has the signatures

        - `top_k(features, k) -> scores, class_ids`, which fails unless k is in [1, K],
        - `serving_default(features)`, the same for the `k` given here.

        Args:
            path: a folder. A SavedModel that is there is replaced when the new one is whole.
            features_spec: a `tf.TensorSpec` or `tf.SparseTensorSpec` of the features.
            k: in [1, K]; None means 10, or K if that is less.
            class_names: None, or the name of each class: both signatures give `class_names` then.

        Raises:
            ValueError: if `k` is out of range, or there are more or fewer names than classes.
        """
        if not self.built:
            tf.function(self).get_concrete_function(features_spec)

        def best(features, k):
            scores, class_ids = self.top_k(features, k)
            return {"scores": scores, "class_ids": class_ids}

        num_classes = self.classes.num_classes
        _export.write_top_k(path, self, best, features_spec, num_classes, k, class_names)

    def export_classes(self, path: str | os.PathLike) -> None:
        """Writes the class embeddings `[K, embedding_dim]` to a NumPy file, for approximate search.

        The classes with the highest inner products with the encoding that `predict` gives are
        those of `top_k`. `examples/approximate_search.py` hands them to ScaNN.

        Args:
            path: the file, for `np.load(path, mmap_mode="r")`. It gets its name when it is whole.

        Raises:
            OSError: if it cannot be written, as on a full disk; a file of that name stays then.
        """
        self.scores.export_embeddings(path)

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: TensorLike | None = None,
        training: bool | None = None,
    ) -> tf.Tensor:
        """Applies the compiled loss to the scores of a class of each example and negatives."""
        y = _keras.given_labels(y)
        training = not self._evaluating if training is None else training
        if training:
            self._check_optimizer()
        y = _class_ids(y, self.classes.num_classes)
        num_mined = self.loss.num_mined if isinstance(self.loss, RankingLoss) else None
        scores = self.scores(y_pred, class_ids=y, num_mined=num_mined, training=training)
        # The class stands first, unless the example has none.
        labels = tf.where(tf.math.is_inf(scores[:, 0]), -1, 0)
        return super().compute_loss(x, labels, scores, sample_weight)

    # Which step Keras traces. The replicas of a strategy trace one in turns, so that none may reset
    # at its end what the others still read.

    def train_step(self, data: Any) -> dict[str, Any]:
        """Trains on a batch."""
        self._evaluating = False
        return super().train_step(data)

    def test_step(self, data: Any) -> dict[str, Any]:
        """Evaluates a batch over all classes."""
        self._evaluating = True
        return super().test_step(data)

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: TensorLike | None = None
    ) -> dict[str, Any]:
        """In evaluation, updates the metrics; in training the loss is all there is."""
        y = _keras.given_labels(y)
        metrics = _keras.compiled_metrics(self, y, y_pred)
        if not self._evaluating or not metrics:
            return {"loss": next(m for m in self.metrics if m.name == "loss").result()}
        labels, scores = self._shortlist(y_pred, y, metrics)
        # Shapes need not tell: there are no other labels here.
        formats = [metric.label_format for metric in metrics]
        try:
            for metric in metrics:
                metric.label_format = "ids"
            return super().compute_metrics(x, labels, scores, sample_weight)
        finally:
            for metric, label_format in zip(metrics, formats, strict=True):
                metric.label_format = label_format

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments."""
        config = self.scores.get_config()
        names = ("classes", "num_sampled", "normalize", "shared_negatives", "seed")
        return {
            "name": self.name,
            "trainable": self.trainable,
            "encoder": keras.utils.serialize_keras_object(self.encoder),
            "embedding_dim": self.embedding_dim,
            **{name: config[name] for name in names},
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> Self:
        """Builds the model that `get_config` describes."""
        encoder = _keras.deserialized(config["encoder"], custom_objects=custom_objects)
        return cls(**{**config, "encoder": encoder})

    def _check_optimizer(self):
        # Keras's loss scaling in mixed precision is around the optimizer.
        optimizer = getattr(self.optimizer, "inner_optimizer", self.optimizer)
        plain = isinstance(optimizer, keras.optimizers.SGD)
        plain = plain and not any(getattr(optimizer, option, None) for option in _NOT_PLAIN)
        if not plain and not isinstance(optimizer, Rowwise):
            warnings.warn(
                "`optimizer` should be one of rank4class_tf.optimizers: others write to the whole "
                f"table of classes or take wrong steps. Received: {type(optimizer).__name__}.",
                stacklevel=2,
            )

    def _shortlist(self, encodings, class_ids, metrics):
        """Labels and scores of short lists on which the metrics are those of all classes.

        A list has the classes of the example and then the highest others. It has enough others to
        tell the ranks up to the highest cutoff, and some to tell ties there.
        """
        cutoffs = [k for metric in metrics for k in tf.nest.flatten(metric.k)]
        num_classes = self.classes.num_classes
        positives, invalid = _labels.padded_ids(class_ids, num_classes, encodings)
        positives = _labels.distinct_ids(positives)
        width = positives.shape[1]
        if width is None:
            k = tf.minimum(num_classes, max(cutoffs) + _TIES + tf.shape(positives)[1])
        else:
            k = min(num_classes, max(cutoffs) + _TIES + width)
        values, ids = self.scores.top_k(encodings, k)
        # The rank of `==` is not known where the shape is not.
        same = tf.equal(ids[:, tf.newaxis], positives[:, :, tf.newaxis])
        is_positive = tf.reduce_any(same, axis=1)
        own = tf.reduce_max(tf.where(same, values[:, tf.newaxis], -float("inf")), axis=2)

        # At the end of the list there are ties that it does not show. Were these taken for all
        # there are, a model that gives all classes one score would look better than chance.
        last = tf.reduce_min(tf.where(is_positive, float("inf"), values), axis=1, keepdims=True)
        beyond = (own <= last) & (tf.shape(values)[1] < num_classes)
        own = tf.where(beyond | (positives < 0), float("nan"), own)
        others = tf.where(is_positive, -float("inf"), values)
        scores = tf.concat([own, others], axis=1)
        labels = tf.where(positives >= 0, tf.range(tf.shape(positives)[1]), -1)
        # Ids that are none make the metrics NaN.
        return tf.where(invalid[:, tf.newaxis], -2, labels), scores


def _check_metrics(argument, metrics):
    """Raises unless all metrics are of this package and have cutoffs."""
    for metric in tf.nest.flatten(metrics):
        if metric is not None and not isinstance(metric, RankingMetric):
            raise ValueError(
                f"`{argument}` must hold metrics of rank4class_tf.metrics, such as "
                "`PrecisionAtK(1)`: no other knows the classes that are ranked. "
                f"Received: {metric!r}."
            )
        if metric is not None and None in tf.nest.flatten(getattr(metric, "k", None)):
            raise ValueError(
                f"`{argument}` must hold metrics with a cutoff `k`. Received: {metric.name!r}."
            )


def _class_ids(labels, num_classes):
    """The labels, unless they look one-hot; ids with padding are of an integer dtype and fewer."""
    if isinstance(labels, tf.RaggedTensor):
        return labels
    labels = tf.convert_to_tensor(labels)
    if labels.shape.rank == 1:
        return labels
    rule = "`y` must hold class ids [batch], [batch, 1] or [batch, P], not labels of all classes"
    rows = _labels.in_rows(labels)
    width = rows.shape[1] or tf.shape(rows)[1]
    one_hot = width > 1 if labels.dtype.is_floating else (width == num_classes) & (width > 1)
    if one_hot is True:
        raise ValueError(f"{rule}. Received: {labels.dtype} of shape {labels.shape}.")
    if one_hot is False:
        return labels
    # Only running tells: Keras traced this for labels of several shapes.
    wrong = check(tf.fill(tf.shape(rows), one_hot), rows, rule)
    return tf.where(wrong[:, tf.newaxis], tf.cast(-2, rows.dtype), rows)
