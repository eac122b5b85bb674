"""What docs/coming_from.md says equals TF-Ranking, and what differs, by how much."""

import math
import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from rank4class_tf import losses, metrics

from ..derivatives import value_and_gradient
from ..refused import refused
from ..tf_ranking import load_or_skip

_tfr = load_or_skip()

from tensorflow_ranking.python import metrics_impl  # noqa: E402

from rank4class_tf.tfr import pipeline  # noqa: E402

pytestmark = pytest.mark.keras2

LIST_SIZE = 7
# What TF-Ranking's value is multiplied with: its mean of a pairwise or pointwise loss
# is over the items of all lists, ours over the lists.
LOSSES = dict.fromkeys(["pairwise_hinge_loss", "pairwise_logistic_loss"], LIST_SIZE)
LOSSES |= dict.fromkeys(
    ["pairwise_soft_zero_one_loss", "sigmoid_cross_entropy_loss"], LIST_SIZE
)
LOSSES |= {
    "approx_mrr_loss": 1,
    "approx_ndcg_loss": 1,
    "softmax_loss": 1,
    "unique_softmax_loss": 1,
}
SAME = "ndcg ndcg_at_3 dcg dcg_at_3 mrr mrr_at_2 precision_at_3 precision recall_at_3"
# Ours with TF-Ranking's name for it.
METRICS = {name: name for name in SAME.split()}
METRICS |= {"average_precision": "map", "top_k_accuracy_at_2": "hits_at_2"}


def make_batch(rng, grades):
    """Scores without ties, labels up to `grades`, padding; each list has a positive."""
    scores = (
        rng.permutation(40 * LIST_SIZE).reshape(40, LIST_SIZE).astype("float32") / 50
    )
    labels = rng.integers(0, grades + 1, size=scores.shape).astype("float32")
    labels[:, 0] = grades
    labels[:, -2:][rng.random((40, 2)) < 0.6] = -1
    return labels, scores


@pytest.fixture(params=[None, 1, LIST_SIZE], ids=["not weighted", "lists", "items"])
def weights(request):
    if request.param is None:
        return None
    numbers = np.random.default_rng(3).random((40, request.param))
    return numbers.astype("float32")


def build_loss(name):
    return pipeline.build_loss(name, "auto")


@pytest.mark.parametrize("grades", [1, 4])
@pytest.mark.parametrize("name", LOSSES)
def test_losses(rng, name, grades, weights):
    batch = *make_batch(rng, grades), weights
    ours, theirs = (float(build_loss(x)(*batch)) for x in (name, f"tfr.{name}"))
    assert_allclose(ours, LOSSES[name] * theirs, rtol=1e-5)


def result(metric, labels, scores, weights=None):
    """The result of a metric, or of TF-Ranking's of a name, for one batch."""
    if isinstance(metric, str):
        metric = pipeline.build_metric(metric, "")
    metric.update_state(labels, scores, weights)
    return float(metric.result())


@pytest.mark.parametrize("grades", [1, 4])
@pytest.mark.parametrize("ours", METRICS)
def test_metrics(rng, ours, weights, grades):
    batch = *make_batch(rng, grades), weights
    assert_allclose(
        result(ours, *batch), result(f"tfr.{METRICS[ours]}", *batch), rtol=1e-5
    )


@pytest.mark.parametrize("ours", METRICS)
def test_metrics_of_lists_without_positives(rng, ours):
    """Theirs count them as 0, even a list of padding; ours do with `count_empty`."""
    labels, scores = make_batch(rng, 1)
    labels[::3] = np.minimum(labels[::3], 0)
    labels[3] = -1
    counted = metrics.get(ours, count_empty=True, label_format="relevance")
    theirs = result(f"tfr.{METRICS[ours]}", labels, scores)
    assert_allclose(result(counted, labels, scores), theirs, rtol=1e-5)
    # Those at 0, 3, ... 39 have no positive.
    assert_allclose(result(ours, labels, scores), theirs * 40 / 26, rtol=1e-5)


@pytest.mark.parametrize("ours", [name for name in METRICS if "dcg" not in name])
def test_metrics_of_grades_below_1(rng, ours, weights):
    """Theirs count a label of 1 or more as relevant; ours do with `relevant_from=1`."""
    labels, scores = make_batch(rng, 4)
    labels = np.where(labels > 0, labels / 2, labels)
    theirs = result(f"tfr.{METRICS[ours]}", labels, scores, weights)
    metric = metrics.get(
        ours, relevant_from=1, count_empty=True, label_format="relevance"
    )
    found = result(metric, labels, scores, weights)
    assert_allclose(found, theirs, rtol=1e-5)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_average_precision_at_a_cutoff(rng, k):
    """Theirs divide by all positives, ours by k if that is less."""
    labels, scores = make_batch(rng, 1)
    theirs = result(f"tfr.map_at_{k}", labels, scores)
    name = f"average_precision_at_{k}"
    over_all = metrics.AveragePrecisionAtK(
        k, over_all_positives=True, label_format="relevance"
    )
    assert_allclose(result(over_all, labels, scores), theirs, rtol=1e-5)
    assert result(name, labels, scores) > 1.01 * theirs
    few = np.where(np.cumsum(labels > 0, axis=1) > k, np.minimum(labels, 0), labels)
    expected = result(f"tfr.map_at_{k}", few, scores)
    assert_allclose(result(name, few, scores), expected, rtol=1e-5)


def test_precision_of_short_lists(rng):
    """Of three items, theirs at 5 divide by 3, ours by 5."""
    labels, scores = make_batch(rng, 1)
    labels[:, 3:] = -1
    theirs = result("tfr.precision_at_5", labels, scores)
    assert_allclose(result("precision_at_5", labels, scores) * 5, theirs * 3, rtol=1e-5)


@pytest.mark.parametrize(
    "name", ["mrr", "precision", "recall_at_3", "ndcg", "dcg_at_3"]
)
def test_grades_between_0_and_1(rng, name):
    """Relevant from 1 in theirs, above 0 in ours; no matter where grades have gains."""
    labels, scores = make_batch(rng, 1)
    half = np.where(labels == 1, 0.5, labels).astype("float32")
    theirs = result(f"tfr.{METRICS[name]}", half, scores)
    expected = theirs if "dcg" in name else result(name, labels, scores)
    assert_allclose(result(name, half, scores), expected, rtol=1e-5)
    assert "dcg" in name or theirs == 0


@pytest.mark.parametrize(
    "name, peer, scale",
    [
        ("mean_squared_loss", "mean_squared_loss", 1),
        ("sigmoid_cross_entropy_loss", "sigmoid_cross_entropy_loss", LIST_SIZE),
        ("pairwise_mean_squared_loss", "pairwise_mse_loss", 1 / (LIST_SIZE - 1)),
    ],
)
def test_losses_that_need_no_positive(name, peer, scale, normal):
    """Lists without one count in both."""
    scores = normal(4, LIST_SIZE)
    labels = np.zeros_like(scores)
    labels[:2, 3] = 1
    ours, peers = (float(build_loss(x)(labels, scores)) for x in (name, f"tfr.{peer}"))
    assert_allclose(ours, scale * peers, rtol=1e-5)


def test_the_table_has_all_names():
    """Each key, and each class without one, is there, and what is there is built."""
    page = (pathlib.Path(__file__).parents[2] / "docs" / "coming_from.md").read_text()
    section = page.split("## Name by name")[1].split("## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| `([\w.]+)` \|", section, re.MULTILINE))
    lists = section.split("The same name here:")[1].split("| TF-Ranking |")[0]
    rows |= {
        name.removeprefix("tfr."): name for name in re.findall(r"`([a-z_.]+)`", lists)
    }
    enumerations = _tfr.keras.losses.RankingLossKey, _tfr.keras.metrics.RankingMetricKey
    keys = {
        value for x in enumerations for name, value in vars(x).items() if name.isupper()
    }
    if "calibrated_softmax_loss" not in keys:  # TF-Ranking 0.5.3
        del rows["calibrated_softmax_loss"]
    assert set(rows) == keys | {"ClickEMLoss", "MixtureEMLoss", "RecallMetric"}
    for theirs, here in rows.items():
        of_loss = theirs.lower().endswith("loss")
        built = build_loss(here) if of_loss else pipeline.build_metric(here, "")
        assert type(built).__module__.startswith(
            "tensorflow_ranking"
        ) == here.startswith("tfr.")


def test_metrics_of_subtopics_by_name():
    labels, scores = [[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]], [[3.0, 2.0, 1.0]]
    assert result("tfr.precision_ia_at_2", labels, scores) == pytest.approx(2 / (2 * 2))
    expected = 1 + 1 / np.log2(3)  # Each item brings a new subtopic.
    assert_allclose(result("tfr.alpha_dcg_at_2", labels, scores), expected, rtol=1e-5)


@pytest.mark.parametrize(
    "build", [build_loss, lambda name: pipeline.build_metric(name, "")]
)
def test_all_names_that_an_error_offers_can_be_built(build):
    with refused("must name one of") as raised:
        build("unknown")
    names = re.search(r"one of: (.*)\. Received", str(raised.value))[1].split(", ")
    assert len(names) > 15
    for name in names:
        try:
            build(name)
        except (
            TypeError,
            ValueError,
        ) as error:  # A name whose loss or metric needs more.
            assert re.search(
                r"missing \d+ required", str(error)
            ) or "'hits_at_5'" in str(error)


def test_metrics_of_whole_lists_have_no_cutoff():
    for name in ("arp", "ordered_pair_accuracy"):
        assert pipeline.build_metric(f"tfr.{name}", "").name == name
        with refused(f"'{name}' without a cutoff. .*'tfr.{name}_at_2'"):
            pipeline.build_metric(f"tfr.{name}_at_2", "")


@pytest.mark.parametrize("k", [2, 5, None])
@pytest.mark.parametrize("share", [0.2, 0.7])
def test_bpref(k, share, rng):
    scores = rng.permutation(40 * 12).reshape(40, 12).astype("float32")
    labels = (rng.random((40, 12)) < share).astype("float32")
    labels[:, 3] = 1
    labels[:, 9:][rng.random((40, 3)) < 0.5] = -1
    expected, _ = metrics_impl.BPrefMetric("bpref", k).compute(labels, scores)
    assert_allclose(
        result(metrics.BPref(k), labels, scores), np.mean(expected), rtol=1e-5
    )


# Values and gradients of losses, of each list: with padding, grades, ties and weights
# of items

NONE = tf.keras.losses.Reduction.NONE
BATCH, N = 6, 11
PAIRWISE = ["PairwiseLogisticLoss", "PairwiseHingeLoss", "PairwiseSoftZeroOneLoss"]
LISTWISE = ["SoftmaxLoss", "UniqueSoftmaxLoss", "ApproxNDCGLoss", "ApproxMRRLoss"]


@pytest.fixture(params=[False, True], ids=["plain", "weighted"])
def lists(request, rng, normal):
    """Labels with grades, tied grades and missing items; scores; item weights."""
    scores = normal(BATCH, N)
    labels = rng.integers(0, 4, (BATCH, N)).astype("float32")
    labels[:, 0] = 2
    labels[1, 5:] = -1
    labels[2, [3, 7]] = -1
    weights = rng.choice([0.0, 0.3, 1.0, 4.0], (BATCH, N)).astype("float32")
    return labels, scores, weights if request.param else None


def per_list(loss, labels, scores, weights=None):

    def of_lists(scores):
        return tf.reduce_sum(
            tf.reshape(loss(labels, scores, weights), [BATCH, -1]), axis=1
        )

    return [x.numpy() for x in value_and_gradient(of_lists, scores)]


def compare(name, lists, scale=1.0, ours=None, theirs=None, peer=None, shift=0.0):
    value, gradient = per_list(
        getattr(losses, name)(reduction="none", **(ours or {})), *lists
    )
    peer = getattr(_tfr.keras.losses, peer or name)(
        reduction=NONE, **(theirs or ours or {})
    )
    expected, expected_gradient = per_list(peer, *lists)
    scale = np.broadcast_to(scale, [BATCH])
    assert_allclose(value, expected * scale + shift, rtol=1e-5)
    expected = expected_gradient * scale[:, None]
    atol = 1e-6 * np.abs(gradient).max()
    assert_allclose(gradient, expected, rtol=1e-4, atol=atol)


@pytest.mark.parametrize("name", [*LISTWISE, *PAIRWISE])
@pytest.mark.parametrize("temperature", [None, 0.5])
def test_losses_of_lists_and_of_pairs(name, temperature, lists):
    """Theirs of pairs is a value per item; ours is the sum over the list."""
    if name in PAIRWISE and temperature:
        pytest.skip("Theirs has none.")
    compare(name, lists, ours={"temperature": temperature} if temperature else {})


@pytest.mark.parametrize("name", PAIRWISE)
@pytest.mark.parametrize("top_k", [None, 3])
@pytest.mark.parametrize("smooth_fraction", [0.0, 0.4, 1.0])
def test_lambda_weights(name, top_k, smooth_fraction, lists):
    """Theirs grow with the width of the labels, ours with the items that are there."""
    ours = losses.NDCGLambdaWeights(top_k, smooth_fraction)
    theirs = _tfr.keras.losses.NDCGLambdaWeight(
        topn=top_k, smooth_fraction=smooth_fraction
    )
    scale = (lists[0] >= 0).sum(axis=1) / N
    compare(name, lists, scale, {"lambda_weights": ours}, {"lambda_weight": theirs})


def test_losses_of_all_items(lists):
    """Theirs is per item; ours is the mean over present items or pairs, or a sum."""
    n = (lists[0] >= 0).sum(axis=1)
    compare("MeanSquaredLoss", lists, 1 / n)
    compare("PairwiseMeanSquaredLoss", lists, 1 / (n * (n - 1)), peer="PairwiseMSELoss")
    compare("SigmoidCrossEntropyLoss", lists)


def test_list_mle(rng, normal):
    """Theirs adds log(m!) for m missing items, and orders tied items at random."""
    labels = np.stack([rng.permutation(N) for _ in range(BATCH)]).astype("float32")
    scores = normal(BATCH, N)
    weights = np.random.default_rng(1).random((BATCH, N)).astype("float32")
    compare("ListMLELoss", (labels, scores, weights))
    labels[2] = np.where(labels[2] < 3, -1, labels[2] - 3)
    compare(
        "ListMLELoss",
        (labels, scores),
        shift=-math.log(math.factorial(3)) * np.eye(BATCH)[2],
    )
