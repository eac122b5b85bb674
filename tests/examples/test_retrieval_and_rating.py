"""The example learns both tasks."""

from examples import retrieval_and_rating as example
from tests.scripts.reproductions import movielens_files


def test_learns_both(tmp_path):
    path = movielens_files.write(tmp_path / "tiny.zip")
    options = "--width 8 --batch-size 24 --epochs 8".split()
    results = example.main(["--zip", str(path), *options])
    assert results["recall_at_10"] > 1 / 6  # Ten of 60 at random; a user likes one genre of three.
    alone = example.main(["--zip", str(path), *options, "--rating-weight", "0"])
    assert results["rmse"] < alone["rmse"]
