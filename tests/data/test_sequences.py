"""Items of users in order of time: splits, sequences, and the forms of files."""

import datetime
import gzip

import numpy as np
import pytest

from rank4class_tf import data

from ..refused import refused

PARTS = ("train", "validation", "test")


def ids(users):
    """The ids in each part, by the user's id."""
    lists = [getattr(users, part).to_list() for part in PARTS]
    of_users = zip(users.user_ids.tolist(), *lists, strict=True)
    return {
        user: [users.item_ids[row].tolist() for row in rows] for user, *rows in of_users
    }


def sequences(users, part, length, **options):
    """Rows of pairs of an input and a next item, without padding."""
    rows = []
    for inputs, next_items in users.sequences(part, length, **options):
        assert (inputs.dtype, next_items.dtype) == ("int32", "int32")
        assert inputs.shape[1:] == next_items.shape[1:] == [length]
        for row in np.stack([inputs, next_items], axis=2).tolist():
            filled = [pair for pair in row if pair[0] >= 0]
            assert row == filled + [[-1, -1]] * (length - len(filled))
            rows.append(filled)
    return rows


# Users 5, 8 and 9, items 10 to 14, and when. User 8 takes item 10 twice; item 14 comes
# at the time of item 12 and is given after it. User 9 has two items.
LOG = np.array(
    [
        *[(8, 10, 40), (8, 12, 30), (5, 13, 1), (8, 14, 30), (5, 11, 7)],
        *[(9, 11, 50), (8, 10, 20), (5, 10, 3), (5, 12, 2), (9, 13, 6)],
    ]
).T
LAST = {5: [[13, 12], [10], [11]], 8: [[10, 12], [14], [10]], 9: [[13, 11], [], []]}


def test_the_last_item_of_each_user_is_the_test():
    users = data.UserItems.from_pairs([LOG], split="last")
    assert ids(users) == LAST
    assert users.in_order and users.num_items == 5
    # In several batches, and with dates
    days = LOG[2].astype("datetime64[D]")
    batches = [
        (LOG[0, part], LOG[1, part], days[part])
        for part in (slice(0, 3), slice(3, None))
    ]
    assert ids(data.UserItems.from_pairs(batches, split="last")) == LAST
    # In order, without times
    in_order = LOG[:2, np.argsort(LOG[2], kind="stable")]
    assert ids(data.UserItems.from_pairs([in_order], split="last")) == LAST


UTC, INDIA = (datetime.timezone(datetime.timedelta(hours=h)) for h in (0, 5.5))


@pytest.mark.parametrize(
    "date_of",
    [
        lambda day, _: day.date(),
        lambda day, _: day,
        lambda day, _: day.replace(tzinfo=UTC),
        lambda day, i: day.replace(tzinfo=UTC).astimezone(INDIA if i % 2 else UTC),
    ],
    ids=["date", "datetime", "utc", "two zones"],
)
@pytest.mark.parametrize("form", ["list", "Series"])
def test_dates_of_python(date_of, form):
    start = datetime.datetime(2024, 1, 1)
    days = [start + datetime.timedelta(days=int(x)) for x in LOG[2]]
    dates = [date_of(day, i) for i, day in enumerate(days)]
    if form == "Series":
        dates = pytest.importorskip("pandas").Series(dates, dtype=object)
    batches = [(*LOG[:2], dates)]
    assert ids(data.UserItems.from_pairs(batches, split="last")) == LAST


def test_times_of_day_in_two_zones():
    noon = datetime.datetime(2024, 1, 1, 12, tzinfo=UTC)
    hour = datetime.timedelta(hours=1)
    times = [noon, (noon - hour).astimezone(INDIA), noon + hour]  # 16:30 there.
    users = data.UserItems.from_pairs([([1] * 3, [7, 8, 9], times)], split="last")
    assert ids(users) == {1: [[8], [7], [9]]}


@pytest.mark.parametrize("kind", [int, str])
def test_items_keep_their_numbers_when_the_log_grows(kind, tmp_path):
    def log(items, **options):
        of_users = [7] * len(items), list(map(kind, items))
        return data.UserItems.from_pairs([of_users], split="last", **options)

    old = log([30, 10, 20])
    assert old.item_ids.tolist() == [*map(kind, [10, 20, 30])]
    new = log([30, 15, 20, 1000, 5], item_ids=old.item_ids)
    # 10 is gone from the log, and keeps its number.
    expected = [10, 20, 30, *([5, 15, 1000] if kind is int else [1000, 15, 5])]
    assert new.item_ids.tolist() == [*map(kind, expected)]
    assert ids(new) == {7: [[*map(kind, [30, 15, 20])], [kind(1000)], [kind(5)]]}
    assert new.item_numbers(list(map(kind, [5, 30, 10]))).tolist() == [
        expected.index(x) for x in (5, 30, 10)
    ]
    assert log([30, 10, 20], item_ids=list(old.item_ids)).item_ids.tolist() == [
        *old.item_ids
    ]
    if kind is int:
        path = tmp_path / "log.txt"
        path.write_text("7 30\n7 15\n7 20\n7 1000\n7 5\n")
        of_file = data.UserItems.from_file(path, item_ids=old.item_ids)
        assert of_file.item_ids.tolist() == expected
        assert ids(of_file) == ids(new)


@pytest.mark.parametrize("dtype", ["object", "str", "category"])
@pytest.mark.parametrize("utc", [True, False])
@pytest.mark.parametrize("split", ["last", "time"])
def test_columns_of_strings_and_dates(dtype, utc, split):
    pd = pytest.importorskip("pandas")
    users, items = (pd.Series([f"no {x}" for x in row], dtype=dtype) for row in LOG[:2])
    dates = pd.Series(pd.to_datetime(LOG[2], unit="D", utc=utc))
    texts = data.UserItems.from_pairs([(users, items, dates)], split=split)
    numbers = data.UserItems.from_pairs([LOG], split=split)
    for part in PARTS:
        assert getattr(texts, part).to_list() == getattr(numbers, part).to_list()
    assert texts.item_ids.tolist() == [f"no {x}" for x in numbers.item_ids]
    assert texts.item_ids[texts.item_numbers(items)].tolist() == items.tolist()
    assert texts.user_ids[texts.user_numbers("no 8")] == "no 8"
    assert numbers.item_numbers([14, 10]).tolist() == [4, 0]
    assert texts.item_numbers([]).tolist() == numbers.item_numbers([]).tolist() == []


def test_the_latest_tenths_are_validation_and_test():
    # Of ten pairs, (9, 11) at 50 is the last, and (8, 10) at 40 the one before it.
    expected = {
        5: [[13, 12, 10, 11], [], []],
        8: [[10, 12, 14], [10], []],
        9: [[13], [], [11]],
    }
    assert ids(data.UserItems.from_pairs([LOG], split="time")) == expected
    in_order = LOG[:2, np.argsort(LOG[2], kind="stable")]
    assert ids(data.UserItems.from_pairs([in_order], split="time")) == expected
    few = data.UserItems.from_pairs([LOG[:, :9]], split="time")  # A tenth is no pair.
    assert few.train.flat_values.shape[0] == 9


def test_a_random_split_ignores_timestamps_and_has_no_sequences():
    users = data.UserItems.from_pairs([LOG], seed=3)
    assert ids(users) == ids(data.UserItems.from_pairs([LOG[:2]], seed=3))
    assert sum(len(part) for parts in ids(users).values() for part in parts) == 9
    with refused("`sequences` needs .* by 'last' or 'time'. Received: a r"):
        users.sequences("train", 3)


def test_sequences_pair_each_item_with_the_next():
    users = data.UserItems.from_pairs([LOG], split="last")
    # Item numbers are ids less 10.
    assert sequences(users, "train", 3) == [[[3, 2]], [[0, 2]], [[3, 1]]]
    assert sequences(users, "validation", 3) == [[[3, -1], [2, 0]], [[0, -1], [2, 4]]]
    test = [[[3, -1], [2, -1], [0, 1]], [[0, -1], [2, -1], [4, 0]]]
    assert sequences(users, "test", 3) == test
    assert sequences(users, "test", 5, batch_size=1) == test
    assert sequences(users, "test", 2) == [row[1:] for row in test]
    assert sequences(users, "test", 1) == [row[2:] for row in test]
    users = data.UserItems.from_pairs([(np.ones(40, int), np.arange(40))], split="time")
    # 32 items train, 4 are for validation, 4 for the test.
    assert sequences(users, "train", 2) == [[[29, 30], [30, 31]]]
    expected = [[33, -1], [34, -1], [35, 36], [36, 37], [37, 38], [38, 39]]
    assert sequences(users, "test", 6) == [expected]
    # A part may be all that a user has: its first item follows nothing.
    given = np.repeat([1, 2, 3], [16, 2, 2]), np.r_[:16, :2, :2]
    users = data.UserItems.from_pairs([given], split="time")
    assert (
        sequences(users, "validation", 4) == [[[0, 1]]] == sequences(users, "test", 4)
    )


def test_a_seed_gives_new_orders_of_users():
    pairs = (
        np.repeat(np.arange(50), 4),
        np.tile(np.arange(4), 50) + np.repeat(np.arange(50), 4),
    )
    users = data.UserItems.from_pairs([pairs], split="last")
    batches, again = (users.sequences("train", 3, seed=1) for _ in range(2))
    epochs = [[inputs.numpy().tolist() for inputs, _ in batches] for _ in range(2)]
    assert epochs[0] != epochs[1]
    assert [
        [inputs.numpy().tolist() for inputs, _ in again] for _ in range(2)
    ] == epochs
    assert sorted(sum(epochs[0], [])) == sorted(sum(epochs[1], []))


RATINGS = "".join(
    f"{user}::{item}::{n}::{time}\n" for n, (user, item, time) in enumerate(LOG.T)
)
BY_USER = LOG[:, np.lexsort((LOG[2], LOG[0]))]
PAIRS = "".join(f"{user} {item}\n" for user, item, _ in BY_USER.T)
TABS = RATINGS.replace("::", "\t")  # As MovieLens-100k's `u.data`.
HALVES = TABS.replace("\t", " ").replace(" 0 ", " 3.5 ")
TIMES = "".join(f"{user} {item} {time}\n" for user, item, time in LOG.T)
LISTS = "13 12 10 11\n10 12 14 10 \n13 11\n"
LOGS = [
    RATINGS,
    RATINGS.replace("\n", "\r\n"),
    TABS,
    HALVES,
    TIMES,
    TIMES.replace(" ", "\t"),
]
FORM = "must be `user::item::rating::timestamp`"


@pytest.mark.parametrize("content", [*LOGS, PAIRS, LISTS])
@pytest.mark.parametrize("name", ["log.dat", "log.txt.gz"])
def test_forms_of_files(content, name, tmp_path):
    pack = gzip.compress if name.endswith(".gz") else bytes
    (tmp_path / name).write_bytes(pack(content.encode()))
    found = ids(data.UserItems.from_file(tmp_path / name))
    number = {5: 1, 8: 2, 9: 3} if content is LISTS else {user: user for user in LAST}
    assert found == {number[user]: parts for user, parts in LAST.items()}
    assert not data.UserItems.from_file(tmp_path / name, split="random").in_order


@pytest.mark.parametrize(
    "content, message",
    [
        ("", "log.txt: must hold at least one line. Received: an empty file"),
        ("1,2\n", f"line 1: {FORM} or `user item` or the item ids"),
        ("1::2::5::9\n1::2::5\n", f"line 2: {FORM}, with ids below"),
        (
            "1 2\n\n",
            "log.txt, line 2: must be `user item`, .* Received: '', of 0 characters",
        ),
        (
            "1 2\n1 2 3\n",
            "line 2: must be `user item`, with ids below .* Received: '1 2 3'",
        ),
        (
            "1 2 3 4 5\n1 x 3\n",
            "line 2: must be the item ids of one user, with .*: '1 x 3'",
        ),
        # If most lines are of a log, another one is no list of items.
        ("1 2 3\n1 x 3\n", "line 2: must be `user item timestamp`, with .*: '1 x 3'"),
        (
            "1 2 5 99\n" * 12 + "1 3 99",
            "line 13: must be `user item rating timestamp`, .*'1 3 99'",
        ),
        (
            "1 3 99\n" + "1 2 5 99\n" * 12,
            "line 2: must be `user item timestamp`, .* '1 2 5 99'",
        ),
        ("1 2 3 4 5\n" + "1 2 5 99\n" * 12, "line 1: .*Received: '1 2 3 4 5'"),
        (
            "1\t2\t5\t99\n1\t3\t99\n",
            "line 2: must be `user item rating timestamp`, with",
        ),
        ("1\t2\t5\t99\t0\n1\t3\t4\t98\t0\n", "line 1: "),
        (
            "1 2 5\n1 3 10\n2 2 4\n",
            "must have timestamps.* not ratings.* Received: 10 as the latest",
        ),
        (
            "1 2\n1 2147483648\n",
            r"line 2: .* with ids below 2\*\*31. Received: '1 2147483648'",
        ),
        *((f"{line}\n", "line 1: ") for line in ("1 -2", "1_0 2", "٣ 2")),
    ],
)
def test_errors_of_files_name_the_line(content, message, tmp_path):
    (tmp_path / "log.txt").write_text(content, encoding="utf-8")
    with refused(message):
        data.UserItems.from_file(tmp_path / "log.txt")
