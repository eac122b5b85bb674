"""Learning to rank: which loss wins with which data, beside TF-Ranking and LightGBM.

    python -m scripts.reproductions.learning_to_rank

It takes three hours of one core. The lists resemble MSLR-WEB: 5 to 120 items, grades
from 0 to 4 (52 % are 0, .7 % are 4), features that shift from list to list, and
uninformative features. They are generated, so the true utility of each item is known: a
function with interactions, steps and bends. The simulated graders see it with noise.
Training and validation use their grades; the test uses grades without noise. The
situations differ in lists, noise, and which grades are known.

A network scores each item separately. Each loss has the same six settings of rate and
weight decay; LightGBM's trees have six settings of rate and leaves. The setting is
chosen by NDCG@10 on the validation part with `--tuning-seed`. Each seed generates all
data anew, and its validation part chooses the epoch, or the number of trees. "*" marks
a difference from the first row by a paired t-test over the seeds, at 5 % divided by the
number of rows. MRR is the reciprocal rank of the item with the highest utility.

`--lists DIR` takes real lists instead, LightGBM's examples: `rank.train`, `rank.test`
and their `.query` files, in `examples/lambdarank` of its repository. A fifth of the
training queries, drawn anew for each seed, are for validation. The table then has the
mean NDCG@10 of the test queries over the seeds with its 95 % interval, and "*" marks a
paired t-test over these queries.

Losses of TF-Ranking run in a separate process, under Keras 2. TF-Ranking and LightGBM
are optional: without them, their rows are left out.
"""

import dataclasses
import importlib.util
import itertools
import os
import pathlib
import subprocess
import sys
from typing import NamedTuple

import numpy as np
from scipy import stats
from tensorflow import keras

from rank4class_tf import data, losses, metrics, ops, tfr
from rank4class_tf._keras import KERAS_3
from scripts import command_line
from scripts.reproductions import common
from scripts.tables import Table, plus_minus, show_all

MAX_ITEMS = 120
NUM_TRUE = 8
NUM_USELESS = 8
# Grades 1 to 4 start at these utilities: 51.5, 32.5, 13.4, 1.9 and .7 % of items get 0
# to 4.
CUTS = (0.02, 0.97, 1.98, 2.6)
EPOCH = 960  # lists, however many training lists there are


@dataclasses.dataclass(frozen=True)
class Situation:
    """What the training data are like."""

    num_lists: int  # for training; a fifth as many, at least 50, are for validation
    noise: float  # its standard deviation; that of the utility is 1
    one_positive: bool = False  # a list's best item, with noise, has the only label


SITUATIONS = {
    "graded lists": Situation(1000, 0.5),
    "few graded lists": Situation(100, 0.5),
    "noisy grades": Situation(1000, 1.5),
    "one positive a list": Situation(1000, 0.5, one_positive=True),
}
OURS = {
    "softmax": losses.SoftmaxLoss,
    "ApproxNDCG": losses.ApproxNDCGLoss,
    "ApproxNDCG, temperature 1": lambda: losses.ApproxNDCGLoss(temperature=1.0),
    "Gumbel ApproxNDCG": losses.GumbelApproxNDCGLoss,
    "pairwise logistic": losses.PairwiseLogisticLoss,
    "lambda weights": lambda: losses.PairwiseLogisticLoss(
        lambda_weights=ops.NDCGLambdaWeights()
    ),
    "ListMLE": losses.ListMLELoss,
    "squared error": losses.MeanSquaredLoss,
}
TF_RANKING = {
    "TF-Ranking softmax": "SoftmaxLoss",
    "TF-Ranking ApproxNDCG": "ApproxNDCGLoss",
    "TF-Ranking pairwise logistic": "PairwiseLogisticLoss",
}
TREES = "LightGBM lambdarank"
METHODS = (*OURS, *TF_RANKING, TREES)
SIGNIFICANT = 0.05
METRICS = {"ndcg_at_5": "NDCG@5", "ndcg_at_10": "NDCG@10", "mrr": "MRR"}
SELECT_BY = "ndcg_at_10"


@dataclasses.dataclass(frozen=True)
class Part:
    """Lists, padded to `MAX_ITEMS`; padding has the label -1."""

    features: np.ndarray  # `[lists, items, features]`
    labels: np.ndarray  # for training, from grades with noise
    grades: np.ndarray  # without noise
    best: np.ndarray  # 1 for the item with the highest utility


def utility_of(x):
    """The true utility of items; mean about 0, standard deviation about 1."""
    bend = np.maximum(x[..., 3] - 0.5, 0)
    step = x[..., 4] > 0.8
    product = x[..., 1] * x[..., 2]
    limited = np.tanh(2 * x[..., 5])
    away = np.abs(x[..., 6])
    total = x[..., 0] + product + 1.5 * bend + 0.8 * step + 0.7 * limited - 0.5 * away
    return (total - 0.07) / 1.7


def make_lists(situation, num_lists, rng):
    """Draws a part."""
    lengths = np.clip(rng.lognormal(3.4, 0.7, num_lists), 5, MAX_ITEMS).astype(int)
    places = np.arange(MAX_ITEMS)
    is_missing = places >= lengths[:, np.newaxis]
    shape = num_lists, MAX_ITEMS

    true = rng.normal(size=(*shape, NUM_TRUE))
    shifts = 0.5 * rng.normal(size=(num_lists, 1, NUM_TRUE))
    # Half of the shifts are visible in features of the list, such as the length of a
    # query.
    seen = np.broadcast_to(shifts[..., ::2], (*shape, NUM_TRUE // 2))
    blurred = true[..., ::2] + rng.normal(size=(*shape, NUM_TRUE // 2))
    useless = rng.normal(size=(*shape, NUM_USELESS))
    features = np.concatenate([true + shifts, blurred, seen, useless], axis=-1)

    # Some lists have more good items than others.
    utility = 0.9 * utility_of(true) + 0.44 * rng.normal(size=(num_lists, 1))
    noisy = utility + situation.noise * rng.normal(size=shape)
    noisy = noisy / np.hypot(1, situation.noise)

    def is_best(values):
        best = np.where(is_missing, -np.inf, values).argmax(axis=1)
        return places == best[:, np.newaxis]

    def padded(values):
        return np.where(is_missing, -1, values).astype(np.float32)

    labels = is_best(noisy) if situation.one_positive else np.digitize(noisy, CUTS)
    return Part(
        features=np.where(is_missing[..., np.newaxis], 0, features).astype(np.float32),
        labels=padded(labels),
        grades=padded(np.digitize(utility, CUTS)),
        best=padded(is_best(utility)),
    )


def read_lists(folder, seed):
    """LightGBM's example lists, for training, validation and testing."""

    def part(name):
        features, grades, _ = data.read_letor(folder / name, num_features=300)
        sizes = np.loadtxt(folder / f"{name}.query", int)
        x, labels = data.lists_from_groups(features, grades, group=sizes)
        is_best = labels == labels.max(axis=1, keepdims=True)
        best = np.where(labels < 0, -1, is_best.astype(labels.dtype))
        return Part(x, labels, labels, best)

    train = part("rank.train")
    order = np.random.default_rng(seed).permutation(len(train.labels))
    validation, rest = np.split(order, [len(order) // 5])

    def of_rows(rows):
        return Part(**{name: values[rows] for name, values in vars(train).items()})

    return [of_rows(rest), of_rows(validation), part("rank.test")]


def draw(situation, seed):
    """The parts for training, validation and testing of a seed."""
    rng = np.random.default_rng(seed)
    sizes = situation.num_lists, max(50, situation.num_lists // 5), 500
    return [make_lists(situation, size, rng) for size in sizes]


def measure(scores, labels, name):
    """A metric of scores."""
    metric = metrics.get(name)
    metric.update_state(labels, scores)
    return float(metric.result())


class Scored(NamedTuple):
    """What a model says of the validation and of the test part, and its best epoch."""

    validation: np.ndarray
    test: np.ndarray
    best: int


def network(num_features):
    """A network that scores each item separately."""
    dense = keras.layers.Dense
    inputs = keras.Input((None, num_features))
    scores = dense(1)(dense(32, "relu")(dense(64, "relu")(inputs)))
    return keras.Model(inputs, keras.layers.Reshape((-1,))(scores))


def scores_of_network(method, parts, rate, decay, seed, epochs):
    """What a network says at its best epoch."""
    train, validation, test = parts
    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    model = network(train.features.shape[2])
    if method in TF_RANKING:
        loss = getattr(tfr.load().keras.losses, TF_RANKING[method])()
    else:
        loss = OURS[method]()
    model.compile(keras.optimizers.Adam(rate, weight_decay=decay or None), loss)
    rng = np.random.default_rng([7, seed])

    def apply(part):
        return model.predict(part.features, batch_size=512, verbose=0)

    def train_epoch(epoch):
        number = len(train.labels)
        drawn = [rng.permutation(number) for _ in range(-(-EPOCH // number))]
        rows = np.concatenate(drawn)[:EPOCH]
        x = train.features[rows]
        model.fit(x, train.labels[rows], 16, shuffle=False, verbose=0)

    def evaluate():
        return {"ndcg": measure(apply(validation), validation.labels, "ndcg_at_10")}

    trained = common.train_to_best(
        model, epochs, train_epoch, evaluate, metric="ndcg", patience=5
    )
    return Scored(apply(validation), apply(test), trained.best["epoch"])


def scores_of_trees(parts, rate, leaves, seed):
    """What LightGBM's trees say, with the best number of them."""
    import lightgbm

    def dataset(part):
        there = part.labels >= 0
        groups = there.sum(axis=1)
        return lightgbm.Dataset(part.features[there], part.labels[there], group=groups)

    train, validation, test = parts
    settings = {
        "objective": "lambdarank",
        "metric": "ndcg",
        "eval_at": [10],
        "seed": seed,
        "learning_rate": rate,
        "num_leaves": leaves,
        "num_threads": 1,
        "verbose": -1,
    }
    model = lightgbm.train(
        settings,
        dataset(train),
        500,
        [dataset(validation)],
        callbacks=[lightgbm.early_stopping(50, verbose=False)],
    )

    def apply(part):
        there = part.labels >= 0
        scores = np.zeros(there.shape, np.float32)
        scores[there] = model.predict(part.features[there])
        return scores

    return Scored(apply(validation), apply(test), model.best_iteration)


def parts_of(situation, seed, args):
    """The parts for training, validation and testing: real lists, or drawn ones."""
    if args.lists:
        return read_lists(args.lists, seed)
    return draw(SITUATIONS[situation], seed)


def tested(test, scores):
    """The figures of scores of the test part; `by_list` is NDCG@10 of each list."""
    by_list, _ = metrics.NDCG(10).per_list(test.grades, scores)
    return {
        "by_list": by_list[:, 0].numpy().tolist(),
        "ndcg_at_5": measure(scores, test.grades, "ndcg_at_5"),
        "ndcg_at_10": measure(scores, test.grades, "ndcg_at_10"),
        "mrr": measure(scores, test.best, "mrr"),
    }


def study_of(situation, method, args):
    """The runs of a method; a setting is a rate, and weight decay or leaves."""

    def make(setting, seed, test):
        parts = parts_of(situation, seed, args)
        _, validation, of_test = parts
        if method == TREES:
            found = scores_of_trees(parts, *setting, seed)
        else:
            found = scores_of_network(method, parts, *setting, seed, args.epochs)
        value = measure(found.validation, validation.labels, SELECT_BY)
        result = {"validation": {SELECT_BY: value, "epoch": found.best}}
        if test:
            result["test"] = tested(of_test, found.test)
        return result

    if args.lists:
        about = {"lists": str(args.lists.resolve())}
    else:
        about = dataclasses.asdict(SITUATIONS[situation])
    about |= {"situation": situation, "method": method}
    return common.Study(args, make, SELECT_BY, ["epochs"], **about)


def table_of(situation, args):
    """The table of a situation: each method's chosen setting, and each seed's runs."""
    names = {"by_list": "NDCG@10"} if args.lists else METRICS
    cell_of = cell_of_lists if args.lists else cell_of_seeds
    level = SIGNIFICANT / len(args.methods)
    rows = []
    first = None
    for method in args.methods:
        choices = (args.rates, args.decays)
        if method == TREES:
            choices = (args.rates_of_trees, args.leaves)
        study = study_of(situation, method, args)
        setting = study.best(study.tried(itertools.product(*choices))).settings
        runs = study.tested(setting)
        first = first or runs
        row = [method]
        for name in names:
            values = [run.test[name] for run in runs]
            of_first = [run.test[name] for run in first]
            row.append(cell_of(values, of_first, level))
        rows.append([*row, " / ".join(f"{x:g}" for x in setting)])
    return Table(situation, ["", *names.values(), "setting"], rows)


def cell_of_seeds(values, of_first, level):
    """The mean over the seeds, and whether it differs from the first row's."""
    return plus_minus(values) + star(values, of_first, level)


def cell_of_lists(values, of_first, level):
    """The same of values `[seeds, lists]`, over the lists."""
    values = np.mean(values, axis=0)
    half = stats.sem(values) * stats.t.ppf(0.975, len(values) - 1)
    mark = star(values, np.mean(of_first, axis=0), level)
    return f"{np.mean(values):.3f} ± {half:.3f}{mark}"


def star(values, of_first, level):
    """A mark if a paired t-test says that values differ."""
    differences = np.subtract(values, of_first)
    if len(values) < 2 or not differences.any():
        return ""
    return "*" if stats.ttest_1samp(differences, 0).pvalue < level else ""


def parser():
    """The command line."""
    quick = {
        "situations": ["few graded lists"],
        "methods": ["softmax", "ApproxNDCG"],
        "seeds": [0, 1],
        "epochs": 2,
        "rates": [3e-3],
        "decays": [0.0],
    }
    result = common.parser(__spec__, __doc__, quick, seeds=5)
    result.set_defaults(tuning_seed=1000)
    result.add_names("--situations", SITUATIONS, "tables")
    result.add_names("--methods", METHODS, "rows")
    result.add_argument(
        "--lists",
        type=pathlib.Path,
        metavar="DIR",
        help="LightGBM's example lists, not generated",
    )
    add_values = result.add_values
    number = command_line.number
    text = "maximum number of epochs of 960 lists"
    result.add_value("--epochs", command_line.count, 20, text)
    add_values("--rates", number, [3e-3, 1e-2], "of Adam")
    add_values("--decays", command_line.at_least_0, [0.0, 1.0, 3.0], "of weights")
    add_values("--rates-of-trees", number, [0.03, 0.1], "of LightGBM")
    add_values("--leaves", command_line.count, [7, 15, 31], "per tree of LightGBM")
    return result


def installed(methods):
    """The methods whose package is there; says which are left out."""
    optional = {"tensorflow_ranking": [*TF_RANKING], "lightgbm": [TREES]}
    for package, of_package in optional.items():
        if importlib.util.find_spec(package) is None:
            print(f"Without {package} there are no rows of {', '.join(of_package)}.")
            methods = [name for name in methods if name not in of_package]
    return methods


def main(argv=None):
    """Makes what is missing and shows the tables."""
    args = parser().parse_args(argv)
    args.methods = installed(args.methods)
    theirs = [name for name in args.methods if name in TF_RANKING]
    if theirs and KERAS_3:  # Its runs are kept for this process.
        given = [*(sys.argv[1:] if argv is None else argv), "--methods", *theirs]
        command = [sys.executable, "-m", __spec__.name, *given]
        environment = os.environ | {"TF_USE_LEGACY_KERAS": "1"}
        subprocess.run(command, env=environment, check=True)
    situations = ["LightGBM's example lists"] if args.lists else args.situations
    show_all((table_of(situation, args) for situation in situations), args.csv)


if __name__ == "__main__":
    main()
