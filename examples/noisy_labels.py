"""Compares five losses on digits with wrong labels.

    python examples/noisy_labels.py

0, 20 or 40 % of the labels for training and validation are replaced by the most similar-looking
digit; the test labels are correct. Each run reports the test accuracy of the epoch with the best
accuracy on the validation labels. In your own model, the loss takes one line:
`model.compile("adam", losses.RankmaxLoss())`.
"""

import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
import tensorflow as tf
from matplotlib.figure import Figure
from scipy import stats
from sklearn.datasets import load_digits
from tensorflow import keras
from tqdm import tqdm

from rank4class_tf import losses

LOSSES = {
    "softmax": losses.SoftmaxLoss(),
    "softmax, smoothing .3": losses.SoftmaxLoss(label_smoothing=0.3),
    "generalised cross-entropy": losses.GeneralizedCrossEntropyLoss(),
    "Crammer-Singer": losses.OrderedWeightedLoss.crammer_singer(),
    "Rankmax": losses.RankmaxLoss(),
}
LEVELS = (0, 20, 40)
LOOKALIKE = np.array([6, 7, 3, 8, 9, 6, 5, 1, 3, 4], "int32")  # each digit's wrong label


def split(level, seed):
    """Images and labels for training, validation and testing; in the first two some are wrong."""
    images, digits = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(digits))
    images, digits = (images[order] / 16).astype("float32"), digits[order].astype("int32")
    labels = np.where(rng.random(len(digits)) < level / 100, LOOKALIKE[digits], digits)
    labels[1437:] = digits[1437:]
    return [*zip(np.split(images, [1077, 1437]), np.split(labels, [1077, 1437]), strict=True)]


def network():
    """A network of 128 units."""
    dense = keras.layers.Dense
    return keras.Sequential([keras.Input((64,)), dense(128, "relu"), dense(10)])


def trainer(loss, epochs):
    """A function, compiled once, that trains a network and returns its test accuracy."""
    model, optimizer = network(), keras.optimizers.Adam(3e-3)
    optimizer.build(model.trainable_variables)
    start = [variable.numpy() for variable in optimizer.variables]

    @tf.function(jit_compile=True)
    def train_epoch(images, labels):
        for i in tf.range(len(images)):
            with tf.GradientTape() as tape:
                value = loss(labels[i], model(images[i]))
            gradients = tape.gradient(value, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    @tf.function(jit_compile=True)
    def accuracy(images, labels):
        best = tf.argmax(model(images), axis=1, output_type=tf.int32)
        return tf.reduce_mean(tf.cast(best == labels, tf.float32))

    def train(level, seed):
        (images, labels), validation, test = split(level, seed)
        keras.utils.set_random_seed(seed)
        model.set_weights(network().get_weights())
        for variable, value in zip(optimizer.variables, start, strict=True):
            variable.assign(value)
        rng, reached = np.random.default_rng(seed), []
        for _ in range(epochs):
            rows = rng.permutation(len(labels))[: len(labels) // 64 * 64].reshape(-1, 64)
            train_epoch(tf.constant(images[rows]), tf.constant(labels[rows]))
            reached.append((float(accuracy(*validation)), float(accuracy(*test))))
        return max(reached, key=lambda pair: pair[0])[1]

    return train


def main(seeds=10, epochs=40, picture="noisy_labels.png"):
    """Trains all networks and shows their test accuracies."""
    trainers = [trainer(loss, epochs) for loss in LOSSES.values()]
    found = np.zeros((len(LOSSES), len(LEVELS), seeds))
    for loss, level, seed in tqdm([*np.ndindex(found.shape)], unit="network", file=sys.stdout):
        found[loss, level, seed] = trainers[loss](LEVELS[level], seed)
    mean, half = found.mean(-1), stats.t.ppf(0.975, seeds - 1) * stats.sem(found, axis=-1)
    axes = (figure := Figure(figsize=(6.4, 3.6), layout="constrained")).subplots()
    print("test accuracy, with wrong labels:   ", *(f"{level:>7} %" for level in LEVELS))
    for name, means, halves in zip(LOSSES, mean, half, strict=True):
        print(f"{name:<36}", *(f"{value:9.3f}" for value in means))
        axes.errorbar(LEVELS, means, halves, label=name, marker="o", capsize=3)
    axes.set(xlabel="wrong labels in training, %", ylabel="test accuracy, 95 % intervals")
    axes.legend()
    figure.savefig(picture, dpi=120)
    gain = found[list(LOSSES).index("Rankmax"), -1] - found[0, -1]
    p = stats.ttest_1samp(gain, 0).pvalue
    print(f"{LEVELS[-1]} % wrong labels: Rankmax is {gain.mean():+.3f} over softmax, p = {p:.2g}.")


if __name__ == "__main__":
    main()
