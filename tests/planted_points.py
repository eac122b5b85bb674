"""Files of points with one to three labels, which their features can predict."""

import numpy as np

from rank4class_tf import data


def write(path, num_points, num_features, num_labels, seed=1):
    """Writes points in the format of `data.extreme_classification`; returns the path.

    A label of rank r is drawn with a probability proportional to 1 / r. It has eight
    features, the same for all seeds, of which a point has 60 %, and three others.
    """
    own = np.random.default_rng(0).integers(0, num_features, (num_labels, 8))
    rng = np.random.default_rng(seed)
    shares = np.cumsum(1 / np.arange(1, num_labels + 1))
    points = []
    for _ in range(num_points):
        draws = rng.random(rng.integers(1, 4)) * shares[-1]
        labels = np.unique(np.searchsorted(shares, draws, side="right"))
        signs = own[labels].ravel()
        signs = signs[rng.random(len(signs)) < 0.6]
        ids = np.unique(np.concatenate([signs, rng.integers(0, num_features, 3)]))
        points.append((labels.tolist(), ids.tolist(), [1.0] * len(ids)))
    data.write_extreme_classification(path, points, num_features, num_labels)
    return str(path)
