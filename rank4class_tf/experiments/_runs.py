"""Runs that are made once and kept in files."""

import json
import pathlib
import time
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
        settings: what the run depends on; a file with others is not used.
        make: a function that does the run and returns a dict.
        needs: keys that the run must have.
        say: takes a line about a run that was made.

    Returns:
        `settings`, what `make` returned and `cpu_seconds`, which it took.
    """
    if path.exists():
        result = json.loads(path.read_text())
        if settings.items() <= result.items() and set(needs) <= result.keys():
            return result
    start = time.process_time()
    result = {**settings, **make()}
    result["cpu_seconds"] = time.process_time() - start
    path.parent.mkdir(parents=True, exist_ok=True)
    _files.write_text(path, json.dumps(result))
    say(f"{path.stem}: {result['cpu_seconds']:.0f} CPU s")
    return result
