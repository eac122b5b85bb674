"""Five losses by three heads, several seeds: the comparison of Rank4Class, Tables 7 to 12.

    python scripts/reproduce_rank4class.py --dataset goemotions --data-dir data --out out/rank4class

Protocol: for each loss the learning rate is the one with the best NDCG@5 on the validation split,
with the first head and the first seed. With it the loss is trained under every head and seed. Of
each run the weights of the epoch with the best validation NDCG@5 are tested once. The encoders are
small and learn with the rest; the paper fine-tunes BERT and ELECTRA.

Every finished run is a file in the folder that --out names; a second call with the same settings
goes on from there, one with others puts its runs in their place. table.md holds the mean over the
seeds, with the standard deviation from two seeds on; the best of a metric is bold, the second and
third best are in italics.
"""

import argparse
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from examples.classify_as_ranking import (
    ENCODER_HELP,
    METRICS,
    SELECT_BY,
    TASKS,
    positive,
    train,
    with_encoder,
)
from rank4class_tf import _files
from scripts import experiments

LOSSES = {
    "softmax_loss": "SoftmaxCE",
    "pairwise_logistic_loss": "PairLogLoss",
    "approx_ndcg_loss": "ApproxNDCG",
    "gumbel_approx_ndcg_loss": "Gumbel-ApproxNDCG",
    "mean_squared_loss": "MSE",
}
HEADS = {"dot_product": "dot product", "latent_cross": "LC+MLP", "concat": "Concat+MLP"}


def parse_args(argv=None):
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", choices=TASKS, default="goemotions")
    parser.add_argument("--encoder", help=ENCODER_HELP)
    parser.add_argument("--losses", nargs="+", choices=LOSSES, default=list(LOSSES))
    parser.add_argument("--heads", nargs="+", choices=HEADS, default=list(HEADS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument(
        "--learning-rates", nargs="+", type=positive(float), default=[3e-4, 1e-3, 3e-3]
    )
    parser.add_argument("--units", nargs="+", type=positive(int), default=[64, 64], help="of MLPs")
    parser.add_argument("--epochs", type=positive(int), help="at most; default: by dataset")
    parser.add_argument("--batch-size", type=positive(int), help="default: by dataset")
    parser.add_argument("--data-dir", help="where TensorFlow Datasets keeps its data")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/rank4class"))
    return with_encoder(parser, parser.parse_args(argv))


class Runs:
    """The runs of an experiment, each made once and kept in a file."""

    def __init__(self, args):
        self._args = args
        args.out.mkdir(parents=True, exist_ok=True)

    def get(self, loss, head, learning_rate, seed):
        """The results of a run, made now if it is new."""
        args = self._args
        settings = {
            "dataset": args.dataset,
            "encoder": args.encoder,
            "learning_rate": learning_rate,
            "seed": seed,
            "units": args.units if head != "dot_product" else None,
            "epochs": args.epochs,
            "batch_size": args.batch_size,
        }
        of_head = {} if settings["units"] is None else {"units": settings["units"]}
        of_run = argparse.Namespace(data_dir=args.data_dir, **settings)
        names = (args.dataset, args.encoder, loss, head, f"{learning_rate:g}", str(seed))
        return experiments.cached(
            args.out / f"{'-'.join(names)}.json",
            {"loss": loss, "head": head, **settings},
            lambda: train(TASKS[args.dataset], of_run, loss, head, **of_head),
        )


def tuned_learning_rates(runs, args):
    """The learning rate of each loss, chosen on the validation split."""

    def validation(loss, learning_rate):
        run = runs.get(loss, args.heads[0], learning_rate, args.seeds[0])
        return max(run["validation"][SELECT_BY])

    return {
        loss: max(args.learning_rates, key=lambda rate, loss=loss: validation(loss, rate))
        for loss in args.losses
    }


def table(cells, rates, seeds, args):
    """The Markdown table; `cells` maps metric, head and loss to the values over the seeds."""
    lines = [
        "| Metric | Interaction | " + " | ".join(LOSSES[loss] for loss in args.losses) + " |",
        "|---|---|" + "---:|" * len(args.losses),
    ]
    for metric in METRICS:
        means = {key: statistics.mean(values) for key, values in cells.items() if key[0] == metric}
        ranked = sorted(set(means.values()), reverse=True)
        for head in args.heads:
            row = []
            for loss in args.losses:
                mean, values = means[metric, head, loss], cells[metric, head, loss]
                text = f"{mean:.4f}"
                if len(values) > 1:
                    text += f" ± {statistics.stdev(values):.4f}"
                mark = {0: "**", 1: "*", 2: "*"}.get(ranked.index(mean), "")
                row.append(f"{mark}{text}{mark}")
            lines.append(f"| {metric} | {HEADS[head]} | " + " | ".join(row) + " |")
    chosen = ", ".join(f"{LOSSES[loss]} {rate:g}" for loss, rate in rates.items())
    lines += [
        "",
        f"{args.dataset}, encoder {args.encoder}, seeds {seeds}, learning rates: {chosen}.",
    ]
    return "\n".join(lines) + "\n"


def main(argv=None):
    """Trains what is missing and writes the table."""
    args = parse_args(argv)
    runs = Runs(args)
    rates = tuned_learning_rates(runs, args)
    cells = {}
    for index, seed in enumerate(args.seeds):
        for head in args.heads:
            for loss in args.losses:
                test = runs.get(loss, head, rates[loss], seed)["test"]
                for metric, value in test.items():
                    cells.setdefault((metric, head, loss), []).append(value)
        text = table(cells, rates, args.seeds[: index + 1], args)
        _files.write_text(args.out / "table.md", text)
    print(text)


if __name__ == "__main__":
    main()
