"""Trains a sorter on random lists and their exact ranks.

    python -m scripts.reproductions.train_sorter --sorter set --minutes 20 --output out/set

It trains on the lists of SoDeep (sorting.py). In three of five steps they have 100 items, else 2 to
300 (for the convolutional sorter at most its length; shorter lists are padded and masked). The loss
is the mean error of the ranks divided by d, plus a penalty for slopes that are too small. For this,
half of the lists in a batch repeat the other half with some items moved by a part of the local
distance. The rank of a moved item must change by a share of what the scores around it imply.
Without this penalty a sorter becomes accurate through steps or ripples, and the model that trains
through it gets no gradient.

Adam's rate falls as a cosine over the minutes (wall-clock, of training), or over --steps, which
gives the same weights each time. The result has the mean of the weights over about the last
thousand steps. The folder that --output names gets `<sorter>_sorter.npz`, which
`layers.<Sorter>.pretrained(path)` reads; a JSON card beside it with all results on a fixed test set
of 10,000 lists; `checkpoint.npz`; and the checkpoint before it. With --resume, a run continues from
the newest readable checkpoint. The run may have been stopped, or may have finished and gets more
minutes or steps.
"""

import json
import math
import pathlib
import time

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _files, _keras, layers
from scripts import command_line
from scripts.reproductions import sorting

SORTERS = {
    "recurrent": layers.RecurrentSorter,
    "convolutional": layers.ConvolutionalSorter,
    "set": layers.SetSorter,
}
TEST_LENGTHS = (100, 10, 32, 300)
# Lists are padded to one of these lengths, so that XLA compiles few programs.
SHORT, LONG = 32, 300
REPORT_SECONDS = 300
# The newest first.
CHECKPOINTS = ("checkpoint.npz", "checkpoint_before.npz")
# An item moves by the part MOVE of the mean distance of its neighbours, NEIGHBOURS on each side.
MOVE = 0.3
NEIGHBOURS = 3
MOVED_SHARE = 0.1
AVERAGE = 0.999


def moved(rng, scores):
    """Moves some items of the lists a little, and says how their ranks should change.

    Args:
        rng: where the numbers come from.
        scores: `[count, length]`.

    Returns:
        The moved scores, and a multiplier for each item, 0 for items that have not moved. The
        change of an item's rank (after less before) times its multiplier is 1 if the rank changes
        as the scores around it imply.
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
    """A batch of lists of one length; one half repeats the other with some items moved.

    Args:
        rng: where the numbers come from.
        items: how many scores a batch has.
        longest: the length of the longest list.
        fixed: whether all lists are padded to that length.

    Returns:
        A dict: `scores` and `ranks`, `[count, padded]`, `multipliers` as `moved` returns them,
        `[count / 2, padded]`, `length`, `wanted_slope`, and whether there is `padding`.
    """
    kind = rng.random()
    if kind < 0.6:
        length = padded = min(sorting.TEST_LENGTH, longest)
    else:
        short = kind < 0.8 or longest <= SHORT
        shortest, padded = (2, min(SHORT, longest)) if short else (SHORT + 1, longest)
        length = int(rng.integers(shortest, padded + 1))
    if fixed:
        padded = longest
    before = sorting.draw_lists(rng, max(2, round(items / 2 / padded)), length)
    after, multipliers = moved(rng, before)
    scores = np.concatenate([before, after])
    missing = [(0, 0), (0, padded - length)]
    return {
        "scores": np.pad(scores, missing),
        "ranks": np.pad(sorting.exact_ranks(scores), missing),
        "multipliers": np.pad(multipliers, missing),
        "length": length,
        # In a short list, ranks over d leave no room for slopes. With two or three items,
        # standardised scores hardly move.
        "wanted_slope": 0.0 if length < 4 else 0.4 * min(1.0, math.sqrt(length / 100)),
        "padding": padded > length,
    }


class Trainer:
    """A sorter in training; all of its state is in `variables` and `elapsed`."""

    def __init__(self, sorter, slope_weight):
        self.sorter = sorter
        self.slope_weight = slope_weight
        sorter.build((None, None))
        self.weights = [_keras.variable(weight) for weight in sorter.trainable_weights]
        zeros = [tf.zeros_like(weight) for weight in self.weights]
        self.first = [tf.Variable(x) for x in zeros]
        self.second = [tf.Variable(x) for x in zeros]
        self.mean = [tf.Variable(weight) for weight in self.weights]
        self.steps = tf.Variable(0.0)
        self.variables = [*self.weights, *self.first, *self.second, *self.mean, self.steps]
        self.elapsed = 0.0
        # With XLA, an LSTM takes a quarter of the time; the others need no compilation.
        self.compiled_step = tf.function(
            self.step, jit_compile=isinstance(sorter, layers.RecurrentSorter)
        )

    def step(self, scores, ranks, multipliers, length, wanted_slope, rate, padding):
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
            penalty = tf.reduce_sum(lacking * moved) / tf.maximum(tf.reduce_sum(moved), 1)
            loss = error + self.slope_weight * penalty
        gradients = tape.gradient(loss, self.weights)
        clip = tf.minimum(1.0, 1 / (tf.linalg.global_norm(gradients) + 1e-9))
        self.steps.assign_add(1.0)
        steps = self.steps.read_value()
        keep = tf.minimum(AVERAGE, (1 + steps) / (10 + steps))
        state = zip(self.weights, gradients, self.first, self.second, self.mean, strict=True)
        for weight, gradient, first, second, mean in state:
            gradient *= clip
            first.assign(0.9 * first + 0.1 * gradient)
            second.assign(0.99 * second + 0.01 * gradient**2)
            size = tf.sqrt(second / (1 - 0.99**steps)) + 1e-8
            weight.assign_sub(rate * first / (1 - 0.9**steps) / size)
            mean.assign(keep * mean + (1 - keep) * weight)
        return error, penalty

    def train(self, batch, rate):
        """One step on a batch of `training_batch`; returns error and penalty."""
        tensors = [tf.constant(batch[name]) for name in ("scores", "ranks", "multipliers")]
        length = tf.constant(batch["length"])
        wanted_slope = tf.constant(batch["wanted_slope"], tf.float32)
        rate = tf.constant(rate, tf.float32)
        result = self.compiled_step(*tensors, length, wanted_slope, rate, batch["padding"])
        return np.array([x.numpy() for x in result])

    def result(self):
        """A frozen sorter with the mean weights."""
        config = self.sorter.get_config() | {"trainable": False}
        sorter = type(self.sorter).from_config(config)
        sorter.build((None, None))
        sorter.set_weights([mean.numpy() for mean in self.mean])
        return sorter

    def save(self, folder, settings):
        """Writes all of the state, and keeps the previous checkpoint."""
        arrays = {f"variable_{i}": x.numpy() for i, x in enumerate(self.variables)}
        newest, before = (folder / name for name in CHECKPOINTS)
        with _files.replacing(newest) as temporary:
            np.savez(temporary, settings=json.dumps(settings), elapsed=self.elapsed, **arrays)
            if newest.exists():
                newest.replace(before)

    def restore(self, folder, settings):
        """Restores the newest readable state, if any, from a run with the same settings."""
        faults = []
        for path in (folder / name for name in CHECKPOINTS):
            if not path.exists():
                continue
            try:
                found, elapsed, values = self._read(path)
            # NumPy and zipfile raise errors of many types on a damaged file.
            except Exception as error:
                faults.append(f"{path} must be a checkpoint of this script: {error!r}.")
                continue
            if found != settings:
                raise ValueError(f"{path} is of a run with other settings: {found}.")
            for variable, value in zip(self.variables, values, strict=True):
                variable.assign(value)
            self.elapsed = elapsed
            if faults:
                print(f"{faults[0]} Going on from {path}.", flush=True)
            return
        if faults:
            raise ValueError(" ".join(faults))

    def _read(self, path):
        with path.open("rb") as content, np.load(content) as file:
            arrays = dict(file)
        values = [arrays[f"variable_{i}"] for i in range(len(self.variables))]
        return json.loads(str(arrays["settings"])), float(arrays["elapsed"]), values


def run(trainer, args, settings, output):
    """Trains for the minutes or steps that are left, with a checkpoint every few minutes."""
    validation = sorting.draw_lists(np.random.default_rng([args.seed, 1]), 500, 100)
    longest = trainer.sorter.length if args.sorter == "convolutional" else LONG
    compiled, sums, count = set(), np.zeros(2), 0
    started = last = time.monotonic() - trainer.elapsed

    def share_done():
        steps = int(trainer.steps.numpy())
        return trainer.elapsed / (60 * args.minutes) if args.steps is None else steps / args.steps

    while (share := share_done()) < 1:
        steps = int(trainer.steps.numpy())
        rng = np.random.default_rng([args.seed, 0, steps])
        batch = training_batch(rng, args.items, longest, args.sorter == "convolutional")
        decay = (1 + math.cos(math.pi * share)) / 2
        rate = args.learning_rate * min(1, (steps + 1) / 100) * max(decay, 0.002)
        sums += trainer.train(batch, rate)
        count += 1
        shape = (batch["scores"].shape, batch["padding"])
        if shape not in compiled:  # The first step compiles, outside of training time.
            compiled.add(shape)
            started = time.monotonic() - trainer.elapsed
        trainer.elapsed = time.monotonic() - started
        if time.monotonic() - last > REPORT_SECONDS or share_done() >= 1:
            error, penalty = sums / count
            trainer.save(output, settings)
            found = sorting.mean_rank_error(trainer.result(), validation)
            print(
                f"{trainer.elapsed / 60:.1f} min, step {steps + 1}: training {error:.5f}, "
                f"slope penalty {penalty:.4f}, validation at d = 100 {found:.5f}",
                flush=True,
            )
            sums, count, last = np.zeros(2), 0, time.monotonic()
            started = last - trainer.elapsed


def parse_args(arguments=None):
    """The command line."""
    parser = command_line.parser(__spec__, description=__doc__)
    count, number = command_line.positive(int), command_line.positive(float)
    parser.add_argument("--sorter", choices=SORTERS, required=True)
    parser.add_argument("--minutes", type=number, default=20, help="training time")
    parser.add_argument("--steps", type=count, help="total number of steps, instead of minutes")
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--resume", action="store_true", help="resume from the checkpoint")
    parser.add_argument("--units", type=count, help="width; default: the layer's own")
    parser.add_argument("--frequencies", type=count, help="default: the layer's own")
    parser.add_argument("--learning-rate", type=number, default=3e-3)
    parser.add_argument(
        "--slope-weight",
        type=command_line.number_below(math.inf),
        default=0.02,
        help="weight of the penalty for vanishing and wrong slopes",
    )
    parser.add_argument("--items", type=count, default=6400, help="scores in a batch")
    parser.add_argument("--seed", type=command_line.seed, default=0)
    parser.add_argument(
        "--test-lists", type=count, default=sorting.TEST_LISTS, help="lists for the final error"
    )
    return parser.parse_args(arguments)


def main(arguments=None):
    """Trains, tests and writes."""
    args = parse_args(arguments)
    args.output.mkdir(parents=True, exist_ok=True)
    given = {name: getattr(args, name) for name in ("units", "frequencies")}
    keras.utils.set_random_seed(args.seed)
    network = {name: value for name, value in given.items() if value is not None}
    trainer = Trainer(SORTERS[args.sorter](**network, trainable=True), args.slope_weight)
    names = ("sorter", "units", "frequencies", "learning_rate", "slope_weight", "items", "seed")
    settings = {name: getattr(args, name) for name in names}
    if args.resume:
        trainer.restore(args.output, settings)
    else:
        for name in CHECKPOINTS:
            (args.output / name).unlink(missing_ok=True)
    run(trainer, args, settings, args.output)
    sorter = trainer.result()
    lengths = [getattr(sorter, "length", None)] if args.sorter == "convolutional" else TEST_LENGTHS
    figures = sorting.measure(sorter, lengths, args.test_lists)
    sorter.save_pretrained(
        args.output / f"{args.sorter}_sorter.npz",
        data="SoDeep's mixture of ten kinds of lists, scripts/reproductions/sorting.py",
        steps=int(trainer.steps.numpy()),
        minutes=round(trainer.elapsed / 60, 1),
        settings=settings,
        test_lists=args.test_lists,
        figures={name: round(value, 6) for name, value in figures.items()},
    )
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
