"""Losses that use a layer."""


class LayerApart:
    """Keeps the layer that a loss uses out of the model that is compiled with the loss.

    Keras 3 saves, with a model, whatever layer it finds by `dir` in the model's loss, and on
    loading misses the weights of one that the model has as well. The weights of a loss's layer are
    those of its configuration, or of the model's `Companion`.
    """

    def __dir__(self):
        return [name for name in super().__dir__() if name not in ("ranker", "sorter")]
