"""Which loss to take if labels are wrong: real and planted noise, the strongest rivals.

    noisy="python -m scripts.reproductions.noisy_labels"
    $noisy --task digits --noise lookalike --rate .3
    $noisy --task cifar10 --file FILE --noise worse
    $noisy --task banking77 --file FILE --noise weak10 --checked 400
    $noisy --task cifar10 --file FILE --noise nearest-3 --rate .4

The labels for training are those that people or a weak model gave (of CIFAR-10N: aggre,
random1 to random3, worse; of BANKING77: weak10, weak20), or planted: `lookalike` is the
digit that looks most alike, `nearest-M` one of the M classes whose examples are nearest
on average, at the given rate. Settings and epochs are chosen on a fifth of these noisy
labels, or with --checked on so many examples with right labels. The test labels are
right. A run of the full size takes ten minutes to two hours on two cores; the table of
the page is one --csv of several runs. On features, linear discriminant analysis with
shrinkage is fitted beside them; it has nothing to tune.
"""

import argparse
import dataclasses

import numpy as np
import tensorflow as tf
from sklearn import discriminant_analysis
from tensorflow import keras

from rank4class_tf import losses
from scripts.reproductions import tasks


@keras.utils.register_keras_serializable("scripts")
class SymmetricCrossEntropy(losses.SoftmaxLoss):
    """Cross-entropy plus a times the mean absolute error (Wang et al. 2019, A = -4)."""

    def __init__(self, a: float = 1.0, **kwargs) -> None:
        super().__init__(**kwargs)
        self.a = a

    def compute(self, lists):
        right = tf.exp(-super().compute(lists))
        return super().compute(lists) + 4 * self.a * (1 - right)


def candidates(
    of_true: np.ndarray, of_estimate: np.ndarray
) -> dict[str, losses.RankingLoss]:
    """The losses, with the true and estimated shares of labels, a row per class."""
    return {
        "softmax": losses.SoftmaxLoss(),
        "softmax, smoothing": losses.SoftmaxLoss(label_smoothing=0.2),
        "generalised cross-entropy": losses.GeneralizedCrossEntropyLoss(),
        "symmetric cross-entropy": SymmetricCrossEntropy(),
        "Rankmax": losses.RankmaxLoss(),
        "ApproxNDCG": losses.ApproxNDCGLoss(),
        "forward, true": losses.ForwardCorrectionLoss(of_true),
        "forward, estimated": losses.ForwardCorrectionLoss(of_estimate),
    }


def noisy(task: tasks.Task, noise: str, rate: float) -> np.ndarray:
    """The labels that training sees, -1 for none."""
    if noise in task.given:
        return task.given[noise].astype("int32")
    rng = np.random.default_rng(0)
    if noise == "lookalike":
        wrong = tasks.LOOKALIKE[task.y]
    else:
        near = nearest(task, int(noise.removeprefix("nearest-")))
        wrong = near[task.y, rng.integers(0, near.shape[1], len(task.y))]
    return np.where(rng.random(len(task.y)) < rate, wrong, task.y).astype("int32")


def nearest(task: tasks.Task, number: int) -> np.ndarray:
    """The classes whose examples are nearest on average, `[classes, number]`."""
    means = np.stack(
        [mean_of(task.x[task.y == y], task.num_words) for y in range(task.num_classes)]
    )
    distances = np.linalg.norm(means[:, np.newaxis] - means, axis=-1)
    return np.argsort(distances, axis=1)[:, 1 : 1 + number]


def mean_of(rows: np.ndarray, num_words: int | None) -> np.ndarray:
    """The mean of features, or how often each word but 0, which is none, comes."""
    if num_words is None:
        return rows.mean(axis=0)
    return np.bincount(rows.ravel(), minlength=num_words)[1:] / len(rows)


def confusions(labels: np.ndarray, classes: np.ndarray, number: int) -> np.ndarray:
    """How many examples of each class, in the rows, have each label."""
    counts = np.zeros((number, number))
    np.add.at(counts, (classes, labels), 1)
    return counts


def estimated(task: tasks.Task, labels: np.ndarray) -> np.ndarray:
    """`losses.estimate_transition` of one half, by a softmax model of the other."""
    half = len(labels) // 2
    model = task.build(keras.layers.Dense(task.num_classes))
    model.compile(keras.optimizers.AdamW(3e-3, weight_decay=0.1), losses.SoftmaxLoss())
    model.fit(task.x[:half], labels[:half], epochs=10, batch_size=128, verbose=0)
    shares = tf.nn.softmax(model.predict(task.x[half:], verbose=0))
    return losses.estimate_transition(shares, labels[half:])


def accuracy_of_discriminant(task: tasks.Task, labels: np.ndarray) -> float:
    """The test accuracy of linear discriminant analysis with shrinkage."""
    model = discriminant_analysis.LinearDiscriminantAnalysis("lsqr", shrinkage="auto")
    predicted = model.fit(task.x, labels).predict(task.test_x)
    return np.mean(predicted == task.test_y)


def chosen(
    task: tasks.Task, labels: np.ndarray, args: argparse.Namespace
) -> np.ndarray:
    """The examples to train with: those of some classes, so many of each."""
    classes = args.classes or range(task.num_classes)
    kept = np.flatnonzero((labels >= 0) & np.isin(labels, classes))
    if not args.per_class:
        return kept
    right = task.y[kept]
    of_classes = [
        np.flatnonzero(right == y)[: args.per_class] for y in np.unique(task.y)
    ]
    return kept[np.sort(np.concatenate(of_classes))]


def describe(task: tasks.Task, labels: np.ndarray, counts: np.ndarray) -> None:
    """Prints how wrong labels are, and what a discriminant makes of them."""
    wrong = counts * (1 - np.eye(len(counts)))
    most_frequent = wrong.max(axis=1).sum() / wrong.sum()
    print(
        f"{len(labels)} examples, {np.mean(labels != task.y):.1%} wrong; the most "
        f"frequent confusion of a class has {most_frequent:.0%} of its wrong labels."
    )
    if task.num_words is None:
        accuracy = accuracy_of_discriminant(task, labels)
        print(f"Accuracy of linear discriminant analysis: {accuracy:.3f}.")


def main(args: argparse.Namespace) -> None:
    """Compares the losses and prints what is known of the noise."""
    task = tasks.load(args.task, args.file, args.data_dir, args.hidden)
    if args.classes:
        task = task.of_classes(args.classes)
    order = np.random.default_rng(0).permutation(len(task.y))
    checked = task.only(order[: args.checked])
    rest = task.only(order[args.checked :])
    labels = noisy(rest, args.noise, args.rate)
    kept = chosen(rest, labels, args)
    rest = rest.only(kept)
    labels = labels[kept]

    counts = confusions(labels, rest.y, task.num_classes)
    describe(rest, labels, counts)
    counts = counts + 1e-6
    shares = counts / counts.sum(axis=1, keepdims=True)
    tried = candidates(shares, estimated(rest, labels))
    if args.losses:
        tried = {name: tried[name] for name in args.losses}
    tasks.compare(
        dataclasses.replace(rest, y=labels),
        args,
        tried,
        metrics=["ndcg_at_5", "macro_top_k_accuracy_at_1", "top_k_accuracy_at_1"],
        columns={
            "task": " ".join([args.task, *map(str, args.classes)]),
            "noise": args.noise,
            "rate": args.rate,
            "hidden": args.hidden,
            "checked": args.checked,
            "per_class": args.per_class,
        },
        validation=(checked.x, checked.y) if args.checked else 0.2,
        noise="estimate" if args.estimate else None,
    )


if __name__ == "__main__":
    parser = tasks.parser(__spec__, __doc__)
    add = parser.add_value
    add("--noise", str, "lookalike", "the labels, or how they are planted")
    add("--rate", float, 0.3, "the share of planted labels")
    add("--checked", int, 0, "right labels to choose by")
    add("--per-class", int, 0, "examples a class; 0 for all")
    classes = "only these classes"
    parser.add_argument("--classes", type=int, nargs="*", default=[], help=classes)
    parser.add_values("--losses", str, None, "only these; the first is the baseline")
    told = "also estimate the wrong labels (extra `noise`)"
    parser.add_argument("--estimate", action="store_true", help=told)
    main(parser.parse_args())
