"""`calibrate`, `conformalize`: known temperatures, coverage simulated and on digits."""

import math

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal, assert_equal
from scipy import optimize, special
from sklearn import calibration as sk_calibration
from tensorflow import keras

import rank4class_tf as r4c
from rank4class_tf import calibration

from .refused import refused, warned
from .small_models import linear, sequential


def drawn(rng, number, n=8, temperature=1.0):
    """Scores, and classes drawn from their softmax at a temperature."""
    scores = 2 * rng.normal(size=(number, n))
    return scores.astype("float32"), (
        scores / temperature + rng.gumbel(size=(number, n))
    ).argmax(1)


def test_forms_of_labels_weights_and_batches(rng):
    scores, ids = drawn(rng, 300)

    def fitted(labels, *weights, scores=scores, batch_size=7):
        found = r4c.calibrate(None, (scores, labels, *weights), batch_size=batch_size)
        return pytest.approx(found.temperature, rel=1e-9)

    expected = fitted(ids, batch_size=300).expected
    several = np.concatenate([ids[:, None], np.full((300, 2), -1)], axis=1)
    assert (
        expected
        == fitted(several)
        == fitted(np.eye(8)[ids])
        == fitted(ids, np.full(300, 0.1))
    )
    # An example of weight 2 is two examples; one without a positive is none.
    weights = rng.integers(0, 3, 300)
    rows = np.repeat(np.arange(300), weights)
    twice = fitted(ids[rows], scores=scores[rows]).expected
    assert twice == fitted(ids, weights.astype("float32")) and twice != fitted(ids)
    kept = fitted(ids[weights > 0], scores=scores[weights > 0]).expected
    assert kept == fitted(np.where(weights > 0, ids, -1))
    # A masked class is no part of the softmax.
    labels = np.eye(8)[ids]
    labels[ids != 7, 7] = -1
    assert fitted(ids, scores=np.where(labels < 0, -np.inf, scores)).expected == fitted(
        labels
    )


@pytest.mark.parametrize("method", ["lac", "aps"])
def test_coverage_of_repeated_scores_under_xla(method):
    """Many right classes have the threshold's conformity, which XLA may round down."""
    for seed in (3, 9):
        rng = np.random.default_rng(seed)
        few = np.float32(rng.normal(size=(4, 5)) * 1.5)
        probabilities = np.exp(few) / np.exp(few).sum(axis=1, keepdims=True)
        rows = rng.integers(0, 4, 500)
        ids = np.array([rng.choice(5, p=probabilities[row]) for row in rows])
        sets = r4c.conformalize(
            tf.identity, (few[rows], ids), 0.8, method, batch_size=500
        )
        compiled = tf.function(sets.call, jit_compile=True)
        for scale in (
            1.0,
            1 + 1e-6,
        ):  # A batch of another size may round scores otherwise.
            found = compiled(few[rows] * np.float32(scale))
            assert found.numpy()[np.arange(500), ids].mean() >= 0.8


def test_sums_of_probabilities_do_not_exceed_1(normal):
    """Rounded, one in three of a thousand does, and a threshold above 1 is none."""
    scores = normal(200, 1000)
    assert r4c.layers.PredictionSets(0.2, "aps").conformity(scores).numpy().max() == 1
    sets = r4c.conformalize(
        lambda x: x, (scores, scores.argmax(axis=1)), 0.2, method="aps"
    )
    assert np.asarray(sets(scores)).any(axis=1).all()


@pytest.mark.parametrize("method", ["lac", "aps"])
@pytest.mark.parametrize("culprit", [np.nan, np.inf])
def test_sets_of_scores_without_probabilities_hold_all_classes(method, culprit):
    sets = r4c.layers.PredictionSets(0.3, method)
    found = sets(tf.constant([[culprit, 0.0, 1.0], [9.0, 0.0, 1.0]]))
    assert_array_equal(found, [[True] * 3, [True, False, False]])
    graph = tf.function(sets.call)(tf.constant([[culprit, 0.0, 1.0]]))
    assert_array_equal(graph, [[True] * 3])


def scipy_temperature(scores, targets, weights):
    """SciPy's minimum; a flat one is found to the root of the values' resolution."""

    def loss(exponent):
        return -weights @ (
            targets * special.log_softmax(scores * np.exp(exponent), axis=1)
        ).sum(1)

    return np.exp(-optimize.minimize_scalar(loss, bracket=(-1, 1), tol=1e-12).x)


def best_temperature(*arrays):
    return float(calibration._best_temperature(*map(tf.constant, arrays)))


def labelled(rng):
    scores, ids = drawn(rng, 200, 6, 2.0)
    return scores.astype(float), np.eye(6)[ids]


def test_temperature(jit_compile, rng):
    scores, labels = labelled(rng)
    given = scores, labels, rng.uniform(size=len(labels))
    fit = tf.function(
        calibration._best_temperature.python_function, jit_compile=jit_compile
    )
    actual = float(fit(*map(tf.constant, given)))
    assert_allclose(actual, scipy_temperature(*given), rtol=1e-6)


def test_temperature_with_several_positives_and_masked_items(rng):
    scores, _ = labelled(rng)
    relevance = (3 * rng.normal(size=scores.shape) + scores > 3).astype(float)
    relevance[:5] = 0  # Lists that do not count.
    mask = (rng.uniform(size=scores.shape) < 0.8) | (relevance > 0)
    scores[0] = np.nan
    actual = best_temperature(
        np.where(mask, scores, -np.inf), relevance, np.ones(len(scores))
    )
    counted = relevance.sum(1) > 0
    targets = relevance[counted] / relevance[counted].sum(1, keepdims=True)
    masked = np.where(mask, scores, -1e9)[counted]  # e**-1e9 is 0.
    expected = scipy_temperature(masked, targets, np.ones(counted.sum()))
    assert_allclose(actual, expected, rtol=1e-6)


def test_temperature_scales_with_the_scores(rng):
    scores, labels = labelled(rng)
    first = best_temperature(scores, labels, np.ones(200))
    for scale, shift in ((1e-12, 0.0), (1e15, 7.0)):
        moved = best_temperature((scores + shift) * scale, labels, np.ones(200))
        assert_allclose(moved, scale * first, rtol=1e-10)


def test_no_best_temperature():
    # Scores that are equal in each list say nothing; with a tie at the top, 0 is still
    # the best.
    cases = [
        ([[3.0, 1.0], [0.5, 0.0]], 0.0),
        ([[1.0, 1.0], [0.5, 0.5]], np.inf),
        ([[3.0, 1.0], [0.5, 0.5]], 0.0),
        ([[0.0, 1.0], [0.5, 0.0]], np.inf),
        ([[0.0, 1.0], [np.nan, 0.0]], np.nan),
    ]
    for scores, expected in cases:
        actual = best_temperature(np.array(scores), np.eye(2)[[0, 0]], np.ones(2))
        assert_equal(actual, expected)


@pytest.mark.parametrize(
    "right, beta, reason", [(1, 10, "at the top"), (-1, -10, "no higher scores")]
)
def test_end_of_the_range_where_no_temperature_is_the_best(right, beta, reason, rng):
    """As scikit-learn's, which searches log(1 / T) in [-10, 10], and stops if flat."""
    scores = 2 * rng.normal(size=(50, 3))
    ids = (right * scores).argmax(axis=1)
    with warned(f"50 examples: .*{reason}"):
        fitted = r4c.calibrate(None, (scores, ids))
    peer = sk_calibration._TemperatureScaling().fit(scores, ids)
    assert 5 < np.log(peer.beta_) / np.sign(beta) < 10
    assert fitted.temperature == pytest.approx(np.exp(-beta))
    expected = special.softmax(scores * peer.beta_, axis=1)
    assert_allclose(fitted(scores), expected, atol=1e-3)
    with refused("scores that are numbers. Received: NaN"):
        r4c.calibrate(None, (np.where(np.eye(50, 3), np.nan, scores), ids))


def test_right_classes_that_are_left_out_raise_unless_they_weigh_nothing(rng):
    scores, ids = drawn(rng, 200)
    fitted = r4c.calibrate(None, (scores, ids, np.arange(200) > 1)).temperature
    scores[[0, 1], ids[:2]] = -np.inf
    assert r4c.calibrate(None, (scores, ids, np.arange(200) > 1)).temperature == fitted
    with refused("scores above -inf.* -inf in 2 of 200 examples"):
        r4c.calibrate(None, (scores, ids))


@pytest.mark.parametrize("n, coverage", [(9, 0.07), (10, 0.5), (19, 0.7), (57, 0.9)])
def test_threshold_has_its_coverage(n, coverage, rng):
    """Each of N + 1 exchangeable values is equally often new: coverage by counting."""
    values = rng.permutation(n + 1) / 7.0
    threshold = calibration._conformal_threshold
    reached = sum(
        values[i] >= threshold(np.delete(values, i), coverage) for i in range(n + 1)
    )
    # coverage <= share < coverage + 1 / (N + 1), in exact decimals.
    excess = 100 * reached - round(coverage * 100) * (n + 1)
    assert 0 <= excess < 100


@pytest.mark.keras2
def test_probabilities_of_the_loss_that_are_better_are_noticed(rng):
    """Labels drawn from Sparsemax: a softmax gives every class a share."""
    scores = (2 * rng.normal(size=(2000, 8))).astype("float32")
    own = r4c.losses.SparsemaxLoss().probabilities
    ids = np.array(
        [rng.choice(8, p=row / row.sum()) for row in own(scores).numpy().astype(float)]
    )
    model = sequential((8,), keras.layers.Activation("linear"))
    model.compile("sgd", loss=r4c.losses.SparsemaxLoss())
    with warned("own probabilities are better") as caught:
        fitted = r4c.calibrate(model, (scores, ids))
    figures = [
        np.square(p(scores) - np.eye(8)[ids]).sum(1).mean() for p in (own, fitted)
    ]
    assert "{:.4f} and {:.4f}".format(*figures) in "; ".join(
        str(x.message) for x in caught
    )


def test_probabilities_are_refused(rng):
    scores, ids = drawn(rng, 300)
    softmax = special.softmax(scores, axis=1)
    for fit in (r4c.calibrate, r4c.conformalize):
        with refused(r"not probabilities.*`lambda x: tf.math.log"):
            fit(None, (softmax, ids))
        for model, features in ((None, softmax), (tf.nn.softmax, scores)):
            at_positions = features.reshape(100, 3, -1), ids.reshape(100, 3)
            with refused(r"not probabilities.*`lambda x: tf.math.log"):
                fit(model, at_positions)
    found = [
        r4c.calibrate(None, (x, ids)).temperature for x in (scores, np.log(softmax))
    ]
    assert_allclose(found[0], found[1], rtol=1e-5)
    # A layer that takes them as they are makes the same sets.
    sets = r4c.conformalize(tf.nn.softmax, (scores, ids), probabilities=tf.identity)
    assert sets.threshold == pytest.approx(
        r4c.conformalize(None, (scores, ids)).threshold
    )


@pytest.mark.keras2
def test_logits_are_adjusted_by_the_best_strength(rng, reloaded):
    prior = np.array([0.8, 0.15, 0.05])
    y = rng.choice(3, 900, p=prior)
    x = (np.eye(3)[y] + 0.7 * rng.normal(size=(900, 3))).astype("float32")
    keras.utils.set_random_seed(0)
    model = linear(3, 3)
    model.compile(keras.optimizers.Adam(0.05), r4c.losses.SoftmaxLoss())
    model.fit(x[:600], y[:600], epochs=5, verbose=0)
    validation = (x[600:], y[600:])
    scores = model.predict(x[600:], verbose=0)

    def macro_accuracy(scores):
        hits = scores.argmax(axis=1) == y[600:]
        return np.mean([hits[y[600:] == c].mean() for c in range(3)])

    strengths = [0.0, 0.5, 1.0, 1.5]
    values = [macro_accuracy(scores - t * np.log(prior)) for t in strengths]
    adjusted = r4c.adjust_logits(model, validation, prior, strengths=strengths)
    strength = strengths[int(np.argmax(values))]
    assert strength > 0 and max(values) > values[0]
    expected = scores - strength * np.log(prior)
    found = adjusted.predict(x[600:], verbose=0)
    assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    loaded = reloaded(adjusted)
    assert_array_equal(loaded.predict(x[600:], verbose=0), found)
    assert r4c.calibrate(loaded, validation).temperature > 0
    unlabelled = validation[0], np.full(300, -1)
    for changes, message in (
        (
            {"class_prior": prior[:2]},
            "`class_prior` must hold a finite number > 0 for each of the 3",
        ),
        ({"class_prior": [1.0, 1.0, math.inf]}, "`class_prior` must hold a finite"),
        ({"dataset": unlabelled}, "`dataset` must have a positive label"),
        ({"strengths": []}, "`strengths` must have at least one"),
        ({"metric": r4c.metrics.NDCG([1, 3])}, "`metric` must have one value"),
        ({"model": lambda x: x}, "`model` must be a Sequential or functional model"),
    ):
        with refused(message):
            r4c.adjust_logits(
                **{
                    "model": model,
                    "dataset": validation,
                    "class_prior": prior,
                    **changes,
                }
            )


@pytest.mark.keras2
def test_logits_are_adjusted_twice_and_by_an_iterator():
    model = sequential((2,), keras.layers.Rescaling(1.0))
    examples = np.array([[1.0, 0.0], [5.0, 0.0]], "float32"), np.array([1, 0])
    prior, strengths = [math.e, 1.0], [0.0, 2.0]
    expected = r4c.adjust_logits(model, examples, prior, strengths=strengths)
    of_iterator = r4c.adjust_logits(model, iter([examples]), prior, strengths=strengths)
    scores = examples[0] - [2.0, 0.0]
    for adjusted in (expected, of_iterator):
        assert_allclose(adjusted.predict(examples[0], verbose=0), scores, rtol=1e-6)
    # The shifts of two calls add up, each under a name of its own.
    twice = r4c.adjust_logits(expected, examples, prior, strengths=[2.0])
    assert_allclose(
        twice.predict(examples[0], verbose=0), scores - [2.0, 0.0], rtol=1e-6
    )
    names = [layer.name for layer in twice.layers]
    assert names[-2:] == ["class_prior", "class_prior_1"]


class LogRank(r4c.metrics.MeanRank):
    """A metric of one's own, of which lower is better."""

    def compute(self, best):
        return [tf.math.log(x) for x in super().compute(best)]


class MaybeNaN(LogRank):
    """It is no number where the best positive has another rank than 1."""

    def compute(self, best):
        return [tf.where(x > 0, x * np.nan, x) for x in super().compute(best)]


@pytest.mark.parametrize(
    "metric", ["mean_rank", "macro_mean_rank", LogRank(), MaybeNaN()]
)
def test_lower_may_be_better_for_the_metric_that_chooses_the_strength(metric):
    # With the prior e : 1, the strength t lowers the first score by t. The ranks of the
    # right class are 2 and 1 for t = 0; 1 and 1 for t = 2 and 4; 1 and 2 for t = 6 and
    # 8.
    model = sequential((2,), keras.layers.Rescaling(1.0))
    examples = np.array([[1.0, 0.0], [5.0, 0.0]]), [1, 0]
    prior, strengths = [math.e, 1.0], [8.0, 6.0, 4.0, 2.0, 0.0]
    adjusted = r4c.adjust_logits(model, examples, prior, metric, strengths)
    expected = examples[0] - [2.0, 0.0]
    assert_allclose(adjusted.predict(examples[0], verbose=0), expected, rtol=1e-6)


@pytest.mark.parametrize("shape", [(60,), (12, 5)], ids=["examples", "positions"])
def test_an_ignored_class_is_no_example(shape, rng, normal):
    ids = rng.integers(0, 4, shape)
    scores = normal(*shape, 4) + 2 * np.eye(4)[ids]
    is_kept = ids > 0
    kept = scores[is_kept], ids[is_kept]
    found = r4c.calibrate(None, (scores, ids), ignore_class=0).temperature
    assert_allclose(found, r4c.calibrate(None, kept).temperature, rtol=1e-6)
    assert found != pytest.approx(r4c.calibrate(None, (scores, ids)).temperature, 1e-3)
    sets = r4c.conformalize(None, (scores, ids), 0.8, ignore_class=0)
    assert sets.threshold == r4c.conformalize(None, kept, 0.8).threshold
    with refused("`ignore_class` must be None or an integer"):
        r4c.calibrate(None, kept, ignore_class=0.5)
