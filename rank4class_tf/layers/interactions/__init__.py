"""Interactions: how an encoding and the encodings of classes meet in a score."""

from typing import Any

from rank4class_tf import _registry
from rank4class_tf.layers.interactions._base import Interaction
from rank4class_tf.layers.interactions.bilinear_interaction import BilinearInteraction
from rank4class_tf.layers.interactions.concat_interaction import ConcatInteraction
from rank4class_tf.layers.interactions.cosine_interaction import CosineInteraction
from rank4class_tf.layers.interactions.dot_product_interaction import DotProductInteraction
from rank4class_tf.layers.interactions.latent_cross_interaction import LatentCrossInteraction

__all__ = [
    "BilinearInteraction",
    "ConcatInteraction",
    "CosineInteraction",
    "DotProductInteraction",
    "Interaction",
    "LatentCrossInteraction",
    "get_interaction",
]


def get_interaction(identifier: Any, **kwargs: Any) -> Interaction:
    """Returns an interaction by name, such as `"latent_cross"`.

    Args:
        identifier: a name, a serialized config, or an interaction, which is returned as it is.
        **kwargs: constructor arguments, with a name only.

    Raises:
        ValueError: if the name is unknown; the error lists the known ones.

    Example:
        >>> get_interaction("cosine", scale=8.0).scale
        8.0
    """
    return _registry.get("interaction", Interaction, identifier, **kwargs)
