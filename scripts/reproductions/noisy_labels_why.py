"""Tests explanations of why some losses are robust to wrong labels.

    python -m scripts.reproductions.noisy_labels_why --out out/noisy

The pull of an example is the size of the gradient on the score of its label. Each loss is split
into three choices, which are then recombined: which other classes it pushes down, how hard a label
pulls if the model contradicts it, and whether a label still pulls once it has won. It uses
the digits, the noise, the settings and the choice of a setting of `noisy_labels`. Then some losses
are trained for long without any choice, and the memorised wrong labels are counted.
"""

import argparse
import itertools
import json
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class_tf import _files, losses
from scripts.reproductions import noisy_labels
from scripts.reproductions.noisy_labels import Method, Study
from scripts.reproductions.stacked_training import Settings, Trainer

LEVEL = 30
KINDS = ("lookalike", "symmetric")
# The losses that are trained for long, and for how many epochs.
CURVES = (
    "softmax",
    "generalised cross-entropy",
    "squared error",
    "Crammer-Singer",
    "Rankmax",
    "ApproxNDCG",
)
EPOCHS = 100


def gradient(loss: losses.RankingLoss, ids: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
    """The gradient of a loss, `[batch, n]`."""
    with tf.GradientTape() as tape:
        tape.watch(scores)
        total = tf.reduce_sum(loss.call(ids, scores))
    return tape.gradient(total, scores)


def pull(loss: losses.RankingLoss) -> Callable:
    """How hard a loss pulls at the labels, `[batch, 1]`, given class ids and scores."""

    def of(ids, scores):
        return -tf.gather(gradient(loss, ids, scores), ids, batch_dims=1)[:, tf.newaxis]

    return of


def lead(ids: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
    """How far the best other class is above the label, `[batch, 1]`."""
    n = scores.shape[1]
    others = tf.where(tf.one_hot(ids, n) > 0, scores.dtype.min, scores)
    best = tf.reduce_max(others, axis=1, keepdims=True)
    return best - tf.gather(scores, ids, batch_dims=1)[:, tf.newaxis]


def remade(direction: losses.RankingLoss, size: Callable, near: bool = False) -> Callable:
    """A loss with the gradient of `direction`, scaled so that its pull is `size`.

    Args:
        direction: decides how the pull is shared among the other classes.
        size: the pull.
        near: whether other classes that are more than 1 below the label are left out.
    """

    def loss(ids, scores, _):
        now = tf.stop_gradient(scores)
        label = tf.one_hot(ids, now.shape[1])
        shares = tf.maximum(gradient(direction, ids, now), 0) * (1 - label)
        if near:
            own = tf.reduce_sum(label * now, axis=1, keepdims=True)
            shares = tf.where(now > own - 1, shares, 0.0)
        shares = tf.math.divide_no_nan(shares, tf.reduce_sum(shares, axis=1, keepdims=True))
        wanted = (shares - label * tf.reduce_sum(shares, axis=1, keepdims=True)) * size(ids, now)
        return tf.reduce_sum(tf.stop_gradient(wanted) * scores, axis=1)

    return loss


_softmax, _rankmax = losses.SoftmaxLoss(), losses.RankmaxLoss()
_all = losses.OrderedWeightedLoss("pairwise", lambda margins: -margins, losses.UniformWeights())
_highest = losses.OrderedWeightedLoss("pairwise", lambda margins: -margins)
_softmax_pull = pull(_softmax)


def discounted(ids: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
    """The pull of softmax, reduced where the model contradicts the label, as in Rankmax."""
    return _softmax_pull(ids, scores) / (1 + tf.nn.relu(lead(ids, scores)))


def until_won(size: Callable) -> Callable:
    """A pull that ends once the label is 1 above all others."""
    return lambda ids, scores: tf.where(lead(ids, scores) > -1, size(ids, scores), 0.0)


def _method(*remade_of, **options):
    return Method(lambda: remade(*remade_of, **options))


VARIANTS = {
    "softmax, Rankmax's pull": _method(_softmax, pull(_rankmax)),
    "Rankmax, softmax's pull": _method(_rankmax, _softmax_pull),
    "Rankmax, pull 1": _method(_rankmax, lambda ids, scores: tf.ones([len(ids), 1])),
    "softmax, less where contradicted": _method(_softmax, discounted),
    "softmax, until won": _method(_softmax, until_won(_softmax_pull)),
    "softmax, less where contradicted, until won": _method(_softmax, until_won(discounted)),
    "softmax, near classes only": _method(_softmax, _softmax_pull, near=True),
    "softmax's pull on all classes alike": _method(_all, _softmax_pull),
    "softmax's pull on all near classes alike": _method(_all, _softmax_pull, near=True),
    "softmax's pull on the highest class": _method(_highest, _softmax_pull),
    "softmax's pull on the highest class, until won": _method(_highest, until_won(_softmax_pull)),
    "ramp": Method(lambda: losses.OrderedWeightedLoss("pairwise", "ramp")),
    "generalised cross-entropy, q = 1": Method(lambda: losses.GeneralizedCrossEntropyLoss(1.0)),
    "softmax, temperature .1": Method(lambda: losses.SoftmaxLoss(0.1)),
    "softmax, temperature .25": Method(lambda: losses.SoftmaxLoss(0.25)),
    "softmax, temperature 4": Method(lambda: losses.SoftmaxLoss(4.0)),
}
COMPARED = {
    name: noisy_labels.METHODS[name]
    for name in ("softmax", noisy_labels.BASELINE, "Crammer-Singer", "Rankmax", "ApproxNDCG")
}


def curves(study: Study, kind: str, name: str) -> dict[str, Any]:
    """Follows a loss over many epochs with one setting, without a choice of the epoch.

    Returns:
        For each epoch, means over the seeds: the test accuracy; the share of the wrong training
        labels that the model predicts; the share for which it predicts the right label; and the
        share of all pull that comes from wrong labels.
    """
    dataset = study.dataset
    matrix = noisy_labels.transitions(dataset, kind, LEVEL)
    problems = [noisy_labels.problem(dataset, matrix, seed) for seed in range(study.seeds)]
    task = noisy_labels.stack(dataset, problems, None)
    loss = noisy_labels.METHODS[name].loss()
    trainer = Trainer(noisy_labels.as_function(loss), dataset.hidden, dataset.batch_size, EPOCHS)
    features = tf.constant(task.features)
    test = np.stack([p.rows[2] for p in problems])
    right = dataset.class_ids[task.train]
    flipped = task.train_labels != right
    of_labels = tf.function(pull(loss), jit_compile=True)
    found: dict[str, list[float]] = {
        "accuracy": [],
        "memorised": [],
        "seen_through": [],
        "pull_of_wrong": [],
    }

    def after_epoch(_, weights):
        scores = trainer.scores(weights, features, task.train)
        predicted = np.argmax(scores, axis=-1)
        pulls = of_labels(task.train_labels.ravel(), tf.reshape(scores, [-1, scores.shape[-1]]))
        pulls = pulls.numpy().reshape(flipped.shape)
        of_test = np.argmax(trainer.scores(weights, features, test), axis=-1)
        found["accuracy"].append((of_test == dataset.class_ids[test]).mean())
        found["memorised"].append((predicted == task.train_labels)[flipped].mean())
        found["seen_through"].append((predicted == right)[flipped].mean())
        found["pull_of_wrong"].append(pulls[flipped].sum() / max(pulls.sum(), 1e-30))

    number = study.seeds
    settings = Settings(np.full(number, dataset.rates[0]), np.zeros(number), np.zeros(number))
    trainer.train(task, settings, after_epoch)
    return {key: [float(value) for value in values] for key, values in found.items()}


def main(arguments: list[str] | None = None) -> None:
    """Runs the experiments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--seeds", type=int, default=8)
    args = parser.parse_args(arguments)
    study = Study(noisy_labels.digits(), {**COMPARED, **VARIANTS}, args.seeds, args.out)
    for kind, name in itertools.product(KINDS, study.methods):
        study.result(name, kind, LEVEL)
    for kind, name in itertools.product(KINDS, CURVES):
        path = args.out / "digits" / f"curve_{kind}_{LEVEL}_{name.replace(' ', '_')}.json"
        if not path.exists():
            _files.write_text(path, json.dumps(curves(study, kind, name)))


if __name__ == "__main__":
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    main(sys.argv[1:])
