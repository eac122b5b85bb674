"""Pretrained text and image encoders of keras-hub, in a frozen and a trained part."""

import json
import os
import pathlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _keras
from rank4class_tf._types import PathLike, Tensor

__all__ = ["ImageEncoder", "TextEncoder"]

# Layers of keras-hub's backbones at which we can cut, since the layers above read only
# their output: a transformer layer, a block of a ResNet, a block of a VGG.
_BLOCK_NAME = re.compile(r"transformer_layer_\d+|stack\d+_block\d+_out|block\d+_pool")


def _import_hub() -> Any:
    if not _keras.KERAS_3:
        raise ImportError(
            "Pretrained encoders need keras-hub, which works only with Keras 3: "
            "TensorFlow >= 2.16 without TF_USE_LEGACY_KERAS. Received: Keras 2."
        )
    return _checks.imported(
        "keras_hub", "Pretrained encoders need keras-hub", "encoders"
    )


class PretrainedEncoder:
    """A keras-hub backbone and its pooling as two models, one frozen and one trained.

    Attributes:
        frozen: the number of blocks that are frozen.
        lower: the frozen model, from inputs to the features that `upper` takes, or
            None.
        upper: the model that trains, from these or from the inputs to encodings
            `[batch, d]`.
    """

    frozen: int
    lower: keras.Model | None
    upper: keras.Model

    # What a subclass says of its backbone.

    def _run(self, model: keras.Model, inputs: Tensor) -> Tensor:
        """The output of the backbone, or of its lower part."""
        raise NotImplementedError

    def _features(self, hidden: Tensor, inputs: Tensor) -> Tensor:
        """What `lower` makes of the output of the lower part."""
        return hidden

    def _run_above(
        self, backbone: keras.Model, cut: Tensor, output: Tensor, features: Tensor
    ) -> Tensor:
        """The output of the backbone, from features at the cut."""
        raise NotImplementedError

    def _pool(self, hidden: Tensor, upper_inputs: Tensor) -> Tensor:
        """Encodings of outputs, which come from inputs or from features."""
        raise NotImplementedError

    def _build(
        self,
        backbone: keras.Model,
        inputs: Any,
        output: Any,
        preset: str,
        frozen: int | str,
    ) -> None:
        blocks = [
            layer for layer in backbone.layers if _BLOCK_NAME.fullmatch(layer.name)
        ]
        rule = "`preset` must be a transformer encoder, a ResNet or a VGG of keras-hub."
        received = f"preset={preset!r}, a {type(backbone).__name__}"
        _checks.require(bool(blocks), rule, received)
        self.frozen = len(blocks) if isinstance(frozen, str) else frozen
        rule = f"`frozen` must be 'all' or at most {len(blocks)}, the number of blocks."
        _checks.require(self.frozen <= len(blocks), rule, f"frozen={frozen}")
        self.lower = None
        if 0 < self.frozen < len(blocks):
            # Cut the backbone behind the last frozen block.
            cut = blocks[self.frozen - 1].output
            lower = keras.Model(backbone.input, cut)
            outputs = self._features(self._run(lower, inputs), inputs)
            self.lower = keras.Model(inputs, outputs, name="frozen")
            features = keras.Input(cut.shape[1:])
            hidden = self._run_above(backbone, cut, output, features)
            encodings = self._pool(hidden, features)
        else:
            features = inputs
            uncut = keras.Model(backbone.input, output)
            encodings = self._pool(self._run(uncut, inputs), inputs)
            if self.frozen:  # All blocks: the trained model is the identity.
                self.lower = keras.Model(inputs, encodings, name="frozen")
                encodings = keras.Input(encodings.shape[1:])
                features = encodings
        self.upper = keras.Model(features, encodings, name="encoder")
        if self.lower is not None:
            self.lower.trainable = False


def _load_backbone(preset: str, **kwargs: Any) -> keras.Model:
    """Loads a backbone in the precision of Keras's policy."""
    hub = _import_hub()
    policy = keras.mixed_precision.dtype_policy()
    return hub.models.Backbone.from_preset(preset, dtype=policy, **kwargs)


class ImageEncoder(PretrainedEncoder):
    """A pretrained ResNet or VGG of keras-hub and the mean over its output's positions.

    `lower` needs to see each image only once; `upper` goes below the head and trains.

    Args:
        preset: a preset of keras-hub, such as `"resnet_50_imagenet"` and
            `"vgg_16_imagenet"`, which is downloaded on first use; or a folder with one,
            as `save_to_preset` writes it.
        image_shape: height, width and channels of the images, whose values are in [0,
            255]. The encoder scales them as the preset says, and by 1/255 if it says
            nothing.
        frozen: how many blocks do not train, counted from the inputs; `"all"` freezes
            all.

    Example:
        >>> encoder = ImageEncoder("vgg_16_imagenet", (32, 32, 3))  # doctest: +SKIP
        >>> model = keras.Sequential(
        ...     [encoder.upper, DotProductHead(10)]
        ... )  # doctest: +SKIP
    """

    def __init__(
        self,
        preset: PathLike,
        image_shape: Sequence[int] = (224, 224, 3),
        frozen: int | str = 0,
    ):
        frozen = _checks.non_negative_int_or_all("frozen", frozen)
        preset = os.fspath(preset)
        shape = tuple(image_shape)
        try:  # The scale and the offset of the pixels that the preset was trained with.
            converter = _import_hub().layers.ImageConverter.from_preset(preset)
            self._scale = 1.0 if converter.scale is None else converter.scale
            self._offset = 0.0 if converter.offset is None else converter.offset
        except FileNotFoundError:
            self._scale, self._offset = 1 / 255, 0.0
        backbone = _load_backbone(preset, image_shape=shape)
        images = keras.Input(shape, name="images")
        self._build(backbone, images, backbone.output, preset, frozen)

    def _run(self, model: keras.Model, images: Tensor) -> Tensor:
        return model(keras.layers.Rescaling(self._scale, self._offset)(images))

    def _run_above(
        self, backbone: keras.Model, cut: Tensor, output: Tensor, features: Tensor
    ) -> Tensor:
        return keras.Model(cut, output)(features)

    def _pool(self, hidden: Tensor, upper_inputs: Tensor) -> Tensor:
        return keras.ops.mean(keras.ops.cast(hidden, "float32"), axis=(1, 2))


class TextEncoder(PretrainedEncoder):
    """A pretrained transformer of keras-hub: BERT, ELECTRA and others of their kind.

    `tokenize` turns texts into tokens outside the model. If layers are frozen, `lower`
    turns tokens into features: `[batch, length, d]`, padded with zeros, or `[batch, d]`
    if all are frozen. Both need to see each text only once. `upper` goes below the head
    and trains.

    Args:
        preset: a preset of keras-hub, such as `"bert_base_en_uncased"`, which is
            downloaded on first use; or a folder with one, as `save_to_preset` writes
            it, or with a model of Hugging Face that keras-hub converts, such as BERT
            (config.json, model.safetensors, and vocab.txt or tokenizer.json).
        sequence_length: the most tokens per text, including the two special ones, >= 3.
        frozen: how many transformer layers do not train, counted from the inputs; if
            any, nor do the embeddings. `"all"` freezes all.
        pooling: `"first"`, the backbone's own pooling of the first token; or `"mean"`,
            over the tokens.

    Example:
        >>> encoder = TextEncoder("bert_base_en_uncased", frozen=10)  # doctest: +SKIP
        >>> features = encoder.lower(
        ...     encoder.tokenize(["a text"]).to_tensor()
        ... )  # doctest: +SKIP
        >>> model = keras.Sequential(
        ...     [encoder.upper, DotProductHead(28)]
        ... )  # doctest: +SKIP
    """

    def __init__(
        self,
        preset: PathLike,
        sequence_length: int = 128,
        frozen: int | str = 0,
        pooling: str = "first",
    ):
        self._sequence_length = _checks.positive_int("sequence_length", sequence_length)
        rule = "`sequence_length` must be at least 3: a text needs two special tokens."
        received = f"sequence_length={sequence_length}"
        _checks.require(sequence_length >= 3, rule, received)
        self._pooling = _checks.one_of("pooling", pooling, ("first", "mean"))
        frozen = _checks.non_negative_int_or_all("frozen", frozen)
        preset = os.fspath(preset)
        backbone = _load_backbone(preset)
        rule = "`preset` must be a transformer encoder of keras-hub."
        is_right = isinstance(backbone.input, dict) and "padding_mask" in backbone.input
        received = f"preset={preset!r}, a {type(backbone).__name__}"
        _checks.require(is_right, rule, received)
        self._tokenizer = _tokenizer(preset, type(backbone))
        tokens = keras.Input((None,), dtype="int32", name="tokens")
        self._build(backbone, tokens, self._output(backbone), preset, frozen)

    def tokenize(self, texts: Iterable[str | bytes]) -> tf.RaggedTensor:
        """Tokenizes texts to int32 `[n, (length)]`, with special tokens at both ends.

        `to_tensor()` pads them with 0, which `lower` and `upper` mask.

        Args:
            texts: n >= 1 strings, in UTF-8 if they are bytes. `"[SEP]"` in them is the
                token of that name.
        """
        if isinstance(texts, str | bytes):
            raise ValueError(
                f"`texts` must be several texts, in a list. Received: {texts!r}."
            )
        texts = [text.decode() if isinstance(text, bytes) else text for text in texts]
        tokenizer = self._tokenizer
        rows = []
        for row in tokenizer(texts):
            row = row[: self._sequence_length - 2]
            tokens = (tokenizer.start_token_id, *row, tokenizer.end_token_id)
            # Numbers start at 1, whatever the vocabulary, since `to_tensor` pads with
            # 0.
            rows.append([1 + token for token in tokens])
        return tf.ragged.constant(rows, tf.int32, ragged_rank=1)

    def _output(self, backbone: keras.Model) -> Tensor:
        outputs = backbone.output
        is_first = self._pooling == "first"
        if isinstance(outputs, dict):
            return outputs["pooled_output" if is_first else "sequence_output"]
        return outputs[:, 0] if is_first else outputs

    def _run(self, model: keras.Model, tokens: Tensor) -> Tensor:
        ops = keras.ops
        backbone_inputs = {
            "token_ids": ops.maximum(tokens - 1, 0),
            "segment_ids": ops.zeros_like(tokens),
            "padding_mask": ops.cast(_is_token(tokens), "int32"),
        }
        return model({name: backbone_inputs[name] for name in model.input})

    def _features(self, hidden: Tensor, tokens: Tensor) -> Tensor:
        # Padding becomes zero, so that it is the same if a user stores features without
        # padding.
        return hidden * keras.ops.cast(_is_token(tokens), hidden.dtype)[..., None]

    def _run_above(
        self, backbone: keras.Model, cut: Tensor, output: Tensor, features: Tensor
    ) -> Tensor:
        upper = keras.Model([cut, backbone.input["padding_mask"]], output)
        return upper([features, keras.ops.cast(_is_token(features), "int32")])

    def _pool(self, hidden: Tensor, upper_inputs: Tensor) -> Tensor:
        ops = keras.ops
        hidden = ops.cast(hidden, "float32")
        if self._pooling == "first":
            return hidden
        weights = ops.cast(_is_token(upper_inputs), "float32")[..., None]
        count = ops.maximum(ops.sum(weights, axis=1), 1.0)
        return ops.sum(hidden * weights, axis=1) / count


def _is_token(inputs: Tensor) -> Tensor:
    """Where tokens `[batch, length]` or their features, of rank 3, are no padding."""
    is_used = keras.ops.not_equal(inputs, 0)
    # A layer's normalisation leaves no row of a token at 0.
    return is_used if len(inputs.shape) == 2 else keras.ops.any(is_used, axis=-1)


def _tokenizer(preset: str, backbone_class: type) -> Any:
    models = _import_hub().models
    options = {"special_tokens_in_strings": True}
    file = pathlib.Path(preset, "tokenizer.json")
    content: dict[str, Any] = {}
    # keras-hub has its own form of tokenizer.json. From Hugging Face's folders it reads
    # only vocab.txt, which newer folders lack.
    if file.exists() and not file.with_name("vocab.txt").exists():
        content = json.loads(file.read_text(encoding="utf-8"))
    model = content.get("model", {})
    if model.get("type") != "WordPiece":
        return models.Tokenizer.from_preset(preset, **options)
    normalizer = content.get("normalizer")
    rule = f"`preset` must have no normalizer or a BertNormalizer in {file}."
    is_known = normalizer is None or normalizer.get("type") == "BertNormalizer"
    _checks.require(is_known, rule, normalizer)
    vocabulary = model["vocab"]
    rule = (
        f"`preset` must number its {len(vocabulary)} tokens from 0 on without gaps "
        f"in {file}."
    )
    has_no_gaps = sorted(vocabulary.values()) == list(range(len(vocabulary)))
    _checks.require(has_no_gaps, rule, f"up to {max(vocabulary.values(), default=0)}")
    name = backbone_class.__name__.replace("Backbone", "Tokenizer")
    return getattr(models, name)(
        vocabulary=sorted(vocabulary, key=vocabulary.get),
        lowercase=bool((normalizer or {}).get("lowercase", False)),
        **options,
    )
