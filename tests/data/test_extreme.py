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
    with pytest.raises(ValueError, match=r"trSplit.txt, line 1: must have a number in column 2"):
        data.read_extreme_split(tmp_path / "trSplit.txt", column=2)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("2 3", r"bad.txt, line 1: must be `points features labels`"),
        ("1 3 2\n0 1:x", r"bad.txt, line 2: must be `l1,l2 f:v f:v`"),
        ("2 3 2\n0 1:1\n2 1:1", r"bad.txt, line 3: a label must be in \[0, 2\). Received: 2"),
        ("1 3 2\n0 3:1", r"bad.txt, line 2: a feature must be in \[0, 3\). Received: 3"),
        ("3 3 2\n0 1:1", r"bad.txt, line 1: must have the number of points. Received: 3"),
    ],
)
def test_errors_name_file_and_line(lines, message, tmp_path):
    path = tmp_path / "bad.txt"
    path.write_text(lines + "\n")
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=message):
        list(data.extreme_classification(path))


def test_writer_checks_its_numbers(tmp_path):
    with pytest.raises(ValueError, match=r"line 2: a label must be in \[0, 2\). Received: 2"):
        data.write_extreme_classification(tmp_path / "x.txt", [([2], [], [])], 3, 2)
    with pytest.raises(ValueError, match="line 2: a value must be finite. Received: 1e"):
        data.write_extreme_classification(tmp_path / "x.txt", [([1], [0], [1e39])], 3, 2)
    with pytest.raises(ValueError, match="`points` must hold at least one point"):
        data.write_extreme_classification(tmp_path / "x.txt", [], 3, 2)
    with pytest.raises(TypeError):
        data.write_extreme_classification(tmp_path / "x.txt", [([0.5], [], [])], 3, 2)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("wrong", [0, 5, True, np.bool_(True), 1.0])
def test_rows_are_checked(path, wrong):
    with pytest.raises(ValueError, match=r"`rows` must be None or integers in \[1, 4\]. Received"):
        data.extreme_classification(path, rows=[1, wrong])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"1 3 2\n0 1:nan\n", r"bad.txt, line 2: a value must be finite. Received: nan"),
        (b"1 3 2\n0 1:1e39\n", r"bad.txt, line 2: a value must be finite. Received: 1e\+39"),
        (b"1 3 20\n1_0 1:1\n", r"bad.txt, line 2: must be `l1,l2 f:v f:v`"),
        ("1 3 9\n٣ 1:1\n".encode(), r"bad.txt, line 2: must be `l1,l2 f:v f:v`"),
        (b"1 3 2\n0 1:1\xff\n", r"bad.txt: must be whole, and text in UTF-8"),
        (b"1 3_0 2\n0 1:1\n", r"bad.txt, line 1: must be `points features labels`"),
        (b"1 99999999999999999999 2\n0 1:1\n", r"bad.txt, line 1: must be `points features"),
    ],
)
def test_what_python_takes_for_numbers_is_none(content, message, tmp_path):
    path = tmp_path / "bad.txt"
    path.write_bytes(content)
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=message):
        list(data.extreme_classification(path))


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
    for scores, label, message in ((1.0, 5, r"label must be in \[0, 5\)"), (np.nan, 1, "finite")):
        with pytest.raises(ValueError, match=message):
            data.write_top_k(tmp_path / name, [([[scores]], [[label]])], 5)
    with pytest.raises(ValueError, match="`batches` must hold at least one point"):
        data.write_top_k(tmp_path / name, [], 5)


@pytest.mark.parametrize("damage", [lambda x: x[:40], lambda x: x[:-6] + b"\0" + x[-5:], bytes])
def test_a_damaged_packed_file_is_named(damage, tmp_path):
    path = tmp_path / "toy.txt.gz"
    data.write_extreme_classification(path, POINTS * 20, num_features=5, num_labels=6)
    path.write_bytes(damage(path.read_bytes()) if damage is not bytes else b"no such")
    with pytest.raises((ValueError, tf.errors.OpError), match="toy.txt.gz: must be whole"):
        list(data.extreme_classification(path))


def test_a_last_line_without_an_end_warns(tmp_path):
    """0.53 that was cut to 0.5 is a number as well."""
    path = tmp_path / "cut.txt"
    path.write_text("1 3 2\n0 1:0.5")
    with pytest.warns(
        UserWarning, match="cut.txt: no line break ends the last line; the file may be cut"
    ):
        list(data.extreme_classification(path))
    path.write_text("12\n3")
    with pytest.warns(UserWarning, match="cut.txt: no line break ends the last line"):
        assert data.read_extreme_split(path).tolist() == [12, 3]
    path.write_text("")
    assert data.read_extreme_split(path).size == 0


@pytest.mark.parametrize("number", ["0", "-1", "1_0", "9223372036854775808"])
def test_points_of_a_split_are_numbered_from_1(number, tmp_path):
    path = tmp_path / "trSplit.txt"
    path.write_text(f"3\n{number}\n")
    with pytest.raises(ValueError, match="trSplit.txt, line 2: "):
        data.read_extreme_split(path)


@pytest.mark.parametrize("column", [-1, 0.5, "0", True])
def test_bad_column_of_a_split(tmp_path, column):
    (tmp_path / "trSplit.txt").write_text("1 2\n")
    with pytest.raises(ValueError, match="`column` must be an integer >= 0"):
        data.read_extreme_split(tmp_path / "trSplit.txt", column)
