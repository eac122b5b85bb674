"""Files of ExampleListWithContext: what is written comes back, here and in TF-Ranking."""

import collections

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
    rows = []
    for row, size in enumerate([3, 1, 0, 300]):
        context = {"query": np.array([row, 0.5], np.float32)}
        rows.append(
            (
                context,
                [
                    {"id": 10 * row + item, "word": f"w{item}é", "label": float(item % 2)}
                    for item in range(size)
                ],
            )
        )
    return rows


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


def test_shards_take_turns(tmp_path):
    assert elwc.write(make_lists(), tmp_path / "f", num_shards=3) == 4
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"f-0000{shard}-of-00003" for shard in range(3)]
    counts = [len(list(tf.data.TFRecordDataset(str(tmp_path / name)))) for name in names]
    assert counts == [2, 1, 1]


def test_message_is_that_of_tensorflow_serving():
    input_pb2 = pytest.importorskip("tensorflow_serving.apis.input_pb2")
    context, examples = make_lists()[3]
    message = input_pb2.ExampleListWithContext.FromString(elwc.serialize(context, examples))
    assert len(message.examples) == 300
    assert message.examples[299].features.feature["id"].int64_list.value == [30 + 299]
    assert list(message.context.features.feature["query"].float_list.value) == [3.0, 0.5]


def test_tf_ranking_reads_it_as_this_package_does(tmp_path):
    tfr = tf_ranking.load_or_skip()
    elwc.write(make_lists(), tmp_path / "f")
    (ours,) = elwc.read(tmp_path / "f*", CONTEXT, EXAMPLES, batch_size=4, list_size=5)
    theirs = next(
        iter(
            tfr.data.build_ranking_dataset(
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
        )
    )
    assert set(ours) == set(theirs)
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name])


@pytest.mark.parametrize("width", [None, 3])
def test_classes_come_back(tmp_path, rng, width):
    features = rng.normal(size=(20, 3)).astype(np.float32)
    if width is None:
        class_ids = rng.integers(0, 6, size=20)
        expected = [{int(i)} for i in class_ids]
    else:
        class_ids = np.stack([rng.permutation(6)[:width] for _ in range(20)])
        class_ids[::4, 1:] = -1
        class_ids[0] = -1
        expected = [set(ids[ids >= 0].tolist()) for ids in class_ids]
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
    counts, places = collections.Counter(), collections.Counter()
    for _, examples in elwc.lists(batches, num_classes=6, num_negatives=2, seed=3):
        ids = [example["class_id"] for example in examples]
        assert len(set(ids)) == 4
        for place, example in enumerate(examples):
            assert example["label"] == (example["class_id"] in (1, 4))
            counts[example["class_id"]] += 1
            places[place] += example["class_id"] == 1
    deviation = 5 * np.sqrt(num_lists / 4)  # Of a binomial with p = 1/2; five of them.
    for negative in (0, 2, 3, 5):
        assert abs(counts[negative] - num_lists / 2) < deviation
    for place in range(4):
        assert abs(places[place] - num_lists / 4) < deviation


def test_seed_fixes_the_draws():
    def ids(seed):
        rows = elwc.lists([(np.zeros((9, 1)), np.zeros(9, int))], 50, num_negatives=3, seed=seed)
        return [example["class_id"] for _, examples in rows for example in examples]

    assert ids(1) == ids(1) != ids(2)


SCALAR = tf.io.FixedLenFeature([], tf.float32, default_value=0.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: next(elwc.lists([], 0)), "`num_classes` must be a positive"),
        (lambda: next(elwc.lists([], 3, num_negatives=0)), "`num_negatives` must be a positive"),
        (lambda: next(elwc.lists([], 3, seed=-1)), "`seed` must be an integer"),
        (lambda: next(elwc.lists([([[1.0]], [3])], 3)), r"Class ids must be in \[0, 3\)"),
        (lambda: next(elwc.lists([([[1.0]], [-2])], 3)), r"Class ids must be in \[0, 3\)"),
        (lambda: next(elwc.lists([(np.ones((1, 2)), [[0.0, 1.0]])], 3)), "must be integers"),
        (
            lambda: next(elwc.lists([(np.ones((1, 2)), [[0, 0, 1]])], 3)),
            "looks like one-hot",
        ),
        (lambda: next(elwc.lists([(np.ones((5, 2)), [1])], 3)), "Received: 1 for 5 of 'features'"),
        (lambda: elwc.serialize({"x": np.uint64(2**63)}, []), r"must be in .-2\*\*63, 2\*\*63"),
        (lambda: elwc.read("x", {"mask": SCALAR}, {}, 1), "must not name 'mask'"),
        (lambda: elwc.read("x", {"a": SCALAR}, {"a": SCALAR}, 1), "Received: 'a' in both"),
        (lambda: elwc.write([], "unused", num_shards=0), "`num_shards` must be a positive"),
        (lambda: elwc.read("nothing*", {}, {}, 1), "`pattern` must match at least one file"),
        (lambda: elwc.read("x", {}, {}, 0), "`batch_size` must be a positive"),
        (lambda: elwc.read("x", {}, {}, 1, list_size=0), "`list_size` must be a positive"),
        (
            lambda: elwc.read("x", {}, {"a": tf.io.FixedLenFeature([], tf.float32)}, 1),
            "`example_spec` must hold `tf.io.FixedLenFeature`s with default values. Received: 'a'",
        ),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_zeros_at_the_end_of_bytes_stay():
    for value in (b"ab\x00", [b"ab\x00"], [[b"ab\x00"], [b"c"]], ["a\x00", "b"]):
        text = np.asarray(value, object).reshape(-1)[0]
        text = text if isinstance(text, bytes) else text.encode()
        assert b"\x0a" + bytes([len(text)]) + text in elwc.serialize({"x": value}, [])


def test_zeros_at_the_end_of_bytes_stay_in_lists():
    ((context, _),) = elwc.lists([({"x": [b"ab\x00"]}, [0])], num_classes=2)
    assert context == {"x": b"ab\x00"}


def test_numbers_beyond_float32_are_refused():
    assert elwc.serialize({"x": [np.inf, 1e38]}, [])
    with pytest.raises(ValueError, match="must be within the range of float32. Received: x="):
        elwc.serialize({"x": [1.0, 1e39]}, [])


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


@pytest.mark.parametrize("number", [2**63, 2**64, [1, 2**70], -(2**63) - 1])
def test_integers_beyond_64_bits_are_refused(number):
    with pytest.raises(ValueError, match=r"Features must be in .*Received: x="):
        elwc.serialize({"x": number}, [])


@pytest.mark.parametrize(
    "spec",
    [
        tf.io.VarLenFeature(tf.int64),
        tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True),
        tf.io.RaggedFeature(tf.int64),
    ],
)
def test_examples_have_features_of_fixed_length(spec):
    with pytest.raises(ValueError, match="`example_spec` must hold .*Received: 'a'"):
        elwc.read("f*", {}, {"a": spec}, 2)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (([[1.0]], [0], [1.0]), "`batches` must hold pairs"),
        (([[1.0]], tf.ragged.constant([[0]])), "must be dense. Received: a RaggedTensor of 'class"),
        ((tf.ragged.constant([[1.0]]), [0]), "must be dense. Received: a RaggedTensor of 'feat"),
        (({"x": tf.sparse.from_dense([[1.0]])}, [0]), "must be dense. Received: a SparseTensor"),
    ],
)
def test_batches_that_are_no_lists(batch, message):
    with pytest.raises(ValueError, match=message):
        list(elwc.lists([batch], num_classes=2))


def test_other_types_are_refused():
    with pytest.raises(TypeError, match="Received: x="):
        elwc.serialize({"x": 1j}, [])


def count_lists(pattern):
    return sum(len(batch["query"]) for batch in elwc.read(pattern, CONTEXT, EXAMPLES, 16))


def lists_of(count):
    return [({"query": np.float32([row, 0])}, [{"label": 1.0}] * (row % 3)) for row in range(count)]


@pytest.fixture
def sharded(tmp_path):
    """A pattern of 40 lists in two files, and their names."""
    assert elwc.write(lists_of(40), tmp_path / "f", num_shards=2) == 40
    assert count_lists(tmp_path / "f*") == 40
    return tmp_path / "f*", [tmp_path / f"f-0000{shard}-of-00002" for shard in range(2)]


def as_another_writer(names):
    """Writes 40 lists to files in turns, without what tells their number."""
    for shard, name in enumerate(names):
        with tf.io.TFRecordWriter(str(name)) as file:
            for each in lists_of(40)[shard :: len(names)]:
                file.write(elwc.serialize(*each))


def cut(name, records):
    """Cuts the last records off a file; each has 16 bytes around it."""
    lengths = [len(record.numpy()) + 16 for record in tf.data.TFRecordDataset(str(name))]
    with open(name, "r+b") as file:
        file.truncate(sum(lengths[:-records]))


@pytest.mark.parametrize("another_writer", [False, True])
def test_a_missing_file_is_an_error(sharded, another_writer):
    pattern, names = sharded
    if another_writer:
        as_another_writer(names)
        assert count_lists(pattern) == 40
    names[1].unlink()
    with pytest.raises(ValueError, match="all files of a set.*missing: .*f-00001-of-00002"):
        count_lists(pattern)
    # What is asked for is there.
    assert count_lists(names[0]) == 20
    assert count_lists(str(names[0]).replace("-00000-", "-0000[0]-")) == 20


@pytest.mark.parametrize("shard", [0, 1])
def test_an_empty_file_is_an_error(sharded, shard):
    pattern, names = sharded
    names[shard].write_bytes(b"")
    with pytest.raises(ValueError, match=rf"f-0000{shard}-of-00002', which is empty and .* 20 "):
        count_lists(pattern)


def test_an_empty_file_of_another_writer_warns(sharded):
    pattern, names = sharded
    as_another_writer(names)
    names[0].write_bytes(b"")
    with pytest.warns(UserWarning, match="an empty file: .*f-00000-of-00002"):
        assert count_lists(pattern) == 20


def test_fewer_lists_than_files(tmp_path):
    elwc.write(lists_of(2), tmp_path / "f", num_shards=3)
    assert (tmp_path / "f-00002-of-00003").stat().st_size == 0
    assert count_lists(tmp_path / "f*") == 2
    (tmp_path / "f-00001-of-00003").write_bytes(b"")
    with pytest.raises(ValueError, match="f-00001-of-00003', which is empty and should hold 1 "):
        count_lists(tmp_path / "f*")


@pytest.mark.parametrize("records", [1, 15, 19])
def test_a_file_cut_between_records_is_an_error(sharded, records):
    pattern, names = sharded
    cut(names[1], records)
    with pytest.raises(ValueError, match="whole files.*f-00001-of-00002', .* without its last rec"):
        count_lists(pattern)


def test_a_file_of_another_length_is_an_error(sharded):
    pattern, names = sharded
    names[1].write_bytes(names[0].read_bytes() + names[1].read_bytes())
    with pytest.raises(ValueError, match="f-00001-of-00002', .* bytes where it should have"):
        count_lists(pattern)


def test_files_of_two_sets_are_an_error(sharded, tmp_path):
    pattern, names = sharded
    old = names[1].read_bytes()
    elwc.write(lists_of(41)[1:], tmp_path / "f", num_shards=2)
    names[1].write_bytes(old)
    with pytest.raises(ValueError, match="written at different times: .*-00000-.*-00001-"):
        count_lists(pattern)
    elwc.write(lists_of(40), tmp_path / "f", num_shards=3)
    with pytest.raises(ValueError, match="files of sets of 2 and of 3"):
        count_lists(pattern)
    assert count_lists(tmp_path / "f*-of-00003") == 40


def test_an_exception_in_the_input_leaves_no_file(tmp_path):
    def broken():
        yield from lists_of(30)
        raise RuntimeError("at the 31st")

    with pytest.raises(RuntimeError, match="at the 31st"):
        elwc.write(broken(), tmp_path / "f", num_shards=2)
    assert not list(tmp_path.iterdir())
    elwc.write(lists_of(40), tmp_path / "f", num_shards=2)
    with pytest.raises(RuntimeError, match="at the 31st"):
        elwc.write(broken(), tmp_path / "f", num_shards=2)
    assert count_lists(tmp_path / "f*") == 40  # As before.


def test_a_file_under_the_name_of_another_is_an_error(sharded):
    pattern, names = sharded
    names[1].write_bytes(names[0].read_bytes())
    with pytest.raises(ValueError, match="f-00001-of-00002', which is number 0 of its set"):
        count_lists(pattern)


@pytest.mark.parametrize("size", [1, 11, 15])
def test_bytes_that_tensorflow_takes_for_the_end(sharded, size):
    pattern, names = sharded
    names[0].write_bytes(names[0].read_bytes()[:size])
    with pytest.raises(ValueError, match=f"f-00000-of-00002', {size} bytes of a record"):
        count_lists(pattern)


def test_a_file_of_another_writer_in_a_set_is_an_error(sharded):
    pattern, names = sharded
    with tf.io.TFRecordWriter(str(names[0])) as file:
        file.write(elwc.serialize(*lists_of(1)[0]))
    with pytest.raises(ValueError, match="which is no file of this set and should hold 20"):
        count_lists(pattern)
