"""The example of clicks, in a short form."""

import numpy as np

from examples import unbiased_ranking as example


def test_clicks_weighed_by_propensity_are_the_attraction_of_the_items():
    rng = np.random.default_rng(0)
    _, grades, ranks = example.make_lists(20_000, rng)
    clicks, propensities = example.click(grades, ranks, 1.0, rng)
    for grade, share in ((0, 0.1), (4, 1.0)):
        weighed = (clicks / propensities)[grades == grade].mean()
        np.testing.assert_allclose(weighed, share, rtol=0.05)


def test_weights_help(capsys):
    example.main(["--seeds", "2", "--lists", "600", "--epochs", "4"])
    assert "2 of 2 seeds are better with them." in capsys.readouterr().out
