"""Models that XLA compiles, as Keras 3 does by default on a GPU, equal their graphs."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _keras, layers, losses, metrics, models, optimizers
from rank4class_tf._tf.loops import fold_blocks

from .contract.tables import LOSSES, REPRESENTATIVES
from .refused import refused
from .small_models import linear

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not _keras.KERAS_3, reason="Keras 2 compiles on demand only."),
    pytest.mark.usefixtures("seen_gpu"),
]

BATCH, TIME, FEATURES, DIM = 4, 3, 3, 4
N = 20  # So many that XLA takes the ways of many positives.

# A dataset has an order of its own.
QUIET = {"shuffle": False, "verbose": 0}


def batches(*arrays):
    """Two batches, of a size that the dataset leaves open."""
    dataset = tf.data.Dataset.from_tensor_slices(arrays).batch(BATCH)
    assert tf.nest.flatten(dataset.element_spec)[0].shape[0] is None
    return dataset


def assert_as_in_a_graph(train, **options):
    """`train` maps arguments of `compile` to a model and numbers, equal in both."""
    keras.utils.set_random_seed(0)
    model, found = train(**options)
    assert model.jit_compile

    keras.utils.set_random_seed(0)
    model, expected = train(**options, jit_compile=False)
    assert not model.jit_compile

    assert found.keys() == expected.keys()
    for name, numbers in found.items():
        assert np.all(np.isfinite(numbers))
        np.testing.assert_allclose(numbers, expected[name], 1e-5, 1e-6, err_msg=name)


def features(rng, *shape):
    return rng.normal(size=(2 * BATCH, *shape, FEATURES)).astype(np.float32)


def several_ids(rng, *shape):
    """Three classes of each example or position."""
    drawn = rng.permuted(np.tile(np.arange(N), (2 * BATCH, *shape, 1)), axis=-1)
    return drawn[..., :3].astype(np.int32)


def relevance(ids):
    return np.eye(N, dtype=np.float32)[ids].sum(axis=-2)


ONE_OF_EACH = {case.loss: case for case in reversed(LOSSES)}.values()


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=lambda case: case.name)
def test_losses(case, rng):
    """Relevance for each class of losses; for some, class ids too, in one model."""
    ids = several_ids(rng)
    labels = {"relevance": relevance(ids)}
    if case.name in REPRESENTATIVES:
        labels |= {"one": ids[:, 0], "several": ids}
    dataset = batches(features(rng), labels)

    def train(**options):
        x = keras.layers.Input((FEATURES,))
        scores = {name: keras.layers.Dense(N, name=name)(x) for name in labels}
        model = keras.Model(x, scores)
        model.compile("sgd", {name: case.make() for name in labels}, **options)
        return model, model.fit(dataset, **QUIET).history

    assert_as_in_a_graph(train)


@pytest.mark.parametrize("form", ["several", "relevance"])
def test_several_labels_at_each_position(form, rng):
    labels = several_ids(rng, TIME)
    if form == "relevance":
        labels = relevance(labels)
    dataset = batches(features(rng, TIME), labels)

    def train(**options):
        model = keras.Sequential([keras.layers.Dense(N)])
        model.compile("sgd", losses.RankmaxLoss(), **options)
        return model, model.fit(dataset, **QUIET).history

    assert_as_in_a_graph(train)


def assert_finds_as_in_a_graph(make, dataset, queries):
    """After a fit, what a model reports, evaluates and finds."""

    def train(**options):
        model = make()
        precision = metrics.PrecisionAtK(3)
        model.compile("sgd", losses.SoftmaxLoss(), metrics=[precision], **options)
        history = model.fit(dataset, validation_data=dataset, **QUIET).history
        find = tf.function(lambda x: model.top_k(x, 3), jit_compile=model.jit_compile)
        scores, ids = find(queries)
        return model, {**history, "scores": scores.numpy(), "ids": ids.numpy()}

    assert_as_in_a_graph(train)


@pytest.mark.parametrize("positions", [False, True], ids=["examples", "positions"])
@pytest.mark.parametrize("num_sampled", [None, 8])
def test_extreme_classifier(num_sampled, positions, rng):
    shape = [TIME] * positions
    queries = features(rng, *shape)
    dataset = batches(queries, several_ids(rng, *shape)[..., 0])

    def make():
        encode = linear(*shape, FEATURES, DIM)
        return models.ExtremeClassifier(encode, N, DIM, num_sampled)

    assert_finds_as_in_a_graph(make, dataset, queries)


@pytest.mark.parametrize("name", ["RowwiseAdagrad", "RowwiseAdam"])
def test_a_table_in_shards_on_one_device(name, rng):
    queries = features(rng)
    dataset = batches(queries, several_ids(rng)[:, 0])

    def make():
        optimizer = getattr(optimizers, name)(0.03)
        classes = layers.ShardedClassTable(N, DIM, optimizer, seed=0)
        return models.ExtremeClassifier(
            linear(FEATURES, DIM), classes, DIM, num_sampled=8
        )

    assert_finds_as_in_a_graph(make, dataset, queries)


def test_two_tower(rng):
    queries, candidates = features(rng), {"x": features(rng)}
    candidates["id"] = np.arange(2 * BATCH)
    dataset = batches(queries, candidates)

    def make():
        model = two_tower()
        model.index(candidates)
        return model

    assert_finds_as_in_a_graph(make, dataset, queries)


def two_tower():
    inputs = {"x": keras.layers.Input((FEATURES,), name="x")}
    encode = keras.Model(inputs, keras.layers.Dense(DIM)(inputs["x"]))
    return models.TwoTower(linear(FEATURES, DIM), encode, candidate_id="id")


def test_a_two_tower_with_strings_before_its_index(rng):
    """Keras asks a model when it is compiled, before it sees an id."""
    candidates = {"x": features(rng), "id": np.arange(2 * BATCH).astype(str)}
    dataset = batches(features(rng), candidates)
    model = two_tower()
    model.compile("sgd", losses.SoftmaxLoss())
    with refused(r"`candidate_id` .*\(jit_compile=False\)"):
        model.fit(dataset, **QUIET)

    model = two_tower()
    model.index(candidates)
    model.compile("sgd", losses.SoftmaxLoss())
    assert not model.jit_compile
    model.fit(dataset, **QUIET)


def test_a_loop_over_no_blocks():
    def count(rows):
        sizes = []
        for size in (4, tf.shape(rows)[0]):

            def step(ids, total):
                return [total + tf.size(ids)]

            sizes += fold_blocks(step, 0, size, [tf.constant(0)])
        return sizes

    signature = [tf.TensorSpec([None])]
    compiled = tf.function(count, jit_compile=True, input_signature=signature)
    assert [int(x) for x in compiled(tf.zeros([3]))] == [0, 0]
