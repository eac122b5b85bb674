"""Stochastic negative mining against negative sampling: Table 2 of its paper.

    python scripts/reproduce_snm.py --data-dir data --out out/snm

Tasks: `planted`, artificial points of one to three labels with a long tail of labels, and `words`,
a word held out of a comment of GoEmotions, in the dataset's own split. Protocol: the model is that
of examples/extreme_classification.py, trained with the binary ordered weighted loss, hinge, on B
classes sampled for each batch. Negative sampling takes the mean over all B, Top-k mining that over
the k highest; all else is alike, also the number of epochs at most. Of each method every learning
rate is tried with `--tuning-seed`, which is none of the seeds reported; the one with the best
Recall@5 on the validation part is used with each seed, and the epoch is chosen by the same figure.
The test part is looked at once per seed, with the weights of the best epoch. A seed decides on the
first weights, the samples and, for words, the order and the words held out in training.

Each finished run is a file in `--out`; a second call with the same settings goes on from there, one
with others puts its runs in their place. The results are
`results.md`, `results.json` and, with matplotlib, `ratios.png`.
"""

import argparse
import dataclasses
import functools
import pathlib
import sys
import tempfile

import numpy as np
from tensorflow import keras

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from examples import extreme_classification as example
from rank4class_tf import _files, metrics, ops
from scripts import experiments

METRICS = [f"{name}_at_{k}" for name in ("precision", "recall") for k in (1, 3, 5)]
SELECT_BY = "recall_at_5"
BASELINE = "negative sampling"


def weights(method, num_sampled):
    """Of the sampled negatives, from the highest on."""
    if method != BASELINE:
        return ops.TopKWeights(int(method.removeprefix("Top-")))
    # A mean: all weights are equal, which asks for no order.
    return ops.StaircaseWeights([(1, 1 / num_sampled)], tail=1 / num_sampled)


def planted(args):
    """The artificial points, the same for each seed."""

    @functools.cache
    def task():
        sizes = (args.planted_points, *[max(1, args.planted_points // 10)] * 2)
        with tempfile.TemporaryDirectory() as folder:
            task = example.planted(
                folder, args.batch_size, sizes, args.planted_classes, args.planted_classes
            )
            # They are read once, not anew in each epoch.
            parts = {part: getattr(task, part).cache() for part in ("train", "validation", "test")}
            for batches in parts.values():
                sum(1 for _ in batches)
        return dataclasses.replace(task, **parts)

    return lambda seed: task()


def words(args):
    """The words of GoEmotions, made anew for each run: an object's epochs go on when reused."""
    return lambda seed: example.words(args.data_dir, args.batch_size, seed)


TASKS = {"planted": planted, "words": words}


def run(task, method, learning_rate, seed, args, test):
    """Trains one model; returns its history and its figures at the best epoch."""
    keras.utils.set_random_seed(seed)
    model = example.build(
        task,
        weights(method, args.num_sampled),
        example.get_optimizer(args.optimizer, learning_rate, args.momentum),
        args.width,
        args.num_sampled,
        seed,
    )

    def evaluate(part):
        results = model.evaluate(part, return_dict=True, verbose=0)
        return {metric: float(results[metric]) for metric in METRICS}

    history, best = experiments.train_to_best(
        model,
        args.epochs,
        args.evaluate_every,
        train=lambda _: model.fit(task.train, shuffle=False, verbose=0),
        evaluate=lambda: evaluate(task.validation),
        metric=SELECT_BY,
        patience=args.patience,
    )
    result = {"validation": best, "history": history}
    if test:
        result["test"] = evaluate(task.test)
    return result


def most_frequent(task):
    """Figures of the same answer to everything: the most frequent classes of the training part."""
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


def experiment(name, args):
    """The learning rate of each method, its runs with each seed, and what frequency alone gives."""
    task = TASKS[name](args)  # Only a run that is not at hand asks for the data.
    common = {"task": name, "batch_size": args.batch_size}
    if name == "planted":
        common |= {"points": args.planted_points, "classes": args.planted_classes}
    options = ("num_sampled", "width", "epochs", "evaluate_every", "patience")
    options += ("optimizer", "momentum")

    def cached_run(method, rate, seed, test):
        stem = f"{name}-{method.replace(' ', '_')}-{rate:g}-{seed}"
        settings = {"method": method, "learning_rate": rate, "seed": seed}
        return experiments.cached(
            args.out / f"{stem}.json",
            common | settings | {option: getattr(args, option) for option in options},
            lambda: run(task(seed), method, rate, seed, args, test),
            needs=("test",) if test else (),
        )

    rates, runs = {}, {}
    for method in (BASELINE, *(f"Top-{k}" for k in args.mined)):
        tuning = [cached_run(method, rate, args.tuning_seed, False) for rate in args.learning_rates]
        best = max(tuning, key=lambda result: result["validation"][SELECT_BY])
        rates[method] = best["learning_rate"]
        runs[method] = [cached_run(method, rates[method], seed, True) for seed in args.seeds]
    frequency = experiments.cached(
        args.out / f"{name}-most_frequent.json", common, lambda: most_frequent(task(0))
    )
    return rates, runs, frequency["test"]


def ratios(runs, metric):
    """Of each method, its figure over that of negative sampling with the same seed."""
    baseline = np.array([result["test"][metric] for result in runs[BASELINE]])
    return {
        method: np.array([result["test"][metric] for result in results]) / baseline
        for method, results in runs.items()
    }


def title(metric):
    """P@1 for precision_at_1."""
    return metric[0].upper() + "@" + metric[-1]


def summary(name, rates, runs, frequency, args):
    """The Markdown of a task."""
    head = ["method", "learning rate", *map(title, METRICS)]
    figures, quotients = [], []
    of_metric = {metric: ratios(runs, metric) for metric in METRICS}
    for method, results in runs.items():
        values = [[result["test"][metric] for result in results] for metric in METRICS]
        figures.append([method, f"{rates[method]:g}", *map(experiments.plus_minus, values)])
        if method != BASELINE:
            row = [experiments.plus_minus(of_metric[metric][method]) for metric in METRICS]
            quotients.append([method, *row])
    row = [f"{frequency[metric]:.3f}" for metric in METRICS]
    figures.append(["the most frequent classes", "", *row])
    return [
        f"### {name}",
        "",
        f"Ratios to {BASELINE} of the same seed, test part, mean ± standard deviation of seeds "
        f"{args.seeds}:",
        "",
        *experiments.table(["method", *head[2:]], quotients),
        "",
        "The figures themselves:",
        "",
        *experiments.table(head, figures),
        "",
    ]


def draw(results, path):
    """The ratios of each task, with a bar for each seed's deviation."""
    from matplotlib.figure import Figure

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
                [value.std() for value in values],
                fmt="o",
                label=title(metric),
            )
        axes.axhline(1, color="gray", linewidth=1)
        axes.set_xticks(range(len(mined)), mined)
        axes.set_ylabel(f"ratio to {BASELINE}")
        axes.set_title(name)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right center")
    with _files.replacing(path) as temporary:
        figure.savefig(temporary, dpi=110)


def parse_args(argv=None):
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--data-dir", help="TensorFlow Datasets' folder, for words")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/snm"))
    parser.add_argument("--mined", nargs="+", type=int, default=[1, 16, 64, 256])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--tuning-seed", type=int, default=100)
    parser.add_argument("--learning-rates", nargs="+", type=float, default=[0.03, 0.1, 0.3])
    parser.add_argument("--optimizer", choices=["adagrad", "sgd"], default="adagrad")
    parser.add_argument("--momentum", type=float, default=0.0, help="of the linear layer, for sgd")
    parser.add_argument("--num-sampled", type=int, default=1024, help="classes sampled, B")
    parser.add_argument("--width", type=int, default=64, help="of encodings and embeddings")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--evaluate-every", type=int, default=3, help="epochs")
    parser.add_argument("--patience", type=int, default=6, help="epochs without a better Recall@5")
    parser.add_argument("--planted-points", type=int, default=40_000, help="to learn from")
    parser.add_argument("--planted-classes", type=int, default=10_000, help="and features")
    return parser.parse_args(argv)


def main(argv=None):
    """Tunes, trains, tests and reports."""
    args = parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    print(__doc__)
    results = {name: experiment(name, args) for name in args.tasks}
    lines = [line for name, result in results.items() for line in summary(name, *result, args)]
    runs = {name: runs for name, (_, runs, _) in results.items()}
    experiments.report(
        args.out, "\n".join(lines), runs, lambda path: draw(results, path), "ratios.png"
    )


if __name__ == "__main__":
    main()
