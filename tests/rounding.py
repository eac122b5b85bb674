"""How far two orders of one sum may lie apart in float32."""

import numpy as np
from numpy.testing import assert_allclose


def rounding(n: int) -> float:
    """The difference of two sums of n products relative to the sum of their magnitudes.

    In any order such a sum is within n u of the exact one, u = 2^-24, and two are
    within n 2^-23. Processors, batch sizes, blocks and shards differ in the order.
    """
    return n * 2.0**-23


def longest_sum(layer, size: int = 1) -> int:
    """How many numbers its longest sum has: a row or column of weights, or a list."""
    return max([size, *(max(weight.shape, default=1) for weight in layer.weights)])


def assert_same_sums(actual, expected, n: int, rtol: float = 1e-5) -> None:
    """Whether arrays `[batch, ...]` are equal but for the order of sums of n products.

    The largest number of a row stands for the magnitudes of what is summed for it: one
    that is smaller is a difference of such numbers.
    """
    expected = np.asarray(expected)
    magnitudes = np.abs(expected).max(
        axis=tuple(range(1, expected.ndim)), keepdims=True
    )
    difference = np.abs(np.asarray(actual) - expected)
    allowed = rtol * np.abs(expected) + rounding(n) * magnitudes
    assert (difference <= allowed).all(), (
        f"{(difference / allowed).max():.2f} of what is allowed"
    )


def assert_all_close(found, expected, rtol: float = 1e-5, atol: float = 0.0) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        assert_allclose(ours, theirs, rtol=rtol, atol=atol)
