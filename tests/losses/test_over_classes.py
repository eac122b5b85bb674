"""Every loss over all classes, by blocks: values and gradients of the plain form."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from tensorflow import keras

from rank4class_tf import layers, losses, ops
from rank4class_tf._lists import block_rows, blocked, classes
from rank4class_tf._tf import sizes

from ..contract import tables
from ..derivatives import gradient_of, with_gradients
from ..refused import refused
from ..rounding import assert_all_close

CLASSES, WIDTH = 13, 4  # No multiple of a block.


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Of classes, and of two examples where a formula takes these by themselves."""
    monkeypatch.setattr(sizes, "TRAINED", sizes.CpuBlocks(5, 1 << 20))
    monkeypatch.setattr(blocked, "_SCORES_PER_CHUNK", 2 * CLASSES)


def a_head(classes=CLASSES, kind=layers.DotProductHead, **kwargs):
    head = kind(classes, **kwargs)
    head.build((None, WIDTH))
    generator = np.random.default_rng(0)
    for weight in head.weights:
        if weight.dtype == "float32":
            weight.assign(generator.normal(size=weight.shape))
    return head


def encodings(batch=3):
    return tf.constant(np.random.default_rng(1).normal(size=(batch, WIDTH)), tf.float32)


LOSSES = {
    **{case.name: case.make() for case in tables.LOSSES if not case.random},
    "smoothed": losses.SoftmaxLoss(label_smoothing=0.1),
    "prior": losses.SoftmaxLoss(0.5, 0.0, [i / 91 for i in range(1, 14)], 0.7),
    "class_weight": losses.SoftmaxLoss(class_weight=np.linspace(0.5, 2, CLASSES)),
    "mined": losses.OrderedWeightedLoss(rank_weights=ops.TopKWeights(3)),
    "transition": losses.ForwardCorrectionLoss(
        np.full((CLASSES, CLASSES), 1 / CLASSES)
    ),
}
few = pytest.mark.parametrize("name", ["softmax", "rankmax", "mined", "list_mle"])


def plain(loss, ids, head, x, weights=None, form=None):
    """The loss of the matrix of scores, and its gradients."""
    sources = (x, *head.trainable_variables)
    form = form or head
    return with_gradients(
        lambda: loss(ids, form(x), weights), *sources, unconnected="zero"
    )


def by_blocks(loss, ids, head, x, weights=None):
    return plain(loss, ids, head, x, weights, head.over_classes)


def both(*arguments):
    return by_blocks(*arguments), plain(*arguments)


def assert_same(results, tolerance=1e-5):
    assert_all_close(*results, tolerance, tolerance)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_values_and_gradients_are_those_of_the_plain_form(loss):
    weights = [0.5, 2.0, 1.0]
    for ids in ([[1], [12], [-1]], [[1, 2, -1, 5], [-1, 12, -1, -1], [3, 3, 4, 0]]):
        assert_same(both(loss, ids, a_head(), encodings(), weights))


@few
def test_ragged_ids(name):
    ids = tf.ragged.constant([[1, 2], [], [12, 3, 0]])
    others = (a_head(), encodings())
    expected = plain(LOSSES[name], ids.to_tensor(-1), *others)
    assert_same((by_blocks(LOSSES[name], ids, *others), expected))


# A loss whose gradient is 0 for most classes takes only the others, or all if these are
# many.
@pytest.mark.often("rankmax", "warp")
@pytest.mark.parametrize(
    "ids", [[[1], [12], [-1]], [[1, 2, 5], [-1, 12, -1], [3, 4, 0]]]
)
@pytest.mark.parametrize("name", ["rankmax", "rankmax_2", "sparsemax", "warp"])
def test_the_classes_that_are_needed_give_the_gradient_of_all(name, ids, monkeypatch):
    head = a_head(kind=layers.CosineHead)
    loss = LOSSES[name]
    ids = tf.constant(ids)
    expected = plain(loss, ids, head, encodings())
    for per_used in (0, 1000):
        monkeypatch.setattr(classes, "_CLASSES_PER_USED", per_used)
        step = tf.function(lambda ids, x: by_blocks(loss, ids, head, x))
        assert_same((step(ids, encodings()), expected))


@pytest.mark.parametrize(
    "labels", [np.eye(3, CLASSES, dtype="float32") / 2, [0, 1, CLASSES]]
)
def test_other_labels_raise(labels):
    with refused(r"`y_true` must hold class ids"):
        losses.SoftmaxLoss()(labels, a_head().over_classes(encodings()))


def tied():
    head = a_head()
    head.classes.embeddings.assign(tf.ones([CLASSES, WIDTH]))
    head.classes.bias.assign(tf.zeros([CLASSES]))
    return head


def without_a_class():
    head = a_head()
    bias = head.classes.bias.numpy()
    bias[7] = -np.inf
    head.classes.bias.assign(bias)
    return head


def encoded():
    features = np.random.default_rng(2).normal(size=(CLASSES, 6)).astype("float32")
    encoder = keras.Sequential([keras.Input((6,)), keras.layers.Dense(WIDTH, "tanh")])
    return a_head(layers.EncodedClasses(features, encoder))


HEADS = {
    "a single class": lambda: a_head(1),
    **{f"{n} classes": functools.partial(a_head, n) for n in (4, 5, 10, 11)},
    "ties across blocks": tied,
    "a class of minus infinity": without_a_class,
    "encoded classes": encoded,
    "cosines": lambda: a_head(kind=layers.CosineHead),
    "sampled": lambda: a_head(kind=layers.SampledScores),
}


@pytest.mark.filterwarnings("ignore:.*two scores or more")  # Of a single class.
@pytest.mark.parametrize("kind", HEADS)
def test_classes_of_every_kind_and_number(kind):
    head = HEADS[kind]()
    ids = [0, head.num_classes - 1, head.num_classes // 2]
    for name in ("softmax", "rankmax", "mined", "list_mle"):
        results = both(LOSSES[name], ids, head, encodings())
        # Of the gradients of tied negatives any is right.
        assert_same([x[:1] for x in results] if kind.startswith("ties") else results)


@few
def test_a_nan_stays_one(name):
    loss = LOSSES[name]
    head = a_head()
    table = head.classes.embeddings.numpy()
    table[7, 2] = np.nan
    head.classes.embeddings.assign(table)
    per_example = type(loss).from_config({**loss.get_config(), "reduction": "none"})
    assert np.isnan(per_example([0, 1, 2], head.over_classes(encodings()))).all()
    broken = tf.concat([encodings(2), tf.fill([1, WIDTH], float("nan"))], axis=0)
    value = per_example([0, 1, 2], a_head().over_classes(broken))
    assert_array_equal(np.isnan(value), [False, False, True])
    # What has no loss is not NaN either.
    assert_array_equal(per_example([0, 1, -1], a_head().over_classes(broken))[2], 0)
    nobody = loss(tf.zeros([0, 2], tf.int32), a_head().over_classes(encodings(0)))
    assert float(tf.reduce_sum(nobody)) == 0


@few
def test_huge_scores_are_finite(name):
    value, *gradients = by_blocks(LOSSES[name], [0, 1, 2], a_head(), 1e12 * encodings())
    assert np.isfinite(value).all() and all(np.isfinite(g).all() for g in gradients)


@few
def test_under_xla(name):
    head = a_head()
    loss = LOSSES[name]
    step = tf.function(lambda ids, x: by_blocks(loss, ids, head, x), jit_compile=True)
    ids = tf.constant([0, 5, 12])
    x = encodings()
    assert_same((step(ids, x), plain(loss, ids, head, x)))


@pytest.mark.often("softmax", "rankmax")
@pytest.mark.parametrize("most", [16, 1], ids=["few", "many"])
@pytest.mark.parametrize(
    "name", ["softmax", "rankmax", "approx_ndcg", "pairwise_logistic_lambda"]
)
def test_batches_of_an_unknown_size(name, most, monkeypatch):
    """Also where examples have more labels on average than `FEW_POSITIVES`."""
    monkeypatch.setattr(block_rows, "FEW_POSITIVES", most)
    head, loss = a_head(), LOSSES[name]
    specs = [tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None, WIDTH])]
    step = tf.function(lambda ids, x: by_blocks(loss, ids, head, x), specs)
    ids = tf.constant([[0, 3], [5, -1], [12, 1]])
    assert_same((step(ids, encodings()), plain(loss, ids, head, encodings())))


def test_weights_of_a_number_of_ranks_from_numpy():
    class Two(ops.RankWeights):
        num_leading = np.int64(2)

        def leading(self, n, dtype):
            return tf.constant([0.7, 0.3], dtype)[:n]

    loss = losses.OrderedWeightedLoss(rank_weights=Two())
    head, ids = a_head(), tf.constant([[0, 3], [5, -1], [12, 1]])
    step = tf.function(lambda x: by_blocks(loss, ids, head, x))
    assert_same((step(encodings()), plain(loss, ids, head, encodings())))


@pytest.mark.parametrize("alpha", [0.1, 10.0], ids=["many in the support", "few"])
def test_sparsemax_of_more_classes_than_it_tries_first(alpha, monkeypatch):
    monkeypatch.setattr(sizes, "TRAINED", sizes.CpuBlocks(70, 1 << 20))
    head, ids = a_head(300), tf.constant([[0, 3], [255, -1], [12, 1]])
    assert_same(both(losses.FenchelYoungLoss(alpha=alpha), ids, head, encodings()))


def test_sparsemax_of_huge_scores(monkeypatch):
    """The highest are computed twice, rounded otherwise; a gradient may be missing."""
    monkeypatch.setattr(sizes, "TRAINED", sizes.CpuBlocks(1024, 1 << 20))
    keras.utils.set_random_seed(1)
    head = layers.DotProductHead(3000)
    x = tf.random.normal([6, 8], stddev=1e9)
    head(x)
    found = both(losses.SparsemaxLoss(), np.arange(6), head, x)
    assert_allclose(*(values[0] for values in found), rtol=1e-6)
    assert np.isfinite(found[0][-1]).all()  # Of biases.


def test_negatives_of_classes_without_some():
    """The highest class may be positive: it is left out once."""

    class Rest(losses.RankingLoss):
        needs_positive = False

        def compute(self, lists):
            _, places, _ = lists.top_k(2)
            rest = lists.without(places).negatives()
            return rest.num_items + rest.sum(tf.exp)

    highest = tf.argmax(a_head()(encodings()), axis=1, output_type=tf.int32)
    ids = tf.stack([highest, [0, 1, 2]], axis=1)
    for y_true in (ids, tf.constant([[-1], [0], [12]])):
        assert_same(both(Rest(reduction="none"), y_true, a_head(), encodings()))


def test_a_temperature_that_is_trained():
    temperature = tf.Variable(0.5)
    loss = losses.SoftmaxLoss(temperature)
    head = a_head()
    x = encodings()
    forms = head.over_classes, head
    assert_same(
        [with_gradients(lambda f=f: loss([0, 5, 12], f(x)), temperature) for f in forms]
    )


class TwoSums(losses.RankingLoss):
    """A formula in which one sum is a parameter of the next."""

    def compute(self, lists):
        mean = lists.sum(tf.identity) / lists.num_items
        return lists.sum(lambda s, m: tf.square(s - m), mean[:, tf.newaxis])


class Sorted(losses.RankingLoss):
    def compute(self, lists):
        return tf.reduce_sum(tf.sort(lists.dense().scores, axis=-1)[:, :2], axis=-1)


@pytest.mark.parametrize("loss", [TwoSums(), Sorted()])
def test_formulas_that_blocks_of_classes_cannot_do(loss):
    assert_same(both(loss, [0, 5, 12], a_head(), encodings()), 1e-4)


def test_the_gradient_of_a_random_loss_is_that_of_its_value():
    """The gradient computes each chunk again, with the draws of the value."""
    loss = losses.GumbelApproxNDCGLoss(num_samples=1, seed=1, reduction="sum")
    head = a_head()
    given = encodings(4)
    step = 1e-2
    direction = tf.sign(tf.random.stateless_normal(given.shape, [1, 2]))

    def value(shift):
        return float(loss([3, 1, 4, 1], head.over_classes(given + shift * direction)))

    slope = (value(step) - value(-step)) / (2 * step)
    gradient = gradient_of(lambda x: loss([3, 1, 4, 1], head.over_classes(x)), given)
    assert slope == pytest.approx(float(tf.reduce_sum(gradient * direction)), rel=1e-2)


def test_random_losses_draw_anew_for_each_chunk():
    loss = losses.GumbelApproxNDCGLoss(num_samples=1, seed=1, reduction="none")
    same = tf.repeat(encodings(1), 4, axis=0)
    values = loss([3] * 4, a_head().over_classes(same)).numpy()
    assert len(set(values)) == 4
    assert_array_equal(values, loss([3] * 4, a_head().over_classes(same)))


@pytest.mark.parametrize("is_sharded", [False, True])
def test_a_gradient_of_rows_of_a_variable_of_the_loss(is_sharded):
    """A formula may read some numbers of a variable of its own."""
    margins = tf.Variable(tf.zeros([4]))

    class WithMargins(losses.RankingLoss):
        def compute(self, lists):
            total, highest = lists.log_sum_exp()
            losses = total + highest - lists.positive_scores
            return losses[:, 0] + tf.gather(margins, [1])

    table = layers.ShardedClassTable(CLASSES, WIDTH, seed=0)
    head = a_head(table if is_sharded else CLASSES)
    x = encodings()
    head(x)
    with tf.GradientTape() as tape:
        value = WithMargins()([0, 1, 2], head.over_classes(x))
    gradient = tf.convert_to_tensor(tape.gradient(value, margins))
    assert_allclose(gradient, np.eye(4)[1], rtol=1e-6)
