"""Trains a sorter on random lists and their exact ranks.

    python -m scripts.reproductions.train_sorter --sorter set --minutes 20 --output
    out/set

It takes the minutes that `--minutes` says, and a few more for the tests (an hour for
the recurrent sorter). The lists are those of sodeep.py. In three of five steps they
have 100 items, else 2 to 300 (for the convolutional sorter at most its length; shorter
lists are padded and masked). The loss is the mean error of the ranks divided by d, plus
a penalty for slopes that are too small. For this, half of the lists in a batch repeat
the other half with some items moved by a part of the local distance. The rank of a
moved item must change by a share of what the scores around it imply. Without this
penalty a sorter becomes accurate through steps or ripples, and the model that trains
through it gets no gradient.

Adam's rate falls as a cosine over the minutes (wall-clock, of training), or over
--steps, which gives the same weights each time. The result has the mean of the weights
over about the last thousand steps. The folder that --output names gets
`<sorter>_sorter.npz`, which `layers.<Sorter>.pretrained(path)` reads; a JSON card
beside it with all results on a fixed test set of 10,000 lists; and `checkpoint.npz`,
from which a run with --resume goes on, be it that it was stopped or that it gets more
minutes or steps.
"""

import json
import math
import pathlib
import time

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _files, layers
from scripts import command_line
from scripts.reproductions import sodeep

SORTERS = {
    "recurrent": layers.RecurrentSorter,
    "convolutional": layers.ConvolutionalSorter,
}
SORTERS["set"] = layers.SetSorter
# Lists are padded to one of these lengths, so that XLA compiles few programs.
SHORT, LONG = 32, 300
REPORT_SECONDS = 300
CHECKPOINT = "checkpoint.npz"
# An item moves by the part MOVE of the mean distance of its neighbours, NEIGHBOURS on
# each side.
MOVE, NEIGHBOURS, MOVED_SHARE = 0.3, 3, 0.1
AVERAGE = 0.999
SLOPE_WEIGHT = 0.02  # Of the penalty of slopes.


def moved(rng, scores):
    """Moves some items of the lists a little; returns the moved scores and multipliers.

    The change of an item's rank (after less before) times its multiplier, which is 0
    for an item that has not moved, is 1 if the rank changes as the scores around it
    imply.
    """
    count, length = scores.shape
    order = np.argsort(-scores, axis=1)
    ordered = np.take_along_axis(scores, order, axis=1)
    above = np.maximum(np.arange(length) - NEIGHBOURS, 0)
    below = np.minimum(np.arange(length) + NEIGHBOURS, length - 1)
    distances = np.empty_like(scores)
    mean_distances = (ordered[:, above] - ordered[:, below]) / (below - above)
    np.put_along_axis(distances, order, mean_distances, axis=1)
    chosen = rng.random((count, length)) < max(MOVED_SHARE, 1.5 / length)
    signs = np.where(rng.random((count, length)) < 0.5, -1, 1) * chosen
    after = (scores + signs * MOVE * distances).astype(np.float32)
    # Equal scores have no distance, and rounding may undo the step.
    seen = np.abs(after - scores) > MOVE / 2 * np.maximum(distances, 1e-5)
    return after, (-signs / MOVE * seen).astype(np.float32)


def training_batch(rng, items, longest, fixed):
    """A batch of so many scores; half of the lists repeat the others with items moved.

    All lists have one length; if `fixed`, they are padded to that of the longest list.
    """
    kind = rng.random()
    if kind < 0.6:
        length = padded = min(sodeep.TEST_LENGTH, longest)
    else:
        short = kind < 0.8 or longest <= SHORT
        shortest, padded = (2, min(SHORT, longest)) if short else (SHORT + 1, longest)
        length = int(rng.integers(shortest, padded + 1))
    if fixed:
        padded = longest
    before = sodeep.draw_lists(rng, max(2, round(items / 2 / padded)), length)
    after, multipliers = moved(rng, before)
    scores = np.concatenate([before, after])
    missing = [(0, 0), (0, padded - length)]
    return {
        "scores": np.pad(scores, missing),
        "ranks": np.pad(sodeep.exact_ranks(scores), missing),
        "multipliers": np.pad(multipliers, missing),
        "length": length,
        # In a short list, ranks over d leave no room for slopes. With two or three
        # items, standardised scores hardly move.
        "wanted_slope": 0.0 if length < 4 else 0.4 * min(1.0, math.sqrt(length / 100)),
        "padding": padded > length,
    }


class Trainer:
    """A sorter in training; all of its state is in `variables` and `elapsed`."""

    def __init__(self, sorter):
        self.sorter = sorter
        sorter.build((None, None))
        self.weights = sorter.trainable_weights
        self.optimizer = keras.optimizers.Adam(
            beta_2=0.99, epsilon=1e-8, global_clipnorm=1.0
        )
        self.optimizer.build(self.weights)
        self.mean = [tf.Variable(weight) for weight in self.weights]
        self.variables = [*self.weights, *self.optimizer.variables, *self.mean]
        self.elapsed = 0.0
        # With XLA, an LSTM takes a quarter of the time; the others need no compilation.
        by_xla = isinstance(sorter, layers.RecurrentSorter)
        self.compiled_step = tf.function(self.step, jit_compile=by_xla)

    @property
    def steps(self):
        """The number of steps so far."""
        return int(self.optimizer.iterations)

    def step(self, scores, ranks, multipliers, length, wanted_slope, padding):
        """One step; returns the error of the ranks and the penalty of the slopes."""
        sizes = tf.cast(length, tf.float32)
        present = tf.range(tf.shape(scores)[1]) < length
        mask = tf.broadcast_to(present, tf.shape(scores)) if padding else None
        with tf.GradientTape() as tape:
            found = self.sorter(scores, mask=mask)
            lists = tf.cast(tf.shape(scores)[0], tf.float32)
            error = tf.reduce_sum(tf.abs(found - ranks)) / (lists * sizes**2)
            before, after = tf.split(found, 2)
            lacking = tf.nn.relu(wanted_slope - (after - before) * multipliers)
            moved = tf.cast(multipliers != 0, tf.float32)
            penalty = tf.reduce_sum(lacking * moved) / tf.maximum(
                tf.reduce_sum(moved), 1
            )
            loss = error + SLOPE_WEIGHT * penalty
        gradients = tape.gradient(loss, self.weights)
        self.optimizer.apply_gradients(zip(gradients, self.weights, strict=True))
        steps = tf.cast(self.optimizer.iterations, tf.float32)
        keep = tf.minimum(AVERAGE, (1 + steps) / (10 + steps))
        for weight, mean in zip(self.weights, self.mean, strict=True):
            mean.assign(keep * mean + (1 - keep) * tf.convert_to_tensor(weight))
        return error, penalty

    def train(self, batch, rate):
        """One step on a batch of `training_batch`; returns error and penalty."""
        self.optimizer.learning_rate = rate
        tensors = [
            tf.constant(batch[name]) for name in ("scores", "ranks", "multipliers")
        ]
        length, slope = (
            tf.constant(batch["length"]),
            tf.constant(batch["wanted_slope"], tf.float32),
        )
        return np.array(self.compiled_step(*tensors, length, slope, batch["padding"]))

    def result(self):
        """A frozen sorter with the mean weights."""
        sorter = type(self.sorter).from_config(
            self.sorter.get_config() | {"trainable": False}
        )
        sorter.build((None, None))
        sorter.set_weights([mean.numpy() for mean in self.mean])
        return sorter

    def save(self, path, settings):
        """Writes all of the state."""
        arrays = {f"variable_{i}": x.numpy() for i, x in enumerate(self.variables)}
        with _files.replacing(path) as temporary:
            np.savez(
                temporary, settings=json.dumps(settings), elapsed=self.elapsed, **arrays
            )

    def restore(self, path, settings):
        """Restores the state of a run with the same settings."""
        with np.load(path) as arrays:
            if (found := json.loads(str(arrays["settings"]))) != settings:
                raise ValueError(f"{path} is of a run with other settings: {found}.")
            for i, variable in enumerate(self.variables):
                variable.assign(arrays[f"variable_{i}"])
            self.elapsed = float(arrays["elapsed"])


def run(trainer, args, settings):
    """Trains for the minutes or steps left, with a checkpoint every few minutes."""
    validation = sodeep.draw_lists(np.random.default_rng([args.seed, 1]), 500, 100)
    longest = trainer.sorter.length if args.sorter == "convolutional" else LONG
    compiled, found = set(), []
    started = last = time.monotonic() - trainer.elapsed

    def share_done():
        done = trainer.elapsed / (60 * args.minutes)
        return done if args.steps is None else trainer.steps / args.steps

    while (share := share_done()) < 1:
        rng = np.random.default_rng([args.seed, 0, trainer.steps])
        batch = training_batch(rng, args.items, longest, args.sorter == "convolutional")
        decay = (1 + math.cos(math.pi * share)) / 2
        rate = (
            args.learning_rate * min(1, (trainer.steps + 1) / 100) * max(decay, 0.002)
        )
        found.append(trainer.train(batch, rate))
        shape = (batch["scores"].shape, batch["padding"])
        if shape not in compiled:  # The first step compiles, outside of training time.
            compiled.add(shape)
            started = time.monotonic() - trainer.elapsed
        trainer.elapsed = time.monotonic() - started
        if time.monotonic() - last > REPORT_SECONDS or share_done() >= 1:
            error, penalty = np.mean(found, axis=0)
            trainer.save(args.output / CHECKPOINT, settings)
            of_validation = sodeep.mean_rank_error(trainer.result(), validation)
            text = (
                f"{trainer.elapsed / 60:.1f} min, step {trainer.steps}: training "
                f"{error:.5f}, "
            )
            text += (
                f"slope penalty {penalty:.4f}, validation at d = 100 "
                f"{of_validation:.5f}"
            )
            print(text, flush=True)
            found, last = [], time.monotonic()
            started = last - trainer.elapsed


def main(arguments=None):
    """Trains, tests and writes."""
    quick = {
        "sorter": "convolutional",
        "steps": 5,
        "units": 4,
        "frequencies": 2,
        "items": 800,
    }
    parser = command_line.Parser(__spec__, __doc__, quick | {"test_lists": 50})
    add, count, number = parser.add_argument, command_line.count, command_line.number
    add("--sorter", choices=SORTERS, default="set", help="the network")
    add("--minutes", type=number, default=20, help="training time")
    add("--steps", type=count, help="total number of steps, instead of minutes")
    folder = pathlib.Path("out/sorter")
    add("--output", type=pathlib.Path, default=folder, help="folder of the files")
    add("--resume", action="store_true", help="resume from the checkpoint")
    add("--units", type=count, help="width; without it, the layer's own")
    add("--frequencies", type=count, help="without it, the layer's own")
    add("--learning-rate", type=number, default=3e-3, help="of Adam")
    add("--items", type=count, default=6400, help="scores in a batch")
    add("--seed", type=command_line.seed, default=0, help="of weights and lists")
    add(
        "--test-lists",
        type=count,
        default=sodeep.TEST_LISTS,
        help="lists for the final error",
    )
    args = parser.parse_args(arguments)
    args.output.mkdir(parents=True, exist_ok=True)
    names = [
        name for name in ("units", "frequencies") if getattr(args, name) is not None
    ]
    network = {name: getattr(args, name) for name in names}
    keras.utils.set_random_seed(args.seed)
    trainer = Trainer(SORTERS[args.sorter](**network, trainable=True))
    names = ("sorter", "units", "frequencies", "learning_rate", "items", "seed")
    settings = {name: getattr(args, name) for name in names}
    checkpoint = args.output / CHECKPOINT
    if args.resume and checkpoint.exists():
        trainer.restore(checkpoint, settings)
    run(trainer, args, settings)
    sorter = trainer.result()
    lengths = [sorter.length] if args.sorter == "convolutional" else sodeep.LENGTHS
    figures = sodeep.measure(sorter, lengths, args.test_lists)
    sorter.save_pretrained(
        args.output / f"{args.sorter}_sorter.npz",
        data="SoDeep's mixture of ten kinds of lists, scripts/reproductions/sodeep.py",
        steps=trainer.steps,
        minutes=round(trainer.elapsed / 60, 1),
        settings=settings,
        test_lists=args.test_lists,
        figures={name: round(value, 6) for name, value in figures.items()},
    )
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
