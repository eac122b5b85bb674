"""One training step equals float64: what a tape gets right, a graph may write wrong.

Each test trains a model for one step, and compares what the optimizer has changed with
gradients that are computed in float64 and on the whole matrix of scores.
"""

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose
from tensorflow import keras

from rank4class_tf import _keras, layers, losses, models, optimizers

from ..derivatives import with_gradients
from ..small_models import sequential
from . import tables
from .head_table import HEADS

RATE, BATCH, DIM, FEATURES = 0.25, 16, 4, 3
OPTIMIZERS = {"rowwise": lambda: optimizers.RowwiseSGD(RATE)}
OPTIMIZERS["keras"] = lambda: keras.optimizers.SGD(RATE)


def dense(width, inputs=DIM):
    """A linear encoder of two layers: neither gradient contains its own kernel."""
    parts = [keras.layers.Dense(width, use_bias=False) for _ in range(2)]
    return sequential((inputs,), *parts)


def product(x, kernels):
    for kernel in kernels:
        x = tf.matmul(x, kernel)
    return x


def changes_of_step(model, data, mode="graph"):
    """The loss of one step, and what it does to the weights, divided by the rate."""
    model.run_eagerly = mode == "eager"
    model.jit_compile = mode == "xla"
    weights = model.trainable_variables
    before = [tf.identity(w) for w in weights]
    model.reset_metrics()
    value = np.ravel(model.train_on_batch(*data))[0]
    return [
        value,
        *((old - w).numpy() / RATE for old, w in zip(before, weights, strict=True)),
    ]


def gradients_in_float64(loss_of, weights):
    """The value of a function of the weights, and its gradients."""
    weights = [tf.cast(w, tf.float64) for w in weights]
    return with_gradients(lambda: loss_of(*weights), *weights)


def assert_close(found, expected):
    """Relative to each gradient's largest number and to rounding of weights below 2."""
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert_allclose(a, b, rtol=1e-4, atol=1e-5 * np.abs(b).max() + 2**-23 / RATE)


class Linear(losses.RankingLoss):
    """Its gradients contain no scores; only the order of operations protects them."""

    def compute(self, lists):
        return lists.sum(tf.identity) / 8 - lists.sum_of_positives(
            lists.positive_scores
        )


class OwnScale(losses.RandomRankingLoss):
    """Noise times a variable of its own, summed over the positives."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.scale = tf.Variable(0.5)

    def compute(self, lists):
        dense = lists.dense()
        noise = tf.random.stateless_uniform(tf.shape(dense.scores), lists.seed)
        noise = dense.at_positives(noise)
        return lists.sum_of_positives(noise * self.scale + 0 * lists.positive_scores)


# What one step of Keras's rules takes from weights of a given gradient, divided by the
# rate.


def adam(gradient, _):
    # Keras adds it before the correction of the bias.
    keras_epsilon = EPSILON / np.sqrt(1 - 0.999)
    return gradient / (np.abs(gradient) + keras_epsilon)


def adagrad(gradient, _):
    return gradient / np.sqrt(0.1 + gradient**2 + EPSILON)


def clipped(gradient, _):
    return gradient * min(1, CLIPNORM / np.linalg.norm(gradient))


EPSILON, DECAY, CLIPNORM = 1e-4, 0.1, 1e-2
KERAS_RULES = {
    "adam": (lambda: keras.optimizers.Adam(RATE, epsilon=EPSILON), adam),
    "adamw": (
        lambda: keras.optimizers.AdamW(RATE, DECAY, epsilon=EPSILON),
        lambda gradient, weight: adam(gradient, weight) + DECAY * weight,
    ),
    "adagrad": (lambda: keras.optimizers.Adagrad(RATE, epsilon=EPSILON), adagrad),
    "clipnorm": (lambda: keras.optimizers.SGD(RATE, clipnorm=CLIPNORM), clipped),
}
OPTIMIZERS |= {name: make for name, (make, _) in KERAS_RULES.items()}


def steps_by_rule(optimizer, expected, weights):
    """The loss, and each weight's change by an optimizer's rule, from its gradient."""
    value, *gradients = expected
    if optimizer not in KERAS_RULES:
        return expected
    _, rule = KERAS_RULES[optimizer]
    pairs = zip(gradients, weights, strict=True)
    return [value, *(rule(np.asarray(g), np.asarray(w, np.float64)) for g, w in pairs)]


# All classes.


def batch_of(num_classes, seed, width=2):
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, num_classes, (BATCH, width)).astype("int32")
    ids[::3, 1:] = -1
    ids[1, :] = -1
    return rng.normal(size=(BATCH, DIM)).astype("float32"), ids


def all_classes(kind, loss, num_classes, seed, optimizer="rowwise", num_sampled=None):
    """A model over all classes, and the scores by its weights."""
    keras.utils.set_random_seed(seed)
    features = (
        np.random.default_rng(seed)
        .normal(size=(num_classes, FEATURES))
        .astype("float32")
    )
    classes = {
        "encoded": lambda: layers.EncodedClasses(features, dense(DIM, FEATURES)),
        "sharded": lambda: layers.ShardedClassTable(
            num_classes, DIM, OPTIMIZERS[optimizer](), seed=seed
        ),
    }.get(kind, lambda: layers.ClassTable(num_classes, DIM, use_bias=kind == "bias"))()
    model = models.ExtremeClassifier(
        dense(DIM), classes, DIM, num_sampled, normalize=kind == "cosine", seed=1
    )
    model.compile(OPTIMIZERS[optimizer](), loss)

    def scores(x, first, second, *of_classes):
        encodings = product(tf.cast(x, tf.float64), (first, second))
        bias = 0
        if kind == "encoded":
            rows = product(tf.cast(features, tf.float64), of_classes)
        else:
            rows, *bias = of_classes
            bias = bias[0] if bias else 0
        if kind == "cosine":
            encodings, rows = (
                tf.math.l2_normalize(t, axis=1) for t in (encodings, rows)
            )
        return tf.matmul(encodings, rows, transpose_b=True) + bias

    return model, scores


EVERY = {case.name: case.make for case in tables.LOSSES} | {
    "linear": Linear,
    "smoothed": lambda: losses.SoftmaxLoss(0.5, label_smoothing=0.1),
    "prior": lambda: losses.SoftmaxLoss(class_prior=[i / 820 for i in range(1, 41)]),
}
RANDOM = {case.name for case in tables.LOSSES if case.random}


def check_all_classes(name, kind, num_classes, seed, mode="graph", optimizer="rowwise"):
    data = x, ids = batch_of(num_classes, seed)
    model, scores = all_classes(kind, EVERY[name](), num_classes, seed, optimizer)
    # Chunks of examples have draws of their own: those of a step without graph.
    if name in RANDOM:
        twin, _ = all_classes(kind, EVERY[name](), num_classes, seed, optimizer)
        expected = changes_of_step(twin, data, "eager")
    else:
        weights = [
            *model.encoder.trainable_variables,
            *model.classes.trainable_variables,
        ]
        expected = gradients_in_float64(
            lambda *w: EVERY[name]()(ids, scores(x, *w)), weights
        )
        expected = steps_by_rule(optimizer, expected, weights)
    assert_close(changes_of_step(model, data, mode), expected)


IN_OPTIONS = {case.name for case in tables.LOSSES} - tables.FORMULAS
FIRST = ("bias", 40, 0)
BUILDS = [
    *(("bias", 40 if seed % 2 else 3000, seed) for seed in range(1, 4)),
    *((kind, n, 7) for kind in ("table", "cosine", "encoded") for n in (40, 3000)),
]


# Without scores in the gradient, with all, with few, and with a sample.
OFTEN = {"linear", "softmax", "rankmax", "warp_sampled"}


def of_every_kind():
    """The first build of each loss; all of a formula each week, of few losses often."""
    for name in EVERY:
        is_few = name in OFTEN
        of_others = pytest.mark.weekly if name in IN_OPTIONS else pytest.mark.slow
        yield pytest.param(name, *FIRST, marks=[] if is_few else [of_others])
        of_builds = pytest.mark.slow if name in OFTEN else pytest.mark.weekly
        for build in [] if name in IN_OPTIONS else BUILDS:
            if name != "prior" or build[1] == 40:  # It has a number for each class.
                yield pytest.param(name, *build, marks=of_builds)


# In one of two to ten builds such a step went wrong, when rows were read anew for the
# gradient.
@pytest.mark.parametrize("name, kind, num_classes, seed", [*of_every_kind()])
def test_a_step_over_all_classes(name, kind, num_classes, seed):
    check_all_classes(name, kind, num_classes, seed)


# Keras 2 has no way of its own to run eagerly or under XLA.
LATER = [pytest.mark.slow] if _keras.KERAS_3 else [pytest.mark.weekly]
MODES = [
    ("graph", "keras"),
    *(pytest.param(mode, "rowwise", marks=LATER) for mode in ("eager", "xla")),
]


@pytest.mark.keras2
@pytest.mark.often("cosine")
@pytest.mark.parametrize("mode, optimizer", MODES)
@pytest.mark.parametrize("kind", ["bias", "cosine"])
@pytest.mark.parametrize(
    "name", ["linear", "softmax", "pairwise_logistic", "rankmax_2"]
)
def test_a_step_over_all_classes_in_every_mode(name, kind, mode, optimizer):
    check_all_classes(name, kind, 40, 1, mode, optimizer)


# Only some classes get a gradient, and some of these by several examples, or as
# positive and rival.
SPARSE = [
    "rankmax",
    "rankmax_2",
    "sparsemax",
    "fenchel_young_adaptive",
    "pairwise_hinge",
    "warp",
    "ordered_weighted_pairwise_scaled",
    "ordered_weighted_binary_hinge",
    "softmax",
]
RULES_OFTEN = {"rankmax_2", "ordered_weighted_pairwise_scaled"}


def of_rules():
    for name in SPARSE:
        often = pytest.mark.slow if name in RULES_OFTEN else pytest.mark.weekly
        yield name, "graph", "adam"
        for optimizer in ("adamw", "adagrad", "clipnorm"):
            yield pytest.param(name, "graph", optimizer, marks=often)
        for mode in ("eager", "xla"):
            yield pytest.param(name, mode, "adam", marks=often)


@pytest.mark.often(*RULES_OFTEN)
@pytest.mark.parametrize("name, mode, optimizer", [*of_rules()])
@pytest.mark.parametrize(
    "num_classes", [40, pytest.param(1000, marks=pytest.mark.weekly)]
)
def test_a_step_over_all_classes_by_a_rule_of_keras(name, num_classes, mode, optimizer):
    """Keras squares and clips the parts of a gradient, so no row may have two."""
    check_all_classes(name, "bias", num_classes, 1, mode, optimizer)


# Those that shards refuse, since they need the scores of all classes at once.
NOT_IN_SHARDS = RANDOM | {
    "pairwise_logistic_lambda",
    "pairwise_hinge_lambda",
    "sparsemax",
    *(name for name in EVERY if name.startswith("fenchel_young")),
}
QUICK_IN_SHARDS = ["linear", "pairwise_logistic", "softmax", "warp"]
OTHERS = [name for name in EVERY if name not in {*NOT_IN_SHARDS, *QUICK_IN_SHARDS}]
OTHERS_IN_SHARDS = [pytest.param(name, marks=pytest.mark.weekly) for name in OTHERS]


@pytest.mark.keras2
@pytest.mark.often("linear", "softmax")
@pytest.mark.parametrize("name", [*QUICK_IN_SHARDS, *OTHERS_IN_SHARDS])
def test_a_step_over_two_shards(name, two_devices):
    """Two replicas with half of the examples each; the loss is a mean over all."""
    x, ids = batch_of(40, 3)
    with two_devices.scope():
        model, scores = all_classes("sharded", EVERY[name](), 40, 3)
    shards = [shard.variable for shard in model.classes.shards.local.values()]
    kernels = [
        w if isinstance(w, tf.Variable) else w.value for w in model.encoder.weights
    ]
    weights = [*(tf.convert_to_tensor(w) for w in kernels), tf.concat(shards, axis=0)]
    expected = gradients_in_float64(
        lambda *w: EVERY[name]()(ids, scores(x, *w)), weights
    )
    before = [tf.identity(w) for w in weights]
    data = tf.data.Dataset.from_tensors((x, ids))
    value = model.fit(data, shuffle=False, verbose=0).history["loss"][0]
    after = [*(tf.convert_to_tensor(w) for w in kernels), tf.concat(shards, axis=0)]
    found = [value, *((a - b) / RATE for a, b in zip(before, after, strict=True))]
    assert_close(found, expected)


# A sample of the classes.

SAMPLED = {
    "softmax": losses.SoftmaxLoss,
    "linear": Linear,
    "gBCE": lambda: losses.SigmoidCrossEntropyLoss(losses.gbce_power(20, 200)),
    "all that are mined": lambda: losses.OrderedWeightedLoss(
        rank_weights=losses.TopKWeights(2)
    ),
    "one of many is mined": lambda: losses.OrderedWeightedLoss(
        "binary", rank_weights=losses.TopKWeights(1)
    ),
}


@pytest.mark.keras2
@pytest.mark.often("cosine")
@pytest.mark.parametrize("mode, optimizer", MODES)
@pytest.mark.parametrize("kind", ["table", "cosine", "encoded"])
@pytest.mark.parametrize("name", SAMPLED)
def test_a_step_with_a_sample(name, kind, mode, optimizer):
    x, ids = batch_of(200, 1)
    number = 150 if name == "one of many is mined" else 20
    model, scores = all_classes(kind, SAMPLED[name](), 200, 1, optimizer, number)
    weights = [*model.encoder.trainable_variables, *model.classes.trainable_variables]
    # The same seed draws the same classes, whose scores are their numbers here.
    numbers = layers.ClassTable.from_rows(np.arange(200, dtype="float32")[:, None])
    probe = layers.SampledScores(numbers, number, normalize=False, seed=1)
    for _ in range(2):  # Each step draws anew.
        drawn = probe(tf.ones([BATCH, 1]), class_ids=ids, training=True).numpy()
        is_drawn = np.isfinite(drawn)
        columns = np.where(is_drawn, drawn, 0).astype(int)

        def loss(*weights, columns=columns, is_drawn=is_drawn):
            of_sample = tf.gather(scores(x, *weights), columns, batch_dims=1)
            of_sample = tf.where(is_drawn, of_sample, -np.inf)
            return SAMPLED[name]()(np.where(is_drawn[:, 0], 0, -1), of_sample)

        expected = steps_by_rule(
            optimizer, gradients_in_float64(loss, weights), weights
        )
        assert_close(changes_of_step(model, (x, ids), mode), expected)


# Heads and losses of a plain model.


@pytest.mark.parametrize("mode, optimizer", MODES)
@pytest.mark.parametrize("name", [name for name in HEADS if name != "dropout"])
def test_a_step_of_a_plain_model(name, mode, optimizer):
    """Without a graph, the tape is right."""
    if mode == "xla" and name == "encoded_strings":
        pytest.skip("XLA does not compile strings.")
    model = sequential((DIM,), dense(DIM), HEADS[name]())
    model.compile(OPTIMIZERS[optimizer](), losses.SoftmaxLoss())
    x, ids = batch_of(5, 2, width=1)

    def value():
        return losses.SoftmaxLoss()(ids, model(x)) + tf.add_n(
            [tf.zeros([]), *model.losses]
        )

    expected = with_gradients(value, *model.trainable_variables)
    assert_close(changes_of_step(model, (x, ids), mode), expected)


LONG = 200


def relevance(share):
    return (np.random.default_rng(0).random((BATCH, LONG)) < share).astype("float32")


@pytest.mark.parametrize("share", [0.02, 0.2], ids=["few positives", "many"])
def test_a_random_loss_with_a_variable_takes_the_gradient_of_its_own_step(share):
    """In lists of many items the gradient comes with the value."""
    labels = relevance(share)
    scores = tf.Variable(
        np.random.default_rng(1).normal(size=(BATCH, LONG)).astype("float32")
    )
    for function in (lambda f: f, tf.function):
        loss = OwnScale(seed=1)
        # Each step draws anew, so that the numbers of the next one would give another
        # gradient.
        for _ in range(2):
            drawn = tf.random.stateless_uniform([BATCH, LONG], loss._draw_seed())
            drawn = drawn.numpy().astype(np.float64)
            expected = np.mean((labels * drawn).sum(axis=1))

            @function
            def step(loss=loss):
                return with_gradients(lambda: loss(labels, scores), loss.scale)

            assert_allclose(step()[1], expected, rtol=1e-4)


NOISY = {
    "ndcg": lambda v: losses.GumbelApproxNDCGLoss(temperature=v, num_samples=2, seed=1),
    "softmax": lambda v: NoisySoftmax(temperature=v, num_samples=2, seed=1),
}


class NoisySoftmax(losses.GumbelNoise, losses.SoftmaxLoss):
    """Softmax of noisy scores, whose temperature may be trained."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, share", [("softmax", 0.02), ("softmax", 0.2), ("ndcg", 0.2)]
)
def test_a_variable_as_the_temperature_of_a_noisy_loss(name, share):
    labels = relevance(share)
    width = 1e-2
    scores = tf.constant(np.random.default_rng(1).normal(size=(BATCH, LONG)))

    def value(temperature):
        return float(NOISY[name](temperature)(labels, scores))

    slope = (
        (value(0.4 + width) - value(0.4 - width)) / (2 * width)
        if name == "softmax"
        else 0.0
    )
    for jit in (None, False, True):
        temperature = tf.Variable(0.4, dtype=tf.float64)
        loss = NOISY[name](temperature)

        def step(loss=loss, temperature=temperature):
            sources = scores, temperature
            return with_gradients(
                lambda: loss(labels, scores), *sources, unconnected="zero"
            )

        step = step if jit is None else tf.function(step, jit_compile=jit)
        found, of_scores, of_temperature = step()
        assert_allclose(found, value(0.4), rtol=1e-5)
        assert np.isfinite(of_scores).all() and np.any(of_scores)
        assert_allclose(of_temperature, slope, rtol=1e-2)


# Gradients of tables in a training loop of one's own.


def one_table(classes):
    """Calls that look up rows of one table, some of them twice."""
    ids = tf.constant([[3, 5, 3], [5, 0, 3]])
    sampled = layers.SampledScores(classes, num_sampled=30, normalize=False, seed=1)
    sampled.build((None, DIM))
    over_classes = layers.DotProductHead(classes).over_classes
    top = losses.OrderedWeightedLoss("pairwise", "hinge", losses.TopKWeights(2))
    x = tf.constant(np.random.default_rng(0).normal(size=(6, DIM)), "float32")
    labels = [3] * 6
    mined = 1  # Of so few, each example has rows of its own.
    return {
        "lookup": lambda: layers.ClassEmbedding(classes)(ids),
        "sample": lambda: sampled(x, class_ids=labels),
        "mined": lambda: sampled(x, class_ids=labels, num_mined=mined),
        "all classes": lambda: top(labels, over_classes(x)),
    }


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("name", ["lookup", "sample", "mined", "all classes"])
def test_a_gradient_of_a_table_has_each_row_once(name, tied):
    if tied:
        classes = layers.TiedClasses(keras.layers.Embedding(40, DIM))
        weights = [classes._table()[0]]
    else:
        classes = layers.ClassTable(40, DIM, use_bias=name != "lookup")
        classes.build((None, DIM))
        weights = [*classes.tables()]
    call = one_table(classes)[name]
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(tf.square(call()))
    for slices in tape.gradient(value, weights):
        assert isinstance(slices, tf.IndexedSlices)
        ids = slices.indices.numpy()
        values = slices.values.numpy().reshape(len(slices.indices), -1)
        touched = ids[np.any(values != 0, axis=1)]
        assert len(touched) == len(set(touched)) > 0
        assert len(ids) > len(set(ids))  # Else this would show nothing.


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("num_sampled", [4, None])
def test_gradients_of_a_row_of_half_precision_are_summed_in_float32(num_sampled, dtype):
    """2,048 examples of one class: in bfloat16 256 + 1 is 256."""
    table = layers.ClassTable(64, 2, dtype=dtype)
    linear = keras.layers.Activation("linear", dtype="float32")
    encoder = sequential((2,), linear)
    model = models.ExtremeClassifier(encoder, table, 2, num_sampled, normalize=False)
    table.set_weights([np.zeros((64, 2))])
    loss = losses.OrderedWeightedLoss("pairwise", "hinge", losses.TopKWeights(1))
    model.compile(optimizers.RowwiseSGD(1.0, momentum=0.9), loss)
    model.train_on_batch(np.ones((2048, 2), "float32"), np.zeros(2048, "int32"))
    # Each violates the margin by one class: the mean of 2,048 slopes of 1.
    assert_allclose(tf.cast(table.rows([0]), tf.float32), [[1.0, 1.0]])
