"""Measures how well each loss is calibrated, and how large its prediction sets are.

    python -m scripts.reproductions.calibration --dataset digits
    python -m scripts.reproductions.calibration --dataset goemotions --preset FOLDER --pooling mean

For several seeds, a small model is trained with each loss, either on a few images per class of
scikit-learn's digits, or on GoEmotions comments encoded by a frozen pretrained transformer. Without
--preset, a small encoder is trained together with the head. Half of the validation examples choose
the epoch, by NDCG@5, and fit the temperature of `calibrate`. The other half, to which nothing was
fitted, gives `conformalize` its threshold. All results are for the test examples:

- the expected calibration error (15 bins) and the mean negative log-likelihood of the raw and of
  the calibrated softmax, and the error of the loss's own probabilities, if it defines any;
- the share of test examples whose class is in its prediction set, and the mean size of the sets,
  for both methods, on calibrated probabilities and on the raw softmax.

The scores of each trained model are kept in the folder that --out names. A second call with the
same settings resumes there; a call with other settings replaces the scores. <dataset>.md holds the
tables: mean and standard deviation over the seeds.
"""

import dataclasses
import pathlib

import numpy as np
import tensorflow as tf
from tensorflow import keras

import rank4class_tf as r4c
from rank4class_tf import _files
from scripts import command_line
from scripts.reproductions import harness
from scripts.tables import plus_minus, table

LOSSES = (
    "softmax_loss",
    "rankmax_loss",
    "sparsemax_loss",
    "pairwise_logistic_loss",
    "approx_ndcg_loss",
    "mean_squared_loss",
)
ENCODERS = {"digits": "dense_layers", "goemotions": "max_pooling"}
PATIENCE = {"digits": 30, "goemotions": 5}
# For the encodings of a pretrained transformer.
LEARNING_RATE = 3e-3
BATCH_SIZE = 256
COVERAGES = (0.9, 0.95)
METHODS = ("lac", "aps")


def parse_args(argv=None):
    """Reads the command line."""
    parser = command_line.parser(__spec__, description=__doc__)
    number = command_line.positive(int)
    parser.add_argument("--dataset", choices=ENCODERS, default="digits")
    parser.add_argument("--loss", nargs="+", choices=LOSSES, default=LOSSES)
    parser.add_argument("--seeds", type=number, default=5, help="number of seeds; default: 5")
    parser.add_argument("--shots", type=number, default=10, help="images per digit; default: 10")
    parser.add_argument(
        "--epochs", type=number, help="maximum number of epochs; default: 300 or 20, by dataset"
    )
    parser.add_argument("--preset", help="preset of a transformer, for goemotions")
    parser.add_argument(
        "--pooling",
        choices=("first", "mean"),
        default="mean",
        help="encoding of a text: its first token, or the mean of all",
    )
    parser.add_argument("--data-dir", help="where TensorFlow Datasets keeps its data")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/calibration"))
    args = parser.parse_args(argv)
    if args.preset is not None and args.dataset != "goemotions":
        parser.error("--preset is for --dataset goemotions")
    args.epochs = args.epochs or {"digits": 300, "goemotions": 20}[args.dataset]
    return args


def problem_of(args):
    """The problem of a dataset."""
    if args.preset is None:
        return harness.small_problem(args.dataset, ENCODERS[args.dataset], args.data_dir)
    problem = harness.text_problem(
        args.dataset,
        args.preset,
        args.data_dir,
        frozen="all",
        pooling=args.pooling,
        cache=args.out / "features",
    )
    settings = dataclasses.replace(
        problem.settings, learning_rate=LEARNING_RATE, batch_size=BATCH_SIZE
    )
    return dataclasses.replace(problem, settings=settings)


def draw(class_ids, shots, seed):
    """Row numbers of a given number of examples of each class."""
    rng = np.random.default_rng(seed)
    of_class = (np.flatnonzero(class_ids == k) for k in range(class_ids.max() + 1))
    return np.concatenate([rng.permutation(rows)[:shots] for rows in of_class])


def parts(args, problem, seed):
    """The examples of a seed: to train, to choose and fit, to conformalize and to test."""
    splits = problem.load(1024, seed)
    train, validation, test = (
        tuple(np.concatenate(arrays) for arrays in zip(*split.as_numpy_iterator(), strict=True))
        for split in (splits.train, splits.validation, splits.test)
    )
    if args.dataset == "digits":
        rows = draw(train[1], args.shots, seed)
        train = tuple(array[rows] for array in train)
    order = np.random.default_rng(seed).permutation(len(validation[1]))
    halves = np.array_split(order, 2)
    chosen, conformal = (tuple(array[rows] for array in validation) for rows in halves)
    return splits, {"train": train, "choice": chosen, "conformal": conformal, "test": test}


def trained_scores(args, loss, seed):
    """Scores and class ids of the examples outside the training part, by part."""

    def make():
        problem = problem_of(args)
        splits, examples = parts(args, problem, seed)
        keras.backend.clear_session()
        keras.utils.set_random_seed(seed)
        head = r4c.layers.DotProductHead(splits.num_classes)
        model = keras.Sequential([*problem.layers(splits), head])
        optimizer = keras.optimizers.Adam(problem.settings.learning_rate)
        model.compile(optimizer, r4c.losses.get(loss), metrics=[r4c.metrics.NDCG(5)])
        stopping = keras.callbacks.EarlyStopping(
            "val_ndcg_at_5",
            mode="max",
            patience=PATIENCE[args.dataset],
            restore_best_weights=True,
        )
        model.fit(
            *examples["train"],
            batch_size=problem.settings.batch_size,
            validation_data=examples["choice"],
            epochs=args.epochs,
            callbacks=[stopping],
            verbose=0,
        )
        return {
            name: [
                model.predict(features, batch_size=1024, verbose=0).tolist(),
                class_ids.tolist(),
            ]
            for name, (features, class_ids) in examples.items()
            if name != "train"
        }

    kind = args.shots if args.dataset == "digits" else pathlib.Path(args.preset or "small").name
    options = ("dataset", "shots", "epochs", "preset", "pooling")
    run = harness.cached(
        args.out / f"{args.dataset}-{kind}-{loss}-{args.epochs}-{seed}.json",
        {"loss": loss, "seed": seed} | {option: getattr(args, option) for option in options},
        make,
    )
    return {
        name: (tf.constant(run[name][0]), np.array(run[name][1]))
        for name in ("choice", "conformal", "test")
    }


def calibration_error(probabilities, scores, class_ids):
    """The expected calibration error of a layer of probabilities, in per cent."""
    metric = r4c.metrics.ExpectedCalibrationError(probabilities=probabilities)
    metric.update_state(class_ids, scores)
    return 100 * float(metric.result())


def likelihood(probabilities, scores, class_ids):
    """The mean negative log-likelihood of a softmax."""
    loss = r4c.losses.SoftmaxLoss(probabilities.temperature)
    return float(loss(class_ids, tf.cast(scores, tf.float64)))


def measure(loss, scored):
    """The figures of one trained model."""
    scores, class_ids = scored["test"]
    softmax = r4c.layers.Probabilities()
    fitted = r4c.calibrate(tf.identity, scored["choice"])
    own = r4c.losses.get(loss).probabilities
    figures = {
        "Top-1": float(np.mean(scores.numpy().argmax(1) == class_ids)),
        "temperature": fitted.temperature,
        "softmax": calibration_error(softmax, scores, class_ids),
        "calibrated": calibration_error(fitted, scores, class_ids),
        "softmax NLL": likelihood(softmax, scores, class_ids),
        "calibrated NLL": likelihood(fitted, scores, class_ids),
    }
    if own is not None:
        figures["own"] = calibration_error(own, scores, class_ids)
    for coverage in COVERAGES:
        for method in METHODS:
            for name, probabilities in (("calibrated", fitted), ("softmax", softmax)):
                sets = r4c.conformalize(
                    tf.identity, scored["conformal"], coverage, method, probabilities
                )(scores)
                key = f"{method} {coverage} {name}"
                right = tf.gather(sets, class_ids[:, np.newaxis], batch_dims=1)
                figures[f"{key} coverage"] = float(np.mean(right))
                figures[f"{key} size"] = float(np.mean(np.sum(sets, axis=1)))
    return figures


def report(runs):
    """The tables of all losses."""

    def cell(loss, key):
        values = [figures[key] for figures in runs[loss] if key in figures]
        return plus_minus(values) if values else "-"

    keys = {
        "Top-1": "Top-1",
        "T": "temperature",
        "ECE %, own": "own",
        "ECE %, softmax": "softmax",
        "ECE %, calibrated": "calibrated",
        "NLL, softmax": "softmax NLL",
        "NLL, calibrated": "calibrated NLL",
    }
    lines = table(
        ["loss", *keys], [[loss, *(cell(loss, key) for key in keys.values())] for loss in runs]
    )
    for coverage in COVERAGES:
        head = ["loss"]
        columns = []
        for method in METHODS:
            for name in ("calibrated", "softmax"):
                columns.append(f"{method} {coverage} {name}")
                head += [f"{method}, {name}: coverage", "size"]
        rows = [
            [loss, *(cell(loss, f"{key} {of}") for key in columns for of in ("coverage", "size"))]
            for loss in runs
        ]
        lines += ["", f"Sets for a coverage of {coverage}:", "", *table(head, rows)]
    return "\n".join(lines) + "\n"


def main(argv=None):
    """Trains what is missing, measures and writes the tables."""
    args = parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    runs = {
        loss: [measure(loss, trained_scores(args, loss, seed)) for seed in range(args.seeds)]
        for loss in args.loss
    }
    text = report(runs)
    _files.write_text(args.out / f"{args.dataset}.md", text)
    print(text)


if __name__ == "__main__":
    main()
