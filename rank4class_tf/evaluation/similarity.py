"""Cross-modal retrieval from a matrix of similarities."""

from __future__ import annotations

from typing import Any

import numpy as np

from rank4class_tf import _checks
from rank4class_tf import metrics as _metrics
from rank4class_tf._types import Array, Cutoffs


def evaluate_retrieval(
    similarity: Array,
    matches: Array | None = None,
    k: Cutoffs = (1, 5, 10),
    batch_size: int = 1024,
) -> dict[str, dict[str, float]]:
    """Evaluates a similarity matrix both ways, as in cross-modal retrieval.

    Each row ranks the columns, and each column the rows. The hit rate at k (R@k) is the
    share of queries with a match among the k best, the median rank (MedR) that of the
    best match. Ties count in expectation; a query without a match is left out. The
    result maps the queries, `"rows"` and `"columns"`, to dictionaries with
    `"hit_rate_at_<k>"` and `"median_rank"`.

    Source: SoDeep (Engilberge et al. 2019), section 5.3.

    Args:
        similarity: `[rows, columns]`.
        matches: booleans of that shape, True for a match; None for the diagonal.
        k: the cutoff, or a list of them.
        batch_size: how many queries are ranked at once.

    Example:
        >>> figures = evaluate_retrieval([[0.9, 0.5], [0.8, 0.6]], k=[1])
        >>> figures["rows"]["hit_rate_at_1"], figures["columns"]["hit_rate_at_1"]
        (0.5, 1.0)
    """
    _checks.positive_int("batch_size", batch_size)
    similarity = np.asarray(similarity)
    if matches is None:
        matches = np.eye(len(similarity), dtype=bool)
    matches = np.asarray(matches)
    rule = (
        "`similarity` and `matches` must have one shape [rows, columns]; the default "
        "of `matches` needs a square."
    )
    is_same_shape = similarity.ndim == 2 and matches.shape == similarity.shape
    _checks.require(is_same_shape, rule, f"{similarity.shape} and {matches.shape}")
    is_bool = bool(np.isin(matches, [0, 1]).all())
    rule = "`matches` must hold booleans."
    _checks.require(is_bool, rule, f"other values ({matches.dtype})")
    _checks.require(bool(matches.any()), "`matches` must hold a match.", "none")
    cutoffs: Any = [k] if np.ndim(k) == 0 else list(k)  # type: ignore[arg-type]

    # Each query is a row, of the matrix or of its transpose.
    def figures(scores: np.ndarray, matches: np.ndarray) -> dict[str, float]:
        hit_rate = _metrics.TopKAccuracy(cutoffs, "hit_rate", label_format="relevance")
        most = max(scores.shape[1], 1)
        median = _metrics.MedianRank(most, label_format="relevance")
        for start in range(0, len(scores), batch_size):
            batch = slice(start, start + batch_size)
            labels = matches[batch].astype(np.float32)
            hit_rate.update_state(labels, scores[batch])
            median.update_state(labels, scores[batch])
        results = {**hit_rate.result(), "median_rank": median.result()}
        return {name: float(value) for name, value in results.items()}

    by_row = figures(similarity, matches)
    return {"rows": by_row, "columns": figures(similarity.T, matches.T)}
