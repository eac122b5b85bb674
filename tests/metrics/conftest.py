"""Lists for metrics, and labels and scores of a dataset."""

import numpy as np
import pytest


@pytest.fixture
def scores(rng):
    return rng.permutation(40 * 12).reshape(40, 12).astype("float32")


@pytest.fixture
def relevance(rng):
    labels = rng.choice([0.0, 0.0, 0.0, 1.0, 2.0], (40, 12))
    labels[:, 3] = 1
    return labels


@pytest.fixture
def columns(rng):
    """Labels and scores of 60 examples in 4 columns."""
    labels = (rng.random((60, 4)) < 0.3).astype("float32")
    labels[:, 0] *= rng.integers(1, 4, 60)
    noisy = labels + rng.normal(size=(60, 4))
    noisy[:, 1] = np.round(noisy[:, 1])
    return labels, noisy.astype("float32")
