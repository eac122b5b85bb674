"""Damaged files of TF-Ranking, of sorters and of classes, for their readers."""

import collections
import functools
import os
import warnings

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from rank4class_tf import layers
from rank4class_tf.data import elwc, shards
from scripts.robustness.fuzzing.faults import SELDOM, Defect, cut, equal, mutated, outcome

# TF-Ranking's files.

CONTEXT = {"query": tf.io.FixedLenFeature([2], tf.float32)}
EXAMPLES = {
    "id": tf.io.FixedLenFeature([], tf.int64, default_value=-7),
    "label": tf.io.FixedLenFeature([], tf.float32, default_value=-1.0),
}


def _some_lists():
    return [
        (
            {"query": np.float32([row, 0.5])},
            [{"id": 10 * row + i, "label": float(i % 2)} for i in range(row % 4)],
        )
        for row in range(9)
    ]


def _read_lists(pattern):
    found = []
    for batch in elwc.read(pattern, CONTEXT, EXAMPLES, batch_size=4):
        for row, mask in enumerate(batch["mask"].numpy()):
            ids, labels = (batch[name][row].numpy()[mask].tolist() for name in ("id", "label"))
            found.append(
                (batch["query"][row].numpy().tolist(), list(zip(ids, labels, strict=True)))
            )
    return sorted(found)


def _expected_lists():
    lists = _some_lists()
    return sorted(
        (context["query"].tolist(), [(e["id"], e["label"]) for e in examples])
        for context, examples in lists
    )


# TensorFlow does not say in which file.
_OF_RECORDS = ["corrupted record", "truncated record", "`pattern`"]
_OF_MESSAGES = ["DecodeProto", "ParseExample", "Could not parse example", "can't decode byte"]

# In one file, since a file takes as long as so many of them.
MESSAGES = 50


def elwc_files(draws, folder):
    """`elwc.read` of a set with damaged, missing, empty or exchanged files."""
    path = folder / "set"
    elwc.write(_some_lists(), path, num_shards=2)
    names = sorted(folder.glob("set-*"))
    name = draws.of(names)
    kind = draws.integer(12)
    if kind == 0:
        name.unlink()
    elif kind == 1:
        name.write_bytes(b"")
    elif kind == 2:
        name.write_bytes(names[name == names[0]].read_bytes())
    elif kind == 3:
        elwc.write(_some_lists()[: draws.integer(9)], folder / "other", num_shards=2)
        os.replace(folder / name.name.replace("set", "other"), name)
    else:
        name.write_bytes(mutated(draws, name.read_bytes()))
    pattern = f"{path}-*"
    if draws.chance(SELDOM):
        expected = _expected_lists()
        return outcome(
            lambda: _read_lists(pattern), functools.partial(equal, expected), _OF_RECORDS, False
        )

    def read():
        records = tf.data.TFRecordDataset(shards.find(pattern)).as_numpy_iterator()
        return sorted(map(_list_of, records))

    expected = sorted(_list_of(elwc.serialize(*each)) for each in _some_lists())
    return outcome(read, functools.partial(equal, expected), _OF_RECORDS, False)


def elwc_messages(draws, folder):
    """`elwc.read` of damaged messages in whole records, such as another writer may leave."""
    path = folder / "messages"
    messages, wholes = [], []
    for _ in range(MESSAGES):
        wholes.append(elwc.serialize(*draws.of(_some_lists())))
        messages.append(mutated(draws, wholes[-1]))
    with tf.io.TFRecordWriter(str(path)) as file:
        for message in messages:
            file.write(message)
    batches = iter(elwc.read(path, CONTEXT, EXAMPLES, batch_size=1))

    def read():
        batch = next(batches)
        mask = batch["mask"][0].numpy()
        pairs = zip(
            *(batch[name][0].numpy()[mask].tolist() for name in ("id", "label")), strict=True
        )
        return batch["query"][0].numpy().tolist(), list(pairs)

    counts = collections.Counter()
    # TensorFlow's parser takes some damaged messages that Google's refuses, and the reverse.
    for message, whole in zip(messages, wholes, strict=True):
        try:
            expected = _list_of(message)
        except (ValueError, DecodeError):
            expected = None
        try:
            if expected is None:
                found = outcome(read, lambda _: True, _OF_MESSAGES, False)
                counts["taken though malformed" if found == "right" else found] += 1
            else:
                right = functools.partial(equal, expected)
                counts[outcome(read, right, _OF_MESSAGES, message == whole)] += 1
        except Defect as defect:
            raise Defect(f"{defect}; {message!r}") from defect
    return counts


def _list_of(message):
    """A list by protocol buffers' own reader; raises where it breaks the rules."""
    fields = {1: [], 2: [b""]}
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            if at >= len(message) or shift > 63:
                raise ValueError
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value & (2**64 - 1)

    while at < len(message):
        tag = varint()
        number, kind = tag >> 3, tag & 7
        if not number or kind not in (0, 1, 2, 5):
            raise ValueError
        if kind == 0:
            varint()
            continue
        size = varint() if kind == 2 else {1: 8, 5: 4}[kind]
        if at + size > len(message):
            raise ValueError
        if kind == 2 and number in fields:
            fields[number].append(message[at : at + size])
        at += size
    context = tf.train.Example.FromString(fields[2][-1])
    query = context.features.feature["query"].float_list.value
    if len(query) != 2:
        raise ValueError
    found = []
    for each in fields[1]:
        feature = tf.train.Example.FromString(each).features.feature
        row = []
        for name, kind, default in (("id", "int64_list", -7), ("label", "float_list", -1.0)):
            one = feature[name]
            if one.WhichOneof("kind") is None:
                row.append(default)
                continue
            (value,) = getattr(one, kind).value
            row.append(value)
        found.append(tuple(row))
    return np.float32(query).tolist(), found


# Weights of sorters, and exported classes.


def pretrained(draws, folder):
    """`Sorter.pretrained` of a damaged file."""
    path, bad = folder / "sorter.npz", folder / "bad.npz"
    if not path.exists():
        sorter = layers.ConvolutionalSorter(length=5, frequencies=1, units=2, trainable=True)
        sorter.build((None, None))
        sorter.save_pretrained(path)
    expected, whole = dict(np.load(path)), path.read_bytes()
    damaged = mutated(draws, whole)
    bad.write_bytes(damaged)

    def read():
        sorter = layers.ConvolutionalSorter.pretrained(bad)
        return {name: weight.numpy() for name, weight in sorter._of_name.items()}

    def right(found):
        return all(np.array_equal(found[name], expected[name]) for name in found)

    return outcome(read, right, ["bad.npz"], damaged == whole)


def exported_classes(draws, folder):
    """`np.load` of exported classes that were cut. It has no checksum: no flipped bits here."""
    path = folder / "classes.npy"
    if not path.exists():
        layer = layers.SampledScores(20, num_sampled=2)
        layer.build((None, 3))
        layer.export_embeddings(path)
    expected, content = np.load(path), path.read_bytes()
    bad = folder / "cut.npy"
    bad.write_bytes(cut(draws, content))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return outcome(
            lambda: np.load(bad, mmap_mode=draws.of([None, "r"])),
            functools.partial(equal, expected),
            [""],  # NumPy's own.
            False,
        )
