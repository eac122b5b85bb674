"""The command line of the examples."""

import argparse
import dataclasses
import functools
import itertools
import json
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from rank4class_tf import _files
from rank4class_tf.experiments import _report, _runs
from rank4class_tf.experiments._training import Problem, Settings, train

LOSSES = (
    "softmax_loss",
    "rankmax_loss",
    "approx_ndcg_loss",
    "pairwise_logistic_loss",
    "gumbel_approx_ndcg_loss",
    "mean_squared_loss",
)
HEADS = ("dot_product", "latent_cross", "concat")
_BASELINE = (LOSSES[0], HEADS[0])
PRECISIONS = ("float32", "mixed_float16", "mixed_bfloat16")


def positive(kind: type) -> Callable[[str], Any]:
    """Returns a reader of numbers > 0 for argparse.

    Args:
        kind: int or float.
    """

    def read(text):
        try:
            value = kind(text)
        except ValueError:
            value = 0
        if not 0 < value < float("inf"):
            raise argparse.ArgumentTypeError(f"must be a finite {kind.__name__} > 0, not {text!r}")
        return value

    return read


def frozen(text: str) -> int | str:
    """Reads a number of frozen blocks, >= 0, or "all"."""
    if text == "all":
        return text
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be an integer >= 0 or 'all', not {text!r}")
    return int(text)


def _share(text):
    """Reads a number in [0, 1)."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"must be a number in [0, 1), not {text!r}")
    return value


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that `with_settings` reads."""
    for name, kind, text in (
        ("epochs", positive(int), "at most; a run ends 5 epochs after its best one"),
        ("batch-size", positive(int), "examples per step"),
        ("learning-rate", positive(float), "of Adam, the highest, for all losses"),
        ("warmup", _share, "share of the steps in which the rate rises; 0: a constant rate"),
        ("clip", positive(float), "highest norm of the gradient"),
    ):
        parser.add_argument(f"--{name}", type=kind, help=f"{text}. Default: by dataset")
    parser.add_argument("--precision", choices=PRECISIONS, help="of Keras. Default: float32")


def with_settings(problem: Problem, args: argparse.Namespace) -> Settings:
    """The settings of a problem, with those that the command line names."""
    names = (field.name for field in dataclasses.fields(Settings))
    given = {name: getattr(args, name, None) for name in names}
    return dataclasses.replace(
        problem.settings, **{name: value for name, value in given.items() if value is not None}
    )


def add_arguments(parser: argparse.ArgumentParser, losses: Sequence[str] = LOSSES) -> None:
    """Adds the arguments that `compare` reads.

    Args:
        parser: of a command.
        losses: the names of the losses to choose from.
    """
    for name, known in (("loss", losses), ("head", HEADS)):
        parser.add_argument(
            f"--{name}",
            nargs="+",
            choices=(*known, "all"),
            default=["all"],
            help=f"one, several or all (the default), next to the baseline {_BASELINE}",
        )
    add_settings(parser)
    parser.add_argument("--seed", type=int, default=0, help="of data order and weights; default: 0")
    parser.add_argument("--data-dir", help="where TensorFlow Datasets keeps its data")
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        default=pathlib.Path("out"),
        help="folder of the results; default: out",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="keep the state after each epoch, and go on from what an earlier call left in --out",
    )


def rows_to_train(
    chosen_losses: Sequence[str], chosen_heads: Sequence[str], losses: Sequence[str] = LOSSES
) -> list[tuple[str, str]]:
    """Returns the (loss, head) pairs, the baseline first."""
    pairs = itertools.product(
        losses if "all" in chosen_losses else chosen_losses,
        HEADS if "all" in chosen_heads else chosen_heads,
    )
    return list(dict.fromkeys([_BASELINE, *pairs]))


def compare(
    problem: Problem, args: argparse.Namespace, losses: Sequence[str] = LOSSES
) -> list[dict[str, Any]]:
    """Trains all rows and writes table.md, results.json and metrics.png.

    Args:
        problem: what to learn.
        args: from a parser with `add_arguments`.
        losses: as in `add_arguments`.

    Returns:
        The rows, as `train` returns them.
    """
    settings = with_settings(problem, args)
    described = {**problem.description, **dataclasses.asdict(settings)}
    args.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for loss, head in rows_to_train(args.loss, args.head, losses):
        print(f"\n{described['dataset']}: {loss} with the {head} head", flush=True)
        path = args.out / "rows" / f"{loss}-{head}.json"
        state = path.with_suffix("") if args.resume else None
        if not args.resume:
            path.unlink(missing_ok=True)
        run = _runs.cached(
            path,
            {"loss": loss, "head": head, **described},
            functools.partial(train, problem, settings, loss, head, state),
        )
        left_out = (*described, "cpu_seconds")
        rows.append({key: value for key, value in run.items() if key not in left_out})
    table = _report.markdown(rows)
    table_path, results_path, plot_path = (
        args.out / name for name in ("table.md", "results.json", "metrics.png")
    )
    _files.write_text(table_path, table)
    _files.write_text(results_path, json.dumps({**described, "rows": rows}, indent=2) + "\n")
    _report.plot(rows, plot_path)
    print(f"\nTest split of {described['dataset']}, seed {settings.seed}:\n\n{table}")
    print(f"table:   {table_path}\nnumbers: {results_path}\nplot:    {plot_path}")
    return rows
