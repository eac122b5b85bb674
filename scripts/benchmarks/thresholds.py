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

from scripts.benchmarks import harness

NEVER, ALWAYS = 0, 10**9


def on_cpu(classes):
    """The size of a block, as `CpuBlocks`; this program imports no TensorFlow."""
    return types.SimpleNamespace(classes=classes, scores=1 << 20)


# The values that force both ways, and a shape on each side: lists, items, positives or
# what `case` takes the third number for.
CASES = {
    "_lists.positives.FEW_POSITIVES": ((ALWAYS, NEVER), (64, 1000, 8), (64, 1000, 64)),
    "_lists.positives.SHORT": ((ALWAYS, NEVER), (64, 100, 1), (64, 400, 1)),
    "_lists.positives._ITEMS_AT_ONCE": ((ALWAYS, NEVER), (64, 200, 20), (64, 1000, 64)),
    "_lists.positives._BLOCK_ENTRIES": ((1024, 8192), (64, 1000, 1), (64, 1000, 400)),
    "_tf.sizes.TRAINED": (
        (on_cpu(1024), on_cpu(256)),
        (64, 50_000, 1),
        (256, 50_000, 1),
    ),
    "_lists.classes._CLASSES_PER_USED": (
        (NEVER, ALWAYS),
        (16, 50_000, 1),
        (64, 2000, 3),
    ),
    "_tf.gather._WIDTHS_TO_SCATTER": (
        (range(10**9), range(0)),
        (64, 1000, 8),
        (64, 1000, 64),
    ),
    "_tf.search._MOST_COMPARED": ((ALWAYS, NEVER), (64, 1000, 8), (64, 1000, 64)),
    "_tf.search._MIN_ITEMS_PER_PLACE": (
        (NEVER, ALWAYS),
        (64, 1000, 10),
        (64, 1000, 100),
    ),
    "_tf.search._GROUP": ((64, 16_384), (64, 200_000, 100), (64, 20_000, 100)),
    "ops.ranks._LONG": ((NEVER, ALWAYS), (64, 1000, 10), (64, 30, 10)),
    "ops.projections._TRIED": ((15, 63), (64, 1000, 1), (64, 10_000, 1)),
    "ops.blocks._MANY_ENTRIES": ((NEVER, ALWAYS), (64, 1000, 512), (64, 1000, 32)),
    "ops.blocks._FEWEST_FOR_EINSUM": ((ALWAYS, NEVER), (64, 2, 1), (64, 64, 1)),
    "metrics.ranks._PLACES_PER_BLOCK": ((128, 2048), (64, 100, 1), (64, 20_000, 1)),
    "layers.sampled._NEGATIVES_PER_MINED": (
        (ALWAYS, NEVER),
        (64, 1000, 64),
        (64, 10_000, 10),
    ),
}
# Ways that the package takes without a gradient.
CONSTANT = "_MOST_COMPARED _MIN_ITEMS_PER_PLACE _GROUP _LONG _PLACES_PER_BLOCK".split()


def case(name, batch, n, m):
    """The function that is measured, and its inputs."""
    import numpy as np
    import tensorflow as tf

    from rank4class_tf import layers, losses, ops
    from rank4class_tf._lists import labels
    from rank4class_tf._tf import gather, search
    from rank4class_tf.metrics import ranks

    rng = np.random.default_rng(0)

    def normal(*size):
        return tf.constant(rng.normal(size=size), tf.float32)

    scores, encodings = normal(batch, n), normal(batch, 64)
    ids = tf.constant(np.argsort(rng.random((batch, n)), axis=1)[:, :m], tf.int32)
    relevance = tf.nn.relu(normal(batch, n) - 1)  # A sixth of the items is positive.
    head, sampled = (
        layers.DotProductHead(n),
        layers.SampledScores(2 * n, num_sampled=n, seed=1),
    )
    head(encodings), sampled(encodings)
    over = head.over_classes

    def tied_of_leading(x):
        parsed = labels.parse(relevance, x, "relevance")
        return ops.ranks.over_ranks(
            lambda r: r.tied[:, 0], parsed, tf.float32, m, "leading"
        )

    def reciprocal_of_best(tied):
        best = ops.ranks.BestPositive(0 * tied, tied, 0 * tied + 2, tied, n, 2)
        return ranks._mean_reciprocal(best, tied - 1)

    def best_by_blocks(x, table):
        return search.top_k_by_blocks(
            lambda i: x @ tf.transpose(tf.gather(table, i)), n, m
        )[0]

    every = {
        "FEW_POSITIVES": lambda: (
            lambda x: ops.as_lists(x, ids).sum_of_violations(1.0),
            scores,
        ),
        "SHORT": lambda: (lambda x: losses.RankmaxLoss()(relevance, x), scores),
        "_ITEMS_AT_ONCE": lambda: (lambda x: ops.sigmoid_ranks(x, ids), scores),
        "_BLOCK_ENTRIES": lambda: (
            functools.partial(
                losses.RankmaxLoss(), tf.reduce_sum(tf.one_hot(ids, n), axis=1)
            ),
            scores,
        ),
        "TRAINED": lambda: (
            lambda x: losses.SoftmaxLoss()(ids, over(x)),
            encodings,
        ),
        "_CLASSES_PER_USED": lambda: (
            lambda x: losses.RankmaxLoss()(ids, over(9 * x)),
            encodings,
        ),
        "_MOST_COMPARED": lambda: (
            search.searchsorted,
            tf.sort(normal(batch, m)),
            scores,
        ),
        "_MIN_ITEMS_PER_PLACE": lambda: (lambda x: search.top_k(x, m), scores),
        "_GROUP": lambda: (best_by_blocks, encodings, normal(n, 64)),
        "_LONG": lambda: (tied_of_leading, scores),
        "_TRIED": lambda: (lambda x: losses.SparsemaxLoss()(ids, 9 * x), scores),
        "_MANY_ENTRIES": lambda: (
            ops.blocks.latent_cross,
            *map(normal, (batch, n, m), (m, m, 32)),
        ),
        "_PLACES_PER_BLOCK": lambda: (reciprocal_of_best, tf.fill([batch], float(n))),
        "_NEGATIVES_PER_MINED": lambda: (
            lambda x: sampled(x, ids[:, :1], num_mined=m),
            encodings,
        ),
        "_tf.gather._WIDTHS_TO_SCATTER": lambda: (
            lambda x: gather.gather(x, ids),
            scores,
        ),
        "ops.blocks._FEWEST_FOR_EINSUM": lambda: (
            ops.blocks.dot_products,
            encodings,
            normal(batch, n, 64),
        ),
    }
    return (every.get(name) or every[name.rpartition(".")[2]])()


def measure(name, seconds):
    """The best times of both ways of a case at its shapes, in this process."""
    import tensorflow as tf

    (module, _, attribute), (ways, *shapes) = name.rpartition("."), CASES[name]
    module = importlib.import_module(f"rank4class_tf.{module}")

    def times(function, *inputs):
        def step(*tensors):
            with tf.GradientTape() as tape:
                tape.watch(tensors)
                result = function(*tensors)
            return (
                result
                if attribute in CONSTANT
                else (result, tape.gradient(result, tensors))
            )

        def compiled(value, jit_compile):
            setattr(module, attribute, value)
            return harness.compiled(step, *inputs, jit_compile=jit_compile)

        def both(jit_compile):
            return [functools.partial(compiled, value, jit_compile) for value in ways]

        return harness.by_mode(both, "time", seconds, ("", "_second"))

    return {str(shape): times(*case(name, *shape)) for shape in shapes}


def parser():
    """The command line."""
    quick = {"cases": ["_tf.search._MIN_ITEMS_PER_PLACE"], "seconds": 0.05}
    result = harness.parser(__spec__, __doc__, quick, seconds=1.0)
    result.add_names("--cases", CASES, "thresholds")
    return result


def measured(args):
    """Yields the table of each threshold."""
    for name in args.cases:
        result, rows = harness.run(__spec__.name, args, name=name), []
        for shape in CASES[name][1:]:
            times = result.get(str(shape), {})
            pairs = [(times.get(x), times.get(f"{x}_second")) for x in harness.MODES]
            cells = [
                harness.quotient(*x) or result.get("error", str(x[0])) for x in pairs
            ]
            rows.append([" × ".join(map(str, shape)), *cells])
        yield harness.Table(name, ["shape", *harness.MODES], rows, right=2)


if __name__ == "__main__":
    harness.main(parser(), measure, measured)
