"""How the package refuses or warns of what is wrong: which error, which message."""

import functools

import pytest
import tensorflow as tf


def refused(message):
    return pytest.raises(ValueError, match=message)


def refused_in_graph(message):
    """Where values are known only as a graph runs."""
    return pytest.raises(tf.errors.InvalidArgumentError, match=message)


def refused_in_any_mode(message):
    return pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=message)


def assert_refused(call, message, *arguments):
    """Eagerly, and in a graph as it runs."""
    with refused(message):
        call(*arguments)
    tensors = tf.nest.map_structure(tf.constant, arguments)
    with refused_in_graph(message):
        tf.function(call)(*tensors)


def warned(message):
    return pytest.warns(UserWarning, match=message)


def each_call(table):
    """Parametrises by calls and messages: rows of a function, a message, arguments."""
    calls = [
        (functools.partial(function, *arguments), message)
        for function, message, *arguments in table
    ]
    return pytest.mark.parametrize("call, message", calls)
