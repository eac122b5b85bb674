"""Random faults, and the judgement of what a reader does with them."""

import re
import warnings

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

# One case of so many goes through TensorFlow, which takes a hundred times as long as reading.
SELDOM = 20

# What a wrong argument or a damaged file may raise. AssertionErrors and such are defects.
EXPECTED = (ValueError, TypeError, OSError, EOFError, tf.errors.OpError)

NUMBERS: tuple[str, ...] = (
    "0",
    "-1",
    "1",
    "2",
    "7",
    "255",
    "2147483648",
    "-9223372036854775809",
    "1" + "0" * 25,
)
NUMBERS += ("nan", "inf", "-inf", "1e39", "1e999", "0.5", "1_0", "٣", "", " ", "0x1", "+1", "1e-50")


class Defect(Exception):
    """A result or an error that breaks the rules."""


class Draws:
    """Random choices; `integer(n)` gives one of 0, ..., n - 1."""

    def __init__(self, integer):
        self.integer = integer

    def of(self, values):
        """One of some values."""
        return values[self.integer(len(values))]

    def chance(self, one_in):
        """True in one of so many cases."""
        return self.integer(one_in) == 0


def mutated(draws, content):
    """Bytes with one to three faults; with none in one of 20 cases."""
    if draws.chance(20):
        return content
    for _ in range(1 + draws.integer(3)):
        content = draws.of(MUTATIONS)(draws, content)
    return content


def cut(draws, content):
    """The beginning of some bytes."""
    return content[: draws.integer(len(content) + 1)]


def _flip(draws, content):
    content = bytearray(content or b"\n")
    content[draws.integer(len(content))] ^= 1 << draws.integer(8)
    return bytes(content)


def _insert(draws, content):
    at = draws.integer(len(content) + 1)
    byte = draws.of(b"\t\n\r ,:_-+.0|\xff\x00\xc3") if draws.chance(2) else draws.integer(256)
    return content[:at] + bytes([byte]) + content[at:]


def _drop(draws, content):
    at = draws.integer(len(content) + 1)
    return content[:at] + content[at + 1 + draws.integer(4) :]


def _lines(draws, content):
    lines = content.splitlines(keepends=True) or [b"\n"]
    at, other = draws.integer(len(lines)), draws.integer(len(lines))
    kind = draws.integer(3)
    if kind == 0:
        lines.insert(at, lines[other])
    elif kind == 1:
        del lines[at]
    else:
        lines[at], lines[other] = lines[other], lines[at]
    return b"".join(lines)


def _number(draws, content):
    found = list(re.finditer(rb"\d+", content))
    if not found:
        return content
    start, end = draws.of(found).span()
    return content[:start] + draws.of(NUMBERS).encode() + content[end:]


MUTATIONS = (cut, _flip, _flip, _insert, _drop, _lines, _number)


def outcome(read, expected, names, refused_is_wrong=True):
    """The outcome of reading: "right", or the type of the error.

    Args:
        read: a function that returns what was read.
        expected: a function that says whether a result is right; None if no result is.
        names: an error names one of these.
        refused_is_wrong: whether an error is a defect if a result could be right.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = read()
        except EXPECTED as error:
            message = str(error)
            if expected is not None and refused_is_wrong:
                raise Defect(f"what is right is refused: {type(error)} {error}") from error
            if not any(name in message for name in names):
                raise Defect(f"an error without a name: {type(error)} {error}") from error
            return type(error).__name__
        except DecodeError as error:
            raise Defect(f"an error without a name: {error!r}") from error
    if any("may be cut" in str(warning.message) for warning in caught):
        return "warning"
    if expected is None or not expected(found):
        raise Defect(f"another result: {str(found)[:300]}")
    return "right"


def equal(expected, found):
    """Whether two nested structures of arrays, numbers and strings are the same."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(equal(expected[k], found[k]) for k in found)
    if isinstance(expected, (list, tuple)):
        return len(found) == len(expected) and all(map(equal, expected, found))
    return np.array_equal(found, expected)
