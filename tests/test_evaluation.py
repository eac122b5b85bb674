"""Evaluation with confidence intervals, and the comparison of models."""

import csv
import itertools

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats
from tensorflow import keras

import rank4class_tf as r4c
from rank4class_tf import _intervals, evaluation


def identity(scores):
    return scores


def dataset(labels, scores, *weights, batch_size=32):
    return tf.data.Dataset.from_tensor_slices((scores, labels, *weights)).batch(batch_size)


@pytest.fixture
def scores(rng):
    return rng.normal(size=(100, 6)).astype(np.float32)


@pytest.fixture
def ids(rng):
    return rng.integers(0, 6, 100)


def test_values_equal_the_metrics(scores, ids):
    metrics = [r4c.metrics.NDCG([1, 3]), r4c.metrics.MRR(name="mine"), "top_k_accuracy_at_2"]
    result = r4c.evaluate(identity, dataset(ids, scores), metrics)
    assert list(result.estimates) == ["ndcg_at_1", "ndcg_at_3", "mine", "top_k_accuracy_at_2"]
    for name, metric in {
        "ndcg_at_1": r4c.metrics.NDCG(1),
        "ndcg_at_3": r4c.metrics.NDCG(3),
        "mine": r4c.metrics.MRR(),
        "top_k_accuracy_at_2": r4c.metrics.TopKAccuracy(2),
    }.items():
        metric.update_state(ids, scores)
        np.testing.assert_allclose(result[name].value, metric.result(), rtol=1e-6)
        np.testing.assert_allclose(result.values[name].mean(), metric.result(), rtol=1e-6)
    ranks = 1 + (scores > np.take_along_axis(scores, ids[:, None], 1)).sum(axis=1)
    np.testing.assert_array_equal(result.ranks, ranks)


def test_weights_and_excluded_items(scores, ids, rng):
    weights = rng.random(100).astype(np.float32)
    seen = np.stack([(ids + 1) % 6, np.full(100, -1)], axis=1).astype(np.float32)
    data = tf.data.Dataset.from_tensor_slices(((scores, seen), ids, weights)).batch(32)
    result = r4c.evaluate(lambda x: x[0], data, ["mrr"], exclude=lambda x: tf.cast(x[1], tf.int32))
    metric = r4c.metrics.MRR()
    metric.update_state(ids, scores, weights, exclude=seen.astype(int))
    np.testing.assert_allclose(result["mrr"].value, metric.result(), rtol=1e-6)
    plain = r4c.evaluate(identity, dataset(ids, scores), ["mrr"])
    assert result["mrr"].value > plain["mrr"].value


def test_keras_model_runs_in_inference_mode(ids, rng):
    features = rng.normal(size=(100, 3)).astype(np.float32)
    model = keras.Sequential(
        [keras.layers.Input((3,)), keras.layers.Dropout(0.9), keras.layers.Dense(6)]
    )
    result = r4c.evaluate(model, dataset(ids, features), ["ndcg"])
    metric = r4c.metrics.NDCG()
    metric.update_state(ids, model.predict(features, verbose=0))
    np.testing.assert_allclose(result["ndcg"].value, metric.result(), rtol=1e-6)


def test_interval_of_a_proportion_is_wilsons():
    for hits, lists in ((10, 10), (3, 4), (1, 1000), (0, 7), (1, 1)):
        ids = np.r_[np.zeros(hits, int), np.ones(lists - hits, int)]
        scores = np.tile(np.float32([2, 1, 0]), (lists, 1))
        found = r4c.evaluate(identity, dataset(ids, scores), ["precision_at_1"], confidence=0.9)
        wilson = stats.binomtest(hits, lists).proportion_ci(0.9, method="wilson")
        estimate = found["precision_at_1"]
        np.testing.assert_allclose([estimate.low, estimate.high], wilson, rtol=1e-9, atol=1e-12)


def test_interval_of_other_metrics(scores, ids, rng):
    weights = rng.random(100)
    result = r4c.evaluate(identity, (scores, ids, weights), ["mrr", "mean_rank"], confidence=0.9)
    size = weights.sum() ** 2 / (weights**2).sum()
    q = stats.t.ppf(0.95, size - 1)
    for name in ("mrr", "mean_rank"):
        mean = np.average(result.values[name], weights=weights)
        variance = np.sum((weights * (result.values[name] - mean)) ** 2) / weights.sum() ** 2
        variance *= size / (size - 1)
        expected = mean + np.array([-1, 1]) * q * np.sqrt(variance)
        if (
            name == "mrr"
        ):  # The p for which (mean - p)**2 = q**2 variance p (1 - p) / mean (1 - mean).
            scale = q**2 * variance / (mean * (1 - mean))
            expected = np.sort(np.roots([1 + scale, -2 * mean - scale, mean**2]))
        np.testing.assert_allclose([result[name].low, result[name].high], expected, rtol=1e-6)


def test_intervals_stay_within_the_bounds_of_a_metric():
    scores = np.tile(np.float32([4, 3, 2, 1]), (4, 1))
    for ids in ([0, 0, 0, 0], [0, 0, 0, 3], [3, 3, 3, 3]):
        metrics = ["mrr", "dcg", "mean_rank", "ndcg_at_1"]
        found = r4c.evaluate(identity, (scores, ids), metrics)
        for name, (low, high) in found.bounds.items():
            assert low <= found[name].low <= found[name].value <= found[name].high <= high
        assert found["mrr"].low < found["mrr"].high
    assert found.bounds["dcg"] == (0, np.inf) and found.bounds["mean_rank"] == (1, np.inf)


RECIPROCAL_RANKS = [1, 1 / 2, 1 / 3, 1 / 10]


@pytest.mark.parametrize("lists", [5, 10, 30, 200])
@pytest.mark.parametrize(
    ("values", "shares"),
    [
        ([0, 1], [0.998, 0.002]),
        ([0, 1], [0.98, 0.02]),
        ([0, 1], [0.5, 0.5]),
        ([0, 1], [0.05, 0.95]),
        (RECIPROCAL_RANKS, [0.5, 0.25, 0.15, 0.1]),
        (RECIPROCAL_RANKS, [0.95, 0.03, 0.02, 0]),
        ([1, 0.9, 0.8, 0.5], [0.3, 0.4, 0.2, 0.1]),
    ],
)
def test_intervals_cover_the_mean_of_few_lists_and_near_0_and_1(values, shares, lists):
    """No interval of discrete values covers 95 %; the normal one covers 1 % to 96 % of these."""
    rng = np.random.default_rng(5)
    samples = rng.choice(values, (1000, lists), p=shares)
    true_mean = np.dot(values, shares)
    found = [_intervals.interval(s, np.ones(lists), 0.95, (0.0, 1.0)) for s in samples]
    covered = np.mean([e.low <= true_mean <= e.high for e in found])
    # Of 5 lists with the share 0.02 Wilson's covers where none is right, 0.98**5; four standard
    # deviations of 1,000 draws are 0.037.
    assert covered > 0.98**5 - 0.037


@pytest.mark.parametrize("method", ["normal", "bootstrap"])
def test_intervals_cover_the_mean(method):
    """Of 200 samples of 60 lists, about 80% of the 80% intervals cover the true mean."""
    rng = np.random.default_rng(3)
    covered = 0
    scores = np.tile(np.float32([2, 1, 0]), (60, 1))
    # Reciprocal ranks 1, 1/2, 1/3 with probabilities 1/2, 1/4, 1/4.
    true_mean = 1 / 2 + 1 / 8 + 1 / 12
    metric = r4c.metrics.MRR()
    for _ in range(200):
        ids = rng.choice(3, 60, p=[0.5, 0.25, 0.25])
        values, weights = (x.numpy() for x in metric.per_list(ids, scores))
        if method == "normal":
            estimate = _intervals.interval(values[:, 0], weights, 0.8, metric.bounds)
        else:
            estimate = _intervals.bootstrap(values[:, 0], weights, 0.8, 200, rng)
        covered += estimate.low <= true_mean <= estimate.high
    # Five standard deviations of a binomial count: 5 sqrt(200 * 0.8 * 0.2) = 28.
    assert abs(covered - 160) <= 28


@pytest.mark.parametrize("counted", [0, 1, 3])
def test_intervals_of_few_lists_with_positives(counted):
    """Lists that do not count change nothing; a draw of the bootstrap of only these has no mean."""
    ids = [0] * counted + [-1] * (30 - counted)
    scores = np.tile(np.float32([2, 1, 0]), (30, 1))
    estimate = r4c.evaluate(identity, dataset(ids, scores), ["mrr"], method="bootstrap")["mrr"]
    expected = float(counted > 0)
    assert (estimate.value, estimate.low, estimate.high) == (expected, expected, expected)
    estimate = r4c.evaluate(identity, dataset(ids, scores), ["mrr"])["mrr"]
    low = stats.binomtest(counted, counted).proportion_ci(method="wilson").low if counted else 0
    np.testing.assert_allclose(
        [estimate.value, estimate.low, estimate.high], [expected, low, expected]
    )


def of_values(values):
    """An evaluation of lists whose values are given."""
    weights = {"mrr": np.ones(len(values))}
    return evaluation.Evaluation({}, {"mrr": values}, weights, values)


def test_p_values_of_models_that_are_alike_are_uniform():
    rng = np.random.default_rng(2)
    p_values = []
    for _ in range(300):
        hard = rng.random(25)  # What both models share.
        first, second = (1 / (1 + np.floor(9 * hard * rng.random(25))) for _ in range(2))
        comparison = r4c.compare(
            of_values(first), of_values(second), samples=199, seed=rng.integers(99)
        )
        p_values.append(comparison["mrr"].p_value)
    assert stats.kstest(p_values, "uniform").pvalue > 0.01
    # At most the share of the level, also in the tail.
    assert np.mean(np.array(p_values) <= 0.05) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 300)


def test_comparisons_print_a_table(scores, ids):
    one, other = (r4c.evaluate(identity, (s, ids), ["ndcg_at_3", "mrr"]) for s in (scores, -scores))
    comparisons = r4c.compare(one, other)
    head, ndcg, mrr = str(comparisons).splitlines()
    assert head.split() == ["metric", "first", "-", "second", "low", "high", "p-value"]
    of = comparisons["ndcg_at_3"]
    numbers = [f"{x:.4f}" for x in (of.difference, of.low, of.high, of.p_value)]
    assert ndcg.split() == ["ndcg_at_3", *numbers] and mrr.startswith("mrr ")
    assert len({len(line) for line in (head, ndcg, mrr)}) == 1
    first = one["ndcg_at_3"].value - other["ndcg_at_3"].value
    assert of.difference == pytest.approx(first)


def test_lists_without_positives_do_not_count(scores, ids):
    some = np.where(np.arange(100) % 2, ids, -1)
    result = r4c.evaluate(identity, dataset(some, scores), ["mrr"])
    kept = r4c.evaluate(identity, dataset(ids[1::2], scores[1::2]), ["mrr"])
    np.testing.assert_allclose(
        [result["mrr"].value, result["mrr"].low], [kept["mrr"].value, kept["mrr"].low], rtol=1e-12
    )


def test_randomisation_test_equals_all_swaps():
    """Against the p-value over all 2**8 swaps."""
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(2, 8, 4)).astype(np.float32)
    ids = rng.integers(0, 4, 8)
    first, second = (r4c.evaluate(identity, dataset(ids, s), ["mrr"]) for s in scores)
    differences = first.values["mrr"] - second.values["mrr"]
    swaps = np.array(list(itertools.product([-1, 1], repeat=8)))
    exact = np.mean(np.abs(swaps @ differences) >= abs(differences.sum()) - 1e-12)
    comparison = r4c.compare(first, second)["mrr"]
    np.testing.assert_allclose(comparison.difference, differences.mean(), rtol=1e-12)
    # Five standard deviations of a share of 10,000 draws.
    assert abs(comparison.p_value - exact) < 5 * np.sqrt(exact * (1 - exact) / 10_000) + 1e-4
    assert 0.05 < exact < 0.95
    # Two more lists: half of one at each end, 1 and -1, and one without a difference.
    mean = differences.sum() / 10
    variance = ((differences**2).sum() + 0.5 + 0.5) / 10 - mean**2
    half = stats.t.ppf(0.975, 9) * np.sqrt(variance / 10)
    np.testing.assert_allclose([comparison.low, comparison.high], [mean - half, mean + half])
    back = r4c.compare(second, first)["mrr"]
    np.testing.assert_allclose(
        [back.difference, back.low, back.high],
        [-comparison.difference, -comparison.high, -comparison.low],
    )


def test_average_is_that_of_each_list(scores, ids):
    metrics = ["mrr", "top_k_accuracy_at_1"]
    one, other = (r4c.evaluate(identity, dataset(ids, s), metrics) for s in (scores, -scores))
    both = r4c.average([one, other])
    for name in both.values:
        np.testing.assert_allclose(both.values[name], (one.values[name] + other.values[name]) / 2)
        value = (one[name].value + other[name].value) / 2
        assert both[name].value == pytest.approx(value)
        # The mean of two varies less than either.
        assert both[name].low > value - max(e[name].value - e[name].low for e in (one, other))
    np.testing.assert_allclose(both.ranks, (one.ranks + other.ranks) / 2)
    with pytest.raises(ValueError, match="at least one"):
        r4c.average([])
    with pytest.raises(ValueError, match="same metrics"):
        r4c.average([one, r4c.evaluate(identity, dataset(ids, scores), ["mrr"])])
    with pytest.raises(ValueError, match=r"`confidence` must be a number in \(0, 1\)"):
        r4c.average([one], confidence=1)


def test_comparison_tells_models_apart_or_not(scores, ids):
    one = r4c.evaluate(identity, dataset(ids, scores), ["mrr"])
    same = r4c.compare(one, one)["mrr"]
    assert (same.difference, same.p_value) == (0, 1) and same.low == -same.high < 0
    better = scores + 2 * np.eye(6, dtype=np.float32)[ids]
    other = r4c.evaluate(identity, dataset(ids, better), ["mrr"])
    assert r4c.compare(other, one)["mrr"].p_value < 1e-3
    with pytest.raises(ValueError, match="same metrics"):
        r4c.compare(one, r4c.evaluate(identity, dataset(ids, scores), ["ndcg"]))
    with pytest.raises(ValueError, match="same lists"):
        r4c.compare(one, r4c.evaluate(identity, dataset(np.full(100, -1), scores), ["mrr"]))


def test_only_the_same_lists_compare(scores, ids):
    one = r4c.evaluate(identity, dataset(ids, scores), ["mrr"])
    other = r4c.evaluate(identity, dataset(ids[::-1], scores[::-1]), ["mrr"])
    for join in (r4c.compare, lambda *evaluations: r4c.average(evaluations)):
        with pytest.raises(ValueError, match="in the same order. Their labels differ"):
            join(one, other)


def test_comparison_of_nan_is_nan(scores, ids):
    one, other = (r4c.evaluate(identity, dataset(ids, s), ["mrr"]) for s in (scores, -scores))
    one.values["mrr"][3] = np.nan
    comparison = r4c.compare(one, other)["mrr"]
    assert np.isnan([comparison.difference, comparison.p_value]).all()


def test_saves_a_row_for_each_list(scores, ids, tmp_path):
    result = r4c.evaluate(identity, dataset(ids, scores), ["mrr", "ndcg_at_3"])
    result.save(tmp_path / "ranks.csv")
    with open(tmp_path / "ranks.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 100
    np.testing.assert_array_equal([float(r["rank"]) for r in rows], result.ranks)
    np.testing.assert_array_equal([float(r["ndcg_at_3"]) for r in rows], result.values["ndcg_at_3"])
    parquet = pytest.importorskip("pyarrow.parquet")
    result.save(tmp_path / "ranks.parquet")
    table = parquet.read_table(tmp_path / "ranks.parquet")
    np.testing.assert_array_equal(table["mrr"].to_numpy(), result.values["mrr"])
    with pytest.raises(ValueError, match=r"`path` must end in .csv or .parquet"):
        result.save(tmp_path / "ranks.xlsx")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"confidence": 1.0}, "`confidence`"),
        ({"confidence": "0.9"}, "`confidence`"),
        ({"seed": -1}, "`seed`"),
        ({"exclude": 5}, "`exclude` must be a function"),
        ({"method": "exact"}, "`method`"),
        ({"samples": 0}, "`samples`"),
        ({"metrics": ["mrr", "mrr"]}, "different names"),
        ({"metrics": ["median_rank"]}, "means over lists"),
        ({"metrics": "mrr"}, "must be a list"),
        ({"metrics": [r4c.metrics.ExpectedCalibrationError()]}, "means over lists"),
    ],
)
def test_arguments_are_checked(scores, ids, arguments, message):
    arguments = {"metrics": ["mrr"], **arguments}
    with pytest.raises(ValueError, match=message):
        r4c.evaluate(identity, dataset(ids, scores), **arguments)


def test_an_extreme_classifier_ranks_all_classes(rng):
    encoder = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(6)])
    model = r4c.models.ExtremeClassifier(encoder, 50, 6, num_sampled=9)
    features = rng.normal(size=(30, 4)).astype(np.float32)
    several = rng.integers(-1, 50, (30, 3))
    several[4] = -1
    weights = rng.random(30).astype(np.float32)
    scores, ids = (x.numpy() for x in model.top_k(features, 50))
    by_class = np.take_along_axis(scores, np.argsort(ids, axis=1), axis=1)
    metrics = ["mrr", "mean_rank", r4c.metrics.PrecisionAtK([1, 5])]
    found = r4c.evaluate(model, (features, several, weights), metrics, batch_size=8)
    expected = r4c.evaluate(identity, (by_class, several, weights), metrics)
    assert str(found) == str(expected) and found.top_classes is None
    np.testing.assert_array_equal(found.ranks, expected.ranks)
    np.testing.assert_array_equal(found.class_ids, several.max(axis=1))
    assert r4c.compare(found, expected)["mrr"].difference == 0
    with pytest.raises(ValueError, match="`exclude` must be None"):
        r4c.evaluate(model, (features, several), ["mrr"], exclude=identity)


def test_an_empty_dataset_is_an_error(scores, ids):
    with pytest.raises(ValueError, match="at least one batch"):
        r4c.evaluate(identity, dataset(ids, scores).take(0), ["mrr"])


def test_arrays_are_a_dataset(scores, ids, rng):
    weights = rng.random(100)
    result = r4c.evaluate(identity, (scores, ids, weights), ["mrr"], batch_size=40)
    ranks = 1 + (scores > np.take_along_axis(scores, ids[:, None], 1)).sum(axis=1)
    np.testing.assert_allclose(result["mrr"].value, np.average(1 / ranks, weights=weights))
    np.testing.assert_array_equal(result.ranks, ranks)
    named = ({"x": scores}, tf.ragged.constant([[i] for i in ids]))
    result = r4c.evaluate(lambda features: features["x"], named, [])
    np.testing.assert_array_equal(result.ranks, ranks)


def test_other_datasets_are_errors(scores, ids):
    with pytest.raises(ValueError, match="as many labels as features.* 100 and 99"):
        r4c.evaluate(identity, (scores, ids[:99]), ["mrr"])
    for wrong in ((scores,), scores, [scores], (scores, ids, ids, ids)):
        with pytest.raises(ValueError, match=r"`dataset` must be `\(features, labels\)`"):
            r4c.evaluate(identity, wrong, ["mrr"])
    with pytest.raises(ValueError, match="`batch_size` must be a positive integer"):
        r4c.evaluate(identity, (scores, ids), ["mrr"], batch_size=0)


def test_estimates_by_the_names_of_metrics(scores, ids):
    metrics = ["ndcg_at_3", "hit_rate_at_2", r4c.metrics.MRR(name="mine"), "precision_at_1"]
    result = r4c.evaluate(identity, (scores, ids), metrics)
    assert result["ndcg_at_3"] is result.estimates["ndcg_at_3"]
    assert result["hit_rate_at_2"] is result["top_k_accuracy_at_2"]
    assert result["precision_at_1"] is result.estimates["precision_at_1"]
    for wrong in ("ndcg_at_4", "mrr", "nonsense", None, "ndcg_at_0"):
        with pytest.raises(KeyError, match="one of: ndcg_at_3, top_k_accuracy_at_2, mine, prec"):
            result[wrong]


def test_prints_a_table(scores, ids):
    result = r4c.evaluate(identity, (scores, ids), ["ndcg_at_3", "mean_rank"])
    head, ndcg, rank, count = str(result).splitlines()
    assert head.split() == ["metric", "value", "low", "high"]
    estimate = result["ndcg_at_3"]
    assert ndcg.split() == ["ndcg_at_3"] + [
        f"{number:.4f}" for number in (estimate.value, estimate.low, estimate.high)
    ]
    assert rank.startswith("mean_rank ") and len({len(line) for line in (head, ndcg, rank)}) == 1
    assert count == "100 lists" and repr(result) == str(result)


def test_compare_knows_metrics_by_either_name():
    one = r4c.evaluate(lambda x: x, ([[2.0, 1.0]], [0]), ["hit_rate_at_1"])
    comparisons = r4c.compare(one, one)
    assert comparisons["hit_rate_at_1"] is comparisons["top_k_accuracy_at_1"]
    with pytest.raises(KeyError, match="must be one of: top_k_accuracy_at_1. Received: 'mrr'"):
        comparisons["mrr"]


def test_many_evaluations_do_not_make_tensorflow_warn(caplog):
    for scale in range(1, 6):
        r4c.evaluate(lambda x, scale=scale: scale * x, ([[2.0, 1.0]], [0]), ["mrr"])
    assert not [record for record in caplog.records if "retracing" in record.message]


@pytest.mark.parametrize("structure", [list, tuple])
def test_models_of_several_inputs(structure, scores, ids):
    inputs = [keras.layers.Input((6,)) for _ in range(2)]
    model = keras.Model(inputs, keras.layers.Subtract()(inputs))
    features = structure([scores, np.zeros_like(scores)])
    result = r4c.evaluate(model, (features, ids), ["mrr"])
    expected = r4c.evaluate(identity, (scores, ids), ["mrr"])
    assert result["mrr"].value == pytest.approx(expected["mrr"].value)


def test_lists_of_rows_and_of_numbers_are_arrays(scores, ids):
    expected = r4c.evaluate(identity, (scores, ids), ["mrr"])["mrr"].value
    for dataset in ((list(scores), ids), (scores, list(ids)), (scores, ids, list(np.ones(100)))):
        result = r4c.evaluate(identity, dataset, ["mrr"])
        assert result["mrr"].value == pytest.approx(expected)
    for dataset in ((scores, []), ([scores, scores], ids, 1.0)):
        with pytest.raises(ValueError, match="`dataset` must"):
            r4c.evaluate(identity, dataset, ["mrr"])


@pytest.mark.parametrize("size", [1, 2, 3])
def test_few_examples_of_several_inputs(size, scores, ids):
    expected = r4c.evaluate(identity, (scores[:size], ids[:size]), ["mrr"])["mrr"].value
    dataset = [scores[:size], scores[:size]], ids[:size], [1.0] * size
    result = r4c.evaluate(lambda inputs: inputs[1], dataset, ["mrr"])
    assert result["mrr"].value == pytest.approx(expected)


def test_inputs_may_be_ragged(scores, ids):
    ragged = tf.RaggedTensor.from_tensor(scores)
    result = r4c.evaluate(lambda inputs: inputs[0].to_tensor(), ([ragged, scores], ids), ["mrr"])
    assert result["mrr"].value == r4c.evaluate(identity, (scores, ids), ["mrr"])["mrr"].value


def test_a_mean_over_classes_is_that_of_the_metric(scores, ids):
    names = ["mrr", "macro_mrr", "macro_ndcg_at_3"]
    found = r4c.evaluate(lambda x: x, (scores, ids), names, batch_size=7)
    for name in names[1:]:
        metric = r4c.metrics.get(name.removeprefix("macro_"))
        macro = r4c.metrics.MacroAverage(metric, scores.shape[1])
        macro.update_state(ids, scores)
        assert found[name].value == pytest.approx(float(macro.result()), rel=1e-6)
        assert found[name].low < found[name].value < found[name].high
    several = np.stack([ids, np.where(np.arange(len(ids)) % 2, -1, (ids + 1) % 6)], axis=1)
    macro = r4c.metrics.MacroAverage(r4c.metrics.MRR(), scores.shape[1])
    macro.update_state(several, scores)
    found = r4c.evaluate(lambda x: x, (scores, several), [macro])
    assert found["macro_mrr"].value == pytest.approx(float(macro.result()), rel=1e-6)


@pytest.mark.parametrize("freedom", [1, 1.5, 2, 7, 300])
def test_quantiles_of_student(freedom):
    for confidence in (0.5, 0.95, 0.9999):
        expected = stats.t.ppf((1 + confidence) / 2, freedom)
        assert _intervals.student(confidence, freedom) == pytest.approx(expected, rel=1e-7)
        p = _intervals.two_sided(expected, freedom)
        assert p == pytest.approx(1 - confidence, rel=1e-6)


@pytest.mark.parametrize("n", [20, 100, 1000])
@pytest.mark.parametrize("rates", [(0.0, 0.0), (0.01, 0.01), (0.05, 0.01), (0.2, 0.1)])
def test_intervals_near_no_difference_cover_it(n, rates, rng):
    better, worse = rates
    covered, draws = 0, 400
    for _ in range(draws):
        drawn = rng.random(n)
        differences = (drawn < better) * 1.0 - (drawn > 1 - worse)
        found = _intervals.mean_difference(differences[np.newaxis], np.ones(n), 0.95, 1.0)
        assert found.low < found.high
        covered += found.low <= better - worse <= found.high
    assert covered >= 0.92 * draws  # Four standard errors below 95 % would be .91.


def test_scores_that_are_computed_before(rng):
    scores, ids = rng.normal(size=(20, 5)).astype("float32"), rng.integers(0, 5, 20)
    ranks = (scores >= np.take_along_axis(scores, ids[:, None], 1)).sum(axis=1)
    found = r4c.evaluate(None, (scores, ids), ["mrr"], batch_size=7)
    assert found["mrr"].value == pytest.approx(np.mean(1 / ranks))


@pytest.mark.parametrize("call", [lambda f, data: r4c.evaluate(f, data, ["mrr"]), r4c.calibrate])
def test_one_of_several_outputs_must_be_chosen(call, rng):
    scores, ids = rng.normal(size=(20, 5)).astype("float32"), rng.integers(0, 5, 20)
    for model, which in ((lambda x: {"a": x, "b": -x}, "'a'"), (lambda x: (x, -x), 0)):
        with pytest.raises(ValueError, match=rf"(?s)must give the scores.*`lambda.*\[{which}\]`"):
            call(model, (scores, ids))
    with pytest.raises(ValueError, match=r"(?s)labels of one output.*`dataset.map.*y\['a'\]"):
        call(lambda x: x, (scores, {"a": ids, "b": ids}))
