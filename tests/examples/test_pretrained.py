"""The examples with pretrained encoders, with small random ones in local folders."""

import pytest
import tensorflow as tf

from rank4class_tf import data
from tests.encoders import presets

from examples import image_classification, text_classification  # isort: skip

tfds = pytest.importorskip("tensorflow_datasets")


def comments(*args, **kwargs):
    """Comments of a word, whose number is even or odd."""
    texts = [presets.WORDS[number % 10] for number in range(40)]
    class_ids = [number % 2 for number in range(40)]
    batches = tf.data.Dataset.from_tensor_slices((texts, class_ids)).batch(16)
    return data.Splits(batches, batches, batches, ("even", "odd"))


@pytest.mark.slow
@presets.needs_hub
@pytest.mark.parametrize("frozen", ["0", "1", "all"])
def test_text(tmp_path, frozen, monkeypatch):
    presets.save_text(tmp_path / "bert")
    monkeypatch.setattr(data, "goemotions", comments)
    results = text_classification.main(
        ["--preset", str(tmp_path / "bert"), "--frozen", frozen, "--epochs", "1"]
    )
    assert 0 <= results["top_k_accuracy_at_1"] <= results["ndcg_at_5"] <= 1


@pytest.mark.slow
@presets.needs_hub
def test_images(tmp_path):
    presets.save_images(tmp_path / "vgg", "VGG", scale=0.01)
    with tfds.testing.mock_data(num_examples=12):
        results = image_classification.main(["--preset", str(tmp_path / "vgg"), "--epochs", "1"])
    assert 0 <= results["top_k_accuracy_at_1"] <= results["ndcg_at_5"] <= 1
