"""What the package lists as public: its modules, their names and members, where each is described.

A module's public names are those in its `__all__`; a module without one has all functions whose
names have no underscore.
"""

import ast
import functools
import importlib
import importlib.util
import inspect
import sys
import types
from pathlib import Path

PACKAGE = "rank4class_tf"

# Public, but imported only by those who have what it needs.
APART = {
    "rank4class_tf.data.elwc_beam": "apache_beam",
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
            full = full_name(module_name, module, name)
            result[f"{module_name}.{name}".removeprefix(f"{PACKAGE}.")] = full
            if result.setdefault(name, full) != full:
                several.add(name)
    return {name: full for name, full in result.items() if name not in several}


def target(text):
    """The full name of what is written in code, such as `losses.RankmaxLoss(k=1)`, or None."""
    name = text.partition("(")[0].removeprefix(f"{PACKAGE}.")
    # `evaluate` or `ranks` may be anything; `read_extreme_split` and `ops.ranks` are ours.
    is_a_word = name.isalpha() and name.islower()
    return None if is_a_word else links().get(name)


def full_name(module_name, module, name):
    """The name under which an object that a module has is described."""
    value = getattr(module, name)
    return f"{home(value) if callable(value) else module_name}.{name}"


def members(cls):
    """The public members that a class adds to Keras and to the public classes it stands on."""
    bases = inspect.getmro(cls)
    own, known = [], set()
    classes = set(_public_classes())
    for base in bases:
        if base is cls or base.__module__.startswith(PACKAGE) and base not in classes:
            own += [name for name in vars(base) if not name.startswith("_")]
        else:
            known.update(dir(base))
    found = dict.fromkeys(name for name in own if name not in known)
    kinds = (types.FunctionType, classmethod, staticmethod, property)
    return [name for name in found if isinstance(inspect.getattr_static(cls, name), kinds)]


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
            if not callable(value):
                if comment_of(module, name) is None:
                    missing.append(f"{module_name}.{name}")
                continue
            if not _own_docstring(value):
                missing.append(f"{module_name}.{name}")
            if inspect.isclass(value):
                missing += [
                    f"{module_name}.{name}.{member}"
                    for member in members(value)
                    if not inspect.getdoc(inspect.getattr_static(value, member))
                ]
    return missing


def _own_docstring(value):
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
