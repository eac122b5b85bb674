"""A weighted sum of losses."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import layers, losses, metrics, models, ops, optimizers

from ..derivatives import value_and_gradient

SOFTMAX, NDCG = losses.SoftmaxLoss, losses.ApproxNDCGLoss


@pytest.mark.parametrize("reduction", ["sum", "sum_over_batch_size"])
@pytest.mark.parametrize("weights", [None, np.array([0.0, 1.0, 2.0, 1.0])])
def test_it_is_the_sum(rng, reduction, weights):
    scores = rng.normal(size=(4, 6)).astype(np.float32)
    one, other = SOFTMAX(reduction=reduction), NDCG(reduction=reduction)
    both = losses.WeightedSumLoss([one, other], [1.0, 0.5])
    results = [
        value_and_gradient(lambda x, loss=loss: loss([0, 3, 2, 5], x, weights), scores)
        for loss in (one, other, both)
    ]
    for a, b, c in zip(*results, strict=True):
        np.testing.assert_allclose(a + 0.5 * b, c, rtol=1e-5, atol=1e-6)


def test_it_trains_and_its_random_loss_goes_on_from_a_file(rng, tmp_path):
    """Where a list of losses trains the first only."""
    features, labels = rng.normal(size=(8, 3)).astype("float32"), rng.integers(0, 4, 8)

    def trained(loss):
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(4)])
        model.compile("sgd", loss)
        model.fit(features, labels, verbose=0)
        return model

    noisy = losses.GumbelApproxNDCGLoss(seed=1)
    model = trained(losses.WeightedSumLoss([SOFTMAX(), noisy], [1.0, 0.5]))
    assert not np.allclose(model.get_weights()[0], trained(SOFTMAX()).get_weights()[0])
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    for of_each in (model, loaded):
        of_each.fit(features, labels, verbose=0, shuffle=False)
    np.testing.assert_allclose(loaded.get_weights()[0], model.get_weights()[0], rtol=1e-6)


@pytest.mark.parametrize("num_sampled", [None, 3])
def test_it_trains_a_model_that_scores_classes_in_a_step(num_sampled, rng):
    features, labels = rng.normal(size=(8, 2)).astype("float32"), rng.integers(0, 6, 8)
    weights = rng.uniform(size=8).astype("float32")
    mined = losses.OrderedWeightedLoss(rank_weights=ops.TopKWeights(2))

    def loss_of_step(loss):
        model = models.ExtremeClassifier(keras.layers.Identity(), 6, 2, num_sampled, seed=1)
        model.compile(optimizers.RowwiseSGD(0.1), loss)
        return model.train_on_batch(features, labels, weights)

    one, other = loss_of_step(SOFTMAX()), loss_of_step(mined)
    both = loss_of_step(losses.WeightedSumLoss([SOFTMAX(), mined], [1.0, 0.5]))
    np.testing.assert_allclose(both, one + 0.5 * other, rtol=1e-6)


def test_losses_that_need_all_scores_say_so():
    head = layers.DotProductHead(5)
    head(tf.zeros([3, 2]))
    model = models.ExtremeClassifier(keras.layers.Dense(2), 5, 2, num_sampled=None)
    for loss in (losses.SpearmanLoss(), losses.WeightedSumLoss([losses.SpearmanLoss()], [1.0])):
        for read in (loss, metrics.MRR()):
            with pytest.raises(ValueError, match=r"`y_pred` must hold scores.* `over_classes`"):
                read([0, 1, 2], head.over_classes(tf.zeros([3, 2])))
        with pytest.raises(ValueError, match=r"a `RankingLoss`.* all classes in blocks"):
            model.compile("sgd", loss)
