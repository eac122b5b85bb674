import json
import re

import pytest

from scripts.reproductions import classify_as_ranking as script

BASELINE = ("softmax_loss", "dot_product")


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """The results of two epochs of a loss with a head."""
    folder = tmp_path_factory.mktemp("out") / "new" / "folder"
    script.main(
        "--loss rankmax_loss --head latent_cross --epochs 2 "
        f"--seeds 5 6 --batch-size 100 --learning-rate 0.002 --out {folder}".split()
    )
    return folder


@pytest.fixture(scope="module")
def results(out):
    return json.loads((out / "results.json").read_text())


def test_results(results):
    rows = results["rows"]
    assert results == {
        "dataset": "digits",
        "encoder": "dense_layers",
        "epochs": 2,
        "batch_size": 100,
        "learning_rate": 0.002,
        "warmup": 0.0,
        "weight_decay": 0.0,
        "clip": None,
        "precision": "float32",
        "patience": 5,
        "rows": rows,
    }
    assert [(row["loss"], row["head"], row["seed"]) for row in rows] == [
        (*pair, seed) for pair in (BASELINE, ("rankmax_loss", "latent_cross")) for seed in (5, 6)
    ]
    for row in rows:
        curve = row["validation"]["NDCG@5"]
        assert len(curve) == 2
        assert row["best_epoch"] == 1 + curve.index(max(curve))
        # One positive: a hit among five counts at most 1 and a hit on top exactly 1.
        test = row["test"]
        assert 0 < test["Top-1"] <= test["NDCG@5"] <= test["Top-5"] <= 1


def test_training_beats_chance(results):
    # 360 test images, 10 classes: chance has a mean of 0.1 and a standard deviation of 0.016.
    assert min(row["test"]["Top-1"] for row in results["rows"]) > 0.1 + 5 * 0.016


def test_table_shows_the_results(out, results):
    title, _, *lines = (out / "table.md").read_text().splitlines()[:4]
    assert title == "| loss | head | Top-1 | Top-5 | NDCG@5 | NDCG@5 over the first row | p |"
    assert len(lines) == 2
    means = []
    for line, first, second in zip(lines, results["rows"][::2], results["rows"][1::2], strict=True):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert cells[:2] == [first["loss"], first["head"]] == [second["loss"], second["head"]]
        for cell, name in zip(cells[2:5], ("Top-1", "Top-5", "NDCG@5"), strict=True):
            mean = (first["test"][name] + second["test"][name]) / 2
            value, low, high = map(float, re.findall(r"[\d.]+", cell))
            assert value == pytest.approx(mean, abs=6e-4)
            assert low <= value <= high
        means.append(mean)
        if len(means) > 1:
            assert float(cells[5].split()[0]) == pytest.approx(mean - means[0], abs=6e-4)
            assert 0 < float(cells[6]) <= 1


def test_plot_is_a_picture(out):
    image = (out / "metrics.png").read_bytes()
    assert image.startswith(b"\x89PNG\r\n\x1a\n")


def test_row_does_not_depend_on_the_rows_before_it(tmp_path, results):
    script.main(
        "--loss softmax_loss --head dot_product --epochs 2 --seeds 6 --batch-size 100 "
        f"--learning-rate 0.002 --out {tmp_path}".split()
    )
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert rows == [results["rows"][1]]


@pytest.mark.parametrize(
    "arguments, message",
    [
        ("--loss hinge", "rankmax_loss"),
        ("--head dense", "latent_cross"),
        ("--warmup 1", "argument --warmup: must be a number in [0, 1), not '1'"),
        ("--precision half", "mixed_bfloat16"),
        ("--epochs 0", "argument --epochs: must be a finite int > 0, not '0'"),
        ("--epochs two", "argument --epochs: must be a finite int > 0, not 'two'"),
        ("--batch-size -2", "argument --batch-size: must be a finite int > 0, not '-2'"),
        ("--learning-rate nan", "argument --learning-rate: must be a finite float > 0, not 'nan'"),
        ("--learning-rate inf", "argument --learning-rate: must be a finite float > 0, not 'inf'"),
    ],
)
def test_bad_arguments(arguments, message, capsys):
    with pytest.raises(SystemExit):
        script.main(arguments.split())
    assert message in capsys.readouterr().err
