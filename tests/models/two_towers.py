"""Small two-tower models, for the tests of `TwoTower`."""

import numpy as np
import pytest
from tensorflow import keras

from rank4class_tf import _keras, layers, losses, metrics, models, ops

from ..contract.test_steps import dense

NUM_CANDIDATES, WIDTH, FEATURES = 40, 6, 5
# Ids that are no numbers of rows.
IDS = np.random.default_rng(7).permutation(1000)[:NUM_CANDIDATES]

needs_keras_3 = pytest.mark.skipif(
    not _keras.KERAS_3, reason="Keras 2 has no such thing."
)


def towers():
    """Linear encoders of two layers: neither gradient contains its own kernel."""
    keras.utils.set_random_seed(1)
    features = keras.Input((FEATURES,), name="features")
    candidates = keras.Model({"features": features}, dense(WIDTH, FEATURES)(features))
    return dense(WIDTH, FEATURES), candidates


def make(index=None, loss=None, rate=0.5, **options):
    """A compiled model, with an index if candidates are given."""
    names = "metrics", "weighted_metrics", "jit_compile"
    compiled = {name: options.pop(name) for name in names if name in options}
    if options.get("frequencies") is True:
        options["frequencies"] = layers.CandidateFrequencies(1000)
    model = models.TwoTower(*towers(), **{"candidate_id": "id", "seed": 3, **options})
    model.compile(keras.optimizers.SGD(rate), loss or losses.SoftmaxLoss(), **compiled)
    if index is not None:
        model.index(index)
    return model


def dense_scores(model, queries, features):
    of_candidates = model.candidate_encoder({"features": features})
    encodings = [
        np.array(x, float) for x in (model.query_encoder(queries), of_candidates)
    ]
    if model.normalize:
        encodings = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in encodings]
    return encodings[0] @ encodings[1].T / model.temperature


def weights(model):
    return [np.array(w) for w in model.trainable_variables]


def top_3():
    return losses.OrderedWeightedLoss("pairwise", "logistic", ops.TopKWeights(3))


ALL = {"memory_size": 20, "num_random": 10, "temperature": 0.3}


def towers_with_tables(dropout=0.0):
    """Towers that share a table, with weights of all kinds."""
    keras.utils.set_random_seed(2)
    shared = keras.layers.Embedding(NUM_CANDIDATES, 8)
    words = keras.Input((3,), dtype="int64", name="words")
    read = keras.layers.GlobalAveragePooling1D()(shared(words))
    read = keras.layers.Dropout(dropout, seed=5)(keras.layers.Dense(8, "tanh")(read))
    queries = keras.Model({"words": words}, keras.layers.Dense(WIDTH)(read))
    row = keras.Input((), dtype="int64", name="row")
    of_row = keras.layers.Dropout(dropout, seed=6)(shared(row))
    return queries, keras.Model({"row": row}, keras.layers.Dense(WIDTH)(of_row))


def by_ids():
    """A model with an index, whose candidates' features are their ids."""
    ids = keras.Input((), dtype="int64")
    tower = keras.Sequential([ids, keras.layers.Embedding(NUM_CANDIDATES, WIDTH)])
    model = models.TwoTower(towers()[0], tower, seed=3)
    model.compile(
        keras.optimizers.SGD(0.5), loss=losses.SoftmaxLoss(), metrics=[metrics.MRR()]
    )
    model.index(np.arange(NUM_CANDIDATES))
    return model
