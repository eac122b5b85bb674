"""What `ExtremeClassifier` and `TwoTower` share: how losses and ranks reach Keras.

Keras gives its losses and metrics scores. A model of very many items has no scores of
all of them. So a step computes the losses of its examples, which Keras only reduces,
and the metrics get ranks among all items.
"""

import contextvars
import enum
import inspect
from typing import Any, Self

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _keras, ops
from rank4class_tf._lists.batch import Batch
from rank4class_tf._lists.positions import Positions
from rank4class_tf._tf.memory import owned
from rank4class_tf._types import Array, Tensor
from rank4class_tf.losses import RankingLoss, WeightedSumLoss
from rank4class_tf.metrics import ExpectedCalibrationError, MacroAverage, RankingMetric
from rank4class_tf.models.multi_worker import MultiWorker


class Scored(enum.StrEnum):
    """What a step scores, which decides what losses a model takes."""

    # The values are words of error messages.
    ALL_CLASSES = "all classes in blocks"  # In the order of their ids.
    SOME_CLASSES = "a sample of the classes"
    CANDIDATES = "the candidates of a batch"  # Labels are no class ids.


# Whether Keras is tracing, or running, a step of evaluation. Keras does not tell
# `compute_metrics`, and Keras 2 does not tell `compute_loss` either, so `test_step`
# tells both. This is no attribute of the model, since each replica of a strategy traces
# in its own thread.
_is_test_step = contextvars.ContextVar("is_test_step", default=False)


class RetrievalModel(MultiWorker, keras.Model):
    """Base: a training step scores some of very many items; evaluation ranks all.

    A subclass says what it scores, its losses (`_losses_of_step`) and its ranks
    (`ranks_of_batch`).
    """

    _parts: tuple[str, ...]  # Names of the constructor's arguments that are layers.
    _metrics_in_training: bool = False  # Whether `fit` reports metrics, too.

    @property
    def _scored(self) -> Scored:
        raise NotImplementedError

    def compile(
        self, optimizer: Any = "rmsprop", loss: Any = None, **kwargs: Any
    ) -> None:
        """Configures the model for training, as Keras does.

        Args:
            optimizer: as in Keras.
            loss: a loss of `rank4class_tf.losses`; without `class_weight`,
                `class_prior` or `transition`, unless the model scores all classes in
                each step.
            **kwargs: other arguments of Keras's `compile`. `metrics` and
                `weighted_metrics` hold metrics of `rank4class_tf.metrics` that are
                means over examples.
        """
        if isinstance(loss, type) and issubclass(loss, RankingLoss):
            loss = loss()  # As Keras does.
        if loss is not None:
            self._check_loss(loss)

        ignored = getattr(loss, "ignore_class", None)
        for argument in ("metrics", "weighted_metrics"):
            for metric in tf.nest.flatten(kwargs.get(argument)):
                if metric is not None:
                    _check_metric(argument, metric, ignored)
        super().compile(optimizer, loss, **kwargs)

    @property
    def ignored_class(self) -> int | None:
        """The class that is padding, as the compiled loss has it."""
        loss = getattr(self, "loss", None)  # Keras 2 has none before `compile`.
        return getattr(loss, "ignore_class", None)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        # Keras calls this for a model that is loaded, since `compile` is overridden.
        self.compile(**_keras.deserialized(config))
        _keras.build_optimizer(self)

    def make_train_function(self, force: bool = False) -> Any:
        _keras.build_optimizer(self)
        return super().make_train_function(force)

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Array | None = None,
        training: bool | None = None,
    ) -> Tensor:
        if training is None:  # Of Keras 2.
            training = not _is_test_step.get()
        losses, weights = self._losses_of_step(
            x,
            y_pred,
            _keras.given_labels(y),
            _example_weights(sample_weight),
            training,
        )
        # Metrics of training read the weights that made the losses. Keras calls
        # `compute_metrics` only after the optimizer's step.
        if training and self._metrics_in_training:
            self._update_metrics(x, y, y_pred, sample_weight)

        # Keras passes these losses as labels and as scores to the loss, which only
        # reduces them.
        losses = _keras.as_losses(losses)
        return super().compute_loss(x, losses, losses, weights)

    def test_step(self, data: Any) -> dict[str, Any]:
        token = _is_test_step.set(True)
        try:
            return super().test_step(data)
        finally:
            _is_test_step.reset(token)

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Array | None = None
    ) -> dict:
        """Updates the metrics of evaluation; returns the results of a step.

        `compute_loss` has updated those of training.
        """
        metrics = _keras.compiled_metrics(self)  # Built, as Keras's report needs them.
        is_test_step = _is_test_step.get()
        if is_test_step:
            self._update_metrics(x, y, y_pred, sample_weight)
        is_reported = is_test_step or self._metrics_in_training
        if is_reported and metrics:
            return self.get_metrics_result()  # Also the loss.

        # The metrics that a subclass updates itself, and the loss.
        results: dict[str, Any] = {}
        for metric in _keras.metrics_not_compiled(self):
            result = metric.result()
            results |= result if isinstance(result, dict) else {metric.name: result}
        return results

    def _update_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Array | None
    ) -> None:
        metrics = _keras.compiled_metrics(self)
        if not metrics:
            return
        is_wide = any(tf.as_dtype(metric.dtype) == tf.float64 for metric, _ in metrics)
        dtype = tf.float64 if is_wide else tf.float32
        ranks, positions = self.ranks_of_batch(x, _keras.given_labels(y), y_pred, dtype)
        weights = _example_weights(sample_weight)
        weighted = Batch.of_ranks(ranks, weights, positions).list_weights
        unweighted = Batch.of_ranks(ranks, None, positions).list_weights
        for metric, is_weighted in metrics:
            metric.update_state(ranks, None, weighted if is_weighted else unweighted)

    def get_config(self) -> dict[str, Any]:
        serialized = keras.utils.serialize_keras_object
        # Keras marks a layer as shared when it meets it again, but only in the later
        # configuration. We serialize all layers twice, so that all shared ones are
        # marked the second time.
        for _ in range(2):
            parts = {name: serialized(getattr(self, name)) for name in self._parts}
        return {"name": self.name, "trainable": self.trainable, **parts}

    @classmethod
    def from_config(
        cls, config: dict, custom_objects: dict[str, Any] | None = None
    ) -> Self:
        names = [name for name in cls._parts if config[name] is not None]
        configs = [config[name] for name in names]
        parts = _keras.deserialized_in_turn(configs, custom_objects)
        return cls(**config | dict(zip(names, parts, strict=True)))

    def _losses_of_step(
        self,
        x: Any,
        y_pred: Tensor,
        y: Any,
        sample_weight: Array | None,
        training: bool,
    ) -> tuple[Tensor, Array | None]:
        """The losses of the examples, `[batch]`, and their weights."""
        raise NotImplementedError

    def _compiled_losses(
        self, labels: Any, scores: Any, sample_weight: Array | None
    ) -> tuple[Tensor, Array | None]:
        """`per_example` of the compiled loss."""
        # A model without a loss may still train, by `add_loss`. Keras then reads no
        # losses of examples, so that any do.
        if self.loss is None:
            return tf.zeros([1]), None
        # Only there labels are classes; else they are columns.
        ignores = self._scored is Scored.ALL_CLASSES
        return self.loss.per_example(labels, scores, sample_weight, ignores)

    def ranked_items(self) -> Any:
        """The items, if they may be replaced: a graph knows only those it read."""
        return None

    def ranks_of_batch(
        self, x: Any, y: Any, y_pred: Tensor, dtype: tf.DType
    ) -> tuple[ops.Ranks, Positions | None]:
        """Ranks among all items, in `dtype` or wider; and positions that count, if any.

        They come from features, labels and encodings.
        """
        raise NotImplementedError

    def _build_by(self, encoder: Any) -> None:
        """Builds the model, if its encoder is built or has symbolic inputs."""
        inputs = _keras.symbolic_inputs(encoder)
        if inputs is None:
            self.built = encoder.built
        else:
            self(inputs)  # Keras 3 exports only a model that was called.
        _keras.unlock(self)  # A subclass may have more layers.

    def _check_loss(self, loss: Any) -> None:
        if isinstance(loss, WeightedSumLoss):
            for part in loss.losses:
                self._check_loss(part)
            return
        scored = self._scored
        rule = (
            "`loss` must be a loss of rank4class_tf.losses that is a `RankingLoss`, "
            f"such as `SoftmaxLoss()`: the model scores {scored}, which others would "
            "misread."
        )
        _checks.require(isinstance(loss, RankingLoss), rule, repr(loss))
        if scored is Scored.CANDIDATES:
            rule = "`loss` must have no `ignore_class`, since no labels are class ids."
            _checks.require(loss.ignore_class is None, rule, loss.ignore_class)
        if scored is Scored.ALL_CLASSES:
            return
        for name in loss.by_class_id:
            rule = (
                f"`loss` must have no `{name}`, since the model scores {scored}, whose "
                "positions are not class ids. Examples may have a `sample_weight`."
            )
            _checks.require(getattr(loss, name) is None, rule, f"{getattr(loss, name)}")


def arguments_of_fit(model: keras.Model, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """What Keras's `fit` is given, by name, also what is given by position."""
    return inspect.signature(keras.Model.fit).bind(model, *args, **kwargs).arguments


def _check_metric(argument: str, metric: Any, ignored: int | None) -> None:
    """Raises unless a metric takes ranks of examples; `ignored` is the loss's class."""
    rule = (
        f"`{argument}` must hold metrics of rank4class_tf.metrics, such as "
        "`PrecisionAtK(1)`, which take ranks among all items."
    )
    _checks.require(isinstance(metric, RankingMetric), rule, repr(metric))
    reads_classes = isinstance(metric, MacroAverage | ExpectedCalibrationError)
    rule = f"`{argument}` must hold metrics of examples, not of classes."
    _checks.require(not reads_classes, rule, metric)
    rule = f"`{argument}` must have the `ignore_class` of the loss, or None."
    is_same = metric.ignore_class in (None, ignored)
    _checks.require(is_same, rule, metric.ignore_class)


def _example_weights(sample_weight: Any) -> Array | None:
    """The example weights; Keras repeats them for each part of nested labels."""
    return None if sample_weight is None else owned(tf.nest.flatten(sample_weight)[0])
