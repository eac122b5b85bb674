"""What the reproductions share: problems, training, runs that are kept in files, reports."""

from scripts.reproductions.harness.examples import Examples, to_splits
from scripts.reproductions.harness.problems import (
    IMAGE_DATASETS,
    SMALL_ENCODERS,
    TEXT_DATASETS,
    image_problem,
    in_random_order,
    small_problem,
    text_problem,
)
from scripts.reproductions.harness.report import (
    METRICS,
    SELECT_BY,
    Row,
    markdown,
    plot,
    save_figure,
    verdict,
    write_report,
)
from scripts.reproductions.harness.runs import cached, train_to_best
from scripts.reproductions.harness.settings import Settings, add_settings, frozen, with_settings
from scripts.reproductions.harness.training import Problem, Runs, as_evaluation, train

__all__ = [
    "IMAGE_DATASETS",
    "METRICS",
    "SELECT_BY",
    "SMALL_ENCODERS",
    "TEXT_DATASETS",
    "Examples",
    "Problem",
    "Row",
    "Runs",
    "Settings",
    "add_settings",
    "as_evaluation",
    "cached",
    "frozen",
    "image_problem",
    "in_random_order",
    "markdown",
    "plot",
    "save_figure",
    "small_problem",
    "text_problem",
    "to_splits",
    "train",
    "train_to_best",
    "verdict",
    "with_settings",
    "write_report",
]
