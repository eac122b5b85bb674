"""Methods that run as graphs where they are called eagerly."""

import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf

# Making a graph takes a second: it is made when arguments of the same types come for the third
# time. An owner keeps so many of them.
_CALLS_BEFORE = 2
_MOST_GRAPHS = 16

# owner -> a method and the types of its arguments -> how many calls there were, or the graph; None
# if it failed.
_KNOWN: weakref.WeakKeyDictionary[Any, dict] = weakref.WeakKeyDictionary()


def as_graph(owner: Any, method: Callable, *args: Any) -> Any:
    """`method(*args)`, which in eager mode runs as a graph from the third call on.

    A graph takes a tenth of the time of its operations one by one. It serves any batch size. What
    fails in it, or while it is made, runs eagerly, where errors name the values. A user's own code
    always runs eagerly, so that it can be debugged and may depend on anything; and so does
    everything under `tf.config.run_functions_eagerly(True)`.

    Args:
        owner: the object that keeps the graphs, until `forget`.
        method: a method of the owner that reads tensors only from its arguments and variables.
        *args: tensors, or what TensorFlow converts to them; None stays None.
    """
    if (
        not tf.executing_eagerly()
        or tf.config.functions_run_eagerly()
        or tf.distribute.has_strategy()
        or not _is_ours(owner)
    ):
        return method(*args)
    args = tuple(map(_as_tensor, args))
    specs = tuple(map(_spec, args))
    key = method.__name__, specs
    known = _KNOWN.setdefault(owner, {})
    state = known.get(key, 0)
    if isinstance(state, int):
        if state < _CALLS_BEFORE:
            _count(known, key, state + 1)
            return method(*args)
        state = known[key] = _graph(weakref.WeakMethod(method), specs)
    if state is None:
        return method(*args)
    try:
        return state(*(arg for arg in args if arg is not None))
    except Exception:
        return method(*args)


def forget(owner: Any) -> None:
    """Drops the graphs of an object whose configuration changes."""
    _KNOWN.pop(owner, None)


def _is_ours(owner):
    """Whether a class and the functions that it was given are of this package."""
    given = [v for name, v in vars(owner).items() if not hasattr(type(owner), name)]
    of_user = [v for v in given if callable(v) and not _module(v).startswith("rank4class_tf.")]
    return type(owner).__module__.startswith("rank4class_tf.") and not of_user


def _module(value):
    return getattr(value, "__module__", None) or type(value).__module__


def _count(known, key, calls):
    """Counts a call; of types that were seen only now and then nothing is kept for long."""
    if len(known) >= _MOST_GRAPHS and key not in known:
        for other in [other for other, state in known.items() if isinstance(state, int)]:
            del known[other]
    if len(known) < _MOST_GRAPHS or key in known:
        known[key] = calls


def _as_tensor(value):
    if value is None or isinstance(value, tf.RaggedTensor | tf.SparseTensor):
        return value
    return tf.convert_to_tensor(value)


def _spec(tensor):
    """The type of a tensor, with any number of rows."""
    if tensor is None:
        return None
    spec = tf.type_spec_from_value(tensor)
    if isinstance(spec, tf.TensorSpec) and spec.shape.rank:
        return tf.TensorSpec([None, *spec.shape[1:]], spec.dtype)
    if isinstance(spec, tf.RaggedTensorSpec):
        shape = [None, *spec.shape[1:]]
        return tf.RaggedTensorSpec(shape, spec.dtype, spec.ragged_rank, spec.row_splits_dtype)
    return spec


def _graph(method, specs):
    # A graph that kept its owner alive would never be dropped.
    def function(*tensors):
        left = iter(tensors)
        return method()(*(None if spec is None else next(left) for spec in specs))

    given = [spec for spec in specs if spec is not None]
    graph = tf.function(function, input_signature=given, autograph=False)
    try:
        graph.get_concrete_function()
    except Exception:
        return None
    return graph
