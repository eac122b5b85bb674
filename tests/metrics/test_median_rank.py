"""MedianRank against the ranks in all orders of tied items."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf.metrics import MedianRank


def first_ranks(labels, scores):
    """The rank of the best positive in each order that agrees with the scores."""
    items = list(zip(scores, labels, strict=True))
    orders = [
        [y for _, y in order]
        for order in itertools.permutations(items)
        if all(a[0] >= b[0] for a, b in itertools.pairwise(order))
    ]
    return [order.index(1) + 1 for order in orders]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("max_rank", [2, 3, 100])
def test_median_over_lists_and_orders(seed, max_rank):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 3, (6, 5)).astype(np.float32)
    labels = np.zeros((6, 5))
    for row, count in enumerate([1, 2, 1, 3, 2, 1]):
        labels[row, rng.permutation(5)[:count]] = 1
    # 5! orders at most, so that each list has 120 copies of its ranks, in equal shares.
    ranks = [first_ranks(*lists) for lists in zip(labels, scores, strict=True)]
    median = np.median([r for of_list in ranks for r in of_list * (120 // len(of_list))])
    metric = MedianRank(max_rank=max_rank)
    metric.update_state(labels[:4], scores[:4])
    metric.update_state(labels[4:], scores[4:])
    assert float(metric.result()) == (median if median <= max_rank else np.inf)
    expected = [np.mean(of_list) for of_list in ranks]
    np.testing.assert_allclose(metric.per_list(labels, scores)[0][:, 0], expected, rtol=1e-12)


def test_median_of_an_even_number_of_lists(as_for_xla):
    scores = np.tile(np.arange(9, 0, -1, dtype=np.float32), (4, 1))
    ids = np.array([7, 0, 2, 5])
    metric = MedianRank()
    assert float(metric.result()) == 0
    metric.update_state(ids, scores)
    assert float(metric.result()) == np.median(ids + 1)
    metric.reset_state()
    metric.update_state(ids, scores, sample_weight=[0.0, 1.0, 0.5, 3.0])
    assert float(metric.result()) == 6
    metric.update_state([0], np.full((1, 9), np.nan), sample_weight=100.0)
    assert float(metric.result()) == 9
    other = MedianRank()
    other.update_state(ids, scores, sample_weight=1000.0)
    other.merge_state([metric])
    # Mass 1001, 1000.5, 1003, 1000 and 100 at the ranks 1, 3, 6, 8 and 9: half of it is 2052.25.
    assert float(other.result()) == 6
    tf.function(lambda: other.update_state([[99, -1]], scores[:1]) and None)()
    assert np.isnan(other.result())


def test_median_under_xla_and_strategies(two_devices, rng):
    scores = rng.normal(size=(8, 6)).astype(np.float32)
    ids = rng.integers(0, 6, (8, 2))
    plain = MedianRank()
    plain.update_state(ids, scores)
    compiled = MedianRank()

    @tf.function(jit_compile=True)
    def update(ids, scores):
        compiled.update_state(ids, scores)

    update(tf.constant(ids), tf.constant(scores))
    assert float(compiled.result()) == float(plain.result())
    with two_devices.scope():
        metric = MedianRank()

    @tf.function
    def update_all(batch):
        def update_one(batch):
            metric.update_state(*batch)

        two_devices.run(update_one, (batch,))

    data = tf.data.Dataset.from_tensor_slices((ids, scores)).batch(4)
    for batch in two_devices.experimental_distribute_dataset(data):
        update_all(batch)
    assert float(metric.result()) == float(plain.result())


def test_median_of_millions_of_tied_ranks():
    """Sums of places would leave int64."""
    count = 4_300_000
    metric = MedianRank(max_rank=count)
    metric.update_state([0], np.zeros((1, count), np.float32))
    assert float(metric.result()) == (count + 1) / 2


def test_median_of_the_largest_weights():
    metric = MedianRank(max_rank=10)
    scores = np.array([[3.0, 2.0, 1.0]] * 3)
    metric.update_state([0, 1, 2], scores, np.full(3, 1e38, np.float32))
    assert float(metric.result()) == 2
