"""Measures again the thresholds at which the package changes from one way to another.

    python -m scripts.benchmarks.thresholds --cases ops.ranks._LONG _tf.search._GROUP

Two values of a threshold force its two ways. A figure is the time of the first way ÷
the second, with the gradient where the package takes one; it should be below 1 at the
first shape, above 1 at the second. A way that gains less than a tenth should go. Limits
of memory are no cases: `_POSITIVES_AT_ONCE`, `_SCORES_PER_CHUNK`, `SEARCHED`,
`_CANDIDATES_PER_BLOCK`. A case runs in a process of its own. All take ten minutes;
`--quick` measures one.
"""

import functools
import importlib
import types
from typing import Any, NamedTuple

from scripts.benchmarks import harness

NEVER, ALWAYS = 0, 10**9


def on_cpu(classes):
    """The size of a block, as `CpuBlocks`; this program imports no TensorFlow."""
    return types.SimpleNamespace(classes=classes, scores=1 << 20)


class Threshold(NamedTuple):
    """The values that force both ways, and a shape at which each should be faster."""

    ways: tuple[Any, Any]
    of_first: tuple[int, ...]
    of_second: tuple[int, ...]


# Shapes are given as `threshold_cases` takes them.
CASES = {
    "_lists.positives.FEW_POSITIVES": Threshold(
        (ALWAYS, NEVER), (64, 1000, 8), (64, 1000, 64)
    ),
    "_lists.positives.SHORT": Threshold((ALWAYS, NEVER), (64, 100, 1), (64, 400, 1)),
    "_lists.positives._ITEMS_AT_ONCE": Threshold(
        (ALWAYS, NEVER), (64, 200, 20), (64, 1000, 64)
    ),
    "_lists.positives._BLOCK_ENTRIES": Threshold(
        (1024, 8192), (64, 1000, 1), (64, 1000, 400)
    ),
    "_tf.sizes.TRAINED": Threshold(
        (on_cpu(1024), on_cpu(256)),
        (64, 50_000, 1),
        (256, 50_000, 1),
    ),
    "_lists.classes._CLASSES_PER_USED": Threshold(
        (NEVER, ALWAYS),
        (16, 50_000, 1),
        (64, 2000, 3),
    ),
    "_tf.gather._WIDTHS_TO_SCATTER": Threshold(
        (range(10**9), range(0)),
        (64, 1000, 8),
        (64, 1000, 64),
    ),
    "_tf.search._MOST_COMPARED": Threshold(
        (ALWAYS, NEVER), (64, 1000, 8), (64, 1000, 64)
    ),
    "_tf.search._MIN_ITEMS_PER_PLACE": Threshold(
        (NEVER, ALWAYS),
        (64, 1000, 10),
        (64, 1000, 100),
    ),
    "_tf.search._GROUP": Threshold((64, 16_384), (64, 200_000, 100), (64, 20_000, 100)),
    "ops.ranks._LONG": Threshold((NEVER, ALWAYS), (64, 1000, 10), (64, 30, 10)),
    "ops.projections._TRIED": Threshold((15, 63), (64, 1000, 1), (64, 10_000, 1)),
    "ops.blocks._MANY_ENTRIES": Threshold(
        (NEVER, ALWAYS), (64, 1000, 512), (64, 1000, 32)
    ),
    "ops.blocks._FEWEST_FOR_EINSUM": Threshold(
        (ALWAYS, NEVER), (64, 2, 1), (64, 64, 1)
    ),
    "metrics.ranks._PLACES_PER_BLOCK": Threshold(
        (128, 2048), (64, 100, 1), (64, 20_000, 1)
    ),
    "layers.sampled._NEGATIVES_PER_MINED": Threshold(
        (ALWAYS, NEVER),
        (64, 1000, 64),
        (64, 10_000, 10),
    ),
}
# Ways that the package takes without a gradient.
CONSTANT = (
    "_MOST_COMPARED",
    "_MIN_ITEMS_PER_PLACE",
    "_GROUP",
    "_LONG",
    "_PLACES_PER_BLOCK",
)


def make(name):
    """The function of `threshold_cases` for a threshold."""
    from scripts.benchmarks import threshold_cases

    _, _, attribute = name.rpartition(".")
    return getattr(threshold_cases, attribute.strip("_").lower())


def measure(name, seconds):
    """The best times of both ways of a case at its shapes, in this process."""
    import tensorflow as tf

    module_name, _, attribute = name.rpartition(".")
    module = importlib.import_module(f"rank4class_tf.{module_name}")
    threshold = CASES[name]

    def times(function, *inputs):
        def step(*tensors):
            with tf.GradientTape() as tape:
                tape.watch(tensors)
                result = function(*tensors)
            if attribute in CONSTANT:
                return result
            return result, tape.gradient(result, tensors)

        def compiled(value, jit_compile):
            setattr(module, attribute, value)
            return harness.compiled(step, *inputs, jit_compile=jit_compile)

        def both(jit_compile):
            return [
                functools.partial(compiled, value, jit_compile)
                for value in threshold.ways
            ]

        return harness.by_mode(both, "time", seconds, ("", "_second"))

    shapes = (threshold.of_first, threshold.of_second)
    return {str(shape): times(*make(name)(*shape)) for shape in shapes}


def parser():
    """The command line."""
    quick = {"cases": ["_tf.search._MIN_ITEMS_PER_PLACE"], "seconds": 0.05}
    result = harness.parser(__spec__, __doc__, quick, seconds=1.0)
    result.add_names("--cases", CASES, "thresholds")
    return result


def measured(args):
    """Yields the table of each threshold."""
    for name in args.cases:
        result = harness.run(__spec__.name, args, name=name)
        rows = []
        for shape in (CASES[name].of_first, CASES[name].of_second):
            rows.append([" × ".join(map(str, shape)), *quotients(result, shape)])
        yield harness.Table(name, ["shape", *harness.MODES], rows, right=2)


def quotients(result, shape):
    """The cell of each mode: the time of the first way ÷ the second, or an error."""
    times = result.get(str(shape), {})
    cells = []
    for mode in harness.MODES:
        first = times.get(mode)
        quotient = harness.quotient(first, times.get(f"{mode}_second"))
        cells.append(quotient or result.get("error", str(first)))
    return cells


if __name__ == "__main__":
    harness.main(parser(), measure, measured)
