"""Users and the items that they chose: `UserItems` and MovieLens."""

import dataclasses
import re
from array import array
from collections.abc import Callable, Iterable
from typing import Any, Self

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks
from rank4class_tf._types import PathLike, Tensor
from rank4class_tf.data import splits

_PARTS = ("train", "validation", "test")
_SPLITS = ("random", "last", "time")
# The lines of `UserItems.from_file`. The groups are the user, the item and the timestamp.
_ID = "([0-9]{1,10})"
_FORMS = {
    "`user::item::rating::timestamp`": re.compile(f"{_ID}::{_ID}::[0-9.]+::([0-9]{{1,18}})"),
    "`user item`": re.compile(f"{_ID}\\s+{_ID}"),
    "the item ids of one user": re.compile("[0-9]{1,10}(?:\\s+[0-9]{1,10})*"),
}


@dataclasses.dataclass(frozen=True)
class UserItems:
    """The items of each user in three parts, and batches of them.

    Attributes:
        train: ragged int32 `[num_users, None]`, the item numbers of each user for training.
        validation: the items for choosing a model, in the same form.
        test: the items for reporting results, in the same form.
        item_ids: `[num_items]`, the source's id of each item number.
        user_ids: `[num_users]`, the source's id of each row.
        in_order: whether the items of a user are in order of time, with repeated ones; else they
            are distinct and sorted by number.
    """

    train: tf.RaggedTensor
    validation: tf.RaggedTensor
    test: tf.RaggedTensor
    item_ids: np.ndarray
    user_ids: np.ndarray
    in_order: bool = False

    @property
    def num_items(self) -> int:
        """The number of items."""
        return len(self.item_ids)

    @property
    def num_users(self) -> int:
        """The number of users."""
        return len(self.user_ids)

    @classmethod
    def from_pairs(cls, batches: Iterable, seed: int = 0, split: str = "random") -> Self:
        """Splits pairs of a user and an item, at random into 80, 10 and 10 %, or by time.

        20 million pairs need at most some 1.5 GB.

        Args:
            batches: pairs of integer arrays `(user_ids, item_ids)` of equal length, with ids in
                [-2**31, 2**31), or triples `(user_ids, item_ids, timestamps)`, with finite numbers
                or dates. The ids that occur are numbered in their order.
            seed: seed of the random split, in [0, 2**32).
            split: `"random"`, where a repeated pair counts once; `"last"`, where the last item of
                each user is the test and the one before it is for validation, and users with fewer
                than three items only train; or `"time"`, where the latest tenth of all pairs is the
                test and the tenth before it is for validation. The last two sort the pairs by
                timestamp, if there are any, and keep repeated ones; ties keep their order.

        Example:
            >>> users = UserItems.from_pairs([([7, 7, 9], [30, 10, 10])])
            >>> users.num_users, users.num_items, users.item_ids
            (2, 2, array([10, 30], dtype=int32))
            >>> triples = [([7, 7, 7], [4, 5, 6], [300, 100, 200])]
            >>> users = UserItems.from_pairs(triples, split="last")
            >>> users.item_ids[users.test.values], users.item_ids[users.train.values]
            (array([4], dtype=int32), array([5], dtype=int32))
        """
        rng = np.random.default_rng(_checks.seed(seed))
        _checks.one_of("split", split, _SPLITS)
        columns: tuple[list[np.ndarray], list[np.ndarray]] = [], []
        timestamps: list[np.ndarray] = []
        for batch in batches:
            arrays = [np.asarray(numbers) for numbers in batch]
            are_ids = all(x.dtype.kind in "iu" or not x.size for x in arrays[:2])
            one_length = len({x.shape for x in arrays}) == 1 and arrays[0].ndim == 1
            rule = "`batches` must hold pairs of integer arrays of one length."
            received = " and ".join(f"{x.dtype} of shape {x.shape}" for x in arrays)
            _checks.require(len(arrays) in (2, 3) and are_ids and one_length, rule, received)
            for x in arrays[:2]:
                rule = "`batches` must hold ids in [-2**31, 2**31)."
                for wrong in x[(x < -(2**31)) | (x >= 2**31)][:1]:
                    raise ValueError(f"{rule} Received: {wrong}.")
            for x in arrays[2:]:
                rule = "`batches` must hold timestamps that are finite numbers or dates."
                _checks.require(x.dtype.kind in "iufM" or not x.size, rule, f"{x.dtype}")
                for wrong in x[~np.isfinite(x)][:1]:
                    raise ValueError(f"{rule} Received: {wrong}.")
            for column, ids in zip(columns, arrays, strict=False):
                column.append(ids.astype(np.int32))
            timestamps += arrays[2:]
        num_batches = len(columns[0])
        if not num_batches:
            raise ValueError("`batches` must hold at least one batch of pairs. Received none.")
        rule = "`batches` must hold timestamps in each batch or in none."
        received = f"{len(timestamps)} of {num_batches} with timestamps"
        _checks.require(len(timestamps) in (0, num_batches), rule, received)
        (user_ids, users), (item_ids, items) = map(_numbered, columns)

        if split == "random":
            pairs = users.astype(np.int64) * len(item_ids) + items
            _, first = np.unique(pairs, return_index=True)
            if len(first) < len(pairs):  # A repeated pair could be in training and in the test.
                first.sort()
                users, items = users[first], items[first]
            del pairs, first
            by_user = np.lexsort((items, users))
        else:
            # All sorts by time are stable: equal times leave the order that was given.
            times = np.concatenate(timestamps or [np.zeros(len(users), np.int8)])
            by_user = np.lexsort((times, users))

        part, tenth = np.zeros(len(users), np.int8), len(users) // 10
        if split == "last":
            lengths = np.bincount(users)
            later = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(users)) - 1
            held_out = (later < 2) & np.repeat(lengths >= 3, lengths)
            part[by_user] = np.where(held_out, 2 - later, 0)
        else:
            # Validation and test get a tenth each, of a random order or of the latest pairs.
            if split == "random":
                order = rng.permutation(len(users))[: 2 * tenth]
            else:
                order = np.argsort(times, kind="stable")[len(users) - 2 * tenth :]
            part[order[:tenth]] = 1
            part[order[tenth:]] = 2

        parts = []
        for number in range(3):
            rows = by_user[part[by_user] == number]
            lengths = np.bincount(users[rows], minlength=len(user_ids))
            parts.append(tf.RaggedTensor.from_row_lengths(items[rows], lengths))
        train, validation, test = parts
        return cls(train, validation, test, item_ids, user_ids, split != "random")

    @classmethod
    def from_file(cls, path: PathLike, split: str = "last") -> Self:
        """Reads the pairs of a text file, which may be packed as `.gz`, and splits them.

        The first line tells the form, one of three:

        - `user::item::rating::timestamp`, GroupLens's `ratings.dat`, whatever the rating.
        - `user item`, two ids, the pairs of a user in order of time (SASRec's files).
        - The ids of a user's items in order of time, other than two in the first line (gSASRec's
          files). A user's id is the number of the line, from 1.

        Args:
            path: the file, with ids in [0, 2**31).
            split: as in `from_pairs`; without timestamps, lines are in the order of time.
        """
        _checks.one_of("split", split, _SPLITS)
        pairs, times = (array("i"), array("i")), array("q")
        columns, forms = (*pairs, times), _FORMS
        with splits.opened(path, "utf-8-sig") as lines:
            for number, line in enumerate(lines, 1):
                line = line.strip()
                try:
                    match = next(filter(None, (form.fullmatch(line) for form in forms.values())))
                    if match.re.groups:
                        for column, digits in zip(columns, match.groups(), strict=False):
                            column.append(int(digits))
                    else:
                        pairs[1].extend(map(int, line.split()))
                        pairs[0].extend([number] * (len(pairs[1]) - len(pairs[0])))
                except (StopIteration, OverflowError):
                    rule = f"must be {' or '.join(forms)}, with ids below 2**31"
                    received = f"{line[:80]!r}, of {len(line)} characters"
                    message = f"{path}, line {number}: {rule}. Received: {received}."
                    raise ValueError(message) from None
                if number == 1:  # The first line leaves one of the forms.
                    forms = {name: form for name, form in forms.items() if form is match.re}
        _checks.require(pairs[0], f"{path}: must hold at least one line.", "an empty file")
        return cls.from_pairs([(*pairs, times) if times else pairs], split=split)

    def batches(
        self, part: str, batch_size: int = 128, ragged: bool = False, seed: int | None = None
    ) -> tf.data.Dataset:
        """Returns batches `(features, class_ids)` of the users that have an item in `part`.

        Features are a dictionary: `items`, the user's training items, and `exclude`, the items of
        earlier parts, which an evaluation must leave out. Class ids are the items in `part`.

        Args:
            part: `"train"`, `"validation"` or `"test"`.
            batch_size: users per batch, >= 1.
            ragged: whether lists are ragged tensors; else -1 pads them to the longest of a batch.
            seed: seed of a new order of users in each epoch; None sorts users by the length of
                their lists, shortest first, so that batches need little padding.
        """
        part = _checks.one_of("part", part, _PARTS)
        batch_size = _checks.positive_int("batch_size", batch_size)
        labels = getattr(self, part)
        exclude = {
            "train": self.train[:, :0],
            "validation": self.train,
            "test": tf.concat([self.train, self.validation], axis=1),
        }[part]
        lengths = labels.row_lengths().numpy()
        rows = np.argsort(lengths, kind="stable")[np.count_nonzero(lengths == 0) :]

        def features_and_labels(rows: Tensor) -> tuple[dict[str, Any], Any]:
            lists = [tf.gather(part, rows) for part in (self.train, exclude, labels)]
            if not ragged:
                lists = [part.to_tensor(default_value=-1) for part in lists]
            return {"items": lists[0], "exclude": lists[1]}, lists[2]

        return _batched(rows, batch_size, seed, features_and_labels)

    def sequences(
        self, part: str, length: int, batch_size: int = 128, seed: int | None = None
    ) -> tf.data.Dataset:
        """Returns batches `(inputs, next_items)` of item numbers, int32 `[batch, length]`.

        A row has the last `length + 1` items of a user up to the end of the part:
        `next_items[:, t]` comes after `inputs[:, t]`, and -1 pads both at the end. `next_items` is
        also -1 where the next item is in an earlier part, so that losses and metrics leave out that
        position. Users without a next item in the part are left out.

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
            (array([[ 0,  1,  2, -1]], dtype=int32), array([[-1, -1,  3, -1]], dtype=int32))
        """
        number = _PARTS.index(_checks.one_of("part", part, _PARTS))
        length = _checks.positive_int("length", length)
        batch_size = _checks.positive_int("batch_size", batch_size)
        rule = "`sequences` needs the items in order of time: split them by 'last' or 'time'."
        _checks.require(self.in_order, rule, "a random split")
        parts = [self.train, self.validation, self.test][: number + 1]
        items = tf.concat(parts, axis=1)
        counts, last_counts = items.row_lengths(), parts[-1].row_lengths()
        users = np.flatnonzero((last_counts > 0) & (counts > 1))

        def inputs_and_next_items(rows: Tensor) -> tuple[Tensor, Tensor]:
            last = tf.gather(items, rows)[:, -length - 1 :]
            dense = last.to_tensor(-1, shape=[None, length + 1])
            next_items = dense[:, 1:]
            inputs = tf.where(next_items >= 0, dense[:, :-1], -1)
            # The position of a next item, counted from the first of the part.
            first = last.row_lengths() - tf.gather(last_counts, rows)
            position = tf.range(1, length + 1, dtype=first.dtype) - first[:, tf.newaxis]
            return inputs, tf.where(position >= 0, next_items, -1)

        return _batched(users, batch_size, seed, inputs_and_next_items)


def _batched(
    rows: np.ndarray, batch_size: int, seed: int | None, function: Callable
) -> tf.data.Dataset:
    """A function's results for batches of rows, with a seed in a new order in each epoch."""
    users = tf.data.Dataset.from_tensor_slices(rows)
    if seed is not None:
        users = users.shuffle(max(len(rows), 1), seed=_checks.seed(seed))
    # There is nothing to tune here, and the tuning thread only delays the end of each epoch.
    options = tf.data.Options()
    options.autotune.enabled = False
    return users.batch(batch_size).map(function).prefetch(1).with_options(options)


def _numbered(chunks: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The distinct ids in order, and the number of each id in that order."""
    ids = np.concatenate(chunks)
    chunks.clear()
    distinct = np.unique(ids)
    return distinct, np.searchsorted(distinct, ids).astype(np.int32)


def movielens(
    version: str = "latest-small", data_dir: PathLike | None = None, seed: int = 0
) -> UserItems:
    """Returns the MovieLens users with the films that they rated, whatever the rating.

    Pairs of a user and a film are split at random: 80 % for training and 10 % each for validation
    and testing. 20 million pairs need less than 4 GB.

    Source: F. M. Harper and J. A. Konstan, "The MovieLens Datasets", ACM TiiS, 2015, through
    TensorFlow Datasets, which downloads it on first use. The licence is for research. The Rankmax
    paper calls `"latest-small"` (610 users, 100,836 pairs) "Movielens 100k".

    Args:
        version: `"latest-small"`, `"100k"`, `"1m"`, `"20m"` or `"25m"`.
        data_dir: where TensorFlow Datasets keeps its data; None for its default.
        seed: seed of the split, in [0, 2**32).

    Example:
        >>> users = movielens(data_dir="data")  # doctest: +SKIP
        >>> features, class_ids = next(iter(users.batches("train")))  # doctest: +SKIP
    """
    _checks.one_of("version", version, ("latest-small", "100k", "1m", "20m", "25m"))
    seed = _checks.seed(seed)
    tfds = splits.import_extra("tensorflow_datasets")
    fields = ("user_id", "movie_id")
    ratings = tfds.load(
        f"movielens/{version}-ratings",
        split="train",
        data_dir=data_dir,
        batch_size=65_536,  # TFDS takes several times longer to read ratings one by one.
        decoders=tfds.decode.PartialDecoding(dict.fromkeys(fields, True)),
        shuffle_files=False,
    )
    batches = ratings.as_numpy_iterator()
    pairs = ([batch[field].astype(int) for field in fields] for batch in batches)
    return UserItems.from_pairs(pairs, seed)
