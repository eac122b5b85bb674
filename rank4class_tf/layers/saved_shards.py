"""What files and checkpoints hold of shards: the values of all of them together.

So any number of shards reads what any other number wrote.
"""

import collections
import os
import pathlib
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks, _files
from rank4class_tf._tf.private import Trackable
from rank4class_tf._types import PathLike, Tensor
from rank4class_tf.layers.table_shards import ROWS_PER_BLOCK, Shards, TableShard


class _Rows(Protocol):
    """Rows in memory or in a file. A slice reads only the rows that it names."""

    shape: Any  # That of all rows.

    def __getitem__(self, rows: slice) -> Any:
        """Some of the rows."""


class SavedShards(Shards, Trackable):
    """Shards with files; a name is "rows", or what the optimizer keeps of them."""

    def values(self) -> dict[str, np.ndarray]:
        """The values of all shards by name, such as the rows `[K, width]`."""
        ids = tf.range(self.num_classes)
        starts = range(0, self.num_classes, ROWS_PER_BLOCK)
        values = {}
        for name, variable in next(iter(self.local.values())).saved.items():
            if len(variable.shape):
                read = [self.read(ids[i : i + ROWS_PER_BLOCK], name) for i in starts]
                values[name] = np.concatenate(read)
            else:
                values[name] = variable.numpy()
        return values

    def assign(self, values: Mapping[str, _Rows]) -> None:
        """Sets this process's shards to what `values` returned, or to a part of it."""
        for shard in self.local.values():
            for name, variable in shard.saved.items():
                if name not in values:
                    continue
                if len(variable.shape):
                    self._assign_rows(shard, name, values[name])
                else:
                    variable.assign(values[name])

    def _assign_rows(self, shard: TableShard, name: str, values: _Rows) -> None:
        width = shard.saved[name].shape[1:]
        shape = tf.TensorShape([self.num_classes, *width])
        rule = f"`{name}` must have the shape {shape}."
        is_right = shape.is_compatible_with(values.shape)
        _checks.require(is_right, rule, f"{values.shape}")
        for first in range(shard.first, shard.last, ROWS_PER_BLOCK):
            stop = first + ROWS_PER_BLOCK
            shard.set(name, first, stop, values[first:stop])

    def _serialize_to_tensors(self) -> dict[str, Tensor]:
        # `tf.train.Checkpoint` writes these; in TensorFlow 2.15 it takes tensors only.
        return {name: tf.convert_to_tensor(x) for name, x in self.values().items()}

    def _restore_from_tensors(self, restored_tensors: Mapping[str, Tensor]) -> None:
        self.assign(restored_tensors)

    def write(self, folder: PathLike) -> None:
        """Writes the values of this process's shards, each to a file of its own."""
        os.makedirs(folder, exist_ok=True)
        for shard in self.local.values():
            for name, variable in shard.saved.items():
                path = pathlib.Path(folder, f"{name}-{shard.first}-{shard.last}.npy")
                if len(variable.shape):
                    _write_rows(path, variable)
                    continue
                with _files.replacing(path) as temporary:
                    np.save(temporary, variable.numpy())

    def read_files(self, folder: PathLike) -> None:
        """Sets this process's shards to what all processes wrote."""
        files = collections.defaultdict(list)
        for path in pathlib.Path(folder).glob("*-*-*.npy"):
            name, first, _ = path.stem.split("-")
            files[name].append((int(first), np.load(path, mmap_mode="r")))
        rule = "`folder` must have files of rows."
        _checks.require("rows" in files, rule, f"{folder}")
        values: dict[str, _Rows] = {}
        for name, parts in files.items():
            _, array = parts[0]
            values[name] = _JoinedFiles(folder, parts) if array.ndim else array
        self.assign(values)


def _write_rows(path: PathLike, rows: tf.Variable) -> None:
    with _files.appending_rows(path, tuple(rows.shape[1:])) as append:
        for start in range(0, rows.shape[0], ROWS_PER_BLOCK):
            append(rows[start : start + ROWS_PER_BLOCK])


class _JoinedFiles:
    """The rows of several files. A slice reads only the rows that it asks for."""

    def __init__(self, folder: PathLike, files: list[tuple[int, np.ndarray]]):
        # (first id, rows) of each.
        self._files = sorted(files, key=lambda file: file[0])
        end = 0
        for first, rows in self._files:
            rule = f"`folder` must have the rows from {end} on."
            _checks.require(first == end, rule, f"{folder}")
            end = first + len(rows)
        self.shape = (end, *self._files[0][1].shape[1:])

    def __getitem__(self, rows: slice) -> np.ndarray:
        parts = []
        for first, values in self._files:
            start = max(rows.start - first, 0)
            stop = max(rows.stop - first, 0)
            parts.append(values[start:stop])
        return np.concatenate(parts)
