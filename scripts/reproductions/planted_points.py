"""Artificial points with many labels, few of which are frequent."""

import numpy as np

from rank4class_tf import _checks

_FEATURES_PER_LABEL = 8
_KEPT = 0.6
_NOISE = 3


def planted_points(
    num_points: int, num_features: int, num_labels: int, seed: int = 0
) -> list[tuple[list[int], list[int], list[float]]]:
    r"""Draws points with a long tail of labels, which can be predicted from their features.

    A label of rank r has a probability proportional to $1 / r$, and eight features of its own,
    drawn once. A point has one to three labels, about 60 % of the features of each, and three
    random features. All values are 1.

    Args:
        num_points: number of points, >= 1.
        num_features: number of features, >= 1.
        num_labels: number of labels, >= 1.
        seed: seed of the points, in [0, 2**32). The features of a label are the same for all seeds.

    Returns:
        A list of `(labels, feature_ids, feature_values)`, for `write_extreme_classification`.

    Raises:
        ValueError: if a number is not a positive integer, or the seed out of range.

    Example:
        >>> points = planted_points(3, num_features=100, num_labels=20)
        >>> len(points)
        3
    """
    num_points = _checks.positive_int("num_points", num_points)
    num_features = _checks.positive_int("num_features", num_features)
    num_labels = _checks.positive_int("num_labels", num_labels)
    own = np.random.default_rng(0).integers(0, num_features, (num_labels, _FEATURES_PER_LABEL))
    rng = np.random.default_rng(_checks.seed(seed))
    shares = np.cumsum(1 / np.arange(1, num_labels + 1))
    points = []
    for _ in range(num_points):
        draws = rng.random(rng.integers(1, 4)) * shares[-1]
        labels = np.unique(np.searchsorted(shares, draws, side="right"))
        signs = own[labels].ravel()
        signs = signs[rng.random(len(signs)) < _KEPT]
        ids = np.unique(np.concatenate([signs, rng.integers(0, num_features, _NOISE)]))
        points.append((labels.tolist(), ids.tolist(), [1.0] * len(ids)))
    return points
