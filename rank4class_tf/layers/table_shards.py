"""The shards of a table of classes: their rows, their optimizers, and who asks them.

Rows never become weights of Keras, which would put all of them on each replica.
`shards.py` makes a layer of them, and `saved_shards.py` reads and writes their files.

Code that asks all shards runs in one of three places:

1. In a replica, as a step does. It has one shard. All replicas run the same code, so
   they exchange their results: `OwnShard`.
2. Outside of replicas, in a process that has all shards: `AllShards`.
3. Outside of replicas, in one of several processes, each with some shards. All
   processes make the same call, and `Shards` runs it in the replicas, as in 1.

Without a strategy all code runs in a replica, the only one.
"""

import concurrent.futures
import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks, _keras, ops
from rank4class_tf._tf.exchange import Exchange, best_of_shards
from rank4class_tf._tf.gather import within
from rank4class_tf._types import Size, Tensor, TensorPair, Tensors
from rank4class_tf.layers.classes import ClassTable

# Rows in a block, which has its own seed whatever the number of shards, and is written
# at once.
ROWS_PER_BLOCK = 16_384


class Found(NamedTuple):
    """What a shard has of some ids `[m]`."""

    values: Tensor  # `[m, width]`, 0 for ids of other shards.
    rows: Tensor  # `[m]`, the places in this shard, 0 for ids of other shards.
    is_here: Tensor  # `[m]` booleans.


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
        first_start = self.first - self.first % ROWS_PER_BLOCK
        for start in range(first_start, self.last, ROWS_PER_BLOCK):
            block = start // ROWS_PER_BLOCK
            draws = ops.uniform([ROWS_PER_BLOCK, width], ops.fold_in([seed, 1], block))
            self.set("rows", start, start + ROWS_PER_BLOCK, limit * (2 * draws - 1))

    def _add_optimizer(self, config: dict[str, Any]) -> None:
        """Adds the optimizer. Its slots have an entry for each row, as files have."""
        self._optimizer = _keras.deserialized(config)
        self._optimizer.build([self.table.embeddings])
        slots = [x for x in self._optimizer.variables if len(x.shape)]
        for i, slot in enumerate(slots):
            self.saved[f"slot_{i}"] = _keras.variable(slot)
        self.saved["iterations"] = _keras.variable(self._optimizer.iterations)

    def lookup(self, ids: Tensor, name: str = "rows") -> Found:
        """What this shard has of ids `[m]`."""
        rows, is_here = within(ids - self.first, self.last - self.first)
        values = tf.gather(self.saved[name], rows)
        values = tf.where(is_here[:, tf.newaxis], values, 0.0)
        return Found(values, rows, is_here)

    def set(
        self, name: str, start: int, stop: int, values: Tensor | np.ndarray
    ) -> None:
        """Sets those rows of the ids in [start, stop) that this shard has."""
        first = max(start, self.first)
        last = min(stop, self.last)
        rows = slice(first - self.first, last - self.first)
        self.saved[name][rows].assign(values[first - start : last - start])

    def update(self, gradient: tf.IndexedSlices | Tensor) -> None:
        """Takes a step of the shard's own optimizer."""
        self._optimizer.update_step(
            gradient, self.variable, _keras.current_rate(self._optimizer)
        )
        self._optimizer.iterations.assign_add(1)


class OwnShard(NamedTuple):
    """Asks the shard of the replica that runs this code, and exchanges its answer."""

    shard: TableShard
    exchange: Exchange

    def search(self, function: Callable, k: Size) -> TensorPair:
        """The k highest values and their ids, of a function of shards."""
        values, ids = function(self.shard)
        return self.exchange.best(values, ids, k)

    def total(self, function: Callable) -> Tensors:
        """The sums of a function's results for each shard."""
        return [self.exchange.total(x) for x in function(self.shard)]

    def on_joined_batch(self, function: Callable, *batch: Tensor | None) -> Any:
        """Results for this replica's batch, of a function of all replicas' batches."""
        # Each replica has some examples and some classes: all examples meet all shards.
        joined = [
            None if x is None else self.exchange.joined_lists(x, padding=-1)
            for x in batch
        ]
        results = function(self, *joined)

        own = self.exchange.own_rows(batch[0])
        return tf.nest.map_structure(lambda x: x[own], results)


class AllShards(NamedTuple):
    """Asks all shards, which this process has."""

    shards: Iterable[TableShard]

    def search(self, function: Callable, k: Size) -> TensorPair:
        """As `OwnShard.search`."""
        return best_of_shards([function(shard) for shard in self.shards], k)

    def total(self, function: Callable) -> Tensors:
        """As `OwnShard.total`."""
        results = [function(shard) for shard in self.shards]
        return [tf.add_n(x) for x in zip(*results, strict=True)]


class Shards:
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

        # A strategy would put each variable on all replicas, and `tf.distribute` has no
        # call that leaves its scope. A new thread is in no scope.
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            self.local = thread.submit(build).result()

    @property
    def own(self) -> OwnShard | None:
        """What asks the shard of this replica; None outside of replicas."""
        if tf.distribute.get_replica_context() is None:
            return None
        is_same = tf.distribute.get_strategy() is self._strategy
        rule = (
            "A `ShardedClassTable` must be built in the scope of the strategy that "
            "uses it."
        )
        received = f"a table of {self.size} shards, built in another"
        _checks.require(is_same or not tf.distribute.has_strategy(), rule, received)
        if not is_same:
            return None
        exchange = Exchange()
        return OwnShard(self.local[exchange.rank], exchange)

    @property
    def _all(self) -> AllShards | None:
        """All shards; None if another process has some of them."""
        # In a graph that never runs, those of this process do for all.
        if len(self.local) == self.size or _keras.builds_symbolically():
            return AllShards(self.local.values())
        return None

    def on_joined_batch(self, function: Callable, *batch: Tensor | None) -> Any:
        """Results for this batch of a function of shards and all replicas' batches.

        The function gets an `OwnShard` or `AllShards`, and the batch of all replicas.
        """
        own = self.own
        if own is not None:
            return own.on_joined_batch(function, *batch)
        if self._all is not None:
            return function(self._all, *batch)

        return self._in_replicas(
            lambda own, *batch: own.on_joined_batch(function, *batch), *batch
        )

    def read(self, ids: Tensor, name: str = "rows") -> Tensor:
        """Rows of ids `[m]`, for code outside of replicas."""

        def rows(shards: OwnShard | AllShards, ids: Tensor) -> Tensor:
            return shards.total(lambda shard: [shard.lookup(ids, name).values])[0]

        if self._all is not None:
            return rows(self._all, ids)
        return self._in_replicas(rows, ids)

    def _in_replicas(self, function: Callable, *args: Tensor | None) -> Any:
        """Calls a function of each replica's `OwnShard`; all processes must do so."""
        rule = "Outside a training step, a graph needs all shards in one process."
        _checks.require(
            tf.executing_eagerly(), rule, f"{len(self.local)} of {self.size} shards"
        )
        in_replica = tf.function(lambda *args: function(self.own, *args))
        results = self._strategy.run(in_replica, args=args)
        local_results = self._strategy.experimental_local_results
        return tf.nest.map_structure(lambda x: local_results(x)[0], results)
