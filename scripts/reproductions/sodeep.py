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

import functools
import math
import pathlib
import zlib
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from scipy import stats
from tensorflow import keras

from rank4class_tf import layers
from scripts import command_line
from scripts.reproductions import common, sodeep_tasks
from scripts.tables import Table, plus_minus, show_all

SORTERS = {
    "sigmoid": functools.partial(layers.SigmoidSorter, 0.1),
    "laplace": functools.partial(layers.LaplaceSorter, 0.1),
    "soft_rank": functools.partial(layers.SoftRankSorter, 0.01),
    "convolutional": layers.ConvolutionalSorter.pretrained,
    "recurrent": layers.RecurrentSorter.pretrained,
    "set": layers.SetSorter.pretrained,
}
PAPER_L1 = {"sigmoid": "0.0350", "convolutional": "0.0120", "recurrent": "0.0033"}
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


class Draws(NamedTuple):
    """The random numbers of some lists, whatever their kinds.

    Attributes:
        uniform: U(-1, 1) of each item, `[count, length]`.
        normal: N(0, 1) of each item.
        keys: U(0, 1) of each item, whose order shuffles.
        size: s, the size of the first part, uniform in 1..length, `[count, 1]`.
        start: U(0, 1), where an evenly spaced list starts, `[count, 1]`.
        end: the same of the end, which it does not reach.
    """

    uniform: np.ndarray
    normal: np.ndarray
    keys: np.ndarray
    size: np.ndarray
    start: np.ndarray
    end: np.ndarray

    def only(self, rows):
        """Those of some lists."""
        return Draws(*(numbers[rows] for numbers in self))

    @property
    def places(self):
        """The place of each item, `[length]`."""
        return np.arange(self.keys.shape[1])

    @property
    def is_first(self):
        """Whether an item is one of the first s."""
        return self.places < self.size

    def spaced(self, places, steps):
        """Items at some places of as many even steps."""
        return self.start + (self.end - self.start) * places / steps


def uniform(draws):
    """U(-1, 1)."""
    return draws.uniform


def normal(draws):
    """N(0, 1)."""
    return draws.normal


def spaced(draws):
    """Evenly spaced from a to b, both U(0, 1), without the end."""
    return draws.spaced(draws.places, len(draws.places))


def shuffled(draws):
    """The same shuffled."""
    return draws.spaced(np.argsort(draws.keys, axis=1), len(draws.places))


def uniform_then_normal(draws):
    """S items U(-1, 1), and then N(0, 1)."""
    return np.where(draws.is_first, draws.uniform, draws.normal)


def shuffled_then_uniform(draws):
    """S shuffled evenly spaced items, and then U(-1, 1)."""
    # The keys of the first s items sort first.
    places = np.argsort(np.where(draws.is_first, draws.keys, 2), axis=1)
    return np.where(draws.is_first, draws.spaced(places, draws.size), draws.uniform)


def rising(draws):
    """A grid from -1 to 1."""
    return np.linspace(-1, 1, len(draws.places))


# The kinds of lists that SoDeep trains and tests on; some count several times.
KINDS = (
    uniform,
    uniform,
    uniform,
    normal,
    spaced,
    shuffled,
    uniform_then_normal,
    uniform_then_normal,
    shuffled_then_uniform,
    rising,
)


def draw_lists(rng, count, length):
    """Scores, float32 `[count, length]`; the kind of each list is drawn of `KINDS`."""
    kinds = rng.integers(len(KINDS), size=count)
    uniform = rng.uniform(-1, 1, (count, length))
    normal = rng.standard_normal((count, length))
    size = rng.integers(1, length + 1, size=count)[:, np.newaxis]
    start, end = rng.random((2, count, 1))
    keys = rng.random((count, length))
    draws = Draws(uniform, normal, keys, size, start, end)

    scores = np.empty((count, length), np.float32)
    for number, kind in enumerate(KINDS):
        rows = kinds == number
        scores[rows] = kind(draws.only(rows))
    return scores


def exact_ranks(scores):
    """Descending ranks, 1 for the best, float32; equal scores share the mean rank."""
    return stats.rankdata(-scores, axis=1).astype(np.float32)


def test_lists(count=TEST_LISTS, length=TEST_LENGTH):
    """The lists on which every figure is measured; they are always the same."""
    return draw_lists(np.random.default_rng([TEST_SEED, length]), count, length)


def mean_rank_error(sorter, scores):
    """Mean over all items of |soft rank - rank| / d; a constant sorter has 0.25."""
    run = tf.function(sorter, reduce_retracing=True)
    parts = np.array_split(scores, math.ceil(len(scores) / 500))
    ranks = np.concatenate([np.asarray(run(tf.constant(part))) for part in parts])
    return float(np.abs(ranks - exact_ranks(scores)).mean() / scores.shape[1])


def own_slopes(sorter, count=TEST_LISTS, length=TEST_LENGTH):
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


def slope_shares(slopes):
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
    head += ["vanishing slopes", "wrong slopes", "median slope"]
    yield Table("Table 1", head, rows)


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
    yield Table("Figure 5", head, rows)
    points = np.stack([lists[:, 0], *curves.values()], axis=1)
    cells = [[f"{number:.2f}" for number in point] for point in points[::20]]
    yield Table("Figure 5, curves", ["score", *curves], cells)


# Tasks.


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

    trained = common.train_to_best(
        model,
        epochs,
        train=train,
        evaluate=lambda: evaluate(rows.validation),
        metric=task.select_by,
        patience=epochs,
        every=task.every,
    )
    result = {"validation": trained.best, "history": trained.history}
    if test:
        result["test"] = evaluate(rows.test)
    return result


def study_of(part, task, epochs, method, args):
    """The runs of a method of a task; their settings are the learning rate."""
    weights = get_sorter(method)[1] if method in SORTERS else None

    def make(rate, seed, test):
        return run(task, method, rate, seed, epochs, test)

    return common.Study(
        args,
        make,
        select_by=task.select_by,
        options=(),
        part=part,
        method=method,
        epochs=epochs,
        weights=weights,
    )


def cells(runs):
    """What a method reaches with its best rate."""
    found = [f"{runs[0].settings:g}"]
    for name in runs[0].test:
        found += common.reached(runs, [name], 1 if "median" in name else 3)
    return found


def gain(metric, runs, of_first):
    """The difference to the first method, and in how many seeds it is better."""
    ours, theirs = ([run.test[metric] for run in of] for of in (runs, of_first))
    better = np.subtract(ours, theirs)
    return [plus_minus(better), f"{np.sum(better > 0)} of {len(better)}"]


def curve(metric, runs):
    """The mean of a validation figure over the seeds, by epoch."""
    histories = [[point[metric] for point in run.kept["history"]] for run in runs]
    return [f"{value:.3f}" for value in np.mean(histories, axis=0)]


def compared(part, args):
    """The tables of a task: figures beside those of the first method, and curves."""
    task = sodeep_tasks.TASKS[part](args.data_dir)
    epochs = args.epochs or task.epochs
    metric = task.select_by
    rows = []
    curves = {}
    first = None
    for method in (*task.baselines, *args.sorters):
        study = study_of(part, task, epochs, method, args)
        runs = study.tested(study.best(study.tried(args.learning_rates)).settings)
        gained = gain(metric, runs, first) if first else ["", ""]
        rows.append([method, *cells(runs), *gained])
        curves[method] = curve(metric, runs)
        first = first or runs
    head = ["method", "learning rate", *first[0].test]
    yield Table(part, [*head, f"{metric} over the first", "seeds better"], rows)

    evaluated = [f"{point['epoch']}" for point in first[0].kept["history"]]
    of_epochs = list(zip(evaluated, *curves.values(), strict=True))
    yield Table(f"{part}, validation by epoch", ["epoch", *curves], of_epochs)


PARTS = {"table1": table1, "figure5": figure5} | {
    name: functools.partial(compared, name) for name in sodeep_tasks.TASKS
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
    add = result.add_value
    count = command_line.count
    path = pathlib.Path
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
