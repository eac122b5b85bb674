"""A table of classes whose rows are divided among the replicas of a strategy.

Rows never become weights of Keras, which would put all of them on each replica. Searches and losses
over all classes run on each shard, and join their results by `_tf/exchange.py`.
"""

import collections
import concurrent.futures
import math
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.python.trackable.base import Trackable

from rank4class_tf import _checks, _files, _keras, _registry, ops
from rank4class_tf._lists.classes import Shard
from rank4class_tf._random import start_seed
from rank4class_tf._tf.exchange import Exchange, best_of
from rank4class_tf._tf.gather import within
from rank4class_tf._types import Array, PathLike, Tensor, TensorPair, WithGradient
from rank4class_tf.layers.classes import Classes, ClassTable

# Rows drawn from one seed, whatever the number of shards; files are written in such blocks.
_ROWS = 16_384


class OneShard:
    """Rows of the classes in [first, last) and their optimizer; files hold what is `kept`."""

    def __init__(self, first: int, last: int, width: int, seed: int, optimizer: Any):
        self.first, self.last = first, last
        self.table = ClassTable(last - first, width, initializer="zeros", dtype="float32")
        self.table.build((None, width))
        self.variable = _keras.variable(self.table.embeddings)
        self.variable._trainable = False  # No tape watches it.
        self.kept = {"rows": self.variable}
        limit = math.sqrt(3 / width)  # Rows have a length of about 1.
        for block in range(first // _ROWS, -(-last // _ROWS)):
            draws = ops.uniform([_ROWS, width], ops.fold_in([seed, 1], block))
            self.set("rows", block * _ROWS, (block + 1) * _ROWS, limit * (2 * draws - 1))
        # Slots of the optimizer have an entry for each row, and stand in files beside the rows.
        if optimizer is not None:
            self._optimizer = _keras.deserialized(optimizer)
            self._optimizer.build([self.table.embeddings])
            slots = [x for x in self._optimizer.variables if len(x.shape)]
            self.kept |= {f"slot_{i}": _keras.variable(x) for i, x in enumerate(slots)}
            self.kept["iterations"] = _keras.variable(self._optimizer.iterations)

    def lookup(self, ids: Tensor, name: str = "rows") -> tuple[Tensor, Tensor, Tensor]:
        """Values of ids `[m]`, 0 for other shards' classes; their rows; whether they are here."""
        rows, is_here = within(ids - self.first, self.last - self.first)
        values = tf.gather(self.kept[name], rows)
        return tf.where(is_here[:, tf.newaxis], values, 0.0), rows, is_here

    def set(self, name: str, start: int, stop: int, values: Any) -> None:
        """Sets the rows of the ids in [start, stop), as far as they are here."""
        first, last = max(start, self.first), min(stop, self.last)
        rows = slice(first - self.first, last - self.first)
        self.kept[name][rows].assign(values[first - start : last - start])

    def update(self, gradient: Any) -> None:
        rate = _keras.current_rate(self._optimizer)
        self._optimizer.update_step(gradient, self.variable, rate)
        self._optimizer.iterations.assign_add(1)


class Shards(Trackable):
    """The `size` shards of a table. This process has those in `local`, by rank."""

    def __init__(self, num_classes: int, width: int, seed: int, optimizer: Any):
        self.num_classes = num_classes
        self._strategy = tf.distribute.get_strategy()
        self.size = self._strategy.num_replicas_in_sync
        rule = "`num_classes` must be at least the number of replicas."
        received = f"num_classes={num_classes}, {self.size} replicas"
        _checks.require(num_classes >= self.size, rule, received)
        devices, before = [None], 0
        if tf.distribute.has_strategy():
            devices = self._strategy.extended.worker_devices  # Of this process.
            before = getattr(self._strategy.extended, "_id_in_cluster", 0) * len(devices)

        # Shards differ in size by one at most.
        def build(rank: int, device: str | None) -> OneShard:
            first, last = (num_classes * i // self.size for i in (rank, rank + 1))
            with tf.device(device):
                return OneShard(first, last, width, seed, optimizer)

        # A thread of its own has no strategy, which would put each variable on all replicas.
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            ranks = range(before, before + len(devices))
            self.local = dict(zip(ranks, thread.map(build, ranks, devices), strict=True))

    @property
    def are_exchanged(self) -> bool:
        """Whether this code runs in a replica of the strategy, beside the others."""
        if tf.distribute.get_replica_context() is None:
            return False
        is_same = tf.distribute.get_strategy() is self._strategy
        rule = "A `ShardedClassTable` must be built in the scope of the strategy that uses it."
        received = f"a table of {self.size} shards, built in another"
        _checks.require(is_same or not tf.distribute.has_strategy(), rule, received)
        return is_same

    @property
    def replica_shard(self) -> OneShard:
        """The shard of the replica that runs this code."""
        return self.local[Exchange().rank]

    def together(self, function: Callable, *batch: Any) -> Any:
        """Results of a function of a batch, which meets the shards of all replicas."""
        # In a step each replica has some examples and some classes: all examples meet all shards.
        if self.are_exchanged:
            exchange, number = Exchange(), tf.shape(batch[0])[0]
            first = exchange.first_row(batch[0])
            joined = (None if x is None else exchange.joined_lists(x, -1) for x in batch)
            results = function(*joined)
            return tf.nest.map_structure(lambda x: x[first : first + number], results)
        if self.are_here:
            return function(*batch)
        return self._run(lambda *batch: self.together(function, *batch), *batch)

    def _run(self, function: Callable, *args: Any) -> Any:
        """Calls a function on all replicas from outside a step; all workers must do so."""
        rule = "Outside a training step, a graph needs all shards in one process."
        received = f"{len(self.local)} of {self.size} shards"
        _checks.require(tf.executing_eagerly(), rule, received)
        results = self._strategy.run(tf.function(function), args=args)
        local = self._strategy.experimental_local_results
        return tf.nest.map_structure(lambda x: local(x)[0], results)

    @property
    def are_here(self) -> bool:
        """Whether a loop over `local` reads all shards, or the graph never runs."""
        return len(self.local) == self.size or _keras.builds_symbolically()

    def read(self, ids: Tensor, name: str = "rows") -> Tensor:
        """Rows of ids `[m]` from outside of a step."""
        if self.are_here:
            return tf.add_n([shard.lookup(ids, name)[0] for shard in self.local.values()])
        return self._run(lambda ids: Exchange().total(self.replica_shard.lookup(ids, name)[0]), ids)

    def best(self, function: Callable, k: Array) -> TensorPair:
        """The k best of a function's results for each shard: values, ids, `[batch, <= k]`."""
        if self.are_exchanged:
            values, ids = function(self.replica_shard)
            return Exchange().best(values, ids, k)
        return best_of([function(shard) for shard in self.local.values()], k)

    def total(self, function: Callable) -> Any:
        """The sums of a function's results for each shard, a list of tensors."""
        if self.are_exchanged:
            return [Exchange().total(x) for x in function(self.replica_shard)]
        return [tf.add_n(x) for x in zip(*map(function, self.local.values()), strict=True)]

    # Files hold the values of all shards together, so that any number of shards reads them.

    def values(self) -> dict[str, np.ndarray]:
        """The rows `[K, width]` and what the optimizer keeps, by name."""
        starts = range(0, self.num_classes, _ROWS)
        blocks = [tf.range(i, min(i + _ROWS, self.num_classes)) for i in starts]
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
                new = values[name]
                if not len(variable.shape):
                    variable.assign(new)
                    continue
                shape = tf.TensorShape([self.num_classes, *variable.shape[1:]])
                rule = f"`{name}` must have the shape {shape}."
                _checks.require(shape.is_compatible_with(new.shape), rule, f"{new.shape}")
                for first in range(shard.first, shard.last, _ROWS):
                    last = min(first + _ROWS, shard.last)
                    shard.set(name, first, last, new[first:last])

    def _serialize_to_tensors(self) -> dict[str, Any]:
        # What `tf.train.Checkpoint` writes; that of TensorFlow 2.15 takes tensors only.
        return {name: tf.convert_to_tensor(x) for name, x in self.values().items()}

    def _restore_from_tensors(self, restored_tensors: Mapping[str, Any]) -> None:
        self.assign(restored_tensors)


class _Joined:
    """The rows of several files. A slice reads only the rows that it asks for."""

    def __init__(self, folder: PathLike, parts: list[tuple[int, np.ndarray]]):
        self._parts = sorted(parts, key=lambda part: part[0])
        end = 0
        for first, rows in self._parts:
            rule = f"`folder` must have the rows from {end} on."
            _checks.require(first == end, rule, f"{folder}")
            end = first + len(rows)
        self.shape = (end, *self._parts[0][1].shape[1:])

    def __getitem__(self, rows: slice) -> np.ndarray:
        return np.concatenate(
            [x[max(rows.start - i, 0) : max(rows.stop - i, 0)] for i, x in self._parts]
        )


# With these options a step needs the gradients of all shards, or changes rows without one.
_NOT_LOCAL = ("clipnorm", "clipvalue", "global_clipnorm", "weight_decay", "use_ema")


@_keras.register
class ShardedClassTable(_registry.Configured, Classes):
    r"""A table of classes that is split over the replicas of a strategy.

    Build it, or the model that has it, in `strategy.scope()`, under `tf.distribute`'s
    `MirroredStrategy` or `MultiWorkerMirroredStrategy`; without a strategy there is one shard. With
    W replicas, each holds about K / W rows and the optimizer's state for them. A step gives the
    same result as on one device, and what replicas exchange does not grow with K.

    The table has its own optimizer, which updates the rows during the backward pass. So take the
    gradient only once per step. Its learning rate may follow a schedule, not a callback.

    Outside of a step, `rows`, `top_k` and all functions that save a model read all shards. With
    several machines, all workers must then make the same call at the same time.

    Args:
        num_classes: number of classes K, at least the number of replicas.
        width: numbers in a row, >= 1; None for the width of the encodings that are scored.
        optimizer: one of `rank4class_tf.optimizers`, for the rows, without clipping, weight decay
            or an average of the weights, which need all shards. None if rows are not trained.
        seed: an int, for the initial rows, whatever the number of shards; None draws one from
            NumPy's global generator.

    Example:
        >>> from rank4class_tf import models, optimizers
        >>> with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        ...     classes = ShardedClassTable(5000, 8, optimizers.RowwiseAdagrad(0.03), seed=0)
        ...     encoder = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(8)])
        ...     model = models.ExtremeClassifier(encoder, classes, embedding_dim=8)
        >>> model.classes.rows([3, 5]).shape
        TensorShape([2, 8])
    """

    def __init__(
        self,
        num_classes: int,
        width: int | None = None,
        optimizer: Any = None,
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.num_classes = _checks.positive_int("num_classes", num_classes)
        self.width = _checks.positive_int_or_none("width", width)
        if isinstance(optimizer, dict):
            optimizer = _keras.deserialized(optimizer)
        self.optimizer = None  # Its configuration.
        if optimizer is not None:
            # It updates rows of a shard without the others.
            has_rows = callable(getattr(optimizer, "update_rows", None))
            rule = "`optimizer` must be one of rank4class_tf.optimizers, such as"
            _checks.require(has_rows, f"{rule} `RowwiseAdagrad(0.03)`.", repr(optimizer))
            for name in _NOT_LOCAL:
                value = getattr(optimizer, name, None)
                rule = f"`optimizer` must have no `{name}`, which needs more than the rows of"
                _checks.require(not value, f"{rule} a shard.", f"{name}={value}")
            self.optimizer = keras.utils.serialize_keras_object(optimizer)
        self.seed = start_seed(seed)

    @classmethod
    def from_rows(cls, rows: Array, optimizer: Any = None, **kwargs: Any) -> "ShardedClassTable":
        """Returns a table with rows `[n, width]`; other arguments as in the constructor."""
        rows = np.asarray(rows)
        table = cls(rows.shape[0], rows.shape[1], optimizer, **kwargs)
        table.build((None, rows.shape[1]))
        table.assign(rows)
        return table

    def build(self, input_shape: Any) -> None:
        self.width = self.width or int(input_shape[-1])
        self.shards = Shards(self.num_classes, self.width, self.seed, self.optimizer)
        if self.optimizer is not None:
            # Rows are no weights of Keras's, which all replicas would hold. This number, which
            # nothing reads, ties them to the tapes.
            self.anchor = self.add_weight(name="anchor", shape=(), initializer="zeros")
        self.built = True

    def assign(self, rows: Array) -> None:
        """Sets the rows of all classes; each process takes the rows of its shards."""
        self.shards.assign({"rows": rows})

    def rows(self, ids: Array | None = None) -> Tensor:
        """As in `Classes`; NaN for an id that is out of range."""
        if ids is None:
            return self._joint_rows([], [tf.range(self.num_classes)])[0]
        class_ids = tf.convert_to_tensor(ids)
        (rows,) = self._joint_rows([class_ids], [])
        is_class = (class_ids >= 0) & (class_ids < self.num_classes)
        return tf.where(is_class[..., tf.newaxis], rows, float("nan"))

    def rows_of_step(self, *ids: Tensor) -> list[Tensor]:
        # All in one exchange: ids `[batch, m]`, which differ between replicas, before ids `[m]`.
        local = [x for x in ids if x.shape.rank > 1]
        shared = [x for x in ids if x.shape.rank == 1]
        rows = self._joint_rows(local, shared)
        shared_rows = rows[len(local) :]
        return [shared_rows.pop(0) if x.shape.rank == 1 else rows.pop(0) for x in ids]

    def _joint_rows(self, local: Sequence[Tensor], shared: Sequence[Tensor]) -> list[Tensor]:
        """Rows of ids that may differ between replicas, and of others that may not."""
        ids = [tf.cast(x, tf.int32) for x in (*local, *shared)]
        sizes = [tf.size(x) for x in ids]
        flat = tf.concat([tf.reshape(x, [-1]) for x in ids], axis=0)
        num_local = tf.add_n([tf.constant(0), *sizes[: len(local)]])
        is_exchanged = self.shards.are_exchanged
        rows = self._exchanged_rows(flat, num_local) if is_exchanged else self.shards.read(flat)
        shapes = [tf.concat([tf.shape(x), [self.width]], axis=0) for x in ids]
        return [
            tf.ensure_shape(tf.reshape(part, shape), [*x.shape, self.width])
            for part, shape, x in zip(tf.split(rows, sizes), shapes, ids, strict=True)
        ]

    def _exchanged_rows(self, ids: Tensor, num_local: Tensor) -> Tensor:
        """Rows of ids `[m]`, of which the first may differ between replicas."""
        # Every replica asks its shard for the ids of all, and takes the sum over the shards.
        exchange, shard = Exchange(), self.shards.replica_shard
        joined = exchange.joined(ids[:num_local])
        first = exchange.first_row(ids[:num_local])
        all_ids = tf.concat([joined, ids[num_local:]], axis=0)

        @tf.custom_gradient
        def lookup(anchor: Tensor) -> WithGradient:
            rows, shard_rows, is_here = shard.lookup(all_ids)

            def gradient(upstream: Tensor) -> Tensor:
                # The local rows stand among those of all replicas; the shard sums over these.
                after = tf.size(joined) - first - num_local
                local = tf.pad(upstream[:num_local], [[first, after], [0, 0]])
                upstream = exchange.total(tf.concat([local, upstream[num_local:]], axis=0))
                slices = (tf.boolean_mask(x, is_here) for x in (upstream, shard_rows))
                self._update(shard, tf.IndexedSlices(*slices, shard.variable.shape))
                return tf.zeros_like(anchor)

            rows = exchange.total(rows)
            parts = [rows[first : first + num_local], rows[tf.size(joined) :]]
            return tf.concat(parts, axis=0), gradient

        return lookup(self._tie())

    @property
    def _is_trained(self) -> bool:
        return self.optimizer is not None and self.trainable

    def _tie(self) -> Tensor:
        return tf.convert_to_tensor(self.anchor) if self._is_trained else tf.zeros([])

    def _update(self, shard: OneShard, gradient: Any) -> None:
        if self._is_trained and gradient is not None:
            shard.update(gradient)

    def tables(self) -> tuple[Any, ...]:
        shards = self.shards
        return (shards.replica_shard.variable if shards.are_exchanged else self.rows(),)

    def shard(self) -> Shard | None:
        if not self.shards.are_exchanged:
            return None
        shard = self.shards.replica_shard
        return Shard(
            first=shard.first,
            num_classes=self.num_classes,
            exchange=Exchange(),
            anchor=self._tie(),
            update=lambda gradients: self._update(shard, gradients[0]),
        )

    def save_shards(self, folder: PathLike) -> None:
        """Writes the rows and optimizer states of each shard of this process to `.npy` files.

        Use it for tables larger than the memory of a machine, with an empty folder that all
        processes share. `rows-0-1000.npy` has the rows of the classes 0 to 999.
        """
        os.makedirs(folder, exist_ok=True)
        for shard in self.shards.local.values():
            for name, variable in shard.kept.items():
                path = pathlib.Path(folder, f"{name}-{shard.first}-{shard.last}.npy")
                if not len(variable.shape):
                    with _files.replacing(path) as temporary, open(temporary, "wb") as file:
                        np.save(file, variable.numpy())
                    continue
                with _files.appending_rows(path, tuple(variable.shape[1:])) as append:
                    for start in range(0, variable.shape[0], _ROWS):
                        append(variable[start : start + _ROWS])

    def load_shards(self, folder: PathLike) -> None:
        """Reads what `save_shards` of all processes wrote, with any number of shards."""
        parts: dict[str, list] = collections.defaultdict(list)
        for path in pathlib.Path(folder).glob("*-*-*.npy"):
            name, first, _ = path.stem.split("-")
            parts[name].append((int(first), np.load(path, mmap_mode="r")))
        values = {
            name: _Joined(folder, files) if files[0][1].ndim else files[0][1]
            for name, files in parts.items()
        }
        _checks.require("rows" in values, "`folder` must have files of rows.", f"{folder}")
        self.shards.assign(values)

    def save_own_variables(self, store: Any) -> None:
        for name, values in self.shards.values().items():
            store[name] = values

    def load_own_variables(self, store: Any) -> None:
        self.shards.assign(store)
