"""ShardedClassTable."""

from typing import Any

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks, _keras
from rank4class_tf._keras import keras
from rank4class_tf._lists.blocked import Shard
from rank4class_tf._random import start_seed
from rank4class_tf._tf.exchange import Exchange
from rank4class_tf.layers.classes._shards import OneShard, Shards
from rank4class_tf.layers.classes.class_table import Classes

# With these options a step needs the gradients of all shards, or writes to rows without one.
_NOT_LOCAL = ("clipnorm", "clipvalue", "global_clipnorm", "weight_decay", "use_ema")


@_keras.register
class ShardedClassTable(Classes):
    r"""A table of classes that is split over the replicas of a strategy.

    Build it, or the model that has it, in `strategy.scope()`, under `tf.distribute`'s
    `MirroredStrategy` or `MultiWorkerMirroredStrategy`. With W replicas, each holds about K / W
    rows and the optimizer's state for them. A step gives the same result as on one device. Replicas
    exchange the rows of sampled classes and their gradients or, if a loss uses all classes,
    encodings and sums over the classes. The amount of data exchanged does not grow with K. Without
    a strategy there is one shard.

    The table has its own optimizer, which updates the rows during the backward pass. So take the
    gradient only once per step. Callbacks that change the learning rate of the model's optimizer
    don't change its learning rate; a schedule does.

    Outside of a step, `rows`, `top_k` and all functions that save a model read all shards. With
    several machines, all workers must then make the same call at the same time.

    Args:
        num_classes: number of classes K, at least the number of replicas.
        width: numbers in a row, >= 1; None for the width of the encodings that are scored.
        optimizer: one of `rank4class_tf.optimizers`, for the rows; None if they are not trained.
        seed: an int, for the initial rows, which do not depend on the number of shards. None draws
            one from NumPy's global generator.
        **kwargs: arguments of Keras, such as `name`.

    Raises:
        ValueError: if a number is out of range, if the optimizer is not one of
            `rank4class_tf.optimizers`, or if it uses an option that needs the gradients of all
            shards: norm clipping, weight decay or an average of the weights.

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
    ) -> None:
        super().__init__(**kwargs)
        self._num_classes = _checks.positive_int("num_classes", num_classes)
        self._width = width if width is None else _checks.positive_int("width", width)
        if isinstance(optimizer, dict):
            optimizer = _keras.deserialized(optimizer)
        self._optimizer_config = None if optimizer is None else _config_of(optimizer)
        self.seed = start_seed(seed)

    @property
    def num_classes(self) -> int:
        """The number of classes."""
        return self._num_classes

    @property
    def width(self) -> int:
        """The width of an encoding, once built."""
        return self._width  # type: ignore[return-value]

    @classmethod
    def from_rows(cls, rows: Any, optimizer: Any = None, **kwargs: Any) -> "ShardedClassTable":
        """Returns a table with these rows.

        Args:
            rows: `[n, width]`.
            optimizer: as in the constructor.
            **kwargs: arguments of the constructor.
        """
        rows = np.asarray(rows)
        num_classes, width = rows.shape
        table = cls(num_classes, width, optimizer, **kwargs)
        table.build((None, width))
        table.assign(rows)
        return table

    def build(self, input_shape: Any) -> None:
        """Creates the shards of this process, for encodings `[batch, d]`."""
        self._width = self._width or int(input_shape[-1])
        self.shards = Shards(self.num_classes, self.width, self.seed, self._optimizer_config)
        if self._optimizer_config is not None:
            # Rows are no weights of Keras's, which all replicas would hold. This number, which
            # nothing reads, ties them to the tapes.
            self.anchor = self.add_weight(name="anchor", shape=(), initializer="zeros")
        self.built = True

    def assign(self, rows: Any) -> None:
        """Sets the rows of all classes; each process takes the rows of its shards."""
        self.shards.assign({"rows": rows})

    def rows(self, ids: Any = None) -> tf.Tensor:
        """Returns the rows of some classes or of all; NaN for an id that is out of range."""
        if ids is None:
            return self._rows_of([], [tf.range(self.num_classes)])[0]
        ids = tf.convert_to_tensor(ids)
        (rows,) = self._rows_of([ids], [])
        there = (ids >= 0) & (ids < self.num_classes)
        return tf.where(there[..., tf.newaxis], rows, float("nan"))

    def rows_of_step(self, *ids: tf.Tensor) -> list[tf.Tensor]:
        """Returns rows of several ids that a step scores, in one exchange; see `Classes`."""
        own = [x for x in ids if x.shape.rank > 1]
        shared = [x for x in ids if x.shape.rank == 1]
        rows = iter(self._rows_of(own, shared))
        of_own = [next(rows) for _ in own]
        return [next(rows) if x.shape.rank == 1 else of_own.pop(0) for x in ids]

    def _rows_of(self, own, shared):
        """Rows of ids that may differ between replicas, and of others that may not."""
        ids = [tf.cast(x, tf.int32) for x in (*own, *shared)]
        sizes = [tf.size(x) for x in ids]
        flat = tf.concat([tf.reshape(x, [-1]) for x in ids], axis=0)
        found = tf.split(self._found(flat, tf.add_n([tf.constant(0), *sizes[: len(own)]])), sizes)
        shapes = [tf.concat([tf.shape(x), [self.width]], axis=0) for x in ids]
        return [
            tf.ensure_shape(tf.reshape(rows, shape), [*x.shape, self.width])
            for rows, shape, x in zip(found, shapes, ids, strict=True)
        ]

    def _found(self, ids, num_own):
        """Rows of ids `[m]`, of which the first may differ between replicas."""
        shards = self.shards
        if not shards.are_exchanged:
            return shards.read(ids)
        exchange, shard = Exchange(), shards.own
        own = exchange.joined(ids[:num_own])
        first = exchange.first_row(num_own)
        every = tf.concat([own, ids[num_own:]], axis=0)

        def of_this_replica(x):
            return tf.concat([x[first : first + num_own], x[tf.size(own) :]], axis=0)

        @tf.custom_gradient
        def found(anchor):
            rows, places, here = shard.found(every)

            def gradient(upstream):
                after = tf.size(own) - first - num_own
                of_own = tf.pad(upstream[:num_own], [[first, after], [0, 0]])
                upstream = exchange.total(tf.concat([of_own, upstream[num_own:]], axis=0))
                chosen = [tf.boolean_mask(x, here) for x in (upstream, places)]
                self._update(shard, tf.IndexedSlices(*chosen, shard.variable.shape))
                return tf.zeros_like(anchor)

            return of_this_replica(exchange.total(rows)), gradient

        return found(self._tie())

    @property
    def _is_trained(self):
        return self._optimizer_config is not None and self.trainable

    def _tie(self):
        return tf.convert_to_tensor(self.anchor) if self._is_trained else tf.zeros([])

    def _update(self, shard: OneShard, gradient: Any) -> None:
        if self._is_trained and gradient is not None:
            shard.update(gradient)

    def tables(self) -> tuple[Any, ...]:
        """Returns the rows of this replica's shard or, outside of a step, of all classes."""
        return (self.shards.own.variable if self.shards.are_exchanged else self.rows(),)

    def shard(self) -> Shard | None:
        """Returns what a loss over all classes needs from this replica's shard, or None.

        It is None outside of a step.
        """
        if not self.shards.are_exchanged:
            return None
        own = self.shards.own
        return Shard(
            own.first,
            self.num_classes,
            Exchange(),
            self._tie(),
            lambda gradients: self._update(own, gradients[0]),
        )

    def save_shards(self, folder: Any) -> None:
        """Writes one `.npy` file per shard of this process for the rows and each optimizer state.

        Use it for tables larger than the memory of a machine. `rows-0-1000.npy` has the rows of
        the classes 0 to 999.

        Args:
            folder: an empty folder shared by all processes. Each file appears under its name only
                once it is complete.
        """
        self.shards.save(folder)

    def load_shards(self, folder: Any) -> None:
        """Reads what `save_shards` of all processes wrote, with any number of shards.

        Args:
            folder: the folder with all files.

        Raises:
            ValueError: if files are missing, or come from a different number of classes.
        """
        self.shards.load(folder)

    def save_own_variables(self, store: Any) -> None:
        """Writes all rows and the optimizer's state, as a table on one device would."""
        for name, values in self.shards.values().items():
            store[name] = values

    def load_own_variables(self, store: Any) -> None:
        """Reads what a table with any number of shards has written."""
        self.shards.assign(store)

    def get_config(self) -> dict:
        """Returns the constructor arguments."""
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "width": self.width,
            "optimizer": self._optimizer_config,
            "seed": self.seed,
        }


def _config_of(optimizer):
    """The configuration of an optimizer that updates the rows of a shard by itself."""
    if not callable(getattr(optimizer, "update_rows", None)):
        raise ValueError(
            "`optimizer` must be one of rank4class_tf.optimizers, such as `RowwiseAdagrad(0.03)`. "
            f"Received: {optimizer!r}."
        )
    for name in _NOT_LOCAL:
        if getattr(optimizer, name, None):
            raise ValueError(
                f"`optimizer` must have no `{name}`, which needs more than the rows of a shard. "
                f"Received: {name}={getattr(optimizer, name)}."
            )
    return keras.utils.serialize_keras_object(optimizer)
