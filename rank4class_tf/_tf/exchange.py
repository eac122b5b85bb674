"""Replicas exchange classes in shards (`_lists`, `layers`) and in-batch negatives."""

from typing import Any

import tensorflow as tf

from rank4class_tf._types import Size, Tensor, TensorPair


class Exchange:
    """Exchanges tensors among `size` replicas that all make the same calls in order."""

    # Only `joined` has a gradient. No call may stand in a `tf.cond` or `tf.while_loop`.
    # A replica that is alone gets back what it gives: outside of strategies, and where
    # its tables are whole.

    def __init__(self, is_alone: bool = False) -> None:
        context: Any = None if is_alone else tf.distribute.get_replica_context()
        self._context = context
        self._graph = tf.compat.v1.get_default_graph()
        self.size: int = context.num_replicas_in_sync if context else 1
        self._replica: Size = context.replica_id_in_sync_group if context else 0

    @property
    def rank(self) -> int:
        """The number of this replica, a constant of its graph."""
        return int(tf.get_static_value(self._replica))

    def total(self, x: Tensor) -> Tensor:
        """The sum of a tensor over the replicas."""
        if self.size == 1:
            return x
        self._check_graph()
        # An argument of a function has no device, which the collectives of several
        # workers need.
        total = self._context.all_reduce(tf.distribute.ReduceOp.SUM, tf.identity(x))
        return tf.ensure_shape(total, x.shape)

    def joined(self, x: Tensor) -> Tensor:
        """Rows of each replica's tensor, `[m, ...]`, one after another; m may vary."""
        if self.size == 1:
            return x
        self._check_graph()
        gathered = self._context.all_gather(tf.identity(x), axis=0)
        return tf.ensure_shape(gathered, [None, *x.shape[1:]])

    def _check_graph(self) -> None:
        is_own_graph = tf.compat.v1.get_default_graph() is self._graph
        if not (tf.executing_eagerly() or is_own_graph):
            raise NotImplementedError(
                "Replicas exchange nothing within a loop or a condition of a graph. A "
                "loss whose formula sums over all classes there, such as "
                "`SparsemaxLoss`, does not work with classes in shards."
            )

    def joined_lists(self, x: Tensor, padding: float) -> Tensor:
        """As `joined`, for rows that may be longer on one replica than on another."""
        if self.size == 1:
            return x
        width = tf.shape(x)[1]
        num_missing = self.highest(width) - width
        paddings = [[0, 0], [0, num_missing]]
        return self.joined(tf.pad(x, paddings, constant_values=padding))

    def highest(self, x: Tensor) -> Tensor:
        """The elementwise maximum of a tensor over the replicas."""
        return x if self.size == 1 else tf.reduce_max(self._stacked(x), axis=0)

    def first_row(self, x: Tensor) -> Tensor:
        """Where this replica's rows of x begin in `joined(x)`, an int32 scalar."""
        return tf.reduce_sum(self._stacked(tf.shape(x)[0])[: self._replica])

    def own_rows(self, x: Tensor) -> slice:
        """Where this replica's rows of x stand in `joined(x)`."""
        if self.size == 1:
            return slice(None)
        first = self.first_row(x)
        return slice(first, first + tf.shape(x)[0])

    def best(self, values: Tensor, ids: Tensor, k: Size) -> TensorPair:
        """The k highest values over the replicas, and their ids, `[batch, k]`."""
        # Each replica gives its highest, `[batch, at most k]`, for the same lists. Of
        # equal values those of the lower replica come first.
        if self.size == 1:
            return values, ids
        values, ids = [
            tf.reshape(tf.transpose(self._stacked(x), [1, 0, 2]), [-1, self.size * k])
            for x in _padded(values, ids, k)
        ]
        return _highest(values, ids, k)

    def _stacked(self, x: Tensor) -> Tensor:
        """A tensor of each replica, `[size, ...]`; their shapes must be equal."""
        return tf.ensure_shape(self.joined(x[tf.newaxis]), [self.size, *x.shape])


def best_of_shards(shards: list[TensorPair], k: Size) -> TensorPair:
    """As `Exchange.best`, where one process has the values and ids of all shards."""
    padded = [_padded(values, ids, k) for values, ids in shards]
    values = tf.concat([values for values, _ in padded], axis=1)
    ids = tf.concat([ids for _, ids in padded], axis=1)
    return _highest(values, ids, k)


def _padded(values: Tensor, ids: Tensor, k: Size) -> TensorPair:
    """Values and ids `[batch, k]`, padded; the padding ranks below values of -inf."""
    paddings = [[0, 0], [0, k - tf.shape(values)[1]]]
    values = tf.maximum(values, values.dtype.min)
    values = tf.pad(values, paddings, constant_values=-float("inf"))
    return values, tf.pad(ids, paddings)


def _highest(values: Tensor, ids: Tensor, k: Size) -> TensorPair:
    values, positions = tf.math.top_k(values, k)
    minus_infinity = tf.constant(-float("inf"), values.dtype)
    values = tf.where(values <= values.dtype.min, minus_infinity, values)
    return values, tf.gather(ids, positions, batch_dims=1)
