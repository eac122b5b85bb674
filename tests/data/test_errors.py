"""Wrong arguments of readers and writers, and damaged files: errors that name them."""

import datetime
import functools
import sys

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf import data
from rank4class_tf.data import elwc

from ..refused import each_call, refused, warned
from .test_splits import line

MIND = functools.partial(data.mind, "nowhere")
LOADERS = [data.digits, data.goemotions, MIND, data.cifar10, data.imagenet2012]
BATCH_SIZE = "`batch_size` must be a positive integer. Received: "
SEED = r"`seed` must be an integer in \[0, 2\*\*32\). Received"
SCALAR = tf.io.FixedLenFeature([], tf.float32, default_value=0.0)
SPARSE = tf.sparse.from_dense([[1.0]])
FIXED = (
    "`example_spec` must hold `tf.io.FixedLenFeature`s with default values. "
    "Received: 'a'"
)


@pytest.mark.parametrize("load", LOADERS)
def test_batch_sizes_and_seeds(load):
    for wrong in (0, -1, 2.0, True, None, np.int64(0)):
        with refused(BATCH_SIZE):
            load(batch_size=wrong)
    for wrong in (-1, 2**32, 0.5, False):
        with refused(SEED):
            load(seed=wrong)


@pytest.mark.parametrize("load", [load for load in LOADERS if load is not MIND])
def test_missing_modules(load, monkeypatch):
    of_digits = load is data.digits
    module = "sklearn.datasets" if of_digits else "tensorflow_datasets"
    monkeypatch.setitem(sys.modules, module, None)
    extra = "demo" if of_digits else "data"
    with pytest.raises(ImportError, match=rf"`{module}`: pip install -e '.\[{extra}"):
        load()


def elwc_of(*batch, num_classes=3, **options):
    return list(elwc.lists([batch], num_classes, **options))


def serialized(x):
    return elwc.serialize({"x": x}, [])


def spec(example, context=None):
    return elwc.read("f*", context or {}, {"a": example}, 2)


def pairs(*batch):
    return data.UserItems.from_pairs([([1], [2]), batch])


def lists(grades, features=None, **options):
    return data.lists_from_groups(features or [[x] for x in grades], grades, **options)


def user_items(**options):
    return data.UserItems.from_pairs([([1, 1], [2, 3])], **options)


def written(*point, num_labels=2):
    data.write_extreme_classification("x.txt", [point], 3, num_labels)


def predicted(score, label):
    data.write_top_k("found.txt", [([[score]], [[label]])], 5)


@each_call(
    [
        (
            lambda: data.digits(examples_per_class=105),
            "`examples_per_class` must be at most 104",
        ),
        (
            lambda: data.goemotions(max_tokens=0),
            "`max_tokens` must be a positive integer",
        ),
        (lambda: data.goemotions(max_tokens=2), "at least 3. Received: max_tokens=2"),
        (
            lambda: data.goemotions(sequence_length=0),
            "`sequence_length` must be a positive int",
        ),
        (
            lambda: data.imagenet2012(image_size=0),
            "`image_size` must be a positive integer",
        ),
        (data.movielens, "`version` must be one of", "2m"),
        # ELWC
        (
            lambda: elwc_of([[1.0]], [0], num_classes=0),
            "`num_classes` must be a positive",
        ),
        (
            lambda: elwc_of([[1.0]], [0], num_negatives=0),
            "`num_negatives` must be a positive",
        ),
        (lambda: elwc_of([[1.0]], [0], seed=-1), "`seed` must be an integer"),
        (elwc_of, r"Class ids must be in \[0, 3\)", [[1.0]], [3]),
        (elwc_of, r"Class ids must be in \[0, 3\)", [[1.0]], [-2]),
        (elwc_of, "must be integers", np.ones((1, 2)), [[0.0, 1.0]]),
        (elwc_of, "looks like one-hot", np.ones((1, 2)), [[0, 0, 1]]),
        (elwc_of, "looks like one-hot", np.ones((1, 2)), [[0, 2, 1]]),
        (lambda: elwc_of([[1.0]], [[0, 1]], num_classes=2), "looks like one-hot"),
        (lambda: elwc_of([[1.0]], [[0, 0, 1]], num_classes=9), "looks like one-hot"),
        (elwc_of, "Received: 1 for 5 of 'features'", np.ones((5, 2)), [1]),
        (elwc_of, "`batches` must hold pairs", [[1.0]], [0], [1.0]),
        (
            elwc_of,
            "dense. .* a RaggedTensor of 'class",
            [[1.0]],
            tf.ragged.constant([[0]]),
        ),
        (
            elwc_of,
            "dense. .* a RaggedTensor of 'feat",
            tf.ragged.constant([[1.0]]),
            [0],
        ),
        (elwc_of, "must be dense. Received: a SparseTensor", {"x": SPARSE}, [0]),
        (serialized, r"must be in .-2\*\*63, 2\*\*63", np.uint64(2**63)),
        (serialized, r"Features must be in .*Received: x=", [1, 2**70]),
        (serialized, r"Features must be in .*Received: x=", -(2**63) - 1),
        (serialized, "within the range of float32. Received: x=", [1.0, 1e39]),
        (serialized, "Received: x=", 1j),
        (spec, "must not name 'mask'", SCALAR, {"mask": SCALAR}),
        (spec, "Received: 'a' in both", SCALAR, {"a": SCALAR}),
        (spec, FIXED, tf.io.FixedLenFeature([], tf.float32)),
        (spec, FIXED, tf.io.VarLenFeature(tf.int64)),
        (
            lambda: elwc.write([], "unused", num_shards=0),
            "`num_shards` must be a positive",
        ),
        (elwc.read, "`pattern` must match at least one file", "nothing*", {}, {}, 1),
        (elwc.read, "`batch_size` must be a positive", "x", {}, {}, 0),
        (
            lambda: elwc.read("x", {}, {}, 1, list_size=0),
            "`list_size` must be a positive",
        ),
        # The Extreme Classification Repository
        (written, r"line 2: a label must be in \[0, 2\). Received: 2", [2], [], []),
        (written, "line 2: a value must be finite. Received: 1e", [1], [0], [1e39]),
        (written, "integer", [0.5], [], []),
        (written, "each feature. Received: 2 features, 1 value", [1], [0, 1], [1.0]),
        (
            data.write_extreme_classification,
            "must hold at least one point",
            "x",
            [],
            3,
            2,
        ),
        (predicted, r"label must be in \[0, 5\)", 1.0, 5),
        (predicted, "finite", np.nan, 1),
        (data.write_top_k, "`batches` must hold at least one point", "x", [], 5),
        # Rows of graded lists
        (lists, "Pass either `qid`, .* Received: neither", [1, 2]),
        (
            lambda: lists([1, 2], qid=[1, 1], group=[2]),
            "Pass either `qid`, .* Received: both",
        ),
        (
            lambda: lists([1, 2], group=[1]),
            r"add up to the 2 rows. Received: \[1\], int64, with",
        ),
        (lambda: lists([1, 2], group=[2.0]), "`group` must be integers >= 1"),
        (lambda: lists([1, 2], group=[2, 0]), "`group` must be integers >= 1"),
        (
            lambda: lists([1, 2, 0], qid=[7, 8, 7]),
            "one after the other. Received: rows of 7 apart",
        ),
        (
            lambda: lists([1, 2], qid=[7]),
            r"`qid` must have one id a row. Received: \(1,\)",
        ),
        *(
            (
                lambda ids=ids: lists([1, 2], qid=ids),
                "`qid` must hold only .*no missing",
            )
            for ids in ([7, None], [7, np.nan], np.array([7, np.nan]), [1, "1"])
        ),
        (
            lambda: lists([1, -1], group=[2]),
            "`grades` must be finite numbers >= 0. Received: -1",
        ),
        (
            lambda: lists([np.nan], [[0]], qid=[1]),
            "`grades` must be finite numbers >= 0. Received: n",
        ),
        (lambda: lists([], group=[]), "must have the same rows, at least one"),
        (lambda: lists([1], features=[[1], [2]], qid=[1]), "must have the same rows"),
        (lambda: lists([1], features=[[np.nan]], qid=[1]), "without missing values"),
        (lambda: lists([1], features=[[1e39]], qid=[1]), "must be finite in float32"),
        (
            lambda: lists([1], qid=[1], list_size=0),
            "`list_size` must be a positive integer",
        ),
        (
            lambda: data.read_letor("x", num_features=0),
            "`num_features` must be a positive",
        ),
        # Users and items. Ids were cut to 32 bits, and floating ones rounded, without a
        # word.
        (data.UserItems.from_pairs, "`batches` must hold at least one", []),
        (lambda: user_items().batches("dev"), "`part` must be one of"),
        (lambda: user_items().batches("test", batch_size=0), BATCH_SIZE),
        (pairs, r"of one length.* int64 of shape \(2,\) and", [1, 2], [3]),
        (pairs, "`batches` must hold `.user_ids, item_ids.`", [1], [2], [3], [4]),
        (pairs, "ids integers or strings. Received: float64", [1.5], [3]),
        (pairs, "ids integers or strings. Received: object", ["a", None], [3, 4]),
        (pairs, "ids integers or strings. Received: object", ["a", np.nan], [3, 4]),
        (pairs, "integers as ids in all batches, or strings in all. R", ["1"], [3]),
        (pairs, "arrays of one length", [[1]], [[3]]),
        (
            lambda: user_items().item_numbers([2, 9]),
            r"among the 2 ids, int32. Received: \[9\]",
        ),
        (
            lambda: user_items().user_numbers("1"),
            "among the 1 ids, int32. Received: <U1",
        ),
        (pairs, "`batches` must hold ids in .* Received: 2147483648", [1], [2**31]),
        (pairs, "timestamps in each batch or in none. Received: 1 of 2", [1], [2], [3]),
        (pairs, "that are finite numbers or dates. Received: nan", [1], [2], [np.nan]),
        (pairs, "that are finite numbers or dates. Received: <U1", [1], [2], ["1"]),
        (pairs, "arrays of one length", [1], [2], [3, 4]),
        (
            lambda: pairs([1, 2], [2, 3], [datetime.date.today(), None]),
            "that are finite numbers or dates. Received: object",
        ),
        *(
            (lambda x=x: user_items(item_ids=x), f"`item_ids` must hold .*: {message}")
            for x, message in (
                ([3, 3], "an id twice"),
                ([0.5], "float64 of"),
                ([2**31], "2147483648"),
            )
        ),
        (lambda: user_items(item_ids=["3"]), "integers as ids in all .* or strings"),
        (
            lambda: data.UserItems.from_pairs([], split="first"),
            "`split` must be one of",
        ),
        (
            lambda: data.UserItems.from_file("x", split="first"),
            "`split` must be one of",
        ),
        (
            lambda: data.UserItems.from_pairs([([1], [2])], 0, "last").sequences(
                "dev", 1
            ),
            "`part`",
        ),
        (
            lambda: data.UserItems.from_pairs([([1], [2])], 0, "last").sequences(
                "test", 0
            ),
            "`leng",
        ),
        (pairs, "`batches` must hold ids in ", np.array([2**64 - 1], np.uint64), [3]),
    ],
)
def test_arguments(call, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((TypeError, ValueError), match=message):
        call()
    assert not list(tmp_path.iterdir())


def test_arguments_that_fit_no_file(tmp_path):
    path = tmp_path / "points.txt"
    data.write_extreme_classification(path, [([0, 1], [0], [2.0])] * 4, 3, 2)
    for wrong in (0, 5, True, np.bool_(True), 1.0):
        with refused(r"None or integers in \[1, 4\]. R"):
            data.extreme_classification(path, rows=[1, wrong])
    for column in (-1, 0.5, "0", True):
        with refused("`column` must be an integer >= 0"):
            data.read_extreme_split(path, column=column)
    with refused("line 1: must have a number in column 5"):
        data.read_extreme_split(path, column=5)


def packed(damage):
    """What a damaged file of 80 points holds."""
    data.write_extreme_classification(
        "p.txt.gz", [([0], [0, 1], [0.5, 1.25])] * 80, 5, 6
    )
    with open("p.txt.gz", "rb") as file:
        return damage(file.read())


def letor(content, message):
    return (
        lambda path: data.read_letor(path, 3),
        "bad.txt",
        content,
        f"bad.txt{message}",
    )


def extreme(path):
    return list(data.extreme_classification(path))


def points(content, message):
    return extreme, "bad.txt", content, message


POINT = r"bad.txt, line 2: must be `l1,l2 f:v f:v`"
HEADER = r"bad.txt, line 1: must be `points features labels`"
NOT_WHOLE = "must be whole, and text in UTF-8"


@pytest.mark.parametrize(
    "read, name, content, message",
    [
        points("2 3", HEADER),
        points("1 3 2\n0 1:x", POINT),
        points(
            "2 3 2\n0 1:1\n2 1:1",
            r"line 3: a label must be in \[0, 2\). .*: 2",
        ),
        points(
            "1 3 2\n0 3:1",
            r"line 2: a feature must be in \[0, 3\). .*: 3",
        ),
        points(
            "3 3 2\n0 1:1",
            "line 1: must have the number of points. Received: 3",
        ),
        letor("", ": must hold at least one line"),
        letor(
            "1 qid:1 2:1\n1 1:1", ": .* all lines or in none. Received: 1 of 2 lines"
        ),
        *(
            letor(f"1 qid:1 1:2\n{wrong}", ": must hold lines `grade qid:q f:v f:v`")
            for wrong in (
                "x",
                "1 qid:a 1:2",
                "1 qid:1 1",
                "1 qid:1 0:1",
                "1 qid:1 2:1 1:1",
            )
        ),
        *(
            letor(
                f"1 {wrong}",
                ": must hold lines .* rising from 1 to 3. Received: ",
            )
            for wrong in "1:1 1:2,4:1,1:٣,1:2:3,99999999999:1".split(",")
        ),
        # What Python takes for numbers
        points(
            "1 3 2\n0 1:nan",
            "line 2: a value must be finite. Received: nan",
        ),
        points(
            "1 3 2\n0 1:1e39",
            r"line 2: a value must be finite. .*: 1e\+39",
        ),
        points("1 3 20\n1_0 1:1", POINT),
        points("1 3 9\n٣ 1:1", POINT),
        points("1 3_0 2\n0 1:1", HEADER),
        points("1 99999999999999999999 2\n0 1:1", HEADER),
        points(b"1 3 2\n0 1:1\xff\n", f"bad.txt: {NOT_WHOLE}"),
        *(
            (extreme, "bad.txt.gz", content, "bad.txt.gz: must be whole")
            for content in (
                lambda: packed(lambda x: x[:40]),
                lambda: packed(lambda x: x[:-6] + b"\0" + x[-5:]),
                b"no such",
            )
        ),
        # Points of a split are numbered from 1.
        *(
            (
                data.read_extreme_split,
                "split.txt",
                f"3\n{number}",
                "split.txt, line 2: ",
            )
            for number in ("0", "-1", "1_0", "9223372036854775808")
        ),
        (
            data.mind,
            "news.tsv",
            f"{line(1)}\nN2\tsports\tTitle",
            "8 fields.* 3 in line 2 of ",
        ),
        (
            data.mind,
            "news.tsv",
            b"",
            "`path` must hold articles. Received: .*, which has none.",
        ),
        # An article has a category, and an id of its own.
        *(
            (
                data.mind,
                "news.tsv",
                f"{line(1)}\n{second}",
                "once in a file. .* in line 2 of '.*",
            )
            for second in (
                line(1),
                line(2).replace("N2", "", 1),
                line(2).replace("autos", "", 1),
            )
        ),
        (data.mind, "news.tsv", line(1).encode() + b"\xff\n", f"news.tsv: {NOT_WHOLE}"),
    ],
)
def test_damaged_files(read, name, content, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content = content() if callable(content) else content
    content = content if isinstance(content, bytes) else f"{content}\n".encode()
    (tmp_path / name).write_bytes(content)
    with pytest.raises((ValueError, tf.errors.OpError), match=message):
        read(tmp_path / name)


def test_a_last_line_without_an_end_warns(tmp_path):
    """0.53 that was cut to 0.5 is a number as well."""
    path = tmp_path / "cut.txt"
    for content, read in (
        ("1 3 2\n0 1:0.5", extreme),
        ("12\n3", data.read_extreme_split),
    ):
        path.write_text(content)
        with warned("cut.txt: no line break ends the last line; the file"):
            found = read(path)
    assert found.tolist() == [12, 3]
    path.write_text("")
    assert data.read_extreme_split(path).size == 0


CONTEXT = {"query": tf.io.FixedLenFeature([2], tf.float32)}
LISTS = [
    ({"query": np.array([row, 0], "f")}, [{"label": 1.0}] * (row % 3))
    for row in range(41)
]


def count_lists(pattern):
    return sum(
        len(batch["query"])
        for batch in elwc.read(pattern, CONTEXT, {"label": SCALAR}, 16)
    )


def test_sets_of_elwc_are_whole_and_alone_unless_asked_for(tmp_path):
    pattern = tmp_path / "f*"
    names = [tmp_path / f"f-0000{shard}-of-00002" for shard in range(2)]
    assert elwc.write(LISTS[:40], tmp_path / "f", num_shards=2) == 40
    assert count_lists(pattern) == 40
    elwc.write(LISTS[:40], tmp_path / "f", num_shards=3)
    with refused("files of sets of 2 and of 3"):
        count_lists(pattern)
    assert count_lists(tmp_path / "f*-of-00003") == 40
    for name in tmp_path.glob("f*-of-00003"):
        name.unlink()
    names[1].unlink()
    with refused("all files of a set.*missing: .*f-00001-of-00002"):
        count_lists(pattern)
    assert count_lists(names[0]) == 20
    assert count_lists(str(names[0]).replace("-00000-", "-0000[0]-")) == 20


def test_fewer_lists_than_files(tmp_path):
    elwc.write(LISTS[:2], tmp_path / "f", num_shards=3)
    with warned("an empty file: .*f-00002-of-00003"):
        assert count_lists(tmp_path / "f*") == 2


def test_an_exception_in_the_input_leaves_what_was_there(tmp_path):
    def broken():
        yield from LISTS[:30]
        raise RuntimeError("at the 31st")

    with pytest.raises(RuntimeError, match="at the 31st"):
        elwc.write(broken(), tmp_path / "f", num_shards=2)
    assert not list(tmp_path.iterdir())
    elwc.write(LISTS[:40], tmp_path / "f", num_shards=2)
    with pytest.raises(RuntimeError, match="at the 31st"):
        elwc.write(broken(), tmp_path / "f", num_shards=2)
    assert count_lists(tmp_path / "f*") == 40
