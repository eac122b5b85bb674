"""`calibrate` and `conformalize`: known temperatures, coverage by simulation and on digits."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import optimize, special
from tensorflow import keras

import rank4class_tf as r4c
from rank4class_tf import calibration


def drawn(rng, number, n=8, temperature=1.0):
    """Scores, and classes drawn from their softmax at a temperature."""
    scores = 2 * rng.normal(size=(number, n))
    gumbel = rng.gumbel(size=(number, n))
    return scores.astype("float32"), (scores / temperature + gumbel).argmax(1)


@pytest.fixture(scope="module")
def digits():
    """A model trained on 20 images of each digit with Rankmax, and the other images."""
    keras.utils.set_random_seed(0)
    splits = r4c.data.digits(seed=1)
    (x, y), validation, test = (
        tuple(np.concatenate(arrays) for arrays in zip(*split.as_numpy_iterator(), strict=True))
        for split in (splits.train, splits.validation, splits.test)
    )
    rows = np.concatenate([np.flatnonzero(y == k)[:20] for k in range(10)])
    model = keras.Sequential([keras.layers.Dense(32, "relu"), keras.layers.Dense(10)])
    model.compile(keras.optimizers.Adam(0.01), r4c.losses.RankmaxLoss())
    model.fit(x[rows], y[rows], epochs=30, verbose=0)
    return model, validation, test


@pytest.mark.parametrize("temperature", [0.2, 5.0])
def test_the_temperature_of_the_labels_is_found(temperature, rng):
    scores, ids = drawn(rng, 4000, temperature=temperature)
    assert r4c.calibrate(tf.identity, (scores, ids)).temperature == pytest.approx(
        temperature, rel=0.1
    )


def test_forms_of_labels_weights_and_batches(rng):
    scores, ids = drawn(rng, 300)
    expected = r4c.calibrate(tf.identity, (scores, ids)).temperature

    def fitted(labels, *weights):
        found = r4c.calibrate(tf.identity, (scores, labels, *weights), batch_size=7)
        return pytest.approx(found.temperature, rel=1e-9)

    several = np.concatenate([ids[:, np.newaxis], np.full((300, 2), -1)], axis=1)
    assert expected == fitted(several) == fitted(np.eye(8)[ids]) == fitted(ids, np.full(300, 0.1))
    # An example of weight 2 is two examples; one without a positive is none.
    weights = rng.integers(0, 3, 300)
    rows = np.repeat(np.arange(300), weights)
    twice = r4c.calibrate(tf.identity, (scores[rows], ids[rows])).temperature
    assert twice == fitted(ids, weights.astype("float32"))
    assert twice != fitted(ids)
    left_out = np.where(weights > 0, ids, -1)
    kept = r4c.calibrate(tf.identity, (scores[weights > 0], ids[weights > 0])).temperature
    assert kept == fitted(left_out)
    # A masked class is no part of the softmax.
    labels = np.eye(8)[ids]
    labels[ids != 7, 7] = -1
    masked = np.where(labels < 0, -np.inf, scores)
    assert r4c.calibrate(tf.identity, (masked, ids)).temperature == fitted(labels)


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([[2.0, 1.0], [1.0, 2.0]], "an example whose best class is a wrong one"),
        ([[1.0, 2.0], [2.0, 1.0]], "higher scores for the right classes"),
        ([[1.0, np.nan], [1.0, 2.0]], "scores that are numbers"),
    ],
)
def test_there_may_be_no_best_temperature(scores, message):
    with pytest.raises(ValueError, match=message):
        r4c.calibrate(tf.identity, (np.array(scores), [0, 1]))


def test_other_models_and_datasets_raise():
    model = r4c.models.ExtremeClassifier(keras.layers.Dense(3), 9, 3, num_sampled=4)
    for function in (r4c.calibrate, r4c.conformalize):
        with pytest.raises(ValueError, match="ExtremeClassifier gives encodings"):
            function(model, (np.ones([2, 3]), [0, 1]))
        with pytest.raises(ValueError, match="at least one batch"):
            function(tf.identity, [])


@pytest.mark.parametrize(("method", "coverage"), [("lac", 0.9), ("aps", 0.8)])
def test_coverage_by_simulation(method, coverage, rng):
    """The mean coverage over datasets of N examples is ceil((N + 1) c) / (N + 1)."""
    number, datasets, tested = 99, 25, 1000
    probabilities = r4c.layers.Probabilities(3.0)  # Not the true ones: it must not matter.
    shares = []
    for _ in range(datasets):
        sets = r4c.conformalize(
            tf.identity, drawn(rng, number), coverage, method, probabilities, batch_size=number
        )
        scores, ids = drawn(rng, tested)
        shares.append(sets(scores).numpy()[np.arange(tested), ids].mean())
    # The coverage that one dataset gives has a beta distribution, of that deviation.
    deviation = np.sqrt(coverage * (1 - coverage) * (1 / (number + 2) + 1 / tested) / datasets)
    assert abs(np.mean(shares) - coverage) < 4 * deviation


@pytest.mark.parametrize("method", ["lac", "aps"])
def test_coverage_of_repeated_scores_under_xla(method):
    """Many of the right classes have the conformity of the threshold, which XLA may round down."""
    for seed in (3, 9):
        rng = np.random.default_rng(seed)
        few = np.float32(rng.normal(size=(4, 5)) * 1.5)
        probabilities = np.exp(few) / np.exp(few).sum(axis=1, keepdims=True)
        rows = rng.integers(0, 4, 500)
        ids = np.array([rng.choice(5, p=probabilities[row]) for row in rows])
        sets = r4c.conformalize(tf.identity, (few[rows], ids), 0.8, method, batch_size=500)
        compiled = tf.function(sets.call, jit_compile=True)
        for scale in (1.0, 1 + 1e-6):  # A batch of another size may round scores otherwise.
            found = compiled(few[rows] * np.float32(scale))
            assert found.numpy()[np.arange(500), ids].mean() >= 0.8


def test_sets_are_small_where_the_model_is_sure(rng):
    """Of all rules with a coverage, thresholds on the true probabilities have the least size."""
    scores, ids = drawn(rng, 5000)
    p = special.softmax(scores.astype("float64"), axis=1)
    sizes = {}
    for method in ("lac", "aps"):
        mask = r4c.conformalize(tf.identity, (scores, ids), 0.9, method)(scores).numpy()
        sizes[method] = mask.sum(1).mean()
        assert abs(mask[np.arange(len(ids)), ids].mean() - 0.9) < 0.002
        # Sure of the best class, or not.
        assert mask.sum(1)[p.max(1) > 0.95].max() < mask.sum(1)[p.max(1) < 0.4].min() + 1
    # As many classes for all, with the same coverage.
    ranks = 1 + (scores > scores[np.arange(len(ids)), ids][:, np.newaxis]).sum(1)
    assert sizes["lac"] < sizes["aps"] < np.sort(ranks)[int(0.9 * len(ids))]


def test_sums_of_probabilities_do_not_exceed_1(rng):
    """Rounded, one in three of a thousand does, and a threshold above 1 is none."""
    scores = rng.normal(size=(200, 1000)).astype(np.float32)
    assert r4c.layers.PredictionSets(0.2, "aps").conformity(scores).numpy().max() == 1
    sets = r4c.conformalize(lambda x: x, (scores, scores.argmax(axis=1)), 0.2, method="aps")
    assert np.asarray(sets(scores)).any(axis=1).all()


@pytest.mark.parametrize("method", ["lac", "aps"])
@pytest.mark.parametrize("culprit", [np.nan, np.inf])
def test_sets_of_scores_without_probabilities_hold_all_classes(method, culprit):
    sets = r4c.layers.PredictionSets(0.3, method)
    found = sets(tf.constant([[culprit, 0.0, 1.0], [9.0, 0.0, 1.0]]))
    np.testing.assert_array_equal(found, [[True] * 3, [True, False, False]])
    graph = tf.function(sets.call)(tf.constant([[culprit, 0.0, 1.0]]))
    np.testing.assert_array_equal(graph, [[True] * 3])


@pytest.mark.parametrize("coverage", [0.0, 1.0, 2.0, float("nan")])
def test_coverage_is_checked(coverage):
    with pytest.raises(ValueError, match=r"`coverage` must be a number in \(0, 1\)"):
        r4c.conformalize(tf.identity, (np.eye(3), [0, 1, 2]), coverage)


def test_batches_of_other_widths_raise():
    dataset = [
        (np.eye(3, dtype=np.float32), [0, 1, 2]),
        (np.eye(4, dtype=np.float32), [0, 1, 2, 3]),
    ]
    with pytest.raises(ValueError, match="as many classes in each batch. Received: 3 and 4"):
        r4c.calibrate(lambda x: x, dataset)


@pytest.mark.parametrize(
    ("dataset", "arguments", "message"),
    [
        ((np.eye(3), [0, 1, 2]), {"coverage": 1.0}, r"`coverage` must be a number in \(0, 1\)"),
        ((np.eye(3), [0, 1, 2]), {}, "at least 19 examples for coverage=0.95. Received: 3"),
        ((np.eye(3), [0, 1, -1]), {"coverage": 0.5}, "one positive per example"),
        ((np.eye(3), [0, 1, 2], [1.0, 2.0, 1.0]), {"coverage": 0.5}, "must have no weights"),
        ((np.full([3, 3], np.nan), [0, 1, 2]), {"coverage": 0.5}, "Received: NaN"),
        ((np.eye(3), [0, 1, 2]), {"method": "raps"}, "`method` must be one of"),
    ],
)
def test_arguments_of_the_sets_are_checked(dataset, arguments, message):
    with pytest.raises(ValueError, match=message):
        r4c.conformalize(tf.identity, dataset, **arguments)


def test_digits(digits):
    model, validation, (features, ids) = digits
    halves = [tuple(array[i::2] for array in validation) for i in range(2)]
    probabilities = r4c.calibrate(model, halves[0])
    errors = []
    for layer in (r4c.layers.Probabilities(), probabilities):
        metric = r4c.metrics.ExpectedCalibrationError(probabilities=layer)
        metric.update_state(ids, model.predict(features, verbose=0))
        errors.append(float(metric.result()))
    assert errors[1] < 0.1 < 0.2 < errors[0]
    sets = r4c.conformalize(model, halves[1], 0.95, probabilities=probabilities)
    mask = keras.Sequential([model, sets]).predict(features, verbose=0)
    # 180 examples give the threshold and 360 test it.
    deviation = np.sqrt(0.95 * 0.05 * (1 / 180 + 1 / 360))
    assert abs(mask[np.arange(len(ids)), ids].mean() - 0.95) < 3 * deviation
    assert 1 <= mask.sum(1).min() and mask.sum(1).mean() < 4


def test_negative_weights_raise():
    dataset = np.eye(2, dtype=np.float32), np.array([0, 0]), np.array([1.0, -1.0])
    with pytest.raises(ValueError, match="`sample_weight` must be >= 0. Received: .*-1.0"):
        r4c.calibrate(lambda x: x, dataset)
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="must be >= 0"):
        r4c.evaluate(lambda x: x, dataset, ["mrr"])


@pytest.mark.parametrize("batch", [([-1, -1],), ([0, 1], [0.0, 0.0])], ids=["labels", "weights"])
def test_a_dataset_that_says_nothing_is_named(batch):
    scores = np.float32([[1, 0], [1, 0]])
    with pytest.raises(ValueError, match="`dataset` must have an example with a label"):
        r4c.calibrate(lambda x: x, (scores, *map(np.array, batch)))


def labelled(rng, n=6, batch=200, temperature=2.0):
    """Scores, and classes drawn from their softmax."""
    scores = 3 * rng.normal(size=(batch, n))
    shares = special.softmax(scores / temperature, axis=1)
    return scores, np.array([rng.choice(n, p=row) for row in shares])


def likelihood(scores, targets, weights, exponent):
    return -(weights @ (targets * special.log_softmax(scores * np.exp(exponent), axis=1)).sum(1))


def scipy_temperature(scores, targets, weights):
    """SciPy's minimum; a flat one is found to the root of the resolution of the values."""
    found = optimize.minimize_scalar(
        lambda exponent: likelihood(scores, targets, weights, exponent), bracket=(-1, 1), tol=1e-12
    )
    return np.exp(-found.x)


def best_temperature(*arrays):
    return float(calibration._best_temperature(*map(tf.constant, arrays)))


@pytest.mark.parametrize("jit_compile", [False, True])
def test_temperature(jit_compile, rng):
    scores, ids = labelled(rng)
    weights = rng.uniform(size=len(ids))
    fit = tf.function(calibration._best_temperature.python_function, jit_compile=jit_compile)
    actual = float(fit(*map(tf.constant, (scores, np.eye(6)[ids], weights))))
    assert actual == pytest.approx(scipy_temperature(scores, np.eye(6)[ids], weights), rel=1e-6)
    # The slope of the likelihood at the minimum, by central differences.
    near = [likelihood(scores, np.eye(6)[ids], weights, -np.log(actual) + h) for h in (-1e-4, 1e-4)]
    assert abs(near[1] - near[0]) < 1e-9 * near[0]


def test_temperature_with_several_positives_and_masked_items(rng):
    scores, _ = labelled(rng)
    relevance = (3 * rng.normal(size=scores.shape) + scores > 3).astype(float)
    relevance[:5] = 0  # Lists that do not count.
    mask = (rng.uniform(size=scores.shape) < 0.8) | (relevance > 0)
    scores[0] = np.nan
    actual = best_temperature(np.where(mask, scores, -np.inf), relevance, np.ones(len(scores)))
    counted = relevance.sum(1) > 0
    targets = relevance[counted] / relevance[counted].sum(1, keepdims=True)
    masked = np.where(mask, scores, -1e9)[counted]  # e**-1e9 is 0.
    expected = scipy_temperature(masked, targets, np.ones(counted.sum()))
    assert actual == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("scale", "shift"), [(1e-12, 0.0), (1e15, 7.0)])
def test_temperature_scales_with_the_scores(scale, shift, rng):
    scores, ids = labelled(rng)
    labels = np.eye(6)[ids], np.ones(len(ids))
    first = best_temperature(scores, *labels)
    moved = best_temperature((scores + shift) * scale, *labels)
    assert moved == pytest.approx(scale * first, rel=1e-10)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([[3.0, 1.0], [0.5, 0.0]], 0.0),
        ([[1.0, 1.0], [0.5, 0.5]], 0.0),
        ([[0.0, 1.0], [0.5, 0.0]], np.inf),
        ([[0.0, 1.0], [np.nan, 0.0]], np.nan),
    ],
)
def test_no_best_temperature(scores, expected):
    actual = best_temperature(np.array(scores), np.eye(2)[[0, 0]], np.ones(2))
    np.testing.assert_equal(actual, expected)


@pytest.mark.parametrize("n", [9, 10, 19, 57])
@pytest.mark.parametrize("coverage", [0.07, 0.5, 0.7, 0.9])
def test_threshold_has_its_coverage(n, coverage, rng):
    """Each of N + 1 exchangeable values is the new one equally often: coverage by counting."""
    values = rng.permutation(n + 1) / 7.0
    thresholds = [
        calibration._conformal_threshold(np.delete(values, i), coverage) for i in range(n + 1)
    ]
    reached = values >= thresholds
    # coverage <= share < coverage + 1 / (N + 1), in exact decimals.
    assert round(coverage * 100) * (n + 1) <= 100 * sum(reached)
    assert 100 * sum(reached) < round(coverage * 100) * (n + 1) + 100


def test_too_few_examples_for_a_threshold():
    assert calibration._conformal_threshold(np.ones(19), 0.95) == 1
    message = "at least 19 examples for coverage=0.95. Received: 18"
    with pytest.raises(ValueError, match=message):
        calibration._conformal_threshold(np.ones(18), 0.95)


@pytest.mark.keras2
def test_probabilities_of_the_loss_that_are_better_are_noticed(rng):
    """Labels drawn from Sparsemax: a softmax gives every class a share."""
    scores = (2 * rng.normal(size=(2000, 8))).astype("float32")
    own = r4c.losses.SparsemaxLoss().probabilities
    shares = own(scores).numpy().astype(float)
    ids = np.array([rng.choice(8, p=row / row.sum()) for row in shares])
    model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Activation("linear")])
    model.compile("sgd", loss=r4c.losses.SparsemaxLoss())
    with pytest.warns(UserWarning, match="own probabilities are better") as caught:
        fitted = r4c.calibrate(model, (scores, ids))
    right = np.eye(8)[ids]
    figures = [np.square(p(scores) - right).sum(1).mean() for p in (own, fitted)]
    message = "; ".join(str(x.message) for x in caught)
    assert "{:.4f} and {:.4f}".format(*figures) in message


def test_repr_shows_the_numbers():
    layer = r4c.layers.Probabilities(2.5)
    assert repr(layer) == "Probabilities(temperature=2.5, regularizer='entropy')"
    sets = r4c.layers.PredictionSets(0.25, "aps", layer)
    expected = f"PredictionSets(threshold=0.25, method='aps', probabilities={layer!r})"
    assert repr(sets) == expected


@pytest.mark.keras2
def test_callbacks_see_a_list_of_cutoffs(rng):
    x, y = rng.normal(size=(64, 4)).astype("float32"), rng.integers(0, 6, 64)
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(6)])
    model.compile("sgd", loss=r4c.losses.SoftmaxLoss(), metrics=[r4c.metrics.NDCG([1, 5])])
    stop = keras.callbacks.EarlyStopping("val_ndcg_at_5", mode="max", patience=1)
    model.fit(x, y, validation_data=(x, y), epochs=2, verbose=0, callbacks=[stop])
    assert stop.best is not None and 0 < stop.best <= 1


def test_probabilities_are_refused(rng):
    scores, ids = drawn(rng, 300)
    softmax = special.softmax(scores, axis=1)
    for fit in (r4c.calibrate, r4c.conformalize):
        for function in ("softmax", "sigmoid"):
            with pytest.raises(ValueError, match=rf"(?s)scores, not.* of a {function}"):
                fit(getattr(keras.activations, function), (scores, ids))
        with pytest.raises(ValueError, match=r"not probabilities.*`lambda x: tf.math.log"):
            fit(None, (softmax, ids))
    found = [r4c.calibrate(None, (x, ids)).temperature for x in (scores, np.log(softmax))]
    assert found[0] == pytest.approx(found[1], rel=1e-5)
    # A layer that takes them as they are makes the same sets.
    sets = r4c.conformalize(tf.nn.softmax, (scores, ids), probabilities=tf.identity)
    assert sets.threshold == pytest.approx(r4c.conformalize(None, (scores, ids)).threshold)
