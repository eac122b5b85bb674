"""Exact ranks of positives, without gradients; the order of tied items is left open."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks
from rank4class_tf._lists import positives as _positives
from rank4class_tf._lists.dense import over_positives
from rank4class_tf._lists.labels import Labels, as_scores, padded_ids
from rank4class_tf._tf import raising, search, sizes
from rank4class_tf._tf.exact import as_dtype
from rank4class_tf._tf.raising import same_sizes
from rank4class_tf._tf.search import first_and_last_ranks, searchsorted
from rank4class_tf._tf.shapes import num_rows, smaller, width_of
from rank4class_tf._types import Array, Tensor, TensorPair

# `over_ranks` searches the highest items in lists of more than so many times `depth`
# items. For the 10 highest, this takes .4 of the time (64 x 1,000, 160 positives a
# list, in a graph).
_LONG = 4

# Up to so many positives a list, a pass over the items for each costs at most what
# sorting does: a fifth of it for 64 x 10,000, as much for 64 x 1,000 (in a graph).
_ONE_BY_ONE = 64

# XLA compiles anew for each shape, which takes a third of a second. Eager mode spares
# it up to so many scores, which are counted in 2 ms either way (256 x 1,000).
_COMPILED_FROM = 1 << 18


class Ranks(NamedTuple):
    """Ranks of the positives of a batch of lists, the order of tied items left open.

    A positive has one of the ranks `above + 1, ..., above + tied`, each equally likely.

    Attributes:
        above: `[batch, P]`, float32 or float64, the number of items with a higher
            score.
        tied: `[batch, P]`, the number of items with the same score, itself included,
            also of -inf; 0 for a positive whose score is NaN, which is never a hit, and
            for padding.
        relevance: `[batch, P]`, the label of each positive, 0 where padded.
        num_items: `[batch]`, how many items a list has; None where only the best are
            known.
        max_items: the width of the scores, an int, or a scalar int32 if known only at
            run time.
        counted: `[batch]`, how many positives a list has, if some have no column; else
            None.
        class_ids: `[batch, P]`, the items, for metrics that tell these apart; else
            None.
        weights: `[batch, P]`, the weight of each positive, where items have weights;
            else None.
    """

    above: Tensor
    tied: Tensor
    relevance: Tensor
    num_items: Tensor
    max_items: int | Tensor
    counted: Tensor | None = None
    class_ids: Tensor | None = None
    weights: Tensor | None = None

    @property
    def num_positives(self) -> Tensor:
        """`[batch]`, how many positives a list has."""
        if self.counted is not None:
            return self.counted
        return tf.math.count_nonzero(
            self.relevance > 0, axis=-1, dtype=self.above.dtype
        )


class BestPositive(NamedTuple):
    """The group of tied items that holds the best positive of each list."""

    # The first three are 0 for a list whose positives are never a hit.
    above: Tensor  # `[batch]`, float32 or float64, the number of items above the group.
    tied: Tensor  # `[batch]`, the number of its items.
    num_positives: Tensor  # `[batch]`, the number of its positives.
    num_items: Tensor  # As in `Ranks`.
    max_items: int | Tensor  # As in `Ranks`.
    max_positives: int | Tensor  # A bound on `num_positives`; 1 if no list has several.


def expected_ranks(scores: Array, class_ids: Array) -> Tensor:
    r"""Exact ranks of the positives, tied items in random order.

    $$E[\pi(p)] = a + \frac{m + 1}{2}$$

    with $a$ items above it and $m$ tied with it, itself included.

    Args:
        scores: `[batch, n]`; a NaN masks the item, or ranks it last.
        class_ids: `[batch, P]` integers in [0, n), padded with -1. Another id raises;
            where XLA compiles, the ranks of such a list are NaN.

    Returns:
        `[batch, P]`, float64 for float64 and integers of 32 bits; meaningless where
        padded.

    Example:
        >>> expected_ranks([[3.0, 1.0, 1.0, 2.0]], [[1, 0]]).numpy()
        array([[3.5, 1. ]], dtype=float32)
    """
    scores = as_scores("scores", scores)
    ranks = ranks_of_positives(scores, class_ids, dtype=scores.dtype)
    return ranks.above + (ranks.tied + 1) / 2


def ranks_of_positives(
    scores: Array,
    class_ids: Array,
    relevance: Array | None = None,
    mask: Array | None = None,
    depth: int | None = None,
    dtype: tf.DType = tf.float64,
) -> Ranks:
    """Ranks each positive among the items of its list.

    Args:
        scores: `[batch, n]`; a NaN ranks last.
        class_ids: `[batch, P]` different integers; see `expected_ranks`.
        relevance: `[batch, P]`, the label of each positive; None means 1.
        mask: `[batch, n]` booleans, False for a masked item; None if no item is masked.
        depth: None, or the number of ranks that matter. A positive beyond these ranks,
            and not tied with an item on them, may then be reported as never a hit,
            which saves time.
        dtype: float32 or float64, for the result and for metrics that read it.

    Example:
        >>> ranks = ranks_of_positives([[3.0, 1.0, 1.0, 2.0]], [[1, 0]])
        >>> ranks.above.numpy(), ranks.tied.numpy()
        (array([[2., 0.]]), array([[2., 1.]]))
    """
    if depth is not None:
        _checks.positive_int("depth", depth)
    scores = as_scores("scores", scores)
    class_ids = tf.convert_to_tensor(class_ids)
    rule = "`class_ids` must have the shape [batch, P]."
    _checks.require(class_ids.shape.rank in (None, 2), rule, f"{class_ids.shape}")
    zero = tf.zeros([tf.shape(scores)[0], 1], dtype)
    ids, zero = padded_ids(class_ids, width_of(scores), zero, "class_ids")
    if not class_ids.shape[1]:  # `padded_ids` adds a column if there is none.
        ids = ids[:, : tf.shape(class_ids)[1]]
    if relevance is None:
        relevance = tf.ones_like(ids)
    rule = "`relevance` must have the shape of `class_ids`."
    relevance = same_sizes(tf.convert_to_tensor(relevance), ids, rule, num_axes=2)
    relevance = tf.where(ids >= 0, tf.cast(relevance, dtype), tf.zeros([], dtype))
    mask = _checks.mask(mask, scores)
    ranks = _checked_ranks(scores, ids, relevance, mask, depth, dtype)
    return ranks._replace(above=ranks.above + zero)


def _checked_ranks(
    scores: Tensor,
    ids: Tensor,
    relevance: Tensor,
    mask: Tensor | None,
    depth: int | None,
    dtype: tf.DType,
) -> Ranks:
    """`ranks_of_positives` for arguments that were checked."""
    above, tied = _count_above_and_tied(_without_masked(scores, mask), ids, depth)
    return Ranks(
        above=tf.cast(above, dtype),
        tied=tf.cast(tied, dtype),
        relevance=tf.cast(relevance, dtype),
        num_items=_num_items(scores, mask, dtype),
        max_items=width_of(scores),
    )


def ranks_of_few(labels: Labels, dtype: tf.DType) -> Ranks | None:
    """`Ranks` for all metrics, of few class ids per list; None for other labels."""
    ids, scores = labels.class_ids, labels.scores
    if ids is None or not _positives.are_few(labels.max_positives, scores.shape[1]):
        return None
    return _checked_ranks(scores, ids, labels.relevance, labels.mask, None, dtype)


def best_positive(ranks: Ranks) -> BestPositive:
    """The best positive of each list among those of `Ranks`."""
    is_hit = ranks.tied > 0
    infinity = tf.constant(float("inf"), ranks.above.dtype)
    above = tf.where(is_hit, ranks.above, infinity)
    best = tf.reduce_min(above, axis=-1, keepdims=True)
    is_best = tf.cast((above == best) & is_hit, above.dtype)
    num_positives = tf.reduce_sum(is_best, axis=-1)
    total = tf.reduce_sum(ranks.tied * is_best, axis=-1)
    tied = tf.math.divide_no_nan(total, num_positives)
    return BestPositive(
        above=tf.where(num_positives > 0, best[:, 0], tf.zeros_like(tied)),
        tied=tied,
        num_positives=num_positives,
        num_items=ranks.num_items,
        max_items=ranks.max_items,
        max_positives=width_of(ranks.tied),
    )


def mean_over_ties(table: np.ndarray | Tensor, above: Array, tied: Array) -> Tensor:
    r"""Mean of a function of the rank, over random orders of the tied items.

    $$\frac{1}{m} \sum_{r=a+1}^{a+m} f(r)$$

    with $a$ items above and $m$ tied, the item itself included. It is 0 where $m = 0$.

    Args:
        table: `[R]` float64, `f(1), ..., f(R)`; f is 0 beyond.
        above: number of items above, float32 or float64, as is the result.
        tied: number of items tied, of the shape and dtype of `above`.

    Example:
        >>> above, tied = tf.constant([0.0, 1.0]), tf.constant([2.0, 2.0])
        >>> mean_over_ties(np.array([1.0, 0.5]), above, tied).numpy()
        array([0.75, 0.25], dtype=float32)
    """
    above = tf.convert_to_tensor(above)
    tied = tf.convert_to_tensor(tied)
    limit = num_rows(table)
    first = tf.minimum(tf.cast(above, tf.int32), limit)
    last = tf.minimum(tf.cast(above + tied, tf.int32), limit)
    sums = _sums_of_first(table, above.dtype)
    of_parts = tf.gather(sums, last) - tf.gather(sums, first)
    totals = tf.reduce_sum(of_parts, axis=-1)
    return tf.math.divide_no_nan(totals, tied)


def _sums_of_first(table: np.ndarray | Tensor, dtype: tf.DType) -> Tensor:
    """Sums of the first 0, 1, ... values, `[R + 1, parts]`, whose parts add up."""
    # Two parts where float32: differences of rounded sums would have no digits left,
    # and the second part holds what the first rounds away.
    if isinstance(table, np.ndarray):  # So that a graph has only a constant.
        sums = np.append(0, np.cumsum(table))
        high = sums.astype(dtype.as_numpy_dtype)
        low = (sums - high).astype(dtype.as_numpy_dtype)
        stack = np.stack
    else:
        sums = tf.pad(tf.cumsum(tf.cast(table, tf.float64)), [[1, 0]])
        high = tf.cast(sums, dtype)
        low = tf.cast(sums - tf.cast(high, tf.float64), dtype)
        stack = tf.stack
    parts = [high] if dtype == tf.float64 else [high, low]
    return tf.convert_to_tensor(stack(parts, axis=1))


def table_by_rank(function: Callable, size: int | Tensor) -> np.ndarray | Tensor:
    """`[size]` float64, the values of a function of float64 ranks from 1 on."""
    # A NumPy array if the size is an int, so that a graph needs no float64 operations.
    if isinstance(size, int):
        with tf.init_scope():
            if tf.executing_eagerly():
                return np.asarray(function(tf.constant(np.arange(1.0, size + 1))))
    return function(tf.range(1, size + 1, dtype=tf.float64))


def num_counted(ranks: Ranks | BestPositive, k: int | None) -> int | Tensor:
    """How many ranks count: the first k, fewer in shorter lists; all if k is None."""
    if k is None or (isinstance(ranks.max_items, int) and ranks.max_items < k):
        return ranks.max_items
    return k


def highest(values: Tensor, k: int | Tensor) -> Tensor:
    """The k highest values of each row in falling order, or all if there are fewer."""
    return tf.math.top_k(values, tf.minimum(k, tf.shape(values)[1])).values


def count_of_all(values: Tensor) -> TensorPair:
    """Counts the items above, and tied with, every item, int32 `[batch, n]` each."""
    columns = tf.broadcast_to(tf.range(tf.shape(values)[1]), tf.shape(values))
    return _count_above_and_tied(values, columns, None)


def expected_ranks_of_all(values: Tensor) -> Tensor:
    """`expected_ranks` of every item, `[batch, n]`; it needs no ids."""
    # Half holds too few integers.
    dtype = values.dtype if values.dtype.size > 2 else tf.float32
    above, tied = count_of_all(values)
    return tf.cast(above, dtype) + (tf.cast(tied, dtype) + 1) / 2


def _count_above_and_tied(
    scores: Tensor, class_ids: Tensor, depth: int | None
) -> TensorPair:
    """Counts of items above, and tied with, each positive, both int32 `[batch, P]`."""
    # A positive is tied with itself. A NaN score and padding have 0 above and 0 tied.
    # With a depth, the same may be reported for a positive beyond these ranks.
    ids = tf.maximum(class_ids, 0)
    positives = tf.gather(scores, ids, batch_dims=1)
    nan = tf.constant(float("nan"), scores.dtype)
    positives = tf.where(class_ids >= 0, positives, nan)
    width = class_ids.shape[1]
    n = scores.shape[1]
    if width != 1 and n is not None and n <= _positives.SHORT:
        return _count_all_pairs(scores, positives)
    if _positives.are_few(width, n):
        return count_one_by_one(scores, positives)
    if depth is not None:
        top, _ = _highest_items(scores, depth)
        return _count_among(top, scores, positives)
    return tf.cond(
        tf.shape(ids)[1] <= _ONE_BY_ONE,
        lambda: count_one_by_one(scores, positives),
        lambda: _count_by_sorting(scores, ids, positives),
    )


def _count_all_pairs(scores: Tensor, positives: Tensor) -> TensorPair:
    # This takes an eighth of the time of `count_one_by_one` (1,024 lists of 28
    # positives).
    values = scores[:, tf.newaxis]
    positives = positives[..., tf.newaxis]
    above = tf.math.count_nonzero(values > positives, -1, dtype=tf.int32)
    tied = tf.math.count_nonzero(values == positives, -1, dtype=tf.int32)
    return above, tied


def _count_by_sorting(scores: Tensor, ids: Tensor, positives: Tensor) -> TensorPair:
    # Sort the items: a NaN comes last, as if infinite, and is no known score.
    is_nan = tf.math.is_nan(scores)
    num_known = tf.math.count_nonzero(~is_nan, axis=1, keepdims=True, dtype=tf.int32)
    rising = tf.where(is_nan, tf.constant(float("inf"), scores.dtype), -scores)
    first, last = first_and_last_ranks(rising)
    num_tied = tf.minimum(last, num_known) - first + 1
    above = tf.gather(first - 1, ids, batch_dims=1)
    tied = tf.gather(num_tied, ids, batch_dims=1)
    return _zeros_unless(~tf.math.is_nan(positives), (above, tied))


def _without_masked(scores: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        return scores
    return tf.where(mask, scores, tf.constant(float("nan"), scores.dtype))


def _num_items(scores: Tensor, mask: Tensor | None, dtype: tf.DType) -> Tensor:
    """`[batch]`, how many items each list has."""
    if mask is not None:
        return tf.math.count_nonzero(mask, axis=-1, dtype=dtype)
    size = num_rows(scores)
    count = width_of(scores)
    # An array takes no operations.
    if isinstance(size, int) and isinstance(count, int):
        return tf.constant(np.full(size, count, dtype.as_numpy_dtype))
    return tf.fill([size], as_dtype(count, dtype))


def count_one_by_one(
    values: Tensor, thresholds: Tensor, lowest: Tensor | None = None
) -> TensorPair:
    """Counts of values above, and equal to, each threshold, both `[batch, P]`."""
    # With `lowest` `[batch, P]`, all values from there up to the threshold count as
    # equal.
    if lowest is None:
        lowest = thresholds
    is_small = tf.executing_eagerly() and values.shape.num_elements() <= _COMPILED_FROM
    count = _count if is_small or values.shape[1] is None else _count_packed
    if thresholds.shape[1] == 1:
        return count(values, thresholds, lowest)

    # A loop over the columns, up to the last one that holds a threshold in any list.
    # The columns are `[P, batch, 1]`, both counts of each `[P, batch, 2]`.
    columns = tf.transpose(thresholds)[..., tf.newaxis]
    lowest_columns = tf.transpose(lowest)[..., tf.newaxis]
    is_number = tf.cast(thresholds == thresholds, values.dtype)
    num_visited = _positives.num_used_columns(is_number)
    rows = tf.range(tf.shape(columns)[0])[:, tf.newaxis, tf.newaxis]

    def step(index: Tensor, counts: Tensor) -> TensorPair:
        both = count(values, columns[index], lowest_columns[index])
        of_column = tf.concat(both, axis=1)
        return index + 1, tf.where(rows == index, of_column, counts)

    zeros = tf.zeros(tf.concat([tf.shape(columns)[:2], [2]], axis=0), tf.int32)
    _, counts = tf.while_loop(lambda index, _: index < num_visited, step, (0, zeros))
    greater, equal = tf.unstack(tf.transpose(counts, [1, 0, 2]), axis=-1)
    return greater, equal


def _count(values: Tensor, threshold: Tensor, lowest: Tensor) -> TensorPair:
    """`count_one_by_one` of one threshold a list, `[batch, 1]` each."""
    greater = tf.math.count_nonzero(values > threshold, 1, True, tf.int32)
    at_least = tf.math.count_nonzero(values >= lowest, 1, True, tf.int32)
    return greater, at_least - greater


@tf.function(jit_compile=True, autograph=False)
def _count_packed(values: Tensor, threshold: Tensor, lowest: Tensor) -> TensorPair:
    """As `_count`, of lists whose width is known."""
    # One float32 holds both counts of fewer than 2**12 values. On a CPU a product of
    # matrices adds them up, in a twentieth of the time of two counts for 256 x 16,384
    # scores. Other devices may round its factors to fewer digits.
    limit = 2**12
    width = values.shape[1]
    blocks = -(-width // (limit - 1))
    size = -(-width // blocks)
    num_missing = blocks * size - width
    nan = tf.constant(float("nan"), values.dtype)  # It is in no count.
    values = tf.pad(values, [[0, 0], [0, num_missing]], constant_values=nan)
    values = tf.reshape(values, [-1, blocks, size])

    greater = tf.cast(values > threshold[..., tf.newaxis], tf.float32)
    at_least = tf.cast(values >= lowest[..., tf.newaxis], tf.float32)
    packed = greater + limit * at_least
    if sizes.device_type() == "CPU":
        sums = tf.linalg.matvec(packed, tf.ones([size]))
    else:
        sums = tf.reduce_sum(packed, axis=-1)
    packed = tf.cast(sums, tf.int32)
    greater = tf.reduce_sum(packed % limit, axis=1, keepdims=True)
    at_least = tf.reduce_sum(packed // limit, axis=1, keepdims=True)
    return greater, at_least - greater


def _highest_items(values: Tensor, depth: int) -> TensorPair:
    """The highest values, at most `depth`, and their columns; NaN is below the rest."""
    lowest = tf.constant(-float("inf"), values.dtype)
    without_nan = tf.where(tf.math.is_nan(values), lowest, values)
    return search.top_k(without_nan, smaller(depth, width_of(values)))


def _count_among(top: Tensor, values: Tensor, thresholds: Tensor) -> TensorPair:
    """As `count_one_by_one`, but 0 for a threshold below those of `_highest_items`."""
    lowest = top[:, -1:]
    above = searchsorted(-top, -thresholds, side="left")
    equal = searchsorted(-top, -thresholds, side="right") - above
    # The top need not hold all values that equal its lowest one.
    num_lowest = tf.math.count_nonzero(values == lowest, 1, True, tf.int32)
    equal = tf.where(thresholds == lowest, num_lowest, equal)
    return _zeros_unless(thresholds >= lowest, (above, equal))


def _zeros_unless(condition: Tensor, counts: TensorPair) -> TensorPair:
    above, tied = counts
    return tf.where(condition, above, 0), tf.where(condition, tied, 0)


def over_ranks(
    formula: Callable,
    labels: Labels,
    dtype: tf.DType,
    depth: int | None = None,
    reads: str = "all",
) -> Any:
    """Applies a formula without gradients to positives' ranks, float32 or float64."""
    # The formula takes `Ranks`, or `BestPositive` if it reads the best; the shape of
    # its result must not depend on their number of columns. With a depth, only so many
    # ranks matter. `reads` is "all" positives; the "best", those with the highest
    # score; or "leading": the positives among the first `depth` ranks, the `depth` most
    # relevant ones (for the ideal order), and the number of positives. Where items have
    # weights, "leading" means "all".
    if reads == "best":
        return formula(_best_of_labels(labels, dtype))

    def on_positives(class_ids: Tensor, relevance: Tensor) -> Any:
        scores, mask = labels.scores, labels.mask
        ranks = _checked_ranks(scores, class_ids, relevance, mask, depth, dtype)
        if labels.item_weights is not None:
            ids = tf.maximum(class_ids, 0)
            weights = tf.gather(labels.item_weights, ids, batch_dims=1)
            weights = tf.where(class_ids >= 0, tf.cast(weights, dtype), 0)
            ranks = ranks._replace(weights=weights)
        return formula(ranks)

    n = labels.scores.shape[1]
    is_plain = labels.class_ids is None and labels.item_weights is None
    may_search = reads == "leading" and is_plain and n is not None
    if may_search and depth is not None and n > _LONG * depth:
        ranks, is_whole = _leading_ranks(labels, dtype, depth)
        return tf.cond(
            is_whole,
            lambda: formula(ranks),
            lambda: on_positives(labels.positives, labels.relevance),
        )
    return over_positives(on_positives, labels)


def _best_of_labels(labels: Labels, dtype: tf.DType) -> BestPositive:
    """`BestPositive` of `Labels`, by a maximum and one count."""
    ids = labels.class_ids
    num_items = _num_items(labels.scores, labels.mask, dtype)
    scores = _without_masked(labels.scores, labels.mask)
    if ids is not None and labels.max_positives == 1:
        above, tied = _count_above_and_tied(scores, ids, None)
        return BestPositive(
            above=tf.cast(above[:, 0], dtype),
            tied=tf.cast(tied[:, 0], dtype),
            num_positives=tf.cast(tied[:, 0] > 0, dtype),
            num_items=num_items,
            max_items=width_of(scores),
            max_positives=1,
        )

    positives = scores
    if ids is not None:
        positives = tf.gather(scores, tf.maximum(ids, 0), batch_dims=1)
    may_hit = (labels.relevance > 0) & ~tf.math.is_nan(positives)
    lowest = tf.constant(-float("inf"), scores.dtype)
    best = tf.reduce_max(tf.where(may_hit, positives, lowest), axis=1, keepdims=True)
    is_best = may_hit & (positives == best)
    num_best = tf.math.count_nonzero(is_best, axis=1, dtype=tf.int32)
    above, tied = _zeros_unless(
        num_best[:, tf.newaxis] > 0, count_one_by_one(scores, best)
    )
    bound = width_of(positives)
    if ids is None and labels.max_positives != 1 and not raising.in_xla():
        bound = tf.maximum(tf.reduce_max(num_best), 1)
    return BestPositive(
        above=tf.cast(above[:, 0], dtype),
        tied=tf.cast(tied[:, 0], dtype),
        num_positives=tf.cast(num_best, dtype),
        num_items=num_items,
        max_items=width_of(scores),
        max_positives=bound,
    )


def _leading_ranks(labels: Labels, dtype: tf.DType, depth: int) -> tuple[Ranks, Tensor]:
    """`Ranks` of positives among the highest items, and of the most relevant ones."""
    # Only the former may be hits. The boolean is False if others tie with the last of
    # the highest.
    scores = _without_masked(labels.scores, labels.mask)
    relevance = labels.relevance
    top, items = _highest_items(scores, depth)
    top_relevance = tf.gather(relevance, items, batch_dims=1)
    top_scores = tf.gather(scores, items, batch_dims=1)

    def num_ties(scores: Tensor, relevance: Tensor) -> Tensor:
        tied = (scores == top[:, -1:]) & (relevance > 0)
        return tf.math.count_nonzero(tied, axis=1, dtype=tf.int32)

    num_in_top = num_ties(top_scores, top_relevance)
    is_whole = tf.reduce_all(num_ties(scores, relevance) == num_in_top)

    nan = tf.constant(float("nan"), scores.dtype)
    counts = _count_among(top, scores, tf.where(top_relevance > 0, top_scores, nan))
    # The most relevant positives that are not among the highest items have counts of 0.
    above, tied = counts
    missing = [[0, 0], [0, items.shape[1]]]
    highest_relevance, most_relevant = search.top_k(relevance, items.shape[1])
    is_same = most_relevant[..., tf.newaxis] == items[:, tf.newaxis]
    is_in_top = tf.reduce_any(is_same, axis=-1)
    others = tf.where(is_in_top, tf.zeros_like(highest_relevance), highest_relevance)
    relevance = tf.concat([top_relevance, others], axis=1)
    ranks = Ranks(
        above=tf.cast(tf.pad(above, missing), dtype),
        tied=tf.cast(tf.pad(tied, missing), dtype),
        relevance=tf.cast(relevance, dtype),
        num_items=_num_items(scores, labels.mask, dtype),
        max_items=width_of(scores),
        counted=tf.cast(labels.num_positives, dtype),
    )
    return ranks, is_whole
