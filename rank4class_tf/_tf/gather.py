"""Items of each list by their places, columns `[batch, ...]` of lists `[batch, n, ...]`."""

import tensorflow as tf

from rank4class_tf._types import Tensor, TensorPair, WithGradient

# Widths at which scattering costs less than summing segments (64 x 1,000), which TFLite and ONNX
# cannot convert.
_FEW = range(17)


@tf.custom_gradient
def gather(values: Tensor, places: Tensor) -> WithGradient:
    """`tf.gather(values, places, batch_dims=1)`, whose gradient is scattered."""
    # It takes half as many operations as TensorFlow's gradient, and is right for an empty batch,
    # for which TensorFlow 2.15 returns another shape.

    def gradient(upstream: Tensor) -> tuple[Tensor, None]:
        return scatter_add(places, upstream, tf.shape(values)), None

    return tf.gather(values, places, batch_dims=1), gradient


def gather_rows(values: Tensor, places: Tensor, number: Tensor) -> Tensor:
    """`tf.gather(values, places)` of `number` values, whose gradient is dense."""
    # Both branches of a `cond` need one. A gradient that asks for the number computes values again.

    @tf.custom_gradient
    def rows(values: Tensor) -> WithGradient:
        def gradient(upstream: Tensor) -> Tensor:
            return tf.math.unsorted_segment_sum(upstream, places, number)

        return tf.gather(values, places), gradient

    return rows(values)


def scatter_add(places: Tensor, values: Tensor, shape: Tensor) -> Tensor:
    """Zeros of a shape `[batch, n, ...]`, a tensor, with each value added at its place."""
    places = tf.convert_to_tensor(places)
    if places.shape.rank != 2 or places.shape[1] in _FEW:
        return tf.scatter_nd(indices(places), values, shape)
    # For many places this takes a fifth of the time.
    flat, size = flat_places(places, shape)
    return tf.reshape(tf.math.unsorted_segment_sum(values, flat, size), shape)


def flat_places(places: Tensor, shape: Tensor) -> TensorPair:
    """Places `[batch, P]` among those of all lists `[batch, n, ...]`, and their number."""
    # In 64 bits, since the numbers are of all lists.
    batch, n = tf.unstack(tf.cast(shape[:2], tf.int64))
    return tf.cast(places, tf.int64) + n * tf.range(batch)[:, tf.newaxis], batch * n


def within(places: Tensor, size: int | Tensor) -> TensorPair:
    """Places in [0, size), 0 for any other; and which are, as booleans."""
    is_inside = (places >= 0) & (places < size)
    return tf.where(is_inside, places, 0), is_inside


def indices(places: Tensor) -> Tensor:
    """What `tf.scatter_nd` and its kin take for the places `[batch, ...]` of each list."""
    places = tf.convert_to_tensor(places)
    shape = tf.shape(places)
    rows = tf.range(tf.unstack(shape)[0])
    rows = tf.reshape(rows, [-1] + [1] * (places.shape.rank - 1))
    return tf.stack([tf.broadcast_to(rows, shape), places], axis=-1)


def inverse(permutations: Tensor) -> Tensor:
    """The inverse of each row of `[batch, n]`; under XLA half as dear as to sort it."""
    columns = tf.broadcast_to(tf.range(tf.shape(permutations)[1]), tf.shape(permutations))
    return scatter_add(permutations, columns, tf.shape(permutations))


def firsts(ids: Tensor) -> Tensor:
    """Which of the integers `[batch, n]` are the first of their kind in their row, booleans."""
    order, starts = _sorted(ids)
    return scatter_add(order, tf.cast(starts, tf.int32), tf.shape(ids)) > 0


def kinds(ids: Tensor) -> Tensor:
    """Numbers the different ones of each row `[batch, n]`, in rising order from 0 on, int32."""
    order, starts = _sorted(ids)
    kind = tf.cumsum(tf.cast(starts, tf.int32), axis=-1) - 1
    return scatter_add(order, kind, tf.shape(ids))


def _sorted(ids: Tensor) -> TensorPair:
    """The columns in rising order of their ids, equals in their own; and where new ids start."""
    # `tf.unique` has no static shape.
    order = tf.argsort(ids, axis=-1, stable=True)
    rising = tf.gather(ids, order, batch_dims=1)
    first = tf.ones_like(rising[:, :1], tf.bool)
    return order, tf.concat([first, rising[:, 1:] != rising[:, :-1]], axis=1)
