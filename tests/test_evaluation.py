"""Evaluation with confidence intervals, comparison of models, and figures of both."""

import csv
import itertools

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from tensorflow import keras

import rank4class_tf as r4c
from rank4class_tf import _intervals, evaluation, metrics, plots
from rank4class_tf._batches import batches

from .metrics.results import ranks_of
from .refused import refused, refused_in_graph
from .small_models import linear, sequential


def dataset(labels, scores, *weights, batch_size=32):
    return tf.data.Dataset.from_tensor_slices((scores, labels, *weights)).batch(
        batch_size
    )


@pytest.fixture
def scores(normal):
    return normal(100, 6)


@pytest.fixture
def ids(rng):
    return rng.integers(0, 6, 100)


def test_values_equal_the_metrics(scores, ids):
    metrics = [
        r4c.metrics.NDCG([1, 3]),
        r4c.metrics.MRR(name="mine"),
        "top_k_accuracy_at_2",
    ]
    result = r4c.evaluate(None, dataset(ids, scores), metrics)
    assert list(result.estimates) == [
        "ndcg_at_1",
        "ndcg_at_3",
        "mine",
        "top_k_accuracy_at_2",
    ]
    single = "ndcg_at_1", "ndcg_at_3", "mrr", "top_k_accuracy_at_2"
    for name, metric in zip(
        result.estimates, map(r4c.metrics.get, single), strict=True
    ):
        assert_allclose(result[name].value, metric(ids, scores), rtol=1e-6)
        assert_allclose(result.values[name].mean(), metric.result(), rtol=1e-6)
    ranks = ranks_of(ids, scores)
    assert_array_equal(result.ranks, ranks)


def test_a_metric_may_read_the_scores(scores, ids):
    class Highest(r4c.metrics.MRR):
        def per_list(self, y_true, y_pred, *args, **kwargs):
            _, weights = super().per_list(y_true, y_pred, *args, **kwargs)
            highest = tf.reduce_max(y_pred, axis=1, keepdims=True)
            return tf.cast(highest, tf.float64), 2 * weights

    result = r4c.evaluate(None, dataset(ids, scores), [Highest(name="own"), "mrr"])
    assert_allclose(result.values["own"], scores.max(axis=1), rtol=1e-6)
    assert_array_equal(result.weights["own"], 2 * result.weights["mrr"])
    with refused("`propensities` must have one for each class"):
        r4c.evaluate(
            None, dataset(ids, scores), [r4c.metrics.PropensityScoredNDCG(1, [0.5] * 7)]
        )


def test_weights_and_excluded_items(scores, ids, rng):
    weights = rng.random(100).astype("float32")
    seen = np.stack([(ids + 1) % 6, np.full(100, -1)], axis=1).astype("float32")
    data = tf.data.Dataset.from_tensor_slices(((scores, seen), ids, weights)).batch(32)
    result = r4c.evaluate(
        lambda x: x[0], data, ["mrr"], exclude=lambda x: tf.cast(x[1], tf.int32)
    )
    others = scores.copy()
    np.put_along_axis(others, seen[:, :1].astype(int), -np.inf, axis=1)
    expected = np.average(1 / ranks_of(ids, others), weights=weights)
    assert_allclose(result["mrr"].value, expected, rtol=1e-6)


def test_keras_model_runs_in_inference_mode(ids, normal):
    features = normal(100, 3)
    dropout = keras.layers.Dropout(0.9)
    model = sequential((3,), dropout, keras.layers.Dense(6))
    result = r4c.evaluate(model, dataset(ids, features), ["ndcg"])
    expected = r4c.evaluate(
        None, dataset(ids, model.predict(features, verbose=0)), ["ndcg"]
    )
    assert_allclose(result["ndcg"].value, expected["ndcg"].value, rtol=1e-6)


def test_interval_of_a_proportion_is_wilsons():
    for hits, lists in ((10, 10), (3, 4), (1, 1000), (0, 7), (1, 1)):
        ids = np.r_[np.zeros(hits, int), np.ones(lists - hits, int)]
        scores = np.tile(np.float32([2, 1, 0]), (lists, 1))
        found = r4c.evaluate(
            None, dataset(ids, scores), ["precision_at_1"], confidence=0.9
        )
        wilson = stats.binomtest(hits, lists).proportion_ci(0.9, method="wilson")
        estimate = found["precision_at_1"]
        assert_allclose([estimate.low, estimate.high], wilson, rtol=1e-9, atol=1e-12)


def test_interval_of_other_metrics(scores, ids, rng):
    weights = rng.random(100)
    result = r4c.evaluate(
        None, (scores, ids, weights), ["mrr", "mean_rank"], confidence=0.9
    )
    size = weights.sum() ** 2 / (weights**2).sum()
    q = stats.t.ppf(0.95, size - 1)
    for name in ("mrr", "mean_rank"):
        mean = np.average(result.values[name], weights=weights)
        variance = (
            np.sum((weights * (result.values[name] - mean)) ** 2) / weights.sum() ** 2
        )
        variance *= size / (size - 1)
        expected = mean + np.array([-1, 1]) * q * np.sqrt(variance)
        # p for which (mean - p)**2 = q**2 variance p (1 - p) / mean (1 - mean).
        if name == "mrr":
            scale = q**2 * variance / (mean * (1 - mean))
            expected = np.sort(np.roots([1 + scale, -2 * mean - scale, mean**2]))
        assert_allclose([result[name].low, result[name].high], expected, rtol=1e-6)


def test_intervals_stay_within_the_bounds_of_a_metric():
    scores = np.tile(np.float32([4, 3, 2, 1]), (4, 1))
    for ids in ([0, 0, 0, 0], [0, 0, 0, 3], [3, 3, 3, 3]):
        found = r4c.evaluate(
            None, (scores, ids), ["mrr", "dcg", "mean_rank", "ndcg_at_1"]
        )
        for name, (low, high) in found.bounds.items():
            assert (
                low <= found[name].low <= found[name].value <= found[name].high <= high
            )
        assert found["mrr"].low < found["mrr"].high
    assert found.bounds["dcg"] == (0, np.inf) and found.bounds["mean_rank"] == (
        1,
        np.inf,
    )


@pytest.mark.parametrize(
    "values, weights, low",
    [
        # The mean is 1 by rounding, or beyond; q for n = 10 is 2.262.
        ([1] * 9 + [1 - 2**-53], [1] * 10, 1 / (1 + 2.262**2 / 10)),
        ([1] * 9 + [1 + 2**-52], [1] * 10, 1 / (1 + 2.262**2 / 10)),
        # Nearly one list, which says nothing.
        ([0.3, 0.6], [1, 0.004], 0),
    ],
)
def test_intervals_of_nearly_equal_and_of_nearly_no_values(values, weights, low):
    values, weights = np.array(values), np.array(weights, float)
    found = _intervals.interval(values, weights, 0.95, (0, 1))
    assert (found.low, found.high) == (pytest.approx(low, abs=1e-3), pytest.approx(1))
    unbounded = _intervals.interval(values, weights, 0.95)
    assert (unbounded.low < -1e6) == (len(values) == 2)


def test_intervals_of_the_bootstrap_cover_the_mean():
    """In 200 samples of 60 lists, about 80% of 80% intervals cover the true mean."""
    rng = np.random.default_rng(3)
    # Reciprocal ranks 1, 1/2, 1/3 with probabilities 1/2, 1/4, 1/4.
    true_mean = 1 / 2 + 1 / 8 + 1 / 12
    covered = 0
    for _ in range(200):
        values = 1 / (1 + rng.choice(3, 60, p=[0.5, 0.25, 0.25]))
        estimate = _intervals.bootstrap(values, np.ones(60), 0.8, 200, rng)
        covered += estimate.low <= true_mean <= estimate.high
    # Five standard deviations of a binomial count: 5 sqrt(200 * 0.8 * 0.2) = 28.
    assert abs(covered - 160) <= 28


@pytest.mark.parametrize("counted", [0, 3])
def test_intervals_of_few_lists_with_positives(counted):
    """Uncounted lists change nothing; a bootstrap draw of only these has no mean."""
    data = (
        np.tile(np.float32([2, 1, 0]), (30, 1)),
        [0] * counted + [-1] * (30 - counted),
    )
    expected = float(counted > 0)
    low = (
        stats.binomtest(counted, counted).proportion_ci(method="wilson").low
        if counted
        else 0
    )
    for method, lowest in (("bootstrap", expected), ("normal", low)):
        found = r4c.evaluate(None, data, ["mrr"], method=method)["mrr"]
        interval = found.value, found.low, found.high
        assert_allclose(interval, [expected, lowest, expected])


def test_randomisation_test_equals_all_swaps():
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(2, 8, 4)).astype("float32")
    ids = rng.integers(0, 4, 8)
    first, second = (r4c.evaluate(None, (s, ids), ["mrr"]) for s in scores)
    differences = first.values["mrr"] - second.values["mrr"]
    swaps = np.array(list(itertools.product([-1, 1], repeat=8)))
    exact = np.mean(np.abs(swaps @ differences) >= abs(differences.sum()) - 1e-12)
    found = r4c.compare(first, second)["mrr"]
    assert_allclose(found.difference, differences.mean(), rtol=1e-12)
    # Five standard deviations of a share of 10,000 draws.
    assert abs(found.p_value - exact) < 5 * np.sqrt(exact * (1 - exact) / 10_000) + 1e-4
    # Two more lists: half of one at each end, 1 and -1, and one without a difference.
    mean = differences.sum() / 10
    variance = ((differences**2).sum() + 0.5 + 0.5) / 10 - mean**2
    half = stats.t.ppf(0.975, 9) * np.sqrt(variance / 10)
    assert_allclose([found.low, found.high], [mean - half, mean + half])
    back = r4c.compare(second, first)["mrr"]
    assert_allclose([back.low, back.high], [-found.high, -found.low])


def test_average_is_that_of_each_list(scores, ids):
    metrics = ["mrr", "top_k_accuracy_at_1"]
    one, other = (
        r4c.evaluate(None, dataset(ids, s), metrics) for s in (scores, -scores)
    )
    both = r4c.average([one, other])
    for name in both.values:
        assert_allclose(both.values[name], (one.values[name] + other.values[name]) / 2)
        value = (one[name].value + other[name].value) / 2
        assert both[name].value == pytest.approx(value)
        # The mean of two varies less than either.
        assert both[name].low > value - max(
            e[name].value - e[name].low for e in (one, other)
        )
    assert_allclose(both.ranks, (one.ranks + other.ranks) / 2)


def test_comparison_tells_models_apart_or_not(scores, ids):
    better = scores + 2 * np.eye(6, dtype="float32")[ids]
    one, other = (r4c.evaluate(None, (s, ids), ["mrr"]) for s in (scores, better))
    same = r4c.compare(one, one)["mrr"]
    assert (same.difference, same.p_value) == (0, 1) and same.low == -same.high < 0
    assert r4c.compare(other, one)["mrr"].p_value < 1e-3
    one.values["mrr"][3] = np.nan
    comparison = r4c.compare(one, other)["mrr"]
    assert np.isnan([comparison.difference, comparison.p_value]).all()


@pytest.mark.keras2
def test_ragged_ids_at_positions_are_ids_for_every_metric():
    """A position may have as many ids as there are classes, as labels of all have."""

    class Own(metrics.MRR):
        def per_list(self, *args, **kwargs):
            return super().per_list(*args, **kwargs)

    scores = np.array([[[1.0, 2, 3], [3, 2, 1]]], "float32")
    # By ids, the best positives have the ranks 1 and 2. Read as relevance, padding -1
    # would mask two classes of the second position, and leave one of rank 1.
    labels = tf.ragged.constant([[[0, 1, 2], [1]]])
    named = [Own(name="own"), Own(label_format="ids", name="ids"), "mrr"]
    batch = scores, labels
    found = r4c.evaluate(None, [batch], named)
    for name in ("own", "ids", "mrr"):
        assert_array_equal(found.values[name], [1.0, 0.5])


@pytest.mark.keras2
@pytest.mark.often("True")
@pytest.mark.parametrize("are_ids", [True, False])
def test_batches_of_many_widths_share_a_graph(rng, normal, monkeypatch, are_ids):
    """A format told by the width of a batch stays so where the graph forgets it."""
    traced = []
    compute = metrics.MRR.compute

    def counted(self, ranks):
        traced.append(ranks)
        return compute(self, ranks)

    monkeypatch.setattr(metrics.MRR, "compute", counted)
    pairs = []
    for width in range(3, 15):
        scores = normal(width % 4 + 1, width)
        ids = rng.integers(0, width, len(scores))
        pairs.append((scores, ids if are_ids else np.eye(width, dtype=int)[ids]))
    measure = evaluation.Evaluator(None, ["mrr"])
    found = measure(pairs)
    one_by_one = [r4c.evaluate(None, pair, ["mrr"]).values["mrr"] for pair in pairs]
    assert_array_equal(found.values["mrr"], np.concatenate(one_by_one))

    traced.clear()
    measure = evaluation.Evaluator(None, ["mrr"])
    measure(pairs)
    # The shapes of the first batch, and shapes of any size.
    assert len(traced) == 2
    traced.clear()
    measure(pairs)
    assert not traced
    # The last batch, of one list, needs no graph of its own.
    r4c.evaluate(None, (np.eye(5), np.arange(5)), ["mrr"], batch_size=2)
    assert len(traced) == 1


def test_checks_of_inferred_ids_hold_for_batches_of_many_widths(normal):
    """Zeros and ones of a wrong width are neither ids nor labels of all items."""
    batches = [(normal(2, n), np.tile([[0, 1, -1, -1]], (2, 1))) for n in (5, 6, 7)]
    evaluation.Evaluator(None, ["mrr"])(batches)
    wrong = batches + [(normal(2, 8), np.array([[0, 1, 1, 0], [1, 0, 0, 0]]))]
    with refused_in_graph("zeros and ones is neither"):
        evaluation.Evaluator(None, ["mrr"])(wrong)


@pytest.mark.parametrize("dtype, bound", [("float16", 0.1), ("bfloat16", 0.7)])
def test_a_bound_is_rounded_as_the_grades_are(dtype, bound):
    grades = tf.cast(bound * np.eye(3), dtype)
    scores = np.arange(9.0).reshape(3, 3)
    metric = metrics.MRR(relevant_from=bound)
    assert r4c.evaluate(None, (scores, grades), [metric])["mrr"].value == metric(
        grades, scores
    )


def test_scores_of_functions_that_read_static_shapes(rng):
    features = rng.normal(size=(10, 3))

    def as_scores(x):
        return tf.reshape(x, [x.shape[0], 3])

    result = r4c.evaluate(
        as_scores,
        (features, np.arange(10) % 3),
        ["mrr"],
        exclude=lambda x: np.full([x.shape[0], 1], -1),
        batch_size=4,
    )
    assert len(result.ranks) == 10


def test_each_batch_has_its_own_form_of_labels_and_length_of_lists():
    batches = [([[1.0, 3.0, 2.0]], [1]), ([[1.0, 2.0]], [[1.0, 0.0]])]
    kept = r4c.evaluate(None, batches, ["mrr"])
    assert_array_equal(kept.values["mrr"], [1, 0.5])
    assert_array_equal(kept.top_classes, [[1, 2, 0], [1, 0, -1]])
    assert_array_equal(kept.ranks, [1, 2])


@pytest.mark.parametrize("make", [metrics.MRR, lambda: metrics.MeanAveragePrecision(4)])
def test_padding_may_have_any_weight(make, normal):
    scores = tf.constant(normal(2, 3, 4))
    labels = np.eye(4)[[[0, 1, 2], [3, 0, 1]]]
    mask = np.array([[True, True, False], [True, False, False]])
    scores._keras_mask = tf.constant(mask)
    found = make()(labels, scores, np.where(mask, 2.0, -1.0))
    expected = make()(labels[mask], scores[mask])
    assert_allclose(found, expected, rtol=1e-6)


def test_saves_a_row_for_each_list(scores, ids, tmp_path):
    result = r4c.evaluate(None, dataset(ids, scores), ["mrr", "ndcg_at_3"])
    result.save(tmp_path / "ranks.csv")
    rows = list(csv.DictReader((tmp_path / "ranks.csv").read_text().splitlines()))
    assert_array_equal([float(r["rank"]) for r in rows], result.ranks)
    assert_array_equal(
        [float(r["ndcg_at_3"]) for r in rows], result.values["ndcg_at_3"]
    )


def test_an_extreme_classifier_ranks_all_classes(rng, normal):
    encoder = linear(4, 6)
    model = r4c.models.ExtremeClassifier(encoder, 50, 6, num_sampled=9)
    features = normal(30, 4)
    weights = rng.random(30)
    several = rng.integers(-1, 50, (30, 3))
    several[4] = -1
    scores, ids = (x.numpy() for x in model.top_k(features, 50))
    by_class = np.take_along_axis(scores, np.argsort(ids, axis=1), axis=1)
    metrics = ["mrr", "mean_rank", r4c.metrics.PrecisionAtK([1, 5])]
    found = r4c.evaluate(model, (features, several, weights), metrics, batch_size=8)
    expected = r4c.evaluate(None, (by_class, several, weights), metrics)
    assert str(found) == str(expected) and found.top_classes is None
    assert_array_equal(found.ranks, expected.ranks)
    assert_array_equal(found.class_ids, several.max(axis=1))
    with refused("`exclude` must be None"):
        r4c.evaluate(model, (features, several), ["mrr"], exclude=tf.identity)


def test_arrays_are_a_dataset(scores, ids):
    ranks = ranks_of(ids, scores)
    ragged = tf.RaggedTensor.from_tensor(scores)
    for features, model, labels in (
        (
            {"x": scores},
            lambda features: features["x"],
            tf.ragged.constant([[i] for i in ids]),
        ),
        ([ragged, scores], lambda inputs: inputs[0].to_tensor(), ids),
        (scores, None, list(ids)),
        (list(scores), None, ids),
    ):
        result = r4c.evaluate(model, (features, labels, [1.0] * 100), [])
        assert_array_equal(result.ranks, ranks)


def test_estimates_and_comparisons_by_the_names_of_metrics(scores, ids):
    metrics = [
        "ndcg_at_3",
        "hit_rate_at_2",
        r4c.metrics.MRR(name="mine"),
        "precision_at_1",
    ]
    result = r4c.evaluate(None, (scores, ids), metrics)
    for found in (result, r4c.compare(result, result)):
        assert found["hit_rate_at_2"] is found["top_k_accuracy_at_2"]
        with pytest.raises(
            KeyError, match="one of: ndcg_at_3, top_k_accuracy_at_2, mine, prec"
        ):
            found["mrr"]


def test_evaluations_and_comparisons_print_tables(scores, ids):
    one, other = (
        r4c.evaluate(None, (s, ids), ["ndcg_at_3", "mrr"]) for s in (scores, -scores)
    )
    of_both = r4c.compare(one, other)
    difference = "metric first - second low high p-value"
    for found, columns, numbers in (
        (one, "metric value low high", ("value", "low", "high")),
        (of_both, difference, ("difference", "low", "high", "p_value")),
    ):
        head, ndcg, mrr, *last = str(found).splitlines()
        assert head.split() == columns.split()
        of = found["ndcg_at_3"]
        assert ndcg.split() == [
            "ndcg_at_3",
            *(f"{getattr(of, x):.4f}" for x in numbers),
        ]
        assert (
            mrr.startswith("mrr ")
            and len({len(line) for line in (head, ndcg, mrr)}) == 1
        )
        assert last == (["100 lists"] if found is one else [])
    assert repr(one) == str(one)


def test_many_evaluations_do_not_make_tensorflow_warn(caplog):
    for scale in range(1, 6):
        r4c.evaluate(lambda x, scale=scale: scale * x, ([[2.0, 1.0]], [0]), ["mrr"])
    assert not [record for record in caplog.records if "retracing" in record.message]


@pytest.mark.parametrize(
    "structure, size", [(list, 1), (list, 2), (tuple, 3), (tuple, 100)]
)
def test_models_of_several_inputs(structure, size, scores, ids):
    inputs = [keras.Input((6,)) for _ in range(2)]
    model = keras.Model(inputs, keras.layers.Subtract()(inputs))
    features = structure([scores[:size], np.zeros([size, 6])])
    result = r4c.evaluate(model, (features, ids[:size], [1.0] * size), ["mrr"])
    expected = r4c.evaluate(None, (scores[:size], ids[:size]), ["mrr"])
    assert result["mrr"].value == pytest.approx(expected["mrr"].value)


def test_a_mean_over_classes_is_that_of_the_metric(scores, ids):
    several = np.stack(
        [ids, np.where(np.arange(len(ids)) % 2, -1, (ids + 1) % 6)], axis=1
    )
    for labels in (ids, several):
        expected = r4c.metrics.MacroAverage(r4c.metrics.NDCG(3), 6)
        expected.update_state(labels, scores)
        found = r4c.evaluate(None, (scores, labels), ["macro_ndcg_at_3"], batch_size=7)
        found = found["macro_ndcg_at_3"]
        assert_allclose(found.value, expected.result(), rtol=1e-6)
        assert found.low < found.value < found.high


@pytest.mark.parametrize("freedom", [1, 1.5, 300])
def test_quantiles_of_student(freedom):
    for confidence in (0.5, 0.95, 0.9999):
        expected = stats.t.ppf((1 + confidence) / 2, freedom)
        assert_allclose(
            _intervals.student_quantile(confidence, freedom), expected, rtol=1e-7
        )
        assert_allclose(
            _intervals.two_sided(expected, freedom), 1 - confidence, rtol=1e-6
        )


@pytest.mark.parametrize("batch_size", [7, 1000])
def test_both_ways(rng, batch_size):
    similarity = rng.normal(size=(40, 40)) + 2 * np.eye(40)
    some = rng.random((40, 30)) < 0.1
    for matrix, matches, k in (
        (similarity, None, 5),
        (similarity[:, :30], some, np.int64(2)),
    ):
        figures = evaluation.evaluate_retrieval(
            matrix, matches, k=k, batch_size=batch_size
        )
        matches = np.eye(40, dtype=bool) if matches is None else matches
        for side, of_side, own in (
            ("rows", matrix, matches),
            ("columns", matrix.T, matches.T),
        ):
            pairs = [(s, m) for s, m in zip(of_side, own, strict=True) if m.any()]
            # Of the best match.
            ranks = np.array([1 + (s > s[m].max()).sum() for s, m in pairs])
            assert figures[side]["median_rank"] == np.median(ranks)
            expected = np.mean(ranks <= k)
            assert_allclose(figures[side][f"hit_rate_at_{k}"], expected, rtol=1e-6)


# Ranks of the labels: 1, 2, 3, 1, and a list without a label.
SCORES = np.array([[3.0, 2, 1], [3, 2, 1], [3, 2, 1], [1, 2, 3], [1, 2, 3]], "float32")
CLASS_IDS = np.array([0, 1, 2, 2, -1])
NAMES = ("ant", "bee", "cat")


@pytest.fixture(scope="module")
def evaluated():
    pytest.importorskip("matplotlib")
    return r4c.evaluate(lambda x: x, (SCORES, CLASS_IDS), ["mrr"])


@pytest.mark.parametrize(
    "scores, labels, exclude, class_ids, top_classes, ranks",
    [
        (SCORES, CLASS_IDS, None, CLASS_IDS, np.argsort(-SCORES), [1, 2, 3, 1, np.nan]),
        (  # Masked and excluded items have no place.
            [[1, 2, 3, 9], [4, 3, 2, 1], [2, 4, 3, 1]],
            np.array([[0, 1, 2, -1], [0, 0, 0, 0], [1, 0, 0, 0]], "float32"),
            [[-1], [0], [1]],
            [2, -1, 0],
            [[2, 1, 0, -1], [1, 2, 3, -1], [2, 0, 3, -1]],
            [1, np.nan, 2],
        ),
        (  # Infinities and NaN stand last.
            [[3, 1, -np.inf, 2, 5], [3, np.nan, 1, 2, np.nan]],
            np.array([[1, 0, 0, -1, -1], [1, 0, 0, 0, 0]], "float32"),
            None,
            [0, 0],
            [[0, 1, 2, -1, -1], [0, 3, 2, -1, -1]],
            [1, 1],
        ),
    ],
)
def test_what_an_evaluation_keeps(
    scores, labels, exclude, class_ids, top_classes, ranks
):
    chosen = None if exclude is None else lambda x: exclude
    data = np.float32(scores), labels
    kept = r4c.evaluate(None, data, ["mrr"], exclude=chosen, batch_size=len(scores))
    assert_array_equal(kept.class_ids, class_ids)
    assert_array_equal(kept.top_classes, top_classes)
    assert_array_equal(kept.ranks, ranks)


def test_a_list_whose_positives_weigh_nothing_has_no_rank():
    """An item of weight 0 is left out; a list of weight 0 still has a rank."""
    scores = np.array([[1.0, 2, 3]] * 3)
    relevance = np.array([[1, 1, 0]] * 3)
    weights = np.array([[0.0, 0, 1], [1, 0, 1], [1, 1, 1]])
    found = r4c.evaluate(None, (scores, relevance, weights), ["mrr"])
    assert_array_equal(found.ranks, [np.nan, 2, 2])
    assert_array_equal(found.weights["mrr"] > 0, [False, True, True])
    found = r4c.evaluate(None, (scores, relevance, np.array([0.0, 1, 1])), ["mrr"])
    assert_array_equal(found.ranks, [2, 2, 2])
    multi_hot = np.array([[1, 0, 1, 0], [0, 1, 1, 1]], "float32")
    for labels in (multi_hot, np.array([[0, 2, -1], [2, 1, 3]])):
        kept = r4c.evaluate(None, (np.zeros((2, 4)), labels), ["mrr"])
        assert_array_equal(kept.class_ids, [2, 3])


def test_accuracy_by_k(evaluated):
    (axes,) = plots.accuracy_by_k(evaluated).axes
    assert axes.lines[0].get_ydata().tolist() == [0.5, 0.75, 1.0]
    (axes,) = plots.accuracy_by_k({"one": evaluated, "two": evaluated}, max_k=2).axes
    assert [line.get_label() for line in axes.lines] == ["one", "two"]
    assert axes.lines[1].get_ydata().tolist() == [0.5, 0.75]
    (axes,) = plots.accuracy_by_k(r4c.evaluate(None, ([[1.0, 1.0]], [0]), ["mrr"])).axes
    assert axes.lines[0].get_ydata().tolist() == [0, 1]  # The mean rank is 1.5.


def test_rank_histogram_and_confusion(evaluated):
    (axes,) = plots.rank_histogram(evaluated, max_rank=2).axes
    # Rank 3 counts as "or below".
    assert [bar.get_height() for bar in axes.patches] == [
        2,
        2,
    ]
    axes, _ = plots.confusion_at_k(evaluated, k=1, class_names=NAMES).axes
    assert_array_equal(
        axes.images[0].get_array(), [[1, 0, 0], [1, 0, 0], [0.5, 0, 0.5]]
    )


@pytest.mark.parametrize(
    "form", [tuple, tf.constant, lambda names: np.array(names, bytes)]
)
def test_hardest_classes(evaluated, form):
    (axes,) = plots.hardest_classes(evaluated, form(NAMES), count=2).axes
    # bee: 2; cat: the mean of 3 and 1, which stands behind it by its id.
    assert [bar.get_width() for bar in axes.patches] == [2, 2]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["bee", "cat"]


def test_hardest_classes_leave_out_lists_without_a_rank():
    """A positive of weight 0 has none."""
    weights = np.ones((3, 3))
    weights[0, 1] = 0
    scores = np.eye(3)[[0, 0, 2]]
    found = r4c.evaluate(None, (scores, [1, 1, 2], weights), ["mrr"])
    (axes,) = plots.hardest_classes(found, NAMES, count=1).axes
    assert [bar.get_width() for bar in axes.patches] == [2.5]
    assert [text.get_text() for text in axes.texts] == [" 1 lists"]


def test_a_metric_of_ones_own_measures_ranked_ids_without_padding():
    class Own(metrics.MRR):
        def per_list(self, *args, **kwargs):
            return super().per_list(*args, **kwargs)

    ranked = metrics.RankedIds([[1, 2, 3], [2, 1, 0], [3, 2, 1]])
    ids = np.array([2, 0, 1])
    found = r4c.evaluate(lambda _: ranked, (ids, ids), [Own(3, ignore_class=0)])
    assert found["own_at_3"].value == pytest.approx((1 / 2 + 1 / 3) / 2)
    assert len(found.ranks) == 2


def test_callback_writes_what_tensorboard_shows(tmp_path):
    pytest.importorskip("matplotlib")
    pytest.importorskip("tensorboard")
    model = linear(3, 3, loss=r4c.losses.SoftmaxLoss())
    wrong = r4c.callbacks.RankingTensorBoard(
        tmp_path, (SCORES, CLASS_IDS), class_names=["a"]
    )
    with refused("a name for each of the 3 classes. Received: 1 names"):
        model.fit(SCORES[:4], CLASS_IDS[:4], verbose=0, callbacks=[wrong])
    assert not list(tmp_path.iterdir())
    board = r4c.callbacks.RankingTensorBoard(
        tmp_path, (SCORES, CLASS_IDS), ["mrr"], NAMES, every=2
    )
    model.fit(SCORES[:4], CLASS_IDS[:4], epochs=3, verbose=0, callbacks=[board])
    (path,) = tmp_path.iterdir()
    tags = {}
    for record in tf.data.TFRecordDataset(str(path)):
        event = tf.compat.v1.Event.FromString(record.numpy())
        for value in event.summary.value:
            tags.setdefault(value.tag, []).append(event.step)
    pictures = ("accuracy_by_k", "rank_histogram", "hardest_classes", "confusion_at_k")
    names = {"ranking/mrr", "ranking/rank", *(f"ranking/{name}" for name in pictures)}
    assert tags == {name: [0, 2] for name in names}


def test_forms_of_features():
    """SciPy and TensorFlow sparse matrices, and pandas columns, as the dense arrays."""
    pandas = pytest.importorskip("pandas")
    sparse = pytest.importorskip("scipy.sparse")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 5)) * (rng.random((20, 5)) < 0.4)
    y = rng.integers(0, 5, 20)

    def scores(features):
        is_sparse = isinstance(features, tf.SparseTensor)
        return tf.sparse.to_dense(features) if is_sparse else features

    expected = r4c.evaluate(scores, (x, y), ["mrr"], batch_size=8)["mrr"]
    for features in (
        sparse.csr_matrix(x),
        sparse.coo_array(x),
        tf.sparse.from_dense(x),
        pandas.DataFrame(x),
    ):
        found = r4c.evaluate(
            scores, (features, pandas.Series(y)), ["mrr"], batch_size=8
        )["mrr"]
        assert found == expected
    # A column of booleans beside numbers.
    (part,) = batches(
        (pandas.DataFrame({"a": [True, False], "b": [0.5, 1.0]}), [0, 1]), 2
    )
    assert part[0].numpy().tolist() == [[1.0, 0.5], [0.0, 1.0]]
    fitted = [
        r4c.calibrate(scores, (z, y)).temperature for z in (x, sparse.csr_matrix(x))
    ]
    assert fitted[0] == fitted[1]


def test_few_lists_of_skewed_values_are_noted(rng):
    ranks = rng.integers(0, 300, 50)
    scores = -np.abs(np.arange(300) - ranks[:, None]).astype("float32")
    skewed = r4c.evaluate(
        None, (scores, np.zeros(50, int)), ["mrr", "top_k_accuracy_at_5"]
    )
    assert "mrr: too few lists for values so skewed" in str(skewed)
    assert "top_k_accuracy_at_5: too few" not in str(skewed)
    even = r4c.evaluate(
        None, (scores[:, :8], rng.integers(0, 8, 50)), ["mrr", "accuracy"]
    )
    assert (
        "too few" not in str(even) and even["accuracy"] == even["top_k_accuracy_at_1"]
    )
