"""Lists of items per user: the split, the batches, MovieLens."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest

from rank4class_tf import data

PARTS = ["train", "validation", "test"]
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


def test_every_pair_is_in_one_part_and_counts_once(pairs):
    users = data.UserItems.from_pairs(np.split(pairs, 4, axis=1))
    parts = [as_pairs(users, part) for part in PARTS]
    assert [len(part) for part in parts] == [2400, 300, 300]
    assert set.union(*parts) == set(zip(*pairs.tolist(), strict=True))
    assert (users.num_users, users.num_items) == (50, 90)
    other = data.UserItems.from_pairs([pairs], seed=2)
    assert as_pairs(other, "test") != parts[2]
    twice = data.UserItems.from_pairs([pairs, pairs[:, ::-1]])
    assert [as_pairs(twice, part) for part in PARTS] == parts
    users = data.UserItems.from_pairs([([7, 7, 9], [30, 10, 10])])
    assert not list(users.batches("test", seed=1))  # It is empty.


@pytest.mark.parametrize("ragged", [False, True])
def test_batches(pairs, ragged):
    users = data.UserItems.from_pairs([pairs])
    lists = {part: getattr(users, part).to_list() for part in PARTS}
    for number, part in enumerate(PARTS):
        seen = []
        for features, class_ids in users.batches(part, batch_size=16, ragged=ragged):
            arrays = features["items"], features["exclude"], class_ids
            dense = [(x.to_tensor(-1) if ragged else x).numpy() for x in arrays]
            seen += [
                tuple([i for i in row if i >= 0] for row in rows)
                for rows in zip(*dense, strict=True)
            ]
        expected = [
            (lists["train"][u], sum((lists[p][u] for p in PARTS[:number]), []), lists[part][u])
            for u in range(50)
            if lists[part][u]
        ]
        assert sorted(seen) == sorted(expected)
        lengths = [len(class_ids) for _, _, class_ids in seen]
        assert lengths == sorted(lengths)


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.exists(), reason="the real data is not at ../shared/data")
@pytest.mark.filterwarnings("ignore")  # of tensorflow-datasets
def test_movielens(tmp_path):
    pytest.importorskip("tensorflow_datasets", reason="the extra `data` is not installed")
    # Fills the download cache of tensorflow-datasets, so that its builder needs no network.
    script, folder = SHARED / "prime_tfds_cache.py", tmp_path / "downloads"
    command = [sys.executable, script, SHARED / "raw", folder, "movielens"]
    subprocess.run(command, check=True, capture_output=True)
    users = data.movielens("latest-small", tmp_path)
    # 100,836 ratings by 610 users; 9,724 of the 9,742 films are rated.
    sizes = [getattr(users, part).flat_values.shape[0] for part in PARTS]
    assert sizes == [80_670, 10_083, 10_083]
    assert (users.num_users, users.num_items) == (610, 9724)
