"""Runs that are made once and kept in files."""

import json
import pathlib
import time
import warnings
from collections.abc import Callable, Collection
from typing import Any

from rank4class_tf import _files


def cached(
    path: pathlib.Path,
    settings: dict[str, Any],
    make: Callable[[], dict[str, Any]],
    needs: Collection[str] = (),
    say: Callable[[str], Any] = print,
) -> dict[str, Any]:
    """A run from its file, or made now and put there.

    Args:
        path: the file.
        settings: what the run depends on, values that JSON knows; a file with others, or that
            cannot be read, is not used.
        make: a function that does the run and returns a dict.
        needs: keys that the run must have.
        say: takes a line about a run that was made.

    Returns:
        `settings`, also as a dict `depends_on`, what `make` returned and `cpu_seconds`, which it
        took.
    """
    settings = json.loads(json.dumps(settings))
    if path.exists():
        try:
            result = json.loads(path.read_text())
            # Of a run with fewer settings all could be among them.
            if result.get("depends_on") == settings and set(needs) <= result.keys():
                return result
        except (ValueError, AttributeError) as error:
            warnings.warn(f"{path} cannot be read and is made anew: {error!r}.", stacklevel=2)
    start = time.process_time()
    result = {**settings, **make(), "depends_on": settings}
    result["cpu_seconds"] = time.process_time() - start
    path.parent.mkdir(parents=True, exist_ok=True)
    _files.write_text(path, json.dumps(result))
    say(f"{path.stem}: {result['cpu_seconds']:.0f} CPU s")
    return result
