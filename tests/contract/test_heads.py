"""What holds for every head."""

import json

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_array_equal
from tensorflow import keras

import rank4class_tf as r4c

from ..refused import refused
from ..rounding import assert_same_sums, longest_sum
from ..small_models import sequential
from . import rows
from .head_table import HEADS

pytestmark = pytest.mark.parametrize("make", HEADS.values(), ids=HEADS)

WIDTH, NUM_CLASSES = 4, 5


@pytest.fixture
def encodings(normal):
    return normal(3, WIDTH)


def test_maps_encodings_to_class_scores(make, encodings):
    head = make()
    scores = head(encodings)
    assert scores.shape == (3, NUM_CLASSES) and scores.dtype == tf.float32
    assert tuple(head.compute_output_shape((None, WIDTH))) == (None, NUM_CLASSES)
    assert head(np.zeros([0, WIDTH], "float32")).shape == (0, NUM_CLASSES)


def test_each_list_stands_alone(make, encodings):
    head = make()
    rows = [head(encodings[i : i + 1]) for i in range(3)]
    assert_same_sums(head(encodings), np.concatenate(rows), longest_sum(head))


def test_classes_differ_and_all_weights_learn(make, encodings):
    head = make()
    model = sequential((WIDTH,), head)
    # `test_steps.py` trains in graphs.
    model.compile(keras.optimizers.SGD(0.1), loss="mse", run_eagerly=True)
    before = [np.array(w) for w in head.trainable_variables]
    assert (np.ptp(model(encodings), axis=1) > 1e-4).all()
    model.fit(encodings, np.ones([3, NUM_CLASSES]), verbose=0)
    assert len(before) == len(model.trainable_variables) > 0
    for old, new in zip(before, map(np.array, head.trainable_variables), strict=True):
        assert np.abs(new - old).max() > 0


def test_xla_equals_eager(make, encodings, request):
    if "strings" in request.node.callspec.id:
        pytest.skip("XLA has no strings.")
    head = make()
    expected = head(encodings)
    assert_same_sums(
        tf.function(head, jit_compile=True)(encodings), expected, longest_sum(head)
    )


def test_mixed_precision(make, encodings, mixed_precision):
    head = make()
    assert head(encodings).dtype == tf.bfloat16
    assert all(w.dtype == "float32" for w in head.trainable_variables)


@pytest.mark.keras2
def test_round_trip_of_config(make):
    head = make(name="mine")
    config = head.get_config()
    assert config["name"] == "mine" and head.num_classes == NUM_CLASSES
    for copy in rows.copies(head, r4c.layers.get_head):
        assert type(copy) is type(head) and copy.num_classes == NUM_CLASSES
        assert _told(copy.get_config()) == _told(config)


def _told(config):
    """A configuration as a string, without what Keras 2.15 writes of called layers."""
    if not tf.__version__.startswith("2.15."):
        return json.dumps(config)

    def without_shapes(part):
        return {key: value for key, value in part.items() if key != "build_config"}

    return json.dumps(json.loads(json.dumps(config), object_hook=without_shapes))


@pytest.mark.keras2
def test_files_and_checkpoints_keep_the_scores(make, encodings, tmp_path, reloaded):
    model = sequential((WIDTH,), make())
    expected = model(encodings)
    assert_array_equal(reloaded(model)(encodings), expected)
    model.save_weights(tmp_path / "model.weights.h5")
    other = sequential((WIDTH,), make())
    other.load_weights(tmp_path / "model.weights.h5")
    assert_array_equal(other(encodings), expected)
    path = tf.train.Checkpoint(model=model).save(str(tmp_path / "checkpoint"))
    other = sequential((WIDTH,), make())
    other.set_weights(
        [x + 1 if x.dtype == np.float32 else x for x in other.get_weights()]
    )
    tf.train.Checkpoint(model=other).restore(path).assert_existing_objects_matched()
    assert_array_equal(other(encodings), expected)


@pytest.mark.parametrize("shape", [(3,), ()])
def test_input_must_be_encodings(make, shape):
    with refused(r"`inputs` must have the shape \[batch, d\]"):
        make()(np.zeros(shape, "float32"))
