"""TwoTower: training steps on one and several devices, against dense float64 lists."""

import collections
import itertools

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from tensorflow import keras

from rank4class_tf import _keras, layers, losses, metrics, models, ops
from rank4class_tf._tf.exchange import Exchange

from ..contract.test_steps import MODES, OPTIMIZERS, RATE, Linear, product
from ..refused import refused_in_graph
from ..rounding import assert_all_close, rounding
from ..small_models import linear
from . import two_towers as small
from .two_towers import (
    FEATURES,
    IDS,
    NUM_CANDIDATES,
    WIDTH,
    dense_scores,
    make,
    towers,
    weights,
)

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "options, jit_compile",
    [({"frequencies": True}, False), ({"memory_size": 8, "num_random": 4}, True)],
)
def test_a_batch_without_queries(options, jit_compile, pairs, candidates):
    model = make(candidates, jit_compile=jit_compile, **options)
    none = (pairs[0][:0], {k: v[:0] for k, v in pairs[1].items()})
    before = weights(model)
    for step in (model.train_on_batch, model.test_on_batch):
        assert np.sum(step(*none)) == 0
    model.fit(tf.data.Dataset.from_tensors(none), verbose=0, shuffle=False)
    assert_all_close(weights(model), before, 0)
    assert np.isfinite(model.train_on_batch(*pairs))


def loss_of_lists(loss, queries, candidates, own, ids, expected, num_mined=None):
    """The mean over queries, each with its own candidates' columns and all non-hits.

    `expected` are counts by query and column, for log-Q.
    """
    scores = tf.matmul(queries, candidates, transpose_b=True)
    ids = np.array(ids)
    values = []
    for query, columns in enumerate(own):
        others = np.flatnonzero(~np.isin(ids, ids[columns]))
        corrected = scores[query] - np.log(expected[query])
        positives, negatives = (tf.gather(corrected, x) for x in (columns, others))
        positives += np.log(expected[query, columns])  # They keep their scores.
        if num_mined:
            negatives = tf.sort(negatives, direction="DESCENDING")[:num_mined]
        of_list = tf.concat([positives, negatives], axis=0)[tf.newaxis]
        values.append(
            loss.compute(ops.as_lists(of_list, [list(range(len(columns)))]))[0]
        )
    return tf.reduce_mean(tf.stack(values))


def float64_variables(model):
    return [tf.Variable(w.astype(float)) for w in weights(model)]


class Reference:
    """The step of a model with all sources of negatives, in float64, list by list."""

    def __init__(self, model, candidates, random_rows):
        self.model, self.candidates, self.random_rows = model, candidates, random_rows
        self.memory = []
        self.counts = collections.Counter()

    def step(self, loss, queries, positives, rate):
        model = self.model
        variables = float64_variables(self.model)
        drawn = self.random_rows()
        ids = positives["id"].tolist()
        self.counts.update(ids)
        with tf.GradientTape() as tape:
            q = self.encoded(queries, variables[:2]) / model.temperature
            own = self.encoded(positives["features"], variables[2:])
            parts = [own]
            all_ids = list(ids)
            if self.memory:
                parts.append(tf.constant([encoding for encoding, _ in self.memory]))
                all_ids += [i for _, i in self.memory]
            draws = len(all_ids) - 1
            if "others" in positives:
                parts.append(
                    self.encoded(positives["others"]["features"][:, 0], variables[2:])
                )
                all_ids += positives["others"]["id"][:, 0].tolist()
            if drawn is not None:
                parts.append(
                    self.encoded(self.candidates["features"][drawn], variables[2:])
                )
                all_ids += IDS[drawn].tolist()
            expected = np.ones([len(ids), len(all_ids)])
            if model.frequencies is not None:
                share = 0.0 if drawn is None else len(drawn) / NUM_CANDIDATES
                total = self.counts.total()
                expected[:] = [
                    draws * max(self.counts[i], 1) / total + share for i in all_ids
                ]
            rows = [[row] for row in range(len(ids))]
            columns = tf.concat(parts, axis=0)
            value = loss_of_lists(
                loss, q, columns, rows, all_ids, expected, model.num_mined
            )
        gradients = tape.gradient(value, variables)
        if model.memory_size:
            self.memory += list(zip(own.numpy(), ids, strict=True))
            del self.memory[: -model.memory_size]
        return float(value), [
            w - rate * tf.convert_to_tensor(g)
            for w, g in zip(variables, gradients, strict=True)
        ]

    def encoded(self, features, weights):
        encodings = product(np.array(features, float), weights)
        if self.model.normalize:
            encodings = tf.math.l2_normalize(encodings, axis=1, epsilon=0)
        return encodings


SOURCES = {
    "batch": {},
    "dot_products": {"normalize": False, "temperature": 2.0},
    "memory": {"memory_size": 20},
    "random": {"num_random": 10},
    "frequencies": {"frequencies": True, "temperature": 0.5},
    "all": {"memory_size": 20, "num_random": 10, "frequencies": True},
    "mined": {"num_mined": 3, "memory_size": 5},
    "encoded in pieces": {"encode_in": 3, "memory_size": 20, "normalize": False},
    "encoded in one piece": {"encode_in": 8},
    "scored in pieces": {"score_in": 3, "normalize": False},
    "negatives": {"negatives": "others", "normalize": False},
}
STEPS = [
    ("all", losses.SoftmaxLoss),
    *itertools.product(SOURCES, (small.top_3, Linear)),
    ("more than there are", losses.SoftmaxLoss),
]
SOURCES["more than there are"] = {"num_random": 10_000, "frequencies": True}


@pytest.mark.keras2
@pytest.mark.parametrize("mode, optimizer", MODES)
@pytest.mark.parametrize("sources, make_loss", STEPS)
def test_step_is_that_of_dense_lists(
    sources, make_loss, mode, optimizer, pairs, candidates
):
    loss = make_loss()
    model = make(candidates, **SOURCES[sources])
    model.compile(
        OPTIMIZERS[optimizer](),
        loss,
        run_eagerly=mode == "eager",
        jit_compile=mode == "xla",
    )

    def random_rows():
        # A layer of the same seed, at the same step.
        if not model.num_random:
            return None
        layer = layers.UniformNegatives(model.num_random, seed=model.seed)
        layer.build(None)
        layer.random_state.assign(_keras.variable(model._random.random_state))
        return layer(tf.zeros([NUM_CANDIDATES])).numpy()

    reference = Reference(model, candidates, random_rows)
    steps = []
    x = pairs[0]
    y = dict(pairs[1])
    if sources == "negatives":
        y["others"] = {k: v[12:36, None] for k, v in candidates.items()}

    def before(number, logs=None):
        of_batch = tf.nest.map_structure(
            lambda part: part[8 * number : 8 * number + 8], (x, y)
        )
        steps.append(reference.step(loss, *of_batch, RATE))

    def after(number, logs):  # The mean over the batches until now.
        assert float(logs["loss"]) == pytest.approx(
            np.mean([v for v, _ in steps]), rel=1e-5
        )
        assert_all_close(weights(model), steps[-1][1], 1e-4, 1e-5)

    check = keras.callbacks.LambdaCallback(
        on_train_batch_begin=before, on_train_batch_end=after
    )
    model.fit(x, y, batch_size=8, verbose=0, shuffle=False, callbacks=[check])
    assert len(steps) == 3


def test_frequencies_in_a_batch_of_one_example(pairs, candidates):
    model = make(candidates, frequencies=True)
    x = pairs[0][:5]
    y = {k: v[:5] for k, v in pairs[1].items()}
    history = model.fit(x, y, batch_size=4, verbose=0, shuffle=False).history
    assert np.isfinite(history["loss"]).all()
    assert all(np.isfinite(w).all() for w in weights(model))


def test_strings_are_ids_and_features(rng):
    names = np.array([f"film {i}" for i in IDS])
    keras.utils.set_random_seed(1)
    inputs = keras.Input((), dtype="string")
    numbers = keras.layers.StringLookup(vocabulary=names.tolist(), num_oov_indices=1)(
        inputs
    )
    tower = keras.Model(
        inputs, keras.layers.Embedding(NUM_CANDIDATES + 1, WIDTH)(numbers)
    )
    keras.utils.set_random_seed(1)
    encoder = linear(FEATURES, WIDTH)
    model = models.TwoTower(encoder, tower)
    model.compile(keras.optimizers.SGD(0.1), losses.SoftmaxLoss())
    own = rng.integers(0, 5, 32)
    queries = np.eye(FEATURES, dtype="float32")[own]
    batches = tf.data.Dataset.from_tensor_slices((queries, names[own])).batch(8)
    model.index(names)
    model.fit(batches, epochs=30, verbose=0, shuffle=False)
    found = model.top_k(np.eye(FEATURES, dtype="float32"), 1)[1][:, 0].numpy()
    assert [name.decode() for name in found] == names[:5].tolist()


@small.needs_keras_3
def test_xla_is_not_asked_for_strings(candidates):
    model = make(
        {**candidates, "id": np.array([f"film {i}" for i in IDS])}, jit_compile=True
    )
    assert not model.jit_compile and not model.supports_jit


def test_features_without_ids(pairs, candidates):
    model = make(candidate_id=None)
    y = {"features": pairs[1]["features"]}
    value = float(model.compute_loss(pairs[0], y, model(pairs[0]), training=False))
    scores = dense_scores(model, pairs[0], y["features"])
    expected = np.mean(np.log(np.exp(scores).sum(axis=1)) - np.diag(scores))
    assert value == pytest.approx(expected, rel=1e-5)
    model.index({"features": candidates["features"]})
    scores = dense_scores(model, pairs[0], candidates["features"])
    _, rows = model.top_k(pairs[0], 3)
    assert_array_equal(rows, np.argsort(-scores, axis=1)[:, :3])


@pytest.mark.keras2
def test_a_loss_after_an_evaluation_is_that_of_training(pairs, candidates):
    model = make(candidates, frequencies=True, metrics=[metrics.MRR()])
    model.test_on_batch(*pairs)
    model.compute_loss(*pairs, model(pairs[0]))
    assert np.sum(model.frequencies.counts) == 24  # Only training counts.


def test_weights_of_examples(pairs):
    model = make(loss=losses.SoftmaxLoss(reduction="sum"))
    encodings = model(pairs[0])

    def value(weight):
        return float(
            model.compute_loss(*pairs, encodings, tf.constant(weight), training=False)
        )

    singles = [value(row) for row in np.eye(24)[:3]]
    expected = singles[0] + 2 * singles[1] + 0.5 * singles[2]
    assert value([1.0, 2.0, 0.5] + [0.0] * 21) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("options", ["all", "several are mined"])
def test_a_batch_in_pieces_is_a_plain_one(options, rng, candidates):
    # Of 24, the last batch is smaller than the first, and no multiple of the pieces;
    # XLA would compile it anew.
    number = 20 if options == "all" else 24
    rows = rng.integers(0, NUM_CANDIDATES, number if options == "all" else [number, 3])
    x = {"words": rng.integers(0, 40, [number, 3])}
    y = {"row": rows, "id": IDS[rows]}
    kwargs = {**small.ALL, "seed": 3} if options == "all" else {"num_mined": 4}

    def train(encode_in, score_in):
        model = models.TwoTower(
            *small.towers_with_tables(),
            candidate_id="id",
            encode_in=encode_in,
            score_in=score_in,
            **kwargs,
        )
        loss = losses.SoftmaxLoss() if options == "all" else small.top_3()
        # Older ones cannot cut these pieces.
        xla = options == "all" and tf.__version__ >= "2.16"
        model.compile(keras.optimizers.SGD(0.5), loss=loss, jit_compile=xla)
        if options == "all":
            model.index({"row": np.arange(NUM_CANDIDATES), "id": IDS})
        weight = np.linspace(0, 2, number)
        history = model.fit(
            x, y, 20, 2, sample_weight=weight, shuffle=False, verbose=0
        ).history
        return [*weights(model), history["loss"]]

    # Gradients sum over the examples, of magnitudes up to 1. Each size alone is in
    # `SOURCES`.
    assert_all_close(train(3, 7), train(None, None), rounding(24), rounding(24))


@small.needs_keras_3  # Dropout of Keras 2 has a state to set back only on demand.
def test_pieces_draw_the_same_in_both_passes(rng, normal):
    """The gradient is the loss's: differences of it, with generators set back."""
    model = models.TwoTower(
        *small.towers_with_tables(dropout=0.5), candidate_id="id", encode_in=5
    )
    model.compile("sgd", loss=losses.SoftmaxLoss())
    rows = rng.integers(0, NUM_CANDIDATES, 24)
    x = {"words": rng.integers(0, 40, [24, 3])}
    y = {"row": rows, "id": IDS[rows]}
    x, y = tf.nest.map_structure(tf.constant, (x, y))
    encoders = model.query_encoder, model.candidate_encoder
    states = [state for encoder in encoders for state in _keras.states_of(encoder)[0]]
    start = [state.numpy() for state in states]
    variables = model.trainable_variables
    # Short encodings would bend the loss too much for differences.
    values = [normal(*v.shape) for v in variables]
    direction = [normal(*v.shape) for v in variables]

    @tf.function
    def value_and_gradients():
        with tf.GradientTape() as tape:
            value = model.compute_loss(x, y, model(x, training=True), training=True)
        return value, tape.gradient(value, [_keras.variable(v) for v in variables])

    def moved(by):
        for variable, value, d in zip(variables, values, direction, strict=True):
            variable.assign(value + by * d)
        for state, old in zip(states, start, strict=True):
            state.assign(old)
        value, gradients = value_and_gradients()
        pairs = zip(gradients, direction, strict=True)
        return float(value), sum(np.sum(tf.convert_to_tensor(g) * d) for g, d in pairs)

    _, slope = moved(0.0)
    assert all((s.numpy() != old).any() for s, old in zip(states, start, strict=True))
    assert slope == pytest.approx((moved(1e-3)[0] - moved(-1e-3)[0]) / 2e-3, rel=1e-2)


@pytest.mark.keras2
def test_a_layer_sees_the_rows_of_a_piece_alone(rng):
    inputs = keras.Input((WIDTH,))
    normalised = keras.layers.BatchNormalization(momentum=0.5)
    model = models.TwoTower(
        towers()[0], keras.Model(inputs, normalised(inputs)), encode_in=8
    )
    model.compile("sgd", losses.SoftmaxLoss(), jit_compile=True)
    features = rng.normal(3, size=[26, WIDTH]).astype("float32")
    model.fit(
        np.ones([26, FEATURES]), features, batch_size=26, verbose=0, shuffle=False
    )
    mean = np.zeros(WIDTH)
    variance = np.ones(WIDTH)
    for piece in np.split(features.astype(float), [8, 16, 24]):
        mean = (mean + piece.mean(0)) / 2
        variance = (variance + piece.var(0)) / 2
    assert_allclose(normalised.moving_mean, mean, rtol=1e-5)
    assert_allclose(normalised.moving_variance, variance, rtol=1e-5)


@keras.utils.register_keras_serializable(package="tests.two_tower")
class WithRating(models.TwoTower):
    """Retrieval and rating together."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        inputs = keras.Input((2 * WIDTH,))
        self.rating = keras.Model(inputs, keras.layers.Dense(1, name="last")(inputs))
        self.error = keras.metrics.MeanSquaredError(name="error")

    def extra_loss(self, queries, candidates, x, y, training):
        found = self.rating(tf.concat([queries, candidates], axis=1))[:, 0]
        self.error.update_state(y["stars"], found)
        return tf.reduce_mean((found - y["stars"]) ** 2)


@pytest.mark.keras2
def test_a_model_of_several_tasks(pairs, candidates, normal, reloaded):
    x = pairs[0]
    y = {**pairs[1], "stars": normal(24)}
    model = WithRating(*towers(), candidate_id="id", encode_in=5)
    model.compile(
        keras.optimizers.SGD(0.5), losses.SoftmaxLoss(), metrics=[metrics.MRR()]
    )
    films = model.candidate_encoder({"features": y["features"]})
    encodings = np.concatenate([model.query_encoder(x), films], axis=1).astype(float)
    kernel, bias = head = model.rating.get_weights()
    errors = (encodings @ kernel)[:, 0] + bias - y["stars"]
    gradients = 2 * (encodings.T @ errors)[:, None] / 24, 2 * np.mean(errors)
    retrieval = make().test_on_batch(*pairs)
    history = model.fit(x, y, batch_size=24, verbose=0).history
    error = np.mean(errors**2)
    assert history["loss"][0] == pytest.approx(error + np.sum(retrieval), rel=1e-5)
    assert history["error"][0] == pytest.approx(error, rel=1e-5)
    expected = [
        old - 0.5 * gradient for old, gradient in zip(head, gradients, strict=True)
    ]
    assert_all_close(model.rating.get_weights(), expected, 1e-4, 1e-6)
    results = []
    for each in (model, reloaded(model)):
        each.index(candidates)
        each.fit(x, y, batch_size=24, verbose=0)
        results.append(each.evaluate(x, y, verbose=0, return_dict=True))
    assert set(results[0]) == {"loss", "mrr", "error"}
    assert results[1] == pytest.approx(results[0], rel=1e-5)


def test_a_plain_subclass_with_layers_that_are_not_built(pairs):
    class Plain(models.TwoTower):
        def extra_loss(self, queries, candidates, x, y, training):
            return tf.reduce_mean(self.rating(queries * candidates) ** 2)

    model = Plain(*towers(), candidate_id="id")
    model.rating = keras.layers.Dense(1)
    model.compile("adam", losses.SoftmaxLoss())
    model.fit(*pairs, verbose=0)
    assert len(model.trainable_variables) == 6


@pytest.mark.keras2
def test_two_devices_and_xla_train_as_one(pairs, candidates, two_devices):
    def trained(strategy, jit_compile):
        with strategy.scope():
            options = {**small.ALL, "frequencies": True, "metrics": [metrics.MRR()]}
            model = make(None, small.top_3(), jit_compile=jit_compile, **options)
        model.index(candidates)
        options = {"batch_size": 8, "verbose": 0}
        fitted = model.fit(
            *pairs, epochs=2, shuffle=False, validation_data=pairs, **options
        )
        evaluated = model.evaluate(*pairs, **options)
        of_model = [*weights(model), *map(np.array, model.non_trainable_weights)]
        return of_model, [
            fitted.history["loss"],
            fitted.history["val_mrr"],
            evaluated[1],
        ]

    one = tf.distribute.get_strategy()
    expected = trained(one, False)
    for found in (trained(two_devices, False), trained(one, True)):
        assert_all_close(found[0], expected[0], 1e-4, 1e-5)
        assert_all_close(found[1], expected[1], 1e-4)


def test_candidates_of_uneven_devices_are_gathered(two_devices):
    def of_device(context):
        number = context.replica_id_in_sync_group
        return tf.fill([(3, 1)[number], 2], 1.0 + number)

    parts = two_devices.experimental_distribute_values_from_function(of_device)

    def of_replica(x):
        exchange = Exchange()
        with tf.GradientTape() as tape:
            tape.watch(x)
            factor = 1.0 + tf.cast(exchange.first_row(x), tf.float32)  # 1 and 4
            value = factor * tf.reduce_sum(exchange.joined(x))
        return exchange.joined(x), exchange.first_row(x), tape.gradient(value, x)

    results = tf.function(lambda: two_devices.run(of_replica, args=(parts,)))()
    gathered, first, gradient = map(two_devices.experimental_local_results, results)
    for own in gathered:
        assert_array_equal(own[:, 0], [1, 1, 1, 2])
    assert [int(x) for x in first] == [0, 3]
    assert_all_close(gradient, [np.full([size, 2], 5.0) for size in (3, 1)], 0)


@pytest.mark.keras2
def test_mixed_precision(pairs, candidates, mixed_precision):
    model = make(
        candidates, **small.ALL, frequencies=True, num_mined=4, metrics=[metrics.MRR()]
    )
    history = model.fit(*pairs, validation_data=pairs, verbose=0).history
    assert all(np.isfinite(values).all() for values in history.values())
    values, _ = model.top_k(pairs[0], 3)
    assert values.dtype == tf.float32


def several(rng, ragged, candidates):
    """One to three candidates for each of 24 queries, padded, with more negatives."""
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

    first = slice(3)
    last = slice(3, 5)
    y = {name: of(name, first) for name in ("id", "features")}
    return y, {name: of(name, last) for name in ("id", "features")}, rows, kept


@pytest.mark.parametrize(
    "options, ragged",
    [
        ("plain", True),
        ("negatives", False),
        ("weights", False),
        ("weights", True),
        ("log-Q", True),
    ],
)
def test_several_candidates_of_a_query(options, ragged, rng, normal, candidates):
    """Values and gradients of the lists in the docstring, in float64, list by list."""
    kwargs = {} if options == "plain" else {"negatives": "others"}
    if options == "weights":
        kwargs["negative_weight"] = "weight"
    if options == "log-Q":
        kwargs["frequencies"] = True
    loss = losses.SoftmaxLoss()
    model = make(None, loss, rate=1.0, jit_compile=False, temperature=0.5, **kwargs)
    x = normal(24, FEATURES)
    y, others, rows, kept = several(rng, ragged, candidates)
    weights_of = rng.uniform(0.5, 2, 40)
    if options == "weights":
        of = weights_of[rows[:, 3:]].astype("float32")
        others["weight"] = tf.ragged.boolean_mask(of, kept[:, 3:]) if ragged else of
    if kwargs:
        y["others"] = others

    columns = [(q, c) for q, c in np.argwhere(kept) if c < 3]
    own = [[i for i, (q, _) in enumerate(columns) if q == query] for query in range(24)]
    num_own = len(columns)
    columns += [(q, c) for q, c in np.argwhere(kept) if c >= 3 and kwargs]
    of_columns = np.array([rows[q, c] for q, c in columns])
    counts = np.bincount(of_columns[:num_own], minlength=40)[of_columns[:num_own]]
    expected = np.ones([24, len(columns)])
    if options == "log-Q":
        expected[:, :num_own] = [
            (num_own - len(mine)) * counts / num_own for mine in own
        ]
    if options == "weights":
        expected[:, num_own:] = 1 / weights_of[of_columns[num_own:]]
    before = weights(model)
    variables = float64_variables(model)
    with tf.GradientTape() as tape:
        encode = Reference(model, None, None).encoded
        q = encode(x, variables[:2])
        c = encode(candidates["features"][of_columns], variables[2:])
        value = loss_of_lists(loss, q / 0.5, c, own, of_columns, expected)
    gradients = tape.gradient(value, variables)
    # Keras takes no arrays that are ragged.
    data = tf.data.Dataset.from_tensors((x, y))
    found = model.fit(data, verbose=0, shuffle=False).history["loss"][0]
    assert found == pytest.approx(float(value), rel=1e-5)
    changes = [old - new for old, new in zip(before, weights(model), strict=True)]
    assert_all_close(changes, gradients, 1e-4, 1e-5)


@pytest.mark.keras2
def test_one_candidate_in_the_form_of_several(pairs, candidates):
    """Positives and negatives `[batch, 1, ...]` are as padded `[batch, 2, ...]`."""
    others = {k: np.roll(v, 5, axis=0) for k, v in pairs[1].items()}

    def loss(width):
        def form(y):
            filler = {"id": -1, "features": 0}
            rows = {
                k: [v, *[np.full_like(v, filler[k])] * (width - 1)]
                for k, v in y.items()
            }
            return {k: np.stack(v, axis=1) for k, v in rows.items()} if width else y

        y = {**form(pairs[1]), "others": form(others)}
        return (
            make(negatives="others")
            .fit(pairs[0], y, batch_size=24, verbose=0)
            .history["loss"]
        )

    assert_allclose([loss(1), loss(2)], [loss(0)] * 2, rtol=1e-5)


def test_a_memory_keeps_positives_only(pairs, candidates):
    model = make(negatives="others", memory_size=60, jit_compile=False)
    y = {**pairs[1], "others": {k: v[12:36] for k, v in candidates.items()}}
    model.fit(pairs[0], y, batch_size=24, verbose=0)
    assert not np.isin(model._memory.ids, IDS[12:36]).any()
    with refused_in_graph("an id other than -1 for each query"):
        model.fit(pairs[0], {**y, "id": np.full(24, -1)}, batch_size=24, verbose=0)


@pytest.mark.parametrize("make_loss", [small.top_3, losses.RankmaxLoss])
def test_several_candidates_alone_in_a_batch(make_loss, normal, candidates):
    """Labels as wide as the scores are still columns; an evaluation has a loss."""
    model = make(candidates, make_loss(), metrics=[metrics.MRR()])
    y = {k: v[:6].reshape([2, 3, *v.shape[1:]]) for k, v in candidates.items()}
    x = normal(2, FEATURES)
    assert np.isfinite(model.fit(x, y, batch_size=1, verbose=0).history["loss"]).all()
    assert np.isfinite(model.evaluate(x, y, batch_size=1, verbose=0)).all()


def test_features_that_are_ragged(rng):
    """Words of a candidate, in a batch, in the index and drawn from it."""

    class Words(keras.layers.Embedding):
        def call(self, inputs, training=None):
            rows = super().call(inputs["words"].values)
            return tf.reduce_mean(inputs["words"].with_values(rows), axis=1)

    words = tf.RaggedTensor.from_row_lengths(rng.integers(0, 50, 60), [1, 2] * 20)
    model = models.TwoTower(
        towers()[0], Words(50, WIDTH), candidate_id="id", num_random=5
    )
    model.compile("sgd", loss=losses.SoftmaxLoss(), jit_compile=False)
    model.index({"id": IDS, "words": words})
    own = rng.integers(0, NUM_CANDIDATES, 24)
    pairs = (
        rng.normal(size=(24, FEATURES)),
        {"id": IDS[own], "words": tf.gather(words, own)},
    )
    data = tf.data.Dataset.from_tensor_slices(pairs).batch(8)
    assert np.isfinite(model.fit(data, verbose=0, shuffle=False).history["loss"]).all()
    assert model.top_k(pairs[0], 3)[1].shape == (24, 3)


def test_labels_of_several_ranks(pairs):
    """Keras relaxes shapes that change to an unknown rank."""
    model = small.by_ids()
    own = np.arange(24)
    model.compile("sgd", loss=model.loss, metrics=[metrics.HitRate(3)])
    loss, _ = model.evaluate(pairs[0], own, verbose=0)
    step = tf.function(
        lambda queries, ids: model.compute_loss(
            queries, ids, model(queries), training=True
        ),
        [tf.TensorSpec([None, FEATURES]), tf.TensorSpec(None, tf.int64)],
    )
    for labels in (own[:, None], np.stack([own, np.full(24, -1)], axis=1), own):
        assert model.evaluate(pairs[0], labels, verbose=0)[0] == pytest.approx(
            loss, rel=1e-5
        )
        found = step(tf.constant(pairs[0]), tf.constant(labels))
        assert float(found) == pytest.approx(loss, rel=1e-5)
