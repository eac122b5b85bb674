"""Trains a classifier for many classes by stochastic negative mining, and shows the best five.

    python examples/extreme_classification.py --dataset wordnet --wordnet-dir /usr/share/wordnet
    python examples/extreme_classification.py --train train.txt --test test.txt

Datasets are `planted`, artificial points with a long tail of labels; `wordnet`, the concepts above
a concept, from the words that explain it; `words`, a word held out of a comment of GoEmotions; and
files of the format of the Extreme Classification Repository. The model is that of Reddi et al.
2019: sparse features, a layer of 512 with ReLU, a linear one of 512, and class embeddings, all
scaled to length 1.

It trains as in that paper: the rows of the first layer and of the class embeddings by plain SGD at
a large rate, the linear layer with momentum at a small one. The loss differs: the mean of the
pairwise hinge losses of the four highest negatives, with a margin of 1/3, did better on WordNet
(docs/results/snm.md). The paper's is `--kind binary --scale 1 --mined 1 --learning-rate 30`.
"""

import argparse
import dataclasses
import pathlib
import tempfile

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import (
    _files,
    data,
    experiments,
    layers,
    losses,
    metrics,
    models,
    ops,
    optimizers,
)


@dataclasses.dataclass(frozen=True)
class Task:
    """Batches of sparse features and class ids, to learn from, to choose by and to report."""

    train: tf.data.Dataset
    validation: tf.data.Dataset
    test: tf.data.Dataset
    num_features: int
    num_classes: int


def files(train, validation, test, batch_size):
    """Files of the Extreme Classification Repository, in the order of their lines."""
    _, num_features, num_classes = data.read_extreme_header(train)
    parts = [data.extreme_classification(path, batch_size) for path in (train, validation, test)]
    return Task(*parts, num_features, num_classes)


def planted(folder, batch_size, sizes=(20_000, 2_000, 2_000), num_features=5_000, num_labels=2_000):
    """Artificial points, written to files in a folder."""
    paths = [pathlib.Path(folder, name) for name in ("train.txt", "validation.txt", "test.txt")]
    for seed, (path, size) in enumerate(zip(paths, sizes, strict=True)):
        points = data.planted_points(size, num_features, num_labels, seed)
        data.write_extreme_classification(path, points, num_features, num_labels)
    return files(*paths, batch_size)


def words(data_dir, batch_size, seed):
    """The words of GoEmotions; features and classes are numbered alike."""
    splits = data.goemotions_words(data_dir, batch_size, seed)
    parts = (splits.train, splits.validation, splits.test)
    return Task(*parts, splits.num_classes, splits.num_classes)


def wordnet(path, batch_size, seed):
    """The concepts above a concept of WordNet, from the words that explain it."""
    splits = data.wordnet(path, batch_size, seed)
    parts = (splits.train, splits.validation, splits.test)
    return Task(*parts, len(splits.vocabulary), splits.num_classes)


def build(task, loss, optimizer, width=512, num_sampled=1024, seed=0, normalize=True):
    """The paper's model, compiled."""
    encoder = keras.Sequential(
        [
            keras.layers.Input((task.num_features,), sparse=True),
            layers.SparseDense(width),
            keras.layers.Activation("relu"),
            keras.layers.Dense(width),
        ]
    )
    model = models.ExtremeClassifier(
        encoder, task.num_classes, width, num_sampled, normalize=normalize, seed=seed
    )
    model.compile(
        optimizer,
        loss=loss,
        metrics=[metrics.PrecisionAtK([1, 3, 5]), metrics.RecallAtK([1, 3, 5])],
    )
    return model


def get_optimizer(learning_rate, row_multiplier, momentum):
    """The paper's optimizer; the first rate is that of rows."""
    return optimizers.RowwiseSGD(
        learning_rate / row_multiplier,
        momentum,
        row_momentum=False,
        row_multiplier=row_multiplier,
    )


def parse_args(argv=None):
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    count, number = experiments.positive(int), experiments.positive(float)
    parser.add_argument("--dataset", choices=["planted", "wordnet", "words"], default="planted")
    parser.add_argument("--data-dir", help="TensorFlow Datasets' folder, for words")
    parser.add_argument(
        "--wordnet-dir",
        default="/usr/share/wordnet",
        help="WordNet's folder dict, for wordnet (default: %(default)s)",
    )
    parser.add_argument("--train", type=pathlib.Path, help="a file to learn from instead")
    parser.add_argument("--test", type=pathlib.Path, help="a file to report instead")
    parser.add_argument(
        "--num-sampled",
        type=count,
        default=1024,
        help="classes sampled, B (default: %(default)s)",
    )
    parser.add_argument(
        "--mined",
        type=count,
        default=4,
        help="the highest that count, k' (default: %(default)s)",
    )
    parser.add_argument("--kind", choices=("pairwise", "binary"), default="pairwise")
    parser.add_argument(
        "--scale",
        type=number,
        default=3.0,
        help="of the scores, before the hinge (default: %(default)s)",
    )
    parser.add_argument(
        "--width",
        type=count,
        default=512,
        help="of encodings and embeddings (default: %(default)s)",
    )
    parser.add_argument("--batch-size", type=count, default=256)
    parser.add_argument("--epochs", type=count, default=5)
    parser.add_argument(
        "--learning-rate",
        type=number,
        default=10.0,
        help="of rows of tables (default: %(default)s)",
    )
    parser.add_argument(
        "--row-multiplier",
        type=number,
        default=30_000.0,
        help="that rate over the one of the rest (default: %(default)s)",
    )
    parser.add_argument(
        "--momentum",
        type=experiments.number_below(1),
        default=0.9,
        help="of all but rows (default: %(default)s)",
    )
    parser.add_argument("--seed", type=experiments.seed, default=0)
    parser.add_argument("--out", type=pathlib.Path, help="a file for the trained model, .keras")
    parser.add_argument(
        "--export", type=pathlib.Path, help="a folder for classes and test points, to be searched"
    )
    args = parser.parse_args(argv)
    if (args.train is None) != (args.test is None):
        parser.error("--train and --test go together")
    if args.train and args.dataset != "planted":
        parser.error("--train and --dataset exclude each other")
    if args.out and args.out.suffix != ".keras":
        parser.error(f"--out must end in .keras, not {args.out}")
    if args.train:
        wanted, found = (data.read_extreme_header(path)[1:] for path in (args.train, args.test))
        if found != wanted:
            parser.error(
                "--test must have as many features and labels as --train, "
                f"{wanted[0]} and {wanted[1]}, not {found[0]} and {found[1]}"
            )
    for option, folder in (("--out", args.out and args.out.parent), ("--export", args.export)):
        if folder:
            try:
                _files.make_folder(folder)
            except OSError as error:
                parser.error(f"{option} must be where files can be written: {error}")
    return args


def load(args, folder):
    """The task that the command line names; files have no validation part of their own."""
    if args.train:
        return files(args.train, args.test, args.test, args.batch_size)
    if args.dataset == "wordnet":
        return wordnet(args.wordnet_dir, args.batch_size, args.seed)
    if args.dataset == "words":
        return words(args.data_dir, args.batch_size, args.seed)
    return planted(folder, args.batch_size)


def main(argv=None):
    """Trains, saves and evaluates."""
    args = parse_args(argv)
    keras.utils.set_random_seed(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        task = load(args, folder)
        model = build(
            task,
            losses.OrderedWeightedLoss(
                args.kind, ops.Scaled("hinge", args.scale), ops.TopKWeights(args.mined)
            ),
            get_optimizer(args.learning_rate, args.row_multiplier, args.momentum),
            args.width,
            args.num_sampled,
            args.seed,
        )
        # The order is that of the file; one that is not random should be brought into such.
        model.fit(task.train, epochs=args.epochs, shuffle=False, verbose=2)
        if args.out:
            model.save(args.out)
            print(f"model: {args.out}")
        results = model.evaluate(task.test, return_dict=True, verbose=0)
        for name, value in results.items():
            print(f"{name}: {float(value):.4f}")
        features, class_ids = next(iter(task.test))
        _, best = model.top_k(features, 5)
        class_ids = tf.reshape(class_ids, [len(class_ids), -1])
        for own, found in zip(class_ids[:3].numpy(), best[:3].numpy(), strict=True):
            print(f"classes {[int(i) for i in own if i >= 0]}, best five {found.tolist()}")
        if args.export:
            model.export_classes(args.export / "classes.npy")
            queries = np.concatenate([model.predict_on_batch(points) for points, _ in task.test])
            with _files.replacing(args.export / "queries.npy") as temporary:
                np.save(temporary, queries)
            print(f"for examples/approximate_search.py: {args.export}")


if __name__ == "__main__":
    main()
