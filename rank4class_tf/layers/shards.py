"""A table of classes whose rows are divided among the replicas of a strategy.

Rows never become weights of Keras, which would put all of them on each replica.
Searches and losses over all classes run on each shard, and join their results by
`_tf/exchange.py`.
"""

import collections
import concurrent.futures
import math
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _files, _keras, _registry, ops
from rank4class_tf._lists.classes import Shard
from rank4class_tf._random import start_seed
from rank4class_tf._tf.exchange import Exchange, best_of_shards
from rank4class_tf._tf.gather import within
from rank4class_tf._tf.private import Trackable
from rank4class_tf._tf.raising import in_xla
from rank4class_tf._types import (
    Array,
    PathLike,
    Size,
    Tensor,
    TensorPair,
    Tensors,
    WithGradient,
)
from rank4class_tf.layers.classes import Classes, ClassTable, at_joined_ids

# Rows in a block, which has its own seed whatever the number of shards, and is written
# at once.
_ROWS_PER_BLOCK = 16_384


class _Found(NamedTuple):
    """What a shard has of some ids `[m]`."""

    values: Tensor  # `[m, width]`, 0 for ids of other shards.
    rows: Tensor  # `[m]`, the places in this shard, 0 for ids of other shards.
    is_here: Tensor  # `[m]` booleans.


class _AskedIds(NamedTuple):
    """Where the ids that a replica reads in a step stand among those of all replicas.

    All replicas' local ids come first, one replica after another, and then the shared
    ids. A replica's own ids are its local ids and the shared ones.
    """

    first: Tensor  # The place of this replica's first local id.
    num_local: Tensor  # Of this replica.
    num_local_of_all: Tensor

    def own(self, rows: Tensor) -> Tensor:
        """The rows of this replica's ids, of those of all ids."""
        local = rows[self.first : self.first + self.num_local]
        return tf.concat([local, rows[self.num_local_of_all :]], axis=0)

    def among_all(self, gradients: Tensor) -> Tensor:
        """Gradients of this replica's rows as those of all ids, 0 for other ids."""
        num_after = self.num_local_of_all - self.first - self.num_local
        places = [[self.first, num_after], [0, 0]]
        local = tf.pad(gradients[: self.num_local], places)
        return tf.concat([local, gradients[self.num_local :]], axis=0)


class TableShard:
    """Rows of classes [first, last) and their optimizer; files hold what is `saved`."""

    def __init__(
        self,
        first: int,
        last: int,
        width: int,
        seed: int,
        optimizer: dict[str, Any] | None,
    ):
        self.first = first
        self.last = last
        self.table = ClassTable(
            last - first, width, initializer="zeros", dtype="float32"
        )
        self.table.build((None, width))
        self.variable = _keras.variable(self.table.embeddings)
        _keras.unwatch(self.variable)
        self.saved = {"rows": self.variable}
        self._draw_rows(seed)
        if optimizer is not None:
            self._add_optimizer(optimizer)

    def _draw_rows(self, seed: int) -> None:
        width = self.variable.shape[1]
        limit = math.sqrt(3 / width)  # Rows have a length of about 1.
        for block in range(
            self.first // _ROWS_PER_BLOCK, -(-self.last // _ROWS_PER_BLOCK)
        ):
            start = block * _ROWS_PER_BLOCK
            draws = ops.uniform([_ROWS_PER_BLOCK, width], ops.fold_in([seed, 1], block))
            self.set("rows", start, start + _ROWS_PER_BLOCK, limit * (2 * draws - 1))

    def _add_optimizer(self, config: dict[str, Any]) -> None:
        """Adds the optimizer. Its slots have an entry for each row, as files have."""
        self._optimizer = _keras.deserialized(config)
        self._optimizer.build([self.table.embeddings])
        slots = [x for x in self._optimizer.variables if len(x.shape)]
        for i, slot in enumerate(slots):
            self.saved[f"slot_{i}"] = _keras.variable(slot)
        self.saved["iterations"] = _keras.variable(self._optimizer.iterations)

    def lookup(self, ids: Tensor, name: str = "rows") -> _Found:
        """What this shard has of ids `[m]`."""
        rows, is_here = within(ids - self.first, self.last - self.first)
        values = tf.gather(self.saved[name], rows)
        values = tf.where(is_here[:, tf.newaxis], values, 0.0)
        return _Found(values, rows, is_here)

    def set(
        self, name: str, start: int, stop: int, values: Tensor | np.ndarray
    ) -> None:
        """Sets those rows of the ids in [start, stop) that this shard has."""
        first, last = max(start, self.first), min(stop, self.last)
        rows = slice(first - self.first, last - self.first)
        self.saved[name][rows].assign(values[first - start : last - start])

    def update(self, gradient: tf.IndexedSlices | Tensor) -> None:
        """Takes a step of the shard's own optimizer."""
        self._optimizer.update_step(
            gradient, self.variable, _keras.current_rate(self._optimizer)
        )
        self._optimizer.iterations.assign_add(1)


def _outside_of_strategies(function: Callable) -> Any:
    """The result of a function that creates variables.

    A strategy would put each of them on all replicas. A new thread has no strategy.
    """
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(function).result()


class Shards(Trackable):
    """The `size` shards of a table. This process has those in `local`, by rank."""

    def __init__(
        self, num_classes: int, width: int, seed: int, optimizer: dict[str, Any] | None
    ):
        self.num_classes = num_classes
        self._strategy = tf.distribute.get_strategy()
        self.size = self._strategy.num_replicas_in_sync
        rule = "`num_classes` must be at least the number of replicas."
        received = f"num_classes={num_classes}, {self.size} replicas"
        _checks.require(num_classes >= self.size, rule, received)
        devices = [None]
        first_rank = 0
        if tf.distribute.has_strategy():
            devices = self._strategy.extended.worker_devices  # Of this process.
            worker = _keras.worker_number(self._strategy) or 0
            first_rank = worker * len(devices)

        def build() -> dict[int, TableShard]:
            shards = {}
            for rank, device in enumerate(devices, first_rank):
                # Shards differ in size by one at most.
                first = num_classes * rank // self.size
                last = num_classes * (rank + 1) // self.size
                with tf.device(device):
                    shards[rank] = TableShard(first, last, width, seed, optimizer)
            return shards

        self.local = _outside_of_strategies(build)

    @property
    def in_replica(self) -> bool:
        """Whether this code runs in a strategy's replica, and the others run it too."""
        if tf.distribute.get_replica_context() is None:
            return False
        is_same = tf.distribute.get_strategy() is self._strategy
        rule = (
            "A `ShardedClassTable` must be built in the scope of the strategy that "
            "uses it."
        )
        received = f"a table of {self.size} shards, built in another"
        _checks.require(is_same or not tf.distribute.has_strategy(), rule, received)
        return is_same

    @property
    def replica_shard(self) -> TableShard:
        """The shard of the replica that runs this code."""
        return self.local[Exchange().rank]

    def on_joined_batch(self, function: Callable, *batch: Tensor | None) -> Any:
        """Results for this batch of a function of all replicas' joined batches."""
        if self.in_replica:
            return self._on_batches_of_replicas(function, *batch)
        if self.has_all_shards:
            return function(*batch)
        return self._run(lambda *batch: self.on_joined_batch(function, *batch), *batch)

    def _on_batches_of_replicas(self, function: Callable, *batch: Tensor | None) -> Any:
        # In a step each replica has some examples and some classes: all examples meet
        # all shards.
        exchange = Exchange()
        num_examples = tf.shape(batch[0])[0]
        first_row = exchange.first_row(batch[0])
        joined = []
        for x in batch:
            joined.append(None if x is None else exchange.joined_lists(x, padding=-1))
        results = function(*joined)
        own = slice(first_row, first_row + num_examples)
        return tf.nest.map_structure(lambda x: x[own], results)

    def _run(self, function: Callable, *args: Tensor | None) -> Any:
        """Calls a function on all replicas outside a step; all workers must do so."""
        rule = "Outside a training step, a graph needs all shards in one process."
        _checks.require(
            tf.executing_eagerly(), rule, f"{len(self.local)} of {self.size} shards"
        )
        results = self._strategy.run(tf.function(function), args=args)
        local_results = self._strategy.experimental_local_results
        return tf.nest.map_structure(lambda x: local_results(x)[0], results)

    @property
    def has_all_shards(self) -> bool:
        """Whether a loop over `local` reads all shards, or the graph never runs."""
        return len(self.local) == self.size or _keras.builds_symbolically()

    def read(self, ids: Tensor, name: str = "rows") -> Tensor:
        """Rows of ids `[m]` from outside of a step."""
        if self.has_all_shards:
            found = [shard.lookup(ids, name) for shard in self.local.values()]
            return tf.add_n([part.values for part in found])

        def read_in_replica(ids: Tensor) -> Tensor:
            return Exchange().total(self.replica_shard.lookup(ids, name).values)

        return self._run(read_in_replica, ids)

    def search(self, function: Callable, k: Size) -> TensorPair:
        """The k highest values and their ids, of a function of shards."""
        if self.in_replica:
            values, ids = function(self.replica_shard)
            return Exchange().best(values, ids, k)
        return best_of_shards([function(x) for x in self.local.values()], k)

    def total(self, function: Callable) -> list[Tensor]:
        """The sums of a function's results for each shard."""
        if self.in_replica:
            return [Exchange().total(x) for x in function(self.replica_shard)]
        results = [function(shard) for shard in self.local.values()]
        return [tf.add_n(x) for x in zip(*results, strict=True)]

    # Files hold the values of all shards together, so that any number of shards reads
    # them.

    def values(self) -> dict[str, np.ndarray]:
        """The rows `[K, width]` and what the optimizer keeps, by name."""
        starts = range(0, self.num_classes, _ROWS_PER_BLOCK)
        blocks = [
            tf.range(i, min(i + _ROWS_PER_BLOCK, self.num_classes)) for i in starts
        ]
        values = {}
        for name, variable in next(iter(self.local.values())).saved.items():
            if len(variable.shape):
                read = [self.read(ids, name).numpy() for ids in blocks]
                values[name] = np.concatenate(read)
            else:
                values[name] = variable.numpy()
        return values

    def assign(self, values: Mapping[str, Any]) -> None:
        """Sets this process's shards to what `values` returned, or to a part of it."""
        for shard in self.local.values():
            for name, variable in shard.saved.items():
                if name not in values:
                    continue
                if len(variable.shape):
                    self._assign_rows(shard, name, values[name])
                else:
                    variable.assign(values[name])

    def _assign_rows(self, shard: TableShard, name: str, values: Any) -> None:
        # `values` may be files: a slice reads only the rows that it asks for.
        width = shard.saved[name].shape[1:]
        shape = tf.TensorShape([self.num_classes, *width])
        rule = f"`{name}` must have the shape {shape}."
        is_right = shape.is_compatible_with(values.shape)
        _checks.require(is_right, rule, f"{values.shape}")
        for first in range(shard.first, shard.last, _ROWS_PER_BLOCK):
            last = min(first + _ROWS_PER_BLOCK, shard.last)
            shard.set(name, first, last, values[first:last])

    def _serialize_to_tensors(self) -> dict[str, Tensor]:
        # `tf.train.Checkpoint` writes these; in TensorFlow 2.15 it takes tensors only.
        return {name: tf.convert_to_tensor(x) for name, x in self.values().items()}

    def _restore_from_tensors(self, restored_tensors: Mapping[str, Tensor]) -> None:
        self.assign(restored_tensors)


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


# With these options a step needs the gradients of all shards, or changes rows without
# one.
_GLOBAL_OPTIONS = (
    "clipnorm",
    "clipvalue",
    "global_clipnorm",
    "weight_decay",
    "use_ema",
)


def _check_optimizer(optimizer: keras.optimizers.Optimizer) -> None:
    """Raises unless it can update the rows of one shard without the others."""
    has_rows = callable(getattr(optimizer, "update_rows", None))
    rule = (
        "`optimizer` must be one of rank4class_tf.optimizers, such as "
        "`RowwiseAdagrad(0.03)`."
    )
    _checks.require(has_rows, rule, repr(optimizer))
    for name in _GLOBAL_OPTIONS:
        value = getattr(optimizer, name, None)
        rule = (
            f"`optimizer` must have no `{name}`, which needs more than the rows of a "
            "shard."
        )
        _checks.require(not value, rule, f"{name}={value}")


@_keras.register
class ShardedClassTable(_registry.Configured, Classes):
    r"""A table of classes that is split over the replicas of a strategy.

    Build it, or the model that has it, in `strategy.scope()`, under `tf.distribute`'s
    `MirroredStrategy` or `MultiWorkerMirroredStrategy`; without a strategy there is one
    shard. With W replicas, each holds about K / W rows and the optimizer's state for
    them. A step gives the same result as on one device, and what replicas exchange does
    not grow with K.

    The table has its own optimizer, which updates the rows during the backward pass. So
    take the gradient only once per step. Its learning rate may follow a schedule, not a
    callback.

    Outside of a step, `rows`, `top_k` and all functions that save a model read all
    shards. With several machines, all workers must then make the same call at the same
    time.

    Args:
        num_classes: number of classes K, at least the number of replicas.
        width: numbers in a row, >= 1; None for the width of the encodings that are
            scored.
        optimizer: one of `rank4class_tf.optimizers`, for the rows, without clipping,
            weight decay or an average of the weights, which need all shards. None if
            rows are not trained.
        seed: an int, for the initial rows, whatever the number of shards; None draws
            one from NumPy's global generator.

    Example:
        >>> from rank4class_tf import models, optimizers
        >>> with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        ...     classes = ShardedClassTable(
        ...         5000, 8, optimizers.RowwiseAdagrad(0.03), seed=0
        ...     )
        ...     encoder = keras.Sequential(
        ...         [keras.layers.Input((4,)), keras.layers.Dense(8)]
        ...     )
        ...     model = models.ExtremeClassifier(encoder, classes, embedding_dim=8)
        >>> model.classes.rows([3, 5]).shape
        TensorShape([2, 8])
    """

    def __init__(
        self,
        num_classes: int,
        width: int | None = None,
        optimizer: keras.optimizers.Optimizer | dict[str, Any] | None = None,
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
            _check_optimizer(optimizer)
            self.optimizer = keras.utils.serialize_keras_object(optimizer)
        self.seed = start_seed(seed)

    @classmethod
    def from_rows(
        cls,
        rows: Array,
        optimizer: keras.optimizers.Optimizer | None = None,
        **kwargs: Any,
    ) -> "ShardedClassTable":
        """Returns a table with rows `[n, width]`; the rest as in the constructor."""
        rows = np.asarray(rows)
        table = cls(rows.shape[0], rows.shape[1], optimizer, **kwargs)
        table.build((None, rows.shape[1]))
        table.assign(rows)
        return table

    def build(self, input_shape: tf.TensorShape | tuple) -> None:
        self.width = self.width or int(input_shape[-1])
        self.shards = Shards(self.num_classes, self.width, self.seed, self.optimizer)
        if self.optimizer is not None:
            # Rows are no weights of Keras's, since all replicas would hold those. A
            # gradient tape reaches the rows through this number, whose value nothing
            # uses.
            self.anchor = self.add_weight(name="anchor", shape=(), initializer="zeros")
        self.built = True

    def assign(self, rows: Array) -> None:
        """Sets the rows of all classes; each process takes the rows of its shards."""
        self.shards.assign({"rows": np.asarray(rows)})

    def rows(self, ids: Array | None = None) -> Tensor:
        """As in `Classes`; NaN for an id that is out of range."""
        if ids is None:
            return self._joint_rows([], [tf.range(self.num_classes)])[0]
        class_ids = tf.convert_to_tensor(ids)
        (rows,) = self._joint_rows([class_ids], [])
        is_class = (class_ids >= 0) & (class_ids < self.num_classes)
        return tf.where(is_class[..., tf.newaxis], rows, float("nan"))

    def rows_of_step(self, *ids: Tensor) -> list[Tensor]:
        # One exchange for all: first ids `[batch, m]`, which differ between replicas,
        # then ids `[m]`, which do not.
        local = [i for i, x in enumerate(ids) if x.shape.rank > 1]
        shared = [i for i, x in enumerate(ids) if x.shape.rank == 1]
        rows = self._joint_rows([ids[i] for i in local], [ids[i] for i in shared])
        rows_by_place = dict(zip([*local, *shared], rows, strict=True))
        return [rows_by_place[i] for i in range(len(ids))]

    def _joint_rows(self, local_ids: Tensors, shared_ids: Tensors) -> list[Tensor]:
        """Rows of ids that may differ between replicas, and of others that may not."""
        ids = [tf.cast(x, tf.int32) for x in (*local_ids, *shared_ids)]
        num_local = tf.add_n([tf.constant(0), *map(tf.size, local_ids)])

        def rows_of(flat_ids: Tensor) -> Tensor:
            if self.shards.in_replica:
                return self._exchanged_rows(flat_ids, num_local)
            return self.shards.read(flat_ids)

        return at_joined_ids(rows_of, ids)

    def _exchanged_rows(self, ids: Tensor, num_local: Tensor) -> Tensor:
        """Rows of ids `[m]`; the first `num_local` ids may differ between replicas."""
        exchange = Exchange()
        shard = self.shards.replica_shard
        local_ids = ids[:num_local]
        # Every replica asks its shard for the ids of all, and takes the sum over the
        # shards.
        joined_ids = exchange.joined(local_ids)
        asked = _AskedIds(
            first=exchange.first_row(local_ids),
            num_local=num_local,
            num_local_of_all=tf.size(joined_ids),
        )
        found = shard.lookup(tf.concat([joined_ids, ids[num_local:]], axis=0))

        # The gradient takes the optimizer's step. The model's optimizer cannot: it
        # never sees the rows, which are no weights of Keras's, and only in the backward
        # pass does a shard meet the gradients of all replicas.
        @tf.custom_gradient
        def rows_by(anchor: Tensor) -> WithGradient:
            def step_of_shard(upstream: Tensor) -> Tensor:
                total = exchange.total(asked.among_all(upstream))
                self._update(shard, self._gradient_of_shard(shard, found, total))
                return tf.zeros_like(anchor)

            return asked.own(exchange.total(found.values)), step_of_shard

        return rows_by(self._anchor_value())

    def _gradient_of_shard(
        self, shard: TableShard, found: _Found, total: Tensor
    ) -> tf.IndexedSlices:
        """What a shard takes of the gradients `[m, width]` of what it looked up."""
        rows = found.rows
        # XLA could not sum as many as a mask leaves; one shard has all rows.
        if self.shards.size > 1 or not in_xla():
            total = tf.boolean_mask(total, found.is_here)
            rows = tf.boolean_mask(rows, found.is_here)
        return tf.IndexedSlices(total, rows, shard.variable.shape)

    @property
    def _is_trained(self) -> bool:
        return self.optimizer is not None and self.trainable

    def _anchor_value(self) -> Tensor:
        """What shows tapes that rows are trained; a constant where they are not."""
        return tf.convert_to_tensor(self.anchor) if self._is_trained else tf.zeros([])

    def _update(
        self, shard: TableShard, gradient: tf.IndexedSlices | Tensor | None
    ) -> None:
        """Takes the step of a shard's optimizer, where rows are trained."""
        if self._is_trained and gradient is not None:
            shard.update(gradient)

    def tables(self) -> tuple[tf.Variable | Tensor]:
        if self.shards.in_replica:
            return (self.shards.replica_shard.variable,)
        return (self.rows(),)

    def shard(self) -> Shard | None:
        if not self.shards.in_replica:
            return None
        shard = self.shards.replica_shard
        return Shard(
            first=shard.first,
            num_classes=self.num_classes,
            exchange=Exchange(),
            anchor=self._anchor_value(),
            # Of its one table.
            update=lambda gradients: self._update(shard, gradients[0]),
        )

    def save_shards(self, folder: PathLike) -> None:
        """Writes rows and optimizer states of this process's shards to `.npy` files.

        Use it for tables larger than the memory of a machine, with an empty folder that
        all processes share. `rows-0-1000.npy` has the rows of the classes 0 to 999.
        """
        os.makedirs(folder, exist_ok=True)
        for shard in self.shards.local.values():
            for name, variable in shard.saved.items():
                path = pathlib.Path(folder, f"{name}-{shard.first}-{shard.last}.npy")
                if len(variable.shape):
                    _write_rows(path, variable)
                else:
                    with (
                        _files.replacing(path) as temporary,
                        open(temporary, "wb") as f,
                    ):
                        np.save(f, variable.numpy())

    def load_shards(self, folder: PathLike) -> None:
        """Reads what all processes' `save_shards` wrote, with any number of shards."""
        files = collections.defaultdict(list)
        for path in pathlib.Path(folder).glob("*-*-*.npy"):
            name, first, _ = path.stem.split("-")
            files[name].append((int(first), np.load(path, mmap_mode="r")))
        rule = "`folder` must have files of rows."
        _checks.require("rows" in files, rule, f"{folder}")
        values = {}
        for name, parts in files.items():
            _, array = parts[0]
            values[name] = _JoinedFiles(folder, parts) if array.ndim else array
        self.shards.assign(values)

    def save_own_variables(self, store: Any) -> None:
        for name, values in self.shards.values().items():
            store[name] = values

    def load_own_variables(self, store: Any) -> None:
        rule = "`store` must have the rows of shards."
        _checks.require("rows" in store, rule, [*store.keys()])
        self.shards.assign(store)


def _write_rows(path: PathLike, rows: tf.Variable) -> None:
    with _files.appending_rows(path, tuple(rows.shape[1:])) as append:
        for start in range(0, rows.shape[0], _ROWS_PER_BLOCK):
            append(rows[start : start + _ROWS_PER_BLOCK])
