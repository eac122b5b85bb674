"""Functions that the command lines of all scripts share."""

import argparse
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any


class Formatter(
    argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter
):
    """Keeps description lines; shows choices once, and defaults as one types them."""

    def _metavar_formatter(self, action, default_metavar):
        return lambda size: (action.metavar or default_metavar,) * size

    def _get_help_string(self, action):
        text = action.help
        default = action.default
        if action.choices is not None:
            text += f": {', '.join(map(str, action.choices))}"
        if isinstance(default, (list, tuple)):
            items = [
                "x".join(map(str, x)) if isinstance(x, tuple) else str(x)
                for x in default
            ]
            default = "all" if items == list(action.choices or []) else " ".join(items)
        if default is False or default in (None, "", argparse.SUPPRESS):
            return text
        return f"{text} (default: {default})"


class Parser(argparse.ArgumentParser):
    """A parser that describes a script by its docstring.

    Args:
        module: the `__spec__` of the script.
        description: its docstring.
        quick: the defaults of its short form, `--quick`, by name, if it has one.
    """

    def __init__(
        self,
        module: Any,
        description: str | None,
        quick: Mapping[str, Any] | None = None,
    ) -> None:
        name = f"python -m {module.name}"
        super().__init__(
            name, None, description, formatter_class=Formatter, allow_abbrev=False
        )
        self._quick = quick
        if quick is not None:
            self.add_argument(
                "--quick", action="store_true", help="a short form, under a minute"
            )

    def add_names(self, option: str, names: Iterable[str], text: str) -> None:
        """Adds an option that takes any of some names, all by default."""
        names = list(names)
        self.add_argument(option, nargs="+", choices=names, default=names, help=text)

    def add_value(
        self, option: str, read: Callable[[str], Any], default: Any, text: str
    ) -> None:
        """Adds an option with one value, which `read` makes of its text."""
        self.add_argument(option, type=read, default=default, help=text)

    def add_values(
        self,
        option: str,
        read: Callable[[str], Any],
        default: Sequence | None,
        text: str,
    ) -> None:
        """Adds an option with one value or more."""
        self.add_argument(option, nargs="+", type=read, default=default, help=text)

    def parse_args(self, args=None, namespace=None):
        """The arguments."""
        args = list(map(str, sys.argv[1:] if args is None else args))
        if self._quick is not None and "--quick" in args:
            self.set_defaults(**self._quick)
        return super().parse_args(args, namespace)


def chosen(args: argparse.Namespace, *names: str) -> dict[str, Any]:
    """The values of some options by name."""
    return {name: getattr(args, name) for name in names}


def _reader(kind: type, test: Callable[[Any], bool], rule: str) -> Callable[[str], Any]:
    def read(text):
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not test(value):
            raise argparse.ArgumentTypeError(f"must be {rule}, not {text!r}")
        return value

    return read


# Readers for argparse.
count = _reader(int, lambda x: x > 0, "an integer > 0")
number = _reader(float, lambda x: 0 < x < math.inf, "a finite number > 0")
at_least_0 = _reader(float, lambda x: 0 <= x < math.inf, "a finite number >= 0")
below_1 = _reader(float, lambda x: 0 <= x < 1, "a number in [0, 1)")
seed = _reader(int, lambda x: 0 <= x < 2**32, "an integer in [0, 2**32)")
