"""Runs that are kept in files."""

import argparse
import json

import pytest

from scripts import command_line, tables
from scripts.reproductions import harness


def test_a_run_with_fewer_settings_is_another(tmp_path):
    path, made = tmp_path / "runs" / "a.json", []

    def run(**settings):
        made.append(settings)
        return harness.cached(path, settings, lambda: {"value": len(made)})["value"]

    assert run(epochs=2, rates=(1, 2), examples=5) == 1
    assert run(epochs=2, rates=(1, 2), examples=5) == 1
    assert run(epochs=2, rates=(1, 2)) == 3
    assert json.loads(path.read_text())["epochs"] == 2


@pytest.mark.parametrize("text", ["", "[]", "{", "1"])
def test_a_damaged_file_is_made_anew(tmp_path, text):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.warns(UserWarning, match="a.json cannot be read and is made anew"):
        run = harness.cached(path, {"epochs": 2}, lambda: {"value": 3})
    assert run["value"] == 3 and json.loads(path.read_text()) == run


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", 0),
        ("batch_size", 0),
        ("learning_rate", float("nan")),
        ("warmup", 1.0),
        ("weight_decay", -0.1),
        ("clip", 0.0),
        ("seed", -1),
        ("patience", -1),
    ],
)
def test_settings_are_checked(name, value):
    settings = {"epochs": 1, "batch_size": 1, "learning_rate": 1.0} | {name: value}
    with pytest.raises(ValueError, match=f"`{name}` must be .*{name}={value!r}"):
        harness.Settings(**settings)


def test_problems_check_their_arguments():
    with pytest.raises(ValueError, match="`examples_per_class` must be None for other datasets"):
        harness.small_problem("goemotions", "gru", examples_per_class=3)
    for arguments, name in (
        ({"frozen": "foo"}, "frozen"),
        ({"sequence_length": 0}, "sequence_len"),
    ):
        with pytest.raises(ValueError, match=f"`{name}.* must be"):
            harness.text_problem("goemotions", "preset", **arguments)
    with pytest.raises(ValueError, match="`frozen` must be an integer >= 0 or 'all'"):
        harness.image_problem("cifar10", "preset", frozen=-1)


def test_examples_of_mind_are_those_of_its_files(tmp_path):
    def described():
        return harness.text_problem("mind", "preset", tmp_path).description

    (tmp_path / "news.tsv").write_text("N1\n")
    before = described()
    assert described() == before
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "news.tsv").write_text("N2\n")
    assert described() != before


@pytest.mark.parametrize("text", ["-1", "1.5", str(2**32), "x", ""])
def test_seeds_of_the_command_line(text):
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("--seeds", nargs="+", type=command_line.seed)
    assert parser.parse_args(["--seeds", "3", "0"]).seeds == [3, 0]
    with pytest.raises(argparse.ArgumentError, match=r"must be an integer in \[0, 2\*\*32\)"):
        parser.parse_args(["--seeds", f" {text}"])


def test_deviations_are_over_one_less():
    # 1 and 2 are half a unit off their mean: the root of (1/4 + 1/4) / 1.
    assert tables.plus_minus([1, 2]) == "1.500 ± 0.707"
    assert tables.plus_minus([1, 2], digits=1) == "1.5 ± 0.7"
    assert tables.plus_minus([2]) == "2.000"


@pytest.mark.parametrize(("patience", "last"), [(10, 7), (2, 6)])
def test_the_weights_of_the_best_epoch_stay(patience, last):
    class Model:
        weights = 0

        def get_weights(self):
            return self.weights

        def set_weights(self, weights):
            self.weights = weights

    model = Model()
    figures = {2: 0.3, 4: 0.5, 6: 0.4, 7: 0.1}
    history, best = harness.train_to_best(
        model,
        epochs=7,
        evaluate_every=2,
        train=model.set_weights,
        evaluate=lambda: {"ndcg": figures[model.weights]},
        metric="ndcg",
        patience=patience,
    )
    assert [point["epoch"] for point in history] == [e for e in (2, 4, 6, 7) if e <= last]
    assert (best["epoch"], best["ndcg"], model.weights) == (4, 0.5, 4)
