"""Trains a causal transformer with a 20,000-word softmax that never holds the scores.

    python examples/language_model.py

The text is Python's own library. It prints the memory that training adds, and needs
Keras 3.

It prints (the last digits depend on the processor):

    Loss 5.25, by frequency 5.88 nats a word; 197 MB
"""

import collections
import pathlib
import re
import resource
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser

import numpy as np
from tensorflow import keras

from rank4class_tf import layers, losses, models, optimizers


def transformer(table, length, width):
    """Maps word numbers to an encoding of each position, which knows no later word."""
    of, words = keras.layers, keras.Input([None], dtype="int32")
    places = of.Embedding(length, width)(
        keras.ops.cumsum(keras.ops.ones_like(words), axis=1) - 1
    )
    x = of.Add()([layers.ClassEmbedding(table)(words), places])
    for _ in range(2):
        normal = of.LayerNormalization()(x)
        x = of.Add()(
            [x, of.MultiHeadAttention(4, width)(normal, normal, use_causal_mask=True)]
        )
        x = of.Add()(
            [
                x,
                of.Dense(width)(
                    of.Dense(4 * width, "gelu")(of.LayerNormalization()(x))
                ),
            ]
        )
    return keras.Model(words, of.LayerNormalization()(x))


def main(argv=None):
    """Trains and evaluates; returns the loss by frequency and the model's."""
    parser = ArgumentParser(
        description=__doc__.splitlines()[0],
        formatter_class=ArgumentDefaultsHelpFormatter,
    )
    for name, default in {
        "words": 20_000,
        "length": 64,
        "width": 64,
        "steps": 300,
    }.items():
        parser.add_argument(
            f"--{name}", type=int, default=default, help=f"{name} of the model"
        )
    args = parser.parse_args(argv)
    keras.utils.set_random_seed(0)
    files = sorted(pathlib.Path(re.__file__).parents[1].glob("*.py"))
    words = re.findall(
        r"\w+|[^\w\s]", "\n".join(x.read_text("utf-8", "replace") for x in files)
    )
    frequent = dict(collections.Counter(words).most_common(args.words - 1))
    # 0 is any other word.
    number = {word: i for i, word in enumerate(frequent, start=1)}
    rows = np.resize(
        [number.get(x, 0) for x in words], [len(words) // args.length, args.length]
    )
    test, train, _ = np.split(np.random.permutation(rows), [500, 500 + 16 * args.steps])
    counts = 1 + np.bincount(train.ravel(), minlength=args.words)
    by_frequency = -np.log(counts / counts.sum())[test[:, 1:]].mean()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    table = layers.ClassTable(args.words, args.width)
    encoder = transformer(table, args.length, args.width)
    model = models.ExtremeClassifier(
        encoder, table, args.width, num_sampled=None, normalize=False
    )
    model.compile(optimizers.RowwiseAdam(2e-3), losses.SoftmaxLoss())
    model.fit(train[:, :-1], train[:, 1:], batch_size=16, verbose=2)
    loss = model.evaluate(test[:, :-1], test[:, 1:], batch_size=16, verbose=0)
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(
        f"Loss {loss:.2f}, by frequency {by_frequency:.2f} nats a word; {memory:.0f} MB"
    )
    return by_frequency, loss


if __name__ == "__main__":
    main()
