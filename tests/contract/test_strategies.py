"""The strategy matrix, reduced: two devices equal one, an uneven last batch too."""

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_array_equal
from tensorflow import keras

from rank4class_tf import losses, metrics, models, optimizers
from scripts.robustness import strategies
from scripts.robustness.strategies import CONTROL, Cell

from ..small_models import linear

pytestmark = pytest.mark.slow

LOSSES = ["rankmax", "pairwise_hinge_lambda", "approx_ndcg"]


@pytest.mark.parametrize(
    "cell, names",
    [
        pytest.param(
            Cell("losses", "padded", data="one_left"), LOSSES, marks=pytest.mark.keras2
        ),
        (Cell("heads", "ids"), ["options", "encoded_strings"]),
    ],
    ids=["losses", "heads"],
)
def test_two_devices_equal_one(cell, names, two_devices):
    """Metrics have a test in `test_metrics.py`; `tests/models` trains each model."""
    expected = strategies.train(
        cell.reference("mirrored"), names, tf.distribute.get_strategy()
    )
    results = strategies.train(cell, names, two_devices)
    assert list(results) == list(expected) == names
    for name in names:
        distance = strategies.distance(results[name], expected[name])
        assert distance <= strategies.TOLERANCES["float32"], name


@pytest.mark.parametrize("kind", strategies.LABELS)
def test_all_objects_run(kind, two_devices):
    results = strategies.run_cell(strategies.row(kind)[0], two_devices)
    assert set(results) == {*strategies.objects(kind), CONTROL}
    assert not [name for name, result in results.items() if "error" in result]


class Slices(keras.utils.Sequence):
    """Batches that are slices of arrays, whose memory TensorFlow shares."""

    def __init__(self, *arrays):
        super().__init__()
        self.arrays = arrays

    def __len__(self):
        return len(self.arrays[0]) // 16

    def __getitem__(self, index):
        return tuple(x[16 * index : 16 * (index + 1)] for x in self.arrays)


def aligned(values, dtype):
    """A copy that begins where TensorFlow wants arrays to begin: others it copies."""
    values = np.asarray(values, dtype)
    memory = np.empty(values.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    copy = memory[start : start + values.nbytes].view(dtype).reshape(values.shape)
    copy[...] = values
    return copy


def some_labels(form, rng):
    if form == "ids":
        return aligned(rng.integers(0, 16, 64), "int32")
    if form == "padded":
        return aligned(np.where(rng.random((64, 8)) < 0.5, -1, np.arange(8)), "int32")
    return aligned(rng.integers(-1, 3, (64, 16)), "float32")


def batches(is_static, *arrays):
    """Batches of 16 that are slices of arrays; their size is known or not."""
    if not is_static:
        return Slices(*arrays)
    specs = tuple(tf.TensorSpec([16, *x.shape[1:]], x.dtype) for x in arrays)
    slices = Slices(*arrays)
    dataset = tf.data.Dataset.from_generator(
        lambda: (slices[i] for i in range(len(slices))), output_signature=specs
    )
    return dataset.apply(tf.data.experimental.assert_cardinality(len(slices)))


def positive(rng, shape):
    """Weights of examples."""
    return aligned(rng.uniform(1, 2, shape), "float32")


def check_arrays_stay(model, is_static, *arrays):
    before = [x.copy() for x in arrays]
    model.fit(batches(is_static, *arrays), epochs=3, shuffle=False, verbose=0)
    for old, new in zip(before, arrays, strict=True):
        assert_array_equal(new, old)


known = pytest.mark.parametrize("is_static", [False, True], ids=["unknown", "known"])


@known
@pytest.mark.parametrize("form", ["ids", "padded", "relevance"])
@pytest.mark.parametrize("name", ["softmax_loss", "rankmax_loss"])
def test_fit_leaves_the_arrays_of_the_caller(name, form, is_static, rng, two_devices):
    """Up to 32 of 64 weights were divided by the size of a batch; labels changed."""
    labels = some_labels(form, rng)
    weights = positive(rng, 64)
    features = aligned(rng.normal(size=(64, 4)), "float32")
    with two_devices.scope():
        model = linear(
            4,
            16,
            loss=losses.get(name),
            metrics=[metrics.NDCG(3)],
            weighted_metrics=[metrics.MRR()],
        )
    check_arrays_stay(model, is_static, features, labels, weights)


OF_IDS = [(None, ()), (4, ()), (None, (5,)), (4, (5,)), ("a plain model", (5,))]


@known
@pytest.mark.parametrize("num_sampled, length", OF_IDS)
def test_fit_of_ids_leaves_arrays(num_sampled, length, is_static, rng, two_devices):
    shape = (64, *length)
    items = aligned(rng.integers(0, 16, shape), "int32")
    labels = aligned(rng.integers(0, 16, shape), "int32")
    weights = positive(rng, shape)
    with two_devices.scope():
        inputs = keras.Input(length, dtype="int32")
        encodings = keras.layers.Embedding(16, 4)(inputs)
        if num_sampled == "a plain model":
            model = keras.Model(inputs, keras.layers.Dense(16)(encodings))
        else:
            encoder = keras.Model(inputs, encodings)
            model = models.ExtremeClassifier(encoder, 16, 4, num_sampled)
        model.compile(
            optimizers.RowwiseSGD(0.1),
            losses.SoftmaxLoss(),
            weighted_metrics=[metrics.MRR()],
        )
    check_arrays_stay(model, is_static, items, labels, weights)


@known
def test_fit_of_two_towers_leaves_arrays(is_static, rng, two_devices):
    ids = some_labels("ids", rng)
    weights = positive(rng, 64)
    queries = aligned(rng.normal(size=(64, 4)), "float32")
    with two_devices.scope():
        encoder = linear(4, 4)
        inputs = keras.Input((), dtype="int32")
        items = keras.Model(inputs, keras.layers.Embedding(16, 4)(inputs))
        model = models.TwoTower(encoder, items, memory_size=32)
        model.compile(optimizers.RowwiseSGD(0.1), losses.SoftmaxLoss())
    check_arrays_stay(model, is_static, queries, ids, weights)
