"""WriteELWC, for more lists than one process can convert; it needs the `beam` extra."""

from typing import Any

import apache_beam as beam

from rank4class_tf._types import PathLike
from rank4class_tf.data import elwc

__all__ = ["WriteELWC"]


class WriteELWC(beam.PTransform):
    """Writes lists, pairs for `elwc.serialize`, to `ExampleListWithContext` TFRecords.

    The files are `<path>-00000-of-0000N`, like those of `elwc.write`; Beam chooses the
    order.

    Args:
        path: the beginning of the files' names.
        num_shards: number of files N; 0 lets the runner choose.

    Example:
        >>> with beam.Pipeline() as pipeline:  # doctest: +SKIP
        ...     lists = pipeline | beam.Create([({"query": 1}, [{"label": 1.0}])])
        ...     lists | WriteELWC("train", num_shards=8)
    """

    def __init__(self, path: PathLike, num_shards: int = 0):
        super().__init__()
        self.path = str(path)
        self.num_shards = num_shards

    def expand(self, lists: Any) -> Any:
        return (
            lists
            | "Serialize" >> beam.MapTuple(elwc.serialize)
            | "Write" >> beam.io.WriteToTFRecord(self.path, num_shards=self.num_shards)
        )
