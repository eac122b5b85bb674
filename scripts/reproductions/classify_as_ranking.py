"""Trains a small classifier of digits as a ranker: the same encoder with each loss and each head.

    python -m scripts.reproductions.classify_as_ranking --examples-per-class 5 --seeds 0 1 2

prints Top-1, Top-5 and NDCG@5 on the test part for each loss and head: the mean over the seeds with
an interval for other test images. Each run is tested with the weights of its best epoch, by NDCG@5
on the validation part. The first row, softmax with the dot product, is the usual classifier. The
last columns and the last line compare the others with it. The folder that --out names gets table.md
(the same table), results.json (with the metrics of every epoch) and metrics.png.
"""

import dataclasses
import itertools
import pathlib

from scripts import command_line
from scripts.reproductions import harness

LOSSES = ("softmax_loss", "rankmax_loss", "approx_ndcg_loss", "pairwise_logistic_loss")
HEADS = ("dot_product", "latent_cross", "concat")
BASELINE = (LOSSES[0], HEADS[0])


def parse_args(argv):
    """Reads the command line."""
    parser = command_line.parser(__spec__, description=__doc__)
    parser.add_argument(
        "--examples-per-class",
        type=command_line.positive(int),
        help="training examples; default: all",
    )
    for name, known in (("loss", LOSSES), ("head", HEADS)):
        parser.add_argument(f"--{name}", nargs="+", choices=known, default=known)
    parser.add_argument("--seeds", type=command_line.seed, nargs="+", default=[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out"))
    harness.add_settings(parser)
    return parser.parse_args(argv)


def main(argv=None):
    """Trains all rows and writes the table, the numbers and the plot."""
    args = parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    problem = harness.small_problem(
        "digits", "dense_layers", examples_per_class=args.examples_per_class
    )
    settings = harness.with_settings(problem.settings, args)
    runs, rows = [], []
    for loss, head in dict.fromkeys([BASELINE, *itertools.product(args.loss, args.head)]):
        of_row = []
        for seed in dict.fromkeys(args.seeds):
            seeded = dataclasses.replace(settings, seed=seed)
            of_row.append(harness.train(problem, seeded, loss, head) | {"seed": seed})
            print(f"trained: {loss}, {head}, seed {seed}", flush=True)
        rows.append(harness.Row(loss, head, harness.as_evaluation(of_row)))
        runs += [{key: run[key] for key in run if key != "lists"} for run in of_row]
    described = {**problem.description, **dataclasses.asdict(settings), "rows": runs}
    del described["seed"]
    text = f"{harness.markdown(rows)}\n{harness.verdict(rows)}\n"
    title = f"Test part of digits, 95 % intervals, mean of the seeds {args.seeds}:"
    print(f"\n{title}\n")
    harness.write_report(
        args.out,
        text,
        described,
        lambda path: harness.plot(rows, path),
        "metrics.png",
        name="table.md",
    )
    print(f"The table, the numbers and the plot are in {args.out}.")


if __name__ == "__main__":
    main()
