"""From training to use: calibration, prediction sets, a SavedModel with class names.

    python examples/serving.py --out out/serving

It trains a classifier of scikit-learn's digits with Rankmax, whose scores are not
probabilities. Half of the validation images are used to fit a temperature, which
converts scores to probabilities. The other half are used to fit a threshold for sets of
classes that contain the right one 99 % of the time. The program exports the model,
loads it as a program without this package would, and prints the three best guesses for
the images about which the model is least certain.

It prints (the last digits depend on the processor):

    temperature 0.298
    calibration error: softmax 0.309, with the temperature 0.016
    sets with the right class: 99.7% of the test images

    right   best three guesses; * is in the set
    one     five 0.31*    six 0.21*     eight 0.21*
    ...
"""

import argparse
import pathlib

import numpy as np
import tensorflow as tf
from tensorflow import keras

import rank4class_tf as r4c

NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def train(splits, epochs):
    """Trains a classifier that gives scores, not probabilities."""
    model = keras.Sequential(
        [
            keras.layers.Input((64,)),
            keras.layers.Dense(32, "relu"),
            keras.layers.Dense(10),
        ]
    )
    model.compile(keras.optimizers.Adam(3e-3), r4c.losses.RankmaxLoss())
    model.fit(splits.train, epochs=epochs, shuffle=False, verbose=0)
    return model


def calibration_error(probabilities, scores, class_ids):
    """The expected calibration error of a layer of probabilities."""
    metric = r4c.metrics.ExpectedCalibrationError(probabilities=probabilities)
    metric.update_state(class_ids, scores)
    return float(metric.result())


def main(argv=None):
    """Trains, calibrates, exports, loads and prints; returns what was served."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    folder = pathlib.Path("out/serving")
    add(
        "--out",
        type=pathlib.Path,
        default=folder,
        help="of the SavedModel (default: %(default)s)",
    )
    add("--epochs", type=int, default=10, help="epochs (default: %(default)s)")
    args = parser.parse_args(argv)

    keras.utils.set_random_seed(0)
    splits = r4c.data.digits(batch_size=30)
    model = train(splits, args.epochs)

    probabilities = r4c.calibrate(model, splits.validation.shard(2, 0))
    sets = r4c.conformalize(
        model, splits.validation.shard(2, 1), coverage=0.99, probabilities=probabilities
    )
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "digits"
    r4c.export_top_k(model, path, 3, NAMES, probabilities, sets)

    features, class_ids = (
        np.concatenate(arrays)
        for arrays in zip(*splits.test.as_numpy_iterator(), strict=True)
    )
    scores = model.predict(features, verbose=0)
    softmax = r4c.layers.Probabilities()
    before, after = (
        calibration_error(p, scores, class_ids) for p in (softmax, probabilities)
    )
    print(f"temperature {probabilities.temperature:.3f}")
    print(f"calibration error: softmax {before:.3f}, with the temperature {after:.3f}")
    inside = tf.gather(sets(scores), class_ids[:, np.newaxis], batch_dims=1)
    print(f"sets with the right class: {np.mean(inside):.1%} of the test images")

    served = tf.saved_model.load(str(path)).signatures["serving_default"]
    answers = {
        name: x.numpy() for name, x in served(features=tf.constant(features)).items()
    }
    print("\nright   best three guesses; * is in the set")
    for row in np.argsort(answers["probabilities"][:, 0])[:10]:
        guesses = [
            (
                f"{name.decode()} "
                f"{p:.2f}{'*' if place < answers['set_sizes'][row] else ' '}"
            )
            for place, (name, p) in enumerate(
                zip(
                    answers["class_names"][row],
                    answers["probabilities"][row],
                    strict=True,
                )
            )
        ]
        print(
            f"{NAMES[class_ids[row]]:7} "
            + "  ".join(f"{guess:12}" for guess in guesses)
        )
    return {**answers, "right": class_ids, "errors": (before, after)}


if __name__ == "__main__":
    try:
        main()
    except (
        ImportError
    ) as error:  # An extra that is not installed: the message says which.
        raise SystemExit(error) from None
