"""Functions that the command lines of all scripts share."""

import argparse
import sys
from collections.abc import Callable, Mapping
from typing import Any


class Formatter(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Keeps the lines of the description, and shows the defaults of the options that have one."""

    def _get_help_string(self, action):
        return action.help if action.default is None else super()._get_help_string(action)


class Parser(argparse.ArgumentParser):
    """A parser with an option `--quick`, which stands for other defaults.

    Args:
        quick: the defaults of the short form, by name.
        **kwargs: of `argparse.ArgumentParser`.
    """

    def __init__(self, quick: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(allow_abbrev=False, **kwargs)
        self._quick = quick
        self.add_argument("--quick", action="store_true", help="a short form, under a minute")

    def parse_args(self, args=None, namespace=None):
        """The arguments."""
        args = list(map(str, sys.argv[1:] if args is None else args))
        if "--quick" in args:
            self.set_defaults(**self._quick)
        return super().parse_args(args, namespace)


def parser(
    module: Any, quick: Mapping[str, Any] | None = None, **kwargs: Any
) -> argparse.ArgumentParser:
    """Returns a parser that describes a script by its docstring.

    Args:
        module: the `__spec__` of the script.
        quick: the defaults of its short form, if it has one.
        **kwargs: of `argparse.ArgumentParser`, `description` among them.
    """
    kwargs |= {"prog": f"python -m {module.name}", "formatter_class": Formatter}
    return argparse.ArgumentParser(**kwargs) if quick is None else Parser(quick, **kwargs)


def positive(kind: type) -> Callable[[str], Any]:
    """Returns a reader of finite numbers > 0 for argparse.

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


def number_below(end: float) -> Callable[[str], float]:
    """Returns a reader of numbers in [0, end) for argparse.

    Args:
        end: a number, or infinity.
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


def seed(text: str) -> int:
    """Reads a seed, an integer in [0, 2**32), for argparse."""
    if not text.isdecimal() or int(text) >= 2**32:
        raise argparse.ArgumentTypeError(f"must be an integer in [0, 2**32), not {text!r}")
    return int(text)
