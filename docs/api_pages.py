"""Writes the pages of the API from what the package lists as public; nothing is listed by hand.

A module's public names are those in its `__all__`; a module without one has all functions whose
names have no underscore. A public name without a docstring is an error.
"""

import ast
import functools
import importlib
import importlib.util
import inspect
import sys
from pathlib import Path

PACKAGE = "rank4class_tf"

# Public, but imported only by those who have what it needs.
APART = {"rank4class_tf.data.elwc_beam": "apache_beam"}

ROOMS = {
    "_lists": "Lists",
    "losses": "Losses",
    "metrics": "Metrics",
    "ranking": "Ranks and sorting",
    "projections": "Projections",
    "sampling": "Sampling",
    "classes": "Scores of classes",
}


def modules():
    """The public modules, a dict of names to modules."""
    found = {}

    def add(name):
        found[name] = module = importlib.import_module(name)
        for member in sorted(set(getattr(module, "__all__", ())) & set(dir(module))):
            if inspect.ismodule(getattr(module, member)):
                add(f"{name}.{member}")

    add(PACKAGE)
    for name, needed in APART.items():
        if importlib.util.find_spec(needed):
            found[name] = importlib.import_module(name)
    return found


def public_names(module):
    """The names of what a module makes public, but for modules, in alphabetical order."""
    names = getattr(module, "__all__", None)
    if names is None:
        names = [
            name
            for name, value in vars(module).items()
            if not name.startswith("_")
            and (inspect.isfunction(value) or inspect.isclass(value))
            and value.__module__ == module.__name__
        ]
    # What cannot be used here is not in `dir`: TF-Ranking under Keras 3.
    names = [name for name in names if name in dir(module)]
    names = [name for name in names if not inspect.ismodule(getattr(module, name))]
    return sorted(names, key=str.lower)


@functools.cache
def home(value):
    """The public module on whose page an object is described: the one nearest to its code."""
    having = [
        name
        for name, module in modules().items()
        if any(getattr(module, member) is value for member in public_names(module))
    ]
    nearest = [name for name in having if value.__module__.startswith(name)]
    return max(nearest or having, key=len)


@functools.cache
def links():
    """Short and full public names -> full names; a short name that has several is left out."""
    result, several = {}, set()
    for module_name, module in modules().items():
        for name in public_names(module):
            full = _full(module_name, module, name)
            result[f"{module_name}.{name}".removeprefix(f"{PACKAGE}.")] = full
            if result.setdefault(name, full) != full:
                several.add(name)
    return {name: full for name, full in result.items() if name not in several}


def _full(module_name, module, name):
    value = getattr(module, name)
    return f"{home(value) if callable(value) else module_name}.{name}"


def members(cls):
    """The public members that a class adds to Keras and to the public classes it stands on."""
    bases = inspect.getmro(cls)
    own, known = [], set()
    public = set(_public_classes())
    for base in bases:
        if base is cls or base.__module__.startswith(PACKAGE) and base not in public:
            own += [name for name in vars(base) if not name.startswith("_")]
        else:
            known.update(dir(base))
    is_shown = lambda value: (  # noqa: E731
        inspect.isfunction(value) or isinstance(value, (classmethod, staticmethod, property))
    )
    found = dict.fromkeys(name for name in own if name not in known)
    return [name for name in found if is_shown(inspect.getattr_static(cls, name))]


@functools.cache
def _public_classes():
    values = [getattr(m, name) for m in modules().values() for name in public_names(m)]
    return [value for value in values if inspect.isclass(value)]


def undocumented():
    """Public names, and members of public classes, without a docstring."""
    missing = []
    for module_name, module in modules().items():
        if not inspect.getdoc(module):
            missing.append(module_name)
        for name in public_names(module):
            value = getattr(module, name)
            if not (inspect.isclass(value) or callable(value)):
                if comment_of(module, name) is None:
                    missing.append(f"{module_name}.{name}")
                continue
            if not vars_doc(value):
                missing.append(f"{module_name}.{name}")
            if inspect.isclass(value):
                missing += [
                    f"{module_name}.{name}.{member}"
                    for member in members(value)
                    if not inspect.getdoc(inspect.getattr_static(value, member))
                ]
    return missing


def vars_doc(value):
    """A docstring of an object's own, not that of a base."""
    return vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__


def comment_of(module, name):
    """The comment before a constant, None where there is none."""
    source = origin(module, name)
    lines = Path(source.__file__).read_text().splitlines()
    for node in ast.parse("\n".join(lines)).body:
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        if any(isinstance(t, ast.Name) and t.id == name for t in targets):
            comment, line = [], node.lineno - 2
            while line >= 0 and lines[line].startswith("#"):
                comment.insert(0, lines[line].lstrip("#: "))
                line -= 1
            return " ".join(comment) or None
    return None


def origin(module, name):
    """The module that assigns a name which another one imports."""
    for node in ast.parse(Path(module.__file__).read_text()).body:
        if isinstance(node, ast.ImportFrom) and any(
            (alias.asname or alias.name) == name for alias in node.names
        ):
            return sys.modules[node.module]
    return module


def write(folder):
    """Writes the pages, a module each, and one for each room of `ops`.

    Args:
        folder: where; files there that are no longer wanted go.

    Raises:
        ValueError: if a public name has no docstring.
    """
    if missing := undocumented():
        raise ValueError("Public names without a docstring: " + ", ".join(missing))
    folder.mkdir(exist_ok=True)
    pages = {"index": _index()}
    for name, module in modules().items():
        rooms = _rooms(name, module)
        if len(rooms) == 1:
            pages[name] = _page(name, module, public_names(module))
            continue
        pages[name] = _front(name, module, rooms)
        for room, names in rooms.items():
            pages[f"{name}.{_slug(room)}"] = _page(name, module, names, room)
    for path in folder.glob("*.rst"):
        if path.stem not in pages:
            path.unlink()
    for stem, text in pages.items():
        path = folder / f"{stem}.rst"
        # Sphinx reads anew what has changed.
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def _slug(room):
    return room.lower().replace(" ", "_")


def _rooms(name, module):
    names = public_names(module)
    if name != f"{PACKAGE}.ops":
        return {None: names}
    rooms = {title: [] for title in ROOMS.values()}
    for member in names:
        value = getattr(module, member)
        parts = getattr(value, "__module__", origin(module, member).__name__).split(".")
        rooms[ROOMS[parts[1] if parts[1] == "_lists" else parts[2]]].append(member)
    return rooms


def _title(text):
    return f"{text}\n{'=' * len(text)}\n"


def _module_doc(module):
    from docs import docstrings

    return docstrings.to_rst(inspect.getdoc(module), links())


def _index():
    rows = [f"   {name}" for name in sorted(modules())]
    return "\n".join(
        [
            _title("API reference"),
            "What is not here is internal and may change; see :doc:`/api_stability`.\n",
            ".. toctree::",
            "   :maxdepth: 1",
            "",
            *rows,
            "",
        ]
    )


def _front(name, module, rooms):
    pages = [f"   {room} <{name}.{_slug(room)}>" for room in rooms]
    return "\n".join(
        [_title(name), _module_doc(module), "", ".. toctree::", "   :maxdepth: 1", "", *pages, ""]
    )


def _page(name, module, names, room=None):
    lines = [_title(f"{name}: {room.lower()}" if room else name)]
    if not room:
        lines += [_module_doc(module), ""]
    lines += _table(name, module, names)
    for member in names:
        lines += _entry(name, module, member)
    return "\n".join(lines)


def _table(module_name, module, names):
    from docs import docstrings

    if not names:
        return []
    lines = [".. list-table::", "   :class: names", "   :widths: 1 2", ""]
    for name in names:
        value = getattr(module, name)
        doc = value.__doc__ if callable(value) else comment_of(module, name)
        first = docstrings.to_rst(" ".join(inspect.cleandoc(doc).split("\n\n")[0].split()), links())
        full = _full(module_name, module, name)
        lines += [f"   * - :py:obj:`{name} <{full}>`", f"     - {first}"]
    return [*lines, ""]


def _entry(module_name, module, name):
    value = getattr(module, name)
    full = f"{module_name}.{name}"
    if full != _full(module_name, module, name):
        return []
    if inspect.isclass(value):
        lines = [f".. autoclass:: {full}", ""]
        for member in members(value):
            is_property = isinstance(inspect.getattr_static(value, member), property)
            kind = "autoproperty" if is_property else "automethod"
            lines += [f"   .. {kind}:: {full}.{member}", ""]
        return lines
    if callable(value):
        return [f".. autofunction:: {full}", ""]
    text = str(value) if len(str(value)) < 200 else ""
    from docs import docstrings

    lines = [f".. py:data:: {full}"]
    if text:
        lines.append(f"   :value: {text}")
    return [*lines, "", f"   {docstrings.to_rst(comment_of(module, name), links())}", ""]
