"""The example of TF-Ranking pipelines, for two losses and a few epochs."""

import pytest

from tests import tf_ranking

tf_ranking.load_or_skip()

from examples import tfr_pipeline  # noqa: E402

pytestmark = pytest.mark.keras2


def test_trains_exports_and_reports(tmp_path, capsys):
    losses = ["rankmax_loss", "tfr.approx_ndcg_loss"]
    tfr_pipeline.main(["--epochs", "3", "--out", str(tmp_path), "--loss", *losses])
    rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[0] for row in rows] == losses
    for _, top_1, ndcg, _ in rows:
        assert 0.6 < float(top_1) <= float(ndcg) <= 1  # Ten classes: chance is 0.1.


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--loss rankmax_loss nonsense", "Received: 'nonsense'"),
        ("--batch-size 2000", "--batch-size must be at most 360, the lists of the validation part"),
    ],
)
def test_bad_arguments(flags, message, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tfr_pipeline.tfr.RankingPipeline, "train_and_validate", pytest.fail)
    with pytest.raises(SystemExit):
        tfr_pipeline.main([*flags.split(), "--out", str(tmp_path)])
    assert message in capsys.readouterr().err
