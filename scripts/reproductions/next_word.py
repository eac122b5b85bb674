"""Next words: softmax and Rankmax over all words, beside Keras's `Dense`.

    python -m scripts.reproductions.next_word valid.txt test.txt --csv next_word.csv

The texts are read as one, in lower case, with spaces between words: the first 80 % to
train, 10 % for validation, 10 % to test. The most frequent words of the first part are
the classes. The others share one input, and are no label.

A GRU reads pieces of a text. Over all words, one table embeds the words and scores
them; `Dense` has a table of its own. All have one optimizer and the same rates, of
which the validation NDCG@10 with `--tuning-seed` chooses one. It chooses the epoch of
each training too. Losses have their default temperature or margin. The perplexity is
that of the softmax of `calibrate`, fitted to a part of the validation words.
"""

import collections
import functools

import numpy as np
import tensorflow as tf
from tensorflow import keras

import rank4class_tf as r4c
from scripts import command_line
from scripts.reproductions import common
from scripts.tables import Table, show_all

# None stands for Keras's `Dense` and its own loss.
LOSSES = {
    "softmax, Dense": None,
    "softmax, all": r4c.losses.SoftmaxLoss(),
    "Rankmax, all": r4c.losses.RankmaxLoss(),
}
NDCG, PERPLEXITY = "NDCG@10", "perplexity"
DIGITS = {"hit@1": 4, "hit@3": 4, NDCG: 4, PERPLEXITY: 1}
UNKNOWN = 0
LENGTH = 32  # Words of a piece.
# So many batches fit the temperature.
CALIBRATED_BATCHES = 4


def read(files, num_words):
    """Inputs and labels `[n, LENGTH]` to train, for validation and to test."""
    texts = [path.read_text(encoding="utf-8") for path in files]
    words = " ".join(texts).lower().split()
    tenth = len(words) // 10
    counts = collections.Counter(words[: 8 * tenth])
    del counts["<unk>"]
    frequent = [word for word, _ in counts.most_common(num_words - 1)]
    numbers = {word: number for number, word in enumerate(frequent, UNKNOWN + 1)}
    ids = np.array([numbers.get(word, UNKNOWN) for word in words], np.int32)

    def pieces(part):
        used = (len(part) - 1) // LENGTH * LENGTH
        inputs = part[:used]
        labels = part[1 : used + 1]
        labels = np.where(labels == UNKNOWN, -1, labels)
        return inputs.reshape(-1, LENGTH), labels.reshape(-1, LENGTH)

    return [pieces(part) for part in np.split(ids, [8 * tenth, 9 * tenth])]


def build(method, num_words, width):
    """A model, and the function from its inputs to the scores of all words."""
    loss = LOSSES[method]
    if loss is None:
        embed = keras.layers.Embedding(num_words, width)
    else:
        table = r4c.layers.ClassTable(num_words, width)
        embed = r4c.layers.ClassEmbedding(table)
    inputs = keras.Input((None,), dtype="int32")
    x = keras.layers.Dropout(0.2)(embed(inputs))
    x = keras.layers.GRU(width, return_sequences=True)(x)
    encoder = keras.Model(inputs, keras.layers.Dropout(0.2)(x))
    if loss is None:
        model = keras.Model(inputs, keras.layers.Dense(num_words)(encoder.output))
        return model, model
    model = r4c.models.ExtremeClassifier(
        encoder, table, width, num_sampled=None, normalize=False
    )
    return model, lambda x: model.scores(model(x))


def perplexity(score, validation, test):
    """The perplexity of the test words, with a temperature of validation words."""
    score = tf.function(score, reduce_retracing=True)
    layer = r4c.calibrate(score, validation.take(CALIBRATED_BATCHES))
    found = []
    for inputs, labels in test:
        chances = tf.gather(layer(score(inputs)), tf.maximum(labels, 0), batch_dims=2)
        found.append(chances[labels >= 0])
    return float(np.exp(-np.log(np.concatenate(found)).mean()))


def run(method, rate, seed, args):
    """Trains a model; returns what its best epoch has on both parts."""
    keras.utils.set_random_seed(seed)
    train, *parts = read(args.files, args.words)
    model, score = build(method, args.words, args.width)
    loss = LOSSES[method] or keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, ignore_class=-1
    )
    metrics = [
        r4c.metrics.HitRate(1, name="hit@1"),
        r4c.metrics.HitRate(3, name="hit@3"),
        r4c.metrics.NDCG(10, name=NDCG),
    ]
    model.compile(keras.optimizers.Adam(rate), loss, metrics=metrics)
    validation, test = (
        tf.data.Dataset.from_tensor_slices(part).batch(args.batch_size)
        for part in parts
    )

    def evaluate(part):
        return model.evaluate(part, return_dict=True, verbose=0)

    trained = common.train_to_best(
        model,
        args.epochs,
        lambda epoch: model.fit(*train, args.batch_size, verbose=0),
        functools.partial(evaluate, validation),
        NDCG,
        patience=args.epochs,
    )
    found = {**evaluate(test), PERPLEXITY: perplexity(score, validation, test)}
    return {
        "validation": trained.best,
        "test": found,
        "epoch_seconds": trained.epoch_seconds,
    }


def study_of(args, method):
    """The runs of a method; all of them test, since a seed that tunes is reported."""

    def make(rate, seed, test):
        return run(method, rate, seed, args)

    return common.Study(
        args,
        make,
        select_by=NDCG,
        options=("words", "width", "batch_size", "epochs"),
        method=method,
        files=[str(path.resolve()) for path in args.files],
    )


def tables_of(args):
    """What the methods reach, and what they tried."""
    rows = []
    tried = []
    for method in LOSSES:
        study = study_of(args, method)
        runs = [study.run(rate, args.tuning_seed, test=True) for rate in args.rates]
        tried.append([method, *(f"{study.quality(run):.4f}" for run in runs)])

        rate = study.best(runs).settings
        runs = study.tested(rate)
        row = [method, f"{rate:g}", common.best_epochs(runs)]
        for name, digits in DIGITS.items():
            row += common.reached(runs, [name], digits)
        rows.append([*row, common.mean_kept(runs, "epoch_seconds")])
    _, labels = read(args.files, args.words)[-1]
    title = f"Next words: {(labels >= 0).sum():,} of {labels.size:,} test words"
    head = ["method", "rate", "epochs", *DIGITS, "CPU s an epoch"]
    yield Table(f"{title}, rates tried: {len(args.rates)}", head, rows)
    head = ["method", *(f"{rate:g}" for rate in args.rates)]
    yield Table("Next words: validation NDCG@10 by rate", head, tried)


def main(argv=None):
    """Tunes, trains, tests and reports."""
    quick = {"words": 50, "width": 4, "epochs": 1, "rates": [0.01], "seeds": [0]}
    parser = common.parser(__spec__, __doc__, quick, seeds=2)
    parser.set_defaults(tuning_seed=0)
    common.add_files(parser, "texts, in order")
    rates = [3e-3, 1e-2]
    parser.add_values("--rates", command_line.number, rates, "learning rates to try")
    add = parser.add_value
    count = command_line.count
    add("--words", count, 5000, "classes, one for all other words")
    add("--width", count, 64, "width of the tables and of the GRU")
    add("--batch-size", count, 32, "pieces a step")
    add("--epochs", count, 6, "at most")
    args = parser.parse_args(argv)
    show_all(tables_of(args), args.csv)


if __name__ == "__main__":
    main()
