"""Measures how well each loss is calibrated, and how large its prediction sets are.

    python -m scripts.reproductions.calibration
    python -m scripts.reproductions.calibration --dataset goemotions --preset FOLDER

For several seeds, a small model is trained with each loss, either on a few images per
class of scikit-learn's digits (ten minutes of one core), or on GoEmotions comments
encoded by a frozen pretrained transformer (an hour). One half of the validation
examples chooses the epoch, by NDCG@5, and fits the temperature of `calibrate`. The
other half, to which nothing was fitted, gives `conformalize` its threshold. The tables
show the test examples, mean and standard deviation over the seeds:

- the expected calibration error (15 bins) and the mean negative log-likelihood of the
  raw and of the calibrated softmax, and the error of the loss's own probabilities, if
  it defines any;
- the share of test examples whose class is in its prediction set, and the mean size of
  the sets, for both methods, on calibrated probabilities and on the raw softmax.
"""

import functools
import itertools
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow import keras

import rank4class_tf as r4c
from rank4class_tf import encoders
from scripts import command_line
from scripts.reproductions import common
from scripts.tables import Table, plus_minus, show_all

LOSSES = [
    "softmax_loss",
    "rankmax_loss",
    "sparsemax_loss",
    "pairwise_logistic_loss",
    "approx_ndcg_loss",
    "mean_squared_loss",
]


class Training(NamedTuple):
    """How a model is trained; `patience` is how many epochs without a better one."""

    rate: float
    batch_size: int
    epochs: int
    patience: int


# On digits, NDCG@5 of 180 examples may stay level for 30 epochs while the scores are
# still small: a run that ends there has a calibration error five times as high.
TRAINING = {
    "digits": Training(rate=1e-3, batch_size=32, epochs=300, patience=100),
    "goemotions": Training(rate=3e-3, batch_size=256, epochs=20, patience=5),
}
COVERAGES = (0.9, 0.95)
METHODS = ("lac", "aps")
COLUMNS = [
    "Top-1",
    "T",
    "ECE %, own",
    "ECE %, softmax",
    "ECE %, calibrated",
    "NLL, softmax",
    "NLL, calibrated",
]


class Examples(NamedTuple):
    """Features and class ids."""

    x: np.ndarray
    class_ids: np.ndarray

    def only(self, rows):
        """Some of the examples."""
        return Examples(self.x[rows], self.class_ids[rows])


def arrays_of(splits):
    """The `Examples` of each part."""
    parts = {}
    for name in ("train", "validation", "test"):
        pairs = zip(*getattr(splits, name).as_numpy_iterator(), strict=True)
        parts[name] = Examples(*map(np.concatenate, pairs))
    return parts


@functools.cache
def comments(preset, pooling, data_dir):
    """GoEmotions through a frozen transformer, by part."""
    encoder = encoders.TextEncoder(preset, 32, "all", pooling)
    parts = arrays_of(r4c.data.goemotions(data_dir, text=True))
    for name, (texts, class_ids) in parts.items():
        tokens = encoder.tokenize(texts).to_tensor()
        parts[name] = Examples(encoder.lower.predict(tokens, verbose=0), class_ids)
    return parts


def few_digits(shots, seed):
    """Images of digits by part; to train, only a few of each."""
    parts = arrays_of(r4c.data.digits(1024, seed))
    rng = np.random.default_rng(seed)
    class_ids = parts["train"].class_ids
    of_class = [rng.permutation(np.flatnonzero(class_ids == k)) for k in range(10)]
    rows = np.concatenate([rows[:shots] for rows in of_class])
    return parts | {"train": parts["train"].only(rows)}


def examples(args, seed):
    """A seed's examples: to train, to choose and fit, to conformalize and to test."""
    if args.dataset == "digits":
        parts = few_digits(args.shots, seed)
    else:
        parts = comments(args.preset, args.pooling, args.data_dir)
    validation = parts["validation"]
    order = np.random.default_rng(seed).permutation(len(validation.class_ids))
    choice, conformal = np.array_split(order, 2)
    return {
        "train": parts["train"],
        "choice": validation.only(choice),
        "conformal": validation.only(conformal),
        "test": parts["test"],
    }


def trained_scores(args, loss, seed):
    """Scores and class ids of what chooses, conformalizes and tests, by part."""
    parts = examples(args, seed)
    training = TRAINING[args.dataset]
    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    hidden = [keras.layers.Dense(64, "relu") for _ in range(2)]
    layers = hidden if args.dataset == "digits" else [keras.layers.Dropout(0.1)]
    head = r4c.layers.DotProductHead(parts["test"].class_ids.max() + 1)
    model = keras.Sequential([*layers, head])
    optimizer = keras.optimizers.Adam(training.rate)
    model.compile(optimizer, r4c.losses.get(loss), metrics=[r4c.metrics.NDCG(5)])
    stopping = keras.callbacks.EarlyStopping(
        "val_ndcg_at_5",
        mode="max",
        patience=training.patience,
        restore_best_weights=True,
    )
    model.fit(
        *parts["train"],
        training.batch_size,
        args.epochs or training.epochs,
        callbacks=[stopping],
        validation_data=tuple(parts["choice"]),
        verbose=0,
    )
    scored = {}
    for name in ("choice", "conformal", "test"):
        x, class_ids = parts[name]
        scores = model.predict(x, batch_size=1024, verbose=0)
        scored[name] = (tf.constant(scores), class_ids)
    return scored


def calibration_error(probabilities, scores, class_ids):
    """The expected calibration error of a layer of probabilities, in per cent."""
    metric = r4c.metrics.ExpectedCalibrationError(probabilities=probabilities)
    metric.update_state(class_ids, scores)
    return 100 * float(metric.result())


def measure(args, loss, seed):
    """The figures of one model, which is trained first."""
    scored = trained_scores(args, loss, seed)
    scores, class_ids = scored["test"]
    fitted = r4c.calibrate(None, scored["choice"])
    own = r4c.losses.get(loss).probabilities
    right = scores.numpy().argmax(1) == class_ids
    figures = {"Top-1": float(np.mean(right)), "T": fitted.temperature}
    if own is not None:
        figures["ECE %, own"] = calibration_error(own, scores, class_ids)
    layers = {"softmax": r4c.layers.Probabilities(), "calibrated": fitted}
    for name, layer in layers.items():
        figures[f"ECE %, {name}"] = calibration_error(layer, scores, class_ids)
        likelihood = r4c.losses.SoftmaxLoss(layer.temperature)
        value = likelihood(class_ids, tf.cast(scores, tf.float64))
        figures[f"NLL, {name}"] = float(value)
        for coverage, method in itertools.product(COVERAGES, METHODS):
            fit = r4c.conformalize(None, scored["conformal"], coverage, method, layer)
            sets = fit(scores).numpy()
            covered = sets[np.arange(len(sets)), class_ids]
            key = f"{method} {coverage} {name}"
            figures[f"{key} coverage"] = float(covered.mean())
            figures[f"{key} size"] = float(sets.sum(axis=1).mean())
    return figures


def tables_of(runs):
    """The tables of all losses."""

    def rows(keys):
        found = []
        for loss, of_seeds in runs.items():
            row = [loss]
            for key in keys:
                values = [figures[key] for figures in of_seeds if key in figures]
                row.append(plus_minus(values) if values else "-")
            found.append(row)
        return found

    yield Table("Calibration", ["loss", *COLUMNS], rows(COLUMNS))
    for coverage in COVERAGES:
        head = ["loss"]
        keys = []
        for method, name in itertools.product(METHODS, ("calibrated", "softmax")):
            head += [f"{method}, {name}: coverage", "size"]
            keys += [f"{method} {coverage} {name} {of}" for of in ("coverage", "size")]
        yield Table(f"Sets for a coverage of {coverage}", head, rows(keys))


def parser():
    """The command line."""
    quick = {"loss": LOSSES[:2], "seeds": [0], "epochs": 30}
    result = common.parser(__spec__, __doc__, quick, seeds=5)
    add = result.add_argument
    count = command_line.count
    add("--dataset", choices=TRAINING, default="digits", help="the data")
    result.add_names("--loss", LOSSES, "losses")
    result.add_value("--shots", count, 10, "images per digit")
    result.add_value("--epochs", count, None, "at most; without it, by dataset")
    add("--preset", help="preset of a transformer, for goemotions")
    of = "of the tokens of a text"
    add("--pooling", choices=("first", "mean"), default="mean", help=of)
    add("--data-dir", help="where TensorFlow Datasets keeps its data")
    return result


def main(argv=None):
    """Trains what is missing, measures and shows the tables."""
    args = parser().parse_args(argv)
    if (args.preset is None) != (args.dataset == "digits"):
        parser().error("--dataset goemotions needs a --preset, and digits takes none")
    names = ("dataset", "shots", "epochs", "preset", "pooling")
    options = command_line.chosen(args, *names)

    def kept_run(loss, seed):
        make = functools.partial(measure, args, loss, seed)
        return common.kept(args.out, {"loss": loss, "seed": seed, **options}, make)

    runs = {loss: [kept_run(loss, seed) for seed in args.seeds] for loss in args.loss}
    show_all(tables_of(runs), args.csv)


if __name__ == "__main__":
    main()
