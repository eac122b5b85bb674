"""All rows of the tables, by the class that they make."""

import functools
import inspect
import sys

from tensorflow import keras

import rank4class_tf as r4c
from rank4class_tf import _registry

from . import tables
from .head_table import HEADS

ROOMS = (r4c.layers, r4c.losses, r4c.metrics, r4c.models, r4c.optimizers)

# The rows of each kind of `_registry`, and of optimizers, whose classes Keras finds.
MAKERS = {
    "loss": [case.make for case in (*tables.LOSSES, *tables.SORTER_LOSSES)],
    "metric": [*(case.make for case in tables.METRICS), *tables.DATASET_METRICS.values()],
    "head": [*HEADS.values()],
    "interaction": [lambda make=make: make().interaction for make in HEADS.values()],
    "sorter": [case.make for case in tables.SORTERS],
    "optimizer": [*tables.OPTIMIZERS.values()],
}

# What all objects of a kind are.
BASES = {
    "loss": (r4c.losses.RankingLoss, r4c.losses.SorterLoss),
    "metric": keras.metrics.Metric,
    "head": r4c.layers.Head,
    "interaction": r4c.layers.Interaction,
    "sorter": r4c.layers.Sorter,
    "optimizer": keras.optimizers.Optimizer,
}


def public_classes(base=object):
    """The public classes of all rooms that are subclasses of `base`."""
    public = (getattr(room, name) for room in ROOMS for name in room.__all__)
    return list(dict.fromkeys(c for c in public if inspect.isclass(c) and issubclass(c, base)))


def concrete(kind):
    """The public classes of a kind, without bases: what others derive from and has no name."""
    public = public_classes(BASES[kind])
    named = _registry._NAMED.get(kind, {})
    return [
        cls
        for cls in public
        if name_of(cls, kind) in named
        or not any(issubclass(other, cls) and other is not cls for other in public)
    ]


def required(cls):
    parameters = [*inspect.signature(cls.__init__).parameters.values()][1:]
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {p.name for p in parameters if p.default is p.empty and p.kind not in variable}


@functools.cache
def of_classes():
    """Class -> what makes an object of it, of all tables."""
    makers = [make for of_kind in MAKERS.values() for make in of_kind]
    return {type(make()): make for make in reversed([*makers, *tables.OTHERS])}


def needed(cls):
    """What the row of a class gives to those arguments that its constructor needs, made anew."""
    names = required(cls)
    if not names:
        return {}
    assert cls in of_classes(), f"{cls.__name__} needs a row in tests/contract/tables.py."
    code, given = cls.__init__.__code__, []

    def look(frame, event, argument):
        if event == "call" and frame.f_code is code and type(frame.f_locals["self"]) is cls:
            given.append(dict(frame.f_locals))

    sys.setprofile(look)
    try:
        of_classes()[cls]()
    finally:
        sys.setprofile(None)
    return {name: given[0][name] for name in names}


def name_of(cls, kind):
    """The name by which `get` finds a class of a kind."""
    return _registry.snake_case(cls.__name__.removesuffix(_registry._SUFFIXES.get(kind, "")))
