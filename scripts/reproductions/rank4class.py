"""Compares losses and heads over several seeds: Tables 7 to 12 of Rank4Class.

    python -m scripts.reproductions.rank4class --tables paper --data-dir data --out out/rank4class
    python -m scripts.reproductions.rank4class --tables goemotions:max_pooling digits:convolution

A table is DATASET:ENCODER. The encoder is a small one, which is trained with the head, or a preset
of keras-hub (or a local folder with one), which is fine-tuned. With --frozen N, the first N layers
of the preset are not trained; with --frozen all, only the head is trained. `paper` stands for the
paper's six tables.

Protocol: the learning rate of each loss is the one with the best NDCG@5 on the validation split,
with the first head and the first seed. The loss is then trained at this rate with every head and
seed. In each run, the weights of the epoch with the best validation NDCG@5 are tested once.

Every finished run is a file in the folder that --out names. A second call with the same settings
resumes there; a call with other settings replaces the runs. tables.md holds the mean over the
seeds, with the standard deviation if there are at least two. The best of a metric is bold, the
second and third best are in italics.
"""

import argparse
import pathlib
import statistics

from rank4class_tf import _files
from scripts import command_line, tables
from scripts.reproductions import harness
from scripts.reproductions.harness import METRICS

LOSSES = {
    "softmax_loss": "SoftmaxCE",
    "pairwise_logistic_loss": "PairLogLoss",
    "approx_ndcg_loss": "ApproxNDCG",
    "gumbel_approx_ndcg_loss": "Gumbel-ApproxNDCG",
    "mean_squared_loss": "MSE",
    "rankmax_loss": "Rankmax",
}
HEADS = {"dot_product": "dot product", "latent_cross": "LC+MLP", "concat": "Concat+MLP"}
PAPER = (
    "goemotions:bert_base_en_uncased",
    "goemotions:electra_base_discriminator_uncased_en",
    "mind:bert_base_en_uncased",
    "mind:electra_base_discriminator_uncased_en",
    "imagenet2012:resnet_50_imagenet",
    "cifar10:vgg_16_imagenet",
)
DATASETS = {
    *harness.SMALL_ENCODERS,
    *harness.TEXT_DATASETS,
    *harness.IMAGE_DATASETS,
}


def table_name(text):
    """Reads DATASET:ENCODER."""
    dataset, _, encoder = text.partition(":")
    if text == "paper":
        return text
    if dataset not in DATASETS or not encoder:
        raise argparse.ArgumentTypeError(
            f"must be paper or DATASET:ENCODER with a dataset of {sorted(DATASETS)}, not {text!r}"
        )
    return text


def parse_args(argv=None):
    """Reads the command line."""
    parser = command_line.parser(__spec__, description=__doc__)
    parser.add_argument("--tables", nargs="+", type=table_name, default=["goemotions:max_pooling"])
    parser.add_argument("--losses", nargs="+", choices=LOSSES, default=list(LOSSES))
    parser.add_argument("--heads", nargs="+", choices=HEADS, default=list(HEADS))
    parser.add_argument("--seeds", nargs="+", type=command_line.seed, default=[0, 1, 2])
    parser.add_argument(
        "--learning-rates",
        nargs="+",
        type=command_line.positive(float),
        help="rates to try instead of the default: 0.3, 1 and 3 times --learning-rate",
    )
    parser.add_argument(
        "--units",
        nargs="+",
        type=command_line.positive(int),
        default=[64, 64],
        help="widths of the hidden layers of MLP heads",
    )
    parser.add_argument(
        "--frozen",
        type=harness.frozen,
        default=0,
        help="number of a preset's layers to freeze, or all",
    )
    parser.add_argument(
        "--pooling", choices=("first", "mean"), default="first", help="pooling of a transformer"
    )
    harness.add_settings(parser)
    parser.add_argument("--data-dir", help="folder of the data")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/rank4class"))
    args = parser.parse_args(argv)
    args.tables = list(
        dict.fromkeys(
            name for table in args.tables for name in (PAPER if table == "paper" else (table,))
        )
    )
    of_mind = [name for name in args.tables if name.startswith("mind:")]
    if of_mind and args.data_dir is None:
        parser.error(f"--data-dir must be the folder of MIND's files for {', '.join(of_mind)}")
    return args


def problem_of(table, args):
    """The problem of a table."""
    dataset, _, encoder = table.partition(":")
    if encoder in harness.SMALL_ENCODERS.get(dataset, ()):
        return harness.small_problem(dataset, encoder, args.data_dir)
    cache = args.out / "features"
    if dataset in harness.IMAGE_DATASETS:
        return harness.image_problem(dataset, encoder, args.data_dir, args.frozen, cache)
    if dataset not in harness.TEXT_DATASETS:
        known = ", ".join(harness.SMALL_ENCODERS[dataset])
        raise SystemExit(f"The encoder of {dataset} must be one of {known}, not {encoder!r}")
    return harness.text_problem(
        dataset, encoder, args.data_dir, None, args.frozen, args.pooling, cache
    )


def learning_rates(settings, args):
    """The learning rates to choose from."""
    rate = settings.learning_rate
    return args.learning_rates or [float(f"{x * rate:.2g}") for x in (0.3, 1, 3)]


def runs_of(problem, args):
    """The runs of a table, and the learning rate of each loss, chosen on the validation split."""
    settings = harness.with_settings(problem.settings, args)
    choices = learning_rates(settings, args)
    described = problem.description
    names = [described["dataset"], pathlib.Path(described["encoder"]).name]
    if described.get("frozen"):
        names.append(f"frozen_{described['frozen']}")
    runs = harness.Runs(problem, settings, args.out, "-".join(names), args.units)
    return runs, {
        loss: runs.best(loss, args.heads[0], choices, args.seeds[0])[0] for loss in args.losses
    }


def table(cells, rates, seeds, args, title):
    """The Markdown table; `cells` maps metric, head and loss to the values over the seeds."""
    rows = []
    for metric in METRICS:
        means = {key: statistics.mean(values) for key, values in cells.items() if key[0] == metric}
        ranked = sorted(set(means.values()), reverse=True)
        for head in args.heads:
            row = [metric, HEADS[head]]
            for loss in args.losses:
                text = tables.plus_minus(cells[metric, head, loss], digits=4)
                place = ranked.index(means[metric, head, loss])
                mark = {0: "**", 1: "*", 2: "*"}.get(place, "")
                row.append(f"{mark}{text}{mark}")
            rows.append(row)
    head = ["Metric", "Interaction", *(LOSSES[loss] for loss in args.losses)]
    lines = tables.table(head, rows, len(args.losses))
    chosen = ", ".join(f"{LOSSES[loss]} {rate:g}" for loss, rate in rates.items())
    lines += ["", f"{title}, seeds {seeds}, learning rates: {chosen}."]
    return "\n".join(lines) + "\n"


def described_in_words(description):
    """The title of a table."""
    text = f"{description['dataset']}, encoder {pathlib.Path(description['encoder']).name}"
    frozen = description.get("frozen", 0)
    return text if frozen == 0 else f"{text} with {frozen} of its layers frozen"


def main(argv=None):
    """Trains what is missing and writes the tables."""
    args = parse_args(argv)
    problems = {name: problem_of(name, args) for name in args.tables}
    args.out.mkdir(parents=True, exist_ok=True)
    texts = {}
    for name, problem in problems.items():
        runs, rates = runs_of(problem, args)
        title = described_in_words(problem.description)
        cells = {}
        for index, seed in enumerate(args.seeds):
            for head in args.heads:
                for loss in args.losses:
                    test = runs.get(loss, head, rates[loss], seed)["test"]
                    for metric, value in test.items():
                        cells.setdefault((metric, head, loss), []).append(value)
            texts[name] = table(cells, rates, args.seeds[: index + 1], args, title)
            _files.write_text(args.out / "tables.md", "\n".join(texts.values()))
    print("\n".join(texts.values()))


if __name__ == "__main__":
    main()
