"""A pretrained transformer with its tokenizer."""

import json
import os
import pathlib
from collections.abc import Iterable
from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks
from rank4class_tf.encoders._base import PretrainedEncoder, import_hub, load_backbone


class TextEncoder(PretrainedEncoder):
    r"""A pretrained transformer of keras-hub: BERT, ELECTRA and others of their kind.

    `tokenize` turns texts into tokens outside the model, so that it handles each text once. If
    layers are frozen, `lower` needs to turn tokens into features only once, too; `upper` goes below
    the head and trains.

    Features are `[batch, length, d]`, padded with zeros, or `[batch, d]` if all layers are frozen.

    Args:
        preset: a preset of keras-hub, such as `"bert_base_en_uncased"` and
            `"electra_base_discriminator_uncased_en"`, which is downloaded on first use; or a folder
            with one, as `save_to_preset` writes it, or with a model of Hugging Face that keras-hub
            converts, such as BERT (config.json, model.safetensors, and vocab.txt or
            tokenizer.json).
        sequence_length: the most tokens per text, the two special ones included, >= 3.
        frozen: how many transformer layers do not train, counted from the inputs. If any is
            frozen, so are the embeddings. `"all"` freezes all.
        pooling: `"first"`, the backbone's own pooling of the first token; or `"mean"`, the mean
            over the tokens.

    Raises:
        ImportError: without keras-hub or under Keras 2.
        ValueError: if an argument is out of range.

    Example:
        >>> encoder = TextEncoder("bert_base_en_uncased", frozen=10)  # doctest: +SKIP
        >>> features = encoder.lower(encoder.tokenize(["a text"]).to_tensor())  # doctest: +SKIP
        >>> model = keras.Sequential([encoder.upper, DotProductHead(28)])  # doctest: +SKIP
    """

    def __init__(
        self,
        preset: str | os.PathLike,
        sequence_length: int = 128,
        frozen: int | str = 0,
        pooling: str = "first",
    ) -> None:
        if _checks.positive_int("sequence_length", sequence_length) < 3:
            raise ValueError(
                "`sequence_length` must be at least 3: a text needs two special tokens. Received: "
                f"sequence_length={sequence_length}."
            )
        self._sequence_length = sequence_length
        self._pooling = _checks.one_of("pooling", pooling, ("first", "mean"))
        frozen = _checks.non_negative_int_or_all("frozen", frozen)
        preset = os.fspath(preset)
        backbone = load_backbone(preset)
        if not isinstance(backbone.input, dict) or "padding_mask" not in backbone.input:
            raise ValueError(
                "`preset` must be a transformer encoder of keras-hub. Received: "
                f"preset={preset!r}, a {type(backbone).__name__}."
            )
        self._tokenizer = _tokenizer(preset, type(backbone))
        self._build(backbone, preset, frozen)

    def tokenize(self, texts: Iterable[str | bytes]) -> tf.RaggedTensor:
        """Cuts texts into tokens.

        Args:
            texts: n >= 1 strings, in UTF-8 if they are bytes. `"[SEP]"` in them is the token of
                that name.

        Raises:
            ValueError: if `texts` is one text.

        Returns:
            int32 `[n, (length)]`, with the special tokens at both ends. `to_tensor()` pads them
            with 0, which `lower` and `upper` mask.
        """
        if isinstance(texts, str | bytes):
            raise ValueError(f"`texts` must be several texts, in a list. Received: {texts!r}.")
        tokenizer, longest = self._tokenizer, self._sequence_length - 2
        texts = [text.decode() if isinstance(text, bytes) else text for text in texts]
        rows = [
            # Numbers start at 1, whatever the vocabulary, since `to_tensor` pads with 0.
            [1 + token for token in (tokenizer.start_token_id, *row, tokenizer.end_token_id)]
            for row in (row[:longest] for row in tokenizer(texts))
        ]
        return tf.ragged.constant(rows, tf.int32, ragged_rank=1)

    def _inputs(self):
        return keras.Input((None,), dtype="int32", name="tokens")

    def _output(self, backbone):
        """The output to pool, or the one that the backbone has pooled."""
        outputs = backbone.output
        if not isinstance(outputs, dict):
            return outputs[:, 0] if self._pooling == "first" else outputs
        return outputs["pooled_output" if self._pooling == "first" else "sequence_output"]

    def _run(self, model, tokens, above=True):
        """Runs the backbone, or its lower part, on tokens."""
        ops = keras.ops
        mask = ops.cast(ops.not_equal(tokens, 0), "int32")
        known = {
            "token_ids": ops.maximum(tokens - 1, 0),
            "segment_ids": ops.zeros_like(tokens),
            "padding_mask": mask,
        }
        hidden = model({name: known[name] for name in model.input})
        if above:
            return hidden
        # Padding becomes zero, so that it is the same if a user stores features without padding.
        return hidden * ops.cast(mask, hidden.dtype)[..., None]

    def _run_above(self, backbone, cut, output, hidden):
        """Runs the upper part of the backbone on the output of the lower part."""
        upper = keras.Model([cut, backbone.input["padding_mask"]], output)
        return upper([hidden, keras.ops.cast(_is_token(hidden), "int32")])

    def _pool(self, hidden, below, kept=False):
        """The encoding of a text in float32."""
        ops = keras.ops
        hidden = ops.cast(hidden, "float32")
        if self._pooling == "first":
            return hidden
        mask = _is_token(below) if kept else ops.not_equal(below, 0)
        weights = ops.cast(mask, "float32")[..., None]
        return ops.sum(hidden * weights, axis=1) / ops.maximum(ops.sum(weights, axis=1), 1.0)


def _is_token(hidden):
    """Which rows hold a token: the normalisation at a layer's end leaves no other row at 0."""
    return keras.ops.any(keras.ops.not_equal(hidden, 0), axis=-1)


def _tokenizer(preset, backbone_class):
    """The tokenizer of a preset."""
    models = import_hub().models
    options = {"special_tokens_in_strings": True}
    folder = pathlib.Path(preset)
    described: dict[str, Any] = {}
    # keras-hub has a tokenizer.json of its own form. From Hugging Face's folders it reads only
    # vocab.txt, which newer folders lack.
    if (folder / "tokenizer.json").exists() and not (folder / "vocab.txt").exists():
        described = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    model = described.get("model", {})
    if model.get("type") != "WordPiece":
        return models.Tokenizer.from_preset(preset, **options)
    normalizer, vocabulary = described.get("normalizer"), model["vocab"]
    if normalizer is not None and normalizer.get("type") != "BertNormalizer":
        raise ValueError(
            f"`preset` must have no normalizer or a BertNormalizer in {folder / 'tokenizer.json'}. "
            f"Received: {normalizer}."
        )
    if sorted(vocabulary.values()) != list(range(len(vocabulary))):
        raise ValueError(
            f"`preset` must number its {len(vocabulary)} tokens from 0 on without gaps in "
            f"{folder / 'tokenizer.json'}. Received: up to {max(vocabulary.values())}."
        )
    return getattr(models, backbone_class.__name__.replace("Backbone", "Tokenizer"))(
        vocabulary=sorted(vocabulary, key=vocabulary.get),
        lowercase=bool((normalizer or {}).get("lowercase", False)),
        **options,
    )
