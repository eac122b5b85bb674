"""Hands damaged files and wrong labels to whatever reads them.

    python scripts/fuzz.py --cases 10000 --out out/fuzz

Each case is a file, or labels, with some random faults: cut, bits flipped, bytes put in or left
out, lines doubled, dropped or swapped, numbers made huge, negative or no numbers; labels of other
types, shapes and ranks. What may follow is the right result, by a reader that shares no code with
the package (for files with checksums: the result of the file without faults), or an error whose
message names the file or the argument. All else is a defect: another result, an error without a
name, a crash of the process, or a case of more than `LIMIT` seconds.

The cases follow from --seed. Each target runs in a process of its own, which is started again
behind a case that ends it. The folder gets `<target>.json`: a script that is started again goes on
behind the last case there, and the defects, with the numbers of their cases, are in it.
"""

import argparse
import collections
import faulthandler
import functools
import gzip
import json
import math
import mmap
import os
import pathlib
import re
import struct
import sys
import tempfile
import warnings
import zlib
from unittest import mock

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from rank4class_tf import _files, data, layers, losses, metrics
from rank4class_tf._tf import raising
from rank4class_tf.data import elwc

LIMIT = 60

# One case of so many goes through TensorFlow, which takes a hundred times as long as reading.
SELDOM = 20

# What a wrong argument or a damaged file may raise. AssertionErrors and such are defects.
EXPECTED = (ValueError, TypeError, OSError, EOFError, tf.errors.OpError)

NUMBERS: tuple[str, ...] = (
    "0",
    "-1",
    "1",
    "2",
    "7",
    "255",
    "2147483648",
    "-9223372036854775809",
    "1" + "0" * 25,
)
NUMBERS += ("nan", "inf", "-inf", "1e39", "1e999", "0.5", "1_0", "٣", "", " ", "0x1", "+1", "1e-50")


class Defect(Exception):
    """What must not happen."""


class Draws:
    """Random choices; `integer(n)` gives one of 0, ..., n - 1."""

    def __init__(self, integer):
        self.integer = integer

    def of(self, values):
        """One of some values."""
        return values[self.integer(len(values))]

    def chance(self, one_in):
        """True in one of so many cases."""
        return self.integer(one_in) == 0


def mutated(draws, content):
    """Bytes with one to three faults; with none in one of 20 cases."""
    if draws.chance(20):
        return content
    for _ in range(1 + draws.integer(3)):
        content = draws.of(MUTATIONS)(draws, content)
    return content


def _cut(draws, content):
    return content[: draws.integer(len(content) + 1)]


def _flip(draws, content):
    content = bytearray(content or b"\n")
    content[draws.integer(len(content))] ^= 1 << draws.integer(8)
    return bytes(content)


def _insert(draws, content):
    at = draws.integer(len(content) + 1)
    byte = draws.of(b"\t\n\r ,:_-+.0|\xff\x00\xc3") if draws.chance(2) else draws.integer(256)
    return content[:at] + bytes([byte]) + content[at:]


def _drop(draws, content):
    at = draws.integer(len(content) + 1)
    return content[:at] + content[at + 1 + draws.integer(4) :]


def _lines(draws, content):
    lines = content.splitlines(keepends=True) or [b"\n"]
    at, other = draws.integer(len(lines)), draws.integer(len(lines))
    kind = draws.integer(3)
    if kind == 0:
        lines.insert(at, lines[other])
    elif kind == 1:
        del lines[at]
    else:
        lines[at], lines[other] = lines[other], lines[at]
    return b"".join(lines)


def _number(draws, content):
    found = list(re.finditer(rb"\d+", content))
    if not found:
        return content
    start, end = draws.of(found).span()
    return content[:start] + draws.of(NUMBERS).encode() + content[end:]


MUTATIONS = (_cut, _flip, _flip, _insert, _drop, _lines, _number)


def outcome(read, expected, names, refused_is_wrong=True):
    """What reading gives: "right", or the type of the error.

    Args:
        read: a function that returns what was read.
        expected: a function of that which says whether it is right; None if it cannot be.
        names: an error names one of these.
        refused_is_wrong: whether there is no error where the result can be right.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = read()
        except EXPECTED as error:
            message = str(error)
            if expected is not None and refused_is_wrong:
                raise Defect(f"what is right is refused: {type(error)} {error}") from error
            if not any(name in message for name in names):
                raise Defect(f"an error without a name: {type(error)} {error}") from error
            return type(error).__name__
        except DecodeError as error:
            raise Defect(f"an error without a name: {error!r}") from error
    if any("may be cut" in str(warning.message) for warning in caught):
        return "warning"
    if expected is None or not expected(found):
        raise Defect(f"another result: {str(found)[:300]}")
    return "right"


def equal(expected, found):
    """Whether two nested structures of arrays, numbers and strings are the same."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(equal(expected[k], found[k]) for k in found)
    if isinstance(expected, (list, tuple)):
        return len(found) == len(expected) and all(map(equal, expected, found))
    return np.array_equal(found, expected)


# The format of the Extreme Classification Repository.

POINTS = [
    ([0, 12], [3, 11], [0.5, -1.25]),
    ([], [0], [2.0]),
    ([14], [], []),
    ([1, 3, 14], [0, 1, 4], [1.0, 2.0, 3.5e-07]),
    ([7], [2, 9, 13], [0.0625, 1e10, -7.75]),
]
# A number as text has it: Python takes more, such as 1_0 and the digits of other scripts.
_FLOAT = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
_INT = re.compile(r"\s*[+-]?\d{1,4000}\s*", re.ASCII)


def _as_int(text, low, high):
    if not _INT.fullmatch(text) or not low <= int(text) < high:
        raise ValueError
    return int(text)


def _as_natural(text):
    if not re.fullmatch(r"\d{1,4000}", text, re.ASCII) or not 1 <= int(text) < 2**63:
        raise ValueError
    return int(text)


def _as_float(text):
    if not _FLOAT.fullmatch(text) or not abs(float(text)) <= np.finfo(np.float32).max:
        raise ValueError
    return np.float32(text)


def _text_lines(content):
    """The lines of a text; a carriage return ends one as well."""
    text = content.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    return text.removesuffix("\n").split("\n") if text else []


def _points_of(content):
    """The points of a file, None if it breaks the rules."""
    try:
        first, *lines = _text_lines(content)
        count, num_features, num_labels = map(_as_natural, first.split())
        points = []
        for line in lines:
            labels, *pairs = line.split(" ")
            labels = [_as_int(x, 0, num_labels) for x in labels.split(",")] if labels else []
            pairs = [pair.split(":") for pair in pairs if pair]
            features = [(_as_int(i, 0, num_features), _as_float(x)) for i, x in pairs]
            points.append((labels, sorted(features, key=lambda pair: pair[0])))
    except ValueError:
        return None
    return points if len(points) == count else None


def extreme_classification(draws, folder):
    """`data.extreme_classification`, of text and packed: the points, and some as batches."""
    valid = folder / "valid.txt"
    if not valid.exists():
        data.write_extreme_classification(valid, POINTS, num_features=14, num_labels=15)
    content = mutated(draws, valid.read_bytes())
    path = folder / "bad.txt"
    points = _points_of(content)
    if draws.chance(4):
        path = folder / "bad.txt.gz"
        content = gzip.compress(content)
        if draws.chance(2):
            content = mutated(draws, content)
            try:
                points = _points_of(gzip.decompress(content))
            except (OSError, EOFError, zlib.error):
                points = None
    path.write_bytes(content)
    whole = draws.chance(SELDOM)

    def read():
        if not whole:
            data._extreme._warn_if_cut(path)
            read = data._extreme._points(path)
            return [
                (
                    labels,
                    sorted(zip(ids, np.float32(values), strict=True), key=lambda pair: pair[0]),
                )
                for labels, ids, values in read
            ]
        found = []
        for features, labels in data.extreme_classification(path, batch_size=3):
            for row, ids in enumerate(labels.numpy()):
                mine = features.indices[:, 0] == row
                columns = features.indices[:, 1][mine].numpy().tolist()
                values = features.values[mine].numpy()
                found.append(
                    ([int(i) for i in ids if i >= 0], list(zip(columns, values, strict=True)))
                )
        return found

    right = None if points is None else functools.partial(equal, points)
    return outcome(read, right, [path.name, "batch_size"])


def read_header(draws, folder):
    """`data.read_header`."""
    path = folder / "header.txt"
    content = mutated(draws, b"5 14 15\n0,12 3:0.5\n")
    path.write_bytes(content)
    right = None
    try:
        # What follows may be no text; it is read as far as the decoder looks ahead.
        first = content.replace(b"\r", b"\n").partition(b"\n")[0].decode()
        header = tuple(map(_as_natural, first.split()))
        if len(header) == 3:
            right = functools.partial(equal, header)
    except ValueError:
        pass
    return outcome(lambda: data.read_header(path), right, [path.name], content.isascii())


def read_split(draws, folder):
    """`data.read_split`."""
    path = folder / "split.txt"
    content = mutated(draws, b"1 20\n13 4\n5 600\n7 8\n")
    path.write_bytes(content)
    column = draws.of([0, 1])
    try:
        rows = [line.split() for line in _text_lines(content)]
        numbers = [_as_natural(row[column]) for row in rows]
        right = functools.partial(equal, numbers)
    except (ValueError, IndexError):
        right = None
    return outcome(lambda: data.read_split(path, column), right, [path.name])


# WordNet.


def _synset(number, words, pointers, gloss, kind):
    words = " ".join(f"{word} 0" for word in words)
    pointers = "".join(f"{symbol} {parent:08d} {of} 0000 " for symbol, parent, of in pointers)
    count = pointers.count(" 0000 ")
    return f"{number:08d} 03 {kind} 01 {words} {count:03d} {pointers}| {gloss}  \n"


def _wordnet_files():
    nouns = [(1, []), (2, [1]), (3, [2]), (4, [3]), (5, [3])]
    nouns += [(n, [4 + n % 2]) for n in range(10, 26)]
    files = {"data.noun": "  1 The licence.  \n", "data.verb": "  1 The licence.  \n"}
    for number, parents in nouns:
        above = [("@", parent, "n") for parent in parents]
        gloss = f"a thing that is {'used' if number % 2 else 'alive'}; kind no{'abc'[number % 3]}"
        files["data.noun"] += _synset(number, [f"w{number}"], above, gloss, "n")
    for number in range(1, 9):
        above = [("@", number - 1, "v")] if number > 1 else [("+", 2, "n")]
        files["data.verb"] += _synset(number, [f"v{number}"], above, "to do a thing", "v")
    return {name: content.encode() for name, content in files.items()}


_POINTER = re.compile(r"(\S+) (\S+) (\S+) (\S+)")


def _synsets_of(files):
    """Name, hypernyms and words of each synset by key, None if a file breaks the rules."""
    synsets = {}
    for part in ("noun", "verb"):
        try:
            text = files[f"data.{part}"].decode("utf-8")
        except UnicodeDecodeError:
            return None
        if not text.endswith("\n"):
            return None
        licence, found_any = True, None
        for line in text.splitlines():
            licence = licence and line.startswith("  ")
            if licence:
                continue
            found_any = part
            head, bar, gloss = line.partition(" | ")
            fields = head.split()
            try:
                words = int(fields[3], 16)
                count = int(fields[4 + 2 * words])
                rest = fields[5 + 2 * words : 5 + 2 * words + 4 * count]
                ok = re.fullmatch(r"\d{8}", fields[0], re.ASCII) and fields[2] == part[0]
                ok = ok and re.fullmatch(r"\d\d", fields[1], re.ASCII)
                ok = ok and re.fullmatch("[0-9a-f]{2}", fields[3]) and words > 0
                ok = ok and re.fullmatch(r"\d{3}", fields[4 + 2 * words], re.ASCII)
            except (ValueError, IndexError):
                return None
            key = part[0] + fields[0]
            if not bar or not ok or len(rest) != 4 * count or key in synsets:
                return None
            above = [
                of + parent
                for symbol, parent, of in zip(rest[::4], rest[1::4], rest[2::4], strict=True)
                if symbol in ("@", "@i")
            ]
            found = re.findall("[a-z]+", gloss.lower())
            synsets[key] = (f"{fields[4]}.{part[0]}.{fields[0]}", above, found)
        if not found_any:
            return None
    if any(parent not in synsets for _, above, _ in synsets.values() for parent in above):
        return None
    return synsets


def wordnet(draws, folder):
    """`data.wordnet`: the synsets that it reads, and some as batches."""
    files = _wordnet_files()
    name = draws.of(sorted(files))
    files[name] = mutated(draws, files[name])
    for each, content in files.items():
        (folder / each).write_bytes(content)
    synsets = _synsets_of(files)
    whole = draws.chance(SELDOM)

    def read():
        found = data._wordnet._read(folder)
        if whole:
            data.wordnet(folder)
        return {key: (s.name, list(s.parents), list(s.words)) for key, s in found.items()}

    right = None if synsets is None else functools.partial(equal, synsets)
    return outcome(read, right, ["data.noun", "data.verb", str(folder), "`path`"])


# MIND.


def _articles():
    rows = []
    for n in range(20):
        abstract = "" if n == 7 else f'An "abstract" of é {n}'
        row = [f"N{n}", ("sports", "news", "tv")[n % 3], "sub", f"Title {n}", abstract]
        rows.append("\t".join([*row, f"https://x/{n}.html", "[]", '[{"a": 1}]']))
    return ("\n".join(rows) + "\n").encode()


def mind(draws, folder):
    """`data.mind`: the articles that it reads, and some as batches."""
    path = folder / "news.tsv"
    content = mutated(draws, _articles())
    path.write_bytes(content)
    right = None
    try:
        text = content.decode("utf-8")
        rows = [line.rstrip("\r").split("\t") for line in text.removesuffix("\n").split("\n")]
        ids = {row[0] for row in rows}
        if all(len(row) == 8 and row[0] and row[1] for row in rows) and len(ids) == len(rows):
            articles = sorted((row[1], " [SEP] ".join(filter(None, row[3:5]))) for row in rows)
            right = functools.partial(equal, articles)
    except UnicodeDecodeError:
        pass

    whole = draws.chance(SELDOM)

    def read():
        if not whole and content:
            return sorted(data._mind._read(path).values())
        splits = data.mind(path, batch_size=64)
        found = []
        for part in (splits.train, splits.validation, splits.test):
            for texts, ids in part.as_numpy_iterator():
                pairs = zip(texts, ids, strict=True)
                found += [(splits.class_names[i], text.decode()) for text, i in pairs]
        return sorted(found)

    return outcome(read, right, [path.name])


# Pairs of users and items.


def from_pairs(draws, folder):
    """`data.from_pairs`."""
    del folder
    batches, wrong, pairs = [], False, []
    for _ in range(draws.integer(3) + 1):
        size = draws.integer(6)
        columns = []
        for _ in range(2):
            values = [draws.integer(9) for _ in range(size)]
            if size and draws.chance(6):
                values[draws.integer(size)] = draws.of([-1, 2**31 - 1, 2**31, 2**40, 2**63 - 1])
            dtype = draws.of(["int64", "int64", "int64", "int64", "int32", "float64", "uint64"])
            if dtype == "int32" and any(value >= 2**31 for value in values):
                dtype = "int64"
            if dtype == "uint64":
                values = [abs(value) for value in values]
            column = np.array(values, dtype)
            if dtype == "float64":
                if draws.chance(2):
                    column = column + draws.of([0.5, math.nan, math.inf])
            if draws.chance(15):
                column = draws.of([column[1:], column[:, None], np.array(["x"] * size)])
            wrong |= column.ndim != 1 or bool(column.size) and column.dtype.kind not in "iu"
            wrong |= bool(size) and max(map(abs, values)) >= 2**31
            columns.append(column)
        wrong |= len(columns[0]) != len(columns[1])
        batches.append(tuple(columns))
    if not wrong:
        pairs = sorted(
            p for batch in batches for p in zip(*(c.tolist() for c in batch), strict=True)
        )

    def read():
        users = data.from_pairs(iter(batches))
        found = []
        for part in (users.train, users.validation, users.test):
            owners = users.user_ids[part.value_rowids().numpy()].tolist()
            found += zip(owners, users.item_ids[part.flat_values.numpy()].tolist(), strict=True)
        return sorted(found)

    return outcome(read, None if wrong else functools.partial(equal, pairs), ["`batches`"])


# TF-Ranking's files.

CONTEXT = {"query": tf.io.FixedLenFeature([2], tf.float32)}
EXAMPLES = {
    "id": tf.io.FixedLenFeature([], tf.int64, default_value=-7),
    "label": tf.io.FixedLenFeature([], tf.float32, default_value=-1.0),
}


def _some_lists():
    return [
        (
            {"query": np.float32([row, 0.5])},
            [{"id": 10 * row + i, "label": float(i % 2)} for i in range(row % 4)],
        )
        for row in range(9)
    ]


def _read_lists(pattern):
    found = []
    for batch in elwc.read(pattern, CONTEXT, EXAMPLES, batch_size=4):
        for row, mask in enumerate(batch["mask"].numpy()):
            ids, labels = (batch[name][row].numpy()[mask].tolist() for name in ("id", "label"))
            found.append(
                (batch["query"][row].numpy().tolist(), list(zip(ids, labels, strict=True)))
            )
    return sorted(found)


def _expected_lists():
    lists = _some_lists()
    return sorted(
        (context["query"].tolist(), [(e["id"], e["label"]) for e in examples])
        for context, examples in lists
    )


# TensorFlow does not say in which file.
_OF_RECORDS = ["corrupted record", "truncated record", "`pattern`"]
_OF_MESSAGES = ["DecodeProto", "ParseExample", "Could not parse example", "can't decode byte"]

# In one file, since a file takes as long as so many of them.
MESSAGES = 50


def elwc_files(draws, folder):
    """`elwc.read` of a set with damaged, missing, empty or exchanged files."""
    path = folder / "set"
    elwc.write(_some_lists(), path, num_shards=2)
    names = sorted(folder.glob("set-*"))
    name = draws.of(names)
    kind = draws.integer(12)
    if kind == 0:
        name.unlink()
    elif kind == 1:
        name.write_bytes(b"")
    elif kind == 2:
        name.write_bytes(names[name == names[0]].read_bytes())
    elif kind == 3:
        elwc.write(_some_lists()[: draws.integer(9)], folder / "other", num_shards=2)
        os.replace(folder / name.name.replace("set", "other"), name)
    else:
        name.write_bytes(mutated(draws, name.read_bytes()))
    pattern = f"{path}-*"
    if draws.chance(SELDOM):
        expected = _expected_lists()
        return outcome(
            lambda: _read_lists(pattern), functools.partial(equal, expected), _OF_RECORDS, False
        )

    def read():
        records = tf.data.TFRecordDataset(data._shards.find(pattern)).as_numpy_iterator()
        return sorted(map(_list_of, records))

    expected = sorted(_list_of(elwc.serialize(*each)) for each in _some_lists())
    return outcome(read, functools.partial(equal, expected), _OF_RECORDS, False)


def elwc_messages(draws, folder):
    """`elwc.read` of damaged messages in whole records, such as another writer may leave."""
    path = folder / "messages"
    messages, wholes = [], []
    for _ in range(MESSAGES):
        wholes.append(elwc.serialize(*draws.of(_some_lists())))
        messages.append(mutated(draws, wholes[-1]))
    with tf.io.TFRecordWriter(str(path)) as file:
        for message in messages:
            file.write(message)
    batches = iter(elwc.read(path, CONTEXT, EXAMPLES, batch_size=1))

    def read():
        batch = next(batches)
        mask = batch["mask"][0].numpy()
        pairs = zip(
            *(batch[name][0].numpy()[mask].tolist() for name in ("id", "label")), strict=True
        )
        return batch["query"][0].numpy().tolist(), list(pairs)

    counts = collections.Counter()
    # TensorFlow's parser takes some damaged messages that Google's refuses, and refuses others.
    for message, whole in zip(messages, wholes, strict=True):
        try:
            expected = _list_of(message)
        except (ValueError, DecodeError):
            expected = None
        try:
            if expected is None:
                found = outcome(read, lambda _: True, _OF_MESSAGES, False)
                counts["taken though malformed" if found == "right" else found] += 1
            else:
                right = functools.partial(equal, expected)
                counts[outcome(read, right, _OF_MESSAGES, message == whole)] += 1
        except Defect as defect:
            raise Defect(f"{defect}; {message!r}") from defect
    return counts


def _list_of(message):
    """A list by protocol buffers' own reader; raises where it breaks the rules."""
    fields = {1: [], 2: [b""]}
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            if at >= len(message) or shift > 63:
                raise ValueError
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value & (2**64 - 1)

    while at < len(message):
        tag = varint()
        number, kind = tag >> 3, tag & 7
        if not number or kind not in (0, 1, 2, 5):
            raise ValueError
        if kind == 0:
            varint()
            continue
        size = varint() if kind == 2 else {1: 8, 5: 4}[kind]
        if at + size > len(message):
            raise ValueError
        if kind == 2 and number in fields:
            fields[number].append(message[at : at + size])
        at += size
    context = tf.train.Example.FromString(fields[2][-1])
    query = context.features.feature["query"].float_list.value
    if len(query) != 2:
        raise ValueError
    found = []
    for each in fields[1]:
        feature = tf.train.Example.FromString(each).features.feature
        row = []
        for name, kind, default in (("id", "int64_list", -7), ("label", "float_list", -1.0)):
            one = feature[name]
            if one.WhichOneof("kind") is None:
                row.append(default)
                continue
            (value,) = getattr(one, kind).value
            row.append(value)
        found.append(tuple(row))
    return np.float32(query).tolist(), found


# Weights of sorters, and exported classes.


def pretrained(draws, folder):
    """`Sorter.pretrained` of a damaged file or card, or without a card."""
    path = folder / "sorter.npz"
    if not path.exists():
        sorter = layers.ConvolutionalSorter(length=5, frequencies=1, units=2, trainable=True)
        sorter.build((None, None))
        sorter.save_pretrained(path, note="a test")
    expected = dict(np.load(path))
    bad = folder / "bad.npz"
    contents = {
        bad: path.read_bytes(),
        bad.with_suffix(".json"): path.with_suffix(".json").read_bytes(),
    }
    card = bad.with_suffix(".json")
    kind = draws.integer(3)
    if kind == 0:
        del contents[card]
        card.unlink(missing_ok=True)
    damaged = card if kind == 2 else bad
    whole = contents[damaged]
    contents[damaged] = mutated(draws, whole)
    for file, content in contents.items():
        file.write_bytes(content)

    def read():
        sorter = layers.ConvolutionalSorter.pretrained(bad)
        return {name: weight.numpy() for name, weight in sorter._of_name.items()}

    def right(found):
        return all(np.array_equal(found[name], expected[name]) for name in found)

    return outcome(read, right, ["bad.npz", "bad.json"], contents[damaged] == whole)


def exported_classes(draws, folder):
    """`np.load` of exported classes that were cut. It has no checksum: no flipped bits here."""
    path = folder / "classes.npy"
    if not path.exists():
        layer = layers.SampledScores(20, num_sampled=2)
        layer.build((None, 3))
        layer.export_embeddings(path)
    expected, content = np.load(path), path.read_bytes()
    bad = folder / "cut.npy"
    bad.write_bytes(_cut(draws, content))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return outcome(
            lambda: np.load(bad, mmap_mode=draws.of([None, "r"])),
            functools.partial(equal, expected),
            [""],  # NumPy's own.
            False,
        )


# Labels.

_DTYPES = ("int32", "int64", "uint8", "int8", "uint64", "float32", "float64", "float16", "bool")
_STRANGE: tuple[float, ...] = (
    -2,
    5,
    255,
    2**31,
    -(2**31) - 1,
    2**40,
    2**63 - 1,
    2**63,
    2**64 - 1,
    0.5,
    math.nan,
)
_STRANGE += (math.inf, -math.inf, 1e30, -1e-3)


def _as_array(values, dtype):
    """An array of a dtype, None if it does not hold the values."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            array = np.array(values, dtype)
        except (OverflowError, ValueError):
            return None
    back = array.astype(object).reshape(-1).tolist()
    flat = np.array(values, object).reshape(-1).tolist()
    kept = all(
        x == y or x != x and y != y or dtype.startswith("f")
        for x, y in zip(back, flat, strict=True)
    )
    return array if kept else None


def _labels(draws):
    """Labels, scores `[batch, n]` and the format, most with a fault."""
    batch, n = 1 + draws.integer(3), 2 + draws.integer(4)
    scores = np.array([[draws.integer(17) / 4 for _ in range(n)] for _ in range(batch)], np.float32)
    kind = draws.of(["ids", "ids", "padded", "ragged", "relevance", "relevance"])
    width = {"ids": 1, "padded": 1 + draws.integer(4), "relevance": n}.get(kind, 0)
    lengths = [draws.integer(4) for _ in range(batch)]
    if kind == "relevance":
        rows = [[draws.of([0, 0, 1, 2, -1]) for _ in range(n)] for _ in range(batch)]
    else:
        lengths = lengths if kind == "ragged" else [width] * batch
        rows = [[draws.integer(n + 1) - 1 for _ in range(size)] for size in lengths]
    for _ in range(draws.integer(3)):
        row = draws.of(rows)
        if row:
            row[draws.integer(len(row))] = draws.of(_STRANGE)
    dtype = draws.of(_DTYPES if draws.chance(2) else ("int64", "float32"))
    if kind == "ragged":
        flat = _as_array([x for row in rows for x in row], dtype)
        if flat is None:
            return None
        labels = tf.RaggedTensor.from_row_lengths(flat, lengths)
    else:
        labels = _as_array(rows, dtype)
        if labels is None:
            return None
        if kind == "ids" and draws.chance(2):
            labels = labels[:, 0]
        fault = draws.integer(24)
        if fault == 0:
            labels = labels[:-1]
        elif fault == 1:
            labels = labels[None]
        elif fault == 2:
            labels = labels.reshape(-1)[:1].reshape(())
        elif fault == 3:
            labels = np.concatenate([labels] * 2, axis=-1)
        elif fault == 4:
            labels = labels[..., None]
        elif fault == 5:
            labels = np.array([["x"] * max(width, 1)] * batch)
        elif fault == 6:
            scores = draws.of([scores[0], scores[None], scores[:, :0]])
        elif fault == 7:
            labels, scores = labels[:0], scores[:0]
    return labels, scores, draws.of([None, "ids", "relevance"])


def judged(labels, scores, label_format):
    """The positives of each list, by the rules of the documentation.

    Returns:
        None where the labels as a whole break them; else for each list None where it breaks them,
        or relevance by item and the items that are masked.
    """
    if scores.ndim != 2 or not scores.shape[1]:
        return None
    batch, n = scores.shape
    inferred = label_format is None and not isinstance(labels, tf.RaggedTensor)
    if isinstance(labels, tf.RaggedTensor):
        if label_format == "relevance" or labels.dtype == tf.bool:
            return None
        rows, label_format, dtype = labels.to_list(), "ids", labels.dtype.as_numpy_dtype
    else:
        dtype = labels.dtype.type
        if not batch:
            return []  # Whatever the labels are.
        if labels.dtype.kind in "US" or labels.ndim not in (1, 2) or len(labels) != batch:
            return None
        label_format = label_format or _format(labels, n)
        if label_format is None or label_format == "relevance" and labels.shape != scores.shape:
            return None
        rows = labels.reshape(batch, -1).tolist() if batch else []
    if label_format == "ids" and dtype == np.bool_:
        return None
    judgements = [(_of_ids if label_format == "ids" else _of_relevance)(row, n) for row in rows]
    if inferred and label_format == "ids" and len(rows[0]) > 2:
        # They may be meant as labels of all items, of which there are another number.
        for i, row in enumerate(rows):
            judgements[i] = None if set(row) <= {0, 1} else judgements[i]
    return judgements


def _format(labels, n):
    kind = labels.dtype.kind
    if labels.ndim == 1:
        return None if kind == "b" else "ids"
    if labels.shape[1] == n and n > 1:
        return "relevance"
    if labels.shape[1] == 1:
        return None if kind == "b" else "ids"
    return "ids" if kind in "iu" else None


def _of_ids(row, n):
    if any(x != x or x not in range(-1, n) for x in row):
        return None
    return {int(x): 1.0 for x in row if x >= 0}, set()


def _of_relevance(row, n):
    del n
    row = [float(np.float32(x)) for x in row]
    if not all(map(math.isfinite, row)):
        return None
    masked = {i for i, x in enumerate(row) if x < 0}
    return {i: x for i, x in enumerate(row) if x > 0}, masked


def _softmax(scores, positives, masked):
    kept = [s for i, s in enumerate(scores) if i not in masked]
    top = max(kept, default=0.0)
    total = math.log(sum(math.exp(s - top) for s in kept)) + top if kept else 0.0
    return sum(y * (total - scores[i]) for i, y in positives.items())


def _reciprocal_rank(scores, positives, masked):
    """By all orders of the items that share the best positive's score."""
    others = [s for i, s in enumerate(scores) if i not in masked and i not in positives]
    best = max(scores[i] for i in positives)
    with_it = sum(scores[i] == best for i in positives)
    above, tied = sum(s > best for s in others), sum(s == best for s in others)
    expected = left = 1.0
    expected = 0.0
    for place in range(tied + 1):  # So many of the others stand before the first of them.
        chance = left * with_it / (with_it + tied - place)
        expected += chance / (above + place + 1)
        left -= chance
    return expected


def _values(judgement, scores, formula):
    return [
        math.nan if of is None else formula(scores[i].tolist(), *of) if of[0] else 0.0
        for i, of in enumerate(judgement)
    ]


def _close(expected, found):
    found = np.asarray(found, np.float64)
    if found.shape != np.shape(expected):
        return False
    with np.errstate(all="ignore"):
        same = np.isclose(found, expected, rtol=2e-5, atol=2e-5, equal_nan=True)
    # Relevance near the end of float32 may overflow: infinite is what it is then.
    huge = np.abs(expected) > 1e37
    return bool(np.all(same | huge))


_NAMES = ["`y_true`", "`y_pred`", "`label_format`", "Labels and ids"]


def _check_labels(draws, measure, formula):
    drawn = _labels(draws)
    if drawn is None:
        return "not made"
    labels, scores, label_format = drawn
    judgement = judged(labels, scores, label_format)
    right = None
    if judgement is not None and None not in judgement:
        expected = _values(judgement, scores, formula)
        right = functools.partial(_close, expected)
    some = len(scores) > 0  # Of an empty batch it is not clear what its labels are.
    try:
        return outcome(lambda: measure(labels, scores, label_format), right, _NAMES, some)
    except Defect as defect:
        raise Defect(f"{defect}; {labels!r}, {scores.tolist()}, {label_format}") from defect


def losses_eager(draws, folder):
    """`SoftmaxLoss` of any labels, in eager mode."""
    del folder

    def measure(labels, scores, label_format):
        loss = losses.SoftmaxLoss(label_format=label_format, reduction="none")
        return loss(labels, scores).numpy()

    return _check_labels(draws, measure, _softmax)


def metrics_eager(draws, folder):
    """`MRR` of any labels, in eager mode."""
    del folder

    def measure(labels, scores, label_format):
        return metrics.MRR(label_format=label_format).per_list(labels, scores)[0].numpy()[:, 0]

    return _check_labels(draws, measure, _reciprocal_rank)


_GRAPHS: dict = {}


def _in_graph(kind, make):
    """A measure as XLA gets it, where nothing can raise; traced once for each form of labels."""

    def measure(labels, scores, label_format):
        ragged = isinstance(labels, tf.RaggedTensor)
        labels = labels if ragged else tf.constant(labels)
        key = kind, labels.dtype, ragged, labels.shape.rank, np.ndim(scores), label_format
        if key not in _GRAPHS:
            shape = [None] * labels.shape.rank
            spec = tf.RaggedTensorSpec if ragged else tf.TensorSpec
            of_labels = spec(shape, labels.dtype)
            of_scores = tf.TensorSpec([None] * np.ndim(scores), tf.float32)
            try:
                function = tf.function(make(label_format), [of_labels, of_scores])
                with mock.patch.object(raising, "_in_xla", lambda: True):
                    _GRAPHS[key] = function.get_concrete_function() and function
            except ValueError as error:
                _GRAPHS[key] = error
        if isinstance(_GRAPHS[key], ValueError):
            raise ValueError(str(_GRAPHS[key]))
        return _GRAPHS[key](labels, scores).numpy()

    return measure


def _check_in_graph(draws, measure, formula):
    """A list that breaks the rules is NaN there, and changes no other list."""
    drawn = _labels(draws)
    if drawn is None:
        return "not made"
    labels, scores, label_format = drawn
    if label_format is None:  # Shapes are not known.
        label_format = draws.of(["ids", "relevance"])
    judgement = judged(labels, scores, label_format)
    right = None
    if judgement is not None:
        expected = _values(judgement, scores, formula)
        right = functools.partial(_close, expected)
    # Where shapes are known only as it runs, TensorFlow's own operations find what is wrong.
    names = [*_NAMES, "ncompatible shapes", "must be", "Expected", "same", "dimension", "shape"]
    names.append("Number of batches")
    try:
        measured = functools.partial(measure, labels, scores, label_format)
        return outcome(measured, right, names, len(scores) > 0)
    except Defect as defect:
        raise Defect(f"{defect}; {labels!r}, {scores.tolist()}, {label_format}") from defect


def losses_graph(draws, folder):
    """`SoftmaxLoss` of any labels, in graph mode."""
    del folder

    def make(label_format):
        return losses.SoftmaxLoss(label_format=label_format, reduction="none")

    return _check_in_graph(draws, _in_graph("loss", make), _softmax)


def metrics_graph(draws, folder):
    """`MRR` of any labels, in graph mode."""
    del folder

    def make(label_format):
        metric = metrics.MRR(label_format=label_format)

        def values(labels, scores):
            return metric.per_list(labels, scores)[0][:, 0]

        return values

    return _check_in_graph(draws, _in_graph("metric", make), _reciprocal_rank)


TARGETS = (
    extreme_classification,
    read_header,
    read_split,
    wordnet,
    mind,
    from_pairs,
    elwc_files,
    elwc_messages,
    pretrained,
    exported_classes,
    losses_eager,
    losses_graph,
    metrics_eager,
    metrics_graph,
)


def run(target, seed, start, stop, report):
    """Runs cases of a target; `report` gets the number of each and what came of it."""
    with tempfile.TemporaryDirectory() as folder:
        for case in range(start, stop):
            rng = np.random.default_rng([seed, zlib.crc32(target.__name__.encode()), case])
            draws = Draws(lambda n, rng=rng: int(rng.integers(n)))
            faulthandler.dump_traceback_later(LIMIT, exit=True)
            try:
                found = target(draws, pathlib.Path(folder))
            except Defect as defect:
                found = f"DEFECT {defect}"
            except Exception as error:
                found = f"DEFECT {error!r}"
            faulthandler.cancel_dump_traceback_later()
            report(case, found)


def cases_of(target, count):
    """How many calls of a target make so many cases."""
    return math.ceil(count / MESSAGES) if target is elwc_messages else count


def in_processes(target, seed, cases, path):
    """Runs a target in processes of its own, and keeps what came of it in a file."""
    results = {"done": 0, "outcomes": {}, "defects": {}}
    if path.exists():
        results = json.loads(path.read_text())
    memory = mmap.mmap(-1, 8)
    while results["done"] < cases:
        memory[:] = struct.pack("<q", results["done"])
        sys.stdout.flush()
        if not (pid := os.fork()):
            code = 1
            try:
                _run_all(target, seed, cases, results, memory, path)
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        if path.exists():
            results = json.loads(path.read_text())
        if status:
            # The cases since the last that were written are not in the outcomes.
            (case,) = struct.unpack("<q", memory[:])
            results["defects"][str(case)] = f"DEFECT the process ended: {status}"
            results["outcomes"]["defect"] = results["outcomes"].get("defect", 0) + 1
            results["done"] = case + 1
            _files.write_text(path, json.dumps(results, indent=1))
    return results


def _run_all(target, seed, cases, results, memory, path):
    """Runs all cases that are left, and writes what came of them after every thousandth."""
    counts = collections.Counter(results["outcomes"])

    def report(case, found):
        if isinstance(found, str) and found.startswith("DEFECT"):
            results["defects"][str(case)] = found[:600]
            found = "defect"
        counts.update([found] if isinstance(found, str) else found)
        memory[:] = struct.pack("<q", case + 1)
        if (case + 1) % 1000 == 0 or case + 1 == cases:
            results.update(done=case + 1, outcomes=dict(counts))
            _files.write_text(path, json.dumps(results, indent=1))

    run(target, seed, results["done"], cases, report)


def table(results):
    """The table, as Markdown."""
    lines = ["| read by | cases | right | errors | defects |", "|---|---:|---:|---|---:|"]
    for name, found in results.items():
        outcomes = dict(found["outcomes"])
        skipped = outcomes.pop("not made", 0)
        right, defects = outcomes.pop("right", 0), outcomes.pop("defect", 0)
        errors = ", ".join(f"{n} {kind}" for kind, n in sorted(outcomes.items()))
        cases = f"{sum(found['outcomes'].values()) - skipped:,}"
        lines.append(f"| {name} | {cases} | {right:,} | {errors} | {defects} |")
    return "\n".join(lines)


def main(argv=None):
    """Runs all targets, or those that are named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--only", default="", help="targets with this in their names")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    results = {}
    for target in TARGETS:
        if args.only not in target.__name__:
            continue
        path = args.out / f"{target.__name__}.json"
        found = in_processes(target, args.seed, cases_of(target, args.cases), path)
        name = target.__doc__.splitlines()[0].removesuffix(".")
        results[name] = found
        print(f"{name}: {found['outcomes']}", flush=True)
    text = table(results)
    _files.write_text(args.out / "table.md", text + "\n")
    print(text)
    return results


if __name__ == "__main__":
    main()
