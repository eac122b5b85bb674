"""What holds for every metric; see `test_lists.py` for labels."""

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

import rank4class_tf as r4c

from ..metrics.results import in_graph, orders
from ..refused import refused
from ..rounding import assert_all_close
from . import rows
from .tables import METRICS, REPRESENTATIVES

pytestmark = pytest.mark.parametrize("case", METRICS)
of_the_base = pytest.mark.base(REPRESENTATIVES)

BATCH, N = 4, 6


def brute_force(case, labels, scores):
    """The mean of the definition over all orders that agree with the scores."""
    there = [(s, float(y)) for s, y in zip(scores, labels, strict=True) if y >= 0]
    ranked = [(s, y) for s, y in there if not np.isnan(s)]
    # A NaN ranks last and is never a hit.
    unranked = [0] * (len(there) - len(ranked))
    positives = [y for _, y in there if y > 0]
    each = orders([s for s, _ in ranked], [y for _, y in ranked])
    return np.mean([case.value(order + unranked, positives) for order in each])


def per_list(case, y_true, y_pred, **kwargs):
    return case.make(**kwargs).per_list(y_true, y_pred)[0].numpy()[:, 0]


def result(metric, *batches):
    for batch in batches:
        metric.update_state(*batch)
    return float(metric.result())


@pytest.mark.parametrize("highest", [None, 64, 127, 128, 200])
def test_equals_the_definition(case, scores, relevance, highest):
    scores[2, 4], scores[3, [0, 2]] = np.nan, [np.nan, -np.inf]
    if highest is not None:
        if highest > case.highest:
            pytest.skip("float32 does not hold the metric")
        relevance[relevance == relevance.max(axis=1, keepdims=True)] = highest
    expected = [
        brute_force(case, *lists) for lists in zip(relevance, scores, strict=True)
    ]
    assert len(set(expected)) > 1
    assert_allclose(per_list(case, relevance, scores), expected, rtol=1e-12)
    actual = result(case.make(), (relevance, scores))
    assert_allclose(actual, case.combine(expected), rtol=1e-6)


def test_says_which_way_is_better(case):
    good, bad = (
        result(case.make(), ([0] * 4, [row] * 4)) for row in (range(N, 0, -1), range(N))
    )
    assert (good > bad) == case.make().higher_is_better


@pytest.mark.parametrize("seed", range(4))
def test_ties_count_in_expectation_over_their_orders(case, seed):
    if not case.ties:
        pytest.skip("its docstring says how ties count")
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 3, (BATCH, N)).astype("float32")
    scores[rng.random((BATCH, N)) < 0.1] = np.nan
    scores[rng.random((BATCH, N)) < 0.1] = -np.inf
    scores[0] = 3  # All orders are as likely: chance level.
    labels = rng.choice([-1.0, 0.0, 0.0, 1.0, 2.0], (BATCH, N))
    labels[:, 0] = 1
    expected = [brute_force(case, *lists) for lists in zip(labels, scores, strict=True)]
    assert_allclose(per_list(case, labels, scores), expected, rtol=1e-12, atol=1e-15)


def test_masked_is_removed(case, scores, relevance):
    keep, left_out = [0, 1, 3, 4], [2, 5]
    relevance[0, 1] = 1
    expected = per_list(case, relevance[:, keep], scores[:, keep])
    scores[:, left_out] = [
        [0.5, 1e10],
        [np.inf, 0.5],
        [-np.inf, 1e10],
        [np.nan, np.inf],
    ]
    labels = relevance.copy()
    labels[:, left_out] = -1
    assert_allclose(per_list(case, labels, scores), expected, rtol=1e-14)
    mask = np.isin(np.arange(N), left_out)
    dense = (np.tile(row, (BATCH, 1)) for row in (left_out, [-1, 5, 2, 5], mask))
    for exclude in (*dense, tf.ragged.constant([left_out] * BATCH)):
        values, weights = case.make().per_list(relevance, scores, exclude=exclude)
        assert_allclose(values[:, 0], expected, rtol=1e-14)
        assert_array_equal(weights, np.ones(BATCH))
        found = case.make()(relevance, scores, exclude=exclude)
        assert_allclose(found, case.combine(expected), rtol=1e-6)


def test_relevant_from(case, scores, relevance, rng):
    """Items of a lower grade are as items of grade 0, with weights of items, too."""
    relevance[1, 5] = -1
    wanted = np.where(relevance >= 2, relevance, np.minimum(relevance, 0))
    for weights in (None, rng.random((BATCH, N))):
        found = case.make(relevant_from=2).per_list(relevance, scores, weights)
        twin = case.make().per_list(wanted, scores, weights)
        assert_all_close(found, twin, 0)
    expected = [
        brute_force(case, *lists) for lists in zip(wanted[1:], scores[1:], strict=True)
    ]
    values, weights = case.make(relevant_from=2).per_list(relevance, scores)
    assert_allclose(values[1:, 0], expected, rtol=1e-12)
    assert_array_equal(weights, [0, 1, 1, 1])


def test_relevant_from_of_ranks(case, scores, relevance):
    """As of the labels that made `ops.Ranks`; of some positives only, it raises."""
    metric = case.make(relevant_from=2)
    ids = np.where(relevance > 0, range(N), -1)
    ranks = r4c.ops.ranks_of_positives(scores, ids, np.maximum(relevance, 0))
    assert_all_close(
        metric.per_list(ranks, None), metric.per_list(relevance, scores), 1e-12
    )
    some = ranks._replace(counted=ranks.num_positives)
    with refused("`relevant_from` must be None for `Ranks` with `counted`"):
        metric.per_list(some, None)


@pytest.mark.keras2
@pytest.mark.parametrize("form", ["integers", "strings"])
def test_ranked_ids_equal_scores_of_the_same_order(case, rng, form):
    """The first four of six items; in the third list only three of them are ranked."""
    scores = rng.permuted(np.tile(np.float32(range(N)), (BATCH, 1)), axis=1)
    right = np.array([[4, -1, -1], [0, 3, -1], [5, 1, 4], [-1, -1, -1]])
    ids = np.argsort(-scores)
    scores[2, ids[2, 3:]], ids[2, 3] = np.nan, -1
    ids = ids[:, :4]
    weights = rng.random(BATCH)
    named = [
        x if form == "integers" else np.where(x < 0, "", x.astype(str))
        for x in (right, ids)
    ]
    retrieved = r4c.metrics.RankedIds(named[1])
    metric = case.make()
    if metric.depth is None or "bpref" in case.name:
        with refused("must have a cutoff k of at most|must hold scores"):
            metric.update_state(named[0], retrieved)
        return
    found = metric.per_list(named[0], retrieved, weights)
    assert_all_close(found, metric.per_list(right, scores, weights), 1e-12)
    in_graph(metric.update_state)(tf.constant(named[0]), retrieved, weights)
    expected = result(case.make(), (right, scores, weights))
    assert_allclose(metric.result(), expected, rtol=1e-6)


@of_the_base
def test_exclude_and_labels_are_checked(case, scores, as_for_xla):
    metric = case.make()
    labels = np.array([0, 1, 2, 3])
    masks = (np.ones((BATCH, width), bool) for width in (1, N + 1))
    ids = np.array([[N]] * BATCH), np.array([[-2]] * BATCH)
    for bad in (*ids, *masks, np.ones((BATCH, 1)), labels):
        with refused("`exclude` must hold item ids"):
            metric.update_state(labels, scores, exclude=bad)
    bad = np.array([[1], [N], [0], [0]])
    values, _ = tf.function(case.make().per_list)(labels, scores, exclude=bad)
    assert_array_equal(np.isnan(values[:, 0]), [False, True, False, False])
    for wrong in ([2, N, 5, 3], np.full([BATCH, N], np.nan)):
        metric = case.make()
        in_graph(metric.update_state)(np.array(wrong), scores)
        assert np.isnan(metric.result())


def test_lists_without_positives_have_weight_0(case, scores, relevance):
    expected = case.combine(per_list(case, relevance[2:], scores[2:]))
    relevance[0] = 0
    relevance[1] = -1
    scores[0] = np.nan
    assert_allclose(result(case.make(), (relevance, scores)), expected, rtol=1e-6)
    assert result(case.make(), (relevance[:2], scores[:2])) == 0
    assert result(case.make(), (np.full((2, 3), -1), scores[:2])) == 0
    assert result(case.make()) == 0


@of_the_base
def test_weights(case, scores, relevance):
    values = per_list(case, relevance, scores)
    weights = np.array([0.5, 2.0, 0.0, 1.0], "float32")
    expected = case.combine(values, weights=weights)
    for form in (weights, weights[:, None], weights.astype(np.float64)):
        actual = result(case.make(), (relevance, scores, form))
        assert_allclose(actual, expected, rtol=1e-6)
    actual = result(case.make(), (relevance, scores, 3.0))
    assert_allclose(actual, case.combine(values), rtol=1e-6)
    # Others: `metrics/test_item_weights.py`.
    per_item = np.repeat(weights[:, None], N, axis=1)
    actual = result(case.make(), (relevance, scores, per_item))
    assert_allclose(actual, expected, rtol=1e-6)
    assert result(case.make(), (relevance, scores, 0.0)) == 0
    for bad in (np.ones((BATCH, N, 1)), np.ones((BATCH, 3))):
        with pytest.raises(ValueError):
            case.make().update_state(relevance, scores, bad)
    for bad in (-0.5, np.array([1, -2, 1, 1]), -per_item):
        with refused("`sample_weight` must be >= 0. Received: .*-"):
            case.make().update_state(relevance, scores, bad)


@pytest.mark.keras2
@of_the_base
def test_batches_reset_and_merge(case, scores, relevance):
    whole = result(case.make(), (relevance, scores))
    metric = case.make()
    parts = [
        (relevance[:1], scores[:1]),
        (relevance[:0], scores[:0]),
        (relevance[1:], scores[1:]),
    ]
    assert_allclose(result(metric, *parts), whole, rtol=1e-6)
    metric.reset_state()
    assert float(metric.result()) == 0
    assert_allclose(result(metric, *parts), whole, rtol=1e-6)
    for labels in (
        np.zeros([0], np.int32),
        np.zeros([0, 2], np.int32),
        np.zeros([0, N]),
    ):
        assert result(case.make(), (labels, scores[:0])) == 0
    others = [case.make(), case.make()]
    others[0].update_state(*parts[0])
    others[1].update_state(*parts[2])
    merged = case.make()
    restored = case.make()
    merged.merge_state(others)
    assert_allclose(merged.result(), whole, rtol=1e-6)
    for variable, saved in zip(restored.variables, merged.variables, strict=True):
        variable.assign(tf.convert_to_tensor(saved))
    assert float(restored.result()) == float(merged.result())


@pytest.mark.keras2
def test_round_trip_of_config(case, scores, relevance):
    metric = case.make(name="mine", label_format="relevance", dtype="float64")
    config = metric.get_config()
    assert config["name"] == "mine" and config["label_format"] == "relevance"
    for copy in rows.copies(metric, r4c.metrics.get):
        assert copy.get_config() == config
        copy_result = result(copy, (relevance, scores))
        assert copy.result().dtype == tf.float64
        assert copy_result == result(case.make(dtype="float64"), (relevance, scores))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["graph", pytest.param("xla", marks=of_the_base)])
def test_many_items(case, rng, mode):
    n = 3000
    scores = np.round(rng.normal(size=(2, n)), 2).astype("float32")
    ids = np.stack([np.argsort(-row)[rng.integers(0, 9, 5)] for row in scores])
    relevance = np.zeros((2, n), "float32")
    for row, row_ids in enumerate(ids):
        relevance[row, row_ids] = 1
    compiled = tf.function(case.make().per_list, jit_compile=mode == "xla")
    by_ids = compiled(tf.constant(ids), tf.constant(scores))[0]
    by_relevance = compiled(tf.constant(relevance), tf.constant(scores))[0]
    assert_allclose(by_ids, by_relevance, rtol=1e-10)
    # Nothing below the positives counts: the best hundred items alone give the same.
    best = np.argsort(-scores, axis=1)[:, :100]
    last = np.take_along_axis(scores, best[:, -1:], 1)
    assert (last < scores[[0, 1], ids.T].min(0)[:, None]).all()
    short = [np.take_along_axis(x, best, 1) for x in (relevance, scores)]
    assert_allclose(by_ids[:, 0], per_list(case, *short), rtol=1e-10)


@of_the_base
def test_two_devices_equal_one(case, scores, relevance, two_devices):
    expected = result(case.make(), (relevance, scores))
    with two_devices.scope():
        metric = case.make()
    data = tf.data.Dataset.from_tensor_slices((relevance[:3], scores[:3])).batch(2)
    rest = tf.data.Dataset.from_tensor_slices((relevance[3:], scores[3:])).batch(2)
    update = in_graph(lambda batch: two_devices.run(metric.update_state, batch))
    # The second batch is a list for one device and none for the other.
    for batch in two_devices.experimental_distribute_dataset(data.concatenate(rest)):
        update(batch)
    assert_allclose(metric.result(), expected, rtol=1e-6)
