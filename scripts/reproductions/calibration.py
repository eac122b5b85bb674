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

import numpy as np
import tensorflow as tf
from tensorflow import keras

import rank4class_tf as r4c
from rank4class_tf import encoders
from scripts import command_line
from scripts.reproductions import common
from scripts.tables import plus_minus, show_all

LOSSES = [
    f"{name}_loss" for name in ("softmax", "rankmax", "sparsemax", "pairwise_logistic")
]
LOSSES += ["approx_ndcg_loss", "mean_squared_loss"]
# Learning rate, batch size, most epochs, and how many to go on without a better one. On
# digits, NDCG@5 of 180 examples may stay level for 30 epochs while the scores are still
# small: a run that ends there has a calibration error five times as high.
TRAINING = {"digits": (1e-3, 32, 300, 100), "goemotions": (3e-3, 256, 20, 5)}
COVERAGES = (0.9, 0.95)
METHODS = ("lac", "aps")
COLUMNS = ["Top-1", "T", "ECE %, own", "ECE %, softmax", "ECE %, calibrated"]
COLUMNS += ["NLL, softmax", "NLL, calibrated"]


def arrays_of(splits):
    """The features and class ids of each part."""
    parts = {name: getattr(splits, name) for name in ("train", "validation", "test")}
    pairs = {
        name: zip(*part.as_numpy_iterator(), strict=True)
        for name, part in parts.items()
    }
    return {
        name: tuple(map(np.concatenate, of_part)) for name, of_part in pairs.items()
    }


@functools.cache
def comments(preset, pooling, data_dir):
    """GoEmotions through a frozen transformer, by part."""
    encoder = encoders.TextEncoder(preset, 32, "all", pooling)

    def encoded(texts, class_ids):
        return encoder.lower.predict(
            encoder.tokenize(texts).to_tensor(), verbose=0
        ), class_ids

    parts = arrays_of(r4c.data.goemotions(data_dir, text=True))
    return {name: encoded(*part) for name, part in parts.items()}


def examples(args, seed):
    """A seed's examples: to train, to choose and fit, to conformalize and to test."""
    if args.dataset == "digits":
        parts = arrays_of(r4c.data.digits(1024, seed))
        rng, class_ids = np.random.default_rng(seed), parts["train"][1]
        of_class = [rng.permutation(np.flatnonzero(class_ids == k)) for k in range(10)]
        rows = np.concatenate([rows[: args.shots] for rows in of_class])
        parts["train"] = tuple(array[rows] for array in parts["train"])
    else:
        parts = dict(comments(args.preset, args.pooling, args.data_dir))
    order = np.random.default_rng(seed).permutation(len(parts["validation"][1]))
    for name, rows in zip(
        ("choice", "conformal"), np.array_split(order, 2), strict=True
    ):
        parts[name] = tuple(array[rows] for array in parts["validation"])
    return parts


def trained_scores(args, loss, seed):
    """Scores and class ids of what chooses, conformalizes and tests, by part."""
    parts = examples(args, seed)
    rate, batch_size, epochs, patience = TRAINING[args.dataset]
    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    hidden = [keras.layers.Dense(64, "relu") for _ in range(2)]
    layers = hidden if args.dataset == "digits" else [keras.layers.Dropout(0.1)]
    model = keras.Sequential(
        [*layers, r4c.layers.DotProductHead(parts["test"][1].max() + 1)]
    )
    model.compile(
        keras.optimizers.Adam(rate), r4c.losses.get(loss), metrics=[r4c.metrics.NDCG(5)]
    )
    stopping = keras.callbacks.EarlyStopping(
        "val_ndcg_at_5", mode="max", patience=patience, restore_best_weights=True
    )
    epochs, watched = (
        args.epochs or epochs,
        {"validation_data": parts["choice"], "verbose": 0},
    )
    model.fit(*parts["train"], batch_size, epochs, callbacks=[stopping], **watched)
    predict = functools.partial(model.predict, batch_size=1024, verbose=0)
    scored = {}
    for name in ("choice", "conformal", "test"):
        x, class_ids = parts[name]
        scored[name] = (tf.constant(predict(x)), class_ids)
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
    fitted, own = (
        r4c.calibrate(None, scored["choice"]),
        r4c.losses.get(loss).probabilities,
    )
    figures = {"Top-1": float(np.mean(scores.numpy().argmax(1) == class_ids))}
    figures["T"] = fitted.temperature
    if own is not None:
        figures["ECE %, own"] = calibration_error(own, scores, class_ids)
    for name, layer in (
        ("softmax", r4c.layers.Probabilities()),
        ("calibrated", fitted),
    ):
        figures[f"ECE %, {name}"] = calibration_error(layer, scores, class_ids)
        likelihood = r4c.losses.SoftmaxLoss(layer.temperature)
        figures[f"NLL, {name}"] = float(
            likelihood(class_ids, tf.cast(scores, tf.float64))
        )
        for coverage, method in itertools.product(COVERAGES, METHODS):
            fit = r4c.conformalize(None, scored["conformal"], coverage, method, layer)
            sets = fit(scores).numpy()
            key = f"{method} {coverage} {name}"
            figures[f"{key} coverage"] = float(
                sets[np.arange(len(sets)), class_ids].mean()
            )
            figures[f"{key} size"] = float(sets.sum(axis=1).mean())
    return figures


def tables_of(runs):
    """The tables of all losses."""

    def row(loss, keys):
        values = (
            [figures[key] for figures in runs[loss] if key in figures] for key in keys
        )
        return [loss, *(plus_minus(of_key) if of_key else "-" for of_key in values)]

    yield "Calibration", ["loss", *COLUMNS], [row(loss, COLUMNS) for loss in runs]
    for coverage in COVERAGES:
        head, keys = ["loss"], []
        for method, name in itertools.product(METHODS, ("calibrated", "softmax")):
            head += [f"{method}, {name}: coverage", "size"]
            keys += [f"{method} {coverage} {name} {of}" for of in ("coverage", "size")]
        yield (
            f"Sets for a coverage of {coverage}",
            head,
            [row(loss, keys) for loss in runs],
        )


def main(argv=None):
    """Trains what is missing, measures and shows the tables."""
    quick = {"loss": LOSSES[:2], "seeds": [0], "epochs": 30}
    parser = common.parser(__spec__, __doc__, quick)
    add, count = parser.add_argument, command_line.count
    add("--dataset", choices=TRAINING, default="digits", help="the data")
    parser.add_names("--loss", LOSSES, "losses")
    add("--shots", type=count, default=10, help="images per digit")
    add("--epochs", type=count, help="at most; without it, by dataset")
    add("--preset", help="preset of a transformer, for goemotions")
    add(
        "--pooling",
        choices=("first", "mean"),
        default="mean",
        help="of the tokens of a text",
    )
    add("--data-dir", help="where TensorFlow Datasets keeps its data")
    parser.set_defaults(seeds=[0, 1, 2, 3, 4])
    args = parser.parse_args(argv)
    if (args.preset is None) != (args.dataset == "digits"):
        parser.error("--dataset goemotions needs a --preset, and digits takes none")
    names = ("dataset", "shots", "epochs", "preset", "pooling")
    options = {name: getattr(args, name) for name in names}

    def kept_run(loss, seed):
        make = functools.partial(measure, args, loss, seed)
        return common.kept(args.out, {"loss": loss, "seed": seed, **options}, make)

    runs = {loss: [kept_run(loss, seed) for seed in args.seeds] for loss in args.loss}
    show_all(tables_of(runs), args.csv)


if __name__ == "__main__":
    main()
