"""SampledScores and parts of retrieval training: what is sampled, masked and mined."""

import collections
import contextlib

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from tensorflow import keras

from rank4class_tf import layers
from rank4class_tf._tf import search
from rank4class_tf.layers import ClassTable, SampledScores, ShardedClassTable
from rank4class_tf.layers import sampled as _sampled
from rank4class_tf.ops.blocks import unit_rows

from ..derivatives import gradient_of, value_and_gradient
from ..refused import warned
from ..rounding import assert_all_close, rounding

NUM_CLASSES = 30
ENCODING = tf.ones([1, 1])


def revealing(num_sampled=None, num_classes=NUM_CLASSES):
    """A layer that scores a class by its id, given the encoding 1."""
    table = ClassTable.from_rows(np.arange(num_classes, dtype="float32")[:, None])
    layer = SampledScores(table, num_sampled, normalize=False, seed=1)
    layer.build((None, 1))
    return layer


def ids(layer, class_ids, **kwargs):
    """The classes of each example and the negatives; NaN marks what is not there."""
    encodings = tf.ones([len(class_ids), 1])
    scores = layer(
        encodings, class_ids=np.array(class_ids), training=True, **kwargs
    ).numpy()
    return np.where(np.isneginf(scores), np.nan, scores)


@pytest.fixture(params=[0, 64], ids=["rows", "product"])
def way_of_mining(request, monkeypatch):
    """Mined negatives scored once more, or picked from the scores of all."""
    monkeypatch.setattr(_sampled, "_NEGATIVES_PER_MINED", request.param)


def test_negatives_are_distinct_and_no_positives():
    num_sampled = 10
    layer = revealing(num_sampled=num_sampled)
    without = ids(layer, [[-1, -1], [2, -1]])
    assert np.isnan(without[0, 0]) and without[1, 0] == 2
    class_ids = [[3, -1, -1], [4, 20, 21], [29, 0, -1], [5, 5, 6]]
    for _ in range(20):
        scored = ids(layer, class_ids)
        assert scored.shape == (4, 1 + num_sampled)
        for own, (first, *negatives) in zip(class_ids, scored, strict=True):
            negatives = [n for n in negatives if not np.isnan(n)]
            assert first in own and first >= 0
            assert len(set(negatives)) == len(negatives) >= num_sampled - 3
            assert not set(negatives) & set(own)


def test_no_examples():
    layer = revealing(num_sampled=20)
    no_ids = np.zeros([0, 3], np.int32)
    no_encodings = np.zeros([0, 1], "float32")

    def step(encodings, class_ids):
        return layer(encodings, class_ids=class_ids, num_mined=4, training=True)

    specs = [tf.TensorSpec([None, 1]), tf.TensorSpec([None, 3], tf.int32)]
    known = tf.function(lambda: step(no_encodings, no_ids))()
    unknown = tf.function(step, specs)(no_encodings, no_ids)
    assert known.shape == unknown.shape == step(no_encodings, no_ids).shape == (0, 5)


def test_samples_are_uniform_and_fresh():
    layer = revealing(num_sampled=6)
    draws = 1500
    step = tf.function(lambda ids: layer(ENCODING, class_ids=ids, training=True))
    class_ids = tf.constant([[7, 9, -1, 12]])
    scored = np.concatenate([step(class_ids).numpy() for _ in range(draws)])
    positives = scored[:, 0].astype(int)
    negatives = scored[:, 1:]
    assert len({tuple(row) for row in negatives.tolist()}) > draws * 0.95
    counts = np.bincount(
        negatives[~np.isneginf(negatives)].astype(int), minlength=NUM_CLASSES
    )
    others = np.delete(counts, [7, 9, 12])
    assert counts.sum() == others.sum()
    assert scipy.stats.chisquare(others).pvalue > 1e-3
    assert_allclose(others.mean(), draws * 6 / NUM_CLASSES, rtol=1e-2)
    counts = np.bincount(positives, minlength=NUM_CLASSES)[[7, 9, 12]]
    assert counts.sum() == draws and scipy.stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("width, num_positives", [(257, 2), (3, 40)])
def test_mining_of_many(width, num_positives, rng, normal):
    """Enough negatives for blocks, embeddings of two widths, few and many positives."""
    class_ids = np.stack([rng.permutation(300)[:num_positives] for _ in range(6)])
    encodings = tf.constant(normal(6, width))

    def scored(num_mined):
        layer = SampledScores(300, num_sampled=250, seed=1)
        layer.build((None, width))
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(
                layer(encodings, class_ids=class_ids, num_mined=num_mined)
            )
        of_table = tape.gradient(total, layer.trainable_variables[0])
        assert isinstance(of_table, tf.IndexedSlices)  # Of the rows of the sample.
        step = tf.function(
            lambda x, ids: layer(x, class_ids=ids, num_mined=num_mined),
            jit_compile=num_mined is not None,
        )
        return step(encodings, tf.constant(class_ids)).numpy()

    every = scored(None)
    mined = scored(3)
    assert np.isneginf(every).sum() > 6  # Some positives are sampled.
    # Cosines: the magnitudes of a product sum to 1 at most.
    assert_allclose(mined[:, 0], every[:, 0], rtol=1e-5, atol=rounding(width))
    highest = -np.sort(-every[:, 1:], axis=1)[:, :3]
    assert_allclose(mined[:, 1:], highest, rtol=1e-5, atol=rounding(width))


@pytest.mark.usefixtures("way_of_mining")
def test_fewer_negatives_than_are_mined():
    """Of 67 sampled, enough for a search by blocks, one is no class of the example."""
    layer = revealing(67, num_classes=200)
    sampled = layer(ENCODING, class_ids=[[0]], training=False)[0, 1:].numpy()
    left = int(sampled[np.isfinite(sampled)][-1])
    class_ids = [[i for i in range(200) if i != left]]
    mined = layer(ENCODING, class_ids=class_ids, num_mined=2, training=False)
    assert_array_equal(mined[0, 1:], [left, -np.inf])


def test_all_classes_are_negatives_where_nothing_is_sampled():
    with warned("so all classes are scored"):
        of_many = revealing(num_sampled=NUM_CLASSES - 1)
    expected = np.arange(NUM_CLASSES, dtype="float32")
    expected[[4, 6]] = np.nan
    for layer in (revealing(), of_many):
        scored = ids(layer, [[4, 6]])
        assert scored[0, 0] in (4, 6)
        assert_array_equal(scored[0, 1:], expected)
        assert_array_equal(ids(layer, [[4, 6]], num_mined=2)[0, 1:], [29, 28])


@pytest.mark.often("64")
@pytest.mark.parametrize("in_graph", [False, True], ids=["eager", "graph"])
@pytest.mark.parametrize("width, normalize", [(64, False), (300, True)])
def test_equal_classes_tie(width, normalize, in_graph, rng, normal):
    """Identical rows, and duplicates among others; in one block, several, one class."""
    x = tf.constant(normal(65, width))
    for num_classes in (1, 1002, 20_000):
        layer = SampledScores(num_classes, normalize=normalize, seed=1)
        layer.build((None, width))
        class_ids = rng.integers(0, num_classes, [65, 3])
        ranks = tf.function(layer.ranks) if in_graph else layer.ranks
        layer.classes.embeddings.assign(
            np.repeat(rng.normal(size=[1, width]), num_classes, axis=0)
        )
        above, tied = ranks(x, class_ids)
        assert_array_equal(above, 0)
        assert_array_equal(tied, num_classes)
        if num_classes > 1:
            half = normal(num_classes // 2, width)
            layer.classes.embeddings.assign(np.concatenate([half, half]))
            above, tied = (count.numpy() for count in ranks(x, class_ids))
            assert (
                (above % 2 == 0).all() and (tied % 2 == 0).all() and (tied >= 2).all()
            )


def exact_scores(x, rows, normalize):
    """In float64, from a product per pair, so that equal rows have equal scores."""
    x = np.asarray(x, np.float64)
    rows = np.asarray(rows, np.float64)
    if normalize:
        x, rows = (a / np.linalg.norm(a, axis=1, keepdims=True) for a in (x, rows))
    return np.stack([(rows * one).sum(axis=1) for one in x])


@pytest.fixture(params=(7, 64))
def small_blocks(request, monkeypatch):
    """Ranks by blocks of so many classes."""
    monkeypatch.setattr(search, "search_block", lambda *_: request.param)


def built(rows, normalize, sharded=False, biases=None):
    table = (
        ShardedClassTable.from_rows(rows)
        if sharded
        else ClassTable.from_rows(rows, biases)
    )
    layer = SampledScores(table, normalize=normalize)
    layer.build((None, rows.shape[1]))
    return layer


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(
    "table, normalize", [("table", True), ("biases", False), ("shards", True)]
)
def test_groups_of_equal_rows_have_counts_of_their_exact_scores(
    table, normalize, two_devices, rng, normal
):
    """Twelve distinct rows for 101 classes; every batch size gives the same counts."""
    groups = normal(12, 33)
    of_class = rng.integers(0, 12, 101)
    biases = rng.normal(size=12) if table == "biases" else None
    of_classes = None if biases is None else biases[of_class]
    with two_devices.scope() if table == "shards" else contextlib.nullcontext():
        layer = built(groups[of_class], normalize, table == "shards", of_classes)
    x = normal(10, 33)
    class_ids, exclude = (rng.integers(-1, 101, (10, 3)) for _ in range(2))
    scores = exact_scores(x, groups, normalize)
    scores = (scores + (0 if biases is None else np.float32(biases)))[:, of_class]
    own = np.take_along_axis(scores, np.maximum(class_ids, 0), axis=1)
    for row, left_out in enumerate(exclude):
        scores[row, left_out[left_out >= 0]] = -np.inf
    there = class_ids >= 0
    above = (scores[:, None] > own[..., None]).sum(axis=2) * there
    # A class counts itself, even if it is to be left out.
    left_out = (class_ids[:, :, None] == exclude[:, None]).any(axis=2)
    tied = ((scores[:, None] == own[..., None]).sum(axis=2) + left_out) * there
    for part in (slice(1), slice(1, 8), slice(8, 10), slice(10)):
        found = layer.ranks(x[part], class_ids[part], exclude[part])
        assert_array_equal(found, (above[part], tied[part]))


@pytest.mark.usefixtures("small_blocks")
def test_quantized_rows_have_the_counts_of_integers(rng):
    """Many integer products are equal; times a scale, each is rounded."""
    rows, x = (rng.integers(-3, 4, (n, 16)).astype("float32") for n in (211, 24))
    rows[100:] = rows[rng.integers(0, 100, 111)]
    class_ids = rng.integers(0, 211, (24, 2))
    scores = (x @ rows.T)[:, None]
    own = np.take_along_axis(scores[:, 0], class_ids, axis=1)[..., None]
    above, tied = built(np.float32(0.1) * rows, False).ranks(
        np.float32(0.3) * x, class_ids
    )
    assert_array_equal(above, (scores > own).sum(axis=2))
    assert_array_equal(tied, (scores == own).sum(axis=2))


def test_long_rows_do_not_tie_with_all():
    """Squares of these numbers overflow, or vanish, in float32."""
    for scale in (1e25, 1e-25):
        rows = np.float32(scale) * np.array(
            [[1.0, 0.0], [0.5, 0.0], [0.0, 1.0], [1.0, 0.0]]
        )
        layer = built(rows.astype("float32"), False)
        above, tied = layer.ranks([[np.float32(1 / scale), 0.0]], [[0, 1, 2]])
        assert_array_equal(above, [[0, 2, 3]])
        assert_array_equal(tied, [[2, 1, 1]])


def test_unit_rows_and_their_gradient(rng):
    lengths = np.array([[3.0], [1e-5], [1e-8], [0.0], [1e-30], [np.nan]])
    unit = rng.normal(size=(6, 6))
    upstream = rng.normal(size=(6, 6))
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    x = tf.constant(unit * lengths, tf.float32)
    found, gradient = value_and_gradient(
        unit_rows, x, tf.constant(upstream, tf.float32)
    )
    gradient = gradient.numpy()
    assert_allclose(found[:2], unit[:2], rtol=1e-5)
    assert (
        np.isfinite(found[:5]).all()
        and (np.linalg.norm(found[2:5], axis=1) < 0.1).all()
    )
    expected = upstream - unit * (unit * upstream).sum(axis=1, keepdims=True)
    assert_allclose(gradient[:2], expected[:2] / lengths[:2], rtol=1e-4)
    assert not gradient[2:5].any()  # Rows near zero have none.
    assert np.isnan(gradient[5]).all()  # What is wrong still shows.


def test_embeddings_start_at_about_unit_length_and_differ_by_seed():
    tables = []
    for seed in (3, 2**31, 2**32 - 1):
        layer = SampledScores(2000, seed=seed)
        layer.build((None, 64))
        tables.append(np.array(layer.classes.embeddings))
        assert abs((tables[-1] ** 2).sum(axis=1).mean() - 1) < 0.01
        assert abs(tables[-1].mean()) < 0.001
    assert all(
        np.abs(a - b).max() > 0.1 for a, b in zip(tables, tables[1:], strict=False)
    )


@pytest.mark.keras2
def test_in_a_functional_model():
    inputs = [keras.Input((3,)), keras.Input((), dtype="int32")]
    layer = SampledScores(9, num_sampled=4)
    for num_mined, width in ((None, 5), (2, 3)):
        scores = layer(inputs[0], class_ids=inputs[1], num_mined=num_mined)
        assert tuple(scores.shape) == (None, width)
    model = keras.Model(inputs, keras.layers.Dense(2)(scores))
    assert model([tf.ones([7, 3]), tf.range(7)]).shape == (7, 2)


@pytest.mark.usefixtures("way_of_mining")
@pytest.mark.parametrize("num_mined", [None, 2])
def test_classes_that_are_nan_show(num_mined, normal):
    rows = normal(NUM_CLASSES, 3)
    rows[::2] = np.nan
    # More are sampled than the others are.
    layer = SampledScores(ClassTable.from_rows(rows), num_sampled=NUM_CLASSES // 2 + 2)
    encodings = normal(4, 3)
    scores = layer(
        encodings, np.array([1, 3, 5, 7]), training=True, num_mined=num_mined
    )
    assert np.isnan(scores).any(axis=1).all()


INF = np.inf


@pytest.fixture
def scores(normal):
    return normal(4, 9)


LABELS = np.array([3, -1, 0, 8])
SEVERAL = np.array([[3, -1, 8], [0, 1, 2], [-1, -1, -1], [5, -1, -1]])


def all_parts(mode, scores, labels, ids, counts, size):
    def step(scores, labels):
        masked = layers.RemoveAccidentalHits()(scores, labels, ids)
        corrected = layers.SamplingProbabilityCorrection()(masked, labels, counts)
        return masked, corrected, *layers.HardNegativeMining(size)(corrected, labels)

    if mode != "eager":
        specs = [
            tf.TensorSpec([None, None]),
            tf.TensorSpec([None] * labels.ndim, tf.int64),
        ]
        of_xla = {"jit_compile": True} if mode == "xla" else {"input_signature": specs}
        step = tf.function(step, **of_xla)
    return [x.numpy() for x in step(tf.constant(scores), tf.constant(labels))]


FORMS = [
    (LABELS, "all", "eager"),
    (LABELS[:, None], "strings", "graph"),
    (SEVERAL, "strings", "eager"),
    (SEVERAL, "lists", "graph"),
    (SEVERAL, "all", "xla"),
]


@pytest.mark.parametrize("labels, ids_of, mode", FORMS)
def test_the_parts_in_plain_python(labels, ids_of, mode, scores, rng):
    scores[0, 5] = -INF
    ids = rng.integers(0, 4, (4, 9) if ids_of == "lists" else 9)
    given_ids = ids.astype(str) if ids_of == "strings" else ids
    counts = rng.uniform(0.5, 2, 9).astype("float32")
    own_of = labels.reshape([4, -1])
    for size in (1, 4, 20):
        given = scores, labels, given_ids, counts, size
        masked, corrected, mined, columns = all_parts(mode, *given)
        assert np.isneginf(masked).sum() > 4 and mined.shape == (
            4,
            own_of.shape[1] + min(size, 9),
        )
        for row, of_row in enumerate(own_of):
            of_list = ids[row] if ids_of == "lists" else ids
            own = [c for c in of_row if c >= 0]
            others = [c for c in range(9) if c not in own]
            expected = scores[row].copy()
            expected[[c for c in others if of_list[c] in of_list[own]]] = -INF
            assert_array_equal(masked[row], expected)
            expected[others] -= np.log(counts[others])
            assert_allclose(corrected[row], expected, rtol=1e-5, atol=1e-6)
            kept = [corrected[row, c] if c >= 0 else -INF for c in of_row]
            highest = [*np.sort(corrected[row, others])[::-1], *[-INF] * 9][
                : min(size, 9)
            ]
            assert_array_equal(mined[row], [*kept, *highest])
            expected = np.where(of_row < 0, -1, np.arange(len(of_row)))
            assert_array_equal(columns[row].ravel(), expected)


@pytest.mark.parametrize("wrong", [0, np.inf, np.nan, 1e-30])
def test_a_negative_of_no_count_is_nan(wrong, scores):
    counts = np.ones(9, "float32")
    counts[[0, 4]] = wrong
    corrected = layers.SamplingProbabilityCorrection()(scores, LABELS, counts).numpy()
    assert np.isnan(corrected[:, 4]).all() or wrong == 1e-30
    assert np.isfinite(corrected[:, [1, 2, 3, 5, 6, 7, 8]]).all()
    # A positive keeps its score, whatever its count.
    assert corrected[2, 0] == scores[2, 0]


def test_mining_keeps_a_nan_and_all_negatives_of_an_infinite_positive(scores):
    scores[2, 7] = np.nan
    result = layers.HardNegativeMining(3)(scores, LABELS)[0].numpy()
    assert_array_equal(np.isnan(result).any(axis=1), [False, False, True, False])
    result, labels = layers.HardNegativeMining(2)(
        np.float32([[INF, 5, 6]]), np.array([0])
    )
    assert_array_equal(result, [[INF, 6.0, 5.0]])
    assert_array_equal(labels, [0])


def test_memory_is_a_queue(rng, normal):
    layer = layers.CrossBatchMemory(7)
    queue = collections.deque(maxlen=7)
    layer.build((None, 2))
    step = tf.function(lambda x, y: layer(x, y, training=True), jit_compile=True)
    for size in (3, 3, 0, 3, 9):
        batch = normal(size, 2)
        ids = rng.integers(0, 99, size)
        encodings, kept, filled = step(batch, ids)
        count = int(np.sum(filled))
        assert count == len(queue) and np.asarray(filled)[7 - count :].all()
        assert_array_equal(kept[7 - count :], [i for _, i in queue])
        for ours, (theirs, _) in zip(encodings[7 - count :], queue, strict=True):
            assert_array_equal(ours, theirs)
        queue.extend(zip(batch, ids, strict=True))
    before = [np.array(w) for w in layer.weights]
    assert gradient_of(lambda x: layer(x, ids, training=False)[0], batch) is None
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
        assert_allclose(step(ids), expected, rtol=1e-6)
    # Ids share buckets, and padding does not count.
    ids = np.array([1, 5, -1, 2**40 + 2, 3, -1])
    found = layers.CandidateFrequencies(4)(ids, training=True).numpy()
    assert_allclose(found[[0, 1, 3, 4]], [0.5, 0.5, 0.25, 0.25])
    # One that has not been seen counts as seen once; nothing is counted out of
    # training.
    for _ in range(2):
        found = layer(np.array([[19]]), training=False)
        assert_allclose(found, [[1 / len(seen)]], rtol=1e-6)


def test_draws_anew_in_training_alone():
    layer = layers.UniformNegatives(10, seed=3)
    candidates = tf.zeros([40, 2])
    first, second = (layer(candidates, training=True).numpy() for _ in range(2))
    assert len(set(first)) == 10 and set(first) != set(second) and first.max() < 40
    assert_array_equal(*[layer(candidates, training=False).numpy() for _ in range(2)])
    assert sorted(layers.UniformNegatives(10, seed=3)(tf.zeros([4])).numpy()) == [
        0,
        1,
        2,
        3,
    ]


@pytest.mark.parametrize("argument", ["class_ids", "exclude"])
def test_counts_of_an_id_of_no_class_under_xla(argument):
    """They counted as those of padding, which no one sees."""
    given = {"class_ids": [[29], [28], [-1]], "exclude": [[0], [1], [-1]]}
    given[argument][1] = [NUM_CLASSES]
    count = tf.function(revealing().ranks, jit_compile=True)
    above, tied = count(
        tf.ones([3, 1]), **{k: tf.constant(v) for k, v in given.items()}
    )
    assert_array_equal(above, [[0], [-1], [0]])
    assert_array_equal(tied, [[1], [-1], [0]])
