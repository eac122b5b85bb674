"""Data that several tests read."""

import shutil

import pytest

from tests.data.goemotions_files import FILES, RAW


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory):
    """A data directory of TensorFlow Datasets in which GoEmotions is already downloaded."""
    missing = [str(RAW / name) for name in FILES.values() if not (RAW / name).exists()]
    if missing:
        pytest.skip(f"the raw GoEmotions files are not at hand: {', '.join(missing)}")
    folder = tmp_path_factory.mktemp("tfds")
    manual = folder / "downloads" / "manual"
    manual.mkdir(parents=True)
    for name in FILES.values():
        shutil.copy(RAW / name, manual)
    return folder
