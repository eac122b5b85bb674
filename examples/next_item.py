"""Trains SASRec to predict a user's next item, with any loss over the whole catalogue.

    python examples/next_item.py --file ratings.dat --length 100 --width 64

`UserItems.from_file` lists the forms of a file; without one, the program generates
users. The last item of each user is the test. One table embeds the items and scores
them. It needs Keras 3.

It prints (the last digits depend on the processor):

    {'loss': 1.169, 'ndcg_at_10': 0.692, 'top_k_accuracy_at_10': 0.960}
    After [[ 89 144 ... 266  -1]]: [[459  51 308 135 355]]
"""

from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import data, layers, losses, metrics, models, optimizers


def sasrec(table, length, width, dropout=0.2):
    """A causal transformer encoding each position of item numbers padded with -1."""
    of, items = keras.layers, keras.Input([length], dtype="int32")
    order = keras.ops.cumsum(keras.ops.ones_like(items), axis=1)
    order = keras.ops.where(items >= 0, order, 0)
    # Both parts of the sum need the mask of padding, or `Add` drops it.
    places = of.Embedding(length + 1, width, mask_zero=True)(order)
    x = of.Dropout(dropout)(of.Add()([layers.ClassEmbedding(table)(items), places]))
    for _ in range(2):
        normal = of.LayerNormalization()(x)
        attention = of.MultiHeadAttention(2, width // 2, dropout=dropout)
        # `+` loses the mask.
        x = of.Add()([x, attention(normal, normal, use_causal_mask=True)])
        hidden = of.Dense(width, "relu")(of.LayerNormalization()(x))
        x = of.Add()([x, of.Dense(width)(of.Dropout(dropout)(hidden))])
    return keras.Model(items, of.LayerNormalization()(x))


def generated(num_users=1000, num_items=500, length=20):
    """Users with items in order of time; each item is followed by one of three."""
    rng = np.random.default_rng(0)
    following, items = (
        rng.integers(num_items, size=(num_items, 3)),
        [np.arange(num_users) // 2],
    )
    for choice in rng.integers(3, size=(length - 1, num_users)):
        items.append(following[items[-1], choice])
    pairs = np.tile(np.arange(num_users), length), np.concatenate(items)
    return data.UserItems.from_pairs([pairs], split="last")


def main(argv=None):
    """Trains, evaluates and shows what comes next for a user; returns the metrics."""
    parser = ArgumentParser(
        description=__doc__.splitlines()[0],
        formatter_class=ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--file", help="users and items in order of time; None generates them"
    )
    parser.add_argument(
        "--loss", default="rankmax_loss", help="a name of rank4class_tf.losses"
    )
    parser.add_argument(
        "--length", type=int, default=20, help="the items read, the last ones"
    )
    parser.add_argument(
        "--width", type=int, default=32, help="width of the table and of encodings"
    )
    parser.add_argument("--epochs", type=int, default=20, help="passes over the users")
    parser.add_argument(
        "--export", help="folder for a SavedModel that returns the ten best items"
    )
    args = parser.parse_args(argv)
    keras.utils.set_random_seed(0)
    users = data.UserItems.from_file(args.file) if args.file else generated()
    table = layers.ClassTable(users.num_items, args.width)
    encoder = sasrec(table, args.length, args.width)
    model = models.ExtremeClassifier(
        encoder, table, args.width, num_sampled=None, normalize=False
    )
    ranked = [metrics.HitRate(10), metrics.NDCG(10)]
    model.compile(optimizers.RowwiseAdam(3e-3), losses.get(args.loss), metrics=ranked)
    train, test = (
        users.sequences(part, args.length, 64, seed=0) for part in ("train", "test")
    )
    model.fit(train, epochs=args.epochs, shuffle=False, verbose=2)
    print(results := model.evaluate(test, return_dict=True, verbose=0))
    inputs = next(iter(test))[0][:1]
    print(f"After {inputs.numpy()}: {model.top_k(inputs, 5, last=True)[1].numpy()}")
    if args.export:
        model.export_top_k(
            args.export, tf.TensorSpec([None, args.length], tf.int32), last=True
        )
    return results


if __name__ == "__main__":
    main()
