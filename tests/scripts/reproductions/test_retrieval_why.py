"""The study of negatives: what it masks, and the whole of it in short."""

import numpy as np
import pytest
import tensorflow as tf

from scripts.reproductions import retrieval_why as script
from tests.scripts.reproductions import movielens_files


def test_only_drawn_negatives_are_left():
    scores, labels = tf.zeros([2, 5]), tf.constant([0, 1])
    found = script.DrawnAlone()(scores, labels, tf.constant([7, 8, 7, 8, 9]))
    left = np.isfinite(found)
    np.testing.assert_array_equal(left, [[1, 0, 0, 1, 1], [0, 1, 1, 0, 1]])


@pytest.mark.slow
def test_runs_in_short(tmp_path):
    path = movielens_files.write(tmp_path / "tiny.zip")
    options = "--epochs 1 --temperatures 0.2 0.5 --seeds 0 1 --width 4 --batch-size 24"
    negatives = ["--negatives", "drawn alone", "all films"]
    script.main(["--zip", str(path), "--out", str(tmp_path), *options.split(), *negatives])
    lines = (tmp_path / "results.md").read_text().splitlines()
    assert [line.split(" | ")[:2] for line in lines[2:6]] == [
        [f"| {of}", loss] for of in ("drawn alone", "all films") for loss in script.LOSSES
    ]
