"""The parts of retrieval training, each by itself: against NumPy, and in models of plain Keras."""

import collections

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import layers, losses

INF = np.inf


@pytest.fixture
def scores(rng):
    return rng.normal(size=(4, 9)).astype(np.float32)


LABELS = np.array([3, -1, 0, 8])


def graph(layer, *inputs, jit_compile=False):
    return tf.function(lambda *x: layer(*x), jit_compile=jit_compile)(*map(tf.constant, inputs))


# Accidental hits


def without_hits(scores, labels, ids):
    expected = scores.copy()
    for row, label in enumerate(labels):
        for column in range(scores.shape[1]):
            of_row = ids if ids.ndim == 1 else ids[row]
            if label >= 0 and column != label and of_row[column] == of_row[label]:
                expected[row, column] = -INF
    return expected


@pytest.mark.parametrize("form", ["shared", "of_lists", "strings"])
def test_masks_accidental_hits(form, scores, rng):
    ids = rng.integers(0, 4, (4, 9) if form == "of_lists" else 9)
    expected = without_hits(scores, LABELS, ids)
    assert np.isneginf(expected).any()
    ids = ids.astype(str) if form == "strings" else ids
    layer = layers.RemoveAccidentalHits()
    np.testing.assert_array_equal(layer(scores, LABELS, ids), expected)
    np.testing.assert_array_equal(layer(scores, LABELS[:, None], ids), expected)
    if form != "strings":
        np.testing.assert_array_equal(graph(layer, scores, LABELS, ids, jit_compile=True), expected)


def test_a_masked_hit_has_no_gradient(scores):
    scores = tf.constant(scores)
    ids = np.array([1, 2, 3, 1, 5, 6, 7, 8, 1])
    with tf.GradientTape() as tape:
        tape.watch(scores)
        masked = layers.RemoveAccidentalHits()(scores, LABELS, ids)
        loss = losses.SoftmaxLoss()(LABELS, masked)
    gradient = tape.gradient(loss, scores).numpy()
    np.testing.assert_array_equal(gradient[0, [0, 8]], 0)
    assert (gradient[0, [1, 3]] != 0).all() and not gradient[1].any()


def test_keras_loss_reads_what_is_masked(scores):
    masked = layers.RemoveAccidentalHits()(
        scores[:1], np.array([3]), np.array([1, 2, 3, 1, 5, 6, 7, 8, 1])
    )
    theirs = keras.losses.SparseCategoricalCrossentropy(from_logits=True)(np.array([3]), masked)
    left = np.delete(scores[0].astype(float), [0, 8])
    assert float(theirs) == pytest.approx(np.log(np.exp(left).sum()) - scores[0, 3], rel=1e-5)


# Columns that do not exist, and other wrong arguments


PARTS = {
    "hits": lambda scores, labels: layers.RemoveAccidentalHits()(scores, labels, np.arange(9)),
    "correction": lambda scores, labels: layers.SamplingProbabilityCorrection()(
        scores, labels, np.ones(9)
    ),
    "mining": lambda scores, labels: layers.HardNegativeMining(2)(scores, labels)[0],
}


@pytest.mark.parametrize("part", PARTS)
def test_a_column_that_does_not_exist(part, scores, as_for_xla):
    bad = np.array([3, 9, 0, 8])
    with pytest.raises(ValueError, match=r"`labels` must hold class ids in \[0, 9\)"):
        PARTS[part](scores, bad)
    result = tf.function(lambda x, y: PARTS[part](x, y))(scores, bad).numpy()
    assert np.isnan(result[1]).any() and np.isfinite(result[[0, 2, 3]]).all()
    with pytest.raises(ValueError, match="`labels` must hold the columns of the positives"):
        PARTS[part](scores, np.zeros([4, 2, 1], int))
    with pytest.raises(ValueError, match=r"`scores` must have the shape \[batch, n\]"):
        PARTS[part](scores[0], bad)


def test_wrong_arguments():
    with pytest.raises(ValueError, match="`num_hard_negatives` must be a positive integer"):
        layers.HardNegativeMining(0)
    with pytest.raises(ValueError, match="`size` must be a positive integer"):
        layers.CrossBatchMemory(0)
    with pytest.raises(ValueError, match="`num_buckets` must be a positive integer"):
        layers.CandidateFrequencies(0)
    with pytest.raises(ValueError, match="`num_sampled` must be a positive integer"):
        layers.UniformNegatives(0)
    with pytest.raises(ValueError, match="`counts` must be integers >= 0"):
        layers.CandidateFrequencies.from_counts([])
    for wrong in (-1, 0.6, np.nan, np.inf):
        with pytest.raises(ValueError, match=f"`counts` must be .* Received: {wrong} among"):
            layers.CandidateFrequencies.from_counts([1, wrong, -7])
    for kind in (bool, complex):
        with pytest.raises(ValueError, match=f"`counts` must be integers .* {kind.__name__}"):
            layers.CandidateFrequencies.from_counts(np.ones([2], kind))
    with pytest.raises(ValueError, match="`candidate_ids` must have the shape"):
        layers.RemoveAccidentalHits()(np.zeros([1, 2]), np.array([0]), np.zeros([1, 2, 1], int))


def lists_of_several(rng):
    """Scores, the columns of up to three positives, padded, and ids of which some stand twice."""
    scores = rng.normal(size=(4, 9)).astype(np.float32)
    labels = np.array([[3, -1, 8], [0, 1, 2], [-1, -1, -1], [5, -1, -1]])
    return scores, labels, np.array([7, 7, 5, 4, 4, 3, 5, 3, 2])


@pytest.mark.parametrize("graph", [False, True])
def test_several_positives(graph, rng):
    """What the layers do to each list, in plain Python."""
    scores, labels, ids = lists_of_several(rng)
    counts = rng.uniform(0.5, 2, 9).astype(np.float32)

    def all_layers(scores, labels):
        masked = layers.RemoveAccidentalHits()(scores, labels, ids)
        corrected = layers.SamplingProbabilityCorrection()(masked, labels, counts)
        return masked, corrected, *layers.HardNegativeMining(4)(corrected, labels)

    if graph:
        specs = [tf.TensorSpec([None, None]), tf.TensorSpec([None, None], tf.int64)]
        all_layers = tf.function(all_layers, specs)
    masked, corrected, mined, columns = (x.numpy() for x in all_layers(scores, labels))
    for row, of_row in enumerate(labels):
        own = [c for c in of_row if c >= 0]
        hits = [c for c in range(9) if c not in own and ids[c] in ids[own]]
        expected = scores[row].copy()
        expected[hits] = -np.inf
        np.testing.assert_array_equal(masked[row], expected)
        others = [c for c in range(9) if c not in own]
        expected[others] -= np.log(counts[others])
        np.testing.assert_allclose(corrected[row], expected, rtol=1e-6)
        kept = [corrected[row, c] if c >= 0 else -np.inf for c in of_row]
        highest = np.sort(corrected[row, others])[::-1][:4]
        np.testing.assert_array_equal(mined[row], [*kept, *highest])
        np.testing.assert_array_equal(columns[row], np.where(of_row < 0, -1, [0, 1, 2]))


@pytest.mark.parametrize("wrong", [[True, False], [1.0, 2.0], [1j, 2.0]])
def test_ids_are_integers(wrong):
    """A mask `ids == 2` would be the ids 0 and 1."""
    for call in (
        lambda: layers.CandidateFrequencies(9)(tf.constant(wrong)),
        lambda: layers.CrossBatchMemory(3)(tf.ones([2, 4]), tf.constant(wrong)),
        lambda: layers.RemoveAccidentalHits()(
            tf.ones([1, 2]), tf.constant([0]), tf.constant(wrong)
        ),
    ):
        with pytest.raises(ValueError, match="ids` must hold integers"):
            call()


def test_padding_is_not_counted():
    frequencies = layers.CandidateFrequencies(10)
    found = frequencies(tf.constant([3, -1, 3, 5, -1]), training=True)
    np.testing.assert_allclose(found.numpy()[[0, 3]], [2 / 3, 1 / 3], rtol=1e-6)


# log-Q


def test_corrects_negatives_alone(scores, rng):
    counts = rng.uniform(0.1, 3, 9).astype(np.float32)
    corrected = layers.SamplingProbabilityCorrection()(scores, LABELS, counts).numpy()
    expected = scores - np.log(counts)
    for row, label in enumerate(LABELS):
        if label >= 0:
            expected[row, label] = scores[row, label]
    np.testing.assert_allclose(corrected, expected, rtol=1e-5, atol=1e-6)
    for counts[4] in (0, np.inf, np.nan):
        corrected = layers.SamplingProbabilityCorrection()(scores, LABELS, counts).numpy()
        assert np.isnan(corrected[:, 4]).all()
        assert np.isfinite(np.delete(corrected, 4, axis=1)).all()


def test_the_positive_keeps_its_score_whatever_its_count():
    layer = layers.SamplingProbabilityCorrection()
    for counts in ([0.0, 1.0], [[0.0, 1.0]], [np.nan, 1.0], [1e-30, 1.0]):
        corrected = layer(np.array([[3.0, 1.0]], np.float32), np.array([0]), np.array(counts))
        np.testing.assert_array_equal(corrected, [[3.0, 1.0]])


def test_small_counts_under_mixed_precision():
    try:
        keras.mixed_precision.set_global_policy("mixed_float16")
        layer = layers.SamplingProbabilityCorrection()
    finally:
        keras.mixed_precision.set_global_policy("float32")
    corrected = layer(np.array([[3.0, 1.0]], np.float32), np.array([0]), np.float32([1.0, 1e-9]))
    np.testing.assert_allclose(corrected, [[3.0, 1 - np.log(1e-9)]], rtol=1e-6)


def test_the_corrected_softmax_is_unbiased(rng):
    """Sums, and gradients of the loss, over many draws are those over all candidates."""
    num_candidates, size, draws, positive = 30, 200, 4000, 4
    all_scores = rng.normal(size=num_candidates)
    frequencies = rng.dirichlet(np.full(num_candidates, 0.5)) * 0.9 + 0.1 / num_candidates
    total = np.exp(all_scores).sum()
    softmax = np.exp(all_scores) / total

    drawn = rng.choice(num_candidates, (draws, size), p=frequencies)
    ids = np.concatenate([np.full([draws, 1], positive), drawn], axis=1)
    labels = np.zeros(draws, int)
    scores = layers.RemoveAccidentalHits(dtype="float64")(all_scores[ids], labels, ids)
    counts = size * frequencies[ids]
    corrected = layers.SamplingProbabilityCorrection(dtype="float64")(scores, labels, counts)
    sums = np.exp(corrected.numpy()).sum(axis=1)
    deviation = sums.std() / np.sqrt(draws)
    assert abs(sums.mean() - total) < 4 * deviation < 0.02 * total

    def gradient(values):
        values = tf.constant(values)
        with tf.GradientTape() as tape:
            tape.watch(values)
            loss = losses.SoftmaxLoss(reduction="none")(labels, values)
        rows = np.repeat(np.arange(draws), size + 1)
        result = np.zeros([draws, num_candidates])
        np.add.at(result, (rows, ids.ravel()), tape.gradient(loss, values).numpy().ravel())
        return result.mean(axis=0)

    expected = softmax - (np.arange(num_candidates) == positive)
    error = np.abs(gradient(corrected.numpy()) - expected).max()
    # The loss is a ratio of sums, so that a bias of the order 1 / size remains.
    assert error < 0.01
    assert np.abs(gradient(scores.numpy()) - expected).max() > 10 * error


# Mining


def mined(scores, labels, size):
    result = []
    for row, label in zip(scores, labels, strict=True):
        own = row[label] if label >= 0 else -INF
        others = np.delete(row, label) if label >= 0 else row
        others = np.sort(others)[::-1][:size]
        result.append(np.r_[own, others, [-INF] * (size - len(others))])
    return np.array(result)


@pytest.mark.parametrize("size", [1, 3, 9])
def test_mines_the_highest(size, scores):
    scores[0, 5] = -INF
    layer = layers.HardNegativeMining(size)
    expected = mined(scores, LABELS, size)
    for result in (
        layer(scores, LABELS),
        graph(layer, scores, LABELS),
        graph(layer, scores, LABELS, jit_compile=True),
    ):
        np.testing.assert_array_equal(result[0], expected)
        np.testing.assert_array_equal(result[1], [0, -1, 0, 0])
    assert layers.HardNegativeMining(20)(scores, LABELS)[0].shape == (4, 10)


def test_mining_in_a_graph_of_unknown_size(scores):
    layer = layers.HardNegativeMining(20)
    spec = tf.TensorSpec([None, None]), tf.TensorSpec([None], tf.int64)
    result, _ = tf.function(lambda x, y: layer(x, y), input_signature=spec)(scores, LABELS)
    np.testing.assert_array_equal(result, mined(scores, LABELS, 9))


def test_mined_scores_have_the_gradient_of_the_loss(scores):
    loss = losses.OrderedWeightedLoss("pairwise", "logistic", losses.TopKWeights(2))
    scores = tf.constant(scores)
    gradients = []
    for mine in (False, True):
        with tf.GradientTape() as tape:
            tape.watch(scores)
            lists = layers.HardNegativeMining(2)(scores, LABELS) if mine else (scores, LABELS)
            value = loss(lists[1], lists[0])
        gradients.append(tape.gradient(value, scores).numpy())
    np.testing.assert_allclose(*gradients, atol=1e-7)
    assert gradients[0].any()


def test_mining_keeps_a_nan(scores):
    scores[2, 7] = np.nan
    result = layers.HardNegativeMining(3)(scores, LABELS)[0].numpy()
    np.testing.assert_array_equal(np.isnan(result).any(axis=1), [False, False, True, False])


# Memory


@pytest.mark.parametrize("jit_compile", [False, True])
def test_memory_is_a_queue(jit_compile, rng):
    layer, queue = layers.CrossBatchMemory(7), collections.deque(maxlen=7)
    layer.build((None, 2))
    step = tf.function(lambda x, y: layer(x, y, training=True), jit_compile=jit_compile)
    for size in (3, 3, 0, 3, 9):
        batch, ids = rng.normal(size=(size, 2)).astype(np.float32), rng.integers(0, 99, size)
        encodings, kept, filled = step(batch, ids)
        count = int(np.sum(filled))
        assert count == len(queue) and np.asarray(filled)[7 - count :].all()
        np.testing.assert_array_equal(kept[7 - count :], [i for _, i in queue])
        for ours, (theirs, _) in zip(encodings[7 - count :], queue, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        queue.extend(zip(batch, ids, strict=True))
    before = [np.array(w) for w in layer.weights]
    layer(batch, ids, training=False)
    for then, now in zip(before, layer.weights, strict=True):
        np.testing.assert_array_equal(then, now)


def test_memory_has_no_gradient():
    layer, batch, ids = layers.CrossBatchMemory(2), tf.ones([2, 3]), tf.constant([1, 2])
    with tf.GradientTape() as tape:
        tape.watch(batch)
        layer(batch, ids, training=True)
        kept, _, _ = layer(batch, ids, training=True)
    assert tape.gradient(kept, batch) is None


# Frequencies


@pytest.mark.parametrize("jit_compile", [False, True])
def test_counts_what_comes(jit_compile, rng):
    layer = layers.CandidateFrequencies(20)
    layer.build(None)
    step = tf.function(lambda x: layer(x, training=True), jit_compile=jit_compile)
    seen = []
    for _ in range(3):
        ids = rng.integers(0, 9, 5)
        seen.extend(ids)
        expected = np.bincount(seen, minlength=20)[ids] / len(seen)
        np.testing.assert_allclose(step(ids), expected, rtol=1e-6)
    # One that has not been seen counts as seen once; nothing is counted out of training.
    np.testing.assert_allclose(
        layer(np.array([[19]]), training=False), [[1 / len(seen)]], rtol=1e-6
    )
    np.testing.assert_allclose(layer(np.array([19]), training=False), [1 / len(seen)], rtol=1e-6)


def test_ids_share_buckets():
    layer = layers.CandidateFrequencies(4)
    ids = np.array([1, 5, 2**40 + 2, 3])
    np.testing.assert_allclose(layer(ids, training=True), [0.5, 0.5, 0.25, 0.25])


def test_frequencies_of_a_stream_come_close(rng):
    layer, shares = layers.CandidateFrequencies(50), rng.dirichlet(np.ones(50))
    for _ in range(200):
        layer(rng.choice(50, 256, p=shares), training=True)
    error = np.abs(layer(np.arange(50)).numpy() - shares)
    assert (error < 4 * np.sqrt(shares / (200 * 256)) + 1e-4).all()


# Draws


def test_draws_anew_in_training_alone():
    layer = layers.UniformNegatives(10, seed=3)
    candidates = tf.zeros([40, 2])
    first, second = (layer(candidates, training=True).numpy() for _ in range(2))
    assert len(set(first)) == 10 and set(first) != set(second) and first.max() < 40
    again = [layer(candidates, training=False).numpy() for _ in range(2)]
    np.testing.assert_array_equal(*again)
    assert sorted(layers.UniformNegatives(10, seed=3)(tf.zeros([4])).numpy()) == [0, 1, 2, 3]


# All


ALL = {
    "RemoveAccidentalHits": lambda: layers.RemoveAccidentalHits(),
    "SamplingProbabilityCorrection": lambda: layers.SamplingProbabilityCorrection(),
    "HardNegativeMining": lambda: layers.HardNegativeMining(3),
    "CrossBatchMemory": lambda: layers.CrossBatchMemory(3),
    "CandidateFrequencies": lambda: layers.CandidateFrequencies(7, running=False),
    "UniformNegatives": lambda: layers.UniformNegatives(3, seed=1),
}


@pytest.mark.keras2
@pytest.mark.parametrize("name", ALL)
def test_config(name):
    layer = ALL[name]()
    again = keras.utils.deserialize_keras_object(keras.utils.serialize_keras_object(layer))
    assert type(again) is type(layer)
    assert again.get_config() == layer.get_config()


class PlainTowers(keras.Model):
    """A user's model, with a loss of Keras."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.queries, self.candidates = keras.layers.Dense(4), keras.layers.Dense(4)
        self.memory = layers.CrossBatchMemory(6)
        self.frequencies = layers.CandidateFrequencies(30)
        self.hits = layers.RemoveAccidentalHits()
        self.correction = layers.SamplingProbabilityCorrection()
        self.mining = layers.HardNegativeMining(5)

    def call(self, inputs, training=None):
        queries, candidates = self.queries(inputs["query"]), self.candidates(inputs["candidate"])
        ids, labels = inputs["id"], tf.range(tf.shape(queries)[0])
        earlier, earlier_ids, filled = self.memory(candidates, ids, training=training)
        all_candidates = tf.concat([candidates, earlier], axis=0)
        all_ids = tf.concat([ids, tf.where(filled, earlier_ids, -1)], axis=0)
        scores = tf.matmul(queries, all_candidates, transpose_b=True)
        there = tf.concat([tf.ones_like(ids, tf.bool), filled], axis=0)
        scores = self.hits(tf.where(there, scores, -np.inf), labels, all_ids)
        self.frequencies(ids, training=training)
        shares = self.frequencies(all_ids, training=False)
        scores = self.correction(scores, labels, 10.0 * shares)
        return self.mining(scores, labels)[0]


@pytest.mark.keras2
def test_parts_in_a_model_of_plain_keras(rng):
    model = PlainTowers()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.02), loss=loss)
    features = rng.normal(size=(30, 5)).astype(np.float32)
    ids = rng.integers(0, 30, 64)
    x = {"query": features[ids], "candidate": features[ids], "id": ids}
    model.fit(x, np.zeros(64, int), batch_size=8, epochs=20, verbose=0)
    scores = model.queries(features).numpy() @ model.candidates(features).numpy().T
    assert np.mean(np.argmax(scores, axis=1)[ids] == ids) > 0.3  # chance is 1 / 30


@pytest.mark.parametrize(
    "labels", [np.eye(4, dtype="f")[1:3], np.eye(4, dtype=int), np.array([[1, 1]])]
)
@pytest.mark.parametrize("name", ["Mining", "Hits", "Correction"])
def test_one_hot_labels_are_not_read_as_columns(name, labels):
    scores, others = tf.random.stateless_normal((len(labels), 4), (1, 2)), np.ones(4, np.float32)
    layer, *inputs = {
        "Mining": (layers.HardNegativeMining(1),),
        "Hits": (layers.RemoveAccidentalHits(), np.arange(4)),
        "Correction": (layers.SamplingProbabilityCorrection(), others),
    }[name]
    with pytest.raises(ValueError, match="columns of the positives, each once, not one-hot"):
        layer(scores, labels, *inputs)
    if labels.dtype.kind == "i":  # XLA cannot raise.
        result = tf.nest.flatten(graph(layer, scores, labels, *inputs, jit_compile=True))[0]
        assert np.isnan(result).any(axis=1).all()
