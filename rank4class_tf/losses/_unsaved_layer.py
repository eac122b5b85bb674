"""Losses that use a layer."""


class UnsavedLayer:
    """Keeps the layer of a loss out of the files of the model that is compiled with the loss.

    Keras 3 saves, with a model, every layer that it finds in the model's loss. On loading it misses
    the weights of a layer that the model has as well, and stops. The weights of a loss's layer are
    those of its configuration, or of the model's `Companion`, and need no other place.

    Keras lists the attributes by `dir` and reads each by `getattr`, which finds properties too, and
    it looks into lists, tuples and dicts. So a public attribute stays out only if `dir` omits it.
    """

    def __dir__(self):
        return [name for name in super().__dir__() if name not in ("ranker", "sorter")]
