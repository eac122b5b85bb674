"""Metrics of lists: cutoffs, names, empty lists, peers, single metrics, group means."""

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import metrics as sk
from tensorflow import keras

import rank4class_tf as r4c
from rank4class_tf import metrics, ops
from rank4class_tf.metrics import (
    NDCG,
    BPref,
    MacroAverage,
    PrecisionAtK,
    RecallAtK,
    TopKAccuracy,
)
from rank4class_tf.metrics.base import ReadsBestPositive

from ..refused import refused, refused_in_graph
from ..small_models import linear
from .results import in_graph, orders, ranks_of, result

THREE = [[3.0, 2.0, 1.0]]


def test_cutoffs_name_their_results():
    for metric, names in (
        (TopKAccuracy([1, 5]), ["top_k_accuracy_at_1", "top_k_accuracy_at_5"]),
        (NDCG([1, None]), ["ndcg_at_1", "ndcg"]),
        (PrecisionAtK([3]), ["precision_at_3"]),
        (metrics.MRR([1, 2], name="mine"), ["mine_at_1", "mine_at_2"]),
    ):
        for m in (metric, type(metric).from_config(metric.get_config())):
            assert list(result(m, [0], THREE)) == names
    assert PrecisionAtK(3).name == "precision_at_3"
    assert metrics.HitRate is TopKAccuracy
    assert metrics.get("hit_rate_at_3").get_config() == TopKAccuracy(3).get_config()


@pytest.mark.parametrize("name", ["ndcg", "dcg", "mrr", "average_precision"])
def test_a_cutoff_beyond_the_list_takes_no_memory(name):
    ranks = ops.ranks_of_positives([[1.0, 2.0]], [[0]])
    far, near = (
        metrics.get(name, k=k).per_list(ranks, None)[0] for k in (2**40, np.int64(2))
    )
    assert_array_equal(far, near)


@pytest.mark.parametrize("form", ["ids", "relevance", "exclude", "ranks"])
@pytest.mark.parametrize("count_empty", [True, False])
def test_lists_without_positives_count_if_asked(form, count_empty):
    """The positives of lists 0 and 2 have rank 2; `exclude` removes that of list 2."""
    scores = np.float32([[3, 2, 1]] * 4)
    weights = np.arange(1.0, 5)
    labels = np.array([[1], [-1], [1], [-1]])
    exclude = None
    values = [0.5, 0, 0.5, 0]
    if form == "relevance":
        labels = np.float32([[0, 1, 0], [0, 0, 0], [0, 1, 0], [-1, -1, -1]])
    elif form == "exclude":
        exclude = labels * [[-1], [1], [1], [1]]
        values = [0.5, 0, 0, 0]
    elif form == "ranks":
        labels = ops.ranks_of_positives(scores, labels)
        scores = None
    metric = metrics.MRR(count_empty=count_empty)
    metric = metrics.MRR.from_config(metric.get_config())
    counts = np.array([count_empty or value > 0 for value in values])
    for of_lists in (None, weights):
        metric.reset_state()
        metric.update_state(labels, scores, of_lists, exclude=exclude)
        expected = np.average(
            values, weights=(weights if of_lists is not None else 1) * counts
        )
        assert_allclose(metric.result(), expected, rtol=1e-6)


@pytest.mark.parametrize(
    "metric, labels, scores, expected",
    [
        (
            PrecisionAtK(4),
            [[0, 2]],
            THREE,
            2 / 4,
        ),  # The divisor is k even for shorter lists.
        (PrecisionAtK(), [[1.0, 0, -1]], THREE, 1 / 2),  # The share of positives.
        (
            RecallAtK(),
            [[0, 2]],
            [[3.0, 1.0, np.nan]],
            1 / 2,
        ),  # Only a missing score is no hit.
        (RecallAtK(), [[0, 1]], [[3.0, 1.0, np.nan]], 1),
        (metrics.MeanRank(), [0], [[np.nan, 1.0, 2.0]], 3),
        # Of R = 2 and N = 2 judged items one wrong stands above the second positive.
        (
            BPref(),
            [[-1.0, 1, -1, 0, 1, -1, 0]],
            [[7.0, 6, 5, 4, 3, 2, 1]],
            (1 + (1 - 1 / 2)) / 2,
        ),
        (BPref(), [[1.0, 0.0, 0.0]], [[1.0, 1.0, 0.0]], 1 - 0.5),  # Ties count half.
        (
            metrics.DCG(gain=lambda y: 10 * y, discount=lambda r: 1 / r**2),
            [[0.0, 2.0, 1.0]],
            THREE,
            20 / 2**2 + 10 / 3**2,
        ),
        # The exact metric takes functions of NumPy; the soft one needs a gradient.
        (NDCG(discount=lambda rank: 1 / np.log2(1 + rank)), [1], THREE, 1 / np.log2(3)),
    ],
)
def test_worked_examples(metric, labels, scores, expected):
    assert_allclose(result(metric, labels, scores), expected, rtol=1e-6)


def test_ndcg_without_positives_or_gains_is_0():
    none = ops.ranks_of_positives(THREE * 2, np.zeros((2, 0), int), np.zeros((2, 0)))
    assert_array_equal(NDCG().compute_at(none, None), [0, 0])
    ranks = ops.ranks_of_positives(
        THREE * 3, [[0, 1]] * 3, [[1.0, 0.0], [3.0, 1.0], [np.nan, 1.0]]
    )
    gains = NDCG(gain=lambda labels: tf.where(labels > 1, 1.0, 0.0 * labels))
    assert_array_equal(gains.compute_at(ranks, None), [0, 1, np.nan])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("max_rank", [2, 3, 100])
def test_median_rank_over_lists_at_their_mean_ranks(seed, max_rank):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 3, (6, 5)).astype("float32")
    labels = np.zeros((6, 5))
    for row, count in enumerate([1, 2, 1, 3, 2, 1]):
        labels[row, rng.permutation(5)[:count]] = 1
    lists = zip(scores, labels, strict=True)
    ranks = [[order.index(1) + 1 for order in orders(s, y)] for s, y in lists]
    expected = [np.mean(of_list) for of_list in ranks]
    median = np.median(np.ceil(np.round(expected, 6)))
    metric = metrics.MedianRank(max_rank=max_rank)
    metric.update_state(labels[:4], scores[:4])
    metric.update_state(labels[4:], scores[4:])
    assert float(metric.result()) == (median if median <= max_rank else np.inf)
    assert_allclose(metric.per_list(labels, scores)[0][:, 0], expected, rtol=1e-12)


def test_median_rank_with_weights(as_for_xla):
    scores = np.tile(np.arange(9, 0, -1, dtype="float32"), (4, 1))
    ids = np.array([7, 0, 2, 5])
    metric = metrics.MedianRank()
    assert float(metric.result()) == 0
    assert float(result(metric, ids, scores)) == np.median(ids + 1)
    metric.reset_state()
    assert float(result(metric, ids, scores, [0.0, 1.0, 0.5, 3.0])) == 6
    assert float(result(metric, [0], np.full((1, 9), np.nan), 100.0)) == 9
    other = metrics.MedianRank()
    other.update_state(ids, scores, 1000.0)
    other.merge_state([metric])
    # Mass 1001, 1000.5, 1003, 1000 and 100 at the ranks 1, 3, 6, 8 and 9: half of it is
    # 2052.25.
    assert float(other.result()) == 6
    in_graph(other.update_state)(np.array([[99, -1]]), scores[:1])
    assert np.isnan(other.result())


def test_median_rank_of_millions_and_of_the_largest_weights():
    count = 4_300_000
    metric = metrics.MedianRank(max_rank=count)
    tied = np.zeros((1, count), np.float32)
    assert float(result(metric, [0], tied)) == np.ceil((count + 1) / 2)
    weights = np.full(3, 1e38, np.float32)
    metric = metrics.MedianRank(max_rank=10)
    assert float(result(metric, [0, 1, 2], np.array(THREE * 3), weights)) == 2


SCORED = [metrics.MRR(relevant_from=1.5), metrics.PropensityScoredNDCG(3, [0.5] * 4)]


@pytest.mark.parametrize("metric", SCORED)
def test_a_bad_list_is_nan_if_xla_compiles_a_graph_that_was_traced_elsewhere(metric):
    relevance = tf.constant([[2.0, 0, 0, 0], [np.nan, 1, 0, 2], [np.inf, 1, 0, 2]])
    traced = tf.function(metric.per_list).get_concrete_function(relevance, relevance)
    values, _ = tf.function(lambda *x: traced(*x), jit_compile=True)(
        relevance, relevance
    )
    assert_array_equal(np.isnan(values[:, 0]), [False, True, True])


def test_micro_recall_is_that_of_scikit_learn(scores, relevance):
    predicted = np.zeros_like(relevance)
    np.put_along_axis(predicted, np.argsort(-scores, axis=1)[:, :3], 1, axis=1)
    labels = relevance > 0
    metric = metrics.RecallAtK(3, average="micro", dtype="float64")
    expected = sk.recall_score(labels, predicted > 0, average="micro")
    for same in (metric, metrics.RecallAtK.from_config(metric.get_config())):
        assert_allclose(result(same, labels * 1, scores), expected, rtol=1e-12)


def test_lists_without_ties_equal_ir_measures(scores, relevance):
    ir = pytest.importorskip("ir_measures")
    run = [
        ir.ScoredDoc(str(q), str(d), float(s)) for (q, d), s in np.ndenumerate(scores)
    ]
    binary = ((relevance > 0) * 1, {})
    grades = (relevance, {"relevant_from": 2, "count_empty": True})
    for (labels, options), name, k, measure in (
        (binary, "recall", 2, ir.R @ 2),
        (binary, "ndcg", 5, ir.nDCG @ 5),
        (grades, "recall", 4, ir.R(rel=2) @ 4),
        (grades, "precision", 4, ir.P(rel=2) @ 4),
        (grades, "mrr", None, ir.RR(rel=2)),
        (grades, "average_precision", None, ir.AP(rel=2)),
        (grades, "hit_rate", 2, ir.Success(rel=2) @ 2),
    ):
        judged = [
            ir.Qrel(str(q), str(d), int(y)) for (q, d), y in np.ndenumerate(labels)
        ]
        expected = ir.calc_aggregate([measure], judged, run)[measure]
        actual = result(metrics.get(name, k=k, **options), labels, scores)
        assert_allclose(actual, expected, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("scores_dtype", ["float32", "float64"])
def test_a_grade_reaches_the_same_number_in_any_dtype(dtype, scores_dtype):
    scores = tf.constant([[2.0, 1.0, 0.0]], scores_dtype)
    for lowest in (0.1, 0.3, 0.7, 0.8, 2.0):
        labels = tf.cast(tf.constant([[lowest, 0.97 * lowest, 0.0]], tf.float64), dtype)
        precision = PrecisionAtK(2, relevant_from=lowest)
        for y_true in (labels, labels.numpy()):
            assert result(precision, y_true, scores) == 0.5


def test_ranked_ids_equal_ir_measures_on_files(tmp_path, rng):
    ir = pytest.importorskip("ir_measures")
    documents = np.array([f"doc-{i}" for i in range(30)])
    run = np.array([rng.permutation(documents)[:6] for _ in range(20)])
    right = np.array([rng.permutation(documents)[:8] for _ in range(20)])
    right[np.arange(8) >= rng.integers(1, 8, (20, 1))] = ""
    pairs = [(q, doc) for q, row in enumerate(right) for doc in row if doc]
    (tmp_path / "qrels").write_text("".join(f"{q} 0 {doc} 1\n" for q, doc in pairs))
    lines = [f"{q} Q0 {doc} {r} {9 - r} it\n" for (q, r), doc in np.ndenumerate(run)]
    (tmp_path / "run").write_text("".join(lines))
    over_all = metrics.AveragePrecisionAtK(5, over_all_positives=True)
    names = [
        "ndcg_at_5",
        "mrr_at_6",
        "recall_at_5",
        "precision_at_5",
        "hits_at_3",
        over_all,
    ]
    measures = [ir.nDCG @ 5, ir.RR, ir.R @ 5, ir.P @ 5, ir.Success @ 3, ir.AP @ 5]
    files = (
        ir.read_trec_qrels(str(tmp_path / "qrels")),
        ir.read_trec_run(str(tmp_path / "run")),
    )
    expected = ir.calc_aggregate(measures, *map(list, files))
    found = r4c.evaluate(None, (metrics.RankedIds(run), right), names, batch_size=7)
    actual = [estimate.value for estimate in found.estimates.values()]
    assert_allclose(actual, [expected[measure] for measure in measures], rtol=1e-9)


def test_ranked_ids_in_evaluate_compare_and_averages_of_classes(rng, normal):
    scores = normal(30, 8)
    ids = np.argsort(-scores)[:, :5]
    right = rng.integers(0, 8, 30)
    names = ["ndcg_at_5", "macro_mrr_at_3"]
    # A function may look them up, and ids may be far apart.
    found = r4c.evaluate(
        lambda x: metrics.RankedIds(x * 10**12), (ids, right * 10**12), names
    )
    expected = r4c.evaluate(None, (scores, right), names)
    for name in names:
        assert_array_equal(found.values[name], expected.values[name])
        assert_allclose(found.weights[name], expected.weights[name])
    # Padding above an id counts as a wrong item.
    third = result(metrics.MRR(3), [7], metrics.RankedIds([[8, -1, 7]]))
    assert_allclose(third, 1 / 3, rtol=1e-6)
    beyond = np.where(expected.ranks > 5, np.inf, expected.ranks)
    assert_array_equal(found.ranks, beyond)
    assert_array_equal(found.class_ids, right * 10**12)
    assert_array_equal(found.top_classes, ids * 10**12)
    by_ids = r4c.evaluate(None, (metrics.RankedIds(ids), right), names)
    assert r4c.compare(by_ids, expected)["ndcg_at_5"].difference == 0
    scored = metrics.PropensityScoredPrecisionAtK(
        3, propensities=rng.uniform(0.1, 1, 8)
    )
    values = (scored.per_list(right, x)[0] for x in (metrics.RankedIds(ids), scores))
    assert_allclose(*values, rtol=1e-12)
    with refused(r"`y_true` must hold class ids in \[0, 8\)"):
        scored.update_state(right + 8, metrics.RankedIds(ids))
    for groups in (None, right % 2):
        macro = [MacroAverage(metrics.MRR(3), 8) for _ in range(2)]
        macro[0].update_state(right, metrics.RankedIds(ids), groups=groups)
        macro[1].update_state(right, scores, groups=groups)
        assert_allclose(*(m.group_means() for m in macro), rtol=1e-6)


def test_ranked_ids_that_break_a_rule(as_for_xla):
    metric = metrics.MRR(2)
    right = [[1, 2], [3, -1]]
    for bad, message in (
        (
            [[1, 2], [3, 3]],
            "different ids >= 0 in each list, or -1 for padding. Received: .*3",
        ),
        ([[1, 2], [3, -2]], "different ids >= 0 in each list"),
        (
            [["1", "2"], ["3", ""]],
            "`y_true` must hold strings, as `RankedIds` do. Received: int32",
        ),
        ([[1, 2]], "`y_true` must have a row of ids for each list"),
        ([[1.0, 2.0], [3.0, 4.0]], "`ids` must be .* Received: float32 of shape"),
        ([[1, 2], [3]], "`ids` must be .* Received: .*non-rectangular"),
        ([[1], [3]], "at most the number of `RankedIds`.* k=2 and 1 ids"),
    ):
        with refused(message):
            metric.update_state(right, metrics.RankedIds(bad))
    # As wide as a list of labels, these are ids in a list that is padded.
    metric.update_state([[0, 1, -1], [1, -1, -1]], metrics.RankedIds([[1, 2], [3, 4]]))
    with refused("not a label of 0 or 1 for each item. Received: .*0"):
        metric.update_state(
            [[0, 1, -1], [0, 0, 1]], metrics.RankedIds([[1, 2], [3, 4]])
        )
    with refused("`exclude` must be None for `RankedIds`"):
        metric.update_state(
            right, metrics.RankedIds([[1, 2], [3, 4]]), exclude=[[1], [2]]
        )
    repeated = metrics.RankedIds([[1, 2], [3, 3]])
    values, _ = tf.function(metric.per_list)(tf.constant(right), repeated)
    assert_array_equal(values[:, 0], [1, np.nan])


@pytest.fixture
def of_classes(rng, normal):
    """Ids and scores; class 4 has no example."""
    scores = normal(60, 5)
    return rng.choice(4, 60, p=[0.6, 0.2, 0.1, 0.1]), scores


def test_groups_and_weights(of_classes, rng):
    ids, scores = of_classes
    groups = rng.integers(-1, 3, 60)
    weights = rng.random(60)
    metric = MacroAverage(metrics.MRR([1, None]), num_groups=3, dtype="float64")
    metric.update_state(ids, scores, weights, groups=groups)
    ranks = ranks_of(ids, scores)
    values_of = {"macro_mrr_at_1": ranks == 1, "macro_mrr": 1 / ranks}
    for column, (name, values) in enumerate(values_of.items()):
        means = [
            np.average(values[groups == g], weights=weights[groups == g])
            for g in range(3)
        ]
        assert_allclose(metric.group_means()[:, column], means, rtol=1e-12)
        assert_allclose(metric.result()[name], np.mean(means), rtol=1e-12)


def test_several_positives_belong_to_each_class():
    metric = MacroAverage(metrics.MRR(), num_groups=3, dtype="float64")
    metric.update_state([[0, 2], [2, -1], [-1, -1]], [[3.0, 2.0, 1.0]] * 3)
    # The first list, of value 1, counts for the classes 0 and 2, the second, 1/3, for
    # class 2.
    assert_allclose(metric.group_means()[:, 0], [1, np.nan, (1 + 1 / 3) / 2])


def test_unknown_groups_raise_or_are_nan(as_for_xla):
    metric = MacroAverage(metrics.MRR(), num_groups=2)
    of_positives = ops.ranks_of_positives([[3.0, 1.0, 2.0]], [[1]])
    with refused("`y_true` must have the class ids of its positives"):
        metric.update_state(of_positives, None)
    batch = np.array([0, 1, 3]), np.eye(3, 5)
    with refused(r"`groups` must hold class ids in \[0, 2\)"):
        metric.update_state(*batch)
    in_graph(metric.update_state)(*batch)
    assert np.isnan(metric.result())
    metric.reset_state()
    assert float(metric.result()) == 0


@pytest.mark.parametrize(
    "label_format, labels, weights",
    [
        ("ids", [[0, 9], [1, -1]], None),
        ("relevance", np.array([[0, 0, np.nan], [0, 1, 0]]), None),
        ("relevance", np.array([[0, 0, np.inf], [0, 1, 0]]), None),
        ("ids", [[0, -1], [1, -1]], [np.nan, 1.0]),
    ],
)
def test_broken_labels_and_weights_are_nan_in_a_graph(
    label_format, labels, weights, as_for_xla
):
    """Though the group of such a list is not known."""
    metric = MacroAverage(metrics.MRR(label_format=label_format), num_groups=3)
    in_graph(metric.update_state)(np.array(labels), np.array(THREE * 2), weights)
    assert np.isnan(metric.result())


@pytest.mark.keras2
def test_in_keras(of_classes):
    ids, scores = of_classes
    model = linear(5, 5)
    metric = MacroAverage(TopKAccuracy([1, 2]), num_groups=5)
    copy = r4c.metrics.get(keras.utils.serialize_keras_object(metric))
    assert copy.get_config() == metric.get_config()
    model.compile("sgd", r4c.losses.SoftmaxLoss(), metrics=[metric])
    logs = model.evaluate(scores, ids, verbose=0, return_dict=True)
    copy.update_state(ids, model.predict(scores, verbose=0))
    for k in (1, 2):
        name = f"macro_top_k_accuracy_at_{k}"
        assert_allclose(logs[name], copy.result()[name], rtol=1e-6)


def test_direction_and_names_are_those_of_its_metric():
    for metric in (metrics.MeanRank(), metrics.MRR()):
        macro = MacroAverage(metric, 3)
        assert macro.higher_is_better == metric.higher_is_better
        assert macro._direction == metric._direction
    metric = MacroAverage(r4c.metrics.NDCG([1, 2]), 3, name="by_class")
    assert metric.result_names == ["by_class_at_1", "by_class_at_2"]


def test_groups_of_a_list_count_once_and_have_a_row_each():
    metric = MacroAverage(TopKAccuracy(1), 2)
    labels, scores = [[0, 0], [0, -1]], [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    metric.update_state(labels, scores, groups=[[0, 0], [0, -1]])
    assert float(metric.result()) == 0.5
    with refused("`groups` must have a row for each list"):
        metric.update_state(labels, scores, groups=[0])
    ids = tf.TensorSpec([None], tf.int32)
    step = in_graph(
        lambda y, s, groups: metric.update_state(y, s, groups=groups),
        [ids, tf.TensorSpec([None, 3]), ids],
    )
    with refused_in_graph("`groups` must have a row"):
        step([0], tf.zeros([1, 3]), [0, 1, 1, 0])


def test_a_formula_that_reads_what_its_base_does_not_give_raises():
    """Not a wrong number: the best positive has no relevance, a list no single rank."""
    formulas = {
        ReadsBestPositive: lambda self, best: [tf.reduce_sum(best.relevance, axis=-1)],
        metrics.RankingMetric: lambda self, ranks: [ranks.positives],
    }
    for base, compute in formulas.items():
        metric = type("Metric", (base,), {"compute": compute})()
        with pytest.raises(
            AttributeError, match=r"has no attribute '(relevance|positives)'"
        ):
            metric.update_state([0, 1], [[1.0, 2.0], [0.0, 3.0]])
