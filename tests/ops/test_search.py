"""Search, counts, ranks and top of rows, also by blocks, against NumPy."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from rank4class_tf import metrics, ops
from rank4class_tf._lists import positives
from rank4class_tf._tf import gather, search, sizes
from rank4class_tf._tf.search import top_k_by_blocks
from rank4class_tf.ops import ranks
from rank4class_tf.ops.blocks import count_others_by_blocks

from ..contract import tables
from ..derivatives import value_and_gradient


@pytest.mark.parametrize("route", ["eager", "graph", "xla", "any shape"])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 40, 100])
def test_searchsorted(rng, n, side, route):
    """With ties, and infinities."""
    rising = np.sort(rng.integers(0, 12, (3, n)), axis=1).astype("float32")
    rising[0, -1] = np.inf
    values = rng.integers(-1, 13, (3, 300)).astype("float32")
    values[:, :2] = np.inf, -np.inf

    def find(rising, values):
        return search.searchsorted(rising, values, side)

    if route != "eager":
        signature = [tf.TensorSpec([None, None])] * 2 if route == "any shape" else None
        find = tf.function(find, signature, jit_compile=route == "xla")
    lists = zip(rising, values, strict=True)
    expected = [np.searchsorted(*of_list, side=side) for of_list in lists]
    assert_array_equal(find(rising, values), expected)


@pytest.mark.parametrize("num_levels", [1, 5, 40])
@pytest.mark.parametrize("offset", [0, 2.0**23])
def test_excess(rng, num_levels, offset, jit_compile):
    """Among scores and levels of which many are equal, against sums over all pairs."""
    scores = offset + np.append(
        rng.integers(-5, 6, size=(3, 99)), np.full((3, 1), -np.inf), axis=1
    )
    levels = offset + rng.integers(-5, 9, size=(3, num_levels))
    coefficients = rng.uniform(size=(3, num_levels))

    @tf.function(jit_compile=jit_compile)
    def compute(scores, levels, coefficients):
        with tf.GradientTape() as tape:
            tape.watch([scores, levels])
            sums, counts = positives.excess(scores, levels, 1.5)
        return sums, counts, *tape.gradient(sums, [scores, levels], coefficients)

    tensors = [tf.constant(x, tf.float32) for x in (scores, levels, coefficients)]
    sums, counts, of_items, of_levels = compute(*tensors)
    above = scores[:, None] - levels[..., None] + 1.5
    shares = coefficients[..., None] * (above > 0)
    assert_allclose(sums, np.maximum(above, 0).sum(axis=2), rtol=1e-6)
    assert_allclose(of_items, shares.sum(axis=1), rtol=1e-5, atol=1e-6)
    assert_allclose([counts, of_levels], np.sum([above > 0, -shares], 3), rtol=1e-5)


FEW, MANY = [[3, 0, 3], [1, 1, 1]], [[3, 0, 3, 2] * 5, [1, 2, 1, 1] * 5]
PLACES: dict = {
    "items": ((2, 4), FEW),
    "one item": ((2, 4), [3, 1]),
    "blocks": ((2, 4, 5), FEW),
    "many": ((2, 4), MANY),
    "many blocks": ((2, 4, 5), MANY),
    "no lists": ((0, 4), np.zeros((0, 3))),
    "many of none": ((0, 4), np.zeros((0, 20))),
}


@pytest.mark.parametrize("shape, places", PLACES.values(), ids=PLACES)
def test_gather_and_its_gradient(shape, places, jit_compile, rng):
    places = np.asarray(places, np.int32)
    values = rng.normal(size=shape)
    rows = np.arange(shape[0]).reshape([-1] + [1] * (places.ndim - 1))
    expected = values[rows, places]
    upstream = rng.normal(size=expected.shape)

    @tf.function(jit_compile=jit_compile)
    def gathered(values):
        return value_and_gradient(lambda x: gather.gather(x, places), values, upstream)

    result, gradient = gathered(tf.constant(values))
    assert_array_equal(result, expected)
    of_values = np.zeros(shape)
    np.add.at(of_values, (rows, places), upstream)
    assert_allclose(gradient, of_values, rtol=1e-12)


@pytest.fixture(params=["distinct", "ties"])
def scores(request, rng, normal):
    if request.param == "distinct":
        return normal(4, 103)
    return rng.integers(0, 6, size=(4, 103)).astype("float32")


def scorer(scores):
    return lambda ids: tf.gather(scores, ids, axis=1)


def above_and_tied(score, num_classes, class_ids, own, *args):
    """Counts of the classes above and those tied, 0 for padding and a NaN score."""
    class_ids = tf.cast(class_ids, tf.int32)
    own = tf.convert_to_tensor(own)
    above, others = count_others_by_blocks(score, num_classes, class_ids, own, *args)
    ranked = tf.cast((class_ids >= 0) & ~tf.math.is_nan(own), tf.int32)
    return above * ranked, (others + 1) * ranked


@pytest.mark.parametrize("order", ["random", "rising", "falling"])
@pytest.mark.parametrize("distinct", [False, True])
def test_top_k_of_many_blocks(distinct, order, normal):
    # Blocks wide enough for groups; rising scores are all new in each block.
    scores = normal(5, 4000)
    scores = scores if distinct else np.round(scores, 1)
    if order != "random":
        scores = np.sort(scores, axis=1)[:, :: 1 if order == "rising" else -1]
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :20]
    in_graph = tf.function(top_k_by_blocks)
    in_xla = tf.function(top_k_by_blocks, jit_compile=True)
    for find, k in [(top_k_by_blocks, 20), (in_graph, tf.constant(20)), (in_xla, 20)]:
        values, ids = find(scorer(scores), 4000, k, 512)
        assert_array_equal(ids, expected)
        assert_array_equal(values, np.take_along_axis(scores, expected, axis=1))


def test_top_k_where_few_are_left(rng):
    scores = np.full([3, 400], -np.inf)
    scores[:, ::90] = rng.normal(size=[3, 5])
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :9]
    for block_size in (64, 400, 1000):
        _, ids = top_k_by_blocks(scorer(scores), 400, 9, block_size)
        assert_array_equal(ids, expected)


@pytest.mark.parametrize("num_classes", [60, 400])
def test_top_k_for_nobody(num_classes):
    find = tf.function(lambda: top_k_by_blocks(scorer(scores), num_classes, 9, 64))
    scores = np.zeros([0, num_classes], "float32")
    assert [tuple(x.shape) for x in find()] == [(0, 9)] * 2


def test_own_score_counts_once_whatever_its_rounding(scores):
    own = scores[:, 20:21]
    for noise in (-1e-6, 1e-6):
        noisy = scores.copy()
        noisy[:, 20] += noise
        for jit_compile in (False, True):
            count = tf.function(above_and_tied, jit_compile=jit_compile)
            above, tied = count(scorer(noisy), 103, np.full([4, 1], 20), own, 8)
            assert_array_equal(above[:, 0], (scores > own).sum(-1))
            assert_array_equal(tied[:, 0], (scores == own).sum(-1))


def test_scores_within_the_tolerance_tie():
    scores = np.array(
        [[1.0, 1.25, 1.5, 1.75, 2.0, np.nan, -np.inf, np.inf]], np.float32
    )
    ids, own = [[0, 2, 4, 5, -1]], [[1.0, 1.5, 2.0, np.nan, 1.0]]
    for tolerance, tied in (
        (0.0, [1, 1, 1, 0, 0]),
        (0.25, [2, 3, 2, 0, 0]),
        (1, [5, 5, 5, 0, 0]),
    ):
        for block_size in (1, 3, 8):
            given = scorer(scores), 8, ids, tf.constant(own)
            above, found = above_and_tied(*given, block_size, tolerance)
            assert_array_equal(found, [tied])
            # Those above, the infinite one among them, without those tied.
            expected = {0.0: [5, 3, 1, 0, 0], 0.25: [4, 2, 1, 0, 0], 1: [1, 1, 1, 0, 0]}
            assert_array_equal(above, [expected[tolerance]])


@pytest.mark.parametrize("tolerance", [0.0, 1e30, np.inf, np.nan])
def test_infinite_scores_tie_with_their_equals_alone(tolerance):
    """Even if a bound overflows: finite where a score is finite and not excluded."""
    inf, highest = np.inf, np.finfo("float32").max
    scores = np.array(
        [[inf, inf, highest, 0.0, -highest, -inf, -inf, np.nan]], np.float32
    )
    # Others tie within a bound that is finite.
    for own, above, tied in (
        (0, 0, 2),
        (5, 5, 2),
        *([(2, 2, 1), (4, 4, 1)] * (tolerance < inf)),
    ):
        of_own = tf.constant(scores[:, own : own + 1])
        found = above_and_tied(scorer(scores), 8, [[own]], of_own, 3, tolerance)
        assert [int(x[0, 0]) for x in found] == [above, tied]


def count_above_and_tied(scores, ids, depth=None):
    found = ranks.ranks_of_positives(scores, ids, depth=depth)
    return found.above, found.tied


def counts(values, thresholds):
    compared = values[:, None], thresholds[:, :, None]
    return np.greater(*compared).sum(axis=-1), np.equal(*compared).sum(axis=-1)


@pytest.mark.parametrize("mode", ["eager", "graph", "any shape", "xla"])
def test_counts(rng, mode):
    signature = [tf.TensorSpec([3, None]), tf.TensorSpec([3, None], tf.int32)]
    signature = signature if mode == "any shape" else None
    count = count_above_and_tied
    if mode != "eager":
        count = tf.function(count, signature, jit_compile=mode == "xla" or None)
    for size, width in itertools.product((1, 5, 60, 4095, 4096, 9001), (1, 3, 40)):
        values = np.round(rng.normal(size=(3, size)), 1).astype("float32")
        values[rng.random(values.shape) < 0.1] = np.nan
        values[rng.random(values.shape) < 0.1] = -np.inf
        ids = np.stack([np.append(rng.permutation(size)[:width], -1) for _ in range(3)])
        ids = ids.astype(np.int32)
        positives = np.where(
            ids >= 0, np.take_along_axis(values, np.maximum(ids, 0), 1), np.nan
        )
        for actual, expected in zip(
            count(values, ids), counts(values, positives), strict=True
        ):
            assert_array_equal(actual, expected, f"{size} items, {width} ids")


def test_eager_counts_of_few_scores_compile_nothing():
    """XLA would take a third of a second for each new width."""
    before = ranks._count_packed.experimental_get_tracing_count()
    for width in (201, 202):
        scores = -np.tile(np.arange(width, dtype=np.float32), (2, 1))
        assert float(metrics.MRR()([0, 1], scores)) == (1 + 1 / 2) / 2
    assert ranks._count_packed.experimental_get_tracing_count() == before


def test_no_device_rounds_counts(rng, monkeypatch):
    """GPUs and TPUs may round the factors of a product, as 4,097 to 4,096."""
    monkeypatch.setattr(sizes, "device_type", lambda: "GPU")
    count = tf.function(ranks._count_packed.python_function, jit_compile=True)
    values = rng.integers(0, 50, (3, 9000)).astype(np.float32)
    threshold = np.float32([[7], [0], [49]])
    graph = count.get_concrete_function(values, threshold, threshold).graph
    assert not {"MatMul", "BatchMatMulV2"} & {x.type for x in graph.get_operations()}
    above, tied = count(values, threshold, threshold)
    assert_array_equal(above, (values > threshold).sum(1, keepdims=True))
    assert_array_equal(tied, (values == threshold).sum(1, keepdims=True))


def test_counts_of_all_items_under_xla(rng):
    """So many that no tensor of all pairs fits into memory."""
    scores = rng.permuted(np.tile(np.arange(10_000, dtype="float32"), (64, 1)), axis=1)
    ids = np.tile(np.arange(10_000, dtype=np.int32), (64, 1))
    above, tied = tf.function(count_above_and_tied, jit_compile=True)(scores, ids)
    assert_array_equal(above, 9_999 - scores)
    assert_array_equal(tied, np.ones_like(scores))


PROPENSITIES = np.linspace(0.1, 1, 60).tolist()
METRICS: dict[str, Callable] = {
    **{case.name: case.make for case in tables.METRICS},
    "ndcg_of_several_cutoffs": lambda: metrics.NDCG([1, 3, 7], gain="linear"),
    "micro_recall": lambda: metrics.RecallAtK(5, average="micro"),
    "ps_ndcg": lambda: metrics.PropensityScoredNDCG(5, PROPENSITIES),
    "propensity_scored_precision": lambda: metrics.PropensityScoredPrecisionAtK(
        5, PROPENSITIES
    ),
}


def batch(rng, ties, positives, n=60):
    """Graded lists with some NaN scores, masked items, lists without a positive."""
    scores = rng.normal(size=(9, n))
    if ties:
        scores = np.round(scores * ties) / ties
    scores[rng.uniform(size=scores.shape) < 0.05] = np.nan
    scores[1] = np.where(rng.uniform(size=n) < 0.3, -np.inf, scores[1])
    labels = rng.integers(1, 4, scores.shape) * (
        rng.uniform(size=scores.shape) < positives
    )
    labels[2] = 0
    labels[rng.uniform(size=scores.shape) < 0.1] = -1
    return labels.astype("float32"), scores.astype("float32")


@pytest.mark.parametrize(
    "name, xla", [*((n, False) for n in METRICS), ("ndcg_2", True), ("mrr_3", True)]
)
def test_fewer_columns_change_nothing(name, xla, rng):
    """With no, many and some ties, few positives and many."""
    metric = METRICS[name]()
    compiled = tf.function(metric.per_list, jit_compile=xla, autograph=False)
    for ties, share in itertools.product((None, 0.5, 3), (0.02, 0.6)):
        labels, scores = batch(rng, ties, share)
        values, weights = compiled(labels, scores)
        ids = np.where(labels > 0, np.arange(60), -1)
        of_all = ops.ranks_of_positives(scores, ids, labels, labels >= 0)
        of_all, weights_of_all = metric.per_list(of_all._replace(class_ids=ids), None)
        assert_allclose(values, of_all, rtol=1e-12)
        assert_array_equal(weights, weights_of_all)


def test_the_short_way_is_taken(rng, monkeypatch):
    labels, scores = batch(rng, None, 0.6)
    monkeypatch.setattr(ranks, "over_positives", None)  # Reads all positives.
    for metric in (metrics.NDCG(5), metrics.MRR()):
        metric.update_state(labels, scores)


@pytest.mark.parametrize("n, k", [(997, 10), (1000, 10), (331, 3), (650, 1)])
def test_the_highest_of_a_list_are_those_of_tensorflow(n, k, jit_compile, rng):
    """Ties and items at -inf too, beside padding, where n has no divisor."""
    scores = rng.integers(0, 5, (30, n)).astype("float32")
    scores[:20] = np.where(rng.random((20, n)) < 0.99, -np.inf, scores[:20])
    scores[:10, n - 1] = 1
    find = tf.function(lambda x: search.top_k(x, k), jit_compile=jit_compile)
    values, columns = find(tf.constant(scores))
    expected_values, expected_columns = tf.math.top_k(scores, k)
    assert_array_equal(values, expected_values)
    assert_array_equal(columns, expected_columns)
