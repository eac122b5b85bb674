"""The reproduction, small: two losses, one head, two seeds, on digits."""

import json

import pytest

from scripts.reproductions import harness
from scripts.reproductions import rank4class as script
from scripts.reproductions.harness import training

ARGUMENTS = (
    "--tables digits:convolution --losses softmax_loss gumbel_approx_ndcg_loss "
    "--heads dot_product --seeds 0 1 --learning-rates 0.003 --epochs 1 --batch-size 100"
)


@pytest.mark.slow
def test_small_run(tmp_path, monkeypatch):
    arguments = [*ARGUMENTS.split(), "--out", str(tmp_path)]
    script.main(arguments)
    runs = [json.loads(path.read_text()) for path in tmp_path.glob("*.json")]
    assert len(runs) == 4  # One learning rate: tuning runs are the runs of the first seed.
    means = {}
    for loss in ("softmax_loss", "gumbel_approx_ndcg_loss"):
        top_1 = [run["test"]["Top-1"] for run in runs if run["loss"] == loss]
        assert len(top_1) == 2 and min(top_1) > 0.2  # Chance is 0.1.
        means[loss] = sum(top_1) / 2
    table = (tmp_path / "tables.md").read_text()
    title, _, first, *_ = table.splitlines()
    assert title == "| Metric | Interaction | SoftmaxCE | Gumbel-ApproxNDCG |"
    cells = [cell.strip() for cell in first.strip("|").split("|")]
    assert cells[:2] == ["Top-1", "dot product"]
    assert [float(c.strip("*").split(" ± ")[0]) for c in cells[2:]] == [
        round(mean, 4) for mean in means.values()
    ]
    # Nothing is trained again.
    monkeypatch.setattr(training, "train", None)
    script.main(arguments)
    assert (tmp_path / "tables.md").read_text() == table


def test_table_marks_the_best_three():
    args = script.parse_args(
        "--losses softmax_loss mean_squared_loss --heads dot_product concat".split()
    )
    values = {"dot_product": ([0.5, 0.7], [0.4, 0.4]), "concat": ([0.3, 0.3], [0.1, 0.1])}
    cells = {
        (metric, head, loss): pair[index]
        for metric in ("Top-1", "Top-5", "NDCG@5")
        for head, pair in values.items()
        for index, loss in enumerate(args.losses)
    }
    rows = script.table(cells, {"softmax_loss": 0.1}, [0, 1], args, "digits").splitlines()
    assert rows[2] == "| Top-1 | dot product | **0.6000 ± 0.1414** | *0.4000 ± 0.0000* |"
    assert rows[3] == "| Top-1 | Concat+MLP | *0.3000 ± 0.0000* | 0.1000 ± 0.0000 |"


def test_paper_names_its_six_tables():
    args = script.parse_args(
        "--tables digits:convolution paper digits:convolution --data-dir data".split()
    )
    assert args.tables == ["digits:convolution", *script.PAPER]
    assert len(script.PAPER) == 6


@pytest.mark.parametrize(
    ("flags", "rates"),
    [
        ("", [3e-6, 1e-5, 3e-5]),
        ("--learning-rate 2.5e-4", [7.5e-5, 2.5e-4, 7.5e-4]),
        ("--learning-rates 0.1 0.2", [0.1, 0.2]),
    ],
)
def test_rates_are_around_the_datasets_own(flags, rates):
    args = script.parse_args(["--tables", "goemotions:bert_base_en_uncased", *flags.split()])
    settings = harness.with_settings(script.problem_of(args.tables[0], args).settings, args)
    assert script.learning_rates(settings, args) == rates


@pytest.mark.parametrize("name", ["mnist:vgg", "digits", "digits:"])
def test_unknown_table(name, capsys):
    with pytest.raises(SystemExit):
        script.parse_args(["--tables", name])
    assert "must be paper or DATASET:ENCODER with a dataset of" in capsys.readouterr().err


def test_all_tables_are_checked_before_the_first(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(harness, "Runs", pytest.fail)
    with pytest.raises(SystemExit, match="must be one of dense_layers, convolution, not 'foo'"):
        script.main(
            ["--tables", "digits:convolution", "digits:foo", "--out", str(tmp_path / "new")]
        )
    for tables in ("digits:convolution mind:bert", "paper"):
        with pytest.raises(SystemExit):
            script.main(["--tables", *tables.split()])
        assert "--data-dir must be the folder of MIND's files for mind" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_seeds_are_checked(capsys):
    with pytest.raises(SystemExit):
        script.parse_args(["--seeds", "-1"])
    assert "argument --seeds: must be an integer in [0, 2**32)" in capsys.readouterr().err


def test_encoder_that_does_not_fit():
    args = script.parse_args(["--tables", "digits:gru"])
    with pytest.raises(
        SystemExit, match="digits must be one of dense_layers, convolution, not 'gr"
    ):
        script.problem_of(args.tables[0], args)
