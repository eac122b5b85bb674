"""What the README promises: compile, fit, save, load."""

import numpy as np
import pytest
from tensorflow import keras

import rank4class_tf as r4c

pytestmark = pytest.mark.keras2


def test_learns_saves_and_loads(rng, tmp_path):
    features = rng.normal(size=(400, 8)).astype(np.float32)
    labels = (features @ rng.normal(size=(8, 6))).argmax(axis=1)
    head = r4c.layers.get_head("concat", classes=6, units=(16, 16))
    model = keras.Sequential([keras.layers.Input((8,)), head])
    model.compile(
        keras.optimizers.Adam(0.02),
        loss=r4c.losses.get("approx_ndcg_loss"),
        metrics=[r4c.metrics.NDCG(5), r4c.metrics.TopKAccuracy(1), r4c.metrics.TopKAccuracy(5)],
    )
    model.fit(features, labels, epochs=12, verbose=0)
    results = model.evaluate(features, labels, verbose=0, return_dict=True)
    assert set(results) == {"loss", "ndcg_at_5", "top_k_accuracy_at_1", "top_k_accuracy_at_5"}
    # Chance is 1/6; the labels are a linear function of the features.
    assert results["top_k_accuracy_at_1"] > 0.6

    scores = model.predict(features, verbose=0)
    ranks = 1 + (scores > scores[np.arange(400), labels][:, None]).sum(axis=1)
    assert results["top_k_accuracy_at_1"] == pytest.approx((ranks == 1).mean(), abs=1e-6)
    discounts = np.where(ranks <= 5, 1 / np.log2(1 + ranks), 0)
    assert results["ndcg_at_5"] == pytest.approx(discounts.mean(), abs=1e-6)

    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    np.testing.assert_array_equal(loaded.predict(features, verbose=0), scores)
    again = loaded.evaluate(features, labels, verbose=0, return_dict=True)
    assert again == pytest.approx(results, rel=1e-5)
    loaded.fit(features, labels, epochs=1, verbose=0)


def test_ids_beyond_float32(rng):
    num_classes = 2**24 + 3
    scores = np.zeros((1, num_classes), np.float32)
    scores[0, 2**24 + 1] = 1.0
    loss = r4c.losses.RankmaxLoss(margin=0.5)
    assert loss(np.array([2**24 + 1]), scores) == 0.0  # nothing else within the margin
    assert loss(np.array([2**24]), scores) > 1.0
