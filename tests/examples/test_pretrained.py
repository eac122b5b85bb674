"""The examples with pretrained encoders, with small random ones in local folders."""

import pytest

from tests.encoders import presets

from examples import image_classification, text_classification  # isort: skip

tfds = pytest.importorskip("tensorflow_datasets")


@pytest.mark.slow
@presets.needs_hub
@pytest.mark.parametrize("frozen", ["0", "1", "all"])
def test_text(tmp_path, frozen):
    presets.save_text(tmp_path / "bert")
    with tfds.testing.mock_data(num_examples=40):
        results = text_classification.main(
            ["--preset", str(tmp_path / "bert"), "--frozen", frozen, "--epochs", "1"]
        )
    assert 0 <= results["top_1_accuracy"] <= results["ndcg_at_5"] <= 1


@pytest.mark.slow
@presets.needs_hub
def test_images(tmp_path):
    presets.save_images(tmp_path / "vgg", "VGG", scale=0.01)
    with tfds.testing.mock_data(num_examples=12):
        results = image_classification.main(["--preset", str(tmp_path / "vgg"), "--epochs", "1"])
    assert 0 <= results["top_1_accuracy"] <= results["ndcg_at_5"] <= 1
