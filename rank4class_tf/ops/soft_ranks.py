"""Differentiable ranks: of `Lists` for losses, of all items `[batch, d]` for sorters.

Those for sorters have gradients that take the same time and memory as the values.
"""

import math
from collections.abc import Callable

import tensorflow as tf

from rank4class_tf import _checks
from rank4class_tf._lists.dense import ChosenLists, as_lists
from rank4class_tf._lists.lists import LOWEST, Lists
from rank4class_tf._lists.positives import sum_over_items
from rank4class_tf._tf.gather import scatter_add
from rank4class_tf._tf.raising import in_xla
from rank4class_tf._tf.search import maxima, moved
from rank4class_tf._tf.shapes import width_of
from rank4class_tf._types import Array, Tensor, TensorPair, Tensors, WithGradient

# Smaller differences count as 0, since their inverse would overflow.
_TINY = 1e-30


def standardize(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Scores `[batch, d]` with mean 0, standard deviation 1 per list; 0 if masked."""
    # Scores are float32 or float64, within +-1e30. A list of equal scores becomes
    # zeros; its gradient is that of the scores less their mean.
    dtype = scores.dtype
    if mask is None:
        mask = tf.ones_like(scores, tf.bool)
    weights = tf.cast(mask, dtype)
    count = tf.maximum(tf.reduce_sum(weights, axis=1, keepdims=True), 1)

    # We first scale to [-1, 1], where squares neither overflow nor become 0. Neither
    # the result nor its gradient depends on this step.
    masked_high = tf.where(mask, scores, dtype.max)
    masked_low = tf.where(mask, scores, dtype.min)
    lowest = tf.reduce_min(masked_high, axis=1, keepdims=True)
    highest = tf.reduce_max(masked_low, axis=1, keepdims=True)
    half_range = highest / 2 - lowest / 2
    is_constant = half_range < _TINY
    one = tf.ones([], dtype)
    scale = tf.stop_gradient(tf.where(is_constant, one, half_range))
    middle = tf.stop_gradient(highest / 2 + lowest / 2)
    scaled = weights * (scores - middle) / scale

    mean = tf.reduce_sum(scaled, axis=1, keepdims=True) / count
    centred = weights * (scaled - mean)
    variance = tf.reduce_sum(centred**2, axis=1, keepdims=True) / count
    return centred / tf.sqrt(tf.where(is_constant, one, variance))


def sigmoid_ranks(
    scores: Array | Lists,
    class_ids: Array | None = None,
    mask: Array | None = None,
    *,
    temperature: float = 0.1,
) -> Tensor:
    r"""Soft ranks of the positives.

    $$\pi(p) = 1 + \sum_{j \ne p} \sigma\left(\frac{s_j - s_p}{T}\right)$$

    Source: Qin et al. 2010; Rank4Class, equation 3, with $\alpha = 1 / T$.

    Args:
        scores: `[batch, n]`, or `Lists`, which hold the labels; -inf masks an item.
        class_ids: `[batch]` or `[batch, P]` integers, padded with -1.
        mask: `[batch, n]` booleans, False for a masked item; None if no item is masked.
        temperature: > 0. The smaller, the closer to the exact ranks, and the smaller
            the gradient of items that are far apart.

    Returns:
        `[batch, P]`, each in [1, n]; meaningless where padded.

    Example:
        >>> sigmoid_ranks([[3.0, 1.0, 2.0]], [[1, 0]], temperature=0.01).numpy()
        array([[3., 1.]], dtype=float32)
    """
    _checks.positive_or_tensor("temperature", temperature)
    lists = as_lists(scores, class_ids, mask=mask)
    inverse = 1 / temperature
    # A tensor must be a parameter of the sum to get a gradient.
    inverses = []
    if tf.is_tensor(inverse):
        inverses.append(tf.ones_like(lists.positive_scores) * inverse)
    # The item itself adds sigmoid(0) = 1/2 to the sum over all items. We multiply by 1
    # / T, since dividing a masked item by T has an infinite slope in T, which forward
    # mode turns into NaN.
    return 0.5 + lists.sum_over_items(
        lambda s, p, scale=inverse: tf.sigmoid((s + -p) * scale),
        positives=inverses,
        tends_to_zero=True,
    )


def sigmoid_ranks_among_positives(
    scores: Array | Lists,
    class_ids: Array | None = None,
    mask: Array | None = None,
    *,
    temperature: float = 0.1,
) -> Tensor:
    r"""Soft ranks of the positives among themselves.

    $$\pi_Y(p) = 1 + \sum_{q \in Y, q \ne p} \sigma\left(\frac{s_q - s_p}{T}\right)$$

    The arguments are those of `sigmoid_ranks`; a rank is in [1, P].

    Example:
        >>> sigmoid_ranks_among_positives(
        ...     [[3.0, 1.0, 2.0]], [[1, 0]], temperature=0.01
        ... ).numpy()
        array([[2., 1.]], dtype=float32)
    """
    lists = as_lists(scores, class_ids, mask=mask)
    positives = tf.where(lists.is_positive, lists.positive_scores, LOWEST[lists.dtype])
    lists = ChosenLists(positives, None, lists.relevance, lists.positive_scores)
    return sigmoid_ranks(lists, temperature=temperature)


def _best_first(scores: Tensor, mask: Tensor | None) -> TensorPair:
    """Finite scores `[batch, d]` in falling order, masked last, and their columns."""
    if mask is not None:
        # A finite number makes differences of masked items 0, not NaN.
        scores = tf.where(mask, scores, LOWEST[scores.dtype])
    return tf.math.top_k(scores, width_of(scores))


def _restored(order: Tensor, values: Tensor) -> Tensor:
    """Values in the order of `_best_first`, put back at their items."""
    return scatter_add(order, values, tf.shape(values))


def _over_powers_of_two(step: Callable, limit: int | Tensor, state: Tensors) -> Tensors:
    """Applies `state = step(power, *state)` for 1, 2, 4, ... below a limit."""
    # The limit is a scalar tensor, or an int, which unrolls the loop. No step changes a
    # shape.
    if isinstance(limit, int):
        power = 1
        while power < limit:
            state = step(power, *state)
            power *= 2
        return state

    def is_below(power: Tensor, *_: Tensor) -> Tensor:
        return power < limit

    def double(power: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        stepped = zip(step(power, *state), state, strict=True)
        state = tuple(tf.ensure_shape(new, old.shape) for new, old in stepped)
        return 2 * power, *state

    _, *state = tf.while_loop(is_below, double, (tf.constant(1), *state))
    return state


def all_sigmoid_ranks(
    scores: Tensor, temperature: float, mask: Tensor | None = None
) -> Tensor:
    """The ranks of `layers.SigmoidSorter`; meaningless where masked."""
    scores = tf.convert_to_tensor(scores)
    # A masked item adds 0 to the ranks of the others and to their gradients.
    items = scores if mask is None else tf.where(mask, scores, LOWEST[scores.dtype])

    def term(other: Tensor, score: Tensor) -> Tensor:
        return tf.sigmoid((other - score) / temperature)

    # The item itself adds sigmoid(0) = 1/2. Value and gradient go block by block, in
    # O(d) memory.
    return 0.5 + sum_over_items(term, [items], [scores], tf.ones_like(scores))


def laplace_ranks(
    scores: Tensor, temperature: float, mask: Tensor | None = None
) -> Tensor:
    """The ranks of `layers.LaplaceSorter`."""
    # Along the sorted scores the terms from above and from below are decaying sums, so
    # that a list takes O(d log d). The ranks are as exact as their dtype.
    scores = tf.convert_to_tensor(scores)

    @tf.custom_gradient
    def ranks(scores: Tensor) -> WithGradient:
        falling, order = _best_first(scores, mask)
        positions = tf.cast(tf.range(1, tf.shape(scores)[1] + 1), scores.dtype)
        above, below = _decaying_sums(falling, temperature, tf.ones_like(scores))

        def gradient(upstream: Tensor) -> Tensor:
            values = tf.gather(upstream, order, batch_dims=1)
            # Only differences count, so subtracting the mean keeps their digits.
            values -= tf.reduce_mean(values, axis=1, keepdims=True)
            from_above, from_below = _decaying_sums(falling, temperature, values)
            sorted_gradient = from_above + from_below - values * (above + below)
            result = _restored(order, sorted_gradient / (2 * temperature))
            return result if mask is None else tf.where(mask, result, 0)

        sorted_ranks = positions + (below - above) / 2
        return _restored(order, sorted_ranks), gradient

    return ranks(scores)


def _decaying_sums(scores: Tensor, temperature: float, values: Tensor) -> Tensors:
    r"""Sums $\sum_j e^{-|s_j - s_k| / T} v_j$ over $j \le k$ and over $j \ge k$."""

    # Each power of two doubles the number of neighbours in a sum. Each factor comes
    # from a difference of two falling scores `[batch, d]`, so it cannot overflow, and
    # rounding errors do not add up along the list, as they would in products of factors
    # of neighbours.
    def step(power: int | Tensor, above: Tensor, below: Tensor) -> TensorPair:
        # The decay from the item `power` positions above; 0 where the list has no such
        # item.
        higher = moved(scores, power, scores.dtype.max, right=True)
        decay = tf.exp((scores - higher) / temperature)
        above += decay * moved(above, power, right=True)
        below += moved(decay * below, power)
        return above, below

    return _over_powers_of_two(step, width_of(scores), (values, values))


def projected_ranks(
    scores: Tensor, regularization: float, mask: Tensor | None = None
) -> Tensor:
    """The ranks of `layers.SoftRankSorter`."""
    # An isotonic regression in float64 finds the blocks of the projection.
    scores = tf.convert_to_tensor(scores)

    @tf.custom_gradient
    def ranks(scores: Tensor) -> WithGradient:
        falling, order = _best_first(scores, mask)
        size = width_of(scores)

        def with_first_column(others: Tensor) -> Tensor:
            """Columns 1, 2, ... after a column of zeros; none for lists of none."""
            return tf.pad(others, [[0, 0], [1, 0]])[:, :size]

        # Items further apart than half a list never share a block: the limit only saves
        # digits.
        gaps = (falling[:, :-1] - falling[:, 1:]) / regularization
        gaps = tf.minimum(tf.cast(gaps, tf.float64), tf.cast(size, tf.float64))
        points = with_first_column(tf.cumsum(gaps - 1, axis=1))
        fit = isotonic_regression(points)
        positions = tf.cast(tf.range(1, size + 1), tf.float64)

        def gradient(upstream: Tensor) -> Tensor:
            values = tf.gather(upstream, order, batch_dims=1)
            starts = with_first_column(fit[:, 1:] != fit[:, :-1])
            blocks = tf.cumsum(tf.cast(starts, tf.int32), axis=1)
            shape = tf.shape(values)
            sums = scatter_add(blocks, values, shape)
            counts = scatter_add(blocks, tf.ones_like(values), shape)
            means = tf.math.divide_no_nan(sums, counts)
            sorted_gradient = tf.gather(means, blocks, batch_dims=1) - values
            return _restored(order, sorted_gradient / regularization)

        sorted_ranks = tf.cast(positions + points - fit, scores.dtype)
        return _restored(order, sorted_ranks), gradient

    return ranks(scores)


def isotonic_regression(values: Tensor) -> Tensor:
    r"""$\arg\min_{v_1 \le \dots \le v_d} \sum_i (v_i - y_i)^2$ of float64 values.

    The values y are `[batch, d]`.
    """
    # Fits of neighbouring parts are joined, and parts double in length each time.
    # Joining pools the end of the left part with the start of the right one; a binary
    # search finds where to begin. Neighbours should not differ by much more than d. A
    # block has exactly one value.
    size = values.shape[1]
    if size is not None:
        padded = 2 ** (max(size, 1) - 1).bit_length()
    elif in_xla():  # XLA needs static sizes of the parts.
        return _isotonic_by_all_blocks(values)
    else:
        size = tf.shape(values)[1]
        exponent = tf.math.ceil(tf.math.log(tf.cast(size, tf.float64)) / math.log(2))
        padded = 2 ** tf.cast(tf.maximum(exponent, 0), tf.int32)
    # Added values are the highest: no pool takes them. A part of one value is its own
    # fit and sum.
    added = tf.zeros([tf.shape(values)[0], padded - size], values.dtype)
    added += tf.reduce_max(values, axis=1, keepdims=True)
    parts = tf.concat([values, added], axis=1)
    fit, _ = _over_powers_of_two(_join, padded, (parts, parts))
    return fit[:, :size]


def _isotonic_by_all_blocks(values: Tensor) -> Tensor:
    """`isotonic_regression` from the means of all possible blocks, `[batch, d, d]`."""
    # For each start up to an item, take the lowest mean of a block that ends at the
    # item or later. The item's value is the highest of these.
    batch, size = tf.unstack(tf.shape(values))
    sums = tf.cumsum(values, axis=1)
    before = sums - values
    columns = tf.range(size)
    widths = tf.cast(columns - columns[:, tf.newaxis] + 1, values.dtype)
    infinite = tf.constant(float("inf"), values.dtype)
    means = (sums[:, tf.newaxis] - before[:, :, tf.newaxis]) / widths
    means = tf.where(widths > 0, means, infinite)
    lowest = -maxima(tf.reshape(-means, [batch * size, size]))
    lowest = tf.where(widths > 0, tf.reshape(lowest, [batch, size, size]), -infinite)
    return tf.reduce_max(lowest, axis=1)


def _join(half: int | Tensor, fit: Tensor, sums: Tensor) -> TensorPair:
    """Joins fits `[batch, d]` of neighbouring parts of width `half`, a power of two."""
    # The sums `[batch, d]` run from the start of a part up to each item, itself
    # included. Below all tensors are `[batch, pairs of parts, half]` or, if of a pair,
    # `[batch, pairs of parts, 1]`.
    batch, width = tf.unstack(tf.shape(fit))
    shape = tf.stack([batch, width // (2 * half), 2, half])
    left, right = tf.unstack(tf.reshape(fit, shape), axis=2)
    left_sums, right_sums = tf.unstack(tf.reshape(sums, shape), axis=2)
    left_total = left_sums[:, :, -1:]
    num_kept = _num_left_of_pool(left, right, left_sums, right_sums)

    # The pool takes in items of the right part as long as they are below its mean.
    start = _sum_of_first(num_kept, left_sums)
    pool = left_total - start
    pool_size = tf.cast(half - num_kept, fit.dtype)
    sizes = pool_size + tf.cast(tf.range(half), fit.dtype)
    joins = right * sizes < pool + right_sums - right
    num_taken = tf.reduce_sum(tf.cast(joins, tf.int32), axis=2, keepdims=True)
    pool += _sum_of_first(num_taken, right_sums)
    pool_size += tf.cast(num_taken, fit.dtype)
    mean = tf.math.divide_no_nan(pool, pool_size)

    # All items of the pool get its mean.
    columns = tf.range(2 * half)
    pooled = (columns >= num_kept) & (columns < half + num_taken)
    fit = tf.where(pooled, mean, tf.concat([left, right], axis=2))
    pooled_sums = start + mean * tf.cast(columns - num_kept + 1, fit.dtype)
    other_sums = tf.concat([left_sums, right_sums + left_total], axis=2)
    sums = tf.where(pooled, pooled_sums, other_sums)
    return tf.reshape(fit, [batch, width]), tf.reshape(sums, [batch, width])


def _num_left_of_pool(
    left: Tensor, right: Tensor, left_sums: Tensor, right_sums: Tensor
) -> Tensor:
    """How many items of each left part lie below the pool, by a binary search."""
    half = tf.shape(left)[2]
    left_total = left_sums[:, :, -1:]

    def keep_more(step: Tensor, kept: Tensor) -> TensorPair:
        # Keeps `step` more items of the left part if they lie below the mean of the
        # pool.
        more = tf.minimum(kept + step, half)
        highest = tf.gather(left, more - 1, batch_dims=2)
        num_right = tf.searchsorted(right, highest)
        # A pool at `highest` takes the items above it on the left and below it on the
        # right.
        above = left_total - _sum_of_first(more, left_sums)
        above -= highest * tf.cast(half - more, highest.dtype)
        below = highest * tf.cast(num_right, highest.dtype)
        below -= _sum_of_first(num_right, right_sums)
        return step // 2, tf.where(above >= below, more, kept)

    # XLA would take minutes to compile this loop unrolled.
    none_kept = tf.zeros_like(left_total, tf.int32)
    _, kept = tf.while_loop(lambda step, _: step > 0, keep_more, (half, none_kept))
    return kept


def _sum_of_first(counts: Tensor, sums: Tensor) -> Tensor:
    """The sums of the first items of parts, `[batch, parts, 1]`, from running sums."""
    last = tf.gather(sums, tf.maximum(counts - 1, 0), batch_dims=2)
    return tf.where(counts > 0, last, 0)
