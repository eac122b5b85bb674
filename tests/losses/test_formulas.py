"""What is special to the formula of a loss: limits, draws, ties at a margin, files."""

import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from tensorflow import keras

from rank4class_tf import losses, ops

from .. import derivatives
from ..contract.test_definitions import assert_by_definition
from ..derivatives import gradient_of, with_gradients
from ..refused import refused, warned
from ..small_models import linear
from . import oracles


def value_of(loss, scores, class_ids, relevance=None, mask=None):
    """The formula without the work of the base around it, in the scores' dtype."""
    lists = ops.as_lists(scores, class_ids, relevance, mask)
    return loss.compute(dataclasses.replace(lists, seed=loss._draw_seed()))


def value_and_gradient_of_call(loss, labels, scores):
    """What `call` gives; `__call__` would make float32 of float64."""
    return derivatives.value_and_gradient(lambda x: loss.call(labels, x), scores)


def value_and_gradient(loss, labels, scores):
    return [x.numpy() for x in value_and_gradient_of_call(loss, labels, scores)]


# Softmax: priors, temperatures, orders, probabilities


def test_a_temperature_has_a_gradient_with_masked_items():
    temperature = tf.Variable(0.05)
    loss = losses.SoftmaxLoss(temperature)
    masked = [[True, True, False]]
    scores = [[1.0, 0.9, 3.0]]
    value, slope = with_gradients(
        lambda: value_of(loss, scores, [[0]], mask=masked), temperature
    )
    # log(1 + e^(-0.1 / T)), whose slope in T is 0.1 / T^2 times the other item's
    # probability.
    other = 1 / (1 + np.exp(2.0))
    assert_allclose(value, [-np.log(1 - other)], rtol=1e-5)
    assert_allclose(slope, 40 * other, rtol=1e-5)


def test_logit_adjustment_by_definition(jit_compile, rng):
    """Of items that are masked the prior does not count."""
    scores = rng.normal(size=(6, 5))
    labels = rng.integers(-1, 3, (6, 5)).astype(np.float64)
    prior = np.array([0.5, 0.2, 0.2, 0.05, 0.05])
    loss = losses.SoftmaxLoss(
        2.0, 0.0, prior, prior_strength=0.5, positive_reduction="mean"
    )
    compute = tf.function(loss.call, jit_compile=jit_compile)
    found = derivatives.value_and_gradient(lambda x: compute(labels, x), scores)

    def definition(s, y, prior):
        return oracles.softmax(s / 2 + 0.5 * np.log(prior), y) / max(y.sum(), 1)

    given = (labels, scores, np.tile(prior, (6, 1)))
    assert_by_definition(
        map(np.array, found), definition, *given, atol=1e-14, of_slopes=1e-8
    )


def test_class_prior_counts_labels():
    padded = [[0, 2], [2, -1]]
    ragged = tf.ragged.constant([[0, 2], [2]])
    dataset = tf.data.Dataset.from_tensor_slices((np.zeros(3), [0, 2, 2])).batch(2)
    for labels in (padded, ragged, dataset):
        assert_allclose(
            losses.class_prior(labels, num_classes=3), [2 / 6, 1 / 6, 3 / 6]
        )
    with refused("`pseudo_count` must be > 0.* no labels of class 1"):
        losses.class_prior(padded, 3, pseudo_count=0.0)
    assert losses.class_prior(counts=[6, 2], pseudo_count=0.0) == [0.75, 0.25]
    assert losses.class_prior(counts=[2, 1, 3]) == losses.class_prior(
        [0, 0, 1, 2, 2, 2], 3
    )


@pytest.mark.parametrize(
    "labels, expected",
    [
        ([[0, 1], [1, 0], [1, 0], [1, 0]], [3, 1]),  # one-hot
        ([[0, 2, 1], [2, 0, 0]], [1, 1, 1]),  # graded relevance
        ([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]], [2, 1]),
        ([[True, False], [False, True], [False, True]], [1, 2]),
        ([[0, -1], [0, 1], [0, -1]], [3, 1]),  # class ids, some of which pad a row
        ([[0, 1], [1, 2]], [1, 2, 1]),  # class ids, fewer than classes
        ([[0, -1, -1], [1, 2, -1], [2, -1, -1]], [1, 1, 2]),
    ],
)
def test_class_prior_reads_labels_as_losses_do(labels, expected):
    counted = losses.class_prior(labels, len(expected), pseudo_count=0.0)
    assert counted == pytest.approx(np.divide(expected, np.sum(expected)))
    dataset = tf.data.Dataset.from_tensors((np.zeros(len(labels)), labels))
    assert losses.class_prior(dataset, len(expected), pseudo_count=0.0) == counted


@pytest.mark.parametrize("labels", [[[0, 0, 1]], [[0.0, 1.0, 0.0]], [["a"]]])
def test_class_prior_of_what_is_no_label(labels):
    with refused("`labels` must hold class ids, not a label for each"):
        losses.class_prior(labels, 4)


@pytest.mark.parametrize("loss", [losses.ListMLELoss(), losses.UniqueSoftmaxLoss()])
def test_labels_of_all_items_under_xla(loss, normal):
    """So many that no tensor of all pairs fits into memory."""
    scores = normal(64, 10_000)
    relevance = np.zeros_like(scores)
    relevance[:, 7] = 1
    ids = np.tile(np.arange(10_000, dtype=np.int32), (64, 1))
    found = tf.function(functools.partial(value_of, loss), jit_compile=True)(
        scores, ids, relevance
    )
    expected = tf.nn.sparse_softmax_cross_entropy_with_logits(np.full(64, 7), scores)
    assert_allclose(found, expected, rtol=1e-5)


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
    assert_allclose(p.sum(1), 1, rtol=1e-6)
    assert np.ptp(p) > 0.2
    slope = np.zeros_like(scores)
    for label in range(5):
        gradient = gradient_of(lambda x, ids=[label] * 8: loss.call(ids, x), scores)
        slope += p[:, label : label + 1] * gradient
    assert_allclose(slope, 0, atol=2e-6)


def test_other_losses_have_no_probabilities():
    for loss in (
        losses.RankmaxLoss(),
        losses.PairwiseLogisticLoss(),
        losses.SpearmanLoss(),
        losses.FenchelYoungLoss(k=2),
        losses.FenchelYoungLoss(alpha="adaptive"),
        losses.MeanSquaredLoss(positive_weight=15.0),
        losses.SoftmaxLoss(class_prior=[0.5, 0.5]),
        losses.GeneralizedCrossEntropyLoss(1.0),
    ):
        assert getattr(loss, "probabilities", None) is None, loss.name


@pytest.mark.keras2
def test_a_changing_temperature_is_saved_with_the_model(rng, reloaded):
    temperature = tf.Variable(4.0)
    loss = losses.SoftmaxLoss(temperature, label_format="ids")
    assert (
        losses.get(keras.utils.serialize_keras_object(loss)).get_config()
        == loss.get_config()
    )
    assert loss.probabilities.temperature == 4
    model = linear(3, 5, optimizer=keras.optimizers.SGD(0.1), loss=loss)
    temperature.assign(2.0)
    loaded = reloaded(model).loss
    assert loaded.temperature == loss.probabilities.temperature == 2.0
    scores = rng.normal(size=(4, 5))
    ids = rng.integers(0, 5, 4)
    assert_allclose(loaded(ids, scores), losses.SoftmaxLoss(2.0)(ids, scores))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["softmax", "unique_softmax", "list_mle", "pairwise_logistic"]
    + ["approx_ndcg", "approx_mrr", "gumbel_approx_ndcg"],
)
def test_every_temperature_may_change(name, jit_compile, rng, normal):
    """A graph reads the variable in each step, with few and with many positives."""
    scores = tf.constant(normal(3, 300))
    labels = (rng.uniform(size=(3, 300)) < 0.3).astype("float32")
    variable = tf.Variable(2.0)
    loss = functools.partial(
        losses.get, f"{name}_loss", **{"seed": 1} if "gumbel" in name else {}
    )
    changing = loss(temperature=variable, max_positives=300)
    function = tf.function(changing, jit_compile=jit_compile)
    for number in (2.0, 0.5):
        variable.assign(number)
        expected = loss(temperature=number)(labels, scores)
        assert_allclose(function(labels, scores), expected, rtol=1e-5)
    assert type(changing).from_config(changing.get_config()).get_config()


# Rankmax and Fenchel-Young losses: all items selected, regularizers of one's own


@pytest.mark.parametrize("z", [[1.0, -3.0, 0.5], [1.0, -np.inf, 0.5, -np.inf]])
def test_lists_of_which_all_items_are_selected_have_no_loss(z):
    value, gradient = value_and_gradient(losses.RankmaxLoss(3), [[0, 2]], np.array([z]))
    assert_array_equal(value, [0.0])
    assert_array_equal(gradient, np.zeros((1, len(z))))


@keras.utils.register_keras_serializable("tests")
class Steep(ops.Regularizer):
    """h(x) = x² / 2a."""

    def __init__(self, a):
        self.a = a
        super().__init__(lambda u: a * u, lambda x: x**2 / (2 * a))


def test_a_regularizer_of_a_user_is_saved_with_its_arguments():
    loss = losses.FenchelYoungLoss(Steep(3.0))
    again = losses.FenchelYoungLoss.from_config(loss.get_config())
    labels, scores = [0], [[1.0, 1.2, -0.5]]
    assert float(again(labels, scores)) == float(loss(labels, scores))
    assert again.regularizer.a == 3


@pytest.mark.parametrize(
    "value",
    [
        lambda z, h: value_of(losses.FenchelYoungLoss(h), z, [[2]])[0],
        lambda z, h: tf.reduce_sum(z * ops.simplex_projection(z, h)),
    ],
    ids=["loss", "projection"],
)
def test_gradient_by_what_a_regularizer_reads(value, rng):
    z = rng.normal(size=(1, 4))
    factor = tf.constant(0.8, tf.float64)

    def of_factor(factor):
        return value(z, Steep(factor))

    expected = (of_factor(factor + 1e-6) - of_factor(factor - 1e-6)) / 2e-6
    assert_allclose(gradient_of(of_factor, factor), expected, rtol=1e-6)


class OwnConjugate(ops.Regularizer):
    def __init__(self):
        super().__init__(lambda u: u, lambda x: x * x / 2)

    def conjugate(self, scores, threshold):
        u = scores - threshold
        return (tf.nn.relu(u) ** 2 - tf.nn.relu(u - 1) ** 2) / 2


def test_a_conjugate_of_ones_own(rng):
    z = tf.constant(rng.normal(size=(3, 5)))
    both = (
        losses.FenchelYoungLoss(regularizer)
        for regularizer in (OwnConjugate(), "euclidean")
    )
    ours, expected = (
        functools.partial(value_of, x, class_ids=[[0], [1], [4]]) for x in both
    )
    assert_allclose(ours(z), expected(z))
    assert_allclose(gradient_of(ours, z), gradient_of(expected, z))


def test_a_regularizer_of_ones_own_in_graphs(jit_compile):
    """It reads the mask within a loop."""
    half = ops.Regularizer(lambda u: 2 * u, lambda x: x**2 / 4)
    scores = tf.constant([[1.0, 0.9, -np.inf, 0.0]])
    project = tf.function(
        lambda s: ops.simplex_projection(s, half), jit_compile=jit_compile
    )
    assert_allclose(project(scores), [[0.6, 0.4, 0, 0]], atol=1e-6)
    loss = losses.FenchelYoungLoss(half, label_format="relevance")
    labels = tf.constant([[1.0, 0, -1, 0]])
    compiled = tf.function(loss, jit_compile=jit_compile)
    assert_allclose(compiled(labels, scores), loss(labels, scores), rtol=1e-6)


# Pairs: many positives, and far scores


@pytest.mark.parametrize("grades", [2, 4])
def test_many_positives_and_ties_on_the_margin(grades, rng):
    n = 200
    labels = rng.integers(0, grades, (3, n)).astype(np.float64)
    labels[0, 50:] = 0
    scores = np.round(rng.normal(size=(3, n)) * 4) / 4  # Many ties, on the margin too.
    value, gradient = value_and_gradient(losses.PairwiseHingeLoss(), labels, scores)
    expected = [
        oracles.pairwise_hinge(*row) for row in zip(scores, labels, strict=True)
    ]
    assert_allclose(value, expected, rtol=1e-12)
    # At its kink a hinge has the slope of its flat side, as relu has.
    is_pair = labels[:, :, None] > labels[:, None, :]
    active = (scores[:, :, None] - scores[:, None, :] < 1) & is_pair
    assert_array_equal(gradient, active.sum(axis=1) - active.sum(axis=2))


def test_hinges_are_exact_far_from_zero(jit_compile):
    """Scores around 1e4 in float32: sums over far items must not blur near ones."""
    n = 300
    scores = (np.random.default_rng(1).normal(size=(1, n)) * 1000 + 1e4).astype(
        np.float32
    )
    labels = np.zeros((1, n), "float32")
    labels[0, np.argsort(-scores[0])[:100]] = 1
    loss = tf.function(losses.PairwiseHingeLoss(margin=10.0), jit_compile=jit_compile)
    expected = oracles.pairwise_hinge(
        scores[0].astype(np.float64), labels[0], margin=10.0
    )
    assert_allclose(loss(labels, scores), expected, rtol=1e-6)


def test_power_of_gbce():
    # 256 of 3,415 other items; t = 0 is binary cross-entropy, t = 1 the share of the
    # negatives.
    assert losses.gbce_power(256, 3416) == pytest.approx(0.25 + 0.75 * 256 / 3415)
    assert (losses.gbce_power(1, 3416, 0.0), losses.gbce_power(2, 9, 1.0)) == (1, 0.25)
    with refused(r"`num_negatives` must be less than num_classes=9.* 9\."):
        losses.gbce_power(9, 9)
    with refused(r"`t` must be a number in \[0, 1\]. Received: t=2"):
        losses.gbce_power(2, 9, 2)


def test_sigmoids_fit_the_probabilities_of_what_is_sampled():
    """With t = 1 the loss over 2 of 8 negatives fits the same sigmoid as over all."""
    p = 0.3
    power = losses.gbce_power(2, 9, 1.0)
    loss = losses.SigmoidCrossEntropyLoss(power, label_format="ids")
    score = np.log(p / (1 - p))
    # The item is right with the probability p, else a negative of which 2 of 8 are
    # drawn.
    slopes = [
        gradient_of(lambda s, y=y: loss.call([y], s), [[score, 0.0]])[0, 0]
        for y in (0, 1)
    ]
    assert_allclose(p * slopes[0] + (1 - p) * 2 / 8 * slopes[1], 0, atol=1e-7)


@pytest.mark.parametrize(
    "make", [losses.PairwiseLogisticLoss, losses.PairwiseHingeLoss]
)
def test_smoothed_labels_of_far_scores_are_finite(make, normal):
    """The way of many positives that sorts is not that of smoothed labels."""
    labels = np.zeros((2, 150), "float32")
    labels[:, :90] = 1
    scores = 1e15 * normal(2, 150)
    value, gradient = value_and_gradient(make(label_smoothing=0.2), labels, scores)
    assert np.isfinite(value).all() and np.isfinite(gradient).all()


def test_adaptive_alpha_of_scores_whose_squares_overflow(in_mode):
    """R = 2.25 x of v = x / 4 and 2 x; the loss is (v^2 + R^2) / 2 R.

    Its slopes are v / R + c.
    """
    loss = losses.FenchelYoungLoss(alpha="adaptive")
    x = 1e25
    step = functools.partial(value_and_gradient_of_call, loss, [0])
    value, gradient = in_mode(step)(tf.constant([[0.0, x / 4, 2 * x, -x]]))
    shares = np.array([1 / 4, 2]) / 2.25
    assert_allclose(value, [x * (1 / 16 + 4 + 2.25**2) / (2 * 2.25)], rtol=1e-6)
    slopes = shares + (1 - (1 / 16 + 4) / 2.25**2) / 2
    assert_allclose(gradient, [[-slopes.sum(), *slopes, 0]], rtol=1e-6)


# Noisy labels; forward correction has no row in the tables, as its matrix names the
# classes

N, IDS = 5, [0, 3, 2, 4]


@pytest.fixture
def transition(rng):
    matrix = rng.uniform(size=(N, N)) * (rng.uniform(size=(N, N)) < 0.5) + np.eye(N)
    return matrix / matrix.sum(axis=1, keepdims=True)


def test_values_and_gradients(rng, transition):
    """Also of masked classes, which have no probability."""
    scores = rng.normal(size=(4, N)) * 3
    loss = losses.ForwardCorrectionLoss(transition)
    loss = losses.get(keras.utils.serialize_keras_object(loss))
    one_hot = np.eye(N)[IDS]
    classes = np.tile(np.arange(N), (4, 1))
    graded = one_hot + rng.integers(0, 3, size=(4, N))
    masked = one_hot.copy()
    masked[0, 2] = masked[1, [0, 4]] = -1

    def definition(s, y, classes):
        seen = np.exp(s - np.logaddexp.reduce(s)) @ transition[classes]
        return -(y * np.log(seen[classes])).sum()

    exact = {"rtol": 1e-11, "atol": 0, "of_slopes": 1e-8}
    for labels, relevance in ((IDS, one_hot), (graded, graded), (masked, masked)):
        found = value_and_gradient(loss, labels, scores)
        assert_by_definition(found, definition, relevance, scores, classes, **exact)


def test_labels_that_cannot_be_are_finite():
    loss = losses.ForwardCorrectionLoss([[1.0, 0.0], [0.5, 0.5]])
    # The only class that could carry label 1 is masked, but for the label itself.
    value, gradient = value_and_gradient(loss, [1], np.array([[0.0, -1e15]], "float32"))
    assert np.isfinite(value) and np.isfinite(gradient).all()
    # No remaining class carries label 0: its own class does not, and the other class is
    # gone.
    loss = losses.ForwardCorrectionLoss([[0.0, 1.0], [1.0, 0.0]])
    value, gradient = value_and_gradient(
        loss, np.array([[1.0, -1.0]]), np.array([[0.5, 2.0]])
    )
    assert_allclose(value, [1e30], rtol=1e-6)
    assert_array_equal(gradient, [[0.0, 0.0]])


def test_the_estimate_comes_near_the_truth(rng):
    transition = np.array([[0.7, 0.3, 0.0], [0.0, 0.8, 0.2], [0.1, 0.0, 0.9]])
    classes = rng.integers(0, 3, 20_000)
    labels = np.array([rng.choice(3, p=transition[c]) for c in classes])
    # What a model knows of the labels if it knows the class nearly always.
    probabilities = np.where(rng.random((20_000, 1)) < 0.02, 1 / 3, transition[classes])
    estimate = losses.estimate_transition(probabilities, labels)
    assert_allclose(estimate, transition, atol=0.03)
    losses.ForwardCorrectionLoss(estimate)


def test_classes_without_examples_and_rounded_means_keep_their_labels():
    estimate = losses.estimate_transition([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0]], [0, 1])
    assert_array_equal(estimate, np.eye(3))
    assert (0.1 + 0.1 + 0.1) / 3 > 0.1
    estimate = losses.estimate_transition([[0.9, 0.1]] * 3, [1, 1, 1])
    assert_array_equal(estimate, np.eye(2))


def test_a_label_without_any_probability_has_no_gradient():
    loss = losses.GeneralizedCrossEntropyLoss(0.5)
    value, gradient = value_and_gradient(loss, [0], np.array([[0.0, 1e15]], "float32"))
    assert value == 2 and not gradient.any()  # (1 - 0) / 0.5


# Ordered weighted losses, stochastic negative mining, WARP: names, files, samples


def loss_of(scores, class_ids, relevance=None, **kwargs):
    return value_of(losses.OrderedWeightedLoss(**kwargs), scores, class_ids, relevance)


@keras.utils.register_keras_serializable(package="test_ordered_weighted_loss")
def cubic_hinge(margins):
    return tf.nn.relu(1 - margins) ** 3


@pytest.fixture
def lists(rng):
    return rng.normal(size=(6, 5)), rng.integers(0, 5, 6)


def test_the_support_vector_machines_of_the_papers(lists):
    scores, ids = lists
    loss = losses.OrderedWeightedLoss
    of_y = np.take_along_axis(scores, ids[:, None], axis=1)
    others = np.array([np.delete(row, y) for row, y in zip(scores, ids, strict=True)])
    hinges = np.sort(np.maximum(0, 1 - (of_y - others)), axis=1)
    signs = 2 * np.eye(5)[ids] - 1
    for made, expected in (
        (loss.crammer_singer(reduction="none"), hinges[:, -1]),
        (loss.weston_watkins(reduction="none"), hinges.sum(axis=1)),
        (loss.lee(reduction="none"), np.maximum(0, 1 - signs * scores).sum(axis=1)),
        (loss.top_k_svm(3, reduction="none"), hinges[:, -3:].mean(axis=1)),
    ):
        assert_allclose(made(ids, scores), expected, rtol=1e-6)


def test_a_phi_of_ones_own_is_saved_with_a_model(lists, reloaded):
    (scores, ids) = lists
    weights = np.array([1.0, 0.5])
    model = linear(
        5, 5, loss=losses.OrderedWeightedLoss("binary", cubic_hinge, weights)
    )
    loss = reloaded(model).loss
    assert loss.phi == cubic_hinge
    assert loss.rank_weights == ops.get_rank_weights(weights)
    assert_allclose(loss(ids, scores), model.loss(ids, scores), rtol=1e-12)


def mined(scores, class_ids, relevance=None, weights=(1.0,), **kwargs):
    loss = losses.StochasticNegativeMiningLoss(rank_weights=weights, seed=1, **kwargs)
    return value_of(loss, scores, class_ids, relevance)


@pytest.mark.parametrize("kind", ["pairwise", "binary"])
def test_lists_with_few_negatives_take_all(rng, kind):
    scores = rng.normal(size=(2, 8))
    scores[0, 4:] = -np.inf
    lists = scores, np.array([[1, -1], [0, 2]]), np.array([[2.0, 0], [1, 3]])
    weights = ops.TopKWeights(3)
    drawn = mined(*lists, num_sampled=6, kind=kind, weights=weights)
    assert_allclose(drawn, loss_of(*lists, kind=kind, rank_weights=weights), rtol=1e-12)


@pytest.mark.parametrize("num_sampled", [4, 100])
def test_as_many_as_there_are_means_no_sampling_and_says_so(rng, num_sampled):
    scores = rng.normal(size=(3, 5))
    class_ids = [[0], [1], [4]]
    loss = losses.StochasticNegativeMiningLoss(num_sampled, seed=1)
    loss = functools.partial(value_of, loss, class_ids=class_ids)
    for function in (loss, tf.function(loss)):
        with warned(rf"num_sampled={num_sampled} is at least the number"):
            drawn = function(tf.constant(scores))
        assert_allclose(drawn, loss_of(scores, class_ids), rtol=1e-14)


def test_warp_of_sampled_lists_without_negatives():
    scores = np.array([[1.0, -np.inf, -np.inf], [0.0, 0.5, 0.5]])
    loss = losses.WARPLoss([1.0, 0.5], num_trials=5, seed=1)
    # In the second list any draw violates: L(2 / 1) * (0.5 + 1).
    assert_allclose(value_of(loss, scores, [[0], [0]]), [0.0, 1.5 * 1.5], rtol=1e-12)


@pytest.mark.parametrize("num_trials", [None, 3])
def test_noise_before_a_loss_that_is_not_always_random(num_trials):
    class NoisyWARP(losses.GumbelNoise, losses.WARPLoss):
        pass

    loss = NoisyWARP(num_samples=64, num_trials=num_trials, seed=1)
    # The only negative is 1000 above: L(1) * (1 + 1000 + G_1 - G_0), whatever is drawn.
    # The difference has the mean 0 and the variance pi^2 / 3; four standard errors of
    # 64.
    error = 4 * np.pi / np.sqrt(3 * 64)
    assert float(loss([0], [[0.0, 1000.0]])) == pytest.approx(1001, abs=error)
    assert float(loss([0], [[1000.0, 0.0]])) == 0
