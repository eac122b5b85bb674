"""WordNet's glosses, on a tiny WordNet in the real format."""

import math
import pathlib
import zipfile

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf import data
from scripts.reproductions import wordnet

LICENCE = "  1 This software and database is being provided to you, the LICENSEE, by  \n"
REAL = pathlib.Path("/usr/share/wordnet")
SAME_IN_TEXT = pathlib.Path(__file__).parents[4] / "shared" / "data" / "wordnet_hypernyms.zip"


def line(number, words, pointers, gloss, kind="n", frames=""):
    """A line of a data file: `pointers` are pairs of a symbol and a key such as n00000001."""
    of_words = " ".join(f"{word} 0" for word in words)
    of_pointers = "".join(f"{symbol} {key[1:]} {key[0]} 0000 " for symbol, key in pointers)
    return (
        f"{number:08d} 03 {kind} {len(words):02x} {of_words} {len(pointers):03d} "
        f"{of_pointers}{frames}| {gloss}  \n"
    )


def key(number, kind="n"):
    return f"{kind}{number:08d}"


# Three levels on top: 1, 2 and 3, 4. Below them two kinds, 5 and 6, and 20 concepts of these, each
# third of them an instance of 7 as well. 7 is 1 below `entity`, but 4 by the longest path.
NOUNS = {
    1: (["entity"], [("~", key(2))], "all that is"),
    2: (["thing"], [("@", key(1))], "a thing"),
    3: (["matter"], [("@", key(1)), ("+", key(1, "v"))], "a matter"),
    4: (["object"], [("@", key(2))], "an object"),
    5: (["animal", "beast"], [("@", key(4)), ("~", key(10))], "an object that lives"),
    6: (["tool"], [("@", key(4))], "an object for work"),
    7: (["pet"], [("@", key(1)), ("@", key(5))], "an animal of the house"),
}
for extra in range(10, 30):
    above = [("@", key(5 if extra % 2 else 6))]
    above += [("@i", key(7))] if extra % 3 == 0 else []
    NOUNS[extra] = ([f"w{extra}", "Other_Word"], above, f'Work, WORK or lives; "unique{extra} in"')
VERBS = {
    1: (["move"], [], "to change place"),
    2: (["go"], [("@", key(1, "v"))], "to move on"),
    3: (["circle"], [("@", key(4, "v"))], "to work in a circle"),
    4: (["turn"], [("@", key(3, "v"))], "to circle at work"),
}


@pytest.fixture
def folder(tmp_path):
    for name, synsets in (("noun", NOUNS), ("verb", VERBS)):
        frames = "02 + 02 00 + 08 01 " if name == "verb" else ""
        lines = [line(n, *synset, name[0], frames) for n, synset in synsets.items()]
        (tmp_path / f"data.{name}").write_text(LICENCE + "".join(lines))
    return tmp_path


def points(splits):
    """All points: the names of the classes and the weights of the words."""
    found = []
    for part in (splits.train, splits.validation, splits.test):
        for features, class_ids in part:
            dense = tf.sparse.to_dense(features).numpy()
            for row, ids in zip(dense, class_ids.numpy(), strict=True):
                names = {splits.class_names[i] for i in ids if i >= 0}
                words = {splits.vocabulary[i]: float(row[i]) for i in np.flatnonzero(row)}
                found.append((names, words))
    return found


def test_classes_are_all_above_but_the_top(folder):
    splits = wordnet.wordnet(folder, batch_size=4)
    expected = ["animal.n.00000005", "tool.n.00000006", "pet.n.00000007"]
    expected += ["move.v.00000001", "circle.v.00000003", "turn.v.00000004"]
    assert splits.class_names == tuple(expected)
    animal, tool, pet, move, circle, turn = expected
    of_nouns = [{animal}, {tool}, {animal, pet}, {animal, tool, pet}]
    # A circle of verbs ends, and none is above itself.
    of_verbs = [{move}, {circle}, {turn}]
    assert {frozenset(names) for names, _ in points(splits)} == set(
        map(frozenset, of_nouns + of_verbs)
    )


def test_words_have_the_weights_of_the_formula(folder):
    splits = wordnet.wordnet(folder, batch_size=100)
    _, class_ids = next(iter(splits.train))
    # 23 nouns and 3 verbs have classes: 24 are split 19, 2 and 3, in the order of the generator.
    labelled = [n for n in NOUNS if n >= 7] + [("v", n) for n in (2, 3, 4)]
    order = np.random.default_rng(0).permutation(len(labelled))
    cut = int(0.8 * len(order))
    glosses = [
        VERBS[item[1]][2] if isinstance(item, tuple) else NOUNS[item][2]
        for item in (labelled[i] for i in order)
    ]
    bags = [
        "".join(c if c in "abcdefghijklmnopqrstuvwxyz" else " " for c in gloss.lower()).split()
        for gloss in glosses
    ]
    frequency = {word: sum(word in bag for bag in bags[:cut]) for bag in bags[:cut] for word in bag}
    vocabulary = sorted(word for word, count in frequency.items() if 2 <= count < cut)
    assert splits.vocabulary == tuple(vocabulary)
    expected = []
    for bag in bags:
        weights = {
            word: (1 + math.log(bag.count(word))) * math.log(cut / frequency[word])
            for word in set(bag) & set(vocabulary)
        }
        length = math.sqrt(sum(weight**2 for weight in weights.values()))
        if weights:
            expected.append({word: weight / length for word, weight in weights.items()})
    found = [words for _, words in points(splits)]
    assert len(class_ids) == sum(bool(set(bag) & set(vocabulary)) for bag in bags[:cut])
    assert len(found) == len(expected)
    for words in found:
        assert any(words == pytest.approx(other, rel=1e-6) for other in expected)
    assert any("work" in words and len(words) > 1 for words in found)


def test_the_training_part_has_a_new_order_each_epoch(folder):
    def orders(seed):
        train = wordnet.wordnet(folder, batch_size=5, seed=seed).train
        return [[tuple(row) for _, y in train for row in y.numpy().tolist()] for _ in range(2)]

    first, second = orders(3)
    assert first != second and orders(3) == [first, second]
    one, other = (wordnet.wordnet(folder, seed=seed) for seed in (1, 2))
    for part in ("validation", "test"):
        for (a, y), (b, z) in zip(getattr(one, part), getattr(other, part), strict=True):
            np.testing.assert_array_equal(a.values, b.values)
            np.testing.assert_array_equal(y, z)


def test_a_bad_line_is_named(folder):
    path = folder / "data.noun"
    path.write_text(path.read_text().replace(" | an animal", " an animal"))
    with pytest.raises(ValueError, match="data.noun, line 8: must be a synset of WordNet"):
        wordnet.wordnet(folder)


def test_files_have_the_same_points(folder, tmp_path):
    wordnet.main([str(folder), "--out", str(tmp_path / "out")])
    splits = wordnet.wordnet(folder, batch_size=100)
    for part in ("validation", "test"):
        read = data.extreme_classification(tmp_path / "out" / f"{part}.txt", batch_size=100)
        for (x, y), (features, class_ids) in zip(read, getattr(splits, part), strict=True):
            np.testing.assert_array_equal(y, class_ids)
            np.testing.assert_array_equal(tf.sparse.to_dense(x), tf.sparse.to_dense(features))


@pytest.mark.slow
@pytest.mark.skipif(not REAL.is_dir(), reason="WordNet is not installed")
def test_the_real_one(tmp_path):
    splits = wordnet.wordnet(REAL)
    sizes = [sum(len(y) for _, y in part) for part in (splits.train, splits.validation)]
    assert sizes == [75_904, 9_476]
    assert (splits.num_classes, len(splits.vocabulary)) == (20_456, 25_775)
    if not SAME_IN_TEXT.exists():
        return
    with zipfile.ZipFile(SAME_IN_TEXT) as archive:
        path = archive.extract("wordnet_hypernyms/test.txt", tmp_path)
    theirs = data.extreme_classification(path)
    for (features, ids), (same, same_ids) in zip(splits.test, theirs, strict=True):
        np.testing.assert_array_equal(features.indices, same.indices)
        np.testing.assert_allclose(features.values, same.values, atol=5.1e-5)  # four digits
        np.testing.assert_array_equal(np.sort(ids), np.sort(same_ids))
