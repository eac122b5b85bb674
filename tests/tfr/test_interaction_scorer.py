"""InteractionScorer: the heads of this package as a scorer of TF-Ranking."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose
from tensorflow import keras

import rank4class_tf as r4c
from rank4class_tf import tfr
from tests.derivatives import with_gradients
from tests.refused import refused
from tests.rounding import assert_all_close
from tests.tfr import pipelines
from tests.tfr.pipelines import _tfr

pytestmark = pytest.mark.keras2


def model_builder(scorer, example_spec=pipelines.EXAMPLE_SPEC):
    of_specs = _tfr.keras.model.FeatureSpecInputCreator(
        pipelines.CONTEXT_SPEC, example_spec
    )
    return _tfr.keras.model.ModelBuilder(
        input_creator=of_specs,
        preprocessor=_tfr.keras.model.PreprocessorWithSpec(),
        scorer=scorer,
        mask_feature_name=pipelines.MASK,
        name="scorer",
    )


def inputs(rng, class_ids, mask):
    return {
        "features": tf.constant(rng.normal(size=(len(class_ids), 4)), tf.float32),
        "class_id": tf.constant(class_ids)[..., None],
        "mask": tf.constant(mask),
    }


class OfAUser(r4c.layers.Interaction):
    def score_candidates(self, encodings, candidates, training=None):
        return -tf.norm(encodings[:, tf.newaxis] - candidates, axis=-1)


@pytest.mark.parametrize(
    "interaction, options",
    [
        ("latent_cross", {"units": (8, 7)}),
        ("concat", {"units": (8, 7)}),
        ("dot_product", {}),
        (OfAUser, {}),
    ],
)
def test_scores_are_those_of_the_head(rng, interaction, options):
    """A head's score of every class, gathered for the classes of a list."""
    encoder = keras.layers.Dense(6)
    embedding = keras.layers.Embedding(5, 6)
    scorer = tfr.InteractionScorer(encoder, embedding, interaction, **options)
    model = model_builder(scorer).build()
    model.set_weights([rng.normal(size=weight.shape) for weight in model.get_weights()])
    class_ids = np.array([[3, 1, 4], [0, 0, 2]])
    given = inputs(rng, class_ids, np.ones((2, 3), bool))

    by_name = isinstance(interaction, str)
    make = functools.partial(r4c.layers.get_interaction, interaction)
    head = r4c.layers.Head(5, make(**options) if by_name else interaction())
    encodings = encoder(given["features"])
    head(encodings)
    (layer,) = (x for x in model.layers if type(x) is type(head.interaction))
    head.classes.embeddings.assign(embedding.embeddings)
    head.interaction.set_weights(layer.get_weights())
    expected = np.take_along_axis(head(encodings).numpy(), class_ids, axis=1)
    assert_allclose(model(given), expected, rtol=1e-5)


def test_padding_changes_nothing(rng):
    """Neither its ids nor NaN features: scores and gradients are those without it."""
    spec = {**pipelines.EXAMPLE_SPEC, "x": tf.io.FixedLenFeature([2], tf.float32)}
    embedding = keras.layers.Embedding(5, 6)
    dense = keras.layers.Dense(6)

    def class_encoder(features):
        return embedding(features["class_id"]) + dense(features["x"])

    scorer = tfr.InteractionScorer(keras.layers.Dense(6), class_encoder, units=(8,))
    model = model_builder(scorer, spec).build()

    def scores_and_gradients(width, filling):
        values = np.random.default_rng(0)
        given = inputs(values, np.array([[3, 1], [0, 2]]), np.ones((2, 2), bool))
        given["x"] = tf.constant(values.normal(size=(2, 2, 2)), tf.float32)
        for name, value in filling.items():
            paddings = [[0, 0], [0, width - 2]] + [[0, 0]] * (
                given[name].shape.rank - 2
            )
            given[name] = tf.pad(given[name], paddings, constant_values=value)
        loss = r4c.losses.RankmaxLoss(label_format="ids")
        _, *slopes = with_gradients(
            lambda: loss([0, 1], model(given)), *model.trainable_variables
        )
        return model(given).numpy(), slopes

    plain, plain_gradients = scores_and_gradients(2, {})
    filling = {"class_id": -1, "x": np.nan, "mask": False}
    padded, padded_gradients = scores_and_gradients(5, filling)
    assert_allclose(padded[:, :2], plain, rtol=1e-6)
    assert (padded[:, 2:] == np.finfo("float32").min).all()
    assert_all_close(padded_gradients, plain_gradients, 1e-5, 1e-7)


def test_several_tasks_have_encoders_of_their_own(rng):
    """They are functions that make layers."""
    scorer = tfr.InteractionScorer(
        lambda features: keras.layers.Dense(6)(features),
        lambda class_ids: keras.layers.Embedding(5, 6)(class_ids),
        tasks=["click", "buy"],
        units=(16,),
    )
    model = model_builder(scorer).build()
    given = inputs(rng, [[3, 1, -1]] * 8, [[True, True, False]] * 8)
    scores = model(given)
    assert set(scores) == {"click", "buy"} and scores["buy"].shape == (8, 3)
    before = [w.numpy() for w in model.trainable_weights]
    model.compile(
        "sgd", dict.fromkeys(scores, r4c.losses.SoftmaxLoss(label_format="relevance"))
    )
    model.fit(
        given, dict.fromkeys(scores, tf.constant([[1.0, 0.0, -1.0]] * 8)), verbose=0
    )
    pairs = zip(model.trainable_weights, before, strict=True)
    # The last bias of a task moves all its scores alike.
    assert sum((w.numpy() != old).any() for w, old in pairs) >= len(before) - 2


def test_mixed_precision_ends_in_float32(mixed_precision, rng):
    scorer = tfr.InteractionScorer(keras.layers.Dense(6), keras.layers.Embedding(5, 6))
    scores = model_builder(scorer).build()(inputs(rng, [[3, -1]], [[True, False]]))
    assert scores.dtype == tf.float32 and np.isfinite(scores).all()


def test_unknown_interaction():
    with refused("concat, cosine, dot_product, .*Received: 'x'"):
        tfr.InteractionScorer(None, None, "x")
