"""Trains a sorter on random lists and their exact ranks.

    python -m scripts.reproductions.train_sorter --sorter set --output out/set

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
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _files, layers
from scripts import command_line
from scripts.reproductions import sodeep

SORTERS = {
    "recurrent": layers.RecurrentSorter,
    "convolutional": layers.ConvolutionalSorter,
    "set": layers.SetSorter,
}
# Lists are padded to one of these lengths, so that XLA compiles few programs.
SHORT, LONG = 32, 300
REPORT_SECONDS = 300
CHECKPOINT = "checkpoint.npz"
# An item moves by the part MOVE of the mean distance of its neighbours, NEIGHBOURS on
# each side.
MOVE = 0.3
NEIGHBOURS = 3
MOVED_SHARE = 0.1
AVERAGE = 0.999
SLOPE_WEIGHT = 0.02  # Of the penalty of slopes.


def moved(rng, scores):
    """Moves some items of the lists a little; returns the moved scores and multipliers.

    The change of an item's rank (after less before) times its multiplier, which is 0
    for an item that has not moved, is 1 if the rank changes as the scores around it
    imply.
    """
    distances = local_distances(scores)
    chosen = rng.random(scores.shape) < max(MOVED_SHARE, 1.5 / scores.shape[1])
    signs = np.where(rng.random(scores.shape) < 0.5, -1, 1) * chosen
    after = (scores + signs * MOVE * distances).astype(np.float32)
    # Equal scores have no distance, and rounding may undo the step.
    seen = np.abs(after - scores) > MOVE / 2 * np.maximum(distances, 1e-5)
    return after, (-signs / MOVE * seen).astype(np.float32)


def local_distances(scores):
    """The mean distance between neighbours in the order of scores, at each item."""
    length = scores.shape[1]
    order = np.argsort(-scores, axis=1)
    ordered = np.take_along_axis(scores, order, axis=1)
    above = np.maximum(np.arange(length) - NEIGHBOURS, 0)
    below = np.minimum(np.arange(length) + NEIGHBOURS, length - 1)
    means = (ordered[:, above] - ordered[:, below]) / (below - above)
    distances = np.empty_like(scores)
    np.put_along_axis(distances, order, means, axis=1)
    return distances


class Lengths(NamedTuple):
    """How many items the lists of a batch have, and to how many they are padded."""

    items: int
    padded: int


def draw_lengths(rng, longest):
    """`sodeep.TEST_LENGTH` in three of five batches, else a short or a long one."""
    kind = rng.random()
    if kind < 0.6:
        length = min(sodeep.TEST_LENGTH, longest)
        return Lengths(length, length)
    if kind < 0.8 or longest <= SHORT:
        shortest = 2
        padded = min(SHORT, longest)
    else:
        shortest = SHORT + 1
        padded = longest
    return Lengths(int(rng.integers(shortest, padded + 1)), padded)


def training_batch(rng, items, longest, fixed):
    """A batch of so many scores; half of the lists repeat the others with items moved.

    All lists have one length; if `fixed`, they are padded to that of the longest list.
    """
    length, padded = draw_lengths(rng, longest)
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


def rank_error(found, ranks, length):
    """The mean error of ranks over d, the length of the lists without padding."""
    lists = tf.cast(tf.shape(ranks)[0], tf.float32)
    items = tf.cast(length, tf.float32)
    return tf.reduce_sum(tf.abs(found - ranks)) / (lists * items**2)


def slope_penalty(found, multipliers, wanted):
    """How much slope the items lack that are moved in the second half of the lists."""
    before, after = tf.split(found, 2)
    lacking = tf.nn.relu(wanted - (after - before) * multipliers)
    moved = tf.cast(multipliers != 0, tf.float32)
    return tf.reduce_sum(lacking * moved) / tf.maximum(tf.reduce_sum(moved), 1)


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
        present = tf.range(tf.shape(scores)[1]) < length
        mask = tf.broadcast_to(present, tf.shape(scores)) if padding else None
        with tf.GradientTape() as tape:
            found = self.sorter(scores, mask=mask)
            error = rank_error(found, ranks, length)
            penalty = slope_penalty(found, multipliers, wanted_slope)
            loss = error + SLOPE_WEIGHT * penalty
        gradients = tape.gradient(loss, self.weights)
        self.optimizer.apply_gradients(zip(gradients, self.weights, strict=True))
        self.update_means()
        return error, penalty

    def update_means(self):
        """Moves the mean weights; at first they forget faster."""
        steps = tf.cast(self.optimizer.iterations, tf.float32)
        keep = tf.minimum(AVERAGE, (1 + steps) / (10 + steps))
        for weight, mean in zip(self.weights, self.mean, strict=True):
            mean.assign(keep * mean + (1 - keep) * tf.convert_to_tensor(weight))

    def train(self, batch, rate):
        """One step on a batch of `training_batch`; returns error and penalty."""
        self.optimizer.learning_rate = rate
        found = self.compiled_step(
            tf.constant(batch["scores"]),
            tf.constant(batch["ranks"]),
            tf.constant(batch["multipliers"]),
            tf.constant(batch["length"]),
            tf.constant(batch["wanted_slope"], tf.float32),
            batch["padding"],
        )
        return np.array(found)

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


def share_done(trainer, args):
    """How much of the minutes or steps is over."""
    if args.steps is None:
        return trainer.elapsed / (60 * args.minutes)
    return trainer.steps / args.steps


def rate_of(trainer, args):
    """The learning rate: it rises for 100 steps, and falls as a cosine."""
    decay = (1 + math.cos(math.pi * share_done(trainer, args))) / 2
    return args.learning_rate * min(1, (trainer.steps + 1) / 100) * max(decay, 0.002)


def run(trainer, args, settings):
    """Trains for the minutes or steps left, with a checkpoint every few minutes."""
    validation = sodeep.draw_lists(np.random.default_rng([args.seed, 1]), 500, 100)
    fixed = args.sorter == "convolutional"
    longest = trainer.sorter.length if fixed else LONG
    compiled = set()
    found = []

    def report(error, penalty):
        trainer.save(args.output / CHECKPOINT, settings)
        of_validation = sodeep.mean_rank_error(trainer.result(), validation)
        print(
            f"{trainer.elapsed / 60:.1f} min, step {trainer.steps}: training "
            f"{error:.5f}, slope penalty {penalty:.4f}, validation at d = 100 "
            f"{of_validation:.5f}",
            flush=True,
        )

    started = last = time.monotonic() - trainer.elapsed
    while share_done(trainer, args) < 1:
        rng = np.random.default_rng([args.seed, 0, trainer.steps])
        batch = training_batch(rng, args.items, longest, fixed)
        found.append(trainer.train(batch, rate_of(trainer, args)))

        shape = (batch["scores"].shape, batch["padding"])
        if shape not in compiled:  # The first step compiles, outside of training time.
            compiled.add(shape)
            started = time.monotonic() - trainer.elapsed
        trainer.elapsed = time.monotonic() - started

        is_due = time.monotonic() - last > REPORT_SECONDS
        if is_due or share_done(trainer, args) >= 1:
            report(*np.mean(found, axis=0))
            found = []
            last = time.monotonic()
            started = last - trainer.elapsed


def parser():
    """The command line."""
    quick = {
        "sorter": "convolutional",
        "steps": 5,
        "units": 4,
        "frequencies": 2,
        "items": 800,
        "test_lists": 50,
    }
    result = command_line.Parser(__spec__, __doc__, quick)
    result.add_argument("--sorter", choices=SORTERS, default="set", help="the network")
    add = result.add_value
    count = command_line.count
    number = command_line.number
    add("--minutes", number, 20, "training time")
    add("--steps", count, None, "total number of steps, instead of minutes")
    path = pathlib.Path
    add("--output", path, path("out/sorter"), "folder of the files")
    resume = "resume from the checkpoint"
    result.add_argument("--resume", action="store_true", help=resume)
    add("--units", count, None, "width; without it, the layer's own")
    add("--frequencies", count, None, "without it, the layer's own")
    add("--learning-rate", number, 3e-3, "of Adam")
    add("--items", count, 6400, "scores in a batch")
    add("--seed", command_line.seed, 0, "of weights and lists")
    add("--test-lists", count, sodeep.TEST_LISTS, "lists for the final error")
    return result


def make_trainer(args, settings):
    """A trainer from the start, or from the checkpoint of such a run."""
    network = command_line.chosen(args, "units", "frequencies")
    given = {name: value for name, value in network.items() if value is not None}
    keras.utils.set_random_seed(args.seed)
    trainer = Trainer(SORTERS[args.sorter](**given, trainable=True))
    checkpoint = args.output / CHECKPOINT
    if args.resume and checkpoint.exists():
        trainer.restore(checkpoint, settings)
    return trainer


def main(arguments=None):
    """Trains, tests and writes."""
    args = parser().parse_args(arguments)
    args.output.mkdir(parents=True, exist_ok=True)
    names = ("sorter", "units", "frequencies", "learning_rate", "items", "seed")
    settings = command_line.chosen(args, *names)
    trainer = make_trainer(args, settings)
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
