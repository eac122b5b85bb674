"""Two programs for TF-Ranking, before and after the diffs of docs/coming_from.md."""

import pathlib
import re

import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from tests import pages, tf_ranking

_tfr = tf_ranking.load_or_skip()

pytestmark = pytest.mark.keras2

_DIFF = re.compile(r"^```diff\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DIFFS = _DIFF.findall((pages.ROOT / "docs" / "coming_from.md").read_text())
_FOLDER = pathlib.Path(__file__).parent / "programs"
_NAMES = "write_files", "keras_dnn_tfrecord", "antique_ragged"
FILES, *PROGRAMS = ((_FOLDER / f"{name}.py").read_text() for name in _NAMES)


def applied(diff, program):
    """A program after a diff, whose hunks have empty lines between them."""
    for hunk in re.split(r"^\n", diff, flags=re.MULTILINE):
        lines = [(line[:1], line[1:]) for line in hunk.splitlines(keepends=True)]
        before = "".join(text for sign, text in lines if sign in "- ")
        assert program.count(before) == 1, f"not once in the program:\n{before}"
        program = program.replace(
            before, "".join(text for sign, text in lines if sign in "+ ")
        )
    return program


def run(program):
    namespace = {"__name__": "page"}
    exec(compile(program, "program", "exec"), namespace)
    return namespace


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The files that the programs read, in the current folder."""
    monkeypatch.chdir(tmp_path)
    run(FILES)


@pytest.mark.slow
def test_pipeline(files):
    before = run(PROGRAMS[0])
    after = run(applied(DIFFS[0], PROGRAMS[0]))
    labels = tf.constant([[1.0, 0.0, 1.0, -1.0]])
    scores = tf.constant([[0.1, 0.4, -0.3, 0.2]])
    values = [
        float(of["pipeline"].build_loss()(labels, scores)) for of in (before, after)
    ]
    assert_allclose(*values, rtol=1e-5)
    assert (
        "top_k" in tf.saved_model.load("model/export/best_model_by_metric").signatures
    )


def test_ragged_lists(files):
    before = run(PROGRAMS[1])["model"]
    after = run(applied(DIFFS[1], PROGRAMS[1]))
    inputs, labels = next(iter(after["read"]("valid*")))
    assert isinstance(labels, tf.RaggedTensor)
    scores = before(inputs)
    values = [model.loss(labels, scores) for model in (before, after["model"])]
    assert_allclose(*values, rtol=1e-5)
    assert "val_ndcg_at_5" in after["model"].history.history
