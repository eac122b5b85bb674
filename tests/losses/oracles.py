"""The listwise and pairwise losses of one list, by definition: NumPy, float64, all pairs."""

import math

import numpy as np
import tensorflow as tf

from rank4class_tf import ops


def softmax(s, y, temperature=1.0):
    s = s / temperature
    return -(y * (s - s.max() - np.log(np.exp(s - s.max()).sum()))).sum()


def pairs(s, y, pair_loss, weight=None):
    """`pair_loss(s_i - s_j)` over the pairs with `y_i > y_j`."""
    losses = pair_loss(s[:, None] - s[None, :])
    weight = np.ones_like(losses) if weight is None else weight
    return (losses * weight * (y[:, None] > y[None, :])).sum()


def pairwise_logistic(s, y, temperature=1.0, weight=None):
    return pairs(s, y, lambda d: np.logaddexp(0, -d / temperature), weight)


def pairwise_hinge(s, y, margin=1.0, weight=None):
    return pairs(s, y, lambda d: np.maximum(0, margin - d), weight)


def exact_ranks(s):
    return 1.0 + (s[None, :] > s[:, None]).sum(axis=1)


def discount(rank):
    return 1 / np.log2(1 + rank)


def lambda_weights(s, y, top_k=None, smooth_fraction=0.0):
    """Of a list without tied scores."""
    rank, n = exact_ranks(s), len(s)
    k = n if top_k is None else top_k
    gain = 2.0**y - 1
    gain = gain / (np.sort(gain)[::-1][:k] * discount(np.arange(1, n + 1))[:k]).sum()
    weight = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            if i == j or min(rank[i], rank[j]) > k:
                continue
            apart = abs(rank[i] - rank[j])
            relative = discount(apart) - discount(apart + 1)
            cut = [discount(r) if r <= k else 0.0 for r in (rank[i], rank[j])]
            weight[i, j] = (1 - smooth_fraction) * relative + smooth_fraction * abs(cut[0] - cut[1])
    return n * weight * np.abs(gain[:, None] - gain[None, :])


def soft_ranks(s, temperature):
    above = 1 / (1 + np.exp(-(s[None, :] - s[:, None]) / temperature))
    return 1 + above.sum(axis=1) - np.diag(above)


def ndcg(ranks, y):
    gain = 2.0**y - 1
    ideal = (np.sort(gain)[::-1] * discount(np.arange(1, len(y) + 1))).sum()
    return (gain * discount(ranks)).sum() / ideal


def approx_ndcg(s, y, temperature=0.1):
    return -ndcg(soft_ranks(s, temperature), y)


def approx_mrr(s, y, temperature=0.1):
    return -(y / soft_ranks(s, temperature)).sum() / y.sum()


def unique_softmax(s, y, temperature=1.0):
    s = s / temperature
    total = 0.0
    for i in np.flatnonzero(y > 0):
        rivals = np.append(s[y < y[i]], s[i])
        total += (2.0 ** y[i] - 1) * (np.logaddexp.reduce(rivals) - s[i])
    return total


def list_mle(s, y, temperature=1.0):
    s = s / temperature
    return sum(np.logaddexp.reduce(s[y <= y[i]]) - s[i] for i in np.flatnonzero(y > 0))


def plackett_luce(s, order):
    """Negative log-likelihood of the first `len(order)` items being `order`."""
    total, left = 0.0, list(range(len(s)))
    for i in order:
        total += np.logaddexp.reduce(s[left]) - s[i]
        left.remove(i)
    return total


def mean_squared(s, y, positive_weight=1.0, positive_target=1.0):
    weight = np.where(y > 0, positive_weight, 1.0)
    return (weight * (s - positive_target * y) ** 2).mean()


def gradient(function, s, step=1e-6):
    """By central differences."""
    result = np.zeros_like(s)
    for i in range(len(s)):
        up, down = s.copy(), s.copy()
        up[i] += step
        down[i] -= step
        result[i] = (function(up) - function(down)) / (2 * step)
    return result


def expected_weights(rank_weights, num_sampled, num_negatives):
    """What stochastic negative mining weighs each of N negatives by in the mean: lemma 2."""
    weights = ops.get_rank_weights(rank_weights).first(num_sampled, tf.float64).numpy()
    return np.array(
        [
            sum(
                weight * math.comb(j, i) * math.comb(num_negatives - 1 - j, num_sampled - 1 - i)
                for i, weight in enumerate(weights)
            )
            for j in range(num_negatives)
        ]
    ) / math.comb(num_negatives, num_sampled)
