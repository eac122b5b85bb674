"""`try_out`: screens all candidates on validation data, confirms the best on a test."""

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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _files
from rank4class_tf._batches import Dataset, batches
from rank4class_tf._types import PathLike
from rank4class_tf.evaluation import Evaluator, Metrics, mean_metrics
from rank4class_tf.trials import report
from rank4class_tf.trials.candidates import (
    FOLDS,
    Build,
    Candidate,
    Outcome,
    Plan,
    Task,
    Training,
    built,
    compiled,
    draw_settings,
    source,
)
from rank4class_tf.trials.data import Content, Data, checked, num_outputs
from rank4class_tf.trials.report import Setting, TestResult, Trial, TryOut


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
        monitor: the name of the one to choose by; None means the last for which higher
            is better.
        settings: how many settings each candidate tries.
        seeds: how many fresh seeds the test takes; fewer than three allow no verdict.
        minutes: a budget. If the first trainings show that it is too short, there are
            fewer settings for all candidates, then fewer seeds; two and three at least.
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
    plan = Plan(
        settings=settings,
        seeds=seeds,
        finalists=finalists,
        epochs=epochs,
        patience=patience,
        batch_size=batch_size,
    )

    # Check what is cheap to check, before any data is read.
    if minutes is None:
        minutes = math.inf
    else:
        minutes = _checks.positive_float("minutes", minutes)
    monitor = _checked_monitor(monitor, metrics)
    data = _checked_data(train, validation, test)
    _check_noise(noise, data)

    # Compile each loss and head once.
    keras.utils.set_random_seed(0)
    facts = _read(data, build, batch_size)
    _check_class_names(class_names, facts.num_classes)
    task = Task(
        build=build,
        data=data,
        features=facts.features,
        metrics=metrics,
        monitor=monitor,
        plan=plan,
    )
    num_outputs_of_heads = None if facts.encodings is None else facts.num_classes
    owners = compiled(candidates, num_outputs_of_heads, task)
    first, baseline = next(iter(owners.items()))
    _check_that_data_fit(baseline, data)

    # Screen all candidates, then confirm the best, but for what an earlier call did.
    finished = {}
    if path is not None:
        finished = _resumed(path, _description(task, owners, facts.contents))
    trainer = _Trainer(
        plan=plan,
        owners=owners,
        deadline=begin + 60 * minutes,
        folds=0 if noise is None else FOLDS,
        draws=draw_settings(settings),
        path=path,
        finished=finished,
        bar=keras.utils.Progbar(None, verbose=int(verbose), unit_name="training"),
    )
    screening = _screen(trainer)
    wrong = None
    if noise is not None:
        wrong = baseline.estimate_noise(screening.best_setting(first), class_names)
    outcomes = _confirm(trainer, screening)

    # Report.
    tests = {name: [x.test for x in done] for name, done in outcomes.items()}
    num_settings = len(screening.means[first])
    num_seeds = len(tests[first])
    elapsed = (time.monotonic() - begin) / 60
    notes = [
        *data.notes(),
        *_notes_of_trainings(screening, outcomes, facts.encodings),
        *_notes_of_time(plan, num_settings, num_seeds, minutes, elapsed),
        *_notes_of_noise(wrong),
    ]
    return TryOut(
        trials=_trials(owners, screening, tests),
        monitor=monitor,
        num_settings=num_settings,
        num_seeds=num_seeds,
        notes=notes,
        noise=wrong,
        unfair=report.unfair(screening.means, tests, monitor),
    )


def _checked_monitor(monitor: str | None, metrics: Metrics) -> str:
    """The name of the metric to choose by."""
    measured = Evaluator(None, metrics)
    rule = "`metrics` must have one that is higher for a better model, to choose by."
    _checks.require(bool(measured.rising), rule, measured.names)
    return _checks.one_of("monitor", monitor or measured.rising[-1], measured.rising)


def _checked_data(train: Dataset, validation: Dataset | float, test: Dataset) -> Data:
    """The datasets in forms that can be read again."""
    train = checked("train", train)
    held_out: Dataset | float
    if isinstance(validation, numbers.Real):
        held_out = float(validation)
    else:
        held_out = checked("validation", cast(Dataset, validation))
    return Data(train, held_out, test=checked("test", test))


def _check_noise(noise: str | None, data: Data) -> None:
    if _checks.one_of("noise", noise, (None, "estimate")) is not None:
        _checks.imported("cleanlab.count", "`noise` needs cleanlab", "noise")
        is_ids = isinstance(data.train, tuple) and np.ndim(data.train[1]) == 1
        rule = "`noise` must be None unless `train` is arrays with class ids."
        _checks.require(is_ids, rule, noise)


def _check_class_names(class_names: Sequence[str] | None, num_classes: int) -> None:
    if class_names is not None:
        rule = f"`class_names` must have a name for each of {num_classes} classes."
        received = f"{len(class_names)} names"
        _checks.require(len(class_names) >= num_classes, rule, received)


def _check_that_data_fit(baseline: Candidate, data: Data) -> None:
    """Raises now what data of another form would raise after all trainings."""
    for name in ("validation", "test"):
        examples = getattr(data, name)
        if not isinstance(examples, float):
            sample: Any = itertools.islice(batches(examples, 256, name), 1)
            baseline.evaluate(sample, name=name)


class _Facts(NamedTuple):
    """What the data say before any training."""

    features: Any  # Of a batch, to build models with.
    encodings: tf.Tensor | None  # Of that batch; None if models have their own end.
    contents: dict[str, Content]
    num_classes: int


def _read(data: Data, build: Build, batch_size: int) -> _Facts:
    """Reads a batch to build models with, the number of classes, and checksums."""
    first_batch = next(batches(data.train, batch_size, "train"), ())
    _checks.require(first_batch, "`train` must have at least one batch.", "none")
    features = first_batch[0]
    encodings = _encodings(build, features)
    # Where models end in encodings `[batch, time, d]`, labels `[batch, time]` are ids.
    contents = data.contents(2 if encodings is None else len(encodings.shape))
    return _Facts(
        features=features,
        encodings=encodings,
        contents=contents,
        num_classes=num_outputs(contents.values()),
    )


def _encodings(build: Build, features: Any) -> tf.Tensor | None:
    """What models give to their head, or None where they end in their own layer."""
    arguments = inspect.signature(build).parameters.values()
    if all(argument.default is not argument.empty for argument in arguments):
        return None
    encode = built(build, keras.layers.Activation("linear"))
    encodings = encode(features, training=False)
    if isinstance(encodings, tf.SparseTensor):  # Of a model that is only a head.
        encodings = tf.sparse.to_dense(encodings)
    return tf.cast(encodings, tf.float32)


def _trained(owners: dict[str, Candidate]) -> list[Candidate]:
    """Each once: a name that adjusts another's model shares its training."""
    return [*dict.fromkeys(owners.values())]


def _description(
    task: Task, owners: dict[str, Candidate], contents: dict[str, Content]
) -> list:
    """What tells a comparison from others, for a file."""
    to_config = keras.utils.serialize_keras_object
    metrics = [
        (mean.prefix, to_config(mean.metric)) for mean in mean_metrics(task.metrics)
    ]
    known: dict[str, Content | str] = {**contents}
    for name, examples in vars(task.data).items():
        # A dataset of TensorFlow may come in another order each time.
        if isinstance(examples, tf.data.Dataset):
            known[name] = str(examples)
    limits = ("epochs", "patience", "batch_size")
    return [
        [*owners],
        [owner.description() for owner in _trained(owners)],
        metrics,
        task.monitor,
        known,
        source(task.build),
        task.plan.settings,
        {name: getattr(task.plan, name) for name in limits},
    ]


def _resumed(path: PathLike, header: list) -> dict[str, dict[str, Outcome]]:
    """What calls with this header have finished, from a file of JSON lines."""
    lines = [json.dumps(header, default=str) + "\n"]
    if os.path.exists(path):
        with open(path, encoding="utf-8", errors="replace") as file:
            old_lines = file.readlines()
        rule = "`path` must be new, or a file of this comparison on this data."
        _checks.require(old_lines[:1] == lines, rule, path)
        # A killed process may leave a last line without its end.
        lines = [line for line in old_lines if line.endswith("\n")]

    finished = {}
    for number, line in enumerate(lines[1:], start=2):
        try:
            key, outcomes = json.loads(line)
        except (TypeError, ValueError) as error:
            rule = "`path` must hold a finished training on each line."
            received = f"line {number} of {os.fspath(path)}, which is damaged"
            raise ValueError(f"{rule} Received: {received}.") from error
        finished[key] = {
            name: Outcome.from_json(*lists) for name, lists in outcomes.items()
        }
    _files.write_text(path, "".join(lines))
    return finished


@dataclasses.dataclass(frozen=True)
class _Trainer:
    """Trains what no earlier call has finished, and keeps it in a file."""

    plan: Plan
    owners: dict[str, Candidate]  # By each name the candidate that is trained for it.
    deadline: float
    folds: int  # Trainings to estimate wrong labels with.
    draws: np.ndarray  # Of settings, by their numbers.
    path: PathLike | None
    finished: dict[str, dict[str, Outcome]]
    bar: keras.utils.Progbar

    def run(
        self, owner: Candidate, number: int, seed: int, tested: Sequence[str] = ()
    ) -> dict[str, Outcome]:
        """The outcomes, by name, of candidates that share a training."""
        key = f"{owner.name}/{seed}/{number}"
        if tested:
            key += f"/test of {tested}"
        if key not in self.finished:
            setting = owner.setting(self.draws[number])
            self.finished[key] = owner.run(setting, seed, tested)
            if self.path is not None:
                line = json.dumps([key, self.finished[key]], default=np.ndarray.tolist)
                with open(self.path, "a", encoding="utf-8") as file:
                    file.write(line + "\n")
        self.bar.add(1)
        return self.finished[key]


@dataclasses.dataclass(frozen=True)
class _Screening:
    """What the validation data say, by the names of candidates."""

    trainings: dict[str, list[Training]]
    tried: dict[str, list[Setting]]
    means: dict[str, np.ndarray]  # Of each setting, over its seeds.
    num_trainings: int
    num_seeds: int  # For which the test has time.

    def best_setting(self, name: str) -> Setting:
        return self.tried[name][self.means[name].argmax()]


def _screen(trainer: _Trainer) -> _Screening:
    """Trains all candidates with each setting, or with those that the time allows."""
    plan = trainer.plan
    owners = trainer.owners
    trained = _trained(owners)
    # All settings with one seed come first: a short budget has several settings.
    shape = plan.screening_seeds, plan.settings
    passes = [*np.ndindex(shape)]
    values = {name: np.full(shape, np.nan) for name in owners}
    trainings: dict[str, list[Training]] = {name: [] for name in owners}
    num_tested = min(plan.finalists + 1, len(owners))
    _announce(trainer, len(passes) * len(trained), num_tested)

    # A pass trains every candidate once: wherever it ends, all have tried equally much.
    num_done = 0
    for seed, number in passes:
        for owner in trained:
            for name, outcome in trainer.run(owner, number, seed).items():
                trainings[name].append(outcome.training)
                values[name][seed, number] = outcome.training.value

        num_done += 1
        rest = _rest(trainer, trainings, num_done, len(passes) - num_done)
        num_trainings = (num_done + rest.passes) * len(trained)
        trainer.bar.target = num_trainings + rest.seeds * num_tested
        if rest.passes == 0 and num_done > 1:  # One setting allows no verdict.
            break

    # A setting's value is its mean over the seeds; the last ones may have seen fewer.
    draws = trainer.draws[:num_done]
    tried = {name: [*map(x.setting, draws)] for name, x in owners.items()}
    means = {name: np.nanmean(x[:, :num_done], axis=0) for name, x in values.items()}
    return _Screening(
        trainings=trainings,
        tried=tried,
        means=means,
        num_trainings=num_done * len(trained),
        num_seeds=rest.seeds,
    )


def _announce(trainer: _Trainer, num_screened: int, num_tested: int) -> None:
    """Says how many trainings there are; a budget knows it after the first pass."""
    plan = trainer.plan
    bar = trainer.bar
    total = num_screened + plan.seeds * num_tested
    bar.target = total
    if trainer.deadline != math.inf:
        bar.target = len(_trained(trainer.owners)) + num_tested
    if bar.verbose:
        print(
            f"{total} trainings of at most {plan.epochs} epochs; from the first on, "
            "the time left:"
        )


class Rest(NamedTuple):
    """What fits into the time left."""

    passes: int  # Of the screening, each a training of every candidate.
    seeds: int  # Of the test.


def _rest(
    trainer: _Trainer,
    trainings: dict[str, list[Training]],
    num_done: int,
    most_passes: int,
) -> Rest:
    """How many more passes, and how many seeds of the test, fit into the time left."""
    plan = trainer.plan
    seconds = sum(x.total_seconds for done in trainings.values() for x in done)
    # The settings with the highest values, which are tested, may take far longer than
    # the others.
    best = {
        name: max(done, key=lambda x: (x.value, x.total_seconds))
        for name, done in trainings.items()
    }
    of_best = {name: training.total_seconds for name, training in best.items()}
    for name, owner in trainer.owners.items():
        # Tested with a setting of its own, it takes a training of the adjusted model.
        if owner.name != name:
            of_best[name] += best[owner.name].total_seconds
    num_tested = min(plan.finalists + 1, len(of_best))
    baseline = next(iter(trainer.owners.values()))
    left = trainer.deadline - time.monotonic()
    return affordable(
        left - trainer.folds * of_best[baseline.name],
        pass_cost=seconds / num_done,
        seed_cost=num_tested * float(np.mean([*of_best.values()])),
        most_passes=most_passes,
        most_seeds=plan.seeds,
        enough=report.FEW_SETTINGS * plan.screening_seeds - num_done,
    )


def affordable(
    left: float,
    *,
    pass_cost: float,
    seed_cost: float,
    most_passes: int,
    most_seeds: int,
    enough: int,
) -> Rest:
    """How many more passes and test seeds, at these costs, fit in the seconds left."""
    pass_cost = max(pass_cost, 1e-9)
    seed_cost = max(seed_cost, 1e-9)
    few = min(most_seeds, report.FEW_SEEDS)
    # A budget too small for enough passes takes fewer seeds first.
    for seeds in (most_seeds, few):
        passes = int(np.clip((left - seeds * seed_cost) / pass_cost, 0, most_passes))
        if passes >= min(enough, most_passes):
            break
    # Fewer allow no verdict: a budget gives way to them.
    num_seeds = np.clip((left - passes * pass_cost) / seed_cost, few, most_seeds)
    return Rest(passes, int(num_seeds))


def _confirm(trainer: _Trainer, screening: _Screening) -> dict[str, list[Outcome]]:
    """The finalists' outcomes, with fresh seeds, on data that no choice has seen."""
    plan = trainer.plan
    bar = trainer.bar
    # Candidates that share a training and the best setting share it here, too.
    groups: dict[tuple[Candidate, int], list[str]] = {}
    for name, number in report.finalists(screening.means, plan.finalists).items():
        groups.setdefault((trainer.owners[name], number), []).append(name)

    outcomes: dict[str, list[Outcome]] = {}
    bar.target = screening.num_trainings + screening.num_seeds * len(groups)
    begin = time.monotonic()
    for index in range(screening.num_seeds):
        # Measuring the test data may take longer than the trainings have shown.
        now = time.monotonic()
        enough = report.FEW_SEEDS
        cost = (now - begin) / max(index, 1)
        if index >= enough and now + cost > trainer.deadline:
            bar.update(bar.target, finalize=True)
            break
        seed = plan.screening_seeds + index
        for (owner, number), names in groups.items():
            for name, outcome in trainer.run(owner, number, seed, names).items():
                outcomes.setdefault(name, []).append(outcome)
    return outcomes


def _trials(
    owners: dict[str, Candidate],
    screening: _Screening,
    tests: dict[str, list[TestResult]],
) -> list[Trial]:
    gains = report.gains(tests)
    trials = []
    for name, owner in owners.items():
        setting = screening.best_setting(name)
        seconds = [x.seconds for x in screening.trainings[name]]
        trial = Trial(
            name=name,
            validation=float(screening.means[name].max()),
            setting=setting,
            seconds=float(np.median(seconds)),
            values=report.estimates(tests.get(name, [])),
            gains=gains.get(name, {}),
            build=functools.partial(owner.new, setting),
        )
        trials.append(trial)
    return trials


def _notes_of_trainings(
    screening: _Screening,
    outcomes: dict[str, list[Outcome]],
    encodings: tf.Tensor | None,
) -> Iterable[str]:
    """What the trainings say of the ranges of settings, and of the encodings."""
    fresh = {name: [x.training.value for x in done] for name, done in outcomes.items()}
    median_norm = None
    if encodings is not None:
        median_norm = float(np.median(tf.norm(encodings, axis=-1)))
    return report.notes(screening.tried, screening.means, fresh, median_norm)


def _notes_of_time(
    plan: Plan, num_settings: int, num_seeds: int, minutes: float, elapsed: float
) -> Iterator[str]:
    """What a budget of so many minutes left out, and whether it was kept."""
    if (num_settings, num_seeds) != (plan.settings, plan.seeds):
        yield (
            f"minutes={minutes:g} held {num_settings} of {plan.settings} settings and "
            f"{num_seeds} of {plan.seeds} seeds."
        )
    if elapsed > 1.2 * minutes:
        yield f"It took {elapsed:.2g} minutes: minutes={minutes:g} was too short."


def _notes_of_noise(noise: dict[str, Any] | None) -> Iterator[str]:
    if noise is None:
        return
    confusions = ", ".join(f"{t} labelled {y} ({n})" for t, y, n in noise["confusions"])
    yield (
        f"{noise['share']:.1%} of the labels look wrong; {noise['concentration']:.0%} "
        f"of them are the most frequent confusion of their class. First: {confusions}."
    )
