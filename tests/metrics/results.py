"""Functions that tests of several metrics share."""

import itertools

import numpy as np


def result(metric, *batch):
    metric.update_state(*batch)
    return metric.result()


def orders(scores, items):
    """The items in each order that agrees with the scores."""
    for order in itertools.permutations(zip(scores, items, strict=True)):
        if all(a[0] >= b[0] for a, b in itertools.pairwise(order)):
            yield [item for _, item in order]


def filled(make, labels, scores, weights=None, parts=3, **kwargs):
    metric = make(dtype="float64", **kwargs)
    for rows in np.array_split(np.arange(len(labels)), parts):
        metric.update_state(
            labels[rows], scores[rows], None if weights is None else weights[rows]
        )
    return metric
