"""Functions that run as graphs where they are called eagerly."""

import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf

# So many graphs an owner keeps. Others, of arguments whose shapes change all the time, run eagerly.
_MOST_GRAPHS = 16

_GRAPHS: weakref.WeakKeyDictionary[Any, dict] = weakref.WeakKeyDictionary()


def as_graph(owner: Any, method: Callable, *args: Any) -> Any:
    """`method(*args)`, in eager mode by a graph for the dtypes and shapes of the arguments.

    The graph takes a tenth of the time of the operations one by one. It serves any batch size. An
    error of values is raised once more in eager mode, where it is a `ValueError` that names the
    value.

    Args:
        owner: the object that keeps the graphs, until `forget`.
        method: a method of the owner, which reads tensors only from its arguments and variables.
        *args: tensors, or what TensorFlow converts; None stays None.
    """
    if not tf.executing_eagerly() or tf.config.functions_run_eagerly():
        return method(*args)
    args = tuple(map(_as_tensor, args))
    specs = tuple(map(_spec, args))
    graphs = _GRAPHS.setdefault(owner, {})
    key = (method.__name__, *specs)
    if key not in graphs:
        if len(graphs) == _MOST_GRAPHS:
            return method(*args)
        graphs[key] = _graph(weakref.WeakMethod(method), specs)
    try:
        return graphs[key](*(arg for arg in args if arg is not None))
    except tf.errors.InvalidArgumentError:
        method(*args)
        raise


def forget(owner: Any) -> None:
    """Drops the graphs of an object, whose configuration has changed."""
    _GRAPHS.pop(owner, None)


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
    return spec


def _graph(method, specs):
    # The graph must not keep its owner alive, which it would outlive then.
    def function(*tensors):
        left = iter(tensors)
        return method()(*(None if spec is None else next(left) for spec in specs))

    given = [spec for spec in specs if spec is not None]
    return tf.function(function, input_signature=given, autograph=False)
