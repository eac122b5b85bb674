"""Writes the pages of the API from what the package lists as public; nothing is listed by hand.

A public name without a docstring is an error.
"""

import inspect

from docs import docstrings, public

# Titles of the pages of `ops`, a folder or module of the code each, where they are not its name.
TITLES = {
    "_lists": "Lists",
    "classes": "Scores of classes",
    "gains": "Gains and discounts",
    "ranking": "Ranks and sorting",
    "soft_metrics": "Soft metrics",
}


def write(folder):
    """Writes the pages, a module each, and one for each room of `ops`.

    Args:
        folder: where; files there that are no longer wanted go.

    Raises:
        ValueError: if a public name has no docstring.
    """
    if missing := public.undocumented():
        raise ValueError("Public names without a docstring: " + ", ".join(missing))
    folder.mkdir(exist_ok=True)
    pages = {"index": _index()}
    for name, module in public.modules().items():
        rooms = _rooms(name, module)
        if len(rooms) == 1:
            pages[name] = _page(name, module, public.public_names(module))
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
    names = public.public_names(module)
    if name != f"{public.PACKAGE}.ops":
        return {None: names}
    rooms: dict = {}
    for member in names:
        value = getattr(module, member)
        parts = getattr(value, "__module__", public.origin(module, member).__name__).split(".")
        folder = parts[1] if parts[1] == "_lists" else parts[2]
        rooms.setdefault(TITLES.get(folder, folder.capitalize()), []).append(member)
    return dict(sorted(rooms.items()))


def _title(text):
    return f"{text}\n{'=' * len(text)}\n"


def _module_doc(module):
    return docstrings.to_rst(inspect.getdoc(module))


def _index():
    """All public names with a line each, module by module."""
    modules = sorted(public.modules().items())
    lines = [
        _title("API reference"),
        "What is not listed here is internal and may change; see :doc:`/api_stability`.\n",
        ".. toctree::",
        "   :hidden:",
        "",
        *(f"   {name}" for name, _ in modules),
        "",
    ]
    for name, module in modules:
        own = [
            member
            for member in public.public_names(module)
            if public.full_name(name, module, member) == f"{name}.{member}"
        ]
        first = _module_doc(module).split("\n\n")[0]
        lines += [name, "-" * len(name), "", f"{first} :doc:`Details <{name}>`", ""]
        lines += _table(name, module, own)
    return "\n".join(lines)


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
    if not names:
        return []
    lines = [".. list-table::", "   :class: names", "   :widths: 1 2", ""]
    for name in names:
        value = getattr(module, name)
        doc = value.__doc__ if callable(value) else public.comment_of(module, name)
        first = docstrings.to_rst(" ".join(inspect.cleandoc(doc).split("\n\n")[0].split()))
        full = public.full_name(module_name, module, name)
        lines += [f"   * - :py:obj:`{name} <{full}>`", f"     - {first}"]
    return [*lines, ""]


def _entry(module_name, module, name):
    value = getattr(module, name)
    full = f"{module_name}.{name}"
    if full != public.full_name(module_name, module, name):
        return []
    if inspect.isclass(value):
        lines = [f".. autoclass:: {full}", ""]
        if value.__name__ != name:  # Another name of a class that has its own entry.
            return lines
        for member in public.members(value):
            is_property = isinstance(inspect.getattr_static(value, member), property)
            kind = "autoproperty" if is_property else "automethod"
            lines += [f"   .. {kind}:: {full}.{member}", ""]
        return lines
    if callable(value):
        return [f".. autofunction:: {full}", ""]
    text = str(value) if len(str(value)) < 200 else ""
    lines = [f".. py:data:: {full}"]
    if text:
        lines.append(f"   :value: {text}")
    return [*lines, "", f"   {docstrings.to_rst(public.comment_of(module, name))}", ""]
