"""Functions that tests of several metrics share."""

import itertools

import numpy as np
import tensorflow as tf


def in_graph(update, signature=None):
    """A tf.function that returns nothing; Keras 2's update returns an operation."""

    def without_result(*args, **kwargs):
        update(*args, **kwargs)

    return tf.function(without_result, signature)


def result(metric, *batch):
    metric.update_state(*batch)
    return metric.result()


def ranks_of(ids, scores):
    """The rank of each list's item among scores without ties."""
    own = np.take_along_axis(scores, ids[:, None], axis=1)
    return 1 + (scores > own).sum(axis=1)


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
