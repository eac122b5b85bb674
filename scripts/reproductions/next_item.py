"""SASRec by loss: one negative, gBCE, sampled softmax, and losses over all items.

    python -m scripts.reproductions.next_item ml-1m/ratings.dat --csv next_item.csv

The last item of each user is the test item, the one before it the validation item. All
items are ranked but those that the user had before, as in the published code of
gSASRec.

Methods: binary cross-entropy with one uniform negative for each position (Kang &
McAuley 2018, "Self-Attentive Sequential Recommendation"); gBCE with 256 negatives and t
= .75 (Petrov & Macdonald 2023, "gSASRec: Reducing Overconfidence in Sequential
Recommendation Trained with Negative Sampling"), where the positions of a user share one
sample unless `--own-negatives`; softmax over 256 items sampled for each batch; four
losses over all items. All have one model, one optimizer and one search: the learning
rate first, then the dropout, by NDCG@10 on the validation items with `--tuning-seed`.
The same metric chooses the epoch.

Published for MovieLens-1M, with length 200 and width 128: SASRec with one negative
NDCG@10 .1259 and HR@10 .2392, gSASRec .1726 and .3003.

Two processes with different `--methods` may share `--out`; a call without it then shows
the whole table. Memory is what a run adds, in the first run of a process; later ones
reuse what is there.
"""

import functools
import pathlib
import zlib
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow import keras

import rank4class_tf as r4c
from examples.next_item import sasrec
from scripts import command_line
from scripts.benchmarks import harness
from scripts.reproductions import common
from scripts.tables import Table, plus_minus, show_all

NDCG, HR = "NDCG@10", "HR@10"
# The number of negatives for each position and gBCE's t, which is 0 for binary
# cross-entropy.
NEGATIVES = {"BCE, 1 negative": (1, 0.0), "gBCE, 256 negatives": (256, 0.75)}


def owl(k):
    """The mean hinge of the k highest negatives."""
    return r4c.losses.OrderedWeightedLoss("pairwise", "hinge", r4c.ops.TopKWeights(k))


# The number of sampled items, None for all, and the loss.
LOSSES = {
    "softmax, 256 sampled": (256, r4c.losses.SoftmaxLoss()),
    "softmax, all": (None, r4c.losses.SoftmaxLoss()),
    "Rankmax, all": (None, r4c.losses.RankmaxLoss()),
    "OWL top 16, all": (None, owl(16)),
    "OWL top 512, all": (None, owl(512)),
}
METHODS = [*NEGATIVES, *LOSSES]
RIVAL = "gBCE, 256 negatives"
read = functools.lru_cache(1)(r4c.data.UserItems.from_file)


def gbce(positive, negatives, counts, beta):
    """Binary cross-entropy `[...]` of scores `[...]` and `[..., n]`.

    The probability of the positive has the power `beta`; 1 is plain binary
    cross-entropy. `counts` is 0 for no negative.
    """
    others = tf.reduce_sum(counts * tf.nn.softplus(negatives), axis=-1)
    return beta * tf.nn.softplus(-positive) + others


class Negatives(keras.Model):
    """An encoder and an item table, trained by `gbce` on uniformly drawn negatives."""

    def __init__(self, encoder, table, number, t, own):
        super().__init__()
        self.encoder, self.table, self.number = encoder, table, number
        self.own = own or number == 1  # Whether each position has its own sample.
        self.beta = r4c.losses.gbce_power(number, table.num_classes, t)

    def call(self, inputs, training=None):
        return self.encoder(inputs, training=training)

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        """The mean over the positions with a label."""
        batch, length = tf.unstack(tf.shape(y))
        shape = [batch, length if self.own else 1, self.number]
        negatives = tf.random.uniform(
            shape, maxval=self.table.num_classes, dtype=tf.int32
        )
        counts = tf.cast(negatives != y[..., tf.newaxis], tf.float32)
        positive = tf.reduce_sum(y_pred * self.table.rows(tf.maximum(y, 0)), axis=-1)
        rows = self.table.rows(negatives)
        if self.own:
            scores = tf.matmul(rows, y_pred[..., tf.newaxis])[..., 0]
        else:
            scores = tf.matmul(y_pred, rows[:, 0], transpose_b=True)
        return tf.reduce_mean(
            tf.boolean_mask(gbce(positive, scores, counts, self.beta), y >= 0)
        )


def values_of_users(encode, table, users, part, length, batch_size):
    """NDCG@10 and HR@10 of each user's item in a part, without items before it."""
    found = {NDCG: [], HR: []}
    metrics = {NDCG: r4c.metrics.NDCG(10), HR: r4c.metrics.HitRate(10)}
    earlier = [users.train, users.validation][: 1 + (part == "test")]
    # Those of `sequences`.
    rows = tf.where(getattr(users, part).row_lengths() > 0)[:, 0]
    seen = tf.gather(tf.concat(earlier, axis=1), rows)
    for inputs, next_items in users.sequences(part, length, batch_size):
        last = tf.argmax(next_items, axis=1)  # Of all positions, this one has a label.
        encodings = tf.gather(encode(inputs), last, batch_dims=1)
        items = tf.gather(next_items, last, batch_dims=1)
        scores = tf.matmul(encodings, table.rows(), transpose_b=True)
        exclude = seen[len(found[NDCG]) :][: len(inputs)].to_tensor(-1)
        # A repeated item.
        exclude = tf.where(exclude == items[:, tf.newaxis], -1, exclude)
        for name, metric in metrics.items():
            values, _ = metric.per_list(items, scores, exclude=exclude)
            found[name] += values[:, 0].numpy().round(4).tolist()
    return found


def run(method, settings, seed, args, test):
    """Trains a model; returns its figures at the best epoch, its time and memory."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    users = read(args.file)
    table = r4c.layers.ClassTable(users.num_items, args.width)
    encoder = sasrec(table, args.length, args.width, settings["dropout"])
    number, loss = LOSSES.get(method, (None, None))
    if loss is None:
        model = Negatives(encoder, table, *NEGATIVES[method], args.own_negatives)
    else:
        kwargs = {"num_sampled": number, "normalize": False, "seed": seed}
        model = r4c.models.ExtremeClassifier(encoder, table, args.width, **kwargs)
    model.compile(r4c.optimizers.RowwiseAdam(settings["rate"]), loss)
    sizes = args.length, args.batch_size
    batches = users.sequences("train", *sizes, seed)
    encode = tf.function(
        functools.partial(encoder, training=False), reduce_retracing=True
    )

    def train(epoch):
        (value,) = model.fit(batches, shuffle=False, verbose=0).history["loss"]
        assert np.isfinite(value), f"The loss is {value} in epoch {epoch}."

    def evaluate():
        values = values_of_users(encode, table, users, "validation", *sizes)
        return {name: float(np.mean(x)) for name, x in values.items()}

    before = harness.reset_peak()
    trained = common.train_to_best(
        model, args.epochs, train, evaluate, NDCG, args.patience, args.evaluate_every
    )
    peak = (harness.memory_status("VmHWM") - before) / 1e6
    found = {
        "validation": trained.best,
        "epoch_seconds": trained.epoch_seconds,
        "peak": peak,
    }
    if test:
        found["test"] = values_of_users(encode, table, users, "test", *sizes)
    return found


def study_of(args, method):
    """The runs of a method; only a test run looks at the test items."""

    def make(settings, seed, test):
        return run(method, settings, seed, args, test)

    return common.Study(
        args,
        make,
        select_by=NDCG,
        options="length width batch_size epochs evaluate_every patience".split(),
        method=method,
        data=zlib.crc32(args.file.read_bytes()),
        own_negatives=args.own_negatives and method == RIVAL,
    )


class Tuned(NamedTuple):
    """The settings that are chosen for a method, and the runs that chose them."""

    settings: dict[str, float]
    tried: list[common.Run]


def tuned(study, args):
    """Tries the rates with the first dropout, then the other dropouts."""
    settings = {"dropout": args.dropouts[0], "rate": args.rates[0]}
    if len(args.rates) == len(args.dropouts) == 1:  # There is nothing to choose.
        return Tuned(settings, [])
    runs = []
    for name, choices in (("rate", args.rates), ("dropout", args.dropouts[1:])):
        runs += study.tried([settings | {name: choice} for choice in choices])
        settings = study.best(runs).settings
    return Tuned(settings, runs)


def tables_of(args):
    """What the methods reach, and what they tried."""
    studies = {method: study_of(args, method) for method in args.methods}
    done = {method: tuned(study, args) for method, study in studies.items()}
    tests = {name: study.tested(done[name].settings) for name, study in studies.items()}

    rival = RIVAL if RIVAL in tests else args.methods[0]
    rows = [[method, *cells_of(runs, tests[rival])] for method, runs in tests.items()]
    head = ["method", NDCG, HR, f"{NDCG} of each seed"]
    head += [f"{NDCG} over {rival} (95 %, of users)", "dropout", "rate", "epochs"]
    head += ["CPU s an epoch", "CPU s a run", "peak MB"]
    users = read(args.file)
    title = f"Test, {users.num_users:,} users, {users.num_items:,} items"
    yield Table(title, head, rows)

    tried = []
    for method, of_method in done.items():
        tried += [[method, *cells_of_tried(run)] for run in of_method.tried]
    if tried:
        yield Table("Tried", ["method", "dropout", "rate", NDCG, HR, "epoch"], tried)


def cells_of_tried(run):
    """What was tried in a run, and what came of it."""
    best = run.validation
    settings = [f"{value:g}" for value in run.settings.values()]
    return [*settings, f"{best[NDCG]:.4f}", f"{best[HR]:.4f}", str(best["epoch"])]


def cells_of(runs, of_rival):
    """What a method's runs reach, gain over its rival and cost."""
    figures = []
    for name in (NDCG, HR):
        figures.append(plus_minus([np.mean(run.test[name]) for run in runs], 4))
    each = ", ".join(f"{np.mean(run.test[NDCG]):.4f}" for run in runs)

    # Of each user, over the seeds.
    ours = np.mean([run.test[NDCG] for run in runs], axis=0)
    theirs = np.mean([run.test[NDCG] for run in of_rival], axis=0)
    gained = common.gained(ours - theirs, 4)

    chosen = [f"{value:g}" for value in runs[0].settings.values()]
    names = ("epoch_seconds", "cpu_seconds", "peak")
    costs = [common.mean_kept(runs, name) for name in names]
    return [*figures, each, gained, *chosen, common.best_epochs(runs), *costs]


def main(argv=None):
    """Tunes, trains, tests and reports."""
    quick = {
        "length": 8,
        "width": 8,
        "epochs": 1,
        "seeds": [0],
        "rates": [0.01],
        "dropouts": [0.2],
    }
    quick["methods"] = [RIVAL, "Rankmax, all"]
    parser = common.parser(__spec__, __doc__, quick, seeds=2)
    text = "users and items, of any of three forms"
    parser.add_argument("file", type=pathlib.Path, metavar="FILE", help=text)
    parser.add_names("--methods", METHODS, "rows")
    add = parser.add_value
    add_values = parser.add_values
    count = command_line.count
    rate = command_line.number
    share = command_line.below_1
    add_values("--rates", rate, [1e-3, 2e-3, 4e-3], "learning rates to try")
    add_values("--dropouts", share, [0.2, 0.4], "dropouts to try")
    add("--length", count, 100, "positions, the last ones of each user")
    add("--width", count, 64, "width of the table and of the encodings")
    add("--batch-size", count, 128, "users per batch")
    common.add_epochs(parser, epochs=120, every=4, patience=20, figure=NDCG)
    text = "a sample for each position: 6 GB"
    parser.add_argument("--own-negatives", action="store_true", help=text)
    args = parser.parse_args(argv)
    show_all(tables_of(args), args.csv)


if __name__ == "__main__":
    main()
