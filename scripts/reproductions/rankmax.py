"""Rankmax, softmax, Sparsemax and EASE on MovieLens: Table 2 and Figure 2 of the Rankmax paper.

    python -m scripts.reproductions.rankmax --data-dir data --seeds 0 1 2 3 4 5 6 7 8 9

It takes an hour of one core. Protocol: the pairs of a user and a film are split 80/10/10 at random,
anew for each seed. For each user, the model reads the films in the earlier parts of the split and
ranks all other films. Users without a film in the part under test are skipped. The model is an
autoencoder of items, trained on the training films. It divides the sum of the embeddings of the
films it reads by the square root of their number; half of the films are dropped in training. An
untied output layer with a bias follows. All losses are summed over the pairs. Every combination of
learning rate and L2 is tried for each loss on the split of `--tuning-seed`. The combination with
the best AP@10 on the validation part is trained anew for each seed and stopped by the same metric.
The test part is used once per seed, with the weights of the best epoch. With `--refit`, the
validation part is only for tuning: each seed trains on the training and the validation films, for
as many epochs as were best in tuning, and its last weights are tested.

EASE (Steck 2019, "Embarrassingly Shallow Autoencoders for Sparse Data") is not in the paper. It is
a ridge regression of each film on all others, in closed form. Its L2 is chosen in the same way as
for the losses.
"""

import dataclasses
import functools
import itertools
import math

import numpy as np
import tensorflow as tf
from tensorflow import keras

import rank4class_tf as r4c
from scripts import command_line
from scripts.reproductions import common, retrieval
from scripts.tables import plus_minus

# The figures of the paper's Table 2 for its smallest dataset.
PAPER = {
    "rankmax": "0.154 / 0.342 / 0.387",
    "softmax": "0.147 / 0.300 / 0.401",
    "sparsemax": "0.147 / 0.286 / 0.384",
}
METRICS = ("AP@10", "accuracy", "R@100")
EASE = "ease"
LOSSES = {
    "rankmax": r4c.losses.RankmaxLoss,
    "softmax": r4c.losses.SoftmaxLoss,
    "sparsemax": r4c.losses.SparsemaxLoss,
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


def run(name, rate, l2, users, seed, args, test, epochs=None):
    """Trains one model; returns its history and its figures at the best epoch.

    With `epochs`, it trains for this number of epochs and returns only the test figures.
    """
    keras.utils.set_random_seed(seed)
    loss = LOSSES[name](label_format="ids", reduction="sum")
    model = ItemAutoencoder(users.num_items, args.units, args.dropout)
    optimizer = keras.optimizers.Adam(rate)

    @tf.function(reduce_retracing=True)
    def step(items):
        # The sum of the Sparsemax losses of all pairs has the gradient of their mean times their
        # number; the other losses are sums.
        weight = tf.cast(items.row_lengths(), tf.float32) if name == "sparsemax" else None
        with tf.GradientTape() as tape:
            value = loss(items, model(items, training=True), sample_weight=weight)
            weights = model.trainable_variables
            value += l2 * tf.add_n([tf.reduce_sum(tf.square(w)) for w in weights])
        gradients = [tf.convert_to_tensor(g) for g in tape.gradient(value, weights)]
        optimizer.apply_gradients(zip(gradients, weights, strict=True))
        return value

    score = tf.function(model, reduce_retracing=True)
    batches = users.batches("train", args.batch_size, ragged=True, seed=seed)

    def train(epoch):
        value = sum(float(step(features["items"])) for features, _ in batches)
        if not np.isfinite(value):
            raise ArithmeticError(f"{name}: the loss is {value} in epoch {epoch}.")

    if epochs:
        for epoch in range(1, epochs + 1):
            train(epoch)
        return {"test": evaluate(score, users, "test")}
    watch = functools.partial(evaluate, score, users, "validation")
    history, best = common.train_to_best(
        model, args.epochs, train, watch, "AP@10", args.patience, args.evaluate_every
    )
    result = {"validation": best, "history": history}
    return result | ({"test": evaluate(score, users, "test")} if test else {})


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


def kept_run(args, name, rate, l2, seed, test, refit=None):
    """A run; with `refit` epochs it trains on the training and the validation films."""

    def make():
        users = r4c.data.movielens(args.version, args.data_dir, seed=seed)
        if refit:
            both = tf.concat([users.train, users.validation], axis=1)
            users = dataclasses.replace(users, train=both, validation=users.validation[:, :0])
        if name == EASE:
            return run_ease(l2, users, test)
        return run(name, rate, l2, users, seed, args, test, refit)

    settings = {"loss": name, "rate": rate, "l2": l2, "seed": seed, "test": test, "refit": refit}
    names = ("version", "epochs", "evaluate_every", "patience", "batch_size", "units", "dropout")
    return common.kept(args.out, settings | {key: getattr(args, key) for key in names}, make)


def tables_of(args):
    """The table of the losses, and the curves of Figure 2."""
    rows, curves = [], []
    for name in args.losses:
        grid = itertools.product(args.learning_rates, args.l2)
        grid = [(None, l2) for l2 in args.ease_l2] if name == EASE else list(grid)
        tried = [kept_run(args, name, *choice, args.tuning_seed, False) for choice in grid]
        tried.sort(key=lambda result: result["validation"]["AP@10"], reverse=True)
        best = tried[0]
        refit = best["validation"]["epoch"] if args.refit else None
        runs = [
            kept_run(args, name, best["rate"], best["l2"], seed, True, refit) for seed in args.seeds
        ]
        rate = "–" if best["rate"] is None else f"{best['rate']:g}"
        figures = [plus_minus([of["test"][metric] for of in runs]) for metric in METRICS]
        seconds = f"{np.mean([of['cpu_seconds'] for of in runs]):.0f}"
        cells = [name, rate, f"{best['l2']:g}", *figures, seconds, PAPER.get(name, "–")]
        rows.append(cells)
        for rate in args.learning_rates if name != EASE else []:
            of_rate = next(result for result in tried if result["rate"] == rate)
            for point in of_rate["history"]:
                values = [f"{point[key]:.3f}" for key in ("AP@10", "R@100")]
                of_point = [f"{rate:g}", f"{point['epoch']}", f"{point['cpu_seconds']:.1f}"]
                curves.append([name, *of_point, *values])
    head = ["loss", "learning rate", "L2", *METRICS, "CPU s per run", "paper"]
    yield "Table 2", head, rows
    head = ["loss", "learning rate", "epoch", "CPU s of training", "AP@10", "R@100"]
    yield "Figure 2, the validation part of the tuning seed", head, curves


def main(argv=None):
    """Tunes, trains, tests and reports."""
    quick = {"losses": ["rankmax", EASE], "learning_rates": [0.01], "l2": [1.0], "seeds": [0]}
    quick |= {"ease_l2": [300.0], "epochs": 2}
    parser = common.parser(__spec__, __doc__, quick)
    count, number = command_line.positive(int), command_line.positive(float)
    at_least_0, names = command_line.number_below(math.inf), [*LOSSES, EASE]
    add = parser.add_argument
    add("--version", default="latest-small", help="version of MovieLens")
    add("--data-dir", help="folder of TensorFlow Datasets")
    add("--losses", nargs="+", choices=names, default=names)
    add("--learning-rates", nargs="+", type=number, default=[1e-3, 3e-3, 1e-2])
    add("--l2", nargs="+", type=at_least_0, default=[0.3, 1.0, 3.0])
    add("--ease-l2", nargs="+", type=number, default=[30.0, 100.0, 300.0, 1000.0, 3000.0])
    add("--epochs", type=count, default=200)
    add("--evaluate-every", type=count, default=2, help="epochs between evaluations")
    add("--patience", type=count, default=8, help="epochs to go on without a better AP@10")
    add("--batch-size", type=count, default=128, help="users per batch")
    add("--refit", action="store_true", help="also train on the validation set")
    add("--units", type=count, default=64)
    add("--dropout", type=command_line.number_below(1), default=0.5)
    args = parser.parse_args(argv)
    common.show(tables_of(args), args.csv)


if __name__ == "__main__":
    main()
