"""The pages: their examples run, their links lead somewhere, and no public name is left out."""

import json
import re

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from docs import public
from rank4class_tf import layers, losses
from tests import pages
from tests.derivatives import gradient_of


# Keras 3.15 warns at every `fit` on a dataset that is not told `shuffle=False`.
@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed:UserWarning")
@pytest.mark.parametrize("page", pages.RUN)
def test_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert pages.run(page)


@pytest.mark.slow
def test_the_readme_compares_losses_on_a_csv(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [f"{'red green' if i % 2 else 'blue gray'} {i % 5},{i % 2}" for i in range(60)]
    (tmp_path / "mine.csv").write_text("\n".join(["text,category", *rows]))
    (code,) = re.findall(r"^```py\n(.*?)^```$", (pages.ROOT / "README.md").read_text(), re.M | re.S)
    exec(code, {"__name__": "page"})
    assert "is better in ndcg_at_5" in capsys.readouterr().out.splitlines()[-1]


def test_every_public_name_has_a_docstring():
    assert public.undocumented() == []


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "tests/README.md"])
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (pages.ROOT / page).read_text())
    assert not [link for link in links if not ((pages.ROOT / page).parent / link).exists()]


@pytest.mark.slow
def test_notebook_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = pages.ROOT / "examples" / "getting_started.ipynb"
    cells = json.loads(path.read_text())["cells"]
    namespace = {"__name__": "__main__"}
    for number, cell in enumerate(cells):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{path.name}[{number}]", "exec"), namespace)
    assert path.stat().st_size < 100_000


@pytest.fixture(scope="module")
def own():
    with pytest.MonkeyPatch.context() as patch:
        # Registered anew in each run.
        patch.setattr(keras.utils, "register_keras_serializable", lambda _: lambda cls: cls)
        return pages.run("docs/extending.md")


@pytest.fixture
def batch(rng):
    return tf.constant(rng.normal(size=(6, 5)), tf.float32), tf.constant([0, 1, 2, 3, 4, 0])


def test_loss_is_its_formula(own, batch):
    make, (scores, class_ids) = own["SquaredViolationLoss"], (x.numpy() for x in batch)
    expected = [
        np.sum(np.maximum(np.delete(row, y) - row[y] + 2, 0) ** 2)
        for row, y in zip(scores, class_ids, strict=True)
    ]
    found = make(margin=2.0, reduction="none")(class_ids, scores)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    # Of many positives it is the sum.
    relevance = np.float32([[1] * 20 + [0] * 20])
    scores = np.linspace(-2, 2, 40, dtype=np.float32)[np.newaxis]
    expected = sum(np.sum(np.maximum(scores[0, 20:] - scores[0, y] + 1, 0) ** 2) for y in range(20))
    np.testing.assert_allclose(make(reduction="none")(relevance, scores), [expected], rtol=1e-5)


def test_metric_loss_is_the_metric_of_ranks_that_are_nearly_exact(own):
    scores = tf.constant([[9.0, 7.0, 5.0, 3.0]])
    loss = own["ApproxPrecisionLoss"](2, ranker=layers.LaplaceSorter(0.01), label_format="ids")
    # sigmoid(2.5 - 1) and sigmoid(2.5 - 3), over k.
    expected = -(1 / (1 + np.exp(-1.5)) + 1 / (1 + np.exp(0.5))) / 2
    assert np.isclose(loss([[0, 2]], scores), expected, atol=1e-3)


@pytest.mark.parametrize(
    ("labels", "scores", "expected"),
    [
        ([0, 1], [[1.0, 1.0, 0.0], [3.0, 2.0, 1.0]], ((1 + 0.5) / 2 + 0.5) / 2),  # Over orders.
        ([-1, 1], [[3.0, 2.0, 1.0]] * 2, 0.5),  # A list without a positive does not count.
        ([[0, 2]], [[3.0, 2.0, 1.0]], (1 + 0.25) / (1 + 0.5)),
    ],
)
def test_metric(own, labels, scores, expected):
    metric = own["GeometricRank"]()
    metric.update_state(labels, scores)
    assert np.isclose(metric.result(), expected)


@pytest.mark.parametrize("positives", [[0], [0, 3]])
def test_sums_over_differences_that_do_not_tend_to_zero(positives):
    class SumOfLogs(losses.RankingLoss):
        def compute(self, lists):
            sums = lists.sum_over_differences(lambda d: tf.math.log1p(d * d))
            return lists.sum_of_positives(sums)

    scores, relevance = np.array([5.0, -3.0, 700.0, 2.0]), np.array([0.0, 0.0, -1.0, 0.0])
    relevance[positives] = 1
    expected = np.log1p((scores[[0, 1, 3]] - scores[positives][:, np.newaxis]) ** 2).sum()
    for loss in (SumOfLogs(), SumOfLogs(max_positives=2)):
        assert np.isclose(loss([relevance], [scores]), expected, rtol=1e-6)


def test_sorter(own, batch):
    scores, _ = batch
    exact = 1 + np.argsort(np.argsort(-scores.numpy(), axis=1), axis=1)
    np.testing.assert_allclose(own["CauchySorter"](1e-4)(scores), exact, atol=0.05)
    sorter, mask = own["CauchySorter"](0.1), tf.constant([[True, True, True, False, False]] * 6)
    assert np.all(gradient_of(lambda x: sorter(x)[:, 0], scores)[:, 0] < 0)
    np.testing.assert_allclose(sorter(scores, mask=mask)[:, :3], sorter(scores[:, :3]), rtol=1e-5)
