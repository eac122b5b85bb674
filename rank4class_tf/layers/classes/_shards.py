"""The shards of a table of classes: the local shards, access to all shards, and their files."""

import collections
import concurrent.futures
import math
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.trackable.base import Trackable

from rank4class_tf import _files, _keras, ops
from rank4class_tf._tf.exchange import Exchange, best_of
from rank4class_tf._types import TensorLike
from rank4class_tf.layers.classes.class_table import ClassTable

# So many rows are drawn from one seed, so that any number of shards starts the same. As many are
# read at once where a file is written.
_ROWS = 16_384


class OneShard:
    """Rows of consecutive classes, and what an optimizer keeps for them, on one device.

    Attributes:
        first: the id of the first class.
        table: the rows as a layer.
        variable: the rows, `[n, width]`.
        kept: the variables that files hold, by name.
    """

    def __init__(self, first: int, last: int, width: int, seed: int, optimizer: Any) -> None:
        self.first = first
        self.table = ClassTable(last - first, width, initializer="zeros", dtype="float32")
        self.table.build((None, width))
        self.variable = _keras.variable(self.table.embeddings)
        self.variable._trainable = False  # No tape watches it.
        self.kept = {"rows": self.variable}
        limit = math.sqrt(3 / width)  # Rows have a length of about 1.
        for block in range(first // _ROWS, -(-last // _ROWS)):
            draws = ops.uniform([_ROWS, width], ops.fold_in([seed, 1], block))
            self.set("rows", block * _ROWS, (block + 1) * _ROWS, limit * (2 * draws - 1))
        if optimizer is not None:
            self._optimizer = _keras.deserialized(optimizer)
            self._optimizer.build([self.table.embeddings])
            slots = [x for x in self._optimizer.variables if len(x.shape)]
            self.kept |= {f"slot_{i}": _keras.variable(x) for i, x in enumerate(slots)}
            self.kept["iterations"] = _keras.variable(self._optimizer.iterations)

    @property
    def last(self) -> int:
        """The id behind the last class."""
        return self.first + self.variable.shape[0]

    def found(self, ids: tf.Tensor, name: str = "rows") -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Rows of ids `[m]`, 0 for other shards' classes; their places; whether they are here."""
        here = (ids >= self.first) & (ids < self.last)
        places = tf.where(here, ids - self.first, 0)
        rows = tf.gather(self.kept[name], places)
        return tf.where(here[:, tf.newaxis], rows, 0.0), places, here

    def set(self, name: str, start: int, stop: int, values: Any) -> None:
        """Sets rows of classes, those of some of the ids from `start` to `stop` that are here."""
        first, last = max(start, self.first), min(stop, self.last)
        of_here = slice(first - self.first, last - self.first)
        self.kept[name][of_here].assign(values[first - start : last - start])

    def update(self, gradient: Any) -> None:
        """Takes a step of the optimizer."""
        optimizer = self._optimizer
        optimizer.update_step(gradient, self.variable, _keras.current_rate(optimizer))
        optimizer.iterations.assign_add(1)


class Shards(Trackable):
    """All shards of a table, of which this process may have some.

    Keras sees none of their variables: a strategy would want one on each replica.

    Attributes:
        num_classes: K.
        size: how many shards there are, those of other processes too.
        local: the shards of this process, by rank.
    """

    def __init__(self, num_classes: int, width: int, seed: int, optimizer: Any) -> None:
        self.num_classes = num_classes
        self._strategy = tf.distribute.get_strategy()
        self.size = self._strategy.num_replicas_in_sync
        if num_classes < self.size:
            raise ValueError(
                "`num_classes` must be at least the number of replicas. Received: "
                f"num_classes={num_classes}, {self.size} replicas."
            )
        devices, before = [None], 0
        if tf.distribute.has_strategy():
            devices = self._strategy.extended.worker_devices  # Of this process.
            before = getattr(self._strategy.extended, "_id_in_cluster", 0) * len(devices)

        def make(rank, device):
            first, last = (num_classes * i // self.size for i in (rank, rank + 1))
            with tf.device(device):
                return OneShard(first, last, width, seed, optimizer)

        # A thread of its own has no strategy, which would put each variable on all replicas.
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            ranks = range(before, before + len(devices))
            self.local = dict(zip(ranks, thread.map(make, ranks, devices), strict=True))

    @property
    def are_exchanged(self) -> bool:
        """Whether this code runs in a replica of the strategy, beside the others."""
        if tf.distribute.get_replica_context() is None:
            return False
        is_same = tf.distribute.get_strategy() is self._strategy
        if not is_same and tf.distribute.has_strategy():
            raise ValueError(
                "A `ShardedClassTable` must be built in the scope of the strategy that uses it. "
                f"Received: a table of {self.size} shards, built in another."
            )
        return is_same

    @property
    def own(self) -> OneShard:
        """The shard of the replica that runs this code."""
        return self.local[Exchange().rank]

    def together(self, function: Callable, *batch: Any) -> Any:
        """What a function that exchanges returns for a batch, a tensor or several.

        In a step it gets the rows of the batches of all replicas, and returns as many, of which
        those of this replica are kept.
        """
        if self.are_exchanged:
            exchange, number = Exchange(), tf.shape(batch[0])[0]
            first = exchange.first_row(number)
            joined = (None if x is None else exchange.joined_lists(x, -1) for x in batch)
            results = function(*joined)
            return tf.nest.map_structure(lambda x: x[first : first + number], results)
        if self.are_here:
            return function(*batch)
        return self._run(lambda *batch: self.together(function, *batch), *batch)

    def _run(self, function, *args):
        """Calls a function from outside of a step on all replicas; all workers must do so."""
        if not tf.executing_eagerly():
            raise ValueError(
                "Outside a training step, a graph needs all shards in one process. "
                f"Received: {len(self.local)} of {self.size} shards."
            )
        results = self._strategy.run(tf.function(function), args=args)
        local = self._strategy.experimental_local_results
        return tf.nest.map_structure(lambda x: local(x)[0], results)

    @property
    def are_here(self) -> bool:
        """Whether a loop over `local` reads all shards, or a graph that will never run."""
        return len(self.local) == self.size or _keras.builds_symbolically()

    def read(self, ids: tf.Tensor, name: str = "rows") -> tf.Tensor:
        """Rows of ids `[m]` from outside of a step."""
        if self.are_here:
            return tf.add_n([shard.found(ids, name)[0] for shard in self.local.values()])
        return self._run(lambda ids: Exchange().total(self.own.found(ids, name)[0]), ids)

    def best(self, function: Callable, k: TensorLike) -> tuple[tf.Tensor, tf.Tensor]:
        """The k best of what a function finds in each shard: values and ids, `[batch, <= k]`."""
        if self.are_exchanged:
            values, ids = function(self.own)
            return Exchange().best(values, ids, k)
        return best_of([function(shard) for shard in self.local.values()], k)

    def total(self, function: Callable) -> Any:
        """The sum of what a function returns for each shard, a list of tensors."""
        if self.are_exchanged:
            return [Exchange().total(x) for x in function(self.own)]
        return [tf.add_n(x) for x in zip(*map(function, self.local.values()), strict=True)]

    # Files hold the values of all shards together, so that any number of shards reads them.

    def values(self) -> dict[str, np.ndarray]:
        """The rows `[K, width]` and what the optimizer keeps, by name."""
        blocks = [
            tf.range(first, min(first + _ROWS, self.num_classes))
            for first in range(0, self.num_classes, _ROWS)
        ]
        kept = next(iter(self.local.values())).kept
        return {
            name: np.concatenate([self.read(ids, name).numpy() for ids in blocks])
            if len(variable.shape)
            else variable.numpy()
            for name, variable in kept.items()
        }

    def assign(self, values: Mapping[str, Any]) -> None:
        """Sets the shards of this process to what `values` returned, or to a part of it."""
        for shard in self.local.values():
            for name, variable in shard.kept.items():
                if name not in values:
                    continue
                if not len(variable.shape):
                    variable.assign(values[name])
                    continue
                shape = tf.TensorShape([self.num_classes, *variable.shape[1:]])
                if not shape.is_compatible_with(values[name].shape):
                    raise ValueError(
                        f"`{name}` must have the shape {shape}. Received: {values[name].shape}."
                    )
                for first in range(shard.first, shard.last, _ROWS):
                    last = min(first + _ROWS, shard.last)
                    shard.set(name, first, last, values[name][first:last])

    def save(self, folder: Any) -> None:
        """Writes what each shard here keeps to files of its own."""
        os.makedirs(folder, exist_ok=True)
        for shard in self.local.values():
            for name, variable in shard.kept.items():
                path = pathlib.Path(folder, f"{name}-{shard.first}-{shard.last}.npy")
                if not len(variable.shape):
                    with _files.replacing(path) as temporary, open(temporary, "wb") as file:
                        np.save(file, variable.numpy())
                    continue
                starts = range(0, variable.shape[0], _ROWS)
                blocks = (variable[start : start + _ROWS] for start in starts)
                _files.write_rows(path, tuple(variable.shape), blocks)

    def load(self, folder: Any) -> None:
        """Reads what `save` of all processes wrote, with any number of shards."""
        parts: dict[str, list] = collections.defaultdict(list)
        for path in pathlib.Path(folder).glob("*-*-*.npy"):
            name, first, _ = path.stem.split("-")
            parts[name].append((int(first), np.load(path, mmap_mode="r")))
        values = {
            name: _Joined(folder, found) if found[0][1].ndim else found[0][1]
            for name, found in parts.items()
        }
        if "rows" not in values:
            raise ValueError(f"`folder` must have files of rows. Received: {folder}.")
        self.assign(values)

    def _serialize_to_tensors(self):
        """What `tf.train.Checkpoint` writes."""
        return self.values()

    def _restore_from_tensors(self, restored_tensors):
        """Reads what any number of shards has written."""
        self.assign(restored_tensors)


class _Joined:
    """The rows of several files, of which only what is asked for is read."""

    def __init__(self, folder: Any, parts: list[tuple[int, np.ndarray]]) -> None:
        self._parts = sorted(parts, key=lambda part: part[0])
        end = 0
        for first, rows in self._parts:
            if first != end:
                raise ValueError(f"`folder` must have the rows from {end} on. Received: {folder}.")
            end = first + len(rows)
        self.shape = (end, *self._parts[0][1].shape[1:])

    def __getitem__(self, rows: slice) -> np.ndarray:
        return np.concatenate(
            [x[max(rows.start - i, 0) : max(rows.stop - i, 0)] for i, x in self._parts]
        )
