"""One run: an encoder, a head and a loss, trained to the best epoch and tested."""

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _files, data, layers, losses, metrics
from rank4class_tf._types import TensorLike
from rank4class_tf.evaluation import Evaluation, average, evaluate
from scripts.reproductions.harness.report import METRICS, SELECT_BY
from scripts.reproductions.harness.settings import Settings


@dataclasses.dataclass(frozen=True)
class Problem:
    """What is learned: a dataset, and the layers that encode its features.

    Attributes:
        description: what it is, as the results say it; values that JSON knows.
        load: a function of batch size, seed and how many orders of the training examples to leave
            out, which returns `data.Splits`.
        layers: a function of these splits that returns new layers, in which to train.
        settings: how to train if nothing else is said.
    """

    description: dict[str, Any]
    load: Callable[[int, int, int], data.Splits]
    layers: Callable[[data.Splits], list]
    settings: Settings


class _Schedule(keras.optimizers.schedules.LearningRateSchedule):
    """A rate that rises in a line and then falls in a line."""

    def __init__(self, highest: float, rising: int, steps: int) -> None:
        self._highest, self._rising, self._steps = highest, rising, steps

    def __call__(self, step: TensorLike) -> tf.Tensor:
        step = tf.cast(step, tf.float32)
        rise = (step + 1) / (self._rising + 1)
        fall = (self._steps - step) / (self._steps - self._rising)
        return self._highest * tf.clip_by_value(tf.minimum(rise, fall), 0.0, 1.0)


# The history and the best weights after an epoch, with a checksum of each.
_PROGRESS = "progress.npz"


class _Progress(keras.callbacks.Callback):
    """Keeps the best epoch's weights, ends the run, and lets it go on after an interruption.

    With a folder, each epoch's state is written there, with what the run is: the state of another
    run is removed. What goes on from it sees the same data as without the interruption; the random
    numbers of dropout start anew.
    """

    def __init__(
        self, run: dict[str, Any], monitor: str, patience: int, folder: Any, say: Callable
    ) -> None:
        super().__init__()
        self._run = json.dumps(run, sort_keys=True, default=str)
        self._monitor, self._patience, self._folder, self._say = monitor, patience, folder, say
        self.history: dict[str, list[float]] = {}
        self.best_epoch = -1
        self._best_weights: list[np.ndarray] = []

    @property
    def epochs(self) -> int:
        """How many epochs are done."""
        return len(self.history.get(self._monitor, ()))

    @property
    def finished(self) -> bool:
        """Whether the best epoch is long enough ago."""
        return 0 <= self.best_epoch <= self.epochs - 1 - self._patience

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        for name, value in logs.items():
            self.history.setdefault(name, []).append(float(value))
        scores = self.history[self._monitor]
        if self.best_epoch < 0 or scores[epoch] > scores[self.best_epoch]:
            self.best_epoch = epoch
            self._best_weights = self.model.get_weights()
        if self._folder is not None:
            self._save()
        self._say(epoch + 1, scores[epoch])
        if self.finished:
            self.model.stop_training = True

    def give_best(self, model: keras.Model) -> None:
        """Gives the model the weights of the best epoch."""
        model.set_weights(self._best_weights)

    def clear(self) -> None:
        """Removes the state on disk."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _checkpoint(self, model):
        return tf.train.Checkpoint(model=model, optimizer=model.optimizer)

    def _save(self):
        """Writes this epoch's state, the file that makes it whole at last; the one before stays."""
        folder = self._folder / str(self.epochs)
        folder.mkdir(parents=True, exist_ok=True)
        self._checkpoint(self.model).write(str(folder / "state"))
        with _files.replacing(folder / _PROGRESS) as path:
            history = json.dumps(self.history)
            np.savez(path, *self._best_weights, history=history, run=self._run)
        shutil.rmtree(self._folder / str(self.epochs - 2), ignore_errors=True)

    def read(self) -> None:
        """Reads how far an earlier run came, by the newest of its states that can be read.

        Raises:
            ValueError: if there are states, and none can be read.
        """
        if self._folder is None:
            return
        damaged = []
        for path in sorted(self._folder.glob(f"*/{_PROGRESS}"), key=_epoch_of, reverse=True):
            try:
                if not self._read(path):
                    self.clear()
                    return
            # What NumPy and zipfile raise on a file that is damaged is of many types.
            except Exception as error:
                damaged.append(f"{path.parent} cannot be read: {error!r}")
            else:
                for message in damaged:
                    warnings.warn(f"{message}. Going on from {path.parent}.", stacklevel=3)
                return
        if damaged:
            message = ". ".join(damaged)
            raise ValueError(f"`folder` must hold a state of a run. {message}.")

    def _read(self, path):
        """Takes history and best weights of one epoch, if its state is of this run, and whole."""
        with np.load(path) as file:
            arrays = dict(file)
        if str(arrays.pop("run")) != self._run:
            return False
        state = tf.train.load_checkpoint(str(path.parent / "state"))
        for name in state.get_variable_to_shape_map():
            state.get_tensor(name)  # Which compares its checksum.
        self.history = json.loads(str(arrays.pop("history")))
        self._best_weights = list(arrays.values())
        self.best_epoch = int(np.argmax(self.history[self._monitor]))
        return True

    def restore(self, model: keras.Model, features: Any) -> None:
        """Gives the model and its optimizer the state that an earlier run left, if there is one."""
        # Weights that `fit` makes in its graph are never freed, with the graph.
        model(features, training=False)
        model.optimizer.build(model.trainable_variables)
        if self.epochs:
            path = self._folder / str(self.epochs) / "state"
            self._checkpoint(model).read(str(path)).assert_existing_objects_matched()


def _epoch_of(path):
    """The number of the epoch after which a file was written."""
    return int(path.parent.name)


@contextlib.contextmanager
def _precision(policy):
    before = keras.mixed_precision.global_policy()
    keras.mixed_precision.set_global_policy(policy)
    try:
        yield
    finally:
        keras.mixed_precision.set_global_policy(before)


def train(
    problem: Problem,
    settings: Settings,
    loss: str | losses.RankingLoss | losses.SorterLoss,
    head: str,
    folder: str | os.PathLike[str] | None = None,
    say: Callable[[int, float], Any] = lambda epoch, score: None,
    **head_arguments: Any,
) -> dict[str, Any]:
    """Trains one model and tests it once, at its best epoch.

    Args:
        problem: what to learn.
        settings: how to train.
        loss: a loss or the name of one.
        head: the name of a head.
        folder: where to keep the state after each epoch, to go on from it; None for nowhere. That
            of a run with other arguments is removed. What cannot be read is left out for the epoch
            before it.
        say: called after each epoch with its number and the NDCG@5 on validation.
        **head_arguments: other arguments of the head.

    Returns:
        `loss`, `head`, `best_epoch` (1-based), the metrics on `test`, and on `validation` after
        each epoch; `lists`: what `as_evaluation` reads.

    Raises:
        ValueError: if there are states in `folder`, and none can be read.
    """
    # Each run starts anew, so that it does not depend on the runs before it.
    keras.backend.clear_session()
    keras.utils.set_random_seed(settings.seed)
    columns = {column: metrics.get(name) for column, name in METRICS.items()}
    loss_object = losses.get(loss)
    run = {
        **problem.description,
        **dataclasses.asdict(settings),
        **head_arguments,
        "loss": loss_object.get_config(),
        "head": head,
    }
    monitor = f"val_{columns[SELECT_BY].name}"
    state = None if folder is None else pathlib.Path(folder)
    progress = _Progress(run, monitor, settings.patience, state, say)
    progress.read()
    splits = problem.load(settings.batch_size, settings.seed, progress.epochs)
    with _precision(settings.precision):
        model = keras.Sequential(
            [
                *problem.layers(splits),
                layers.get_head(head, classes=splits.num_classes, **head_arguments),
            ]
        )
        rate: Any = settings.learning_rate
        if settings.warmup:
            steps = settings.epochs * len(splits.train)
            rate = _Schedule(rate, int(settings.warmup * steps), steps)
        model.compile(
            keras.optimizers.Adam(rate, global_clipnorm=settings.clip),
            loss=loss_object,
            metrics=list(columns.values()),
        )
        progress.restore(model, next(iter(splits.validation))[0])
        if not progress.finished:
            model.fit(
                splits.train,
                validation_data=splits.validation,
                initial_epoch=progress.epochs,
                epochs=settings.epochs,
                callbacks=[progress],
                shuffle=False,  # the dataset shuffles itself
                verbose=0,
            )
        progress.give_best(model)
        test = evaluate(model, splits.test, list(columns.values()))
    progress.clear()
    return {
        "loss": loss if isinstance(loss, str) else loss.name,
        "head": head,
        "best_epoch": progress.best_epoch + 1,
        "test": {column: test[metric.name].value for column, metric in columns.items()},
        "validation": {
            column: progress.history[f"val_{metric.name}"] for column, metric in columns.items()
        },
        "lists": {
            "ranks": test.ranks.tolist(),
            "values": {
                column: test.values[metric.name].tolist() for column, metric in columns.items()
            },
            "weights": {
                column: test.weights[metric.name].tolist() for column, metric in columns.items()
            },
        },
    }


def as_evaluation(runs: Sequence[dict[str, Any]]) -> Evaluation:
    """The mean evaluation of runs on the same test part, such as those of several seeds.

    Args:
        runs: what `train` returned.
    """

    def read(lists):
        values, weights = (
            {column: np.array(array) for column, array in lists[key].items()}
            for key in ("values", "weights")
        )
        return Evaluation({}, values, weights, np.array(lists["ranks"]))

    return average([read(run["lists"]) for run in runs])
