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
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow import keras

from examples import extreme_classification as example
from rank4class_tf import data, losses, metrics, ops, optimizers
from scripts import command_line
from scripts.reproductions import common
from scripts.tables import Table, plus_minus, show_all

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
ONLY_FACTORS = (SAMPLED_SOFTMAX, *OVER_ALL)
SOFTMAX_FACTOR = 10.0
TOP_K = r"(full )?Top-[1-9]\d*"


class Method(NamedTuple):
    """The parts of a method. A text may give the name alone."""

    name: str
    margin: str | None
    kind: str | None
    factor: float | None

    @classmethod
    def read(cls, text):
        """The method of "Top-16:logistic:10:pairwise"; the options have any order."""
        name, *options = text.split(":")
        if name not in (*METHODS, *OVER_ALL) and not re.fullmatch(TOP_K, name):
            raise ValueError(f"{name!r} is no method")
        parts = {"margin": None, "kind": None, "factor": None}
        for option in options:
            part, value = option_of(option)
            if parts[part] is not None:
                raise ValueError(f"there is a second {part}, {option!r}")
            parts[part] = value
        if name in ONLY_FACTORS and (parts["margin"] or parts["kind"]):
            raise ValueError(f"{name} takes only a factor")
        return cls(name, **parts)


def option_of(text):
    """What an option of a method is: the field of `Method`, and its value."""
    if text in MARGINS:
        return "margin", text
    if text in KINDS:
        return "kind", text
    if re.fullmatch(r"\d+(\.\d+)?", text) and float(text):
        return "factor", float(text)
    raise ValueError(f"{text!r} is no option")


def method_name(text):
    """A text of the command line that `Method` reads."""
    try:
        Method.read(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"must be one of {', '.join(METHODS)} or Top-K with a K > 0, and after "
            f"colons at most a factor > 0, one of {', '.join(MARGINS)} and one of "
            f"{', '.join(KINDS)} (a softmax only a factor), not {text!r}: {error}"
        ) from error
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
    method = Method.read(method)
    if method.name in OVER_ALL:
        return OVER_ALL[method.name](method.factor or SOFTMAX_FACTOR)
    if method.name == SAMPLED_SOFTMAX:
        return losses.SoftmaxLoss(temperature=1 / (method.factor or SOFTMAX_FACTOR))
    name = method.name.removeprefix(FULL)
    phi = method.margin or ("logistic" if name == WORD2VEC else "hinge")
    if method.factor:
        phi = ops.Scaled(phi, method.factor)
    if name.startswith("Top-"):
        weights = ops.TopKWeights(int(name.removeprefix("Top-")))
    else:
        # All weights are equal, so no sort is needed: a mean, or a sum as if of fewer
        # negatives.
        weight = (WORD2VEC_NEGATIVES if name == WORD2VEC else 1) / num_sampled
        weights = ops.StaircaseWeights([(1, weight)], tail=weight)
    return losses.OrderedWeightedLoss(method.kind or "binary", phi, weights)


# WordNet.


class Synset(NamedTuple):
    """A synset of WordNet; its key is the part of speech and the number."""

    parents: list[str]
    words: list[str]


def read_wordnet(folder):
    """Noun and verb synsets by key."""
    synsets = {}
    for part in ("noun", "verb"):
        path = folder / f"data.{part}"
        lines = path.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, start=1):
            if line.startswith("  "):  # The licence.
                continue
            try:
                synsets[part[0] + line.split()[0]] = read_synset(line)
            except (ValueError, IndexError) as error:
                raise ValueError(
                    f"{path}, line {number}: must be a synset of WordNet. Received: "
                    f"{line[:80]!r}."
                ) from error
    return synsets


def read_synset(line):
    """The synset of a line.

    Its fields are number, file, type, count of words, (word, id)*, count of pointers,
    (symbol, number, part of speech, places)*, and the gloss behind a bar.
    """
    synset, gloss = line.split(" | ", 1)
    fields = synset.split()
    at = 5 + 2 * int(fields[3], 16)
    pointers = fields[at : at + 4 * int(fields[at - 1])]
    parents = []
    for start in range(0, len(pointers), 4):
        symbol, number, part, _ = pointers[start : start + 4]
        if symbol in ("@", "@i"):
            parents.append(part + number)
    return Synset(parents, re.findall("[a-z]+", gloss.lower()))


def above(key, synsets):
    """All synsets above a synset but itself, since versions of WordNet had circles."""
    found = set()
    ahead = [key]
    while ahead:
        parents = set(synsets[ahead.pop()].parents) - found - {key}
        found |= parents
        ahead.extend(parents)
    return found


def top_levels(synsets, number):
    """The nouns of so many levels from the top: those with no noun but these above."""
    nouns = {key: synset for key, synset in synsets.items() if key[0] == "n"}
    top = set()
    for _ in range(number):
        top = {key for key, noun in nouns.items() if top.issuperset(noun.parents)}
    return top


class Concept(NamedTuple):
    """A synset as an example."""

    classes: set[str]
    words: list[str]


def concepts(synsets):
    """The synsets that have classes."""
    top = top_levels(synsets, 3)
    found = []
    for key, synset in synsets.items():
        if classes := above(key, synsets) - top:
            found.append(Concept(classes, synset.words))
    return found


class Glosses:
    """Features of glosses; the words, and how rare they are, are of a training part."""

    def __init__(self, glosses):
        self.size = len(glosses)
        self.frequency = collections.Counter()
        for words in glosses:
            self.frequency.update(set(words))
        kept = [w for w, count in self.frequency.items() if 2 <= count < self.size]
        self.number = {word: i for i, word in enumerate(sorted(kept))}

    def features(self, words):
        """The numbers of the words that are kept, and their weights, of length 1."""
        counts = collections.Counter(word for word in words if word in self.number)
        found = sorted(counts)
        weights = np.array([self.weight(word, counts[word]) for word in found])
        return [self.number[word] for word in found], weights / np.linalg.norm(weights)

    def weight(self, word, count):
        """The weight of a word that comes so often."""
        return np.log(self.size / self.frequency[word]) * (1 + np.log(count))


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
    found = concepts(read_wordnet(folder))
    classes = sorted(set().union(*(concept.classes for concept in found)))
    class_id = {key: i for i, key in enumerate(classes)}
    order = np.random.default_rng(0).permutation(len(found))
    parts = np.split(order, [int(0.8 * len(order)), int(0.9 * len(order))])
    glosses = Glosses([found[index].words for index in parts[0]])

    out.mkdir(parents=True, exist_ok=True)
    for name, part in zip(PARTS, parts, strict=True):
        points = []
        for index in part:
            labels = sorted(class_id[key] for key in found[index].classes)
            numbers, weights = glosses.features(found[index].words)
            if numbers:
                points.append((labels, numbers, weights))
        data.write_extreme_classification(
            out / f"{name}.txt", points, len(glosses.number), len(classes)
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
        self.task = task
        self.seed = seed
        self.row_multiplier = row_multiplier
        keras.utils.set_random_seed(seed)
        if args.optimizer == "sgd":
            optimizer = example.get_optimizer(1.0, row_multiplier, args.momentum)
        else:
            optimizer = optimizers.RowwiseAdagrad(
                row_multiplier=row_multiplier,
                initial_accumulator_value=args.accumulator,
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
        trained = common.train_to_best(
            self.model,
            epochs,
            train=lambda epoch: self.model.fit(batches, shuffle=False, verbose=0),
            evaluate=lambda: self.evaluate("validation"),
            metric=SELECT_BY,
            patience=patience,
            every=evaluate_every,
        )
        result = {"validation": trained.best, "history": trained.history}
        if test:
            result["test"] = self.evaluate("test")
        return result


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


# Tuning.


class Rates(NamedTuple):
    """The learning rate of the rows, and its ratio to that of the dense weights."""

    rate: float
    ratio: float


class Studies(NamedTuple):
    """The runs of a method: those of a few epochs, which search, and those in full."""

    search: common.Study
    full: common.Study


def studies_of(task, method, num_sampled, args):
    """The studies of a method; their settings are `Rates`."""

    # The rates of a grid follow each other with the same ratio.
    @functools.lru_cache(maxsize=1)
    def trainer(ratio, seed):
        return Trainer(task(), method, num_sampled, ratio, seed, args)

    def study(epochs, evaluate_every):
        how = {"epochs": epochs, "evaluate_every": evaluate_every}

        def make(rates, seed, test):
            trained = trainer(rates.ratio, seed)
            return trained.run(rates.rate, **how, patience=args.patience, test=test)

        return common.Study(
            args,
            make,
            select_by=SELECT_BY,
            options="batch_size width optimizer momentum accumulator patience".split(),
            method=method,
            num_sampled=num_sampled,
            files=str(args.files.resolve()),
            **how,
        )

    return Studies(
        search=study(args.search_epochs, args.search_epochs),
        full=study(args.epochs, args.evaluate_every),
    )


def beyond(rates, best):
    """A list of the next rate of a grid whose best is at an end; otherwise empty."""
    if len(rates) < 2 or best not in (rates[0], rates[-1]):
        return []
    outwards = rates if best == rates[-1] else rates[::-1]
    # The step equals the last but one: steps of half a decade are 3 and 10 / 3 in turn.
    inner, outer = outwards[-3:-1] if len(rates) > 2 else outwards
    rate = float(f"{best * outer / inner:.2g}")
    return [] if rate in rates else [rate]


def searched(study, args):
    """Short runs of a grid, which is extended while its best rate is at an end."""
    rates = new = sorted(args.learning_rates)
    found = []
    for _ in range(1 + MOST_WIDENINGS):
        grid = itertools.product(args.row_multipliers, new)
        found += study.tried([Rates(rate, ratio) for ratio, rate in grid])
        new = beyond(rates, study.best(found).settings.rate)
        if not new:
            break
        rates = sorted([*rates, *new])
    return found


def tuned(studies, args):
    """The best rates of a method."""
    found = searched(studies.search, args)
    found.sort(key=studies.search.quality, reverse=True)
    finalists = [run.settings for run in found[: args.finalists]]
    if len(finalists) == 1:
        return finalists[0]
    return studies.full.best(studies.full.tried(finalists)).settings


# Tables.


def tables_of(args):
    """For each number of samples the figures, and their ratios to negative sampling."""
    # Only new runs need it.
    task = functools.cache(lambda: read(args.files, args.batch_size))
    for num_sampled in args.num_sampled:
        rows = []
        ratios = []
        baseline = None
        for method in args.methods:
            studies = studies_of(task, method, num_sampled, args)
            rates = tuned(studies, args)
            runs = studies.full.tested(rates)
            row = [method, *(f"{x:g}" for x in rates), *common.reached(runs, METRICS)]
            rows.append([*row, common.mean_kept(runs, "cpu_seconds")])

            values = np.array([[run.test[name] for name in METRICS] for run in runs])
            if method == BASELINE:
                baseline = values
            elif baseline is not None:
                ratios.append([method, *map(plus_minus, (values / baseline).T)])

        figures = [f"{value:.3f}" for value in most_frequent(task())]
        rows.append(["the most frequent classes", "", "", *figures, ""])
        head = ["method", "rate of rows", "over dense", *TITLES, "CPU s"]
        yield Table(f"B = {num_sampled:,}", head, rows)
        if ratios:
            of = f"B = {num_sampled:,}, ratios to {BASELINE} of the same seed"
            yield Table(of, ["method", *TITLES], ratios)


def parser():
    """The command line."""
    quick = {
        "methods": [BASELINE, "Top-1"],
        "seeds": [0],
        "learning_rates": [30.0],
        "row_multipliers": [30_000.0],
        "search_epochs": 1,
        "finalists": 1,
        "epochs": 1,
        "width": 16,
    }
    result = common.parser(__spec__, __doc__, quick)
    add = result.add_value
    add_values = result.add_values
    path = pathlib.Path
    count = command_line.count
    number = command_line.number
    add("--files", path, path("wordnet"), "folder of the three files")
    add("--wordnet", path, None, "WordNet's folder dict, to write the files first")
    result.add_argument(
        "--methods",
        type=method_name,
        nargs="*",
        default=METHODS,
        help="as Top-16:logistic:10",
    )
    rates = [0.3, 1, 3, 10, 30, 100, 300]
    add_values("--learning-rates", number, rates, "of rows")
    add_values("--row-multipliers", number, [300, 3000], "rows over dense")
    add("--search-epochs", count, 2, "epochs per pair of rates")
    add("--finalists", count, 2, "pairs of rates tried in full")
    optimizers = ["adagrad", "sgd"]
    result.add_argument(
        "--optimizer", choices=optimizers, default="sgd", help="of rows"
    )
    add("--momentum", command_line.below_1, 0.9, "of dense weights, for sgd")
    add("--accumulator", number, 1e-8, "initial value, for adagrad")
    add_values("--num-sampled", count, [1024], "classes to sample, B")
    add("--width", count, 64, "width of encodings and embeddings")
    add("--batch-size", count, 256, "examples a step")
    common.add_epochs(result, epochs=10, every=2, patience=4, figure="Recall@5")
    return result


def main(argv=None):
    """Writes WordNet's files, or tunes, trains, tests and reports."""
    args = parser().parse_args(argv)
    if args.wordnet is not None:
        write_wordnet(args.wordnet, args.files)
    if args.methods:
        show_all(tables_of(args), args.csv)


if __name__ == "__main__":
    main()
