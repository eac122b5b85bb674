"""How many classes a block has, and steps by blocks as large as a GPU's."""

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from rank4class_tf import layers, losses
from rank4class_tf._tf import sizes

from ..derivatives import with_gradients
from ..rounding import assert_all_close

BATCH, CLASSES, WIDTH = 6, 37, 4


@pytest.mark.parametrize(
    ("device", "rows", "classes", "expected"),
    [
        ("CPU", 256, 1_000_000, 1024),
        ("CPU", 4096, 1_000_000, 256),
        ("CPU", 1 << 21, 1_000_000, 1),
        ("CPU", 256, 10, 10),
        # An eighth of the classes,
        ("GPU", 4096, 50_000, 6144),
        ("TPU", 4096, 50_000, 6144),
        # at least 2^24 scores, at most 2^26, at most 2^16 classes,
        ("GPU", 1024, 50_000, 16_384),
        ("GPU", 32_768, 256_000, 2048),
        ("GPU", 256, 1_000_000, 65_536),
        # a multiple of 128, and no more classes than there are.
        ("GPU", 1 << 20, 256_000, 128),
        ("GPU", 32, 1000, 1000),
        ("GPU", 0, 1000, 1000),
    ],
)
def test_size(device, rows, classes, expected):
    assert sizes.block_size(device, rows, classes) == expected
    assert int(sizes.block_size(device, tf.constant(rows), classes)) == expected


def test_a_search_has_larger_blocks_on_a_cpu():
    assert sizes.block_size("CPU", 256, 10**6, sizes.SEARCHED) == 16_384
    assert sizes.block_size("CPU", 1024, 10**6, sizes.SEARCHED) == 4096
    of_gpu = sizes.block_size("GPU", 256, 10**6, sizes.SEARCHED)
    assert of_gpu == sizes.block_size("GPU", 256, 10**6)


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """The rule of a GPU, for few scores: here 8 classes a block, and 5 are left."""
    monkeypatch.setattr(sizes, "device_type", lambda: "GPU")
    monkeypatch.setattr(sizes, "_TILE", 8)
    monkeypatch.setattr(sizes, "_FEWEST_SCORES", BATCH * 8)
    monkeypatch.setattr(sizes, "MOST_SCORES", BATCH * 16)


def weights(dtype=np.float64):
    """Encodings and rows, as a dtype holds them."""
    generator = np.random.default_rng(0)
    shapes = (BATCH, WIDTH), (CLASSES, WIDTH)
    exact = [generator.normal(size=shape) for shape in shapes]
    return [np.float64(tf.cast(tf.cast(x, dtype), "float64")) for x in exact]


def a_head(rows, dtype=None):
    table = layers.ClassTable(CLASSES, dtype=dtype)
    head = layers.DotProductHead(table, dtype=dtype)
    head.build((None, WIDTH))
    table.assign(rows)
    return head


IDS = np.array([0, 36, 7, 8, -1, 20])


def given(encodings):
    return tf.constant(IDS, tf.int32), tf.constant(encodings, tf.float32)


def softmax_in_float64(encodings, rows, ids):
    """The sum of the losses, and its gradients in encodings, rows and scores."""
    scores = encodings @ rows.T
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares = powers / powers.sum(axis=1, keepdims=True)
    counted = ids >= 0
    value = -np.log(shares[np.arange(BATCH), ids])[counted].sum()
    slopes = (shares - np.eye(CLASSES)[ids]) * counted[:, np.newaxis]
    return value, slopes @ rows, slopes.T @ encodings, slopes


MODES = {"eager": {}, "graph": {"jit_compile": False}, "xla": {"jit_compile": True}}


def in_mode(mode, function, batch=None):
    """The function of ids and encodings; a graph knows only the given batch size."""
    if mode == "eager":
        return function
    specs = [tf.TensorSpec([batch], tf.int32), tf.TensorSpec([batch, WIDTH])]

    def with_known_sizes(*arguments):
        return function(*map(tf.compat.v1.placeholder_with_default, arguments, shapes))

    # As `fit` does: XLA compiles for each size of a batch, which the graph does not
    # know.
    shapes = [x.shape for x in specs]
    return tf.function(with_known_sizes, autograph=False, **MODES[mode])


@pytest.mark.parametrize("batch", [None, BATCH], ids=["unknown", "known"])
@pytest.mark.parametrize("mode", MODES)
def test_a_step_is_that_of_float64(mode, batch, as_on_a_gpu):
    encodings, rows = weights()
    head, loss = a_head(rows), losses.SoftmaxLoss(reduction="sum")
    table = head.trainable_variables[0]

    def step(ids, x):
        value, of_x, of_table = with_gradients(
            lambda: loss(ids, head.over_classes(x)), x, table
        )
        table.assign_sub(0.1 * of_table)
        return value, of_x

    value, of_encodings = in_mode(mode, step, batch)(*given(encodings))
    expected = softmax_in_float64(encodings, rows, IDS)
    assert_allclose(value, expected[0], rtol=1e-5)
    assert_allclose(of_encodings, expected[1], atol=1e-5)
    assert_allclose(table, rows - 0.1 * expected[2], atol=1e-5)


@pytest.mark.parametrize("name", ["rankmax_loss", "sparsemax_loss", "list_mle_loss"])
def test_other_losses_under_xla(name, as_on_a_gpu):
    encodings, rows = weights()
    head, loss = a_head(rows), losses.get(name)

    def step(ids, x, form=head.over_classes):
        return with_gradients(lambda: loss(ids, form(x)), x, *head.trainable_variables)

    found = in_mode("xla", step)(*given(encodings))
    expected = step(*given(encodings), form=head)
    assert_all_close(found, expected, 1e-7, 1e-5)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("mode", MODES)
def test_mixed_precision_rounds_the_factors(mode, policy, as_on_a_gpu):
    """Factors are rounded; sums, scores and the gradient of the table are float32."""
    encodings, rows = weights()
    dtype = policy.removeprefix("mixed_")
    head, loss = a_head(rows, policy), losses.SoftmaxLoss(reduction="sum")
    (table,) = head.trainable_variables
    assert table.dtype == "float32"

    def step(ids, x):
        return with_gradients(lambda: loss(ids, head.over_classes(x)), x, table)

    value, of_encodings, of_table = in_mode(mode, step)(*given(encodings))
    assert of_table.dtype == tf.float32
    exact = weights(dtype)
    expected = softmax_in_float64(*exact, IDS)
    assert_allclose(value, expected[0], rtol=1e-5)

    # XLA rounds the gradients of the scores too: each by at most this share of it.
    rounding = 2**-8 if dtype == "bfloat16" else 2**-11
    share = rounding if mode == "xla" else 0.0
    slopes = np.abs(expected[3])
    x_sizes, row_sizes = map(np.abs, exact)
    for found, right, most in (
        (of_encodings, expected[1], slopes @ row_sizes),
        (of_table, expected[2], slopes.T @ x_sizes),
    ):
        assert (np.abs(found - right) <= share * most + 1e-5).all()


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("mode", MODES)
def test_searches(mode, policy, as_on_a_gpu):
    encodings, rows = weights()
    head = layers.SampledScores(
        layers.ClassTable.from_rows(rows), normalize=False, seed=1, dtype=policy
    )
    head.build((None, WIDTH))

    def search(ids, x):
        return [*head.top_k(x, 5), *head.ranks(x, ids)]

    scores, ids, above, tied = in_mode(mode, search)(*given(encodings))
    exact_encodings, exact_rows = weights(policy.removeprefix("mixed_"))
    expected = exact_encodings @ exact_rows.T
    assert_array_equal(ids, np.argsort(-expected, axis=1)[:, :5])
    assert_allclose(scores, -np.sort(-expected, axis=1)[:, :5], rtol=1e-5)
    own = np.take_along_axis(expected, IDS[:, np.newaxis], axis=1)
    counted = IDS[:, np.newaxis] >= 0
    assert_array_equal(above, (expected > own).sum(axis=1, keepdims=True) * counted)
    assert_array_equal(tied, counted)


@pytest.mark.parametrize("name", ["softmax_loss", "rankmax_loss"])
def test_bad_input_is_nan_under_xla(name, as_on_a_gpu):
    encodings, rows = weights()
    loss = type(losses.get(name))(reduction="none")
    broken = np.where(np.arange(BATCH)[:, np.newaxis] == 2, np.nan, encodings)
    ids = np.where(np.arange(BATCH) == 3, CLASSES, IDS)
    head = a_head(rows)
    values = in_mode("xla", lambda ids, x: loss(ids, head.over_classes(x)))(
        tf.constant(ids, tf.int32), tf.constant(broken, tf.float32)
    )
    assert_array_equal(np.isnan(values), [0, 0, 1, 1, 0, 0])
