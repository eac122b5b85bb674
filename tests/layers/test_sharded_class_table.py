"""ShardedClassTable: two shards equal one table; any number of shards reads a file."""

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from tensorflow import keras

from rank4class_tf import layers, losses, metrics, models, optimizers
from rank4class_tf._tf import exchange

from ..derivatives import gradient_of
from ..refused import refused
from ..rounding import assert_all_close, rounding
from ..small_models import linear, served

pytestmark = pytest.mark.slow

CLASSES, DIM, BATCH = 203, 8, 32
RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(4 * BATCH, 6)).astype("float32")
IDS = RNG.integers(0, CLASSES, (4 * BATCH, 2)).astype("int32")
IDS[::3, 1] = -1
LEFT = 2 * BATCH + 13  # On two devices the last batch of an evaluation is 7 + 6.

OPTIMIZERS = {
    "sgd": lambda: optimizers.RowwiseSGD(0.3, row_multiplier=20.0, momentum=0.5),
    "adagrad": lambda: optimizers.RowwiseAdagrad(
        keras.optimizers.schedules.ExponentialDecay(0.03, 2, 0.9)
    ),
    "adam": lambda: optimizers.RowwiseAdam(0.01),
}
LOSSES = {
    "softmax": lambda: losses.SoftmaxLoss(0.5, label_smoothing=0.1),
    "mined": lambda: losses.OrderedWeightedLoss(
        "binary", "hinge", losses.TopKWeights(3)
    ),
    "approx_ndcg": lambda: losses.ApproxNDCGLoss(temperature=0.1),
    "warp": losses.WARPLoss,
}


def model_of(
    loss="softmax", optimizer="adagrad", num_sampled=50, sharded=True, **options
):
    """A compiled model, whose rows start the same in shards and in a table."""
    keras.utils.set_random_seed(0)
    encoder = linear(6, DIM)
    classes = layers.ShardedClassTable(CLASSES, DIM, OPTIMIZERS[optimizer](), seed=1)
    if not sharded:
        classes.build((None, DIM))
        classes = layers.ClassTable.from_rows(classes.rows())
    model = models.ExtremeClassifier(
        encoder, classes, DIM, num_sampled, seed=7, **options
    )
    model.compile(
        OPTIMIZERS[optimizer](), LOSSES[loss](), metrics=[metrics.PrecisionAtK([1, 5])]
    )
    return model


def data(number=4 * BATCH, several=False):
    """Of several classes, a sampled step draws one, which differs between devices."""
    ids = IDS if several else IDS[:, :1]
    return tf.data.Dataset.from_tensor_slices((FEATURES[:number], ids[:number])).batch(
        BATCH
    )


def fitted(model):
    several = model.scores.num_sampled is None
    history = model.fit(data(several=several), shuffle=False, verbose=0).history
    return [history["loss"], model.classes.rows(), model.encoder.get_weights()[0]]


def found_by(model):
    """What evaluation and search return."""
    evaluated = model.evaluate(data(LEFT, model.scores.num_sampled is None), verbose=0)
    return [
        evaluated,
        *model.top_k(FEATURES[:5], 7),
        *model.ranks(FEATURES[:5], IDS[:5]),
    ]


def assert_same(found, expected):
    """Sums over the classes are in another order: first over those of each shard."""
    assert_all_close(found, expected, rounding(CLASSES), rounding(CLASSES))


CASES = [
    ("warp", "adagrad", None),
    ("softmax", "sgd", 50),
    ("mined", "adam", 50),
    ("approx_ndcg", "adagrad", None),
]


@pytest.mark.keras2
@pytest.mark.parametrize("loss, optimizer, num_sampled", CASES)
def test_two_shards_are_as_one_table(two_devices, loss, optimizer, num_sampled):
    """Training, evaluation with an uneven last batch, search."""
    with two_devices.scope():
        shards = model_of(loss, optimizer, num_sampled)
    table = model_of(loss, optimizer, num_sampled, sharded=False)
    assert_same(fitted(shards), fitted(table))
    if loss != "mined":  # There they are as with "softmax".
        assert_same(found_by(shards), found_by(table))


def test_rows_do_not_depend_on_the_number_of_shards(two_devices):
    """Also beyond the 16,384 rows that are drawn at once."""
    one = layers.ShardedClassTable(40_001, 2, seed=5)
    one.build((None, 2))
    with two_devices.scope():
        two = layers.ShardedClassTable(40_001, 2, seed=5)
        two.build((None, 2))
    assert_array_equal(two.rows(), one.rows())
    assert [shard.variable.shape[0] for shard in two.shards.local.values()] == [
        20_000,
        20_001,
    ]
    assert 0.85 < float(tf.reduce_mean(tf.norm(one.rows(), axis=1))) < 1
    assert not np.any(one.rows()[:16_000] == one.rows()[16_384:32_384])


@pytest.mark.keras2
def test_search_with_ties_and_excluded_classes(two_devices):
    """Ties across shards, and lists shorter than k."""
    rows = RNG.integers(-1, 2, (11, 3)).astype("float32")
    with two_devices.scope():
        shards = layers.SampledScores(
            layers.ShardedClassTable.from_rows(rows), normalize=False
        )
        shards.build((None, 3))
    table = layers.SampledScores(layers.ClassTable.from_rows(rows), normalize=False)
    table.build((None, 3))
    encodings = RNG.integers(-1, 2, (6, 3)).astype("float32")
    exclude = RNG.integers(-1, 11, (6, 4)).astype("int32")
    for k in (1, 7, 11):
        found, expected = (x.top_k(encodings, k, exclude) for x in (shards, table))
        assert_all_close(found, expected, 0)


@pytest.mark.keras2
def test_search_of_attention_over_shards(two_devices):
    with two_devices.scope():
        classes = layers.ShardedClassTable(CLASSES, DIM, OPTIMIZERS["sgd"](), seed=1)
        encoder = keras.Sequential([keras.layers.Dense(DIM)])
        encoder.build((None, 6))
        attention = layers.ClassAttention(classes, num_heads=2)
        model = models.ExtremeClassifier(encoder, attention, DIM, num_sampled=50)
    expected = model.top_k(FEATURES[:3], 5)
    found = two_devices.run(lambda: model.top_k(FEATURES[:3], 5))
    for x, y in zip(found, expected, strict=True):
        for part in two_devices.experimental_local_results(x):
            assert_all_close(part, y, 1e-6)


@pytest.mark.keras2
def test_attention_over_shards_is_trained_over_all_classes(two_devices):
    """As attention over one table is."""

    def model_with_attention(sharded):
        model = model_of("softmax", "sgd", None, sharded)
        keras.utils.set_random_seed(1)  # The weights of the attention.
        attention = layers.ClassAttention(model.classes, num_heads=2)
        model = models.ExtremeClassifier(model.encoder, attention, DIM, None, seed=7)
        model.compile(OPTIMIZERS["sgd"](), LOSSES["softmax"]())
        return model

    with two_devices.scope():
        shards = model_with_attention(sharded=True)
    table = model_with_attention(sharded=False)
    assert_same(fitted(shards), fitted(table))


def test_files_of_any_number_of_shards(two_devices, tmp_path):
    """A `.keras` file, weights and a checkpoint; training goes on as undisturbed."""

    def made():
        return model_of("mined", "adam")

    with two_devices.scope():
        model = made()
    fitted(model)
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    tf.train.Checkpoint(model=model).write(str(tmp_path / "checkpoint"))
    model.export_classes(tmp_path / "classes.npy")
    model.classes.save_shards(tmp_path / "shards")
    unit = tf.math.l2_normalize(model.classes.rows(), axis=1)
    assert_allclose(np.load(tmp_path / "classes.npy"), unit, rtol=1e-6)

    loaded = keras.models.load_model(tmp_path / "model.keras")
    other = made()
    expected = fitted(model)
    assert len(loaded.classes.shards.local) == len(other.classes.shards.local) == 1
    assert_same(fitted(loaded), expected)
    assert_same(loaded.top_k(FEATURES[:5], 7), model.top_k(FEATURES[:5], 7))
    other.optimizer.build(other.trainable_variables)
    tf.train.Checkpoint(model=other).restore(str(tmp_path / "checkpoint"))
    assert_same(fitted(other), expected)
    other.load_weights(tmp_path / "model.weights.h5")
    assert_same(fitted(other), expected)
    other.load_weights(tmp_path / "model.weights.h5")
    other.classes.assign(np.zeros([CLASSES, DIM]))
    other.classes.load_shards(tmp_path / "shards")
    assert_same(fitted(other), expected)
    model.export_top_k(tmp_path / "served", tf.TensorSpec([None, 6]), k=3)
    found = served(tmp_path / "served", features=FEATURES[:4])
    assert_all_close(
        [found["scores"], found["class_ids"]], model.top_k(FEATURES[:4], 3), 1e-6
    )
    loaded.save(tmp_path / "one.keras")
    with two_devices.scope():
        in_two = keras.models.load_model(tmp_path / "one.keras")
    assert len(in_two.classes.shards.local) == 2
    assert_same(fitted(in_two), fitted(loaded))


def bytes_exchanged(strategy, monkeypatch, num_classes, num_sampled):
    """What each call of a step exchanges."""
    with strategy.scope():
        optimizer = optimizers.RowwiseAdagrad(0.03)
        classes = layers.ShardedClassTable(num_classes, DIM, optimizer, seed=1)
        scores = layers.SampledScores(classes, num_sampled, seed=2)
        scores.build((None, DIM))
    counted, ids = [], [1, 2, 3, 4]

    def counting(call):
        return lambda self, x: (
            counted.append(x.dtype.size * int(tf.size(x))),
            call(self, x),
        )[1]

    def step():
        def loss(encodings):
            if num_sampled is None:
                return losses.RankmaxLoss(reduction="sum")(
                    ids, scores.over_classes(encodings)
                )
            of_sample = scores(encodings, class_ids=ids, training=True)
            return losses.SoftmaxLoss(reduction="sum")([0] * 4, of_sample)

        return gradient_of(loss, tf.ones([4, DIM]))

    with monkeypatch.context() as patched:
        for name in ("total", "joined"):
            call = getattr(exchange.Exchange, name)
            patched.setattr(exchange.Exchange, name, counting(call))
        strategy.run(step)
    return sorted(counted)


@pytest.mark.parametrize("num_sampled", [None, 50])
def test_what_is_exchanged_does_not_grow_with_the_classes(
    two_devices, monkeypatch, num_sampled
):
    sizes = 1_000, 100_000
    few, many = (
        bytes_exchanged(two_devices, monkeypatch, n, num_sampled) for n in sizes
    )
    assert few == many and len(few) > 4


def test_what_would_leave_the_rows_out_raises(two_devices):
    model = model_of()
    best = keras.callbacks.EarlyStopping("loss", restore_best_weights=True)
    with refused("`callbacks` must not restore weights"):
        model.fit(data(), shuffle=False, callbacks=[best], verbose=0)
    with refused("`callbacks` must not restore weights"):
        model.fit(data(), None, None, 1, 0, [best])  # By position.
    with refused("must be built in the scope of the strategy"):
        two_devices.run(lambda: model.classes.rows([0]))
    with (
        two_devices.scope(),
        refused("num_classes=1, 2 replicas"),
    ):
        layers.ShardedClassTable(1, 2).build((None, 2))


def test_rows_that_are_nan_of_no_class_or_not_trained(two_devices):
    with two_devices.scope():
        model = model_of(num_sampled=None)
        model.classes.trainable = False
        model.compile(OPTIMIZERS["adagrad"](), losses.SoftmaxLoss())
    before = model.classes.rows().numpy()
    model.fit(data(), shuffle=False, verbose=0)
    assert_array_equal(model.classes.rows(), before)
    before[7] = np.nan
    model.classes.assign(before)
    assert np.isnan(np.ravel(model.evaluate(data(LEFT), verbose=0))[0])
    ones = layers.ShardedClassTable.from_rows(np.ones([3, 2], "float32"))
    rows = ones.rows([[-1, 0], [2, 3]])
    assert_array_equal(rows[..., 0], [[np.nan, 1], [1, np.nan]])


@pytest.mark.parametrize("kind", [list, tf.constant, np.asarray])
def test_rows_are_set_to_any_array(kind):
    table = layers.ShardedClassTable(3, 2)
    table.build((None, 2))
    table.assign(kind([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))
    assert_array_equal(table.rows(), [[1, 2], [3, 4], [5, 6]])
    with refused(r"`rows` must have the shape \(3, 2\). Received: \(2, 2\)"):
        table.assign(kind([[1.0, 2.0], [3.0, 4.0]]))


def test_losses_that_cannot_say_so(two_devices):
    for loss, error in (
        (losses.SparsemaxLoss(), "within a loop or a condition of a graph"),
        (
            losses.GumbelApproxNDCGLoss(),
            "takes classes by blocks where these are in shards",
        ),
    ):
        with two_devices.scope():
            model = model_of(num_sampled=None)
            model.compile(OPTIMIZERS["sgd"](), loss)
        with pytest.raises((ValueError, NotImplementedError), match=error):
            model.fit(data(), shuffle=False, verbose=0)
