"""Metrics whose result is no plain mean over lists, and sums of many batches."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from sklearn import metrics as sklearn_metrics

import rank4class_tf as r4c


def first_ranks(labels, scores):
    """The rank of the best positive in each order that agrees with the scores."""
    items = list(zip(scores, labels, strict=True))
    orders = [
        [y for _, y in order]
        for order in itertools.permutations(items)
        if all(a[0] >= b[0] for a, b in itertools.pairwise(order))
    ]
    return [order.index(1) + 1 for order in orders]


@pytest.mark.once
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("max_rank", [2, 3, 100])
def test_median_rank_over_lists_and_orders(seed, max_rank):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 3, (6, 5)).astype(np.float32)
    labels = np.zeros((6, 5))
    for row, count in enumerate([1, 2, 1, 3, 2, 1]):
        labels[row, rng.permutation(5)[:count]] = 1
    # 5! orders at most, so that each list has 120 copies of its ranks, in equal shares.
    ranks = [first_ranks(*lists) for lists in zip(labels, scores, strict=True)]
    median = np.median([r for of_list in ranks for r in of_list * (120 // len(of_list))])
    metric = r4c.metrics.MedianRank(max_rank=max_rank)
    metric.update_state(labels[:4], scores[:4])
    metric.update_state(labels[4:], scores[4:])
    assert float(metric.result()) == (median if median <= max_rank else np.inf)
    expected = [np.mean(of_list) for of_list in ranks]
    np.testing.assert_allclose(metric.per_list(labels, scores)[0][:, 0], expected, rtol=1e-12)


@pytest.mark.once
def test_median_rank_of_an_even_number_of_lists(as_for_xla):
    scores = np.tile(np.arange(9, 0, -1, dtype=np.float32), (4, 1))
    ids = np.array([7, 0, 2, 5])
    metric = r4c.metrics.MedianRank()
    assert float(metric.result()) == 0
    metric.update_state(ids, scores)
    assert float(metric.result()) == np.median(ids + 1)
    metric.reset_state()
    metric.update_state(ids, scores, sample_weight=[0.0, 1.0, 0.5, 3.0])
    assert float(metric.result()) == 6
    metric.update_state([0], np.full((1, 9), np.nan), sample_weight=100.0)
    assert float(metric.result()) == 9
    other = r4c.metrics.MedianRank()
    other.update_state(ids, scores, sample_weight=1000.0)
    other.merge_state([metric])
    # Mass 1001, 1000.5, 1003, 1000 and 100 at the ranks 1, 3, 6, 8 and 9: half of it is 2052.25.
    assert float(other.result()) == 6
    tf.function(lambda: other.update_state([[99, -1]], scores[:1]) and None)()
    assert np.isnan(other.result())


@pytest.mark.once
def test_median_rank_under_xla_and_strategies(two_devices, rng):
    scores = rng.normal(size=(8, 6)).astype(np.float32)
    ids = rng.integers(0, 6, (8, 2))
    plain = r4c.metrics.MedianRank()
    plain.update_state(ids, scores)
    compiled = r4c.metrics.MedianRank()

    @tf.function(jit_compile=True)
    def update(ids, scores):
        compiled.update_state(ids, scores)

    update(tf.constant(ids), tf.constant(scores))
    assert float(compiled.result()) == float(plain.result())
    with two_devices.scope():
        metric = r4c.metrics.MedianRank()

    @tf.function
    def update_all(batch):
        def update_one(batch):
            metric.update_state(*batch)

        two_devices.run(update_one, (batch,))

    data = tf.data.Dataset.from_tensor_slices((ids, scores)).batch(4)
    for batch in two_devices.experimental_distribute_dataset(data):
        update_all(batch)
    assert float(metric.result()) == float(plain.result())


def test_micro_recall_counts_positives_alike(rng):
    scores = rng.normal(size=(9, 7)).astype(np.float32)
    labels = (rng.random((9, 7)) < 0.4).astype(int)
    predicted = np.zeros_like(labels)
    np.put_along_axis(predicted, np.argsort(-scores, axis=1)[:, :3], 1, axis=1)
    for average, theirs in (("micro", "micro"), ("samples", "samples")):
        metric = r4c.metrics.RecallAtK(3, average=average, dtype="float64")
        metric.update_state(labels, scores)
        some = labels.sum(axis=1) > 0
        expected = sklearn_metrics.recall_score(labels[some], predicted[some], average=theirs)
        np.testing.assert_allclose(metric.result(), expected, rtol=1e-12)
        assert r4c.metrics.RecallAtK.from_config(metric.get_config()).average == average
    with pytest.raises(ValueError, match="`average` must be"):
        r4c.metrics.RecallAtK(3, average="weighted")


def test_sums_of_ten_million_lists():
    metric = r4c.metrics.MRR(dtype="float64")
    update = tf.function(lambda w: metric.update_state([0, 1], [[2.0, 1.0, 3.0]] * 2, w) and None)
    # Ranks 2 and 3: 10**7 lists as 100 batches of two lists that stand for 50,000 each.
    for _ in range(100):
        update(tf.constant([5e4, 5e4]))
    np.testing.assert_allclose(metric.result(), (1 / 2 + 1 / 3) / 2, rtol=1e-12)


@pytest.mark.parametrize("bad", ["cubic", 3])
def test_gain_and_discount(bad):
    with pytest.raises(ValueError, match="`gain` must be one of"):
        r4c.metrics.NDCG(gain=bad)
    with pytest.raises(ValueError, match="`discount` must be one of"):
        r4c.metrics.DCG(discount=bad)
    metric = r4c.metrics.DCG(gain=lambda y: 10 * y, discount=lambda r: 1 / r**2)
    metric.update_state([[0.0, 2.0, 1.0]], [[3.0, 2.0, 1.0]])
    np.testing.assert_allclose(metric.result(), 20 / 2**2 + 10 / 3**2, rtol=1e-6)


@pytest.mark.parametrize("bad", [0, -1, 2.5, True, "5", [], [1, 1], [1, 0]])
def test_cutoffs_are_checked(bad):
    for metric in (r4c.metrics.NDCG, r4c.metrics.PrecisionAtK):
        with pytest.raises(ValueError, match="`k` must"):
            metric(k=bad)
    with pytest.raises(ValueError, match="`k` must be a positive integer"):
        r4c.metrics.PrecisionAtK(k=None)


def test_cutoffs_name_their_results():
    scores, ids = [[1.0, 3.0, 2.0]], [0]
    for metric, names in (
        (r4c.metrics.TopKAccuracy([1, 5]), ["top_k_accuracy_at_1", "top_k_accuracy_at_5"]),
        (r4c.metrics.NDCG([1, None]), ["ndcg_at_1", "ndcg"]),
        (r4c.metrics.PrecisionAtK([3]), ["precision_at_3"]),
        (r4c.metrics.MRR([1, 2], name="mine"), ["mine_at_1", "mine_at_2"]),
    ):
        copy = type(metric).from_config(metric.get_config())
        for m in (metric, copy):
            m.update_state(ids, scores)
            assert list(m.result()) == names
    assert r4c.metrics.PrecisionAtK(3).name == "precision_at_3"


@pytest.mark.once
def test_median_of_millions_of_tied_ranks():
    """Sums of places would leave int64."""
    count = 4_300_000
    metric = r4c.metrics.MedianRank(max_rank=count)
    metric.update_state([0], np.zeros((1, count), np.float32))
    assert float(metric.result()) == (count + 1) / 2


def test_median_of_the_largest_weights():
    metric = r4c.metrics.MedianRank(max_rank=10)
    scores = np.array([[3.0, 2.0, 1.0]] * 3)
    metric.update_state([0, 1, 2], scores, np.full(3, 1e38, np.float32))
    assert float(metric.result()) == 2


def test_a_name_of_ones_own_is_in_all_names():
    metric = r4c.metrics.MacroAverage(r4c.metrics.NDCG([1, 2]), 3, name="by_class")
    assert metric.result_names == ["by_class_at_1", "by_class_at_2"]
    metric = r4c.metrics.MacroAverage(r4c.metrics.NDCG([1, 2]), 3)
    assert metric.result_names == ["macro_ndcg_at_1", "macro_ndcg_at_2"]
    metric = r4c.metrics.MacroAverage(r4c.metrics.TopKAccuracy([1, 2]), 3)
    assert metric.result_names == ["macro_top_k_accuracy_at_1", "macro_top_k_accuracy_at_2"]


@pytest.mark.once
def test_groups_of_a_list_count_once_and_have_a_row_each():
    metric = r4c.metrics.MacroAverage(r4c.metrics.TopKAccuracy(1), 2)
    labels, scores = [[0, 0], [0, -1]], [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    metric.update_state(labels, scores, groups=[[0, 0], [0, -1]])
    assert float(metric.result()) == 0.5
    with pytest.raises(ValueError, match="`groups` must have a row for each list"):
        metric.update_state(labels, scores, groups=[0])

    ids, lists = tf.TensorSpec([None], tf.int32), tf.TensorSpec([None, 3])

    @tf.function(input_signature=[ids, lists, ids])
    def step(labels, scores, groups):
        metric.update_state(labels, scores, groups=groups)

    with pytest.raises(tf.errors.InvalidArgumentError, match="`groups` must have a row"):
        step([0], tf.zeros([1, 3]), [0, 1, 1, 0])
