"""Compares two models with the same Top-1 and Top-5 accuracy, but different NDCG@5.

    python -m scripts.reproductions.compare_models --out out/compare

This is the point of Figure 1 of Rank4Class (2021), on scikit-learn's images of digits. The first
model is a small classifier. The second has the same scores, but reverses the order of the classes
in second to fifth place. Each label stays first, among the first five, or outside, so both
accuracies are equal by construction. Yet a user who looks down the list finds the label later.

Prints the metrics of both with confidence intervals and the p-value of their difference, by the
paired randomisation test. Writes to the folder that --out names: ranks.png, a plot of both
distributions of the label's rank, and first.csv and second.csv, with a row for each test image.
"""

import pathlib

import numpy as np
import tensorflow as tf
from matplotlib.figure import Figure
from tensorflow import keras

import rank4class_tf as r4c
from scripts import command_line, tables
from scripts.reproductions import harness

METRICS = ["top_k_accuracy_at_1", "top_k_accuracy_at_5", "ndcg_at_5"]


def train(splits, epochs, seed):
    """A small classifier, stopped early so that it errs often enough to show something."""
    keras.utils.set_random_seed(seed)
    layers = [keras.layers.Dense(16, "relu"), keras.layers.Dense(splits.num_classes)]
    model = keras.Sequential(layers)
    model.compile(keras.optimizers.SGD(0.03), r4c.losses.SoftmaxLoss())
    model.fit(splits.train, epochs=epochs, shuffle=False, verbose=0)
    return model


def reverse_second_to_fifth(scores):
    """The same scores, with the classes in second to fifth place in reverse order."""
    values, classes = tf.math.top_k(scores, 5)
    reordered = tf.gather(values, [0, 4, 3, 2, 1], axis=1)
    rows = tf.broadcast_to(tf.range(tf.shape(scores)[0])[:, tf.newaxis], tf.shape(classes))
    index = tf.stack([rows, classes], axis=-1)
    return tf.tensor_scatter_nd_update(scores, index, reordered)


def plot(evaluations, path):
    """Draws how many labels have each rank."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    ranks = np.arange(1, 1 + int(max(e.ranks.max() for e in evaluations.values())))
    for offset, (name, evaluation) in zip((-0.2, 0.2), evaluations.items(), strict=True):
        counts = [(evaluation.ranks == rank).sum() for rank in ranks]
        label = f"{name}: NDCG@5 {evaluation['ndcg_at_5'].value:.3f}"
        bars = axes.bar(ranks + offset, counts, width=0.38, label=label)
        axes.bar_label(bars, fontsize=7)
    axes.axvline(1.5, color="0.6", linestyle=":", zorder=0)
    axes.axvline(5.5, color="0.6", linestyle=":", zorder=0)
    axes.set(
        title="Equal in Top-1 and Top-5 accuracy: what lies between the dotted lines differs",
        xlabel="rank of the label",
        ylabel="test images",
        xticks=ranks,
    )
    axes.title.set_fontsize(10)
    axes.legend()
    harness.save_figure(figure, path)


def main(argv=None):
    """Trains, evaluates, compares, plots."""
    parser = command_line.parser(__spec__, description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/compare"))
    parser.add_argument("--epochs", type=command_line.positive(int), default=8)
    parser.add_argument("--seed", type=command_line.seed, default=0)
    args = parser.parse_args(argv)

    splits = r4c.data.digits(seed=args.seed)
    model = train(splits, args.epochs, args.seed)
    evaluations = {
        "Model 1": r4c.evaluate(model, splits.test, METRICS),
        "Model 2": r4c.evaluate(lambda x: reverse_second_to_fifth(model(x)), splits.test, METRICS),
    }
    comparison = r4c.compare(*evaluations.values())
    rows = []
    for name, difference in comparison.items():
        cells = [
            f"{e[name].value:.3f} ({e[name].low:.3f} to {e[name].high:.3f})"
            for e in evaluations.values()
        ]
        cells += [f"{difference.difference:+.3f}", f"{difference.p_value:.4f}"]
        rows.append([name, *cells])
    print("\n".join(tables.table(["metric", *evaluations, "difference", "p"], rows, 2)))
    args.out.mkdir(parents=True, exist_ok=True)
    plot(evaluations, args.out / "ranks.png")
    for file, evaluation in zip(("first.csv", "second.csv"), evaluations.values(), strict=True):
        evaluation.save(args.out / file)
    print(f"The plot and the rank of each image are in {args.out}.")


if __name__ == "__main__":
    main()
