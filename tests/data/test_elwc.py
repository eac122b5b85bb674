"""Files of ExampleListWithContext: what is written comes back, here and in TF-Ranking."""

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf.data import elwc
from tests import tf_ranking

CONTEXT = {"query": tf.io.FixedLenFeature([2], tf.float32)}
EXAMPLES = {
    "id": tf.io.FixedLenFeature([1], tf.int64, default_value=-7),
    "word": tf.io.FixedLenFeature([], tf.string, default_value=""),
    "label": tf.io.FixedLenFeature([1], tf.float32, default_value=-1.0),
}


def make_lists():
    """Lists of 3, 1, 0 and 300 examples; the last is longer than 127 and 16,383 bytes."""
    return [
        (
            {"query": np.array([row, 0.5], np.float32)},
            [
                {"id": 10 * row + item, "word": f"w{item}é", "label": float(item % 2)}
                for item in range(size)
            ],
        )
        for row, size in enumerate([3, 1, 0, 300])
    ]


def test_what_is_written_is_read(tmp_path):
    assert elwc.write(make_lists(), tmp_path / "f") == 4
    (batch,) = elwc.read(tmp_path / "f*", CONTEXT, EXAMPLES, batch_size=4, list_size=4)
    np.testing.assert_array_equal(batch["query"], [[0, 0.5], [1, 0.5], [2, 0.5], [3, 0.5]])
    np.testing.assert_array_equal(
        batch["id"][..., 0], [[0, 1, 2, -7], [10, -7, -7, -7], [-7] * 4, [30, 31, 32, 33]]
    )
    np.testing.assert_array_equal(
        batch["label"][..., 0], [[0, 1, 0, -1], [0, -1, -1, -1], [-1] * 4, [0, 1, 0, 1]]
    )
    np.testing.assert_array_equal(batch["mask"].numpy().sum(axis=1), [3, 1, 0, 4])
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
    theirs = tfr.data.build_ranking_dataset(
        file_pattern=str(tmp_path / "f*"),
        data_format=tfr.data.ELWC,
        batch_size=4,
        context_feature_spec=CONTEXT,
        example_feature_spec=EXAMPLES,
        list_size=5,
        mask_feature_name="mask",
        shuffle=False,
        num_epochs=1,
    )
    theirs = next(iter(theirs))
    assert set(ours) == set(theirs)
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name])


@pytest.mark.parametrize("width", [None, 3])
def test_classes_come_back(tmp_path, rng, width):
    features = rng.normal(size=(20, 3)).astype(np.float32)
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
    np.testing.assert_array_equal(read[0]["features"], features)
    assert [set(ids[ids >= 0].tolist()) for ids in read[1].numpy()] == expected
    first = read[1].numpy()[:, 0]
    assert all(bool(ids) == (id >= 0) for ids, id in zip(expected, first, strict=True))


def test_all_classes_in_order():
    batches = [({"x": [1.0]}, [2])]
    ((context, examples),) = elwc.lists(batches, num_classes=4)
    assert list(context) == ["x"]
    assert [example["class_id"] for example in examples] == [0, 1, 2, 3]
    assert [example["label"] for example in examples] == [0, 0, 1, 0]


def test_negatives_are_uniform_and_no_positives():
    """Each of the 4 classes that are no positive is drawn in 2 of 4 lists, in any place."""
    num_lists = 4000
    batches = [(np.zeros((num_lists, 1)), np.tile([[1, 4]], (num_lists, 1)))]

    def drawn(seed):
        return [x for _, x in elwc.lists(batches, num_classes=6, num_negatives=2, seed=seed)]

    ids, labels = ([[x[k] for x in row] for row in drawn(3)] for k in ("class_id", "label"))
    np.testing.assert_array_equal(labels, np.isin(ids, [1, 4]))
    assert all(len(set(row)) == 4 for row in ids)
    counts = np.bincount(np.ravel(ids))[[0, 2, 3, 5]]
    deviation = 5 * np.sqrt(num_lists / 4)  # Of a binomial with p = 1/2; five of them.
    assert (abs(counts - num_lists / 2) < deviation).all()
    assert (abs(np.equal(ids, 1).sum(axis=0) - num_lists / 4) < deviation).all()
    assert drawn(3) == drawn(3) != drawn(4)


def test_zeros_at_the_end_of_bytes_stay():
    for value in (b"ab\x00", [b"ab\x00"], [[b"ab\x00"], [b"c"]], ["a\x00", "b"]):
        text = np.asarray(value, object).reshape(-1)[0]
        text = text if isinstance(text, bytes) else text.encode()
        assert b"\x0a" + bytes([len(text)]) + text in elwc.serialize({"x": value}, [])
    ((context, _),) = elwc.lists([({"x": [b"ab\x00"]}, [0])], num_classes=2)
    assert context == {"x": b"ab\x00"}
    assert elwc.serialize({"x": [np.inf, 1e38]}, [])


@pytest.mark.parametrize("nothing", [[], (), np.array([], object), np.array([], np.int64)])
def test_empty_lists_read_as_missing(nothing, tmp_path):
    """Whatever the kind of what others hold, in the context and in the examples."""
    rows = [({"h": nothing}, [{"c": nothing}]), ({"h": [3, 4]}, [{"c": 5}, {"c": nothing}])]
    elwc.write(rows, tmp_path / "f")
    context = {"h": tf.io.VarLenFeature(tf.int64)}
    example = {"c": tf.io.FixedLenFeature([], tf.int64, -1)}
    (batch,) = elwc.read(tmp_path / "f*", context, example, 2)
    np.testing.assert_array_equal(tf.sparse.to_dense(batch["h"]), [[0, 0], [3, 4]])
    np.testing.assert_array_equal(batch["c"], [[-1, -1], [5, -1]])


def test_beam_writes_the_same(tmp_path, rng):
    beam = pytest.importorskip("apache_beam")
    from rank4class_tf.data import elwc_beam

    features, class_ids = rng.normal(size=(30, 3)).astype(np.float32), rng.integers(0, 4, 30)
    rows = list(elwc.lists([(features, class_ids)], num_classes=4))
    with beam.Pipeline(runner="DirectRunner") as pipeline:
        _ = pipeline | beam.Create(rows) | elwc_beam.WriteELWC(tmp_path / "f", num_shards=3)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"f-0000{shard}-of-00003" for shard in range(3)]
    spec = {"features": tf.io.FixedLenFeature([3], tf.float32)}
    ((read, read_ids),) = elwc.read_classes(tmp_path / "f*", spec, batch_size=30)
    order, read_order = np.argsort(features[:, 0]), np.argsort(read["features"][:, 0])
    np.testing.assert_array_equal(read["features"].numpy()[read_order], features[order])
    np.testing.assert_array_equal(read_ids.numpy()[read_order, 0], class_ids[order])
