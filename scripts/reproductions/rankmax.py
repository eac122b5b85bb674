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
from scripts.tables import Table, show_all

METRICS = ("AP@10", "accuracy", "R@100")
SELECT_BY = METRICS[0]
SOFTMAX, POPULAR, SIGMOID = "softmax", "softmax, popularity", "sigmoid"
EASE, POPULARITY = "EASE", "popularity"
COLUMNS = ("rate", "l2", "dropout", "units", "weight", "own")
NEARBY = (("l2", 1), ("rate", 1 / 3), ("l2", 1 / 3), ("l2", 3))
UNITS = (32, 64, 128)
WEIGHTS = {"number": 1.0, "root": 0.5, "same": 0.0}

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
    return users if rows * columns == 1 else expanded(users, seed, rows, columns)


def expanded(users, seed, rows, columns):
    """A fractal expansion: each entry of a small matrix is a random part of all pairs.

    The small matrix, `[rows, columns]`, resembles that of the ratings.
    """
    lists = tf.concat([users.train, users.validation, users.test], axis=1)
    owners = lists.value_rowids().numpy()
    films = lists.flat_values.numpy()
    matrix = multi_hot(lists, users.num_items)
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    size = min(rows, columns)
    small = orthogonal_means(left[:, :size], rows) * values[:size]
    small = np.abs(small @ orthogonal_means(right[:size].T, columns).T)
    small = np.clip(small / small.max(), 0.01, 0.95)

    rng = np.random.default_rng(seed)
    pairs = []
    for (row, column), probability in np.ndenumerate(small):
        stays = rng.random(len(films)) < probability
        of_users = owners[stays] + row * users.num_users
        pairs.append((of_users, films[stays] + column * users.num_items))
    return r4c.data.UserItems.from_pairs(pairs, seed)


def orthogonal_means(vectors, number):
    """The means of so many parts of the rows, with orthogonal columns."""
    parts = np.array_split(vectors, number)
    means = np.stack([part.mean(axis=0) for part in parts])
    inner, _, outer = np.linalg.svd(means, full_matrices=False)
    return inner @ outer


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
        scores = score(multi_hot(seen, users.num_items))
        metric.update_state(class_ids, scores, exclude=seen)
    return {name: float(value) for name, value in metric.result().items()}


def make_model(name, settings, num_items):
    """The autoencoder of items of a method."""
    layers = keras.layers
    activation = "tanh" if name == "Mult-DAE" else None
    # A bias in the first layer costs softmax up to .01 AP@10 on the validation part.
    hidden = layers.Dense(
        settings["units"], activation, use_bias=False, kernel_initializer="normal"
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
    popularity = np.bincount(users.train.flat_values, minlength=users.num_items)
    popularity = popularity.astype(np.float32)
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
            squares = [tf.reduce_sum(tf.square(w)) for w in variables]
            l2 = settings["l2"] * tf.add_n(squares)
            value = tf.reduce_sum(weights * values) + l2
        gradients = tape.gradient(value, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return value

    return step


def run(name, settings, users, seed, args, test):
    """Trains one model; returns its figures at the best epoch."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    model = make_model(name, settings, users.num_items)
    step = make_step(name, settings, users, model)
    score = tf.function(model, reduce_retracing=True)
    batches = users.batches("train", args.batch_size, ragged=True, seed=seed)

    def train(epoch):
        value = sum(float(step(features["items"])) for features, _ in batches)
        assert np.isfinite(value), f"The loss is {value} in epoch {epoch}."

    trained = common.train_to_best(
        model,
        args.epochs,
        train=train,
        evaluate=lambda: evaluate(score, users, "validation"),
        metric=SELECT_BY,
        patience=args.patience,
        every=args.evaluate_every,
    )
    figures = {"validation": trained.best}
    if test:
        figures["test"] = evaluate(score, users, "test")
    return figures


def study_of(args, name, size):
    """The runs of a method on data of a size."""

    def make(settings, seed, test):
        users = read(args.version, args.data_dir, seed, *size)
        if name in LOSSES:
            return run(name, settings, users, seed, args, test)
        learned = multi_hot(users.train, users.num_items).numpy()
        score = retrieval.METHODS[name].make(learned, **settings)
        part = "test" if test else "validation"
        found = evaluate(lambda films: score(films.numpy()), users, part)
        return {part: {"epoch": 1, **found}}

    options = ("version", "epochs", "evaluate_every", "patience", "batch_size")
    return common.Study(args, make, SELECT_BY, options, loss=name, size=size)


def gain(runs, of_softmax):
    """What a method's runs gain over those of softmax: mean, interval, p and wins."""
    gains = []
    for run, other in zip(runs, of_softmax, strict=True):
        gains.append(run.test[SELECT_BY] - other.test[SELECT_BY])
    gains = np.array(gains)
    number = len(gains)
    if number < 2 or not gains.std():
        return [f"{gains.mean():+.3f}" if gains.any() else "–", "–", "–"]
    t = gains.mean() / gains.std(ddof=1) * number**0.5
    p = _intervals.two_sided(t, number - 1)
    ahead = f"{np.count_nonzero(gains > 0)} of {number}"
    return [common.gained(gains), f"{p:.1g}", ahead]


def tried(args, name):
    """The runs of a method's settings on the tuning split.

    In an expansion these are what is best on the original data, and what is near it.
    """
    points = drawn(name, args.settings)
    for size in dict.fromkeys([(1, 1), tuple(args.expansion)]):
        study = study_of(args, name, size)
        runs = study.tried(points)
        best = study.best(runs).settings
        points = [best | {key: best[key] * by} for key, by in NEARBY if key in best]
        points = points or [best]
    return runs


def cells_of_tried(run):
    """What was tried in a run, and what came of it."""
    cells = []
    for key in COLUMNS:
        value = run.settings.get(key, "–")
        cells.append(f"{value:.3g}" if isinstance(value, float) else str(value))
    return [*cells, f"{run.validation[SELECT_BY]:.3f}"]


def tables_of(args):
    """What the methods reach, and what they tried."""
    size = tuple(args.expansion)
    rows = []
    rows_of_tried = []
    of_softmax = []
    for name in [SOFTMAX, *(name for name in args.losses if name != SOFTMAX)]:
        found = tried(args, name)
        rows_of_tried += [[name, *cells_of_tried(run)] for run in found]
        study = study_of(args, name, size)
        runs = study.tested(study.best(found).settings)
        of_softmax = of_softmax or runs
        row = [name, *common.reached(runs, METRICS), *gain(runs, of_softmax)]
        rows.append([*row, common.mean_kept(runs, "cpu_seconds")])

    over = f"{SELECT_BY} over softmax (95 %)"
    head = ["method", *METRICS, over, "p", "ahead", "CPU s per run"]
    users = read(args.version, args.data_dir, args.tuning_seed, *size)
    size = f"{users.num_users:,} users, {users.num_items:,} films"
    of_ease = f"EASE's matrix {4e-9 * users.num_items**2:.1f} GB"
    yield Table(f"Test, {size}, {of_ease}", head, rows)
    head = ["method", *COLUMNS, SELECT_BY]
    yield Table("Tried on the tuning split", head, rows_of_tried)


def parser():
    """The command line."""
    quick = {"losses": ["Rankmax", EASE], "settings": 1, "seeds": [0, 1], "epochs": 2}
    result = common.parser(__spec__, __doc__, quick, seeds=5)
    add = result.add_argument
    count = command_line.count
    add("--version", default="latest-small", help="version of MovieLens")
    add("--data-dir", help="folder of TensorFlow Datasets")
    result.add_names("--losses", [*LOSSES, EASE, POPULARITY], "methods")
    result.add_value("--settings", count, 12, "how many settings each method tries")
    times = "times the users and the films"
    add("--expansion", nargs=2, type=count, default=[1, 1], help=times)
    common.add_epochs(result, epochs=40, every=5, patience=10, figure="AP@10")
    result.add_value("--batch-size", count, 128, "users per batch")
    return result


def main(argv=None):
    """Tunes, trains, tests and reports."""
    args = parser().parse_args(argv)
    show_all(tables_of(args), args.csv)


if __name__ == "__main__":
    main()
