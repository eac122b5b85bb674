"""What encoders share: a pretrained backbone, cut into a frozen part and one that trains."""

import importlib
import os
import re
from typing import Any

from tensorflow import keras

from rank4class_tf import _keras

# Layers of keras-hub's backbones at which we can cut, since the layers above read only their
# output: a transformer layer, a block of a ResNet, a block of a VGG.
_BLOCK = re.compile(r"transformer_layer_\d+|stack\d+_block\d+_out|block\d+_pool")


def import_hub() -> Any:
    """Imports keras-hub."""
    if not _keras.KERAS_3:
        raise ImportError(
            "Pretrained encoders need keras-hub, which works only with Keras 3: TensorFlow >= "
            "2.16 without TF_USE_LEGACY_KERAS. Received: Keras 2."
        )
    try:
        return importlib.import_module("keras_hub")
    except ImportError as error:
        raise ImportError(
            "Pretrained encoders need keras-hub: pip install -e '.[encoders]' in a copy of the "
            f"project. Received: {error}."
        ) from None


class PretrainedEncoder:
    """A backbone of keras-hub and its pooling as two models, one frozen and one that trains.

    Attributes:
        frozen: the number of blocks that are frozen.
        lower: the frozen model, from the inputs to the features that `upper` takes; None if nothing
            is frozen.
        upper: the model that trains, from these features, or from the inputs, to encodings
            `[batch, d]`.
    """

    frozen: int
    lower: keras.Model | None
    upper: keras.Model
    # The methods of a subclass.
    _inputs: Any
    _output: Any
    _pool: Any
    _run: Any
    _run_above: Any

    def _build(self, backbone, preset, frozen):
        """Sets the attributes."""
        blocks = [layer for layer in backbone.layers if _BLOCK.fullmatch(layer.name)]
        if not blocks:
            raise ValueError(
                "`preset` must be a transformer encoder, a ResNet or a VGG of keras-hub. Received: "
                f"preset={preset!r}, a {type(backbone).__name__}."
            )
        self.frozen = len(blocks) if frozen == "all" else frozen
        if self.frozen > len(blocks):
            raise ValueError(
                f"`frozen` must be 'all' or at most {len(blocks)}, the number of blocks of the "
                f"backbone. Received: frozen={frozen}."
            )
        inputs, output = self._inputs(), self._output(backbone)
        whole = keras.Model(backbone.input, output)
        if not self.frozen:
            lower, upper = None, (inputs, self._pool(self._run(whole, inputs), inputs))
        elif self.frozen == len(blocks):
            lower = inputs, self._pool(self._run(whole, inputs), inputs)
            kept = keras.Input(lower[1].shape[1:])
            upper = kept, kept
        else:
            cut = blocks[self.frozen - 1].output
            lower = inputs, self._run(keras.Model(backbone.input, cut), inputs, above=False)
            kept = keras.Input(cut.shape[1:])
            above = self._run_above(backbone, cut, output, kept)
            upper = kept, self._pool(above, kept, kept=True)
        self.lower = None if lower is None else keras.Model(*lower, name="frozen")
        self.upper = keras.Model(*upper, name="encoder")
        if self.lower is not None:
            self.lower.trainable = False


def load_backbone(preset: str | os.PathLike, **kwargs: Any) -> Any:
    """Loads a backbone in the precision of Keras's policy."""
    hub = import_hub()
    policy = keras.mixed_precision.dtype_policy()
    return hub.models.Backbone.from_preset(preset, dtype=policy, **kwargs)
