"""Trains classifiers as rankers: the same encoder under each loss and each head.

    python examples/classify_as_ranking.py --dataset digits --out out/digits

prints, for each loss and head, Top-1, Top-5 and NDCG@5 on the test split, at the weights of the
epoch with the best NDCG@5 on the validation split. It writes to the folder that --out names:
table.md (the same table), results.json (with the metrics of every epoch) and metrics.png (a plot of
them). The first row, softmax with the dot product, is what a classifier usually is.
"""

import argparse
import dataclasses
import itertools
import json
import pathlib
from collections.abc import Callable

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from tensorflow import keras

from rank4class_tf import data, layers, losses, metrics

LOSSES = ("softmax_loss", "rankmax_loss", "approx_ndcg_loss", "pairwise_logistic_loss")
HEADS = ("dot_product", "latent_cross", "concat")
BASELINE = (LOSSES[0], HEADS[0])
METRICS = {"Top-1": "top_k_accuracy@1", "Top-5": "top_k_accuracy@5", "NDCG@5": "ndcg@5"}
SELECT_BY = "NDCG@5"
PATIENCE = 5


@dataclasses.dataclass(frozen=True)
class Task:
    """A dataset, the encoders that fit it by name, and how long and in what batches to train."""

    load: Callable
    encoders: dict[str, Callable]
    epochs: int
    batch_size: int


def dense_layers(splits):
    """Two dense layers over the pixels."""
    del splits
    return [keras.layers.Dense(64, "relu"), keras.layers.Dense(64, "relu")]


def convolution(splits):
    """A convolution of the image and a dense layer."""
    del splits
    return [
        keras.layers.Reshape((8, 8, 1)),
        keras.layers.Conv2D(32, 3, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(64, "relu"),
    ]


def max_pooling(splits):
    """The maximum over the comment of word embeddings, which are learned with the rest."""
    return [
        keras.layers.Embedding(len(splits.vocabulary), 128),
        keras.layers.Dropout(0.3),
        keras.layers.GlobalMaxPooling1D(),
        keras.layers.LayerNormalization(),
        keras.layers.Dropout(0.5),
        keras.layers.Dense(128, "relu"),
    ]


def gru(splits):
    """A recurrent layer that reads the comment both ways."""
    return [
        keras.layers.Embedding(len(splits.vocabulary), 128),
        keras.layers.Dropout(0.3),
        keras.layers.Bidirectional(keras.layers.GRU(64, return_sequences=True)),
        keras.layers.GlobalMaxPooling1D(),
        keras.layers.Dropout(0.5),
    ]


def load_digits(args, batch_size):
    """Handwritten digits; they come with scikit-learn."""
    return data.digits(batch_size=batch_size, seed=args.seed)


def load_goemotions(args, batch_size):
    """Comments with one emotion; TensorFlow Datasets downloads them."""
    return data.goemotions(args.data_dir, batch_size=batch_size, seed=args.seed)


TASKS = {
    "digits": Task(
        load_digits,
        {"dense_layers": dense_layers, "convolution": convolution},
        epochs=40,
        batch_size=32,
    ),
    "goemotions": Task(
        load_goemotions, {"max_pooling": max_pooling, "gru": gru}, epochs=20, batch_size=256
    ),
}
ENCODER_HELP = "default: the first. " + "; ".join(
    f"{name}: {', '.join(task.encoders)}" for name, task in TASKS.items()
)


def parse_args(argv):
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", choices=TASKS, default="digits", help="default: digits")
    parser.add_argument("--encoder", help=ENCODER_HELP)
    for name, known in (("loss", LOSSES), ("head", HEADS)):
        parser.add_argument(
            f"--{name}",
            nargs="+",
            choices=(*known, "all"),
            default=["all"],
            help=f"one, several or all (the default), next to the baseline {BASELINE}",
        )
    parser.add_argument(
        "--epochs",
        type=positive(int),
        help=f"at most; a run ends {PATIENCE} epochs after its best one. Default: by dataset",
    )
    parser.add_argument("--batch-size", type=positive(int), help="default: by dataset")
    parser.add_argument(
        "--learning-rate",
        type=positive(float),
        default=1e-3,
        help="of Adam, the same for all losses: its steps do not depend on the scale of a loss. "
        "Default: 0.001",
    )
    parser.add_argument("--seed", type=int, default=0, help="of data order and weights; default: 0")
    parser.add_argument("--data-dir", help="where TensorFlow Datasets keeps its data")
    parser.add_argument(
        "--out", type=pathlib.Path, default="out", help="folder of the results; default: out"
    )
    return with_encoder(parser, parser.parse_args(argv))


def with_encoder(parser, args):
    """Returns `args` with the dataset's first encoder if none is named; ends if it has no such."""
    known = list(TASKS[args.dataset].encoders)
    args.encoder = args.encoder or known[0]
    if args.encoder not in known:
        parser.error(f"--encoder of {args.dataset} must be one of {known}, not {args.encoder!r}")
    return args


def positive(kind):
    """Returns a reader of numbers > 0 for argparse."""

    def read(text):
        try:
            value = kind(text)
        except ValueError:
            value = 0
        if not 0 < value < float("inf"):
            raise argparse.ArgumentTypeError(f"must be a finite {kind.__name__} > 0, not {text!r}")
        return value

    return read


def rows_to_train(chosen_losses, chosen_heads):
    """Returns the (loss, head) pairs, the baseline first."""
    pairs = itertools.product(
        LOSSES if "all" in chosen_losses else chosen_losses,
        HEADS if "all" in chosen_heads else chosen_heads,
    )
    return list(dict.fromkeys([BASELINE, *pairs]))


def train(task, args, loss, head, **head_arguments):
    """Trains one model and returns its row of results."""
    # Each row starts anew, so that it does not depend on the rows before it.
    keras.backend.clear_session()
    keras.utils.set_random_seed(args.seed)
    splits = task.load(args, args.batch_size or task.batch_size)
    columns = {column: metrics.get(name) for column, name in METRICS.items()}
    model = keras.Sequential(
        [
            *task.encoders[args.encoder](splits),
            layers.get_head(head, classes=splits.num_classes, **head_arguments),
        ]
    )
    model.compile(
        keras.optimizers.Adam(args.learning_rate),
        loss=losses.get(loss),
        metrics=list(columns.values()),
    )
    stopping = keras.callbacks.EarlyStopping(
        monitor=f"val_{columns[SELECT_BY].name}",
        mode="max",
        patience=PATIENCE,
        restore_best_weights=True,
    )
    history = model.fit(
        splits.train,
        validation_data=splits.validation,
        epochs=args.epochs or task.epochs,
        callbacks=[stopping],
        shuffle=False,  # the dataset shuffles itself
        verbose=1,
    ).history
    test = model.evaluate(splits.test, return_dict=True, verbose=0)
    return {
        "loss": loss,
        "head": head,
        "best_epoch": stopping.best_epoch + 1,
        "test": {column: float(test[metric.name]) for column, metric in columns.items()},
        "validation": {
            column: [float(value) for value in history[f"val_{metric.name}"]]
            for column, metric in columns.items()
        },
    }


def markdown(rows):
    """Returns the table of the test metrics."""
    lines = [
        "| loss | head | " + " | ".join(METRICS) + " | best epoch |",
        "|---|---|" + "---:|" * (len(METRICS) + 1),
    ]
    for row in rows:
        values = " | ".join(f"{row['test'][column]:.4f}" for column in METRICS)
        lines.append(f"| {row['loss']} | {row['head']} | {values} | {row['best_epoch']} |")
    return "\n".join(lines) + "\n"


def plot(rows, path):
    """Draws the validation metrics over the epochs: a column per metric, a row per head."""
    heads = list(dict.fromkeys(row["head"] for row in rows))
    figure = Figure(figsize=(4.5 * len(METRICS), 3.2 * len(heads)), layout="constrained")
    grid = figure.subplots(len(heads), len(METRICS), sharex=True, sharey="col", squeeze=False)
    handles = {}
    for head, panels in zip(heads, grid, strict=True):
        for column, panel in zip(METRICS, panels, strict=True):
            for row in (row for row in rows if row["head"] == head):
                values, best = row["validation"][column], row["best_epoch"]
                color = f"C{LOSSES.index(row['loss'])}"
                (line,) = panel.plot(range(1, len(values) + 1), values, color=color)
                panel.plot(best, values[best - 1], "o", color=color)
                handles[row["loss"]] = line
            panel.set_title(f"{column}, {head} head")
            panel.xaxis.set_major_locator(MaxNLocator(integer=True))
            panel.grid(alpha=0.3)
    for panel in grid[-1]:
        panel.set_xlabel("epoch")
    figure.suptitle("Validation metrics; a dot marks the epoch whose weights are kept")
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=len(handles))
    figure.savefig(path, dpi=120)


def main(argv=None):
    """Trains all rows and writes the table, the numbers and the plot."""
    args = parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    task = TASKS[args.dataset]
    rows = []
    for loss, head in rows_to_train(args.loss, args.head):
        print(f"\n{args.dataset}: {loss} with the {head} head", flush=True)
        rows.append(train(task, args, loss, head))

    settings = {
        "dataset": args.dataset,
        "encoder": args.encoder,
        "seed": args.seed,
        "epochs": args.epochs or task.epochs,
        "batch_size": args.batch_size or task.batch_size,
        "learning_rate": args.learning_rate,
    }
    table = markdown(rows)
    table_path, results_path, plot_path = (
        args.out / name for name in ("table.md", "results.json", "metrics.png")
    )
    table_path.write_text(table)
    results_path.write_text(json.dumps({**settings, "rows": rows}, indent=2) + "\n")
    plot(rows, plot_path)
    print(f"\nTest split of {args.dataset}, seed {args.seed}:\n\n{table}")
    print(f"table:   {table_path}\nnumbers: {results_path}\nplot:    {plot_path}")


if __name__ == "__main__":
    main()
