"""What a compiled step may hold, so that a TPU can run it; see `docs/distribution.md`.

All objects of the tables are traced with static shapes, and their operations listed.
One that XLA does not compile, or to a shape that only running tells, fails. Graphs of
losses and metrics are run too, for lists so long that many positives take ways of their
own, and equal eager mode.
"""

import functools

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose
from tensorflow.python.framework import kernels

from rank4class_tf import layers, losses, metrics, models

from ..derivatives import value_and_gradient
from ..rounding import assert_all_close
from ..small_models import linear
from .head_table import HEADS
from .tables import FORMULAS, LOSSES, METRICS, OPTIMIZERS, REPRESENTATIVES, SORTERS

pytestmark = pytest.mark.usefixtures("as_for_xla")

BATCH, N = 4, 100  # So many items that many positives take the ways of their own.

# XLA compiles these to shapes that only running tells.
DYNAMIC = {"NonMaxSuppressionV3", "NonMaxSuppressionV4", "Unique", "UniqueV2", "Where"}
# No computation: what stands for an argument.
ARGUMENT = "Placeholder"
DTYPES = {
    tf.float32,
    tf.bfloat16,
    tf.int32,
    tf.int64,
    tf.uint32,
    tf.bool,
    tf.resource,
    tf.variant,
}

SCORES = tf.TensorSpec([BATCH, N])
FORMS = {
    "ids": tf.TensorSpec([BATCH], tf.int32),
    "padded": tf.TensorSpec([BATCH, 3], tf.int32),
}
FORMS["relevance"] = SCORES


def in_each_form(cases):
    """Parametrises by cases and forms; a few ids of a list are a path of the base."""
    pairs = [(c, form) for form in FORMS for c in cases]
    pairs = [
        (c, form) for c, form in pairs if form != "padded" or c.name in REPRESENTATIVES
    ]
    ids = [f"{case.name}-{form}" for case, form in pairs]
    return pytest.mark.parametrize("case, form", pairs, ids=ids)


@functools.cache
def is_known(operation):
    """Whether XLA compiles an operation, by TensorFlow's list, to a static shape."""
    tf.function(
        lambda: tf.zeros([]), jit_compile=True
    )()  # The first one fills the list.
    kinds = {
        k.device_type for k in kernels.get_registered_kernels_for_op(operation).kernel
    }
    return operation == ARGUMENT or (
        "XLA_CPU_JIT" in kinds and operation not in DYNAMIC
    )


def unknown(step, *specs):
    """Operations and dtypes of a function that are not known; see `unknown_of`."""
    return unknown_of(tf.function(step).get_concrete_function(*specs))


def unknown_of(traced):
    """Unknown operations and dtypes of a traced function and all that it calls."""
    graph = traced.graph.as_graph_def()
    found = set()
    for node in [
        *graph.node,
        *(node for f in graph.library.function for node in f.node_def),
    ]:
        dtypes = [
            t
            for value in node.attr.values()
            for t in (value.type, *value.list.type)
            if t
        ]
        strange = {tf.as_dtype(t) for t in dtypes} - DTYPES
        if not is_known(node.op) or strange:
            found.add((node.op, *sorted(dtype.name for dtype in strange)))
    return found


def loss_step(loss):
    def step(labels, scores):
        return value_and_gradient(
            lambda x: tf.reduce_mean(loss.call(labels, x)), scores
        )

    return step


def metric_step(metric):
    def step(*batch):
        metric.update_state(*batch)
        return metric.result()

    return step


def layer_step(layer):
    def step(inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            value = tf.reduce_sum(tf.square(layer(inputs, training=True)))
        return value, tape.gradient(value, [inputs, *layer.trainable_variables])

    return step


def labels_of(form, rng):
    ids = np.stack([rng.permutation(N)[:3] for _ in range(BATCH)])
    if form == "ids":
        return tf.constant(ids[:, 0], tf.int32)
    if form == "padded":
        ids[0, 1:], ids[1, 0], ids[2] = -1, -1, -1
        return tf.constant(ids, tf.int32)
    return tf.constant(
        rng.choice([-1, 0, 1, 3], (BATCH, N), p=[0.1, 0.6, 0.2, 0.1]), tf.float32
    )


@pytest.mark.slow
@in_each_form(LOSSES)
@pytest.mark.base(FORMULAS)
def test_losses(case, form, rng, normal, as_for_xla):
    traced = tf.function(loss_step(case.make())).get_concrete_function(
        FORMS[form], SCORES
    )
    assert not unknown_of(traced)
    batch = labels_of(form, rng), tf.constant(normal(BATCH, N))
    assert_all_close(traced(*batch), loss_step(case.make())(*batch), 1e-5, 1e-6)


@in_each_form(METRICS)
def test_metrics(case, form, rng, as_for_xla):
    traced = tf.function(metric_step(case.make())).get_concrete_function(
        FORMS[form], SCORES
    )
    assert not unknown_of(traced)
    scores = np.round(rng.normal(size=(BATCH, N)), 1)
    scores[3, 1] = np.nan
    batch = labels_of(form, rng), tf.constant(scores, tf.float32)
    assert_allclose(traced(*batch), metric_step(case.make())(*batch), rtol=1e-6)


@pytest.mark.parametrize(
    "metric",
    [
        metrics.MacroAverage(metrics.MRR([1, 3]), N),
        metrics.RecallAtK(3, average="micro"),
        metrics.MeanAveragePrecision(N, max_examples=9),
        metrics.SpearmanCorrelation(N, max_examples=9),
        metrics.ExpectedCalibrationError(probabilities=layers.Probabilities()),
    ],
)
def test_metrics_of_several_lists(metric):
    assert not unknown(metric_step(metric), FORMS["relevance"], SCORES)


@pytest.mark.parametrize("case", SORTERS)
def test_sorters(case):
    layer = case.make()
    spec = tf.TensorSpec([BATCH, case.length or N])
    layer(tf.zeros(spec.shape))
    found = unknown(layer_step(layer), spec)
    if case.name == "soft_rank":  # Its isotonic regression is in float64, see the page.
        assert {dtype for _, *dtypes in found for dtype in dtypes} == {"float64"}
    else:
        assert not found


# The encoder of strings looks up words, which belongs into the input pipeline of a TPU.
@pytest.mark.parametrize("name", HEADS.keys() - {"encoded_strings"})
def test_heads(name):
    layer = HEADS[name]()
    layer(tf.zeros([BATCH, 4]))
    assert not unknown(layer_step(layer), tf.TensorSpec([BATCH, 4]))


MINED = losses.OrderedWeightedLoss("binary", "hinge", losses.TopKWeights(3))
SOFTMAX = losses.SoftmaxLoss()
STEPS: list = [
    ("sgd", 1, MINED, 20),
    ("momentum", 1, SOFTMAX, 20),
    ("adagrad", 3, MINED, 20),
    ("adam", 1, SOFTMAX, None),
    ("adam", 3, SOFTMAX, 600),
]


@pytest.mark.often("adagrad", "None")
@pytest.mark.parametrize("optimizer, num_ids, loss, num_sampled", STEPS)
def test_extreme_classifier(optimizer, num_ids, loss, num_sampled):
    """With each row-wise optimizer, in training and evaluation."""
    encoder = linear(5, 8)
    model = models.ExtremeClassifier(encoder, 1000, 8, num_sampled)
    precision = metrics.PrecisionAtK([1, 3])
    model.compile(OPTIMIZERS[optimizer](), loss, metrics=[precision], run_eagerly=True)
    data = np.zeros([BATCH, 5], "float32"), np.zeros([BATCH, num_ids], np.int32)
    # Builds what it needs.
    model.fit(*data, batch_size=BATCH, validation_data=data, verbose=0)
    specs = [tf.TensorSpec(x.shape, x.dtype) for x in data]
    assert not unknown(lambda x, y: model.train_step((x, y)), *specs)
    assert not unknown(lambda x, y: model.test_step((x, y)), *specs)


@pytest.mark.slow
@pytest.mark.parametrize("case", [*LOSSES, *METRICS])
@pytest.mark.base(REPRESENTATIVES)
def test_xla_sees_static_shapes_and_no_float64(case, rng):
    """In what XLA is given to compile; a dynamic dimension has `<=` there."""
    step = (metric_step if case in METRICS else loss_step)(case.make())
    labels = tf.constant(rng.choice([-1, 0, 1, 2], (BATCH, N)), tf.float32)
    function = tf.function(step, jit_compile=True)
    code = function.experimental_get_compiler_ir(labels, tf.zeros([BATCH, N]))(
        stage="hlo"
    )
    assert "f64[" not in code and "<=" not in code
