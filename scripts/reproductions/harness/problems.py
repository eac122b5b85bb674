"""The problems of the Rank4Class paper, and small ones."""

import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _files, data, encoders
from scripts.reproductions.harness import examples
from scripts.reproductions.harness.settings import Settings
from scripts.reproductions.harness.training import Problem

# After BERT's own pooling.
_DROPOUT = 0.1


def _dense_layers(splits):
    """Two dense layers over the pixels."""
    del splits
    return [keras.layers.Dense(64, "relu"), keras.layers.Dense(64, "relu")]


def _convolution(splits):
    """A convolution of the image and a dense layer."""
    del splits
    return [
        keras.layers.Reshape((8, 8, 1)),
        keras.layers.Conv2D(32, 3, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(64, "relu"),
    ]


def _max_pooling(splits):
    """The maximum over the comment of word embeddings, which are learned with the rest."""
    return [
        keras.layers.Embedding(len(splits.vocabulary), 128),
        keras.layers.Dropout(0.3),
        keras.layers.GlobalMaxPooling1D(),
        keras.layers.LayerNormalization(),
        keras.layers.Dropout(0.5),
        keras.layers.Dense(128, "relu"),
    ]


def _gru(splits):
    """A recurrent layer that reads the comment both ways."""
    return [
        keras.layers.Embedding(len(splits.vocabulary), 128),
        keras.layers.Dropout(0.3),
        keras.layers.Bidirectional(keras.layers.GRU(64, return_sequences=True)),
        keras.layers.GlobalMaxPooling1D(),
        keras.layers.Dropout(0.5),
    ]


# Small encoders that learn with the rest, by dataset.
SMALL_ENCODERS = {
    "digits": {"dense_layers": _dense_layers, "convolution": _convolution},
    "goemotions": {"max_pooling": _max_pooling, "gru": _gru},
}
_SMALL_SETTINGS = {
    "digits": Settings(epochs=40, batch_size=32, learning_rate=1e-3),
    "goemotions": Settings(epochs=20, batch_size=256, learning_rate=1e-3),
}
# Images of digits to learn from.
_DIGITS = 1077


def small_problem(
    dataset: str,
    encoder: str,
    data_dir: str | None = None,
    examples_per_class: int | None = None,
) -> Problem:
    """A dataset with a small encoder that learns with the rest.

    Args:
        dataset: a key of `SMALL_ENCODERS`.
        encoder: a key of `SMALL_ENCODERS[dataset]`.
        data_dir: where TensorFlow Datasets keeps its data; None for its default.
        examples_per_class: how many to learn from, for digits; None for all. An epoch then passes
            over them so often that it has as many steps as one over all.
    """
    _checks.one_of("dataset", dataset, tuple(SMALL_ENCODERS))
    _checks.one_of("encoder", encoder, tuple(SMALL_ENCODERS[dataset]))
    if examples_per_class is not None and dataset != "digits":
        raise ValueError(
            "`examples_per_class` must be None for other datasets than digits. "
            f"Received: examples_per_class={examples_per_class!r}, dataset={dataset!r}."
        )

    def load(batch_size, seed):
        if dataset == "goemotions":
            return _in_turn(data.goemotions(data_dir, batch_size=batch_size, seed=seed))
        splits = data.digits(batch_size, seed, examples_per_class)
        if examples_per_class is None:
            return _in_turn(splits)
        return _in_turn(splits, -(-_DIGITS // (splits.num_classes * examples_per_class)))

    description: dict[str, Any] = {"dataset": dataset, "encoder": encoder}
    if examples_per_class is not None:
        description["examples_per_class"] = examples_per_class
    return Problem(
        description=description,
        load=load,
        layers=SMALL_ENCODERS[dataset][encoder],
        settings=_SMALL_SETTINGS[dataset],
    )


def _in_turn(splits, passes=1):
    """The splits, with a new order of the training examples for each time that they are read.

    A shuffled dataset counts an order for each iterator, and Keras makes more of them than it
    reads, in numbers that depend on its version.

    Args:
        splits: `data.Splits`.
        passes: how often an epoch passes over the examples, in an order of its own each time.
    """
    train = splits.train

    def epoch():
        for _ in range(passes):
            yield from train

    in_turn = tf.data.Dataset.from_generator(epoch, output_signature=train.element_spec)
    number = tf.data.experimental.assert_cardinality(passes * len(train))
    return dataclasses.replace(splits, train=in_turn.apply(number).prefetch(8))


@dataclasses.dataclass(frozen=True)
class _Dataset:
    """A dataset of texts or images; `load` is a function of the data directory and of more."""

    load: Callable[..., data.Splits]
    settings: Settings
    sequence_length: int = 0
    image_shape: tuple[int, int, int] = (0, 0, 0)


def _need_folder(data_dir):
    if data_dir is None:
        raise ValueError("`data_dir` must be the folder of MIND's files. Received: None.")
    return data_dir


# The paper's: Adam, batches of 32 and 100,000 steps, which are so many epochs. Warm-up and clipping
# are those of BERT's authors, whose settings the paper keeps.
_FINE_TUNING = Settings(epochs=88, batch_size=32, learning_rate=1e-5, warmup=0.1, clip=1.0)
# Texts for pretrained encoders: name -> how to load them, and the settings of the paper.
TEXT_DATASETS = {
    "goemotions": _Dataset(
        lambda data_dir: data.goemotions(data_dir, text=True), _FINE_TUNING, sequence_length=32
    ),
    "goemotions_multilabel": _Dataset(
        lambda data_dir: data.goemotions(data_dir, text=True, multi_label=True),
        dataclasses.replace(_FINE_TUNING, epochs=74),
        sequence_length=32,
    ),
    "mind": _Dataset(
        data.mind,
        dataclasses.replace(_FINE_TUNING, epochs=41),
        sequence_length=128,
    ),
}


def text_problem(
    dataset: str,
    preset: str | os.PathLike,
    data_dir: str | None = None,
    sequence_length: int | None = None,
    frozen: int | str = 0,
    pooling: str = "first",
    cache: str | os.PathLike = "out/features",
) -> Problem:
    """A dataset of texts with a pretrained transformer.

    Args:
        dataset: a key of `TEXT_DATASETS`.
        preset: of `encoders.TextEncoder`.
        data_dir: where TensorFlow Datasets keeps its data, None for its default; or the folder with
            MIND's files.
        sequence_length: tokens per text at most; None for the paper's.
        frozen: how many layers stay as they are, or `"all"`; what they give is computed once.
        pooling: of `encoders.TextEncoder`.
        cache: the folder where tokens and features are kept, by the name of the preset: for other
            weights in the same folder it must be another.
    """
    known = TEXT_DATASETS[_checks.one_of("dataset", dataset, tuple(TEXT_DATASETS))]
    length = known.sequence_length
    if sequence_length is not None:
        length = _checks.positive_int("sequence_length", sequence_length)
    frozen = _checks.non_negative_int_or_all("frozen", frozen)

    def encoder():
        return encoders.TextEncoder(preset, length, frozen, pooling)

    def make():
        tokenizer = encoder()
        splits = known.load(data_dir)
        parts = {}
        for name, (texts, class_ids) in examples.from_datasets(splits).items():
            tokens = tokenizer.tokenize(texts)
            lengths = tokens.row_lengths().numpy()
            part = examples.Examples(tokens.flat_values.numpy(), class_ids, lengths)
            if tokenizer.lower is not None:
                part = examples.through(tokenizer.lower, part)
            parts[name] = part
        return parts, splits.class_names

    def layers():
        trained = [] if frozen == "all" else [encoder().upper]
        return [*trained, keras.layers.Dropout(_DROPOUT)]

    description = {
        "dataset": dataset,
        "encoder": os.fspath(preset),
        "sequence_length": length,
        "frozen": frozen,
        "pooling": pooling,
    }
    if dataset == "mind":  # The others are a version of TensorFlow Datasets each.
        folder = pathlib.Path(os.path.realpath(_need_folder(data_dir)))
        description["data_dir"] = os.fspath(folder)
        files = sorted(folder.rglob("news.tsv"))
        description["files"] = [[os.fspath(file), file.stat().st_size] for file in files]
    return _kept_problem(description, make, layers, known.settings, pathlib.Path(cache))


def _kept_problem(description, make, layers, settings, cache):
    """A problem whose examples are made once and then read from files."""
    name = hashlib.sha256(json.dumps(description).encode()).hexdigest()[:12]
    folder = cache / f"{description['dataset']}-{name}"
    read: dict[str, Any] = {}

    def parts():
        names = folder / "class_names.json"

        def made():
            parts, class_names = make()
            folder.mkdir(parents=True, exist_ok=True)
            _files.write_text(names, json.dumps(class_names))
            return parts

        if not read:
            read["parts"] = examples.kept(folder, description, made)
            read["class_names"] = tuple(json.loads(names.read_text()))
        return read["parts"], read["class_names"]

    def load(batch_size, seed):
        return examples.to_splits(*parts(), batch_size, seed)

    return Problem(description, load, lambda splits: layers(), settings)


# The paper's: batches of 64 and 50 epochs.
_IMAGE_SETTINGS = Settings(epochs=50, batch_size=64, learning_rate=1e-5)
# Images for pretrained encoders: name -> how to load them, and the settings of the paper.
IMAGE_DATASETS = {
    "cifar10": _Dataset(data.cifar10, _IMAGE_SETTINGS, image_shape=(32, 32, 3)),
    "imagenet2012": _Dataset(data.imagenet2012, _IMAGE_SETTINGS, image_shape=(224, 224, 3)),
}


def image_problem(
    dataset: str,
    preset: str | os.PathLike,
    data_dir: str | None = None,
    frozen: int | str = 0,
    cache: str | os.PathLike = "out/features",
) -> Problem:
    """A dataset of images with a pretrained convolutional network.

    Training images are augmented, unless a part of the network is frozen: what it gives is then
    computed once.

    Args:
        dataset: a key of `IMAGE_DATASETS`.
        preset: of `encoders.ImageEncoder`.
        data_dir: where TensorFlow Datasets keeps its data; None for its default.
        frozen: how many blocks stay as they are, or `"all"`.
        cache: the folder where features are kept.
    """
    known = IMAGE_DATASETS[_checks.one_of("dataset", dataset, tuple(IMAGE_DATASETS))]
    frozen = _checks.non_negative_int_or_all("frozen", frozen)
    description = {"dataset": dataset, "encoder": os.fspath(preset), "frozen": frozen}

    def encoder():
        return encoders.ImageEncoder(preset, known.image_shape, frozen)

    def layers():
        return [] if frozen == "all" else [encoder().upper]

    def make():
        splits = known.load(data_dir, augment=False)
        lower = encoder().lower
        parts = {
            name: _features(lower, getattr(splits, name))
            for name in ("train", "validation", "test")
        }
        return parts, splits.class_names

    def load(batch_size, seed):
        return _in_turn(known.load(data_dir, batch_size=batch_size, seed=seed))

    if frozen != 0:
        return _kept_problem(description, make, layers, known.settings, pathlib.Path(cache))
    return Problem(description, load, lambda splits: layers(), known.settings)


def _features(lower, dataset):
    """What the frozen part of a network gives for a dataset of images, read batch by batch."""
    pairs = [(lower.predict_on_batch(images), class_ids) for images, class_ids in dataset]
    features, class_ids = (np.concatenate(arrays) for arrays in zip(*pairs, strict=True))
    return examples.Examples(features, class_ids)


def in_random_order(splits):
    """A function of a seed: splits with the same training batches, in orders that follow from it.

    What is read once stays in memory.
    """
    parts = {part: getattr(splits, part).cache() for part in ("train", "validation", "test")}
    counts = {part: sum(1 for _ in batches) for part, batches in parts.items()}  # Reads them once.

    def in_order_of(seed):
        train = parts["train"].shuffle(counts["train"], seed=seed)
        return dataclasses.replace(splits, **parts | {"train": train})

    return in_order_of
