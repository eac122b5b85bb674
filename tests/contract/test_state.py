"""Nothing about a batch stays on an object: a call leaves its attributes unchanged."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf import losses

from ..derivatives import value_and_gradient
from . import tables
from .head_table import HEADS

pytestmark = pytest.mark.keras2

# Keras 2 keeps the result of a metric for its SavedModel.
OF_KERAS = {"_call_result"}
CONTAINERS = (list, dict, set)


def attributes(thing):
    """The attributes of an object; what can change in place is copied."""
    kept = {name: value for name, value in vars(thing).items() if name not in OF_KERAS}
    return {n: x.copy() if isinstance(x, CONTAINERS) else x for n, x in kept.items()}


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        same = found[name] is value
        if isinstance(value, (*CONTAINERS, tuple, bool, int, float, str)):
            same = same or found[name] == value
        assert same, f"A call changes `{name}` from {value} to {found[name]}."


def check(thing, call, *arguments):
    """Calls twice, and traces a graph, which runs no Python when it is called."""
    for function in (call, call, tf.function(call).get_concrete_function):
        before = attributes(thing)
        function(*arguments)
        assert_same(attributes(thing), before)


def step(loss, labels, scores):
    return value_and_gradient(functools.partial(loss, labels), scores)


LABELS = np.array([[0, 0, 1, 2, 0], [1, 0, 0, 0, -1]], "float32")
SCORES = tf.constant([[0.5, 1.0, 0.25, -1.0, 0.0], [1.0, 2.0, 0.0, -2.0, 3.0]])
MATRIX = [[0.75 if i == j else 0.0625 for j in range(5)] for i in range(5)]
COMBINED = {
    "forward_correction": lambda: losses.ForwardCorrectionLoss(MATRIX),
    "weighted_sum": lambda: losses.WeightedSumLoss(
        [losses.SoftmaxLoss(), losses.GumbelApproxNDCGLoss(seed=1)], [1.0, 0.5]
    ),
}
LOSSES = {case.name: case.make for case in [*tables.LOSSES, *tables.OPTIONS]} | COMBINED
# How each is made, and of how many columns.
METRICS = {case.name: (case.make, 5) for case in tables.METRICS}
METRICS |= {name: (make, 4) for name, make in tables.DATASET_METRICS.items()}


OF_A_FORMULA = tables.FORMULAS | COMBINED.keys()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.weekly] * (name not in OF_A_FORMULA))
        for name in LOSSES
    ],
)
def test_a_loss_keeps_its_attributes(name, monkeypatch):
    """While its formula runs, too."""
    loss = LOSSES[name]()
    formula = getattr(type(loss), "compute", None)
    expected = attributes(loss)

    @functools.wraps(formula or step)
    def compute(self, lists):
        assert_same(attributes(self), expected)
        return formula(self, lists)

    if formula is not None:  # A sum of losses has none.
        monkeypatch.setattr(type(loss), "compute", compute)
    check(loss, lambda scores: step(loss, LABELS, scores), SCORES)


@pytest.mark.parametrize("case", tables.SORTER_LOSSES)
def test_a_loss_of_a_sorter_keeps_its_attributes(case, rng, normal):
    loss = case.make()
    labels = case.labels(rng)
    scores = tf.constant(normal(8, case.width))
    loss(labels, scores)  # A learned sorter builds itself.
    check(loss, lambda scores: step(loss, labels, scores), scores)


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_keeps_its_attributes(name):
    make, width = METRICS[name]
    metric = make()

    def update(labels, scores):
        # In a graph of Keras 2 it returns an operation.
        metric.update_state(labels, scores)

    check(metric, update, LABELS[:, :width], SCORES[:, :width])
    check(metric, metric.result)


@pytest.mark.parametrize("case", tables.SORTERS)
def test_a_sorter_keeps_its_attributes(case, normal):
    sorter = case.make()
    scores = tf.constant(normal(2, case.length or 5))
    sorter(scores)
    check(sorter, sorter, scores)


@pytest.mark.parametrize("name", HEADS)
def test_a_head_keeps_its_attributes(name):
    head = HEADS[name]()
    encodings = SCORES[:, :4]
    head(encodings)
    for thing in (head, head.interaction, head.classes):
        check(thing, lambda x: head(x, training=True), encodings)


@pytest.mark.parametrize("name", tables.OPTIMIZERS)
def test_an_optimizer_keeps_its_attributes(name):
    optimizer = tables.OPTIMIZERS[name]()
    table = tf.Variable(tf.ones([4, 2]))

    def apply(rows):
        optimizer.apply_gradients([(tf.IndexedSlices(rows, [1, 3], [4, 2]), table)])

    apply(tf.ones([2, 2]))  # Keras makes the slots.
    check(optimizer, apply, tf.ones([2, 2]))
