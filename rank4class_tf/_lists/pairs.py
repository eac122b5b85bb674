"""Sums over all items for each positive, of long lists without a `[batch, P, n]` tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from rank4class_tf._tf import raising
from rank4class_tf._tf.gather import gather_rows

# Up to this many positives, a pass over the items for each costs less than sorting.
FEW = 16

# In lists of at most so many items any number of positives is few. Not under XLA, where there are
# always as many columns as there may be positives.
SHORT = 128

# In lists of at most so many items all positives are compared with all items at once: a loop over
# blocks takes two to nine times as long for few positives, a fifth to a half longer for many, and
# longer to trace. An item then takes about 3 kB, as in a layer of 768 units. Not under XLA either.
_AT_ONCE = 256

# Compared with a block of 1,024 classes, so many positives take 128 MB.
_MOST_AT_ONCE = 1 << 15

# Positives are taken in blocks so that a block holds about this many entries per list.
_BLOCK_ENTRIES = 1024


def are_few(num_columns: int | None, num_items: int | None) -> bool:
    """Whether positives in so many columns, of lists of so many items, take a pass each.

    None stands for a number that is known only when running.
    """
    if num_columns is not None and num_columns <= FEW:
        return True
    return _are_at_most(num_items, SHORT)


def _are_at_most(num_items, limit):
    """Whether lists are known to have at most so many items; never under XLA."""
    return num_items is not None and num_items <= limit and not raising.in_xla()


def sum_over_items(function: Callable, items: Any, positives: Any, count: Callable) -> Any:
    r"""Computes $\sum_j f(\text{items}_j, \text{positives}_p)$ for every positive p.

    Time is O(P n); memory of lists of more than 256 items is O(n), since many positives are taken
    block by block, in the gradient too. The gradient flows to `items` and `positives`, not to what
    `function` captures.

    Args:
        function: works entry by entry, on one tensor for each of `items` and `positives`.
        items: list of floating tensors `[batch, n]`.
        positives: list of floating tensors `[batch, P]`.
        count: a function that returns how many positives there are, a scalar integer: only the
            first ones need be right.

    Returns:
        `[batch, P]`.
    """
    width, n = positives[0].shape[1], items[0].shape[1]
    block = max(1, _BLOCK_ENTRIES // n) if n else 1
    fits = _are_at_most(n, _AT_ONCE) or (width is not None and width <= block)
    # TensorFlow refuses to scatter into no lists.
    if fits or items[0].shape[0] == 0:
        return _sum_block(function, items, positives)

    num_items, num_visited = len(items), count()

    @tf.custom_gradient
    def blocked(*tensors):
        items, positives = tensors[:num_items], tensors[num_items:]

        def gradient(upstream):
            return _gradient_by_blocks(function, items, positives, upstream, num_visited, block)

        return _sum_by_blocks(function, items, positives, num_visited, block), gradient

    return blocked(*items, *positives)


def visited(relevance: tf.Tensor) -> tf.Tensor:
    """How many leading columns hold all of a batch's positives, a scalar."""
    columns = tf.range(1, tf.shape(relevance)[1] + 1)
    return tf.reduce_max(
        tf.concat([[0], tf.reshape(tf.where(relevance > 0, columns, 0), [-1])], axis=0)
    )


def terms(function: Callable, items: Sequence, positives: Sequence) -> tf.Tensor:
    """The terms of `sum_over_items` for all positives at once, `[batch, P, n]`."""
    return function(
        *(x[:, tf.newaxis, :] for x in items), *(x[:, :, tf.newaxis] for x in positives)
    )


class Flat(NamedTuple):
    """The positives of all lists one after another, `[T]`, without the padding of `[batch, P]`.

    A list with fewer positives than others then takes less time: with 5 of at most 22, the value
    and gradient of Rankmax take a fifth.

    Attributes:
        lists: `[T]` int32, the list of each.
        places: `[T]` int32, where each stands in `[batch P]`.
        slots: `[batch, P]` int32, where each column stands here; padding is as the first column.
    """

    lists: tf.Tensor
    places: tf.Tensor
    slots: tf.Tensor

    @classmethod
    def of(cls, relevance: tf.Tensor) -> Flat:
        """Those of relevance `[batch, P]`, 0 where padded; each list has its first column."""
        width = tf.shape(relevance)[1]
        there = (relevance > 0) | (tf.range(width) == 0)
        flat = tf.reshape(there, [-1])
        places = tf.cast(tf.where(flat)[:, 0], tf.int32)
        slots = tf.reshape(tf.cumsum(tf.cast(flat, tf.int32)) - 1, tf.shape(relevance))
        return cls(places // width, places, tf.where(there, slots, slots[:, :1]))

    @property
    def are_few(self) -> tf.Tensor:
        """Whether there are at most `FEW` for each list on average, and not too many, a scalar."""
        return tf.size(self.lists) <= tf.minimum(FEW * tf.shape(self.slots)[0], _MOST_AT_ONCE)

    def take(self, columns: tf.Tensor) -> tf.Tensor:
        """`[batch, P]` -> `[T]`."""
        return gather_rows(tf.reshape(columns, [-1]), self.places, tf.size(self.slots))

    def columns(self, values: tf.Tensor) -> tf.Tensor:
        """`[T]` -> `[batch, P]`."""
        return gather_rows(values, self.slots, tf.size(self.lists))

    def terms(self, function: Callable, items: Sequence, positives: Sequence) -> tf.Tensor:
        """`function` of items `[batch, n]` and positives `[T]`, `[T, n]`."""
        number = tf.shape(self.slots)[0]
        items = [gather_rows(x, self.lists, number) for x in items]
        return function(*items, *(x[:, tf.newaxis] for x in positives))


def _sum_block(function, items, positives):
    if positives[0].shape[1] == 1:  # With fewer operations than below.
        return tf.reduce_sum(function(*items, *positives), axis=-1, keepdims=True)
    return tf.reduce_sum(terms(function, items, positives), axis=-1)


def _split(x, block):
    """`[batch, P]` -> `[blocks, batch, block]`, the first column again for what is missing.

    Zeros would do for the value. But a function need not be finite where nothing real stands, and
    the gradient 0 of what is left out times an infinite slope is NaN.
    """
    batch, width = tf.unstack(tf.shape(x))
    blocks = -(-width // block)
    x = tf.concat([x, tf.tile(x[:, :1], [1, blocks * block - width])], axis=1)
    return tf.transpose(tf.reshape(x, [batch, blocks, block]), [1, 0, 2])


def _join(x, width):
    """`[blocks, batch, block]` -> `[batch, width]`."""
    blocks, batch, block = tf.unstack(tf.shape(x))
    return tf.reshape(tf.transpose(x, [1, 0, 2]), [batch, blocks * block])[:, :width]


def _put(stack, index, value):
    rows = tf.minimum(tf.size(value), 1)  # TensorFlow refuses to put even nothing into nothing.
    return tf.tensor_scatter_nd_update(stack, tf.fill([rows, 1], index), value[tf.newaxis][:rows])


def _sum_by_blocks(function, items, positives, count, block):
    stacks = [_split(x, block) for x in positives]

    def step(index, result):
        value = _sum_block(function, items, [stack[index] for stack in stacks])
        return index + 1, _put(result, index, value)

    # The first block comes before the loop. It is the only one as a rule, and adding it to zeros
    # would take a fifth of the time of a loss.
    start = step(tf.constant(0), tf.zeros_like(stacks[0]))
    _, result = tf.while_loop(lambda index, _: index * block < count, step, start)
    return _join(result, tf.shape(positives[0])[1])


def _gradient_by_blocks(function, items, positives, upstream, count, block):
    width = tf.shape(positives[0])[1]
    stacks = [_split(x, block) for x in positives]
    upstream = _split(tf.pad(upstream, [[0, 0], [0, -width % block]]), block)

    def step(index, item_gradients, positive_gradients):
        block_positives = [stack[index] for stack in stacks]
        with tf.GradientTape() as tape:
            tape.watch([*items, *block_positives])
            value = _sum_block(function, items, block_positives)
        of_items, of_positives = tape.gradient(
            value,
            (list(items), block_positives),
            output_gradients=upstream[index],
            unconnected_gradients="zero",
        )
        return (
            index + 1,
            [total + new for total, new in zip(item_gradients, of_items, strict=True)],
            [_put(g, index, new) for g, new in zip(positive_gradients, of_positives, strict=True)],
        )

    start = step(
        tf.constant(0),
        [tf.zeros_like(x) for x in items],
        [tf.zeros_like(stack) for stack in stacks],
    )
    _, of_items, of_positives = tf.while_loop(lambda index, *_: index * block < count, step, start)
    return [*of_items, *(_join(g, width) for g in of_positives)]
