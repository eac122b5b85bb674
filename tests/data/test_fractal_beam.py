"""The expansion by Apache Beam, on its DirectRunner."""

import numpy as np
import pytest

beam = pytest.importorskip("apache_beam")

from apache_beam.testing.util import assert_that  # noqa: E402

from rank4class_tf import data  # noqa: E402
from rank4class_tf.data import fractal_beam  # noqa: E402


def load():
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, 20, 60), rng.integers(0, 30, 60)
    return data.fractal_expansion(data.UserItems.from_pairs([pairs]), rows=3, columns=4)


def test_makes_the_users_of_the_expansion():
    lists = load().users(0, load().num_users).to_list()
    expected = [(user, items) for user, items in enumerate(lists) if items]
    assert len(expected) < len(lists)

    def check(found):
        assert sorted((user, items.tolist()) for user, items in found) == expected

    with beam.Pipeline(runner="DirectRunner") as pipeline:
        assert_that(pipeline | fractal_beam.FractalUsers(load, users_per_block=7), check)
