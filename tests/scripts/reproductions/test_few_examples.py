"""Few examples and held-out classes, on points around places that stand for definitions."""

import types

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

from scripts.reproductions import few_examples as script


@pytest.fixture
def parts(rng):
    """Points around 28 places; the places."""
    places = rng.normal(size=(28, 32)).astype("float32")

    def points(number):
        ids = np.concatenate([np.arange(28), rng.integers(0, 28, number)])
        return (places[ids] + rng.normal(size=(len(ids), 32))).astype("float32"), ids

    return {"train": points(900), "validation": points(200), "test": points(400)}, places


def test_draw(rng):
    class_ids = rng.permutation(np.repeat(np.arange(4), [3, 10, 50, 7]))
    rows = script.draw(class_ids, 7, seed=0)
    assert np.bincount(class_ids[rows]).tolist() == [3, 7, 7, 7]
    assert len(set(rows)) == len(rows)
    assert not np.array_equal(np.sort(rows), np.sort(script.draw(class_ids, 7, seed=1)))


def test_balanced_accuracy(rng):
    scores, class_ids = rng.normal(size=(50, 5)), rng.integers(0, 4, 50)
    with pytest.warns(UserWarning, match="y_pred contains classes not in y_true"):
        expected = sklearn_metrics.balanced_accuracy_score(class_ids, scores.argmax(1))
    assert script.balanced_accuracy(scores, class_ids) == pytest.approx(expected)


def test_scale(parts):
    scaled, definitions = script.standardized(*parts)
    features, _ = scaled["train"]
    np.testing.assert_allclose(features.mean(0), 0, atol=1e-5)
    assert features.std() == pytest.approx(32**-0.25, rel=1e-5)
    # One shift and one scale for all.
    train, _ = parts[0]["train"]
    scale = (train - train.mean(0)).std() * 32**0.25
    np.testing.assert_allclose(definitions, (parts[1] - train.mean(0)) / scale, rtol=1e-4)


@pytest.mark.slow
def test_definitions_help_where_there_are_few_examples_or_none(parts, tmp_path, monkeypatch):
    monkeypatch.setattr(script, "encode", lambda args: parts)
    call = (
        f"--out {tmp_path} --shots 1 --draws 2 --steps 60 --learning-rates 0.01 --units 8"
    ).split()
    monkeypatch.setattr(
        script, "METHODS", {k: v for k, v in script.METHODS.items() if v[0] == "dot_product"}
    )
    script.main(call)
    few, zero = (tmp_path / "results.md").read_text().split("\n\n")
    rows = {line.split(" | ")[0].strip("| "): line.split(" | ")[1:] for line in few.splitlines()}
    table, definitions = (
        float(rows[name][0].split(" ± ")[0]) for name in ("Dense", "Dot product, definitions")
    )
    assert definitions > table + 0.1
    (trained,) = (line for line in zero.splitlines() if line.startswith("| Dot product, def"))
    # A guess is right in one of seven.
    assert float(trained.split(" | ")[1].split(" ± ")[0]) > 0.5
    # Nothing is trained again.
    monkeypatch.setattr(script, "fit", pytest.fail)
    script.main(call)
    assert (tmp_path / "results.md").read_text() == f"{few}\n\n{zero}"


def test_held_out_classes_have_the_rate_of_the_most_examples(tmp_path, monkeypatch):
    def few_examples(parts, definitions, method, shots, rate, seed, args):
        balanced = float(rate == {2: 0.1, 9: 0.3}[shots])
        return {part: {"balanced": balanced, "Top-1": 0.5} for part in ("validation", "test")}

    rates = []

    def held_out_classes(parts, definitions, method, rate, fold, args):
        rates.append(rate)
        return {"among held-out": 0.5, "among all": 0.5}

    monkeypatch.setattr(script, "encode", lambda args: (None, np.zeros([28, 3])))
    monkeypatch.setattr(script, "standardized", lambda *encoded: encoded)
    monkeypatch.setattr(script, "few_examples", few_examples)
    monkeypatch.setattr(script, "held_out_classes", held_out_classes)
    options = "--shots 9 2 --draws 1 --learning-rates 0.1 0.3".split()
    script.main([*options, "--out", str(tmp_path)])
    assert set(rates) == {None, 0.3}


def test_rows_of_held_out_classes_come_last(parts):
    """Heads see the classes in the order seen, held out; the table's columns are read alike."""
    (features, class_ids), places = parts[0]["test"], parts[1]
    result = script.held_out_classes(parts[0], places, "cosine", None, 2, types.SimpleNamespace())
    held_out = np.sort(np.random.default_rng(0).permutation(28).reshape(4, 7)[2])
    here = np.isin(class_ids, held_out)
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (features[here], places)]
    cosines = unit[0] @ unit[1].T
    ids = class_ids[here]
    among_all = sklearn_metrics.recall_score(
        ids, cosines.argmax(1), labels=held_out, average="macro", zero_division=0
    )
    among_held_out = sklearn_metrics.recall_score(
        ids, held_out[cosines[:, held_out].argmax(1)], labels=held_out, average="macro"
    )
    assert result["among all"] == pytest.approx(among_all)
    assert result["among held-out"] == pytest.approx(among_held_out)
