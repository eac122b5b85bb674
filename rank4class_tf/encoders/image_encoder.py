"""A pretrained convolutional network."""

import os

from tensorflow import keras

from rank4class_tf import _checks
from rank4class_tf.encoders._base import PretrainedEncoder, import_hub, load_backbone


class ImageEncoder(PretrainedEncoder):
    """A pretrained ResNet or VGG of keras-hub, and the mean over its output's places.

    If blocks are frozen, `lower` needs to turn images into features only once; `upper` goes below
    the head and trains.

    Args:
        preset: a preset of keras-hub, such as `"resnet_50_imagenet"` and `"vgg_16_imagenet"`,
            which is downloaded on first use; or a folder with one, as `save_to_preset` writes it.
        image_shape: height, width and channels of the images, whose values are in [0, 255]. The
            encoder scales them as the preset says, and by 1/255 if it says nothing.
        frozen: how many blocks do not train, counted from the inputs; `"all"` freezes all.

    Raises:
        ImportError: without keras-hub or under Keras 2.
        ValueError: if an argument is out of range.

    Example:
        >>> encoder = ImageEncoder("vgg_16_imagenet", (32, 32, 3))  # doctest: +SKIP
        >>> model = keras.Sequential([encoder.upper, DotProductHead(10)])  # doctest: +SKIP
    """

    def __init__(
        self,
        preset: str | os.PathLike,
        image_shape: tuple[int, int, int] = (224, 224, 3),
        frozen: int | str = 0,
    ) -> None:
        frozen = _checks.non_negative_int_or_all("frozen", frozen)
        preset = os.fspath(preset)
        self._shape = tuple(image_shape)
        self._scaling = _scaling(preset)
        self._build(load_backbone(preset, image_shape=self._shape), preset, frozen)

    def _inputs(self):
        return keras.Input(self._shape, name="images")

    def _output(self, backbone):
        return backbone.output

    def _run(self, model, images, above=True):
        """Runs the backbone, or its lower part, on images."""
        del above
        return model(keras.layers.Rescaling(*self._scaling)(images))

    def _run_above(self, backbone, cut, output, hidden):
        """Runs the upper part of the backbone on the output of the lower part."""
        return keras.Model(cut, output)(hidden)

    def _pool(self, hidden, below, kept=False):
        """The mean over the places in float32."""
        del below, kept
        return keras.ops.mean(keras.ops.cast(hidden, "float32"), axis=(1, 2))


def _scaling(preset):
    """Scale and offset of the pixels that a preset was trained with."""
    try:
        converter = import_hub().layers.ImageConverter.from_preset(preset)
    except FileNotFoundError:
        return 1 / 255, 0.0
    return (
        1.0 if converter.scale is None else converter.scale,
        0.0 if converter.offset is None else converter.offset,
    )
