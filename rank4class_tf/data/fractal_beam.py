"""FractalUsers, for more users than one process can expand; it needs the `beam` extra."""

from collections.abc import Callable
from typing import Any

import apache_beam as beam

from rank4class_tf import _checks
from rank4class_tf.data.fractal import FractalExpansion


class FractalUsers(beam.PTransform):
    """The users of a fractal expansion, made by all workers of a Beam pipeline.

    Args:
        load: a function without arguments that returns the `FractalExpansion`. Each worker calls it
            once, so that the ratings are read there and need not be sent.
        users_per_block: how many users one call makes, >= 1.

    Apply it to a pipeline. Output: pairs of a user's number, an int, and the user's sorted item
    numbers, an int32 array. Users without items have no pair. Each user is the same in every run.

    Example:
        >>> def load():
        ...     return data.fractal_expansion(data.movielens("20m"), num_pairs=979e6)
        >>> with beam.Pipeline() as pipeline:  # doctest: +SKIP
        ...     users = pipeline | FractalUsers(load)
        ...     lines = users | beam.MapTuple(lambda user, items: f"{user},{items.tolist()}")
        ...     lines | beam.io.WriteToText("users", num_shards=64)
    """

    def __init__(self, load: Callable[[], FractalExpansion], users_per_block: int = 1000) -> None:
        super().__init__()
        self.load = load
        self.users_per_block = _checks.positive_int("users_per_block", users_per_block)

    def expand(self, pipeline: Any) -> Any:
        """Makes the users, block by block."""
        return (
            pipeline
            | "All" >> beam.Create([None])
            | "Blocks" >> beam.ParDo(_Blocks(self.load, self.users_per_block))
            | "Spread" >> beam.Reshuffle()
            | "Users" >> beam.ParDo(_Users(self.load))
        )


class _Loaded(beam.DoFn):
    """Has the expansion on each worker."""

    def __init__(self, load):
        self._load = load

    def setup(self):
        self._expansion = self._load()


class _Blocks(_Loaded):
    def __init__(self, load, users_per_block):
        super().__init__(load)
        self._size = users_per_block

    def process(self, _):
        total = self._expansion.num_users
        for first in range(0, total, self._size):
            yield first, min(first + self._size, total)


class _Users(_Loaded):
    def process(self, block):
        first, last = block
        lists = self._expansion.users(first, last)
        for user, items in zip(range(first, last), lists, strict=True):
            if len(items):
                yield user, items.numpy()
