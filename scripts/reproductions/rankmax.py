"""Rankmax, softmax, Sparsemax and EASE on MovieLens: Table 2 and Figure 2 of the Rankmax paper.

    python -m scripts.reproductions.rankmax --data-dir data --out out/rankmax

Protocol. The pairs of a user and a film are split 80/10/10 at random, anew for each seed. For each
user, the model reads the films in the earlier parts of the split and ranks all other films. Users
without a film in the part under test are skipped. The model is an autoencoder of items, trained on
the training films. It divides the sum of the embeddings of the films it reads by the square root of
their number; half of the films are dropped in training. An untied output layer with a bias follows.
All losses are summed over the pairs. Every combination of learning rate and L2 is tried for each
loss on the split of `--tuning-seed`, which is not one of the seeds reported. The combination with
the best AP@10 on the validation part is trained anew for each seed and stopped by the same metric.
The test part is used once per seed, with the weights of the best epoch. With `--refit`, the
validation part is only for tuning: each seed trains on the training and the validation films, for
as many epochs as were best in tuning, and its last weights are tested.

EASE (Steck 2019, "Embarrassingly Shallow Autoencoders for Sparse Data") is not in the paper. It is
a ridge regression of each film on all others, in closed form. Its L2 is chosen in the same way as
for the losses.

Each finished run is a file in `--out`. A second call with the same settings resumes there; a call
with other settings replaces the runs. The results are `results.md`, `results.json` and, with
matplotlib, `figure_2.png`.
"""

import dataclasses
import itertools
import math
import pathlib

import numpy as np
import tensorflow as tf
from tensorflow import keras

import rank4class_tf as r4c
from scripts import command_line, tables
from scripts.reproductions import harness, retrieval

# The figures of the paper's Table 2 for its smallest dataset.
PAPER = {
    "rankmax": (0.154, 0.342, 0.387),
    "softmax": (0.147, 0.300, 0.401),
    "sparsemax": (0.147, 0.286, 0.384),
}
METRICS = ("AP@10", "accuracy", "R@100")
EASE = "ease"


def weighted_by_positives(loss):
    """Turns a loss that averages over the positives into one that sums over them."""

    def total(class_ids, scores):
        return loss(class_ids, scores, sample_weight=tf.cast(class_ids.row_lengths(), scores.dtype))

    return total


LOSSES = {
    "rankmax": r4c.losses.RankmaxLoss(label_format="ids", reduction="sum"),
    "softmax": r4c.losses.SoftmaxLoss(label_format="ids", reduction="sum"),
    # The sum of the Sparsemax losses of all pairs has exactly this gradient.
    "sparsemax": weighted_by_positives(
        r4c.losses.SparsemaxLoss(label_format="ids", reduction="sum")
    ),
}


class ItemAutoencoder(keras.Model):
    """Scores of all items from the items of a user."""

    def __init__(self, num_items, units, dropout):
        super().__init__()
        self.dropout = dropout
        self.items = keras.layers.Embedding(num_items, units, embeddings_initializer="normal")
        self.scores = keras.layers.Dense(num_items, kernel_initializer="normal")

    def call(self, items, training=False):
        """Ragged items `[batch, None]` to scores `[batch, num_items]`."""
        if training:
            kept = tf.random.uniform(tf.shape(items.flat_values)) >= self.dropout
            items = tf.ragged.boolean_mask(items, items.with_flat_values(kept))
        count = tf.maximum(tf.cast(items.row_lengths(), tf.float32), 1)[:, tf.newaxis]
        embeddings = self.items(items.flat_values)
        sums = tf.math.unsorted_segment_sum(embeddings, items.value_rowids(), items.nrows())
        return self.scores(sums / tf.sqrt(count))


class FiguresOfTable2(r4c.metrics.RankingMetric):
    """The three metrics of the table from one ranking."""

    num_results = len(METRICS)
    result_names = METRICS

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        of = r4c.metrics
        self.parts = [of.AveragePrecisionAtK(10), of.PrecisionAtK(1), of.RecallAtK(100)]

    def compute(self, ranks):
        """The three formulas."""
        return [part.compute_at(ranks, part.k) for part in self.parts]


def evaluate(score, users, part):
    """The three figures over one part of the split."""
    metric = FiguresOfTable2(label_format="ids", name="figures")
    for features, class_ids in users.batches(part, 32, ragged=True):
        seen = features["exclude"]
        metric.update_state(class_ids, score(seen), exclude=seen)
    return {name: float(value) for name, value in metric.result().items()}


def run(loss_name, learning_rate, l2, users, seed, args, test, epochs=None):
    """Trains one model; returns its history and its figures at the best epoch.

    With `epochs`, it trains for this number of epochs and returns only the test figures.
    """
    keras.utils.set_random_seed(seed)
    loss = LOSSES[loss_name]
    model = ItemAutoencoder(users.num_items, args.units, args.dropout)
    optimizer = keras.optimizers.Adam(learning_rate)

    @tf.function(reduce_retracing=True)
    def step(items):
        with tf.GradientTape() as tape:
            value = loss(items, model(items, training=True))
            weights = model.trainable_variables
            value += l2 * tf.add_n([tf.reduce_sum(tf.square(w)) for w in weights])
        gradients = tape.gradient(value, weights)
        gradients = [tf.convert_to_tensor(g) for g in gradients]
        optimizer.apply_gradients(zip(gradients, weights, strict=True))
        return value

    score = tf.function(model, reduce_retracing=True)
    batches = users.batches("train", args.batch_size, ragged=True, seed=seed)

    def train(epoch):
        value = sum(float(step(features["items"])) for features, _ in batches)
        if not np.isfinite(value):
            raise ArithmeticError(f"{loss_name}: the loss is {value} in epoch {epoch}.")

    if epochs:
        for epoch in range(1, epochs + 1):
            train(epoch)
        return {"test": evaluate(score, users, "test")}
    history, best = harness.train_to_best(
        model,
        args.epochs,
        args.evaluate_every,
        train,
        evaluate=lambda: evaluate(score, users, "validation"),
        metric="AP@10",
        patience=args.patience,
    )
    result = {"validation": best, "history": history}
    if test:
        result["test"] = evaluate(score, users, "test")
    return result


def run_ease(l2, users, test):
    """The figures of EASE, fitted to the training films in closed form, counted as one epoch."""

    def dense(films):
        result = np.zeros([int(films.nrows()), users.num_items])
        result[films.value_rowids().numpy(), films.flat_values.numpy()] = 1
        return result

    score = retrieval.ease(dense(users.train), l2)
    part = "test" if test else "validation"
    figures = evaluate(lambda films: score(dense(films)), users, part)
    return {part: {"epoch": 1, **figures}}


def cached(loss_name, learning_rate, l2, seed, args, test, refit_epochs=None):
    """Reads a run from its file, or does it now and writes the file.

    With `refit_epochs`, the run trains on the training and the validation films.
    """

    def make():
        users = r4c.data.movielens(args.version, args.data_dir, seed=seed)
        if refit_epochs:
            both = tf.concat([users.train, users.validation], axis=1)
            users = dataclasses.replace(users, train=both, validation=users.validation[:, :0])
        if loss_name == EASE:
            return run_ease(l2, users, test)
        return run(loss_name, learning_rate, l2, users, seed, args, test, refit_epochs)

    settings = {"loss": loss_name, "learning_rate": learning_rate, "l2": l2, "seed": seed}
    if refit_epochs:
        settings["refit_epochs"] = refit_epochs
    shared = (
        "version",
        "epochs",
        "evaluate_every",
        "patience",
        "batch_size",
        "units",
        "dropout",
    )
    rate = "" if learning_rate is None else f"-{learning_rate:g}"
    return harness.cached(
        args.out / f"{loss_name}{rate}-{l2:g}-{seed}{'-refit' * bool(refit_epochs)}.json",
        settings | {name: getattr(args, name) for name in shared},
        make,
        needs=("test",) if test else (),
    )


def grid(name, args):
    """The learning rates and L2 to try for a row of the table."""
    if name == EASE:
        return [(None, l2) for l2 in args.ease_l2]
    return list(itertools.product(args.learning_rates, args.l2))


def summary(chosen, runs, args):
    """The Markdown of the results."""
    head = ["loss", "learning rate", "L2", *METRICS, "CPU s per run", "paper"]
    rows = []
    for name, results in runs.items():
        figures = [[result["test"][metric] for result in results] for metric in METRICS]
        seconds = np.mean([result["cpu_seconds"] for result in results])
        rate, l2 = chosen[name]
        paper = " / ".join(f"{value:.3f}" for value in PAPER[name]) if name in PAPER else "–"
        cells = [
            name,
            "–" if rate is None else f"{rate:g}",
            f"{l2:g}",
            *map(tables.plus_minus, figures),
        ]
        rows.append([*cells, f"{seconds:.0f}", paper])
    trained = "training and validation films" if args.refit else "training films"
    title = (
        f"MovieLens {args.version}, models of the {trained}, test part, "
        f"mean ± standard deviation of seeds {args.seeds}."
    )
    return "\n".join([title, "", *tables.table(head, rows)]) + "\n"


def draw(tuning, path):
    """Figure 2: validation AP@10 and R@100 against epochs and training time, per learning rate."""
    from matplotlib.figure import Figure

    tuning = [result for result in tuning if result["loss"] != EASE]
    rates = sorted({result["learning_rate"] for result in tuning})
    names = [name for name in LOSSES if any(result["loss"] == name for result in tuning)]
    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.subplots(2, 2, sharey="row")
    colors = dict(zip(LOSSES, ("tab:red", "tab:blue", "tab:green"), strict=True))
    styles = dict(zip(rates, itertools.cycle(("-", "--", ":", "-.")), strict=False))
    for row, metric in enumerate(("AP@10", "R@100")):
        for column, key in enumerate(("epoch", "cpu_seconds")):
            axis = axes[row, column]
            for loss_name, rate in itertools.product(names, rates):
                of_rate = [
                    r for r in tuning if (r["loss"], r["learning_rate"]) == (loss_name, rate)
                ]
                best = max(of_rate, key=lambda result: result["validation"]["AP@10"])
                axis.plot(
                    [point[key] for point in best["history"]],
                    [point[metric] for point in best["history"]],
                    color=colors[loss_name],
                    linestyle=styles[rate],
                    linewidth=1,
                    label=f"{loss_name}, {rate:g}",
                )
            axis.set_xlabel({"epoch": "epochs", "cpu_seconds": "CPU seconds of training"}[key])
            axis.set_ylabel(metric)
    if names:
        axes[0, 0].legend(fontsize=6, ncols=3)
    harness.save_figure(figure, path)


def parse_args(argv=None):
    """The command line."""
    parser = command_line.parser(__spec__, description=__doc__)
    count, number = command_line.positive(int), command_line.positive(float)
    parser.add_argument("--version", default="latest-small", help="version of MovieLens")
    parser.add_argument("--data-dir", help="folder of TensorFlow Datasets")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/rankmax"))
    names = [*LOSSES, EASE]
    parser.add_argument("--losses", nargs="+", choices=names, default=names)
    parser.add_argument("--seeds", nargs="+", type=command_line.seed, default=[0, 1, 2])
    parser.add_argument("--tuning-seed", type=command_line.seed, default=100)
    parser.add_argument("--learning-rates", nargs="+", type=number, default=[1e-3, 3e-3, 1e-2])
    parser.add_argument(
        "--l2", nargs="+", type=command_line.number_below(math.inf), default=[0.3, 1.0, 3.0]
    )
    parser.add_argument(
        "--ease-l2", nargs="+", type=number, default=[30.0, 100.0, 300.0, 1000.0, 3000.0]
    )
    parser.add_argument("--epochs", type=count, default=200)
    parser.add_argument(
        "--evaluate-every", type=count, default=2, help="epochs between evaluations"
    )
    parser.add_argument(
        "--patience",
        type=count,
        default=8,
        help="stop after this many epochs without a better AP@10",
    )
    parser.add_argument("--batch-size", type=count, default=128, help="users per batch")
    parser.add_argument("--refit", action="store_true", help="also train on the validation set")
    parser.add_argument("--units", type=count, default=64)
    parser.add_argument("--dropout", type=command_line.number_below(1), default=0.5)
    return parser.parse_args(argv)


def main(argv=None):
    """Tunes, trains, tests and reports."""
    args = parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    print(__doc__)
    tuning = [
        cached(name, *choice, args.tuning_seed, args, test=False)
        for name in args.losses
        for choice in grid(name, args)
    ]
    chosen, epochs = {}, {}
    for name in args.losses:
        of_loss = [result for result in tuning if result["loss"] == name]
        best = max(of_loss, key=lambda result: result["validation"]["AP@10"])
        chosen[name] = (best["learning_rate"], best["l2"])
        epochs[name] = best["validation"]["epoch"] if args.refit else None
    runs = {
        name: [
            cached(name, *chosen[name], seed, args, test=True, refit_epochs=epochs[name])
            for seed in args.seeds
        ]
        for name in args.losses
    }
    text = summary(chosen, runs, args)
    harness.write_report(args.out, text, runs, lambda path: draw(tuning, path), "figure_2.png")


if __name__ == "__main__":
    main()
