"""Text files with faults, and pairs of wrong numbers, for the readers of `rank4class_tf.data`."""

import functools
import gzip
import math
import re
import zlib

import numpy as np

from rank4class_tf import data
from rank4class_tf.data import extreme, interactions
from scripts.robustness.fuzzing.faults import SELDOM, equal, mutated, outcome

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
    if not _FLOAT.fullmatch(text):
        raise ValueError
    with np.errstate(over="ignore"):
        number = np.float32(text)
    if not np.isfinite(number):
        raise ValueError
    return number


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
    """`data.extreme_classification` of text and gzip files: single examples, and some batches."""
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
            extreme._warn_if_cut(path)
            read = extreme._points(path)
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


def read_extreme_header(draws, folder):
    """`data.read_extreme_header`."""
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
    return outcome(lambda: data.read_extreme_header(path), right, [path.name], content.isascii())


def read_extreme_split(draws, folder):
    """`data.read_extreme_split`."""
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
    return outcome(lambda: data.read_extreme_split(path, column), right, [path.name])


# MIND.


def _articles():
    rows = []
    for n in range(20):
        abstract = "" if n == 7 else f'An "abstract" of é {n}'
        row = [f"N{n}", ("sports", "news", "tv")[n % 3], "sub", f"Title {n}", abstract]
        rows.append("\t".join([*row, f"https://x/{n}.html", "[]", '[{"a": 1}]']))
    return ("\n".join(rows) + "\n").encode()


def mind(draws, folder):
    """`data.mind`: the articles that it reads, and some batches."""
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
            return sorted(interactions._read(path).values())
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
    """`data.UserItems.from_pairs`."""
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
            if column.dtype.kind in "iu":
                wrong |= any(abs(value) >= 2**31 for value in column.ravel().tolist())
            columns.append(column)
        wrong |= len(columns[0]) != len(columns[1])
        batches.append(tuple(columns))
    if not wrong:
        pairs = sorted(
            {p for batch in batches for p in zip(*(c.tolist() for c in batch), strict=True)}
        )

    def read():
        users = data.UserItems.from_pairs(iter(batches))
        found = []
        for part in (users.train, users.validation, users.test):
            owners = users.user_ids[part.value_rowids().numpy()].tolist()
            found += zip(owners, users.item_ids[part.flat_values.numpy()].tolist(), strict=True)
        return sorted(found)

    return outcome(read, None if wrong else functools.partial(equal, pairs), ["`batches`"])
