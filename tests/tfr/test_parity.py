"""What docs/coming_from.md says is the same in TF-Ranking, and what differs, by how much."""

import itertools
import pathlib
import re

import numpy as np
import pytest

from rank4class_tf import metrics
from tests import tf_ranking

_tfr = tf_ranking.load_or_skip()

from rank4class_tf.tfr import pipeline  # noqa: E402

pytestmark = pytest.mark.keras2

LIST_SIZE = 7
# What TF-Ranking's value is multiplied with: its mean of a pairwise loss is over the items of all
# lists, ours over the lists.
LOSSES = {
    "approx_mrr_loss": 1,
    "approx_ndcg_loss": 1,
    "pairwise_hinge_loss": LIST_SIZE,
    "pairwise_logistic_loss": LIST_SIZE,
    "softmax_loss": 1,
    "unique_softmax_loss": 1,
}
SAME = "ndcg ndcg_at_3 dcg dcg_at_3 mrr mrr_at_2 precision_at_3 precision recall_at_3"
# Ours with TF-Ranking's name for it.
METRICS = {name: name for name in SAME.split()}
METRICS |= {"average_precision": "map", "top_k_accuracy_at_2": "hits_at_2"}


def make_batch(rng, grades):
    """Scores without ties and labels up to `grades`, with padding; each list has a positive."""
    scores = rng.permutation(40 * LIST_SIZE).reshape(40, LIST_SIZE).astype(np.float32) / 50
    labels = rng.integers(0, grades + 1, size=scores.shape).astype(np.float32)
    labels[:, 0] = grades
    labels[:, -2:][rng.random((40, 2)) < 0.6] = -1
    return labels, scores


def weights_of(what):
    shape = {"not": None, "lists": (40, 1), "items": (40, LIST_SIZE)}[what]
    return None if shape is None else np.random.default_rng(3).random(shape).astype(np.float32)


def build_loss(name, reduction="auto"):
    return pipeline.build_loss(name, reduction)


@pytest.mark.parametrize("grades", [1, 4])
@pytest.mark.parametrize(
    ("name", "weighted"),
    [*itertools.product(LOSSES, ["not", "lists", "items"]), ("mean_squared_loss", "items")],
)
def test_losses(rng, name, grades, weighted):
    labels, scores = make_batch(rng, grades)
    if name == "mean_squared_loss":
        labels = np.abs(labels)  # Theirs counts the items that fill up a list.
    batch = labels, scores, weights_of(weighted)
    ours, theirs = (float(build_loss(x)(*batch)) for x in (name, f"tfr.{name}"))
    assert ours == pytest.approx(LOSSES.get(name, 1) * theirs, rel=1e-5)


def result(metric, labels, scores, weights=None):
    """The result of a metric, or of TF-Ranking's of a name, for one batch."""
    if isinstance(metric, str):
        metric = pipeline.build_metric(metric, "")
    metric.update_state(labels, scores, weights)
    return float(metric.result())


@pytest.mark.parametrize("grades", [1, 4])
@pytest.mark.parametrize("weighted", ["not", "lists", "items"])
@pytest.mark.parametrize("ours", METRICS)
def test_metrics(rng, ours, weighted, grades):
    batch = *make_batch(rng, grades), weights_of(weighted)
    assert result(ours, *batch) == pytest.approx(result(f"tfr.{METRICS[ours]}", *batch), rel=1e-5)


@pytest.mark.parametrize("ours", METRICS)
def test_metrics_of_lists_without_positives(rng, ours):
    """Theirs count them with the value 0, even a list of padding; ours do so with `count_empty`."""
    labels, scores = make_batch(rng, 1)
    labels[::3] = np.minimum(labels[::3], 0)
    labels[3] = -1
    counted = metrics.get(ours, count_empty=True, label_format="relevance")
    theirs = result(f"tfr.{METRICS[ours]}", labels, scores)
    assert result(counted, labels, scores) == pytest.approx(theirs, rel=1e-5)
    # Those at 0, 3, ... 39 have no positive.
    assert result(ours, labels, scores) == pytest.approx(theirs * 40 / 26, rel=1e-5)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_average_precision_at_a_cutoff(rng, k):
    """Theirs divide by all positives, ours by k if that is less."""
    labels, scores = make_batch(rng, 1)
    theirs, name = result(f"tfr.map_at_{k}", labels, scores), f"average_precision_at_{k}"
    over_all = metrics.AveragePrecisionAtK(k, over_all_positives=True, label_format="relevance")
    assert result(over_all, labels, scores) == pytest.approx(theirs, rel=1e-5)
    assert result(name, labels, scores) > 1.01 * theirs
    few = np.where(np.cumsum(labels > 0, axis=1) > k, np.minimum(labels, 0), labels)
    expected = result(f"tfr.map_at_{k}", few, scores)
    assert result(name, few, scores) == pytest.approx(expected, rel=1e-5)


def test_precision_of_short_lists(rng):
    """Of three items, theirs at 5 divide by 3, ours by 5."""
    labels, scores = make_batch(rng, 1)
    labels[:, 3:] = -1
    theirs = result("tfr.precision_at_5", labels, scores)
    assert result("precision_at_5", labels, scores) * 5 == pytest.approx(theirs * 3, rel=1e-5)


@pytest.mark.parametrize("name", ["mrr", "precision", "recall_at_3", "ndcg", "dcg_at_3"])
def test_grades_between_0_and_1(rng, name):
    """Relevant from 1 on in theirs, above 0 in ours; no matter where a grade has a gain."""
    labels, scores = make_batch(rng, 1)
    half = np.where(labels == 1, 0.5, labels).astype(np.float32)
    theirs = result(f"tfr.{METRICS[name]}", half, scores)
    expected = theirs if "dcg" in name else result(name, labels, scores)
    assert result(name, half, scores) == pytest.approx(expected, rel=1e-5)
    assert "dcg" in name or theirs == 0


def test_mean_squared_loss_of_lists_without_positives(rng):
    """Theirs is the mean over the items of all lists, ours 0 for such a list."""
    scores = rng.normal(size=(4, LIST_SIZE)).astype(np.float32)
    labels = np.zeros_like(scores)
    labels[:2, 3] = 1
    ours, theirs = (
        float(build_loss(f"{x}mean_squared_loss")(labels, scores)) for x in ("", "tfr.")
    )
    assert theirs == pytest.approx(np.mean((scores - labels) ** 2), rel=1e-5)
    assert ours == pytest.approx(np.mean((scores - labels)[:2] ** 2) / 2, rel=1e-5)


def test_the_table_has_all_names():
    """Each key, and each class without one, has a row, and what stands there is built."""
    page = (pathlib.Path(__file__).parents[2] / "docs" / "coming_from.md").read_text()
    table = page.split("## Name by name")[1].split("## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| `([\w.]+)` \|", table, re.MULTILINE))
    keras = _tfr.keras
    keys = [
        *vars(keras.losses.RankingLossKey).items(),
        *vars(keras.metrics.RankingMetricKey).items(),
    ]
    keys = {value for name, value in keys if name.isupper()}
    if "calibrated_softmax_loss" not in keys:  # TF-Ranking 0.5.3
        del rows["calibrated_softmax_loss"]
    assert set(rows) == keys | {"ClickEMLoss", "MixtureEMLoss", "RecallMetric"}
    for theirs, here in rows.items():
        of_loss = theirs.lower().endswith("loss")
        built = build_loss(here) if of_loss else pipeline.build_metric(here, "")
        is_theirs = type(built).__module__.startswith("tensorflow_ranking")
        assert is_theirs == here.startswith("tfr.")


def test_metrics_of_subtopics_by_name():
    labels, scores = [[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]], [[3.0, 2.0, 1.0]]
    assert result("tfr.precision_ia_at_2", labels, scores) == pytest.approx(2 / (2 * 2))
    expected = 1 + 1 / np.log2(3)  # Each item brings a new subtopic.
    assert result("tfr.alpha_dcg_at_2", labels, scores) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("build", [build_loss, lambda name: pipeline.build_metric(name, "")])
def test_all_names_that_an_error_offers_can_be_built(build):
    with pytest.raises(ValueError, match="must name one of") as raised:
        build("unknown")
    names = re.search(r"one of: (.*)\. Received", str(raised.value))[1].split(", ")
    assert len(names) > 15
    for name in names:
        try:
            build(name)
        except (TypeError, ValueError) as error:  # A name whose loss or metric needs more.
            assert re.search(r"missing \d+ required", str(error)) or "'hits_at_5'" in str(error)


def test_metrics_of_whole_lists_have_no_cutoff():
    for name in ("arp", "ordered_pair_accuracy"):
        assert pipeline.build_metric(f"tfr.{name}", "").name == name
        with pytest.raises(ValueError, match=f"'{name}' without a cutoff. .*'tfr.{name}_at_2'"):
            pipeline.build_metric(f"tfr.{name}_at_2", "")
