"""Trains a pretrained transformer under each loss and each head, to put texts into classes.

    python examples/text_classification.py --preset bert_base_en_uncased --dataset goemotions

has the settings of the Rank4Class paper: texts of 32 tokens (128 for MIND), batches of 32, Adam
with a rate that rises over the first tenth of 100,000 steps and then falls, gradients of a norm of
at most 1. It needs the `encoders` extra and Keras 3, and prints and writes what
classify_as_ranking.py does.

Where that is too much: --frozen N trains the layers above the first N, and what these give is
computed once and kept, under --out; --frozen all trains the head alone. --loss and --head choose
rows, --epochs fewer epochs, and --resume goes on where an earlier call was interrupted. --precision
mixed_float16 is for GPUs, mixed_bfloat16 for newer ones and for TPUs.
"""

import argparse

from rank4class_tf import experiments


def parse_args(argv):
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--preset",
        default="bert_base_en_uncased",
        help="of keras-hub, such as electra_base_discriminator_uncased_en, or a local folder, also "
        "of Hugging Face. Default: bert_base_en_uncased",
    )
    parser.add_argument(
        "--dataset",
        choices=experiments.TEXT_DATASETS,
        default="goemotions",
        help="for mind, --data-dir is the folder of its files. Default: goemotions",
    )
    parser.add_argument(
        "--sequence-length", type=experiments.positive(int), help="default: by dataset"
    )
    parser.add_argument(
        "--pooling",
        choices=("first", "mean"),
        default="first",
        help="the backbone's own, of the first token, or the mean of the tokens; default: first",
    )
    parser.add_argument(
        "--frozen", type=experiments.frozen, default=0, help="layers, or all; default: 0"
    )
    experiments.add_arguments(parser)
    args = parser.parse_args(argv)
    if args.dataset == "mind" and args.data_dir is None:
        parser.error("--data-dir must be the folder of MIND's files for --dataset mind")
    return args


def main(argv=None):
    """Trains all rows and writes the table, the numbers and the plot."""
    args = parse_args(argv)
    problem = experiments.text_problem(
        args.dataset,
        args.preset,
        args.data_dir,
        args.sequence_length,
        args.frozen,
        args.pooling,
        args.out / "features",
    )
    experiments.compare(problem, args)


if __name__ == "__main__":
    main()
