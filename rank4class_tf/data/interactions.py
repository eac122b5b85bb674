"""Users and the items that they chose: `UserItems` and MovieLens."""

import dataclasses
from collections.abc import Iterable
from typing import Any, Self

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks
from rank4class_tf._types import PathLike, Tensor
from rank4class_tf.data import splits

_PARTS = ("train", "validation", "test")


@dataclasses.dataclass(frozen=True)
class UserItems:
    """The items of each user in three parts, and batches of them.

    Attributes:
        train: ragged int32 `[num_users, None]`, the item numbers of each user for training.
        validation: the items for choosing a model, in the same form.
        test: the items for reporting results, in the same form.
        item_ids: `[num_items]`, the source's id of each item number.
        user_ids: `[num_users]`, the source's id of each row.
    """

    train: tf.RaggedTensor
    validation: tf.RaggedTensor
    test: tf.RaggedTensor
    item_ids: np.ndarray
    user_ids: np.ndarray

    @property
    def num_items(self) -> int:
        """The number of items."""
        return len(self.item_ids)

    @property
    def num_users(self) -> int:
        """The number of users."""
        return len(self.user_ids)

    @classmethod
    def from_pairs(cls, batches: Iterable, seed: int = 0) -> Self:
        """Splits pairs of a user and an item at random into 80, 10 and 10 %.

        A repeated pair counts once. Only the ids are kept, as int32, so that 20 million pairs need
        at most some 1.5 GB.

        Args:
            batches: pairs of integer arrays `(user_ids, item_ids)` of equal length, with ids in
                [-2**31, 2**31). Those that occur are numbered in their order.
            seed: seed of the split, in [0, 2**32).

        Example:
            >>> users = UserItems.from_pairs([([7, 7, 9], [30, 10, 10])])
            >>> users.num_users, users.num_items, users.item_ids
            (2, 2, array([10, 30], dtype=int32))
        """
        rng = np.random.default_rng(_checks.seed(seed))
        columns: tuple[list[np.ndarray], list[np.ndarray]] = [], []
        for batch in batches:
            pair = [np.asarray(ids) for ids in batch]
            are_ids = [x.ndim == 1 and (x.dtype.kind in "iu" or not x.size) for x in pair]
            _checks.require(
                len(pair) == 2 and all(are_ids) and len(pair[0]) == len(pair[1]),
                "`batches` must hold pairs of integer arrays of one length.",
                " and ".join(f"{ids.dtype} of shape {ids.shape}" for ids in pair),
            )
            for column, ids in zip(columns, pair, strict=True):
                for wrong in ids[(ids < -(2**31)) | (ids >= 2**31)][:1]:
                    rule = "`batches` must hold ids in [-2**31, 2**31)."
                    raise ValueError(f"{rule} Received: {wrong}.")
                column.append(ids.astype(np.int32))
        if not columns[0]:
            raise ValueError("`batches` must hold at least one batch of pairs. Received none.")
        (user_ids, users), (item_ids, items) = map(_numbered, columns)

        pairs = users.astype(np.int64) * len(item_ids) + items
        _, first = np.unique(pairs, return_index=True)
        if len(first) < len(pairs):  # A repeated pair could be in training and in the test.
            first.sort()
            users, items = users[first], items[first]
        del pairs, first

        # Validation and test get a tenth of a random order each, training the rest.
        order, tenth = rng.permutation(len(users)), len(users) // 10
        part_of_pair = np.zeros(len(users), np.int8)
        part_of_pair[order[:tenth]] = 1
        part_of_pair[order[tenth : 2 * tenth]] = 2
        del order

        def lists(part: int) -> tf.RaggedTensor:
            chosen = part_of_pair == part
            users_of_part, items_of_part = users[chosen], items[chosen]
            by_user = np.lexsort((items_of_part, users_of_part))
            lengths = np.bincount(users_of_part, minlength=len(user_ids))
            return tf.RaggedTensor.from_row_lengths(items_of_part[by_user], lengths)

        return cls(lists(0), lists(1), lists(2), item_ids, user_ids)

    def batches(
        self, part: str, batch_size: int = 128, ragged: bool = False, seed: int | None = None
    ) -> tf.data.Dataset:
        """Returns batches `(features, class_ids)` of the users that have an item in `part`.

        Features are a dictionary: `items`, the user's training items, and `exclude`, the items of
        earlier parts, which an evaluation must leave out: none for `"train"`, the training items
        for `"validation"`, and training and validation items for `"test"`. Class ids are the items
        in `part`.

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
        users = tf.data.Dataset.from_tensor_slices(rows)
        if seed is not None:
            users = users.shuffle(max(len(rows), 1), seed=_checks.seed(seed))

        def lists(ragged_lists: tf.RaggedTensor, rows: Tensor) -> Tensor | tf.RaggedTensor:
            chosen = tf.gather(ragged_lists, rows)
            return chosen if ragged else chosen.to_tensor(default_value=-1)

        def features_and_labels(rows: Tensor) -> tuple[dict[str, Any], Any]:
            features = {"items": lists(self.train, rows), "exclude": lists(exclude, rows)}
            return features, lists(labels, rows)

        batched = users.batch(batch_size).map(features_and_labels)
        # There is nothing to tune here, and the tuning thread only delays the end of each epoch.
        options = tf.data.Options()
        options.autotune.enabled = False
        return batched.prefetch(1).with_options(options)


def _numbered(chunks: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The distinct ids in order, and the number of each id in that order."""
    ids = np.concatenate(chunks)
    chunks.clear()
    distinct = np.unique(ids)
    return distinct, np.searchsorted(distinct, ids).astype(np.int32)


_VERSIONS = ("latest-small", "100k", "1m", "20m", "25m")
# TFDS takes several times longer to read ratings one by one than in batches.
_READ_BATCH = 65_536


def movielens(
    version: str = "latest-small", data_dir: PathLike | None = None, seed: int = 0
) -> UserItems:
    """Returns the MovieLens users with the films that they rated, whatever the rating.

    Pairs of a user and a film are split at random: 80 % for training and 10 % each for validation
    and testing. We keep only the two numbers of each pair, so that 20 million pairs need less than
    4 GB.

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
    _checks.one_of("version", version, _VERSIONS)
    seed = _checks.seed(seed)
    tfds = splits.import_extra("tensorflow_datasets")
    fields = ("user_id", "movie_id")
    ratings = tfds.load(
        f"movielens/{version}-ratings",
        split="train",
        data_dir=data_dir,
        batch_size=_READ_BATCH,
        decoders=tfds.decode.PartialDecoding(dict.fromkeys(fields, True)),
        shuffle_files=False,
    )
    batches = ratings.as_numpy_iterator()
    pairs = ([batch[field].astype(int) for field in fields] for batch in batches)
    return UserItems.from_pairs(pairs, seed)
