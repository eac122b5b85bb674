"""What is special to the softmax losses: priors, temperatures, orders, probabilities."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import losses

from ..derivatives import gradient_of, value_and_gradient
from . import oracles
from .formula import value_of


def test_a_temperature_has_a_gradient_with_masked_items():
    temperature = tf.Variable(0.05)
    loss, masked = losses.SoftmaxLoss(temperature), [[True, True, False]]
    with tf.GradientTape() as tape:
        value = value_of(loss, [[1.0, 0.9, 3.0]], [[0]], mask=masked)
    # log(1 + e^(-0.1 / T)), whose slope in T is 0.1 / T^2 times the other item's probability.
    other = 1 / (1 + np.exp(2.0))
    np.testing.assert_allclose(value, [-np.log(1 - other)], rtol=1e-5)
    np.testing.assert_allclose(tape.gradient(value, temperature), 40 * other, rtol=1e-5)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_logit_adjustment_by_definition(jit_compile, rng):
    """Of items that are masked the prior does not count."""
    scores, labels = rng.normal(size=(6, 5)), rng.integers(-1, 3, (6, 5)).astype(np.float64)
    prior = np.array([0.5, 0.2, 0.2, 0.05, 0.05])
    loss = losses.SoftmaxLoss(2.0, 0.0, prior, prior_strength=0.5, positive_reduction="mean")
    compute = tf.function(loss.call, jit_compile=jit_compile)
    value, gradient = value_and_gradient(lambda x: compute(labels, x), scores)
    gradient = gradient.numpy()
    for row, y in enumerate(labels):
        there = y >= 0
        adjusted = scores[row, there] / 2 + 0.5 * np.log(prior[there])
        positives, total = y[there], max(y[there].sum(), 1)
        expected = oracles.softmax(adjusted, positives) / total
        np.testing.assert_allclose(value[row], expected, rtol=1e-10, atol=1e-14)
        slopes = oracles.gradient(lambda s, y=positives: oracles.softmax(s, y), adjusted)
        np.testing.assert_allclose(gradient[row, there], slopes / 2 / total, rtol=1e-5, atol=1e-8)


def test_class_prior_counts_labels():
    padded, ragged = [[0, 2], [2, -1]], tf.ragged.constant([[0, 2], [2]])
    dataset = tf.data.Dataset.from_tensor_slices((np.zeros(3), [0, 2, 2])).batch(2)
    for labels in (padded, ragged, dataset):
        prior = losses.class_prior(labels, num_classes=3)
        np.testing.assert_allclose(prior, [2 / 6, 1 / 6, 3 / 6])
    with pytest.raises(ValueError, match="`pseudo_count` must be > 0.* no labels of class 1"):
        losses.class_prior(padded, 3, pseudo_count=0.0)
    for wrong in ([0, 3], [-2], [0.5], np.eye(3), [True, False]):
        with pytest.raises(ValueError, match="`labels` must hold class ids"):
            losses.class_prior(wrong, 3)
    assert losses.class_prior(counts=[6, 2], pseudo_count=0.0) == [0.75, 0.25]
    assert losses.class_prior(counts=[2, 1, 3]) == losses.class_prior([0, 0, 1, 2, 2, 2], 3)
    for arguments in ({"counts": []}, {"counts": [1, -1]}, {"counts": [1], "labels": [0]}, {}):
        with pytest.raises(ValueError, match="`counts` must be"):
            losses.class_prior(**arguments)


@pytest.mark.parametrize("loss", [losses.ListMLELoss(), losses.UniqueSoftmaxLoss()])
def test_labels_of_all_items_under_xla(loss, rng):
    """So many that no tensor of all pairs fits into memory."""
    scores = rng.normal(size=(64, 10_000)).astype(np.float32)
    relevance = np.zeros_like(scores)
    relevance[:, 7] = 1
    ids = np.tile(np.arange(10_000, dtype=np.int32), (64, 1))
    actual = tf.function(functools.partial(value_of, loss), jit_compile=True)(
        scores, ids, relevance
    )
    expected = tf.nn.sparse_softmax_cross_entropy_with_logits(np.full(64, 7), scores)
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


FITTED = {
    "softmax": losses.SoftmaxLoss(temperature=0.5),
    "variable": losses.SoftmaxLoss(tf.Variable(2.0)),
    "unique": losses.UniqueSoftmaxLoss(temperature=1.5),
    "list_mle": losses.ListMLELoss(temperature=0.7),
    "sparsemax": losses.SparsemaxLoss(),
    "fenchel_young": losses.FenchelYoungLoss("euclidean", alpha=0.4),
    "entropy": losses.FenchelYoungLoss("entropy", alpha=3.0),
    "squared": losses.MeanSquaredLoss(positive_target=4.0),
    "generalized": losses.GeneralizedCrossEntropyLoss(0.3),
    "transition": losses.ForwardCorrectionLoss(np.eye(5)),
}


@pytest.mark.parametrize("name", FITTED)
def test_the_loss_fits_its_probabilities(name, rng):
    """Labels drawn from the probabilities of some scores leave these where they are."""
    loss = FITTED[name]
    scores = rng.normal(size=(8, 5))
    if name == "squared":
        # Scores that are probabilities; others it draws to these.
        scores = 4 * rng.dirichlet(np.ones(5), size=8)
    p = loss.probabilities(scores.astype("float32")).numpy()
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-6)
    assert np.ptp(p) > 0.2
    slope = np.zeros_like(scores)
    for label in range(5):
        gradient = gradient_of(lambda x, ids=[label] * 8: loss.call(ids, x), scores)
        slope += p[:, label : label + 1] * gradient
    np.testing.assert_allclose(slope, 0, atol=2e-6)


def test_other_losses_have_no_probabilities():
    for loss in (
        *(losses.RankmaxLoss(), losses.PairwiseLogisticLoss(), losses.SpearmanLoss()),
        *(losses.FenchelYoungLoss(k=2), losses.FenchelYoungLoss(alpha="adaptive")),
        losses.MeanSquaredLoss(positive_weight=15.0),
        losses.SoftmaxLoss(class_prior=[0.5, 0.5]),
        losses.GeneralizedCrossEntropyLoss(1.0),
    ):
        assert getattr(loss, "probabilities", None) is None, loss.name


@pytest.mark.keras2
def test_a_changing_temperature_is_saved_with_the_model(rng, tmp_path):
    temperature = tf.Variable(4.0)
    loss = losses.SoftmaxLoss(temperature, label_format="ids")
    copy = losses.get(keras.utils.serialize_keras_object(loss))
    assert copy.get_config() == loss.get_config()
    assert loss.probabilities.temperature == 4
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(5)])
    model.compile(keras.optimizers.SGD(0.1), loss=loss)
    temperature.assign(2.0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras").loss
    assert loaded.temperature == loss.probabilities.temperature == 2.0
    scores, ids = rng.normal(size=(4, 5)), rng.integers(0, 5, 4)
    np.testing.assert_allclose(loaded(ids, scores), losses.SoftmaxLoss(2.0)(ids, scores))


@pytest.mark.parametrize(
    "loss",
    [
        losses.SoftmaxLoss,
        losses.PairwiseLogisticLoss,
        losses.ApproxNDCGLoss,
        losses.ApproxMRRLoss,
        lambda **kw: losses.GumbelApproxNDCGLoss(seed=1, **kw),
    ],
)
@pytest.mark.parametrize("jit_compile", [False, True])
def test_every_temperature_may_change(loss, jit_compile, rng):
    """A graph reads the variable in each step, with few and with many positives."""
    scores = tf.constant(rng.normal(size=(3, 300)), tf.float32)
    labels = (rng.uniform(size=(3, 300)) < 0.3).astype(np.float32)
    variable = tf.Variable(2.0)
    changing = loss(temperature=variable, max_positives=300)
    function = tf.function(changing, jit_compile=jit_compile)
    for number in (2.0, 0.5):
        variable.assign(number)
        expected = loss(temperature=number)(labels, scores)
        np.testing.assert_allclose(function(labels, scores), expected, rtol=1e-5)
    assert type(changing).from_config(changing.get_config()).get_config()
