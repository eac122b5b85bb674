"""The one table of what functions of `ops` get in tests that try every function."""

import inspect

import tensorflow as tf

from rank4class_tf import ops

# What has a row for each of three lists.
OF_ROWS = {
    "scores": tf.constant(
        [[3.0, 1.0, 2.0, 0.0], [0.0, 2.0, 1.0, 3.0], [1.0, 3.0, 0.0, 2.0]]
    ),
    "class_ids": tf.constant([[0, 1], [2, -1], [3, 2]]),
    "relevance": tf.constant([[1.0, 2.0], [1.0, 0.0], [3.0, 1.0]]),
    "mask": tf.constant(
        [[True, True, True, False], [True] * 4, [False, True, True, True]]
    ),
    "weights": tf.ones([3, 4]),
    "ranks": tf.constant([[1.0, 2.0], [1.0, 4.0], [3.0, 1.0]]),
    "ranks_among_positives": tf.constant([[1.0, 2.0], [1.0, 2.0], [2.0, 1.0]]),
    "alpha": tf.constant([1.0, 2.0, 3.0]),
}
OTHERS = {
    "k": 2,
    "num_classes": 5,
    "num_negatives": 3,
    "num_sampled": 2,
    "size": 2,
    "seed": [1, 2],
    "eligible": [[True, False, True]],
    "rank_weights": "uniform",
    "regularizer": "entropy",
}

MEMBERS = {name: getattr(ops, name) for name in ops.__all__}
FUNCTIONS = {name: x for name, x in MEMBERS.items() if inspect.isfunction(x)}


def parameters_of(name):
    return inspect.signature(FUNCTIONS[name]).parameters


def needed(name, *besides):
    """What the table gives to a function's required and to some optional arguments."""
    table = {**OF_ROWS, **OTHERS}
    return {
        key: table[key]
        for key, parameter in parameters_of(name).items()
        if key in table and (parameter.default is parameter.empty or key in besides)
    }
