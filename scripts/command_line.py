"""Functions that the command lines of all scripts share."""

import argparse
from collections.abc import Callable
from typing import Any


class Formatter(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Keeps the lines of the description, and shows the defaults of the options that have one."""

    def _get_help_string(self, action):
        return action.help if action.default is None else super()._get_help_string(action)


def parser(module: Any, **kwargs: Any) -> argparse.ArgumentParser:
    """Returns a parser that describes a script by its docstring.

    Args:
        module: the `__spec__` of the script.
        **kwargs: of `argparse.ArgumentParser`, `description` among them.
    """
    return argparse.ArgumentParser(
        prog=f"python -m {module.name}", formatter_class=Formatter, **kwargs
    )


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
