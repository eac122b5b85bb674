"""Trains a classifier that can be killed at any moment: run it again, and it resumes.

    python examples/resume_training.py --folder out/digits

The final weights are bit-for-bit those of an undisturbed run. For this, everything that
an epoch depends on is either in the checkpoint (weights, optimizer, the random numbers
of dropout and of a random loss, what early stopping knows) or computed from the number
of the epoch (the order of the examples). TensorFlow's checkpoints have checksums and
become visible only when complete. If one cannot be read, for example because a bit has
flipped, the one before it is used.

Keras's own BackupAndRestore promises less: see docs/results/faults.md. In a new process
its EarlyStopping and ModelCheckpoint forget what was best, so `Best` does their work.
Callbacks without a memory, such as TensorBoard, are passed on: `--patience 3` logs to
the folder, keeps the best model in best.keras, and stops when it is three epochs old.

It prints (the last digits depend on the processor):

    Epoch 20/20
    17/17 - 0s - 2ms/step - accuracy: 0.9294 - loss: 0.1857
"""

import argparse
import pathlib
import re
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import data, layers, losses


class Best(keras.callbacks.Callback):
    """Saves the best model so far, and stops when it is `patience` epochs old.

    Args:
        monitor: what is best when it is highest, such as `"val_accuracy"`.
        patience: epochs without a better model.
        path: the file of the best model.
    """

    def __init__(self, monitor: str, patience: int, path: Any):
        super().__init__()
        self.monitor, self.patience, self.path = monitor, patience, str(path)
        # In the checkpoint, unlike the numbers of Keras's callbacks.
        self.value = tf.Variable(-float("inf"))
        self.epoch = tf.Variable(-1, dtype=tf.int64)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if logs[self.monitor] > self.value:
            self.value.assign(logs[self.monitor])
            self.epoch.assign(epoch)
            # After a kill while it is written, the epoch is trained again.
            self.model.save(self.path)

    def is_over(self, epochs: int) -> bool:
        """Whether training should stop after so many epochs."""
        return epochs > int(self.epoch) + self.patience


def state_of(model: keras.Model, **more: Any) -> tf.train.Checkpoint:
    """The state that a run depends on, including the number of finished epochs.

    Args:
        model: a compiled model that is built.
        **more: other objects with a state, such as `loss=model.loss` for a random loss.
    """
    model.optimizer.build(model.trainable_variables)
    if hasattr(keras, "ops"):  # Keras 3 keeps the random numbers of dropout only here.
        more["rest"] = [variable.value for variable in model.non_trainable_variables]
    epoch = tf.Variable(0, dtype=tf.int64)
    return tf.train.Checkpoint(
        model=model, optimizer=model.optimizer, epoch=epoch, **more
    )


def restore(state: tf.train.Checkpoint, manager: tf.train.CheckpointManager) -> None:
    """Restores the newest readable checkpoint; without one, the state stays as is."""
    error = None
    names = tf.io.gfile.listdir(manager.directory)
    numbers = [
        int(name[5:-6]) for name in names if re.fullmatch(r"ckpt-\d+\.index", name)
    ]
    for number in sorted(numbers, reverse=True):
        path = f"{manager.directory}/ckpt-{number}"
        try:
            state.restore(path).assert_existing_objects_matched()
            return
        # TensorFlow raises an IndexError if the index is cut, and many kinds of
        # OpError.
        except Exception as found:
            error = found
            print(f"{path} cannot be read: {error!r}")
    if error and manager.checkpoints:  # A first one may be incomplete.
        raise error


def train(
    model: keras.Model,
    batches_of: Callable[[int], tf.data.Dataset],
    epochs: int,
    folder: Any,
    best: Best | None = None,
    options: dict[str, Any] | None = None,
    **more: Any,
) -> None:
    """Trains a model; continues where an earlier call with the same arguments stopped.

    Args:
        model: as for `state_of`.
        batches_of: a function of the number of an epoch, from 0, that returns its
            batches.
        epochs: number of epochs.
        folder: folder of the checkpoints; each run needs its own.
        best: None, or a `Best`, which may stop earlier.
        options: other arguments of `fit`, such as `validation_data` and `callbacks`.
        **more: as for `state_of`.
    """
    options = {"callbacks": [], "verbose": 2, "shuffle": False, **(options or {})}
    if best is not None:
        options["callbacks"] = [*options["callbacks"], best]
        more |= {"best_value": best.value, "best_epoch": best.epoch}
    state = state_of(model, **more)
    tf.io.gfile.makedirs(str(folder))
    try:
        manager = tf.train.CheckpointManager(state, str(folder), max_to_keep=2)
    except (
        ValueError
    ):  # The list of checkpoints is damaged; `restore` reads the folder.
        tf.io.gfile.remove(f"{folder}/checkpoint")
        manager = tf.train.CheckpointManager(state, str(folder), max_to_keep=2)
    restore(state, manager)
    while (epoch := int(state.epoch)) < epochs:
        if best is not None and best.is_over(epoch):
            return
        batches = batches_of(epoch)
        model.fit(batches, initial_epoch=epoch, epochs=epoch + 1, **options)
        state.epoch.assign_add(1)
        manager.save()


def main(argv: list[str] | None = None) -> keras.Model:
    """Trains on scikit-learn's digits."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--folder", type=pathlib.Path, required=True, help="checkpoint folder"
    )
    parser.add_argument(
        "--epochs", type=int, default=20, help="epochs (default: %(default)s)"
    )
    parser.add_argument("--patience", type=int, help="epochs without a better model")
    args = parser.parse_args(argv)
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.layers.Input((64,)),
            keras.layers.Dense(64, "relu"),
            # Keras 2 starts the random numbers of dropout anew in each process.
            *([keras.layers.Dropout(0.2)] if hasattr(keras, "ops") else []),
            layers.DotProductHead(10),
        ]
    )
    model.compile(keras.optimizers.Adam(), losses.RankmaxLoss(), metrics=["accuracy"])
    points = next(iter(data.digits(batch_size=10_000).train))  # All in one batch.
    examples = tf.data.Dataset.from_tensor_slices(points)

    def batches_of(epoch):
        return examples.shuffle(len(examples), seed=epoch).batch(64)

    if args.patience is None:
        train(model, batches_of, args.epochs, args.folder)
        return model
    best = Best("val_accuracy", args.patience, args.folder / "best.keras")
    options = {
        "validation_data": data.digits().validation,
        "callbacks": [keras.callbacks.TensorBoard(args.folder / "logs")],
    }
    train(model, batches_of, args.epochs, args.folder, best, options)
    return model


if __name__ == "__main__":
    try:
        main()
    except (
        ImportError
    ) as error:  # An extra that is not installed: the message says which.
        raise SystemExit(error) from None
