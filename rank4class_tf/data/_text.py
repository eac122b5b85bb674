"""Text files that may be damaged."""

import contextlib
import gzip
import os
import warnings
import zlib
from collections.abc import Iterator

# Errors for bytes that are not text, and errors of gzip for a file that was cut or changed.
_DAMAGED = (UnicodeDecodeError, EOFError, zlib.error, gzip.BadGzipFile)


@contextlib.contextmanager
def naming(path: str | os.PathLike) -> Iterator[None]:
    """Names the file in errors that occur while it is read.

    Raises:
        ValueError: if the file is not text in UTF-8, or is packed and damaged.
    """
    try:
        yield
    except _DAMAGED as error:
        raise ValueError(f"{path}: must be whole, and text in UTF-8. Received: {error}.") from error


def warn_if_cut(path: str | os.PathLike) -> None:
    """Warns if no line break ends the last line: a number there may lack its last digits."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 1, 0))
        if size and file.read() not in (b"\n", b"\r"):
            warnings.warn(
                f"{path}: no line break ends the last line; the file may be cut.", stacklevel=3
            )


def natural(text: str) -> int:
    """The integer >= 0 that a text spells in digits; `int` accepts other texts too, such as 1_0.

    Raises:
        ValueError: if the text has anything but digits.
    """
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{text!r} must have only digits.")
    return int(text)
