"""Turns our docstrings into reStructuredText: LaTeX in dollars, code in backticks."""

import re

from sphinx.util import logging

_MARKUP = re.compile(
    # An example stays as it is, up to the next empty line.
    r"""(?P<example>^\ *>>>.*?(?=\n\ *\n|\Z))
    | ^(?P<indent>\ *)\$\$(?P<display>.+?)\$\$(?P<stop>,?\.?)$
    | \$(?P<math>[^$]+)\$(?=(?P<after_math>\w?))
    | (?<![`:])`(?P<code>[^`]+)`(?!`)(?=(?P<after_code>\w?))
    """,
    re.MULTILINE | re.DOTALL | re.VERBOSE,
)


def setup(app):
    """Connects the hook, which comes before napoleon's."""
    app.connect("autodoc-process-docstring", _process_docstring, priority=400)


def to_rst(text):
    """A docstring in reStructuredText."""
    return _MARKUP.sub(_marked, text)


def _marked(match):
    if match["example"]:
        return match[0]
    if match["display"]:
        return (
            f"{match['indent']}.. math:: {_one_line(match['display'])}{match['stop']}\n"
        )
    if match["math"]:
        return f":math:`{_one_line(match['math'])}`" + (
            r"\ " if match["after_math"] else ""
        )
    return f"``{_one_line(match['code'])}``" + (r"\ " if match["after_code"] else "")


def _one_line(text):
    return " ".join(text.split())


def _process_docstring(app, kind, name, obj, options, lines):
    if not any(lines):
        logging.getLogger(__name__).warning("%s has no docstring", name)
    lines[:] = to_rst("\n".join(lines)).split("\n")
