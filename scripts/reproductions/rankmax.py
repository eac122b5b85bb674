"""Losses over a whole catalogue on MovieLens: Rankmax's Table 2 with stronger rivals.

    python -m scripts.reproductions.rankmax --data-dir data
    python -m scripts.reproductions.rankmax --data-dir data --expansion 2 5 --seeds 0 1

The first takes an hour of one core. The pairs of a user and a film are split 80/10/10
at random, anew for each seed. For each user, the model reads the films in the earlier
parts of the split and ranks all others. Users without a film in the part under test are
skipped. The model is an autoencoder of items: Dropout, UnitNormalization and two Dense
layers; that of Mult-DAE (Liang et al. 2018, "Variational Autoencoders for Collaborative
Filtering") has a tanh between these.

Every method tries the same points of one Latin hypercube on the split of
`--tuning-seed`: rate, L2, dropout, width, the weight of a user (the number of pairs,
its root, or the same for all) and `own`: the temperature of softmax, Mult-DAE and
Sparsemax, the margin of Rankmax, WARP and OWL (the mean of the hinges of the 512
highest negatives), the weight of a positive in sigmoid cross-entropy, and for "softmax,
popularity" the power of a film's number of users that weighs its positives. The point
with the best AP@10 on the validation part is trained anew for each seed and stopped by
the same metric. The test part is used once per seed, with the weights of the best
epoch. The intervals and p are of Student's T for the differences of the splits.

EASE (Steck 2019, "Embarrassingly Shallow Autoencoders for Sparse Data") is a ridge
regression of each film on all others, in closed form; its L2 is tried as often. With
`--expansion`, the data are a fractal expansion (Belletti et al. 2019) to so many times
the users and films; each method tries what it chose on the original data, that with a
third of the rate, and a third and thrice the L2.
"""

import functools
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

import rank4class_tf as r4c
from rank4class_tf import _intervals
from scripts import command_line
from scripts.reproductions import common, retrieval
from scripts.tables import plus_minus, show_all

METRICS = ("AP@10", "accuracy", "R@100")
SOFTMAX, POPULAR, SIGMOID = "softmax", "softmax, popularity", "sigmoid"
EASE, POPULARITY = "EASE", "popularity"
COLUMNS = ("rate", "l2", "dropout", "units", "weight", "own")
NEARBY = (("l2", 1), ("rate", 1 / 3), ("l2", 1 / 3), ("l2", 3))
UNITS, WEIGHTS = (32, 64, 128), {"number": 1.0, "root": 0.5, "same": 0.0}


ENTROPY = tf.nn.weighted_cross_entropy_with_logits
FORM: dict[str, Any] = {"label_format": "relevance", "reduction": "none"}
# The losses, of their own parameter, with a value for each user.
LOSSES = {
    SOFTMAX: lambda t: r4c.losses.SoftmaxLoss(t, **FORM),
    POPULAR: lambda power: r4c.losses.SoftmaxLoss(**FORM),
    "Mult-DAE": lambda t: r4c.losses.SoftmaxLoss(t, **FORM),
    SIGMOID: lambda w: (
        lambda y, z, sample_weight: tf.reduce_sum(ENTROPY(y, z, w), axis=1)
    ),
    "Sparsemax": lambda t: r4c.losses.FenchelYoungLoss(alpha=1 / t, **FORM),
    "Rankmax": lambda margin: r4c.losses.RankmaxLoss(margin=margin, **FORM),
    "WARP": lambda margin: r4c.losses.WARPLoss(margin=margin, **FORM),
    "OWL, top 512": lambda margin: r4c.losses.OrderedWeightedLoss(
        phi=r4c.ops.Scaled("hinge", 1 / margin),
        rank_weights=r4c.ops.StaircaseWeights([(512, margin / 512)]),
        **FORM,
    ),
}
RANGES = {POPULAR: (0.1, 1.0), SIGMOID: (1.0, 100.0)}


def drawn(name, number):
    """A method's settings; all losses' are at the same places between their ends."""
    if name == POPULARITY:
        return [{}]
    rng = np.random.default_rng(0)
    order = rng.permuted(np.tile(np.arange(number), (len(COLUMNS), 1)), axis=1)
    points = ((order + rng.random(order.shape)) / number).T.tolist()
    if name == EASE:
        return [{"l2": 10 * 300 ** point[1]} for point in points]
    low, high = RANGES.get(name, (0.3, 3.0))
    return [
        {
            "rate": 3e-3 * 10**rate,
            "l2": 0.2 * 25**l2,
            "dropout": 0.3 + 0.4 * dropout,
            "units": UNITS[int(3 * units)],
            "weight": list(WEIGHTS)[int(3 * weight)],
            "own": low * (high / low) ** own,
        }
        for rate, l2, dropout, units, weight, own in points
    ]


def multi_hot(lists, num_items):
    """Ragged items `[users, None]` to 0 and 1, `[users, num_items]`."""
    places = tf.stack(
        [lists.value_rowids(), tf.cast(lists.flat_values, tf.int64)], axis=1
    )
    return tf.scatter_nd(places, tf.ones(len(places)), [lists.nrows(), num_items])


@functools.lru_cache(2)
def read(version, data_dir, seed, rows, columns):
    """The split of a seed, of the ratings or of their expansion."""
    users = r4c.data.movielens(version, data_dir, seed=seed)
    if rows * columns == 1:
        return users
    lists = tf.concat([users.train, users.validation, users.test], axis=1)
    owners, films = lists.value_rowids().numpy(), lists.flat_values.numpy()
    left, values, right = np.linalg.svd(
        multi_hot(lists, users.num_items), full_matrices=False
    )
    size = min(rows, columns)

    def means(vectors, number):
        shrunk = np.stack(
            [part.mean(axis=0) for part in np.array_split(vectors, number)]
        )
        inner, _, outer = np.linalg.svd(shrunk, full_matrices=False)
        return inner @ outer

    small = (
        means(left[:, :size], rows) * values[:size] @ means(right[:size].T, columns).T
    )
    small = np.clip(np.abs(small) / np.abs(small).max(), 0.01, 0.95)
    pairs, rng = [], np.random.default_rng(seed)
    for (row, column), probability in np.ndenumerate(small):
        stays = rng.random(len(films)) < probability
        of_block = owners + row * users.num_users, films + column * users.num_items
        pairs.append(tuple(ids[stays] for ids in of_block))
    return r4c.data.UserItems.from_pairs(pairs, seed)


class FiguresOfTable2(r4c.metrics.RankingMetric):
    """The three metrics of the table from one ranking."""

    result_names = METRICS

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        of = r4c.metrics
        self.parts = [of.AveragePrecisionAtK(10), of.PrecisionAtK(1), of.RecallAtK(100)]

    def compute(self, ranks):
        """The three formulas."""
        return [part.compute_at(ranks, part.k) for part in self.parts]


def evaluate(score, users, part):
    """The three figures over one part of the split; `score` takes users of 0 and 1."""
    metric = FiguresOfTable2(label_format="ids", name="figures")
    for features, class_ids in users.batches(part, 32, ragged=True):
        seen = features["exclude"]
        metric.update_state(
            class_ids, score(multi_hot(seen, users.num_items)), exclude=seen
        )
    return {name: float(value) for name, value in metric.result().items()}


def make_model(name, settings, num_items):
    """The autoencoder of items of a method."""
    layers, activation = keras.layers, "tanh" if name == "Mult-DAE" else None
    # A bias in the first layer costs softmax up to .01 AP@10 on the validation part.
    hidden = layers.Dense(
        settings["units"], activation, False, kernel_initializer="normal"
    )
    return keras.Sequential(
        [
            layers.Dropout(settings["dropout"]),
            layers.UnitNormalization(),
            hidden,
            layers.Dense(num_items, kernel_initializer="normal"),
        ]
    )


def weights_of_items(power, users):
    """`[items]`, powers of the numbers of users, with a mean of 1 over the pairs."""
    popularity = np.bincount(users.train.flat_values, minlength=users.num_items).astype(
        np.float32
    )
    weights = popularity**power
    return weights * (popularity.sum() / (popularity @ weights))


def weights_of_users(power, labels):
    """`[users]`, powers of the numbers of pairs, whose sum is the number of pairs."""
    count = tf.reduce_sum(labels, axis=1)
    weights = count**power
    return weights * (tf.reduce_sum(count) / tf.reduce_sum(weights))


def make_step(name, settings, users, model):
    """A training step: a function of ragged items `[users, None]`, to the loss."""
    loss = LOSSES[name](settings["own"])
    optimizer = keras.optimizers.Adam(settings["rate"])
    of_items = weights_of_items(settings["own"], users) if name == POPULAR else None

    @tf.function(reduce_retracing=True)
    def step(items):
        labels = multi_hot(items, users.num_items)
        weights = weights_of_users(WEIGHTS[settings["weight"]], labels)
        if name != "Sparsemax":
            # All other losses are sums over the pairs of a user.
            weights /= tf.reduce_sum(labels, axis=1)
        with tf.GradientTape() as tape:
            of_pairs = labels * of_items if name == POPULAR else None
            values = loss(labels, model(labels, training=True), sample_weight=of_pairs)
            variables = model.trainable_variables
            l2 = settings["l2"] * tf.add_n(
                [tf.reduce_sum(tf.square(w)) for w in variables]
            )
            value = tf.reduce_sum(weights * values) + l2
        optimizer.apply_gradients(
            zip(tape.gradient(value, variables), variables, strict=True)
        )
        return value

    return step


def run(name, settings, users, seed, args, test):
    """Trains one model; returns its history and its figures at the best epoch."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    model = make_model(name, settings, users.num_items)
    step = make_step(name, settings, users, model)
    score = tf.function(model, reduce_retracing=True)
    batches = users.batches("train", args.batch_size, ragged=True, seed=seed)

    def train(epoch):
        value = sum(float(step(features["items"])) for features, _ in batches)
        assert np.isfinite(value), f"The loss is {value} in epoch {epoch}."

    watch = functools.partial(evaluate, score, users, "validation")
    _, best = common.train_to_best(
        model, args.epochs, train, watch, "AP@10", args.patience, args.evaluate_every
    )
    figures = {"validation": best}
    if test:
        figures["test"] = evaluate(score, users, "test")
    return figures


def kept_run(args, name, settings, seed, test, size=(1, 1)):
    """A run of a method from its file, or made now."""

    def make():
        users = read(args.version, args.data_dir, seed, *size)
        if name in LOSSES:
            return run(name, settings, users, seed, args, test)
        learned = multi_hot(users.train, users.num_items).numpy()
        score = retrieval.METHODS[name].make(learned, **settings)
        part = "test" if test else "validation"
        return {
            part: {
                "epoch": 1,
                **evaluate(lambda films: score(films.numpy()), users, part),
            }
        }

    of_run = {
        "loss": name,
        "settings": settings,
        "seed": seed,
        "test": test,
        "size": size,
    }
    names = ("version", "epochs", "evaluate_every", "patience", "batch_size")
    return common.kept(
        args.out, of_run | {key: getattr(args, key) for key in names}, make
    )


def gain(runs, of_softmax):
    """What a method's runs gain over those of softmax: mean, interval, p and wins."""
    by_split = zip(runs, of_softmax, strict=True)
    gains = np.array(
        [run["test"]["AP@10"] - other["test"]["AP@10"] for run, other in by_split]
    )
    number = len(gains)
    if number < 2 or not gains.std():
        return [f"{gains.mean():+.3f}" if gains.any() else "–", "–", "–"]
    of = _intervals.interval(gains, np.ones(number), 0.95)
    p = _intervals.two_sided(of.value / gains.std(ddof=1) * number**0.5, number - 1)
    ahead = f"{np.count_nonzero(gains > 0)} of {number}"
    return [f"{of.value:+.3f} ({of.low:+.3f} to {of.high:+.3f})", f"{p:.1g}", ahead]


def tables_of(args):
    """What the methods reach, and what they tried."""
    rows, tried, size, of_softmax = [], [], tuple(args.expansion), []
    for name in [SOFTMAX, *(name for name in args.losses if name != SOFTMAX)]:
        points = drawn(name, args.settings)
        for of_size in dict.fromkeys([(1, 1), size]):
            runs = [
                kept_run(args, name, of, args.tuning_seed, False, of_size)
                for of in points
            ]
            best = max(runs, key=lambda run: run["validation"]["AP@10"])["settings"]
            points = [
                best | {key: best[key] * by} for key, by in NEARBY if key in best
            ] or [best]
        for of in runs:
            cells = [of["settings"].get(key, "–") for key in COLUMNS]
            cells = [
                f"{cell:.3g}" if isinstance(cell, float) else str(cell)
                for cell in cells
            ]
            tried.append([name, *cells, "{AP@10:.3f}".format(**of["validation"])])
        runs = [kept_run(args, name, best, seed, True, size) for seed in args.seeds]
        of_softmax = of_softmax or runs
        figures = [
            plus_minus([of["test"][metric] for of in runs]) for metric in METRICS
        ]
        seconds = np.mean([of["cpu_seconds"] for of in runs])
        rows.append([name, *figures, *gain(runs, of_softmax), f"{seconds:.0f}"])
    head = [
        "method",
        *METRICS,
        "AP@10 over softmax (95 %)",
        "p",
        "ahead",
        "CPU s per run",
    ]
    users = read(args.version, args.data_dir, args.tuning_seed, *size)
    size = f"{users.num_users:,} users, {users.num_items:,} films"
    yield f"Test, {size}, EASE's matrix {4e-9 * users.num_items**2:.1f} GB", head, rows
    yield "Tried on the tuning split", ["method", *COLUMNS, "AP@10"], tried


def main(argv=None):
    """Tunes, trains, tests and reports."""
    quick = {"losses": ["Rankmax", EASE], "settings": 1, "seeds": [0, 1], "epochs": 2}
    parser = common.parser(__spec__, __doc__, quick)
    parser.set_defaults(seeds=[0, 1, 2, 3, 4])
    add, count = parser.add_argument, command_line.count
    add("--version", default="latest-small", help="version of MovieLens")
    add("--data-dir", help="folder of TensorFlow Datasets")
    parser.add_names("--losses", [*LOSSES, EASE, POPULARITY], "methods")
    add(
        "--settings", type=count, default=12, help="how many settings each method tries"
    )
    add(
        "--expansion",
        nargs=2,
        type=count,
        default=[1, 1],
        help="times the users and the films",
    )
    add("--epochs", type=count, default=40, help="at most")
    add("--evaluate-every", type=count, default=5, help="epochs between evaluations")
    add(
        "--patience",
        type=count,
        default=10,
        help="epochs to go on without a better AP@10",
    )
    add("--batch-size", type=count, default=128, help="users per batch")
    args = parser.parse_args(argv)
    show_all(tables_of(args), args.csv)


if __name__ == "__main__":
    main()
