"""Text files that may be damaged."""

import contextlib
import gzip
import os
import warnings
import zlib
from collections.abc import Iterator

# Bytes that are no text, and what gzip raises on a file that was cut or changed.
_DAMAGED = (UnicodeDecodeError, EOFError, zlib.error, gzip.BadGzipFile)


@contextlib.contextmanager
def naming(path: str | os.PathLike) -> Iterator[None]:
    """Names the file in errors that do not.

    Raises:
        ValueError: if the file is no text in UTF-8 or, if it is packed, damaged.
    """
    try:
        yield
    except _DAMAGED as error:
        raise ValueError(f"{path}: must be whole, and text in UTF-8. Received: {error}.") from error


def warn_if_cut(path: str | os.PathLike) -> None:
    """Warns if the last line has no end: a number there may lack its last digits."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 1, 0))
        if size and file.read() not in (b"\n", b"\r"):
            warnings.warn(f"{path}: the last line has no end; the file may be cut.", stacklevel=3)


def natural(text: str) -> int:
    """The integer >= 0 that a text has in digits; `int` takes more, such as 1_0.

    Raises:
        ValueError: if it has no such number.
    """
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{text!r} is no number.")
    return int(text)
