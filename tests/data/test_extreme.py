"""The format of the Extreme Classification Repository: what is written is read."""

import gzip

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf import data

POINTS = [
    ([0, 2], [3, 1], [0.5, -1.25]),
    ([], [0], [2.0]),
    ([4], [], []),
    ([1, 3, 4], [0, 1, 4], [1.0, 2.0, 3.5e-07]),
]


@pytest.fixture(params=["toy.txt", "toy.txt.gz"])
def path(request, tmp_path):
    path = tmp_path / request.param
    data.write_extreme_classification(path, POINTS, num_features=5, num_labels=6)
    return path


def dense(batches):
    return [(tf.sparse.to_dense(f).numpy(), ids.numpy()) for f, ids in batches]


def test_what_is_written_is_read(path):
    assert data.read_extreme_header(path) == (4, 5, 6)
    batches = data.extreme_classification(path, batch_size=3)
    for _ in range(2):  # each epoch anew
        (first, first_ids), (second, second_ids) = dense(batches)
        expected = np.zeros([3, 5], np.float32)
        expected[0, 3], expected[0, 1], expected[1, 0] = 0.5, -1.25, 2.0
        np.testing.assert_array_equal(first, expected)
        np.testing.assert_array_equal(first_ids, [[0, 2], [-1, -1], [4, -1]])
        np.testing.assert_array_equal(second, np.float32([[1.0, 2.0, 0.0, 0.0, 3.5e-07]]))
        np.testing.assert_array_equal(second_ids, [[1, 3, 4]])


def test_one_label_is_drawn_uniformly(path):
    batches = data.extreme_classification(path, batch_size=3, one_label=True, seed=0)
    ((_, class_ids),) = dense(batches)
    assert class_ids.shape == (3,) and class_ids[1] == 4  # the point without labels is left out
    again = data.extreme_classification(path, batch_size=3, one_label=True, seed=0)
    fresh = data.extreme_classification(path, batch_size=3, one_label=True)
    drawn = [[int(ids[2]) for _, ids in labels.repeat(60)] for labels in (batches, again, fresh)]
    for of_epochs in drawn:
        assert set(of_epochs) == {1, 3, 4}
    # Those of `batches` began an epoch later.
    assert drawn[0][:-1] == drawn[1][1:]


def test_splits_keep_their_points(path, tmp_path):
    (tmp_path / "trSplit.txt").write_text("1 4\n3 3\n")
    rows = data.read_extreme_split(tmp_path / "trSplit.txt", column=1)
    ((_, class_ids),) = dense(data.extreme_classification(path, rows=rows))
    np.testing.assert_array_equal(class_ids, [[4, -1, -1], [1, 3, 4]])


@pytest.mark.parametrize("name", ["found.txt", "found.txt.gz"])
def test_predictions(name, tmp_path):
    found = [
        (np.float32([[0.9, 0.1], [2, 1e-8]]), np.array([[4, 0], [1, 3]])),
        (tf.constant([[-1.5]]), tf.constant([[2]])),
    ]
    data.write_top_k(tmp_path / name, found, num_labels=5)
    opener = gzip.open if name.endswith("gz") else open
    with opener(tmp_path / name, "rt") as file:
        assert file.read() == "3 5\n0:0.1 4:0.9\n1:2.0 3:1e-08\n2:-1.5\n"
