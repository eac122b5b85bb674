r"""Fine-tunes a transformer to classify comments, with a head and a ranking loss.

    python examples/text_classification.py --preset bert_base_en_uncased
    python examples/text_classification.py --preset bert_base_en_uncased \
        --frozen all --epochs 20

The comments are those of GoEmotions, with one of 28 emotions each; TensorFlow Datasets
downloads them. The program needs the extras `data` and `encoders`, and Keras 3. Without
a GPU, freeze layers: their output is computed once, before training.

It prints (the values depend on the preset):

    loss: ...
    ndcg_at_5: ...
    top_k_accuracy_at_1: ...
    top_k_accuracy_at_5: ...
"""

import argparse

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import data, encoders, layers, losses, metrics


def features_of(encoder, dataset, batch_size=128):
    """The frozen layers' output for each text, or its tokens; and the class ids."""
    texts, class_ids = (
        np.concatenate(parts)
        for parts in zip(*dataset.as_numpy_iterator(), strict=True)
    )
    features = encoder.tokenize(texts).to_tensor()
    if encoder.lower is not None:
        features = encoder.lower.predict(features, batch_size=batch_size, verbose=0)
    return tf.constant(features), class_ids


def number_or_all(text):
    """Reads a number of layers, or "all"."""
    return text if text == "all" else int(text)


def main(argv=None):
    """Trains and evaluates; returns the metrics on the test part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add(
        "--preset",
        required=True,
        help="a preset of keras-hub, or a local folder with one",
    )
    add(
        "--frozen",
        type=number_or_all,
        default=0,
        help="layers, or all (default: %(default)s)",
    )
    add(
        "--loss", default="rankmax_loss", help="a name of a loss (default: %(default)s)"
    )
    add(
        "--head", default="latent_cross", help="a name of a head (default: %(default)s)"
    )
    add("--data-dir", help="where TensorFlow Datasets keeps its data")
    add("--epochs", type=int, default=3, help="epochs (default: %(default)s)")
    add(
        "--batch-size", type=int, default=32, help="texts a step (default: %(default)s)"
    )
    add(
        "--learning-rate",
        type=float,
        default=2e-5,
        help="of Adam (default: %(default)s)",
    )
    args = parser.parse_args(argv)

    keras.utils.set_random_seed(0)
    splits = data.goemotions(args.data_dir, text=True)
    encoder = encoders.TextEncoder(args.preset, sequence_length=32, frozen=args.frozen)
    train, validation, test = (
        features_of(encoder, part)
        for part in (splits.train, splits.validation, splits.test)
    )
    head = layers.get_head(args.head, classes=splits.num_classes)
    model = keras.Sequential([encoder.upper, keras.layers.Dropout(0.1), head])
    model.compile(
        keras.optimizers.Adam(args.learning_rate, global_clipnorm=1.0),
        loss=losses.get(args.loss),
        metrics=[metrics.TopKAccuracy([1, 5]), metrics.NDCG(5)],
    )
    best = keras.callbacks.EarlyStopping(
        "val_ndcg_at_5", mode="max", patience=2, restore_best_weights=True
    )
    model.fit(
        *train,
        batch_size=args.batch_size,
        epochs=args.epochs,
        validation_data=validation,
        callbacks=[best],
        verbose=2,
    )
    results = model.evaluate(*test, return_dict=True, verbose=0)
    for name, value in results.items():
        print(f"{name}: {float(value):.4f}")
    return results


if __name__ == "__main__":
    try:
        main()
    except (
        ImportError
    ) as error:  # An extra that is not installed: the message says which.
        raise SystemExit(error) from None
