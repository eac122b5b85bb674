"""How a model is trained, and the options of a command line that say so."""

import argparse
import dataclasses

from rank4class_tf import _checks
from scripts.command_line import number_below, positive

PRECISIONS = ("float32", "mixed_float16", "mixed_bfloat16")


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a model is trained: with Adam, to the epoch with the best NDCG@5 on validation.

    Attributes:
        epochs: how many, at most.
        batch_size: examples per batch.
        learning_rate: the highest one.
        warmup: the share of all steps, in [0, 1), over which the rate rises from 0 in a line; then
            it falls to 0 in a line. 0 for a constant rate.
        weight_decay: each step takes away the rate times so much of every weight, biases too
            (decoupled decay, as in AdamW).
        clip: the highest norm of the gradient; None for any.
        precision: a policy of Keras's mixed precision.
        seed: of data order and weights.
        patience: a run ends so many epochs after its best one.
    """

    epochs: int
    batch_size: int
    learning_rate: float
    warmup: float = 0.0
    weight_decay: float = 0.0
    clip: float | None = None
    precision: str = "float32"
    seed: int = 0
    patience: int = 5

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            _checks.positive_int(name, getattr(self, name))
        _checks.positive_float("learning_rate", self.learning_rate)
        _checks.fraction_below("warmup", self.warmup, 1)
        _checks.non_negative_float("weight_decay", self.weight_decay)
        if self.clip is not None:
            _checks.positive_float("clip", self.clip)
        policies = [
            f"{mixed}{name}" for name in ("bfloat16", "float16") for mixed in ("", "mixed_")
        ]
        _checks.one_of("precision", self.precision, ("float32", "float64", *policies))
        _checks.seed(self.seed)
        _checks.non_negative_int("patience", self.patience)


def frozen(text: str) -> int | str:
    """Reads a number of frozen blocks, >= 0, or "all"."""
    if text == "all":
        return text
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be an integer >= 0 or 'all', not {text!r}")
    return int(text)


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
    parser.add_argument(
        "--precision", choices=PRECISIONS, help="precision of Keras. Default: float32"
    )


def with_settings(settings: Settings, args: argparse.Namespace) -> Settings:
    """The settings, with those that the command line names in their place."""
    names = [field.name for field in dataclasses.fields(Settings)]
    given = {name: getattr(args, name, None) for name in names}
    return dataclasses.replace(
        settings, **{name: value for name, value in given.items() if value is not None}
    )
