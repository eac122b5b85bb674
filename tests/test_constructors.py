"""Every argument of every public constructor is checked, by an error that names it."""

import inspect

import numpy as np
import pytest

from .contract import rows


class Unknown:
    """What no argument may be."""


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


@pytest.mark.parametrize("cls", rows.public_classes(), ids=lambda cls: cls.__name__)
def test_an_argument_that_is_wrong_is_named(cls):
    cls(**rows.needed(cls))
    for parameter in parameters_of(cls):
        for value in wrong_values(parameter):
            with pytest.raises((TypeError, ValueError), match=parameter.name):
                cls(**{**rows.needed(cls), parameter.name: value})
                pytest.fail(f"{parameter.name}={value!r} passes")
