"""Runs the Python examples of a Markdown page, one after the other, as a reader would.

`python pages.py` runs the examples of every page in `RUN`; `scripts/release.sh` does so with the
installed wheel.
"""

import doctest
import os
import pathlib
import re
import tempfile

ROOT = pathlib.Path(__file__).parents[1]

# What is run as it stands. The page on TF-Ranking shows parts of examples/tfr_pipeline.py;
# docs/tf_ranking_examples.md and docs/extending.md have tests of their own.
RUN = [
    "README.md",
    "docs/approximate_search.md",
    "docs/data.md",
    "docs/distribution.md",
    "docs/getting_started.md",
    "docs/heads.md",
    "docs/index.md",
    "docs/labels.md",
    "docs/large_output_spaces.md",
    "docs/losses.md",
    "docs/metrics.md",
    "docs/recipes.md",
    "docs/retrieval.md",
    "docs/serving.md",
    "docs/papers/rank4class.md",
    "docs/papers/rankmax.md",
    "docs/papers/sodeep.md",
    "docs/papers/stochastic_negative_mining.md",
]

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def python_blocks(page):
    """The Python blocks of a page, each with the number of its first line."""
    text = (ROOT / page).read_text()
    return [(text.count("\n", 0, m.start()) + 2, m[1]) for m in _BLOCK.finditer(text)]


def run(page):
    """Runs the blocks in one namespace and returns it; blocks with prompts are doctests."""
    namespace = {"__name__": "page"}
    for line, code in python_blocks(page):
        if ">>>" in code:
            _run_doctest(code, namespace, page, line)
        else:
            # Line numbers of errors are those of the page.
            exec(compile("\n" * (line - 1) + code, ROOT / page, "exec"), namespace)
    return namespace


def _run_doctest(code, namespace, page, line):
    test = doctest.DocTestParser().get_doctest(code, namespace, page, str(ROOT / page), line - 1)
    messages = []
    runner = doctest.DocTestRunner(
        verbose=False, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    )
    runner.run(test, out=messages.append, clear_globs=False)
    assert not messages, "".join(messages)
    namespace.update(test.globs)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for page in RUN:
            run(page)
            print(page)
