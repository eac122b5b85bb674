"""Losses × heads, as in Tables 7 to 12 of Rank4Class, each pair tuned like the others.

    python -m scripts.reproductions.rank4class --task cifar10 --file FILE
    python -m scripts.reproductions.rank4class --task banking77 --file CSV --per-class 5

`dot product of 10 h` and `from 0` tell whether another head only has a better scale, or
another start. The paper fine-tunes BERT, ELECTRA, ResNet-50 and VGG-16 on a GPU; here
the losses and heads act on frozen features, or on a small encoder that is trained with
them. The full size takes one to four hours on two cores.
"""

import argparse
from collections.abc import Callable

import numpy as np
from tensorflow import keras

from rank4class_tf import layers, losses
from scripts.reproductions import tasks

LOSSES = {
    "SoftmaxCE": losses.SoftmaxLoss,
    "PairLogLoss": losses.PairwiseLogisticLoss,
    "ApproxNDCG": losses.ApproxNDCGLoss,
    "Gumbel-ApproxNDCG": losses.GumbelApproxNDCGLoss,
    "MSE": losses.MeanSquaredLoss,
    "Rankmax": losses.RankmaxLoss,
    "Sparsemax": losses.SparsemaxLoss,
}
HEADS: dict[str, Callable[[int], keras.layers.Layer]] = {
    "dot product": layers.DotProductHead,
    "dot product of 10 h": lambda number: keras.Sequential(
        [keras.layers.Rescaling(10.0), layers.DotProductHead(number)]
    ),
    "dot product from 0": lambda number: layers.DotProductHead(
        layers.ClassTable(number, use_bias=True, initializer="zeros")
    ),
    "LC+MLP": lambda number: layers.LatentCrossHead(number, units=(64, 64)),
    "Concat+MLP": lambda number: layers.ConcatHead(number, units=(64, 64)),
    "cosine": layers.CosineHead,
    "bilinear": layers.BilinearHead,
}
PAPERS = ["dot product", "LC+MLP", "Concat+MLP"]


def main(args: argparse.Namespace) -> None:
    """Compares all pairs with softmax and the dot product."""
    task = tasks.load(args.task, args.file, args.data_dir, args.hidden)
    if args.per_class:
        task = task.thinned(
            [args.per_class] * task.num_classes, np.random.default_rng(0)
        )
    candidates = {
        f"{loss}, {head}": (LOSSES[loss](), HEADS[head](task.num_classes))
        for head in args.heads
        for loss in args.losses
    }
    metrics = ["top_k_accuracy_at_1", "top_k_accuracy_at_5", "ndcg_at_5"]
    columns = {"task": args.task, "per_class": args.per_class, "hidden": args.hidden}
    tasks.compare(task, args, candidates, metrics, columns)


if __name__ == "__main__":
    quick = {"losses": ["SoftmaxCE", "Rankmax"], "heads": ["dot product", "LC+MLP"]}
    parser = tasks.parser(__spec__, __doc__, quick)
    parser.add_names("--losses", LOSSES, "rows")
    parser.add_argument(
        "--heads", nargs="+", choices=HEADS, default=PAPERS, help="rows"
    )
    parser.add_value("--per-class", int, 0, "examples a class; 0 for all")
    main(parser.parse_args())
