"""The problems of the reproductions, with small random encoders in local folders."""

import dataclasses

import numpy as np
import pytest

from scripts.reproductions import harness
from tests.encoders import presets

tfds = pytest.importorskip("tensorflow_datasets")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A folder with a BERT, and one with news that name their category."""
    folder = tmp_path_factory.mktemp("text")
    presets.save_text(folder / "bert")
    rng = np.random.default_rng(0)
    with open(folder / "news.tsv", "w", encoding="utf-8") as file:
        for number in range(120):
            category, word = (("reviews", "film"), ("weather", "day"))[number % 2]
            abstract = " ".join(rng.choice(presets.WORDS[:10], number % 4))
            print(
                f"N{number}", category, "", f"a {word}", abstract, "", "", "", sep="\t", file=file
            )
    return folder


@pytest.mark.slow
@presets.needs_hub
def test_text(text, tmp_path):
    problem = harness.text_problem(
        "mind", text / "bert", text, frozen=2, pooling="mean", cache=tmp_path
    )
    assert problem.description["sequence_length"] == 128
    assert (problem.settings.warmup, problem.settings.clip) == (0.1, 1.0)
    settings = dataclasses.replace(problem.settings, epochs=3, batch_size=4, learning_rate=0.01)
    test = harness.train(problem, settings, "softmax_loss", "dot_product")["test"]
    # Two classes, 24 articles: a guess is right in half of the cases.
    assert test["Top-1"] > 0.8
    assert test["Top-5"] == 1
    assert len(list(tmp_path.glob("*/train.npz"))) == 1


@pytest.mark.slow
@presets.needs_hub
@pytest.mark.parametrize("frozen", [0, 1])
def test_images(tmp_path, frozen):
    presets.save_images(tmp_path / "vgg", "VGG", scale=0.01)
    with tfds.testing.mock_data(num_examples=12):
        problem = harness.image_problem("cifar10", tmp_path / "vgg", None, frozen, tmp_path)
        assert (problem.settings.batch_size, problem.description["frozen"]) == (64, frozen)
        settings = dataclasses.replace(problem.settings, epochs=1)
        run = harness.train(problem, settings, "softmax_loss", "dot_product")
    assert 0 <= run["test"]["Top-1"] <= 1


def test_settings_of_the_paper():
    for dataset, length, steps in (("goemotions", 32, 36_308 / 32), ("mind", 128, 78_800 / 32)):
        problem = harness.text_problem(dataset, "bert_base_en_uncased", data_dir="nowhere")
        assert problem.description["sequence_length"] == length
        assert problem.settings.batch_size == 32
        assert problem.settings.epochs * steps == pytest.approx(100_000, rel=0.02)
    problem = harness.image_problem("imagenet2012", "resnet_50_imagenet")
    assert (problem.settings.batch_size, problem.settings.epochs) == (64, 50)


def test_mind_needs_a_folder():
    with pytest.raises(ValueError, match="`data_dir` must be the folder of MIND's files. Received"):
        harness.text_problem("mind", "bert_base_en_uncased")


def test_features_of_mind_are_kept_by_the_folder_of_its_files(tmp_path):
    small, large, small_again = (
        harness.text_problem("mind", "bert", data_dir=str(tmp_path / name)).description
        for name in ("small", "large", "large/../small")
    )
    assert small == small_again != large
