"""Each head against its formula in NumPy float64, forward and gradient."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from rank4class_tf.layers import ConcatHead, DotProductHead, LatentCrossHead


def weights_of(head):
    """Name of the layer (or weight) -> float64 arrays."""
    as_array = lambda w: tf.convert_to_tensor(w).numpy().astype(np.float64)  # noqa: E731
    result = {
        "score": head.interaction.score,
        **{f"hidden_{i}": x for i, x in enumerate(head.interaction.hidden)},
    }
    result = {name: [as_array(w) for w in layer.weights] for name, layer in result.items()}
    return result, as_array(head.class_embeddings)


def mlp(hidden, head):
    weights, _ = weights_of(head)
    hidden = np.maximum(hidden, 0)
    for i in range(len(head.interaction.hidden)):
        kernel, bias = weights[f"hidden_{i}"]
        hidden = np.maximum(hidden @ kernel + bias, 0)
    kernel, bias = weights["score"]
    return (hidden @ kernel + bias)[..., 0]


def latent_cross(head, h):
    _, classes = weights_of(head)
    kernel, bias = (
        w.numpy().astype(np.float64)
        for w in map(tf.convert_to_tensor, head.interaction.first.weights)
    )
    crossed = np.stack([h * (1 + c) for c in classes], axis=1)
    return mlp(crossed @ kernel + bias, head)


def concat(head, h):
    """The paper's form: concatenate, then multiply by one kernel."""
    _, classes = weights_of(head)
    arrays = [
        tf.convert_to_tensor(w).numpy()
        for layer in (head.interaction.of_encodings, head.interaction.of_candidates)
        for w in layer.weights
    ]
    of_encodings, bias, of_classes = (a.astype(np.float64) for a in arrays)
    kernel = np.concatenate([of_encodings, of_classes])
    pairs = [[np.concatenate([row, c]) for c in classes] for row in h]
    return mlp(np.array(pairs) @ kernel + bias, head)


def randomise(head, rng):
    head.set_weights([rng.normal(size=w.shape) for w in head.get_weights()])


@pytest.mark.parametrize(
    ("head", "formula"),
    [
        (LatentCrossHead(5, units=(7, 6)), latent_cross),
        (LatentCrossHead(5, units=(7,)), latent_cross),
        (ConcatHead(5, units=(7, 6)), concat),
        (ConcatHead(5, units=(7,)), concat),
    ],
)
def test_equals_formula(head, formula, rng):
    h = rng.normal(size=(3, 4))
    head(tf.zeros([1, 4]))
    randomise(head, rng)
    inputs = tf.constant(h, tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        scores = head(inputs)
        total = tf.reduce_sum(scores * tf.range(1.0, 6.0))
    np.testing.assert_allclose(scores, formula(head, h), rtol=1e-4, atol=1e-4)

    step = 1e-6
    numeric = np.zeros_like(h)
    for index in np.ndindex(*h.shape):
        up, down = h.copy(), h.copy()
        up[index] += step
        down[index] -= step
        difference = (formula(head, up) - formula(head, down)) @ np.arange(1.0, 6.0)
        numeric[index] = difference[index[0]] / (2 * step)
    np.testing.assert_allclose(tape.gradient(total, inputs), numeric, rtol=1e-3, atol=1e-3)


def test_dot_product_is_dense(rng):
    head, dense = DotProductHead(5), keras.layers.Dense(5)
    inputs = rng.normal(size=(3, 4)).astype(np.float32)
    head(inputs), dense(inputs)
    dense.set_weights(head.get_weights())
    np.testing.assert_array_equal(head(inputs), dense(inputs))


@pytest.mark.parametrize("num_classes", [0, -1, 2.0, True, None])
def test_num_classes_is_checked(num_classes):
    with pytest.raises(ValueError, match="`num_classes` must be a positive integer"):
        DotProductHead(num_classes)


def test_units_are_checked():
    with pytest.raises(ValueError, match="`units` must hold at least one width"):
        ConcatHead(5, units=())
    with pytest.raises(ValueError, match="at least one width. Received: units=64"):
        LatentCrossHead(5, units=64)
    with pytest.raises(ValueError, match="`units` must be a positive integer. Received: units=0"):
        LatentCrossHead(5, units=(8, 0))
