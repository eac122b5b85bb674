"""`try_out`: does a loss or a head help on the user's own data?

Each seed repeats the whole procedure: split, initial weights, draws of settings, the choice on
validation data. So the spread over seeds holds the luck of all four. A candidate compiles once:
rate, decay and its own parameter are variables. `_intervals.py` has the statistics.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import json
import numbers
import os
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _files, layers, losses
from rank4class_tf._batches import batches, of_tuple
from rank4class_tf._intervals import Comparison, Estimate, mean_difference
from rank4class_tf._registry import Configured
from rank4class_tf.evaluation import Evaluator, mean_metrics

_PARTS = ("train", "validation", "test")

# The ranges of the settings, log-uniform: learning rate, decay of AdamW (which multiplies it by the
# rate), and the factor of a candidate's own parameter, which is the first of _OWN that it has.
_RANGES = ((1e-4, 1e-1), (1e-4, 1.0), (0.25, 4.0))
_OWN, _SHARES = ("label_smoothing", "q", "margin", "temperature", "scale"), ("label_smoothing", "q")


# The learning rate, the weight decay and a candidate's own parameter, by name.
Setting: TypeAlias = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Trial:
    """What `try_out` found out about a candidate.

    Attributes:
        values: name of a metric -> its `Estimate` on the test data.
        gains: name of a metric -> its `Comparison` with the first candidate, which has none.
        settings: for each seed, the chosen learning rate, weight decay and own parameter.
        seconds: per epoch, the median.
        build: returns a new model, compiled with the settings of the first seed.
    """

    name: str
    values: dict[str, Estimate]
    gains: dict[str, Comparison]
    settings: list[Setting]
    seconds: float
    build: Callable[[], keras.Model] = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, repr=False)
class TryOut:
    """The result of `try_out`; it prints as a table with a verdict.

    Attributes:
        trials: a `Trial` for each candidate, in the order given.
        monitor: the metric by which settings and epochs were chosen.
        num_settings: how many settings each candidate tried for each seed.
        notes: what to know before you trust the table.
        noise: the estimate of wrong labels, or None: their `"share"`; `"concentration"`, the share
            of wrong labels that are the most frequent confusion of their class, near
            1 / (number of classes - 1) if they are spread evenly; and the most frequent
            `"confusions"`: true class, label, number of examples.
    """

    trials: list[Trial]
    monitor: str
    num_settings: int
    notes: list[str]
    noise: dict[str, Any] | None

    @property
    def best(self) -> Trial:
        """The best on the test data of those that beat the first beyond noise, else the first."""
        gains = [(trial, trial.gains.get(self.monitor)) for trial in self.trials]
        better = [t for t, gain in gains if gain and gain.difference > 0 and gain.p_value < 0.05]
        if len(self.trials[0].settings) == 1:  # One seed cannot tell luck from gain.
            better = []
        return max(better, key=lambda t: t.values[self.monitor].value, default=self.trials[0])

    @property
    def verdict(self) -> str:
        """One sentence."""
        first, best = self.trials[0].name, self.best
        if best.name == first:
            return f"Stay with {first}: nothing is better in {self.monitor} beyond noise."
        return f"Take {best.name}: {_gain(best, self.monitor)} in {self.monitor} over {first}."

    def __repr__(self) -> str:
        rows = [["", *self.trials[0].values, f"gain in {self.monitor}", "settings", "s/epoch"]]
        for trial in self.trials:
            values = [
                f"{of.value:.3f} ({of.low:.3f} to {of.high:.3f})" for of in trial.values.values()
            ]
            chosen = {
                name: np.median([s[name] for s in trial.settings]) for name in trial.settings[0]
            }
            settings = ", ".join(f"{name} {value:.2g}" for name, value in chosen.items())
            gain = _gain(trial, self.monitor)
            rows.append([trial.name, *values, gain, settings, f"{trial.seconds:.2g}"])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        seeds = len(self.trials[0].settings)
        lines.append(f"Each tried {self.num_settings} settings for each of {seeds} seeds.")
        return "\n".join([*lines, *self.notes, self.verdict])

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Draws the monitored metric with its intervals, and writes it if there is a path."""
        from rank4class_tf.plots import new_figure  # No saved model needs that module.

        figure, axes = new_figure(6.4, 1.2 + 0.35 * len(self.trials))
        found = [trial.values[self.monitor] for trial in self.trials]
        error = [[of.value - of.low for of in found], [of.high - of.value for of in found]]
        places = range(len(found))
        axes.errorbar([of.value for of in found], places, xerr=error, fmt="o", capsize=3)
        axes.axvline(found[0].value, color="0.6", linestyle=":")
        axes.set_yticks(places, [trial.name for trial in self.trials])
        axes.invert_yaxis()
        axes.set_xlabel(f"{self.monitor} on test data, 95 % intervals")
        if path is not None:
            figure.savefig(path, dpi=120)
        return figure

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes everything but the models as JSON."""
        trials = [{**vars(trial), "build": None} for trial in self.trials]
        made = {**vars(self), "trials": trials, "verdict": self.verdict}
        _files.write_text(path, json.dumps(made, indent=1, default=vars))


def _gain(trial: Trial, metric: str) -> str:
    gain = trial.gains.get(metric)
    text = "{0.difference:+.3f} ({0.low:+.3f} to {0.high:+.3f}), p {0.p_value:.2g}"
    return text.format(gain) if gain else ""


def try_out(
    build: Callable[..., keras.Model],
    train: Any,
    validation: Any,
    test: Any,
    candidates: Mapping[str, Any] | None = None,
    metrics: Sequence[Any] = ("top_k_accuracy_at_1", "ndcg_at_5"),
    monitor: str | None = None,
    settings: int = 12,
    seeds: int = 3,
    minutes: float | None = None,
    *,
    epochs: int = 50,
    patience: int = 5,
    batch_size: int = 64,
    path: str | os.PathLike[str] | None = None,
    noise: str | None = None,
    verbose: bool = True,
) -> TryOut:
    """Compares losses and heads on your data, all tuned alike, and says whether one helps.

    For each seed, each candidate tries the same number of settings from one Latin hypercube:
    learning rates in [1e-4, 0.1], weight decays of AdamW in [1e-4, 1], and a factor in [1/4, 4] of
    its margin, temperature or scale, or of the odds of label smoothing or q: what it has first.
    Settings and epochs are chosen by `monitor` on the validation data. The chosen models see the
    test data once. Intervals and p-values count test lists and seeds as samples; p-values are
    corrected for the number of candidates (Holm). Global seeds are set.

    Args:
        build: a function of a layer that returns a Keras model that ends in it; or of nothing, for
            models with an end of their own, such as a `TwoTower`. It makes new layers at each call.
            Where it compiles the model, its optimizer is used, else AdamW.
        train: a tuple `(features, labels)` or `(features, labels, sample_weight)` of all examples,
            or a `tf.data.Dataset` of such batches. Labels have any form that the losses take.
        validation: the same; or the share of `train` to set aside, drawn anew for each seed. If
            labels may be wrong, a few hundred checked ones choose better than many.
        test: as `train`.
        candidates: name -> a loss, or a pair of a loss and a head; without a head it is a `Dense`.
            The first is the baseline. None compares a dozen of this package.
        metrics: means over lists, or their names; `"macro_..."` averages over classes.
        monitor: the name of the one to choose by, higher is better; None means the last.
        settings: how many settings each candidate tries for each seed.
        seeds: how often everything is repeated; two can hardly show a gain, one cannot.
        minutes: a budget. Where it ends early, all candidates have tried equally fewer settings.
        epochs: the most epochs of a training.
        patience: a training ends after so many epochs without a better validation value.
        batch_size: examples per batch of arrays.
        path: a file that keeps each finished training, from which an interrupted call goes on: with
            arrays, under Keras 3, to the same table. After a change of `build` name another file.
        noise: `"estimate"` also estimates how many labels of `train` are wrong, and between which
            classes, by cross-validation; it needs arrays, class ids and the package cleanlab.
        verbose: whether to show the progress and how long it will take.
    """
    counts = {"settings": settings, "seeds": seeds, "epochs": epochs, "patience": patience}
    for name, value in {**counts, "batch_size": batch_size}.items():
        _checks.positive_int(name, value)
    if minutes is not None:
        _checks.positive_float("minutes", minutes)
    validation = float(validation) if isinstance(validation, numbers.Real) else validation
    train, validation, test = (
        of_tuple(part) if isinstance(part, tuple) else part for part in (train, validation, test)
    )
    if _checks.one_of("noise", noise, (None, "estimate")) is not None:
        _checks.imported("cleanlab.count", "`noise` needs cleanlab", "noise")
        rule = "`noise` must be None unless `train` is arrays with class ids."
        is_right = isinstance(train, tuple) and np.ndim(train[1]) == 1
        _checks.require(is_right, rule, noise)
    number = max(_num_classes(*x) for x in zip(_PARTS, (train, validation, test), strict=True))
    arguments = inspect.signature(build).parameters.values()
    takes_head = any(of.default is of.empty for of in arguments)
    head = keras.layers.Dense(number) if takes_head else None
    candidates = _a_dozen(head and number) if candidates is None else candidates
    is_right = isinstance(candidates, Mapping) and len(candidates) > 0
    _checks.require(is_right, "`candidates` must be a dict with at least one.", candidates)
    how = build, head, train, validation, metrics, monitor, epochs, patience, batch_size
    tried = {name: _Candidate(name, given, *how) for name, given in candidates.items()}
    of_data = [] if path is None else [_fingerprint(part) for part in (train, validation, test)]
    to_config = keras.utils.serialize_keras_object
    measured = [(macro, to_config(metric)) for metric, macro in mean_metrics(metrics)]
    of_tried = [of.described for of in tried.values()]
    described = [of_tried, measured, settings, seeds, batch_size, of_data]
    kept = _Kept(path, json.dumps([described, epochs, patience], default=str))

    total = (settings + 1) * seeds * len(tried)
    if verbose:
        print(f"{total} trainings of at most {epochs} epochs; from the first on, the time left:")
    bar = keras.utils.Progbar(total, verbose=int(verbose), unit_name="training")
    done = _rounds(tried, settings, seeds, minutes, kept, bar)
    chosen: dict[str, list[Setting]] = {name: [] for name in tried}
    tests: dict[str, list] = {name: [] for name in tried}
    for name, seed in itertools.product(tried, range(seeds)):
        place = int(np.argmax([value for value, *_ in done[name][seed]]))
        setting = done[name][seed][place][2]
        measure = functools.partial(tried[name].test, setting, seed, test)
        chosen[name].append(setting)
        tests[name].append(kept.get(f"{name}/{seed}/test of {place}", measure))
        bar.add(1)
    (first, baseline), *_ = tried.items()
    metrics, gains = list(tests[first][0]), _gains(tests)
    trials = [
        Trial(
            name,
            {metric: _estimate(of_seeds, metric) for metric in metrics},
            gains[name],
            chosen[name],
            float(np.median([seconds for runs in done[name] for _, seconds, _ in runs])),
            functools.partial(tried[name].new, chosen[name][0]),
        )
        for name, of_seeds in tests.items()
    ]
    ahead = [t.name for t in trials[1:] if t.gains[baseline.monitor].difference > 0]
    notes = list(_notes(done, chosen, baseline.length_of_encodings(), ahead))
    estimate = None if noise is None else baseline.estimate_noise(chosen[first][0])
    if estimate is not None:
        pairs = ", ".join(f"{t} labelled {y} ({n})" for t, y, n in estimate["confusions"])
        of = "{share:.1%} of the labels look wrong; {concentration:.0%} of them are the most"
        notes.append(f"{of.format(**estimate)} frequent confusion of their class. First: {pairs}.")
    return TryOut(trials, baseline.monitor, len(done[first][0]), notes, estimate)


def _rounds(
    tried: dict[str, _Candidate],
    settings: int,
    seeds: int,
    minutes: float | None,
    kept: _Kept,
    bar: Any,
) -> dict[str, list]:
    """For each candidate and seed: validation value, seconds and setting of each training.

    A round is one setting of every candidate and seed, so that all have tried as many at any end.
    """
    done: dict[str, list] = {name: [[] for _ in range(seeds)] for name in tried}
    drawn = [_draws(settings, seed) for seed in range(seeds)]
    begin = start = time.monotonic()
    for place in range(settings):
        for seed, (name, of) in itertools.product(range(seeds), tried.items()):
            setting = of.setting(drawn[seed][place])
            train = functools.partial(of.train, setting, seed)
            done[name][seed].append((*kept.get(f"{name}/{seed}/{place}", train), setting))
            bar.add(1)
        took, start = time.monotonic() - start, time.monotonic()
        if minutes is not None and start - begin + 2 * took > 60 * minutes:
            break  # The tests take as long as a round.
    return done


def _draws(number: int, seed: int) -> np.ndarray:
    """Settings `[number, 3]`: each parameter has one value in each of `number` equal steps."""
    rng = np.random.default_rng([seed, 0])
    low, high = np.log(_RANGES).T
    steps = np.stack([rng.permutation(number) for _ in low], axis=1) + rng.random((number, 3))
    return np.exp(low + steps / number * (high - low))


def _a_dozen(num_classes: int | None) -> dict[str, Any]:
    names = ["softmax", "generalized_cross_entropy", "rankmax", "sparsemax", "approx_ndcg"]
    names += ["approx_mrr", "pairwise_logistic", "warp"]
    found: dict[str, Any] = {name: losses.get(f"{name}_loss") for name in names}
    found["smoothed softmax"] = losses.SoftmaxLoss(label_smoothing=0.1)
    found["Crammer-Singer"] = losses.OrderedWeightedLoss.crammer_singer()
    if num_classes is not None:
        for name in ("softmax", "rankmax"):
            found[f"{name}, cosine head"] = found[name], layers.CosineHead(num_classes)
    return found


def _num_classes(name: str, part: Any) -> int:
    """The width of dense relevance, or the highest class id plus 1."""
    if isinstance(part, float):
        return 1
    if isinstance(part, tf.data.Dataset):
        is_right = part.cardinality() != tf.data.INFINITE_CARDINALITY
        _checks.require(is_right, f"`{name}` must be a dataset that ends.", "an endless one")
    highest = 0
    for _, labels, *_ in batches(part, 1024):
        labels = np.asarray(getattr(labels, "flat_values", labels))
        rule = "must have labels that are numbers, as of `np.unique(names, return_inverse=True)`."
        _checks.require(labels.dtype.kind in "iufb", f"`{name}` {rule}", labels.dtype)
        if labels.ndim == 2 and labels.shape[1] > 1:
            rising = np.sort(labels, axis=1)
            repeats = (rising[:, 1:] == rising[:, :-1]) & (rising[:, 1:] >= 0)
            if labels.dtype.kind in "fb" or repeats.any():  # A class id stands once in a list.
                return labels.shape[1]
        highest = max(highest, int(labels.max(initial=0)))
    return highest + 1


def _fingerprint(examples: Any) -> Any:
    """What tells other data apart: the content of arrays, the form of datasets."""
    if not isinstance(examples, tuple):
        return str(examples)
    flat = (x for batch in batches(examples, 1024) for x in tf.nest.flatten(batch, True))
    return sum(zlib.crc32(tf.io.serialize_tensor(x).numpy()) for x in flat)


def _rows(examples: Any, places: np.ndarray) -> Any:
    return tf.nest.map_structure(lambda x: tf.gather(x, places), examples)


class _Candidate:
    """A loss and a head whose model is compiled once and trained many times."""

    def __init__(
        self,
        name: str,
        given: Any,
        build: Callable,
        head: Any,
        train: Any,
        validation: Any,
        metrics: Sequence,
        monitor: str | None,
        *how: int,
    ) -> None:
        self._loss, own_head = given if isinstance(given, tuple) else (given, None)
        self._build, self._head = build, own_head or head
        self._train, self._validation = train, validation
        self._epochs, self._patience, self._batch_size = how
        # Two names for one loss start from other weights: what they differ by is chance.
        self._seed = zlib.crc32(name.encode())
        self._features = next(batches(train, self._batch_size))[0]
        place, self._own = _own_parameter(*self._copies())
        self._given = getattr(place, self._own, 1.0)
        self._decays = True
        middle = self.setting(np.exp(np.log(_RANGES).mean(axis=1)))
        self._numbers = _as_variables(middle)
        self._model = self.new(self._numbers)
        self._variables = list(self._model.variables)
        optimizer = self._model.optimizer
        self._decays = bool(getattr(_inner(optimizer), "weight_decay", None))
        optimizer.build(self._model.trainable_variables)
        self._start = [np.array(x) for x in optimizer.variables]
        self._evaluate = Evaluator(self._model, metrics)
        names, rising = self._evaluate.names, self._evaluate.rising
        self.monitor = _checks.one_of("monitor", monitor or names[-1], rising)
        configs = [x and {**x.get_config(), "name": None} for x in (self._loss, self._head)]
        shapes = [tuple(x.shape) for x in self._variables]
        self.described = [name, type(self._loss).__name__, configs, shapes, self.monitor]

    def setting(self, drawn: np.ndarray) -> Setting:
        """The parameters by name, from a row of `_draws`."""
        rate, decay, factor = map(float, drawn)
        found = {"learning_rate": rate, **({"weight_decay": decay} if self._decays else {})}
        if self._own in _SHARES:  # The factor is one of the odds.
            found[self._own] = self._given * factor / (1 + self._given * (factor - 1))
        elif self._own:
            found[self._own] = self._given * factor
        return found

    def _copies(self) -> list:
        return [x and type(x).from_config(x.get_config()) for x in (self._loss, self._head)]

    def new(self, parameters: Setting) -> keras.Model:
        """A compiled model with parameters that are numbers or variables."""
        loss, head = self._copies()
        takes_scores = loss.get_config().get("from_logits", True)
        _checks.require(takes_scores, "`candidates` must take scores.", "from_logits=False")
        place, name = _own_parameter(loss, head)
        if name:
            setattr(place, name, parameters[name])
        model = self._build() if head is None else self._build(head)
        if not model.built:
            model(self._features, training=False)
        in_shards = any(isinstance(x, layers.ShardedClassTable) for x in model._flatten_layers())
        rule = "`build` must use no `ShardedClassTable`, whose rows would not start anew."
        _checks.require(not in_shards, rule, model.name)
        optimizer = getattr(model, "optimizer", None) or keras.optimizers.AdamW(weight_decay=1e-2)
        if getattr(_inner(optimizer), "weight_decay", None):
            _inner(optimizer).weight_decay = parameters["weight_decay"]
        optimizer.learning_rate = float(parameters["learning_rate"])
        model.compile(optimizer, loss)
        return model

    def train(self, setting: Setting, seed: int, examples: Any = None) -> tuple[float, float]:
        """Trains; returns the best validation value and the seconds of an epoch."""
        keras.utils.set_random_seed((self._seed + seed) % 2**32)
        train, validation = examples or self._train, self._validation
        if isinstance(validation, float):
            rule = "`validation` must be a share in (0, 1) of arrays, or data of its own."
            is_right = isinstance(train, tuple) and 0 < validation < 1
            _checks.require(is_right, rule, f"{validation} of {type(train).__name__}")
            order = np.random.default_rng(seed).permutation(len(tf.nest.flatten(train)[0]))
            held = round(validation * len(order))
            train, validation = _rows(train, order[held:]), _rows(train, order[:held])
        if isinstance(train, tuple):
            number = len(tf.nest.flatten(train)[0])
            train = tf.data.Dataset.from_tensor_slices(train).shuffle(number)
            train = train.batch(self._batch_size)
        fresh, model = self.new(_as_variables(setting)), self._model
        old = {id(variable) for variable in model.trainable_variables}
        shared = [variable for variable in fresh.trainable_variables if id(variable) in old]
        rule = "`build` must make new layers at each call; clone a pretrained one, or freeze it."
        _checks.require(not shared, rule, f"{len(shared)} variables again")
        starts = [*fresh.variables, *self._start]
        variables = [*self._variables, *model.optimizer.variables]
        for variable, start in zip(variables, starts, strict=True):
            variable.assign(start)
        if getattr(fresh.loss, "is_random", False):
            state: dict[str, Any] = {}
            fresh.loss.save_own_variables(state)
            model.loss.load_own_variables(state)
        model.optimizer.learning_rate = setting["learning_rate"]
        for name, number in setting.items():
            self._numbers[name].assign(number)
        best, best_epoch, weights = -np.inf, 0, model.get_weights()
        begin = time.monotonic()
        for epoch in range(1, self._epochs + 1):
            fitted = model.fit(train, epochs=1, verbose=0, shuffle=False)
            if not np.isfinite(fitted.history["loss"][-1]):
                break
            value = self._evaluate(validation)[self.monitor].value
            if value > best:
                best, best_epoch, weights = value, epoch, model.get_weights()
            elif epoch - best_epoch >= self._patience:
                break
        model.set_weights(weights)
        return best, (time.monotonic() - begin) / epoch

    def test(self, setting: Setting, seed: int, test: Any) -> dict[str, list]:
        """Trains again and measures the test data: values and weights of lists, and bounds."""
        self.train(setting, seed)
        found = self._evaluate(test)
        names = self._evaluate.names
        return {
            n: [*(x[n].tolist() for x in (found.values, found.weights)), found.bounds[n]]
            for n in names
        }

    def estimate_noise(self, setting: Setting, folds: int = 4) -> dict[str, Any]:
        """Confident learning on cross-validated probabilities, by cleanlab; see `TryOut.noise`."""
        from cleanlab.count import compute_confident_joint

        labels = np.asarray(self._train[1])
        softmax = layers.Probabilities()
        to_probabilities = getattr(self._model.loss, "probabilities", None) or softmax
        fold = np.random.default_rng(0).permutation(len(labels)) % folds
        found = []
        for held in (fold == place for place in range(folds)):
            self.train(setting, 0, _rows(self._train, np.flatnonzero(~held)))
            scores = self._model.predict(_rows(self._train[0], np.flatnonzero(held)), verbose=0)
            found.append((np.flatnonzero(held), to_probabilities(scores).numpy()))
        places, shares = map(np.concatenate, zip(*found, strict=True))
        wrong = compute_confident_joint(labels, shares[np.argsort(places)])
        share = 1 - np.trace(wrong) / wrong.sum()
        np.fill_diagonal(wrong, 0)
        confusions = [(int(t), int(y), int(wrong[y, t])) for y, t in np.argwhere(wrong)]
        return {
            "share": float(share),
            "concentration": float(wrong.max(axis=0).sum() / max(wrong.sum(), 1)),
            "confusions": sorted(confusions, key=lambda of: -of[2])[:5],
        }

    def length_of_encodings(self) -> float | None:
        """The median length of what the head gets before training, or None without a head."""
        if self._head is None:
            return None
        encodings = self._build(keras.layers.Activation("linear"))(self._features, training=False)
        return float(np.median(tf.norm(tf.cast(encodings, tf.float32), axis=-1)))


def _inner(optimizer: Any) -> Any:
    """The optimizer itself, where one for mixed precision is around it."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def _as_variables(setting: Setting) -> Setting:
    return {name: tf.Variable(number, trainable=False) for name, number in setting.items()}


def _own_parameter(loss: Any, head: Any) -> tuple[Any, str]:
    """The object that has a candidate's own parameter, and its name, or None and ""."""
    for place in (loss, getattr(head, "interaction", None)):
        for name in _OWN if isinstance(place, Configured) else ():
            if isinstance(value := getattr(place, name, None), float) and value > 0:
                return place, name
    return None, ""


class _Kept:
    """Finished trainings by name, in a file of JSON lines if a path is given."""

    def __init__(self, path: Any, described: str) -> None:
        self._path, self._found, lines = path, {}, [described + "\n"]
        if path is None:
            return
        if os.path.exists(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                found = file.readlines()
            rule = "`path` must be new, or a file of this comparison on this data."
            _checks.require(found[:1] == lines, rule, path)
            lines = [line for line in found if line.endswith("\n")]  # A cut line is not whole.
            self._found = dict(map(json.loads, lines[1:]))
        _files.write_text(path, "".join(lines))

    def get(self, name: str, make: Callable[[], Any]) -> Any:
        """What was kept, or else what `make` returns."""
        if name not in self._found:
            made = make()
            if self._path is not None:
                with open(self._path, "a", encoding="utf-8") as file:
                    file.write(json.dumps([name, made]) + "\n")
            self._found[name] = made
        return self._found[name]


def _of_lists(tests: list, metric: str) -> tuple:
    """The values `[seeds, lists]` of a metric, the weights of the lists, and the bounds."""
    return np.array([test[metric][0] for test in tests]), *map(np.array, tests[0][metric][1:])


def _estimate(tests: list, metric: str) -> Estimate:
    """The mean with an interval for lists and seeds."""
    values, weights, (low, high) = _of_lists(tests, metric)
    mean = float((values @ weights).mean() / max(weights.sum(), 1e-300))
    of = mean_difference(values - mean, weights, 0.95, high - low)
    return Estimate(mean, max(float(low), mean + of.low), min(float(high), mean + of.high))


def _gains(tests: dict[str, list]) -> dict[str, dict[str, Comparison]]:
    """Comparisons with the first, seeds and lists in pairs; the p-values are corrected by Holm."""
    first, *others = tests
    found: dict[str, dict[str, Comparison]] = {name: {} for name in tests}
    for metric in tests[first][0]:
        base, weights, (low, high) = _of_lists(tests[first], metric)
        gains = []
        for name in others:
            differences = _of_lists(tests[name], metric)[0] - base
            gains.append((name, mean_difference(differences, weights, 0.95, high - low)))
        highest = 0.0
        for place, (name, gain) in enumerate(sorted(gains, key=lambda gain: gain[1].p_value)):
            highest = max(highest, min(1.0, gain.p_value * (len(gains) - place)))
            found[name][metric] = dataclasses.replace(gain, p_value=highest)
    return found


def _notes(
    done: dict[str, list], chosen: dict[str, list[Setting]], length: float | None, ahead: list[str]
) -> Iterator[str]:
    """What a reader must know; that of settings only where four or more were tried."""
    if length is not None and not 0.1 <= length <= 100:
        yield (
            f"Before training, the encodings have a length of {length:.2g}. Far from 1, they slow "
            "a Dense down, so that other heads seem better. Try `Rescaling` before the head."
        )
    (first, base), *_ = done.items()
    if len(base) == 1:
        yield "One seed: the intervals leave out the luck of training, and prove no gain."
    for name, of_seeds in done.items():
        if any(max(value for value, *_ in runs) == -np.inf for runs in of_seeds):
            yield f"{name}: in a seed, no setting had a finite loss; its values mean nothing."
    if len(base[0]) < 4:
        yield "Fewer than four settings were tried: tune more before you decide."
        return
    for name, of_seeds in done.items():
        for parameter in chosen[name][0]:
            tried = [sorted(run[2][parameter] for run in runs) for runs in of_seeds]
            values = [setting[parameter] for setting in chosen[name]]
            for side, place in (("lowest", 0), ("highest", -1)):
                at = [value == of[place] for value, of in zip(values, tried, strict=True)]
                if 2 * sum(at) > len(at):
                    yield f"{name}: the best {parameter} is the {side} that was tried."
    if "weight_decay" not in base[0][0][2]:
        return
    by_decay = [sorted(runs, key=lambda run: run[2]["weight_decay"]) for runs in base]
    little = [runs[: len(runs) // 2] for runs in by_decay]
    undecayed, best, *others = (
        np.mean([max(value for value, *_ in runs) for runs in of_seeds])
        for of_seeds in (little, *done.values())
    )
    for name, value in zip(list(done)[1:], others, strict=True):
        if name in ahead and undecayed < value <= best:
            yield f"{name}: its gain over {first} vanishes once {first} has its best weight decay."
