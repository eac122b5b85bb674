"""The study of learning to rank, in a short form."""

import json

import numpy as np
import pytest

from scripts.reproductions import learning_to_rank as study


def test_lists_are_as_the_page_says():
    part = study.make_lists(study.Situation(1, 0.5), 3000, np.random.default_rng(0))
    lengths = (part.grades >= 0).sum(axis=1)
    assert lengths.min() == 5 and lengths.max() == study.MAX_ITEMS
    for labels in (part.grades, part.labels):
        shares = [np.mean(labels[labels >= 0] == grade) for grade in range(5)]
        np.testing.assert_allclose(shares, [0.515, 0.325, 0.134, 0.019, 0.007], atol=0.01)
    assert ((part.best > 0).sum(axis=1) == 1).all()
    # No item has a higher grade than the best.
    assert (part.grades[part.best > 0] == part.grades.max(axis=1)).all()
    assert not part.features[part.grades < 0].any()


def test_one_positive_a_list():
    part = study.make_lists(study.Situation(1, 0.5, True), 50, np.random.default_rng(0))
    assert ((part.labels > 0).sum(axis=1) == 1).all()
    assert ((part.labels < 0) == (part.grades < 0)).all()


def test_a_short_run(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(study.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setitem(study.SITUATIONS, "few graded lists", study.Situation(60, 0.5))
    arguments = ["--situations", "few graded lists", "--methods", "softmax", study.TREES]
    arguments += ["--seeds", "0", "1", "--epochs", "1", "--rates", "3e-3", "--decays", "0"]
    study.main([*arguments, "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    assert f"Without lightgbm there are no rows of {study.TREES}." in printed
    assert "| softmax | 0." in printed
    runs = [json.loads(path.read_text()) for path in tmp_path.glob("*.json")]
    assert sorted(run["seed"] for run in runs) == [0, 1, study.TUNING_SEED]
    for run in runs:
        test = study.draw(study.SITUATIONS["few graded lists"], run["seed"])[2]
        drawn = np.random.default_rng(0).random(test.grades.shape)
        assert run["ndcg_at_10"] > 1.2 * study.measure(drawn, test.grades, "ndcg_at_10")
    study.main([*arguments, "--out", str(tmp_path)])
    assert "CPU s" not in capsys.readouterr().out  # The runs were kept.


def test_trees():
    pytest.importorskip("lightgbm")
    parts = study.draw(study.Situation(60, 0.5), 0)
    of_validation, of_test, number = study.scores_of_trees(parts, 0.1, 7, 0)
    assert of_validation.shape == parts[1].grades.shape and number >= 1
    drawn = np.random.default_rng(0).random(of_test.shape)
    by_chance = study.measure(drawn, parts[2].grades, "ndcg_at_10")
    assert study.measure(of_test, parts[2].grades, "ndcg_at_10") > 1.2 * by_chance
