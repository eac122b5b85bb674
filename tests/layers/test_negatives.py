"""The parts of retrieval training, each by itself, against NumPy; `TwoTower` trains with them."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf import layers

from ..rounding import assert_all_close

INF = np.inf


@pytest.fixture
def scores(rng):
    return rng.normal(size=(4, 9)).astype(np.float32)


LABELS = np.array([3, -1, 0, 8])
SEVERAL = np.array([[3, -1, 8], [0, 1, 2], [-1, -1, -1], [5, -1, -1]])


def all_parts(mode, scores, labels, ids, counts, size):
    def step(scores, labels):
        masked = layers.RemoveAccidentalHits()(scores, labels, ids)
        corrected = layers.SamplingProbabilityCorrection()(masked, labels, counts)
        return masked, corrected, *layers.HardNegativeMining(size)(corrected, labels)

    if mode != "eager":
        specs = [tf.TensorSpec([None, None]), tf.TensorSpec([None] * labels.ndim, tf.int64)]
        of_xla = {"jit_compile": True} if mode == "xla" else {"input_signature": specs}
        step = tf.function(step, **of_xla)
    return [x.numpy() for x in step(tf.constant(scores), tf.constant(labels))]


@pytest.mark.parametrize(
    ("labels", "ids_of", "mode"),
    [
        (LABELS, "all", "eager"),
        (LABELS[:, None], "strings", "graph"),
        (SEVERAL, "strings", "eager"),
        (SEVERAL, "lists", "graph"),
        (SEVERAL, "all", "xla"),
    ],
)
def test_the_parts_in_plain_python(labels, ids_of, mode, scores, rng):
    scores[0, 5] = -INF
    ids = rng.integers(0, 4, (4, 9) if ids_of == "lists" else 9)
    given_ids = ids.astype(str) if ids_of == "strings" else ids
    counts = rng.uniform(0.5, 2, 9).astype(np.float32)
    own_of = labels.reshape([4, -1])
    for size in (1, 4, 20):
        given = scores, labels, given_ids, counts, size
        masked, corrected, mined, columns = all_parts(mode, *given)
        assert np.isneginf(masked).sum() > 4 and mined.shape == (4, own_of.shape[1] + min(size, 9))
        for row, of_row in enumerate(own_of):
            of_list = ids[row] if ids_of == "lists" else ids
            own = [c for c in of_row if c >= 0]
            others = [c for c in range(9) if c not in own]
            expected = scores[row].copy()
            expected[[c for c in others if of_list[c] in of_list[own]]] = -INF
            np.testing.assert_array_equal(masked[row], expected)
            expected[others] -= np.log(counts[others])
            np.testing.assert_allclose(corrected[row], expected, rtol=1e-5, atol=1e-6)
            kept = [corrected[row, c] if c >= 0 else -INF for c in of_row]
            highest = [*np.sort(corrected[row, others])[::-1], *[-INF] * 9][: min(size, 9)]
            np.testing.assert_array_equal(mined[row], [*kept, *highest])
            expected = np.where(of_row < 0, -1, np.arange(len(of_row)))
            np.testing.assert_array_equal(columns[row].ravel(), expected)


@pytest.mark.parametrize("wrong", [0, np.inf, np.nan, 1e-30])
def test_a_negative_of_no_count_is_nan(wrong, scores):
    counts = np.ones(9, np.float32)
    counts[[0, 4]] = wrong
    corrected = layers.SamplingProbabilityCorrection()(scores, LABELS, counts).numpy()
    assert np.isnan(corrected[:, 4]).all() or wrong == 1e-30
    assert np.isfinite(corrected[:, [1, 2, 3, 5, 6, 7, 8]]).all()
    assert corrected[2, 0] == scores[2, 0]  # A positive keeps its score, whatever its count.


def test_mining_keeps_a_nan_and_all_negatives_of_an_infinite_positive(scores):
    scores[2, 7] = np.nan
    result = layers.HardNegativeMining(3)(scores, LABELS)[0].numpy()
    np.testing.assert_array_equal(np.isnan(result).any(axis=1), [False, False, True, False])
    result, labels = layers.HardNegativeMining(2)(np.float32([[INF, 5, 6]]), np.array([0]))
    np.testing.assert_array_equal(result, [[INF, 6.0, 5.0]])
    np.testing.assert_array_equal(labels, [0])


def test_memory_is_a_queue(rng):
    layer, queue = layers.CrossBatchMemory(7), collections.deque(maxlen=7)
    layer.build((None, 2))
    step = tf.function(lambda x, y: layer(x, y, training=True), jit_compile=True)
    for size in (3, 3, 0, 3, 9):
        batch, ids = rng.normal(size=(size, 2)).astype(np.float32), rng.integers(0, 99, size)
        encodings, kept, filled = step(batch, ids)
        count = int(np.sum(filled))
        assert count == len(queue) and np.asarray(filled)[7 - count :].all()
        np.testing.assert_array_equal(kept[7 - count :], [i for _, i in queue])
        for ours, (theirs, _) in zip(encodings[7 - count :], queue, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        queue.extend(zip(batch, ids, strict=True))
    before, batch = [np.array(w) for w in layer.weights], tf.constant(batch)
    with tf.GradientTape() as tape:
        tape.watch(batch)
        kept, _, _ = layer(batch, ids, training=False)
    assert tape.gradient(kept, batch) is None
    assert_all_close(layer.weights, before, 0)


def test_counts_what_comes(rng):
    layer = layers.CandidateFrequencies(20)
    layer.build(None)
    step = tf.function(lambda x: layer(x, training=True), jit_compile=True)
    seen = []
    for _ in range(3):
        ids = rng.integers(0, 9, 5)
        seen.extend(ids)
        expected = np.bincount(seen, minlength=20)[ids] / len(seen)
        np.testing.assert_allclose(step(ids), expected, rtol=1e-6)
    # Ids share buckets, and padding does not count.
    found = layers.CandidateFrequencies(4)(
        np.array([1, 5, -1, 2**40 + 2, 3, -1]), training=True
    ).numpy()
    np.testing.assert_allclose(found[[0, 1, 3, 4]], [0.5, 0.5, 0.25, 0.25])
    # One that has not been seen counts as seen once; nothing is counted out of training.
    for _ in range(2):
        found = layer(np.array([[19]]), training=False)
        np.testing.assert_allclose(found, [[1 / len(seen)]], rtol=1e-6)


def test_draws_anew_in_training_alone():
    layer = layers.UniformNegatives(10, seed=3)
    candidates = tf.zeros([40, 2])
    first, second = (layer(candidates, training=True).numpy() for _ in range(2))
    assert len(set(first)) == 10 and set(first) != set(second) and first.max() < 40
    again = [layer(candidates, training=False).numpy() for _ in range(2)]
    np.testing.assert_array_equal(*again)
    assert sorted(layers.UniformNegatives(10, seed=3)(tf.zeros([4])).numpy()) == [0, 1, 2, 3]
