"""MIND's articles, from small files in its format."""

import collections

import pytest

from rank4class_tf import data

CATEGORIES = ("sports", "news", "autos")
ENTITIES = '[{"Label": "A \\"name\\"", "Type": "P", "WikidataId": "Q1"}]'


def line(number, abstract="An abstract, with \"quotes\" and 'more'."):
    category = CATEGORIES[number % 3]
    fields = [f"N{number}", category, "sub", f"Title {number}", abstract]
    return "\t".join([*fields, f"https://assets.msn.com/{number}.html", ENTITIES, "[]"])


@pytest.fixture
def folder(tmp_path):
    """Two files with 50 articles, of which ten are in both."""
    for name, numbers in (("MINDsmall_train", range(30)), ("MINDsmall_dev", range(20, 50))):
        (tmp_path / name).mkdir()
        rows = [line(number, "" if number == 7 else f"Abstract {number}") for number in numbers]
        (tmp_path / name / "news.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return tmp_path


def read(dataset):
    return [
        (text.decode(), int(class_id))
        for texts, ids in dataset.as_numpy_iterator()
        for text, class_id in zip(texts, ids, strict=True)
    ]


def test_every_article_is_in_one_part_with_its_category(folder):
    splits = data.mind(folder, batch_size=8)
    assert splits.class_names == ("autos", "news", "sports")
    parts = [read(part) for part in (splits.train, splits.validation, splits.test)]
    assert [len(part) for part in parts] == [30, 10, 10]
    expected = {
        (
            f"Title {n}" if n == 7 else f"Title {n} [SEP] Abstract {n}",
            splits.class_names.index(CATEGORIES[n % 3]),
        )
        for n in range(50)
    }
    assert collections.Counter(sum(parts, [])) == collections.Counter(expected)


def test_one_file_reads_as_its_folder_and_the_seed_decides_on_the_split(folder):
    path = folder / "MINDsmall_dev"
    by_folder, by_file, other = (
        data.mind(path),
        data.mind(path / "news.tsv"),
        data.mind(path, seed=1),
    )
    assert set(read(by_folder.test)) == set(read(by_file.test)) != set(read(other.test))
    assert sum(len(read(getattr(by_file, p))) for p in ("train", "validation", "test")) == 30


def test_quotes_are_text(tmp_path):
    file = tmp_path / "news.tsv"
    file.write_text("\n".join(line(number) for number in range(5)), encoding="utf-8")
    splits = data.mind(str(file))
    texts = [text for part in (splits.train, splits.test) for text, _ in read(part)]
    assert all(text.endswith("[SEP] An abstract, with \"quotes\" and 'more'.") for text in texts)
    features, ids = splits.train.element_spec
    assert (features.dtype, ids.dtype) == ("string", "int64")


@pytest.mark.parametrize("name", ["", "elsewhere"])
def test_missing_files_say_where_to_get_them(tmp_path, name):
    with pytest.raises(FileNotFoundError, match=r"https://msnews.github.io .*Received: '.*'"):
        data.mind(tmp_path / name)


def test_a_byte_order_mark_and_categories_of_several_files(tmp_path):
    for name, encoding in (("a", "utf-8"), ("b", "utf-8-sig")):
        (tmp_path / name).mkdir()
        rows = [line(number) for number in range(10)]
        (tmp_path / name / "news.tsv").write_text("\n".join(rows) + "\n", encoding=encoding)
    splits = data.mind(tmp_path)
    assert sum(len(read(part)) for part in (splits.train, splits.validation, splits.test)) == 10
    changed = line(1).replace("news", "autos", 1) + "\n"
    (tmp_path / "b" / "news.tsv").write_text(changed, encoding="utf-8")
    with pytest.raises(ValueError, match="articles of one category each. Received: 'N1' of 'news'"):
        data.mind(tmp_path)
