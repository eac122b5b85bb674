"""A candidate of a comparison: compiled once, trained with each setting and seed."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import numbers
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _keras, layers, losses
from rank4class_tf._batches import Dataset
from rank4class_tf.evaluation import Evaluator, Metrics
from rank4class_tf.trials.data import Data, Split, select
from rank4class_tf.trials.report import ListValues, Setting, TestResult

# The ranges of the settings, log-uniform: learning rate, decay of AdamW (which
# multiplies it by the rate), and the factor of a candidate's own parameter.
RANGES = ((1e-4, 1e-1), (1e-4, 1.0), (0.25, 4.0))

# Few seeds find good settings and rivals: more settings pay better than more seeds, and
# the test has seeds of its own (`scripts.robustness.judge` compares such designs).
_SCREENING_SEEDS = 2

# After so many halvings, the logarithm of a factor is below the rounding of 1.
_MOST_STEPS_BACK = 60

# The parts of the cross-validation that estimates wrong labels.
FOLDS = 4

# The parameters in [0, 1]: the factor multiplies their odds, so that they stay below 1.
_SHARES = ("label_smoothing", "q")

Build: TypeAlias = Callable[..., keras.Model]
Part: TypeAlias = keras.losses.Loss | keras.layers.Layer


class Training(NamedTuple):
    """A finished training: best validation value, seconds of an epoch and of all."""

    value: float
    seconds: float
    total_seconds: float


class Outcome(NamedTuple):
    """A training, and what the test data say of its model, if they were measured."""

    training: Training
    test: TestResult

    @classmethod
    def from_json(cls, training: list, test: dict[str, list]) -> Self:
        """The outcome that JSON wrote, where named tuples and arrays are lists."""
        result = {}
        for metric, (values, weights, bounds) in test.items():
            result[metric] = ListValues(np.array(values), np.array(weights), bounds)
        return cls(Training(*training), result)


@dataclasses.dataclass(frozen=True)
class Plan:
    """How much to train, at most: what `try_out` was told in whole numbers."""

    settings: int
    seeds: int
    finalists: int
    epochs: int
    patience: int
    batch_size: int

    def __post_init__(self) -> None:
        for name, count in vars(self).items():
            _checks.positive_int(name, count)

    @property
    def screening_seeds(self) -> int:
        return min(_SCREENING_SEEDS, self.seeds)


@dataclasses.dataclass(frozen=True)
class Task:
    """What all candidates share: how models are built, trained and judged."""

    build: Build
    data: Data
    features: Any  # Of a batch, to build models with.
    metrics: Metrics
    monitor: str
    plan: Plan


class _Judged(NamedTuple):
    """A training, and what measures its model."""

    training: Training
    evaluate: Evaluator


class _Tuned(NamedTuple):
    """The parameter that a candidate's settings vary, of its loss or of its head."""

    part: Part
    name: str
    default: float


@dataclasses.dataclass(eq=False)
class Candidate:
    """A loss and a head whose model is compiled once and trained many times."""

    name: str
    loss: keras.losses.Loss
    head: keras.layers.Layer | None
    # By the names of candidates that adjust this one's trained model.
    adjust: dict[str, Callable]
    task: Task

    def __post_init__(self) -> None:
        # Each name has its own initial weights: two names of one loss differ, but only
        # by chance.
        self._seed = zlib.crc32(self.name.encode())
        self._tuned = _first_tunable(self.loss, self.head)

        # The parameters of a setting are variables of the graph. They start mid-range.
        middle = self._parameters(np.exp(np.log(RANGES).mean(axis=1)))
        self._variables_of_setting = {
            name: tf.Variable(x, trainable=False) for name, x in middle.items()
        }
        self._model = self.new(self._variables_of_setting)

        # What each training starts from, besides the weights of a new model. Variables
        # of metrics come with a training.
        optimizer = self._model.optimizer
        optimizer.build(self._model.trainable_variables)
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        self._has_decay = bool(getattr(inner, "weight_decay", None))
        self._optimizer_values = [np.array(x) for x in optimizer.variables]
        self.evaluate = Evaluator(self._model, self.task.metrics)
        self._variables = list(self._model.variables)

    def description(self) -> list:
        """What tells this candidate from others, for a file."""
        parts = (self.loss, self.head)
        configs = [part and {**part.get_config(), "name": None} for part in parts]
        shapes = [tuple(x.shape) for x in self._variables]
        sources = {name: source(function) for name, function in self.adjust.items()}
        return [self.name, type(self.loss).__name__, configs, shapes, sources]

    def setting(self, drawn: np.ndarray) -> Setting:
        """The parameters that are tuned by name, from a row of `draw_settings`."""
        parameters = self._parameters(drawn)
        if not self._has_decay:
            del parameters["weight_decay"]
        return parameters

    def _parameters(self, drawn: np.ndarray) -> Setting:
        rate, decay, factor = map(float, drawn)
        setting = {"learning_rate": rate, "weight_decay": decay}
        if self._tuned is None:
            return setting

        name = self._tuned.name
        default = self._tuned.default
        for _ in range(_MOST_STEPS_BACK):
            setting[name] = default * factor
            if name in _SHARES:
                setting[name] /= 1 + default * (factor - 1)
            try:
                self._copy(self._tuned.part, setting)
                return setting
            except ValueError:  # Out of range: go half way back to the default.
                factor **= 0.5
        setting[name] = default
        return setting

    def _copy(self, part: Part, setting: Setting) -> Part:
        """A copy of the loss or head; the tuned one has the setting's parameter."""
        config = {**part.get_config()}
        if self._tuned is not None and part is self._tuned.part:
            config[self._tuned.name] = setting[self._tuned.name]
        return type(part).from_config(config)

    def new(self, setting: Setting) -> keras.Model:
        """A compiled model with parameters that are numbers or variables."""
        loss = self._copy(self.loss, setting)
        head = self.head and self._copy(self.head, setting)
        takes_scores = loss.get_config().get("from_logits", True)
        rule = "`candidates` must take scores."
        _checks.require(takes_scores, rule, "from_logits=False")

        model = built(self.task.build, head)
        if not model.built:
            model(self.task.features, training=False)
        tables = layers.ShardedClassTable
        in_shards = any(isinstance(x, tables) for x in _keras.layers_of(model))
        rule = (
            "`build` must use no `ShardedClassTable`, whose rows would not start anew."
        )
        _checks.require(not in_shards, rule, model.name)

        optimizer = getattr(model, "optimizer", None)
        optimizer = optimizer or keras.optimizers.AdamW(weight_decay=1e-2)
        inner = getattr(optimizer, "inner_optimizer", optimizer)  # For mixed precision.
        rate = inner.get_config()["learning_rate"]
        rule = (
            "`build` must compile with a learning rate that is a number, since "
            "`try_out` tunes it."
        )
        # A schedule, or a function, comes as its own config.
        _checks.require(not isinstance(rate, dict), rule, rate)

        if getattr(inner, "weight_decay", None):
            inner.weight_decay = setting["weight_decay"]
        optimizer.learning_rate = float(setting["learning_rate"])
        model.compile(optimizer, loss)
        return model

    def run(
        self, setting: Setting, seed: int, tested: Sequence[str] = ()
    ) -> dict[str, Outcome]:
        """Trains once; the outcome of each candidate served, or of those `tested`."""
        split = self.task.data.split(seed)
        training = self.train(setting, seed, split)

        outcomes = {}
        for name in tested or (self.name, *self.adjust):
            judged = _Judged(training, self.evaluate)
            if name in self.adjust:
                judged = self._adjusted(name, training, split.validation)
            test = _measured(judged.evaluate, self.task.data.test) if tested else {}
            outcomes[name] = Outcome(judged.training, test)
        return outcomes

    def _adjusted(self, name: str, training: Training, validation: Dataset) -> _Judged:
        """What the function of another candidate makes of the trained model."""
        begin = time.monotonic()
        model = self.adjust[name](self._model, validation)
        evaluate = Evaluator(model, self.task.metrics)
        value = self._monitored(evaluate, validation)
        if training.value == -math.inf:  # What failed stays so.
            value = training.value
        seconds = time.monotonic() - begin
        return _Judged(Training(value, training.seconds, seconds), evaluate)

    def _monitored(self, evaluate: Evaluator, validation: Dataset) -> float:
        return evaluate.mean(self.task.monitor, validation, name="validation")

    def train(self, setting: Setting, seed: int, split: Split) -> Training:
        """Trains; the time of the whole training excludes compiling its graph."""
        begin = time.monotonic()
        plan = self.task.plan
        keras.utils.set_random_seed((self._seed + seed) % 2**32)
        train = split.train
        if isinstance(train, tuple):
            rows = tf.data.Dataset.from_tensor_slices(train)
            train = rows.shuffle(train[1].shape[0]).batch(plan.batch_size)
        self._start_anew(setting)

        # Train until `patience` epochs bring no better value, and return to the best
        # epoch.
        model = self._model
        best = -np.inf
        best_epoch = 0
        weights = model.get_weights()
        times = [time.monotonic()]
        for epoch in range(1, plan.epochs + 1):
            history = model.fit(train, epochs=1, verbose=0, shuffle=False).history
            is_finite = np.isfinite(history["loss"][-1])
            value = -np.inf
            if is_finite:
                value = self._monitored(self.evaluate, split.validation)
            times.append(time.monotonic())
            if value > best:
                best = value
                best_epoch = epoch
                weights = model.get_weights()
            elif not is_finite or epoch - best_epoch >= plan.patience:
                break
        model.set_weights(weights)

        # The first epoch compiles the graph.
        epochs = np.diff(times)
        later = epochs[1:] if len(epochs) > 1 else epochs
        seconds = float(np.median(later))
        return Training(best, seconds, times[0] - begin + len(epochs) * seconds)

    def _start_anew(self, setting: Setting) -> None:
        """Gives the compiled model the weights, draws and setting of a new one."""
        fresh = self.new(self._variables_of_setting)
        model = self._model
        trained_ids = {id(variable) for variable in model.trainable_variables}
        shared = [x for x in fresh.trainable_variables if id(x) in trained_ids]
        rule = (
            "`build` must make new layers at each call; clone a pretrained one, or "
            "freeze it."
        )
        _checks.require(not shared, rule, f"{len(shared)} variables again")

        variables = [*self._variables, *model.optimizer.variables]
        values = [*fresh.variables, *self._optimizer_values]
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)

        # A random loss, or those of a sum, keep the state of their draws.
        parts = getattr(model.loss, "losses", [model.loss])
        fresh_parts = getattr(fresh.loss, "losses", [fresh.loss])
        for loss, fresh_loss in zip(parts, fresh_parts, strict=True):
            if getattr(loss, "is_random", False):
                state: dict[str, np.ndarray] = {}
                fresh_loss.save_own_variables(state)
                loss.load_own_variables(state)

        model.optimizer.learning_rate = setting["learning_rate"]
        for name, number in setting.items():
            self._variables_of_setting[name].assign(number)

    def estimate_noise(
        self, setting: Setting, class_names: Sequence[str] | None
    ) -> dict[str, Any]:
        """Cleanlab's confident learning, cross-validated; see `TryOut.noise`."""
        from cleanlab.count import compute_confident_joint

        # Scores of each example by a model that was trained without it.
        train: Any = self.task.data.train
        labels = np.asarray(train[1])
        fold_of_row = np.random.default_rng(0).permutation(len(labels)) % FOLDS
        scores = np.zeros((len(labels), self._model.output_shape[-1]), np.float32)
        for fold in range(FOLDS):
            is_held_out = fold_of_row == fold
            others = select(train, np.flatnonzero(~is_held_out))
            data = dataclasses.replace(self.task.data, train=others)
            self.train(setting, 0, data.split(0))
            features = select(train[0], np.flatnonzero(is_held_out))
            scores[is_held_out] = self._model.predict(features, verbose=0)

        # A copy: the graph's loss holds variables, from which no layer of probabilities
        # is made.
        loss = self._copy(self.loss, setting)
        to_probabilities = getattr(loss, "probabilities", None)
        to_probabilities = to_probabilities or layers.Probabilities()
        joint = compute_confident_joint(labels, to_probabilities(scores).numpy())

        # Rows are the labels, columns the true classes; off the diagonal all is wrong.
        share = 1 - np.trace(joint) / joint.sum()
        np.fill_diagonal(joint, 0)
        names = range(len(joint)) if class_names is None else class_names
        confusions = [
            (names[true], names[label], int(joint[label, true]))
            for label, true in np.argwhere(joint)
        ]
        confusions.sort(key=lambda confusion: -confusion[2])
        return {
            "share": float(share),
            "concentration": float(joint.max(axis=0).sum() / max(joint.sum(), 1)),
            "confusions": confusions[:5],
        }


def _first_tunable(*parts: Part | None) -> _Tuned | None:
    """The first parameter with a positive default."""
    for part in filter(None, parts):
        for name in getattr(type(part), "tunable", ()):
            default = part.get_config()[name]
            if isinstance(default, float) and default > 0:
                return _Tuned(part, name, default)
    return None


def _measured(evaluate: Evaluator, test: Dataset) -> TestResult:
    measured = evaluate(test, name="test")
    result = {}
    for metric, values in measured.values.items():
        result[metric] = ListValues(
            values=values.astype(float),
            weights=measured.weights[metric].astype(float),
            bounds=[*map(float, measured.bounds[metric])],
        )
    return result


def built(build: Build, head: keras.layers.Layer | None) -> keras.Model:
    """A new model, which ends in the head if there is one."""
    model = build() if head is None else build(head)
    rule = "`build` must return a Keras model."
    _checks.require(isinstance(model, keras.Model), rule, type(model).__name__)
    return model


def draw_settings(count: int) -> np.ndarray:
    """A Latin hypercube `[count, 3]`: each parameter has a value in each equal step."""
    rng = np.random.default_rng(0)
    low, high = np.log(RANGES).T
    steps = np.stack([rng.permutation(count) for _ in low], axis=1)
    shares = (steps + rng.random((count, 3))) / count
    return np.exp(low + shares * (high - low))


def source(function: Callable) -> str:
    """A function's source, or its name if no file has it, and what it was made with."""
    if isinstance(function, functools.partial):
        return f"{source(function.func)} {function.args} {function.keywords}"
    if not hasattr(function, "__qualname__"):  # An object with `__call__`.
        return f"{source(type(function))} {getattr(function, '__dict__', '')}"
    constants = {}
    if inspect.isfunction(function):
        names = inspect.getclosurevars(function)
        known = {**names.globals, **names.nonlocals}.items()
        constants = {k: x for k, x in known if isinstance(x, str | numbers.Number)}
    try:
        return f"{inspect.getsource(function)} {constants}"
    except (OSError, TypeError):
        return f"{function.__qualname__} {constants}"


def _default_candidates(num_classes: int | None) -> dict[str, Any]:
    """A dozen of this package; cosine heads need a number of classes."""
    names = [
        "softmax",
        "generalized_cross_entropy",
        "rankmax",
        "sparsemax",
        "approx_ndcg",
        "approx_mrr",
        "pairwise_logistic",
        "warp",
    ]
    candidates: dict[str, Any] = {name: losses.get(f"{name}_loss") for name in names}
    candidates["smoothed softmax"] = losses.SoftmaxLoss(label_smoothing=0.1)
    candidates["Crammer-Singer"] = losses.OrderedWeightedLoss.crammer_singer()
    if num_classes is not None:
        for name in ("softmax", "rankmax"):
            pair = candidates[name], layers.CosineHead(num_classes)
            candidates[f"{name}, cosine head"] = pair
    return candidates


def compiled(
    candidates: Mapping[str, Any] | None, num_classes: int | None, task: Task
) -> dict[str, Candidate]:
    """By each name the candidate to train: its own, or the one whose model it adjusts.

    Args:
        candidates: as of `try_out`.
        num_classes: outputs of a head; None where models end in a layer of their own.
        task: what all share.
    """
    head = None  # Of losses that come without one.
    if num_classes is not None:
        head = keras.layers.Dense(num_classes)
    if candidates is None:
        candidates = _default_candidates(num_classes)
    is_right = isinstance(candidates, Mapping) and len(candidates) > 0
    rule = "`candidates` must be a dict with at least one."
    _checks.require(is_right, rule, candidates)
    pairs = {name: _pair(name, x) for name, x in candidates.items()}

    own = {}
    for name, (loss, part) in pairs.items():
        if not isinstance(loss, str):
            adjust = {
                other: function
                for other, (base, function) in pairs.items()
                if function is not None and base == name
            }
            own[name] = Candidate(
                name=name, loss=loss, head=part or head, adjust=adjust, task=task
            )

    owners = {}
    for name, (loss, _) in pairs.items():
        base = loss if isinstance(loss, str) else name
        owners[name] = own[_checks.one_of(f"candidates[{name!r}][0]", base, [*own])]
    return owners


def _pair(
    name: str, candidate: Any
) -> tuple[keras.losses.Loss | str, keras.layers.Layer | Callable | None]:
    """A loss and its head or None; or another's name and a function of its model."""
    pair = candidate if isinstance(candidate, tuple) else (candidate, None)
    loss, part = pair if len(pair) == 2 else (None, None)
    is_head = part is None or isinstance(part, keras.layers.Layer)
    adjusts = callable(part) and not is_head
    if isinstance(loss, str) and not adjusts:
        loss = losses.get(loss)

    is_loss = isinstance(loss, str if adjusts else keras.losses.Loss)
    is_right = is_loss and isinstance(name, str) and (adjusts or is_head)
    rule = (
        "`candidates` must map names to a loss or its name, to a pair of a loss and a "
        "head, or to a pair of another's name and a function."
    )
    _checks.require(is_right, rule, f"{name!r}: {candidate!r}")
    return loss, part
