"""Pairs of queries and candidates."""

import numpy as np
import pytest

from .two_towers import FEATURES, IDS, NUM_CANDIDATES


@pytest.fixture
def candidates():
    features = np.random.default_rng(5).normal(size=(NUM_CANDIDATES, FEATURES))
    return {"id": IDS, "features": features.astype("float32")}


@pytest.fixture
def pairs(rng, candidates):
    """Features of 24 queries and of a candidate of each, some of them the same."""
    own = rng.integers(0, 12, 24)
    queries = candidates["features"][own] + 0.1 * rng.normal(size=(24, FEATURES))
    return queries.astype("float32"), {k: v[own] for k, v in candidates.items()}


@pytest.fixture
def seen(rng):
    """Ids to leave out, padded, one of them of no candidate."""
    ids = IDS[
        np.stack([rng.choice(NUM_CANDIDATES, 4, replace=False) for _ in range(24)])
    ]
    ids[::3, 0] = -1
    ids[::5, 1] = 5000
    return ids
