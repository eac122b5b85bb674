"""Evaluates a model and compares two."""

from rank4class_tf._intervals import Comparison, Estimate
from rank4class_tf.evaluation.kept import NUM_TOP_CLASSES
from rank4class_tf.evaluation.measure import (
    Evaluator,
    Metrics,
    evaluate,
    mean_metrics,
)
from rank4class_tf.evaluation.results import Evaluation, average, compare
from rank4class_tf.evaluation.similarity import evaluate_retrieval

__all__ = ["evaluate", "Evaluator", "Metrics", "mean_metrics", "NUM_TOP_CLASSES"]
__all__ += ["Evaluation", "Estimate", "average", "compare", "Comparison"]
__all__ += ["evaluate_retrieval"]
