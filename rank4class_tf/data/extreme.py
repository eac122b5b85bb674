"""Files of the Extreme Classification Repository and batches of sparse features."""

import contextlib
import gzip
import itertools
import operator
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import TextIO

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks, _files
from rank4class_tf._types import PathLike
from rank4class_tf.data import splits


def batches(
    points: Callable,
    num_features: int,
    batch_size: int,
    num_points: int | None = None,
    one_label: bool = False,
) -> tf.data.Dataset:
    """A `tf.data.Dataset` of the points that `points()` yields, called for each epoch.

    A point is `(labels, feature_ids, feature_values)`. Batches are those of
    `extreme_classification`. The dataset knows its length if `num_points` is given.
    """

    def arrays() -> Iterator[tuple[tf.SparseTensor, np.ndarray]]:
        remaining = iter(points())
        while batch := list(itertools.islice(remaining, batch_size)):
            labels, ids, values = zip(*batch, strict=True)
            class_ids = np.full([len(batch), max(1, *map(len, labels))], -1, np.int64)
            for row, point_labels in zip(class_ids, labels, strict=True):
                row[: len(point_labels)] = point_labels
            rows = np.repeat(np.arange(len(batch)), [*map(len, ids)])
            columns = np.fromiter(itertools.chain(*ids), np.int64)
            # A sparse tensor needs ordered columns.
            order = np.lexsort([columns, rows])
            indices = np.stack([rows, columns], axis=1)[order]
            numbers = np.fromiter(itertools.chain(*values), np.float32)[order]
            features = tf.SparseTensor(indices, numbers, [len(batch), num_features])
            yield features, class_ids[:, 0] if one_label else class_ids

    specs = (
        tf.SparseTensorSpec([None, num_features], tf.float32),
        tf.TensorSpec([None] if one_label else [None, None], tf.int64),
    )
    dataset = tf.data.Dataset.from_generator(arrays, output_signature=specs)
    if num_points is not None:
        length = -(-num_points // batch_size)
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(length))
    return dataset.prefetch(tf.data.AUTOTUNE)


def extreme_classification(
    path: PathLike,
    batch_size: int = 256,
    one_label: bool = False,
    rows: Iterable[int] | None = None,
    seed: int | None = None,
) -> tf.data.Dataset:
    """Streams a file of the Extreme Classification Repository.

    The first line is `points features labels`. Each other line is `l1,l2 f:v f:v`: the
    labels and the features of a point, by number. A line that starts with a space is a
    point without labels. An error names the file and the line. If no line break ends
    the last line, the file may be cut: reading warns.

    Source: K. Bhatia et al., "The Extreme Classification Repository", 2016.

    Args:
        path: the file; if its name ends in `.gz`, it is unpacked while it is read.
        batch_size: points per batch, >= 1.
        one_label: whether to give each point only one of its labels, drawn uniformly in
            each epoch, as in "Stochastic Negative Mining", and to leave out points
            without labels. The other labels are then negatives; `ExtremeClassifier`
            avoids this, since it draws a label itself.
        rows: None for all points, or the numbers of the points to keep, from 1 on, as
            `read_extreme_split` gives them.
        seed: seed of the draws of labels, in [0, 2**32); None takes a random one.

    Returns:
        A `tf.data.Dataset` of `(features, class_ids)`: a float32 `tf.SparseTensor`
        `[batch, features]`, and int64 `[batch, P]` padded with -1 or, with `one_label`,
        `[batch]`.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/toy.txt"
        >>> write_extreme_classification(
        ...     path, [([0, 2], [1], [0.5])], num_features=4, num_labels=3
        ... )
        >>> features, class_ids = next(iter(extreme_classification(path)))
        >>> class_ids.numpy(), features.shape
        (array([[0, 2]]), TensorShape([1, 4]))
    """
    batch_size = _checks.positive_int("batch_size", batch_size)
    num_points, num_features, _ = read_extreme_header(path)
    _warn_if_cut(path)
    kept_points = None
    if rows is not None:
        rows = list(rows)
        rule = f"`rows` must be None or integers in [1, {num_points}]."
        for row in rows:
            is_integer = isinstance(row, int | np.integer) and not isinstance(row, bool)
            _checks.require(is_integer and 1 <= row <= num_points, rule, repr(row))
        kept_points = frozenset(map(int, rows))
    if seed is not None:
        seed = _checks.seed(seed)
    epochs = itertools.count()

    def points() -> Iterator[tuple]:
        rng = np.random.default_rng(None if seed is None else [seed, next(epochs)])
        for number, (labels, *features) in enumerate(_points(path), start=1):
            if kept_points is not None and number not in kept_points:
                continue
            if one_label:
                labels = [rng.choice(labels)] if labels else []
            if labels or not one_label:
                yield labels, *features

    count = num_points if kept_points is None else len(kept_points)
    return batches(
        points,
        num_features,
        batch_size,
        # Only the end of the file tells how many points have a label.
        num_points=None if one_label else count,
        one_label=one_label,
    )


def read_extreme_header(path: PathLike) -> tuple[int, ...]:
    """Reads the numbers of points, features and labels from a file's first line."""
    with splits.opened(path) as lines:
        first = lines.readline()
    fields = first.split()
    header = tuple(map(int, fields)) if all(map(_is_natural, fields)) else ()
    if len(header) != 3 or not 1 <= min(header) <= max(header) < 2**63:
        raise ValueError(
            f"{path}, line 1: must be `points features labels`. Received: {first!r}."
        )
    return header


def read_extreme_split(path: PathLike, column: int = 0) -> np.ndarray:
    r"""Reads one split of a split file: the numbers of its points, counted from 1.

    Args:
        path: a file of the repository with a split in each column, such as
            `trSplit.txt`.
        column: the number of the column, counted from 0.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "trSplit.txt")
        >>> _ = path.write_text("1 2\n3 1\n")
        >>> read_extreme_split(path, column=1).tolist()
        [2, 1]
    """
    column = _checks.non_negative_int("column", column)
    numbers = []
    _warn_if_cut(path)
    with splits.opened(path) as lines:
        for number, line in enumerate(lines, start=1):
            text = "".join(line.split()[column : column + 1])
            if not (_is_natural(text) and 1 <= int(text) < 2**63):
                rule = f"must have a number in column {column}, in [1, 2**63)"
                raise ValueError(f"{path}, line {number}: {rule}. Received: {line!r}.")
            numbers.append(int(text))
    return np.array(numbers, np.int64)


def write_extreme_classification(
    path: PathLike, points: Iterable, num_features: int, num_labels: int
) -> None:
    """Writes points in the format of the Extreme Classification Repository.

    Args:
        path: the file, which replaces an older one once it is complete; `.gz`
            compresses it.
        points: a sequence of `(labels, feature_ids, feature_values)`, each a list of
            numbers.
        num_features: number of features.
        num_labels: number of labels.
    """
    num_features = _checks.positive_int("num_features", num_features)
    num_labels = _checks.positive_int("num_labels", num_labels)
    points = list(points)
    if not points:
        raise ValueError("`points` must hold at least one point. Received none.")
    with _replacing_text(path) as file:
        file.write(f"{len(points)} {num_features} {num_labels}\n")
        for number, (labels, ids, values) in enumerate(points, start=2):
            labels = [*map(operator.index, labels)]
            ids = [*map(operator.index, ids)]
            where = f"{path}, line {number}"
            _check_numbers(where, "label", labels, num_labels)
            _check_numbers(where, "feature", ids, num_features)
            rule = f"{where}: must have a value for each feature."
            received = f"{len(ids)} features, {len(values)} values"
            _checks.require(len(ids) == len(values), rule, received)
            _check_values(where, values)
            file.write(",".join(map(str, labels)) + " " + _pairs(ids, values))


def write_top_k(path: PathLike, batches: Iterable, num_labels: int) -> None:
    r"""Writes predictions as the Extreme Classification Repository's tools read them.

    The first line is `points labels`. Each other line is `l:score l:score`: the
    predictions for a point, in the order of the labels.

    Args:
        path: as for `write_extreme_classification`.
        batches: pairs `(scores, class_ids)` of `[batch, k]`, as
            `ExtremeClassifier.top_k` gives; the id -1 is left out.
        num_labels: number of labels.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "scores.txt")
        >>> scores, class_ids = [[0.75, 0.5], [0.5, 0.25]], [[2, 0], [1, 2]]
        >>> write_top_k(path, [(scores, class_ids)], num_labels=3)
        >>> print(path.read_text())
        2 3
        0:0.5 2:0.75
        1:0.5 2:0.25
    """
    num_labels = _checks.positive_int("num_labels", num_labels)
    points = [
        pair
        for scores, class_ids in batches
        for pair in zip(np.asarray(scores), np.asarray(class_ids), strict=True)
    ]
    if not points:
        raise ValueError("`batches` must hold at least one point. Received none.")
    with _replacing_text(path) as file:
        file.write(f"{len(points)} {num_labels}\n")
        for number, (scores, class_ids) in enumerate(points, start=2):
            is_class = class_ids != -1
            scores = scores[is_class]
            class_ids = class_ids[is_class]
            order = np.lexsort([scores, class_ids])
            scores = scores[order]
            class_ids = class_ids[order]
            where = f"{path}, line {number}"
            _check_numbers(where, "label", class_ids, num_labels)
            _check_values(where, scores)
            file.write(_pairs(class_ids, scores))


@contextlib.contextmanager
def _replacing_text(path: PathLike) -> Iterator[TextIO]:
    """Yields a text file, compressed if `.gz`, that gets its name once complete."""
    opener = gzip.open if str(path).endswith(".gz") else open
    with (
        _files.replacing(path) as temporary,
        opener(temporary, "wt", encoding="utf-8") as file,
    ):
        yield file


def _pairs(ids: Iterable, values: Iterable) -> str:
    """The end of a line, `i:v i:v`."""
    pairs = zip(ids, values, strict=True)
    return " ".join(f"{i}:{np.float32(v)!s}" for i, v in pairs) + "\n"


def _warn_if_cut(path: PathLike) -> None:
    """Warns if no line break ends the last line: a number there may lack digits."""
    if str(path).endswith(".gz"):  # A gzip file has its size inside.
        return
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 1, 0))
        if size and file.read() not in (b"\n", b"\r"):
            warnings.warn(
                f"{path}: no line break ends the last line; the file may be cut.",
                stacklevel=3,
            )


def _is_natural(text: str) -> bool:
    """Whether a text is an integer >= 0 in digits; `int` takes others, such as 1_0."""
    return text.isascii() and text.isdigit()


def _points(path: PathLike) -> Iterator[tuple]:
    """The points of a file: labels, feature ids, feature values."""
    count, num_features, num_labels = read_extreme_header(path)
    with splits.opened(path) as lines:
        next(lines)
        number = 1
        for number, line in enumerate(lines, start=2):
            label_field, *feature_fields = line.rstrip("\n").split(" ")
            try:
                # Python would accept both in a number.
                if "_" in line or not line.isascii():
                    raise ValueError
                label_fields = label_field.split(",") if label_field else []
                labels = [*map(int, label_fields)]
                pairs = [field.split(":") for field in feature_fields if field]
                ids = [int(feature_id) for feature_id, _ in pairs]
                values = [float(value) for _, value in pairs]
            except ValueError as error:
                rule = f"{path}, line {number}: must be `l1,l2 f:v f:v`."
                raise ValueError(f"{rule} Received: {line[:80]!r}.") from error
            where = f"{path}, line {number}"
            _check_numbers(where, "label", labels, num_labels)
            _check_numbers(where, "feature", ids, num_features)
            _check_values(where, values)
            yield labels, ids, values
    rule = f"{path}, line 1: must have the number of points."
    _checks.require(
        number - 1 == count, rule, f"{count}, but the file has {number - 1}"
    )


def _check_numbers(where: str, quantity: str, numbers: Iterable, n: int) -> None:
    for x in numbers:
        if not 0 <= x < n:
            rule = f"a {quantity} must be in [0, {n})"
            raise ValueError(f"{where}: {rule}. Received: {x}.")


def _check_values(where: str, values: Iterable) -> None:
    largest = float(np.finfo(np.float32).max)
    for x in values:
        if not -largest <= x <= largest:
            raise ValueError(f"{where}: a value must be finite. Received: {x}.")
