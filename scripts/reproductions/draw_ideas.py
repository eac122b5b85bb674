"""Draws the metrics and gradients of Rank4Class, and the weights of negatives under mining.

python -m scripts.reproductions.draw_ideas --out docs/images
"""

import math
import pathlib
from fractions import Fraction

import numpy as np
import tensorflow as tf
from matplotlib.figure import Figure

from rank4class_tf import losses, metrics
from scripts import command_line
from scripts.reproductions import harness

LOSSES = {
    "softmax": losses.SoftmaxLoss(),
    "pairwise logistic": losses.PairwiseLogisticLoss(),
    "ApproxNDCG, T = 0.1": losses.ApproxNDCGLoss(),
    "Rankmax": losses.RankmaxLoss(),
}
METRICS = {
    "Top-1": metrics.TopKAccuracy(1),
    "Top-5": metrics.TopKAccuracy(5),
    "MRR": metrics.MRR(),
    "NDCG@5": metrics.NDCG(5),
}
NUM_NEGATIVES, NUM_SAMPLED = 1000, 128
WEIGHTS = {
    "Top-1": losses.TopKWeights(1),
    "Top-4": losses.TopKWeights(4),
    "Top-16": losses.TopKWeights(16),
    "all alike (negative sampling)": losses.TopKWeights(NUM_SAMPLED),
}


def value_at_rank(metric, ranks, num_classes=20):
    """The metric of an example whose class has each of the ranks."""
    scores = tf.tile(-tf.range(num_classes, dtype=tf.float32)[tf.newaxis], [len(ranks), 1])
    values, _ = metric.per_list(tf.constant(ranks - 1), scores)
    return values[:, 0].numpy()


def gradient_of_negative(loss, differences):
    """The gradient with respect to the score of a negative; the positive has the score 0.

    Nine more negatives, evenly spaced between -4 and 0, stay where they are.
    """
    others = np.linspace(-4, 0, 9)
    scores = [[0.0, difference, *others] for difference in differences]
    scores = tf.constant(scores, tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        # Each example's loss depends only on its own scores.
        total = len(differences) * loss(tf.zeros(len(differences), tf.int32), scores)
    return tape.gradient(total, scores)[:, 1].numpy()


def draw_rank4class(path):
    """Metrics against the rank of the right class, gradients against the score of a wrong one."""
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    ranks = np.arange(1, 11)
    for name, metric in METRICS.items():
        left.plot(ranks, value_at_rank(metric, ranks), marker="o", markersize=4, label=name)
    left.set(xlabel="rank of the right class", ylabel="value of the example", xticks=ranks)
    differences = np.linspace(-4, 2, 601)
    for name, loss in LOSSES.items():
        right.plot(differences, gradient_of_negative(loss, differences), label=name)
    right.set(xlabel="score of a wrong class less that of the right one", ylabel="its gradient")
    for axis in (left, right):
        axis.legend(frameon=False, fontsize=9)
        axis.grid(alpha=0.3)
    harness.save_figure(figure, path)


def expected_weights(sampled):
    """The mean weight of each negative, from the weights of a sample's order: lemma 2."""
    theta = [
        sum(
            weight * math.comb(j, i) * math.comb(NUM_NEGATIVES - 1 - j, NUM_SAMPLED - 1 - i)
            for i, weight in enumerate(map(Fraction, sampled))
            if weight
        )
        / math.comb(NUM_NEGATIVES, NUM_SAMPLED)
        for j in range(NUM_NEGATIVES)
    ]
    return np.array(theta, np.float64)


def draw_mining(path):
    """The weight of a negative by its rank among all, for samples of 128 among 1,000."""
    figure = Figure(figsize=(6, 3.4), layout="constrained")
    axis = figure.subplots()
    ranks = np.arange(1, NUM_NEGATIVES + 1)
    for name, weights in WEIGHTS.items():
        expected = expected_weights(weights.first(NUM_SAMPLED, tf.float64).numpy())
        axis.plot(ranks, expected, label=name)
    axis.set(
        xlabel=f"rank of a negative among {NUM_NEGATIVES:,}",
        ylabel="its mean weight",
        xscale="log",
        yscale="log",
        ylim=(1e-6, 0.3),
    )
    axis.legend(frameon=False, fontsize=9)
    axis.grid(alpha=0.3)
    harness.save_figure(figure, path)


def main(argv=None):
    """The command line."""
    parser = command_line.parser(__spec__, description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out"))
    folder = parser.parse_args(argv).out
    draw_rank4class(folder / "rank4class.png")
    draw_mining(folder / "mining.png")


if __name__ == "__main__":
    main()
