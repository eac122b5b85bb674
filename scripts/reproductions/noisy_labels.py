r"""Compares losses on labels that confuse classes.

    python -m scripts.reproductions.noisy_labels --dataset digits --out out/noisy
    python -m scripts.reproductions.noisy_labels --dataset goemotions --features features.npz \
        --preset FOLDER --data-dir data --out out/noisy

Some labels for training and validation are replaced by wrong ones: by any other class
(symmetric), by the class whose examples are nearest on average (nearest), by one of the three
nearest (three), by the next class (next), or, for digits, by the most similar-looking digit
(lookalike). The test labels are correct. Every loss gets the same number of settings of rate,
weight decay and label smoothing. The setting with the best accuracy on the wrong validation labels
of the first seeds, two (digits) or one (GoEmotions), is used for all seeds. Each seed's epoch is
chosen in the same way on its own wrong validation labels.

GoEmotions' comments are encoded once, by the pretrained transformer in FOLDER, and kept in the file
that --features names. Each result is a file in the folder that --out names; a second call resumes
there. `noisy_labels_report` makes the tables and pictures.
"""

import argparse
import contextlib
import dataclasses
import functools
import itertools
import json
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class_tf import _files, calibrate, data, encoders, losses, metrics
from scripts.reproductions.stacked_training import Settings, Task, Trainer

# The digit that each digit is mistaken for.
LOOKALIKE = (6, 7, 3, 8, 9, 6, 5, 1, 3, 4)
KINDS = ("nearest", "three", "symmetric", "next", "lookalike")
# The order of the runs: even an unfinished study is then useful.
LEVELS = (0, 30, 20, 40, 10)


@dataclasses.dataclass(frozen=True)
class Method:
    """A row of the tables.

    Attributes:
        loss: makes the loss; with `transitions`, the loss takes them as an argument.
        smoothing: whether label smoothing is among the settings.
        transitions: "true", "estimated" or None.
    """

    loss: Callable[[], Any]
    smoothing: bool = True
    transitions: str | None = None


def _rankmax(k, margin):
    return Method(functools.partial(losses.RankmaxLoss, k, margin))


METHODS = {
    "softmax": Method(losses.SoftmaxLoss, smoothing=False),
    "softmax, smoothing": Method(losses.SoftmaxLoss),
    "generalised cross-entropy": Method(losses.GeneralizedCrossEntropyLoss),
    "squared error": Method(losses.MeanSquaredLoss),
    "Rankmax, no smoothing": Method(losses.RankmaxLoss, smoothing=False),
    "Rankmax": _rankmax(1, 1.0),
    "Rankmax, margin .5": _rankmax(1, 0.5),
    "Rankmax, margin 2": _rankmax(1, 2.0),
    "Rankmax, k = 2": _rankmax(2, 1.0),
    "Rankmax, k = 2, margin .5": _rankmax(2, 0.5),
    "Rankmax, k = 2, margin 2": _rankmax(2, 2.0),
    "Sparsemax": Method(losses.SparsemaxLoss),
    "Crammer-Singer": Method(losses.OrderedWeightedLoss.crammer_singer),
    "ApproxNDCG": Method(losses.ApproxNDCGLoss),
    "forward, estimated": Method(lambda: forward_correction, transitions="estimated"),
    "forward, true": Method(lambda: forward_correction, transitions="true"),
}
BASELINE = "softmax, smoothing"


def forward_correction(ids: tf.Tensor, scores: tf.Tensor, transitions: tf.Tensor) -> tf.Tensor:
    """`losses.ForwardCorrectionLoss` with a matrix for each example."""
    seen = tf.gather(transitions, ids, axis=2, batch_dims=1)
    seen = tf.where(seen > 0, tf.math.log(tf.maximum(seen, 1e-30)), -1e30)
    return tf.reduce_logsumexp(scores, axis=-1) - tf.reduce_logsumexp(scores + seen, axis=-1)


def as_function(loss: Any) -> Callable:
    """A loss of the package as `Trainer` calls it."""
    if not isinstance(loss, losses.RankingLoss):
        return loss
    return lambda ids, scores, transitions: loss.call(ids, scores)


# The data and their wrong labels.


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Examples, their right labels, and the settings of training.

    The settings are chosen by the mean over `tuning_seeds` seeds.
    """

    name: str
    features: np.ndarray
    class_ids: np.ndarray
    split: Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray, np.ndarray]]
    hidden: int | None
    batch_size: int
    epochs: int
    rates: tuple[float, ...]
    decays: tuple[float, ...]
    smoothings: tuple[float, ...]
    tuning_seeds: int

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return int(self.class_ids.max()) + 1

    def settings(self, smoothing: bool) -> list[tuple[float, float, float]]:
        """(rate, decay, smoothing); without smoothing, more decays give as many settings."""
        if smoothing:
            return [*itertools.product(self.rates, self.decays[::2], self.smoothings)]
        return [*itertools.product(self.rates, self.decays, [0.0])]


def wide(dataset: Dataset) -> Dataset:
    """The same dataset with as many settings, over a wider range of rates and smoothings."""
    decays = (1.0, 2.0, 3.0, 6.0, 10.0, 30.0) if dataset.hidden is None else dataset.decays
    return dataclasses.replace(
        dataset,
        name=f"{dataset.name}_wide",
        rates=(3e-3, 1e-2),
        decays=decays,
        smoothings=(0.3, 0.6),
    )


def digits() -> Dataset:
    """scikit-learn's digits, 60 % for training, 20 % for validation, drawn anew for each seed."""
    from sklearn.datasets import load_digits

    bunch = load_digits()

    def split(rng):
        order = rng.permutation(len(bunch.target))
        return order[:1077], order[1077:1437], order[1437:]

    return Dataset(
        "digits",
        (bunch.data / 16).astype(np.float32),
        bunch.target,
        split,
        hidden=128,
        batch_size=64,
        epochs=40,
        rates=(1e-3, 3e-3),
        decays=(0.0, 0.1, 0.3, 1.0, 3.0, 10.0),
        smoothings=(0.0, 0.3),
        tuning_seeds=2,
    )


def goemotions(path: pathlib.Path, num_train: int) -> Dataset:
    """GoEmotions' comments with one label, from the file of `encode`; the dataset's own split."""
    with np.load(path) as kept:
        parts = [kept[name] for name in ("train", "validation", "test")]
        class_ids = np.concatenate([kept[f"{p}_ids"] for p in ("train", "validation", "test")])
    mean, scale = parts[0].mean(axis=0), parts[0].std()
    ends = np.cumsum([len(part) for part in parts])
    validation, test = np.arange(ends[0], ends[1]), np.arange(ends[1], ends[2])

    def split(rng):
        return rng.permutation(ends[0])[:num_train], validation, test

    return Dataset(
        "goemotions",
        ((np.concatenate(parts) - mean) / scale).astype(np.float32),
        class_ids,
        split,
        hidden=None,
        batch_size=256,
        epochs=10,
        rates=(1e-3, 3e-3),
        decays=(0.0, 0.1, 0.3, 1.0, 3.0, 10.0),
        smoothings=(0.0, 0.3),
        tuning_seeds=1,
    )


def encode(path: pathlib.Path, preset: str, data_dir: str) -> None:
    """Saves the mean of the last layer over the words of each comment, and the class ids."""
    encoder = encoders.TextEncoder(preset, 64, frozen="all", pooling="mean")
    splits = data.goemotions(data_dir, batch_size=50_000, text=True)
    run = tf.function(encoder.lower, reduce_retracing=True)
    kept: dict[str, Any] = {}
    for name in ("train", "validation", "test"):
        texts, class_ids = next(iter(getattr(splits, name)))
        tokens = encoder.tokenize(texts.numpy())
        # Comments of similar length in one batch need little padding.
        order = np.argsort(tokens.row_lengths(), kind="stable")
        batches = np.array_split(order, len(order) // 128 + 1)
        features = [run(tf.gather(tokens, rows).to_tensor()).numpy() for rows in batches]
        kept[name] = np.concatenate(features)[np.argsort(order)]
        kept[f"{name}_ids"] = class_ids.numpy()
    with _files.replacing(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, **kept)


def transitions(dataset: Dataset, kind: str, level: int) -> np.ndarray:
    """`[n, n]`: the probability that a class, a row, gets each label.

    Args:
        dataset: the examples, whose right labels say which classes are near.
        kind: one of `KINDS`.
        level: the share of wrong labels in percent.
    """
    n = dataset.num_classes
    means = np.stack([dataset.features[dataset.class_ids == c].mean(axis=0) for c in range(n)])
    distances = np.linalg.norm(means[:, None] - means, axis=-1) + 1e9 * np.eye(n)
    nearest = distances.argsort(axis=1)
    wrong = {
        "symmetric": lambda: nearest[:, : n - 1],
        "nearest": lambda: nearest[:, :1],
        "three": lambda: nearest[:, :3],
        "next": lambda: (np.arange(n)[:, None] + 1) % n,
        "lookalike": lambda: np.array(LOOKALIKE)[:, None],
    }[kind]()
    matrix = (1 - level / 100) * np.eye(n)
    np.put_along_axis(matrix, wrong, level / 100 / wrong.shape[1], axis=1)
    return matrix


@dataclasses.dataclass(frozen=True)
class Problem:
    """The data of one seed: rows of the features, and labels, some of them wrong."""

    rows: tuple[np.ndarray, np.ndarray, np.ndarray]
    labels: tuple[np.ndarray, np.ndarray, np.ndarray]
    seed: int


def problem(dataset: Dataset, matrix: np.ndarray, seed: int) -> Problem:
    """The split of a seed, with wrong labels for training and validation."""
    rng = np.random.default_rng(seed)
    rows = dataset.split(rng)
    right = [dataset.class_ids[r] for r in rows]
    ends = matrix.cumsum(axis=1)
    wrong = [
        np.minimum((rng.random((len(ids), 1)) >= ends[ids]).sum(axis=1), dataset.num_classes - 1)
        for ids in right[:2]
    ]
    return Problem(rows, (*wrong, right[2]), seed)


def stack(dataset: Dataset, problems: list[Problem], of_each: Any) -> Task:
    """The task of a model for each problem."""
    train, validation = (np.stack([p.rows[i] for p in problems]) for i in (0, 1))
    labels = [np.stack([p.labels[i] for p in problems]) for i in (0, 1)]
    seeds = np.array([p.seed for p in problems])
    return Task(
        dataset.features,
        train,
        labels[0],
        validation,
        labels[1],
        seeds,
        dataset.num_classes,
        of_each,
    )


# Training and measuring.


class Study:
    """Trains and measures; compiled functions are kept for all kinds of noise."""

    def __init__(
        self, dataset: Dataset, methods: dict[str, Method], seeds: int, out: pathlib.Path
    ) -> None:
        self.dataset = dataset
        self.methods = methods
        self.seeds = seeds
        self.out = out
        self._trainers: dict[str, Trainer] = {}

    def result(self, name: str, kind: str, level: int) -> dict[str, Any]:
        """The chosen settings of a method, and its metrics with each seed; computed only once."""
        kind = kind if level else "none"
        path = self.out / self.dataset.name / f"{kind}_{level}_{name.replace(' ', '_')}.json"
        if path.exists():
            return json.loads(path.read_text())
        made = self._made(name, kind, level)
        path.parent.mkdir(parents=True, exist_ok=True)
        _files.write_text(path, json.dumps(made))
        accuracy = np.mean([m["accuracy"] for m in made["seeds"]])
        print(f"{kind} {level} {name}: {accuracy:.3f} {made['setting']}", flush=True)
        return made

    def _made(self, name, kind, level):
        dataset, method = self.dataset, self.methods[name]
        matrix = transitions(dataset, KINDS[0] if kind == "none" else kind, level)
        problems = [problem(dataset, matrix, seed) for seed in range(self.seeds)]
        of_each = [None] * self.seeds
        if method.transitions == "true":
            of_each = [matrix] * self.seeds
        elif method.transitions == "estimated":
            softmax = self.result("softmax", kind, level)["seeds"]
            of_each = [np.array(of_seed["estimated"]) for of_seed in softmax]
        trainer = self._trainers.get(name)
        if trainer is None:
            trainer = self._trainers[name] = Trainer(
                as_function(method.loss()), dataset.hidden, dataset.batch_size, dataset.epochs
            )

        def train(chosen, settings):
            given = None if of_each[0] is None else np.stack([of_each[i] for i in chosen])
            task = stack(dataset, [problems[i] for i in chosen], given)
            return task, trainer.train(task, Settings(*np.transpose(settings)))

        settings = dataset.settings(method.smoothing)
        tuning = min(dataset.tuning_seeds, self.seeds)
        chosen = [i for _ in settings for i in range(tuning)]
        _, tuned = train(chosen, [s for s in settings for _ in range(tuning)])
        reached = tuned.accuracy.reshape(-1, tuning).mean(axis=1)
        setting = settings[int(reached.argmax())]
        task, trained = train(range(self.seeds), [setting] * self.seeds)
        return {
            "setting": setting,
            "tuning": [[*s, float(r)] for s, r in zip(settings, reached, strict=True)],
            "seeds": self._measured(method, trainer, task, trained, problems),
        }

    def _measured(self, method, trainer, task, trained, problems):
        features = tf.constant(task.features)
        test = np.stack([p.rows[2] for p in problems])

        def scores(weights, rows):
            return trainer.scores(weights, features, rows).numpy()

        of_test, of_last = scores(trained.best, test), scores(trained.last, test)
        of_validation = scores(trained.best, task.validation)
        learned = [scores(w, task.train).argmax(axis=-1) for w in (trained.best, trained.last)]
        layer = getattr(method.loss(), "probabilities", None)
        results = []
        for i, of_seed in enumerate(problems):
            labels = of_seed.labels
            measured = measure(labels[2], of_test[i], (of_validation[i], labels[1]), layer)
            measured["last_accuracy"] = float((of_last[i].argmax(axis=1) == labels[2]).mean())
            flipped = labels[0] != self.dataset.class_ids[of_seed.rows[0]]
            for of_when, when in zip(learned, ("best", "last"), strict=True):
                memorised = (of_when[i] == labels[0])[flipped]
                measured[f"memorised_{when}"] = float(memorised.mean()) if flipped.any() else 0.0
            measured["epoch"] = int(trained.best_epoch[i])
            measured["validation"] = float(trained.accuracy[i])
            if method is self.methods["softmax"]:
                shares = tf.nn.softmax(of_validation[i]).numpy()
                measured["estimated"] = losses.estimate_transition(shares, labels[1]).tolist()
            results.append(measured)
        return results


def measure(labels: Any, scores: Any, validation: tuple, layer: Any) -> dict[str, float]:
    """The metrics of scores, and the calibration errors of probabilities.

    Args:
        labels: the right labels.
        scores: `[N, n]`.
        validation: scores and labels, some of them wrong, to fit the temperature.
        layer: the layer of probabilities of the loss, or None.
    """
    ranks = 1 + (scores > np.take_along_axis(scores, labels[:, None], axis=1)).sum(axis=1)
    right = ranks == 1
    result = {
        "accuracy": right.mean(),
        "ndcg@5": np.where(ranks <= 5, 1 / np.log2(1 + ranks), 0).mean(),
        "macro": np.mean([right[labels == c].mean() for c in np.unique(labels)]),
    }
    layers = {} if layer is None else {"ece_own": layer}
    with contextlib.suppress(ValueError):  # There is no best temperature.
        layers["ece_calibrated"] = calibrate(_same, validation, batch_size=len(validation[0]))
    for name, probabilities in layers.items():
        metric = metrics.ExpectedCalibrationError()
        metric.update_state(labels, probabilities(scores))
        result[name] = metric.result()
    return {name: float(value) for name, value in result.items()}


def _same(scores):
    return scores


def main(arguments: list[str] | None = None) -> None:
    """Runs the study."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", choices=["digits", "goemotions"], default="digits")
    parser.add_argument(
        "--features", type=pathlib.Path, help="file of encoded texts, written if it does not exist"
    )
    parser.add_argument("--preset")
    parser.add_argument("--data-dir")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--num-train", type=int, default=10_000)
    parser.add_argument("--wide", action="store_true", help="try higher rates and more smoothing")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, help="which class a wrong label names")
    parser.add_argument(
        "--levels", nargs="+", type=int, default=LEVELS, help="percentages of wrong labels"
    )
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=[*METHODS])
    args = parser.parse_args(arguments)
    if args.dataset == "digits":
        dataset = digits()
    else:
        if not args.features.exists():
            encode(args.features, args.preset, args.data_dir)
        dataset = goemotions(args.features, args.num_train)
    if args.wide:
        dataset = wide(dataset)
    kinds = args.kinds or (KINDS if args.dataset == "digits" else KINDS[:3])
    study = Study(dataset, METHODS, args.seeds, args.out)
    for level, kind in itertools.product(args.levels, kinds):
        for name in args.methods:
            study.result(name, kind, level)


if __name__ == "__main__":
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    main(sys.argv[1:])
