"""TF-Ranking pipelines with the losses, metrics and optimizers of both packages."""

import copy
import dataclasses
import functools
import importlib.util
import numbers
import re
import types
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from tensorflow import keras

from rank4class_tf import _checks, _registry
from rank4class_tf import losses as our_losses
from rank4class_tf import metrics as our_metrics
from rank4class_tf.tfr import loading
from rank4class_tf.tfr.serving import ServingSignatures

_tfr: Any = loading.load()
_TFR_PREFIX = "tfr."
_KEYS = {
    "loss": _tfr.keras.losses.RankingLossKey,
    "metrics": _tfr.keras.metrics.RankingMetricKey,
}
# Classes of TF-Ranking that its own lookup by name does not have.
_CLASSES = {
    "click_em_loss": _tfr.keras.losses.ClickEMLoss,
    "mixture_em_loss": _tfr.keras.losses.MixtureEMLoss,
    "alpha_dcg": _tfr.keras.metrics.AlphaDCGMetric,
    "precision_ia": _tfr.keras.metrics.PrecisionIAMetric,
    "recall": _tfr.keras.metrics.RecallMetric,
}

# A pipeline gives lists: losses on regressions and metrics over a whole dataset do not
# fit.
_LOSSES = _registry.registered_classes("loss", our_losses.RankingLoss)
_METRICS = _registry.registered_classes("metric", our_metrics.RankingMetric)

# The metrics of all tasks, or those of each.
Metrics: TypeAlias = Sequence[str | keras.metrics.Metric] | dict[str, Sequence]


def build_loss(spec: Any, reduction: str) -> keras.losses.Loss:
    """Builds the loss that a pipeline's `loss` describes; see `RankingPipeline`."""
    weighted_specs = _weighted_specs(spec)
    losses = [_build_one_loss(name, reduction) for name, _ in weighted_specs]
    weights = [weight for _, weight in weighted_specs]
    if weights == [1.0]:
        return losses[0]
    return our_losses.WeightedSumLoss(losses, weights)


def _weighted_specs(spec: Any) -> list[tuple]:
    """Pairs of what describes a loss and its weight."""
    if isinstance(spec, str):
        return [_weighted_name(text.strip()) for text in spec.split(",")]
    specs = spec if isinstance(spec, list | tuple) else [spec]
    pairs = [pair if isinstance(pair, tuple) else (pair, 1.0) for pair in specs]
    rule = "`loss` must hold pairs of a loss and its weight."
    for pair in pairs:
        _checks.require(len(pair) == 2, rule, pair)
    return pairs


def _weighted_name(text: str) -> tuple[str, float]:
    name, colon, weight = text.partition(":")
    try:
        return name, float(weight) if colon else 1.0
    except ValueError:
        rule = "`loss` must be a name or 'name:weight,name:weight' with numbers for"
        raise ValueError(f"{rule} weights. Received: {text!r}.") from None


def build_metric(spec: str | keras.metrics.Metric, prefix: str) -> keras.metrics.Metric:
    """Builds a metric from a name or a Keras metric; `prefix` goes before its name."""
    if isinstance(spec, str):
        return _metric_by_name(spec, prefix)
    if not isinstance(spec, keras.metrics.Metric):
        raise TypeError(
            f"`metrics` must hold names or Keras metrics. Received: {spec!r}."
        )
    # A metric is copied, since it must be created under the strategy in use.
    config = _with_relevance_labels(spec.get_config())
    return type(spec).from_config({**config, "name": prefix + spec.name})


def _metric_by_name(spec: str, prefix: str) -> keras.metrics.Metric:
    name, at, cutoff = spec.partition("_at_")
    if name in _METRICS:
        return our_metrics.get(spec, name=prefix + spec, label_format="relevance")

    tfr_name = _tfr_name(name, "metrics", _METRICS)
    if at and not re.fullmatch(r"[1-9]\d*", cutoff):
        raise ValueError(f"A cutoff must be a positive integer. Received: {spec!r}.")
    reads_whole_lists = tfr_name in ("arp", "ordered_pair_accuracy")
    rule = f"`metrics` must name {tfr_name!r} without a cutoff."
    _checks.require(not (at and reads_whole_lists), rule, repr(spec))

    # TF-Ranking calls the cutoff `topn`, and leaves the name to its caller.
    return _of_tf_ranking(
        _tfr.keras.metrics.get,
        tfr_name,
        name=prefix + tfr_name + at + cutoff,
        topn=int(cutoff) if at else None,
    )


def _of_tf_ranking(get: Callable, tfr_name: str, **kwargs: Any) -> Any:
    """An object of TF-Ranking, whose own lookup `get` does not have all classes."""
    build = _CLASSES.get(tfr_name) or functools.partial(get, tfr_name)
    return build(**kwargs)


def _with_relevance_labels(config: Any) -> Any:
    """A metric's configuration whose labels, and an inner metric's, are relevance."""
    if not isinstance(config, dict):
        return config
    config = {key: _with_relevance_labels(value) for key, value in config.items()}
    if "label_format" in config:
        config["label_format"] = config["label_format"] or "relevance"
    return config


def _build_one_loss(spec: str | keras.losses.Loss, reduction: str) -> keras.losses.Loss:
    if isinstance(spec, our_losses.RankingLoss) and spec.label_format is None:
        # A copy by its config would not share what changes in training, such as
        # annealing.
        spec = copy.copy(spec)
        spec.label_format = "relevance"
    if isinstance(spec, our_losses.WeightedSumLoss):
        spec = copy.copy(spec)
        spec.losses = [_build_one_loss(loss, reduction) for loss in spec.losses]
    if isinstance(spec, keras.losses.Loss):
        return spec
    if not isinstance(spec, str):
        raise TypeError(f"`loss` must be a name or a Keras loss. Received: {spec!r}.")
    if spec in _LOSSES:
        return our_losses.get(spec, reduction=reduction, label_format="relevance")
    tfr_name = _tfr_name(spec, "loss", _LOSSES)
    get = _tfr.keras.losses.get
    return _of_tf_ranking(get, tfr_name, reduction=reduction, name=tfr_name)


def _tfr_name(name: str, argument: str, ours: dict[str, Any]) -> str:
    """The name in TF-Ranking of a loss or metric that this package does not have."""
    base = keras.losses.Loss if argument == "loss" else keras.metrics.Metric
    tfr_names = {value for key, value in vars(_KEYS[argument]).items() if key.isupper()}
    tfr_names |= {key for key, value in _CLASSES.items() if issubclass(value, base)}
    bare_name = name.removeprefix(_TFR_PREFIX)
    names = ", ".join(
        [*sorted(ours), *(_TFR_PREFIX + key for key in sorted(tfr_names))]
    )
    _checks.require(
        bare_name in tfr_names, f"`{argument}` must name one of: {names}.", repr(name)
    )
    return bare_name


def _check_learning_rate(hparams: Any) -> None:
    """Raises for a schedule where TF-Ranking's callback is to change the rate."""
    if not hparams.automatic_reduce_lr:
        return
    learning_rate = hparams.learning_rate
    if not isinstance(hparams.optimizer, str):
        learning_rate = hparams.optimizer.get_config()["learning_rate"]
    rule = (
        "`automatic_reduce_lr` needs a number as `learning_rate`, or as that of the "
        "optimizer."
    )
    is_number = isinstance(learning_rate, numbers.Real)
    _checks.require(is_number, rule, f"learning_rate={learning_rate!r}")


def _built_optimizer(hparams: Any) -> keras.optimizers.Optimizer:
    """The optimizer by its name, or a copy of the one that was given."""
    optimizer = hparams.optimizer
    if not isinstance(optimizer, str):
        return type(optimizer).from_config(optimizer.get_config())
    config = {"learning_rate": hparams.learning_rate}
    return keras.optimizers.get({"class_name": optimizer, "config": config})


class PipelineMixin:
    """Makes your own `ModelFitPipeline` a `RankingPipeline`, with the same constructor.

    Put it before the pipeline: `class MyPipeline(PipelineMixin, ModelFitPipeline)`.
    """

    _strategy: Any

    def __init__(
        self,
        model_builder: Any,
        dataset_builder: Any,
        hparams: Any,
        metrics: Metrics = ("ndcg_at_1", "ndcg_at_5", "ndcg_at_10", "ndcg"),
        weighted_metrics: Metrics | None = None,
        tensorboard: bool | None = None,
    ):
        has_tensorboard = importlib.util.find_spec("tensorboard") is not None
        if tensorboard and not has_tensorboard:
            raise ImportError(
                "`tensorboard=True` needs TensorBoard: pip install tensorboard"
            )
        _check_learning_rate(hparams)
        # TF-Ranking can build optimisers only from a name and a number; we replace this
        # one below.
        sgd_hparams = dataclasses.replace(hparams, optimizer="sgd", learning_rate=0.0)
        super().__init__(model_builder, dataset_builder, sgd_hparams)  # type: ignore[call-arg]
        self._hparams = hparams
        self._metrics = metrics
        self._weighted_metrics = (
            metrics if weighted_metrics is None else weighted_metrics
        )
        self._tensorboard = has_tensorboard if tensorboard is None else tensorboard
        with _tfr.keras.strategy_utils.strategy_scope(self._strategy):
            # Building them now shows mistakes here, and not after hours of training.
            self.build_loss()
            self._monitored = self._find_monitored(self.build_metrics())
            self.build_weighted_metrics()
            self._optimizer = _built_optimizer(hparams)
        if isinstance(hparams.loss, dict) and self._monitored != "val_loss":
            self._model_builder = _with_named_outputs(
                model_builder, sorted(hparams.loss)
            )

    def build_loss(self) -> Any:
        """Builds the loss; for multi-task hparams, one for each task."""
        reduction = self._hparams.loss_reduction
        return self._for_tasks(
            lambda spec: build_loss(spec, reduction), self._hparams.loss
        )

    def build_metrics(self) -> Any:
        """Builds the metrics, whose names begin with `metric/` as TF-Ranking's do."""
        return self._for_tasks(_build_metrics, self._metrics)

    def build_weighted_metrics(self) -> Any:
        """Builds the weighted metrics; their names begin with `weighted_metric/`."""
        build = functools.partial(_build_metrics, argument="weighted_metrics")
        return self._for_tasks(build, self._weighted_metrics)

    def build_callbacks(self) -> list[keras.callbacks.Callback]:
        """Builds TF-Ranking's callbacks; they watch the metric that `hparams` names."""
        callbacks = super().build_callbacks()  # type: ignore[misc]
        # TF-Ranking would put "val_metric/" before any name.
        for callback in callbacks:
            if isinstance(
                callback,
                keras.callbacks.ModelCheckpoint | keras.callbacks.EarlyStopping,
            ):
                callback.monitor = self._monitored
        if self._tensorboard:
            return callbacks
        return [c for c in callbacks if not isinstance(c, keras.callbacks.TensorBoard)]

    def _for_tasks(self, build: Callable, spec: Any) -> Any:
        """`build(spec)`; for multi-task hparams a dict of it for each task's spec."""
        tasks = self._hparams.loss
        if not isinstance(tasks, dict):
            return build(spec)
        if isinstance(spec, dict) and set(spec) != set(tasks):
            rule = f"The metrics must be for the tasks {sorted(tasks)}."
            raise ValueError(f"{rule} Received: {sorted(spec)}.")
        return {
            task: build(spec[task] if isinstance(spec, dict) else spec)
            for task in tasks
        }

    def _find_monitored(self, metrics: list | dict[str, list]) -> str:
        """The key, in Keras's logs, of what `hparams.best_exporter_metric` names."""
        by_task = metrics if isinstance(metrics, dict) else {"": metrics}
        keys = {"loss": "val_loss"}
        directions: dict[str, bool | None] = {"loss": False}
        for task, task_metrics in by_task.items():
            prefix = f"{task}/" if task else ""
            logged_prefix = f"val_{task}_" if task else "val_"
            for metric in task_metrics:
                for logged in _result_names([metric]):
                    name = prefix + logged.partition("/")[2]  # Without "metric/".
                    if name not in keys:
                        keys[name] = logged_prefix + logged
                        directions[name] = getattr(metric, "higher_is_better", None)

        # A metric's name in the logs does not tell the package.
        monitored = self._hparams.best_exporter_metric.replace(_TFR_PREFIX, "")
        rule = f"`best_exporter_metric` must be one of: {', '.join(keys)}."
        _checks.require(monitored in keys, rule, f"{monitored!r}")
        is_higher = bool(self._hparams.best_exporter_metric_higher_better)
        rule = (
            f"`best_exporter_metric_higher_better` must be {not is_higher} for "
            f"{monitored!r}, or the worst model would count as the best."
        )
        is_right = directions[monitored] in (None, is_higher)
        _checks.require(is_right, rule, is_higher)
        return keys[monitored]


def _with_named_outputs(builder: Any, tasks: list[str]) -> Any:
    """A builder that raises before training if outputs are not named like the tasks."""

    def build() -> keras.Model:
        model = builder.build()
        names = getattr(model, "output_names", None)
        # Keras logs the metrics of an output under the name of its layer.
        if names is not None and sorted(names) != tasks:
            raise ValueError(
                "The layers of the model's outputs must have the names of the tasks, "
                f"{tasks}, where `best_exporter_metric` is a metric of a task. "
                f"Received: {names}. (`keras.layers.Activation('linear', name=task)` "
                "names one.)"
            )
        return model

    return types.SimpleNamespace(build=build)


def _build_metrics(
    specs: Sequence, argument: str = "metrics"
) -> list[keras.metrics.Metric]:
    if not isinstance(specs, list | tuple):
        rule = f"`{argument}` must be a list of names and metrics."
        raise TypeError(f"{rule} Received: {specs!r}.")
    metrics = [build_metric(spec, f"{argument.removesuffix('s')}/") for spec in specs]
    names = _result_names(metrics)
    rule = f"`{argument}` must have different names, of both packages together."
    _checks.require(len(set(names)) == len(names), rule, names)
    return metrics


def _result_names(metrics: Sequence[keras.metrics.Metric]) -> list[str]:
    return [name for m in metrics for name in getattr(m, "result_names", [m.name])]


class RankingPipeline(PipelineMixin, _tfr.keras.pipeline.ModelFitPipeline):
    """TF-Ranking's pipeline with the losses, heads and metrics of this package.

    It takes `PipelineHparams` as `SimplePipeline` and `MultiTaskPipeline` do, with more
    choices:

    - `loss`: a name of this package or of TF-Ranking (`"tfr."` before it if both have
      it), a Keras loss, several with weights, as in
      `"rankmax_loss:0.7,softmax_loss:0.3"` or `[(loss, 0.7), (other_loss, 0.3)]`, or
      for several tasks a dict of these.
    - `optimizer`: a name, or a Keras optimiser, which is copied and keeps its own
      learning rate; `learning_rate`: a number or a Keras schedule.
    - `best_exporter_metric`: `"loss"` or one of `metrics`, such as `"ndcg_at_5"`; for
      several tasks `"task/ndcg_at_5"`. Set `best_exporter_metric_higher_better=True` if
      higher is better.

    Args:
        model_builder: an `AbstractModelBuilder` of TF-Ranking.
        dataset_builder: an `AbstractDatasetBuilder`, such as `RankingDatasetBuilder`.
        hparams: `PipelineHparams`.
        metrics: names (`"ndcg_at_5"`, `"tfr.mrr_at_10"`) or Keras metrics, which are
            copied. With several tasks, a list is for all of them, and a dict has a list
            for each.
        weighted_metrics: those that use weights, if `hparams.use_weighted_metrics`;
            None for `metrics`.
        tensorboard: whether to log for TensorBoard; None does so if it is installed.

    Example:
        >>> pipeline = RankingPipeline(
        ...     model_builder, dataset_builder, hparams
        ... )  # doctest: +SKIP
        >>> pipeline.train_and_validate()  # doctest: +SKIP
    """


class ServingMixin:
    """Exports `ServingSignatures`, for your own dataset builder.

    Put it before the builder:
    `class MyBuilder(ServingMixin, MultiLabelDatasetBuilder)`.
    """

    def build_signatures(self: Any, model: keras.Model) -> dict[str, Any]:
        """Builds the signatures of the exported model."""
        return ServingSignatures(
            model,
            context_feature_spec=self._context_feature_spec,
            example_feature_spec=self._example_feature_spec,
            mask_feature_name=self._mask_feature_name,
        )()


class RankingDatasetBuilder(ServingMixin, _tfr.keras.pipeline.SimpleDatasetBuilder):
    """TF-Ranking's `SimpleDatasetBuilder`; its export has `ServingSignatures`."""
