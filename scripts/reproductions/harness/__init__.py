"""Comparisons of losses and heads on one encoder: what the examples and the reproductions share."""

from rank4class_tf.experiments._command import (
    add_arguments,
    add_settings,
    compare,
    frozen,
    number_below,
    positive,
    rows_to_train,
    seed,
    with_settings,
)
from rank4class_tf.experiments._examples import Examples
from rank4class_tf.experiments._problems import (
    IMAGE_DATASETS,
    SMALL_ENCODERS,
    TEXT_DATASETS,
    image_problem,
    small_problem,
    text_problem,
)
from rank4class_tf.experiments._report import METRICS, SELECT_BY, Row, markdown, plot, verdict
from rank4class_tf.experiments._runs import cached
from rank4class_tf.experiments._training import Problem, Settings, as_evaluation, train

__all__ = [
    "IMAGE_DATASETS",
    "METRICS",
    "SELECT_BY",
    "SMALL_ENCODERS",
    "TEXT_DATASETS",
    "Examples",
    "Problem",
    "Row",
    "Settings",
    "add_arguments",
    "add_settings",
    "as_evaluation",
    "cached",
    "compare",
    "frozen",
    "image_problem",
    "markdown",
    "number_below",
    "plot",
    "positive",
    "rows_to_train",
    "seed",
    "small_problem",
    "text_problem",
    "train",
    "verdict",
    "with_settings",
]
