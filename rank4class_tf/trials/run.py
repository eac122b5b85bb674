"""`try_out`: trains every candidate with every setting, and measures the chosen ones."""

from __future__ import annotations

import functools
import inspect
import itertools
import json
import numbers
import os
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _files, layers, losses
from rank4class_tf._batches import Dataset, as_tensors, batches
from rank4class_tf._intervals import weighted_mean
from rank4class_tf._types import PathLike
from rank4class_tf.evaluation import Evaluator, Metrics, mean_metrics
from rank4class_tf.trials import report
from rank4class_tf.trials.report import Setting, Training, Trial, TryOut

# The ranges of the settings, log-uniform: learning rate, decay of AdamW (which multiplies it by the
# rate), and the factor of a candidate's own parameter.
_RANGES = ((1e-4, 1e-1), (1e-4, 1.0), (0.25, 4.0))

# Few seeds find good settings and rivals: more settings pay better than more seeds, and the test
# has seeds of its own (`scripts.robustness.judge` compares such designs).
_SCREENING_SEEDS = 2

# The parameters in [0, 1]: the factor multiplies their odds, so that they stay below 1.
_SHARES = ("label_smoothing", "q")


def try_out(
    build: Callable[..., keras.Model],
    train: Dataset,
    validation: Dataset | float,
    test: Dataset,
    candidates: Mapping[str, Any] | None = None,
    metrics: Metrics = ("top_k_accuracy_at_1", "ndcg_at_5"),
    monitor: str | None = None,
    settings: int = 12,
    seeds: int = 8,
    minutes: float | None = None,
    *,
    finalists: int = 2,
    epochs: int = 50,
    patience: int = 5,
    batch_size: int = 64,
    path: PathLike | None = None,
    noise: str | None = None,
    class_names: Sequence[str] | None = None,
    verbose: bool = True,
) -> TryOut:
    """Compares losses and heads on your data, all tuned alike, and says whether one helps.

    First, each candidate tries the same settings, from one Latin hypercube, with two seeds:
    learning rates in [1e-4, 0.1], weight decays of AdamW in [1e-4, 1], and a factor in [1/4, 4] of
    its margin, temperature or scale, or the odds of label smoothing or q: the first that it has.
    `monitor` on the validation data chooses epochs, settings and the best rivals. These and the
    first candidate are then trained on fresh seeds, and they alone see the test data, once.
    Intervals and p-values count test lists and seeds as samples; p-values are corrected for the
    number of rivals (Holm). Global seeds are set.

    Args:
        build: a function of a layer that returns a Keras model that ends in it; or of nothing, for
            models with their own last layer, such as a `TwoTower`. Each call makes new layers.
            If it compiles the model, its optimizer is used, else AdamW.
        train: a tuple `(features, labels)` or `(features, labels, sample_weight)` of all examples,
            or a `tf.data.Dataset` of such batches. Labels have any form that the losses take.
        validation: the same; or the share of `train` to set aside, drawn anew for each seed. A few
            hundred checked labels choose better than many of which some are wrong.
        test: as `train`.
        candidates: name -> a loss or its name, or a pair of a loss and a head; without a head it is
            a `Dense`. The first is the baseline. None compares a dozen of this package.
        metrics: means over lists, or their names; `"macro_..."` averages over classes.
        monitor: the name of the one to choose by, higher is better; None means the last.
        settings: how many settings each candidate tries.
        seeds: how many fresh seeds the test takes; fewer than three allow no verdict.
        minutes: a budget. If the first trainings show that it is too short, there are fewer
            settings for all candidates, then fewer seeds.
        finalists: how many rivals of the first candidate are tested.
        epochs: the most epochs of a training.
        patience: a training ends after so many epochs without a better validation value.
        batch_size: examples per batch of arrays.
        path: a file that keeps each finished training, from which an interrupted call goes on: with
            arrays, under Keras 3, to the same table. A call with more `seeds` or `minutes` goes on,
            too. It belongs to these data, candidates, this source of `build` and the numbers and
            strings that it reads. It knows a `tf.data.Dataset` only by its form, and losses and
            layers of yours by their configs: delete it when their content or code changes.
        noise: `"estimate"` also estimates how many labels of `train` are wrong, and between which
            classes, by cross-validation; it needs arrays, class ids and the package cleanlab.
        class_names: names of the classes in that estimate; None shows their ids.
        verbose: whether to show the progress and how long it will take.
    """
    begin = time.monotonic()
    # Check what is cheap to check, before any data is read.
    settings = _checks.positive_int("settings", settings)
    seeds = _checks.positive_int("seeds", seeds)
    finalists = _checks.positive_int("finalists", finalists)
    epochs = _checks.positive_int("epochs", epochs)
    patience = _checks.positive_int("patience", patience)
    batch_size = _checks.positive_int("batch_size", batch_size)
    if minutes is not None:
        _checks.positive_float("minutes", minutes)
    validation = float(validation) if isinstance(validation, numbers.Real) else validation
    data: dict[str, Any] = {"train": train, "validation": validation, "test": test}
    for name, examples in data.items():
        rule = f"`{name}` is read many times: it must be arrays or a `tf.data.Dataset`."
        _checks.require(not isinstance(examples, Iterator), rule, type(examples).__name__)
        if isinstance(examples, tuple):
            # TensorFlow takes rows of a tensor, not of a list.
            data[name] = tuple(
                tf.convert_to_tensor(x) if isinstance(x, list) else x for x in as_tensors(examples)
            )
    if _checks.one_of("noise", noise, (None, "estimate")) is not None:
        _checks.imported("cleanlab.count", "`noise` needs cleanlab", "noise")
        rule = "`noise` must be None unless `train` is arrays with class ids."
        is_right = isinstance(train, tuple) and np.ndim(train[1]) == 1
        _checks.require(is_right, rule, noise)

    # Compile each candidate once.
    arguments = inspect.signature(build).parameters.values()
    takes_head = any(argument.default is argument.empty for argument in arguments)
    # Where the model ends in encodings `[batch, time, d]`, labels `[batch, time]` are class ids.
    encodings = _built(build, keras.layers.Activation("linear")) if takes_head else None
    rank = len(getattr(encodings, "output_shape", (None, None)))
    num_classes = max(_num_classes(name, examples, rank) for name, examples in data.items())
    if noise is not None and class_names is not None:
        rule = f"`class_names` must have a name for each of {num_classes} classes."
        _checks.require(len(class_names) >= num_classes, rule, f"{len(class_names)} names")
    if not isinstance(test, tuple):
        # The values of the same list are compared, so that a shuffled test would mix them up.
        first_pass, second_pass = (_checksum(x[1:] for x in batches(test, 1)) for _ in range(2))
        rule = "`test` must give its examples in the same order each time."
        _checks.require(first_pass == second_pass, rule, "another order of labels")
    head = keras.layers.Dense(num_classes) if takes_head else None
    if candidates is None:
        candidates = _default_candidates(num_classes if takes_head else None)
    is_right = isinstance(candidates, Mapping) and len(candidates) > 0
    _checks.require(is_right, "`candidates` must be a dict with at least one.", candidates)
    limits = epochs, patience, batch_size
    compiled = {
        name: _Candidate(name, candidate, build, head, data, metrics, monitor, limits)
        for name, candidate in candidates.items()
    }
    baseline = next(iter(compiled.values()))
    for name in ("validation", "test"):  # Data that do not fit raise now, not after all trainings.
        baseline.check(data[name], name)
    finished = _FinishedTrainings()
    if path is not None:
        to_config = keras.utils.serialize_keras_object
        measured = [(macro, to_config(metric)) for metric, macro in mean_metrics(metrics)]
        fingerprints = [_fingerprint(examples) for examples in data.values()]
        header = [candidate.description for candidate in compiled.values()], measured, fingerprints
        finished.open(path, [*header, _source(build), settings, epochs, patience, batch_size])

    # A pass trains every candidate once, so that all have tried equally much wherever it ends.
    draws = _draw_settings(settings)
    tried = {name: [*map(x.setting, draws)] for name, x in compiled.items()}
    screening_seeds = range(min(_SCREENING_SEEDS, seeds))
    num_tested = min(finalists + 1, len(compiled))
    trainings: dict[str, dict] = {name: {} for name in compiled}
    passes = [*itertools.product(range(settings), screening_seeds)]
    total = len(passes) * len(compiled) + seeds * num_tested
    if verbose:
        print(f"{total} trainings of at most {epochs} epochs; from the first on, the time left:")
    bar = keras.utils.Progbar(total, verbose=int(verbose), unit_name="training")
    for index, (number, seed) in enumerate(passes, start=1):
        for name, candidate in compiled.items():
            train_once = functools.partial(candidate.train, tried[name][number], seed)
            training = Training(*finished.get_or_make(f"{name}/{seed}/{number}", train_once))
            trainings[name][number, seed] = training
            bar.add(1)
        if minutes is not None:
            left = 60 * minutes - (time.monotonic() - begin)
            # The best settings, which are tested, may take far longer than the others.
            seconds = [x.total_seconds for done in trainings.values() for x in done.values()]
            best_seconds = [max(done.values()).total_seconds for done in trainings.values()]
            costs = sum(seconds) / index, float(np.mean(best_seconds)) * num_tested
            enough = report.FEW_SETTINGS * len(screening_seeds) - index
            more, seeds_left = _affordable(left, costs, len(passes) - index, seeds, enough)
            bar.target = (index + more) * len(compiled) + seeds_left * num_tested
            if more == 0:
                break
    else:
        seeds_left = seeds

    # A setting's value is its mean over the seeds; the last one may have seen fewer.
    num_settings = number + 1
    values = {
        name: np.array(
            [
                [done.get((i, seed), done[i, 0]).value for seed in screening_seeds]
                for i in range(num_settings)
            ]
        )
        for name, done in trainings.items()
    }

    # Measure the test data, which no choice has seen.
    chosen = report.finalists(values, finalists)
    tests: dict[str, list[report.TestResult]] = {name: [] for name in chosen}
    begin_of_test, num_seeds = time.monotonic(), 0
    while num_seeds < seeds_left:
        seed = len(screening_seeds) + num_seeds
        for name, best in chosen.items():
            measure = functools.partial(compiled[name].test, tried[name][best], seed, data["test"])
            tests[name].append(finished.get_or_make(f"{name}/{seed}/test of {best}", measure))
            bar.add(1)
        num_seeds += 1
        if minutes is not None and report.FEW_SEEDS <= num_seeds < seeds_left:
            # Measuring the test data may take longer than the trainings have shown.
            now = time.monotonic()
            left = begin + 60 * minutes - now
            more = int(max(left, 0) / max((now - begin_of_test) / num_seeds, 1e-9))
            seeds_left = min(seeds_left, num_seeds + more)
            bar.target = index * len(compiled) + seeds_left * num_tested
            if more == 0:
                bar.update(bar.target, finalize=True)

    # Report.
    gains = report.gains(tests)
    trials = []
    for name, candidate in compiled.items():
        means = values[name].mean(axis=1)
        setting = tried[name][means.argmax()]
        trials.append(
            Trial(
                name=name,
                validation=float(means.max()),
                setting=setting,
                seconds=float(np.median([x.seconds for x in trainings[name].values()])),
                values={
                    metric: report.estimate(tests[name], metric)
                    for metric in baseline.metric_names
                    if name in tests
                },
                gains=gains.get(name, {}),
                build=functools.partial(candidate.new, setting),
            )
        )
    tried = {name: settings_of_name[:num_settings] for name, settings_of_name in tried.items()}
    notes = [*report.notes(tried, values, baseline.median_norm())]
    if (num_settings, seeds_left) != (settings, seeds):
        notes.append(
            f"minutes={minutes:g} held {num_settings} of {settings} settings and {seeds_left} of "
            f"{seeds} seeds."
        )
    elapsed = (time.monotonic() - begin) / 60
    if minutes is not None and elapsed > 1.2 * minutes:
        notes.append(f"It took {elapsed:.2g} minutes: minutes={minutes:g} was too short.")
    estimate = None if noise is None else baseline.estimate_noise(trials[0].setting, class_names)
    if estimate is not None:
        pairs = ", ".join(f"{t} labelled {y} ({n})" for t, y, n in estimate["confusions"])
        notes.append(
            f"{estimate['share']:.1%} of the labels look wrong; {estimate['concentration']:.0%} of "
            f"them are the most frequent confusion of their class. First: {pairs}."
        )
    unfair = report.unfair(values, tests, baseline.monitor)
    return TryOut(trials, baseline.monitor, num_settings, seeds_left, notes, estimate, unfair)


def _affordable(
    left: float, costs: tuple[float, float], most_passes: int, most_seeds: int, enough: int
) -> tuple[int, int]:
    """How many more passes and how many seeds of the test fit into the seconds left.

    Args:
        left: the seconds that are left.
        costs: the seconds of a pass and of a seed of the test.
        most_passes: how many more passes are wanted.
        most_seeds: how many seeds are wanted.
        enough: a budget too small for so many passes takes fewer seeds first.
    """
    pass_cost, seed_cost = (max(cost, 1e-9) for cost in costs)
    for seeds in (most_seeds, min(most_seeds, report.FEW_SEEDS)):
        passes = int(np.clip((left - seeds * seed_cost) / pass_cost, 0, most_passes))
        if passes >= min(enough, most_passes):
            break
    seeds = int(np.clip((left - passes * pass_cost) / seed_cost, 1, most_seeds))
    return passes, seeds


def _built(build: Callable[..., keras.Model], *head: keras.layers.Layer) -> keras.Model:
    model = build(*head)
    is_right = isinstance(model, keras.Model)
    _checks.require(is_right, "`build` must return a Keras model.", type(model).__name__)
    return model


def _source(build: Callable[..., keras.Model]) -> str:
    """The source of a function, or its name where no file has it, and what it was made with."""
    if isinstance(build, functools.partial):
        return f"{_source(build.func)} {build.args} {build.keywords}"
    if not hasattr(build, "__qualname__"):  # An object with `__call__`.
        return f"{_source(type(build))} {getattr(build, '__dict__', '')}"
    constants = {}
    if inspect.isfunction(build):
        names = inspect.getclosurevars(build)
        known = {**names.globals, **names.nonlocals}.items()
        constants = {k: x for k, x in known if isinstance(x, str | numbers.Number)}
    try:
        return f"{inspect.getsource(build)} {constants}"
    except (OSError, TypeError):
        return f"{build.__qualname__} {constants}"


def _draw_settings(count: int) -> np.ndarray:
    """A Latin hypercube `[count, 3]`: each parameter has a value in each of `count` equal steps."""
    rng = np.random.default_rng(0)
    low, high = np.log(_RANGES).T
    steps = np.stack([rng.permutation(count) for _ in low], axis=1) + rng.random((count, 3))
    return np.exp(low + steps / count * (high - low))


def _default_candidates(num_classes: int | None) -> dict[str, Any]:
    names = ["softmax", "generalized_cross_entropy", "rankmax", "sparsemax", "approx_ndcg"]
    names += ["approx_mrr", "pairwise_logistic", "warp"]
    candidates: dict[str, Any] = {name: losses.get(f"{name}_loss") for name in names}
    candidates["smoothed softmax"] = losses.SoftmaxLoss(label_smoothing=0.1)
    candidates["Crammer-Singer"] = losses.OrderedWeightedLoss.crammer_singer()
    for name in ("softmax", "rankmax") if num_classes is not None else ():
        candidates[f"{name}, cosine head"] = candidates[name], layers.CosineHead(num_classes)
    return candidates


def _num_classes(name: str, examples: Dataset | float, rank: int) -> int:
    """The width of dense relevance, which has the rank of the scores; or the highest id plus 1."""
    if isinstance(examples, float):
        return 1
    highest = 0
    for _, labels, *_ in batches(examples, 1024, name):
        labels = np.asarray(getattr(labels, "flat_values", labels))
        rule = "must have labels that are numbers, as of `np.unique(names, return_inverse=True)`."
        _checks.require(labels.dtype.kind in "iufb", f"`{name}` {rule}", labels.dtype)
        if labels.ndim == rank and labels.shape[-1] > 1:
            rising = np.sort(labels, axis=-1)
            is_repeated = (rising[..., 1:] == rising[..., :-1]) & (rising[..., 1:] >= 0)
            if labels.dtype.kind in "fb" or is_repeated.any():  # Class ids of a list are distinct.
                return labels.shape[-1]
        highest = max(highest, int(labels.max(initial=0)))
    return highest + 1


def _fingerprint(examples: Dataset | float) -> int | str:
    """Tells data apart: arrays by structure, order, types and values, datasets by their form."""
    if not isinstance(examples, tuple | list):
        return str(examples)
    return _checksum(batches(examples, 1024))


def _checksum(many: Iterator[Any]) -> int:
    checksum = 0
    for batch in many:
        structure = tf.nest.map_structure(lambda x: getattr(x, "dtype", type(x)), batch)
        checksum = zlib.crc32(str(structure).encode(), checksum)
        for x in tf.nest.flatten(batch, expand_composites=True):
            checksum = zlib.crc32(tf.io.serialize_tensor(x).numpy(), checksum)
    return checksum


def _num_examples(examples: tuple) -> int:
    labels = examples[1]
    return labels.shape[0] if hasattr(labels, "shape") else len(labels)


def _select(examples: Any, indices: np.ndarray) -> Any:
    """The examples with these indices."""

    def rows(x: Any) -> Any:
        if not isinstance(x, tf.SparseTensor):
            return tf.gather(x, indices)
        position = np.full(x.shape[0], -1)
        position[indices] = np.arange(len(indices))
        moved = position[x.indices.numpy()[:, 0]]
        entries = np.column_stack([moved, x.indices.numpy()[:, 1:]])[moved >= 0]
        shape = [len(indices), *x.shape[1:]]
        return tf.sparse.reorder(tf.SparseTensor(entries, x.values[moved >= 0], shape))

    return tf.nest.map_structure(rows, examples)


class _Candidate:
    """A loss and a head whose model is compiled once and trained many times."""

    def __init__(
        self,
        name: str,
        candidate: Any,
        build: Callable[..., keras.Model],
        default_head: keras.layers.Layer | None,
        data: dict[str, Any],
        metrics: Metrics,
        monitor: str | None,
        limits: tuple[int, int, int],
    ) -> None:
        pair = candidate if isinstance(candidate, tuple) else (candidate, None)
        loss, head = pair if len(pair) == 2 else (None, None)
        loss = losses.get(loss) if isinstance(loss, str) else loss
        is_right = isinstance(name, str) and isinstance(loss, keras.losses.Loss)
        is_right = is_right and (head is None or isinstance(head, keras.layers.Layer))
        rule = "`candidates` must map names to a loss or its name, or a pair of a loss and a head."
        _checks.require(is_right, rule, f"{name!r}: {candidate!r}")
        self._loss, self._head, self._build = loss, head or default_head, build
        self._train, self._validation = data["train"], data["validation"]
        self._epochs, self._patience, self._batch_size = limits
        # Each name has its own initial weights: two names of one loss differ, but only by chance.
        self._seed = zlib.crc32(name.encode())
        self._features = next(batches(self._train, self._batch_size))[0]

        # The parameters of a setting are variables of the graph. They start mid-range.
        self._tuned, self._parameter, self._default = _tunable(self._loss, self._head)
        self._has_decay = True
        middle = self.setting(np.exp(np.log(_RANGES).mean(axis=1)))
        self._setting_variables = _as_variables(middle)
        self._model = self.new(self._setting_variables)
        self._variables = list(self._model.variables)

        # What each training starts from, besides the weights of a new model.
        optimizer = self._model.optimizer
        self._has_decay = bool(getattr(_inner_optimizer(optimizer), "weight_decay", None))
        optimizer.build(self._model.trainable_variables)
        self._optimizer_values = [np.array(x) for x in optimizer.variables]
        self._evaluate = Evaluator(self._model, metrics)
        self.metric_names, rising = self._evaluate.names, self._evaluate.rising
        rule = "`metrics` must have one that is higher for a better model, to choose by."
        _checks.require(bool(rising), rule, self.metric_names)
        self.monitor = _checks.one_of("monitor", monitor or self.metric_names[-1], rising)
        configs = [x and {**x.get_config(), "name": None} for x in (self._loss, self._head)]
        shapes = [tuple(x.shape) for x in self._variables]
        self.description = [name, type(self._loss).__name__, configs, shapes, self.monitor]

    def setting(self, drawn: np.ndarray) -> Setting:
        """The parameters by name, from a row of `_draw_settings`."""
        rate, decay, factor = map(float, drawn)
        setting = {"learning_rate": rate, **({"weight_decay": decay} if self._has_decay else {})}
        while self._parameter:
            value = self._default * factor
            if self._parameter in _SHARES:
                value /= 1 + self._default * (factor - 1)
            setting[self._parameter] = value
            try:
                self._tuned_copy(self._tuned, setting)
                break
            except ValueError:  # Out of range: go half way back to the default.
                if factor == 1:
                    raise
                factor **= 0.5
        return setting

    def _tuned_copy(self, loss_or_head: Any, setting: Setting) -> Any:
        """A copy of the loss or the head; the tuned one takes its parameter from the setting."""
        if loss_or_head is None:
            return None
        tuned = {self._parameter: setting[self._parameter]} if loss_or_head is self._tuned else {}
        return type(loss_or_head).from_config({**loss_or_head.get_config(), **tuned})

    def new(self, setting: Setting) -> keras.Model:
        """A compiled model with parameters that are numbers or variables."""
        loss, head = self._tuned_copy(self._loss, setting), self._tuned_copy(self._head, setting)
        takes_scores = loss.get_config().get("from_logits", True)
        _checks.require(takes_scores, "`candidates` must take scores.", "from_logits=False")
        model = _built(self._build, *([] if head is None else [head]))
        if not model.built:
            model(self._features, training=False)
        in_shards = any(isinstance(x, layers.ShardedClassTable) for x in model._flatten_layers())
        rule = "`build` must use no `ShardedClassTable`, whose rows would not start anew."
        _checks.require(not in_shards, rule, model.name)
        optimizer = getattr(model, "optimizer", None) or keras.optimizers.AdamW(weight_decay=1e-2)
        if getattr(_inner_optimizer(optimizer), "weight_decay", None):
            _inner_optimizer(optimizer).weight_decay = setting["weight_decay"]
        optimizer.learning_rate = float(setting["learning_rate"])
        model.compile(optimizer, loss)
        return model

    def train(self, setting: Setting, seed: int, examples: Any = None) -> Training:
        """Trains; the time of the whole training leaves out that of compiling its graph."""
        begin = time.monotonic()
        keras.utils.set_random_seed((self._seed + seed) % 2**32)

        # Split and shuffle the examples.
        train, validation = examples or self._train, self._validation
        if isinstance(validation, float):
            rule = "`validation` must be a share in (0, 1) of arrays, or data of its own."
            is_right = isinstance(train, tuple) and 0 < validation < 1
            _checks.require(is_right, rule, f"{validation} of {type(train).__name__}")
            order = np.random.default_rng(seed).permutation(_num_examples(train))
            size = round(validation * len(order))
            rule = f"`validation` must leave at least one of {len(order)} examples to both parts."
            _checks.require(0 < size < len(order), rule, validation)
            train, validation = _select(train, order[size:]), _select(train, order[:size])
        if isinstance(train, tuple):
            num_examples = _num_examples(train)
            train = tf.data.Dataset.from_tensor_slices(train).shuffle(num_examples)
            train = train.batch(self._batch_size)

        # Start the compiled model from the weights and draws of a new one.
        fresh, model = self.new(_as_variables(setting)), self._model
        trained_ids = {id(variable) for variable in model.trainable_variables}
        shared = [variable for variable in fresh.trainable_variables if id(variable) in trained_ids]
        rule = "`build` must make new layers at each call; clone a pretrained one, or freeze it."
        _checks.require(not shared, rule, f"{len(shared)} variables again")
        initial_values = [*fresh.variables, *self._optimizer_values]
        variables = [*self._variables, *model.optimizer.variables]
        for variable, value in zip(variables, initial_values, strict=True):
            variable.assign(value)
        for loss, fresh_loss in zip(*map(_random_losses, (model.loss, fresh.loss)), strict=True):
            state: dict[str, Any] = {}
            fresh_loss.save_own_variables(state)
            loss.load_own_variables(state)
        model.optimizer.learning_rate = setting["learning_rate"]
        for name, number in setting.items():
            self._setting_variables[name].assign(number)

        # Train until `patience` epochs bring no better value, and return to the best epoch.
        best, best_epoch, weights = -np.inf, 0, model.get_weights()
        times = [time.monotonic()]
        for epoch in range(1, self._epochs + 1):
            history = model.fit(train, epochs=1, verbose=0, shuffle=False).history
            if not np.isfinite(history["loss"][-1]):
                break
            measured = self._evaluate(validation, name="validation")
            value = weighted_mean(measured.values[self.monitor], measured.weights[self.monitor])
            times.append(time.monotonic())
            if value > best:
                best, best_epoch, weights = value, epoch, model.get_weights()
            elif epoch - best_epoch >= self._patience:
                break
        model.set_weights(weights)
        epochs = np.diff(times) if len(times) > 1 else np.array([time.monotonic() - times[0]])
        seconds = float(np.median(epochs[1:] if len(epochs) > 1 else epochs))
        return Training(best, seconds, times[0] - begin + len(epochs) * seconds)

    def check(self, examples: Dataset | float, name: str) -> None:
        """Measures a batch, which raises if the data do not fit the model."""
        if not isinstance(examples, float):
            first_batch: Any = itertools.islice(batches(examples, 256, name), 1)
            self._evaluate(first_batch, name=name)

    def test(self, setting: Setting, seed: int, test: Dataset) -> report.TestResult:
        """Trains again and measures the test data: values and weights of lists, and bounds."""
        self.train(setting, seed)
        measured = self._evaluate(test, name="test")
        return {
            name: [values.tolist(), measured.weights[name].tolist(), measured.bounds[name]]
            for name, values in measured.values.items()
        }

    def estimate_noise(
        self, setting: Setting, class_names: Sequence[str] | None, folds: int = 4
    ) -> dict[str, Any]:
        """Confident learning on cross-validated probabilities, by cleanlab; see `TryOut.noise`."""
        from cleanlab.count import compute_confident_joint

        # A copy: the graph's loss holds variables, from which no layer of probabilities is made.
        loss = self._tuned_copy(self._loss, setting)
        to_probabilities = getattr(loss, "probabilities", None) or layers.Probabilities()
        examples: Any = self._train
        labels = np.asarray(examples[1])
        fold_of_row = np.random.default_rng(0).permutation(len(labels)) % folds
        rows, probabilities = [], []
        for fold in range(folds):
            held_out = np.flatnonzero(fold_of_row == fold)
            self.train(setting, 0, _select(examples, np.flatnonzero(fold_of_row != fold)))
            scores = self._model.predict(_select(examples[0], held_out), verbose=0)
            rows.append(held_out)
            probabilities.append(to_probabilities(scores).numpy())
        order = np.argsort(np.concatenate(rows))
        joint = compute_confident_joint(labels, np.concatenate(probabilities)[order])
        share = 1 - np.trace(joint) / joint.sum()
        np.fill_diagonal(joint, 0)
        names = range(len(joint)) if class_names is None else class_names
        confusions = [(names[t], names[y], int(joint[y, t])) for y, t in np.argwhere(joint)]
        return {
            "share": float(share),
            "concentration": float(joint.max(axis=0).sum() / max(joint.sum(), 1)),
            "confusions": sorted(confusions, key=lambda confusion: -confusion[2])[:5],
        }

    def median_norm(self) -> float | None:
        """The median length of the head's inputs before training, or None without a head."""
        if self._head is None:
            return None
        encoder = _built(self._build, keras.layers.Activation("linear"))
        encodings = encoder(self._features, training=False)
        if isinstance(encodings, tf.SparseTensor):  # Of a model that is only a head.
            encodings = tf.sparse.to_dense(encodings)
        return float(np.median(tf.norm(tf.cast(encodings, tf.float32), axis=-1)))


def _inner_optimizer(optimizer: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
    """The optimizer itself, if one for mixed precision wraps it."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def _as_variables(setting: Setting) -> Setting:
    return {name: tf.Variable(number, trainable=False) for name, number in setting.items()}


def _random_losses(loss: Any) -> list[Any]:
    """The loss if it draws random numbers, or the parts of a sum that do."""
    return [x for x in getattr(loss, "losses", [loss]) if getattr(x, "is_random", False)]


def _tunable(*loss_and_head: Any) -> tuple[Any, str, float]:
    """The loss or head that has a candidate's own parameter, the parameter's name and default."""
    for loss_or_head in loss_and_head:
        for name in getattr(type(loss_or_head), "tunable", ()):
            default = loss_or_head.get_config()[name]
            if isinstance(default, float) and default > 0:
                return loss_or_head, name, default
    return None, "", 1.0


class _FinishedTrainings:
    """Finished trainings by name, in a file of JSON lines if a path is given."""

    def __init__(self) -> None:
        self._path: PathLike | None = None
        self._results: dict[str, Any] = {}

    def open(self, path: PathLike, header: Any) -> None:
        """Reads what a call with the same header has finished, and adds what comes."""
        self._path, lines = path, [json.dumps(header, default=str) + "\n"]
        if os.path.exists(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                old_lines = file.readlines()
            rule = "`path` must be new, or a file of this comparison on this data."
            _checks.require(old_lines[:1] == lines, rule, path)
            # A killed process may leave a last line without its end.
            lines = [line for line in old_lines if line.endswith("\n")]
            self._results = dict(map(json.loads, lines[1:]))
        _files.write_text(path, "".join(lines))

    def get_or_make(self, name: str, make: Callable[[], Any]) -> Any:
        """The result with this name, which `make` returns if there is none yet."""
        if name not in self._results:
            self._results[name] = make()
            if self._path is not None:
                with open(self._path, "a", encoding="utf-8") as file:
                    file.write(json.dumps([name, self._results[name]]) + "\n")
        return self._results[name]
