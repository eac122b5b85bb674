"""The raw files of GoEmotions, on machines that have them."""

import csv
import pathlib
import re

RAW = pathlib.Path(__file__).resolve().parents[3] / "shared" / "data" / "raw"
FILES = {"train": "train.tsv", "validation": "dev.tsv", "test": "test.tsv"}
# TextVectorization strips these by default, and knows only ASCII letters and spaces, hence bytes.
PUNCTUATION = re.compile(rb"""[!"#$%&()*+,\-./:;<=>?@\[\\\]^_`{|}~']""")


def raw_comments(split):
    """The words and the labels, as a text, of each comment."""
    with open(RAW / FILES[split], encoding="utf-8", newline="") as lines:
        rows = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [
            (PUNCTUATION.sub(b"", text.encode().lower()).split(), labels)
            for text, labels, _ in rows
        ]
