"""Files of `ExampleListWithContext`, TF-Ranking's format of a context and examples.

For classification, the context holds the features of an example, and the list holds the
classes, with a label of 1 for the right class. None of this needs TF-Ranking.
"""

import contextlib
import fnmatch
import glob
import os
import re
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import descriptor_pb2

from rank4class_tf import _checks, _files
from rank4class_tf._counts import is_one_hot_row
from rank4class_tf._types import PathLike, Tensor

__all__ = ["lists", "write", "read", "read_classes", "serialize"]

CLASS_ID, LABEL, MASK = "class_id", "label", "mask"
FEATURES = "features"

# The message of tensorflow_serving/apis/input.proto, read without that package.
_PACKAGE, _MESSAGE = "rank4class_tf", "ExampleListWithContext"
_EXAMPLES, _CONTEXT = 1, 2


def lists(
    batches: Iterable, num_classes: int, num_negatives: int | None = None, seed: int = 0
) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Turns classification examples into lists of classes, one after the other.

    Args:
        batches: batches of `(features, class_ids)`, such as `digits().train`: features
            are a tensor `[batch, ...]` or a dict of them, class ids integers `[batch]`,
            or `[batch, P]` padded with -1.
        num_classes: number of classes.
        num_negatives: how many of the other classes go into a list, drawn uniformly
            without replacement; None puts all classes into each list, in the order of
            their ids.
        seed: seed of the draws, in [0, 2**32).

    Yields:
        Pairs of the context, a dict of the features (one tensor is `"features"`), and
        the examples.

    Example:
        >>> context, examples = next(lists([([[0.5, 0.1]], [1])], num_classes=2))
        >>> examples
        [{'class_id': 0, 'label': 0.0}, {'class_id': 1, 'label': 1.0}]
    """
    num_classes = _checks.positive_int("num_classes", num_classes)
    num_negatives = _checks.positive_int_or_none("num_negatives", num_negatives)
    rng = np.random.default_rng(_checks.seed(seed))
    for batch in _checks.dataset_that_ends("batches", batches):
        features, class_ids = _checked_batch(batch, num_classes)
        for row, ids in enumerate(class_ids):
            context = {name: value[row] for name, value in features.items()}
            positives = _checked_positives(ids, num_classes)
            items = _drawn_items(positives, num_classes, num_negatives, rng)
            labels = np.isin(items, positives).astype(float)
            examples = zip(items.tolist(), labels.tolist(), strict=True)
            yield context, [{CLASS_ID: item, LABEL: label} for item, label in examples]


def _checked_batch(
    batch: Any, num_classes: int
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Features by name, `[batch, ...]`, and class ids `[batch, P]`."""
    rule = "`batches` must hold pairs of features and class ids, without weights."
    is_pair = isinstance(batch, list | tuple) and len(batch) == 2
    _checks.require(is_pair, rule, batch)
    features, class_ids = batch
    if not isinstance(features, dict):
        features = {FEATURES: features}
    for name, value in [*features.items(), ("class ids", class_ids)]:
        is_dense = not isinstance(value, tf.RaggedTensor | tf.SparseTensor)
        received = f"a {type(value).__name__} of {name!r}"
        _checks.require(is_dense, "`batches` must be dense.", received)
    features = {name: _array(value) for name, value in features.items()}

    class_ids = np.asarray(class_ids)
    rule = "Class ids must be integers [batch] or [batch, P]"
    is_right = class_ids.ndim in (1, 2) and class_ids.dtype.kind in "iu"
    received = f"{class_ids.dtype} of shape {class_ids.shape}"
    _checks.require(is_right, f"{rule}.", received)
    if class_ids.ndim == 2:
        for row in class_ids[is_one_hot_row(class_ids, num_classes)][:1]:
            raise ValueError(
                f"{rule}; a row of zeros and ones, or with a label for each class, "
                f"looks like one-hot labels. Received: {row}."
            )

    for name, value in features.items():
        received = f"{len(class_ids)} for {len(value)} of {name!r}"
        rule = "A batch must have class ids for each example."
        _checks.require(len(value) == len(class_ids), rule, received)
    return features, class_ids.reshape(len(class_ids), -1)


def _checked_positives(ids: np.ndarray, num_classes: int) -> np.ndarray:
    """The different class ids of an example in rising order, without padding."""
    positives = np.unique(ids[ids != -1])
    rule = f"Class ids must be in [0, {num_classes}), or -1 for padding."
    is_right = np.all((positives >= 0) & (positives < num_classes))
    _checks.require(is_right, rule, f"{ids}")
    return positives


def _drawn_items(
    positives: np.ndarray,
    num_classes: int,
    num_negatives: int | None,
    rng: np.random.Generator,
) -> np.ndarray:
    """The classes of a list: all, or the positives and negatives drawn, shuffled."""
    num_available = num_classes - positives.size
    if num_negatives is None or num_negatives >= num_available:
        return np.arange(num_classes)
    # Finds the j-th negative class without a list of all classes.
    drawn = rng.choice(num_available, num_negatives, replace=False)
    negatives_below = positives - np.arange(positives.size)
    num_skipped = np.searchsorted(negatives_below, drawn, side="right")
    return rng.permutation(np.concatenate([positives, drawn + num_skipped]))


def serialize(context: dict[str, Any], examples: Iterable[dict[str, Any]]) -> bytes:
    r"""Serializes a list to the bytes of an `ExampleListWithContext`.

    Args:
        context: name -> number that fits int64 or float32, string, bytes, or an array
            of one of these, which is flattened. Readers take an empty array for a
            missing feature.
        examples: a dict of the same form for each example.

    Example:
        >>> serialize({}, [{"label": 1.0}])[:1]
        b'\n'
    """
    fields = [_field(_EXAMPLES, _example(example)) for example in examples]
    return b"".join([*fields, _field(_CONTEXT, _example(context))])


def write(lists: Iterable, path: PathLike, num_shards: int = 1) -> int:
    """Writes lists in turn to TFRecord files `<path>-00000-of-0000N`; returns how many.

    The files get their names when all are complete.

    Args:
        lists: pairs of context and examples, see `serialize`; they are read once, one
            by one.
        path: the beginning of the files' names.
        num_shards: number of files N, >= 1.
    """
    num_shards = _checks.positive_int("num_shards", num_shards)
    names = _shard_names(os.fspath(path), num_shards)
    count = 0
    with contextlib.ExitStack() as stack:
        temporaries = [stack.enter_context(_files.replacing(name)) for name in names]
        writers = map(tf.io.TFRecordWriter, temporaries)
        files = [stack.enter_context(writer) for writer in writers]
        for context, examples in lists:
            files[count % num_shards].write(serialize(context, examples))
            count += 1
    return count


def read(
    pattern: PathLike,
    context_spec: dict[str, Any],
    example_spec: dict[str, Any],
    batch_size: int,
    list_size: int | None = None,
) -> tf.data.Dataset:
    """Reads lists as batches of features.

    Args:
        pattern: the files, with `*`, `?` and `[...]`. If it matches one file of a set
            `-of-0000N`, every file of the set that it would match must exist. An empty
            file gives a warning; one that was cut between two lists is read as a
            shorter one.
        context_spec: name -> `tf.io.FixedLenFeature` of the context.
        example_spec: name -> `tf.io.FixedLenFeature` of the examples, with a
            `default_value` that pads short lists: -1 for the label, as losses and
            metrics expect.
        batch_size: lists per batch, >= 1.
        list_size: longer lists are cut to this size and shorter ones padded to it; None
            pads to the longest list of each batch.

    Returns:
        A `tf.data.Dataset`, in the order of the files, of dicts: context features
        `[batch, ...]`, those of the examples `[batch, n, ...]`, and `"mask"`
        `[batch, n]`, False for padding.
    """
    batch_size = _checks.positive_int("batch_size", batch_size)
    list_size = _checks.positive_int_or_none("list_size", list_size)
    _check_specs(context_spec, example_spec)
    files = _files_of(pattern)
    _checks.require(
        bool(example_spec), "`example_spec` must name at least one feature.", "none"
    )
    descriptor = b"bytes://" + _descriptor_set()

    def parse(serialized: Tensor) -> dict[str, Any]:
        sizes, (context, examples) = tf.io.decode_proto(
            serialized,
            f"{_PACKAGE}.{_MESSAGE}",
            field_names=["context", "examples"],
            output_types=[tf.string, tf.string],
            descriptor_source=descriptor,
        )
        # Cut or pad the serialized examples; an empty one parses to the default values.
        n = tf.shape(examples)[1] if list_size is None else list_size
        num_missing = tf.maximum(n - tf.shape(examples)[1], 0)
        examples = tf.pad(examples[:, :n], [[0, 0], [0, num_missing]])
        batch = tf.shape(examples)[0]
        features = tf.io.parse_example(tf.reshape(examples, [-1]), example_spec)
        features = {
            name: tf.reshape(x, [batch, n, *x.shape[1:]])
            for name, x in features.items()
        }
        if context_spec:
            features.update(tf.io.parse_example(context[:, 0], context_spec))
        return {**features, MASK: tf.sequence_mask(sizes[:, 1], n)}

    records = tf.data.TFRecordDataset(files).batch(batch_size)
    return records.map(parse, num_parallel_calls=tf.data.AUTOTUNE).prefetch(
        tf.data.AUTOTUNE
    )


def _check_specs(context_spec: dict[str, Any], example_spec: dict[str, Any]) -> None:
    if MASK in context_spec or MASK in example_spec:
        raise ValueError(
            f"`context_spec` and `example_spec` must not name {MASK!r}, an output."
        )
    shared = sorted(context_spec.keys() & example_spec.keys())
    rule = "`context_spec` and `example_spec` must not share a name."
    _checks.require(not shared, rule, f"{', '.join(map(repr, shared))} in both")
    for name, spec in example_spec.items():
        is_fixed = isinstance(spec, tf.io.FixedLenFeature)
        has_default = is_fixed and spec.default_value is not None
        rule = "`example_spec` must hold `tf.io.FixedLenFeature`s with default values."
        _checks.require(has_default, rule, f"{name!r}, {spec}")


def read_classes(
    pattern: PathLike,
    context_spec: dict[str, Any],
    batch_size: int,
    list_size: int | None = None,
) -> tf.data.Dataset:
    """Reads files of `lists` as classification examples.

    Args:
        pattern: as for `read`.
        context_spec: name -> `tf.io.FixedLenFeature` of the features.
        batch_size: examples per batch, >= 1.
        list_size: as for `read`.

    Returns:
        A `tf.data.Dataset` of `(features, class_ids)`: a dict of the features, and
        int64 `[batch, n]`, the classes with a positive label first, then -1.
    """
    example_spec = {
        CLASS_ID: tf.io.FixedLenFeature([], tf.int64, default_value=-1),
        LABEL: tf.io.FixedLenFeature([], tf.float32, default_value=-1.0),
    }

    # Padding has the label -1, so that its class ids become -1 as well, and go to the
    # end.
    def split(features: dict[str, Tensor]) -> tuple[dict[str, Tensor], Tensor]:
        ids = tf.where(features[LABEL] > 0, features[CLASS_ID], -1)
        order = tf.argsort(tf.cast(ids < 0, tf.int32), stable=True)
        context = {name: features[name] for name in context_spec}
        return context, tf.gather(ids, order, batch_dims=1)

    return read(pattern, context_spec, example_spec, batch_size, list_size).map(split)


def _files_of(pattern: PathLike) -> list[str]:
    """The files that a pattern matches, in order."""
    pattern = os.fspath(pattern)
    files = sorted(glob.glob(pattern))
    _checks.require(
        bool(files), "`pattern` must match at least one file.", f"{pattern!r}"
    )
    shard_sets: dict[str, dict[str, int]] = {}
    for file in files:
        if match := re.fullmatch(r"(.*)-\d{5,}-of-(\d{5,})", file):
            shard_sets.setdefault(match[1], {})[file] = int(match[2])
    for path, shards in shard_sets.items():
        sizes = sorted(set(shards.values()))
        received = (
            f"{pattern!r}, which matches files of sets of "
            f"{' and of '.join(map(str, sizes))}"
        )
        _checks.require(
            len(sizes) == 1, "`pattern` must match files of one set.", received
        )
        # A pattern may match only some files of a set, but all of these must exist.
        expected = fnmatch.filter(_shard_names(path, sizes[0]), pattern)
        missing = [file for file in expected if file not in shards]
        listed = ", ".join([*missing[:5], "..."] if len(missing) > 5 else missing)
        rule = "`pattern` must match all files of a set."
        _checks.require(not missing, rule, f"{pattern!r}; missing: {listed}")
    for file in files:
        if not os.path.getsize(file):
            warnings.warn(f"`pattern` matches an empty file: {file!r}.", stacklevel=3)
    return files


def _shard_names(path: str, num_shards: int) -> list[str]:
    shards = range(num_shards)
    return [f"{path}-{shard:05}-of-{num_shards:05}" for shard in shards]


def _example(features: dict[str, Any]) -> bytes:
    feature = {name: _feature(name, value) for name, value in features.items()}
    features = tf.train.Features(feature=feature)
    return tf.train.Example(features=features).SerializeToString()


def _feature(name: str, value: Any) -> tf.train.Feature:
    flat = _array(value).reshape(-1)
    if not flat.size:
        return tf.train.Feature()  # An empty list does not tell its kind of values.
    if flat.dtype.kind == "f":
        with np.errstate(over="ignore"):
            fits = np.isfinite(flat.astype(np.float32)) | ~np.isfinite(flat)
        if not fits.all():
            rule = "Features must be within the range of float32."
            raise ValueError(f"{rule} Received: {name}={value!r}.")
        return tf.train.Feature(float_list=tf.train.FloatList(value=flat))
    if flat.dtype.kind in "iub" or all(isinstance(item, int) for item in flat):
        if not -(2**63) <= int(flat.min()) <= int(flat.max()) < 2**63:
            raise ValueError(
                f"Features must be in [-2**63, 2**63). Received: {name}={value!r}."
            )
        return tf.train.Feature(
            int64_list=tf.train.Int64List(value=flat.astype(np.int64))
        )
    if flat.dtype.kind in "SU" or all(isinstance(item, str | bytes) for item in flat):
        encoded = [item.encode() if isinstance(item, str) else item for item in flat]
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=encoded))
    raise TypeError(
        f"Features must be numbers, strings or bytes. Received: {name}={value!r}."
    )


def _array(value: Any) -> np.ndarray:
    # NumPy would pad texts to one width and lose zeros at the end.
    return np.asarray(value, object if _holds_text(value) else None)


def _holds_text(value: Any) -> bool:
    is_list = isinstance(value, list | tuple)
    return any(map(_holds_text, value)) if is_list else isinstance(value, str | bytes)


def _field(number: int, payload: bytes) -> bytes:
    """A protobuf field of wire type 2: key, payload length as a varint, payload."""
    rest = len(payload)
    varint = bytearray()
    while rest > 0x7F:
        varint.append(rest & 0x7F | 0x80)
        rest >>= 7
    varint.append(rest)
    return bytes([number << 3 | 2]) + bytes(varint) + payload


def _descriptor_set() -> bytes:
    """A serialized message description; its parts, as bytes, stay serialized."""
    field = descriptor_pb2.FieldDescriptorProto
    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="elwc.proto", package=_PACKAGE, syntax="proto3")
    message = file.message_type.add(name=_MESSAGE)
    kind = field.TYPE_BYTES
    message.field.add(
        name="examples", number=_EXAMPLES, type=kind, label=field.LABEL_REPEATED
    )
    message.field.add(
        name="context", number=_CONTEXT, type=kind, label=field.LABEL_OPTIONAL
    )
    return files.SerializeToString()
