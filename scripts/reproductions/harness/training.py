"""One run: an encoder, a head and a loss, trained to the best epoch and tested."""

import contextlib
import dataclasses
import itertools
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import data, layers, losses, metrics
from rank4class_tf._types import TensorLike
from rank4class_tf.evaluation import Evaluation, average, evaluate
from scripts.reproductions.harness.report import METRICS, SELECT_BY
from scripts.reproductions.harness.runs import cached, train_to_best
from scripts.reproductions.harness.settings import Settings


@dataclasses.dataclass(frozen=True)
class Problem:
    """What is learned: a dataset, and the layers that encode its features.

    Attributes:
        description: what it is, as the results say it; values that JSON knows.
        load: a function of batch size and seed that returns `data.Splits`.
        layers: a function of these splits that returns new layers, in which to train.
        settings: how to train if nothing else is said.
    """

    description: dict[str, Any]
    load: Callable[[int, int], data.Splits]
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
    **head_arguments: Any,
) -> dict[str, Any]:
    """Trains one model and tests it once, at its best epoch.

    Args:
        problem: what to learn.
        settings: how to train.
        loss: a loss or the name of one.
        head: the name of a head.
        **head_arguments: other arguments of the head.

    Returns:
        `loss`, `head`, `best_epoch` (1-based), the metrics on `test`, and on `validation` after
        each epoch; `lists`: what `as_evaluation` reads.
    """
    # Each run starts anew, so that it does not depend on the runs before it.
    keras.backend.clear_session()
    keras.utils.set_random_seed(settings.seed)
    columns = {column: metrics.get(name) for column, name in METRICS.items()}
    loss_object = losses.get(loss)
    splits = problem.load(settings.batch_size, settings.seed)
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
            keras.optimizers.Adam(
                rate,
                weight_decay=settings.weight_decay or None,
                global_clipnorm=settings.clip,
            ),
            loss=loss_object,
            metrics=list(columns.values()),
        )
        # Weights that `fit` makes in its graph are never freed, with the graph.
        model(next(iter(splits.validation))[0], training=False)
        history, best = train_to_best(
            model,
            settings.epochs,
            evaluate_every=1,
            train=lambda epoch: model.fit(
                splits.train,
                initial_epoch=epoch - 1,
                epochs=epoch,
                shuffle=False,  # The dataset shuffles itself.
                verbose=0,
            ),
            evaluate=lambda: model.evaluate(splits.validation, return_dict=True, verbose=0),
            metric=columns[SELECT_BY].name,
            patience=settings.patience,
        )
        test = evaluate(model, splits.test, list(columns.values()))
    return {
        "loss": loss if isinstance(loss, str) else loss.name,
        "head": head,
        "best_epoch": best["epoch"],
        "test": {column: test[metric.name].value for column, metric in columns.items()},
        "validation": {
            column: [float(point[metric.name]) for point in history]
            for column, metric in columns.items()
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


class Runs:
    """The runs of a problem by loss and head, each made once and kept in a file.

    Args:
        problem: what to learn.
        settings: how to train, but for rate and seed.
        folder: where the files are.
        name: how their names begin.
        units: of the hidden layers of heads that have some.
        make_loss: a function of the name of a loss.
    """

    def __init__(
        self,
        problem: Problem,
        settings: Settings,
        folder: pathlib.Path,
        name: str,
        units: Sequence[int],
        make_loss: Callable[[str], Any] = losses.get,
    ) -> None:
        self._problem, self._settings, self._units = problem, settings, units
        self._folder, self._name, self._make_loss = folder, name, make_loss

    def get(
        self, loss: str, head: str, learning_rate: float, seed: int, weight_decay: float = 0.0
    ) -> dict[str, Any]:
        """The results of a run, made now if it is new."""
        settings = dataclasses.replace(
            self._settings, learning_rate=learning_rate, weight_decay=weight_decay, seed=seed
        )
        options = {"units": self._units} if head in ("latent_cross", "concat") else {}
        described = {**self._problem.description, **dataclasses.asdict(settings), **options}
        names = {"loss": loss, "head": head}
        decay = f"-decay{weight_decay:g}" if weight_decay else ""
        return cached(
            self._folder / f"{self._name}-{loss}-{head}-{learning_rate:g}{decay}-{seed}.json",
            described | names,
            lambda: train(self._problem, settings, self._make_loss(loss), head, **options) | names,
        )

    def best(
        self,
        loss: str,
        head: str,
        rates: Sequence[float],
        seed: int,
        weight_decays: Sequence[float] = (0.0,),
    ) -> tuple[float, float]:
        """The learning rate and the weight decay with the best epoch on the validation part."""

        def of_best_epoch(pair):
            rate, decay = pair
            return max(self.get(loss, head, rate, seed, decay)["validation"][SELECT_BY])

        return max(itertools.product(rates, weight_decays), key=of_best_epoch)
