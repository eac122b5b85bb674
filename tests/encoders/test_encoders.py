"""Encoders against the backbones of keras-hub that they are made of."""

import json
import sys

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from tensorflow import keras

from rank4class_tf import encoders, layers, losses, models
from tests.encoders import presets

from ..refused import refused, warned

pytestmark = presets.needs_hub

TEXTS = ["The good world", "a film", "terrible , terrible day !", "nothing known"]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A folder with a BERT, and its backbone."""
    folder = tmp_path_factory.mktemp("bert")
    return folder, presets.save_text(folder)


def ids(words):
    return [presets.VOCABULARY.index(word) for word in words.split()]


EXPECTED_TOKENS = [
    ids("[CLS] the good wor ##ld [SEP]"),
    ids("[CLS] a film [SEP]"),
    ids("[CLS] terrible , terrible day ! [SEP]"),
    ids("[CLS] [UNK] [UNK] [SEP]"),
]


def test_tokens(text):
    tokens = encoders.TextEncoder(text[0]).tokenize(TEXTS)
    assert (tokens - 1).to_list() == EXPECTED_TOKENS
    assert tokens.dtype == tf.int32
    # Bytes, as TensorFlow has texts; the special token between title and abstract; the
    # longest.
    encoder = encoders.TextEncoder(text[0], sequence_length=5)
    tokens = encoder.tokenize([b"Day [SEP] a", b"the world of a great film"])
    assert (tokens - 1).to_list() == [
        ids("[CLS] day [SEP] a [SEP]"),
        ids("[CLS] the wor ##ld [SEP]"),
    ]
    for one in ("hello", b"hello"):
        with refused("`texts` must be several texts, in a list"):
            encoder.tokenize(one)


def reference(backbone, pooling):
    """The encodings of the backbone, each text by itself and without padding."""
    encodings = []
    for row in EXPECTED_TOKENS:
        ones = tf.ones((1, len(row)), tf.int32)
        outputs = backbone(
            {"token_ids": row * ones, "segment_ids": 0 * ones, "padding_mask": ones}
        )
        first = outputs["pooled_output"][0]
        hidden = outputs["sequence_output"][0]
        encodings.append(first if pooling == "first" else np.mean(hidden, axis=0))
    return np.array(encodings)


@pytest.mark.parametrize(
    "frozen, pooling",
    [
        (0, "first"),
        (0, "mean"),
        (1, "mean"),
        (2, "first"),
        (presets.LAYERS, "mean"),
        ("all", "first"),
        ("ELECTRA", "first"),
        ("tokenizer.json", "mean"),
        ("vocab.txt", "mean"),
    ],
)
def test_halves_are_the_backbone(text, frozen, pooling, tmp_path):
    folder, backbone = text
    if frozen == "ELECTRA":
        folder = tmp_path
        backbone = presets.save_text(tmp_path, "Electra")
        frozen = 1
    # A folder of Hugging Face that has it.
    if frozen in ("tokenizer.json", "vocab.txt"):
        folder = tmp_path
        backbone = presets.save_hugging_face(tmp_path, frozen)
        frozen = 0
    encoder = encoders.TextEncoder(folder, frozen=frozen, pooling=pooling)
    tokens = encoder.tokenize(TEXTS)
    assert (tokens - 1).to_list() == EXPECTED_TOKENS
    features = tokens.to_tensor()
    if encoder.lower is not None:
        features = encoder.lower(features)
        assert encoder.lower.trainable_weights == []
    expected = reference(backbone, pooling)
    assert_allclose(encoder.upper(features), expected, rtol=1e-4, atol=1e-5)
    # Each transformer layer has 16 weights; embeddings and pooling have more.
    trained = 0 if frozen in ("all", presets.LAYERS) else 16 * (presets.LAYERS - frozen)
    extra = len(encoder.upper.trainable_weights) - trained
    assert (
        extra >= 5
        if frozen == 0
        else extra == (2 if trained and pooling == "first" else 0)
    )
    if frozen == 2:  # What was kept without padding and is padded anew gives the same.
        longer = tf.pad(features, [[0, 0], [0, 5], [0, 0]])
        assert_allclose(encoder.upper(longer), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_training_saving_and_what_is_frozen(text, reloaded):
    encoder = encoders.TextEncoder(text[0], frozen=2)
    model = keras.Sequential([encoder.upper, layers.DotProductHead(4)])
    model.compile("adam", losses.SoftmaxLoss())
    tokens = encoder.tokenize(TEXTS).to_tensor()
    features = encoder.lower(tokens)
    before = [weight.numpy() for weight in encoder.upper.weights]
    model.fit(features, np.arange(4), verbose=0)
    changed = [
        not np.array_equal(a, b)
        for a, b in zip(before, encoder.upper.weights, strict=True)
    ]
    # The bias of the keys moves all scores of a query alike, so its gradient is
    # rounding.
    assert sum(changed) >= len(changed) - 1
    assert_array_equal(encoder.lower(tokens), features)
    again = reloaded(model)
    assert_allclose(again(features), model(features), rtol=1e-6)


@pytest.mark.usefixtures("mixed_precision")
def test_mixed_precision(text):
    folder, backbone = text
    encoder = encoders.TextEncoder(folder, frozen=1, pooling="mean")
    features = encoder.lower(encoder.tokenize(TEXTS).to_tensor())
    assert features.dtype == "bfloat16"
    encodings = encoder.upper(tf.cast(features, tf.float32))
    assert encodings.dtype == "float32"
    assert_allclose(encodings, reference(backbone, "mean"), atol=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["GPT2", "Gemma"])
def test_the_best_next_word_after_a_backbone_of_keras_hub(kind, tmp_path):
    """Its output has no mask, so `last` reads `padding_mask`; see docs/sequences.md."""
    of_kind = {
        "GPT2": {"num_heads": 2, "max_sequence_length": 12},
        "Gemma": {"num_query_heads": 2, "num_key_value_heads": 2, "head_dim": 4},
    }
    backbone = getattr(presets.hub.models, f"{kind}Backbone")(
        vocabulary_size=30,
        num_layers=1,
        hidden_dim=8,
        intermediate_dim=16,
        **of_kind[kind],
    )
    model = models.ExtremeClassifier(
        backbone, backbone.token_embedding, 8, None, normalize=False
    )
    words = np.array([[3, 4, 5, 0, 0], [1, 2, 3, 4, 5], [7, 0, 0, 0, 0]], "int32")
    features = {"token_ids": words, "padding_mask": (words > 0).astype("int32")}
    with warned("have no mask"):
        model.top_k(features, 3, last=True)

    def last(x):
        return tf.reduce_sum(x["padding_mask"], axis=1) - 1

    encodings = backbone(features).numpy()[range(3), [2, 4, 0]]
    expected = np.argsort(-encodings @ np.array(backbone.token_embedding.embeddings).T)[
        :, :3
    ]
    assert_array_equal(model.top_k(features, 3, last=last)[1], expected)
    spec = {name: tf.TensorSpec([None, None], x.dtype) for name, x in features.items()}
    model.export_top_k(tmp_path / "saved", spec, 3, last=last)
    served = tf.saved_model.load(str(tmp_path / "saved")).signatures["serving_default"]
    found = served(**{name: tf.constant(x) for name, x in features.items()})
    assert_array_equal(found["class_ids"], expected)


@pytest.fixture(scope="module", params=["ResNet", "VGG"])
def image(request, tmp_path_factory):
    """A folder with a convolutional network and its scaling, and the backbone."""
    folder = tmp_path_factory.mktemp(request.param)
    return folder, presets.save_images(folder, request.param, scale=0.01)


@pytest.mark.parametrize("frozen", [0, 1, 2, "all"])
def test_image_halves_are_the_backbone(image, frozen, rng):
    folder, backbone = image
    images = rng.uniform(0, 255, (2, 16, 20, 3)).astype("float32")
    encoder = encoders.ImageEncoder(folder, (16, 20, 3), frozen)
    found = encoder.upper(encoder.lower(images) if encoder.lower else images)
    expected = backbone(
        images * np.float32(0.01) + np.array([0.1, 0.2, 0.3], "float32")
    )
    assert_allclose(found, np.mean(expected, axis=(1, 2)), rtol=1e-4, atol=1e-6)
    assert bool(encoder.upper.trainable_weights) == (frozen in (0, 1))
    assert encoder.lower is None or encoder.lower.trainable_weights == []


def test_images_without_a_scaling(tmp_path, rng):
    backbone = presets.save_images(tmp_path, "VGG")
    images = rng.uniform(0, 255, (2, 8, 8, 3)).astype("float32")
    got = encoders.ImageEncoder(tmp_path, (8, 8, 3)).upper(images)
    assert_allclose(got, np.mean(backbone(images / 255), axis=(1, 2)), rtol=1e-4)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (
            {"frozen": -1},
            "`frozen` must be an integer >= 0 or 'all'. Received: frozen=-1",
        ),
        (
            {"frozen": 4},
            "`frozen` must be 'all' or at most 3, the number of blocks.*frozen=4",
        ),
        (
            {"pooling": "max"},
            "`pooling` must be one of .*'mean'.*Received: pooling='max'",
        ),
        (
            {"sequence_length": 2},
            "`sequence_length` must be at least 3.*sequence_length=2",
        ),
    ],
)
def test_bad_arguments(text, arguments, message):
    with refused(message):
        encoders.TextEncoder(text[0], **arguments)


@pytest.mark.parametrize(
    "change, message",
    [
        (
            {"normalizer": {"type": "Lowercase"}},
            "must have no normalizer or a BertNormalizer in",
        ),
        (
            {"model": {"type": "WordPiece", "vocab": {"a": 0, "b": 2}}},
            "without gaps in .*json",
        ),
    ],
)
def test_other_tokenizers_of_hugging_face_are_refused(tmp_path, change, message):
    presets.save_hugging_face(tmp_path / "hf", "tokenizer.json")
    path = tmp_path / "hf" / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with refused(message):
        encoders.TextEncoder(tmp_path / "hf")


def test_backbone_of_another_kind(image):
    with refused("`preset` must be a transformer encoder of keras-hub"):
        encoders.TextEncoder(image[0])


def test_without_keras_hub(monkeypatch):
    monkeypatch.setitem(sys.modules, "keras_hub", None)
    with pytest.raises(
        ImportError, match=r"need keras-hub: pip install -e '.\[encoders\]'"
    ):
        encoders.TextEncoder("bert_base_en_uncased")
