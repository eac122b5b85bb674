"""Files that get their names only when complete; on an error the older file remains."""

import contextlib
import errno
import os
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class_tf._types import PathLike, Tensor

_UNFINISHED = ".unfinished-"
SAVED_MODEL = "saved_model.pb"  # A loader finds a SavedModel by this file.


@contextlib.contextmanager
def replacing(path: PathLike) -> Iterator[str]:
    """Yields a temporary path ending in the same name, then renames it to `path`."""
    # `path` may be on any file system of TensorFlow. An `OSError` names it, not the
    # temporary file.
    target = _resolved(path)
    try:
        with _temporary_beside(target) as temporary:
            yield temporary
            _flush(temporary)
            tf.io.gfile.rename(temporary, target, overwrite=True)
    except OSError as error:
        # Python's error for a full disk does not name the file.
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        if error.filename is None and is_full or _UNFINISHED in str(error.filename):
            error.filename = os.fspath(path)
        raise


@contextlib.contextmanager
def replacing_saved_model(path: PathLike) -> Iterator[str]:
    """Yields a temporary folder, then moves its files to `path`, one by one."""
    # Keeps other files of the folder. While files move, the folder lacks the file by
    # which a loader finds the model; it still lacks it if a move fails.
    target = _resolved(path)
    with _temporary_beside(target) as temporary:
        yield temporary
        files = []
        for folder, _, names in tf.io.gfile.walk(temporary):
            files += [os.path.join(folder, name) for name in names]
        for file in files:
            _flush(file)
        with contextlib.suppress(tf.errors.NotFoundError):
            tf.io.gfile.remove(os.path.join(target, SAVED_MODEL))
        files.sort(key=lambda file: os.path.basename(file) == SAVED_MODEL)
        for file in files:
            destination = os.path.join(target, os.path.relpath(file, temporary))
            tf.io.gfile.makedirs(os.path.dirname(destination))
            tf.io.gfile.rename(file, destination, overwrite=True)


def write_text(path: PathLike, text: str) -> None:
    """Writes a text file."""
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write(text)


@contextlib.contextmanager
def appending_rows(
    path: PathLike, shape: tuple[int, ...], dtype: Any = "<f4"
) -> Iterator[Callable[[np.ndarray | Tensor], None]]:
    """Writes any number of rows to a NumPy file; yields a function of `[n, *shape]`."""
    # The file is not mapped to memory, since a full disk would then kill the process
    # with SIGBUS.
    count = 0
    with replacing(path) as temporary, open(temporary, "wb") as file:

        def write_header() -> None:
            descr = np.lib.format.dtype_to_descr(np.dtype(dtype))
            header = {"descr": descr, "fortran_order": False, "shape": (count, *shape)}
            np.lib.format.write_array_header_1_0(file, header)

        def append(rows: np.ndarray | Tensor) -> None:
            nonlocal count
            file.write(np.ascontiguousarray(rows, dtype).data)
            count += len(rows)

        write_header()
        yield append
        file.seek(0)
        write_header()  # NumPy leaves room for more digits.


@contextlib.contextmanager
def _temporary_beside(target: str) -> Iterator[str]:
    """Yields a same-named path in a temporary folder, which a killed process leaves."""
    # Both calls make missing parent folders.
    folder, name = os.path.split(target)
    temporary_folder = os.path.join(folder, f"{_UNFINISHED}{uuid.uuid4().hex[:12]}")
    if "://" in target:
        tf.io.gfile.makedirs(temporary_folder)
    else:
        os.makedirs(temporary_folder)
    try:
        yield os.path.join(temporary_folder, name)
    finally:
        tf.io.gfile.rmtree(temporary_folder)


def _resolved(path: PathLike) -> str:
    """The file that a path leads to, so that a link stays a link."""
    path = os.fspath(path)
    return path if "://" in path else os.path.realpath(path)


def _flush(path: str) -> None:
    """Waits until a file is on disk: some file systems only then report being full."""
    if "://" not in path:
        with open(path, "rb") as file:
            os.fsync(file.fileno())
