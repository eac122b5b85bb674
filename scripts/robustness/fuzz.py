"""Gives damaged files and wrong labels to every function that reads them.

    python -m scripts.robustness.fuzz --cases 1000

A case is a file, or labels, with random faults. A file is cut, has bits flipped, bytes
added or removed, lines doubled, dropped or swapped, or numbers that are huge, negative
or text. Labels have other types, shapes and ranks. The reader must return the right
result, or raise an error whose message names the file or the argument. The right result
comes from a reader that shares no code with the package (for files with checksums, from
the undamaged file). Anything else is a defect: another result, an error without a name,
a crash, or a case that takes more than `LIMIT` seconds; these two end the program.

Hypothesis draws the cases and shrinks a defect to a small one, which the table shows.
1,000 cases of each take ten minutes. `--quick` has 20.
"""

import collections
import faulthandler
import functools
import gzip
import math
import pathlib
import re
import sys
import tempfile
import warnings
import zlib
from typing import Any, NamedTuple

import hypothesis
import numpy as np
import tensorflow as tf
from hypothesis import strategies as st

from rank4class_tf import data, layers, losses, metrics
from rank4class_tf.data import elwc
from scripts import command_line, tables

LIMIT = 60

# What a wrong argument or a damaged file may raise. AssertionErrors and such are
# defects.
EXPECTED = (ValueError, TypeError, OSError, EOFError, tf.errors.OpError)

NUMBERS = [
    "0",
    "-1",
    "1",
    "2",
    "7",
    "255",
    "2147483648",
    "-9223372036854775809",
    "1" + "0" * 25,
    "nan",
    "inf",
    "-inf",
    "1e39",
    "1e999",
    "0.5",
    "1_0",
    "٣",
    "",
    " ",
    "0x1",
    "+1",
    "1e-50",
]


class Defect(Exception):
    """A result or an error that breaks the rules."""


class Draws:
    """Random choices of Hypothesis; the first of some values is the simplest."""

    def __init__(self, drawn):
        self.integer = lambda n: drawn.draw(st.integers(0, n - 1))

    def of(self, values):
        """One of some values."""
        return values[self.integer(len(values))]

    def chance(self, one_in):
        """True in one of so many cases."""
        return self.integer(one_in) == one_in - 1


def outcome(read, right, names, refused_is_wrong=True):
    """The outcome of reading: "right", "warning" or the type of the error.

    `right` says whether a result is right; it is None if no result is. An error is a
    defect if it names none of `names`, or if `refused_is_wrong` and a result could be
    right.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = read()
        except EXPECTED as error:
            if right is not None and refused_is_wrong:
                raise Defect(f"what is right is refused: {error!r}") from error
            if not any(name in str(error) for name in names):
                raise Defect(f"an error without a name: {error!r}") from error
            return type(error).__name__
    if any("may be cut" in str(warning.message) for warning in caught):
        return "warning"
    if right is None or not right(found):
        raise Defect(f"another result: {str(found)[:300]}")
    return "right"


# Files.


def fault(draws, content):
    """Bytes that are cut, or have other bits, bytes, lines or numbers."""
    kind = draws.of(["number", "cut", "bit", "more", "fewer", "lines"])
    at = draws.integer(len(content) + 1)
    if kind == "cut":
        return content[:at]
    if kind == "bit" and content:
        flipped = content[at - 1] ^ 1 << draws.integer(8)
        return content[: at - 1] + bytes([flipped]) + content[at:] if at else content
    if kind == "more":
        if draws.chance(2):
            byte = draws.of(b"\t\n\r ,:_-+.0|\xff\x00\xc3")
        else:
            byte = draws.integer(256)
        return content[:at] + bytes([byte]) + content[at:]
    if kind == "fewer":
        return content[:at] + content[at + 1 + draws.integer(4) :]
    if kind == "lines":
        lines = content.splitlines(keepends=True) or [b"\n"]
        first = draws.integer(len(lines))
        second = draws.integer(len(lines))
        if draws.chance(2):
            lines[first], lines[second] = lines[second], lines[first]
        else:
            lines[first : first + draws.integer(2)] = [lines[second]] * draws.integer(3)
        return b"".join(lines)
    found = list(re.finditer(rb"\d+", content))
    if not found:
        return content
    start, end = draws.of(found).span()
    return content[:start] + draws.of(NUMBERS).encode() + content[end:]


def damaged(draws, content):
    """Bytes with up to three faults."""
    for _ in range(draws.integer(4)):
        content = fault(draws, content)
    return content


def equal(expected, found):
    """Whether two nested structures of arrays, numbers and strings are the same."""
    if isinstance(expected, (list, tuple)):
        return len(found) == len(expected) and all(map(equal, expected, found))
    return np.array_equal(found, expected)


POINTS = [
    ([0, 12], [3, 11], [0.5, -1.25]),
    ([], [0], [2.0]),
    ([14], [], []),
    ([1, 3, 14], [0, 1, 4], [1.0, 2.0, 3.5e-07]),
    ([7], [2, 9, 13], [0.0625, 1e10, -7.75]),
]
# A number as text has it: Python takes more, such as 1_0 and the digits of other
# scripts.
_FLOAT = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
_INT = re.compile(r"\s*[+-]?\d{1,4000}\s*", re.ASCII)


def _integer(text, high):
    """An integer in [0, high); ValueError for any other text."""
    if not _INT.fullmatch(text) or not 0 <= int(text) < high:
        raise ValueError
    return int(text)


def _finite(text):
    """A number of float32; ValueError for any other text."""
    if not _FLOAT.fullmatch(text) or not np.isfinite(np.float32(text)):
        raise ValueError
    return np.float32(text)


def _points_of(content):
    """The points of a file; raises ValueError if it breaks the rules."""
    # A carriage return ends a line as well.
    text = content.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    first, *lines = text.removesuffix("\n").split("\n")
    if not re.fullmatch(r"\s*\d+\s+\d+\s+\d+\s*", first, re.ASCII):
        raise ValueError
    sizes = [_integer(x, 2**63) for x in first.split()]
    count, num_features, num_labels = sizes
    if 0 in sizes or len(lines) != count:
        raise ValueError
    return [_point_of(line, num_features, num_labels) for line in lines]


def _point_of(line, num_features, num_labels):
    """The labels of a line, and its features with their values, sorted."""
    labels, *pairs = line.split(" ")
    ids = [_integer(x, num_labels) for x in labels.split(",")] if labels else []
    features = []
    for pair in filter(None, pairs):
        number, value = pair.split(":")
        features.append((_integer(number, num_features), _finite(value)))
    return ids, sorted(features, key=lambda feature: feature[0])


def _right(expected, same=equal):
    """A function: whether a result is as expected; None if an error is expected."""
    try:
        return functools.partial(same, expected())
    except (ValueError, OSError, EOFError, zlib.error):
        return None


def extreme_classification(draws, folder):
    """`data.extreme_classification` of text and gzip files."""
    valid = folder / "valid.txt"
    path = folder / "bad.txt"
    data.write_extreme_classification(valid, POINTS, num_features=14, num_labels=15)
    content = damaged(draws, valid.read_bytes())
    right = _right(lambda: _points_of(content))
    if draws.chance(4):
        path = folder / "bad.txt.gz"
        content = damaged(draws, gzip.compress(content, mtime=0))
        right = _right(lambda: _points_of(gzip.decompress(content)))
    path.write_bytes(content)

    def read():
        found = []
        for features, labels in data.extreme_classification(path, batch_size=3):
            for row, ids in enumerate(labels.numpy()):
                mine = features.indices[:, 0] == row
                columns = features.indices[:, 1][mine].numpy().tolist()
                pairs = zip(columns, features.values[mine].numpy(), strict=True)
                found.append(([int(i) for i in ids if i >= 0], list(pairs)))
        return found

    return outcome(read, right, [path.name, "batch_size"])


def _news():
    """The text of a file of twenty articles, one without an abstract."""
    lines = []
    for n in range(20):
        fields = [
            f"N{n}",
            ("sports", "news", "tv")[n % 3],
            "sub",
            f"Title {n}",
            "" if n == 7 else f'An "abstract" of é {n}',
            f"https://x/{n}.html",
            "[]",
            '[{"a": 1}]',
        ]
        lines.append("\t".join(fields) + "\n")
    return "".join(lines)


def _articles_of(content):
    """The categories and texts of a file; ValueError if it breaks the rules."""
    lines = content.decode("utf-8").removesuffix("\n").split("\n")
    rows = [line.rstrip("\r").split("\t") for line in lines]
    whole = all(len(row) == 8 and row[0] and row[1] for row in rows)
    if not whole or len({row[0] for row in rows}) < len(rows):
        raise ValueError
    return sorted((row[1], " [SEP] ".join(filter(None, row[3:5]))) for row in rows)


def mind(draws, folder):
    """`data.mind`."""
    content = damaged(draws, _news().encode())
    path = folder / "news.tsv"
    path.write_bytes(content)

    def read():
        splits = data.mind(path, batch_size=64)
        found = []
        for part in (splits.train, splits.validation, splits.test):
            for texts, ids in part.as_numpy_iterator():
                pairs = zip(texts, ids, strict=True)
                found += [(splits.class_names[i], text.decode()) for text, i in pairs]
        return sorted(found)

    return outcome(read, _right(lambda: _articles_of(content)), [path.name])


# Lists of an ELWC set: the query, and the ids of its examples.
LISTS = [
    ([row, 0.5], [10 * row + place for place in range(row % 4)]) for row in range(9)
]


def elwc_files(draws, folder):
    """`elwc.read` of a set with damaged, missing or empty files."""
    context = {"query": tf.io.FixedLenFeature([2], tf.float32)}
    examples = {"id": tf.io.FixedLenFeature([], tf.int64, default_value=-7)}
    written = [
        ({"query": np.float32(query)}, [{"id": i} for i in ids]) for query, ids in LISTS
    ]
    elwc.write(written, folder / "set", num_shards=2)
    name = draws.of(sorted(folder.glob("set-*")))
    kind = draws.integer(10)
    if kind == 1:
        name.unlink()
    else:
        name.write_bytes(b"" if kind == 2 else damaged(draws, name.read_bytes()))

    def read():
        found = []
        for batch in elwc.read(f"{folder / 'set'}-*", context, examples, batch_size=4):
            rows = zip(batch["query"], batch["id"], batch["mask"], strict=True)
            for query, ids, mask in rows:
                found.append((query.numpy().tolist(), ids[mask].numpy().tolist()))
        return sorted(found)

    def right(found):
        """Whether these are all lists, or all but the last ones of the damaged file."""
        shard = int(name.name.split("-")[1])
        cut = LISTS[shard::2]
        whole = LISTS[1 - shard :: 2]
        return any(found == sorted(whole + cut[:size]) for size in range(len(cut) + 1))

    # TensorFlow does not say in which file.
    names = ["corrupted record", "truncated record", "`pattern`"]
    return outcome(read, right, names, refused_is_wrong=False)


def pretrained(draws, folder):
    """`Sorter.pretrained` of a damaged file."""
    path = folder / "sorter.npz"
    bad = folder / "bad.npz"
    sorter = layers.ConvolutionalSorter(
        length=5, frequencies=1, units=2, trainable=True
    )
    sorter.build((None, None))
    sorter.save_pretrained(path)
    whole = path.read_bytes()
    content = damaged(draws, whole)
    bad.write_bytes(content)

    def read():
        return [np.array(w) for w in layers.ConvolutionalSorter.pretrained(bad).weights]

    right = _right(lambda: [np.array(weight) for weight in sorter.weights])
    return outcome(read, right, ["bad.npz"], content == whole)


# Labels.

_DTYPES = (
    "int32",
    "int64",
    "uint8",
    "int8",
    "uint64",
    "float32",
    "float64",
    "float16",
    "bool",
)
_STRANGE: list[float] = [
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
    math.inf,
    -math.inf,
    1e30,
    -1e-3,
]


def _as_array(values, dtype):
    """An array of a dtype; rejects the case if it does not hold the values."""
    with np.errstate(all="ignore"):
        try:
            array = np.array(values, dtype)
        except (OverflowError, ValueError):
            hypothesis.reject()
    hypothesis.assume(dtype[0] == "f" or array.tolist() == values)
    return array


class Case(NamedTuple):
    """What a loss or a metric is given."""

    labels: Any
    scores: np.ndarray
    label_format: str | None


def draw_case(draws):
    """Labels of any kind, scores `[batch, n]` and the format, most with a fault."""
    batch = 1 + draws.integer(3)
    n = 2 + draws.integer(4)
    scores = np.array(
        [[draws.integer(17) / 4 for _ in range(n)] for _ in range(batch)], np.float32
    )
    kind = draws.of(["ids", "ids", "padded", "ragged", "relevance", "relevance"])
    widths = {"ids": 1, "padded": 1 + draws.integer(4), "relevance": n}
    is_ragged = kind == "ragged"
    lengths = [draws.integer(4) if is_ragged else widths[kind] for _ in range(batch)]
    values = [0, 0, 1, 2, -1] if kind == "relevance" else list(range(-1, n))
    rows = [[draws.of(values) for _ in range(length)] for length in lengths]
    for _ in range(draws.integer(3)):
        row = draws.of(rows)
        if row:
            row[draws.integer(len(row))] = draws.of(_STRANGE)
    dtype = draws.of(_DTYPES if draws.chance(2) else ("int64", "float32"))
    label_format = draws.of([None, "ids", "relevance"])
    if is_ragged:
        flat = _as_array([x for row in rows for x in row], dtype)
        ragged = tf.RaggedTensor.from_row_lengths(flat, lengths)
        return Case(ragged, scores, label_format)
    labels = _as_array(rows, dtype)
    if kind == "ids" and draws.chance(2):
        labels = labels[:, 0]
    return with_other_shapes(draws, Case(labels, scores, label_format))


def with_other_shapes(draws, case):
    """A case of which some shapes do not fit."""
    labels, scores, _ = case
    if draws.chance(12):
        shapes = [scores[0], scores[None], scores[:, :0]]
        return case._replace(scores=draws.of(shapes))
    if draws.chance(12):
        return case._replace(labels=labels[:0], scores=scores[:0])
    if draws.chance(4):
        shapes = [
            labels[:-1],
            labels[None],
            labels.reshape(-1)[:1].reshape(()),
            np.concatenate([labels] * 2, axis=-1),
            labels[..., None],
            np.full(labels.shape, "x"),
        ]
        return case._replace(labels=draws.of(shapes))
    return case


class Judgement(NamedTuple):
    """What the labels of a list say: relevance by item, and the items left out."""

    relevance: dict[int, float]
    masked: set[int]


def judged(labels, scores, label_format):
    """The `Judgement` of each list by the rules of the docs.

    Raises:
        ValueError: if the labels break the rules.
    """
    if scores.ndim != 2 or not scores.shape[1]:
        raise ValueError
    batch, n = scores.shape
    if isinstance(labels, tf.RaggedTensor):
        if label_format == "relevance" or labels.dtype == tf.bool:
            raise ValueError
        return [judged_ids(row, n) for row in labels.to_list()]
    if not batch:
        return []  # Whatever the labels are.
    if labels.dtype.kind in "US" or labels.ndim not in (1, 2) or len(labels) != batch:
        raise ValueError

    is_guess = label_format is None
    if is_guess:
        label_format = guessed(labels, n)
    rows = labels.reshape(batch, -1).tolist()
    if label_format == "relevance":
        if labels.shape != scores.shape:
            raise ValueError
        return [judged_relevance(row) for row in rows]
    if labels.dtype.kind == "b":
        raise ValueError
    # Three or more numbers 0 and 1 may be meant as labels of another number of items.
    if is_guess and any(len(row) > 2 and set(row) <= {0, 1} for row in rows):
        raise ValueError
    return [judged_ids(row, n) for row in rows]


def guessed(labels, n):
    """The format of labels of n items that are not said to have one."""
    width = labels.shape[1] if labels.ndim == 2 else 1
    if labels.ndim == 2 and width == n:
        return "relevance"
    if width > 1 and labels.dtype.kind not in "iu":
        raise ValueError
    return "ids"


def judged_ids(row, n):
    """The items of ids, -1 for none."""
    if not set(row) <= set(range(-1, n)):
        raise ValueError
    return Judgement({int(x): 1.0 for x in row if x >= 0}, set())


def judged_relevance(row):
    """The items of a relevance each, below 0 for one left out."""
    row = np.array(row, np.float32)
    with np.errstate(all="ignore"):
        if not np.isfinite(np.sum(row)):
            raise ValueError
    masked = {i for i, x in enumerate(row) if x < 0}
    return Judgement({i: float(x) for i, x in enumerate(row) if x > 0}, masked)


def softmax(scores, positives, masked):
    """The softmax loss of a list."""
    kept = [s for i, s in enumerate(scores) if i not in masked]
    top = max(kept, default=0.0)
    total = math.log(sum(math.exp(s - top) for s in kept)) + top if kept else 0.0
    return sum(y * (total - scores[i]) for i, y in positives.items())


def reciprocal_rank(scores, positives, masked):
    """The mean over all orders of the items that share the best positive's score."""
    others = [s for i, s in enumerate(scores) if i not in masked and i not in positives]
    best = max(scores[i] for i in positives)
    with_it = sum(scores[i] == best for i in positives)
    above = sum(s > best for s in others)
    tied = sum(s == best for s in others)
    expected = 0.0
    left = 1.0
    # So many of the others with that score stand before the first of them.
    for place in range(tied + 1):
        chance = left * with_it / (with_it + tied - place)
        expected += chance / (above + place + 1)
        left -= chance
    return expected


def measure_of(formula, label_format):
    """The loss or the metric of a formula, a value for each list."""
    if formula is softmax:
        return losses.SoftmaxLoss(label_format=label_format, reduction="none")
    metric = metrics.MRR(label_format=label_format)
    return lambda labels, scores: metric.per_list(labels, scores)[0][:, 0]


@functools.cache
def traced(formula, dtype, ragged, rank, rank_of_scores, label_format):
    """A measure in a graph that does not know shapes; one for each form of labels."""
    labels = (tf.RaggedTensorSpec if ragged else tf.TensorSpec)([None] * rank, dtype)
    scores = tf.TensorSpec([None] * rank_of_scores, tf.float32)
    return tf.function(measure_of(formula, label_format), [labels, scores])


def check_labels(draws, folder, graph):
    """A loss or metric of any labels, without a graph or in one of unknown shapes."""
    del folder
    formula = draws.of([softmax, reciprocal_rank])
    labels, scores, label_format = draw_case(draws)
    if graph and label_format is None:  # Shapes are not known.
        label_format = draws.of(["ids", "relevance"])

    def measure():
        if not graph:
            return np.asarray(measure_of(formula, label_format)(labels, scores))
        ragged = isinstance(labels, tf.RaggedTensor)
        tensor = labels if ragged else tf.constant(labels)
        form = tensor.dtype, ragged, tensor.shape.rank, scores.ndim, label_format
        return np.asarray(traced(formula, *form)(tensor, scores))

    def expected():
        judgements = judged(labels, scores, label_format)
        values = []
        for row, of in zip(scores.tolist(), judgements, strict=True):
            values.append(formula(row, *of) if of.relevance else 0.0)
        return np.array(values)

    def close(expected, found):
        # Relevance near the end of float32 may overflow: infinite is what it is then.
        overflows = np.abs(expected) > 1e37
        same = np.isclose(found, expected, rtol=2e-5, atol=2e-5) | overflows
        return found.shape == expected.shape and bool(np.all(same))

    names = ["`y_true`", "`y_pred`", "`label_format`", "Labels and ids"]
    some = len(scores) > 0  # An empty batch does not show what its labels are.
    try:
        return outcome(measure, _right(expected, close), names, some)
    except Defect as defect:
        case = f"{formula.__name__}, {labels!r}, {scores.tolist()}, {label_format}"
        raise Defect(f"{defect}; {case}") from defect


TARGETS = {
    "extreme_classification": extreme_classification,
    "mind": mind,
    "elwc": elwc_files,
    "pretrained": pretrained,
    "labels": functools.partial(check_labels, graph=False),
    "labels_in_graph": functools.partial(check_labels, graph=True),
}


def run(target, cases, seed):
    """Counts of the outcomes of a target, and the smallest case with a defect."""
    counts = collections.Counter()

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=cases,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(st.data())
    def check(drawn):
        faulthandler.dump_traceback_later(LIMIT, exit=True)
        try:
            with tempfile.TemporaryDirectory() as folder:
                counts[target(Draws(drawn), pathlib.Path(folder))] += 1
        finally:
            faulthandler.cancel_dump_traceback_later()

    try:
        check()
    except Exception as error:  # An error of any other kind is a defect, too.
        return counts, repr(error)[:600]
    return counts, ""


def main(argv=None):
    """Runs the targets and prints a table."""
    parser = command_line.Parser(__spec__, __doc__, {"cases": 20})
    parser.add_value("--cases", command_line.count, 1000, "of each target")
    parser.add_names("--only", TARGETS, "targets")
    parser.add_value("--seed", command_line.seed, 0, "of the cases")
    parser.add_value("--csv", pathlib.Path, None, "a file for the table")
    args = parser.parse_args(argv)
    faulthandler.enable()
    rows = []
    for name in args.only:
        print(name, file=sys.stderr, flush=True)
        counts, defect = run(TARGETS[name], args.cases, args.seed)
        kinds = sorted(kind for kind in counts if kind != "right")
        errors = ", ".join(f"{counts[kind]} {kind}" for kind in kinds)
        rows.append([name, str(counts.total()), str(counts["right"]), errors, defect])
    tables.show(["read by", "cases", "right", "errors", "defect"], rows, 0, args.csv)
    if any(defect for *_, defect in rows):
        sys.exit("There are defects.")


if __name__ == "__main__":
    main()
