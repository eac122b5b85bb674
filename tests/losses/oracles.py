"""The losses of one list by definition: NumPy, float64, all pairs.

Each takes the scores `s` and the labels `y` of the items that are there, where the loss
has them the weights `w` of these items, and the options of the loss by their names.
"""

import math

import numpy as np

from ..ops import projections


def reduced(total, y, positive_reduction):
    return total / y.sum() if positive_reduction == "mean" else total


def softmax(
    s, y, w=1.0, temperature=1.0, label_smoothing=0.0, positive_reduction="sum"
):
    s = s / temperature
    share = (1 - label_smoothing) * y + label_smoothing * y.sum() / len(y)
    return reduced(
        -(w * share * (s - np.logaddexp.reduce(s))).sum(), y, positive_reduction
    )


def generalized_cross_entropy(s, y, q=0.7):
    share = np.exp(s - np.logaddexp.reduce(s))
    return (y * (1 - share**q)).sum() / q


def rankmax(s, y, k=1, margin=1.0, positive_reduction="sum"):
    ids = np.flatnonzero(y > 0)
    share = projections.rankmax(s, ids, k, margin)[np.arange(len(ids)), ids]
    return reduced(-(y[ids] * np.log(share)).sum(), y, positive_reduction)


def fenchel_young(s, y, regularizer="euclidean", k=1, alpha=1.0):
    """Omega*(s) + Omega(t) - <s, t>, with the target t uniform over the positives."""
    if alpha == "adaptive":  # For each positive that of its Rankmax: x_y = alpha.
        ids = np.flatnonzero(y > 0)
        alphas = projections.rankmax(s, ids, 1)[np.arange(len(ids)), ids]
        x = projections.euclidean(s, 1, alphas[:, None])
        return y[ids] @ (x @ s - s[ids] + (1 - (x**2).sum(axis=1)) / 2 / alphas)
    k = min(k, (y > 0).sum())
    target = k * (y > 0) / (y > 0).sum()

    def omega(x):
        if regularizer == "euclidean":
            return (x**2).sum() / 2 / alpha
        return (x * np.log(np.where(x > 0, x, 1))).sum() / alpha

    x = getattr(projections, regularizer)(s, k, alpha)
    return s @ x - omega(x) + omega(target) - s @ target


def discount(rank):
    return 1 / np.log2(1 + rank)


def weights_of_pairs(i, s, y, top_k=None, smooth_fraction=0.0):
    """Of the items `i [P, 1]` and all, by LambdaLoss.

    Of tied items the more relevant one ranks last, the less relevant first.
    """
    n = len(s)
    k = n if top_k is None else top_k
    last = (s >= s[i]).sum(axis=1)[:, None]
    first = 1 + (s > s[:, None]).sum(axis=1)
    gain = 2.0**y - 1
    gain /= (np.sort(gain)[::-1][:k] * discount(np.arange(1, n + 1))[:k]).sum()
    apart = abs(last - first)
    relative = discount(np.maximum(apart, 1)) - discount(apart + 1)
    cut = [np.where(rank <= k, discount(rank), 0) for rank in (last, first)]
    weight = (1 - smooth_fraction) * np.where(apart > 0, relative, 0)
    weight += smooth_fraction * abs(cut[0] - cut[1])
    return n * weight * (np.minimum(last, first) <= k) * abs(gain[i] - gain)


def pairs(s, y, w, pair_loss, lambda_weights=None, label_smoothing=0.0):
    """`pair_loss(s_i - s_j)` over pairs with `y_i > y_j`, some the other way round."""
    i = np.flatnonzero(y > 0)[:, None]
    d = s[i] - s
    losses = (1 - label_smoothing) * pair_loss(d) + label_smoothing * pair_loss(-d)
    if lambda_weights is not None:
        losses *= weights_of_pairs(
            i, s, y, lambda_weights.top_k, lambda_weights.smooth_fraction
        )
    return (np.ones(len(s)) * w)[i[:, 0]] @ (losses * (y[i] > y)).sum(axis=1)


def pairwise_logistic(s, y, w=1.0, temperature=1.0, **options):
    return pairs(s, y, w, lambda d: np.logaddexp(0, -d / temperature), **options)


def pairwise_hinge(s, y, w=1.0, margin=1.0, **options):
    return pairs(s, y, w, lambda d: np.maximum(0, margin - d), **options)


def pairwise_soft_zero_one(s, y, w=1.0, temperature=1.0, **options):
    return pairs(s, y, w, lambda d: (1 - np.tanh(d / 2 / temperature)) / 2, **options)


def pairwise_mean_squared(s, y, w=1.0):
    """Of an item alone it is 0."""
    n = len(s)
    errors = s - y
    squares = (errors[:, None] - errors) ** 2
    return (w * squares.sum(axis=1)).sum() / max(n * (n - 1), 1)


def mean_weight(y, w):
    """What weights of items make of the loss of a list that they weigh as a whole."""
    return (w * y).sum() / y.sum()


def soft_ranks(s, temperature):
    """Of scores `[..., n]`."""
    above = (1 + np.tanh((s[..., None, :] - s[..., None]) / 2 / temperature)) / 2
    return 0.5 + above.sum(axis=-1)


def approx_ndcg(
    s, y, w=1.0, temperature=0.1, gain="exponential", discount="logarithmic"
):
    gain = 2.0**y - 1 if gain == "exponential" else y
    of_rank = {
        "logarithmic": lambda r: 1 / np.log2(1 + r),
        "reciprocal": lambda r: 1 / r,
    }[discount]
    ideal = (np.sort(gain)[::-1] * of_rank(np.arange(1, len(y) + 1))).sum()
    return (
        -mean_weight(y, w)
        * (gain * of_rank(soft_ranks(s, temperature))).sum(axis=-1)
        / ideal
    )


def approx_mrr(s, y, w=1.0, temperature=0.1):
    return -mean_weight(y, w) * (y / soft_ranks(s, temperature)).sum(axis=-1) / y.sum()


def over_gumbel_noise(loss):
    """Its mean, by many samples."""

    def mean(s, y, num_samples, gumbel_temperature=1.0, **options):
        noise = np.random.default_rng(0).gumbel(size=(100_000, len(s)))
        return loss((s + noise) / gumbel_temperature, y, **options).mean()

    return mean


def unique_softmax(s, y, w=1.0, temperature=1.0):
    s = s / temperature
    total = 0.0
    for i in np.flatnonzero(y > 0):
        rivals = np.append(s[y < y[i]], s[i])
        total += (2.0 ** y[i] - 1) * (np.logaddexp.reduce(rivals) - s[i])
    return mean_weight(y, w) * total


def list_mle(s, y, w=1.0, temperature=1.0):
    s = s / temperature
    terms = [np.logaddexp.reduce(s[y <= y[i]]) - s[i] for i in np.flatnonzero(y > 0)]
    return mean_weight(y, w) * sum(terms)


def mean_squared(s, y, w=1.0, positive_weight=1.0, positive_target=1.0):
    return (
        w * np.where(y > 0, positive_weight, 1) * (s - positive_target * y) ** 2
    ).mean()


def sigmoid_cross_entropy(s, y, w=1.0, positive_power=1.0):
    positive = positive_power * y * np.logaddexp(0, -s)
    return (w * (positive + (1 - y) * np.logaddexp(0, s))).sum()


PHIS = {
    "hinge": lambda u: np.maximum(0, 1 - u),
    "squared_hinge": lambda u: np.maximum(0, 1 - u) ** 2,
    "logistic": lambda u: np.log2(1 + np.exp(-u)),
    "exponential": lambda u: np.exp(-u),
    "ramp": lambda u: np.clip(1 - u, 0, 1),
    "above_one": lambda u: 1 + np.log2(1 + np.exp(-u)),
}


def phi_of(phi, u):
    """A margin function, of its name, a function of that name, `Scaled` or `Ramp`."""
    phi = getattr(phi, "__name__", phi)
    if isinstance(phi, str):
        return PHIS[phi](u)
    scale = phi.scale if hasattr(phi, "scale") else 1 / phi.width
    return PHIS[getattr(phi, "phi", "ramp")](scale * u)


def theta_of(rank_weights, n):
    """The weights of the ranks 1 to n: of a list, or of one of the classes for them."""
    j = np.arange(1, n + 1)
    match type(rank_weights).__name__:
        case "TopKWeights":
            return np.where(j <= rank_weights.k, 1 / rank_weights.k, rank_weights.tail)
        case "UniformWeights":
            return np.ones(n)
        case "PowerLawWeights":
            return 1 / j**rank_weights.exponent
        case "StaircaseWeights":
            ends, weights = zip(*rank_weights.steps, strict=True)
            return np.select([j <= end for end in ends], weights, rank_weights.tail)
        case _:
            return np.array([*rank_weights, *[0.0] * n])[:n]


def ordered_weighted(s, y, kind="pairwise", phi="hinge", rank_weights=(1.0,)):
    """Of the negatives in the order of their scores."""
    negatives = np.sort(s[y <= 0])[::-1]
    theta = theta_of(rank_weights, len(negatives))
    total = 0.0
    for own, w in zip(s[y > 0], y[y > 0], strict=True):
        if kind == "pairwise":
            total += w * theta @ phi_of(phi, own - negatives)
        else:
            total += w * (phi_of(phi, own) + theta @ phi_of(phi, -negatives))
    return total


def stochastic_negative_mining(
    s, y, num_sampled, rank_weights, rescale=True, **options
):
    """The mean over all samples, which weighs each of N negatives as lemma 2 says."""
    b = num_sampled
    n = int((y <= 0).sum())
    ways = [
        [math.comb(j, i) * math.comb(n - 1 - j, b - 1 - i) for i in range(b)]
        for j in range(n)
    ]
    weights = np.array(ways) @ theta_of(rank_weights, b) / math.comb(n, b)
    return ordered_weighted(
        s, y, rank_weights=weights * (n / b if rescale else 1), **options
    )


def warp(s, y, rank_weights, margin=1.0, num_trials=None):
    """With trials the mean: draw t violates first with chance (1 - q)^(t - 1) q."""
    total = 0.0
    n = (y <= 0).sum()
    for own, w in zip(s[y > 0], y[y > 0], strict=True):
        excess = np.maximum(0, s[y <= 0] - own + margin)
        violators = (excess > 0).sum()
        q = violators / max(n, 1)
        shares = [(violators, 1 / max(violators, 1))]
        if num_trials:
            shares = [
                (n // t, (1 - q) ** (t - 1) / n) for t in range(1, num_trials + 1)
            ]
        total += (
            w
            * excess.sum()
            * sum(x * theta_of(rank_weights, r).sum() for r, x in shares)
        )
    return total


def gradient(function, s, step=1e-6):
    """By central differences."""
    s = np.asarray(s, np.float64)
    shifts = step * np.eye(len(s))
    return np.array([function(s + shift) - function(s - shift) for shift in shifts]) / (
        2 * step
    )
