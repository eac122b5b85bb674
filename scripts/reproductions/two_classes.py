"""Two classes, one of them rare: losses that rank the examples of a batch.

    python -m scripts.reproductions.two_classes mammography.csv churn.csv --csv FILE

A file has a line of names, then numbers; its last column is the class, and the rarer
one is the positive. Both classes are split alike: 60 % to train, 20 % for validation,
20 % to test.

The losses train one network, with one hidden layer and a single score. Pairs, the
highest negatives and ApproxNDCG take a batch as one list, in which the positives should
rank first; the others are Keras's. Each has twelve settings: rate, weight decay, and a
parameter of its own, given in the table. Gradient boosting (scikit-learn) has twelve
too: rate, L2, and number of leaves. The average precision (AP) of the validation part
chooses setting and epoch, for each split anew. The gain is that over cross-entropy on
the same splits, which share their data: its interval is optimistic.
"""

import functools
import zlib

import numpy as np
import sklearn.metrics
import tensorflow as tf
from sklearn.ensemble import HistGradientBoostingClassifier
from tensorflow import keras

import rank4class_tf as r4c
from scripts import command_line
from scripts.reproductions import common
from scripts.tables import Table, plus_minus, show_all

AP, AUC, RECALL = "AP", "AUC", "recall at 1 % of negatives"
BASELINE, BOOSTING, WEIGHTS = "cross-entropy", "gradient boosting", "class_weight"
# The parameter that is a method's own, and its range.
OWN = {
    BASELINE: ("label smoothing", 0.003, 0.1),
    WEIGHTS: ("power of the ratio of frequencies", 0.25, 1.5),
    "focal": ("gamma", 1.0, 5.0),
    "pairs": ("temperature", 0.25, 4.0),
    "highest negatives": ("how many", 1.0, 128.0),
    "ApproxNDCG": ("temperature", 0.03, 1.0),
    BOOSTING: ("leaves", 4.0, 64.0),
}
SETTINGS = 12
# An evaluation comes after so many passes through the training part.
PASSES = 5


def read(path):
    """Features `[n, d]`, and whether each example is positive."""
    table = np.loadtxt(path, delimiter=",", skiprows=1, dtype=np.float32)
    x = table[:, :-1]
    y = table[:, -1]
    values, counts = np.unique(y, return_counts=True)
    return x, y == values[counts.argmin()]


def split(x, is_positive, seed):
    """Three parts of standardised features and labels."""
    rng = np.random.default_rng(seed)
    rows = [[], [], []]
    for value in (False, True):
        shuffled = rng.permutation(np.flatnonzero(is_positive == value))
        ends = np.multiply([0.6, 0.8], len(shuffled)).astype(int)
        for part, found in zip(rows, np.split(shuffled, ends), strict=True):
            part.extend(found)
    train = x[rows[0]]
    x = (x - train.mean(axis=0)) / (train.std(axis=0) + 1e-6)
    return [(x[part], is_positive[part]) for part in map(rng.permutation, rows)]


def setting(method, number):
    """Rate, weight decay (or L2) and the method's own parameter, spread evenly."""
    _, *own = OWN[method]
    low = [1e-4, 1e-6, own[0]]
    high = [1e-2, 1e-1, own[1]]
    if method == BOOSTING:
        low[:2] = [0.02, 0.01]
        high[:2] = [0.3, 10]
    low = np.log(low)
    high = np.log(high)

    cells = [np.random.default_rng(i).permutation(SETTINGS)[number] for i in range(3)]
    shares = (np.array(cells) + 0.5) / SETTINGS
    return np.exp(low + shares * (high - low)).tolist()


def values_of(scores, is_positive):
    """The figures of a part."""
    threshold = np.quantile(scores[~is_positive], 0.99)
    return {
        AP: sklearn.metrics.average_precision_score(is_positive, scores),
        AUC: sklearn.metrics.roc_auc_score(is_positive, scores),
        RECALL: (scores[is_positive] > threshold).mean(),
    }


def loss_of(method, own):
    """The loss of labels and scores `[batch, 1]`."""
    if method == WEIGHTS:
        return keras.losses.BinaryCrossentropy(from_logits=True)
    if method == BASELINE:
        return keras.losses.BinaryCrossentropy(from_logits=True, label_smoothing=own)
    if method == "focal":
        return keras.losses.BinaryFocalCrossentropy(gamma=own, from_logits=True)
    if method == "pairs":
        of_list = r4c.losses.PairwiseLogisticLoss(own, label_format="relevance")
    elif method == "ApproxNDCG":
        of_list = r4c.losses.ApproxNDCGLoss(own, label_format="relevance")
    else:
        weights = r4c.losses.TopKWeights(round(own))
        of_list = r4c.losses.OrderedWeightedLoss(
            "pairwise", "hinge", weights, label_format="relevance"
        )
    return lambda y_true, y_pred: of_list(tf.transpose(y_true), tf.transpose(y_pred))


def of_network(method, number, seed, parts, args):
    """What a network's best epoch has on validation and test part."""
    rate, decay, own = setting(method, number)
    (x, is_positive), validation, test = parts
    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    model = keras.Sequential([keras.Input(x.shape[1:])])
    model.add(keras.layers.Dense(args.width, "relu"))
    model.add(keras.layers.Dense(1))
    optimizer = keras.optimizers.AdamW(rate, weight_decay=decay)
    model.compile(optimizer, loss_of(method, own), steps_per_execution=8)
    weights = np.ones(len(x), "float32")
    if method == WEIGHTS:
        weights[is_positive] = (1 / is_positive.mean() - 1) ** own
    examples = tf.data.Dataset.from_tensor_slices(
        (x, is_positive[:, np.newaxis].astype("float32"), weights)
    )
    batches = (
        examples.cache().shuffle(len(x), seed).batch(args.batch_size).repeat(PASSES)
    )

    def values(part):
        return values_of(model.predict_on_batch(part[0])[:, 0], part[1])

    trained = common.train_to_best(
        model,
        -(-args.epochs // PASSES),
        lambda epoch: model.fit(batches, shuffle=False, verbose=0),
        functools.partial(values, validation),
        AP,
        patience=args.epochs,
    )
    return {"validation": trained.best, "test": values(test)}


def of_boosting(number, seed, parts):
    """The same of gradient boosting, which chooses its number of trees likewise."""
    rate, l2, leaves = setting(BOOSTING, number)
    model = HistGradientBoostingClassifier(
        learning_rate=rate,
        l2_regularization=l2,
        max_leaf_nodes=round(leaves),
        max_iter=200,
        early_stopping=False,
        random_state=seed,
    )
    (x, is_positive), *others = parts
    model.fit(x, is_positive)
    stages = []
    for part_x, part_y in others:
        scores = list(model.staged_decision_function(part_x))[9::10]
        stages.append([values_of(np.ravel(score), part_y) for score in scores])
    best = int(np.argmax([values[AP] for values in stages[0]]))
    return {"validation": stages[0][best], "test": stages[1][best]}


def study_of(path, method, parts_of, args):
    """The runs of a method on a file. Each seed has its own parts."""

    def make(number, seed, test):
        if method == BOOSTING:
            return of_boosting(number, seed, parts_of[seed])
        return of_network(method, number, seed, parts_of[seed], args)

    return common.Study(
        args,
        make,
        select_by=AP,
        options=("width", "batch_size", "epochs"),
        data=f"{path.stem} {zlib.crc32(path.read_bytes())}",
        method=method,
    )


def tables_of(args):
    """A table for each file."""
    for path in args.files:
        x, is_positive = read(path)
        parts_of = {seed: split(x, is_positive, seed) for seed in args.seeds}
        chosen = {}
        for method in args.methods:
            study = study_of(path, method, parts_of, args)
            chosen[method] = []
            for seed in args.seeds:
                runs = [study.run(i, seed, test=True) for i in range(args.settings)]
                chosen[method].append(study.best(runs))
        title = f"{path.stem}: {len(x):,} examples, {is_positive.sum():,} positive, "
        title += f"{args.settings} settings each"
        head = ["method", "its own parameter", AP, f"{AP} over {BASELINE} (95 %)"]
        rows = [
            [method, OWN[method][0], *cells_of(runs, chosen[args.methods[0]])]
            for method, runs in chosen.items()
        ]
        yield Table(title, [*head, AUC, RECALL], rows)


def cells_of(runs, of_baseline):
    """What a method reaches, and its gain."""
    ap, auc, recall = ([run.test[name] for run in runs] for name in (AP, AUC, RECALL))
    gains = np.subtract(ap, [run.test[AP] for run in of_baseline])
    gain = common.gained(gains) if gains.any() and len(gains) > 1 else "–"
    return plus_minus(ap), gain, f"{np.mean(auc):.3f}", f"{np.mean(recall):.3f}"


def main(argv=None):
    """Tunes, trains, tests and reports."""
    quick = {"epochs": 5, "settings": 1, "seeds": [0], "width": 4}
    parser = common.parser(__spec__, __doc__, quick, seeds=5)
    common.add_files(parser, "tables, as CSV")
    parser.add_names("--methods", OWN, "rows; the first is what the others gain over")
    add = parser.add_value
    count = command_line.count
    add("--settings", count, SETTINGS, "settings of each method")
    add("--width", count, 64, "units of the hidden layer")
    add("--batch-size", count, 512, "examples of a list")
    add("--epochs", count, 60, "passes through the training part")
    args = parser.parse_args(argv)
    show_all(tables_of(args), args.csv)


if __name__ == "__main__":
    main()
