"""SoDeep: compares sorters, and losses on ranks with other losses.

    python -m scripts.reproductions.sodeep --data-dir data --out out/sodeep

Parts: `table1`, L1 and slopes of each sorter; `figure5`, the rank of one item whose score goes from
-1 to 1; `synthetic`, the comparison of losses of the average precision (Figure 6); `diabetes` and
`films`, regressions whose outputs should be in the right order; `goemotions`, comments with several
labels; `retrieval`, films by their words and by who rated them. `--data-dir` holds
ml-latest-small.zip of MovieLens and train.tsv, dev.tsv and test.tsv of GoEmotions.

Protocol: small models, Adam, and batches of 100, which are the lists. For each method every
learning rate is tried with `--tuning-seed`, which is not a reported seed. The best rate on
the validation part is used with each seed, and the epoch is chosen by the same metric. The test
part is used once per seed, with the weights of the best epoch. A seed determines the split (except
for GoEmotions, which has its own), the initial weights and the order.

Each finished run is a file in `--out`. A second call with the same settings resumes there; a call
with other settings replaces the runs. The results are `results.md`, `results.json` and, with
matplotlib, `figure5.png` and `figure6.png`.
"""

import functools
import math
import pathlib
import zlib

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import layers
from scripts import command_line, tables
from scripts.reproductions import harness, sodeep_tasks, sorting

SORTERS = {
    "sigmoid": functools.partial(layers.SigmoidSorter, 0.1),
    "laplace": functools.partial(layers.LaplaceSorter, 0.1),
    "soft_rank": functools.partial(layers.SoftRankSorter, 0.01),
    "convolutional": layers.ConvolutionalSorter.pretrained,
    "recurrent": layers.RecurrentSorter.pretrained,
    "set": layers.SetSorter.pretrained,
}
# The default sorters of each task: slow sorters only where there are few lists.
_FAST = ["sigmoid", "laplace", "set"]
_ALL_BUT_SLOWEST = [name for name in SORTERS if name != "recurrent"]
PARTS = {
    "table1": list(SORTERS),
    "figure5": list(SORTERS),
    "synthetic": _ALL_BUT_SLOWEST,
    "diabetes": list(SORTERS),
    "films": _ALL_BUT_SLOWEST,
    "goemotions": _FAST,
    "retrieval": _FAST,
}
PAPER_L1 = {"sigmoid": 0.0350, "convolutional": 0.0120, "recurrent": 0.0033}
LENGTHS = (sorting.TEST_LENGTH, 10, 32, 300)
BATCH = 100


@functools.cache
def get_sorter(name):
    """A sorter, and a number that identifies its weights."""
    sorter = SORTERS[name]()
    sorter(tf.zeros([1, sorting.TEST_LENGTH]))
    weights = b"".join(np.ascontiguousarray(weight).tobytes() for weight in sorter.get_weights())
    return sorter, zlib.crc32(weights)


def cached(args, stem, settings, make, sorter=None, **kwargs):
    """`harness.cached` in the folder of the runs; a sorter with other weights gets new runs."""
    if sorter in SORTERS:
        settings = {**settings, "weights": get_sorter(sorter)[1]}
    stem = stem.replace(" ", "_")
    return harness.cached(args.out / f"{stem}.json", settings, make, **kwargs)


# -- The sorters themselves ------------------------------------------------------------------------


def table1(args):
    """L1 by length, and slopes, of each sorter."""

    def measure(name):
        # The convolutional sorter accepts only one length.
        lengths = LENGTHS[:1] if name == "convolutional" else LENGTHS
        return sorting.measure(get_sorter(name)[0], lengths, args.lists)

    return {
        name: cached(
            args,
            f"table1-{name}",
            {"part": "table1", "sorter": name, "lists": args.lists},
            functools.partial(measure, name),
            sorter=name,
        )
        for name in args.of_part["table1"]
    }


def table1_text(results, args):
    """The Markdown of the table."""
    head = ["sorter", "the paper", *(f"L1, d = {length}" for length in LENGTHS)]
    head += ["vanishing slopes", "wrong slopes", "median slope"]
    rows = []
    for name, result in results.items():
        errors = [result.get(f"l1_{length}") for length in LENGTHS]
        rows.append(
            [
                name,
                f"{PAPER_L1[name]:.4f}" if name in PAPER_L1 else "",
                *("" if error is None else f"{error:.4f}" for error in errors),
                f"{result['vanishing_slopes']:.1%}",
                f"{result['wrong_slopes']:.1%}",
                f"{result['median_slope']:.2f}",
            ]
        )
    text = f"L1 of ranks over d, {args.lists:,} lists; slopes at d = {LENGTHS[0]}:"
    return ["### Table 1", "", text, "", *tables.table(head, rows), ""]


def swept_lists(count=2001):
    """The same U(-1, 1) scores in each row, except the first score, which goes from -1 to 1."""
    scores = np.random.default_rng(5).uniform(-1, 1, sorting.TEST_LENGTH).astype(np.float32)
    lists = np.tile(scores, (count, 1))
    lists[:, 0] = np.linspace(-1, 1, count)
    return lists


def figure5(args):
    """The rank that each sorter gives to the first item of the swept lists."""
    lists = swept_lists()

    def sweep(name):
        ranks = np.concatenate([get_sorter(name)[0](part) for part in np.array_split(lists, 10)])
        return {"ranks": [round(float(rank), 3) for rank in ranks[:, 0]]}

    return {
        name: cached(
            args,
            f"figure5-{name}",
            {"part": "figure5", "sorter": name},
            functools.partial(sweep, name),
            sorter=name,
        )
        for name in args.of_part["figure5"]
    }


def figure5_text(results, args):
    """How far the curves are from the exact ranks."""
    exact = sorting.exact_ranks(swept_lists())[:, 0]
    rows = []
    for name, result in results.items():
        ranks = np.array(result["ranks"])
        errors = np.abs(ranks - exact)
        rising = np.mean(np.diff(ranks) > 0)
        rows.append([name, f"{errors.mean():.2f}", f"{errors.max():.2f}", f"{rising:.1%}"])
    head = ["sorter", "mean error, in ranks", "largest error", "steps that go the wrong way"]
    text = "The rank of one of 100 items while its score goes from -1 to 1 by 0.001:"
    return ["### Figure 5", "", text, "", *tables.table(head, rows), ""]


def draw_figure5(results, path):
    """The curves, whole and near the middle."""
    from matplotlib.figure import Figure

    lists = swept_lists()
    figure = Figure(figsize=(10, 4), layout="constrained")
    whole, middle = figure.subplots(1, 2)
    for axes in (whole, middle):
        exact = sorting.exact_ranks(lists)[:, 0]
        axes.plot(lists[:, 0], exact, color="black", linewidth=1, label="exact")
        for name, result in results.items():
            axes.plot(lists[:, 0], result["ranks"], linewidth=1, label=name)
        axes.set_xlabel("score of the item")
    whole.set_ylabel("its rank of 100")
    middle.set_xlim(-0.1, 0.1)
    middle.set_xticks([-0.1, -0.05, 0, 0.05, 0.1])
    ranks = sorting.exact_ranks(lists)[np.abs(lists[:, 0]) < 0.1, 0]
    middle.set_ylim(ranks.min() - 2, ranks.max() + 2)
    figure.legend(*whole.get_legend_handles_labels(), loc="outside right center")
    harness.save_figure(figure, path)


# -- Tasks -----------------------------------------------------------------------------------------


class Trainer:
    """The model of a method, compiled once and trained anew for each rate and seed."""

    def __init__(self, task, method):
        sorter = method in SORTERS
        self.task = task
        self.loss = task.with_sorter(get_sorter(method)[0]) if sorter else task.baselines[method]
        self.inputs = tuple(tf.constant(x) for x in task.inputs)
        self.labels = tf.constant(task.labels)
        self.model = self.new_model()
        self.optimizer = keras.optimizers.Adam()
        self.optimizer.build(self.model.trainable_variables)

    def new_model(self):
        """A model with initial weights."""
        model = self.task.make_model()
        model(tuple(x[:2] for x in self.inputs))
        return model

    @tf.function(reduce_retracing=True)
    def train(self, batches):
        """One step for each row of `batches`, which holds the numbers of examples."""
        for rows in batches:
            with tf.GradientTape() as tape:
                outputs = self.model(tuple(tf.gather(x, rows) for x in self.inputs), training=True)
                loss = self.loss(tf.gather(self.labels, rows), outputs)
            variables = self.model.trainable_variables
            gradients = tape.gradient(loss, variables)
            self.optimizer.apply_gradients(zip(gradients, variables, strict=True))

    def evaluate(self, rows):
        """The figures of some examples; NaN outputs of a diverged model count as 0."""
        outputs = self.model(tuple(tf.gather(x, rows) for x in self.inputs), training=False)
        return self.task.evaluate(self.task.labels[rows], np.nan_to_num(outputs.numpy()))

    def run(self, learning_rate, seed, epochs, test):
        """Trains the model; returns its history and its figures at the best epoch."""
        keras.utils.set_random_seed(seed)
        self.model.set_weights(self.new_model().get_weights())
        for variable in self.optimizer.variables:
            variable.assign(tf.zeros_like(variable))
        self.optimizer.learning_rate = learning_rate
        parts = self.task.split(seed)
        rng = np.random.default_rng([seed, 2])

        def train(epoch):
            alignment = getattr(self.loss, "alignment", None)
            if isinstance(alignment, tf.Variable):
                alignment.assign(float(epoch <= max(1, self.task.epochs // 10)))
            steps = len(parts["train"]) // BATCH
            order = rng.permutation(parts["train"])[: steps * BATCH]
            self.train(tf.constant(order.reshape(steps, BATCH)))

        history, best = harness.train_to_best(
            self.model,
            epochs,
            self.task.evaluate_every,
            train,
            lambda: self.evaluate(parts["validation"]),
            self.task.metric,
            patience=epochs,
        )
        result = {"validation": best, "history": history}
        if test:
            result["test"] = self.evaluate(parts["test"])
        return result


def experiment(name, args):
    """The learning rate of each method of a task, and its runs with each seed."""
    options = {"ranks_weight": args.ranks_weight} if name == "goemotions" else {}
    task = sodeep_tasks.TASKS[name](args.data_dir, **options)
    epochs = args.epochs or task.epochs
    rates, runs = {}, {}
    for method in (*task.baselines, *args.of_part[name]):
        trainer = functools.cache(functools.partial(Trainer, task, method))

        def cached_run(rate, seed, test, method=method, trainer=trainer):
            settings = {"part": name, "method": method, "learning_rate": rate, "seed": seed}
            return cached(
                args,
                f"{name}-{method}-{rate:g}-{seed}",
                {**settings, **options, "epochs": epochs},
                lambda: trainer().run(rate, seed, epochs, test),
                sorter=method,
                needs=("test",) if test else (),
            )

        tuning = [cached_run(rate, args.tuning_seed, False) for rate in args.learning_rates]
        best = max(tuning, key=lambda result: result["validation"][task.metric])
        rates[method] = best["learning_rate"]
        runs[method] = [cached_run(rates[method], seed, True) for seed in args.seeds]
    return rates, runs


TITLES = {
    "synthetic": "Figure 6: a class of synthetic points, mean average precision",
    "diabetes": "Diabetes: Spearman's correlation",
    "films": "Mean ratings of films: Spearman's correlation",
    "goemotions": "GoEmotions, all labels: mean average precision",
    "retrieval": "Films by their words and by their raters",
}
COLUMNS = {
    "spearman": "Spearman",
    "mean_average_precision": "mAP",
    **{
        f"{side}_{figure}": f"{title}, {side_title}"
        for side, side_title in (("rows", "words → raters"), ("columns", "raters → words"))
        for figure, title in (
            ("hit_rate_at_1", "R@1"),
            ("hit_rate_at_5", "R@5"),
            ("hit_rate_at_10", "R@10"),
            ("median_rank", "median rank"),
        )
    },
}


def task_text(name, rates, runs, args):
    """The Markdown of a task: figures, and differences to the first method for the same seed."""
    first = next(iter(runs))
    shown = [figure for figure in COLUMNS if figure in runs[first][0]["test"]]
    lead = next(figure for figure in shown if "median" not in figure)
    if name == "retrieval":
        lead = "mean_hit_rate_at_10"

    def values(method, figure):
        return np.array([result["test"][figure] for result in runs[method]])

    rows = []
    for method in runs:
        row = [method, f"{rates[method]:g}"]
        for figure in shown:
            digits = 1 if "median" in figure else 3
            row.append(tables.plus_minus(values(method, figure), digits))
        better = values(method, lead) - values(first, lead)
        row.append("" if method == first else tables.plus_minus(better))
        row.append("" if method == first else f"{np.sum(better > 0)} of {len(better)}")
        rows.append(row)
    more = f"more than {first}" + (", mean R@10" if name == "retrieval" else "")
    head = ["method", "learning rate", *(COLUMNS[figure] for figure in shown), more, "seeds better"]
    return [
        f"### {TITLES[name]}",
        "",
        f"Test part, mean ± standard deviation of seeds {args.seeds}:",
        "",
        *tables.table(head, rows),
        "",
    ]


def draw_figure6(runs, path):
    """The validation mAP of each method by epoch, the mean of the seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for method, results in runs.items():
        curves = [
            [point["mean_average_precision"] for point in result["history"]] for result in results
        ]
        axes.plot(
            [point["epoch"] for point in results[0]["history"]],
            np.mean(curves, axis=0),
            label=method,
        )
    axes.set_xlabel("epoch")
    axes.set_ylabel("mean average precision, validation")
    axes.legend()
    harness.save_figure(figure, path)


def parse_args(argv=None):
    """The command line."""
    parser = command_line.parser(__spec__, description=__doc__)
    count = command_line.positive(int)
    parser.add_argument("--tasks", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--sorters", nargs="+", choices=list(SORTERS), help="default: by task")
    parser.add_argument("--data-dir", type=pathlib.Path, default=pathlib.Path("data"))
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/sodeep"))
    parser.add_argument("--seeds", nargs="+", type=command_line.seed, default=[0, 1, 2, 3, 4])
    parser.add_argument("--tuning-seed", type=command_line.seed, default=100)
    parser.add_argument(
        "--learning-rates",
        nargs="+",
        type=command_line.positive(float),
        default=[0.001, 0.003, 0.01, 0.03],
    )
    parser.add_argument("--epochs", type=count, help="default: by task")
    parser.add_argument(
        "--ranks-weight",
        type=command_line.number_below(math.inf),
        default=0.1,
        help="weight of the loss on ranks, for goemotions",
    )
    parser.add_argument("--lists", type=count, default=sorting.TEST_LISTS, help="lists of Table 1")
    args = parser.parse_args(argv)
    args.of_part = {part: args.sorters or sorters for part, sorters in PARTS.items()}
    return args


def main(argv=None):
    """Measures, tunes, trains, tests and reports."""
    args = parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    print(__doc__)
    of_sorters = {"table1": (table1, table1_text), "figure5": (figure5, figure5_text)}
    lines, results = [], {}
    for part in args.tasks:
        if part in of_sorters:
            make, text = of_sorters[part]
            results[part] = make(args)
            lines += text(results[part], args)
        else:
            rates, results[part] = experiment(part, args)
            lines += task_text(part, rates, results[part], args)

    def draw(path):
        if "figure5" in results:
            draw_figure5(results["figure5"], path)
        if "synthetic" in results:
            draw_figure6(results["synthetic"], path.with_name("figure6.png"))

    harness.write_report(args.out, "\n".join(lines), results, draw, "figure5.png")


if __name__ == "__main__":
    main()
