"""How far scores exceed each of many levels."""

import tensorflow as tf

from rank4class_tf._tf.gather import scatter_add
from rank4class_tf._types import TensorLike

# The more cells, the fewer thresholds share one, and the more memory they take.
_CELLS_PER_THRESHOLD = 4
_MAX_CELLS = 1 << 16


def excess(scores: tf.Tensor, levels: tf.Tensor, margin: TensorLike) -> tf.Tensor:
    r"""$\sum_i (z_i - l_p + \eta)_+$ for every level p, in O(n log P) time and O(n + P) memory.

    The scores are put between the sorted thresholds by binary search, and sums over the P + 1 gaps
    give all results. All terms that are added are positive, so that nothing cancels.

    Args:
        scores: `[batch, n]`; one far below all others never counts.
        levels: finite `[batch, P]`, none above the largest score by more than the margin.
        margin: > 0.

    Returns:
        `[batch, P]`; a NaN may get lost.
    """

    @tf.custom_gradient
    def sums(scores, levels):
        value, spread = _many(scores, levels, margin)

        def gradient(upstream):
            of_items, of_levels = spread(upstream)
            return of_items, -of_levels

        return value, gradient

    return sums(scores, levels)


def _many(scores, levels, margin):
    batch, n = tf.unstack(tf.shape(scores))
    width = tf.shape(levels)[1]
    # Relative to the highest level no digits are lost that matter, since what the sums enter is at
    # least as large as the distance from there to the threshold.
    highest = tf.reduce_max(levels, axis=-1, keepdims=True)
    # The minimum changes nothing, and keeps the graph from being rewritten, see `violation`.
    scores, thresholds = scores - highest, tf.minimum(levels - highest, 0) - margin
    unsorted, thresholds = thresholds, tf.sort(thresholds, axis=-1)

    # The first of equal thresholds stands for all.
    rank = _count_below(thresholds, unsorted)
    gap = _count_below(thresholds, scores)
    nearest = _take(thresholds, tf.maximum(gap - 1, 0))
    local = tf.where(gap > 0, scores - nearest, tf.zeros_like(scores))
    segment = tf.reshape(gap + tf.range(batch)[:, tf.newaxis] * (width + 1), [-1])

    def by_gap(x):
        sums = tf.math.unsorted_segment_sum(tf.reshape(x, [-1]), segment, batch * (width + 1))
        return tf.reshape(sums, [batch, width + 1])[:, 1:]

    counts = tf.cumsum(by_gap(tf.ones_like(scores)), axis=-1, reverse=True)
    steps = counts[:, 1:] * (thresholds[:, 1:] - thresholds[:, :-1])
    sums = tf.cumsum(by_gap(local) + tf.pad(steps, [[0, 0], [0, 1]]), axis=-1, reverse=True)

    def spread(coefficients):
        totals = tf.cumsum(scatter_add(rank, coefficients, tf.shape(levels)), axis=-1)
        items = _take(tf.pad(totals, [[0, 0], [1, 0]]), gap)
        return items, coefficients * _take(counts, rank)

    return _take(sums, rank), spread


def _take(rows, columns):
    """`rows[b, columns[b, i]]`; flat, since gathering by batch takes twice as long."""
    batch, width = tf.unstack(tf.shape(rows))
    return tf.gather(tf.reshape(rows, [-1]), columns + tf.range(batch)[:, tf.newaxis] * width)


def _count_below(thresholds, scores):
    """How many of the sorted `thresholds` `[batch, P]` are below each score, `[batch, n]`.

    The range of the thresholds is cut into equal cells. What is in lower cells than a score is
    below it, and what is in its own cell is told by binary search. XLA's searchsorted compares all
    with all.
    """
    batch, width = tf.unstack(tf.shape(thresholds))
    num_cells = tf.minimum(width * _CELLS_PER_THRESHOLD, _MAX_CELLS)
    lowest, highest = thresholds[:, :1], thresholds[:, -1:]
    scale = tf.math.divide_no_nan(tf.cast(num_cells, scores.dtype), highest - lowest)

    def cell(x):
        # Where x rises this never falls, however it is rounded; NaN is in the first cell.
        position = (x - lowest) * scale
        position = tf.minimum(position, tf.cast(num_cells - 1, x.dtype))
        return tf.cast(tf.where(position > 0, position, tf.zeros_like(position)), tf.int32)

    # Positions are those in all rows of thresholds after one another, each row with a last one that
    # no score is above.
    rows = tf.range(batch)[:, tf.newaxis]
    flat = tf.reshape(tf.pad(thresholds, [[0, 0], [0, 1]], constant_values=float("inf")), [-1])
    cell_of_threshold = cell(thresholds) + rows * num_cells
    in_cell = tf.math.unsorted_segment_sum(
        tf.ones_like(cell_of_threshold), cell_of_threshold, batch * num_cells
    )
    in_cell = tf.reshape(in_cell, [batch, num_cells])
    starts = tf.cumsum(in_cell, axis=1, exclusive=True) + rows * (width + 1)
    cell_of_score = cell(scores) + rows * num_cells
    start = tf.gather(tf.reshape(starts, [-1]), cell_of_score)
    end = tf.gather(tf.reshape(starts + in_cell, [-1]), cell_of_score)

    def halve(step, position):
        probe = position + step
        inside = probe <= end
        # The answer for a probe outside is not used.
        below = tf.gather(flat, tf.minimum(probe, end) - 1) < scores
        return step // 2, tf.where(inside & below, probe, position)

    most, one = tf.reduce_max(in_cell), tf.constant(1)
    (first,) = tf.while_loop(lambda step: step * 2 <= most, lambda step: [step * 2], [one])
    _, position = tf.while_loop(lambda step, _: step > 0, halve, (first, start))
    return position - rows * (width + 1)
