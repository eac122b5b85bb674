"""Lists of items with grades: from rows with query ids, and from the files of LETOR."""

import codecs
import gzip
from typing import Any

import numpy as np

from rank4class_tf import _checks
from rank4class_tf._types import PathLike
from rank4class_tf.data import splits


def lists_from_groups(
    features: Any,
    grades: Any,
    qid: Any = None,
    group: Any = None,
    list_size: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Makes padded lists of rows with query ids or group sizes (XGBoost, LightGBM).

    Losses, metrics and `try_out` take the result; a model scores `[lists, n]`. Then
    `scores[labels >= 0]` are the scores of the rows, in their order.

    Args:
        features: finite numbers `[rows, d]`: an array, SciPy's sparse matrix or a
            pandas table. The rows of a list follow each other.
        grades: `[rows]`, finite numbers >= 0.
        qid: `[rows]`, the query of each row: numbers or strings.
        group: in place of `qid`, the number of rows of each list, integers >= 1, such
            as `np.loadtxt("rank.train.query", int)` for LightGBM's files.
        list_size: the width n; the rows of a longer list after its first n are left
            out. None means the longest list, with `4 * lists * n * d` bytes of
            features.

    Returns:
        float32 features `[lists, n, d]`, padded with 0, and labels `[lists, n]`, padded
        with -1.

    Example:
        >>> features, labels = lists_from_groups(
        ...     [[1], [2], [3]], [0, 2, 1], qid=[7, 7, 9]
        ... )
        >>> features[..., 0].tolist(), labels.tolist()
        ([[1.0, 2.0], [3.0, 0.0]], [[0.0, 2.0], [1.0, -1.0]])
    """
    list_size = _checks.positive_int_or_none("list_size", list_size)
    features, grades = _checked_rows(features, grades)
    sizes = _sizes_of_lists(qid, group, len(grades))

    n = list_size or int(sizes.max())
    is_kept = np.arange(len(grades)) - np.repeat(np.cumsum(sizes) - sizes, sizes) < n
    # Row by row, the order of the rows that stay.
    is_item = np.arange(n) < sizes[:, np.newaxis]
    padded = np.zeros([*is_item.shape, features.shape[1]], np.float32)
    padded[is_item] = features[is_kept]
    labels = np.full(is_item.shape, -1, np.float32)
    labels[is_item] = grades[is_kept]
    return padded, labels


def _checked_rows(features: Any, grades: Any) -> tuple[np.ndarray, np.ndarray]:
    """Features `[rows, d]` and grades `[rows]`, float32."""
    features = features.toarray() if hasattr(features, "toarray") else features
    with np.errstate(over="ignore"):
        features = np.asarray(features, np.float32)
        grades = np.asarray(grades, np.float32)
    rule = (
        "`features` [rows, d] and `grades` [rows] must have the same rows, at "
        "least one."
    )
    is_table = features.ndim == 2 and features.size > 0
    is_right = is_table and grades.shape == features.shape[:1]
    _checks.require(is_right, rule, f"the shapes {features.shape} and {grades.shape}")
    rule = "`features` must be finite in float32, without missing values."
    _checks.require(np.isfinite(features).all(), rule, "NaN or an infinity")
    wrong = grades[~((grades >= 0) & (grades < np.inf))]
    rule = "`grades` must be finite numbers >= 0."
    _checks.require(not wrong.size, rule, str(*wrong[:1]))
    return features, grades


def _sizes_of_lists(qid: Any, group: Any, num_rows: int) -> np.ndarray:
    """How many rows each list has."""
    rule = (
        "Pass either `qid`, the query of each row, or `group`, the sizes of the lists."
    )
    received = "neither" if group is None else "both"
    _checks.require((qid is None) != (group is None), rule, received)
    if group is None:
        return _sizes_of_queries(splits.as_ids(qid), num_rows)
    sizes = np.asarray(group)
    is_right = sizes.ndim == 1 and sizes.dtype.kind in "iu" and (sizes >= 1).all()
    rule = f"`group` must be integers >= 1 that add up to the {num_rows} rows."
    received = f"{sizes}, {sizes.dtype}, with the sum {sizes.sum()}"
    _checks.require(is_right and sizes.sum() == num_rows, rule, received)
    return sizes


def _sizes_of_queries(qid: np.ndarray, num_rows: int) -> np.ndarray:
    rule = "`qid` must have one id a row."
    _checks.require(qid.shape == (num_rows,), rule, f"{qid.shape}")
    rule = "`qid` must hold only numbers or only strings, and no missing id."
    wrong = qid[qid != qid]  # NaN.
    is_right = qid.dtype != object and not wrong.size
    _checks.require(is_right, rule, str(*wrong[:1]) or "several types")
    starts = np.flatnonzero(np.append(True, qid[1:] != qid[:-1]))
    queries, counts = np.unique(qid[starts], return_counts=True)
    rule = "`qid` must have the rows of a query one after the other."
    received = f"rows of {queries[counts.argmax()]} apart"
    _checks.require((counts == 1).all(), rule, received)
    return np.diff(starts, append=num_rows)


def read_letor(
    path: PathLike, num_features: int | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    r"""Reads LETOR, MSLR-WEB or SVMlight rankings: `2 qid:10 1:0.03 3:1.0 # comment`.

    A line has the grade of an item, its query, and its features by number, in rising
    order from 1; the others are 0. It needs scikit-learn.

    Args:
        path: the file, which may be compressed as `.gz`.
        num_features: the number d of features; None means the highest in the file. Pass
            that of the training file for the others, which may lack the last features.

    Returns:
        `(features, grades, qid)` for `lists_from_groups`: float32 `[rows, d]` and
        `[rows]`, int64 `[rows]`; `qid` is None if no line has one, as in LightGBM's own
        files.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "train.txt")
        >>> _ = path.write_text("2 qid:10 1:0.5 3:1.0 # a comment\n0 qid:10 2:0.25\n")
        >>> features, labels = lists_from_groups(*read_letor(path))
        >>> features.tolist(), labels.tolist()
        ([[[0.5, 0.0, 1.0], [0.0, 0.25, 0.0]]], [[2.0, 0.0]])
    """
    num_features = _checks.positive_int_or_none("num_features", num_features)
    read = splits.import_extra("sklearn.datasets", "demo").load_svmlight_file
    options = {"dtype": np.float32, "zero_based": False, "query_id": True}
    opener: Any = gzip.open if str(path).endswith(".gz") else open
    try:
        with opener(path, "rb") as file:
            if file.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
                file.seek(0)
            rows, grades, qid = read(file, n_features=num_features, **options)
    except (ValueError, OverflowError, *splits.DAMAGED) as error:
        limit = "" if num_features is None else f" to {num_features}"
        rule = f"must hold lines `grade qid:q f:v f:v`, with f rising from 1{limit}"
        raise ValueError(f"{path}: {rule}. Received: {error}") from error
    rule = f"{path}: must hold at least one line, and `qid:` in all lines or in none."
    is_right = len(grades) > 0 and len(qid) in (0, len(grades))
    _checks.require(is_right, rule, f"{len(qid)} of {len(grades)} lines with `qid:`")
    return rows.toarray(), grades.astype(np.float32), qid if len(qid) else None
