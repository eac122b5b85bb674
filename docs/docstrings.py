"""Makes reStructuredText of our docstrings: LaTeX between dollars, names between backticks."""

import inspect
import re

from docs import public

_TABLE = re.compile(r"^\|.*\|\n\|[-|]+\|\n((\|.*\|\n?)+)", re.MULTILINE)
_DISPLAY = re.compile(r"^( *)\$\$(.+?)\$\$(,?\.?)$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"\$([^$]+)\$(?=(\w?))")
_CODE = re.compile(r"(?<![`:])`([^`]+)`(?!`)(?=(\w?))")


def setup(app):
    """Connects the hooks; that of the docstrings comes before napoleon's."""
    app.connect("autodoc-process-docstring", _process_docstring, priority=400)
    app.connect("autodoc-process-signature", _process_signature)


def to_rst(text):
    """A docstring in reStructuredText; public names in backticks become links."""
    paragraphs = re.split(r"(\n[ ]*\n)", text)
    # An example stays as it is, up to the next empty line.
    return "".join(p if re.match(r"\s*>>>", _without_title(p)) else _prose(p) for p in paragraphs)


def _without_title(paragraph):
    return re.sub(r"\A\s*Examples?:\n", "", paragraph)


def _prose(text):
    def display(match):
        indent, formula, stop = match.groups()
        formula = " ".join(formula.split()) + stop
        return f"{indent}.. math:: {formula}\n"

    def inline(match):
        return f":math:`{' '.join(match[1].split())}`" + (r"\ " if match[2] else "")

    def code(match):
        name = " ".join(match[1].split())
        full = public.target(name)
        text = f":py:obj:`{name} <{full}>`" if full else f"``{name}``"
        return text + (r"\ " if match[2] else "")

    text = _DISPLAY.sub(display, _TABLE.sub(_list_table, text))
    parts = re.split(r"(^ *\.\. math::.*$)", text, flags=re.MULTILINE)
    return "".join(
        p if ".. math::" in p else _INLINE.sub(inline, _CODE.sub(code, p)) for p in parts
    )


def _list_table(match):
    rows = [line.strip("| ").split(" | ") for line in match[0].splitlines()]
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in (rows[0], *rows[2:]):
        lines += [
            f"   {'-' if place else '* -'} {cell}".replace("   - ", "     - ")
            for place, cell in enumerate(row)
        ]
    return "\n".join(lines) + "\n"


def _process_docstring(app, kind, name, obj, options, lines):
    text = "\n".join(lines)
    if kind == "class":
        arguments = _constructor_doc(obj)
        # Its first line says what the heading says.
        if "Args:" in arguments and "Args:" not in text and not _is_internal(obj):
            text += "\n\n" + arguments[arguments.index("Args:") :]
    lines[:] = to_rst(text).split("\n")


def _constructor_doc(cls):
    return "__init__" in vars(cls) and inspect.getdoc(vars(cls)["__init__"]) or ""


def _is_internal(cls):
    """Whether others make the objects of a class for the user."""
    return _constructor_doc(cls).startswith("Not for users")


def _process_signature(app, kind, name, obj, options, signature, return_annotation):
    if kind not in ("class", "function", "method") or kind == "class" and _is_internal(obj):
        return ("", None) if kind == "class" else None
    try:
        function = obj.__init__ if kind == "class" else obj
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None
    if parameters and parameters[0].name in ("self", "cls"):
        parameters = parameters[1:]
    plain = [p.replace(annotation=p.empty, default=_shown(p.default)) for p in parameters]
    return str(inspect.Signature(plain)), None


class _Name(str):
    __repr__ = str.__str__


def _shown(default):
    """The default; a function or a class by its name, an object of ours as it is written."""
    if inspect.isfunction(default) or inspect.isclass(default) and default is not inspect._empty:
        return _Name(default.__name__)
    return default
