"""Glosses of WordNet, with the concepts above them as classes."""

import collections
import dataclasses
import itertools
import os
import pathlib
import re

import numpy as np

from rank4class_tf import _checks
from rank4class_tf.data import extreme, splits, texts

_HYPERNYM = ("@", "@i")  # of a class, and of an instance

# A synset's number, lexicographer's file, part of speech and number of words (hexadecimal).
_START = re.compile(r"\d{8} \d\d [a-z] (?!00)[0-9a-f]{2}$", re.ASCII)

# The top levels of nouns, from `entity` down, are above most synsets and so say little.
_TOP_LEVELS = 3

_MIN_GLOSSES = 2


@dataclasses.dataclass(frozen=True)
class _Synset:
    name: str
    parents: tuple[str, ...]
    words: tuple[str, ...]


def wordnet(path: str | os.PathLike, batch_size: int = 256, seed: int = 0) -> splits.Splits:
    r"""Returns WordNet's glosses, to predict all concepts above a concept from its explanation.

    A point is a noun or verb synset. Its features are the words of its gloss, definition and
    examples, in lower case, with weights that are scaled to length 1:

    $$x_f \propto (1 + \log n_f) \log \frac{N}{N_f}$$

    for a word that occurs n_f times in the gloss and in N_f of the N glosses of the training part.
    Words in fewer than two training glosses, or in all, are left out. The classes of a point are
    all synsets above it, by the relations "is a" and "is an instance of", at any distance, except
    the three top levels of nouns. Points without classes or without features are left out. The
    split is random, 80/10/10, and always the same.

    WordNet 3.0 gives 75,904 / 9,476 / 9,468 points of 5.4 classes, 25,775 features and 20,456
    classes. Half of the classes have at most two training points, and 1,507 have none. The
    frequencies of classes follow a power law.

    Source: C. Fellbaum (ed.), "WordNet: An Electronic Lexical Database", MIT Press 1998. It is at
    wordnet.princeton.edu, and in Debian's package `wordnet-base`, in `/usr/share/wordnet`.

    Args:
        path: WordNet's folder `dict`, with the files `data.noun` and `data.verb`.
        batch_size: points per batch, >= 1.
        seed: seed of the training order, in [0, 2**32).

    Returns:
        `Splits` with batches like those of `extreme_classification`: float32 `tf.SparseTensor`
        `[batch, features]` and int64 class ids `[batch, P]` padded with -1. `vocabulary` holds the
        words; a class name is the synset's first word, part of speech and number.

    Raises:
        OSError: if a file is missing.
        ValueError: if a line has the wrong form or no line break, a synset occurs twice or is
            missing, too few glosses are left, or a number is out of range.

    Example:
        >>> splits = wordnet("/usr/share/wordnet")  # doctest: +SKIP
        >>> splits.num_classes, len(splits.vocabulary)  # doctest: +SKIP
        (20456, 25775)
    """
    batch_size = _checks.positive_int("batch_size", batch_size)
    seed = _checks.seed(seed)
    synsets = _read(pathlib.Path(path))
    class_names, class_ids, words = _labelled(synsets)
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

    made = [list(points(part)) for part in parts]
    if not all(made):
        raise ValueError(
            "`path` must hold enough glosses for three parts with words in common. Received: "
            f"path={str(path)!r}, with {len(words)} glosses below the top levels."
        )
    train, validation, test = (
        extreme.batches_in_memory(part, len(vocabulary), batch_size, shuffle_seed)
        for part, shuffle_seed in zip(made, (seed, None, None), strict=True)
    )
    return splits.Splits(train, validation, test, class_names, tuple(vocabulary))


def _read(folder):
    """The synsets of nouns and verbs, by part of speech and number."""
    synsets: dict[str, _Synset] = {}
    for part in ("noun", "verb"):
        path = folder / f"data.{part}"
        with texts.naming(path):
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        before = len(synsets)
        for number, line in enumerate(lines, start=1):
            if line.startswith("  ") and len(synsets) == before:  # The licence.
                continue
            try:
                synset, gloss = line.split(" | ", 1)
                key, parsed = _parse(synset.split(), gloss, part[0])
                if key in synsets or not line.endswith("\n"):
                    raise ValueError
            except (ValueError, IndexError) as error:
                raise ValueError(
                    f"{path}, line {number}: must be a synset of WordNet, whole, on only one line. "
                    f"Received: {line[:80]!r}."
                ) from error
            synsets[key] = parsed
        if len(synsets) == before:
            raise ValueError(f"{path}: must hold synsets. Received: none.")
    for synset in synsets.values():
        for parent in synset.parents:
            if parent not in synsets:
                raise ValueError(
                    f"{folder}: {synset.name!r} must have hypernyms that exist. "
                    f"Received: {parent!r}."
                )
    return synsets


def _parse(fields, gloss, part):
    """One line: `number file type words {word id} pointers {symbol number part places} ...`."""
    number, first = fields[0], fields[4]
    if not _START.match(" ".join(fields[:4])) or fields[2] != part:
        raise ValueError
    at = 4 + 2 * int(fields[3], 16)
    count = texts.natural(fields[at])
    pointers = fields[at + 1 : at + 1 + 4 * count]
    if len(fields[at]) != 3 or len(pointers) != 4 * count:
        raise ValueError
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
    found: set[str]
    found, ahead = set(), [key]
    while ahead:
        parents = set(synsets[ahead.pop()].parents) - found - {key}
        found |= parents
        ahead.extend(parents)
    return found
