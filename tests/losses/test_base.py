"""What the base of the losses offers to those who write one, and sums of losses."""

import functools
import sys

import numpy as np
import pytest
import scipy.special
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from tensorflow import keras

from rank4class_tf import layers, losses, metrics, models, ops, optimizers
from rank4class_tf._lists.dense import dense_lists

from ..contract import tables
from ..derivatives import gradient_of, value_and_gradient, with_gradients
from ..refused import assert_refused, refused
from ..rounding import assert_all_close
from ..small_models import linear


class DenseRanks(losses.RankingLoss):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense = keras.layers.Dense(1)
        self.dense.build((None, 1))

    def compute(self, lists):
        scores = tf.squeeze(self.dense(lists.scores[..., tf.newaxis]), axis=-1)
        shifted = tf.where(lists.mask, scores, 0.0)
        return tf.reduce_sum(shifted, axis=-1) + losses.SoftmaxLoss().compute(lists)


def test_a_loss_may_own_variables(in_mode, rng, normal):
    """With labels of more than few items, where gradients are made with values."""
    loss = DenseRanks()
    labels = (rng.random((3, 30)) < 0.3).astype("float32")
    labels[:, 3] = -1
    scores = tf.constant(normal(3, 30))

    def step(scores):
        return with_gradients(lambda: loss(labels, scores), scores, loss.dense.kernel)

    value, of_scores, of_kernel = in_mode(step)(scores)
    assert np.isfinite(value) and np.isfinite(of_scores).all()
    assert_array_equal(of_scores[:, 3], 0.0)
    valid = labels >= 0
    assert_allclose(of_kernel[0, 0], (scores * valid).numpy().sum() / 3, rtol=1e-4)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32])
@pytest.mark.parametrize("make", [losses.ApproxNDCGLoss, losses.ApproxMRRLoss])
def test_losses_of_metrics_are_finite_for_any_finite_scores(make, dtype):
    top = float(dtype.max)
    rows = [
        [top, -top, 0, 1, -1],
        [-top] * 5,
        [top] * 5,
        [top, 0, 0, 0, 0],
        [0, top, top, -top, 1],
    ]
    scores = tf.cast(tf.constant(rows, tf.float32), dtype)
    for temperature in (1e-4, 0.1, 10.0):
        loss = make(temperature=temperature, reduction="none")
        value, gradient = value_and_gradient(functools.partial(loss, [0] * 5), scores)
        assert (
            np.isfinite(value).all()
            and np.isfinite(tf.cast(gradient, tf.float32)).all()
        )
        assert ((-1 <= value) & (value < 0)).numpy().all()


@pytest.mark.parametrize("make", [losses.ApproxNDCGLoss, losses.ApproxMRRLoss])
def test_a_ranker_takes_the_place_of_the_sigmoid(make, rng, normal):
    """One that is the sigmoid gives the same, with many positives too."""

    def sigmoid(scores, mask):
        pairs = tf.sigmoid((scores[:, tf.newaxis] - scores[..., tf.newaxis]) / 0.1)
        pairs = tf.where(mask[:, tf.newaxis], pairs, 0)
        return tf.where(mask, 0.5 + tf.reduce_sum(pairs, axis=-1), 0)

    labels = rng.integers(-1, 3, size=(4, 50)).astype("float32")
    scores = normal(4, 50)
    both = (
        functools.partial(make(ranker=ranker), labels) for ranker in (None, sigmoid)
    )
    assert_all_close(*(value_and_gradient(loss, scores) for loss in both), 1e-4, 1e-6)


def test_relevance_above_what_a_gain_can_hold(normal):
    """2**y - 1 is infinite from 128 on in float32; ratios of gains are not."""
    scores = normal(1, 9)
    labels = np.array([[130.0, 131, 0, 0, 129, 0, 0, 0, 0]], "float32")
    small = np.where(labels > 0, labels - 60, 0).astype("float32")
    weights = losses.NDCGLambdaWeights()
    pairwise = losses.PairwiseLogisticLoss, losses.PairwiseHingeLoss
    for loss in (
        losses.ApproxNDCGLoss(),
        *(x(lambda_weights=weights) for x in pairwise),
    ):
        assert_allclose(loss(labels, scores), loss(small, scores), rtol=1e-5)
    loss = losses.UniqueSoftmaxLoss()
    assert_refused(loss, "`relevance` must have a gain", labels, scores)


def test_lists_whose_positives_are_no_items_say_so():
    negatives = ops.as_lists([[1.0, 2, 3]], [[0, 2, -1]]).negatives()
    for use in (
        lambda: negatives.item_relevance(),
        lambda: negatives.at_positives(tf.ones([1, 3])),
        lambda: negatives.only(negatives.top_k(2)[1]).shifted(tf.ones([1, 2])),
    ):
        with refused("must be among the items"):
            use()


@pytest.mark.parametrize("class_ids", [[[1, 2, -1], [-1, -1, -1]], None])
def test_negatives_of_lists_without_some_items(class_ids):
    """In the second list nothing is positive, so that item 0 stays."""
    scores = tf.constant([[1.0, 2, 3, 4], [5, 6, 7, 8]])
    relevance = tf.constant([[0.0, 1, 1, 0], [0, 0, 0, 0]])
    if class_ids is None:
        lists = dense_lists(scores, None, relevance)
    else:
        lists = ops.as_lists(scores, class_ids)
    assert_array_equal(lists.negatives().mask, relevance == 0)

    fourth = tf.constant([[3], [3]])
    for rest in (lists.without(fourth).negatives(), lists.negatives().without(fourth)):
        assert_array_equal(rest.mask, [[1, 0, 0, 0], [1, 1, 1, 0]])
    chosen = lists.negatives().only(tf.constant([[0, 1], [0, 1]]))
    assert_array_equal(chosen.mask, [[1, 0], [1, 1]])
    one = lists.only(fourth)
    for chosen in (one, one.without(tf.constant([[0], [0]]))):
        with refused("`negatives` must come before `only`"):
            chosen.negatives()


def test_a_formula_of_another_shape_raises():
    class Column(losses.RankingLoss):
        def compute(self, lists):
            return lists.positive_scores

    with refused("`compute` must return the losses"):
        Column()([1, 0], [[1.0, 2.0], [0.0, 1.0]])


def _second(function, labels, scores):
    return function(scores)


def _of_itself(interaction, labels, scores):
    return interaction([scores, scores])


def _step_of(function):
    @tf.function
    def step(y_true, y_pred, function=function):
        return function(y_true, y_pred)

    return step


@pytest.mark.keras2
@pytest.mark.parametrize(
    "make",
    [
        losses.SoftmaxLoss,
        lambda: losses.SpearmanLoss(layers.SigmoidSorter(0.1)),
        lambda: metrics.TopKAccuracy(1).update_state,
        lambda: functools.partial(
            _second, layers.Probabilities(regularizer="euclidean")
        ),
        lambda: functools.partial(
            _second, lambda scores: ops.rankmax(scores, tf.constant([[1]]))
        ),
    ],
    ids=["loss", "loss of a sorter", "metric", "layer", "ops"],
)
def test_a_graph_takes_the_code_as_it_is_written(make):
    """AutoGraph writes what it converts into files of its own."""
    step = _step_of(make())
    found = set()

    def look(frame, event, argument):
        name = frame.f_code.co_name
        if "autograph_generated" in frame.f_code.co_filename and name.startswith(
            "tf__"
        ):
            found.add(name)

    sys.setprofile(look)
    try:
        step(tf.constant([[0.0, 1.0]]), tf.constant([[1.0, 2.0]]))
    finally:
        sys.setprofile(None)
    assert "tf__step" in found
    assert found <= {"tf__step", "tf___second", "tf__<lambda>", "tf__lam"}


def _doubled_if_high(values):
    if tf.reduce_mean(values) > 0.5:
        values *= 2.0
    return values


def _doubled(base, method):
    """A user's subclass: a method asks if a tensor is high and doubles its result."""

    def formula(self, *arguments, **kwargs):
        values = getattr(base, method)(self, *arguments, **kwargs)
        if isinstance(values, tuple):
            return _doubled_if_high(values[0]), values[1]
        if isinstance(values, list):
            return [_doubled_if_high(value) for value in values]
        return _doubled_if_high(values)

    return type(f"Doubled{base.__name__}", (base,), {method: formula})


DoubledSorter = _doubled(layers.SigmoidSorter, "soft_ranks")


@pytest.mark.keras2
@pytest.mark.parametrize(
    "make",
    [
        lambda: functools.partial(_second, DoubledSorter(0.1)),
        lambda: losses.ApproxNDCGLoss(ranker=DoubledSorter(0.1)),
        lambda: functools.partial(
            _of_itself, _doubled(layers.DotProductInteraction, "score_candidates")()
        ),
        _doubled(losses.SoftmaxLoss, "compute"),
        _doubled(losses.ApproxMRRLoss, "metric"),
        lambda: _doubled(metrics.TopKAccuracy, "compute")(1),
        lambda: _doubled(metrics.TopKAccuracy, "compute_at")(1),
        lambda: _doubled(metrics.SpearmanCorrelation, "compute")(3, max_examples=9),
    ],
)
def test_a_formula_of_a_user_may_count_on_autograph(make):
    labels = tf.constant([[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
    scores = tf.constant([[9.0, 7.0, 8.0], [0.0, 1.0, 3.0]])

    def call(graph):
        thing = make()
        if isinstance(thing, keras.losses.Loss | functools.partial):
            return (_step_of(thing) if graph else thing)(labels, scores)
        if not graph or isinstance(thing, metrics.SpearmanCorrelation):
            thing.update_state(labels, scores)
        else:
            _step_of(thing.update_state)(labels, scores)
        return tf.function(thing.result)() if graph else thing.result()

    assert_allclose(call(graph=True), call(graph=False), rtol=1e-6)


SOFTMAX, NDCG = losses.SoftmaxLoss, losses.ApproxNDCGLoss


@pytest.mark.parametrize("reduction", ["sum", "sum_over_batch_size"])
@pytest.mark.parametrize("weights", [None, np.array([0.0, 1.0, 2.0, 1.0])])
def test_it_is_the_sum(normal, reduction, weights):
    scores = normal(4, 6)
    one = SOFTMAX(reduction=reduction)
    other = NDCG(reduction=reduction)
    each = one, other, losses.WeightedSumLoss([one, other], [1.0, 0.5])
    results = [
        value_and_gradient(lambda x, f=f: f([0, 3, 2, 5], x, weights), scores)
        for f in each
    ]
    for a, b, c in zip(*results, strict=True):
        assert_allclose(a + 0.5 * b, c, rtol=1e-5, atol=1e-6)


def test_labels_may_be_the_scores():
    """The same tensor as relevance and as scores: two roles, one object."""
    rows = tf.constant([[1.0, 0.0, 2.0], [0.5, 0.25, 0.0]])
    probabilities = scipy.special.softmax(rows.numpy(), axis=1)
    expected = -(rows * np.log(probabilities)).numpy().sum(axis=1).mean()
    loss = losses.WeightedSumLoss([SOFTMAX()], [1.0])
    assert_allclose(loss(rows, rows), expected, rtol=1e-6)
    assert_allclose(SOFTMAX()(rows, rows), expected, rtol=1e-6)


def test_it_trains_and_its_random_loss_goes_on_from_a_file(rng, normal, reloaded):
    """Where a list of losses trains the first only."""
    features = normal(8, 3)
    labels = rng.integers(0, 4, 8)

    def trained(loss):
        keras.utils.set_random_seed(1)
        model = linear(3, 4, loss=loss)
        model.fit(features, labels, verbose=0)
        return model

    noisy = losses.GumbelApproxNDCGLoss(seed=1)
    model = trained(losses.WeightedSumLoss([SOFTMAX(), noisy], [1.0, 0.5]))
    assert not np.allclose(model.get_weights()[0], trained(SOFTMAX()).get_weights()[0])
    loaded = reloaded(model)
    for of_each in (model, loaded):
        of_each.fit(features, labels, verbose=0, shuffle=False)
    assert_allclose(loaded.get_weights()[0], model.get_weights()[0], rtol=1e-6)


@pytest.mark.parametrize("num_sampled", [None, 3])
def test_it_trains_a_model_that_scores_classes_in_a_step(num_sampled, rng, normal):
    features = normal(8, 2)
    labels = rng.integers(0, 6, 8)
    weights = rng.uniform(size=8).astype("float32")
    mined = losses.OrderedWeightedLoss(rank_weights=ops.TopKWeights(2))

    def loss_of_step(loss):
        model = models.ExtremeClassifier(
            keras.layers.Identity(), 6, 2, num_sampled, seed=1
        )
        model.compile(optimizers.RowwiseSGD(0.1), loss)
        return model.train_on_batch(features, labels, weights)

    one = loss_of_step(SOFTMAX())
    other = loss_of_step(mined)
    both = loss_of_step(losses.WeightedSumLoss([SOFTMAX(), mined], [1.0, 0.5]))
    assert_allclose(both, one + 0.5 * other, rtol=1e-6)


def test_losses_that_need_all_scores_say_so():
    head = layers.DotProductHead(5)
    head(tf.zeros([3, 2]))
    model = models.ExtremeClassifier(keras.layers.Dense(2), 5, 2, num_sampled=None)
    for loss in (
        losses.SpearmanLoss(),
        losses.WeightedSumLoss([losses.SpearmanLoss()], [1.0]),
    ):
        for read in (loss, metrics.MRR()):
            with refused(r"`y_pred` must hold scores.* `over_classes`"):
                read([0, 1, 2], head.over_classes(tf.zeros([3, 2])))
        with refused(r"a `RankingLoss`.* all classes in blocks"):
            model.compile("sgd", loss)


TUNABLE = [
    (case.make, name)
    for case in [*tables.LOSSES, *tables.OPTIONS]
    for name in case.loss.tunable
    if name != "label_smoothing" or case.options.get(name)
]


@pytest.mark.parametrize("make, name", TUNABLE)
def test_what_may_be_tuned_may_be_a_variable(make, name, normal):
    """As `try_out` sets it: a copy with another value, which the constructor checks."""
    loss = make()
    scores = tf.constant(normal(3, 6))
    value = {"q": 0.5, "label_smoothing": 0.2}.get(name, 1.5 * getattr(loss, name))
    variable = tf.Variable(0.9 * value)
    copies = [
        type(loss).from_config({**loss.get_config(), name: x})
        for x in (value, variable)
    ]
    steps = [
        functools.partial(value_and_gradient, functools.partial(x, [0, 2, 5]))
        for x in copies
    ]
    graph = tf.function(steps[1]).get_concrete_function(scores)
    variable.assign(value)
    assert_all_close(graph(scores), steps[0](scores), 1e-5, 1e-6)
    assert copies[1].get_config()[name] == pytest.approx(value)
    one, other = (
        loss.probabilities and loss.probabilities.temperature for loss in copies
    )
    assert one == pytest.approx(other)
    with refused(f"`{name}` must be"):
        type(loss).from_config({**loss.get_config(), name: -1.0})


@pytest.mark.often("margin0", "temperature0", "temperature1")
@pytest.mark.parametrize(
    "make, name", {make().name: (make, x) for make, x in TUNABLE}.values()
)
@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_a_variable_may_have_another_dtype(make, name, dtype, rng, normal):
    """Also in a branch for few positives, which graphs of unknown lengths have."""
    loss = make()
    value = dtype(0.25)
    options = loss.get_config() | {"label_format": "relevance", "reduction": "none"}
    plain, changing = (
        type(loss).from_config({**options, name: x})
        for x in (float(value), tf.Variable(value))
    )
    labels = (rng.random((3, 150)) < 0.3).astype("float32")
    scores = normal(3, 150)
    lists = [tf.TensorSpec([None, None])] * 2
    step = tf.function(
        lambda y, s: value_and_gradient(functools.partial(changing, y), s), lists
    )
    expected = value_and_gradient(functools.partial(plain, labels), scores)
    assert_all_close(step(labels, scores), expected, 1e-4, 1e-5)


def test_what_may_be_tuned_of_other_parts_may_be_a_variable():
    parts = (
        (layers.CosineHead(3), "scale"),
        (losses.RankTripletLoss(margin=0.5), "margin"),
    )
    for part, name in parts:
        assert name in type(part).tunable
        copy = type(part).from_config({**part.get_config(), name: tf.Variable(0.25)})
        assert copy.get_config()[name] == 0.25


# Soft ranks, pairs, projections, and what a projection depends on.
FORWARD = ["approx_ndcg", "pairwise_logistic", "fenchel_young_entropy", "rankmax"]


@pytest.mark.parametrize("name", FORWARD)
def test_forward_mode(name, rng):
    (make,) = (case.make for case in tables.LOSSES if case.name == name)
    x, direction = (tf.constant(values) for values in rng.normal(size=(2, 4, 7)))
    relevance = rng.integers(0, 3, (4, 7)).astype("float32")
    relevance[:, 0] = -1  # A masked item.
    for labels in (np.array([2, 0, 6, 3]), relevance):

        def function(x, labels=labels):
            return make(reduction="none").call(labels, x)

        with tf.autodiff.ForwardAccumulator(x, direction) as forward:
            value = function(x)
        slopes = tf.reduce_sum(gradient_of(function, x) * direction, axis=1)
        assert_allclose(forward.jvp(value), slopes, rtol=1e-6, atol=1e-9)


class Weighted(losses.RankingLoss):
    """The sum of the positives' scores, for which items may have weights."""

    item_weights = "formula"

    def compute(self, lists):
        return lists.sum_of_positives(lists.positive_scores)


def test_a_loss_of_ones_own_takes_weights_of_items():
    labels, scores, weights = [[1.0, 0, 1]], [[2.0, 3.0, 5.0]], [[0.5, 1.0, 2.0]]
    assert float(Weighted()(labels, scores, weights)) == 0.5 * 2 + 2 * 5
    by_lists = type("ByLists", (Weighted,), {"item_weights": "lists"})
    assert float(by_lists()(labels, scores, weights)) == (0.5 + 2) / 2 * (2 + 5)
    with refused("`item_weights` must be one of"):
        type("Wrong", (Weighted,), {"item_weights": "list"})()
