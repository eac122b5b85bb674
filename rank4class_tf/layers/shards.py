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
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _files, _keras, _registry, ops
from rank4class_tf._lists.classes import Shard
from rank4class_tf._random import start_seed
from rank4class_tf._tf.exchange import Exchange, best_of
from rank4class_tf._tf.gather import within
from rank4class_tf._tf.private import Trackable
from rank4class_tf._types import (
    Array,
    PathLike,
    Tensor,
    TensorPair,
    Tensors,
    WithGradient,
)
from rank4class_tf.layers.classes import Classes, ClassTable, at_joined_ids

# Rows in a block, which has its own seed whatever the number of shards, and is written
# at once.
_BLOCK = 16_384


class TableShard:
    """Rows of classes [first, last) and their optimizer; files hold what is `saved`."""

    def __init__(self, first: int, last: int, width: int, seed: int, optimizer: Any):
        self.first, self.last = first, last
        self.table = ClassTable(
            last - first, width, initializer="zeros", dtype="float32"
        )
        self.table.build((None, width))
        self.variable = _keras.variable(self.table.embeddings)
        _keras.unwatch(self.variable)
        self.saved = {"rows": self.variable}
        limit = math.sqrt(3 / width)  # Rows have a length of about 1.
        for block in range(first // _BLOCK, -(-last // _BLOCK)):
            draws = ops.uniform([_BLOCK, width], ops.fold_in([seed, 1], block))
            self.set(
                "rows", block * _BLOCK, (block + 1) * _BLOCK, limit * (2 * draws - 1)
            )
        # Slots of the optimizer have an entry for each row, and are saved with the
        # rows.
        if optimizer is not None:
            self._optimizer = _keras.deserialized(optimizer)
            self._optimizer.build([self.table.embeddings])
            slots = [x for x in self._optimizer.variables if len(x.shape)]
            self.saved |= {f"slot_{i}": _keras.variable(x) for i, x in enumerate(slots)}
            self.saved["iterations"] = _keras.variable(self._optimizer.iterations)

    def lookup(self, ids: Tensor, name: str = "rows") -> tuple[Tensor, Tensor, Tensor]:
        """Values of ids `[m]`, 0 in other shards; rows; whether this shard has them."""
        rows, is_here = within(ids - self.first, self.last - self.first)
        values = tf.gather(self.saved[name], rows)
        return tf.where(is_here[:, tf.newaxis], values, 0.0), rows, is_here

    def set(self, name: str, start: int, stop: int, values: Any) -> None:
        """Sets those rows of the ids in [start, stop) that this shard has."""
        first, last = max(start, self.first), min(stop, self.last)
        rows = slice(first - self.first, last - self.first)
        self.saved[name][rows].assign(values[first - start : last - start])

    def update(self, gradient: Any) -> None:
        self._optimizer.update_step(
            gradient, self.variable, _keras.current_rate(self._optimizer)
        )
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
        devices, first_rank = [None], 0
        if tf.distribute.has_strategy():
            devices = self._strategy.extended.worker_devices  # Of this process.
            worker = _keras.worker_number(self._strategy) or 0
            first_rank = worker * len(devices)

        # Shards differ in size by one at most.
        def build(rank: int, device: str | None) -> TableShard:
            first, last = (num_classes * i // self.size for i in (rank, rank + 1))
            with tf.device(device):
                return TableShard(first, last, width, seed, optimizer)

        # A new thread has no strategy; a strategy would put each variable on all
        # replicas.
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            ranks = range(first_rank, first_rank + len(devices))
            self.local = dict(
                zip(ranks, thread.map(build, ranks, devices), strict=True)
            )

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

    def on_joined_batch(self, function: Callable, *batch: Any) -> Any:
        """Results for this batch of a function of all replicas' joined batches."""
        # In a step each replica has some examples and some classes: all examples meet
        # all shards.
        if self.in_replica:
            exchange, num_examples = Exchange(), tf.shape(batch[0])[0]
            first_row = exchange.first_row(batch[0])
            joined = (
                None if x is None else exchange.joined_lists(x, padding=-1)
                for x in batch
            )
            results = function(*joined)
            return tf.nest.map_structure(
                lambda x: x[first_row : first_row + num_examples], results
            )
        if self.has_all_shards:
            return function(*batch)
        return self._run(lambda *batch: self.on_joined_batch(function, *batch), *batch)

    def _run(self, function: Callable, *args: Any) -> Any:
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
            return tf.add_n(
                [shard.lookup(ids, name)[0] for shard in self.local.values()]
            )
        return self._run(
            lambda ids: Exchange().total(self.replica_shard.lookup(ids, name)[0]), ids
        )

    def best(self, function: Callable, k: Array) -> TensorPair:
        """The k best results of a function of shards: values, ids, `[batch, <= k]`."""
        if self.in_replica:
            values, ids = function(self.replica_shard)
            return Exchange().best(values, ids, k)
        return best_of([function(shard) for shard in self.local.values()], k)

    def total(self, function: Callable) -> Any:
        """The sums of a function's results for each shard, a list of tensors."""
        if self.in_replica:
            return [Exchange().total(x) for x in function(self.replica_shard)]
        return [
            tf.add_n(x) for x in zip(*map(function, self.local.values()), strict=True)
        ]

    # Files hold the values of all shards together, so that any number of shards reads
    # them.

    def values(self) -> dict[str, np.ndarray]:
        """The rows `[K, width]` and what the optimizer keeps, by name."""
        starts = range(0, self.num_classes, _BLOCK)
        blocks = [tf.range(i, min(i + _BLOCK, self.num_classes)) for i in starts]
        saved = next(iter(self.local.values())).saved
        return {
            name: np.concatenate([self.read(ids, name).numpy() for ids in blocks])
            if len(variable.shape)
            else variable.numpy()
            for name, variable in saved.items()
        }

    def assign(self, values: Mapping[str, Any]) -> None:
        """Sets this process's shards to what `values` returned, or to a part of it."""
        for shard in self.local.values():
            for name, variable in shard.saved.items():
                if name not in values:
                    continue
                value = values[name]
                if not len(variable.shape):
                    variable.assign(value)
                    continue
                shape = tf.TensorShape([self.num_classes, *variable.shape[1:]])
                rule = f"`{name}` must have the shape {shape}."
                _checks.require(
                    shape.is_compatible_with(value.shape), rule, f"{value.shape}"
                )
                for first in range(shard.first, shard.last, _BLOCK):
                    last = min(first + _BLOCK, shard.last)
                    shard.set(name, first, last, value[first:last])

    def _serialize_to_tensors(self) -> dict[str, Any]:
        # `tf.train.Checkpoint` writes these; in TensorFlow 2.15 it takes tensors only.
        return {name: tf.convert_to_tensor(x) for name, x in self.values().items()}

    def _restore_from_tensors(self, restored_tensors: Mapping[str, Any]) -> None:
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
        return np.concatenate(
            [
                x[max(rows.start - first, 0) : max(rows.stop - first, 0)]
                for first, x in self._files
            ]
        )


# With these options a step needs the gradients of all shards, or changes rows without
# one.
_GLOBAL_OPTIONS = (
    "clipnorm",
    "clipvalue",
    "global_clipnorm",
    "weight_decay",
    "use_ema",
)


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
            # It must update the rows of one shard without the others.
            has_rows = callable(getattr(optimizer, "update_rows", None))
            rule = "`optimizer` must be one of rank4class_tf.optimizers, such as"
            _checks.require(
                has_rows, f"{rule} `RowwiseAdagrad(0.03)`.", repr(optimizer)
            )
            for name in _GLOBAL_OPTIONS:
                value = getattr(optimizer, name, None)
                rule = (
                    f"`optimizer` must have no `{name}`, which needs more than the "
                    "rows of"
                )
                _checks.require(not value, f"{rule} a shard.", f"{name}={value}")
            self.optimizer = keras.utils.serialize_keras_object(optimizer)
        self.seed = start_seed(seed)

    @classmethod
    def from_rows(
        cls, rows: Array, optimizer: Any = None, **kwargs: Any
    ) -> "ShardedClassTable":
        """Returns a table with rows `[n, width]`; the rest as in the constructor."""
        rows = np.asarray(rows)
        table = cls(rows.shape[0], rows.shape[1], optimizer, **kwargs)
        table.build((None, rows.shape[1]))
        table.assign(rows)
        return table

    def build(self, input_shape: Any) -> None:
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
        # All in one exchange: ids `[batch, m]`, which differ between replicas, before
        # ids `[m]`.
        local_ids = [x for x in ids if x.shape.rank > 1]
        shared_ids = [x for x in ids if x.shape.rank == 1]
        rows = self._joint_rows(local_ids, shared_ids)
        shared_rows = rows[len(local_ids) :]
        return [shared_rows.pop(0) if x.shape.rank == 1 else rows.pop(0) for x in ids]

    def _joint_rows(self, local_ids: Tensors, shared_ids: Tensors) -> list[Tensor]:
        """Rows of ids that may differ between replicas, and of others that may not."""
        ids = [tf.cast(x, tf.int32) for x in (*local_ids, *shared_ids)]
        num_local = tf.add_n([tf.constant(0), *map(tf.size, local_ids)])

        def rows_of(flat_ids: Tensor) -> Tensor:
            if self.shards.in_replica:
                return self._exchanged_rows(flat_ids, num_local)
            return self.shards.read(flat_ids)

        return at_joined_ids(rows_of, ids)  # One exchange between shards.

    def _exchanged_rows(self, ids: Tensor, num_local: Tensor) -> Tensor:
        """Rows of ids `[m]`; the first `num_local` ids may differ between replicas."""
        # Every replica asks its shard for the ids of all, and takes the sum over the
        # shards.
        exchange, shard = Exchange(), self.shards.replica_shard
        joined = exchange.joined(ids[:num_local])
        first_row = exchange.first_row(ids[:num_local])
        all_ids = tf.concat([joined, ids[num_local:]], axis=0)

        @tf.custom_gradient
        def lookup(anchor: Tensor) -> WithGradient:
            rows, shard_rows, is_here = shard.lookup(all_ids)

            def gradient(upstream: Tensor) -> Tensor:
                # Gradients of local rows go among those of all replicas, which the
                # shard sums.
                num_after = tf.size(joined) - first_row - num_local
                local_gradient = tf.pad(
                    upstream[:num_local], [[first_row, num_after], [0, 0]]
                )
                upstream = exchange.total(
                    tf.concat([local_gradient, upstream[num_local:]], axis=0)
                )
                slices = upstream, shard_rows
                if self.shards.size > 1:  # XLA could not sum as many as a mask leaves.
                    slices = (tf.boolean_mask(x, is_here) for x in slices)
                self._update(shard, tf.IndexedSlices(*slices, shard.variable.shape))
                return tf.zeros_like(anchor)

            rows = exchange.total(rows)
            replica_rows = [
                rows[first_row : first_row + num_local],
                rows[tf.size(joined) :],
            ]
            return tf.concat(replica_rows, axis=0), gradient

        return lookup(self._anchor_value())

    @property
    def _is_trained(self) -> bool:
        return self.optimizer is not None and self.trainable

    def _anchor_value(self) -> Tensor:
        return tf.convert_to_tensor(self.anchor) if self._is_trained else tf.zeros([])

    def _update(self, shard: TableShard, gradient: Any) -> None:
        if self._is_trained and gradient is not None:
            shard.update(gradient)

    def tables(self) -> tuple[Any, ...]:
        shards = self.shards
        return (shards.replica_shard.variable if shards.in_replica else self.rows(),)

    def shard(self) -> Shard | None:
        if not self.shards.in_replica:
            return None
        shard = self.shards.replica_shard
        return Shard(
            first=shard.first,
            num_classes=self.num_classes,
            exchange=Exchange(),
            anchor=self._anchor_value(),
            update=lambda gradients: self._update(
                shard, gradients[0]
            ),  # Of its one table.
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
                if not len(variable.shape):
                    with (
                        _files.replacing(path) as temporary,
                        open(temporary, "wb") as file,
                    ):
                        np.save(file, variable.numpy())
                    continue
                with _files.appending_rows(path, tuple(variable.shape[1:])) as append:
                    for start in range(0, variable.shape[0], _BLOCK):
                        append(variable[start : start + _BLOCK])

    def load_shards(self, folder: PathLike) -> None:
        """Reads what all processes' `save_shards` wrote, with any number of shards."""
        files: dict[str, list] = collections.defaultdict(list)
        for path in pathlib.Path(folder).glob("*-*-*.npy"):
            name, first, _ = path.stem.split("-")
            files[name].append((int(first), np.load(path, mmap_mode="r")))
        values = {
            name: _JoinedFiles(folder, arrays) if arrays[0][1].ndim else arrays[0][1]
            for name, arrays in files.items()
        }
        _checks.require(
            "rows" in values, "`folder` must have files of rows.", f"{folder}"
        )
        self.shards.assign(values)

    def save_own_variables(self, store: Any) -> None:
        for name, values in self.shards.values().items():
            store[name] = values

    def load_own_variables(self, store: Any) -> None:
        _checks.require(
            "rows" in store, "`store` must have the rows of shards.", [*store.keys()]
        )
        self.shards.assign(store)
