"""Compares all losses and heads on real tasks, with the same search for each.

    python -m scripts.reproductions.which_loss --tasks digits
    python -m scripts.reproductions.which_loss --preset FOLDER --data-dir DIR --out OUT

Tasks: `digits`, scikit-learn's images, five training images per class, with two dense layers;
`goemotions` and `goemotions_multilabel`, comments with exactly one of 28 emotions, and all comments
with all their emotions, on the frozen features of a pretrained transformer, the mean of its tokens;
`movielens` and `wordnet` of which_loss_tasks.py. Each loss is used with the dot product, and each
other head with softmax.

The rate and the weight decay are the pair of `--learning-rates` and `--weight-decays` with the best
NDCG@5 on the validation part with the first seed; the epoch is the one with the best NDCG@5 there.
The tables have the mean over the seeds on the test part, 95 % intervals for other test examples and
the same models, and the paired randomisation test of each row against softmax with the dot product.
The sentence below a table keeps the probability of an error in it below 5 % (Holm).

Runs are kept in `--out`; a second call resumes there. `which_loss.md` and `which_loss.json` are
written after each task.
"""

import dataclasses
import functools
import json
import math
import pathlib
from collections.abc import Callable

from rank4class_tf import _files, layers, losses, ops
from scripts import command_line
from scripts.reproductions import harness, which_loss_tasks

# If an example has one label, each of these equals `SoftmaxLoss`.
MEAN_OVER_POSITIVES = "softmax_loss(positive_reduction=mean)"
LIKE_SOFTMAX = ("list_mle_loss", "unique_softmax_loss", MEAN_OVER_POSITIVES)

LOSSES: dict[str, Callable] = {
    **{
        name: functools.partial(losses.get, name)
        for name in (
            "softmax_loss",
            "rankmax_loss",
            "sparsemax_loss",
            "approx_ndcg_loss",
            "approx_mrr_loss",
            "gumbel_approx_ndcg_loss",
            "pairwise_logistic_loss",
            "pairwise_hinge_loss",
            "warp_loss",
            "mean_squared_loss",
            "list_mle_loss",
            "unique_softmax_loss",
        )
    },
    MEAN_OVER_POSITIVES: lambda: losses.SoftmaxLoss(positive_reduction="mean"),
    "rankmax_loss(k=5)": lambda: losses.RankmaxLoss(k=5),
    "approx_ndcg_loss(ranker=laplace)": lambda: losses.ApproxNDCGLoss(
        ranker=layers.LaplaceSorter(0.1)
    ),
    "ordered_weighted_loss(top 3)": lambda: losses.OrderedWeightedLoss(
        "pairwise", "hinge", ops.TopKWeights(3)
    ),
}
HEADS = ("latent_cross", "concat", "cosine", "bilinear")
TASKS = ("digits", "movielens", "wordnet", "goemotions", "goemotions_multilabel")
OF_PRESET = TASKS[3:]


def problem_of(task, args):
    """The problem of a task."""
    if task == "digits":
        problem = harness.small_problem("digits", "dense_layers", examples_per_class=5)
        settings = dataclasses.replace(problem.settings, epochs=12)
    elif task == "movielens":
        return which_loss_tasks.movielens(args.data_dir)
    elif task == "wordnet":
        return which_loss_tasks.wordnet(args.wordnet_dir)
    else:
        problem = harness.text_problem(
            task,
            args.preset,
            args.data_dir,
            frozen="all",
            pooling="mean",
            cache=args.out / "features",
        )
        settings = dataclasses.replace(problem.settings, epochs=8, batch_size=512)
    return dataclasses.replace(problem, settings=settings)


def candidates(task, args):
    """The rows of a task: names of losses, and of heads."""
    left_out = LIKE_SOFTMAX if task in ("digits", "goemotions") else ()
    first = [name for name in args.losses if name not in left_out]
    rows = [(name, "dot_product") for name in first] + [("softmax_loss", h) for h in args.heads]
    return list(dict.fromkeys([("softmax_loss", "dot_product"), *rows]))


def measure(task, args):
    """The rows of a task with their rates and decays."""
    problem = problem_of(task, args)
    settings = problem.settings
    if args.epochs is not None:
        settings = dataclasses.replace(settings, epochs=args.epochs)
    runs = harness.Runs(
        problem, settings, args.out / "runs", task, args.units, lambda name: LOSSES[name]()
    )
    rows, chosen = [], {}
    for loss, head in candidates(task, args):
        rate, decay = runs.best(loss, head, args.learning_rates, args.seeds[0], args.weight_decays)
        chosen[f"{loss}, {head}"] = {"rate": rate, "weight_decay": decay}
        of_seeds = [runs.get(loss, head, rate, seed, decay) for seed in args.seeds]
        rows.append(harness.Row(loss, head, harness.as_evaluation(of_seeds)))
    return rows, chosen


def main(argv=None):
    """Trains, tests and reports."""
    parser = command_line.parser(__spec__, description=__doc__)
    parser.add_argument(
        "--tasks", nargs="+", choices=TASKS, help="default: digits; with --preset all of them"
    )
    parser.add_argument("--preset", help="preset of keras-hub or a local folder, for goemotions")
    parser.add_argument("--data-dir", help="where TensorFlow Datasets keeps its data")
    parser.add_argument(
        "--wordnet-dir", default="/usr/share/wordnet", help="folder dict of WordNet"
    )
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/which_loss"))
    parser.add_argument("--losses", nargs="*", choices=LOSSES, default=list(LOSSES))
    parser.add_argument("--heads", nargs="*", choices=HEADS, default=list(HEADS))
    parser.add_argument(
        "--units",
        nargs="+",
        type=command_line.positive(int),
        default=[256, 256],
        help="widths of the hidden layers of latent_cross and concat",
    )
    parser.add_argument("--seeds", nargs="+", type=command_line.seed, default=[0, 1, 2])
    parser.add_argument(
        "--learning-rates",
        nargs="+",
        type=command_line.positive(float),
        default=[1e-3, 3e-3, 1e-2, 3e-2],
        help="learning rates of Adam; the same for all rows",
    )
    parser.add_argument(
        "--weight-decays",
        nargs="+",
        type=command_line.number_below(math.inf),
        default=[0.0, 0.3, 3.0],
        help="decoupled weight decays: each step subtracts rate times decay times weight; the same "
        "for all rows",
    )
    parser.add_argument("--epochs", type=command_line.positive(int), help="default: by task")
    args = parser.parse_args(argv)
    tasks = args.tasks or (TASKS if args.preset else TASKS[:1])
    if args.preset is None and set(tasks) & set(OF_PRESET):
        parser.error("--preset must be given for goemotions")
    args.out.mkdir(parents=True, exist_ok=True)
    lines, numbers = [], {}
    for task in tasks:
        rows, chosen = measure(task, args)
        ends = min(args.learning_rates), max(args.learning_rates)
        at_edge = [name for name, best in chosen.items() if best["rate"] in ends]
        lines += [f"## {task}", "", harness.markdown(rows), harness.verdict(rows), ""]
        listed = "; ".join(
            f"{name}: {best['rate']:g} / {best['weight_decay']:g}" for name, best in chosen.items()
        )
        lines += [
            f"Rate / weight decay: {listed}. With a rate at an end of its range: "
            f"{', '.join(at_edge) or 'none'}.",
            "",
        ]
        numbers[task] = {
            "chosen": chosen,
            "rows": [
                {"loss": row.loss, "head": row.head}
                | {name: dataclasses.asdict(row.evaluation[name]) for name in harness.METRICS}
                for row in rows
            ],
        }
        _files.write_text(args.out / "which_loss.md", "\n".join(lines))
        _files.write_text(args.out / "which_loss.json", json.dumps(numbers, indent=1))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
