"""What holds for every loss.

See `test_lists.py` for labels, `test_definitions.py` for formulas.
"""

import functools

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from tensorflow import keras

import rank4class_tf as r4c

from .. import derivatives
from ..losses import oracles
from ..refused import refused
from ..rounding import assert_all_close
from ..small_models import linear
from . import rows
from .tables import FORMULAS, KINDS, LOSSES

pytestmark = pytest.mark.parametrize("case", LOSSES)
of_the_base = pytest.mark.base(KINDS)

BATCH, N = 4, 7


def with_gradient(loss, y_true, y_pred):
    """The loss and its gradient, as tensors: usable in a tf.function."""
    return derivatives.value_and_gradient(functools.partial(loss, y_true), y_pred)


def fresh(loss):
    """The loss as it was when new: a random one draws the same noise again."""
    return type(loss).from_config(loss.get_config())


def value_and_gradient(loss, y_true, y_pred):
    return [
        x.numpy()
        for x in with_gradient(fresh(loss), y_true, tf.convert_to_tensor(y_pred))
    ]


def assert_same(actual, expected, rtol=1e-5, atol=1e-6):
    assert_all_close(actual, expected, rtol, atol)


def test_masked_is_removed(case, scores, relevance):
    if case.random:
        pytest.skip("the noise depends on the number of items, present or not")
    keep = [0, 1, 3, 5, 6]
    loss = case.make(reduction="none")
    removed = np.zeros((BATCH, N), "float32")
    value, removed[:, keep] = value_and_gradient(
        loss, relevance[:, keep], scores[:, keep]
    )
    labels = relevance.copy()
    masked_scores = scores.copy()
    labels[:, [2, 4]] = -1
    masked_scores[:, [2, 4]] = [
        [0.5, 1e10],
        [-1e10, np.inf],
        [-np.inf, -1e10],
        [np.nan, 0.5],
    ]
    assert_same(value_and_gradient(loss, labels, masked_scores), (value, removed))


@pytest.mark.base(FORMULAS)
@pytest.mark.parametrize("mode", ["eager", pytest.param("graph", marks=of_the_base)])
def test_an_offset_costs_no_digits(case, mode, rng, relevance):
    """Of scores exact at an offset where a margin of 1 is lost."""
    if not case.shift_invariant or case.random:
        pytest.skip("only shift-invariant losses without noise are the same")
    scores = tf.constant(4.0 * rng.integers(-3, 4, size=(BATCH, N)), tf.float32)
    wide = np.concatenate([relevance] * 4, axis=1), tf.concat([scores] * 4, axis=1)
    for labels, x in [(relevance, scores), (relevance.argmax(axis=1), scores), wide]:
        step = functools.partial(with_gradient, case.make(reduction="none"))
        expected = step(labels, x)
        compute = step if mode == "eager" else tf.function(step)
        assert_same(compute(tf.constant(labels), x + 2.0**25), expected, rtol=1e-5)


def test_a_far_score_costs_no_digits(case, rng, relevance):
    """Positives and negatives left behind by a high one count as if it were near."""
    if case.random or not case.shift_invariant:
        pytest.skip(
            "noise depends on the dtype, and other losses are of the far score itself"
        )
    scores = rng.integers(-3, 4, size=(BATCH, N)).astype(np.float64)
    for copies in (1, 16):
        labels = np.concatenate([relevance] * copies, axis=1)
        x = np.concatenate([scores] * copies, axis=1)
        # One more positive, which beats all others.
        labels[:, 0] = 4
        x[:, 0] = case.far
        loss = case.make(reduction="none")
        expected = value_and_gradient(loss, labels, x)
        actual = value_and_gradient(loss, labels, x.astype("float32"))
        assert_same(actual, expected, rtol=1e-4, atol=1e-4)


def test_extreme_scores_stay_finite(case, relevance):
    x = case.extreme
    rows = [[x] + [0] * 6, [-x] + [0] * 6, [x] * N, [x, -x, x, 0, 1, -x, -1]]
    scores = np.repeat(np.array(rows, "float32"), BATCH, axis=0)
    labels = np.tile(relevance, (len(rows), 1))
    value, gradient = value_and_gradient(case.make(reduction="none"), labels, scores)
    assert np.isfinite(value).all() and np.isfinite(gradient).all()


def test_lists_without_a_positive(case, scores):
    """They have the definition's loss where the row says so, else 0, for any scores."""
    labels = np.zeros((BATCH, N), "float32")
    labels[1] = -1
    labels[2, :3] = -1
    labels[3, 1] = 1
    loss = case.make(reduction="none")
    value, gradient = value_and_gradient(loss, labels, scores)
    assert value[1] == 0 and (gradient[1] == 0).all()  # It has no item.
    assert value[3] != 0 and (gradient[3] != 0).any()
    for row, there in ((0, slice(None)), (2, slice(3, None))):
        own_scores = scores[row, there].astype(np.float64)
        own_labels = labels[row, there]
        expected = 0.0
        slopes = np.zeros(N)
        if case.counts_empty:
            definition = functools.partial(case.definition, labels=own_labels)
            expected = definition(own_scores)
            slopes[there] = oracles.gradient(definition, own_scores)
            assert expected != 0
        assert_allclose(value[row], expected, rtol=1e-5)
        assert_allclose(gradient[row], slopes, rtol=1e-5, atol=1e-6)

    scores[0] = np.nan
    value, gradient = value_and_gradient(loss, labels, scores)
    assert (
        np.isnan(value[0])
        if case.counts_empty
        else (value[0] == 0 and not gradient[0].any())
    )
    # Ids of -1 alone are the same list as relevance of zeros.
    ids = np.array([[-1, -1], [-1, -1], [-1, -1], [1, -1]])
    labels[:3] = 0
    assert_same([fresh(loss)(ids, scores)], [fresh(loss)(labels, scores)])


@of_the_base
def test_ragged_batch_without_positives(case, scores):
    """It has the loss of relevance of zeros, which most losses leave out."""
    labels = tf.RaggedTensor.from_row_lengths(tf.zeros([0], tf.int32), [0] * BATCH)
    zeros = np.zeros((BATCH, N))
    expected = value_and_gradient(case.make(reduction="none"), zeros, scores)
    assert case.counts_empty or not np.any(expected[0])
    for compute in (with_gradient, tf.function(with_gradient)):
        found = compute(case.make(reduction="none"), labels, tf.constant(scores))
        assert_same(found, expected)


@pytest.mark.parametrize("mode", ["eager", pytest.param("graph", marks=of_the_base)])
def test_nan_stays_nan_in_its_list(case, mode, scores, relevance):
    scores[1, 4] = scores[2, 6] = np.nan
    # One of many positives has the NaN score.
    wide = np.concatenate([relevance, np.ones((BATCH, 3 * N), "float32")], axis=1)
    forms = [
        (np.array([2, 0, 6, 3]), scores),
        (relevance, scores),
        (wide, np.tile(scores, 4)),
    ]
    for labels, x in forms:
        loss = case.make(reduction="none")
        expected = fresh(loss)(labels, np.nan_to_num(x)).numpy()
        compute = fresh(loss) if mode == "eager" else tf.function(fresh(loss))
        value = compute(labels, x).numpy()
        assert_array_equal(np.isnan(value), [False, True, True, False])
        assert_allclose(value[[0, 3]], expected[[0, 3]], rtol=1e-5)


@of_the_base
def test_max_positives_is_checked(case, scores, as_for_xla):
    labels = np.zeros((BATCH, N), "float32")
    labels[:, 0] = 1
    labels[1] = 1
    loss = case.make(reduction="none", max_positives=2)
    with refused("max_positives=2"):
        loss(labels, scores)
    for score in (0.5, np.nan):
        scores[1, 3] = score
        step = tf.function(functools.partial(with_gradient, fresh(loss)))
        value, gradient = step(tf.constant(labels), tf.constant(scores))
        assert_array_equal(np.isnan(value), [False, True, False, False])
        assert_array_equal(gradient[1], np.zeros(N))


@pytest.mark.keras2
@of_the_base
def test_class_weight_multiplies(case, scores, relevance):
    """Those of positives by relevance, not of positions; list weights count too."""
    loss = case.make(reduction="none")
    weights = np.arange(0.0, N)
    of_lists = np.arange(4.0)
    weights[1] = 1
    given = weights, weights.tolist(), {i: x for i, x in enumerate(weights) if i != 1}
    ids = np.array([[2, 0], [1, -1], [-1, 6], [3, 5]])
    grades = relevance.copy()
    relevance[1, 1] = -1
    of_ids = np.where(ids >= 0, weights[ids], 0).sum(axis=1) / (ids >= 0).sum(axis=1)
    first = ids[:, 0] % N
    ragged = tf.ragged.boolean_mask(ids, ids >= 0)
    forms = [
        (first, weights[first]),
        (first[:, None], weights[first]),
        (ids, of_ids),
        (ragged, of_ids),
        (relevance, grades @ weights / grades.sum(axis=1)),
    ]
    for labels, of_classes in forms:
        expected = [of_classes * of_lists * fresh(loss)(labels, scores)]
        for form in given:
            weighted = type(loss).from_config(
                {**loss.get_config(), "class_weight": form}
            )
            assert_same([weighted(labels, scores, of_lists)], expected)


@pytest.mark.slow
@of_the_base
def test_long_lists_under_xla(case, normal):
    """Relevance labels of few and many positives among more items than a block holds.

    As in Keras, for batches of any size. Eager mode is compared with the definitions.
    """
    n = 1500
    loss = case.make(reduction="none", label_format="relevance")
    x = tf.constant(normal(2, n))
    step = functools.partial(with_gradient, fresh(loss))
    xla = tf.function(step, [tf.TensorSpec([None, n])] * 2, jit_compile=True)
    # A random loss counts its calls.
    for count in (20,) if case.random else (4, 5, 20):
        relevance = np.zeros((2, n), "float32")
        relevance[1, -7:] = -1
        for row, positives in enumerate((count // 2, count)):
            relevance[row, row : 70 * positives : 70] = 1 + np.arange(positives) % 3
        labels = tf.constant(relevance)
        expected = value_and_gradient(loss, labels, x)
        assert_same(xla(labels, x), expected, rtol=1e-4)
        bounded = case.make(
            reduction="none", label_format="relevance", max_positives=count + 1
        )
        assert_same(value_and_gradient(bounded, labels, x), expected, rtol=1e-4)


@pytest.mark.keras2
@of_the_base
def test_weights(case, scores, relevance):
    plain = case.make(reduction="none")(relevance, scores).numpy()
    weights = np.array([0.5, 2.0, 0.0, 1.0], "float32")

    def loss(*args):
        return case.make(reduction="none")(*args)

    for form in (weights, weights[:, None], weights.astype(np.float64)):
        assert_allclose(loss(relevance, scores, form), plain * weights, rtol=1e-6)
    assert_allclose(loss(relevance, scores, 3.0), plain * 3, rtol=1e-6)
    if case.make().item_weights:  # Others are in `losses/test_item_weights.py`.
        per_item = np.repeat(weights[:, None], N, axis=1)
        assert_allclose(loss(relevance, scores, per_item), plain * weights, rtol=1e-5)
    for bad in (np.ones((BATCH, N, 1)), np.ones((BATCH, 3))):
        with pytest.raises(ValueError):
            loss(relevance, scores, bad)


@pytest.mark.keras2
@of_the_base
def test_reductions(case, scores, relevance):
    values = case.make(reduction="none")(relevance, scores).numpy()
    assert_allclose(case.make(reduction=None)(relevance, scores), values)
    mean = values.mean()
    for name, expected in (
        ("sum", values.sum()),
        ("sum_over_batch_size", mean),
        ("auto", mean),
    ):
        found = case.make(reduction=name)(relevance, scores)
        assert_allclose(found, expected, rtol=1e-6)
    with refused("`reduction` must be one of"):
        case.make(reduction="avg")


@pytest.mark.keras2
@of_the_base
def test_empty_batch_is_finite(case):
    # As the last shard of a strategy may have it, with shapes that are known.
    graph = tf.function(case.make(label_format="ids"))
    assert graph(tf.zeros([0, 100], tf.int32), tf.zeros([0, 200])) == 0
    loss = case.make()
    for labels in (
        np.zeros([0], np.int32),
        np.zeros([0, 2], np.int32),
        np.zeros([0, N]),
    ):
        value, gradient = value_and_gradient(loss, labels, np.zeros([0, N], "float32"))
        assert value == 0 and gradient.shape == (0, N)


@pytest.mark.keras2
def test_round_trip_of_config(case, scores, relevance):
    loss = case.make(
        reduction="sum", name="mine", label_format="relevance", max_positives=7
    )
    config = loss.get_config()
    assert config["reduction"] == "sum" and config["name"] == "mine"
    for copy in rows.copies(loss, r4c.losses.get):
        assert copy.get_config() == config
        assert_same([copy(relevance, scores)], [fresh(loss)(relevance, scores)])


def train(loss, features, labels, **compile_args):
    """One step of plain gradient descent; returns the weights after it."""
    keras.utils.set_random_seed(1)
    model = linear(3, N, optimizer=keras.optimizers.SGD(0.1), loss=loss, **compile_args)
    model.fit(
        features, labels, batch_size=len(features), epochs=1, verbose=0, shuffle=False
    )
    return model.get_weights()


@pytest.mark.slow
@pytest.mark.keras2
@of_the_base
def test_trains_in_keras_under_xla(case, rng, normal):
    features = normal(6, 3)
    labels = rng.integers(0, N, 6)
    compiled = train(case.make(), features, labels, jit_compile=True)
    if case.random:  # XLA draws other numbers.
        assert all(np.isfinite(w).all() for w in compiled)
    else:
        assert_same(compiled, train(case.make(), features, labels, run_eagerly=True))


@of_the_base
def test_trains_in_mixed_precision(case, rng, normal, mixed_precision):
    weights = train(case.make(), normal(6, 3), rng.integers(0, N, 6))
    assert all(np.isfinite(w).all() for w in weights)
