"""Fine-tunes a pretrained network on CIFAR-10 images, with a head and a ranking loss.

    python examples/image_classification.py --preset vgg_16_imagenet
    python examples/image_classification.py --preset resnet_50_imagenet --head concat

TensorFlow Datasets downloads the images. The program needs the extras `data` and
`encoders`, Keras 3, and in practice a GPU.

It prints (the values depend on the preset):

    loss: ...
    ndcg_at_5: ...
    top_k_accuracy_at_1: ...
    top_k_accuracy_at_5: ...
"""

import argparse

from tensorflow import keras

from rank4class_tf import data, encoders, layers, losses, metrics


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
        "--loss", default="rankmax_loss", help="a name of a loss (default: %(default)s)"
    )
    add(
        "--head", default="latent_cross", help="a name of a head (default: %(default)s)"
    )
    add("--data-dir", help="where TensorFlow Datasets keeps its data")
    add("--epochs", type=int, default=50, help="epochs (default: %(default)s)")
    add(
        "--batch-size",
        type=int,
        default=64,
        help="images a step (default: %(default)s)",
    )
    add(
        "--learning-rate",
        type=float,
        default=1e-5,
        help="of Adam (default: %(default)s)",
    )
    args = parser.parse_args(argv)

    keras.utils.set_random_seed(0)
    splits = data.cifar10(args.data_dir, batch_size=args.batch_size)
    encoder = encoders.ImageEncoder(args.preset, (32, 32, 3))
    head = layers.get_head(args.head, classes=splits.num_classes)
    model = keras.Sequential([encoder.upper, head])
    model.compile(
        keras.optimizers.Adam(args.learning_rate),
        loss=losses.get(args.loss),
        metrics=[metrics.TopKAccuracy([1, 5]), metrics.NDCG(5)],
    )
    best = keras.callbacks.EarlyStopping(
        "val_ndcg_at_5", mode="max", patience=5, restore_best_weights=True
    )
    model.fit(
        splits.train,
        epochs=args.epochs,
        validation_data=splits.validation,
        callbacks=[best],
        shuffle=False,  # The dataset shuffles itself.
        verbose=2,
    )
    results = model.evaluate(splits.test, return_dict=True, verbose=0)
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
