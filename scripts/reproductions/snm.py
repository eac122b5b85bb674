"""Stochastic negative mining against negative sampling: Table 2 of its paper.

    python -m scripts.reproductions.snm --methods --files wordnet --wordnet FOLDER
    python -m scripts.reproductions.snm --files wordnet

The first command only writes WordNet's concepts as train.txt, validation.txt and
test.txt in the format of the Extreme Classification Repository (a minute). The second
reads such files, of this or of other data. On WordNet, a run takes 15 to 75 seconds of
a core and a full method 100 to 500; the default grid of all methods takes four hours.

Protocol: the model is that of examples/extreme_classification.py, trained with the
binary ordered weighted loss, hinge, on B classes sampled for each batch. Negative
sampling takes the mean over all B, and Top-k mining the mean over the k highest.
`word2vec` is the other negative sampling: dot products of vectors of any length, the
logistic loss, and negatives whose total weight is 15 times that of the positive.
Softmax has the temperature 0.1. A "full" method uses the loss of that name over all
classes, with all labels of an example; the number after it is a factor of the scores.

All methods share one grid: the learning rate of the rows, and the ratio of that rate to
the rate of the dense weights. Each pair is tried for `--search-epochs` with
`--tuning-seed`. If the best rate is at an end of the grid, the grid is extended there.
The best `--finalists` pairs are tried in full, if there are several. The pair with the
best Recall@5 on the validation part is used with each seed, and the same metric chooses
the epoch. The test part is used once per seed. A seed determines the initial weights,
the samples and the order of the batches.
"""

import argparse
import collections
import dataclasses
import functools
import itertools
import pathlib
import re
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

from examples import extreme_classification as example
from rank4class_tf import data, losses, metrics, ops, optimizers
from scripts import command_line
from scripts.reproductions import common
from scripts.tables import plus_minus, show_all

PARTS = ("train", "validation", "test")
METRICS = [f"{name}_at_{k}" for name in ("precision", "recall") for k in (1, 3, 5)]
TITLES = [f"{metric[0].upper()}@{metric[-1]}" for metric in METRICS]
SELECT_BY = "recall_at_5"
BASELINE, WORD2VEC, FULL = "negative sampling", "word2vec", "full "
FULL_SOFTMAX, SAMPLED_SOFTMAX = "full softmax", "sampled softmax"
METHODS = [BASELINE, WORD2VEC, "Top-256", "Top-64", "Top-16", "Top-1", SAMPLED_SOFTMAX]
METHODS += [FULL_SOFTMAX]
MARGINS = ("hinge", "squared_hinge", "logistic", "exponential", "ramp")
KINDS = ("pairwise", "binary")
# word2vec draws 5 to 20 negatives for each example.
WORD2VEC_NEGATIVES = 15
# A grid is extended at most this many times, counting both ends.
MOST_WIDENINGS = 6
# Losses over all classes, given a factor of the scores. Every example has the same
# weight.
OVER_ALL = {
    FULL_SOFTMAX: lambda by: losses.SoftmaxLoss(
        temperature=1 / by, positive_reduction="mean"
    ),
    "full Rankmax": lambda by: losses.RankmaxLoss(
        margin=1 / by, positive_reduction="mean"
    ),
    "full Sparsemax": lambda by: losses.FenchelYoungLoss(alpha=by),
    "full ApproxNDCG": lambda by: losses.ApproxNDCGLoss(temperature=1 / by),
}


def method_name(text):
    """Reads a method, as `make_loss` takes it."""
    name, *options = text.split(":")
    known = name in (*METHODS, *OVER_ALL) or re.fullmatch(r"(full )?Top-[1-9]\d*", name)
    margins = [option for option in options if option in MARGINS]
    kinds = [option for option in options if option in KINDS]
    factors = [option for option in options if re.fullmatch(r"\d+(\.\d+)?", option)]
    one_of_each = max(map(len, (margins, kinds, factors))) <= 1
    all_known = len([*margins, *kinds, *factors]) == len(options)
    only_factors = name in (SAMPLED_SOFTMAX, *OVER_ALL) and margins + kinds
    if (
        not (known and one_of_each and all_known and all(map(float, factors)))
        or only_factors
    ):
        raise argparse.ArgumentTypeError(
            f"must be one of {', '.join(METHODS)} or Top-K with a K > 0, and after "
            f"colons at most a factor > 0, one of {', '.join(MARGINS)} and one of "
            f"{', '.join(KINDS)} (a softmax only a factor), not {text!r}"
        )
    return text


def make_loss(method, num_sampled):
    """The loss that a method stands for.

    Args:
        method: one of `METHODS`; the name may be followed by a margin function, a
            factor of the scores and the kind of loss, in any order:
            "Top-16:logistic:10:pairwise". The defaults are from the paper: hinge, 1,
            binary. A softmax takes only a factor.
        num_sampled: number of sampled classes.
    """
    name, *options = method.split(":")
    factors = [float(option) for option in options if option[0].isdigit()]
    if name in OVER_ALL or name == SAMPLED_SOFTMAX:
        factor = (factors or [10.0])[0]
        over_sampled = losses.SoftmaxLoss(temperature=1 / factor)
        return OVER_ALL[name](factor) if name in OVER_ALL else over_sampled
    name = name.removeprefix(FULL)
    kind = next((option for option in options if option in KINDS), "binary")
    logistic = "logistic" if name == WORD2VEC else "hinge"
    phi = next((option for option in options if option in MARGINS), logistic)
    if name.startswith("Top-"):
        weights = ops.TopKWeights(int(name.removeprefix("Top-")))
    else:
        # All weights are equal, so no sort is needed: a mean, or a sum as if of fewer
        # negatives.
        weight = (WORD2VEC_NEGATIVES if name == WORD2VEC else 1) / num_sampled
        weights = ops.StaircaseWeights([(1, weight)], tail=weight)
    return losses.OrderedWeightedLoss(
        kind, ops.Scaled(phi, factors[0]) if factors else phi, weights
    )


# WordNet.


def read_wordnet(folder):
    """Noun and verb synsets, by part of speech and number: keys above, and words."""
    synsets = {}
    for part in ("noun", "verb"):
        path = folder / f"data.{part}"
        for number, line in enumerate(
            path.read_text(encoding="utf-8").splitlines(), start=1
        ):
            if line.startswith("  "):  # The licence.
                continue
            try:
                # Number, file, type, count of words, (word, id)*, count of pointers,
                # (symbol, number, part of speech, places)*, and the gloss behind a bar.
                synset, gloss = line.split(" | ", 1)
                fields = synset.split()
                at = 5 + 2 * int(fields[3], 16)
                pointers = fields[at : at + 4 * int(fields[at - 1])]
                parents = zip(*(pointers[place::4] for place in range(3)), strict=True)
                above = [
                    f"{of}{key}" for symbol, key, of in parents if symbol in ("@", "@i")
                ]
                synsets[part[0] + fields[0]] = (
                    above,
                    re.findall("[a-z]+", gloss.lower()),
                )
            except (ValueError, IndexError) as error:
                raise ValueError(
                    f"{path}, line {number}: must be a synset of WordNet. Received: "
                    f"{line[:80]!r}."
                ) from error
    return synsets


def above(key, synsets):
    """All synsets above a synset but itself, since versions of WordNet had circles."""
    found, ahead = set(), [key]
    while ahead:
        parents = set(synsets[ahead.pop()][0]) - found - {key}
        found |= parents
        ahead.extend(parents)
    return found


def write_wordnet(folder, out):
    r"""Writes WordNet's concepts as files, from its folder `dict`.

    A point is a noun or verb synset. Its features are the words of its gloss,
    definition and examples, in lower case, with weights that are scaled to length 1:

    $$x_f \propto (1 + \log n_f) \log \frac{N}{N_f}$$

    for a word that occurs n_f times in the gloss and in N_f of the N glosses of the
    training part. Words in fewer than two training glosses, or in all, are left out.
    The classes of a point are all synsets above it, by the relations "is a" and "is an
    instance of", at any distance, except the three top levels of nouns. Points without
    classes or without features are left out. The split is random, 80/10/10, and always
    the same.

    WordNet 3.0 gives 75,904 / 9,476 / 9,468 points of 5.4 classes, 25,775 features and
    20,456 classes. Half of the classes have at most two training points, and 1,507 have
    none. The frequencies of classes follow a power law.

    Source: C. Fellbaum (ed.), "WordNet: An Electronic Lexical Database", MIT Press
    1998. It is at wordnet.princeton.edu, and in Debian's package `wordnet-base`, in
    `/usr/share/wordnet`.
    """
    synsets, top = read_wordnet(folder), set()
    for _ in range(3):
        top = {
            key
            for key, of in synsets.items()
            if key[0] == "n" and top.issuperset(of[0])
        }
    labelled = [
        (above(key, synsets) - top, words) for key, (_, words) in synsets.items()
    ]
    labelled = [(classes, words) for classes, words in labelled if classes]
    classes = sorted(set().union(*(classes for classes, _ in labelled)))
    class_id = {key: i for i, key in enumerate(classes)}
    order = np.random.default_rng(0).permutation(len(labelled))
    parts = np.split(order, [int(0.8 * len(order)), int(0.9 * len(order))])
    size = len(parts[0])
    frequency = collections.Counter(
        word for index in parts[0] for word in dict.fromkeys(labelled[index][1])
    )
    vocabulary = sorted(word for word, count in frequency.items() if 2 <= count < size)
    number = {word: i for i, word in enumerate(vocabulary)}

    def points(part):
        for index in part:
            keys, words = labelled[index]
            counts = collections.Counter(word for word in words if word in number)
            if not counts:
                continue
            found = sorted(counts)
            weights = [
                np.log(size / frequency[w]) * (1 + np.log(counts[w])) for w in found
            ]
            values = np.array(weights) / np.linalg.norm(weights)
            yield (
                sorted(class_id[key] for key in keys),
                [number[w] for w in found],
                values,
            )

    out.mkdir(parents=True, exist_ok=True)
    for name, part in zip(PARTS, parts, strict=True):
        path = out / f"{name}.txt"
        data.write_extreme_classification(
            path, list(points(part)), len(number), len(classes)
        )


# Training.


@dataclasses.dataclass(frozen=True)
class Task:
    """Batches of sparse features and class ids, which stay in memory once read."""

    parts: dict[str, Any]
    num_features: int
    num_classes: int

    def train(self, seed):
        """The training batches, in a new order each time that they are read."""
        return self.parts["train"].shuffle(len(self.parts["train"]), seed=seed)


def read(folder, batch_size):
    """The task of a folder with the three files."""
    parts = {}
    for name in PARTS:
        batches = data.extreme_classification(
            folder / f"{name}.txt", batch_size
        ).cache()
        count = sum(1 for _ in batches)  # Reads them once.
        parts[name] = batches.apply(tf.data.experimental.assert_cardinality(count))
    _, *sizes = data.read_extreme_header(folder / "train.txt")
    return Task(parts, *sizes)


class Trainer:
    """The model of a method; it starts from the same weights for each rate."""

    def __init__(self, task, method, num_sampled, row_multiplier, seed, args):
        self.task, self.seed, self.row_multiplier = task, seed, row_multiplier
        keras.utils.set_random_seed(seed)
        if args.optimizer == "sgd":
            optimizer = example.get_optimizer(1.0, row_multiplier, args.momentum)
        else:
            start = {"initial_accumulator_value": args.accumulator}
            optimizer = optimizers.RowwiseAdagrad(
                row_multiplier=row_multiplier, **start
            )
        self.model = example.build(
            task.num_features,
            task.num_classes,
            make_loss(method, num_sampled),
            optimizer,
            args.width,
            None if method.startswith(FULL) else num_sampled,
            seed,
            normalize=not method.startswith(WORD2VEC),
        )
        self.model.optimizer.build(self.model.trainable_variables)
        self.state = [*self.model.variables, *self.model.optimizer.variables]
        self.start = [variable.numpy() for variable in self.state]

    def evaluate(self, part):
        """The figures of a part; NaN figures of a diverged model count as 0."""
        found = self.model.evaluate(self.task.parts[part], return_dict=True, verbose=0)
        return {metric: float(np.nan_to_num(found[metric])) for metric in METRICS}

    def run(self, rate, epochs, evaluate_every, patience, test):
        """Trains the model; returns its history and its figures at the best epoch."""
        for variable, value in zip(self.state, self.start, strict=True):
            variable.assign(value)
        self.model.optimizer.learning_rate = rate / self.row_multiplier
        batches = self.task.train(self.seed)
        history, best = common.train_to_best(
            self.model,
            epochs,
            lambda epoch: self.model.fit(batches, epochs=1, shuffle=False, verbose=0),
            functools.partial(self.evaluate, "validation"),
            SELECT_BY,
            patience,
            evaluate_every,
        )
        result = {"validation": best, "history": history}
        return result | ({"test": self.evaluate("test")} if test else {})


def most_frequent(task):
    """Test figures of always predicting the training part's most frequent classes."""
    counts = np.zeros(task.num_classes, np.float32)
    for _, class_ids in task.parts["train"]:
        np.add.at(counts, class_ids[class_ids >= 0], 1)
    figures = {}
    for metric in (metrics.PrecisionAtK([1, 3, 5]), metrics.RecallAtK([1, 3, 5])):
        metric.label_format = "ids"
        for _, class_ids in task.parts["test"]:
            metric.update_state(class_ids, np.tile(counts, (len(class_ids), 1)))
        figures |= metric.result()
    return [float(figures[name]) for name in METRICS]


def beyond(rates, best):
    """A list of the next rate of a grid whose best is at an end; otherwise empty."""
    if len(rates) < 2 or best not in (rates[0], rates[-1]):
        return []
    outwards = rates if best == rates[-1] else rates[::-1]
    # The step equals the last but one: steps of half a decade are 3 and 10 / 3 in turn.
    inner, outer = outwards[-3:-1] if len(rates) > 2 else outwards
    rate = float(f"{best * outer / inner:.2g}")
    return [] if rate in rates else [rate]


def tuned(task, method, num_sampled, args):
    """The chosen rate and ratio of a method, and its runs with each seed."""
    names = ("batch_size", "width", "optimizer", "momentum", "accumulator")
    options = {name: getattr(args, name) for name in names}
    options |= {
        "files": str(args.files.resolve()),
        "method": method,
        "num_sampled": num_sampled,
    }

    @functools.lru_cache(maxsize=1)
    def trainer(ratio, seed):
        return Trainer(task(), method, num_sampled, ratio, seed, args)

    def kept_run(rate, ratio, seed, search=False, test=False):
        how = {
            "epochs": args.epochs,
            "evaluate_every": args.evaluate_every,
            "test": test,
        }
        if search:
            how |= {"epochs": args.search_epochs, "evaluate_every": args.search_epochs}
        how["patience"] = args.patience
        of_run = options | {"rate": rate, "ratio": ratio, "seed": seed} | how
        return common.kept(
            args.out, of_run, lambda: trainer(ratio, seed).run(rate, **how)
        )

    def quality(result):
        return result["validation"][SELECT_BY]

    rates, found = sorted(args.learning_rates), []
    new = list(rates)
    for _ in range(1 + MOST_WIDENINGS):
        pairs = itertools.product(args.row_multipliers, new)
        found += [
            kept_run(rate, ratio, args.tuning_seed, search=True)
            for ratio, rate in pairs
        ]
        new = beyond(rates, max(found, key=quality)["rate"])
        if not new:
            break
        rates = sorted([*rates, *new])
    finalists = sorted(found, key=quality, reverse=True)[: args.finalists]
    if len(finalists) > 1:
        finalists = [
            kept_run(of["rate"], of["ratio"], args.tuning_seed) for of in finalists
        ]
    best = max(finalists, key=quality)
    chosen = best["rate"], best["ratio"]
    return chosen, [kept_run(*chosen, seed, test=True) for seed in args.seeds]


def tables_of(args):
    """For each number of samples the figures, and their ratios to negative sampling."""
    # Only new runs need it.
    task = functools.cache(lambda: read(args.files, args.batch_size))
    for num_sampled in args.num_sampled:
        rows, ratios, baseline = [], [], None
        for method in args.methods:
            chosen, runs = tuned(task, method, num_sampled, args)
            values = np.array(
                [[run["test"][metric] for metric in METRICS] for run in runs]
            )
            seconds = f"{np.mean([run['cpu_seconds'] for run in runs]):.0f}"
            rows.append(
                [
                    method,
                    *(f"{x:g}" for x in chosen),
                    *map(plus_minus, values.T),
                    seconds,
                ]
            )
            if method == BASELINE:
                baseline = values
            elif baseline is not None:
                ratios.append([method, *map(plus_minus, (values / baseline).T)])
        figures = [f"{value:.3f}" for value in most_frequent(task())]
        rows.append(["the most frequent classes", "", "", *figures, ""])
        head = ["method", "rate of rows", "over dense", *TITLES, "CPU s"]
        yield f"B = {num_sampled:,}", head, rows
        if ratios:
            of = f"B = {num_sampled:,}, ratios to {BASELINE} of the same seed"
            yield of, ["method", *TITLES], ratios


def main(argv=None):
    """Writes WordNet's files, or tunes, trains, tests and reports."""
    quick = {"methods": [BASELINE, "Top-1"], "seeds": [0], "learning_rates": [30.0]}
    quick |= {
        "row_multipliers": [30_000.0],
        "search_epochs": 1,
        "finalists": 1,
        "epochs": 1,
    }
    parser = common.parser(__spec__, __doc__, quick | {"width": 16})
    count, number = command_line.count, command_line.number
    add, wordnet = parser.add_argument, pathlib.Path("wordnet")
    add("--files", type=pathlib.Path, default=wordnet, help="folder of the three files")
    add(
        "--wordnet",
        type=pathlib.Path,
        help="WordNet's folder dict, to write the files first",
    )
    add(
        "--methods",
        type=method_name,
        nargs="*",
        default=METHODS,
        help="as Top-16:logistic:10",
    )
    rates = [0.3, 1, 3, 10, 30, 100, 300]
    add("--learning-rates", nargs="+", type=number, default=rates, help="of rows")
    add(
        "--row-multipliers",
        nargs="+",
        type=number,
        default=[300, 3000],
        help="rows over dense",
    )
    add("--search-epochs", type=count, default=2, help="epochs per pair of rates")
    add("--finalists", type=count, default=2, help="pairs of rates tried in full")
    add("--optimizer", choices=["adagrad", "sgd"], default="sgd", help="of rows")
    add(
        "--momentum",
        type=command_line.below_1,
        default=0.9,
        help="of dense weights, for sgd",
    )
    add("--accumulator", type=number, default=1e-8, help="initial value, for adagrad")
    add(
        "--num-sampled",
        nargs="+",
        type=count,
        default=[1024],
        help="classes to sample, B",
    )
    add("--width", type=count, default=64, help="width of encodings and embeddings")
    add("--batch-size", type=count, default=256, help="examples a step")
    add("--epochs", type=count, default=10, help="at most")
    add("--evaluate-every", type=count, default=2, help="epochs between evaluations")
    add(
        "--patience",
        type=count,
        default=4,
        help="epochs to go on without a better Recall@5",
    )
    args = parser.parse_args(argv)
    if args.wordnet is not None:
        write_wordnet(args.wordnet, args.files)
    if args.methods:
        show_all(tables_of(args), args.csv)


if __name__ == "__main__":
    main()
