"""Keras layers: heads that score classes, and what goes around them."""

from rank4class_tf import _registry
from rank4class_tf.layers._base import Head
from rank4class_tf.layers._sorter import Sorter
from rank4class_tf.layers.concat_head import ConcatHead
from rank4class_tf.layers.dot_product_head import DotProductHead
from rank4class_tf.layers.exclude_items import ExcludeItems
from rank4class_tf.layers.latent_cross_head import LatentCrossHead
from rank4class_tf.layers.sampled_scores import SampledScores
from rank4class_tf.layers.sparse_dense import SparseDense

__all__ = [
    "ConcatHead",
    "DotProductHead",
    "ExcludeItems",
    "Head",
    "LatentCrossHead",
    "SampledScores",
    "Sorter",
    "SparseDense",
    "get_head",
]

_HEADS = _registry.by_snake_case(
    [ConcatHead, DotProductHead, LatentCrossHead, SampledScores], suffix="Head"
)


def get_head(identifier, **kwargs):
    """Returns a head by name, such as `"latent_cross"`.

    Args:
        identifier: a name, a serialized config, or a head, which is returned as it is.
        **kwargs: constructor arguments, with a name only.

    Raises:
        ValueError: if the name is unknown; the error lists the known ones.

    Example:
        >>> get_head("latent_cross", num_classes=28).num_classes
        28
    """
    return _registry.get("head", (Head, SampledScores), _HEADS, identifier, **kwargs)
