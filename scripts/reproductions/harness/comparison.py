"""The command line of the examples."""

import argparse
import dataclasses
import functools
import itertools
import json
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

from rank4class_tf import _files
from rank4class_tf.experiments import _report, _runs
from rank4class_tf.experiments._report import SELECT_BY
from rank4class_tf.experiments._training import Problem, Settings, as_evaluation, train

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


def seed(text: str) -> int:
    """Reads a seed, an integer in [0, 2**32), for argparse."""
    if not text.isdecimal() or int(text) >= 2**32:
        raise argparse.ArgumentTypeError(f"must be an integer in [0, 2**32), not {text!r}")
    return int(text)


def frozen(text: str) -> int | str:
    """Reads a number of frozen blocks, >= 0, or "all"."""
    if text == "all":
        return text
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be an integer >= 0 or 'all', not {text!r}")
    return int(text)


def number_below(end: float) -> Callable[[str], float]:
    """Returns a reader of numbers in [0, end) for argparse.

    Args:
        end: a number, or infinity for any.
    """

    def read(text):
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 <= value < end:
            raise argparse.ArgumentTypeError(f"must be a number in [0, {end}), not {text!r}")
        return value

    return read


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that `with_settings` reads."""
    for name, kind, text in (
        ("epochs", positive(int), "at most; a run ends 5 epochs after its best one"),
        ("batch-size", positive(int), "examples per step"),
        ("learning-rate", positive(float), "of Adam, the highest, for all losses"),
        (
            "warmup",
            number_below(1),
            "share of the steps with a rising rate; 0: a constant rate",
        ),
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
    parser.add_argument(
        "--seeds", type=seed, nargs="+", default=[0], help="of data order and weights; default: 0"
    )
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


class _Bar:
    """One bar for all runs, where it can be drawn."""

    def __init__(self, runs: int, epochs: int) -> None:
        self._runs, self._epochs, self._done, self._name = runs, epochs, 0, ""
        self._drawn = sys.stdout.isatty()

    def begin(self, name: str) -> None:
        """Before a run."""
        self._name = name
        self.epoch(0, 0.0)

    def epoch(self, epoch: int, score: float) -> None:
        """After an epoch of it."""
        if self._drawn:
            share = (self._done + epoch / self._epochs) / self._runs
            bar = "#" * int(30 * share)
            text = f"[{bar:30}] {share:4.0%}  {self._name}, epoch {epoch}: {SELECT_BY} {score:.3f}"
            print(f"\r{text:110}", end="", flush=True)

    def end(self) -> None:
        """After it."""
        self._done += 1
        if self._drawn and self._done == self._runs:
            print(f"\r{'':110}\r", end="", flush=True)
        elif not self._drawn:
            print(f"{self._done} of {self._runs}: {self._name}", flush=True)


def compare(
    problem: Problem, args: argparse.Namespace, losses: Sequence[str] = LOSSES
) -> list[dict[str, Any]]:
    """Trains all rows with all seeds and writes table.md, results.json and metrics.png.

    Args:
        problem: what to learn.
        args: from a parser with `add_arguments`.
        losses: as in `add_arguments`.

    Returns:
        The runs, as `train` returns them, without `lists` and with `seed`.
    """
    settings = with_settings(problem, args)
    described = {**problem.description, **dataclasses.asdict(settings)}
    del described["seed"]
    _files.make_folder(args.out)
    pairs = rows_to_train(args.loss, args.head, losses)
    seeds = list(dict.fromkeys(args.seeds))
    bar = _Bar(len(pairs) * len(seeds), settings.epochs)
    runs, rows = [], []
    for loss, head in pairs:
        of_seeds = []
        for seed in seeds:
            bar.begin(f"{loss}, {head}, seed {seed}")
            path = args.out / "rows" / f"{loss}-{head}-{seed}.json"
            state = path.with_suffix("") if args.resume else None
            if not args.resume:
                path.unlink(missing_ok=True)
            run = functools.partial(
                train,
                problem,
                dataclasses.replace(settings, seed=seed),
                loss,
                head,
                state,
                bar.epoch,
            )
            names = {"loss": loss, "head": head, "seed": seed}
            of_seeds.append(_runs.cached(path, {**names, **described}, run, say=lambda line: None))
            bar.end()
        left_out = (*described, "cpu_seconds", "lists", "depends_on")
        runs += [{key: run[key] for key in run if key not in left_out} for run in of_seeds]
        rows.append(_report.Row(loss, head, as_evaluation(of_seeds)))
    table = _report.markdown(rows)
    table_path, results_path, plot_path = (
        args.out / name for name in ("table.md", "results.json", "metrics.png")
    )
    _files.write_text(table_path, table)
    _files.write_text(results_path, json.dumps({**described, "rows": runs}, indent=2) + "\n")
    try:
        _report.plot(rows, plot_path)
        drawn = f"plot:    {plot_path}"
    except ImportError as error:  # The table is worth more.
        drawn = str(error)
    listed = ", ".join(map(str, seeds))
    print(f"\nTest part of {described['dataset']}, 95 % intervals, mean of the seeds {listed}:\n")
    print(f"{table}\ntable:   {table_path}\nnumbers: {results_path}\n{drawn}\n")
    print(_report.verdict(rows))
    return runs
