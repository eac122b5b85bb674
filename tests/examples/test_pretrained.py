"""The examples with pretrained encoders, with small random ones in local folders."""

import json

import numpy as np
import pytest

from rank4class_tf import experiments
from tests.encoders import presets

from examples import image_classification, text_classification  # isort: skip

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


def arguments(text, out, more):
    return (
        f"--preset {text / 'bert'} --dataset mind --data-dir {text} --out {out} --epochs 3 "
        f"--batch-size 4 --learning-rate 0.01 --loss softmax_loss --head dot_product {more}"
    ).split()


@pytest.mark.slow
@presets.needs_hub
def test_text(text, tmp_path):
    text_classification.main(arguments(text, tmp_path, "--frozen 2 --pooling mean"))
    results = json.loads((tmp_path / "results.json").read_text())
    assert (results["dataset"], results["sequence_length"]) == ("mind", 128)
    assert (results["warmup"], results["clip"]) == (0.1, 1.0)
    (row,) = results["rows"]
    # Two classes, 24 articles: a guess is right in half of the cases.
    assert row["test"]["Top-1"] > 0.8
    assert row["test"]["Top-5"] == 1
    assert len(list((tmp_path / "features").glob("*/train.npz"))) == 1
    assert (tmp_path / "metrics.png").exists()


@pytest.mark.slow
@presets.needs_hub
def test_resume_trains_nothing_anew(text, tmp_path, monkeypatch):
    call = arguments(text, tmp_path, "--frozen all --resume")
    text_classification.main(call)
    before = (tmp_path / "results.json").read_text()
    monkeypatch.setattr(experiments._command, "train", pytest.fail)
    text_classification.main(call)
    assert (tmp_path / "results.json").read_text() == before


@pytest.mark.slow
@presets.needs_hub
@pytest.mark.parametrize("frozen", [0, 1])
def test_images(tmp_path, frozen):
    presets.save_images(tmp_path / "vgg", "VGG", scale=0.01)
    with tfds.testing.mock_data(num_examples=12):
        image_classification.main(
            f"--preset {tmp_path / 'vgg'} --dataset cifar10 --frozen {frozen} --out {tmp_path} "
            "--epochs 1 --loss softmax_loss --head dot_product".split()
        )
    results = json.loads((tmp_path / "results.json").read_text())
    assert (results["batch_size"], results["frozen"]) == (64, frozen)
    assert len(results["rows"]) == 1


def test_settings_of_the_paper():
    for dataset, length, steps in (("goemotions", 32, 36_308 / 32), ("mind", 128, 78_800 / 32)):
        problem = experiments.text_problem(dataset, "bert_base_en_uncased", data_dir="nowhere")
        assert problem.description["sequence_length"] == length
        assert problem.settings.batch_size == 32
        assert problem.settings.epochs * steps == pytest.approx(100_000, rel=0.02)
    problem = experiments.image_problem("imagenet2012", "resnet_50_imagenet")
    assert (problem.settings.batch_size, problem.settings.epochs) == (64, 50)


def test_mind_needs_a_folder():
    with pytest.raises(ValueError, match="`data_dir` must be the folder of MIND's files. Received"):
        experiments.text_problem("mind", "bert_base_en_uncased")


def test_features_of_mind_are_kept_by_the_folder_of_its_files(tmp_path):
    small, large, small_again = (
        experiments.text_problem("mind", "bert", data_dir=str(tmp_path / name)).description
        for name in ("small", "large", "large/../small")
    )
    assert small == small_again != large


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("--frozen -1", "must be an integer >= 0 or 'all', not '-1'"),
        ("--warmup 1", "argument --warmup: must be a number in [0, 1), not '1'"),
        ("--dataset digits", "goemotions"),
        ("--dataset mind", "--data-dir must be the folder of MIND's files for --dataset mind"),
        ("--precision half", "mixed_bfloat16"),
    ],
)
def test_bad_arguments(more, message, capsys):
    with pytest.raises(SystemExit):
        text_classification.main(more.split())
    assert message in capsys.readouterr().err
