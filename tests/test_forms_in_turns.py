"""One model, or one graph, that is called with labels of several ranks and widths."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import rank4class_tf as r4c

pytestmark = pytest.mark.keras2


def compiled():
    model = keras.Sequential([keras.layers.Input((5,)), keras.layers.Dense(20)])
    model.compile("sgd", loss=r4c.losses.RankmaxLoss(), metrics=[r4c.metrics.NDCG(3)])
    return model


def test_a_model_takes_forms_in_turns(rng):
    """Keras traces a model for labels of any rank after it has met two."""
    features, ids = rng.normal(size=(8, 5)), rng.integers(0, 20, 8)
    padding, model = -np.ones_like(ids), compiled()
    forms = ids[:, None], ids, np.stack([ids, padding], 1), np.stack([padding, ids, ids], 1)
    found = [model.evaluate(features, labels, verbose=0) for labels in (*forms, *forms[:2])]
    np.testing.assert_allclose(found, [found[0]] * 6, rtol=1e-6)


def test_labels_of_all_items_after_ids_raise(rng):
    features, ids = rng.normal(size=(8, 5)), rng.integers(0, 20, 8)
    model = compiled()
    model.fit(features, ids, verbose=0)
    with pytest.raises(tf.errors.InvalidArgumentError, match="`label_format` must be"):
        model.fit(features, np.eye(20, dtype=int)[ids], verbose=0)
    with pytest.raises(tf.errors.InvalidArgumentError, match="zeros and ones is neither.*20 items"):
        model.fit(features, np.eye(30, dtype=int)[ids], verbose=0)


def test_where_nothing_can_raise_labels_of_all_items_after_ids_are_nan(as_for_xla):
    loss, scores = r4c.losses.SoftmaxLoss(reduction="none"), tf.zeros([2, 4])
    compute = tf.function(loss, [tf.TensorSpec(None, tf.int64), tf.TensorSpec([2, 4])])
    assert np.isnan(compute(np.eye(4, dtype=int)[:2], scores)).all()
    for labels in ([1, 2], [[1], [2]], [[1, 2], [3, -1]]):
        np.testing.assert_allclose(compute(np.array(labels), scores), loss(labels, scores))
