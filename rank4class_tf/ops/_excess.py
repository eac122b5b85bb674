"""How far scores exceed each of several levels, and the gradient of that."""

import tensorflow as tf


def excess(scores, levels, margin):
    r"""$\sum_i (z_i - l_p + \eta)_+$ for every level p, with its gradient as a function.

    One level takes one pass over the scores. For P levels, the scores are put between the sorted
    thresholds by binary search, and sums over the P + 1 gaps give all results: O(n log P) time and
    O(n + P) memory. All terms that are added are positive, so that nothing cancels.

    Args:
        scores: `[batch, n]`; -inf never counts.
        levels: finite `[batch, P]`, none above the largest score by more than the margin.
        margin: > 0.

    Returns:
        The sums `[batch, P]` and a function of coefficients c `[batch, P]` that returns
        $\sum_p c_p 1(z_i > l_p - \eta)$ for all i, `[batch, n]`, and $c_p \sum_i 1(\dots)$,
        `[batch, P]`.
    """
    return (_one if levels.shape[1] == 1 else _many)(scores, levels, margin)


def _one(scores, level, margin):
    above = (scores - level) + margin
    zero = tf.zeros([], scores.dtype)

    def spread(coefficients):
        items = tf.where(above > 0, coefficients, zero)
        return items, tf.reduce_sum(items, axis=-1, keepdims=True)

    return tf.reduce_sum(tf.nn.relu(above), axis=-1, keepdims=True), spread


def _many(scores, levels, margin):
    batch, n = tf.unstack(tf.shape(scores))
    width = tf.shape(levels)[1]
    # Relative to the highest level no digits are lost that matter, since what the sums enter is at
    # least as large as the distance from there to the threshold.
    highest = tf.reduce_max(levels, axis=-1, keepdims=True)
    scores, thresholds = scores - highest, (levels - highest) - margin
    order = tf.argsort(thresholds, axis=-1)
    rank = tf.argsort(order, axis=-1)
    thresholds = tf.gather(thresholds, order, batch_dims=1)

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
        totals = tf.cumsum(tf.gather(coefficients, order, batch_dims=1), axis=-1)
        items = _take(tf.pad(totals, [[0, 0], [1, 0]]), gap)
        return items, coefficients * tf.gather(counts, rank, batch_dims=1)

    return tf.gather(sums, rank, batch_dims=1), spread


def _take(rows, columns):
    """`rows[b, columns[b, i]]`; flat, since gathering by batch takes twice as long."""
    batch, width = tf.unstack(tf.shape(rows))
    return tf.gather(tf.reshape(rows, [-1]), columns + tf.range(batch)[:, tf.newaxis] * width)


def _count_below(thresholds, scores):
    """How many of the sorted `thresholds` `[batch, P]` are below each score, `[batch, n]`.

    By binary search of our own: XLA's searchsorted compares all with all.
    """
    width = tf.shape(thresholds)[1]
    # A step of the search may look beyond the last threshold, where every score is below.
    thresholds = tf.pad(thresholds, [[0, 0], [0, 1]], constant_values=float("inf"))

    def halve(step, count):
        probe = tf.minimum(count + step, width + 1)
        below = _take(thresholds, probe - 1) < scores
        return step // 2, tf.where(below, probe, count)

    one, none = tf.constant(1), tf.zeros_like(scores, tf.int32)
    (first,) = tf.while_loop(lambda step: step * 2 <= width, lambda step: [step * 2], [one])
    return tf.while_loop(lambda step, _: step > 0, halve, (first, none))[1]
