"""Matplotlib figures of the ranks, labels and top classes of an `Evaluation`."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from rank4class_tf import _checks
from rank4class_tf.evaluation import Evaluation
from rank4class_tf.layers.serving import as_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Evaluations: TypeAlias = Evaluation | Mapping[str, Evaluation]

__all__ = ["accuracy_by_k", "confusion_at_k", "hardest_classes", "rank_histogram"]


def accuracy_by_k(evaluations: Evaluations, max_k: int | None = None) -> "Figure":
    r"""The share of lists whose best positive is among the k first, for each k.

    $$A(k) = \frac{1}{N} |\{i : \mathrm{rank}_i \le k\}|$$

    Lists without positives are left out. A tied positive has its mean rank here, unlike
    in `TopKAccuracy`. Biometrics calls this the cumulative match curve.

    Args:
        evaluations: one, or several by name, whose curves share a picture.
        max_k: the last k; None means the worst rank, at most 50.

    Example:
        >>> import rank4class_tf as r4c
        >>> scores, class_ids = [[3.0, 1.0, 2.0]] * 4, [0, 0, 2, 1]
        >>> figure = accuracy_by_k(
        ...     r4c.evaluate(lambda x: x, (scores, class_ids), ["mrr"])
        ... )
        >>> figure.axes[0].lines[0].get_ydata().tolist()
        [0.5, 0.75, 1.0]
    """
    ranks_by_name = _ranks_by_name(evaluations)
    if max_k is None:
        worst = max(ranks.max(initial=1) for ranks in ranks_by_name.values())
        max_k = math.ceil(min(50, worst))
    ks = np.arange(1, _checks.positive_int("max_k", max_k) + 1)
    figure, axes = new_figure()
    for name, ranks in ranks_by_name.items():
        shares = [np.mean(ranks <= k) if len(ranks) else np.nan for k in ks]
        axes.plot(ks, shares, label=name, marker="." if max_k <= 20 else None)
    axes.set(xlabel="k", ylabel="share of lists with a positive among the k first")
    axes.grid(alpha=0.3)
    if not isinstance(evaluations, Evaluation):
        _add_legend(axes, axes.lines, ranks_by_name)
    return figure


def rank_histogram(evaluations: Evaluations, max_rank: int = 20) -> "Figure":
    """How many lists have their best positive at each rank.

    Args:
        evaluations: one, or several by name, whose bars stand side by side.
        max_rank: the last rank; worse ranks count there.
    """
    ranks_by_name = _ranks_by_name(evaluations)
    max_rank = _checks.positive_int("max_rank", max_rank)
    figure, axes = new_figure()
    width = 0.8 / len(ranks_by_name)
    positions = np.arange(1, max_rank + 1)
    for index, (name, ranks) in enumerate(ranks_by_name.items()):
        # The mean rank of tied items may lie between two places.
        places = np.clip(np.ceil(ranks), 0, max_rank).astype(int)
        counts = np.bincount(places, minlength=max_rank + 1)
        centers = positions + (index - (len(ranks_by_name) - 1) / 2) * width
        axes.bar(centers, counts[1:], width, label=name)
    axes.set(xlabel=f"rank of the label; {max_rank}: or below", ylabel="lists")
    if not isinstance(evaluations, Evaluation):
        _add_legend(axes, axes.containers, ranks_by_name)
    return figure


def hardest_classes(
    evaluation: Evaluation, class_names: Sequence[str] | None = None, count: int = 10
) -> "Figure":
    """The classes whose labels rank lowest on average, and how many lists each has.

    A list of several positives counts for its class in `class_ids`, with the rank of
    its best positive.

    Args:
        evaluation: from `evaluate`.
        class_names: a name for each class; None for the ids.
        count: how many classes.
    """
    count = _checks.positive_int("count", count)
    rule = "`evaluation` must have all ranks, not only the best of `RankedIds`."
    _checks.require(not np.isinf(evaluation.ranks).any(), rule, "infinite ones")
    class_ids = _required(evaluation, "class_ids")
    # A list has none where it has no positive, or none with a weight.
    is_ranked = ~np.isnan(evaluation.ranks)
    labels, label_indices = np.unique(class_ids[is_ranked], return_inverse=True)
    list_counts = np.bincount(label_indices)
    rank_sums = np.bincount(label_indices, evaluation.ranks[is_ranked])
    mean_ranks = rank_sums / list_counts
    worst = np.argsort(-mean_ranks, kind="stable")[:count]
    figure, axes = new_figure(height=1.2 + 0.3 * len(worst))
    bars = axes.barh(range(len(worst)), mean_ranks[worst])
    counts = [f" {list_counts[index]} lists" for index in worst]
    axes.bar_label(bars, counts, fontsize=8)
    names = _names(labels[worst], class_names)
    axes.set_yticks(range(len(worst)), names, parse_math=False)
    axes.invert_yaxis()
    axes.set(xlabel="mean rank of the label")
    return figure


def confusion_at_k(
    evaluation: Evaluation,
    k: int = 5,
    class_names: Sequence[str] | None = None,
    count: int = 30,
) -> "Figure":
    """For each class, how often each class is among the k first of its lists.

    For lists of one positive without ties the diagonal is the accuracy at k of each
    class.

    Args:
        evaluation: from `evaluate`, with `top_classes`.
        k: in [1, 10].
        class_names: a name for each class; None for the ids.
        count: how many classes to show: those with the most lists.
    """
    class_ids = _required(evaluation, "class_ids")
    top = _required(evaluation, "top_classes")
    is_right = _checks.positive_int("k", k) <= top.shape[1]
    _checks.require(is_right, f"`k` must be at most {top.shape[1]}.", f"k={k}")
    count = _checks.positive_int("count", count)
    labels, list_counts = np.unique(class_ids[class_ids >= 0], return_counts=True)
    shown = np.sort(labels[np.argsort(-list_counts, kind="stable")][:count])
    shares = np.zeros([len(shown), len(shown)])
    for row, label in enumerate(shown):
        top_k = top[class_ids == label, :k]
        shares[row] = [np.mean((top_k == class_id).any(1)) for class_id in shown]
    size = 2 + 0.25 * len(shown)
    figure, axes = new_figure(size + 1, size)
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    figure.colorbar(image, label=f"share of lists with the class among the {k} first")
    names = _names(shown, class_names)
    axes.set_xticks(range(len(shown)), names, rotation=90, fontsize=8, parse_math=False)
    axes.set_yticks(range(len(shown)), names, fontsize=8, parse_math=False)
    axes.set(xlabel="class", ylabel="label")
    return figure


def _ranks_by_name(evaluations: Evaluations) -> dict[str, np.ndarray]:
    """The ranks in each evaluation, of its lists with a positive."""
    by_name = {"": evaluations} if isinstance(evaluations, Evaluation) else evaluations
    rule = (
        "`evaluations` must be an `Evaluation`, or a dict from names to at least one."
    )
    _checks.require(isinstance(by_name, Mapping) and bool(by_name), rule, evaluations)
    for evaluation in by_name.values():
        rule = "`evaluations` must hold what `evaluate` returns."
        _checks.require(isinstance(evaluation, Evaluation), rule, evaluation)
    return {name: x.ranks[~np.isnan(x.ranks)] for name, x in by_name.items()}


def _required(evaluation: Evaluation, name: str) -> np.ndarray:
    array = getattr(evaluation, name)
    _checks.require(array is not None, f"`evaluation` must have `{name}`.", None)
    return array


def _names(class_ids: np.ndarray, class_names: Sequence[str] | None) -> list[str]:
    if class_names is None:
        return [str(class_id) for class_id in class_ids]
    missing = str(*class_ids[class_ids >= len(class_names)][:1])
    rule = "`class_names` must have a name for each class."
    received = f"{len(class_names)} names, none for class {missing}"
    _checks.require(not missing, rule, received)
    return as_names([class_names[class_id] for class_id in class_ids])


def _add_legend(axes: "Axes", handles: Sequence, names: Iterable[str]) -> None:
    """Adds a plain-text legend: matplotlib would typeset "$" and hide a leading "_"."""
    texts = axes.legend(handles, ["name"] * len(handles)).get_texts()
    for text, name in zip(texts, names, strict=True):
        text.set(text=name, parse_math=False)


def new_figure(width: float = 6, height: float = 4) -> tuple["Figure", "Axes"]:
    # Only a plot imports matplotlib.
    module = _checks.imported("matplotlib.figure", "Plots need matplotlib", "plots")
    figure = module.Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()
