"""Gradients of all losses and options, for short and long lists, few and many positives.

Blocks, padding and sorting set in at sizes that short lists do not reach. There a value can be
right and its gradient NaN, where a branch that `tf.where` leaves out is infinite.
"""

import numpy as np
import pytest
import tensorflow as tf

from .tables import LOSSES

# Each size stands for a path: one block, several blocks, a last block with padding, sorting, and
# lists of up to 128 and of up to 256 items, which have paths less.
SIZES = [(1, 1), (2, 1), (17, 16), (40, 40), (70, 15), (100, 11), (200, 16), (300, 3), (300, 33)]
SIZES += [(129, 129), (257, 257)]

pytestmark = [
    pytest.mark.parametrize("case", LOSSES, ids=lambda case: case.name),
]


@pytest.mark.parametrize("form", ["ids", "relevance"])
def test_gradients_are_finite_and_right(case, form):
    for n, num_positives in SIZES:
        if n < 5 and ("rankmax" in case.name or "fenchel" in case.name or case.random):
            continue  # k items are to be selected, or sampled, of n.
        rng = np.random.default_rng(100 * n + num_positives)
        scores, direction = rng.normal(size=(2, 2, n))
        ids = np.stack([rng.permutation(n)[:num_positives] for _ in range(2)])
        ids[1, 1:][rng.random(num_positives - 1) < 0.5] = -1
        labels = ids
        if form == "relevance":
            labels = np.zeros((2, n))
            for row, of_row in zip(labels, ids, strict=True):
                row[of_row[of_row >= 0]] = rng.integers(1, 4, size=(of_row >= 0).sum())
            if n == 1:
                continue  # A single column is a column of ids.
        label_format = form if n > 1 else None

        # Steps forward and backward, and none.
        batches = [scores + step * direction for step in (1e-6, -1e-6, 0)]
        if not case.random:  # What a list draws depends on its place in the batch.
            batches = [np.concatenate(batches)]
        values = []
        for batch in batches:
            loss = case.make(reduction="none", label_format=label_format)
            x = tf.constant(batch)
            with tf.GradientTape() as tape:
                tape.watch(x)
                # `call`, since Keras's reduction is in float32.
                values.append(loss.call(np.tile(labels, (len(batch) // 2, 1)), x))
        gradient = tape.gradient(values[-1], x).numpy()[-2:]
        where = f"n = {n}, P = {num_positives}"
        assert np.isfinite(gradient).all(), where
        forward, backward, _ = np.split(np.concatenate(values), 3)
        expected = (forward - backward) / 2e-6
        actual = np.sum(gradient * direction, axis=1)
        scale = 1 + np.abs(gradient).sum(axis=1)
        np.testing.assert_allclose(actual / scale, expected / scale, atol=2e-5, err_msg=where)
