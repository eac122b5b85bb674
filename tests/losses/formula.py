"""Calls the formula of a loss directly, without the work of the base class around it."""

from rank4class_tf import ops


def value_of(loss, scores, class_ids, relevance=None, mask=None):
    """The loss of each list, in the dtype of the scores."""
    return loss.compute(ops.as_lists(scores, class_ids, relevance, mask))
