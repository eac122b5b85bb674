"""The raw files of GoEmotions, where they are at hand."""

import csv
import pathlib
import re

RAW = pathlib.Path(__file__).resolve().parents[3] / "shared" / "data" / "raw"
FILES = {"train": "train.tsv", "validation": "dev.tsv", "test": "test.tsv"}
# What TextVectorization strips by default, and bytes: it knows ASCII letters and spaces alone.
PUNCTUATION = re.compile(rb"""[!"#$%&()*+,\-./:;<=>?@\[\\\]^_`{|}~']""")


def raw_comments(split):
    """The words and the labels, as a text, of each comment."""
    with open(RAW / FILES[split], encoding="utf-8", newline="") as lines:
        rows = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [
            (PUNCTUATION.sub(b"", text.encode().lower()).split(), labels)
            for text, labels, _ in rows
        ]
