"""`try_out`: trains every candidate with every setting and measures the chosen ones."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import json
import math
import numbers
import os
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _files, layers, losses
from rank4class_tf._batches import Dataset, as_tensors, batches
from rank4class_tf._intervals import weighted_mean
from rank4class_tf._types import PathLike
from rank4class_tf.evaluation import Evaluator, Metrics, mean_metrics
from rank4class_tf.trials import report
from rank4class_tf.trials.report import Setting, Trial, TryOut

# The ranges of the settings, log-uniform: learning rate, decay of AdamW (which
# multiplies it by the rate), and the factor of a candidate's own parameter.
_RANGES = ((1e-4, 1e-1), (1e-4, 1.0), (0.25, 4.0))

# Few seeds find good settings and rivals: more settings pay better than more seeds, and
# the test has seeds of its own (`scripts.robustness.judge` compares such designs).
_SCREENING_SEEDS = 2

# The parts of the cross-validation that estimates wrong labels.
_FOLDS = 4

# The parameters in [0, 1]: the factor multiplies their odds, so that they stay below 1.
_SHARES = ("label_smoothing", "q")

# What labels as wide as several items may be, the surest last: items ranked from 1 on
# (class ids would be all classes but 0), class ids, or labels that can only be
# relevance.
_RANKINGS, _IDS, _RELEVANCE = 1, 2, 3


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
    """Compares losses and heads on your data, tuned alike, and says whether one helps.

    First, each candidate tries the same settings, from one Latin hypercube, with two
    seeds: learning rates in [1e-4, 0.1], weight decays of AdamW in [1e-4, 1], and a
    factor in [1/4, 4] of its margin, temperature or scale, or the odds of label
    smoothing or q: the first that it has. `monitor` on the validation data chooses
    epochs, settings and the best rivals. These and the first candidate are then trained
    on fresh seeds, and they alone see the test data, once. Intervals and p-values count
    test lists and seeds as samples; p-values are corrected for the number of rivals
    (Holm). Global seeds are set.

    Args:
        build: a function of a layer that returns a Keras model that ends in it; or of
            nothing, for models with their own last layer, such as a `TwoTower`. Each
            call makes new layers. If it compiles the model, its optimizer is used, else
            AdamW.
        train: a tuple `(features, labels)` or `(features, labels, sample_weight)` of
            all examples, or a `tf.data.Dataset` of such batches. Labels have any form
            that the losses take. Integers `[batch, P]` are class ids, unless a list
            repeats one or all are rankings of P items, from 1 on; give other relevance
            as floats.
        validation: the same; or the share of `train` to set aside, drawn anew for each
            seed. A few hundred checked labels choose better than many of which some are
            wrong.
        test: as `train`.
        candidates: name -> a loss or its name, or a pair of a loss and a head; without
            a head it is a `Dense`. Or a pair of another candidate's name and a function
            of its trained model and the validation data, which returns the model to
            judge and costs no training of its own, such as
            `functools.partial(adjust_logits, class_prior=prior)`. The first is the
            baseline. None compares a dozen of this package.
        metrics: means over lists, or their names; `"macro_..."` averages over classes.
        monitor: the name of the one to choose by, higher is better; None means the
            last.
        settings: how many settings each candidate tries.
        seeds: how many fresh seeds the test takes; fewer than three allow no verdict.
        minutes: a budget. If the first trainings show that it is too short, there are
            fewer settings for all candidates, then fewer seeds.
        finalists: how many rivals of the first candidate are tested.
        epochs: the most epochs of a training.
        patience: a training ends after so many epochs without a better validation
            value.
        batch_size: examples per batch of arrays.
        path: a file that keeps finished trainings. An interrupted call, or one with
            more `seeds` or `minutes`, goes on from it: with arrays, under Keras 3, to
            the same table. It belongs to the data, the candidates, and the sources of
            functions with the numbers and strings that they read. It knows a
            `tf.data.Dataset` only by its form, and losses and layers of yours by their
            configs: delete it when their content or code changes.
        noise: `"estimate"` also estimates how many labels of `train` are wrong, and
            between which classes, by cross-validation; it needs arrays, class ids and
            the package cleanlab.
        class_names: names of the classes in that estimate; None shows their ids.
        verbose: whether to show the progress and how long it will take.
    """
    begin = time.monotonic()
    # Check what is cheap to check, before any data is read.
    limits = {"epochs": epochs, "patience": patience, "batch_size": batch_size}
    counts = {"settings": settings, "seeds": seeds, "finalists": finalists, **limits}
    for name, count in counts.items():
        _checks.positive_int(name, count)
    minutes = (
        math.inf if minutes is None else _checks.positive_float("minutes", minutes)
    )
    measured = Evaluator(None, metrics)
    rule = "`metrics` must have one that is higher for a better model, to choose by."
    _checks.require(bool(measured.rising), rule, measured.names)
    monitor = _checks.one_of("monitor", monitor or measured.names[-1], measured.rising)
    validation = (
        float(validation) if isinstance(validation, numbers.Real) else validation
    )
    data: dict[str, Any] = {"train": train, "validation": validation, "test": test}
    for name, examples in data.items():
        rule = (
            f"`{name}` is read many times: it must be arrays or a "
            "`tf.data.Dataset`; only"
        )
        rule += " `validation` may be a share of `train`, such as 0.2."
        is_data = isinstance(examples, Iterable) and not isinstance(
            examples, Iterator | Mapping
        )
        is_share = name == "validation" and isinstance(examples, float)
        _checks.require(is_data or is_share, rule, type(examples).__name__)
        if isinstance(examples, tuple):
            data[name] = as_tensors(examples)
    if _checks.one_of("noise", noise, (None, "estimate")) is not None:
        _checks.imported("cleanlab.count", "`noise` needs cleanlab", "noise")
        rule = "`noise` must be None unless `train` is arrays with class ids."
        _checks.require(
            isinstance(train, tuple) and np.ndim(train[1]) == 1, rule, noise
        )

    # Read the data: a batch to build models with, the number of classes, and checksums.
    keras.utils.set_random_seed(0)
    first_batch = next(batches(data["train"], batch_size, "train"), ())
    _checks.require(first_batch, "`train` must have at least one batch.", "none")
    features, rank, median_norm = first_batch[0], 2, None
    arguments = inspect.signature(build).parameters.values()
    takes_head = any(argument.default is argument.empty for argument in arguments)
    if takes_head:
        encodings = _built(build, keras.layers.Activation("linear"))(
            features, training=False
        )
        if isinstance(encodings, tf.SparseTensor):  # Of a model that is only a head.
            encodings = tf.sparse.to_dense(encodings)
        # Where the model ends in encodings `[batch, time, d]`, labels `[batch, time]`
        # are ids.
        rank = len(encodings.shape)
        median_norm = float(np.median(tf.norm(tf.cast(encodings, tf.float32), axis=-1)))
    contents: dict[str, Any] = {name: _read(name, x, rank) for name, x in data.items()}
    num_classes = _num_outputs(contents.values())
    if class_names is not None:
        rule = f"`class_names` must have a name for each of {num_classes} classes."
        _checks.require(
            len(class_names) >= num_classes, rule, f"{len(class_names)} names"
        )
    if not isinstance(test, tuple):
        # The values of the same list are compared, so that a shuffled test would mix
        # them up.
        rule = "`test` must give its examples in the same order each time."
        is_same = _read("test", test, rank) == contents["test"]
        _checks.require(is_same, rule, "another order of labels")

    # Compile each loss and head once; a function adjusts the trained model of another
    # candidate.
    if candidates is None:
        candidates = _default_candidates(num_classes if takes_head else None)
    is_right = isinstance(candidates, Mapping) and len(candidates) > 0
    _checks.require(
        is_right, "`candidates` must be a dict with at least one.", candidates
    )
    # A loss and a head or None; or the name of another candidate and a function of its
    # model.
    pairs: dict[str, tuple[Any, Any]] = {}
    for name, candidate in candidates.items():
        pair = candidate if isinstance(candidate, tuple) else (candidate, None)
        loss, part = pair if len(pair) == 2 else (None, None)
        adjusts = callable(part) and not isinstance(part, keras.layers.Layer)
        loss = losses.get(loss) if isinstance(loss, str) and not adjusts else loss
        is_right = isinstance(
            loss, str if adjusts else keras.losses.Loss
        ) and isinstance(name, str)
        is_right = is_right and (
            adjusts or part is None or isinstance(part, keras.layers.Layer)
        )
        forms = (
            "a loss or its name, to a pair of a loss and a head, or to a pair of "
            "another's name"
        )
        rule = f"`candidates` must map names to {forms} and a function."
        _checks.require(is_right, rule, f"{name!r}: {candidate!r}")
        pairs[name] = loss, part
    head = keras.layers.Dense(num_classes) if takes_head else None
    shared: dict[str, Any] = {
        "build": build,
        "data": data,
        "features": features,
        **limits,
    }
    shared |= {"metrics": metrics, "monitor": monitor}
    compiled: dict[str, _Candidate] = {}
    for name, (loss, part) in pairs.items():
        if not isinstance(loss, str):
            adjust = {
                other: function
                for other, (base, function) in pairs.items()
                if base == name
            }
            compiled[name] = _Candidate(name, loss, part or head, adjust, **shared)
    owners = {}  # Each candidate's own training, or the one whose model it adjusts.
    for name, (loss, _) in pairs.items():
        base = loss if isinstance(loss, str) else name
        owners[name] = compiled[
            _checks.one_of(f"candidates[{name!r}][0]", base, [*compiled])
        ]
    first, baseline = next(iter(owners.items()))
    for name in (
        "validation",
        "test",
    ):  # Data that do not fit raise now, not after all trainings.
        if not isinstance(data[name], float):
            sample: Any = itertools.islice(batches(data[name], 256, name), 1)
            baseline.evaluate(sample, name=name)
    # Take over what a call with the same header has finished, from a file of JSON
    # lines.
    finished = {}
    if path is not None:
        to_config = keras.utils.serialize_keras_object
        descriptions = [candidate.description for candidate in compiled.values()]
        configs = [
            (macro, to_config(metric)) for metric, macro in mean_metrics(metrics)
        ]
        # A dataset of TensorFlow may come in another order each time.
        datasets = {k: x for k, x in data.items() if isinstance(x, tf.data.Dataset)}
        contents |= {name: str(examples) for name, examples in datasets.items()}
        header = [
            [*owners],
            descriptions,
            configs,
            monitor,
            contents,
            _source(build),
            settings,
        ]
        lines = [json.dumps([*header, limits], default=str) + "\n"]
        if os.path.exists(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                old_lines = file.readlines()
            rule = "`path` must be new, or a file of this comparison on this data."
            _checks.require(old_lines[:1] == lines, rule, path)
            # A killed process may leave a last line without its end.
            lines = [line for line in old_lines if line.endswith("\n")]
        _files.write_text(path, "".join(lines))
        finished = dict(map(json.loads, lines[1:]))

    def run(
        owner: _Candidate, number: int, seed: int, tested: Sequence[str] = ()
    ) -> list[tuple]:
        """Name, training and test list values of candidates that share a training."""
        key = f"{owner.name}/{seed}/{number}" + (f"/test of {tested}" if tested else "")
        if key not in finished:
            finished[key] = owner.run(owner.setting(draws[number]), seed, tested)
            if path is not None:
                with open(path, "a", encoding="utf-8") as file:
                    file.write(json.dumps([key, finished[key]]) + "\n")
        bar.add(1)
        return [(name, Training(*x), test) for name, (x, test) in finished[key].items()]

    # Screen. A pass trains every candidate once: wherever it ends, all have tried
    # equally much.
    draws = _draw_settings(settings)
    num_screening_seeds = min(_SCREENING_SEEDS, seeds)
    num_tested = min(finalists + 1, len(owners))
    passes = [*itertools.product(range(settings), range(num_screening_seeds))]
    total = len(passes) * len(compiled) + seeds * num_tested
    if verbose:
        print(
            f"{total} trainings of at most {epochs} epochs; from the first on, the "
            "time left:"
        )
    # With a budget, how many trainings it holds is known after the first pass.
    target = total if minutes == math.inf else len(compiled) + num_tested
    bar = keras.utils.Progbar(target, verbose=int(verbose), unit_name="training")
    trainings: dict[str, list[Training]] = {name: [] for name in owners}
    values = {name: np.full((settings, num_screening_seeds), np.nan) for name in owners}
    deadline = begin + 60 * minutes
    for index, (number, seed) in enumerate(passes, start=1):
        for owner in compiled.values():
            for name, training, _ in run(owner, number, seed):
                trainings[name].append(training)
                values[name][number, seed] = training.value
        # The best settings, which are tested, may take far longer than the others.
        seconds = sum(x.total_seconds for done in trainings.values() for x in done)
        best = {name: max(done).total_seconds for name, done in trainings.items()}
        costs = seconds / index, num_tested * float(np.mean([*best.values()]))
        left = (
            deadline
            - time.monotonic()
            - (0 if noise is None else _FOLDS * best[baseline.name])
        )
        enough = report.FEW_SETTINGS * num_screening_seeds - index
        more, num_seeds = _affordable(left, costs, len(passes) - index, seeds, enough)
        bar.target = (index + more) * len(compiled) + num_seeds * num_tested
        if more == 0:
            break
    # A setting's value is its mean over the seeds; the last one may have seen fewer.
    num_settings = number + 1
    means = {name: np.nanmean(x[:num_settings], axis=1) for name, x in values.items()}
    tried = {
        name: [*map(owner.setting, draws[:num_settings])]
        for name, owner in owners.items()
    }
    settings_of_best = {name: tried[name][x.argmax()] for name, x in means.items()}
    wrong = (
        None
        if noise is None
        else baseline.estimate_noise(settings_of_best[first], class_names)
    )

    # Confirm: measure the test data, which no choice has seen. Candidates that share a
    # training and the best setting share it here, too.
    groups: dict[tuple[_Candidate, int], list[str]] = {}
    for name, best_number in report.finalists(means, finalists).items():
        groups.setdefault((owners[name], best_number), []).append(name)
    tests: dict[str, list[report.TestResult]] = {
        name: [] for name in sum(groups.values(), [])
    }
    fresh: dict[str, list[float]] = {name: [] for name in tests}
    bar.target = index * len(compiled) + num_seeds * len(groups)
    begin_of_test = time.monotonic()
    for index in range(num_seeds):
        # Measuring the test data may take longer than the trainings have shown.
        now = time.monotonic()
        if index >= report.FEW_SEEDS and now + (now - begin_of_test) / index > deadline:
            bar.update(bar.target, finalize=True)
            break
        for (owner, number), names in groups.items():
            for name, training, lists in run(
                owner, number, num_screening_seeds + index, names
            ):
                tests[name].append(lists)
                fresh[name].append(training.value)
    num_seeds = len(tests[first])

    # Report.
    gains = report.gains(tests)
    trials = [
        Trial(
            name=name,
            validation=float(means[name].max()),
            setting=settings_of_best[name],
            seconds=float(np.median([x.seconds for x in trainings[name]])),
            values=report.estimates(tests.get(name, [])),
            gains=gains.get(name, {}),
            build=functools.partial(owner.new, settings_of_best[name]),
        )
        for name, owner in owners.items()
    ]
    notes = [*report.notes(tried, means, fresh, median_norm)]
    if (num_settings, num_seeds) != (settings, seeds):
        held = f"{num_settings} of {settings} settings and {num_seeds} of {seeds} seeds"
        notes.append(f"minutes={minutes:g} held {held}.")
    elapsed = (time.monotonic() - begin) / 60
    if elapsed > 1.2 * minutes:
        notes.append(
            f"It took {elapsed:.2g} minutes: minutes={minutes:g} was too short."
        )
    if wrong is not None:
        confusions = ", ".join(
            f"{t} labelled {y} ({n})" for t, y, n in wrong["confusions"]
        )
        notes.append(
            f"{wrong['share']:.1%} of the labels look wrong; "
            f"{wrong['concentration']:.0%} of "
            f"them are the most frequent confusion of their class. First: {confusions}."
        )
    unfair = report.unfair(means, tests, monitor)
    return TryOut(trials, monitor, num_settings, num_seeds, notes, wrong, unfair)


def _affordable(
    left: float,
    costs: tuple[float, float],
    most_passes: int,
    most_seeds: int,
    enough: int,
) -> tuple[int, int]:
    """How many more passes and test seeds, at these costs, fit in the seconds left."""
    pass_cost, seed_cost = (max(cost, 1e-9) for cost in costs)
    # A budget too small for enough passes takes fewer seeds first.
    for seeds in (most_seeds, min(most_seeds, report.FEW_SEEDS)):
        passes = int(np.clip((left - seeds * seed_cost) / pass_cost, 0, most_passes))
        if passes >= min(enough, most_passes):
            break
    return passes, int(np.clip((left - passes * pass_cost) / seed_cost, 1, most_seeds))


def _built(build: Callable[..., keras.Model], *head: keras.layers.Layer) -> keras.Model:
    model = build(*head)
    rule = "`build` must return a Keras model."
    _checks.require(isinstance(model, keras.Model), rule, type(model).__name__)
    return model


def _source(build: Callable[..., keras.Model]) -> str:
    """A function's source, or its name if no file has it, and what it was made with."""
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
    """A Latin hypercube `[count, 3]`: each parameter has a value in each equal step."""
    rng = np.random.default_rng(0)
    low, high = np.log(_RANGES).T
    steps = np.stack([rng.permutation(count) for _ in low], axis=1) + rng.random(
        (count, 3)
    )
    return np.exp(low + steps / count * (high - low))


def _default_candidates(num_classes: int | None) -> dict[str, Any]:
    names = [
        "softmax",
        "generalized_cross_entropy",
        "rankmax",
        "sparsemax",
        "approx_ndcg",
    ]
    names += ["approx_mrr", "pairwise_logistic", "warp"]
    candidates: dict[str, Any] = {name: losses.get(f"{name}_loss") for name in names}
    candidates["smoothed softmax"] = losses.SoftmaxLoss(label_smoothing=0.1)
    candidates["Crammer-Singer"] = losses.OrderedWeightedLoss.crammer_singer()
    for name in ("softmax", "rankmax") if num_classes is not None else ():
        candidates[f"{name}, cosine head"] = (
            candidates[name],
            layers.CosineHead(num_classes),
        )
    return candidates


def _num_outputs(contents: Iterable[tuple]) -> int:
    """The number of outputs for which losses read all datasets' labels as meant."""
    forms, highest, _ = zip(*contents, strict=True)
    form, width = max(forms)
    return width if form in (_RANKINGS, _RELEVANCE) else max(highest) + 1


def _read(
    name: str, examples: Dataset | float, rank: int
) -> tuple[tuple[int, int], int, Any]:
    """Labels' form, width, maximum, and a checksum of arrays or a dataset's targets."""
    if isinstance(examples, float):
        return (0, 0), 0, examples
    form, highest, checksum = (0, 0), 0, 0
    for batch in batches(examples, 1024, name):
        labels = np.asarray(getattr(batch[1], "flat_values", batch[1]))
        rule = (
            "must have labels that are numbers, as of `np.unique(names, "
            "return_inverse=True)`."
        )
        _checks.require(labels.dtype.kind in "iufb", f"`{name}` {rule}", labels.dtype)
        # Dense relevance has the rank of the scores, and class ids of a list are
        # distinct.
        if labels.ndim == rank and labels.shape[-1] > 1:
            width = labels.shape[-1]
            rising = np.sort(labels, axis=-1)
            is_repeated = (rising[..., 1:] == rising[..., :-1]) & (rising[..., 1:] >= 0)
            kind = _RANKINGS if np.all(rising == np.arange(1, width + 1)) else _IDS
            if labels.dtype.kind in "fb" or is_repeated.any():
                kind = _RELEVANCE
            form = max(form, (kind, width))
        highest = max(highest, int(labels.max(initial=0)))
        parts = batch if isinstance(examples, tuple) else batch[1:]
        for x in map(np.asarray, tf.nest.flatten(batch[0], expand_composites=True)):
            is_finite = x.dtype.kind != "f" or np.isfinite(x).all()
            _checks.require(
                is_finite, f"`{name}` must have finite features.", "NaN or infinity"
            )
        structure = tf.nest.map_structure(lambda x: getattr(x, "dtype", type(x)), parts)
        checksum = zlib.crc32(str(structure).encode(), checksum)
        for x in tf.nest.flatten(parts, expand_composites=True):
            checksum = zlib.crc32(tf.io.serialize_tensor(x).numpy(), checksum)
    return form, highest, checksum


def _split(train: Any, validation: Any, seed: int) -> tuple[Any, Any]:
    """The data to train and validate with; the latter may be a share of the former."""
    if not isinstance(validation, float):
        return train, validation
    rule = "`validation` must be a share in (0, 1) of arrays, or data of its own."
    is_right = isinstance(train, tuple) and 0 < validation < 1
    _checks.require(is_right, rule, f"{validation} of {type(train).__name__}")
    order = np.random.default_rng(seed).permutation(train[1].shape[0])
    size = round(validation * len(order))
    rule = (
        f"`validation` must leave at least one of {len(order)} examples to both parts."
    )
    _checks.require(0 < size < len(order), rule, validation)
    return _select(train, order[size:]), _select(train, order[:size])


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


class Training(NamedTuple):
    """A finished training: best validation value, seconds of an epoch and of all."""

    value: float
    seconds: float
    total_seconds: float


@dataclasses.dataclass(eq=False)
class _Candidate:
    """A loss and a head whose model is compiled once and trained many times."""

    name: str
    loss: keras.losses.Loss
    head: keras.layers.Layer | None
    adjust: dict[
        str, Callable
    ]  # By the names of candidates that adjust this one's trained model.
    build: Callable[..., keras.Model]
    data: dict[str, Any]
    features: Any  # Of a batch, to build models with.
    metrics: Metrics
    monitor: str
    epochs: int
    patience: int
    batch_size: int

    def __post_init__(self) -> None:
        # Each name has its own initial weights: two names of one loss differ, but only
        # by chance.
        self._seed = zlib.crc32(self.name.encode())

        # The first parameter with a positive default is tuned.
        self._tuned, self._parameter, self._default = None, "", 1.0
        parts: list[Any] = [self.loss, self.head]
        for part in parts:
            for name in getattr(type(part), "tunable", ()):
                default = part.get_config()[name]
                if self._tuned is None and isinstance(default, float) and default > 0:
                    self._tuned, self._parameter, self._default = part, name, default

        # The parameters of a setting are variables of the graph. They start mid-range.
        self._has_decay = True
        middle = self.setting(np.exp(np.log(_RANGES).mean(axis=1)))
        self._variables_of_setting = {
            k: tf.Variable(x, trainable=False) for k, x in middle.items()
        }
        self._model = self.new(self._variables_of_setting)

        # What each training starts from, besides the weights of a new model.
        optimizer = self._model.optimizer
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        self._has_decay = bool(getattr(inner, "weight_decay", None))
        optimizer.build(self._model.trainable_variables)
        self._optimizer_values = [np.array(x) for x in optimizer.variables]
        self.evaluate = Evaluator(self._model, self.metrics)
        configs = [
            x and {**x.get_config(), "name": None} for x in (self.loss, self.head)
        ]
        self._variables = list(
            self._model.variables
        )  # Those of metrics come with a training.
        shapes = [tuple(x.shape) for x in self._variables]
        sources = {name: _source(function) for name, function in self.adjust.items()}
        self.description = [
            self.name,
            type(self.loss).__name__,
            configs,
            shapes,
            sources,
        ]

    def setting(self, drawn: np.ndarray) -> Setting:
        """The parameters by name, from a row of `_draw_settings`."""
        rate, decay, factor = map(float, drawn)
        setting = {
            "learning_rate": rate,
            **({"weight_decay": decay} if self._has_decay else {}),
        }
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
        """A copy of the loss or head; the tuned one has the setting's parameter."""
        if loss_or_head is None:
            return None
        tuned = (
            {self._parameter: setting[self._parameter]}
            if loss_or_head is self._tuned
            else {}
        )
        return type(loss_or_head).from_config({**loss_or_head.get_config(), **tuned})

    def new(self, setting: Setting) -> keras.Model:
        """A compiled model with parameters that are numbers or variables."""
        loss, head = (self._tuned_copy(x, setting) for x in (self.loss, self.head))
        takes_scores = loss.get_config().get("from_logits", True)
        _checks.require(
            takes_scores, "`candidates` must take scores.", "from_logits=False"
        )
        model = _built(self.build, *([] if head is None else [head]))
        if not model.built:
            model(self.features, training=False)
        in_shards = any(
            isinstance(x, layers.ShardedClassTable) for x in model._flatten_layers()
        )
        rule = (
            "`build` must use no `ShardedClassTable`, whose rows would not start anew."
        )
        _checks.require(not in_shards, rule, model.name)
        optimizer = getattr(model, "optimizer", None) or keras.optimizers.AdamW(
            weight_decay=1e-2
        )
        inner = getattr(optimizer, "inner_optimizer", optimizer)  # For mixed precision.
        if getattr(inner, "weight_decay", None):
            inner.weight_decay = setting["weight_decay"]
        optimizer.learning_rate = float(setting["learning_rate"])
        model.compile(optimizer, loss)
        return model

    def run(
        self, setting: Setting, seed: int, tested: Sequence[str] = ()
    ) -> dict[str, tuple[Training, report.TestResult]]:
        """Trains once; training and test of each candidate served, or of `tested`."""
        train, validation = _split(self.data["train"], self.data["validation"], seed)
        training, results = self.train(setting, seed, train, validation), {}
        for name in tested or (self.name, *self.adjust):
            trained, evaluate = training, self.evaluate
            if name in self.adjust:
                begin = time.monotonic()
                evaluate = Evaluator(
                    self.adjust[name](self._model, validation), self.metrics
                )
                value = self._monitored(evaluate, validation)
                value = value if training.value > -math.inf else training.value
                trained = Training(value, training.seconds, time.monotonic() - begin)
            test: report.TestResult = {}
            if tested:
                measured = evaluate(self.data["test"], name="test")
                for metric, values in measured.values.items():
                    weights, bounds = measured.weights[metric], measured.bounds[metric]
                    test[metric] = [values.tolist(), weights.tolist(), bounds]
            results[name] = trained, test
        return results

    def _monitored(self, evaluate: Evaluator, validation: Dataset) -> float:
        measured = evaluate(validation, name="validation")
        return weighted_mean(
            measured.values[self.monitor], measured.weights[self.monitor]
        )

    def train(
        self, setting: Setting, seed: int, train: Any, validation: Any
    ) -> Training:
        """Trains; the time of the whole training excludes compiling its graph."""
        begin = time.monotonic()
        keras.utils.set_random_seed((self._seed + seed) % 2**32)
        if isinstance(train, tuple):
            rows = tf.data.Dataset.from_tensor_slices(train)
            train = rows.shuffle(train[1].shape[0]).batch(self.batch_size)

        # Start the compiled model from the weights and draws of a new one.
        fresh, model = self.new(self._variables_of_setting), self._model
        trained_ids = {id(variable) for variable in model.trainable_variables}
        shared = [
            variable
            for variable in fresh.trainable_variables
            if id(variable) in trained_ids
        ]
        rule = (
            "`build` must make new layers at each call; clone a pretrained one, or "
            "freeze it."
        )
        _checks.require(not shared, rule, f"{len(shared)} variables again")
        variables = [*self._variables, *model.optimizer.variables]
        values = [*fresh.variables, *self._optimizer_values]
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
        parts, fresh_parts = (
            getattr(x.loss, "losses", [x.loss]) for x in (model, fresh)
        )
        for loss, fresh_loss in zip(parts, fresh_parts, strict=True):
            if getattr(loss, "is_random", False):
                state: dict[str, Any] = {}
                fresh_loss.save_own_variables(state)
                loss.load_own_variables(state)
        model.optimizer.learning_rate = setting["learning_rate"]
        for name, number in setting.items():
            self._variables_of_setting[name].assign(number)

        # Train until `patience` epochs bring no better value, and return to the best
        # epoch.
        best, best_epoch, weights = -np.inf, 0, model.get_weights()
        times = [time.monotonic()]
        for epoch in range(1, self.epochs + 1):
            history = model.fit(train, epochs=1, verbose=0, shuffle=False).history
            is_finite = np.isfinite(history["loss"][-1])
            value = self._monitored(self.evaluate, validation) if is_finite else -np.inf
            times.append(time.monotonic())
            if value > best:
                best, best_epoch, weights = value, epoch, model.get_weights()
            elif not is_finite or epoch - best_epoch >= self.patience:
                break
        model.set_weights(weights)
        epochs = np.diff(times)
        seconds = float(np.median(epochs[1:] if len(epochs) > 1 else epochs))
        return Training(best, seconds, times[0] - begin + len(epochs) * seconds)

    def estimate_noise(
        self, setting: Setting, class_names: Sequence[str] | None
    ) -> dict[str, Any]:
        """Cleanlab's confident learning, cross-validated; see `TryOut.noise`."""
        from cleanlab.count import compute_confident_joint

        train: Any = self.data["train"]
        labels = np.asarray(train[1])
        fold_of_row = np.random.default_rng(0).permutation(len(labels)) % _FOLDS
        scores = np.zeros((len(labels), self._model.output_shape[-1]), np.float32)
        for fold in range(_FOLDS):
            is_held_out = fold_of_row == fold
            others = _select(train, np.flatnonzero(~is_held_out))
            self.train(setting, 0, *_split(others, self.data["validation"], 0))
            features = _select(train[0], np.flatnonzero(is_held_out))
            scores[is_held_out] = self._model.predict(features, verbose=0)
        # A copy: the graph's loss holds variables, from which no layer of probabilities
        # is made.
        loss = self._tuned_copy(self.loss, setting)
        to_probabilities = (
            getattr(loss, "probabilities", None) or layers.Probabilities()
        )
        joint = compute_confident_joint(labels, to_probabilities(scores).numpy())
        share = 1 - np.trace(joint) / joint.sum()
        np.fill_diagonal(joint, 0)
        names = range(len(joint)) if class_names is None else class_names
        confusions = [
            (names[t], names[y], int(joint[y, t])) for y, t in np.argwhere(joint)
        ]
        return {
            "share": float(share),
            "concentration": float(joint.max(axis=0).sum() / max(joint.sum(), 1)),
            "confusions": sorted(confusions, key=lambda confusion: -confusion[2])[:5],
        }
