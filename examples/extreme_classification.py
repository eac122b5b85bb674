"""Trains a classifier for many classes by stochastic negative mining, and shows the best five.

    python examples/extreme_classification.py --train train.txt --test test.txt

The files have the format of the Extreme Classification Repository. Without files, artificial
points with a long tail of labels stand in. The model is that of Reddi et al. 2019: sparse
features, a layer of 512 with ReLU, a linear one of 512, and class embeddings, all scaled to
length 1.
"""

import argparse
import pathlib
import tempfile

from tensorflow import keras

from rank4class_tf import data, layers, losses, metrics, models, ops, optimizers


def planted_files(folder):
    """Writes artificial points for training and testing, and returns the two files."""
    paths = []
    for name, points, seed in (("train.txt", 20_000, 1), ("test.txt", 2_000, 2)):
        paths.append(pathlib.Path(folder, name))
        data.write_extreme_classification(
            paths[-1], data.planted_points(points, 5_000, 2_000, seed), 5_000, 2_000
        )
    return paths


def parse_args(argv=None):
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--train", type=pathlib.Path, help="a file to learn from")
    parser.add_argument("--test", type=pathlib.Path, help="a file to report")
    parser.add_argument("--num-sampled", type=int, default=1024, help="classes sampled, B")
    parser.add_argument("--mined", type=int, default=1, help="the highest that count, k'")
    parser.add_argument("--width", type=int, default=512, help="of encodings and embeddings")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--learning-rate", type=float, default=0.1, help="of Adagrad")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=pathlib.Path, help="a file for the trained model, .keras")
    return parser.parse_args(argv)


def main(argv=None):
    """Trains, evaluates and saves."""
    args = parse_args(argv)
    keras.utils.set_random_seed(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        train_file, test_file = (args.train, args.test) if args.train else planted_files(folder)
        _, num_features, num_classes = data.read_header(train_file)
        train = data.extreme_classification(train_file, args.batch_size)
        test = data.extreme_classification(test_file, args.batch_size)

        encoder = keras.Sequential(
            [
                keras.layers.Input((num_features,), sparse=True),
                layers.SparseDense(args.width),
                keras.layers.Activation("relu"),
                keras.layers.Dense(args.width),
            ]
        )
        model = models.ExtremeClassifier(
            encoder, num_classes, args.width, num_sampled=args.num_sampled, seed=args.seed
        )
        model.compile(
            optimizers.RowwiseAdagrad(args.learning_rate),
            loss=losses.OrderedWeightedLoss("binary", weights=ops.TopKWeights(args.mined)),
            metrics=[metrics.PrecisionAtK([1, 3, 5]), metrics.RecallAtK([1, 3, 5])],
        )
        # The order is that of the file; one that is not random should be brought into such.
        model.fit(train, epochs=args.epochs, shuffle=False, verbose=2)
        results = model.evaluate(test, return_dict=True, verbose=0)
        for name, value in results.items():
            print(f"{name}: {float(value):.4f}")
        features, class_ids = next(iter(test))
        _, best = model.top_k(features, 5)
        for own, found in zip(class_ids[:3].numpy(), best[:3].numpy(), strict=True):
            print(f"classes {[int(i) for i in own if i >= 0]}, best five {found.tolist()}")
    if args.out:
        model.save(args.out)
        print(f"model: {args.out}")


if __name__ == "__main__":
    main()
