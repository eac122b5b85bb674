"""Gathers and scatters at places `[batch, ...]`, columns of lists `[batch, n, ...]`."""

import numpy as np
import tensorflow as tf

from rank4class_tf._tf.shapes import num_rows
from rank4class_tf._types import Function, Tensor, TensorPair, WithGradient

# Numbers of places a list at which `tf.scatter_nd` takes less time than
# `unsorted_segment_sum` (64 lists of 1,000), which TFLite and ONNX cannot convert.
_WIDTHS_TO_SCATTER = range(17)


def gather(values: Tensor, places: Tensor) -> Tensor:
    """`tf.gather(values, places, batch_dims=1)`, whose gradient is a `scatter_add`."""
    # It takes half as many operations as TensorFlow's gradient, and is right for an
    # empty batch, for which that of TensorFlow 2.15 has another shape.
    return _gather(
        values, places, lambda x: scatter_add(places, x, tf.shape(values)), batch_dims=1
    )


def gather_rows(values: Tensor, rows: Tensor, num_rows: Tensor) -> Tensor:
    """`tf.gather(values, rows)` of `num_rows` rows, with a dense gradient."""
    # Both branches of a `tf.cond` need a dense one. If the gradient took the number of
    # rows from `values`, it would compute these again.
    return _gather(
        values, rows, lambda x: tf.math.unsorted_segment_sum(x, rows, num_rows)
    )


def _gather(
    values: Tensor, places: Tensor, gradient: Function, batch_dims: int = 0
) -> Tensor:
    """`tf.gather` with a gradient of its own."""

    @tf.custom_gradient
    def gathered(values: Tensor) -> WithGradient:
        return tf.gather(values, places, batch_dims=batch_dims), gradient

    return gathered(values)


def scatter_add(places: Tensor, values: Tensor, shape: Tensor) -> Tensor:
    """Zeros of the shape `[batch, n, ...]`, with each value added at its place."""
    places = tf.convert_to_tensor(places)
    if places.shape.rank != 2 or places.shape[1] in _WIDTHS_TO_SCATTER:
        return tf.scatter_nd(indices(places), values, shape)
    # For many places, segment sums take a fifth of the time.
    flat, size = flat_places(places, shape)
    sums = tf.math.unsorted_segment_sum(values, flat, size)
    return tf.reshape(sums, shape)


def flat_places(places: Tensor, shape: Tensor) -> TensorPair:
    """Places `[batch, P]` in all lists `[batch, n, ...]` end to end; and batch * n."""
    # In int64, since batch * n may not fit into int32.
    batch, n = tf.unstack(tf.cast(shape[:2], tf.int64))
    starts = n * tf.range(batch)
    return tf.cast(places, tf.int64) + starts[:, tf.newaxis], batch * n


def within(places: Tensor, size: int | Tensor) -> TensorPair:
    """Places, with 0 for those outside [0, size); and which are inside, as booleans."""
    is_inside = (places >= 0) & (places < size)
    return tf.where(is_inside, places, 0), is_inside


def indices(places: Tensor) -> Tensor:
    """Indices `[batch, ..., 2]` of places `[batch, ...]`, as for `tf.scatter_nd`."""
    places = tf.convert_to_tensor(places)
    size = num_rows(places)
    if isinstance(size, int):
        rows = np.arange(size, dtype=np.int32)  # It takes no operations.
    else:
        rows = tf.range(size)
    rows = rows[:, *[tf.newaxis] * (places.shape.rank - 1)]
    if places.shape[1:].num_elements() != 1:
        rows = tf.broadcast_to(rows, tf.shape(places))
    return tf.stack([rows, places], axis=-1)


def table_rows(table: tf.Variable | Tensor, ids: Tensor) -> Tensor:
    """`tf.gather(table, ids)`, with a gradient of one part per row; see `sums_once`."""
    ids = tf.convert_to_tensor(ids)
    flat_ids = tf.reshape(ids, [-1])

    @tf.custom_gradient
    def with_summed_gradient(rows: Tensor) -> WithGradient:
        def gradient(upstream: Tensor) -> Tensor:
            flat_shape = tf.concat([[-1], tf.shape(rows)[ids.shape.rank :]], axis=0)
            sums = sums_once(flat_ids, tf.reshape(upstream, flat_shape))
            return tf.reshape(sums, tf.shape(rows))

        return rows, gradient

    return with_summed_gradient(tf.gather(table, ids))


def sums_once(ids: Tensor, gradients: Tensor) -> Tensor:
    """Sums gradients `[m, ...]` of equal ids `[m]` where an id occurs first; else 0."""
    # Keras squares and clips the parts of `IndexedSlices` before it adds up those of a
    # row. Not one part for each distinct row: XLA and TPUs need a size that is known
    # before running.
    size = tf.size(ids)
    group = group_numbers(ids[tf.newaxis])[0]
    first_of_group = tf.math.unsorted_segment_min(tf.range(size), group, size)
    first = tf.gather(first_of_group, group)

    # In half precision, a large sum would lose what is added to it.
    dtype = gradients.dtype
    terms = tf.cast(gradients, tf.float32 if dtype.size < 4 else dtype)
    return tf.cast(tf.math.unsorted_segment_sum(terms, first, size), dtype)


def first_occurrences(ids: Tensor) -> Tensor:
    """Whether each integer of `[batch, n]` is the first of its value in its row."""
    order, is_new = _order_and_new_ids(ids)
    return scatter_add(order, tf.cast(is_new, tf.int32), tf.shape(ids)) > 0


def group_numbers(ids: Tensor) -> Tensor:
    """Numbers each row's distinct integers, `[batch, n]`, upward from 0, int32."""
    order, is_new = _order_and_new_ids(ids)
    numbers = tf.cumsum(tf.cast(is_new, tf.int32), axis=-1) - 1
    return scatter_add(order, numbers, tf.shape(ids))


def _order_and_new_ids(ids: Tensor) -> TensorPair:
    """The columns in a stable order of ids; and whether a new id starts at each."""
    # `tf.unique` has no static shape.
    order = tf.argsort(ids, axis=-1, stable=True)
    ordered = tf.gather(ids, order, batch_dims=1)
    first = tf.ones_like(ordered[:, :1], tf.bool)
    return order, tf.concat([first, ordered[:, 1:] != ordered[:, :-1]], axis=1)
