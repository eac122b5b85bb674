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
    monkeypatch.setattr(example, "QUERIES", block - 1)
    classes, queries = rng.normal(size=(20, 4)), rng.normal(size=(6, 4))
    expected = np.argsort(-queries @ classes.T, axis=1)[:, :5]
    np.testing.assert_array_equal(example.exact(classes, queries, 5), expected)


def test_search_is_exact_without_faiss(folder, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "faiss", None)
    example.main(["--folder", str(folder), "--k", "3"])
    said = "FAISS is missing (pip install faiss-cpu), so the search is exact: "
    assert said in capsys.readouterr().out
    best = np.load(folder / "best.npy")
    assert best.shape == (10, 3)
    np.testing.assert_array_equal(best[:, 0], np.arange(10))


def test_probes_are_checked(capsys):
    with pytest.raises(SystemExit):
        example.parse_args(["--folder", "a", "--probes", "4", "0"])
    assert "--probes must be at least 1, not 0" in capsys.readouterr().err


# FAISS's own bindings.
@pytest.mark.filterwarnings("ignore:builtin type .* has no __module__ attribute")
def test_faiss_finds_what_it_reads(folder):
    faiss = pytest.importorskip("faiss")
    shares = example.main(["--folder", str(folder), "--k", "3", "--probes", "1", "22"])
    assert shares[1] < shares[22] == 1  # There are 22 clusters of 500 classes.
    index = faiss.read_index(str(folder / "index.faiss"))
    _, found = index.search(np.load(folder / "queries.npy"), 3)
    np.testing.assert_array_equal(found, np.load(folder / "best.npy"))
