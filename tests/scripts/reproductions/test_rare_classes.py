"""The study of rare classes, in a short form."""

import json

import numpy as np

from scripts.reproductions import rare_classes


def test_figures_of_known_ranks():
    scores = np.array([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0], [1.0, 2.0, 3.0]])
    found = rare_classes.figures(scores, np.array([0, 1, 0]))  # Ranks 1, 2 and 3.
    assert found["Top-1"] == 1 / 3 and found["macro Top-1"] == (1 / 2 + 0) / 2
    np.testing.assert_allclose(found["NDCG@5"], (1 + 1 / np.log2(3) + 1 / 2) / 3)
    np.testing.assert_allclose(found["macro NDCG@5"], ((1 + 1 / 2) / 2 + 1 / np.log2(3)) / 2)


def test_a_short_run(tmp_path, capsys, monkeypatch):
    rng = np.random.default_rng(0)
    file = {}
    for part in ("train", "validation", "test"):
        ids = rng.choice(3, 4000, p=[0.8, 0.15, 0.05])
        file |= {part: np.eye(3)[ids] + rng.normal(size=(4000, 3)), f"{part}_ids": ids}
    np.savez(tmp_path / "features.npz", **file)
    monkeypatch.setattr(rare_classes, "DECAYS", (0.0,))
    rare_classes.main(
        ["--features", str(tmp_path / "features.npz"), "--num-train", "3840", "--seeds", "0", "1"]
        + ["--out", str(tmp_path)]
    )
    assert "softmax, `class_prior` | " in capsys.readouterr().out
    runs = json.loads((tmp_path / "rare_classes.json").read_text())
    macro = {
        name: np.mean([run["macro Top-1"] for run in found["runs"]]) for name, found in runs.items()
    }
    assert macro["softmax, `class_prior`"] > macro["softmax"]
