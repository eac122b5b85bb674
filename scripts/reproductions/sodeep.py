"""SoDeep (CVPR 2019): its sorters, and losses on ranks beside other losses.

    python -m scripts.reproductions.sodeep --data-dir data

Parts: `table1`, errors and slopes of each sorter (ten minutes of one core); `figure5`,
the rank of one item whose score goes from -1 to 1 (a minute); `synthetic`, losses of
the average precision, Figure 6 (an hour); `diabetes`, a regression whose outputs should
be in the right order (half an hour); `retrieval`, films by their words and by who rated
them (an hour; it needs MovieLens's ml-latest-small.zip in `--data-dir`). Most of the
time is the recurrent sorter's.

Protocol: small models, Adam, and batches of 100, which are the lists. For each method
every learning rate is tried with `--tuning-seed`. The best rate on the validation part
is used with each seed, and the same metric chooses the epoch. The test part is used
once per seed. A seed determines the split, the initial weights and the order.
"""

import collections
import csv
import dataclasses
import functools
import io
import math
import pathlib
import re
import zipfile
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from scipy import stats
from tensorflow import keras

from rank4class_tf import evaluation, layers, losses, metrics
from scripts import command_line
from scripts.reproductions import common
from scripts.tables import plus_minus, show_all

SORTERS = {
    "sigmoid": functools.partial(layers.SigmoidSorter, 0.1),
    "laplace": functools.partial(layers.LaplaceSorter, 0.1),
    "soft_rank": functools.partial(layers.SoftRankSorter, 0.01),
    "convolutional": layers.ConvolutionalSorter.pretrained,
    "recurrent": layers.RecurrentSorter.pretrained,
    "set": layers.SetSorter.pretrained,
}
PAPER_L1 = {"sigmoid": "0.0350", "convolutional": "0.0120", "recurrent": "0.0033"}
KINDS = 10
TEST_LISTS, TEST_LENGTH, TEST_SEED = 10_000, 100, 2019
LENGTHS = (TEST_LENGTH, 10, 32, 300)
# A slope nearer to zero than this counts as vanishing; on U(-1, 1) the ideal is -0.5.
VANISHING = 0.05
BATCH = 100


@functools.cache
def get_sorter(name):
    """A sorter, and a number that identifies its weights."""
    sorter = SORTERS[name]()
    sorter(tf.zeros([1, TEST_LENGTH]))
    weights = b"".join(
        np.ascontiguousarray(weight).tobytes() for weight in sorter.get_weights()
    )
    return sorter, zlib.crc32(weights)


# Lists, and how well a sorter ranks them.


def draw_lists(rng: np.random.Generator, count: int, length: int) -> np.ndarray:
    """Scores, float32 `[count, length]`, of the ten kinds SoDeep trains and tests on.

    The kind of each list is drawn uniformly from ten: U(-1, 1), which counts three
    times; N(0, 1); evenly spaced from a to b, both U(0, 1), without the end; the same
    shuffled; s items U(-1, 1) and then N(0, 1), which counts twice; s shuffled evenly
    spaced items and then U(-1, 1); a rising grid from -1 to 1. s is uniform in
    1..length.
    """
    kinds = rng.integers(KINDS, size=count)[:, None]
    uniform = rng.uniform(-1, 1, (count, length))
    normal = rng.standard_normal((count, length))
    place = np.arange(length)
    first = place < rng.integers(1, length + 1, size=count)[:, None]
    start, end = rng.random((2, count, 1))
    keys = rng.random((count, length))
    # In the last but one kind, the first s items are s shuffled steps: their keys sort
    # first.
    shuffled = np.argsort(np.where((kinds == 8) & ~first, 2, keys), axis=1)
    steps = np.where(kinds == 8, first.sum(axis=1, keepdims=True), length)
    is_shuffled = (kinds == 5) | (kinds == 8)
    places = np.where(is_shuffled, shuffled, place)
    spaced = start + (end - start) * places / steps
    mixed = np.where(first, uniform, normal)
    spaced_first = np.where(first, spaced, uniform)
    rising = np.linspace(-1, 1, length)
    conditions = [kinds < 3, kinds == 3, kinds <= 5, kinds <= 7, kinds == 8]
    choices = [uniform, normal, spaced, mixed, spaced_first]
    return np.select(conditions, choices, rising).astype(np.float32)


def exact_ranks(scores: np.ndarray) -> np.ndarray:
    """Descending ranks, 1 for the best, float32; equal scores share the mean rank."""
    return stats.rankdata(-scores, axis=1).astype(np.float32)


def test_lists(count: int = TEST_LISTS, length: int = TEST_LENGTH) -> np.ndarray:
    """The lists on which every figure is measured; they are always the same."""
    return draw_lists(np.random.default_rng([TEST_SEED, length]), count, length)


def mean_rank_error(sorter: Callable[[tf.Tensor], Any], scores: np.ndarray) -> float:
    """Mean over all items of |soft rank - rank| / d; a constant sorter has 0.25."""
    run = tf.function(sorter, reduce_retracing=True)
    parts = np.array_split(scores, math.ceil(len(scores) / 500))
    ranks = np.concatenate([np.asarray(run(tf.constant(part))) for part in parts])
    return float(np.abs(ranks - exact_ranks(scores)).mean() / scores.shape[1])


def own_slopes(
    sorter: Callable[[tf.Tensor], Any],
    count: int = TEST_LISTS,
    length: int = TEST_LENGTH,
) -> np.ndarray:
    """How an item's rank over d changes with its own score, for one item of each list.

    The lists are U(-1, 1); a slope of -0.5 is ideal.
    """
    rng = np.random.default_rng([TEST_SEED, length, 1])
    scores = rng.uniform(-1, 1, (count, length)).astype(np.float32)
    # The place of an item matters to a sorter that reads the list in order.
    chosen = np.eye(length, dtype=np.float32)[rng.integers(length, size=count)]

    @tf.function(reduce_retracing=True)
    def gradient(scores, chosen):
        with tf.GradientTape() as tape:
            tape.watch(scores)
            ranks = tf.reduce_sum(tf.cast(sorter(scores), tf.float32) * chosen)
        return tf.reduce_sum(tape.gradient(ranks, scores) * chosen, axis=1)

    parts = [np.array_split(x, math.ceil(count / 500)) for x in (scores, chosen)]
    slopes = [
        gradient(*map(tf.constant, pair)).numpy() for pair in zip(*parts, strict=True)
    ]
    return np.concatenate(slopes) / length


def slope_shares(slopes: np.ndarray) -> dict[str, float]:
    """Shares of slopes that vanish (within 0.05 of 0) and that have the wrong sign."""
    return {
        "vanishing_slopes": float((np.abs(slopes) < VANISHING).mean()),
        "wrong_slopes": float((slopes > 0).mean()),
        "median_slope": float(np.median(slopes)),
    }


def measure(sorter, lengths=(TEST_LENGTH,), count=TEST_LISTS):
    """Errors `l1_<length>` on `count` lists of each length, and slopes at the first."""
    errors = {f"l1_{d}": mean_rank_error(sorter, test_lists(count, d)) for d in lengths}
    return {**errors, **slope_shares(own_slopes(sorter, count, lengths[0]))}


def table1(args):
    """L1 by length, and slopes, of each sorter."""
    rows = []
    for name in args.sorters:
        sorter, weights = get_sorter(name)
        # The convolutional sorter accepts only one length.
        lengths = LENGTHS[:1] if name == "convolutional" else LENGTHS
        settings = {
            "part": "table1",
            "sorter": name,
            "weights": weights,
            "lists": args.lists,
        }
        make = functools.partial(measure, sorter, lengths, args.lists)
        found = common.kept(args.out, settings, make)
        errors = [f"{found[f'l1_{d}']:.4f}" if d in lengths else "" for d in LENGTHS]
        slopes = [f"{found[f'{kind}_slopes']:.1%}" for kind in ("vanishing", "wrong")]
        slopes.append(f"{found['median_slope']:.2f}")
        rows.append([name, PAPER_L1.get(name, ""), *errors, *slopes])
    head = ["sorter", "the paper", *(f"L1, d = {length}" for length in LENGTHS)]
    yield "Table 1", [*head, "vanishing slopes", "wrong slopes", "median slope"], rows


def figure5(args):
    """The rank of one of 100 items for scores from -1 to 1: errors, and the curves."""
    scores = np.random.default_rng(5).uniform(-1, 1, TEST_LENGTH).astype(np.float32)
    lists = np.tile(scores, (2001, 1))
    lists[:, 0] = np.linspace(-1, 1, 2001)
    curves = {"exact": exact_ranks(lists)[:, 0]}
    rows = []
    for name in args.sorters:
        sorter, _ = get_sorter(name)
        parts = [sorter(part) for part in np.array_split(lists, 10)]
        ranks = np.concatenate(parts)[:, 0]
        curves[name] = ranks
        errors = np.abs(ranks - curves["exact"])
        rising = np.mean(np.diff(ranks) > 0)
        rows.append(
            [name, f"{errors.mean():.2f}", f"{errors.max():.2f}", f"{rising:.1%}"]
        )
    head = [
        "sorter",
        "mean error, in ranks",
        "largest error",
        "steps that go the wrong way",
    ]
    yield "Figure 5", head, rows
    points = np.stack([lists[:, 0], *curves.values()], axis=1)
    cells = [[f"{number:.2f}" for number in point] for point in points[::20]]
    yield "Figure 5, curves", ["score", *curves], cells


# Tasks.


@dataclasses.dataclass(frozen=True)
class Task:
    """A task: everything but the method and the sorter.

    Attributes:
        inputs: arrays whose rows are examples.
        labels: what the losses and `evaluate` take, a row for each example.
        make_model: returns a new model, which takes the inputs.
        baselines: name -> loss.
        with_sorter: sorter -> loss.
        evaluate: labels, outputs -> figures, of which the first selects; higher is
            better.
        epochs: maximum number of epochs; the command line can change it.
        every: how many epochs lie between evaluations.
    """

    inputs: list[np.ndarray]
    labels: np.ndarray
    make_model: Callable[[], Any]
    baselines: dict[str, Any]
    with_sorter: Callable[[Any], Any]
    evaluate: Callable[[np.ndarray, np.ndarray], dict[str, float]]
    epochs: int
    every: int = 1

    def inputs_of(self, rows):
        """What the model takes of some examples: a list, or one array."""
        found = [x[rows] for x in self.inputs]
        return found if len(found) > 1 else found[0]


def perceptron(width, hidden):
    """Hidden layers with ReLU, then a linear layer of one unit."""
    dense = [keras.layers.Dense(units, activation="relu") for units in hidden]
    return keras.Sequential([keras.Input([width]), *dense, keras.layers.Dense(1)])


def diabetes(data_dir):
    """scikit-learn's diabetes: the progress of an illness, from ten measurements.

    For a tenth of the task's own epochs, whatever --epochs says, the absolute error is
    added to the loss on ranks, as in the paper's domain alignment.
    """
    from sklearn.datasets import load_diabetes

    features, labels = (
        ((x - x.mean(axis=0)) / x.std(axis=0)).astype(np.float32)
        for x in load_diabetes(return_X_y=True)
    )

    def spearman(labels, outputs):
        metric = metrics.SpearmanCorrelation(max_examples=len(labels))
        metric.update_state(labels, outputs)
        return {"Spearman": float(metric.result())}

    return Task(
        inputs=[features],
        labels=labels[:, np.newaxis],
        make_model=lambda: perceptron(10, [64]),
        baselines={
            "MSE": keras.losses.MeanSquaredError(),
            "L1": keras.losses.MeanAbsoluteError(),
        },
        with_sorter=lambda sorter: losses.SpearmanLoss(
            sorter, alignment=tf.Variable(1.0)
        ),
        evaluate=spearman,
        epochs=60,
        every=5,
    )


def synthetic(data_dir):
    """20,000 normal points; the fifth a random network scores highest is positive."""
    rng = np.random.default_rng(2016)
    points = rng.standard_normal((20_000, 10))
    scores = points
    for _ in range(3):
        scores = np.maximum(scores @ rng.standard_normal((10, 10)), 0)
    scores = scores @ rng.standard_normal(10)
    labels = (scores > np.quantile(scores, 0.8)).astype(np.float32)

    def cross_entropy(labels, outputs):
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels, outputs))

    def average_precision(labels, outputs):
        metric = metrics.MeanAveragePrecision(1, max_examples=len(labels))
        metric.update_state(labels, outputs)
        return {"mAP": float(metric.result())}

    return Task(
        inputs=[points.astype(np.float32)],
        labels=labels[:, np.newaxis],
        make_model=lambda: perceptron(10, [32, 32]),
        baselines={"cross-entropy": cross_entropy, "HingeAP": hinge_ap},
        with_sorter=losses.MeanAveragePrecisionLoss,
        evaluate=average_precision,
        epochs=8,
    )


def hinge_ap(labels, outputs):
    r"""Structured hinge loss of average precision, of labels and scores `[batch, 1]`.

    $$\max_\pi \; 1 - \mathrm{AP}(\pi) + F(\pi) - F(y), \qquad
    F(\pi) = \frac{1}{P N} \sum_{i \in +, j \in -} \pm (s_i - s_j)$$

    with + where the order π has i above j.

    Source: Yue et al. 2007, "A support vector method for optimizing average precision",
    section 4.1: each negative, from the best on, finds its best place among the sorted
    positives.
    """
    scores = tf.reshape(outputs, [-1])
    order = tf.argsort(scores, direction="DESCENDING")
    scores = tf.gather(scores, order)
    is_positive = tf.gather(tf.reshape(labels, [-1]), order) > 0
    positives = tf.boolean_mask(scores, is_positive)
    negatives = tf.boolean_mask(scores, ~is_positive)
    num_positives = tf.cast(tf.size(positives), scores.dtype)
    num_negatives = tf.cast(tf.size(negatives), scores.dtype)
    pairs = tf.maximum(num_positives * num_negatives, 1)

    i = tf.range(1, num_positives + 1)[:, tf.newaxis]
    j = tf.range(1, num_negatives + 1)[tf.newaxis, :]
    margins = 2 * (positives[:, tf.newaxis] - negatives[tf.newaxis, :]) / pairs
    # The gain if negative j is above positive i, as the j - 1 negatives before it are.
    losses_of_pairs = j / (i + j) - (j - 1) / (i + j - 1)
    gains = losses_of_pairs / tf.maximum(num_positives, 1) - margins
    below = tf.cumsum(tf.stop_gradient(gains), axis=0, reverse=True)
    ending = tf.concat([below, tf.zeros_like(negatives)[tf.newaxis, :]], axis=0)
    num_above = tf.cast(tf.argmax(ending, axis=0), scores.dtype)  # Positives above j.

    above = tf.cast(i > num_above, scores.dtype)
    hits = i[:, 0] / (i[:, 0] + tf.reduce_sum(above, axis=1))
    loss = 1 - tf.math.divide_no_nan(tf.reduce_sum(hits), num_positives)
    return tf.where(num_positives > 0, loss - tf.reduce_sum(above * margins), 0)


def bag(rows, fewest):
    """float32 `[rows, words]`, rows of length 1, of words in at least so many rows."""
    from sklearn import feature_extraction, preprocessing

    count = feature_extraction.text.CountVectorizer
    counts = count(
        analyzer=lambda words: words, min_df=fewest, binary=True, dtype=np.float32
    )
    return preprocessing.normalize(counts.fit_transform(rows)).toarray()


def movielens(path):
    """The words of each film, and the users who rated it, by the film's id."""
    words = {}
    users = collections.defaultdict(list)
    with zipfile.ZipFile(path) as archive:

        def rows(name):
            member = archive.open(f"ml-latest-small/{name}.csv")
            return csv.DictReader(io.TextIOWrapper(member, "utf-8"))

        for row in rows("movies"):
            title = re.sub(r"\(\d{4}\)\s*$", "", row["title"]).lower()
            words[row["movieId"]] = [
                *(f"title {word}" for word in re.findall(r"\w+", title)),
                *(f"genre {genre}" for genre in row["genres"].split("|")),
            ]
        for row in rows("tags"):
            tags = re.findall(r"\w+", row["tag"].lower())
            words[row["movieId"]] += [f"tag {tag}" for tag in tags]
        for row in rows("ratings"):
            users[row["movieId"]].append(int(row["userId"]))
    return words, users


def retrieval(data_dir):
    """Films with at least five ratings: title, genres and tags, and their raters."""
    words, users = movielens(data_dir / "ml-latest-small.zip")
    films = [film for film in words if len(users[film]) >= 5]
    of_words = bag([words[film] for film in films], 3)
    of_users = bag([users[film] for film in films], 1)
    sides = [of_words, of_users]

    def towers():
        inputs = [keras.Input(side.shape[1:]) for side in sides]
        encodings = []
        for side in inputs:
            hidden = keras.layers.Dense(64)(side)
            encodings.append(keras.layers.UnitNormalization()(hidden))
        products = keras.layers.Lambda(lambda pair: tf.matmul(*pair, transpose_b=True))
        return keras.Model(inputs, products(encodings))

    return Task(
        inputs=sides,
        labels=np.arange(len(films), dtype=np.int32),
        make_model=towers,
        baselines={"triplet": triplet},
        with_sorter=losses.RankTripletLoss,
        evaluate=both_ways,
        epochs=20,
        every=2,
    )


def triplet(labels, outputs):
    """The hinge loss of each film's hardest negative, from both sides."""
    own = tf.linalg.diag_part(outputs)
    others = tf.linalg.set_diag(outputs, tf.fill(tf.shape(own), -2.0))
    hardest = [tf.reduce_max(others, axis=axis) for axis in (0, 1)]
    return tf.add_n([tf.reduce_mean(tf.nn.relu(0.2 + x - own)) for x in hardest])


def both_ways(labels, outputs):
    """How well each side finds the other."""
    found = evaluation.evaluate_retrieval(outputs)
    sides = {"words → raters": found["rows"], "raters → words": found["columns"]}
    mean = np.mean([of_side["hit_rate_at_10"] for of_side in sides.values()])
    figures = {"mean R@10": float(mean)}
    for side, of_side in sides.items():
        for k in (1, 5, 10):
            figures[f"R@{k}, {side}"] = float(of_side[f"hit_rate_at_{k}"])
        figures[f"median rank, {side}"] = float(of_side["median_rank"])
    return figures


class Rows(NamedTuple):
    """The numbers of the examples for training, validation and testing."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


def split(count, seed):
    """A random split, 60/20/20."""
    order = np.random.default_rng([seed, 1]).permutation(count)
    return Rows(*np.split(order, [count * 6 // 10, count * 8 // 10]))


def loss_of(task, method):
    """The loss of a sorter or a baseline."""
    if method not in SORTERS:
        return task.baselines[method]
    sorter, _ = get_sorter(method)
    return task.with_sorter(sorter)


def run(task, method, rate, seed, epochs, test):
    """Trains a model; returns its history, and its figures at the best epoch."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    loss = loss_of(task, method)
    model = task.make_model()
    model.compile(keras.optimizers.Adam(rate), loss, jit_compile=False)
    rows = split(len(task.labels), seed)
    rng = np.random.default_rng([seed, 2])
    aligned_epochs = max(1, task.epochs // 10)

    def train(epoch):
        alignment = getattr(loss, "alignment", None)
        if isinstance(alignment, tf.Variable):
            alignment.assign(float(epoch <= aligned_epochs))
        drawn = rng.permutation(rows.train)[: len(rows.train) // BATCH * BATCH]
        inputs = task.inputs_of(drawn)
        model.fit(inputs, task.labels[drawn], BATCH, shuffle=False, verbose=0)

    def evaluate(part):
        """The figures of some examples; NaN outputs of a diverged model count as 0."""
        tensors = tf.nest.map_structure(tf.constant, task.inputs_of(part))
        outputs = model(tensors, training=False)
        return task.evaluate(task.labels[part], np.nan_to_num(outputs.numpy()))

    metric = next(iter(evaluate(rows.validation)))
    history, best = common.train_to_best(
        model,
        epochs,
        train=train,
        evaluate=lambda: evaluate(rows.validation),
        metric=metric,
        patience=epochs,
        every=task.every,
    )
    result = {"validation": best[metric], "history": history}
    if test:
        result["test"] = evaluate(rows.test)
    return result


class Compared(NamedTuple):
    """A method of a task: its best rate, and a run with it for each seed."""

    method: str
    rate: float
    runs: list[dict[str, Any]]

    def figures(self):
        """Name -> the figures of the seeds; the first is that which selects."""
        return {
            key: [of["test"][key] for of in self.runs] for key in self.runs[0]["test"]
        }

    def cells(self):
        """What it reaches."""
        found = [self.method, f"{self.rate:g}"]
        for key, of_seeds in self.figures().items():
            found.append(plus_minus(of_seeds, 1 if "median" in key else 3))
        return found

    def gain(self, first):
        """The difference to another method, and in how many seeds it is better."""
        ours, theirs = (next(iter(of.figures().values())) for of in (self, first))
        better = np.subtract(ours, theirs)
        return [plus_minus(better), f"{np.sum(better > 0)} of {len(better)}"]

    def curve(self, metric):
        """The mean of a validation figure over the seeds, by epoch."""
        histories = [[point[metric] for point in of["history"]] for of in self.runs]
        return [f"{value:.3f}" for value in np.mean(histories, axis=0)]


def tuned(part, task, epochs, method, args):
    """A method with the best rate, and with each seed."""

    def kept_run(rate, seed, test):
        settings = {
            "part": part,
            "method": method,
            "rate": rate,
            "seed": seed,
            "epochs": epochs,
        }
        if method in SORTERS:
            settings["weights"] = get_sorter(method)[1]
        make = functools.partial(run, task, method, rate, seed, epochs, test)
        return common.kept(args.out, settings | {"test": test}, make)

    tried = [kept_run(rate, args.tuning_seed, False) for rate in args.learning_rates]
    rate = max(tried, key=lambda result: result["validation"])["rate"]
    return Compared(method, rate, [kept_run(rate, seed, True) for seed in args.seeds])


def compared(part, args):
    """The tables of a task: figures beside those of the first method, and curves."""
    task = TASKS[part](args.data_dir)
    epochs = args.epochs or task.epochs
    methods = (*task.baselines, *args.sorters)
    first, *others = (tuned(part, task, epochs, of, args) for of in methods)

    figures = first.figures()
    metric = next(iter(figures))
    rows = [[*first.cells(), "", ""]]
    rows += [[*other.cells(), *other.gain(first)] for other in others]
    head = ["method", "learning rate", *figures]
    yield part, [*head, f"{metric} over the first", "seeds better"], rows

    evaluated = [f"{point['epoch']}" for point in first.runs[0]["history"]]
    curves = [of.curve(metric) for of in (first, *others)]
    of_epochs = list(zip(evaluated, *curves, strict=True))
    yield f"{part}, validation by epoch", ["epoch", *methods], of_epochs


TASKS = {"synthetic": synthetic, "diabetes": diabetes, "retrieval": retrieval}
PARTS = {"table1": table1, "figure5": figure5} | {
    name: functools.partial(compared, name) for name in TASKS
}


def parser():
    """The command line."""
    quick = {
        "parts": ["table1", "diabetes"],
        "sorters": ["laplace"],
        "seeds": [0, 1],
        "learning_rates": [0.01],
        "epochs": 5,
        "lists": 100,
    }
    result = common.parser(__spec__, __doc__, quick, seeds=5)
    result.add_names("--parts", PARTS, "tables")
    result.add_names("--sorters", SORTERS, "rows")
    add, count, path = result.add_value, command_line.count, pathlib.Path
    add("--data-dir", path, path("data"), "folder of MovieLens")
    rates = [0.001, 0.003, 0.01, 0.03]
    result.add_values("--learning-rates", command_line.number, rates, "tried by each")
    add("--epochs", count, None, "at most; without it, by task")
    add("--lists", count, TEST_LISTS, "lists of Table 1")
    return result


def main(argv=None):
    """Measures, tunes, trains, tests and reports."""
    args = parser().parse_args(argv)
    show_all((table for part in args.parts for table in PARTS[part](args)), args.csv)


if __name__ == "__main__":
    main()
