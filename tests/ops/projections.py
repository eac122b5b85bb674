"""NumPy references in float64: everything by bisection on what is monotone."""

import numpy as np


def bisect(too_low, low, high):
    """Where the monotone `too_low` turns from True to False."""
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if too_low(middle) else (low, middle)
    return (low + high) / 2


def euclidean(z, k, alpha=1.0):
    """The Euclidean projection of one list."""
    z = alpha * np.asarray(z, np.float64)
    mu = bisect(lambda mu: np.clip(z - mu, 0, 1).sum() > k, z.min() - 2, z.max())
    return np.clip(z - mu, 0, 1)


def entropy(z, k, alpha=1.0):
    """The entropy projection of one list."""
    z = alpha * np.asarray(z, np.float64)
    log_z = bisect(
        lambda c: np.minimum(1, np.exp(np.minimum(z - c, 1))).sum() > k, z.min() - 2, z.max() + 50
    )
    return np.minimum(1, np.exp(np.minimum(z - log_z, 1)))


def rankmax(z, y, k, margin=1.0):
    """The Rankmax projection of one list for the label y."""
    z = np.asarray(z, np.float64)
    d = z - (min(z[y], np.sort(z)[-k]) - margin)
    log_alpha = bisect(lambda a: np.clip(np.exp(a) * d, 0, 1).sum() < k, -80.0, 80.0)
    return np.clip(np.exp(log_alpha) * d, 0, 1)


def rankmax_loss(z, ids, k, margin=1.0):
    """The Rankmax loss of one list."""
    return -sum(np.log(rankmax(z, y, k, margin)[y]) for y in ids)


def fenchel_young(z, ids, k, regularizer, alpha=1.0):
    """The Fenchel-Young loss of one list, from its definition."""
    z = np.asarray(z, np.float64)
    k = min(k, len(ids))
    y = np.zeros(len(z))
    y[ids] = k / len(ids)

    def omega(x):
        if regularizer == "euclidean":
            return (x**2).sum() / 2 / alpha
        return (x * np.log(np.where(x > 0, x, 1))).sum() / alpha

    x = {"euclidean": euclidean, "entropy": entropy}[regularizer](z, k, alpha)
    return z @ x - omega(x) + omega(y) - z @ y


def slope(function, z, step=1e-6):
    """The gradient of a function of one list by central differences."""
    z = np.asarray(z, np.float64)
    return np.array(
        [(function(z + e) - function(z - e)) / (2 * step) for e in np.eye(len(z)) * step]
    )
