"""Data that several tests read."""

from tests.data.conftest import data_dir

__all__ = ["data_dir"]
