"""PipelineMixin."""

import dataclasses
import importlib.util
import numbers
from typing import Any

from tensorflow import keras

from rank4class_tf.tfr import _load, _names

_tfr: Any = _load.load()
_PREFIX = "metric/"
_DEFAULT_METRICS = ("ndcg_at_1", "ndcg_at_5", "ndcg_at_10", "ndcg")


class PipelineMixin:
    """Losses, metrics and optimisers by name or object, for your own `ModelFitPipeline`.

    Put it before the pipeline: `class MyPipeline(PipelineMixin, ModelFitPipeline)`. Constructor and
    behaviour are then the same as for `RankingPipeline`.
    """

    _strategy: Any

    def __init__(
        self,
        model_builder: Any,
        dataset_builder: Any,
        hparams: Any,
        metrics: Any = _DEFAULT_METRICS,
        weighted_metrics: Any = None,
        tensorboard: bool | None = None,
    ) -> None:
        has_tensorboard = importlib.util.find_spec("tensorboard") is not None
        if tensorboard and not has_tensorboard:
            raise ImportError("`tensorboard=True` needs TensorBoard: pip install tensorboard")
        if hparams.automatic_reduce_lr:
            _check_is_number(hparams.optimizer, hparams.learning_rate)
        # TF-Ranking can build optimisers only from a name and a number; we replace this one below.
        plain = dataclasses.replace(hparams, optimizer="sgd", learning_rate=0.0)
        super().__init__(model_builder, dataset_builder, plain)  # type: ignore[call-arg]
        self._hparams = hparams
        self._metrics = metrics
        self._weighted_metrics = metrics if weighted_metrics is None else weighted_metrics
        self._tensorboard = has_tensorboard if tensorboard is None else tensorboard
        with _tfr.keras.strategy_utils.strategy_scope(self._strategy):
            # Building them now shows mistakes here, and not after hours of training.
            self.build_loss()
            self._monitored = self._find_monitored(self.build_metrics())
            self.build_weighted_metrics()
            self._optimizer = _build_optimizer(hparams.optimizer, hparams.learning_rate)
        if isinstance(hparams.loss, dict) and self._monitored != "val_loss":
            self._model_builder = _NamedOutputs(model_builder, hparams.loss)

    def build_loss(self) -> Any:
        """Builds the loss; for multi-task hparams, one for each task."""
        return self._for_tasks(self._build_task_loss, self._hparams.loss)

    def build_metrics(self) -> Any:
        """Builds the metrics, whose names begin with `metric/` as TF-Ranking's do."""
        return self._for_tasks(_metrics_builder(_PREFIX, "metrics"), self._metrics)

    def build_weighted_metrics(self) -> Any:
        """Builds the metrics that use weights; their names begin with `weighted_metric/`."""
        return self._for_tasks(
            _metrics_builder("weighted_metric/", "weighted_metrics"), self._weighted_metrics
        )

    def build_callbacks(self) -> list[keras.callbacks.Callback]:
        """Builds TF-Ranking's callbacks; they watch the metric that `hparams` names."""
        callbacks = super().build_callbacks()  # type: ignore[misc]
        for callback in callbacks:
            if isinstance(
                callback, keras.callbacks.ModelCheckpoint | keras.callbacks.EarlyStopping
            ):
                callback.monitor = self._monitored
        if self._tensorboard:
            return callbacks
        return [c for c in callbacks if not isinstance(c, keras.callbacks.TensorBoard)]

    def _build_task_loss(self, spec):
        return _names.build_loss(spec, self._hparams.loss_reduction)

    def _for_tasks(self, build, spec):
        """`build(spec)`, or for multi-task hparams a dict of it, with each task's own spec."""
        tasks = self._hparams.loss
        if not isinstance(tasks, dict):
            return build(spec)
        if isinstance(spec, dict) and set(spec) != set(tasks):
            raise ValueError(
                f"The metrics must be for the tasks {sorted(tasks)}. Received: {sorted(spec)}."
            )
        return {task: build(spec[task] if isinstance(spec, dict) else spec) for task in tasks}

    def _find_monitored(self, metrics):
        """The key, in Keras's logs, of what `hparams.best_exporter_metric` names."""
        wanted = self._hparams.best_exporter_metric
        given = self._for_tasks(_given_names, self._metrics)
        if not isinstance(metrics, dict):
            metrics, given = {"": metrics}, {"": given}
        keys = {"loss": "val_loss"}
        higher: dict[str, bool | None] = {"val_loss": False}
        for task, of_task in metrics.items():
            before, logged_before = (f"{task}/", f"val_{task}_") if task else ("", "val_")
            for name, logged in _logged(of_task) + given[task]:
                keys.setdefault(before + name, logged_before + logged)
            for metric in of_task:
                for logged in _result_names([metric]):
                    higher[logged_before + logged] = getattr(metric, "higher_is_better", None)
        if wanted not in keys:
            raise ValueError(
                f"`best_exporter_metric` must be one of: {', '.join(keys)}. Received: {wanted!r}."
            )
        is_higher = bool(self._hparams.best_exporter_metric_higher_better)
        if higher.get(keys[wanted]) not in (None, is_higher):
            raise ValueError(
                f"`best_exporter_metric_higher_better` must be {not is_higher} for {wanted!r}, or "
                f"the worst model would count as the best. Received: {is_higher}."
            )
        return keys[wanted]


class _NamedOutputs:
    """A model builder that raises an error before training if outputs are not named like the tasks.

    Keras logs the metrics of an output under the name of its layer.
    """

    def __init__(self, builder, tasks):
        self._builder = builder
        self._tasks = sorted(tasks)

    def build(self):
        model = self._builder.build()
        names = getattr(model, "output_names", None)
        if names is not None and sorted(names) != self._tasks:
            raise ValueError(
                "The layers of the model's outputs must have the names of the tasks, "
                f"{self._tasks}, where `best_exporter_metric` is a metric of a task. "
                f"Received: {names}. (`keras.layers.Activation('linear', name=task)` names one.)"
            )
        return model


def _metrics_builder(prefix, argument):
    def build(specs):
        if not isinstance(specs, list | tuple):
            raise TypeError(
                f"`{argument}` must be a list of names and metrics. Received: {specs!r}."
            )
        metrics = [_names.build_metric(spec, prefix) for spec in specs]
        names = _result_names(metrics)
        if len(set(names)) < len(names):
            raise ValueError(
                f"`{argument}` must have different names, those of TF-Ranking and of this package "
                f"together. Received: {names}."
            )
        return metrics

    return build


def _result_names(metrics):
    return [name for m in metrics for name in getattr(m, "result_names", [m.name])]


def _logged(metrics):
    """The name of each value without the prefix, and as Keras logs it."""
    return [(name.partition("/")[2], name) for name in _result_names(metrics)]


def _given_names(specs):
    """The names that a user gave for metrics, and what Keras logs for the first value of each."""
    names = [spec for spec in specs if isinstance(spec, str)]
    return [(name, _logged([_names.build_metric(name, _PREFIX)])[0][1]) for name in names]


def _check_is_number(optimizer, learning_rate):
    """Raises unless the learning rate, that of an optimiser object if given, is a number."""
    if not isinstance(optimizer, str):
        learning_rate = optimizer.get_config()["learning_rate"]
    if not isinstance(learning_rate, numbers.Real):
        raise ValueError(
            "`automatic_reduce_lr` needs a number as `learning_rate`, or as the optimizer's own if "
            f"`optimizer` is an object. Received: learning_rate={learning_rate!r}."
        )


def _build_optimizer(optimizer, learning_rate):
    """A new optimiser, by name or as a copy of an object; call it in the strategy's scope."""
    if isinstance(optimizer, str):
        config = {"class_name": optimizer, "config": {"learning_rate": learning_rate}}
        return keras.optimizers.get(config)
    return type(optimizer).from_config(optimizer.get_config())
