"""TensorFlow Datasets, with errors that say where the files come from."""

import os
from typing import Any

from rank4class_tf.data import _splits


def load(name: str, *, data_dir: str | os.PathLike | None, source: str, **kwargs: Any) -> Any:
    """Returns what `tfds.load` returns.

    Args:
        name: a dataset of TensorFlow Datasets.
        data_dir: where it keeps its data; None for its default.
        source: what to fetch by hand, and from where, if the dataset cannot be downloaded.
        **kwargs: other arguments of `tfds.load`.

    Raises:
        ImportError: without tensorflow-datasets.
        FileNotFoundError: if the dataset is missing and cannot be downloaded.
    """
    tfds = _splits.import_extra("tensorflow_datasets")
    try:
        return tfds.load(name, data_dir=data_dir, **kwargs)
    # TFDS raises AssertionError if files to fetch by hand are missing, OSError if it is offline.
    except (AssertionError, OSError, tfds.download.DownloadError) as error:
        raise FileNotFoundError(
            f"`{name}` is not in data_dir={data_dir!r}, and TensorFlow Datasets cannot make it: "
            f"put {source} into the folder `downloads/manual` of the data directory. "
            f"Received: {error}"
        ) from error
