"""Batches of sparse features."""

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf


def batches(
    points: Callable,
    num_features: int,
    batch_size: int,
    num_points: int | None = None,
    one_label: bool = False,
) -> tf.data.Dataset:
    """A `tf.data.Dataset` of the points that `points()` yields, which is called for each epoch.

    A point is `(labels, feature_ids, feature_values)`. A batch is a float32 `tf.SparseTensor`
    `[batch, num_features]` and class ids, int64: `[batch, P]` padded with -1 or, with `one_label`,
    `[batch]`. The dataset knows its length if `num_points` is given.
    """

    def arrays():
        rest = iter(points())
        while batch := list(itertools.islice(rest, batch_size)):
            yield _arrays(batch, num_features, one_label)

    dataset = tf.data.Dataset.from_generator(
        arrays,
        output_signature=(
            tf.SparseTensorSpec([None, num_features], tf.float32),
            tf.TensorSpec([None] if one_label else [None, None], tf.int64),
        ),
    )
    if num_points is not None:
        length = -(-num_points // batch_size)
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(length))
    return dataset.prefetch(tf.data.AUTOTUNE)


def batches_in_memory(
    points: Sequence, num_features: int, batch_size: int, seed: int | None = None
) -> tf.data.Dataset:
    """The batches of `batches` for a list of points, which TensorFlow keeps in memory.

    This is several times as fast as reading points from a function. With a seed, each epoch has a
    new order.
    """
    class_ids, ids, values = (
        tf.RaggedTensor.from_row_lengths(
            np.concatenate(column).astype(dtype), [len(row) for row in column]
        )
        for column, dtype in zip(
            zip(*points, strict=True), (np.int64, np.int64, np.float32), strict=True
        )
    )

    def batch(rows):
        columns = tf.gather(ids, rows)
        indices = tf.stack([columns.value_rowids(), columns.values], axis=1)
        shape = tf.stack([tf.size(rows, tf.int64), num_features])
        features = tf.SparseTensor(indices, tf.gather(values, rows).values, shape)
        labels = tf.gather(class_ids, rows).to_tensor(-1)
        return features, labels

    dataset = tf.data.Dataset.range(len(points))
    if seed is not None:
        dataset = dataset.shuffle(len(points), seed=seed)
    return dataset.batch(batch_size).map(batch).prefetch(tf.data.AUTOTUNE)


def _arrays(batch, num_features, one_label):
    """A batch as a sparse tensor and padded labels."""
    rows, columns, values = [], [], []
    width = max(1, max(len(labels) for labels, _, _ in batch))
    class_ids = np.full([len(batch), width], -1, np.int64)
    for row, (labels, ids, of_ids) in enumerate(batch):
        class_ids[row, : len(labels)] = labels
        order = np.argsort(ids, kind="stable")  # A sparse tensor needs its columns in order.
        rows += [row] * len(ids)
        columns += np.asarray(ids, np.int64)[order].tolist()
        values += np.asarray(of_ids, np.float32)[order].tolist()
    indices = np.array([rows, columns], np.int64).T.reshape(-1, 2)
    features = tf.SparseTensor(indices, np.array(values, np.float32), [len(batch), num_features])
    return features, class_ids[:, 0] if one_label else class_ids
