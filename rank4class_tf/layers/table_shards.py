"""The shards of a table of classes: their rows, optimizers, and what replicas ask them.

Rows never become weights of Keras, which would put all of them on each replica.
`shards.py` makes a layer of them, and `saved_shards.py` reads and writes their files.
"""

import concurrent.futures
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks, _keras, ops
from rank4class_tf._tf.exchange import Exchange, best_of_shards
from rank4class_tf._tf.gather import within
from rank4class_tf._types import Size, Tensor, TensorPair
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
        for block in range(
            self.first // ROWS_PER_BLOCK, -(-self.last // ROWS_PER_BLOCK)
        ):
            start = block * ROWS_PER_BLOCK
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

    A strategy would put each of them on all replicas, and `tf.distribute` has no call
    that leaves its scope. A new thread is in no scope.
    """
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(function).result()


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
        joined = []
        for x in batch:
            joined.append(None if x is None else exchange.joined_lists(x, padding=-1))
        results = function(*joined)
        own = exchange.own_rows(batch[0])
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
