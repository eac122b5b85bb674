"""Trains a ranking classifier and one for many classes, on a TPU or available devices.

    python examples/tpu.py                      # one CPU or GPU
    python examples/tpu.py --devices 2          # two replicas on logical CPUs
    python examples/tpu.py --tpu local          # the TPUs of this machine
    python examples/tpu.py --tpu my-tpu-name    # the TPUs with a name or address

The program is the same everywhere; docs/distribution.md lists the rules for such
programs. The points lie around the centers of their classes, so both models should find
most classes.

It prints (the last digits depend on the processor):

    classifier: top_k_accuracy_at_1: 0.9907
    ...
    classifier of many: precision_at_1: 1.0000
"""

import argparse

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import layers, losses, metrics, models, optimizers

DIM = 32


def get_strategy(tpu, devices):
    """A strategy for the named TPUs; without a name, for logical CPUs or one device."""
    if tpu:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    if devices == 1:
        return tf.distribute.get_strategy()
    cpu = tf.config.list_physical_devices("CPU")[0]
    logical = [tf.config.LogicalDeviceConfiguration()] * devices
    tf.config.set_logical_device_configuration(cpu, logical)
    return tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(devices)])


def points(num_classes, size, batch_size, seed, second=False):
    """Batches of points and classes; with `second`, ids `[batch, 2]` padded with -1."""
    centers = np.random.default_rng(0).normal(size=(num_classes, DIM))
    rng = np.random.default_rng([1, seed])
    ids = rng.integers(0, num_classes, size)
    features = centers[ids] + rng.normal(scale=0.3, size=(size, DIM))
    if second:
        ids = np.stack([ids, np.full(size, -1)], axis=1)
    data = tf.data.Dataset.from_tensor_slices(
        (features.astype(np.float32), ids.astype(np.int32))
    )
    # All batches have one shape, since a TPU compiles a program for each shape.
    return data.shuffle(size, seed=seed).batch(batch_size, drop_remainder=True)


def classifier(num_classes, jit_compile):
    """A classifier trained with a ranking loss."""
    model = keras.Sequential(
        [
            keras.layers.Input((DIM,)),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(DIM),
            layers.DotProductHead(num_classes),
        ]
    )
    model.compile(
        keras.optimizers.Adam(0.01),
        losses.RankmaxLoss(margin=1.0),
        metrics=[metrics.TopKAccuracy([1, 5]), metrics.NDCG(5)],
        jit_compile=jit_compile,
    )
    return model


def classifier_of_many(num_classes, jit_compile):
    """A classifier of many classes, trained with mined negatives."""
    encoder = keras.Sequential([keras.layers.Input((DIM,)), keras.layers.Dense(DIM)])
    model = models.ExtremeClassifier(
        encoder, num_classes, DIM, num_sampled=num_classes // 4
    )
    model.compile(
        optimizers.RowwiseAdagrad(0.1),
        losses.OrderedWeightedLoss("binary", "hinge", losses.TopKWeights(5)),
        metrics=[metrics.PrecisionAtK([1, 5])],
        jit_compile=jit_compile,
    )
    return model


def main(argv=None):
    """Trains and evaluates both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--tpu", help="name or address of a TPU, or 'local'; none without it")
    add(
        "--devices",
        type=int,
        default=1,
        help="logical CPUs, without a TPU (default: %(default)s)",
    )
    add("--classes", type=int, default=1000, help="20 or more (default: %(default)s)")
    add(
        "--examples",
        type=int,
        default=16_384,
        help="training examples (default: %(default)s)",
    )
    add(
        "--batch-size",
        type=int,
        default=256,
        help="of all replicas (default: %(default)s)",
    )
    add("--epochs", type=int, default=4, help="epochs (default: %(default)s)")
    args = parser.parse_args(argv)
    if (
        args.classes < 20
    ):  # A quarter of the classes is drawn; the five highest of these are mined.
        parser.error(f"--classes must be at least 20, not {args.classes}")

    keras.utils.set_random_seed(0)
    strategy = get_strategy(args.tpu, args.devices)
    # One device compiles the step as a TPU does; Keras 3 cannot under a
    # MirroredStrategy.
    jit_compile = strategy.num_replicas_in_sync == 1 and not args.tpu
    results = {}
    for name, build, second in (
        ("classifier", classifier, False),
        ("classifier of many", classifier_of_many, True),
    ):
        with strategy.scope():
            model = build(args.classes, jit_compile)
        train, test = (
            points(args.classes, size, args.batch_size, seed, second)
            for seed, size in enumerate(
                (args.examples, max(args.examples // 8, args.batch_size))
            )
        )
        model.fit(train, epochs=args.epochs, shuffle=False, verbose=2)
        results[name] = model.evaluate(test, return_dict=True, verbose=0)
        for metric, value in results[name].items():
            print(f"{name}: {metric}: {float(value):.4f}")
    return results


if __name__ == "__main__":
    main()
