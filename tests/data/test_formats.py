"""Written files and lists are read: ELWC, Extreme Classification Repository, pairs."""

import gzip
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_array_equal

from rank4class_tf import data
from rank4class_tf.data import elwc
from tests import tf_ranking

CONTEXT = {"query": tf.io.FixedLenFeature([2], tf.float32)}
EXAMPLES = {
    "id": tf.io.FixedLenFeature([1], tf.int64, default_value=-7),
    "word": tf.io.FixedLenFeature([], tf.string, default_value=""),
    "label": tf.io.FixedLenFeature([1], tf.float32, default_value=-1.0),
}


def make_lists():
    """Lists of 3, 1, 0 and 300 examples; the last exceeds 127 and 16,383 bytes."""
    lists = []
    for row, size in enumerate([3, 1, 0, 300]):
        names = ("id", "word", "label")
        items = [
            (10 * row + item, f"w{item}é", float(item % 2)) for item in range(size)
        ]
        examples = [dict(zip(names, values, strict=True)) for values in items]
        lists.append(({"query": np.float32([row, 0.5])}, examples))
    return lists


def test_what_is_written_is_read(tmp_path):
    assert elwc.write(make_lists(), tmp_path / "f") == 4
    (batch,) = elwc.read(tmp_path / "f*", CONTEXT, EXAMPLES, batch_size=4, list_size=4)
    assert_array_equal(batch["query"], [[0, 0.5], [1, 0.5], [2, 0.5], [3, 0.5]])
    ids = [[0, 1, 2, -7], [10, -7, -7, -7], [-7] * 4, [30, 31, 32, 33]]
    assert_array_equal(batch["id"][..., 0], ids)
    labels = [[0, 1, 0, -1], [0, -1, -1, -1], [-1] * 4, [0, 1, 0, 1]]
    assert_array_equal(batch["label"][..., 0], labels)
    assert_array_equal(batch["mask"].numpy().sum(axis=1), [3, 1, 0, 4])
    assert batch["word"][0, 1].numpy().decode() == "w1é"


def test_lists_are_filled_up_to_the_longest_of_a_batch(tmp_path):
    elwc.write(make_lists(), tmp_path / "f")
    first, second = elwc.read(tmp_path / "f*", CONTEXT, EXAMPLES, batch_size=2)
    assert first["id"].shape == (2, 3, 1) and second["id"].shape == (2, 300, 1)
    assert second["mask"].numpy().sum() == 300 and second["id"][1, 299, 0] == 30 + 299


def test_tf_ranking_reads_it_as_this_package_does(tmp_path):
    tfr = tf_ranking.load_or_skip()
    elwc.write(make_lists(), tmp_path / "f")
    (ours,) = elwc.read(tmp_path / "f*", CONTEXT, EXAMPLES, batch_size=4, list_size=5)
    theirs = next(
        iter(
            tfr.data.build_ranking_dataset(
                file_pattern=str(tmp_path / "f*"),
                data_format=tfr.data.ELWC,
                num_epochs=1,
                context_feature_spec=CONTEXT,
                example_feature_spec=EXAMPLES,
                batch_size=4,
                list_size=5,
                mask_feature_name="mask",
                shuffle=False,
            )
        )
    )
    assert set(ours) == set(theirs)
    for name in ours:
        assert_array_equal(ours[name], theirs[name])


@pytest.mark.parametrize("width", [None, 3])
def test_classes_come_back(tmp_path, rng, normal, width):
    features = normal(20, 3)
    class_ids = np.stack([rng.permutation(6)[: width or 1] for _ in range(20)])
    if width:
        class_ids[::4, 1:] = -1
        class_ids[0] = -1
    expected = [set(ids[ids >= 0].tolist()) for ids in class_ids]
    class_ids = class_ids if width else class_ids[:, 0]
    batches = [(features[:12], class_ids[:12]), (features[12:], class_ids[12:])]
    elwc.write(elwc.lists(batches, num_classes=6, num_negatives=2), tmp_path / "f")
    spec = {"features": tf.io.FixedLenFeature([3], tf.float32)}
    (read,) = elwc.read_classes(tmp_path / "f*", spec, batch_size=20)
    assert_array_equal(read[0]["features"], features)
    assert [set(ids[ids >= 0].tolist()) for ids in read[1].numpy()] == expected
    first = read[1].numpy()[:, 0]
    assert all(bool(ids) == (id >= 0) for ids, id in zip(expected, first, strict=True))


def test_all_classes_in_order():
    ((context, examples),) = elwc.lists([({"x": [1.0]}, [2])], num_classes=4)
    assert list(context) == ["x"]
    assert [example["class_id"] for example in examples] == [0, 1, 2, 3]
    assert [example["label"] for example in examples] == [0, 0, 1, 0]


def test_negatives_are_uniform_and_no_positives():
    """Each of the 4 non-positive classes is drawn in 2 of 4 lists, in any place."""
    num_lists = 4000
    batches = [(np.zeros((num_lists, 1)), np.tile([[1, 4]], (num_lists, 1)))]

    def drawn(seed, batches=batches):
        return [x for _, x in elwc.lists(batches, 6, num_negatives=2, seed=seed)]

    every = drawn(3)
    ids, labels = (
        [[x[k] for x in row] for row in every] for k in ("class_id", "label")
    )
    assert_array_equal(labels, np.isin(ids, [1, 4]))
    assert all(len(set(row)) == 4 for row in ids)
    counts = np.bincount(np.ravel(ids))[[0, 2, 3, 5]]
    deviation = 5 * np.sqrt(num_lists / 4)  # Of a binomial with p = 1/2; five of them.
    assert (abs(counts - num_lists / 2) < deviation).all()
    assert (abs(np.equal(ids, 1).sum(axis=0) - num_lists / 4) < deviation).all()
    few = [[x[:50] for x in batches[0]]]
    assert drawn(3, few) == drawn(3, few) != drawn(4, few)


def test_zeros_at_the_end_of_bytes_stay():
    for value in (b"ab\x00", [b"ab\x00"], [[b"ab\x00"], [b"c"]], ["a\x00", "b"]):
        text = np.asarray(value, object).reshape(-1)[0]
        text = text if isinstance(text, bytes) else text.encode()
        assert b"\x0a" + bytes([len(text)]) + text in elwc.serialize({"x": value}, [])
    ((context, _),) = elwc.lists([({"x": [b"ab\x00"]}, [0])], num_classes=2)
    assert context == {"x": b"ab\x00"}
    assert elwc.serialize({"x": [np.inf, 1e38]}, [])


@pytest.mark.parametrize(
    "nothing", [[], (), np.array([], object), np.array([], np.int64)]
)
def test_empty_lists_read_as_missing(nothing, tmp_path):
    """Whatever the kind of what others hold, in the context and in the examples."""
    rows = [
        ({"h": nothing}, [{"c": nothing}]),
        ({"h": [3, 4]}, [{"c": 5}, {"c": nothing}]),
    ]
    elwc.write(rows, tmp_path / "f")
    context = {"h": tf.io.VarLenFeature(tf.int64)}
    example = {"c": tf.io.FixedLenFeature([], tf.int64, -1)}
    (batch,) = elwc.read(tmp_path / "f*", context, example, 2)
    assert_array_equal(tf.sparse.to_dense(batch["h"]), [[0, 0], [3, 4]])
    assert_array_equal(batch["c"], [[-1, -1], [5, -1]])


def test_beam_writes_the_same(tmp_path, rng, normal):
    beam = pytest.importorskip("apache_beam")
    from rank4class_tf.data import elwc_beam

    features = normal(30, 3)
    class_ids = rng.integers(0, 4, 30)
    rows = list(elwc.lists([(features, class_ids)], num_classes=4))
    with beam.Pipeline(runner="DirectRunner") as pipeline:
        _ = (
            pipeline
            | beam.Create(rows)
            | elwc_beam.WriteELWC(tmp_path / "f", num_shards=3)
        )
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"f-0000{shard}-of-00003" for shard in range(3)]
    spec = {"features": tf.io.FixedLenFeature([3], tf.float32)}
    ((read, read_ids),) = elwc.read_classes(tmp_path / "f*", spec, batch_size=30)
    order = np.argsort(features[:, 0])
    read_order = np.argsort(read["features"][:, 0])
    assert_array_equal(read["features"].numpy()[read_order], features[order])
    assert_array_equal(read_ids.numpy()[read_order, 0], class_ids[order])


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


def test_points_that_are_written_are_read(path):
    assert data.read_extreme_header(path) == (4, 5, 6)
    batches = data.extreme_classification(path, batch_size=3)
    for _ in range(2):  # each epoch anew
        (first, first_ids), (second, second_ids) = dense(batches)
        expected = np.zeros([3, 5], "float32")
        expected[0, 3], expected[0, 1], expected[1, 0] = 0.5, -1.25, 2.0
        assert_array_equal(first, expected)
        assert_array_equal(first_ids, [[0, 2], [-1, -1], [4, -1]])
        assert_array_equal(second, np.float32([[1.0, 2.0, 0.0, 0.0, 3.5e-07]]))
        assert_array_equal(second_ids, [[1, 3, 4]])


def test_one_label_is_drawn_uniformly(path):
    batches = data.extreme_classification(path, batch_size=3, one_label=True, seed=0)
    ((_, class_ids),) = dense(batches)
    # the point without labels is left out
    assert class_ids.shape == (3,) and class_ids[1] == 4
    again = data.extreme_classification(path, batch_size=3, one_label=True, seed=0)
    fresh = data.extreme_classification(path, batch_size=3, one_label=True)
    drawn = [
        [int(ids[2]) for _, ids in labels.repeat(60)]
        for labels in (batches, again, fresh)
    ]
    for of_epochs in drawn:
        assert set(of_epochs) == {1, 3, 4}
    # Those of `batches` began an epoch later.
    assert drawn[0][:-1] == drawn[1][1:]


def test_splits_keep_their_points(path, tmp_path):
    (tmp_path / "trSplit.txt").write_text("1 4\n3 3\n")
    rows = data.read_extreme_split(tmp_path / "trSplit.txt", column=1)
    ((_, class_ids),) = dense(data.extreme_classification(path, rows=rows))
    assert_array_equal(class_ids, [[4, -1, -1], [1, 3, 4]])


@pytest.mark.parametrize("name", ["found.txt", "found.txt.gz"])
def test_predictions(name, tmp_path):
    found = [
        (np.float32([[0.9, 0.1], [2, 1e-8]]), np.array([[4, 0], [1, 3]])),
        (tf.constant([[-1.5]]), tf.constant([[2]])),
    ]
    data.write_top_k(tmp_path / name, found, num_labels=5)
    with (gzip.open if name.endswith("gz") else open)(tmp_path / name, "rt") as file:
        assert file.read() == "3 5\n0:0.1 4:0.9\n1:2.0 3:1e-08\n2:-1.5\n"


LETOR = "# by hand\n2 qid:10 1:0.5 3:-1e-1 # no. 1\n\n0.5 qid:10 2:.25\n0 qid:7  \n"
ROWS = np.array([[0.5, 0, -0.1], [0, 0.25, 0], [0, 0, 0]], "float32")


@pytest.fixture(params=["a.txt", "a.txt.gz"])
def written(request, tmp_path):
    """Writes bytes to a file, plain or packed; returns its path."""
    path = tmp_path / request.param
    pack = gzip.compress if path.suffix == ".gz" else bytes

    def write(content):
        path.write_bytes(pack(content))
        return path

    return write


def test_letor_files(written):
    for content in (LETOR, LETOR.replace("\n", "\r\n")):
        path = written(content.encode())
        features, grades, qid = data.read_letor(path)
        assert_array_equal(features, ROWS)
        assert (grades.tolist(), qid.tolist()) == ([2, 0.5, 0], [10, 10, 7])
        assert data.read_letor(path, num_features=5)[0].shape == (3, 5)


BOM = b"\xef\xbb\xbf"  # As Windows marks UTF-8.


def test_files_that_start_with_a_mark(written):
    _, grades, _ = data.read_letor(written(BOM + b"2 qid:10 1:0.5\n"))
    assert grades.tolist() == [2]
    path = written(BOM + b"1 4 3\n2 3:0.5\n")
    assert data.read_extreme_header(path) == (1, 4, 3)
    ((features, class_ids),) = data.extreme_classification(path)
    assert tf.sparse.to_dense(features).numpy().tolist() == [[0, 0, 0, 0.5]]
    assert class_ids.numpy().tolist() == [[2]]
    assert data.read_extreme_split(written(BOM + b"7 8\n")).tolist() == [7]


@pytest.mark.parametrize("table", ["asarray", "csr_matrix", "DataFrame"])
@pytest.mark.parametrize("groups", [{"qid": ["b", "b", "a"]}, {"group": [2, 1]}])
def test_rows_become_padded_lists(table, groups):
    module = {"csr_matrix": "scipy.sparse", "DataFrame": "pandas"}.get(table, "numpy")
    rows = getattr(pytest.importorskip(module), table)(ROWS)
    features, labels = data.lists_from_groups(rows, [2, 0.5, 0], **groups)
    assert_array_equal(features, [ROWS[:2], [ROWS[2], [0, 0, 0]]])
    assert_array_equal(labels, [[2, 0.5], [0, -1]])
    assert (features.dtype, labels.dtype) == ("float32", "float32")
    cut, labels = data.lists_from_groups(rows, [2, 0.5, 0], **groups, list_size=1)
    assert_array_equal(cut[:, 0], ROWS[[0, 2]])
    wide, labels = data.lists_from_groups(rows, [2, 0.5, 0], **groups, list_size=3)
    assert_array_equal(labels, [[2, 0.5, -1], [0, -1, -1]])
    assert_array_equal(wide[labels >= 0], ROWS)


PARTS = ["train", "validation", "test"]
SHARED = pathlib.Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.fixture
def pairs(rng):
    """3,000 different pairs of 50 users and 90 items; the ids do not start at 0."""
    chosen = rng.permutation(50 * 90)[:3000]
    return np.stack([100 + 2 * (chosen // 90), 7 + 3 * (chosen % 90)])


def as_pairs(users, part):
    lists = getattr(users, part)
    owners = users.user_ids[lists.value_rowids().numpy()]
    items = users.item_ids[lists.flat_values.numpy()]
    return set(zip(owners.tolist(), items.tolist(), strict=True))


def test_every_pair_is_in_one_part_and_counts_once(pairs):
    users = data.UserItems.from_pairs(np.split(pairs, 4, axis=1))
    parts = [as_pairs(users, part) for part in PARTS]
    assert [len(part) for part in parts] == [2400, 300, 300]
    assert set.union(*parts) == set(zip(*pairs.tolist(), strict=True))
    assert (users.num_users, users.num_items) == (50, 90)
    assert as_pairs(data.UserItems.from_pairs([pairs], seed=2), "test") != parts[2]
    twice = data.UserItems.from_pairs([pairs, pairs[:, ::-1]])
    assert [as_pairs(twice, part) for part in PARTS] == parts
    users = data.UserItems.from_pairs([([7, 7, 9], [30, 10, 10])])
    assert not list(users.batches("test", seed=1))  # It is empty.


@pytest.mark.parametrize("ragged", [False, True])
def test_batches(pairs, ragged):
    users = data.UserItems.from_pairs([pairs])
    lists = {part: getattr(users, part).to_list() for part in PARTS}
    for number, part in enumerate(PARTS):
        seen = []
        for features, class_ids in users.batches(part, batch_size=16, ragged=ragged):
            arrays = features["items"], features["exclude"], class_ids
            dense = [(x.to_tensor(-1) if ragged else x).numpy() for x in arrays]
            of_users = zip(*dense, strict=True)
            seen += [
                tuple([i for i in row if i >= 0] for row in rows) for rows in of_users
            ]
        expected = [
            (
                lists["train"][u],
                sum((lists[p][u] for p in PARTS[:number]), []),
                lists[part][u],
            )
            for u in range(50)
            if lists[part][u]
        ]
        assert sorted(seen) == sorted(expected)
        lengths = [len(class_ids) for _, _, class_ids in seen]
        assert lengths == sorted(lengths)


@pytest.mark.slow
@pytest.mark.skipif(
    not SHARED.exists(), reason="the real data is not at ../shared/data"
)
@pytest.mark.filterwarnings("ignore")  # of tensorflow-datasets
def test_movielens(tmp_path):
    pytest.importorskip(
        "tensorflow_datasets", reason="the extra `data` is not installed"
    )
    # Fills the download cache of tensorflow-datasets, so that its builder needs no
    # network.
    script = SHARED / "prime_tfds_cache.py"
    folder = tmp_path / "downloads"
    command = [sys.executable, script, SHARED / "raw", folder, "movielens"]
    subprocess.run(command, check=True, capture_output=True)
    users = data.movielens("latest-small", tmp_path)
    # 100,836 ratings by 610 users; 9,724 of the 9,742 films are rated.
    assert [getattr(users, part).flat_values.shape[0] for part in PARTS] == [
        80_670,
        10_083,
        10_083,
    ]
    assert (users.num_users, users.num_items) == (610, 9724)
