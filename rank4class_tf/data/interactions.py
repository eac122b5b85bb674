"""Users and the items that they chose: `UserItems` and MovieLens."""

import collections
import dataclasses
import datetime
import re
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks
from rank4class_tf._types import PathLike, Tensor
from rank4class_tf.data import splits

_PARTS = ("train", "validation", "test")
_SPLITS = ("random", "last", "time")
# The formats of a line in `UserItems.from_file`. Groups are the user, the item and the
# timestamp. Three or four integers with spaces are items of a user, unless `from_file`
# leaves this form out.
_ID, _TIME = "([0-9]{1,10})", "([0-9]{1,18})"
_ITEMS = "the item ids of one user"
_LINE_FORMATS = {
    "`user::item::rating::timestamp`": re.compile(f"{_ID}::{_ID}::[0-9.]+::{_TIME}"),
    "`user item`": re.compile(f"{_ID}\\s+{_ID}"),
    _ITEMS: re.compile("[0-9]{1,10}(?: +[0-9]{1,10})*"),
    "`user item timestamp`": re.compile(f"{_ID}\\s+{_ID}\\s+{_TIME}"),
    "`user item rating timestamp`": re.compile(f"{_ID}\\s+{_ID}\\s+[0-9.]+\\s+{_TIME}"),
}

Items: TypeAlias = Tensor | tf.RaggedTensor


@dataclasses.dataclass(frozen=True, repr=False)
class UserItems:
    """The items of each user in three parts, and batches of them.

    Attributes:
        train: ragged int32 `[num_users, None]`, the item numbers of each user for
            training.
        validation: the items for choosing a model, in the same form.
        test: the items for reporting results, in the same form.
        item_ids: `[num_items]`, the source's id of each item number, in rising order
            behind those that `from_pairs` got.
        user_ids: `[num_users]`, the source's id of each row, in rising order.
        in_order: whether the items of a user are in order of time, and may repeat; else
            they are distinct and sorted by number.
    """

    train: tf.RaggedTensor
    validation: tf.RaggedTensor
    test: tf.RaggedTensor
    item_ids: np.ndarray
    user_ids: np.ndarray
    in_order: bool = False

    def __repr__(self) -> str:
        sizes = ", ".join(f"{len(getattr(self, x).flat_values):,} {x}" for x in _PARTS)
        return (
            f"UserItems({self.num_users:,} users, {self.num_items:,} items; pairs: "
            f"{sizes})"
        )

    @property
    def num_items(self) -> int:
        """The number of items."""
        return len(self.item_ids)

    @property
    def num_users(self) -> int:
        """The number of users."""
        return len(self.user_ids)

    def item_numbers(self, ids: Any) -> np.ndarray:
        """Returns item numbers by their ids; `item_ids[numbers]` gives the ids again.

        Args:
            ids: one id, or an array or a column of them; an unknown one raises
                `ValueError`.
        """
        return _numbers_of(ids, self.item_ids)

    def user_numbers(self, ids: Any) -> np.ndarray:
        """Returns the rows of users by their ids, like `item_numbers`."""
        return _numbers_of(ids, self.user_ids)

    @classmethod
    def from_pairs(
        cls,
        batches: Iterable,
        seed: int = 0,
        split: str = "random",
        item_ids: Any = None,
    ) -> Self:
        """Splits pairs of user and item, at random into 80, 10 and 10 %, or by time.

        20 million pairs need at most some 1.5 GB.

        Args:
            batches: a list of pairs `(user_ids, item_ids)` or triples
                `(user_ids, item_ids, timestamps)`: arrays, lists or pandas columns of
                one length. Ids are integers in [-2**31, 2**31) or strings; timestamps
                are finite numbers or dates. Users and items are numbered in rising
                order of their ids.
            seed: seed of the random split, in [0, 2**32).
            split: `"random"`, where a repeated pair counts once; `"last"`, where the
                last item of each user is for testing and the one before it for
                validation, and users with fewer than three items are only for training;
                or `"time"`, where the latest tenth of all pairs is for testing and the
                tenth before it for validation. The last two sort the pairs by
                timestamp, if any, and keep repeated ones; ties keep their order.
            item_ids: None, or the `item_ids` of an older log, `[n]`, which keep their
                numbers, so that a trained table still fits. New ids follow.

        Example:
            >>> users = UserItems.from_pairs(
            ...     [(["ann", "ann", "bob"], ["tea", "milk", "milk"])]
            ... )
            >>> users.item_ids, int(users.item_numbers("tea"))
            (array(['milk', 'tea'], dtype='<U4'), 1)
            >>> triples = [([7, 7, 7], [4, 5, 6], [300, 100, 200])]
            >>> users = UserItems.from_pairs(triples, split="last")
            >>> users.item_ids[users.test.values], users.item_ids[users.train.values]
            (array([4], dtype=int32), array([5], dtype=int32))
            >>> grown = UserItems.from_pairs(triples, item_ids=[5, 6])
            >>> grown.item_ids
            array([5, 6, 4], dtype=int32)
        """
        rng = np.random.default_rng(_checks.seed(seed))
        _checks.one_of("split", split, _SPLITS)
        log = _Log.of(batches, _known(item_ids))
        if split == "random":
            log = log.without_repeats()
        by_user, part_of = _split(log, split, rng)

        parts = []
        for part in range(len(_PARTS)):
            rows = by_user[part_of[by_user] == part]
            lengths = np.bincount(log.users[rows], minlength=len(log.user_ids))
            parts.append(tf.RaggedTensor.from_row_lengths(log.items[rows], lengths))
        train, validation, test = parts
        in_order = split != "random"
        return cls(train, validation, test, log.item_ids, log.user_ids, in_order)

    @classmethod
    def from_file(
        cls, path: PathLike, split: str = "last", item_ids: Any = None
    ) -> Self:
        """Reads and splits the pairs of a text file, which may be compressed as `.gz`.

        All lines have the format of the first:

        - `user::item::rating::timestamp`, GroupLens's `ratings.dat`, whatever the
          rating.
        - `user item rating timestamp`, MovieLens-100k's `u.data`, or
          `user item timestamp`, with tabs or spaces.
        - `user item`, two ids, the pairs of a user in order of time (SASRec's files).
        - A line per user, with the ids of the items in order of time and spaces between
          them (gSASRec's files). The first line must not have two. If more than nine
          tenths of the lines have three ids, or four, the file is read as pairs with
          timestamps. A user's id is the number of the line, from 1.

        Args:
            path: the file, with ids in [0, 2**31).
            split: as in `from_pairs`; without timestamps, lines must be in order of
                time.
            item_ids: as in `from_pairs`.

        Raises:
            ValueError: if a line has another format, or if all timestamps are at most
                10, which are ratings.
        """
        _checks.one_of("split", split, _SPLITS)
        users, items, times = _read(path)
        _checks.require(users, f"{path}: must hold at least one line.", "an empty file")
        if not times:
            return cls.from_pairs([(users, items)], split=split, item_ids=item_ids)

        rule = "must have timestamps in the last column, not ratings of at most 10."
        latest = max(times)
        _checks.require(latest > 10, f"{path}: {rule}", f"{latest} as the latest")
        return cls.from_pairs([(users, items, times)], split=split, item_ids=item_ids)

    def _parts_up_to(self, part: str) -> list[tf.RaggedTensor]:
        _checks.one_of("part", part, _PARTS)
        return [self.train, self.validation, self.test][: _PARTS.index(part) + 1]

    def batches(
        self,
        part: str,
        batch_size: int = 128,
        ragged: bool = False,
        seed: int | None = None,
    ) -> tf.data.Dataset:
        """Returns batches `(features, class_ids)` of users that have an item in `part`.

        Features are a dictionary: `items`, the user's training items, and `exclude`,
        the items of earlier parts, which an evaluation must leave out. Class ids are
        the items in `part`.

        Args:
            part: `"train"`, `"validation"` or `"test"`.
            batch_size: users per batch, >= 1.
            ragged: whether lists are ragged tensors; else -1 pads them to the longest
                of a batch.
            seed: seed of a new order of users in each epoch; None sorts users by the
                length of their lists, shortest first, so that batches need little
                padding.
        """
        *earlier, labels = self._parts_up_to(part)
        exclude = tf.concat([self.train[:, :0], *earlier], axis=1)
        lengths = labels.row_lengths().numpy()
        # Users by the length of their lists, without those of length 0.
        users = np.argsort(lengths, kind="stable")[np.count_nonzero(lengths == 0) :]

        def of_users(lists: tf.RaggedTensor, users: Tensor) -> Items:
            rows = tf.gather(lists, users)
            return rows if ragged else rows.to_tensor(-1)

        def features_and_labels(users: Tensor) -> tuple[dict[str, Items], Items]:
            items = of_users(self.train, users)
            features = {"items": items, "exclude": of_users(exclude, users)}
            return features, of_users(labels, users)

        return _batched(users, batch_size, seed, features_and_labels)

    def sequences(
        self, part: str, length: int, batch_size: int = 128, seed: int | None = None
    ) -> tf.data.Dataset:
        """Returns batches `(inputs, next_items)`, item numbers int32 `[batch, length]`.

        A row has the last `length + 1` items of a user up to the end of the part:
        `next_items[:, t]` comes after `inputs[:, t]`, and -1 pads both at the end.
        `next_items` is also -1 where the next item is in an earlier part, so that
        losses and metrics leave out that position. Users without a next item in the
        part are left out.

        Args:
            part: `"train"`, `"validation"` or `"test"`.
            length: the number of positions, >= 1.
            batch_size: users per batch, >= 1.
            seed: seed of a new order of users in each epoch; None keeps their order.

        Raises:
            ValueError: after a random split, which loses the order of the items.

        Example:
            >>> pairs = [([7, 7, 7, 7], [0, 1, 2, 3])]
            >>> users = UserItems.from_pairs(pairs, split="last")
            >>> inputs, next_items = next(iter(users.sequences("test", 4)))
            >>> inputs.numpy(), next_items.numpy()
            (array([[ 0,  1,  2, -1]], dtype=int32),
             array([[-1, -1,  3, -1]], dtype=int32))
        """
        parts = self._parts_up_to(part)
        length = _checks.positive_int("length", length)
        rule = (
            "`sequences` needs the items in order of time: split them by 'last' or "
            "'time'."
        )
        _checks.require(self.in_order, rule, "a random split")
        items = tf.concat(parts, axis=1)
        counts = items.row_lengths()
        part_counts = parts[-1].row_lengths()
        users = np.flatnonzero((part_counts > 0) & (counts > 1))

        def inputs_and_next_items(users: Tensor) -> tuple[Tensor, Tensor]:
            latest = tf.gather(items, users)[:, -length - 1 :]
            dense = latest.to_tensor(-1, shape=[None, length + 1])
            next_items = dense[:, 1:]
            inputs = tf.where(next_items >= 0, dense[:, :-1], -1)
            # The position of each next item, counted from the part's first item.
            part_start = latest.row_lengths() - tf.gather(part_counts, users)
            positions = tf.range(1, length + 1, dtype=part_start.dtype)
            position = positions - part_start[:, tf.newaxis]
            return inputs, tf.where(position >= 0, next_items, -1)

        return _batched(users, batch_size, seed, inputs_and_next_items)


def _batched(
    users: np.ndarray, batch_size: int, seed: int | None, function: Callable
) -> tf.data.Dataset:
    """Applies a function to batches of users; a seed gives each epoch a new order."""
    batch_size = _checks.positive_int("batch_size", batch_size)
    dataset = tf.data.Dataset.from_tensor_slices(users)
    if seed is not None:
        dataset = dataset.shuffle(max(len(users), 1), seed=_checks.seed(seed))
    # There is nothing to tune here, and the tuning thread only delays the end of each
    # epoch.
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.batch(batch_size).map(function).prefetch(1).with_options(options)


def _read(path: PathLike) -> tuple[array, array, array]:
    """The user and the item of each pair in a file, and the timestamps if any."""
    users = array("i")
    items = array("i")
    times = array("q")
    formats = _possible_formats(path)
    with splits.opened(path) as lines:
        for line_number, line in enumerate(lines, 1):
            line = line.strip()
            matches = (x.fullmatch(line) for x in formats.values())
            match = next(filter(None, matches), None)
            if match is None:
                raise _line_error(path, line_number, line, formats)
            try:
                if match.re is _LINE_FORMATS[_ITEMS]:
                    ids = [*map(int, line.split())]
                    items.extend(ids)
                    users.extend([line_number] * len(ids))
                else:
                    user, item, *time = map(int, match.groups())
                    users.append(user)
                    items.append(item)
                    times.extend(time)
            except OverflowError:
                raise _line_error(path, line_number, line, formats) from None

            if line_number == 1:  # All lines must have the format of the first.
                formats = {name: x for name, x in formats.items() if x is match.re}
    return users, items, times


def _line_error(
    path: PathLike, number: int, line: str, formats: Iterable[str]
) -> ValueError:
    rule = f"{path}, line {number}: must be {' or '.join(formats)}, with ids below"
    received = f"{line[:80]!r}, of {len(line)} characters"
    return ValueError(f"{rule} 2**31. Received: {received}.")


def _possible_formats(path: PathLike) -> dict[str, re.Pattern]:
    """What the lines of a file may be."""
    with splits.opened(path) as lines:
        widths = collections.Counter(len(line.split()) for line in lines)
    formats = dict(_LINE_FORMATS)
    # A log may have a few broken lines, which are no lists of items either.
    if max(widths[3], widths[4]) > 0.9 * widths.total():
        del formats[_ITEMS]
    return formats


class _Pairs(NamedTuple):
    """A batch of pairs: ids that are int32 or strings, and timestamps if any."""

    user_ids: np.ndarray
    item_ids: np.ndarray
    timestamps: np.ndarray | None = None


class _Log(NamedTuple):
    """All pairs, with numbers in place of ids, and timestamps if any."""

    users: np.ndarray
    items: np.ndarray
    timestamps: np.ndarray | None
    user_ids: np.ndarray
    item_ids: np.ndarray

    @classmethod
    def of(cls, batches: Iterable, known_items: np.ndarray | None) -> Self:
        """Checks and numbers the pairs of batches; known items keep their numbers."""
        chunks = [_checked_pairs(batch) for batch in batches]
        if not chunks:
            raise ValueError(
                "`batches` must hold at least one batch of pairs. Received none."
            )
        timestamps = [x.timestamps for x in chunks if x.timestamps is not None]
        rule = "`batches` must hold timestamps in each batch or in none."
        received = f"{len(timestamps)} of {len(chunks)} with timestamps"
        _checks.require(len(timestamps) in (0, len(chunks)), rule, received)

        user_chunks = [x.user_ids for x in chunks]
        item_chunks = [x.item_ids for x in chunks]
        del chunks  # For its memory.
        user_ids, users = _distinct_and_numbers(user_chunks)
        item_ids, items = _distinct_and_numbers(item_chunks, known_items)
        times = np.concatenate(timestamps) if timestamps else None
        return cls(users, items, times, user_ids, item_ids)

    def without_repeats(self) -> Self:
        """Each pair once, in the order of the input; if any repeats, no timestamps."""
        pairs = self.users.astype(np.int64) * len(self.item_ids) + self.items
        _, first = np.unique(pairs, return_index=True)
        if len(first) == len(pairs):
            return self
        first.sort()
        return self._replace(
            users=self.users[first], items=self.items[first], timestamps=None
        )


def _split(
    log: _Log, split: str, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """The pairs by user, `[n]` indices; and of each pair the index in `_PARTS`."""
    size = len(log.users)
    part_of = np.zeros(size, np.int8)
    num_held_out = size // 10 * 2  # Half for validation, half for testing.
    if split == "random":
        by_user = np.lexsort((log.items, log.users))
        held_out = rng.permutation(size)[:num_held_out]
        part_of[held_out] = np.repeat([1, 2], num_held_out // 2)
        return by_user, part_of

    # Sorts by time are stable: pairs of equal times keep the order of the input.
    times = log.timestamps
    if times is None:
        times = np.zeros(size, np.int8)
    by_user = np.lexsort((times, log.users))
    if split == "time":
        held_out = np.argsort(times, kind="stable")[size - num_held_out :]
        part_of[held_out] = np.repeat([1, 2], num_held_out // 2)
    else:
        lengths = np.bincount(log.users)
        ends = np.repeat(np.cumsum(lengths), lengths)
        num_later = ends - np.arange(size) - 1
        is_held_out = (num_later < 2) & np.repeat(lengths >= 3, lengths)
        part_of[by_user] = np.where(is_held_out, 2 - num_later, 0)
    return by_user, part_of


def _checked_pairs(batch: Sequence) -> _Pairs:
    ids = [*map(splits.as_ids, batch[:2])]
    times = [*map(_as_times, batch[2:])]
    form = "`(user_ids, item_ids)` or `(user_ids, item_ids, timestamps)`"
    rule = f"`batches` must hold {form}: arrays of one length, ids integers or strings."
    are_ids = all(x.dtype.kind in "iuU" or not x.size for x in ids)
    columns = [*ids, *times]
    same_length = len({x.shape for x in columns}) == 1 and columns[0].ndim == 1
    is_right = len(columns) in (2, 3) and are_ids and same_length
    received = " and ".join(f"{x.dtype} of shape {x.shape}" for x in columns[:4])
    _checks.require(is_right, rule, received)

    for x in times:
        rule = "`batches` must hold timestamps that are finite numbers or dates."
        _checks.require(x.dtype.kind in "iufM" or not x.size, rule, f"{x.dtype}")
        invalid = x[~np.isfinite(x)]
        _checks.require(not invalid.size, rule, str(*invalid[:1]))
    return _Pairs(*[_in_32_bits("batches", x) for x in ids], *times)


def _in_32_bits(name: str, ids: np.ndarray) -> np.ndarray:
    """Integers as int32; strings as they are."""
    if ids.dtype.kind == "U":
        return ids
    rule = f"`{name}` must hold ids in [-2**31, 2**31), or strings."
    outside = ids[(ids < -(2**31)) | (ids >= 2**31)]
    _checks.require(not outside.size, rule, str(*outside[:1]))
    return ids.astype(np.int32)


def _as_times(column: Any) -> np.ndarray:
    # pandas gives dates with a time zone as objects, unless asked for dates in UTC.
    has_zone = hasattr(getattr(column, "dtype", None), "tz")
    times = np.asarray(column, "datetime64[ns]" if has_zone else None)
    dates = times.tolist() if times.dtype == object else []
    if not dates or not all(isinstance(x, datetime.date) for x in dates):
        return times
    for i, date in enumerate(dates):
        if getattr(date, "tzinfo", None):  # NumPy has no time zones.
            dates[i] = date.astimezone(datetime.UTC).replace(tzinfo=None)
    return np.array(dates, "datetime64[us]")


def _known(item_ids: Any) -> np.ndarray | None:
    """The ids of items whose numbers stay, if any."""
    if item_ids is None:
        return None
    ids = splits.as_ids(item_ids)
    rule = "`item_ids` must hold different ids, [n], like those of `batches`."
    is_right = ids.ndim == 1 and ids.dtype.kind in "iuU"
    _checks.require(is_right, rule, f"{ids.dtype} of shape {ids.shape}")
    _checks.require(len(np.unique(ids)) == len(ids), rule, "an id twice")
    return _in_32_bits("item_ids", ids)


def _numbers_of(ids: Any, distinct: np.ndarray) -> np.ndarray:
    """The index of each id among different ids."""
    ids = splits.as_ids(ids)
    if not ids.size:  # Of any dtype.
        return np.zeros(ids.shape, np.int64)
    rule = f"`ids` must be among the {len(distinct)} ids, {distinct.dtype}."
    is_kind = (ids.dtype.kind == "U") == (distinct.dtype.kind == "U")
    _checks.require(is_kind, rule, f"{ids.dtype}")
    order = np.argsort(distinct)
    places = np.searchsorted(distinct, ids, sorter=order)
    numbers = order.take(places, mode="clip")
    known = distinct[numbers] == ids
    _checks.require(np.all(known), rule, str(ids[~known][:1]))
    return numbers


def _distinct_and_numbers(
    chunks: list[np.ndarray], known: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Distinct ids, the known before the others, sorted; and the index of each id."""
    # Empties `chunks`.
    all_ids = chunks if known is None else [known, *chunks]
    kinds = {ids.dtype.kind for ids in all_ids if ids.size}
    rule = "`batches` must hold integers as ids in all batches, or strings in all."
    # NumPy would make strings of integers.
    _checks.require(len(kinds) < 2, rule, "both")
    ids = np.concatenate(chunks)
    chunks.clear()  # For its memory.
    distinct = np.unique(ids)
    if known is None:
        return distinct, np.searchsorted(distinct, ids).astype(np.int32)
    new = np.setdiff1d(distinct, known, assume_unique=True)
    distinct = np.append(known, new)
    return distinct, _numbers_of(ids, distinct).astype(np.int32)


def movielens(
    version: str = "latest-small", data_dir: PathLike | None = None, seed: int = 0
) -> UserItems:
    """Returns the MovieLens users with the films that they rated, whatever the rating.

    Pairs of a user and a film are split at random: 80 % for training and 10 % each for
    validation and testing. 20 million pairs need less than 4 GB.

    Source: F. M. Harper and J. A. Konstan, "The MovieLens Datasets", ACM TiiS, 2015,
    through TensorFlow Datasets, which downloads it on first use. The licence is for
    research. The Rankmax paper calls `"latest-small"` (610 users, 100,836 pairs)
    "Movielens 100k".

    Args:
        version: `"latest-small"`, `"100k"`, `"1m"`, `"20m"` or `"25m"`.
        data_dir: where TensorFlow Datasets keeps its data; None for its default.
        seed: seed of the split, in [0, 2**32).

    Example:
        >>> users = movielens(data_dir="data")  # doctest: +SKIP
        >>> features, class_ids = next(iter(users.batches("train")))  # doctest: +SKIP
    """
    _checks.one_of("version", version, ("latest-small", "100k", "1m", "20m", "25m"))
    _checks.seed(seed)
    tfds = splits.import_extra("tensorflow_datasets")
    fields = ("user_id", "movie_id")
    ratings = tfds.load(
        f"movielens/{version}-ratings",
        split="train",
        data_dir=data_dir,
        # TFDS takes several times longer to read ratings one by one.
        batch_size=65_536,
        decoders=tfds.decode.PartialDecoding(dict.fromkeys(fields, True)),
        shuffle_files=False,
    )
    batches = ratings.as_numpy_iterator()
    pairs = ([batch[field].astype(int) for field in fields] for batch in batches)
    return UserItems.from_pairs(pairs, seed)
