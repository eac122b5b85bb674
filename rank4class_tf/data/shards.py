"""Sets of TFRecord files `<path>-00000-of-0000N` that say whether they are whole; for `elwc`.

TensorFlow takes a file that was cut between two records for a shorter one. The last record of a
file therefore ends in a field that other readers of protocol buffers skip, with the size of the
file, its place in the set, and the number and checksum of the set's records. The first record
begins with a field that says that there is such an end.
"""

import contextlib
import fnmatch
import glob
import os
import re
import struct
import warnings
import zlib
from collections.abc import Iterable
from typing import NamedTuple

import tensorflow as tf

from rank4class_tf import _checks, _files
from rank4class_tf._types import PathLike

# The tags of the highest possible field number, for a number and for bytes, as varints.
_NUMBER, _BYTES = b"\xf8\xff\xff\xff\x0f", b"\xfa\xff\xff\xff\x0f"
_END = struct.Struct("<QQII")
_HEAD, _TAIL = _NUMBER + b"\x01", _BYTES + bytes([_END.size])

# A TFRecord file has the length of a record and a checksum before it, and a checksum behind it.
_BEFORE, _BEHIND = 12, 4


class _End(NamedTuple):
    """What the last field of a file holds."""

    size: int
    num_records: int
    checksum: int
    shard: int


def write(records: Iterable[bytes], path: PathLike, num_shards: int) -> int:
    """Writes records to N files in turns, and returns how many; all get their names at the end."""
    names = [_name(os.fspath(path), shard, num_shards) for shard in range(num_shards)]
    count = checksum = 0
    last: list[bytes] = []
    sizes = [0] * num_shards
    with contextlib.ExitStack() as stack:
        temporaries = [stack.enter_context(_files.replacing(name)) for name in names]
        shards = [stack.enter_context(tf.io.TFRecordWriter(name)) for name in temporaries]
        # The last record of each file waits in memory, since the end is a part of it.
        for record in records:
            checksum = zlib.crc32(record, checksum)
            shard = count % num_shards
            count += 1
            if len(last) < num_shards:
                last.append(_HEAD + record)
            else:
                shards[shard].write(last[shard])
                sizes[shard] += _BEFORE + len(last[shard]) + _BEHIND
                last[shard] = record
        for shard, record in enumerate(last):
            end_size = len(_TAIL) + _END.size
            size = sizes[shard] + _BEFORE + len(record) + end_size + _BEHIND
            shards[shard].write(record + _TAIL + _END.pack(size, count, checksum, shard))
    return count


def find(pattern: PathLike) -> list[str]:
    """Finds the files of a pattern with `*`, `?` and `[...]`, in order.

    Raises if none matches, if one is missing of a set that the pattern would match, or if files say
    that they are not whole or belong to different sets. Warns if a file is empty, and no file of
    its set says whether it should be.
    """
    pattern = os.fspath(pattern)
    files = sorted(glob.glob(pattern))
    _checks.require(bool(files), "`pattern` must match at least one file.", f"{pattern!r}")
    ends = {file: _end(file) for file in files}
    sets: dict[str, dict[str, tuple[int, int]]] = {}
    for file in files:
        if parts := re.fullmatch(r"(.*)-(\d{5,})-of-(\d{5,})", file):
            sets.setdefault(parts[1], {})[file] = int(parts[2]), int(parts[3])
    for path, shards in sets.items():
        _check_set(path, pattern, shards, ends)
    known = {file for shards in sets.values() if any(map(ends.get, shards)) for file in shards}
    for file in files:
        if file not in known and not os.path.getsize(file):
            warnings.warn(f"`pattern` matches an empty file: {file!r}.", stacklevel=3)
    return files


def _check_set(path: str, pattern: str, shards: dict, ends: dict[str, _End | None]) -> None:
    """Checks the files of one set; `shards` maps each to its number and their number."""
    sizes = sorted({num_shards for _, num_shards in shards.values()})
    received = f"{pattern!r}, which matches files of sets of {' and of '.join(map(str, sizes))}"
    _checks.require(len(sizes) == 1, "`pattern` must match files of one set.", received)
    expected = [_name(path, shard, sizes[0]) for shard in range(sizes[0])]
    missing = [f for f in expected if f not in shards and fnmatch.fnmatchcase(f, pattern)]
    some = ", ".join([*missing[:5], "..."] if len(missing) > 5 else missing)
    rule = "`pattern` must match all files of a set."
    _checks.require(not missing, rule, f"{pattern!r}; missing: {some}")
    # Files that were written together agree on the number and the checksum of all records.
    told = {(end.num_records, end.checksum): file for file in shards if (end := ends[file])}
    if len(told) > 1:
        raise ValueError(
            "`pattern` must match files of one set. Received files that were written at different "
            f"times: {', '.join(sorted(told.values())[:2])}."
        )
    # If one file tells the number of records, it is known how many each of the others holds.
    num_records = next((num_records for num_records, _ in told), 0)
    for file, (shard, num_shards) in shards.items():
        end, count = ends[file], len(range(shard, num_records, num_shards))
        if end is not None and end.shard != shard:
            rule = "`pattern` must match files under their own names."
            raise ValueError(f"{rule} Received: {file!r}, which is number {end.shard} of its set.")
        if end is None and count:
            what = "no file of this set" if os.path.getsize(file) else "empty"
            received = f"{file!r}, which is {what} and should hold {count} records"
            raise ValueError(f"`pattern` must match whole files. Received: {received}.")


def _end(path: str) -> _End | None:
    """The `_End` of a file, None if another program wrote it; raises if it is not whole."""
    size = os.path.getsize(path)
    rule = "`pattern` must match whole files."
    # TensorFlow would take a few bytes for the end of the file.
    whole = not 0 < size < _BEFORE + _BEHIND
    _checks.require(whole, rule, f"{path!r}, {size} bytes of a record")
    with open(path, "rb") as file:
        head = file.read(_BEFORE + len(_HEAD))[_BEFORE:]
        if head != _HEAD:
            return None
        file.seek(max(0, size - _BEHIND - _END.size - len(_TAIL)))
        tail = file.read(len(_TAIL) + _END.size)
    end = _End(*_END.unpack(tail[len(_TAIL) :])) if tail.startswith(_TAIL) else None
    if end is None or end.size != size:
        told = "without its last record" if end is None else f"where it should have {end.size}"
        raise ValueError(f"{rule} Received: {path!r}, {size} bytes {told}.")
    return end


def _name(path: str, shard: int, num_shards: int) -> str:
    return f"{path}-{shard:05}-of-{num_shards:05}"
