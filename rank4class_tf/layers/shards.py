"""The layer of classes whose rows are divided among the replicas of a strategy.

Searches and losses over all classes run on each shard (`table_shards.py`), and join
their results by `_tf/exchange.py`. `saved_shards.py` has the files.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _keras, _registry
from rank4class_tf._lists.classes import Shard
from rank4class_tf._random import start_seed
from rank4class_tf._tf.raising import in_xla
from rank4class_tf._types import Array, PathLike, Size, Tensor, Tensors, WithGradient
from rank4class_tf.layers.classes import Classes, at_joined_ids
from rank4class_tf.layers.saved_shards import SavedShards
from rank4class_tf.layers.table_shards import Found, OwnShard, TableShard

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
        self.shards = SavedShards(
            self.num_classes, self.width, self.seed, self.optimizer
        )
        if self.optimizer is not None:
            # A tape reaches the rows through this number, whose value nothing uses.
            self.anchor = self.add_weight(name="anchor", shape=(), initializer="zeros")
        self.built = True

    def assign(self, rows: Array) -> None:
        """Sets the rows of all classes; each process takes the rows of its shards."""
        # Rows in a file stay there: they are read a part at a time.
        if isinstance(rows, Sequence | float):
            rows = np.asarray(rows)
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
        # One exchange for all: first ids `[batch, m]`, which differ between replicas,
        # then ids `[m]`, which do not.
        local = [i for i, x in enumerate(ids) if x.shape.rank > 1]
        shared = [i for i, x in enumerate(ids) if x.shape.rank == 1]
        rows = self._joint_rows([ids[i] for i in local], [ids[i] for i in shared])
        rows_of = dict(zip([*local, *shared], rows, strict=True))
        return [rows_of[i] for i in range(len(ids))]

    def _joint_rows(self, local_ids: Tensors, shared_ids: Tensors) -> list[Tensor]:
        """Rows of ids that may differ between replicas, and of others that may not."""
        ids = [tf.cast(x, tf.int32) for x in (*local_ids, *shared_ids)]
        num_local = sum(map(tf.size, local_ids))
        own = self.shards.own

        def rows_of(flat_ids: Tensor) -> Tensor:
            if own is None:
                return self.shards.read(flat_ids)
            return self._exchanged_rows(own, flat_ids, num_local)

        return at_joined_ids(rows_of, ids)

    def _exchanged_rows(self, own: OwnShard, ids: Tensor, num_local: Size) -> Tensor:
        """Rows of ids `[m]`; the first `num_local` ids may differ between replicas."""
        # Every replica asks its shard for the ids of all, and takes the sum over the
        # shards.
        shard, exchange = own.shard, own.exchange
        local_ids, shared_ids = ids[:num_local], ids[num_local:]
        joined_ids = exchange.joined(local_ids)
        found = shard.lookup(tf.concat([joined_ids, shared_ids], axis=0))

        @tf.custom_gradient
        def rows_of_all(anchor: Tensor) -> WithGradient:
            def gradient(upstream: Tensor) -> Tensor:
                total = exchange.total(upstream)
                self._take_step(shard, self._gradient_of_shard(shard, found, total))
                return tf.zeros_like(anchor)

            return exchange.total(found.values), gradient

        rows = rows_of_all(self._watched())
        joined_rows, shared_rows = tf.split(
            rows, [tf.size(joined_ids), tf.size(shared_ids)]
        )
        own_rows = joined_rows[exchange.own_rows(local_ids)]
        return tf.concat([own_rows, shared_rows], axis=0)

    def _gradient_of_shard(
        self, shard: TableShard, found: Found, total: Tensor
    ) -> tf.IndexedSlices:
        """What a shard takes of the gradients `[m, width]` of what it looked up."""
        rows = found.rows
        # XLA could not sum as many as a mask leaves; one shard has all rows.
        if self.shards.size > 1 or not in_xla():
            total = tf.boolean_mask(total, found.is_here)
            rows = tf.boolean_mask(rows, found.is_here)
        return tf.IndexedSlices(total, rows, shard.variable.shape)

    def tables(self) -> tuple[tf.Variable | Tensor]:
        own = self.shards.own
        return (self.rows() if own is None else own.shard.variable,)

    def shard(self) -> Shard | None:
        own = self.shards.own
        if own is None:
            return None
        return Shard(
            first=own.shard.first,
            num_classes=self.num_classes,
            exchange=own.exchange,
            anchor=self._watched(),
            # Of its one table.
            update=lambda gradients: self._take_step(own.shard, gradients[0]),
        )

    # How rows are trained: the gradient of what reads them takes the optimizer's step.
    # The model's optimizer cannot take it, since it never sees the rows, which are no
    # weights of Keras's. Only in the backward pass does a shard meet the gradients of
    # all replicas. So what reads rows in a step takes `_watched()` as its input, for
    # which a tape asks it for a gradient, and that gradient calls `_take_step`.

    @property
    def _is_trained(self) -> bool:
        return self.optimizer is not None and self.trainable

    def _watched(self) -> Tensor:
        """A 0 that tapes watch if rows are trained."""
        return tf.convert_to_tensor(self.anchor) if self._is_trained else tf.zeros([])

    def _take_step(
        self, shard: TableShard, gradient: tf.IndexedSlices | Tensor | None
    ) -> None:
        """Takes the step of a shard's optimizer if rows are trained."""
        if self._is_trained and gradient is not None:
            shard.update(gradient)

    def save_shards(self, folder: PathLike) -> None:
        """Writes rows and optimizer states of this process's shards to `.npy` files.

        Use it for tables larger than the memory of a machine, with an empty folder that
        all processes share. `rows-0-1000.npy` has the rows of the classes 0 to 999.
        """
        self.shards.write(folder)

    def load_shards(self, folder: PathLike) -> None:
        """Reads what all processes' `save_shards` wrote, with any number of shards."""
        self.shards.read_files(folder)

    def save_own_variables(self, store: Any) -> None:
        for name, values in self.shards.values().items():
            store[name] = values

    def load_own_variables(self, store: Any) -> None:
        rule = "`store` must have the rows of shards."
        _checks.require("rows" in store, rule, [*store.keys()])
        self.shards.assign(store)
