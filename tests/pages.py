"""Runs the Python examples of a Markdown page, one after the other, as a reader would.

`python pages.py` runs the examples of every page in `RUN` and README's program;
`scripts/release.sh` does so, too.
"""

import contextlib
import doctest
import io
import os
import pathlib
import re
import tempfile

from rank4class_tf import _keras

ROOT = pathlib.Path(__file__).parents[1]

# What is run as it stands. README.md and docs/extending.md have tests of their own, and
# so have the converters of docs/serving.md, in blocks of `python3`; others show
# excerpts, in blocks of `py`. What blocks of `pycon` print is so of Keras 3 alone.
RUN = [
    "docs/results/rankmax.md",
    "docs/results/sodeep.md",
    "docs/data.md",
    "docs/distribution.md",
    "docs/getting_started.md",
    "docs/heads.md",
    "docs/labels.md",
    "docs/large_output_spaces.md",
    "docs/losses.md",
    "docs/metrics.md",
    "docs/recipes.md",
    "docs/retrieval.md",
    "docs/sequences.md",
    "docs/serving.md",
]


def python_blocks(page, languages="python"):
    """A page's blocks in these languages: first line, code, next `text` or None."""
    text = (ROOT / page).read_text()
    form = rf"^```(?:{languages})\n(.*?)^```$(?:\n\n?```text\n(.*?)^```$)?"
    blocks = re.finditer(form, text, re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, m.start()) + 2, m[1], m[2]) for m in blocks]


LANGUAGES = "python|pycon" if _keras.KERAS_3 else "python"


def run(page, languages=LANGUAGES):
    """Runs blocks in one namespace and returns it; blocks with prompts are doctests."""
    namespace = {"__name__": "page"}
    for line, code, shown in python_blocks(page, languages):
        if ">>>" in code:
            _run_doctest(code, namespace, page, line)
        else:
            # Line numbers of errors are those of the page.
            run_block("\n" * (line - 1) + code, shown, namespace, page)
    return namespace


def run_block(code, shown, namespace, page):
    """Runs a block, which must print the page's lines, up to the first number."""
    with contextlib.redirect_stdout(io.StringIO()) as stream:
        exec(compile(code, ROOT / page, "exec"), namespace)
    assert_prints(shown or "", stream.getvalue(), page)


def assert_prints(shown, printed, place):
    """What is printed has the shown lines, in this order, up to a number or "..."."""
    found = map(_words, printed.splitlines())
    missing = [
        x for x in shown.splitlines() if x.strip(" .") and _words(x) not in found
    ]
    assert not missing, (place, missing, printed)


def _words(line):
    return re.split(r"[-+]?\.?\d|\.\.\.", line)[0].split()


def _run_doctest(code, namespace, page, line):
    test = doctest.DocTestParser().get_doctest(
        code, namespace, page, str(ROOT / page), line - 1
    )
    messages = []
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    runner = doctest.DocTestRunner(verbose=False, optionflags=flags)
    runner.run(test, out=messages.append, clear_globs=False)
    assert not messages, "".join(messages)
    namespace.update(test.globs)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for page in RUN:
            run(page)
            print(page)
        # The verdict that it prints can differ between processors.
        *_, (_, program, _) = python_blocks("README.md", "py")
        run_block(program, None, {"__name__": "page"}, "README.md")
        print("README.md")
