"""NumPy references in float64: everything by bisection on what is monotone."""

import numpy as np


def bisect(too_low, low, high):
    """Where the monotone `too_low` turns from True to False, of numbers or arrays."""
    for _ in range(100):
        middle = (low + high) / 2
        is_low = too_low(middle)
        low = np.where(is_low, middle, low)
        high = np.where(is_low, high, middle)
    return (low + high) / 2


def euclidean(z, k, alpha=1.0):
    """Of one list, or of one for each of `alpha [P, 1]`."""
    z = alpha * np.asarray(z, np.float64)
    is_low = lambda mu: np.clip(z - mu, 0, 1).sum(axis=-1, keepdims=True) > k  # noqa: E731
    mu = bisect(is_low, z.min() - 2, z.max())
    return np.clip(z - mu, 0, 1)


def entropy(z, k, alpha=1.0):
    z = alpha * np.asarray(z, np.float64)
    low = z.min() - 2
    high = z.max() + 50
    log_z = bisect(
        lambda c: np.minimum(1, np.exp(np.minimum(z - c, 1))).sum() > k, low, high
    )
    return np.minimum(1, np.exp(np.minimum(z - log_z, 1)))


def rankmax(z, ids, k, margin=1.0):
    """The Rankmax projections of one list for labels `[P]`, `[P, n]`."""
    z = np.asarray(z, np.float64)
    d = z - (np.minimum(z[ids], np.sort(z)[-k]) - margin)[:, None]
    low = np.full((len(d), 1), -80.0)
    log_alpha = bisect(
        lambda a: np.clip(np.exp(a) * d, 0, 1).sum(1, keepdims=True) < k, low, -low
    )
    return np.clip(np.exp(log_alpha) * d, 0, 1)
