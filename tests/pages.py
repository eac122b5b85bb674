"""Runs the Python examples of a Markdown page, one after the other, as a reader would."""

import doctest
import pathlib
import re

ROOT = pathlib.Path(__file__).parents[1]
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
