"""Bibtex and Delicious: losses over all labels beside one-vs-rest regressions.

    python -m scripts.reproductions.extreme --arff FOLDER --files FOLDER

`--files` names a folder with train.txt and test.txt in the format of the Extreme
Classification Repository. `--arff` names one with train.arff and test.arff, from which
they are written first; its labels are the attributes `TAG_...`.

Each method has the same number of settings, which are compared by P@3 on a fifth of
the training points with `--tuning-seed`. A network is then trained on all training
points for the epochs that were best there, once with each seed. One-vs-rest has no
seed. The test points are used once. Points are scaled to length 1. The network is one
hidden layer, the same for each loss; "Top-4 of 64" draws 64 negatives of a point and
mines four.
"""

import dataclasses
import functools
import itertools
import pathlib
import warnings

import numpy as np
import scipy.sparse
from sklearn import linear_model, multiclass
from tensorflow import keras

from rank4class_tf import data, losses, metrics, ops
from scripts import command_line
from scripts.reproductions import common
from scripts.tables import plus_minus, show_all

ONE_VS_REST = "one-vs-rest, logistic regression"
REGULARIZATIONS = np.logspace(-1, 2.3, 12).round(2).tolist()
# Of each loss, its own parameter.
OWN = {
    "network, softmax": [0.5, 1.0, 2.0],
    "network, Rankmax": [0.3, 1.0, 3.0],
    "network, Top-4 of 64": [0.3, 1.0, 3.0],
}
RATES, DROPOUTS = (3e-3, 1e-2), (0.5, 0.2)
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
        {"own": value, "rate": rate, "dropout": dropout}
        for value, rate, dropout in itertools.product(OWN[method], RATES, DROPOUTS)
    ]


# -- Data
# --------------------------------------------------------------------------------------


def write_arff(source, target):
    """Writes a sparse ARFF file of 0 and 1 in the repository's format.

    Args:
        source: a file whose last attributes, the labels, are named `TAG_...`.
        target: the file to write.
    """
    names, points = [], []
    with open(source, encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("@attribute"):
                names.append(line.split()[1])
            elif line.startswith("{"):
                pairs = line.strip("{}\n ").split(",")
                points.append([int(pair.split()[0]) for pair in pairs if pair])
    is_label = [name.startswith("TAG_") for name in names]
    first = is_label.index(True)
    if not all(is_label[first:]):
        raise ValueError(f"{source}: the labels must be the last attributes.")
    rows = []
    for point in points:
        features = [i for i in point if i < first]
        labels = [i - first for i in point if i >= first]
        rows.append((labels, features, [1.0] * len(features)))
    data.write_extreme_classification(target, rows, first, len(names) - first)


@dataclasses.dataclass(frozen=True)
class Points:
    """Features `[n, features]` of length 1, and class ids `[n, P]` padded with -1."""

    features: np.ndarray
    class_ids: np.ndarray
    num_classes: int

    def only(self, rows):
        """Some of the points."""
        return dataclasses.replace(
            self, features=self.features[rows], class_ids=self.class_ids[rows]
        )

    def multi_hot(self):
        """The labels as 0 and 1, `[n, classes]`."""
        labels = np.zeros([len(self.class_ids), self.num_classes], np.int32)
        for row, ids in zip(labels, self.class_ids, strict=True):
            row[ids[ids >= 0]] = 1
        return labels


def read(path):
    """The points of a file."""
    count, num_features, num_classes = data.read_extreme_header(path)
    sparse, class_ids = next(iter(data.extreme_classification(path, count)))
    features = np.zeros([count, num_features], np.float32)
    features[tuple(sparse.indices.numpy().T)] = sparse.values
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    features /= np.maximum(lengths, 1e-12)
    return Points(features, class_ids.numpy(), num_classes)


# -- Methods
# --------------------------------------------------------------------------------------


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
        warnings.filterwarnings("ignore", message=".*not present in all training")
        model = multiclass.OneVsRestClassifier(model).fit(
            scipy.sparse.csr_matrix(train.features), train.multi_hot()
        )
    return highest(model.predict_proba(scipy.sparse.csr_matrix(other.features)))


def build(points, method, own, rate, dropout, width):
    """The compiled network."""
    model = keras.Sequential(
        [
            keras.Input((points.features.shape[1],)),
            keras.layers.Dense(width, "relu"),
            keras.layers.Dropout(dropout),
            keras.layers.Dense(points.num_classes),
        ]
    )
    loss = make_loss(method, own)
    model.compile(keras.optimizers.Adam(rate), loss, jit_compile=False)
    return model


def search(method, setting, train, validation, args):
    """Validation P@3 of a setting, with the best epoch of a network."""
    keras.utils.set_random_seed(args.tuning_seed)
    if method == ONE_VS_REST:
        top = one_vs_rest(train, validation, **setting)
        return {SELECT_BY: float(hits(validation, top)[:, :3].mean())}
    model = build(train, method, **setting, width=args.width)

    def evaluate():
        top = highest(model.predict_on_batch(validation.features))
        return {SELECT_BY: float(hits(validation, top)[:, :3].mean())}

    _, best = common.train_to_best(
        model,
        args.epochs,
        lambda epoch: train_once(model, train, args.batch_size, epoch),
        evaluate,
        SELECT_BY,
        args.patience,
        args.evaluate_every,
    )
    return best


def train_once(model, points, batch_size, epoch):
    """Trains for an epoch."""
    order = np.random.default_rng(epoch).permutation(len(points.features))
    for rows in np.array_split(order, len(order) // batch_size):
        model.train_on_batch(points.features[rows], points.class_ids[rows])


def test(method, chosen, seed, train, other, args):
    """The highest labels of the test points, after training on all others."""
    setting = {name: chosen[name] for name in settings_of(method)[0]}
    if method == ONE_VS_REST:
        return one_vs_rest(train, other, **setting)
    keras.utils.set_random_seed(seed)
    model = build(train, method, **setting, width=args.width)
    for epoch in range(1, chosen["epoch"] + 1):
        train_once(model, train, args.batch_size, epoch)
    return highest(model.predict_on_batch(other.features))


# -- Tables
# --------------------------------------------------------------------------------------


def runs_of(method, parts, args):
    """The chosen setting of a method, and the highest labels with each seed."""
    names = ["width", "batch_size", "epochs", "evaluate_every", "patience"]
    of_all = {name: getattr(args, name) for name in names}
    of_all |= {"files": str(args.files.resolve()), "method": method}
    of_all["tuning_seed"] = args.tuning_seed
    train, other = parts
    order = np.random.default_rng(args.tuning_seed).permutation(len(train.features))
    held_out = len(order) // 5
    validation, rest = train.only(order[:held_out]), train.only(order[held_out:])
    found = [
        common.kept(
            args.out,
            {**of_all, **setting},
            functools.partial(search, method, setting, rest, validation, args),
        )
        for setting in settings_of(method)[:: MOST_SETTINGS // args.settings]
    ]
    chosen = max(found, key=lambda run: run[SELECT_BY])

    def tested(seed):
        top = test(method, chosen, seed, train, other, args)
        return {"top": top.tolist()}

    own = {name: chosen[name] for name in ("own", "rate", "dropout") if name in chosen}
    own |= {"epoch": chosen.get("epoch", 0)}
    seeds = args.seeds[:1] if method == ONE_VS_REST else args.seeds
    runs = [
        common.kept(
            args.out, {**of_all, **own, "seed": seed}, functools.partial(tested, seed)
        )
        for seed in seeds
    ]
    return own, [np.array(run["top"]) for run in runs]


def tables_of(args):
    """The figures, and the gains over the first method with 95 % intervals."""
    parts = train, other = read(args.files / "train.txt"), read(args.files / "test.txt")
    shares = metrics.propensities(train.class_ids, train.num_classes)
    rows, gains, baseline = [], [], None
    for method in args.methods:
        own, runs = runs_of(method, parts, args)
        values = np.array([figures(other, top, shares) for top in runs])
        setting = ", ".join(f"{name} {value:g}" for name, value in own.items())
        rows.append([method, setting, *map(plus_minus, 100 * values.T, [1] * 6)])
        # Of each point its mean over the seeds.
        right = np.mean([hits(other, top) for top in runs], axis=0)
        precision = np.stack([right[:, :k].mean(axis=1) for k in CUTOFFS], axis=1)
        baseline = precision if baseline is None else baseline
        gain = 100 * (precision - baseline)
        error = 1.96 * gain.std(axis=0, ddof=1) / np.sqrt(len(gain))
        pairs = zip(gain.mean(axis=0), error, strict=True)
        gains.append([method, *(f"{mean:+.1f} ± {half:.1f}" for mean, half in pairs)])
    name = args.files.name
    tries = f"{args.settings} settings each, {len(args.seeds)} seeds"
    yield f"{name}, %, {tries}", ["method", "chosen", *TITLES], rows
    title = f"{name}, gain over {args.methods[0]}, 95 % over test points"
    yield title, ["method", *TITLES[:3]], gains[1:]


def main(argv=None):
    """Writes files from ARFF, then tunes, trains, tests and reports."""
    quick = {"settings": 1, "seeds": [0], "epochs": 1, "width": 16}
    parser = common.parser(__spec__, __doc__, quick)
    parser.set_defaults(seeds=[0, 1, 2, 3, 4])
    count, add = command_line.count, parser.add_argument
    add("--files", type=pathlib.Path, required=True, help="train.txt and test.txt")
    add("--arff", type=pathlib.Path, help="train.arff and test.arff, to write them")
    parser.add_names("--methods", [ONE_VS_REST, *OWN], "the first is the baseline")
    add(
        "--settings",
        type=count,
        choices=(1, 2, 3, 4, 6, MOST_SETTINGS),
        default=MOST_SETTINGS,
        help="settings of each method",
    )
    add("--width", type=count, default=128, help="hidden units")
    add("--batch-size", type=count, default=128, help="points a step")
    add("--epochs", type=count, default=16, help="at most")
    add("--evaluate-every", type=count, default=2, help="epochs between evaluations")
    add("--patience", type=count, default=4, help="epochs without a better P@3")
    args = parser.parse_args(argv)
    if args.arff is not None:
        for part in ("train", "test"):
            write_arff(args.arff / f"{part}.arff", args.files / f"{part}.txt")
    show_all(tables_of(args), args.csv)


if __name__ == "__main__":
    main()
