"""Measures again the thresholds at which the package changes from one way to another.

    python -m scripts.benchmarks.thresholds --cases ops.ranks._LONG _tf.search._GROUP

Two values of a threshold force its two ways. A figure is the time of the first way ÷
the second, with the gradient where the package takes one; it should be below 1 at the
first shape, above 1 at the second. A way that gains less than a tenth should go. A case
runs in a process of its own. All take ten minutes; `--quick` measures one.

These thresholds are no cases:

- limits of memory: `_POSITIVES_AT_ONCE`, `_SCORES_PER_CHUNK`, `SEARCHED`,
  `_CANDIDATES_PER_BLOCK`
- those of eager mode, which is not measured here: `ops.ranks._COMPILED_FROM`,
  `_lists.positives._EAGER_BLOCK_ENTRIES`
- those of a weight's checksum, which needs large variables: `_tf.checksums._MOST_WORDS`
  and `_READ_AT_ONCE`
"""

import functools
import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from rank4class_tf import layers, losses, metrics, ops
from rank4class_tf._lists import labels
from rank4class_tf._tf import gather, search, sizes
from scripts.benchmarks import harness

NEVER, ALWAYS = 0, 10**7  # Its products with numbers of classes are int32.
# The second of the ways, beside the first, which is the case.
SECOND = "second"
WIDTH = 64  # Of encodings.
RNG = np.random.default_rng(0)


def normal(*size):
    """Normal numbers of some shape."""
    return tf.constant(RNG.normal(size=size), tf.float32)


def drawn_ids(batch, n, m):
    """Distinct ids `[batch, m]` of n items."""
    order = np.argsort(RNG.random((batch, n)), axis=1)
    return tf.constant(order[:, :m], tf.int32)


def drawn_relevance(batch, n):
    """Relevance `[batch, n]`; a sixth of the items is positive."""
    return tf.nn.relu(normal(batch, n) - 1)


def over_classes(encodings, n):
    """A function from encodings to the lists of all n classes."""
    head = layers.DotProductHead(n)
    head(encodings)
    return head.over_classes


class Threshold(NamedTuple):
    """A threshold of the package.

    Attributes:
        make: a function of a number of lists, of items, and of positives or of what the
            threshold compares, to a function and its inputs.
        ways: the values that force both ways.
        shapes: the arguments of `make` at which each way should be faster.
        constant: whether the package takes these ways without a gradient.
    """

    make: Callable[[int, int, int], Any]
    ways: tuple[Any, Any]
    shapes: tuple[tuple[int, int, int], tuple[int, int, int]]
    constant: bool


CASES: dict[str, Threshold] = {}


def threshold(name, ways, *shapes, constant=False):
    """Adds a function as the `make` of a threshold, by the name of its attribute."""

    def add(make):
        CASES[name] = Threshold(make, ways, shapes, constant)
        return make

    return add


@threshold(
    "_lists.positives.FEW_POSITIVES", (ALWAYS, NEVER), (64, 1000, 8), (64, 1000, 64)
)
def few_positives(batch, n, m):
    """`_lists.positives.FEW_POSITIVES`."""
    ids = drawn_ids(batch, n, m)

    def violations(scores):
        return ops.as_lists(scores, ids).sum_of_violations(1.0)

    return violations, normal(batch, n)


@threshold("_lists.positives.SHORT", (ALWAYS, NEVER), (64, 100, 1), (64, 400, 1))
def short(batch, n, m):
    """`_lists.positives.SHORT`."""
    loss = functools.partial(losses.RankmaxLoss(), drawn_relevance(batch, n))
    return loss, normal(batch, n)


@threshold(
    "_lists.positives._ITEMS_AT_ONCE", (ALWAYS, NEVER), (64, 200, 20), (64, 1000, 64)
)
def items_at_once(batch, n, m):
    """`_lists.positives._ITEMS_AT_ONCE`."""
    ids = drawn_ids(batch, n, m)
    return lambda scores: ops.sigmoid_ranks(scores, ids), normal(batch, n)


@threshold(
    "_lists.positives._BLOCK_ENTRIES", (1024, 8192), (64, 1000, 1), (64, 1000, 400)
)
def block_entries(batch, n, m):
    """`_lists.positives._BLOCK_ENTRIES`."""
    relevance = tf.reduce_sum(tf.one_hot(drawn_ids(batch, n, m), n), axis=1)
    return functools.partial(losses.RankmaxLoss(), relevance), normal(batch, n)


@threshold("_lists.positives._PASSES", (ALWAYS, NEVER), (64, 200, 4), (4, 200, 20))
def passes(batch, n, m):
    """`_lists.positives._PASSES`."""
    return items_at_once(batch, n, m)


@threshold(
    "_tf.sizes.TRAINED",
    (sizes.CpuBlocks(1024, 1 << 20), sizes.CpuBlocks(256, 1 << 20)),
    (64, 50_000, 1),
    (256, 50_000, 1),
)
def trained(batch, n, m):
    """`_tf.sizes.TRAINED`."""
    ids = drawn_ids(batch, n, m)
    encodings = normal(batch, WIDTH)
    over = over_classes(encodings, n)
    return lambda x: losses.SoftmaxLoss()(ids, over(x)), encodings


@threshold(
    "_lists.classes._CLASSES_PER_USED", (NEVER, ALWAYS), (16, 50_000, 1), (64, 2000, 3)
)
def classes_per_used(batch, n, m):
    """`_lists.classes._CLASSES_PER_USED`."""
    ids = drawn_ids(batch, n, m)
    encodings = normal(batch, WIDTH)
    over = over_classes(encodings, n)
    return lambda x: losses.RankmaxLoss()(ids, over(9 * x)), encodings


@threshold(
    "_tf.gather._WIDTHS_TO_SCATTER",
    (range(10**9), range(0)),
    (64, 1000, 8),
    (64, 1000, 64),
)
def widths_to_scatter(batch, n, m):
    """`_tf.gather._WIDTHS_TO_SCATTER`."""
    ids = drawn_ids(batch, n, m)
    return lambda scores: gather.gather(scores, ids), normal(batch, n)


@threshold(
    "_tf.search._MOST_COMPARED",
    (ALWAYS, NEVER),
    (64, 1000, 8),
    (64, 1000, 64),
    constant=True,
)
def most_compared(batch, n, m):
    """`_tf.search._MOST_COMPARED`."""
    return search.searchsorted, tf.sort(normal(batch, m)), normal(batch, n)


@threshold(
    "_tf.search._MIN_ITEMS_PER_PLACE",
    (NEVER, ALWAYS),
    (64, 1000, 10),
    (64, 1000, 100),
    constant=True,
)
def min_items_per_place(batch, n, m):
    """`_tf.search._MIN_ITEMS_PER_PLACE`."""
    return lambda scores: search.top_k(scores, m), normal(batch, n)


@threshold(
    "_tf.search._GROUP",
    (64, 16_384),
    (64, 200_000, 100),
    (64, 20_000, 100),
    constant=True,
)
def group(batch, n, m):
    """`_tf.search._GROUP`."""

    def best_by_blocks(encodings, table):
        def scores(rows):
            return encodings @ tf.transpose(tf.gather(table, rows))

        block_size = search.search_block(encodings, n)
        best, _ = search.top_k_by_blocks(scores, n, m, block_size)
        return best

    return best_by_blocks, normal(batch, WIDTH), normal(n, WIDTH)


@threshold(
    "ops.ranks._LONG", (NEVER, ALWAYS), (64, 1000, 10), (64, 30, 10), constant=True
)
def long(batch, n, m):
    """`ops.ranks._LONG`."""
    relevance = drawn_relevance(batch, n)

    def tied_of_leading(scores):
        parsed = labels.parse(relevance, scores, label_format="relevance")
        return ops.ranks.over_ranks(
            lambda r: r.tied[:, 0], parsed, tf.float32, m, "leading"
        )

    return tied_of_leading, normal(batch, n)


@threshold(
    "ops.ranks._ONE_BY_ONE",
    (ALWAYS, NEVER),
    (64, 10_000, 32),
    (64, 1000, 400),
    constant=True,
)
def one_by_one(batch, n, m):
    """`ops.ranks._ONE_BY_ONE`."""
    ids = drawn_ids(batch, n, m)
    return lambda scores: ops.expected_ranks(scores, ids), normal(batch, n)


@threshold("ops.projections._TRIED", (15, 63), (64, 1000, 1), (64, 10_000, 1))
def tried(batch, n, m):
    """`ops.projections._TRIED`."""
    ids = drawn_ids(batch, n, m)
    return lambda scores: losses.SparsemaxLoss()(ids, 9 * scores), normal(batch, n)


@threshold("ops.projections._TRIED_BY_BLOCKS", (63, 15), (64, 20_000, 1), (64, 1000, 1))
def tried_by_blocks(batch, n, m):
    """`ops.projections._TRIED_BY_BLOCKS`."""
    ids = drawn_ids(batch, n, m)
    encodings = normal(batch, WIDTH)
    over = over_classes(encodings, n)
    return lambda x: losses.SparsemaxLoss()(ids, over(3 * x)), encodings


@threshold("ops.blocks._MANY_ENTRIES", (NEVER, ALWAYS), (64, 1000, 512), (64, 1000, 32))
def many_entries(batch, n, m):
    """`ops.blocks._MANY_ENTRIES`."""
    inputs = normal(batch, m), normal(n, m), normal(m, 32)
    return ops.blocks.latent_cross, *inputs


@threshold("ops.blocks._FEWEST_FOR_EINSUM", (ALWAYS, NEVER), (64, 2, 1), (64, 64, 1))
def fewest_for_einsum(batch, n, m):
    """`ops.blocks._FEWEST_FOR_EINSUM`."""
    return ops.blocks.dot_products, normal(batch, WIDTH), normal(batch, n, WIDTH)


@threshold(
    "metrics.ranks._PLACES_PER_BLOCK",
    (128, 2048),
    (64, 100, 1),
    (64, 20_000, 1),
    constant=True,
)
def places_per_block(batch, n, m):
    """`metrics.ranks._PLACES_PER_BLOCK`."""
    reciprocal_rank = metrics.MRR()

    def reciprocal_of_best(tied):
        best = ops.ranks.BestPositive(
            above=0 * tied,
            tied=tied,
            num_positives=0 * tied + 2,
            num_items=tied,
            max_items=n,
            max_positives=2,
        )
        return reciprocal_rank.compute_at(best, None)

    return reciprocal_of_best, tf.fill([batch], float(n))


@threshold(
    "layers.sampled._NEGATIVES_PER_MINED",
    (ALWAYS, NEVER),
    (64, 1000, 64),
    (64, 10_000, 10),
)
def negatives_per_mined(batch, n, m):
    """`layers.sampled._NEGATIVES_PER_MINED`."""
    ids = drawn_ids(batch, n, 1)
    encodings = normal(batch, WIDTH)
    sampled = layers.SampledScores(2 * n, num_sampled=n, seed=1)
    sampled(encodings)
    return lambda x: sampled(x, ids, num_mined=m), encodings


def measure(name, seconds):
    """The best times of both ways of a case at its shapes, in this process."""
    module_name, _, attribute = name.rpartition(".")
    module = importlib.import_module(f"rank4class_tf.{module_name}")
    case = CASES[name]

    def times(function, *inputs):
        def step(*tensors):
            with tf.GradientTape() as tape:
                tape.watch(tensors)
                result = function(*tensors)
            if case.constant:
                return result
            return result, tape.gradient(result, tensors)

        def compiled(value, jit_compile):
            setattr(module, attribute, value)
            return harness.compiled(step, *inputs, jit_compile=jit_compile)

        def both(jit_compile):
            first, second = case.ways
            return {
                harness.CASE: functools.partial(compiled, first, jit_compile),
                SECOND: functools.partial(compiled, second, jit_compile),
            }

        return harness.by_mode(both, "time", seconds)

    return {str(shape): times(*case.make(*shape)) for shape in case.shapes}


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
        for shape in CASES[name].shapes:
            rows.append([" × ".join(map(str, shape)), *quotients(result, shape)])
        yield harness.Table(name, ["shape", *harness.MODES], rows, right=2)


def quotients(result, shape):
    """The cell of each mode: the time of the first way ÷ the second, or an error."""
    found = harness.Figures(result.get(str(shape), {}), {})
    cells = []
    for mode, quotient in zip(harness.MODES, found.over(SECOND), strict=True):
        cells.append(quotient or result.get("error", found.seconds(mode)))
    return cells


if __name__ == "__main__":
    harness.main(parser(), measure, measured)
