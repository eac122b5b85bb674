"""Shared code of the scripts about sorters: SoDeep's lists (2019), their ranks, and the measures.

Everything is NumPy except what calls a sorter. A sorter is anything that maps scores `[batch, d]`
to ranks `[batch, d]`, 1 for the best. Errors and slopes are computed from ranks / d, as in the
paper.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

KINDS = 10
TEST_LISTS = 10_000
TEST_LENGTH = 100
TEST_SEED = 2019
# A slope nearer to zero than this counts as vanishing; on U(-1, 1) the ideal is -0.5.
VANISHING = 0.05


def draw_lists(rng: np.random.Generator, count: int, length: int) -> np.ndarray:
    """Lists of the ten kinds that SoDeep trains and tests on.

    The kind of each list is drawn uniformly from ten: U(-1, 1), which counts three times; N(0, 1);
    evenly spaced from a to b, both U(0, 1), without the end; the same shuffled; s items U(-1, 1)
    and then N(0, 1), which counts twice; s shuffled evenly spaced items and then U(-1, 1); a rising
    grid from -1 to 1. s is uniform in 1..length.

    Args:
        rng: where the numbers come from.
        count: how many lists.
        length: how many items each has.

    Returns:
        Scores, float32 `[count, length]`.
    """
    kinds = rng.integers(KINDS, size=count)[:, None]
    uniform = rng.uniform(-1, 1, (count, length))
    normal = rng.standard_normal((count, length))
    place = np.arange(length)
    first = place < rng.integers(1, length + 1, size=count)[:, None]
    start, end = rng.random((2, count, 1))
    keys = rng.random((count, length))
    # In the last but one kind, the first s items are s shuffled steps: their keys sort first.
    shuffled = np.argsort(np.where((kinds == 8) & ~first, 2, keys), axis=1)
    steps = np.where(kinds == 8, first.sum(axis=1, keepdims=True), length)
    spaced = start + (end - start) * np.where((kinds == 5) | (kinds == 8), shuffled, place) / steps
    rising = np.linspace(-1, 1, length)
    scores = np.select(
        [kinds < 3, kinds == 3, kinds <= 5, kinds <= 7, kinds == 8],
        [
            uniform,
            normal,
            spaced,
            np.where(first, uniform, normal),
            np.where(first, spaced, uniform),
        ],
        rising,
    )
    return scores.astype(np.float32)


def exact_ranks(scores: np.ndarray) -> np.ndarray:
    """Descending ranks, 1 for the best; equal scores share the mean of their ranks.

    Args:
        scores: `[count, length]`.

    Returns:
        float32 `[count, length]`.
    """
    order = np.argsort(-scores, axis=1, kind="stable")
    ranks = np.empty(scores.shape, np.float32)
    ranks_in_order = np.arange(1, scores.shape[1] + 1, dtype=np.float32)
    np.put_along_axis(ranks, order, np.broadcast_to(ranks_in_order, scores.shape), axis=1)
    ordered = np.take_along_axis(scores, order, axis=1)
    tied = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
    for row in tied:  # Few lists have equal scores.
        _, inverse, counts = np.unique(-scores[row], return_inverse=True, return_counts=True)
        ranks[row] = (np.cumsum(counts) - (counts - 1) / 2)[inverse.reshape(-1)]
    return ranks


def test_lists(count: int = TEST_LISTS, length: int = TEST_LENGTH) -> np.ndarray:
    """The lists on which every figure is measured; they are always the same."""
    return draw_lists(np.random.default_rng([TEST_SEED, length]), count, length)


def _batches(scores: np.ndarray, size: int) -> Iterator[np.ndarray]:
    return (scores[start : start + size] for start in range(0, len(scores), size))


def mean_rank_error(
    sorter: Callable[[tf.Tensor], Any], scores: np.ndarray, batch_size: int = 500
) -> float:
    """Mean over all items of |soft rank - rank| / d; a constant sorter has 0.25."""
    run = tf.function(sorter, reduce_retracing=True)
    ranks = [np.asarray(run(tf.constant(part))) for part in _batches(scores, batch_size)]
    return float(np.abs(np.concatenate(ranks) - exact_ranks(scores)).mean() / scores.shape[1])


def own_slopes(
    sorter: Callable[[tf.Tensor], Any],
    count: int = 10_000,
    length: int = TEST_LENGTH,
    batch_size: int = 500,
) -> np.ndarray:
    """How the rank over d of an item changes with its own score, for one item of each list.

    Args:
        sorter: maps scores to ranks.
        count: how many lists, U(-1, 1).
        length: how many items each has.
        batch_size: how many lists at once.

    Returns:
        The slopes, `[count]`; -0.5 is ideal.
    """
    rng = np.random.default_rng([TEST_SEED, length, 1])
    scores = rng.uniform(-1, 1, (count, length)).astype(np.float32)
    # The place of an item matters to a sorter that reads the list in order.
    chosen = np.eye(length, dtype=np.float32)[rng.integers(length, size=count)]

    @tf.function(reduce_retracing=True)
    def gradient(scores, chosen):
        with tf.GradientTape() as tape:
            tape.watch(scores)
            ranks = tf.reduce_sum(tf.cast(sorter(scores), tf.float32) * chosen)
        return tf.reduce_sum(tape.gradient(ranks, scores) * chosen, axis=1)

    pairs = zip(_batches(scores, batch_size), _batches(chosen, batch_size), strict=True)
    slopes = [gradient(tf.constant(s), tf.constant(c)).numpy() for s, c in pairs]
    return np.concatenate(slopes) / length


def slope_shares(slopes: np.ndarray) -> dict[str, float]:
    """Shares of the slopes that vanish (nearer to 0 than 0.05) and that have the wrong sign."""
    return {
        "vanishing_slopes": float((np.abs(slopes) < VANISHING).mean()),
        "wrong_slopes": float((slopes > 0).mean()),
        "median_slope": float(np.median(slopes)),
    }


def measure(
    sorter: Callable[[tf.Tensor], Any],
    lengths: Iterable[int] = (TEST_LENGTH,),
    count: int = TEST_LISTS,
) -> dict[str, float]:
    """All figures of a sorter: `l1_<length>` for each length, and the shares at the first one.

    Args:
        sorter: maps scores to ranks.
        lengths: lengths of the lists; the slopes are measured at the first length.
        count: how many lists of each length.
    """
    lengths = list(lengths)
    errors = {
        f"l1_{length}": mean_rank_error(sorter, test_lists(count, length)) for length in lengths
    }
    return {**errors, **slope_shares(own_slopes(sorter, count, lengths[0]))}
