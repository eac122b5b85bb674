"""Bibtex and Delicious: losses over all labels beside one-vs-rest regressions.

    python -m scripts.reproductions.extreme --arff FOLDER --files FOLDER

`--files` names a folder with train.txt and test.txt in the format of the Extreme
Classification Repository. `--arff` names one with train.arff and test.arff, from which
they are written first, points of length 1; its labels are the attributes `TAG_...`.

Each method has the same number of settings, which are compared by P@3 on a fifth of
the training points with `--tuning-seed`. A network is then trained on all training
points for the epochs that were best there, once with each seed. One-vs-rest has no
seed. The test points are used once. The network is one hidden layer with dropout, the
same for each loss; "Top-4 of 64" draws 64 negatives of a point and mines four.
"""

import dataclasses
import functools
import itertools
import pathlib
import warnings
from typing import NamedTuple

import numpy as np
import scipy.sparse
import tensorflow as tf
from sklearn import linear_model, multiclass
from tensorflow import keras

from rank4class_tf import data, layers, losses, metrics, ops
from scripts import command_line
from scripts.reproductions import common
from scripts.tables import Table, plus_minus, show_all

ONE_VS_REST = "one-vs-rest, logistic regression"
REGULARIZATIONS = np.logspace(-1, 2.3, 12).round(2).tolist()
# Of each loss, its own parameter.
OWN = {
    "network, softmax": [0.5, 1.0, 2.0],
    "network, Rankmax": [0.3, 1.0, 3.0],
    "network, Top-4 of 64": [0.3, 1.0, 3.0],
}
RATES, DROPOUT = (1e-3, 3e-3, 1e-2, 3e-2), 0.5
MOST_SETTINGS = 12
CUTOFFS = (1, 3, 5)
DEPTH = max(CUTOFFS)
SELECT_BY = "precision_at_3"
TITLES = [f"{name}@{k}" for name in ("P", "PSP") for k in CUTOFFS]


def make_loss(method, own):
    """The loss of a method, with its own parameter."""
    if method == "network, softmax":
        return losses.SoftmaxLoss(temperature=own, positive_reduction="mean")
    if method == "network, Rankmax":
        return losses.RankmaxLoss(margin=own, positive_reduction="mean")
    return losses.StochasticNegativeMiningLoss(
        64,
        phi=ops.Scaled("hinge", 1 / own),
        rank_weights=ops.TopKWeights(4),
        rescale=False,
    )


def settings_of(method):
    """The twelve settings of a method."""
    if method == ONE_VS_REST:
        return [{"own": c} for c in REGULARIZATIONS]
    return [
        {"own": own, "rate": rate}
        for own, rate in itertools.product(OWN[method], RATES)
    ]


# Data.


def read_arff(path):
    """The names of the attributes of a sparse ARFF file, and those each point has."""
    names = []
    points = []
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("@attribute"):
                names.append(line.split()[1])
            elif line.startswith("{"):
                pairs = line.strip("{}\n ").split(",")
                points.append([int(pair.split()[0]) for pair in pairs if pair])
    return names, points


def write_arff(source, target):
    """Writes a sparse ARFF file of 0 and 1 as points of length 1.

    Args:
        source: a file whose last attributes, the labels, are named `TAG_...`.
        target: the file to write.
    """
    names, points = read_arff(source)
    is_label = [name.startswith("TAG_") for name in names]
    first = is_label.index(True)
    if not all(is_label[first:]):
        raise ValueError(f"{source}: the labels must be the last attributes.")
    rows = []
    for point in points:
        features = [i for i in point if i < first]
        labels = [i - first for i in point if i >= first]
        value = 1 / max(len(features), 1) ** 0.5
        rows.append((labels, features, [value] * len(features)))
    data.write_extreme_classification(target, rows, first, len(names) - first)


@dataclasses.dataclass(eq=False)
class Points:
    """Some points of a file, as batches and as a whole."""

    batches: tf.data.Dataset
    features: scipy.sparse.csr_matrix
    class_ids: np.ndarray  # `[n, P]` padded with -1.
    num_classes: int

    def multi_hot(self):
        """The labels as 0 and 1, `[n, classes]`."""
        labels = np.zeros([len(self.class_ids), self.num_classes], np.int32)
        for row, ids in zip(labels, self.class_ids, strict=True):
            row[ids[ids >= 0]] = 1
        return labels


def read(path, batch_size, rows=None):
    """The points of a file, or those with these numbers."""
    count, _, num_classes = data.read_extreme_header(path)
    found = data.extreme_classification(path, count, rows=rows)
    sparse, class_ids = next(iter(found))
    features = scipy.sparse.csr_matrix(
        (sparse.values, sparse.indices.numpy().T), sparse.shape
    )
    batches = data.extreme_classification(path, batch_size, rows=rows).cache()
    number = -(-len(class_ids) // batch_size)
    batches = batches.apply(tf.data.experimental.assert_cardinality(number))
    return Points(batches, features, class_ids.numpy(), num_classes)


# Methods.


def hits(points, top):
    """Whether each of the highest labels `[n, 5]` of a point is right."""
    return np.take_along_axis(points.multi_hot(), top, axis=1)


def figures(points, top, shares):
    """P@k and PSP@k of the highest labels."""
    scores = np.zeros([len(top), points.num_classes], np.float32)
    np.put_along_axis(scores, top, np.arange(DEPTH, 0, -1, dtype=np.float32), axis=1)
    found = {}
    of_rare = [metrics.PropensityScoredPrecisionAtK(k, shares) for k in CUTOFFS]
    for metric in (metrics.PrecisionAtK(CUTOFFS), *of_rare):
        metric.label_format = "ids"
        metric.update_state(points.class_ids, scores)
        result = metric.result()
        found |= result if isinstance(result, dict) else {metric.name: result}
    return [float(value) for value in found.values()]


def highest(scores):
    """The labels of the five highest scores."""
    return np.argsort(-np.asarray(scores), axis=1, kind="stable")[:, :DEPTH]


def one_vs_rest(train, other, own):
    """The highest labels of one regression for each label."""
    # The tolerance is that of liblinear itself.
    model = linear_model.LogisticRegression(C=own, solver="liblinear", tol=0.01)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* is present in all training")
        model = multiclass.OneVsRestClassifier(model).fit(
            train.features, train.multi_hot()
        )
    return highest(model.predict_proba(other.features))


class Network:
    """A network with the loss of a method; it starts alike for each rate."""

    def __init__(self, method, own, seed, train, width):
        keras.utils.set_random_seed(seed)
        self.seed = seed
        self.batches = train.batches
        self.model = keras.Sequential(
            [
                keras.layers.Input((train.features.shape[1],), sparse=True),
                layers.SparseDense(width),
                keras.layers.Activation("relu"),
                keras.layers.Dropout(DROPOUT),
                keras.layers.Dense(train.num_classes),
            ]
        )
        self.model.compile(
            "adam", make_loss(method, own), steps_per_execution=len(train.batches)
        )
        self.model.optimizer.build(self.model.trainable_variables)
        self.state = [*self.model.variables, *self.model.optimizer.variables]
        self.start = [variable.numpy() for variable in self.state]

    def restart(self, rate):
        """Takes the first weights and a rate."""
        for variable, value in zip(self.state, self.start, strict=True):
            variable.assign(value)
        self.model.optimizer.learning_rate = rate

    def train(self, epoch):
        """Trains for an epoch."""
        batches = self.batches.shuffle(len(self.batches), seed=self.seed + epoch)
        self.model.fit(batches, shuffle=False, verbose=0)

    def highest(self, points):
        """The highest labels of points."""
        found = [highest(self.model(features)) for features, _ in points.batches]
        return np.concatenate(found)


# Tuning.


class Parts(NamedTuple):
    """All points to train with, the two parts of them for tuning, and the test."""

    train: Points
    rest: Points
    validation: Points
    test: Points


def read_parts(folder, batch_size, seed):
    """The parts of a folder; a fifth of the training points is for validation."""
    path = folder / "train.txt"
    train = read(path, batch_size)
    order = np.random.default_rng(seed).permutation(len(train.class_ids))
    held_out, others = np.split(order + 1, [len(order) // 5])
    return Parts(
        train=train,
        rest=read(path, batch_size, others),
        validation=read(path, batch_size, held_out),
        test=read(folder / "test.txt", batch_size),
    )


def precision(points, top):
    """P@3, by which settings and epochs are chosen."""
    return {SELECT_BY: float(hits(points, top)[:, :3].mean())}


class Regressions:
    """One-vs-rest; it has no seed and no epochs."""

    def __init__(self, parts, args):
        self.parts = parts
        self.seeds = args.seeds[:1]

    def searched(self, own):
        """The figures by which a setting is chosen."""
        rest = self.parts.rest
        validation = self.parts.validation
        return precision(validation, one_vs_rest(rest, validation, own))

    def tested(self, seed, own, epoch):
        """The highest labels of the test points."""
        del seed, epoch
        return one_vs_rest(self.parts.train, self.parts.test, own)


class Networks:
    """Networks with the loss of a method."""

    def __init__(self, method, parts, args):
        self.parts = parts
        self.seeds = args.seeds
        self.args = args
        make = functools.partial(Network, method, width=args.width)
        # The rates of a parameter follow each other.
        self.network = functools.lru_cache(maxsize=1)(make)

    def searched(self, own, rate):
        """The best epoch of a setting, and its figures."""
        args = self.args
        validation = self.parts.validation
        network = self.network(own, args.tuning_seed, self.parts.rest)
        network.restart(rate)
        trained = common.train_to_best(
            network.model,
            args.epochs,
            train=network.train,
            evaluate=lambda: precision(validation, network.highest(validation)),
            metric=SELECT_BY,
            patience=args.patience,
            every=args.evaluate_every,
        )
        return trained.best

    def tested(self, seed, own, rate, epoch):
        """The highest labels of the test points, after so many epochs."""
        network = self.network(own, seed, self.parts.train)
        network.restart(rate)
        for number in range(1, epoch + 1):
            network.train(number)
        return network.highest(self.parts.test)


def study_of(method, models, args):
    """The runs of a method: a test run keeps the highest labels of the test points."""

    def make(settings, seed, test):
        if test:
            return {"test": {"top": models.tested(seed, **settings).tolist()}}
        return {"validation": models.searched(**settings)}

    return common.Study(
        args,
        make,
        select_by=SELECT_BY,
        options=("width", "batch_size", "epochs", "evaluate_every", "patience"),
        files=str(args.files.resolve()),
        method=method,
    )


def runs_of(method, parts, args):
    """A run of the chosen setting for each seed; `epoch` is how long it trains."""
    if method == ONE_VS_REST:
        models = Regressions(parts, args)
    else:
        models = Networks(method, parts, args)
    study = study_of(method, models, args)
    best = study.best(
        study.tried(settings_of(method)[:: MOST_SETTINGS // args.settings])
    )
    chosen = {**best.settings, "epoch": best.validation.get("epoch", 0)}
    return [study.run(chosen, seed, test=True) for seed in models.seeds]


# Tables.


def precisions(test, tops):
    """P@k of each point, `[n, 3]`, means over the seeds."""
    right = np.mean([hits(test, top) for top in tops], axis=0)
    return np.stack([right[:, :k].mean(axis=1) for k in CUTOFFS], axis=1)


def gains_of(of_points, baseline):
    """What precisions of points gain, with 95 % intervals."""
    gain = 100 * (of_points - baseline)
    error = 1.96 * gain.std(axis=0, ddof=1) / np.sqrt(len(gain))
    pairs = zip(gain.mean(axis=0), error, strict=True)
    return [f"{mean:+.1f} ± {half:.1f}" for mean, half in pairs]


def tables_of(args):
    """The figures, and the gains over the first method with 95 % intervals."""
    parts = read_parts(args.files, args.batch_size, args.tuning_seed)
    shares = metrics.propensities(parts.train.class_ids, parts.train.num_classes)
    rows = []
    gains = []
    baseline = None
    for method in args.methods:
        runs = runs_of(method, parts, args)
        tops = [np.array(run.test["top"]) for run in runs]
        values = np.array([figures(parts.test, top, shares) for top in tops])
        chosen = runs[0].settings.items()
        setting = ", ".join(f"{name} {value:g}" for name, value in chosen)
        cells = [plus_minus(of_metric, 1) for of_metric in 100 * values.T]
        rows.append([method, setting, *cells])

        of_points = precisions(parts.test, tops)
        if baseline is None:
            baseline = of_points
        else:
            gains.append([method, *gains_of(of_points, baseline)])

    tries = f"{args.settings} settings of each method, {len(args.seeds)} seeds"
    title = f"P@k and PSP@k in % on {args.files.name}, {tries}"
    yield Table(title, ["method", "chosen", *TITLES], rows)
    title = f"Gain over {args.methods[0]}, 95 % over test points"
    yield Table(title, ["method", *TITLES[:3]], gains)


def parser():
    """The command line."""
    quick = {"settings": 1, "seeds": [0], "epochs": 1, "width": 16}
    result = common.parser(__spec__, __doc__, quick, seeds=5)
    add = result.add_argument
    path = pathlib.Path
    count = command_line.count
    add("--files", type=path, required=True, help="train.txt and test.txt")
    add("--arff", type=path, help="train.arff and test.arff, to write them")
    result.add_names("--methods", [ONE_VS_REST, *OWN], "the first is the baseline")
    add(
        "--settings",
        type=count,
        choices=(1, 2, 3, 4, 6, MOST_SETTINGS),
        default=MOST_SETTINGS,
        help="settings of each method",
    )
    result.add_value("--width", count, 128, "hidden units")
    result.add_value("--batch-size", count, 128, "points a step")
    common.add_epochs(result, epochs=16, every=2, patience=4, figure="P@3")
    return result


def main(argv=None):
    """Writes files from ARFF, then tunes, trains, tests and reports."""
    args = parser().parse_args(argv)
    if args.arff is not None:
        for part in ("train", "test"):
            write_arff(args.arff / f"{part}.arff", args.files / f"{part}.txt")
    show_all(tables_of(args), args.csv)


if __name__ == "__main__":
    main()
