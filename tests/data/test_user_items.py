"""Lists of items per user: the split, the batches, MovieLens."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest

from rank4class_tf import data

SHARED = pathlib.Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.fixture
def pairs(rng):
    """3,000 different pairs of 50 users and 90 items, with ids that do not start at 0."""
    chosen = rng.permutation(50 * 90)[:3000]
    return np.stack([100 + 2 * (chosen // 90), 7 + 3 * (chosen % 90)])


def as_pairs(users, part):
    lists = getattr(users, part)
    owners = users.user_ids[lists.value_rowids().numpy()]
    return set(
        zip(owners.tolist(), users.item_ids[lists.flat_values.numpy()].tolist(), strict=True)
    )


def test_every_pair_is_in_one_part(pairs):
    users = data.UserItems.from_pairs(np.split(pairs, 4, axis=1))
    parts = [as_pairs(users, part) for part in ("train", "validation", "test")]
    assert [len(part) for part in parts] == [2400, 300, 300]
    assert set.union(*parts) == set(zip(*pairs.tolist(), strict=True))
    assert (users.num_users, users.num_items) == (50, 90)


def test_a_pair_counts_once(pairs):
    twice = data.UserItems.from_pairs([pairs, pairs[:, ::-1]])
    once = data.UserItems.from_pairs([pairs])
    for part in ("train", "validation", "test"):
        assert as_pairs(twice, part) == as_pairs(once, part)


def test_parts_that_are_empty_have_no_batches():
    users = data.UserItems.from_pairs([([7, 7, 9], [30, 10, 10])])
    assert not list(users.batches("test", seed=1))


def test_the_split_follows_from_the_seed(pairs):
    first, again, other = (data.UserItems.from_pairs([pairs], seed) for seed in (1, 1, 2))
    assert as_pairs(first, "test") == as_pairs(again, "test") != as_pairs(other, "test")


@pytest.mark.parametrize("ragged", [False, True])
def test_batches(pairs, ragged):
    users = data.UserItems.from_pairs([pairs])
    lists = {part: getattr(users, part).to_list() for part in ("train", "validation", "test")}
    for part, earlier in (
        ("train", []),
        ("validation", ["train"]),
        ("test", ["train", "validation"]),
    ):
        seen = []
        for features, class_ids in users.batches(part, batch_size=16, ragged=ragged):
            dense = [
                (x.to_tensor(default_value=-1) if ragged else x).numpy()
                for x in (features["items"], features["exclude"], class_ids)
            ]
            seen += [
                tuple([i for i in row if i >= 0] for row in rows)
                for rows in zip(*dense, strict=True)
            ]
        expected = [
            (lists["train"][user], sum((lists[p][user] for p in earlier), []), lists[part][user])
            for user in range(50)
            if lists[part][user]
        ]
        assert sorted(seen) == sorted(expected)
        lengths = [len(class_ids) for _, _, class_ids in seen]
        assert lengths == sorted(lengths)


def test_training_order_is_new_each_epoch(pairs):
    batches = data.UserItems.from_pairs([pairs]).batches("train", batch_size=50, seed=0)
    (first,), (second,) = ([ids.numpy() for _, ids in batches] for _ in range(2))
    assert (first != second).any()
    np.testing.assert_array_equal(*(sorted(map(tuple, epoch)) for epoch in (first, second)))


def test_arguments_are_checked(pairs):
    users = data.UserItems.from_pairs([pairs])
    with pytest.raises(ValueError, match="`part` must be one of"):
        users.batches("dev")
    with pytest.raises(ValueError, match="`batch_size` must be a positive integer"):
        users.batches("test", batch_size=0)
    with pytest.raises(ValueError, match="`batches` must hold at least one"):
        data.UserItems.from_pairs([])
    with pytest.raises(ValueError, match="`version` must be one of"):
        data.movielens("2m")


def prime(folder):
    """Fills the download cache of tensorflow-datasets, so that its builder needs no network."""

    script = SHARED / "prime_tfds_cache.py"
    command = [sys.executable, script, SHARED / "raw", folder / "downloads", "movielens"]
    subprocess.run(command, check=True, capture_output=True)


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.exists(), reason="the real data is not at ../shared/data")
@pytest.mark.filterwarnings("ignore")  # of tensorflow-datasets
def test_movielens(tmp_path):
    pytest.importorskip("tensorflow_datasets", reason="the extra `data` is not installed")
    prime(tmp_path)
    users = data.movielens("latest-small", tmp_path)
    parts = [users.train, users.validation, users.test]
    # 100,836 ratings by 610 users; 9,724 of the 9,742 films are rated.
    assert [part.flat_values.shape[0] for part in parts] == [80_670, 10_083, 10_083]
    assert (users.num_users, users.num_items) == (610, 9724)


TWENTY_MILLION = """
import pathlib
import re
import numpy as np
from rank4class_tf import data

def batches():
    rng = np.random.default_rng(0)
    for _ in range(200):
        # Some users and films have many pairs, most have few, as in MovieLens 20M.
        yield [(n * rng.random(100_000) ** 2).astype(int) for n in (138_493, 26_744)]

users = data.UserItems.from_pairs(batches())
next(iter(users.batches("train", seed=0)))
# The peak of this process alone: getrusage counts the process that started it, too.
status = pathlib.Path("/proc/self/status").read_text()
print(int(re.search(r"VmHWM:\\s*(\\d+) kB", status)[1]) / 1e6)

# A pair counts once, and a tenth of them each is for validation and test.
distinct = len(np.unique(np.concatenate([u * 26_744 + i for u, i in batches()])))
counts = [getattr(users, part).flat_values.shape[0] for part in ("train", "validation", "test")]
tenth = distinct // 10
assert counts == [distinct - 2 * tenth, tenth, tenth], (counts, distinct)
"""


@pytest.mark.slow
@pytest.mark.skipif(not pathlib.Path("/proc/self/status").exists(), reason="needs Linux")
def test_twenty_million_pairs_need_less_than_4_gb():
    command = [sys.executable, "-c", TWENTY_MILLION]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert float(done.stdout) < 4


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (([1, 2], [3]), "arrays of one length. Received: int64 of shape \\(2,\\) and int64 of"),
        (([1], [2], [3]), "`batches` must hold pairs of integer arrays"),
        (([1.5], [3]), "`batches` must hold pairs of integer arrays .* float64"),
        ((["1"], [3]), "`batches` must hold pairs of integer arrays"),
        (([[1]], [[3]]), "`batches` must hold pairs of integer arrays"),
        (([1], [2**31]), "`batches` must hold ids in .* Received: 2147483648"),
        ((np.array([2**64 - 1], np.uint64), [3]), "`batches` must hold ids in "),
    ],
)
def test_pairs_are_checked(batch, message):
    """Ids were cut to 32 bits, and floating ones rounded, without a word."""
    with pytest.raises(ValueError, match=message):
        data.UserItems.from_pairs([([1], [2]), batch])
