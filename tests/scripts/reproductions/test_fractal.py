"""Statistics of expansions, on a small archive of MovieLens's form."""

import numpy as np
import pytest
import scipy.sparse

from scripts.reproductions import fractal
from tests.scripts.reproductions import movielens_files


def test_prints_the_statistics(tmp_path, capsys):
    path = movielens_files.write(tmp_path / "ml-tiny.zip")
    found = fractal.main([f"--ratings={path}", "--rows=4", "--columns=5", "--num-pairs=1500"])
    assert "| blocks shuffled |" in capsys.readouterr().out
    # 24 users with 9 films each.
    assert (found["ratings"]["users"], found["ratings"]["pairs"]) == ("24", "216")
    assert found["ratings"]["Gini, users"] == "0.000"
    # Shuffling moves pairs and loses none.
    assert found["blocks shuffled"]["pairs"] == found["expansion"]["pairs"]
    assert int(found["expansion"]["pairs"].replace(",", "")) == pytest.approx(1500, rel=0.1)


def test_gini():
    assert fractal.gini(np.array([3.0, 3.0, 0.0, 3.0])) == pytest.approx(0)
    # The mean difference of two counts, |1 - 3| in half of the pairs, over twice the mean.
    assert fractal.gini(np.array([1.0, 3.0])) == pytest.approx((2 / 2) / (2 * 2))


def test_singular_values_are_over_the_first():
    values = np.diag(np.arange(20.0, 8, -1))
    found = fractal.statistics(scipy.sparse.csr_matrix(values))
    assert found["singular values 2, 3, 5, 10"] == "0.95, 0.90, 0.80, 0.55"
