"""Configurations read off constructors."""

import dataclasses
import inspect


def constructor_arguments(instance, base):
    """The constructor's named arguments, each from the attribute of its name.

    Args:
        instance: the object. It keeps each argument of its constructor, and of those of its
            parents up to `base`, in an attribute of that name.
        base: the first class whose constructor counts.
    """
    config = {}
    for cls in reversed(type(instance).__mro__):
        if issubclass(cls, base) and "__init__" in vars(cls):
            for name, parameter in list(inspect.signature(cls.__init__).parameters.items())[1:]:
                if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                    config[name] = getattr(instance, name)
    return config


class Configured:
    """A dataclass that Keras serializes."""

    def get_config(self):
        """Returns the constructor arguments."""
        return dataclasses.asdict(self)

    @classmethod
    def from_config(cls, config):
        """Builds the object that `get_config` describes."""
        return cls(**config)
