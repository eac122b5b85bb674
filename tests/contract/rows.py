"""All rows of the tables by kind, and the arguments that constructors need."""

import inspect

from tensorflow import keras

import rank4class_tf as r4c
from rank4class_tf import _registry

from . import tables
from .head_table import HEADS

ROOMS = (r4c.layers, r4c.losses, r4c.metrics, r4c.models, r4c.optimizers)

# The rows of each kind of `_registry`, and of optimizers, whose classes Keras finds.
MAKERS = {
    "loss": [case.make for case in (*tables.LOSSES, *tables.SORTER_LOSSES)],
    "metric": [
        *(case.make for case in tables.METRICS),
        *tables.DATASET_METRICS.values(),
    ],
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
    return list(
        dict.fromkeys(c for c in public if inspect.isclass(c) and issubclass(c, base))
    )


def concrete(kind):
    """Public classes of a kind, without bases: those derived from, without a name."""
    public = public_classes(BASES[kind])
    return [
        cls
        for cls in public
        if name_of(cls, kind) in _registry._NAMED.get(kind, {})
        or not any(issubclass(other, cls) and other is not cls for other in public)
    ]


def required(cls):
    parameters = [*inspect.signature(cls.__init__).parameters.values()][1:]
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {
        p.name for p in parameters if p.default is p.empty and p.kind not in variable
    }


def needed(cls):
    """The arguments that the constructor of a class needs, made anew."""
    made = {**tables.NEEDED, **tables.NEEDED_OF.get(cls, {})}
    assert required(cls) <= made.keys(), (
        f"{cls.__name__} needs its arguments in `NEEDED`."
    )
    return {name: made[name]() for name in required(cls)}


def copies(thing, get):
    """Of its configuration, what Keras writes of it, and what `get` makes of that."""
    written = keras.utils.serialize_keras_object(thing)
    made = keras.utils.deserialize_keras_object(written), get(written)
    return [type(thing).from_config(thing.get_config()), *made]


def name_of(cls, kind):
    """The name by which `get` finds a class of a kind."""
    return _registry.snake_case(
        cls.__name__.removesuffix(_registry._SUFFIXES.get(kind, ""))
    )
