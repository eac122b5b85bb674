"""Trains a pretrained convolutional network under each loss and each head, to classify images.

    python examples/image_classification.py --preset vgg_16_imagenet --dataset cifar10
    python examples/image_classification.py --preset resnet_50_imagenet --dataset imagenet2012

have the settings of the Rank4Class paper: batches of 64, 50 epochs, Adam. They need the `encoders`
extra and Keras 3, and print and write what classify_as_ranking.py does. TensorFlow Datasets
downloads CIFAR-10; ImageNet's files must be fetched by hand.

Where that is too much: --frozen N trains what is above the first N blocks, without augmentation,
and what these give is computed once and kept, under --out; --frozen all trains the head alone.
--loss and --head choose rows, and --resume goes on where an earlier call was interrupted.
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
        default="vgg_16_imagenet",
        help="of keras-hub, such as resnet_50_imagenet, or a local folder; default: "
        "vgg_16_imagenet",
    )
    parser.add_argument(
        "--dataset", choices=experiments.IMAGE_DATASETS, default="cifar10", help="default: cifar10"
    )
    parser.add_argument(
        "--frozen", type=experiments.frozen, default=0, help="blocks, or all; default: 0"
    )
    experiments.add_arguments(parser)
    return parser.parse_args(argv)


def main(argv=None):
    """Trains all rows and writes the table, the numbers and the plot."""
    args = parse_args(argv)
    problem = experiments.image_problem(
        args.dataset, args.preset, args.data_dir, args.frozen, args.out / "features"
    )
    experiments.compare(problem, args)


if __name__ == "__main__":
    main()
