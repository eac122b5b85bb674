"""News articles of MIND."""

import os
import pathlib

import numpy as np

from rank4class_tf import _checks
from rank4class_tf.data import _splits, _text

_COLUMNS = 8
_SEPARATOR = " [SEP] "
_SOURCE = "https://msnews.github.io (MINDlarge_train, MINDlarge_dev and MINDlarge_test)"


def mind(path: str | os.PathLike, batch_size: int = 32, seed: int = 0) -> _splits.Splits:
    """Returns the news articles of MIND as text, with their categories as classes.

    Features are strings `[batch]`, the title and the abstract with `" [SEP] "` between them, or
    only the title if the article has no abstract; class ids are int64 `[batch]`. MIND splits its
    readers and not its articles, so we split the articles at random: 60 % for training and 20 %
    each for validation and testing. An article that is in several files counts once.

    Source: F. Wu et al., "MIND: A Large-scale Dataset for News Recommendation", ACL 2020. The files
    must be downloaded by hand, from https://msnews.github.io.

    Args:
        path: a `news.tsv`, or a folder, in which all files of this name are read, at any depth.
        batch_size: articles per batch, >= 1.
        seed: seed of the split and of the training order, in [0, 2**32).

    Returns:
        `Splits`; `class_names` are the categories in alphabetical order.

    Raises:
        FileNotFoundError: if `path` has no `news.tsv`.
        ValueError: if a line of a file is not one of MIND's or a number is out of range.

    Example:
        >>> splits = mind("MIND")  # doctest: +SKIP
        >>> texts, class_ids = next(iter(splits.train))  # doctest: +SKIP
    """
    batch_size = _checks.positive_int("batch_size", batch_size)
    seed = _checks.seed(seed)
    articles: dict[str, tuple[str, str]] = {}
    for file in _files(pathlib.Path(path)):
        for news_id, article in _read(file).items():
            if articles.setdefault(news_id, article)[0] != article[0]:
                raise ValueError(
                    "`path` must hold articles of one category each. Received: "
                    f"{news_id!r} of {articles[news_id][0]!r} and of {article[0]!r}, in "
                    f"{os.fspath(file)!r}."
                )
    if not articles:
        raise ValueError(
            f"`path` must hold articles. Received: {os.fspath(path)!r}, which has none."
        )
    categories = sorted({category for category, _ in articles.values()})
    index = {category: number for number, category in enumerate(categories)}
    # We sort by id, so that the split depends on nothing else.
    rows = [articles[news_id] for news_id in sorted(articles)]
    texts = np.array([text.encode() for _, text in rows], dtype=object)
    class_ids = np.array([index[category] for category, _ in rows])
    order = np.random.default_rng(seed).permutation(len(rows))
    ends = [round(0.6 * len(rows)), round(0.8 * len(rows))]
    return _splits.from_arrays(
        *((texts[part], class_ids[part]) for part in np.split(order, ends)),
        batch_size=batch_size,
        seed=seed,
        class_names=categories,
    )


def _files(path):
    """The files to read."""
    files = sorted(path.rglob("news.tsv")) if path.is_dir() else [path] if path.exists() else []
    if not files:
        raise FileNotFoundError(
            "`path` must be a news.tsv of MIND or a folder with such files, which come from "
            f"{_SOURCE}. Received: {os.fspath(path)!r}."
        )
    return files


def _read(file):
    """The category and the text of each article of a file, by its id."""
    articles = {}
    with _text.naming(file), open(file, encoding="utf-8-sig", newline="\n") as lines:
        for number, line in enumerate(lines, 1):
            fields = line.rstrip("\r\n").split("\t")
            if len(fields) != _COLUMNS:
                raise ValueError(
                    f"`path` must hold lines of {_COLUMNS} fields, separated by tabs: id, "
                    "category, subcategory, title, abstract, URL, entities of title and abstract. "
                    f"Received: {len(fields)} in line {number} of {os.fspath(file)!r}."
                )
            news_id, category, _, title, abstract, *_ = fields
            if not news_id or not category or news_id in articles:
                raise ValueError(
                    "`path` must hold articles with a category, and each id once in a file. "
                    f"Received: {news_id!r} of {category!r} in line {number} of "
                    f"{os.fspath(file)!r}."
                )
            articles[news_id] = category, _SEPARATOR.join(filter(None, (title, abstract)))
    return articles
