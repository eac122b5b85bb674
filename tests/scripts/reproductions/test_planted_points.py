"""The artificial points have the structure that they promise."""

import numpy as np
import pytest
import scipy.stats

from scripts.reproductions.planted_points import planted_points

POINTS, FEATURES, LABELS = 6000, 2000, 50


@pytest.fixture(scope="module")
def points():
    return planted_points(POINTS, FEATURES, LABELS, seed=1)


def test_form(points):
    assert len(points) == POINTS
    for labels, ids, values in points:
        assert 1 <= len(labels) <= 3
        assert labels == sorted(set(labels)) and 0 <= labels[0] and labels[-1] < LABELS
        assert ids == sorted(set(ids)) and 0 <= ids[0] and ids[-1] < FEATURES
        # Three at random, which may coincide, and at most eight for each label.
        assert 1 <= len(ids) <= 3 + 8 * len(labels)
        assert values == [1.0] * len(ids)


def test_frequencies_fall_as_one_over_the_rank(points):
    """Chi-squared of the points with one label; a second draw of the same label leaves one too."""
    single = [labels[0] for labels, _, _ in points if len(labels) == 1]
    shares = 1 / np.arange(1, LABELS + 1)
    shares /= shares.sum()
    # One draw, two equal ones or three equal ones are alike in probability.
    expected = shares + shares**2 + shares**3
    expected *= len(single) / expected.sum()
    counts = np.bincount(single, minlength=LABELS)
    assert scipy.stats.chisquare(counts, expected).pvalue > 1e-4


def test_a_label_brings_its_own_features(points):
    """Each label has eight features that its points have six times in ten, others hardly ever."""
    label = 3
    own, rest = np.zeros([2, FEATURES])
    size = [0, 0]
    for labels, ids, _ in points:
        has = label in labels
        (own if has else rest)[ids] += 1
        size[has] += 1
    shares = own / size[1]
    typical = np.argsort(-shares)[:8]
    # A standard deviation is about .02, and some features belong to other labels too.
    assert (np.abs(shares[typical] - 0.6) < 0.1).all()
    assert np.sort(shares)[-9] < 0.3
    assert (rest[typical] / size[0] < 0.3).all()


def test_seed_decides_on_the_points_and_not_on_the_features_of_a_label(points):
    assert planted_points(20, FEATURES, LABELS, seed=1) == points[:20]
    other = planted_points(POINTS, FEATURES, LABELS, seed=2)
    assert other[:20] != points[:20]
    frequent = []
    for of_seed in (points, other):
        counts = np.zeros(FEATURES)
        for labels, ids, _ in of_seed:
            if labels == [0]:
                counts[ids] += 1
        frequent.append(set(np.argsort(-counts)[:8].tolist()))
    assert frequent[0] == frequent[1]


@pytest.mark.parametrize("name", ["num_points", "num_features", "num_labels"])
@pytest.mark.parametrize("value", [0, 2.5])
def test_bad_numbers(name, value):
    arguments = {"num_points": 1, "num_features": 1, "num_labels": 1} | {name: value}
    with pytest.raises(ValueError, match=f"`{name}` must be a positive integer. Received"):
        planted_points(**arguments)


@pytest.mark.parametrize("seed", [-1, 0.5, None])
def test_bad_seed(seed):
    with pytest.raises(ValueError, match="`seed` must be an integer"):
        planted_points(1, 1, 1, seed=seed)
