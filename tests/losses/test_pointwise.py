"""Losses whose definition needs no positive: every list counts, as in Keras's."""

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose
from tensorflow import keras

from rank4class_tf import losses, models, optimizers

from ..rounding import assert_all_close
from ..small_models import linear

BATCH, N, WIDTH = 4, 6, 5


def cross_entropies(labels, scores):
    """Keras's binary cross-entropy of each item."""
    of_items = keras.losses.BinaryCrossentropy(
        from_logits=True, reduction="none", axis=-1
    )
    return of_items(labels[..., None], tf.convert_to_tensor(scores)[..., None]).numpy()


@pytest.fixture
def scores(normal):
    return normal(BATCH, N)


@pytest.fixture
def labels(rng):
    """Zeros and ones; the first two lists have no positive."""
    labels = rng.integers(0, 2, (BATCH, N)).astype("float32")
    labels[:2], labels[2:, 0] = 0, 1
    return labels


@pytest.mark.keras2
def test_masks_and_weights_of_all_lists(in_mode, labels, scores, rng):
    loss = losses.SigmoidCrossEntropyLoss(reduction="none")
    terms = cross_entropies(labels, scores)
    weights = rng.random((BATCH, N)).astype("float32")
    labels[0, :2] = labels[2, 3] = labels[1] = -1
    is_item = labels >= 0
    call = in_mode(lambda w: loss(labels, tf.constant(scores), w))
    expected = (is_item * weights * terms).sum(axis=1)
    assert_allclose(call(tf.constant(weights)), expected, rtol=1e-5)
    of_lists = np.array([0.5, 2.0, 3.0, 0.0], "float32")
    expected = of_lists * (is_item * terms).sum(axis=1)
    assert_allclose(call(tf.constant(of_lists)), expected, rtol=1e-5)


def test_class_weight_of_a_list_without_a_positive_is_1(labels, scores):
    of_classes = np.arange(1.0, N + 1)
    found = losses.SigmoidCrossEntropyLoss(class_weight=of_classes, reduction="none")(
        labels, scores
    )
    of_lists = [1, 1, *(labels[2:] @ of_classes / labels[2:].sum(axis=1))]
    expected = of_lists * cross_entropies(labels, scores).sum(axis=1)
    assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("num_sampled", [None, 7], ids=["all", "sampled"])
def test_an_example_without_a_class_has_negatives(num_sampled, normal):
    """All of `ExtremeClassifier`, or its sample."""
    encoder = linear(WIDTH, 4)
    model = models.ExtremeClassifier(
        encoder, 30, 4, num_sampled, normalize=False, seed=1
    )
    loss = losses.SigmoidCrossEntropyLoss(reduction="sum")
    model.compile(optimizers.RowwiseSGD(0.1), loss)
    x = normal(2, WIDTH)
    ids = np.array([-1, -1])
    encodings = model(x)
    scores = model.scores(encodings)
    if num_sampled is not None:
        scores = model.scores(encodings, class_ids=ids, training=False)[:, 1:]
    expected = np.logaddexp(0, scores).sum()
    assert_allclose(
        model.evaluate(x, ids, verbose=0, return_dict=True)["loss"], expected, rtol=1e-5
    )
    before = model.get_weights()
    model.fit(x, ids, verbose=0)
    assert any(
        (now != then).any()
        for now, then in zip(model.get_weights(), before, strict=True)
    )


@pytest.mark.keras2
@pytest.mark.parametrize(
    "ours", [losses.SigmoidCrossEntropyLoss, losses.MeanSquaredLoss]
)
@pytest.mark.parametrize("options", [{}, {"run_eagerly": True}, {"jit_compile": True}])
def test_trains_as_with_the_loss_of_keras(ours, options, normal):
    """A score for each example, labels of 0 and 1."""
    features = normal(64, WIDTH)
    labels = (features[:, :1] > 0.5).astype("float32")
    of_keras = {
        losses.SigmoidCrossEntropyLoss: keras.losses.BinaryCrossentropy(
            from_logits=True
        ),
        losses.MeanSquaredLoss: keras.losses.MeanSquaredError(),
    }
    results = []
    for loss in (ours(), of_keras[ours]):
        keras.utils.set_random_seed(1)
        model = linear(
            WIDTH, 1, optimizer=keras.optimizers.SGD(0.5), loss=loss, **options
        )
        history = model.fit(
            features, labels, batch_size=16, epochs=3, shuffle=False, verbose=0
        )
        results.append([np.array(history.history["loss"]), *model.get_weights()])
    assert_all_close(*results, 1e-5, 1e-6)


@pytest.mark.parametrize(
    "loss",
    [
        losses.SigmoidCrossEntropyLoss,
        losses.MeanSquaredLoss,
        losses.PairwiseMeanSquaredLoss,
    ],
)
def test_a_bad_label_is_nan_under_xla_and_no_other_list(loss, labels, scores):
    loss = loss(reduction="none")
    bad = labels.copy()
    bad[1, 0] = np.nan
    found = tf.function(loss, jit_compile=True)(bad, scores).numpy()
    others = [0, 2, 3]
    assert np.isnan(found[1])
    assert_allclose(found[others], loss(labels, scores).numpy()[others], rtol=1e-5)
