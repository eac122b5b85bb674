"""What `thresholds` measures: for each threshold a function, and inputs of some shape.

A function here has the name of a threshold, in lower case. It takes a number of lists,
of items, and of positives or of what the threshold compares.
"""

import functools

import numpy as np
import tensorflow as tf

from rank4class_tf import layers, losses, ops
from rank4class_tf._lists import labels
from rank4class_tf._tf import gather, search
from rank4class_tf.metrics import ranks

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


def few_positives(batch, n, m):
    """`_lists.positives.FEW_POSITIVES`."""
    ids = drawn_ids(batch, n, m)

    def violations(scores):
        return ops.as_lists(scores, ids).sum_of_violations(1.0)

    return violations, normal(batch, n)


def short(batch, n, m):
    """`_lists.positives.SHORT`."""
    loss = functools.partial(losses.RankmaxLoss(), drawn_relevance(batch, n))
    return loss, normal(batch, n)


def items_at_once(batch, n, m):
    """`_lists.positives._ITEMS_AT_ONCE`."""
    ids = drawn_ids(batch, n, m)
    return lambda scores: ops.sigmoid_ranks(scores, ids), normal(batch, n)


def block_entries(batch, n, m):
    """`_lists.positives._BLOCK_ENTRIES`."""
    relevance = tf.reduce_sum(tf.one_hot(drawn_ids(batch, n, m), n), axis=1)
    return functools.partial(losses.RankmaxLoss(), relevance), normal(batch, n)


def trained(batch, n, m):
    """`_tf.sizes.TRAINED`."""
    ids = drawn_ids(batch, n, m)
    encodings = normal(batch, WIDTH)
    over = over_classes(encodings, n)
    return lambda x: losses.SoftmaxLoss()(ids, over(x)), encodings


def classes_per_used(batch, n, m):
    """`_lists.classes._CLASSES_PER_USED`."""
    ids = drawn_ids(batch, n, m)
    encodings = normal(batch, WIDTH)
    over = over_classes(encodings, n)
    return lambda x: losses.RankmaxLoss()(ids, over(9 * x)), encodings


def widths_to_scatter(batch, n, m):
    """`_tf.gather._WIDTHS_TO_SCATTER`."""
    ids = drawn_ids(batch, n, m)
    return lambda scores: gather.gather(scores, ids), normal(batch, n)


def most_compared(batch, n, m):
    """`_tf.search._MOST_COMPARED`."""
    return search.searchsorted, tf.sort(normal(batch, m)), normal(batch, n)


def min_items_per_place(batch, n, m):
    """`_tf.search._MIN_ITEMS_PER_PLACE`."""
    return lambda scores: search.top_k(scores, m), normal(batch, n)


def group(batch, n, m):
    """`_tf.search._GROUP`."""

    def best_by_blocks(encodings, table):
        def scores(rows):
            return encodings @ tf.transpose(tf.gather(table, rows))

        block_size = search.search_block(encodings, n)
        best, _ = search.top_k_by_blocks(scores, n, m, block_size)
        return best

    return best_by_blocks, normal(batch, WIDTH), normal(n, WIDTH)


def long(batch, n, m):
    """`ops.ranks._LONG`."""
    relevance = drawn_relevance(batch, n)

    def tied_of_leading(scores):
        parsed = labels.parse(relevance, scores, label_format="relevance")
        return ops.ranks.over_ranks(
            lambda r: r.tied[:, 0], parsed, tf.float32, m, "leading"
        )

    return tied_of_leading, normal(batch, n)


def tried(batch, n, m):
    """`ops.projections._TRIED`."""
    ids = drawn_ids(batch, n, m)
    return lambda scores: losses.SparsemaxLoss()(ids, 9 * scores), normal(batch, n)


def many_entries(batch, n, m):
    """`ops.blocks._MANY_ENTRIES`."""
    inputs = normal(batch, m), normal(n, m), normal(m, 32)
    return ops.blocks.latent_cross, *inputs


def fewest_for_einsum(batch, n, m):
    """`ops.blocks._FEWEST_FOR_EINSUM`."""
    return ops.blocks.dot_products, normal(batch, WIDTH), normal(batch, n, WIDTH)


def places_per_block(batch, n, m):
    """`metrics.ranks._PLACES_PER_BLOCK`."""

    def reciprocal_of_best(tied):
        best = ops.ranks.BestPositive(
            above=0 * tied,
            tied=tied,
            num_positives=0 * tied + 2,
            num_items=tied,
            max_items=n,
            max_positives=2,
        )
        return ranks._mean_reciprocal(best, tied - 1)

    return reciprocal_of_best, tf.fill([batch], float(n))


def negatives_per_mined(batch, n, m):
    """`layers.sampled._NEGATIVES_PER_MINED`."""
    ids = drawn_ids(batch, n, 1)
    encodings = normal(batch, WIDTH)
    sampled = layers.SampledScores(2 * n, num_sampled=n, seed=1)
    sampled(encodings)
    return lambda x: sampled(x, ids, num_mined=m), encodings
