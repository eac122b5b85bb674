"""Sums over items per positive: all pairs at once, blocks of positives, or sorting.

Which is the fastest depends on how many positives and items there are; this file
decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from rank4class_tf._checks import require
from rank4class_tf._tf import raising
from rank4class_tf._tf.gather import scatter_add
from rank4class_tf._tf.gradients import keep_nan
from rank4class_tf._tf.loops import fold
from rank4class_tf._tf.search import searchsorted
from rank4class_tf._types import (
    Array,
    Function,
    Tensor,
    TensorPair,
    Tensors,
    WithGradient,
)

# Up to this many positives, one pass over the items for each costs less than sorting: 8
# take .4 of its time, 64 take 2.4 times as long (64 x 1,000, in a graph, with the
# gradient).
FEW_POSITIVES = 16

# In lists of at most so many items any number of positives counts as few (measured with
# 64 lists). Not under XLA, where a list has as many columns as it may have positives.
SHORT = 128

# Lists of at most so many items get one tensor [batch, P, n], about 3 kB an item,
# except under XLA. A loop over blocks is 2 to 9 times slower for few positives, a fifth
# to a half slower for many.
_ITEMS_AT_ONCE = 256

# Entries per list of a block of positives. In a graph, 8,192 take two to three times as
# long if one of 1,000 items is positive; eagerly, 1,024 take four times as long (all
# ranks of 64 x 1,000).
_BLOCK_ENTRIES = 1024
_EAGER_BLOCK_ENTRIES = 8192

# Up to so many get a pass each, with no tensor [batch, P, n]: .65 to .9 of the time.
_PASSES = 4


def are_few(num_columns: int | None, num_items: int | None) -> bool:
    """Whether each column gets a pass over the items; None: known only at run time."""
    if num_columns is not None and num_columns <= FEW_POSITIVES:
        return True
    return _are_at_most(num_items, SHORT)


def _are_at_most(num_items: int | None, limit: int) -> bool:
    """Whether lists are known to have at most `limit` items; False under XLA."""
    return num_items is not None and num_items <= limit and not raising.in_xla()


def num_used_columns(relevance: Tensor) -> Tensor:
    """The least number of leading columns with all positives of a batch, a scalar."""
    columns = tf.range(1, tf.shape(relevance)[1] + 1)
    # The outer maximum is for an empty batch.
    return tf.maximum(tf.reduce_max(tf.where(relevance > 0, columns, 0)), 0)


def masked(function: Callable) -> Callable:
    """The function with an extra first argument, a mask: where 0, the result is 0."""

    def masked_function(mask: Tensor, *arguments: Tensor) -> Tensor:
        values = function(*arguments)
        return tf.where(mask > 0, values, tf.zeros_like(values))

    return masked_function


def terms(function: Callable, items: Sequence, positives: Sequence) -> Tensor:
    """The terms of `sum_over_items` for all positives at once, `[batch, P, n]`."""
    items = [x[:, tf.newaxis] for x in items]
    positives = [x[..., tf.newaxis] for x in positives]
    return function(*items, *positives)


def sum_over_items(
    function: Callable, items: Tensors, positives: Tensors, relevance: Tensor
) -> Tensor:
    r"""$\sum_j f(\text{items}_j, \text{positives}_p)$ per positive p, `[batch, P]`."""
    # Time is O(P n); memory of lists of more than 256 items is O(n), since many
    # positives are taken block by block, in the gradient too. The gradient flows to
    # items, several `[batch, n]`, and positives, several `[batch, P]`, not to what
    # `function` captures. Columns after the last positive of a batch, of relevance 0,
    # may be left out.
    width = positives[0].shape[1]
    n = items[0].shape[1]
    entries = _EAGER_BLOCK_ENTRIES if tf.executing_eagerly() else _BLOCK_ENTRIES
    block = max(1, entries // n) if n else 1

    fits = _are_at_most(n, _ITEMS_AT_ONCE)
    if width is not None and width <= max(block, _PASSES):
        fits = True
    # TensorFlow refuses to scatter into an empty batch.
    if fits or items[0].shape[0] == 0:
        return _sum_block(function, items, positives)

    num_items = len(items)
    num_blocks = -(-num_used_columns(relevance) // block)

    @tf.custom_gradient
    def blocked(*tensors: Tensor) -> WithGradient:
        columns = tensors[num_items:]
        blocks = _Blocks(
            function=function,
            items=tensors[:num_items],
            positives=[_split(x, block) for x in columns],
            number=num_blocks,
            size=block,
            width=tf.shape(columns[0])[1],
        )

        def gradient(upstream: Tensor, variables: Sequence = ()) -> list[Tensor]:
            rule = (
                "A function of a sum must get a variable as a parameter, not "
                "capture it."
            )
            require(not variables, rule, variables)
            return blocks.backward(upstream)

        return blocks.forward(), gradient

    return blocked(*items, *positives)


class _Blocks(NamedTuple):
    """All items, and positives cut into blocks that are compared one by one."""

    function: Callable
    items: Tensors  # Several `[batch, n]`.
    positives: Tensors  # Several `[blocks, batch, size]`.
    number: Tensor  # Of blocks up to the last positive.
    size: int
    width: Tensor  # P, of all columns.

    def forward(self) -> Tensor:
        """The sum over items per positive, `[batch, P]`."""

        def add(index: Tensor, sums: Tensor) -> list[Tensor]:
            value = _sum_block(self.function, self.items, self._positives_of(index))
            return [_put(sums, index, value)]

        # The first block, usually the only one, starts the loop: a loop that adds it to
        # zeros takes a fifth of the time of a loss.
        start = add(tf.constant(0), tf.zeros_like(self.positives[0]))
        (sums,) = fold(add, self.number, start, first=1)
        return _join(sums, self.width)

    def backward(self, upstream: Tensor) -> list[Tensor]:
        """The gradients of items and positives, from that of the sums."""
        missing = -self.width % self.size
        upstream = _split(tf.pad(upstream, [[0, 0], [0, missing]]), self.size)

        def add(index: Tensor, of_items: Tensors, of_positives: Tensors) -> list:
            sources = [*self.items], self._positives_of(index)
            with tf.GradientTape() as tape:
                tape.watch(sources)
                value = _sum_block(self.function, *sources)
            for_items, for_positives = tape.gradient(
                value, sources, upstream[index], unconnected_gradients="zero"
            )
            item_pairs = zip(of_items, for_items, strict=True)
            positive_pairs = zip(of_positives, for_positives, strict=True)
            return [
                [total + x for total, x in item_pairs],
                [_put(stack, index, x) for stack, x in positive_pairs],
            ]

        item_zeros = [tf.zeros_like(x) for x in self.items]
        positive_zeros = [tf.zeros_like(x) for x in self.positives]
        start = add(tf.constant(0), item_zeros, positive_zeros)
        of_items, of_positives = fold(add, self.number, start, first=1)
        return [*of_items, *(_join(stack, self.width) for stack in of_positives)]

    def _positives_of(self, index: Tensor) -> list[Tensor]:
        """Several `[batch, size]`."""
        return [stack[index] for stack in self.positives]


def _sum_block(function: Function, items: Tensors, positives: Tensors) -> Tensor:
    width = positives[0].shape[1]
    if width == 1:  # With fewer operations than below.
        return tf.reduce_sum(function(*items, *positives), axis=-1, keepdims=True)

    if width and width <= _PASSES and not _are_at_most(items[0].shape[1], SHORT):
        columns = zip(*(tf.split(x, width, axis=1) for x in positives), strict=True)
        sums = [_sum_block(function, items, column) for column in columns]
        return tf.concat(sums, axis=1)
    return tf.reduce_sum(terms(function, items, positives), axis=-1)


def _split(x: Tensor, block: int) -> Tensor:
    """`[batch, P]` -> `[blocks, batch, block]`, padded with the first column."""
    # Not zeros: a function may have an infinite slope there, and the gradient 0 times
    # that is NaN.
    batch, width = tf.unstack(tf.shape(x))
    blocks = -(-width // block)
    x = tf.concat([x, tf.tile(x[:, :1], [1, blocks * block - width])], axis=1)
    return tf.transpose(tf.reshape(x, [batch, blocks, block]), [1, 0, 2])


def _join(x: Tensor, width: Tensor) -> Tensor:
    """`[blocks, batch, block]` -> `[batch, width]`."""
    blocks, batch, block = tf.unstack(tf.shape(x))
    return tf.reshape(tf.transpose(x, [1, 0, 2]), [batch, blocks * block])[:, :width]


def _put(stack: Tensor, index: Tensor, value: Tensor) -> Tensor:
    # TensorFlow refuses an update of an empty tensor.
    count = tf.minimum(tf.size(value), 1)
    places = tf.fill([count, 1], index)
    return tf.tensor_scatter_nd_update(stack, places, value[tf.newaxis][:count])


def excess(scores: Tensor, levels: Tensor, margin: Array) -> TensorPair:
    r"""$\sum_i (z_i - l_p + \eta)_+$ for every level p.

    Also the number of terms above 0, a constant.
    """
    # This takes O(n log P) time and O(n + P) memory. Binary search puts the scores into
    # the P + 1 gaps of the sorted thresholds. Sums by gap are enough; they are all
    # positive, so that nothing cancels.

    @tf.custom_gradient
    def sorted_excess(scores: Tensor, levels: Tensor) -> WithGradient:
        batch = tf.shape(scores)[0]
        num_gaps = tf.shape(levels)[1] + 1

        # Subtract the highest level, or score if that is lower: every sum is then at
        # least its distance to the threshold, so no digit that matters is lost.
        highest_level = tf.reduce_max(levels, axis=-1, keepdims=True)
        highest_score = tf.reduce_max(scores, axis=-1, keepdims=True)
        highest = tf.minimum(highest_level, highest_score)
        scores -= highest
        # The minimum makes 0 exact, and keeps the graph from being rewritten, see
        # `violation`.
        unsorted = tf.minimum(levels - highest, margin) - margin
        thresholds = tf.sort(unsorted, axis=-1)

        # The first of equal thresholds, which stands for all of them.
        first = searchsorted(thresholds, unsorted)
        gap = searchsorted(thresholds, scores)
        nearest = _take(thresholds, tf.maximum(gap - 1, 0))
        distance = tf.where(gap > 0, scores - nearest, tf.zeros_like(scores))
        segment = tf.reshape(gap + tf.range(batch)[:, tf.newaxis] * num_gaps, [-1])

        def by_gap(x: Tensor) -> Tensor:
            flat = tf.reshape(x, [-1])
            sums = tf.math.unsorted_segment_sum(flat, segment, batch * num_gaps)
            return tf.reshape(sums, [batch, num_gaps])[:, 1:]

        counts = tf.cumsum(by_gap(tf.ones_like(scores)), axis=-1, reverse=True)
        steps = counts[:, 1:] * (thresholds[:, 1:] - thresholds[:, :-1])
        steps = tf.pad(steps, [[0, 0], [0, 1]])
        totals = tf.cumsum(by_gap(distance) + steps, axis=-1, reverse=True)

        def gradient(upstream: Tensor, _: Tensor) -> TensorPair:
            sums = scatter_add(first, upstream, tf.shape(levels))
            sums_below = tf.pad(tf.cumsum(sums, axis=-1), [[0, 0], [1, 0]])
            return _take(sums_below, gap), -(upstream * _take(counts, first))

        return (_take(totals, first), _take(counts, first)), gradient

    totals, counts = sorted_excess(scores, levels)
    return keep_nan(totals, scores), tf.stop_gradient(counts)


def _take(rows: Tensor, columns: Tensor) -> Tensor:
    """`rows[b, columns[b, i]]`; flat, since gathering by batch takes twice as long."""
    batch, width = tf.unstack(tf.shape(rows))
    starts = tf.range(batch)[:, tf.newaxis] * width
    return tf.gather(tf.reshape(rows, [-1]), columns + starts)
