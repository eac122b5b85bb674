"""Retrieval over all classes, block by block, and a file of the classes for other programs."""

import os
import types

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks, _files
from rank4class_tf._lists import labels as _labels
from rank4class_tf._tf import top as _top
from rank4class_tf._tf.eager import as_graph, forget
from rank4class_tf._types import TensorLike
from rank4class_tf.layers._class_scores import ClassScores
from rank4class_tf.layers.classes import ClassTable, ShardedClassTable
from rank4class_tf.ops.sampling import blocks as _blocks

_ROWS_WRITTEN_AT_ONCE = 65_536


def top_k(
    scores_of: ClassScores, encodings: tf.Tensor, k: int, exclude: TensorLike | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Scores and ids `[batch, k]` of the best classes for encodings `[batch, d]`."""
    num_classes = scores_of.classes.num_classes
    known = tf.get_static_value(k)
    is_right = isinstance(known, int | np.integer) and 1 <= known <= num_classes
    if known is not None and not is_right:
        raise ValueError(f"`k` must be in [1, {num_classes}]. Received: k={k}.")
    return _as_graph(_top_k, scores_of, encodings, k, exclude)


def ranks(
    scores_of: ClassScores,
    encodings: tf.Tensor,
    class_ids: TensorLike,
    exclude: TensorLike | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """How many classes score higher than given ones `[batch, P]`, and how many the same."""
    return _as_graph(_ranks, scores_of, encodings, class_ids, exclude)


def export_rows(scores_of: ClassScores, path: str | os.PathLike) -> None:
    """Writes rows `[K, d]` to a NumPy file, block by block; their inner products are the scores."""
    classes = scores_of.classes
    if classes.biases(tf.constant([0])) is not None:
        raise ValueError("`classes` must have no biases, which inner products would leave out.")
    shape = (classes.num_classes, classes.width)
    starts = range(0, shape[0], _ROWS_WRITTEN_AT_ONCE)
    ids = (tf.range(i, min(i + _ROWS_WRITTEN_AT_ONCE, shape[0])) for i in starts)
    _files.write_rows(path, shape, (scores_of.scaled(classes.rows(block)) for block in ids))


def _prepared(scores_of, encodings, exclude):
    """Scaled encodings, and the ids to leave out `[batch, E]` or None."""
    encodings = scores_of.scaled(encodings)
    if exclude is not None:
        num_classes = scores_of.classes.num_classes
        exclude = _checks.rows_of_ids("exclude", exclude, strings=False)
        exclude, invalid = _labels.padded_ids(exclude, num_classes, encodings, "exclude")
        encodings += tf.where(invalid, float("nan"), 0.0)[:, tf.newaxis]
    return encodings, exclude


def _of_block(scores_of, encodings, exclude):
    def score(ids):
        scores = scores_of(encodings, ids, gradient=False)
        if exclude is None:
            return scores
        place = exclude - ids[0]
        here = (place >= 0) & (place < tf.size(ids))
        # An id that is excluded twice stays -inf; one of another block adds 0 to the first column.
        penalties = tf.where(here, tf.constant(-float("inf"), scores.dtype), 0.0)
        return _top.add_columns(scores, tf.where(here, place, 0), penalties)

    return score


def _as_graph(function, scores_of, *args):
    """`function(scores_of, *args)`, as a graph from the third eager call on.

    At a million classes it takes half the time for 256 examples, and a fifteenth for one.
    """
    classes = scores_of.classes
    if type(classes) is not ClassTable:  # Encoders are a user's code.
        return function(scores_of, *args)
    if scores_of.table is not classes.embeddings:  # `add` makes another.
        forget(scores_of)
        scores_of.table = classes.embeddings
    return as_graph(scores_of, types.MethodType(function, scores_of), *args)


def _top_k(scores_of, encodings, k, exclude):
    encodings, exclude = _prepared(scores_of, encodings, exclude)
    classes = scores_of.classes
    if isinstance(classes, ShardedClassTable):
        return classes.shards.together(_top_k_of_shards(scores_of, k), encodings, exclude)
    of_block = _of_block(scores_of, encodings, exclude)
    return _blocks.top_k_by_blocks(of_block, classes.num_classes, k)


def _top_k_of_shards(scores_of, k):
    def of_examples(encodings, exclude):
        def of_shard(shard):
            size = shard.last - shard.first
            of_block = _of_block(scores_of.of(shard.table), encodings, _from(shard, exclude))
            largest = min(k, size) if isinstance(k, int) else tf.minimum(k, size)
            values, places = _blocks.top_k_by_blocks(of_block, size, largest)
            return values, shard.first + places

        return scores_of.classes.shards.best(of_shard, k)

    return of_examples


def _ranks(scores_of, encodings, class_ids, exclude):
    classes, encodings = scores_of.classes, tf.convert_to_tensor(encodings)
    num_classes = classes.num_classes
    class_ids, _ = _labels.padded_ids(class_ids, num_classes, encodings, "class_ids")
    encodings, exclude = _prepared(scores_of, encodings, exclude)
    if isinstance(classes, ShardedClassTable):
        count = _ranks_of_shards(scores_of)
        return classes.shards.together(count, encodings, class_ids, exclude)
    scores = _blocks.scores_as_in_blocks(
        _of_block(scores_of, encodings, None), num_classes, class_ids
    )
    of_block = _of_block(scores_of, encodings, exclude)
    return _blocks.count_above_and_tied_by_blocks(of_block, num_classes, class_ids, scores)


def _ranks_of_shards(scores_of):
    shards = scores_of.classes.shards

    def of_examples(encodings, class_ids, exclude):
        def scores_here(shard):
            size, places = shard.last - shard.first, class_ids - shard.first
            here = (places >= 0) & (places < size)
            of_block = _of_block(scores_of.of(shard.table), encodings, None)
            scores = _blocks.scores_as_in_blocks(of_block, size, tf.where(here, places, -1))
            return [tf.where(here, scores, 0.0)]

        (own,) = shards.total(scores_here)

        def count(shard):
            of_block = _of_block(scores_of.of(shard.table), encodings, _from(shard, exclude))
            size, places = shard.last - shard.first, class_ids - shard.first
            return _blocks.count_others_by_blocks(of_block, size, places, own)

        above, others = shards.total(count)
        ranked = tf.cast((class_ids >= 0) & ~tf.math.is_nan(own), tf.int32)
        return above * ranked, (others + 1) * ranked

    return of_examples


def _from(shard, ids):
    """Ids as places of a shard; those of other shards are places that it does not have."""
    return None if ids is None else ids - shard.first
