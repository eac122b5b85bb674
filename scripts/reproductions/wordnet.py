"""WordNet's glosses, to predict all concepts above a concept from its explanation.

    python -m scripts.reproductions.wordnet /usr/share/wordnet --out wordnet

writes them as `train.txt`, `validation.txt` and `test.txt` in the format of the Extreme
Classification Repository, for `examples/extreme_classification.py`. `snm.py` and `which_loss.py`
read them here.
"""

import collections
import dataclasses
import itertools
import pathlib
import re

import numpy as np
import tensorflow as tf

from rank4class_tf import data
from scripts import command_line

_HYPERNYM = ("@", "@i")  # of a class, and of an instance

# The top levels of nouns, from `entity` down, are above most synsets and so say little.
_TOP_LEVELS = 3

_MIN_GLOSSES = 2

PARTS = ("train", "validation", "test")


@dataclasses.dataclass(frozen=True)
class Concepts:
    """The points of each part, each `(class_ids, word numbers, weights)`, and what numbers mean."""

    parts: dict[str, list]
    class_names: tuple[str, ...]
    vocabulary: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class _Synset:
    name: str
    parents: tuple[str, ...]
    words: tuple[str, ...]


def concepts(path) -> Concepts:
    r"""Reads WordNet's folder `dict`, of which the files `data.noun` and `data.verb`.

    A point is a noun or verb synset. Its features are the words of its gloss, definition and
    examples, in lower case, with weights that are scaled to length 1:

    $$x_f \propto (1 + \log n_f) \log \frac{N}{N_f}$$

    for a word that occurs n_f times in the gloss and in N_f of the N glosses of the training part.
    Words in fewer than two training glosses, or in all, are left out. The classes of a point are
    all synsets above it, by the relations "is a" and "is an instance of", at any distance, except
    the three top levels of nouns. Points without classes or without features are left out. The
    split is random, 80/10/10, and always the same. A class name is the synset's first word, part of
    speech and number.

    WordNet 3.0 gives 75,904 / 9,476 / 9,468 points of 5.4 classes, 25,775 features and 20,456
    classes. Half of the classes have at most two training points, and 1,507 have none. The
    frequencies of classes follow a power law.

    Source: C. Fellbaum (ed.), "WordNet: An Electronic Lexical Database", MIT Press 1998. It is at
    wordnet.princeton.edu, and in Debian's package `wordnet-base`, in `/usr/share/wordnet`.
    """
    class_names, class_ids, words = _labelled(_read(pathlib.Path(path)))
    order = np.random.default_rng(0).permutation(len(words))
    parts = np.split(order, [int(0.8 * len(order)), int(0.9 * len(order))])
    frequency = collections.Counter(
        word for index in parts[0] for word in dict.fromkeys(words[index])
    )
    size = len(parts[0])
    vocabulary = sorted(w for w, count in frequency.items() if _MIN_GLOSSES <= count < size)
    weight = {word: np.log(size / frequency[word]) for word in vocabulary}
    number = {word: i for i, word in enumerate(vocabulary)}

    def points(part):
        for index in part:
            counts = collections.Counter(word for word in words[index] if word in number)
            if not counts:
                continue
            found = sorted(counts)
            values = np.array([(1 + np.log(counts[word])) * weight[word] for word in found])
            yield class_ids[index], [number[w] for w in found], values / np.linalg.norm(values)

    made = {name: list(points(part)) for name, part in zip(PARTS, parts, strict=True)}
    return Concepts(made, class_names, tuple(vocabulary))


def wordnet(path, batch_size: int = 256, seed: int = 0) -> data.Splits:
    """The `concepts` as `Splits`, whose training part has a new order in each epoch.

    Batches are those of `extreme_classification`: float32 `tf.SparseTensor` `[batch, features]` and
    int64 class ids `[batch, P]` padded with -1.
    """
    found = concepts(path)
    parts = {
        name: _batches(found.parts[name], len(found.vocabulary), batch_size, shuffle_seed)
        for name, shuffle_seed in zip(PARTS, (seed, None, None), strict=True)
    }
    return data.Splits(**parts, class_names=found.class_names, vocabulary=found.vocabulary)


def _batches(points, num_features, batch_size, seed):
    """Batches of points in TensorFlow's memory, several times as fast as those of a function."""
    class_ids, ids, values = (
        tf.RaggedTensor.from_row_lengths(
            np.concatenate(column).astype(dtype), [len(row) for row in column]
        )
        for column, dtype in zip(
            zip(*points, strict=True), (np.int64, np.int64, np.float32), strict=True
        )
    )

    def batch(rows):
        columns = tf.gather(ids, rows)
        indices = tf.stack([columns.value_rowids(), columns.values], axis=1)
        shape = tf.stack([tf.size(rows, tf.int64), num_features])
        features = tf.SparseTensor(indices, tf.gather(values, rows).values, shape)
        labels = tf.gather(class_ids, rows).to_tensor(-1)
        return features, labels

    dataset = tf.data.Dataset.range(len(points))
    if seed is not None:
        dataset = dataset.shuffle(len(points), seed=seed)
    return dataset.batch(batch_size).map(batch).prefetch(tf.data.AUTOTUNE)


def _read(folder):
    """The synsets of nouns and verbs, by part of speech and number."""
    synsets = {}
    for part in ("noun", "verb"):
        path = folder / f"data.{part}"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if line.startswith("  "):  # The licence.
                continue
            try:
                synset, gloss = line.split(" | ", 1)
                key, parsed = _parse(synset.split(), gloss, part[0])
            except (ValueError, IndexError) as error:
                raise ValueError(
                    f"{path}, line {number}: must be a synset of WordNet. Received: {line[:80]!r}."
                ) from error
            synsets[key] = parsed
    return synsets


def _parse(fields, gloss, part):
    """One line: `number file type words {word id} pointers {symbol number part places} ...`."""
    number, first = fields[0], fields[4]
    at = 4 + 2 * int(fields[3], 16)
    count = int(fields[at])
    pointers = fields[at + 1 : at + 1 + 4 * count]
    parents = tuple(
        f"{part_of_parent}{parent}"
        for symbol, parent, part_of_parent in zip(*(pointers[i::4] for i in range(3)), strict=True)
        if symbol in _HYPERNYM
    )
    words = tuple(re.findall("[a-z]+", gloss.lower()))
    return f"{part}{number}", _Synset(f"{first}.{part}.{number}", parents, words)


def _labelled(synsets):
    """The names of the classes, and of each synset that has any: class ids, words of the gloss."""
    top = set()
    for _ in range(_TOP_LEVELS):
        top = {
            key
            for key, synset in synsets.items()
            if key.startswith("n") and all(parent in top for parent in synset.parents)
        }
    labels, words = [], []
    for key, synset in synsets.items():
        above = _above(key, synsets) - top
        if above:
            labels.append(above)
            words.append(synset.words)
    classes = sorted(set(itertools.chain.from_iterable(labels)))
    number = {key: i for i, key in enumerate(classes)}
    ids = [sorted(number[key] for key in above) for above in labels]
    return tuple(synsets[key].name for key in classes), ids, words


def _above(key, synsets):
    """All synsets above a synset, without itself, since versions of WordNet had circles."""
    found, ahead = set(), [key]
    while ahead:
        parents = set(synsets[ahead.pop()].parents) - found - {key}
        found |= parents
        ahead.extend(parents)
    return found


def main(argv=None):
    """Writes the three files."""
    parser = command_line.parser(__spec__, description=__doc__)
    parser.add_argument("path", help="WordNet's folder dict")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder of the files")
    args = parser.parse_args(argv)
    found = concepts(args.path)
    args.out.mkdir(parents=True, exist_ok=True)
    sizes = len(found.vocabulary), len(found.class_names)
    for name, points in found.parts.items():
        data.write_extreme_classification(args.out / f"{name}.txt", points, *sizes)


if __name__ == "__main__":
    main()
