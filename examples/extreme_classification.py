r"""Trains a many-class classifier by stochastic negative mining; shows the best five.

    python examples/extreme_classification.py --train train.txt --test test.txt

It reads files of the Extreme Classification Repository. Those of WordNet, to predict
the concepts above a concept from the words of its definition, come from

    python -m scripts.reproductions.snm --wordnet /usr/share/wordnet \
        --files wordnet --methods

The model follows Reddi et al. 2019: sparse features, a layer of 512 with ReLU, a linear
layer of 512, and class embeddings, all scaled to length 1. As in that paper, the rows
of the first layer and of the class embeddings use plain SGD with a large rate, and the
linear layer uses momentum with a small rate. The loss differs: the mean of the pairwise
hinge losses of the four highest negatives, with a margin of 1/3, was better on WordNet
(docs/results/snm.md).

On WordNet it prints (the last digits depend on the processor):

    precision_at_1: 0.6937
    ...
    recall_at_5: 0.5266
    ...
    classes [0, 1, 2, 7, 13809, 14168, 14273], best five [1, 2, 0, 14273, 7]
"""

import argparse
import pathlib

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import data, layers, losses, metrics, models, ops, optimizers


def build(
    num_features,
    num_classes,
    loss,
    optimizer,
    width=512,
    num_sampled=1024,
    seed=0,
    normalize=True,
):
    """The compiled model; `num_sampled` classes are sampled for each batch."""
    encoder = keras.Sequential(
        [
            keras.layers.Input((num_features,), sparse=True),
            layers.SparseDense(width),
            keras.layers.Activation("relu"),
            keras.layers.Dense(width),
        ]
    )
    model = models.ExtremeClassifier(
        encoder, num_classes, width, num_sampled, normalize=normalize, seed=seed
    )
    model.compile(
        optimizer,
        loss=loss,
        metrics=[metrics.PrecisionAtK([1, 3, 5]), metrics.RecallAtK([1, 3, 5])],
    )
    return model


def get_optimizer(learning_rate, row_multiplier, momentum):
    """The paper's optimizer; `learning_rate` is for the rows of tables."""
    return optimizers.RowwiseSGD(
        learning_rate / row_multiplier,
        momentum,
        row_momentum=False,
        row_multiplier=row_multiplier,
    )


def load(args):
    """Training and test batches, and the numbers of features and classes."""
    _, *sizes = data.read_extreme_header(args.train)
    _, *sizes_of_test = data.read_extreme_header(args.test)
    if sizes != sizes_of_test:
        raise SystemExit(
            f"--test must have the features and labels of --train, {sizes}."
        )
    parts = (
        data.extreme_classification(path, args.batch_size)
        for path in (args.train, args.test)
    )
    return *parts, *sizes


def main(argv=None):
    """Trains, saves, evaluates and shows the best classes of some examples."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add(
        "--train",
        type=pathlib.Path,
        required=True,
        help="training examples, in a random order",
    )
    add("--test", type=pathlib.Path, required=True, help="file with test examples")
    add(
        "--num-sampled",
        type=int,
        default=1024,
        help="classes to sample (default: %(default)s)",
    )
    add(
        "--width",
        type=int,
        default=512,
        help="width of encodings (default: %(default)s)",
    )
    add(
        "--batch-size",
        type=int,
        default=256,
        help="examples a step (default: %(default)s)",
    )
    add("--epochs", type=int, default=5, help="epochs (default: %(default)s)")
    add("--out", type=pathlib.Path, help=".keras file to write the trained model to")
    add(
        "--export",
        type=pathlib.Path,
        help="folder to write files for approximate_search.py to",
    )
    args = parser.parse_args(argv)

    keras.utils.set_random_seed(0)
    train, test, num_features, num_classes = load(args)
    loss = losses.OrderedWeightedLoss(
        "pairwise", ops.Scaled("hinge", 3.0), ops.TopKWeights(4)
    )
    optimizer = get_optimizer(learning_rate=10.0, row_multiplier=30_000.0, momentum=0.9)
    model = build(
        num_features, num_classes, loss, optimizer, args.width, args.num_sampled
    )
    model.fit(train, epochs=args.epochs, shuffle=False, verbose=2)
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        model.save(args.out)
    results = model.evaluate(test, return_dict=True, verbose=0)
    for name, value in results.items():
        print(f"{name}: {float(value):.4f}")
    features, class_ids = next(iter(test))
    _, best = model.top_k(features, 5)
    class_ids = tf.reshape(class_ids, [len(class_ids), -1])
    for own, found in zip(class_ids[:3].numpy(), best[:3].numpy(), strict=True):
        print(f"classes {[int(i) for i in own if i >= 0]}, best five {found.tolist()}")
    if args.export:
        args.export.mkdir(parents=True, exist_ok=True)
        model.export_classes(args.export / "classes.npy")
        queries = [model.predict_on_batch(points) for points, _ in test]
        np.save(args.export / "queries.npy", np.concatenate(queries))
    return results


if __name__ == "__main__":
    main()
