"""Trains classifiers as rankers: the same encoder under each loss and each head.

    python examples/classify_as_ranking.py --dataset digits --examples-per-class 5 --seeds 0 1 2

prints, for each loss and head, Top-1, Top-5 and NDCG@5 on the test part, at the weights of the
epoch with the best NDCG@5 on the validation part, as the mean over the seeds with an interval for
other test images. The first row, softmax with the dot product, is what a classifier usually is; the
last columns and the last line say what differs from it. It writes to the folder that --out names:
table.md (the same table), results.json (with the metrics of every epoch) and metrics.png.

The encoders here are small. text_classification.py and image_classification.py do the same with
pretrained ones.
"""

import argparse

from rank4class_tf import experiments

LOSSES = ("softmax_loss", "rankmax_loss", "approx_ndcg_loss", "pairwise_logistic_loss")


def parse_args(argv):
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--dataset", choices=experiments.SMALL_ENCODERS, default="digits", help="default: digits"
    )
    known = "; ".join(
        f"{name}: {', '.join(encoders)}" for name, encoders in experiments.SMALL_ENCODERS.items()
    )
    parser.add_argument("--encoder", help=f"default: the first. {known}")
    parser.add_argument(
        "--examples-per-class",
        type=experiments.positive(int),
        help="of digits, to learn from; default: all",
    )
    experiments.add_arguments(parser, LOSSES)
    args = parser.parse_args(argv)
    encoders = list(experiments.SMALL_ENCODERS[args.dataset])
    args.encoder = args.encoder or encoders[0]
    if args.encoder not in encoders:
        parser.error(f"--encoder of {args.dataset} must be one of {encoders}, not {args.encoder!r}")
    if args.examples_per_class and args.dataset != "digits":
        parser.error("--examples-per-class is for digits alone")
    return args


def main(argv=None):
    """Trains all rows and writes the table, the numbers and the plot."""
    args = parse_args(argv)
    problem = experiments.small_problem(
        args.dataset, args.encoder, args.data_dir, args.examples_per_class
    )
    experiments.compare(problem, args, LOSSES)


if __name__ == "__main__":
    main()
