"""Every argument of every public constructor is checked, by an error that names it."""

import inspect

import numpy as np
import pytest
from tensorflow import keras

import rank4class_tf as r4c


class Unknown:
    """What no argument may be."""


def encoder():
    return keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(4)])


# What constructors need.
NEEDED = {
    "candidate_encoder": encoder,
    "classes": lambda: 2000,
    "embedding_dim": lambda: 4,
    "encoder": encoder,
    "epochs": lambda: 2,
    "features": lambda: np.eye(5, 3, dtype=np.float32),
    "final": lambda: 0.5,
    "initial": lambda: 1.0,
    "interaction": lambda: "dot_product",
    "k": lambda: 2,
    "losses": lambda: [r4c.losses.RankmaxLoss()],
    "layer": encoder,
    "metric": lambda: r4c.metrics.NDCG(2),
    "num_buckets": lambda: 7,
    "num_classes": lambda: 5,
    "num_groups": lambda: 5,
    "num_hard_negatives": lambda: 2,
    "num_sampled": lambda: 3,
    "query_encoder": encoder,
    "size": lambda: 4,
    "stages": lambda: {0: (3, None)},
    "steps": lambda: [(1, 2.0)],
    "threshold": lambda: 0.5,
    "transition": lambda: [[0.75, 0.25], [0.5, 0.5]],
    "units": lambda: 4,
    "values": lambda: [1.0],
    "weight": lambda: 0.1,
    "weights": lambda: [1.0],
}
# What Keras checks, with errors of its own.
OF_KERAS = ("autocast", "dtype", "learning_rate", "name", "trainable")
OF_KERAS_BY_ENDING = ("constraint", "initializer", "regularizer")

# What an annotation rules out, besides what no argument may be.
WRONG = {
    "bool": ["false", 2, np.array([True])],
    "float": [float("nan"), "1", True],
    "int": [1.5, -1, "1", True],
    "str": [3],
}


def constructors():
    rooms = (r4c.layers, r4c.losses, r4c.metrics, r4c.models, r4c.optimizers)
    for room in rooms:
        for name in room.__all__:
            if inspect.isclass(getattr(room, name)) and name != "Metric":
                yield getattr(room, name)


def parameters_of(cls):
    for name, parameter in list(inspect.signature(cls.__init__).parameters.items())[1:]:
        named = parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        if named and name not in OF_KERAS and not name.endswith(OF_KERAS_BY_ENDING):
            yield parameter


def wrong_values(parameter):
    annotation = parameter.annotation
    names = getattr(annotation, "__name__", str(annotation)).split(" | ")
    known = [WRONG[name] for name in WRONG if name in names]
    # An int is a number too, and a string may stand beside it.
    both = len(known) > 1
    return [Unknown(), *([] if both or not known else known[0])]


@pytest.mark.once
@pytest.mark.parametrize("cls", [*constructors()], ids=lambda cls: cls.__name__)
def test_an_argument_that_is_wrong_is_named(cls):
    parameters = [*parameters_of(cls)]
    unknown = {p.name for p in parameters if p.default is p.empty} - NEEDED.keys()
    assert not unknown, "`NEEDED` must have a value for them."
    needed = {p.name: NEEDED[p.name] for p in parameters if p.default is p.empty}
    cls(**{name: make() for name, make in needed.items()})
    for parameter in parameters:
        for value in wrong_values(parameter):
            arguments = {name: make() for name, make in needed.items()}
            with pytest.raises((TypeError, ValueError), match=parameter.name):
                cls(**{**arguments, parameter.name: value})
                pytest.fail(f"{parameter.name}={value!r} passes")
