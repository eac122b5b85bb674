"""TwoTower: what files and configurations keep."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from tensorflow import keras

from rank4class_tf import losses, metrics, models

from ..rounding import assert_all_close
from .two_towers import ALL, FEATURES, WIDTH, make, towers, weights

pytestmark = pytest.mark.slow


@pytest.mark.keras2
def test_resumes_where_it_was_saved(pairs, candidates, reloaded):
    def compiled():
        return make(**ALL, frequencies=True, num_mined=5, metrics=[metrics.MRR()])

    def train(model, epochs):
        model.index(candidates)
        model.fit(*pairs, batch_size=8, epochs=epochs, verbose=0, shuffle=False)
        return weights(model)

    expected = train(compiled(), 2)
    model = compiled()
    train(model, 1)
    loaded = reloaded(model)
    for name, value in model.get_config().items():
        if "encoder" not in name and name != "frequencies":
            assert loaded.get_config()[name] == value
    loaded.index(candidates)
    assert_all_close(loaded.top_k(pairs[0], 3), model.top_k(pairs[0], 3), 1e-6)
    assert loaded.evaluate(*pairs, verbose=0) == pytest.approx(
        model.evaluate(*pairs, verbose=0)
    )
    assert_all_close(train(loaded, 1), expected, 1e-5, 1e-6)


@keras.utils.register_keras_serializable(package="tests.two_tower")
class Written(keras.Model):
    """An encoder that shows no inputs, nor its width, before it is called."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.table = keras.layers.Embedding(40, 4)

    def call(self, inputs, training=None):
        return self.table(inputs)

    def get_config(self):
        return {}


def test_the_memory_of_an_encoder_without_inputs_is_saved(tmp_path):
    queries = np.arange(24) % 7
    ids = np.arange(24)

    def fit(model):
        return model.fit(queries, ids, batch_size=6, shuffle=False, verbose=0).history[
            "loss"
        ]

    model = models.TwoTower(Written(), Written(), memory_size=8)
    model.compile("sgd", loss=losses.SoftmaxLoss())
    fit(model)
    model.save(tmp_path / "m.keras")
    expected = fit(model)
    assert fit(keras.models.load_model(tmp_path / "m.keras")) == pytest.approx(
        expected, rel=1e-5
    )


def towers_of_one_embedding(kind):
    embedding = keras.layers.Embedding(9, 4)
    dense = keras.layers.Dense(4)
    one = keras.Input((), dtype="int32")
    some = keras.Input((3,), dtype="int32")
    candidates = keras.Model(one, dense(embedding(one)))
    if kind == "sequential":
        first = keras.Input((), dtype="int32")
        return keras.Sequential([first, embedding, dense]), candidates, np.arange(9)
    mean = keras.layers.GlobalAveragePooling1D()
    of_some = embedding(some)
    both = dense(mean(of_some)) + dense(mean(of_some[:, :2]))
    return keras.Model(some, both), candidates, np.arange(27).reshape(9, 3) % 9


@pytest.mark.parametrize("kind", ["functional", "sequential"])
def test_towers_that_share_layers(kind, tmp_path, reloaded):
    def compiled():
        *towers, x = towers_of_one_embedding(kind)
        model = models.TwoTower(*towers)
        model.compile("sgd", loss=losses.SoftmaxLoss())
        return model, x

    (model, x) = compiled()
    (other, _) = compiled()
    for _ in range(2):  # What was loaded saves and loads too.
        model.fit(x, np.arange(9), verbose=0)
        loaded = reloaded(model)
        assert len(loaded.trainable_variables) == 3
        for name, features in (
            ("query_encoder", x),
            ("candidate_encoder", np.arange(9)),
        ):
            ours = getattr(loaded, name)(features)
            theirs = getattr(model, name)(features)
            assert_array_equal(ours, theirs)
        model.save_weights(tmp_path / "m.weights.h5")
        other.load_weights(tmp_path / "m.weights.h5")
        assert_all_close(weights(other), weights(model), 0)
        model = loaded


def test_a_configuration_alone_makes_the_model_again(pairs):
    """Outside of a file Keras marks no layer as shared."""
    queries = keras.Input((FEATURES,))
    encoder = keras.Model(queries, keras.layers.Dense(WIDTH)(queries))
    model = models.TwoTower(encoder, towers()[1], candidate_id="id")
    copy = models.TwoTower.from_config(model.get_config())
    copy.set_weights(model.get_weights())
    assert_array_equal(copy(pairs[0]), model(pairs[0]))


@keras.utils.register_keras_serializable("tests")
class Deep(keras.layers.Layer):
    """A layer of a user, whose option has the name of a model's list of layers."""

    def __init__(self, layers, **kwargs):
        super().__init__(**kwargs)
        self.layers = layers

    def call(self, inputs):
        return inputs * self.layers[-1]

    def get_config(self):
        return {**super().get_config(), "layers": self.layers}


@pytest.mark.keras2
def test_an_encoder_may_have_an_option_layers(pairs):
    encoder = keras.Sequential([keras.Input((FEATURES,)), Deep([64, WIDTH])])
    for of_queries in (encoder, Deep([64, WIDTH])):
        model = models.TwoTower(of_queries, encoder)
        copy = models.TwoTower.from_config(model.get_config())
        assert_array_equal(copy(pairs[0]), model(pairs[0]))
