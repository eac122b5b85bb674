"""MovieLens: which users rated which films."""

import os

from rank4class_tf import _checks
from rank4class_tf.data import _splits, _user_items

_VERSIONS = ("latest-small", "100k", "1m", "20m", "25m")
# TFDS takes several times longer to read ratings one by one than in batches.
_READ_BATCH = 65_536


def movielens(
    version: str = "latest-small", data_dir: str | os.PathLike | None = None, seed: int = 0
) -> _user_items.UserItems:
    """Returns the MovieLens users with the films that they rated, whatever the rating.

    Pairs of a user and a film are split at random: 80 % for training, 10 % for validation and 10 %
    for testing. We stream them and keep only the two numbers of each pair, so that 20 million pairs
    need less than 4 GB.

    Source: F. M. Harper and J. A. Konstan, "The MovieLens Datasets", ACM TiiS, 2015, through
    TensorFlow Datasets, which downloads it on first use. The licence is for research. The Rankmax
    paper calls `"latest-small"` (610 users, 100,836 pairs) "Movielens 100k".

    Args:
        version: `"latest-small"`, `"100k"`, `"1m"`, `"20m"` or `"25m"`.
        data_dir: where TensorFlow Datasets keeps its data; None for its default.
        seed: seed of the split, in [0, 2**32).

    Returns:
        `UserItems`.

    Raises:
        ImportError: without tensorflow-datasets.
        ValueError: if `version` is unknown or `seed` is out of range.

    Example:
        >>> users = movielens(data_dir="data")  # doctest: +SKIP
        >>> features, class_ids = next(iter(users.batches("train")))  # doctest: +SKIP
    """
    _checks.one_of("version", version, _VERSIONS)
    seed = _checks.seed(seed)
    tfds = _splits.import_extra("tensorflow_datasets")
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
    return _user_items.UserItems.from_pairs(pairs, seed)
