"""Measures how much descriptions of classes help with few examples per class, or none.

    python -m scripts.reproductions.few_examples --preset FOLDER --data-dir data --out out/few

A frozen pretrained transformer encodes GoEmotions' comments, and the definitions of its 28 emotions
by the authors of the dataset, once. Heads are trained on these encodings. The classes of a head are
a table (with the dot product this is keras.layers.Dense) or the encoded definitions, passed through
a dense layer that starts as the identity.

Few examples: a given number of training comments per class, or all if there are fewer; several
draws. The learning rate with the best balanced accuracy on the validation part of the first draw is
used for all. Held-out classes: the heads are trained on comments of 21 classes, at most 500 of
each. They are tested on comments of the other seven, whose definitions are added after training.
Each class is held out once. The rate is the one used for the largest number of examples. It was
chosen on validation comments of all classes, including the held-out ones. A table has no rows for
held-out classes, so it can only guess.

Every finished run is a file in the folder that --out names; a second call resumes there.
results.md holds the tables: mean and standard deviation over the draws.
"""

import itertools
import pathlib

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _files, encoders, layers, losses
from scripts import command_line
from scripts.reproductions import harness
from scripts.reproductions.goemotions_definitions import DEFINITIONS
from scripts.tables import plus_minus, table

METHODS = {
    "Dense": ("dot_product", False),
    "LC+MLP": ("latent_cross", False),
    "Concat+MLP": ("concat", False),
    "Dot product, definitions": ("dot_product", True),
    "LC+MLP, definitions": ("latent_cross", True),
    "Concat+MLP, definitions": ("concat", True),
}
HELD_OUT = 7
MOST_OF_A_CLASS = 500
BATCH_SIZE = 64


def parse_args(argv=None):
    """Reads the command line."""
    parser = command_line.parser(__spec__, description=__doc__)
    number = command_line.positive(int)
    parser.add_argument("--preset", default="bert_base_en_uncased", help="preset of a transformer")
    parser.add_argument(
        "--pooling",
        choices=("first", "mean"),
        default="mean",
        help="encoding of a text: its first token, or the mean of all",
    )
    parser.add_argument(
        "--shots", nargs="+", type=number, default=[5, 20, 100], help="training examples per class"
    )
    parser.add_argument("--draws", type=number, default=3, help="default: 3")
    parser.add_argument("--steps", type=number, default=400, help="training steps; default: 400")
    parser.add_argument(
        "--learning-rates", nargs="+", type=command_line.positive(float), default=[1e-3, 1e-2]
    )
    parser.add_argument(
        "--units",
        nargs="+",
        type=number,
        default=[64, 64],
        help="widths of the hidden layers of MLP heads",
    )
    parser.add_argument("--data-dir", help="where TensorFlow Datasets keeps its data")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/few"))
    return parser.parse_args(argv)


def encode(args):
    """Encodings and class ids of each part, and encodings of the definitions."""
    problem = harness.text_problem(
        "goemotions",
        args.preset,
        args.data_dir,
        frozen="all",
        pooling=args.pooling,
        cache=args.out / "features",
    )
    splits = problem.load(1024, 0)
    parts = {}
    for name in ("train", "validation", "test"):
        batches = getattr(splits, name).as_numpy_iterator()
        parts[name] = tuple(np.concatenate(arrays) for arrays in zip(*batches, strict=True))
    encoder = encoders.TextEncoder(args.preset, frozen="all", pooling=args.pooling)
    texts = [f"{name}: {text}" for name, text in DEFINITIONS.items()]
    return parts, encoder.lower(encoder.tokenize(texts).to_tensor()).numpy()


def standardized(parts, definitions):
    """Subtracts the mean of the training comments from all encodings, and scales them.

    On this scale, the dot product of two encodings has a standard deviation of about 1.
    """
    features = parts["train"][0]
    mean = features.mean(0)
    deviation = (features - mean).std() * features.shape[1] ** 0.25
    scaled = {name: ((x - mean) / deviation, ids) for name, (x, ids) in parts.items()}
    return scaled, (definitions - mean) / deviation


def fit(method, features, class_ids, classes, rate, args, seed):
    """A trained head, over all rows of `classes`."""
    head, described = METHODS[method]
    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    width = features.shape[1]
    if described:
        identity = keras.layers.Dense(width, kernel_initializer="identity")
        of_classes = layers.EncodedClasses(classes, identity)
    else:
        of_classes = len(classes)
    options = {} if head == "dot_product" else {"units": args.units}
    model = keras.Sequential([layers.get_head(head, classes=of_classes, **options)])
    schedule = keras.optimizers.schedules.PolynomialDecay(rate, args.steps, 0.0)
    model.compile(keras.optimizers.Adam(schedule), losses.SoftmaxLoss())
    order = np.random.default_rng(seed)
    rows = [
        order.permutation(len(class_ids))
        for _ in range(-(-args.steps * BATCH_SIZE // len(class_ids)))
    ]
    rows = np.concatenate(rows)[: args.steps * BATCH_SIZE]
    model.fit(features[rows], class_ids[rows], batch_size=BATCH_SIZE, shuffle=False, verbose=0)
    return model


def balanced_accuracy(scores, class_ids):
    """The mean over the classes of the share of their examples that are scored highest."""
    right = scores.argmax(1) == class_ids
    return float(np.mean([right[class_ids == k].mean() for k in np.unique(class_ids)]))


def draw(class_ids, shots, seed):
    """Row numbers of a given number of examples of each class."""
    rng = np.random.default_rng(seed)
    return np.concatenate(
        [
            rng.permutation(np.flatnonzero(class_ids == k))[:shots]
            for k in range(class_ids.max() + 1)
        ]
    )


def few_examples(parts, definitions, method, shots, rate, seed, args):
    """A run with some examples of each class."""
    features, class_ids = parts["train"]
    rows = draw(class_ids, shots, seed)
    model = fit(method, features[rows], class_ids[rows], definitions, rate, args, seed)
    result = {}
    for name in ("validation", "test"):
        x, ids = parts[name]
        scores = model.predict(x, batch_size=1024, verbose=0)
        result[name] = {
            "balanced": balanced_accuracy(scores, ids),
            "Top-1": float(np.mean(scores.argmax(1) == ids)),
        }
    return result


def held_out_classes(parts, definitions, method, rate, fold, args):
    """A run with seven classes held out; `rate` is None for no training at all."""
    number = len(definitions)
    held_out = np.random.default_rng(0).permutation(number).reshape(-1, HELD_OUT)[fold]
    seen = np.setdiff1d(np.arange(number), held_out)
    features, class_ids = parts["test"]
    rows = np.flatnonzero(np.isin(class_ids, held_out))
    features, class_ids = features[rows], np.searchsorted(np.sort(held_out), class_ids[rows])
    order = np.concatenate([seen, np.sort(held_out)])
    if rate is None:
        normal = tf.math.l2_normalize
        scores = tf.matmul(normal(features, 1), normal(definitions[order], 1), transpose_b=True)
        scores = scores.numpy()
    else:
        x, ids = parts["train"]
        chosen = draw(ids, MOST_OF_A_CLASS, fold)
        chosen = chosen[np.isin(ids[chosen], seen)]
        model = fit(
            method,
            x[chosen],
            np.searchsorted(seen, ids[chosen]),
            definitions[seen],
            rate,
            args,
            fold,
        )
        model.layers[-1].classes.add(definitions[np.sort(held_out)])
        scores = model(features).numpy()
    return {
        "among held-out": balanced_accuracy(scores[:, len(seen) :], class_ids),
        "among all": balanced_accuracy(scores, class_ids + len(seen)),
    }


def few_table(runs, args):
    """Balanced accuracy and Top-1 by number of examples."""
    columns = list(itertools.product(args.shots, ("balanced", "Top-1")))
    rows = [
        [
            method,
            *(
                plus_minus([run["test"][metric] for run in runs[method, shots]])
                for shots, metric in columns
            ),
        ]
        for method in METHODS
    ]
    head = ["classes and head", *(f"{shots}, {metric}" for shots, metric in columns)]
    return "\n".join(table(head, rows, len(columns))) + "\n"


def zero_table(runs):
    """Balanced accuracy on held-out classes."""
    names = ("among held-out", "among all")
    rows = [["Dense or any table: a guess", f"{1 / HELD_OUT:.3f}", "0.000"]]
    for method, of_method in runs.items():
        rows.append([method, *(plus_minus([run[name] for run in of_method]) for name in names)])
    return "\n".join(table(["classes and head", *names], rows, 2)) + "\n"


def main(argv=None):
    """Makes what is missing and writes the tables."""
    args = parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    parts, definitions = standardized(*encode(args))
    common = {
        "preset": args.preset,
        "pooling": args.pooling,
        "steps": args.steps,
        "units": args.units,
    }

    def run(kind, function, **settings):
        name = "-".join(str(value).replace(" ", "_") for value in (kind, *settings.values()))
        return harness.cached(
            args.out / f"{name}.json",
            {**common, **settings},
            lambda: function(parts, definitions, args=args, **settings),
        )

    few, rates = {}, {}
    for method, shots in itertools.product(METHODS, args.shots):
        tuning = {
            rate: run("few", few_examples, method=method, shots=shots, rate=rate, seed=0)
            for rate in args.learning_rates
        }
        rate = rates[method, shots] = max(
            tuning, key=lambda rate, runs=tuning: runs[rate]["validation"]["balanced"]
        )
        few[method, shots] = [
            run("few", few_examples, method=method, shots=shots, rate=rate, seed=seed)
            for seed in range(args.draws)
        ]
    text = few_table(few, args)
    _files.write_text(args.out / "results.md", text)
    folds = range(len(definitions) // HELD_OUT)
    zero = {
        "Cosine of comment and definition, no training": [
            run("zero", held_out_classes, method="cosine", rate=None, fold=fold) for fold in folds
        ]
    }
    for method, (_, described) in METHODS.items():
        if described:
            rate = rates[method, max(args.shots)]
            zero[method] = [
                run("zero", held_out_classes, method=method, rate=rate, fold=fold) for fold in folds
            ]
    text += "\n" + zero_table(zero)
    _files.write_text(args.out / "results.md", text)
    print(text)


if __name__ == "__main__":
    main()
