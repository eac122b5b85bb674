"""How many classes a block has: by the device, the rows of encodings and the classes.

Training, `evaluate` and `top_k` ask here.
"""

from typing import NamedTuple

import tensorflow as tf

from rank4class_tf._tf.shapes import larger, smaller
from rank4class_tf._types import Tensor

# On a GPU or TPU a block has an eighth of the classes.
_SHARE = 8

# Fewer scores, 64 MB, take less time than the launch of their kernels; more than the
# second number, 256 MB, save little time.
_FEWEST_SCORES = 1 << 24
MOST_SCORES = 1 << 26

# The rows of a block and their gradient take memory, too.
_MOST_CLASSES = 1 << 16

# Tensor cores and TPUs multiply tiles of so many columns.
_TILE = 128


class CpuBlocks(NamedTuple):
    """How large blocks are on a CPU at most, so that its cache holds them."""

    classes: int
    scores: int


# Scores of 256 examples take 1 MB a block. Blocks of 512 classes take a tenth longer,
# larger ones are no faster (100,000 classes of 64 numbers). With many rows, as the
# positions of sequences are, blocks have fewer classes.
TRAINED = CpuBlocks(classes=1024, scores=1 << 20)

# What a CPU takes for the rows of a batch: few fit in its cache whatever their number
# is, and a static size saves a graph the loop over a single block.
FEW_ROWS = 1

# A search keeps no gradient. For a batch of 256, scores of a block take 16 MB.
SEARCHED = CpuBlocks(classes=16_384, scores=1 << 22)


def device_type() -> str:
    """Where TensorFlow places operations by itself: "TPU", "GPU" or "CPU"."""
    kinds = [x for x in ("TPU", "GPU") if tf.config.list_logical_devices(x)]
    return kinds[0] if kinds else "CPU"


def block_size(
    device: str, rows: int | Tensor, num_classes: int, on_cpu: CpuBlocks = TRAINED
) -> int | Tensor:
    """How many classes a block has, in [1, K]; an int if the number of rows is one."""
    rows = larger(rows, 1)
    if device == "CPU":
        size = smaller(on_cpu.scores // rows, on_cpu.classes)
        return smaller(larger(size, 1), num_classes)
    size = larger(num_classes // _SHARE, _FEWEST_SCORES // rows)
    size = smaller(size, MOST_SCORES // rows)
    size = smaller(size, _MOST_CLASSES)
    return smaller(larger(size // _TILE, 1) * _TILE, num_classes)
