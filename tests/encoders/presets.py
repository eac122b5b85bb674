"""Small backbones with random weights, in keras-hub and Hugging Face folders."""

import json

import pytest

try:
    import keras_hub as hub
except ImportError:
    hub = None

needs_hub = pytest.mark.skipif(hub is None, reason="keras-hub is not installed")

WORDS = "the a news of wor ##ld good bad great terrible day film , !".split()
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
LAYERS = 3
SIZES = {
    "vocabulary_size": len(VOCABULARY),
    "num_layers": LAYERS,
    "num_heads": 2,
    "hidden_dim": 8,
    "intermediate_dim": 16,
    "max_sequence_length": 32,
}


def save_text(folder, kind="Bert"):
    """Writes a BERT or ELECTRA and tokenizer like keras-hub; returns the backbone."""
    sizes = dict(SIZES)
    if kind == "Electra":
        sizes |= {"vocab_size": sizes.pop("vocabulary_size"), "embedding_dim": 4}
    backbone = getattr(hub.models, f"{kind}Backbone")(**sizes)
    backbone.save_to_preset(str(folder))
    getattr(hub.models, f"{kind}Tokenizer")(VOCABULARY, lowercase=True).save_to_preset(
        str(folder)
    )
    return backbone


def save_hugging_face(folder, described_by="tokenizer.json"):
    """Writes a Hugging Face BERT; returns a keras-hub backbone of the same weights."""
    numpy = pytest.importorskip("safetensors.numpy")
    folder.mkdir(exist_ok=True)
    backbone = hub.models.BertBackbone(**SIZES)
    numpy.save_file(tensors_of_hugging_face(backbone), folder / "model.safetensors")
    config = {
        "model_type": "bert",
        "architectures": ["BertModel"],
        "hidden_dropout_prob": 0.1,
        "vocab_size": len(VOCABULARY),
        "type_vocab_size": 2,
        "max_position_embeddings": 32,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 2,
        "hidden_size": 8,
        "intermediate_size": 16,
    }
    (folder / "config.json").write_text(json.dumps(config))
    if described_by == "tokenizer.json":
        vocabulary = {word: number for number, word in enumerate(VOCABULARY)}
        described = {
            # The order must not matter, only the numbers.
            "model": {"type": "WordPiece", "vocab": dict(sorted(vocabulary.items()))},
            "normalizer": {"type": "BertNormalizer", "lowercase": True},
        }
        (folder / "tokenizer.json").write_text(json.dumps(described))
    else:
        (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
        (folder / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    return backbone


def tensors_of_hugging_face(backbone):
    """The weights of a BERT by the names that Hugging Face has for them."""
    parts = {
        "embeddings.word_embeddings": backbone.get_layer("token_embedding"),
        "embeddings.position_embeddings": backbone.get_layer("position_embedding"),
        "embeddings.token_type_embeddings": backbone.get_layer("segment_embedding"),
        "embeddings.LayerNorm": backbone.get_layer("embeddings_layer_norm"),
        "pooler.dense": backbone.get_layer("pooled_dense"),
    }
    for index in range(LAYERS):
        layer = backbone.get_layer(f"transformer_layer_{index}")
        name = f"encoder.layer.{index}"
        attention = layer._self_attention_layer
        parts |= {
            f"{name}.attention.self.query": attention._query_dense,
            f"{name}.attention.self.key": attention._key_dense,
            f"{name}.attention.self.value": attention._value_dense,
            f"{name}.attention.output.dense": attention._output_dense,
            f"{name}.attention.output.LayerNorm": layer._self_attention_layer_norm,
            f"{name}.intermediate.dense": layer._feedforward_intermediate_dense,
            f"{name}.output.dense": layer._feedforward_output_dense,
            f"{name}.output.LayerNorm": layer._feedforward_layer_norm,
        }
    tensors = {}
    for name, layer in parts.items():
        first, *bias = (weight.numpy() for weight in layer.weights)
        # A dense layer; its heads may have an axis of their own.
        if bias and first.ndim > 1:
            first = first.reshape([8, -1] if first.shape[0] == 8 else [-1, 8]).T.copy()
        tensors[f"{name}.weight"] = first
        tensors |= {f"{name}.bias": x.reshape(-1) for x in bias}
    return tensors


def save_images(folder, kind="ResNet", scale=None):
    """Writes a ResNet or a VGG, with a scaling of the pixels if one is given."""
    if kind == "ResNet":
        backbone = hub.models.ResNetBackbone(
            [64],
            [3],
            [64, 64],
            [1, 1],
            [1, 2],
            "basic_block",
            image_shape=(None, None, 3),
        )
    else:
        backbone = hub.models.VGGBackbone([1, 2], [8, 8], (None, None, 3))
    backbone.save_to_preset(str(folder))
    if scale is not None:
        converter = getattr(hub.layers, f"{kind}ImageConverter")
        converter(scale=scale, offset=[0.1, 0.2, 0.3]).save_to_preset(str(folder))
    return backbone
