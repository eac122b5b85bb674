"""Batches of examples of different lengths."""

import numpy as np
import pytest
import tensorflow as tf

from scripts.reproductions.harness import Examples
from scripts.reproductions.harness.examples import kept, through


def ragged(rng, number=23, most=9):
    lengths = rng.integers(1, most, number)
    values = np.arange(1, lengths.sum() + 1, dtype="int32")
    return Examples(values, np.arange(number), lengths)


def rows(dataset):
    """The values without padding and the class id of each example, and the batches' shapes."""
    got, shapes = {}, []
    for values, ids in dataset.as_numpy_iterator():
        shapes.append(values.shape)
        for row, class_id in zip(values, ids, strict=True):
            got[int(class_id)] = row[: np.count_nonzero(row)].tolist()
            assert not row[len(got[int(class_id)]) :].any()
    return got, shapes


def test_each_example_comes_once_with_little_padding(rng):
    examples = ragged(rng)
    ends = np.cumsum(examples.lengths)
    expected = {
        i: examples.values[end - length : end].tolist()
        for i, (end, length) in enumerate(zip(ends, examples.lengths, strict=True))
    }
    for seed in (None, 3):
        dataset = examples.batches(4, seed)
        assert len(dataset) == 6
        got, shapes = rows(dataset)
        assert got == expected
        assert sorted(size for size, _ in shapes) == [3, 4, 4, 4, 4, 4]
        # Sorted by length, a batch is as long as its longest: here all lie in one sorted part.
        longest = np.sort(examples.lengths)[[3, 7, 11, 15, 19, 22]]
        assert sorted(length for _, length in shapes) == longest.tolist()


def test_orders(rng):
    examples = ragged(rng)

    def ids(dataset):
        return np.concatenate([batch[1] for batch in dataset.as_numpy_iterator()]).tolist()

    dataset = examples.batches(4, seed=1)
    orders = [ids(dataset) for _ in range(3)]
    assert orders[0] != orders[1] != orders[2]
    assert ids(examples.batches(4, seed=1)) == orders[0]
    assert ids(examples.batches(4, seed=2)) != orders[0]
    evaluated = examples.batches(4)
    assert ids(evaluated) == ids(evaluated)


def test_examples_of_one_shape(rng):
    values = rng.normal(size=(7, 2, 3)).astype("float16")
    labels = rng.integers(-1, 5, (7, 2))
    batches = list(Examples(values, labels).batches(3).as_numpy_iterator())
    assert [len(ids) for _, ids in batches] == [3, 3, 1]
    assert batches[0][0].dtype == "float32"
    np.testing.assert_equal(np.concatenate([b[0] for b in batches]), values.astype("float32"))
    np.testing.assert_equal(np.concatenate([b[1] for b in batches]), labels)


@pytest.mark.parametrize("pooled", [True, False])
def test_through_a_model(rng, pooled):
    examples = ragged(rng)
    table = tf.constant(rng.normal(size=(200, 4)).astype("float32"))

    def model(batch, training):
        assert training is False
        hidden = tf.gather(table, batch) * tf.cast(batch > 0, tf.float32)[..., None]
        return tf.reduce_sum(hidden, axis=1) if pooled else hidden

    got = through(model, examples, batch_size=5)
    ends = np.cumsum(examples.lengths)
    expected = {
        int(class_id): table.numpy()[examples.values[end - length : end]]
        for class_id, end, length in zip(examples.class_ids, ends, examples.lengths, strict=True)
    }
    assert sorted(got.class_ids) == sorted(expected)
    if pooled:
        assert got.lengths is None
        for row, class_id in zip(got.values, got.class_ids, strict=True):
            np.testing.assert_allclose(row, expected[int(class_id)].sum(0), rtol=1e-5, atol=1e-6)
    else:
        parts = np.split(got.values, np.cumsum(got.lengths)[:-1])
        for part, class_id in zip(parts, got.class_ids, strict=True):
            np.testing.assert_allclose(part, expected[int(class_id)], rtol=1e-3)


def test_kept_is_made_once_and_anew_for_other_settings(rng, tmp_path):
    made = []

    def make():
        made.append(ragged(rng))
        return {"train": made[-1], "test": Examples(rng.normal(size=(3, 2)), np.arange(3))}

    first, again = (kept(tmp_path / "new", {"a": 1}, make) for _ in range(2))
    assert len(made) == 1 and again.keys() == {"train", "test"}
    for name, examples in first.items():
        for field in ("values", "class_ids", "lengths"):
            np.testing.assert_equal(getattr(again[name], field), getattr(examples, field))
    other = kept(tmp_path / "new", {"a": 2}, make)
    assert len(made) == 2
    np.testing.assert_equal(other["train"].values, made[1].values)
