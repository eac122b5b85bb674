"""Approximate search of the classes that the other example exports."""

import sys

import numpy as np
import pytest

from examples import approximate_search as example


@pytest.fixture
def folder(tmp_path, rng):
    """500 classes and ten queries, each close to a class."""
    classes = rng.normal(size=(500, 16)).astype(np.float32)
    classes /= np.linalg.norm(classes, axis=1, keepdims=True)
    queries = classes[:10] + 0.02 * rng.normal(size=(10, 16)).astype(np.float32)
    np.save(tmp_path / "classes.npy", classes)
    np.save(tmp_path / "queries.npy", queries)
    return tmp_path


@pytest.mark.parametrize("block", [3, 7, 100])
def test_exact_search_goes_through_all_blocks(block, rng, monkeypatch):
    monkeypatch.setattr(example, "BLOCK", block)
    classes, queries = rng.normal(size=(20, 4)), rng.normal(size=(6, 4))
    expected = np.argsort(-queries @ classes.T, axis=1)[:, :5]
    np.testing.assert_array_equal(example.exact(classes, queries, 5), expected)


def test_search_is_exact_without_scann(folder, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "scann", None)
    example.main(["--folder", str(folder), "--k", "3"])
    assert "The search is exact, for want of ScaNN (pip install scann): " in capsys.readouterr().out
    best = np.load(folder / "best.npy")
    assert best.shape == (10, 3)
    np.testing.assert_array_equal(best[:, 0], np.arange(10))


def test_leaves_are_checked(capsys):
    with pytest.raises(SystemExit):
        example.parse_args(["--folder", "a", "--leaves-searched", "0"])
    assert "--leaves-searched must be at least 1, not 0" in capsys.readouterr().err


def test_scann_finds_the_closest_class(folder, capsys):
    scann = example.import_scann()
    if scann is None:
        pytest.skip(capsys.readouterr().out.strip())
    example.main(["--folder", str(folder), "--k", "3"])
    assert "% of the exact best 3" in capsys.readouterr().out
    np.testing.assert_array_equal(np.load(folder / "best.npy")[:, 0], np.arange(10))
