"""Learning to rank: which loss wins with which data, compared with TF-Ranking and LightGBM.

    python -m scripts.reproductions.learning_to_rank --out out/ltr

The lists resemble MSLR-WEB: 5 to 120 items, grades from 0 to 4 (52 % are 0, .7 % are 4), features
that shift from list to list, and uninformative features. They are generated, so the true utility of
each item is known: a function with interactions, steps and bends. The simulated graders see it with
noise. Training and validation use their grades; the test uses grades without noise. The situations
differ in the number of lists, in the noise, and in which part of the grades is known.

A network scores each item separately. Each loss has the same six settings of rate and weight decay;
LightGBM's trees have six settings of rate and leaves. The setting is chosen by NDCG@10 on the
validation part, with a seed that is used for nothing else. Each test seed generates all data anew,
and its validation part chooses the epoch, or the number of trees. The table has the mean and
standard deviation over the seeds. "*" marks a difference from the first row by a paired t-test over
the seeds, at 5 % divided by the number of rows. MRR is the reciprocal rank of the item with the
highest utility.

Losses of TF-Ranking run in a separate process, under Keras 2. LightGBM is optional: without it, its
row is left out. Runs are kept in `--out`; a second call resumes there.
"""

import dataclasses
import importlib.util
import itertools
import math
import os
import pathlib
import subprocess
import sys

import numpy as np
from scipy import stats
from tensorflow import keras

from rank4class_tf import _files, losses, metrics, ops, tfr
from rank4class_tf._keras import KERAS_3
from scripts import command_line
from scripts.reproductions import harness
from scripts.tables import plus_minus, table

MAX_ITEMS, NUM_TRUE, NUM_USELESS = 120, 8, 8
# Grades 1 to 4 start at these utilities: 51.5, 32.5, 13.4, 1.9 and .7 % of items get 0 to 4.
CUTS = (0.02, 0.97, 1.98, 2.6)
TUNING_SEED = 1000
# Lists per epoch, however many training lists there are.
EPOCH = 960


@dataclasses.dataclass(frozen=True)
class Situation:
    """What the training data are like.

    Attributes:
        num_lists: lists for training; a fifth as many, at least 50, are for validation.
        noise: standard deviation of the noise; the utility has a standard deviation of 1.
        one_positive: whether only one item of each list is labelled: the best one, with noise.
    """

    num_lists: int
    noise: float
    one_positive: bool = False


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
    "lambda weights": lambda: losses.PairwiseLogisticLoss(lambda_weights=ops.NDCGLambdaWeights()),
    "ListMLE": losses.ListMLELoss,
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


@dataclasses.dataclass(frozen=True)
class Part:
    """Lists, padded to `MAX_ITEMS`; padding has the label -1.

    Attributes:
        features: `[lists, items, features]`.
        labels: the labels for training, from grades with noise.
        grades: the grades without noise.
        best: 1 for the item with the highest utility.
    """

    features: np.ndarray
    labels: np.ndarray
    grades: np.ndarray
    best: np.ndarray


def utility_of(x):
    """The true utility of items; its mean is about 0, its standard deviation about 1."""
    bend, step = np.maximum(x[..., 3] - 0.5, 0), x[..., 4] > 0.8
    total = x[..., 0] + x[..., 1] * x[..., 2] + 1.5 * bend + 0.8 * step
    return (total + 0.7 * np.tanh(2 * x[..., 5]) - 0.5 * np.abs(x[..., 6]) - 0.07) / 1.7


def make_lists(situation, num_lists, rng):
    """Draws a part."""
    lengths = np.clip(rng.lognormal(3.4, 0.7, num_lists), 5, MAX_ITEMS).astype(int)
    shape = num_lists, MAX_ITEMS
    true = rng.normal(size=(*shape, NUM_TRUE))
    shifts = 0.5 * rng.normal(size=(num_lists, 1, NUM_TRUE))
    # Half of the shifts are visible in features of the list, such as the length of a query.
    seen = np.broadcast_to(shifts[..., ::2], (*shape, NUM_TRUE // 2))
    blurred = true[..., ::2] + rng.normal(size=(*shape, NUM_TRUE // 2))
    useless = rng.normal(size=(*shape, NUM_USELESS))
    features = np.concatenate([true + shifts, blurred, seen, useless], axis=-1)
    # Some lists have more good items than others.
    utility = 0.9 * utility_of(true) + 0.44 * rng.normal(size=(num_lists, 1))
    noisy = (utility + situation.noise * rng.normal(size=shape)) / np.hypot(1, situation.noise)
    missing = np.arange(MAX_ITEMS) >= lengths[:, np.newaxis]

    def best(values):
        return np.arange(MAX_ITEMS) == np.where(missing, -np.inf, values).argmax(axis=1)[:, None]

    labels = best(noisy) if situation.one_positive else np.digitize(noisy, CUTS)
    parts = (labels, np.digitize(utility, CUTS), best(utility))
    return Part(
        np.where(missing[..., np.newaxis], 0, features).astype(np.float32),
        *(np.where(missing, -1, values).astype(np.float32) for values in parts),
    )


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


def make_loss(method):
    """A loss, of this package or of TF-Ranking."""
    if method in TF_RANKING:
        return getattr(tfr.load().keras.losses, TF_RANKING[method])()
    return OURS[method]()


def scores_of_network(method, parts, rate, decay, seed, args):
    """The validation and test scores of a network's best epoch, and the number of this epoch."""
    train, validation, test = parts
    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    dense = keras.layers.Dense
    inputs = keras.Input(train.features.shape[1:])
    scores = dense(1)(dense(32, "relu")(dense(64, "relu")(inputs)))
    model = keras.Model(inputs, keras.layers.Reshape((MAX_ITEMS,))(scores))
    model.compile(keras.optimizers.Adam(rate, weight_decay=decay or None), make_loss(method))

    def apply(features):
        return model.predict(features, batch_size=512, verbose=0)

    rng = np.random.default_rng([7, seed])

    def epoch_of_steps(_):
        number = len(train.labels)
        drawn = [rng.permutation(number) for _ in range(-(-EPOCH // number))]
        rows = np.concatenate(drawn)[:EPOCH]
        features, labels = train.features[rows], train.labels[rows]
        model.fit(features, labels, batch_size=16, shuffle=False, verbose=0)

    _, best = harness.train_to_best(
        model,
        args.epochs,
        evaluate_every=1,
        train=epoch_of_steps,
        evaluate=lambda: {
            "ndcg": measure(apply(validation.features), validation.labels, "ndcg_at_10")
        },
        metric="ndcg",
        patience=5,
    )
    return apply(validation.features), apply(test.features), best["epoch"]


def scores_of_trees(parts, rate, leaves, seed):
    """The validation and test scores with the best number of trees, and that number."""
    import lightgbm

    def flat(part):
        there = part.labels >= 0
        return part.features[there], part.labels[there], there.sum(axis=1)

    train, validation, test = parts
    settings = {
        "objective": "lambdarank",
        "metric": "ndcg",
        "eval_at": [10],
        "learning_rate": rate,
        "num_leaves": leaves,
        "seed": seed,
        "num_threads": 1,
        "verbose": -1,
    }
    learned, watched = (
        lightgbm.Dataset(x, y, group=group) for x, y, group in (flat(train), flat(validation))
    )
    stop = lightgbm.early_stopping(50, verbose=False)
    model = lightgbm.train(settings, learned, 500, [watched], callbacks=[stop])
    scores = []
    for part in (validation, test):
        padded = np.zeros(part.labels.shape, np.float32)
        padded[part.labels >= 0] = model.predict(flat(part)[0])
        scores.append(padded)
    return *scores, model.best_iteration


def run(situation, method, setting, seed, args):
    """Runs a method: NDCG@10 on the validation labels, and the metrics on the test part."""

    def make():
        parts = draw(SITUATIONS[situation], seed)
        if method == TREES:
            of_validation, of_test, best = scores_of_trees(parts, *setting, seed)
        else:
            of_validation, of_test, best = scores_of_network(method, parts, *setting, seed, args)
        return {
            "best": best,
            "validation": measure(of_validation, parts[1].labels, "ndcg_at_10"),
            "ndcg_at_5": measure(of_test, parts[2].grades, "ndcg_at_5"),
            "ndcg_at_10": measure(of_test, parts[2].grades, "ndcg_at_10"),
            "mrr": measure(of_test, parts[2].best, "mrr"),
        }

    settings = {"situation": situation, "method": method, "setting": setting, "seed": seed}
    name = "-".join(map(str, (situation, method, *setting, seed))).replace(" ", "_")
    of_situation = dataclasses.asdict(SITUATIONS[situation])
    return harness.cached(
        args.out / f"{name}.json", settings | of_situation | {"epochs": args.epochs}, make
    )


def runs_of(situation, method, args):
    """The chosen setting of a method, and the run of each seed with it."""
    pairs = (args.rates_of_trees, args.leaves) if method == TREES else (args.rates, args.decays)

    def reached(setting):
        return run(situation, method, setting, TUNING_SEED, args)["validation"]

    setting = max(itertools.product(*pairs), key=reached)
    return setting, [run(situation, method, setting, seed, args) for seed in args.seeds]


def report(found):
    """The Markdown of a situation: the setting and the runs of each method."""
    first = next(iter(found.values()))[1]
    rows = []
    for method, (setting, runs) in found.items():
        cells = []
        for name in METRICS:
            values = [run[name] for run in runs]
            differences = np.subtract(values, [run[name] for run in first])
            differs = len(runs) > 1 and differences.any()
            p = stats.ttest_1samp(differences, 0).pvalue if differs else 1.0
            cells.append(plus_minus(values) + ("*" if p < SIGNIFICANT / len(found) else ""))
        rows.append([method, *cells, " / ".join(f"{x:g}" for x in setting)])
    return table(["", *METRICS.values(), "setting"], rows)


def main(argv=None):
    """Makes what is missing and writes the tables."""
    parser = command_line.parser(__spec__, description=__doc__)
    positive = command_line.positive
    parser.add_argument("--situations", nargs="+", choices=SITUATIONS, default=[*SITUATIONS])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=[*METHODS])
    parser.add_argument("--seeds", nargs="+", type=command_line.seed, default=[0, 1, 2, 3, 4])
    parser.add_argument(
        "--epochs", type=positive(int), default=20, help="maximum number of epochs of 960 lists"
    )
    parser.add_argument("--rates", nargs="+", type=positive(float), default=[3e-3, 1e-2])
    parser.add_argument(
        "--decays", nargs="+", type=command_line.number_below(math.inf), default=[0.0, 1.0, 3.0]
    )
    parser.add_argument(
        "--rates-of-trees",
        nargs="+",
        type=positive(float),
        default=[0.03, 0.1],
        help="learning rates of LightGBM",
    )
    parser.add_argument(
        "--leaves",
        nargs="+",
        type=positive(int),
        default=[7, 15, 31],
        help="leaves per tree of LightGBM",
    )
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/learning_to_rank"))
    args = parser.parse_args(argv)
    optional = {"tensorflow_ranking": [*TF_RANKING], "lightgbm": [TREES]}
    for package, of_package in optional.items():
        if importlib.util.find_spec(package) is None:
            print(f"Without {package} there are no rows of {', '.join(of_package)}.")
            args.methods = [name for name in args.methods if name not in of_package]
    theirs = [name for name in args.methods if name in TF_RANKING]
    if theirs and KERAS_3:
        arguments = [*(sys.argv[1:] if argv is None else argv), "--methods", *theirs]
        environment = os.environ | {"TF_USE_LEGACY_KERAS": "1"}
        subprocess.run(
            [sys.executable, "-m", __spec__.name, *arguments], env=environment, check=True
        )
    lines = []
    for situation in args.situations:
        found = {name: runs_of(situation, name, args) for name in args.methods}
        lines += [f"## {situation}", "", *report(found), ""]
    args.out.mkdir(parents=True, exist_ok=True)
    _files.write_text(args.out / "learning_to_rank.md", "\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
