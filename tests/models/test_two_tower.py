"""TwoTower: its step, its index, its evaluation, and that it is a Keras model like others."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import rank4class_tf
from rank4class_tf import _keras, layers, losses, metrics, models, ops

from ..rounding import assert_same_sums, rounding

NUM_CANDIDATES, WIDTH, FEATURES = 40, 6, 5
# Ids that are no numbers of rows.
IDS = np.random.default_rng(7).permutation(1000)[:NUM_CANDIDATES]


def towers():
    keras.utils.set_random_seed(1)
    queries = keras.Sequential([keras.layers.Input((FEATURES,)), keras.layers.Dense(WIDTH)])
    features = keras.layers.Input((FEATURES,), name="features")
    candidates = keras.Model({"features": features}, keras.layers.Dense(WIDTH)(features))
    return queries, candidates


def make(**kwargs):
    return models.TwoTower(*towers(), **{"candidate_id": "id", "seed": 3, **kwargs})


@pytest.fixture
def candidates():
    features = np.random.default_rng(5).normal(size=(NUM_CANDIDATES, FEATURES))
    return {"id": IDS, "features": features.astype(np.float32)}


@pytest.fixture
def pairs(rng, candidates):
    """Features of 24 queries and of a candidate of each, some of them the same."""
    own = rng.integers(0, 12, 24)
    queries = candidates["features"][own] + 0.1 * rng.normal(size=(24, FEATURES))
    return queries.astype(np.float32), {k: v[own] for k, v in candidates.items()}


def dense_scores(model, queries, features):
    """Scores of all pairs, float64."""
    encodings = [
        np.array(encoder(x), float)
        for encoder, x in (
            (model.query_encoder, queries),
            (model.candidate_encoder, {"features": features}),
        )
    ]
    if model.normalize:
        encodings = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in encodings]
    return encodings[0] @ encodings[1].T / model.temperature


# The step


@pytest.mark.parametrize(
    ("sources", "jit_compile"), [("batch", False), ("frequencies", False), ("all", True)]
)
def test_a_batch_without_queries(sources, jit_compile, pairs, candidates):
    """In a graph of its size, and in one of any."""
    options = {
        "batch": {},
        "frequencies": {"frequencies": layers.CandidateFrequencies(100)},
        "all": {"memory_size": 8, "num_random": 4},
    }
    model = make(**options[sources])
    if sources == "all":
        model.index(candidates)
    model.compile("sgd", losses.SoftmaxLoss(), jit_compile=jit_compile)
    none = pairs[0][:0], {k: v[:0] for k, v in pairs[1].items()}
    before = weights(model)
    for step in (model.train_on_batch, model.test_on_batch):
        assert np.sum(step(*none)) == 0
    batches = tf.data.Dataset.from_tensor_slices(none).batch(2)
    batches = tf.data.Dataset.from_tensors(none).concatenate(batches)
    model.fit(batches, verbose=0, shuffle=False)
    for found, expected in zip(weights(model), before, strict=True):
        np.testing.assert_array_equal(found, expected)
    assert np.isfinite(model.train_on_batch(*pairs))


def weights(model):
    return [np.array(w) for w in model.trainable_variables]


class Reference:
    """The step of a model with all sources of negatives, in float64, list by list."""

    def __init__(self, model, candidates, random_rows):
        self.model, self.candidates, self.random_rows = model, candidates, random_rows
        self.memory, self.counts = [], {}

    def step(self, loss, queries, positives, rate):
        model = self.model
        variables = [
            tf.Variable(np.array(w, float))
            for encoder in (model.query_encoder, model.candidate_encoder)
            for w in encoder.trainable_variables
        ]
        ids = positives["id"].tolist()
        drawn = self.random_rows()
        with tf.GradientTape() as tape:
            q = self.encoded(queries, variables[:2]) / model.temperature
            own = self.encoded(positives["features"], variables[2:])
            parts, all_ids = [own], list(ids)
            if self.memory:
                parts.append(tf.constant([encoding for encoding, _ in self.memory]))
                all_ids += [i for _, i in self.memory]
            draws = len(all_ids) - 1
            if drawn is not None:
                parts.append(self.encoded(self.candidates["features"][drawn], variables[2:]))
                all_ids += IDS[drawn].tolist()
            scores = tf.matmul(q, tf.concat(parts, axis=0), transpose_b=True)
            for i in ids:
                self.counts[i] = self.counts.get(i, 0) + 1
            total = sum(self.counts.values())
            values = []
            for row, own_id in enumerate(ids):
                kept = [c for c, i in enumerate(all_ids) if c == row or i != own_id]
                of_row = tf.gather(scores[row], kept)
                column = kept.index(row)
                if model.frequencies is not None:
                    share = 0.0 if drawn is None else len(drawn) / NUM_CANDIDATES
                    expected = [
                        draws * max(self.counts.get(all_ids[c], 0), 1) / total + share for c in kept
                    ]
                    expected = np.where(np.array(kept) == row, 1.0, expected)
                    of_row -= np.log(expected)
                if model.num_mined:
                    others = tf.concat([of_row[:column], of_row[column + 1 :]], axis=0)
                    others = tf.sort(others, direction="DESCENDING")[: model.num_mined]
                    of_row, column = tf.concat([of_row[column, tf.newaxis], others], axis=0), 0
                lists = ops.as_lists(of_row[tf.newaxis], [[column]])
                values.append(loss.compute(lists)[0])
            value = tf.reduce_mean(tf.stack(values))
        gradients = tape.gradient(value, variables)
        size = model.memory_size
        if size:
            self.memory = (self.memory + list(zip(own.numpy(), ids, strict=True)))[-size:]
        return float(value), [
            w.numpy() - rate * np.array(g) for w, g in zip(variables, gradients, strict=True)
        ]

    def encoded(self, features, weights):
        encodings = tf.matmul(np.array(features, float), weights[0]) + weights[1]
        if self.model.normalize:
            encodings = tf.math.l2_normalize(encodings, axis=1, epsilon=0)
        return encodings


def top_3():
    return losses.OrderedWeightedLoss("pairwise", "logistic", ops.TopKWeights(3))


SOURCES = {
    "batch": {},
    "dot_products": {"normalize": False, "temperature": 2.0},
    "memory": {"memory_size": 20},
    "random": {"num_random": 10},
    "frequencies": {"frequencies": True, "temperature": 0.5},
    "all": {"memory_size": 20, "num_random": 10, "frequencies": True},
    "mined": {"num_mined": 3, "memory_size": 5},
}


@pytest.mark.parametrize(
    ("sources", "make_loss"),
    [*((sources, top_3) for sources in SOURCES), ("all", losses.SoftmaxLoss)],
)
def test_step_is_that_of_dense_lists(sources, make_loss, pairs, candidates):
    kwargs = dict(SOURCES[sources])
    if kwargs.get("frequencies"):
        kwargs["frequencies"] = layers.CandidateFrequencies(1000)
    model, loss = make(**kwargs), make_loss()
    model.compile(keras.optimizers.SGD(0.5), loss=loss)
    model.index(candidates)

    def random_rows():
        # A layer of the same seed, at the same step.
        if not model.num_random:
            return None
        layer = layers.UniformNegatives(model.num_random, seed=model.seed)
        layer.build(None)
        layer.random_state.assign(_keras.variable(model._random.random_state))
        return layer(tf.zeros([NUM_CANDIDATES])).numpy()

    reference = Reference(model, candidates, random_rows)
    for start in (0, 8, 16):
        batch = slice(start, start + 8)
        x, y = pairs[0][batch], {k: v[batch] for k, v in pairs[1].items()}
        value, expected = reference.step(loss, x, y, rate=0.5)
        history = model.fit(x, y, batch_size=8, verbose=0, shuffle=False).history
        assert history["loss"][0] == pytest.approx(value, rel=1e-5)
        for ours, theirs in zip(weights(model), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kwargs", [{}, {"memory_size": 4}, {"num_random": 3}])
def test_frequencies_in_a_batch_of_one_example(kwargs, pairs, candidates):
    model = make(frequencies=layers.CandidateFrequencies(1000), **kwargs)
    model.compile(keras.optimizers.SGD(0.5), loss=losses.SoftmaxLoss())
    model.index(candidates)
    for rows in (slice(1), slice(5)):  # Alone, and as what is left of five.
        x, y = pairs[0][rows], {k: v[rows] for k, v in pairs[1].items()}
        history = model.fit(x, y, batch_size=4, verbose=0, shuffle=False).history
        assert np.isfinite(history["loss"]).all()
    assert all(np.isfinite(w).all() for w in weights(model))


def test_ids_need_no_key(rng):
    """Integers or strings, through a tower that looks them up."""

    def train(names):
        keras.utils.set_random_seed(1)
        dtype = "string" if names.dtype.kind == "U" else "int64"
        inputs = keras.layers.Input((), dtype=dtype)
        lookup = keras.layers.StringLookup if dtype == "string" else keras.layers.IntegerLookup
        numbers = lookup(vocabulary=names.tolist(), num_oov_indices=1)(inputs)
        tower = keras.Model(inputs, keras.layers.Embedding(NUM_CANDIDATES + 1, WIDTH)(numbers))
        model = models.TwoTower(towers()[0], tower)
        model.compile(keras.optimizers.SGD(0.5), loss=losses.SoftmaxLoss())
        own = rng.integers(0, 5, 32)
        queries = np.eye(FEATURES, dtype=np.float32)[own]
        batches = tf.data.Dataset.from_tensor_slices((queries, names[own])).batch(8)
        model.index(names)
        model.fit(batches, epochs=30, verbose=0, shuffle=False)
        return model.top_k(np.eye(FEATURES, dtype=np.float32), 1)[1][:, 0].numpy()

    np.testing.assert_array_equal(train(IDS), IDS[:5])
    names = np.array([f"film {i}" for i in IDS])
    assert [name.decode() for name in train(names)] == names[:5].tolist()


def test_features_without_ids(pairs, candidates):
    model = make(candidate_id=None)
    model.compile(keras.optimizers.SGD(0.5), loss=losses.SoftmaxLoss())
    y = {"features": pairs[1]["features"]}
    value = float(model.compute_loss(pairs[0], y, model(pairs[0]), training=False))
    scores = dense_scores(model, pairs[0], y["features"])
    expected = np.mean(np.log(np.exp(scores).sum(axis=1)) - np.diag(scores))
    assert value == pytest.approx(expected, rel=1e-5)
    model.index({"features": candidates["features"]})
    scores = dense_scores(model, pairs[0], candidates["features"])
    _, rows = model.top_k(pairs[0], 3)
    np.testing.assert_array_equal(rows, np.argsort(-scores, axis=1)[:, :3])
    with pytest.raises(ValueError, match="`candidate_id` must be given to rank candidates"):
        model.ranks(pairs[0], y)


def test_weights_of_examples(pairs):
    model = make()
    model.compile(keras.optimizers.SGD(0.5), loss=losses.SoftmaxLoss(reduction="sum"))
    encodings = model(pairs[0])
    values = [
        float(model.compute_loss(*pairs, encodings, tf.eye(24)[i], training=False))
        for i in range(3)
    ]
    weight = np.zeros(24)
    weight[:3] = [1.0, 2.0, 0.5]
    value = float(model.compute_loss(*pairs, encodings, tf.constant(weight), training=False))
    assert value == pytest.approx(values[0] + 2 * values[1] + 0.5 * values[2], rel=1e-5)


# Large batches in pieces


ALL = {"memory_size": 20, "num_random": 10, "temperature": 0.3}


def towers_with_tables(dropout=0.0):
    """Towers that share a table, with weights of all kinds."""
    keras.utils.set_random_seed(2)
    shared = keras.layers.Embedding(NUM_CANDIDATES, 8)
    words = keras.layers.Input((3,), dtype="int64", name="words")
    read = keras.layers.GlobalAveragePooling1D()(shared(words))
    read = keras.layers.Dropout(dropout, seed=5)(keras.layers.Dense(8, "tanh")(read))
    queries = keras.Model({"words": words}, keras.layers.Dense(WIDTH)(read))
    row = keras.layers.Input((), dtype="int64", name="row")
    of_row = keras.layers.Dropout(dropout, seed=6)(shared(row))
    return queries, keras.Model({"row": row}, keras.layers.Dense(WIDTH)(of_row))


@pytest.mark.parametrize(
    ("options", "jit_compile"),
    [("plain", False), ("all", True), ("several", False), ("mined", False)],
)
def test_a_batch_in_pieces_is_a_plain_one(options, jit_compile, rng, candidates):
    rows = rng.integers(0, NUM_CANDIDATES, [24, 3] if options == "several" else 24)
    x, y = {"words": rng.integers(0, 40, [24, 3])}, {"row": rows, "id": IDS[rows]}
    kwargs = {"all": {**ALL, "seed": 3}, "mined": {"num_mined": 4}}.get(options, {})

    def train(encode_in, score_in):
        sizes = {"encode_in": encode_in, "score_in": score_in}
        model = models.TwoTower(*towers_with_tables(), candidate_id="id", **sizes, **kwargs)
        loss = losses.SoftmaxLoss() if options != "mined" else top_3()
        model.compile(keras.optimizers.SGD(0.5), loss=loss, jit_compile=jit_compile)
        if options == "all":
            model.index({"row": np.arange(NUM_CANDIDATES), "id": IDS})
        # The last batch is smaller than the others, and no multiple of the pieces.
        weight = np.linspace(0, 2, 24)
        history = model.fit(x, y, 20, 2, sample_weight=weight, shuffle=False, verbose=0).history
        return [*weights(model), history["loss"]]

    expected = train(None, None)
    for sizes in ((3, None), (None, 7), (64, 64)):
        for ours, theirs in zip(train(*sizes), expected, strict=True):
            # Gradients sum over the examples, of magnitudes up to 1.
            np.testing.assert_allclose(ours, theirs, rtol=rounding(24), atol=rounding(24))


def test_pieces_draw_the_same_in_both_passes(rng):
    """The gradient is that of the loss: differences of it, with the generators set back."""
    if not _keras.KERAS_3:
        keras.backend.experimental.enable_tf_random_generator()
    model = models.TwoTower(*towers_with_tables(dropout=0.5), candidate_id="id", encode_in=5)
    if not _keras.KERAS_3:
        keras.backend.experimental.disable_tf_random_generator()
    model.compile("sgd", loss=losses.SoftmaxLoss())
    rows = rng.integers(0, NUM_CANDIDATES, 24)
    x, y = {"words": rng.integers(0, 40, [24, 3])}, {"row": rows, "id": IDS[rows]}
    x, y = tf.nest.map_structure(tf.constant, (x, y))
    encoders = model.query_encoder, model.candidate_encoder
    states = [state for encoder in encoders for state in _keras.states_of(encoder)[0]]
    start = [state.numpy() for state in states]

    @tf.function
    def value_and_gradients():
        with tf.GradientTape() as tape:
            value = model.compute_loss(x, y, model(x, training=True), training=True)
        return value, tape.gradient(value, [_keras.variable(v) for v in variables])

    variables = model.trainable_variables
    for variable in variables:  # Short encodings would bend the loss too much for differences.
        variable.assign(rng.normal(size=variable.shape))
    value, gradients = value_and_gradients()
    after = [state.numpy() for state in states]
    assert all((a != s).any() for a, s in zip(after, start, strict=True))
    direction = [rng.normal(size=v.shape).astype(np.float32) for v in variables]
    slope = sum(
        np.sum(tf.convert_to_tensor(g) * d) for g, d in zip(gradients, direction, strict=True)
    )

    def moved(by):
        for variable, d in zip(variables, direction, strict=True):
            variable.assign_add(by * d)
        for state, old in zip(states, start, strict=True):
            state.assign(old)
        result = float(value_and_gradients()[0])
        for variable, d in zip(variables, direction, strict=True):
            variable.assign_sub(by * d)
        return result

    assert moved(0.0) == pytest.approx(float(value), rel=1e-6)
    found = (moved(1e-3) - moved(-1e-3)) / 2e-3
    assert slope == pytest.approx(found, rel=1e-2)


def test_losses_that_draw_are_not_in_pieces():
    with pytest.raises(ValueError, match="`loss` must draw no random numbers with `score_in`"):
        make(score_in=4).compile("sgd", losses.GumbelApproxNDCGLoss())


def test_pieces_update_the_state_of_an_encoder_once(rng):
    def train(encode_in):
        inputs = keras.layers.Input((), dtype="int64")
        rows = keras.layers.Embedding(NUM_CANDIDATES, WIDTH)(inputs)
        tower = keras.Model(inputs, keras.layers.BatchNormalization()(rows))
        model = models.TwoTower(towers()[0], tower, encode_in=encode_in)
        model.compile("sgd", loss=losses.SoftmaxLoss())
        keras.utils.set_random_seed(3)
        model.fit(np.ones([8, FEATURES]), np.arange(8), batch_size=8, verbose=0)
        return [w.numpy() for w in tower.non_trainable_weights]

    keras.utils.set_random_seed(3)
    expected = train(None)
    keras.utils.set_random_seed(3)
    for ours, theirs in zip(train(8), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


@pytest.mark.keras2
@pytest.mark.parametrize(
    ("batch", "encode_in", "jit_compile"), [(7, 100, False), (26, 8, True), (26, 8, False)]
)
def test_a_layer_sees_the_rows_of_a_piece_alone(batch, encode_in, jit_compile, rng):
    inputs = keras.layers.Input((WIDTH,))
    normalised = keras.layers.BatchNormalization(momentum=0.5)
    model = models.TwoTower(
        towers()[0], keras.Model(inputs, normalised(inputs)), encode_in=encode_in
    )
    model.compile("sgd", losses.SoftmaxLoss(), jit_compile=jit_compile)
    features = rng.normal(3, size=[batch, WIDTH]).astype(np.float32)
    model.fit(np.ones([batch, FEATURES]), features, batch_size=batch, verbose=0, shuffle=False)
    mean, variance = np.zeros(WIDTH), np.ones(WIDTH)
    for first in range(0, batch, encode_in):
        piece = features[first : first + encode_in].astype(float)
        mean, variance = (mean + piece.mean(0)) / 2, (variance + piece.var(0)) / 2
    np.testing.assert_allclose(normalised.moving_mean, mean, rtol=1e-5)
    np.testing.assert_allclose(normalised.moving_variance, variance, rtol=1e-5)


# A model of one's own


@keras.utils.register_keras_serializable(package="tests.two_tower")
class WithRating(models.TwoTower):
    """Retrieval and rating together."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.rating = keras.Sequential(
            [keras.layers.Input((2 * WIDTH,)), keras.layers.Dense(1, name="last")]
        )
        self.error = keras.metrics.MeanSquaredError(name="error")

    def extra_loss(self, queries, candidates, x, y, training):
        found = self.rating(tf.concat([queries, candidates], axis=1))[:, 0]
        self.error.update_state(y["stars"], found)
        return tf.reduce_mean((found - y["stars"]) ** 2)


@pytest.mark.keras2
@pytest.mark.parametrize("encode_in", [None, 5])
def test_a_model_of_several_tasks(encode_in, pairs, candidates, rng, tmp_path):
    x, y = pairs[0], {**pairs[1], "stars": rng.normal(size=24).astype(np.float32)}

    def compiled():
        model = WithRating(*towers(), candidate_id="id", encode_in=encode_in)
        model.compile(keras.optimizers.SGD(0.5), losses.SoftmaxLoss(), metrics=[metrics.MRR()])
        return model

    model = compiled()
    queries, films = (
        np.array(model.query_encoder(x)),
        model.candidate_encoder({"features": y["features"]}),
    )
    head = model.rating.get_weights()
    with tf.GradientTape() as tape:
        kernel, bias = map(tf.Variable, head)
        found = tf.matmul(tf.concat([queries, films], 1), kernel)[:, 0] + bias
        error = tf.reduce_mean((found - y["stars"]) ** 2)
    gradients = tape.gradient(error, [kernel, bias])
    alone = make()
    alone.compile("sgd", losses.SoftmaxLoss())
    retrieval = alone.test_on_batch(*pairs)
    history = model.fit(x, y, batch_size=24, verbose=0).history
    assert history["loss"][0] == pytest.approx(float(error) + np.sum(retrieval), rel=1e-5)
    assert history["error"][0] == pytest.approx(float(error), rel=1e-5)
    for old, new, gradient in zip(head, model.rating.get_weights(), gradients, strict=True):
        np.testing.assert_allclose(old - new, 0.5 * gradient, rtol=1e-4, atol=1e-6)
    model.index(candidates)
    results = model.evaluate(x, y, verbose=0, return_dict=True)
    assert set(results) == {"loss", "mrr", "error"}
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    loaded.index(candidates)
    again = loaded.evaluate(x, y, verbose=0, return_dict=True)
    assert again == pytest.approx(results, rel=1e-5)
    model.fit(x, y, batch_size=24, verbose=0)
    loaded.fit(x, y, batch_size=24, verbose=0)
    for ours, theirs in zip(weights(loaded), weights(model), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_a_plain_subclass_with_layers_that_are_not_built(pairs, candidates, rng):
    class Plain(models.TwoTower):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.rating = keras.layers.Dense(1)

        def extra_loss(self, queries, candidates, x, y, training):
            return tf.reduce_mean(self.rating(queries * candidates) ** 2)

    model = Plain(*towers(), candidate_id="id")
    model.compile("adam", losses.SoftmaxLoss())
    model.fit(*pairs, verbose=0)
    assert len(model.trainable_variables) == 6


# The index


@pytest.fixture
def seen(rng):
    """Ids to leave out, padded, one of them of no candidate."""
    rows = np.stack([rng.choice(NUM_CANDIDATES, 4, replace=False) for _ in range(24)])
    ids = IDS[rows]
    ids[::3, 0] = -1
    ids[::5, 1] = 5000
    return ids


def left_out(scores, seen):
    return np.where((IDS[None, :, None] == seen[:, None]).any(axis=2), -np.inf, scores)


@pytest.mark.parametrize("kwargs", [{}, {"normalize": False, "temperature": 0.1}])
def test_top_k_is_exact(kwargs, pairs, candidates, seen):
    model = make(**kwargs)
    model.index(candidates, batch_size=7)
    scores = dense_scores(model, pairs[0], candidates["features"])
    for exclude in (None, seen):
        expected = scores if exclude is None else left_out(scores, seen)
        values, ids = model.top_k(pairs[0], NUM_CANDIDATES, exclude=exclude)
        best = -np.sort(-expected, axis=1)
        named = np.where(np.isneginf(best), -1, IDS[np.argsort(-expected, axis=1)])
        np.testing.assert_array_equal(ids, named)
        np.testing.assert_allclose(values, best, rtol=1e-4, atol=1e-6)


def test_candidates_that_training_has_not_seen(pairs, candidates, rng):
    model = make()
    model.compile(keras.optimizers.SGD(0.5), loss=losses.SoftmaxLoss(), metrics=[metrics.MRR()])
    model.index({k: v[:12] for k, v in candidates.items()})
    model.fit(*pairs, verbose=0)
    model.evaluate(*pairs, verbose=0)
    model.index(candidates)
    scores = dense_scores(model, pairs[0], candidates["features"])
    _, ids = model.top_k(pairs[0], 30)
    np.testing.assert_array_equal(ids, IDS[np.argsort(-scores, axis=1)[:, :30]])
    own = pairs[1]["id"]
    result = model.evaluate(*pairs, verbose=0, return_dict=True)
    ranks = (scores > scores[np.arange(24), [IDS.tolist().index(i) for i in own]][:, None]).sum(1)
    assert result["mrr"] == pytest.approx(np.mean(1 / (ranks + 1)), rel=1e-5)


def test_fit_leaves_no_stale_index(pairs, candidates):
    model = make()
    model.compile(keras.optimizers.SGD(5.0), loss=losses.SoftmaxLoss())
    model.index(candidates)
    before = model.top_k(pairs[0], 3)[0].numpy()
    model.fit(*pairs, verbose=0)
    scores = dense_scores(model, pairs[0], candidates["features"])
    now = model.top_k(pairs[0], 3)[0].numpy()
    np.testing.assert_allclose(now, -np.sort(-scores, axis=1)[:, :3], rtol=1e-4)
    assert not np.allclose(before, now)


def ranks_by_definition(model, pairs, candidates):
    scores = dense_scores(model, pairs[0], candidates["features"])
    columns = [IDS.tolist().index(i) for i in pairs[1]["id"]]
    return 1 + (scores > scores[np.arange(24), columns][:, None]).sum(axis=1)


@pytest.mark.keras2
@pytest.mark.parametrize(
    "door", ["test_on_batch", "top_k", "ranks", "export", "add", "write", "export_top_k"]
)
def test_no_door_reads_a_stale_index(door, pairs, candidates, tmp_path):
    model = make()
    model.compile(keras.optimizers.SGD(5.0), losses.SoftmaxLoss(), metrics=[metrics.MRR()])
    model.index(candidates)
    before = weights(model)
    for _ in range(5):
        model.train_on_batch(*pairs)
    scores = dense_scores(model, pairs[0], candidates["features"])
    best = -np.sort(-scores, axis=1)[:, :3]
    ranks = ranks_by_definition(model, pairs, candidates)
    if door == "test_on_batch":
        assert model.test_on_batch(*pairs)[1] == pytest.approx(np.mean(1 / ranks), rel=1e-5)
    elif door == "ranks":
        np.testing.assert_array_equal(model.ranks(*pairs).above[:, 0] + 1, ranks)
    elif door == "export":
        model.export_candidates(tmp_path / "rows.npy")
        rows = model.candidate_encoder({"features": candidates["features"]})
        rows = tf.math.l2_normalize(rows, axis=1)
        np.testing.assert_allclose(np.load(tmp_path / "rows.npy"), rows, rtol=1e-5)
    elif door == "write":
        model.write_top_k(tmp_path, tf.data.Dataset.from_tensors(pairs[0]), 3)
        np.testing.assert_allclose(np.load(tmp_path / "scores.npy"), best, rtol=1e-4)
    elif door == "export_top_k":
        model.export_top_k(tmp_path / "served", tf.TensorSpec([None, FEATURES]), k=3)
        served = tf.saved_model.load(str(tmp_path / "served")).signatures["serving_default"]
        np.testing.assert_allclose(served(tf.constant(pairs[0]))["scores"], best, rtol=1e-4)
    else:
        if door == "add":  # All are of the same weights, also if these become the old ones again.
            model.add_candidates({k: v[:4] for k, v in candidates.items()})
            for weight, old in zip(model.trainable_weights, before, strict=True):
                weight.assign(old)
            scores = dense_scores(model, pairs[0], candidates["features"])
            best = -np.sort(-scores, axis=1)[:, :3]
        np.testing.assert_allclose(model.top_k(pairs[0], 3)[0], best, rtol=1e-4)


@pytest.mark.skipif(not _keras.KERAS_3, reason="Keras 2 has no callback that swaps weights.")
def test_validation_ranks_candidates_of_the_weights_that_a_callback_swaps_in(pairs, candidates):
    model = make()
    optimizer = keras.optimizers.SGD(5.0, use_ema=True, ema_momentum=0.9)
    model.compile(optimizer, losses.SoftmaxLoss(), metrics=[metrics.MRR()])
    model.index(candidates)
    expected = []

    class Definition(keras.callbacks.Callback):
        def on_test_end(self, logs=None):
            expected.append(np.mean(1 / ranks_by_definition(model, pairs, candidates)))

    callbacks = [Definition(), keras.callbacks.SwapEMAWeights()]
    fitted = model.fit(*pairs, epochs=3, verbose=0, validation_data=pairs, callbacks=callbacks)
    np.testing.assert_allclose(fitted.history["val_mrr"], expected, rtol=1e-5)
    assert len(set(expected)) > 1
    found = model.evaluate(*pairs, verbose=0, callbacks=callbacks)[1]
    assert found == pytest.approx(expected[-1], rel=1e-5) and len(expected) == 4


def test_approximate_search_gets_the_index(pairs, candidates, tmp_path):
    model = make()
    model.index(candidates)
    model.export_candidates(tmp_path / "classes.npy")
    rows = np.load(tmp_path / "classes.npy")
    products = model.predict(pairs[0], verbose=0) @ rows.T
    _, ids = model.top_k(pairs[0], 5)
    np.testing.assert_array_equal(ids, IDS[np.argsort(-products, axis=1)[:, :5]])


# The catalogue changes


@pytest.mark.keras2
@pytest.mark.parametrize("of_dataset", [False, True])
def test_candidates_are_added_changed_and_removed(of_dataset, pairs, candidates):
    """As if all had been indexed so, also after they are encoded again."""
    model = make()
    first = {k: v[:30] for k, v in candidates.items()}
    data = tf.data.Dataset.from_tensor_slices(first)
    model.index(data.batch(7) if of_dataset else first)
    calls = []
    encode = model._encode_candidates
    model._encode_candidates = lambda x, *a: calls.append(len(x["id"])) or encode(x, *a)
    changed = {k: v[25:38].copy() for k, v in candidates.items()}
    changed["features"][:5] += 1
    model.add_candidates(changed)
    model.remove_candidates(IDS[[3, 27, 36]])
    assert calls == [13]  # Only these were encoded.
    del model._encode_candidates

    kept = np.setdiff1d(np.arange(38), [3, 27, 36])
    features = candidates["features"].copy()
    features[25:30] += 1
    expected = make()
    expected.index({"id": IDS[kept], "features": features[kept]})
    for _ in range(2):
        for ours, theirs in zip(
            model.top_k(pairs[0], 35), expected.top_k(pairs[0], 35), strict=True
        ):
            assert_same_sums(ours, theirs, WIDTH)
        model.index()
        expected.index()


@pytest.mark.parametrize("of_dataset", [False, True])
@pytest.mark.parametrize("kind", [np.int16, np.int32, np.int64, list])
def test_added_ids_keep_their_value(kind, of_dataset, pairs, candidates):
    model, first = make(), {**candidates, "id": IDS.astype(np.int32)}
    data = tf.data.Dataset.from_tensor_slices(first)
    model.index(data.batch(7) if of_dataset else first)
    new = 2**32 + 7 if kind in (np.int64, list) else 2001
    ids, features = np.array([new]), np.ones([1, FEATURES])  # float64, as NumPy's are.
    if kind is list:
        ids, features = ids.tolist(), features.tolist()
    else:
        ids = ids.astype(kind)
    model.add_candidates({"id": ids, "features": features})
    assert set(model.top_k(pairs[0], 41)[1].numpy()[0]) == {*IDS, new}
    rank = model.ranks(pairs[0][:1], {"id": np.array([new])}).above.numpy()
    features = np.concatenate([candidates["features"], np.ones([1, FEATURES])])
    scores = dense_scores(model, pairs[0][:1], features)[0]
    assert rank == (scores > scores[-1]).sum()
    model.index()


def test_added_features_are_like_those_of_the_index():
    model = models.TwoTower(*towers_with_tables(), candidate_id="id")
    model.index({"id": IDS, "row": np.arange(NUM_CANDIDATES)})
    with pytest.raises(ValueError, match="like those of the index, int64. Received: float32"):
        model.add_candidates({"id": [2000], "row": [1.5]})


@pytest.mark.parametrize("how", ["replaced", "removed"])
def test_nothing_of_the_dataset_is_left(how, pairs, candidates):
    model, expected = make(num_random=4), make()
    model.compile("sgd", losses.SoftmaxLoss())
    first = {k: v[:7] for k, v in candidates.items()}
    model.index(tf.data.Dataset.from_tensor_slices(first).batch(3))
    if how == "replaced":
        model.add_candidates(candidates)
    else:
        model.add_candidates({k: v[7:] for k, v in candidates.items()})
        model.remove_candidates(IDS[:7])
    model.fit(*pairs, verbose=0)
    model.index()
    expected.set_weights(model.get_weights()[: len(expected.get_weights())])
    start = 0 if how == "replaced" else 7
    scores = dense_scores(model, pairs[0], candidates["features"][start:])
    found = model.top_k(pairs[0], 40 - start)[0]
    np.testing.assert_allclose(found, -np.sort(-scores, axis=1), rtol=1e-4, atol=1e-5)


def test_candidates_that_are_not_there_are_not_removed(candidates):
    model = make()
    model.index({k: v[:5] for k, v in candidates.items()})
    with pytest.raises(ValueError, match=f"`ids` must be in the index. Received: {IDS[7]}"):
        model.remove_candidates(IDS[[2, 7]])
    with pytest.raises(ValueError, match="and at least one"):
        model.remove_candidates(IDS[:5])
    nameless = make(candidate_id=None)
    nameless.index({"features": candidates["features"]})
    with pytest.raises(ValueError, match="`candidates` must have ids to be added"):
        nameless.add_candidates({"features": candidates["features"]})


@pytest.mark.parametrize("ids", [True, False])
def test_an_index_from_a_dataset(ids, pairs, candidates):
    named = candidates if ids else {"features": candidates["features"]}
    model, expected = (make(candidate_id="id" if ids else None) for _ in range(2))
    model.index(tf.data.Dataset.from_tensor_slices(named).batch(7))
    expected.index(named)
    for ours, theirs in zip(model.top_k(pairs[0], 9), expected.top_k(pairs[0], 9), strict=True):
        assert_same_sums(ours, theirs, WIDTH)
    if ids:  # In another order each time.
        data = tf.data.Dataset.from_tensor_slices(named).shuffle(40).batch(7)
        model.index(data)
        model.index()
        found = model.top_k(pairs[0], 9)[1]
        np.testing.assert_array_equal(found, expected.top_k(pairs[0], 9)[1])


def test_a_dataset_that_gives_other_candidates_raises(candidates):
    model, sizes = make(), iter([30, 20])

    def batches():
        size = next(sizes)
        yield {k: v[:size] for k, v in candidates.items()}

    spec = {
        "id": tf.TensorSpec([None], tf.int64),
        "features": tf.TensorSpec([None, FEATURES]),
    }
    model.index(tf.data.Dataset.from_generator(batches, output_signature=spec))
    with pytest.raises(ValueError, match="gives the same candidates each time. Received: 20 of 30"):
        model.index()


def test_random_negatives_need_features(pairs, candidates):
    model = make(num_random=4)
    model.compile("sgd", loss=losses.SoftmaxLoss())
    model.index(tf.data.Dataset.from_tensor_slices(candidates).batch(7))
    with pytest.raises(ValueError, match="`index` must be given the features, not a dataset"):
        model.fit(*pairs, verbose=0)


def test_what_has_not_changed_is_not_encoded_again(pairs, candidates):
    model = make()
    model.compile("sgd", loss=losses.SoftmaxLoss(), metrics=[metrics.MRR()])
    model.index(candidates)
    calls = []
    index = model.index
    model.index = lambda: calls.append(1) or index()
    model.evaluate(*pairs, verbose=0)
    assert not calls
    model.fit(*pairs, validation_data=pairs, epochs=2, verbose=0)
    assert len(calls) == 2  # Once an epoch; the end of training changes nothing.
    model.evaluate(*pairs, verbose=0)
    assert len(calls) == 2


@pytest.mark.parametrize("names", [False, True])
def test_the_best_of_many_queries_are_written(names, pairs, candidates, tmp_path):
    model = make()
    if names:
        candidates["id"] = np.array([f"film {i}" for i in IDS])
    model.index(candidates)
    model.write_top_k(tmp_path, tf.data.Dataset.from_tensor_slices(pairs[0]).batch(7), 5)
    scores, ids = model.top_k(pairs[0], 5)
    np.testing.assert_allclose(np.load(tmp_path / "scores.npy", mmap_mode="r"), scores, rtol=1e-6)
    found = np.load(tmp_path / "candidate_ids.npy", mmap_mode="r")
    assert found.tolist() == ids.numpy().tolist()


# Evaluation


METRICS = [
    lambda: metrics.RecallAtK([1, 5]),
    lambda: metrics.RecallAtK(5, average="micro", name="micro"),
    lambda: metrics.NDCG(5),
    lambda: metrics.MRR(),
    lambda: metrics.MeanRank(),
    lambda: metrics.MedianRank(),
    lambda: metrics.AveragePrecisionAtK(10),
]


def dense_metrics(scores, rows, exclude=None, sample_weight=None):
    result = {}
    for metric in (m() for m in METRICS):
        metric.label_format = "ids"
        metric.update_state(rows, scores, sample_weight, exclude)
        value = metric.result()
        result |= value if isinstance(value, dict) else {metric.name: value}
    return {name: float(value) for name, value in result.items()}


@pytest.mark.parametrize(("several", "exclude"), [(False, True), (True, True), (True, False)])
def test_evaluates_over_all_candidates(several, exclude, pairs, candidates, seen, rng):
    queries = keras.layers.Input((FEATURES,), name="features")
    encoder = keras.Model({"features": queries}, keras.layers.Dense(WIDTH)(queries))
    model = models.TwoTower(
        encoder, towers()[1], candidate_id="id", exclude="seen" if exclude else None
    )
    model.compile("sgd", loss=losses.SoftmaxLoss(), metrics=[m() for m in METRICS])
    x, y = {"features": pairs[0], "seen": seen}, pairs[1]
    if several:
        rows = np.stack([rng.choice(NUM_CANDIDATES, 3, replace=False) for _ in range(24)])
        y = {"id": np.where(rng.random((24, 3)) < 0.3, -1, IDS[rows])}
    places = {i: row for row, i in enumerate(IDS)} | {-1: -1}
    rows = np.vectorize(places.get)(y["id"].reshape([24, -1]))
    left = np.vectorize(lambda i: places.get(i, -1))(seen) if exclude else None
    model.index(candidates)
    scores = dense_scores(model, {"features": pairs[0]}, candidates["features"])
    results = model.evaluate(x, y, batch_size=7, verbose=0, return_dict=True)
    expected = dense_metrics(scores.astype(np.float32), rows, left)
    assert set(results) - {"loss"} == set(expected)
    for name, value in expected.items():
        assert results[name] == pytest.approx(value, rel=1e-5), name
    assert np.isnan(results["loss"]) == several

    found = rank4class_tf.evaluate(model, (x, y), [m() for m in METRICS if m().is_mean])
    assert found["mrr"].value == pytest.approx(expected["mrr"], rel=1e-6)
    assert {name: e.value for name, e in found.estimates.items()} == pytest.approx(
        {name: expected[name] for name in found.estimates}, rel=1e-5
    )
    comparison = rank4class_tf.compare(found, found)["mrr"]
    assert (comparison.difference, comparison.p_value) == (0, 1)
    with pytest.raises(ValueError, match="`exclude` must be None for a model that ranks all"):
        rank4class_tf.evaluate(model, (x, y), ["mrr"], exclude=lambda x: x["seen"])


def test_a_collapsed_model_is_no_better_than_chance(pairs, candidates):
    model = make(normalize=False)
    kernel, bias = model.candidate_encoder.trainable_variables
    kernel.assign(tf.zeros_like(kernel))
    bias.assign(np.linspace(-1, 1, WIDTH))
    model.compile("sgd", loss=losses.SoftmaxLoss(), metrics=[metrics.MRR()])
    model.index(candidates)
    chance = np.mean(1 / np.arange(1, NUM_CANDIDATES + 1))
    for size in (1, 7, 24):
        found = model.evaluate(*pairs, batch_size=size, verbose=0, return_dict=True)["mrr"]
        assert found == pytest.approx(chance, rel=1e-5)


@pytest.mark.keras2
def test_validation_in_fit_and_weights(pairs, candidates):
    model = make()
    model.compile(
        "sgd",
        loss=losses.SoftmaxLoss(),
        metrics=[metrics.MRR()],
        weighted_metrics=[metrics.NDCG(5)],
    )
    model.index(candidates)
    weight = np.arange(24.0)
    history = model.fit(*pairs, validation_data=(*pairs, weight), verbose=0).history
    assert set(history) == {"loss", "val_loss", "val_mrr", "val_ndcg_at_5"}
    rows = np.array([IDS.tolist().index(i) for i in pairs[1]["id"]])
    scores = dense_scores(model, pairs[0], candidates["features"]).astype(np.float32)
    assert history["val_mrr"][0] == pytest.approx(dense_metrics(scores, rows)["mrr"], rel=1e-5)
    expected = dense_metrics(scores, rows, sample_weight=weight)["ndcg_at_5"]
    assert history["val_ndcg_at_5"][0] == pytest.approx(expected, rel=1e-5)


def test_an_id_that_is_not_in_the_index_shows_as_nan(pairs, candidates):
    model = make()
    model.compile("sgd", loss=losses.SoftmaxLoss(), metrics=[metrics.MRR(), metrics.MedianRank()])
    model.index({k: v[1:] for k, v in candidates.items()})
    assert IDS[0] in pairs[1]["id"]
    results = model.evaluate(*pairs, verbose=0, return_dict=True)
    assert np.isnan(results["mrr"]) and np.isnan(results["median_rank"])


# Modes of running


@pytest.mark.keras2
def test_two_devices_train_as_one(pairs, candidates, two_devices):
    def train(strategy):
        with strategy.scope():
            model = make(**ALL, frequencies=layers.CandidateFrequencies(1000))
            model.compile(
                keras.optimizers.SGD(0.5), loss=losses.SoftmaxLoss(), metrics=[metrics.MRR()]
            )
        model.index(candidates)
        history = model.fit(
            *pairs, batch_size=8, verbose=0, shuffle=False, validation_data=pairs
        ).history
        return weights(model), history, [np.array(w) for w in model.non_trainable_weights]

    one, two = train(tf.distribute.get_strategy()), train(two_devices)
    for a, b in zip(one[0] + one[2], two[0] + two[2], strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(two[1]["loss"], one[1]["loss"], rtol=1e-4)
    np.testing.assert_allclose(two[1]["val_mrr"], one[1]["val_mrr"], rtol=1e-4)


def test_candidates_of_uneven_devices_are_gathered(two_devices):
    from rank4class_tf._tf import exchange

    rows = tf.distribute.DistributedValues
    sizes = (3, 1)
    parts = two_devices.experimental_distribute_values_from_function(
        lambda context: (
            tf.ones([sizes[context.replica_id_in_sync_group], 2])
            * (1.0 + context.replica_id_in_sync_group)
        )
    )
    assert isinstance(parts, rows)

    @tf.function
    def run():
        def of_replica(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                factor = 1.0 + tf.cast(exchange.first_row(x), tf.float32)  # 1 and 4
                value = factor * tf.reduce_sum(exchange.gathered(x))
            return exchange.gathered(x), exchange.first_row(x), tape.gradient(value, x)

        return two_devices.run(of_replica, args=(parts,))

    gathered, first, gradient = map(two_devices.experimental_local_results, run())
    for own in gathered:
        np.testing.assert_array_equal(own[:, 0], [1, 1, 1, 2])
    assert [int(x) for x in first] == [0, 3]
    for own, size in zip(gradient, sizes, strict=True):
        np.testing.assert_array_equal(own, np.full([size, 2], 5.0))


def test_xla_trains_alike(pairs, candidates):
    def train(jit_compile):
        model = make(**ALL, frequencies=layers.CandidateFrequencies(1000))
        model.compile(
            keras.optimizers.SGD(0.5),
            loss=top_3(),
            metrics=[metrics.MRR()],
            jit_compile=jit_compile,
        )
        model.index(candidates)
        model.fit(*pairs, batch_size=8, epochs=2, verbose=0, shuffle=False)
        return weights(model), model.evaluate(*pairs, batch_size=8, verbose=0)

    plain, compiled = train(False), train(True)
    for a, b in zip(plain[0], compiled[0], strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(compiled[1], plain[1], rtol=1e-4)


@pytest.mark.keras2
def test_mixed_precision(pairs, candidates, mixed_precision):
    model = make(**ALL, frequencies=layers.CandidateFrequencies(1000), num_mined=4)
    model.compile("sgd", loss=losses.SoftmaxLoss(), metrics=[metrics.MRR()])
    model.index(candidates)
    history = model.fit(*pairs, validation_data=pairs, verbose=0).history
    assert all(np.isfinite(values).all() for values in history.values())
    values, _ = model.top_k(pairs[0], 3)
    assert values.dtype == tf.float32


# Files


@pytest.mark.keras2
def test_resumes_where_it_was_saved(pairs, candidates, tmp_path):
    def compiled():
        counts = layers.CandidateFrequencies(1000)
        model = make(**ALL, frequencies=counts, num_mined=5)
        model.compile("sgd", loss=losses.SoftmaxLoss(), metrics=[metrics.MRR()])
        return model

    def train(model, epochs):
        model.index(candidates)
        model.fit(*pairs, batch_size=8, epochs=epochs, verbose=0, shuffle=False)
        return weights(model)

    expected = train(compiled(), 2)
    model = compiled()
    train(model, 1)
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    for name, value in model.get_config().items():
        if "encoder" not in name and name != "frequencies":
            assert loaded.get_config()[name] == value
    loaded.index(candidates)
    for ours, theirs in zip(loaded.top_k(pairs[0], 3), model.top_k(pairs[0], 3), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    assert loaded.evaluate(*pairs, verbose=0) == pytest.approx(model.evaluate(*pairs, verbose=0))
    for ours, theirs in zip(train(loaded, 1), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@keras.utils.register_keras_serializable(package="tests.two_tower")
class Written(keras.Model):
    """An encoder that shows no inputs, nor its width, before it is called."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.table = keras.layers.Embedding(40, 4)

    def call(self, inputs, training=None):
        return self.table(inputs)

    def get_config(self):
        return {}


def test_the_memory_of_an_encoder_without_inputs_is_saved(tmp_path):
    queries, ids = np.arange(24) % 7, np.arange(24)

    def compiled():
        keras.utils.set_random_seed(1)
        model = models.TwoTower(Written(), Written(), memory_size=8)
        model.compile("sgd", loss=losses.SoftmaxLoss())
        return model

    def fit(model):
        return model.fit(queries, ids, batch_size=6, shuffle=False, verbose=0).history["loss"]

    model = compiled()
    fit(model)
    model.save(tmp_path / "m.keras")
    model.save_weights(tmp_path / "m.weights.h5")
    same = compiled()
    same(queries[:1])
    same.candidate_encoder(ids[:1])
    same.load_weights(tmp_path / "m.weights.h5")
    expected = fit(model)
    assert fit(keras.models.load_model(tmp_path / "m.keras")) == pytest.approx(expected, rel=1e-5)
    assert fit(same) == pytest.approx(expected, rel=1e-5)


def test_class_weight_is_refused(pairs):
    model = make()
    model.compile("sgd", loss=losses.SoftmaxLoss())
    with pytest.raises(ValueError, match="`class_weight` must be None.* `sample_weight`"):
        model.fit(*pairs, class_weight={0: 1.0}, verbose=0)


def test_towers_that_share_a_layer(tmp_path):
    def compiled():
        shared = keras.layers.Embedding(9, 4)
        both = [
            keras.Sequential([keras.layers.Input((), dtype="int32"), shared, *more])
            for more in ([keras.layers.Dense(4)], [])
        ]
        model = models.TwoTower(*both)
        model.compile("sgd", loss=losses.SoftmaxLoss())
        return model

    model, other = compiled(), compiled()
    model.fit(np.arange(9), np.arange(9), verbose=0)
    assert len(model.trainable_variables) == 3
    model.save_weights(tmp_path / "m.weights.h5")
    other.load_weights(tmp_path / "m.weights.h5")
    for ours, theirs in zip(weights(other), weights(model), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    for ours, theirs in zip(weights(loaded), weights(model), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def towers_of_one_embedding(kind):
    """Encoders, and the features of both, that share an embedding in several ways."""
    embedding, dense = keras.layers.Embedding(9, 4), keras.layers.Dense(4)
    one, some, other = (keras.layers.Input(shape, dtype="int32") for shape in ((), (3,), ()))
    words = np.arange(27).reshape(9, 3) % 9
    if kind == "nested":
        inner = keras.Model(one, dense(embedding(one)))
        first = keras.layers.Input((), dtype="int32")
        return keras.Model(first, inner(first)), keras.Model(other, inner(other)), np.arange(9)
    if kind == "sequential":
        first = keras.Sequential([keras.layers.Input((), dtype="int32"), embedding, dense])
        return first, keras.Model(one, dense(embedding(one))), np.arange(9)
    mean, of_some = keras.layers.GlobalAveragePooling1D(), embedding(some)
    both = dense(mean(of_some)) + dense(mean(of_some[:, :2]))
    return keras.Model(some, both), keras.Model(one, dense(embedding(one))), words


@pytest.mark.parametrize("kind", ["functional", "sequential", "nested"])
def test_towers_that_share_calls_of_a_layer(kind, tmp_path):
    *towers, x = towers_of_one_embedding(kind)
    model = models.TwoTower(*towers)
    model.compile("sgd", loss=losses.SoftmaxLoss())
    for _ in range(2):  # What was loaded saves and loads too.
        model.fit(x, np.arange(9), verbose=0)
        model.save(tmp_path / "m.keras")
        loaded = keras.models.load_model(tmp_path / "m.keras")
        assert len(loaded.trainable_variables) == 3
        for name, features in (("query_encoder", x), ("candidate_encoder", np.arange(9))):
            ours, theirs = getattr(loaded, name)(features), getattr(model, name)(features)
            np.testing.assert_array_equal(ours, theirs)
        model = loaded


_SERVE = """
import json, sys
import numpy as np, tensorflow as tf
archive = tf.saved_model.load(sys.argv[1])
queries = {k: tf.constant(v) for k, v in np.load(sys.argv[2]).items()}
found = archive.signatures["top_k"](**queries, k=tf.constant(4))
usual = archive.signatures["serving_default"](**queries)
assert "rank4class_tf" not in sys.modules
print(json.dumps([found["candidate_ids"].numpy().tolist(), usual["scores"].numpy().tolist()]))
"""


def test_load_weights_leaves_no_stale_index(pairs, candidates, tmp_path):
    model = make()
    model.index(candidates)
    before = model.top_k(pairs[0], 3)[0].numpy()
    model.save_weights(tmp_path / "m.weights.h5")
    model.set_weights([w + 1 if w.dtype == np.float32 else w for w in model.get_weights()])
    model.index()
    assert not np.allclose(model.top_k(pairs[0], 3)[0], before)
    model.load_weights(tmp_path / "m.weights.h5")
    np.testing.assert_allclose(model.top_k(pairs[0], 3)[0], before, rtol=1e-6)


def test_serves_in_a_fresh_process(pairs, candidates, seen, tmp_path):
    queries = keras.layers.Input((FEATURES,), name="features")
    encoder = keras.Model({"features": queries}, keras.layers.Dense(WIDTH)(queries))
    model = models.TwoTower(encoder, towers()[1], candidate_id="id", exclude="seen")
    model.index(candidates)
    spec = {
        "features": tf.TensorSpec([None, FEATURES], name="features"),
        "seen": tf.TensorSpec([None, None], tf.int64, name="seen"),
    }
    model.export_top_k(tmp_path / "saved", spec, k=3)
    x = {"features": pairs[0], "seen": seen}
    np.savez(tmp_path / "queries.npz", **x)
    command = [sys.executable, "-c", _SERVE, str(tmp_path / "saved"), str(tmp_path / "queries.npz")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=pathlib.Path("/"))
    assert done.returncode == 0, done.stderr[-3000:]
    ids, scores = json.loads(done.stdout.splitlines()[-1])
    np.testing.assert_array_equal(ids, model.top_k(x, 4)[1])
    np.testing.assert_allclose(scores, model.top_k(x, 3)[0], rtol=1e-5)
    with pytest.raises(ValueError, match=r"`k` must be in \[1, 40\]. Received: k=41"):
        model.export_top_k(tmp_path / "saved", spec, k=41)


# Errors


def test_wrong_arguments(pairs, candidates):
    for name, value, rule in (
        ("temperature", 0.0, "a finite number > 0"),
        ("memory_size", -1, "an integer >= 0"),
        ("num_random", 2.5, "an integer >= 0"),
        ("num_mined", 0, "a positive integer"),
    ):
        with pytest.raises(ValueError, match=f"`{name}` must be {rule}"):
            make(**{name: value})
    model = make()
    for call in (
        lambda: model.top_k(pairs[0], 3),
        lambda: model.evaluate(*pairs),
        lambda: model.index(),
        lambda: model.export_candidates("x"),
    ):
        with pytest.raises(ValueError, match=r"`index\(candidates\)` must be called first"):
            call()
    with pytest.raises(ValueError, match="`candidates` must have different ids. Received: 7 more"):
        model.index({"id": np.array([1, 7, 7]), "features": candidates["features"][:3]})
    with pytest.raises(ValueError, match="`candidates` must have a row for each candidate"):
        model.index({"id": IDS[:3], "features": candidates["features"][:4]})
    with pytest.raises(ValueError, match=r"`k` must be in \[1, 40\]"):
        model.index(candidates)
        model.top_k(pairs[0], 41)


def test_wrong_ids_of_candidates(candidates, pairs):
    model, features = make(), {"features": candidates["features"][:3]}
    for ids, rule in (
        ([5, -1, 7], "ids other than -1"),
        (np.zeros([3, 2], int), r"ids of the shape \[N\] or \[N, 1\]; .* Received: .*\(3, 2\)"),
    ):
        with pytest.raises(ValueError, match=f"`candidates` must have {rule}"):
            model.index({"id": np.array(ids), **features})
    model.index({"id": np.array([[5], [6], [7]]), **features})
    assert model.top_k(pairs[0][:1], 1)[1].shape == (1, 1)
    with pytest.raises(ValueError, match="`candidate_id` must be a key of .*'id', features .'feat"):
        model.index(features)
    model.compile("sgd", loss=losses.SoftmaxLoss())
    with pytest.raises(ValueError, match="`exclude` must be a key of the features"):
        make(exclude="seen")._excluded(pairs[0], None)
    for ids in ([0.5, 1.5, 2.5], [True, False, True], [1j, 2j, 3j]):
        with pytest.raises(ValueError, match="`candidate_id` must hold integers or strings"):
            model.index({"id": np.array(ids), **features})


def by_ids(**kwargs):
    """A model whose candidates' features are their ids."""
    tower = keras.Sequential(
        [keras.layers.Input((), dtype="int64"), keras.layers.Embedding(NUM_CANDIDATES, WIDTH)]
    )
    model = models.TwoTower(towers()[0], tower, seed=3, **kwargs)
    model.compile(keras.optimizers.SGD(0.5), loss=losses.SoftmaxLoss(), metrics=[metrics.MRR()])
    return model


def several(rng, ragged, candidates):
    """One to three candidates for each of 24 queries, padded, with further negatives."""
    rows = np.array([rng.choice(12, 5, replace=False) for _ in range(24)])
    kept = np.arange(5) < rng.integers(1, 4, 24)[:, None]
    kept[:, 3:] = rng.random((24, 2)) < 0.6  # The last two are negatives.

    def of(name, columns):
        x = candidates[name][rows[:, columns]]
        there = kept[:, columns]
        if ragged:
            return tf.ragged.boolean_mask(x, there)
        there = there.reshape([*there.shape, *[1] * (x.ndim - 2)])
        return np.where(there, x, -1 if name == "id" else np.float32(np.nan))

    first, last = slice(3), slice(3, 5)
    y = {name: of(name, first) for name in ("id", "features")}
    return y, {name: of(name, last) for name in ("id", "features")}, rows, kept


@pytest.mark.parametrize("wrong", [0, -1, np.nan, np.inf])
def test_weights_of_negatives_are_positive(wrong, pairs, candidates):
    model = make(negatives="others", negative_weight="weight")
    model.compile("sgd", loss=losses.SoftmaxLoss(), jit_compile=False)
    ids = np.array([[3, -1]] * len(pairs[0]))
    others = {"id": ids, "features": candidates["features"][ids]}
    given = np.where(ids == -1, wrong, 2).astype(np.float32)  # Padding has any weight.
    labels = {**pairs[1], "others": {**others, "weight": given}}
    assert np.isfinite(model.fit(pairs[0], labels, verbose=0).history["loss"]).all()
    labels["others"]["weight"] = np.full(given.shape, wrong, np.float32)
    rule = "`negative_weight` must hold finite numbers > 0"
    with pytest.raises(tf.errors.InvalidArgumentError, match=rule):
        model.fit(pairs[0], labels, verbose=0)
    labels["others"]["weight"] = given[:, :1]
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="the shape of the ids"):
        model.fit(pairs[0], labels, verbose=0)


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("options", ["plain", "negatives", "weights", "log-Q"])
def test_several_candidates_of_a_query(options, ragged, rng, candidates):
    """Values and gradients of the lists that the docstring describes, in float64, list by list."""
    kwargs = {} if options == "plain" else {"negatives": "others"}
    if options == "weights":
        kwargs["negative_weight"] = "weight"
    if options == "log-Q":
        kwargs["frequencies"] = layers.CandidateFrequencies(1000)
    model = make(temperature=0.5, **kwargs)
    loss = losses.SoftmaxLoss()
    model.compile(keras.optimizers.SGD(1.0), loss=loss, jit_compile=False)
    x = rng.normal(size=(24, FEATURES)).astype(np.float32)
    y, others, rows, kept = several(rng, ragged, candidates)
    weights_of = rng.uniform(0.5, 2, 40)
    if kwargs:
        y = {**y, "others": others}
    if options == "weights":
        of = tf.gather(tf.constant(weights_of, tf.float32), rows[:, 3:])
        of = tf.ragged.boolean_mask(of, kept[:, 3:]) if ragged else of
        y["others"] = {**others, "weight": of}

    columns = [(q, c) for q, c in np.argwhere(kept) if c < 3]
    num_own = len(columns)
    columns += [(q, c) for q, c in np.argwhere(kept) if c >= 3 and kwargs]
    of_columns = np.array([rows[q, c] for q, c in columns])
    variables = [tf.Variable(w.astype(float)) for w in weights(model)]
    counts = np.bincount(of_columns[:num_own], minlength=40)
    with tf.GradientTape() as tape:
        q, c = (
            tf.math.l2_normalize(tf.matmul(np.asarray(z, float), w) + b, axis=1, epsilon=0)
            for z, w, b in (
                (x, *variables[:2]),
                (candidates["features"][of_columns], *variables[2:]),
            )
        )
        scores, values = tf.matmul(q, c, transpose_b=True) / 0.5, []
        for query in range(24):
            own = [i for i in range(num_own) if columns[i][0] == query]
            hits = np.isin(of_columns, of_columns[own])
            listed = own + [i for i in range(len(columns)) if not hits[i]]
            expected = np.ones(len(columns))
            if options == "log-Q":
                draws = num_own - len(own)
                expected[:num_own] = draws * counts[of_columns[:num_own]] / num_own
            if options == "weights":
                expected[num_own:] = 1 / weights_of[of_columns[num_own:]]
            expected[own] = 1
            of_list = tf.gather(scores[query] - np.log(expected), listed)
            lists = ops.as_lists(of_list[tf.newaxis], [list(range(len(own)))])
            values.append(loss.compute(lists)[0])
        value = tf.reduce_mean(tf.stack(values))
    gradients = tape.gradient(value, variables)
    before = weights(model)
    if ragged:  # Keras takes no arrays that are ragged.
        data = tf.data.Dataset.from_tensors((x, y))
        found = model.fit(data, verbose=0, shuffle=False).history["loss"][0]
    else:
        found = model.fit(x, y, batch_size=24, verbose=0, shuffle=False).history["loss"][0]
    assert found == pytest.approx(float(value), rel=1e-5)
    for old, new, gradient in zip(before, weights(model), gradients, strict=True):
        np.testing.assert_allclose(old - new, gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.keras2
@pytest.mark.parametrize("several", ["positives", "negatives", "both"])
def test_one_candidate_in_the_form_of_several(several, pairs, candidates):
    """Positives or negatives `[batch, 1, ...]` are those of `[batch, 2, ...]` with padding."""
    others = {k: np.roll(v, 5, axis=0) for k, v in pairs[1].items()}

    def loss(width):
        def form(y, name):
            if width is None or several not in (name, "both"):
                return y
            filler = {"id": -1, "features": 0}
            return {
                k: np.stack([v, *[np.full_like(v, filler[k])] * (width - 1)], axis=1)
                for k, v in y.items()
            }

        y = {**form(pairs[1], "positives"), "others": form(others, "negatives")}
        model = make(negatives="others")
        model.compile("sgd", losses.SoftmaxLoss())
        return model.fit(pairs[0], y, batch_size=24, verbose=0).history["loss"]

    np.testing.assert_allclose([loss(1), loss(2)], [loss(None)] * 2, rtol=1e-5)


@pytest.mark.parametrize("make_loss", [top_3, losses.ApproxNDCGLoss, losses.RankmaxLoss])
def test_several_candidates_alone_in_a_batch(make_loss, rng, candidates):
    """Labels as wide as the scores are still columns."""
    model = make()
    model.compile("sgd", loss=make_loss())
    y = {k: v[:6].reshape([2, 3, *v.shape[1:]]) for k, v in candidates.items()}
    x = rng.normal(size=(2, FEATURES)).astype(np.float32)
    for size in (1, 2):
        history = model.fit(x, y, batch_size=size, verbose=0).history
        assert np.isfinite(history["loss"]).all()


def test_evaluation_of_several_has_a_loss(rng, candidates):
    model = make()
    model.compile("sgd", loss=losses.SoftmaxLoss(), metrics=[metrics.MRR()])
    model.index(candidates)
    y, *_ = several(rng, False, candidates)
    x = rng.normal(size=(24, FEATURES)).astype(np.float32)
    assert np.isfinite(model.evaluate(x, y, verbose=0)).all()


def test_features_that_are_ragged(rng):
    """Words of a candidate, in a batch, in the index and drawn from it."""

    class Words(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.table = keras.layers.Embedding(50, WIDTH)

        def call(self, inputs, training=None):
            rows = self.table(inputs["words"].values)
            return tf.reduce_mean(inputs["words"].with_values(rows), axis=1)

    words = tf.RaggedTensor.from_row_lengths(rng.integers(0, 50, 60), [1, 2] * 20)
    model = models.TwoTower(towers()[0], Words(), candidate_id="id", num_random=5)
    model.compile("sgd", loss=losses.SoftmaxLoss(), jit_compile=False)
    model.index({"id": IDS, "words": words})
    own = rng.integers(0, NUM_CANDIDATES, 24)
    pairs = rng.normal(size=(24, FEATURES)), {"id": IDS[own], "words": tf.gather(words, own)}
    data = tf.data.Dataset.from_tensor_slices(pairs).batch(8)
    assert np.isfinite(model.fit(data, verbose=0, shuffle=False).history["loss"]).all()
    assert model.top_k(pairs[0], 3)[1].shape == (24, 3)


def test_an_index_that_fails_leaves_the_older_one(pairs):
    model = by_ids()
    model.index(np.arange(NUM_CANDIDATES))
    before = model.top_k(pairs[0], 3)
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
        model.index(np.arange(NUM_CANDIDATES + 9))  # The embedding is too small.
    for now, then in zip(model.top_k(pairs[0], 3), before, strict=True):
        np.testing.assert_array_equal(now, then)
    model.fit(pairs[0], np.arange(24), verbose=0)


def test_what_is_excluded_has_a_row_for_each_query(pairs):
    model = by_ids()
    model.index(np.arange(NUM_CANDIDATES))
    for wrong, rule in (
        (np.arange(24), r"have the shape \[batch, E\]. Received: \(24,\)"),
        (np.arange(24)[:, None] == 2, "hold integers or strings. Received: bool"),
    ):
        for call in (model.top_k, lambda x, k, e: model.ranks(x, np.arange(24), e)):
            with pytest.raises(ValueError, match=f"`exclude` must {rule}"):
                call(pairs[0], 3, wrong)
    with pytest.raises(ValueError, match=r"`exclude` must have the shape \[batch, E\]"):
        head = layers.SampledScores(9)
        head(tf.ones([2, 4]))
        head.top_k(tf.ones([2, 4]), 3, exclude=[1, 2])


@pytest.mark.parametrize("kind", [bool, np.float32, complex])
def test_ids_of_pairs_are_integers(kind, pairs):
    model = by_ids()
    model.index(np.arange(NUM_CANDIDATES))
    ids = np.arange(24).astype(kind)
    for call in (model.fit, model.evaluate, model.ranks):
        with pytest.raises(ValueError, match="must hold integers or strings"):
            call(pairs[0], ids)


def test_labels_beside_the_features_are_no_features(pairs):
    """As Keras takes them for models of several outputs."""
    model = by_ids()
    with pytest.raises(ValueError, match="`y` must have a part for each of the"):
        model.fit(pairs[0], (np.arange(24), np.ones(24)), verbose=0)


def test_tokens_need_ids(pairs):
    words = keras.Sequential(
        [
            keras.layers.Input((2,), dtype="int64"),
            keras.layers.Embedding(NUM_CANDIDATES, WIDTH),
            keras.layers.GlobalAveragePooling1D(),
        ]
    )
    model = models.TwoTower(towers()[0], words)
    model.compile("sgd", loss=losses.SoftmaxLoss())
    tokens = np.arange(48).reshape([24, 2]) % NUM_CANDIDATES
    with pytest.raises(ValueError, match="`candidate_id` must be given where the features"):
        model.fit(pairs[0], tokens, verbose=0)
    with pytest.raises(ValueError, match="several integers, `candidate_id` must be given"):
        model.index(tokens)


@pytest.mark.parametrize("first", [0, 2])
def test_labels_of_several_ranks(first, pairs):
    """Keras relaxes shapes that change to an unknown rank."""
    model, own = by_ids(), np.arange(24)
    model.index(np.arange(NUM_CANDIDATES))
    loss, metric = model.evaluate(pairs[0], own, verbose=0)
    model.compile("sgd", loss=model.loss, metrics=[metrics.HitRate(3)])
    forms = [own, own[:, None], np.stack([own, np.full(24, -1)], axis=1)]
    for labels in forms[first:] + forms[:first]:
        found = model.evaluate(pairs[0], labels, verbose=0)
        np.testing.assert_allclose(found[0], loss, rtol=1e-5)
    model.fit(pairs[0], own, verbose=0)
    step = tf.function(
        lambda queries, ids: model.compute_loss(queries, ids, model(queries), training=True),
        [tf.TensorSpec([None, *np.shape(pairs[0])[1:]]), tf.TensorSpec(None, tf.int64)],
    )
    queries = tf.constant(pairs[0], tf.float32)
    assert np.isfinite(step(queries, tf.constant(own)))
    one = step(queries, tf.constant(own))
    np.testing.assert_allclose(step(queries, tf.constant(forms[2])), one, rtol=1e-5)


def test_ids_of_another_kind_than_those_of_the_index_raise(pairs):
    model = by_ids()
    model.index(np.arange(NUM_CANDIDATES))
    with pytest.raises(ValueError, match="`exclude` must hold ids like those of the index, int"):
        model.top_k(pairs[0], 3, exclude=[["a"]] * 24)
    ragged = tf.ragged.constant([[0], [], *[[1, 2]] * 22])
    padded = ragged.to_tensor(-1)
    for one, other in zip(
        model.top_k(pairs[0], 3, exclude=ragged),
        model.top_k(pairs[0], 3, exclude=padded),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


def test_padding_of_excluded_strings_is_no_id(pairs):
    names = np.array(["", *(f"item {i}" for i in range(1, NUM_CANDIDATES))])
    words = keras.layers.StringLookup(vocabulary=names[1:])
    tower = keras.Sequential([words, keras.layers.Embedding(NUM_CANDIDATES, WIDTH)])
    model = models.TwoTower(towers()[0], tower)
    model.index(names)
    excluded = tf.ragged.constant([["item 1"], [], *[["item 1", "item 2"]] * 22])
    _, found = model.top_k(pairs[0], NUM_CANDIDATES - 2, exclude=excluded)
    assert b"" in found[0].numpy() and b"item 1" in found[1].numpy()
    assert b"item 1" not in found[0].numpy()


def test_what_is_excluded_twice_is_one_item_less(pairs, candidates):
    model = make()
    model.index(candidates)
    ranks = model.ranks(*pairs, exclude=np.tile(IDS[[3, 5, 3]], (24, 1)))
    np.testing.assert_array_equal(ranks.num_items, np.full(24, NUM_CANDIDATES - 2))


def test_widths_of_encodings_are_compared():
    def tower(width):
        return keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(width)])

    with pytest.raises(ValueError, match="must give encodings of one width"):
        models.TwoTower(tower(8), tower(6))


def test_features_that_are_ids_on_two_devices(pairs, two_devices):
    with two_devices.scope():
        model = by_ids(frequencies=layers.CandidateFrequencies(99), memory_size=6)
    model.index(np.arange(NUM_CANDIDATES))
    history = model.fit(pairs[0], np.arange(24), batch_size=8, verbose=0).history
    assert np.isfinite(history["loss"]).all()
    assert np.isfinite(model.evaluate(pairs[0], np.arange(24), batch_size=8, verbose=0)).all()


@pytest.mark.skipif(not _keras.KERAS_3, reason="Keras 2 does not ask.")
def test_xla_is_not_asked_for_strings(candidates):
    model = make()
    model.compile("sgd", loss=losses.SoftmaxLoss(), jit_compile=True)
    model.index({**candidates, "id": np.array([f"film {i}" for i in IDS])})
    assert not model.jit_compile and not model.supports_jit


@pytest.mark.parametrize("kwargs", [{"memory_size": 4}, {"frequencies": None}])
def test_some_sources_need_ids(kwargs, pairs):
    if "frequencies" in kwargs:
        kwargs = {"frequencies": layers.CandidateFrequencies(9)}
    model = make(candidate_id=None, **kwargs)
    model.compile("sgd", loss=losses.SoftmaxLoss())
    with pytest.raises(ValueError, match="`candidate_id` must be given with"):
        model.fit(pairs[0], {"features": pairs[1]["features"]}, verbose=0)


def test_other_losses_and_metrics_are_refused():
    model = make()
    for loss, message in (
        ("mse", "`loss` must be a loss of rank4class_tf.losses"),
        # The columns of a batch are no classes.
        (losses.SoftmaxLoss(class_weight={0: 9.0}), "`loss` must have no `class_weight`"),
    ):
        with pytest.raises(ValueError, match=message):
            model.compile("sgd", loss=loss)
    for metric in (
        keras.metrics.Mean(),
        metrics.MacroAverage(metrics.MRR(), 3),
        metrics.ExpectedCalibrationError(),
    ):
        for argument in ("metrics", "weighted_metrics"):
            with pytest.raises(ValueError, match=f"`{argument}` must hold metrics of"):
                model.compile("sgd", loss=losses.SoftmaxLoss(), **{argument: [metric]})


def test_ids_of_several_ranks_beside_other_features(pairs):
    features = keras.layers.Input((), dtype="int64", name="id")
    tower = keras.Model({"id": features}, keras.layers.Embedding(NUM_CANDIDATES, WIDTH)(features))
    model = models.TwoTower(towers()[0], tower, candidate_id="id")
    model.compile("sgd", loss=losses.SoftmaxLoss(), metrics=[metrics.MRR()])
    model.index({"id": np.arange(NUM_CANDIDATES)})
    one, padded = np.arange(24), np.stack([np.arange(24), np.full(24, -1)], axis=1)
    expected = model.evaluate(pairs[0], {"id": one}, verbose=0)
    found = model.evaluate(pairs[0], {"id": padded}, verbose=0)
    assert np.isnan(found[0]) and found[1] == pytest.approx(expected[1])
    np.testing.assert_allclose(
        model.evaluate(pairs[0], {"id": one}, verbose=0), expected, rtol=1e-6
    )


def test_encodings_of_any_width():
    def tower(width):
        inputs = keras.layers.Input((width,))
        return keras.Model(inputs, keras.layers.Activation("linear")(inputs))

    assert models.TwoTower(tower(None), tower(8)).num_mined is None
