"""Stochastic negative mining against negative sampling: Table 2 of its paper.

    python -m scripts.reproductions.snm --tasks wordnet --out out/snm

Tasks: `wordnet`, the concepts above a concept, from the words of its definition; and `files`, three
files in the format of the Extreme Classification Repository. Protocol: the model is that of
examples/extreme_classification.py, trained with the binary ordered weighted loss, hinge, on B
classes sampled for each batch. Negative sampling takes the mean over all B, and Top-k mining the
mean over the k highest. "Top-64>Top-1" uses the 64 highest in the first half of the epochs and the
highest in the second. `word2vec` is the other negative sampling: dot products of vectors of any
length, the logistic loss, and negatives whose total weight is 15 times that of the positive.
Softmax has the temperature 0.1. A "full" method uses the loss of that name over all classes, with
all labels of an example; the number after it is a factor of the scores.

All methods share one grid: the learning rate of the rows, and the ratio of that rate to the rate of
the dense weights. Each pair is tried for `--search-epochs` with `--tuning-seed`, which is none of
the seeds reported. If the best rate is at an end of the grid, the grid is extended there. The best
`--finalists` pairs are tried in full, if there are several. The pair with the best Recall@5 on the
validation part is used with each seed, and the epoch is chosen by the same metric. The test part is
used once per seed, with the weights of the best epoch. A seed determines the initial weights, the
samples and the order of the batches.

Each finished run is a file in `--out`. A second call with the same settings resumes there; a call
with other settings replaces the runs. The results are `results.md`, `results.json` and, with
matplotlib, `ratios.png`.
"""

import argparse
import dataclasses
import functools
import os
import pathlib
import re

import numpy as np
import tensorflow as tf
from tensorflow import keras

from examples import extreme_classification as example
from rank4class_tf import data, losses, metrics, ops, optimizers
from scripts import command_line, tables
from scripts.reproductions import harness
from scripts.reproductions import wordnet as _wordnet

METRICS = [f"{name}_at_{k}" for name in ("precision", "recall") for k in (1, 3, 5)]
SELECT_BY = "recall_at_5"
BASELINE = "negative sampling"
FULL_SOFTMAX = "full softmax"
SAMPLED_SOFTMAX = "sampled softmax"
WORD2VEC = "word2vec"
FULL = "full "
METHODS = (
    BASELINE,
    WORD2VEC,
    *(f"Top-{k}" for k in (256, 64, 16, 1)),
    SAMPLED_SOFTMAX,
    FULL_SOFTMAX,
)

MARGINS = ("hinge", "squared_hinge", "logistic", "exponential", "ramp")

KINDS = ("pairwise", "binary")

# word2vec draws 5 to 20 negatives for each example.
_WORD2VEC_NEGATIVES = 15

# A grid is extended at most this many times, counting both ends.
_MOST_WIDENINGS = 6


# Losses over all classes, given a factor of the scores. Every example has the same weight.
OVER_ALL = {
    FULL_SOFTMAX: lambda by: losses.SoftmaxLoss(temperature=1 / by, positive_reduction="mean"),
    "full Rankmax": lambda by: losses.RankmaxLoss(margin=1 / by, positive_reduction="mean"),
    "full Sparsemax": lambda by: losses.FenchelYoungLoss(alpha=by),
    "full ApproxNDCG": lambda by: losses.ApproxNDCGLoss(temperature=1 / by),
}


def method_name(text):
    """Reads a method, as `make_loss` takes it."""
    name, *options = text.split(":")
    top = r"(full )?Top-[1-9]\d*|Top-[1-9]\d*>Top-[1-9]\d*"
    known = name in (*METHODS, *OVER_ALL) or re.fullmatch(top, name)
    margins = [option for option in options if option in MARGINS]
    kinds = [option for option in options if option in KINDS]
    factors = [option for option in options if re.fullmatch(r"\d+(\.\d+)?", option)]
    one_of_each = max(map(len, (margins, kinds, factors))) <= 1
    all_known = len([*margins, *kinds, *factors]) == len(options)
    if not (known and one_of_each and all_known and all(map(float, factors))):
        raise argparse.ArgumentTypeError(
            f"must be one of {', '.join(METHODS)}, Top-K or Top-K>Top-K with a K > 0, and after "
            f"colons at most a factor > 0, one of {', '.join(MARGINS)} and one of "
            f"{', '.join(KINDS)}, not {text!r}"
        )
    if name in (SAMPLED_SOFTMAX, *OVER_ALL) and margins + kinds:
        raise argparse.ArgumentTypeError(
            f"must have no option but a factor after {name}, not {text!r}"
        )
    return text


def make_loss(method, num_sampled):
    """The loss that a method stands for.

    Args:
        method: one of `METHODS`; the name may be followed by a margin function, a factor of the
            scores and the kind of loss, in any order: "Top-16:logistic:10:pairwise". The defaults
            are from the paper: hinge, 1, binary. A softmax takes only a factor. For "Top-64>Top-1",
            the result is the loss of the first half.
        num_sampled: number of sampled classes.
    """
    name, *options = method.split(":")
    name = name.partition(">")[0]
    factor = float(next((option for option in options if option[0].isdigit()), 10))
    if name in OVER_ALL:
        return OVER_ALL[name](factor)
    name = name.removeprefix(FULL)
    numbers = [float(option) for option in options if option[0].isdigit()]
    names = [option for option in options if not option[0].isdigit()]
    kinds = [option for option in names if option in KINDS]
    phis = [option for option in names if option not in kinds]
    if name == SAMPLED_SOFTMAX:
        return losses.SoftmaxLoss(temperature=1 / factor)
    if name.startswith("Top-"):
        weights = ops.TopKWeights(int(name.removeprefix("Top-")))
    else:
        # All weights are equal, so no sort is needed: a mean, or a sum as if of fewer negatives.
        weight = (_WORD2VEC_NEGATIVES if name == WORD2VEC else 1) / num_sampled
        weights = ops.StaircaseWeights([(1, weight)], tail=weight)
    phi = (phis or ["logistic" if name == WORD2VEC else "hinge"])[0]
    if numbers:
        phi = ops.Scaled(phi, numbers[0])
    return losses.OrderedWeightedLoss((kinds or ["binary"])[0], phi, weights)


def make_schedule(method, num_sampled, model, epochs):
    """The callbacks that change a model's loss halfway, if the name of the method asks for it."""
    first, _, later = method.partition(":")[0].partition(">")
    if not later:
        return []

    def set_weights(epoch, logs):
        name = first if epoch < epochs // 2 else later
        weights = make_loss(name, num_sampled).rank_weights
        if weights != model.loss.rank_weights:
            model.loss.rank_weights = weights
            model.make_train_function(force=True)

    return [keras.callbacks.LambdaCallback(on_epoch_begin=set_weights)]


@dataclasses.dataclass(frozen=True)
class Task:
    """Batches of sparse features and class ids, for training, validation and testing."""

    train: tf.data.Dataset
    validation: tf.data.Dataset
    test: tf.data.Dataset
    num_features: int
    num_classes: int


def wordnet(args):
    """WordNet's concepts, the same for each seed."""
    splits = _wordnet.wordnet(args.wordnet_dir, args.batch_size, seed=0)
    parts = (splits.train, splits.validation, splits.test)
    return harness.in_random_order(Task(*parts, len(splits.vocabulary), splits.num_classes))


def files(args):
    """`train.txt`, `validation.txt` and `test.txt`, the same for each seed."""
    parts = [
        data.extreme_classification(args.files_dir / f"{part}.txt", args.batch_size)
        for part in ("train", "validation", "test")
    ]
    with open(args.files_dir / "train.txt") as file:
        _, num_features, num_classes = map(int, file.readline().split())
    return harness.in_random_order(Task(*parts, num_features, num_classes))


TASKS = {"wordnet": wordnet, "files": files}


def get_optimizer(row_multiplier, args):
    """The paper's optimizer, or Adagrad; the learning rate is set later."""
    if args.optimizer == "sgd":
        return example.get_optimizer(1.0, row_multiplier, args.momentum)
    return optimizers.RowwiseAdagrad(
        initial_accumulator_value=args.accumulator, row_multiplier=row_multiplier
    )


class Trainer:
    """The model of a method; it starts from the same weights for each rate."""

    def __init__(self, task, method, num_sampled, row_multiplier, seed, args):
        self.task, self.seed = task, seed
        task = task(seed)
        keras.utils.set_random_seed(seed)
        self.model = example.build(
            task.num_features,
            task.num_classes,
            make_loss(method, num_sampled),
            get_optimizer(row_multiplier, args),
            args.width,
            None if method.startswith(FULL) else num_sampled,
            seed,
            normalize=not method.startswith(WORD2VEC),
        )
        self.model.optimizer.build(self.model.trainable_variables)
        self.state = [*self.model.variables, *self.model.optimizer.variables]
        self.start = [np.array(variable) for variable in self.state]
        self.row_multiplier = row_multiplier
        self.make_schedule = functools.partial(make_schedule, method, num_sampled, self.model)

    def run(self, learning_rate, epochs, evaluate_every, patience, test):
        """Trains the model; returns its history and its figures at the best epoch."""
        for variable, value in zip(self.state, self.start, strict=True):
            variable.assign(value)
        self.model.optimizer.learning_rate = learning_rate / self.row_multiplier
        task, schedule = self.task(self.seed), self.make_schedule(epochs)

        def train(epoch):
            self.model.fit(
                task.train,
                initial_epoch=epoch - 1,
                epochs=epoch,
                callbacks=schedule,
                shuffle=False,
                verbose=0,
            )

        def evaluate(part):
            results = self.model.evaluate(part, return_dict=True, verbose=0)
            # NaN figures of a diverged model count as 0.
            return {metric: float(np.nan_to_num(results[metric])) for metric in METRICS}

        history, best = harness.train_to_best(
            self.model,
            epochs,
            evaluate_every,
            train=train,
            evaluate=lambda: evaluate(task.validation),
            metric=SELECT_BY,
            patience=patience,
        )
        result = {"validation": best, "history": history}
        if test:
            result["test"] = evaluate(task.test)
        return result


def most_frequent(task):
    """Figures of always predicting the most frequent classes of the training part."""
    counts = np.zeros(task.num_classes, np.float32)
    for _, class_ids in task.train:
        np.add.at(counts, class_ids[class_ids >= 0], 1)
    figures = {}
    for metric in (metrics.PrecisionAtK([1, 3, 5]), metrics.RecallAtK([1, 3, 5])):
        metric.label_format = "ids"
        for _, class_ids in task.test:
            metric.update_state(class_ids, np.tile(counts, (len(class_ids), 1)))
        figures |= metric.result()
    return {"test": {name: float(figures[name]) for name in METRICS}}


def experiment(name, num_sampled, args):
    """The rates of each method, its runs with each seed, and the figures of `most_frequent`."""
    task = functools.cache(lambda: TASKS[name](args))  # Only missing runs need it.
    common = {"task": name, "batch_size": args.batch_size}
    if name == "files":
        common["files_dir"] = os.path.realpath(args.files_dir)
    if name == "wordnet":
        common["wordnet_dir"] = os.path.realpath(args.wordnet_dir)
    options = {option: getattr(args, option) for option in ("width", "optimizer", "momentum")}
    if args.optimizer == "adagrad":
        options["accumulator"] = args.accumulator

    @functools.lru_cache(maxsize=1)
    def trainer(method, ratio, seed):
        return Trainer(lambda seed: task()(seed), method, num_sampled, ratio, seed, args)

    def cached_run(method, ratio, rate, seed, search=False, test=False):
        length = {
            "epochs": args.search_epochs if search else args.epochs,
            "evaluate_every": args.search_epochs if search else args.evaluate_every,
            "patience": args.patience,
        }
        settings = {"method": method, "num_sampled": num_sampled, "learning_rate": rate}
        settings |= {"row_multiplier": ratio, "seed": seed} | length
        stem = f"{name}-{num_sampled}-{method}-{rate:g}-{ratio:g}-{seed}"
        stem += "-search" if search else ""
        return harness.cached(
            args.out / f"{re.sub('[ :>]', '_', stem)}.json",
            common | options | settings,
            lambda: trainer(method, ratio, seed).run(rate, **length, test=test),
            needs=("test",) if test else (),
        )

    def quality(result):
        return result["validation"][SELECT_BY]

    chosen, runs = {}, {}
    for method in args.methods:
        tried, searched = sorted(args.learning_rates), []
        new = list(tried)
        for _ in range(1 + _MOST_WIDENINGS):
            for ratio in args.row_multipliers:
                searched += [
                    cached_run(method, ratio, rate, args.tuning_seed, search=True) for rate in new
                ]
            new = beyond(tried, max(searched, key=quality)["learning_rate"])
            if not new:
                break
            tried = sorted([*tried, *new])
        finalists = sorted(searched, key=quality, reverse=True)[: args.finalists]
        if len(finalists) > 1:
            finalists = [
                cached_run(
                    method, result["row_multiplier"], result["learning_rate"], args.tuning_seed
                )
                for result in finalists
            ]
        best = max(finalists, key=quality)
        chosen[method] = best["learning_rate"], best["row_multiplier"]
        print(f"{name}, {num_sampled}, {method}: {chosen[method]}, {quality(best):.4f}", flush=True)
        runs[method] = [
            cached_run(method, best["row_multiplier"], best["learning_rate"], seed, test=True)
            for seed in args.seeds
        ]
    frequency = harness.cached(
        args.out / f"{name}-most_frequent.json", common, lambda: most_frequent(task()(0))
    )
    return chosen, runs, frequency["test"]


def beyond(rates, best):
    """The next rate of a grid whose best rate is at an end, in a list; otherwise no rate."""
    if len(rates) < 2 or best not in (rates[0], rates[-1]):
        return []
    outwards = rates if best == rates[-1] else rates[::-1]
    # The step equals the last but one: steps of half a decade are 3 and 10 / 3 in turn.
    inner, outer = outwards[-3:-1] if len(rates) > 2 else outwards
    rate = float(f"{best * outer / inner:.2g}")
    return [] if rate in rates else [rate]


def ratios(runs, metric):
    """Each method's figure, divided by the figure of negative sampling with the same seed."""
    baseline = np.array([result["test"][metric] for result in runs[BASELINE]])
    return {
        method: np.array([result["test"][metric] for result in results]) / baseline
        for method, results in runs.items()
    }


def title(metric):
    """The title of a metric: P@1 for precision_at_1."""
    return metric[0].upper() + "@" + metric[-1]


def summary(name, rates, runs, frequency, args):
    """The Markdown of a task."""
    head = ["method", "rate of rows", "over dense", *map(title, METRICS)]
    figures, quotients = [], []
    of_metric = {metric: ratios(runs, metric) for metric in METRICS if BASELINE in runs}
    for method, results in runs.items():
        values = [[result["test"][metric] for result in results] for metric in METRICS]
        chosen = [f"{number:g}" for number in rates[method]]
        figures.append([method, *chosen, *map(tables.plus_minus, values)])
        if method != BASELINE and of_metric:
            row = [tables.plus_minus(of_metric[metric][method]) for metric in METRICS]
            quotients.append([method, *row])
    row = [f"{frequency[metric]:.3f}" for metric in METRICS]
    figures.append(["the most frequent classes", "", "", *row])
    lines = [f"### {name}", ""]
    if of_metric:
        lines += [
            f"Ratios to {BASELINE} of the same seed, test part, mean ± standard deviation of seeds "
            f"{args.seeds}:",
            "",
            *tables.table(["method", *head[3:]], quotients),
            "",
        ]
    return [*lines, "The figures themselves:", "", *tables.table(head, figures), ""]


def draw(results, path):
    """The ratios of each task, with a bar for each seed's deviation."""
    from matplotlib.figure import Figure

    results = {name: result for name, result in results.items() if BASELINE in result[1]}
    if not results:
        return  # There is nothing to compare.
    figure = Figure(figsize=(4.5 * len(results), 3.5), layout="constrained")
    for axes, (name, (_, runs, _)) in zip(
        figure.subplots(1, len(results), squeeze=False)[0], results.items(), strict=True
    ):
        mined = [method for method in runs if method != BASELINE]
        for index, metric in enumerate(METRICS):
            values = [ratios(runs, metric)[method] for method in mined]
            axes.errorbar(
                np.arange(len(mined)) + 0.1 * (index - 2.5),
                [value.mean() for value in values],
                [value.std(ddof=1) if len(value) > 1 else 0 for value in values],
                fmt="o",
                label=title(metric),
            )
        axes.axhline(1, color="gray", linewidth=1)
        axes.set_xticks(range(len(mined)), mined, rotation=45, ha="right")
        axes.set_ylabel(f"ratio to {BASELINE}")
        axes.set_title(name)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right center")
    harness.save_figure(figure, path)


def parse_args(argv=None):
    """The command line."""
    parser = command_line.parser(__spec__, description=__doc__)
    count, number = command_line.positive(int), command_line.positive(float)
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=["wordnet"])
    parser.add_argument(
        "--files-dir", type=pathlib.Path, help="folder of the three files, for files"
    )
    parser.add_argument(
        "--wordnet-dir", default="/usr/share/wordnet", help="WordNet's folder dict, for wordnet"
    )
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/snm"))
    parser.add_argument(
        "--methods",
        type=method_name,
        nargs="+",
        default=list(METHODS),
        help="methods, with options after colons, such as Top-16:logistic:10:pairwise",
    )
    parser.add_argument("--seeds", nargs="+", type=command_line.seed, default=[0, 1, 2])
    parser.add_argument("--tuning-seed", type=command_line.seed, default=100)
    parser.add_argument(
        "--learning-rates",
        nargs="+",
        type=number,
        default=[0.3, 1, 3, 10, 30, 100, 300],
        help="learning rates of rows; if the best is at an end, the grid is extended there",
    )
    parser.add_argument(
        "--row-multipliers",
        nargs="+",
        type=number,
        default=[300, 3000],
        help="ratios of the rate of rows to the rate of dense weights",
    )
    parser.add_argument("--search-epochs", type=count, default=2, help="epochs per pair of rates")
    parser.add_argument("--finalists", type=count, default=2, help="pairs of rates tried in full")
    parser.add_argument("--optimizer", choices=["adagrad", "sgd"], default="sgd")
    parser.add_argument(
        "--momentum",
        type=command_line.number_below(1),
        default=0.9,
        help="momentum of dense weights, for sgd",
    )
    parser.add_argument(
        "--accumulator", type=number, default=1e-8, help="initial value, for adagrad"
    )
    parser.add_argument(
        "--num-sampled",
        nargs="+",
        type=count,
        default=[1024],
        help="numbers of classes to sample, B",
    )
    parser.add_argument("--width", type=count, default=64, help="width of encodings and embeddings")
    parser.add_argument("--batch-size", type=count, default=256)
    parser.add_argument("--epochs", type=count, default=10)
    parser.add_argument(
        "--evaluate-every", type=count, default=2, help="epochs between evaluations"
    )
    parser.add_argument(
        "--patience",
        type=count,
        default=4,
        help="stop after this many epochs without a better Recall@5",
    )
    return parser.parse_args(argv)


def main(argv=None):
    """Tunes, trains, tests and reports."""
    args = parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    print(__doc__)
    results = {
        f"{name}, B = {num_sampled:,}": experiment(name, num_sampled, args)
        for name in args.tasks
        for num_sampled in args.num_sampled
    }
    lines = [line for name, result in results.items() for line in summary(name, *result, args)]
    runs = {name: runs for name, (_, runs, _) in results.items()}
    harness.write_report(
        args.out, "\n".join(lines), runs, lambda path: draw(results, path), "ratios.png"
    )


if __name__ == "__main__":
    main()
