"""What the last line of a comparison says."""

import numpy as np

from rank4class_tf.evaluation import Evaluation
from scripts.reproductions import harness


def row(loss, shift, noise=0.3):
    """A row whose values are those of the first one and more, for each of 400 lists."""
    rng = np.random.default_rng(0)
    values = rng.random(400)
    values += shift + noise * np.random.default_rng(len(loss)).normal(size=400)
    values = {"NDCG@5": values}
    weights = {"NDCG@5": np.ones(400)}
    return harness.Row(loss, "dot_product", Evaluation({}, values, weights, np.ones(400)))


def test_verdict_names_what_differs_beyond_noise():
    first = row("a", 0.0, 0.0)
    assert harness.verdict([first, row("bb", 0.0), row("ccc", 0.002)]) == (
        "No row differs from a with dot_product in NDCG@5 beyond noise."
    )
    assert harness.verdict([first, row("bb", 0.2), row("ccc", 0.0), row("dddd", -0.2)]) == (
        "NDCG@5, beyond noise: bb with dot_product: better than a with dot_product; "
        "dddd with dot_product: worse than a with dot_product."
    )


def test_verdict_of_one_row():
    assert harness.verdict([row("a", 0.0)]).startswith("No row differs")


def test_many_comparisons_of_noise_are_noise():
    """Forty rows of noise: without a correction, five would differ."""
    rows = [row("a" * n, 0.0) for n in range(1, 41)]
    assert harness.verdict(rows).startswith("No row differs")
