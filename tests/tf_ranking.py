"""TF-Ranking as a reference, for tests that skip without it."""

import pytest

from rank4class_tf import tfr


def load_or_skip():
    """Returns the `tensorflow_ranking` module; skips the test or module without it."""
    try:
        return tfr.load()
    except ImportError as error:
        pytest.skip(str(error), allow_module_level=True)
