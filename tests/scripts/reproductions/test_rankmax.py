"""The reproduction, small: two losses, one seed, on pairs made up."""

import json

import numpy as np
import pytest

from rank4class_tf import data
from scripts.reproductions import rankmax as script

ARGUMENTS = (
    "--losses rankmax softmax ease --seeds 3 --tuning-seed 7 --learning-rates 0.01 0.1 --l2 0.01 "
    "--epochs 2 --units 4"
)


def users(version, data_dir, seed):
    """Thirty users with ten items each; both halves of them like one half of the items."""
    assert (version, data_dir) == ("latest-small", None)
    rng = np.random.default_rng(0)
    items = [20 * (user % 2) + rng.permutation(20)[:10] for user in range(30)]
    return data.UserItems.from_pairs([(np.repeat(range(30), 10), np.concatenate(items))], seed=seed)


@pytest.mark.slow
def test_small_run(tmp_path, monkeypatch):
    monkeypatch.setattr(script.r4c.data, "movielens", users)
    arguments = [*ARGUMENTS.split(), "--out", str(tmp_path)]
    script.main(arguments)
    results = json.loads((tmp_path / "results.json").read_text())
    runs = [json.loads(path.read_text()) for path in tmp_path.glob("*-*.json")]
    for loss in ("rankmax", "softmax"):
        of_loss = [run for run in runs if run["loss"] == loss]
        tuning = {r["learning_rate"]: r for r in of_loss if r["seed"] == 7}
        assert set(tuning) == {0.01, 0.1} and not any("test" in run for run in tuning.values())
        best = max(tuning, key=lambda rate: tuning[rate]["validation"]["AP@10"])
        (final,) = results[loss]
        assert (final["seed"], final["learning_rate"]) == (3, best)
        assert [point["epoch"] for point in final["history"]] == [2]
        assert all(0 <= final["test"][metric] <= 1 for metric in script.METRICS)
        assert (
            f"| {loss} | {best:g} | 0.01 | {final['test']['AP@10']:.3f} |"
            in (tmp_path / "results.md").read_text()
        )
    assert set(results) == {"rankmax", "softmax", "ease"}
    assert (tmp_path / "figure_2.png").read_bytes().startswith(b"\x89PNG")
    # Nothing is trained again.
    monkeypatch.setattr(script, "run", None)
    monkeypatch.setattr(script, "run_ease", None)
    script.main(arguments)


def test_ease_is_tuned_on_validation_and_stands_in_the_table(tmp_path, monkeypatch):
    monkeypatch.setattr(script.r4c.data, "movielens", users)
    flags = "--losses ease --seeds 3 4 --tuning-seed 7 --ease-l2 1 100 --refit --out"
    script.main([*flags.split(), str(tmp_path)])
    tuning = {
        l2: json.loads((tmp_path / f"ease-{l2}-7.json").read_text())["validation"]["AP@10"]
        for l2 in (1, 100)
    }
    best = max(tuning, key=tuning.get)
    runs = json.loads((tmp_path / "results.json").read_text())["ease"]
    assert [(run["seed"], run["l2"]) for run in runs] == [(3, best), (4, best)]
    # By chance one film is found among the 31 left, by its half among 11.
    chance = np.sum(1 / np.arange(1, 11)) / 31
    assert min(run["test"]["AP@10"] for run in runs) > 1.5 * chance
    row = f"| ease | – | {best} | {np.mean([run['test']['AP@10'] for run in runs]):.3f} ±"
    assert row in (tmp_path / "results.md").read_text()


@pytest.mark.slow
def test_refit_trains_on_both_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(script.r4c.data, "movielens", users)
    original, trained = script.run, []

    def run(loss_name, learning_rate, l2, of_run, *rest):
        trained.append((of_run, rest[-1]))
        return original(loss_name, learning_rate, l2, of_run, *rest)

    monkeypatch.setattr(script, "run", run)
    script.main([*ARGUMENTS.split(), "--losses", "softmax", "--refit", "--out", str(tmp_path)])
    *tuning, (refit, epochs) = trained
    assert all(of_run.validation.row_lengths().numpy().any() for of_run, _ in tuning)
    assert epochs == 2 and not refit.validation.row_lengths().numpy().any()
    split = users("latest-small", None, 3)
    for both, train, validation in zip(refit.train, split.train, split.validation, strict=True):
        assert sorted(both.numpy()) == sorted([*train.numpy(), *validation.numpy()])
    np.testing.assert_array_equal(refit.test.flat_values, split.test.flat_values)
    (final,) = json.loads((tmp_path / "results.json").read_text())["softmax"]
    assert set(final["test"]) == set(script.METRICS)


@pytest.mark.parametrize(
    "flags",
    ["--epochs 0", "--evaluate-every 0", "--patience -3", "--learning-rates nan", "--l2 1 -5"]
    + ["--batch-size 0", "--dropout 2", "--units -3", "--seeds -1", "--tuning-seed x"],
)
def test_bad_arguments(flags, capsys):
    with pytest.raises(SystemExit):
        script.parse_args(flags.split())
    assert f"argument {flags.split()[0]}: must be a" in capsys.readouterr().err


def test_excluded_items_are_not_ranked():
    split = users("latest-small", None, 3)

    def training_items_first(items):
        scores = np.zeros([int(items.nrows()), split.num_items], np.float32)
        for row, of_user in zip(scores, items.to_list(), strict=True):
            row[of_user] = 1
        return scores

    # With the training items out of the ranking, all others tie: chance among the 30 left.
    figures = script.evaluate(training_items_first, split, "validation")
    lengths = split.validation.row_lengths().numpy()
    left = split.num_items - split.train.row_lengths().numpy()
    chance = np.mean((lengths / left)[lengths > 0])
    np.testing.assert_allclose(figures["accuracy"], chance, rtol=1e-6)
