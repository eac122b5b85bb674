"""The news articles of MIND as text, with their categories as classes."""

import os
import pathlib

import numpy as np

from rank4class_tf.data import splits

_COLUMNS = 8
_SEPARATOR = " [SEP] "
_SOURCE = "https://msnews.github.io (MINDlarge_train, MINDlarge_dev and MINDlarge_test)"


def mind(path: str | os.PathLike, batch_size: int = 32, seed: int = 0) -> splits.Splits:
    """Reads a `news.tsv`, or all files of this name in a folder, at any depth.

    Features are strings `[batch]`, the title and the abstract with `" [SEP] "` between them, or
    only the title if the article has no abstract; class ids are int64 `[batch]`. MIND splits its
    readers and not its articles, so we split the articles at random: 60 % for training and 20 %
    each for validation and testing. An article that is in several files counts once.

    Source: F. Wu et al., "MIND: A Large-scale Dataset for News Recommendation", ACL 2020. The files
    must be downloaded by hand, from https://msnews.github.io.
    """
    articles: dict[str, tuple[str, str]] = {}
    for file in _files(pathlib.Path(path)):
        articles = _read(file) | articles
    # We sort by id, so that the split depends on nothing else.
    rows = [articles[news_id] for news_id in sorted(articles)]
    texts = np.array([text.encode() for _, text in rows], dtype=object)
    categories, class_ids = np.unique([category for category, _ in rows], return_inverse=True)
    order = np.random.default_rng(seed).permutation(len(rows))
    ends = [round(0.6 * len(rows)), round(0.8 * len(rows))]
    return splits.from_arrays(
        *((texts[part], class_ids[part]) for part in np.split(order, ends)),
        batch_size=batch_size,
        seed=seed,
        class_names=categories.tolist(),
    )


def _files(path):
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
    with splits.opened(file, "utf-8-sig", newline="\n") as lines:
        for number, line in enumerate(lines, 1):
            fields = line.rstrip("\r\n").split("\t")
            if len(fields) != _COLUMNS:
                raise ValueError(
                    f"`path` must hold lines of {_COLUMNS} fields, separated by tabs: id, "
                    "category, subcategory, title, abstract, URL, entities of title and abstract. "
                    f"Received: {len(fields)} in line {number} of {os.fspath(file)!r}."
                )
            news_id, category, _, title, abstract, *_ = fields
            articles[news_id] = category, _SEPARATOR.join(filter(None, (title, abstract)))
    return articles
