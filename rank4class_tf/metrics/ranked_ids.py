"""Rankings that are already made, `RankedIds`, which metrics take in place of scores."""

from typing import Any

import tensorflow as tf

from rank4class_tf import _checks, ops
from rank4class_tf._lists.labels import distinct_ids, in_rows
from rank4class_tf._tf.raising import checked, same_sizes
from rank4class_tf._types import Array, Tensor


class RankedIds(tf.experimental.BatchableExtensionType):
    r"""The best items of each list, as a recommender, a search engine or an index returns them.

    Metrics take them as `y_pred`, with the ids of the right items as `y_true`, `[batch]`,
    `[batch, P]` padded like these, or ragged. So do `rank4class_tf.evaluate` and a function that it
    calls as `model`. A right item that is not among the first k has no rank there, and is no hit.
    A metric needs a cutoff of at most k: what lies beyond is not known.

    Args:
        ids: `[batch, k]`, best first, different in each list: integers >= 0 padded with -1, or
            strings padded with `""`.

    Example:
        >>> from rank4class_tf.metrics import RecallAtK
        >>> metric, right = RecallAtK(2), [["a", "d"], ["c", ""]]
        >>> metric.update_state(right, RankedIds([["b", "a", "d"], ["c", "", ""]]))
        >>> float(metric.result())  # (1 / 2 + 1 / 1) / 2
        0.75
    """

    ids: tf.Tensor

    def __init__(self, ids: Array):
        rule = "`ids` must be [batch, k] integers padded with -1, or strings padded with ''."
        try:
            self.ids = ids = tf.convert_to_tensor(ids)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{rule} Received: {error}") from error
        is_right = ids.shape.rank != 0 and (ids.dtype.is_integer or ids.dtype == tf.string)
        _checks.require(is_right, rule, f"{ids.dtype.name} of shape {ids.shape}")

    def ranks(self, y_true: Array) -> ops.Ranks:
        """`Ranks` of the right items, float32; their `class_ids` are ids, or hashes of strings."""
        if isinstance(y_true, tf.RaggedTensor):
            y_true = y_true.to_tensor("" if y_true.dtype == tf.string else -1)
        y_true = in_rows(tf.convert_to_tensor(y_true))
        rule = "`y_true` must have a row of ids for each list of `RankedIds`, [batch, k]."
        received = f"shapes {y_true.shape} and {self.ids.shape}"
        _checks.require(y_true.shape.rank == self.ids.shape.rank == 2, rule, received)
        y_true = same_sizes(y_true, self.ids, rule)
        is_text = self.ids.dtype == tf.string
        is_right = y_true.dtype == tf.string if is_text else y_true.dtype.is_integer
        rule = f"`y_true` must hold {'strings' if is_text else 'integers'}, as `RankedIds` do."
        _checks.require(is_right, rule, y_true.dtype.name)
        ids, right = ids_as_integers(self.ids), ids_as_integers(y_true)

        # A right item is in one place at most: [batch, P, k] comparisons.
        distinct, width = distinct_ids(right), ids.shape[1] or tf.shape(ids)[1]
        is_equal = distinct[..., tf.newaxis] == ids[:, tf.newaxis]
        place = tf.reduce_max(tf.where(is_equal, tf.range(width), -1), axis=-1)
        is_hit = (place >= 0) & (distinct >= 0)
        above = tf.where(is_hit, tf.cast(place, tf.float32), 0)

        rule = "`y_true` must hold ids >= 0, or -1 for padding"
        above = checked(above, right < -1, y_true, rule)
        order = tf.argsort(ids, axis=1)
        rising = tf.gather(ids, order, batch_dims=1)
        is_repeated = (rising[:, 1:] == rising[:, :-1]) & (rising[:, 1:] >= 0)
        bad = tf.concat([rising[:, :1] < -1, is_repeated], axis=1)
        rule = "`ids` must hold different ids >= 0 in each list, or -1 for padding"
        above = checked(above, bad, tf.gather(self.ids, order, batch_dims=1), rule)

        # No list tells how many items there are.
        tied, relevance = tf.cast(is_hit, tf.float32), tf.cast(distinct >= 0, tf.float32)
        unknown: Any = None
        return ops.Ranks(above, tied, relevance, unknown, width, class_ids=distinct)


def ids_as_integers(ids: Tensor) -> Tensor:
    """Ids as int64; strings as hashes of 63 bits, which differ in practice, and "" as -1."""
    if ids.dtype != tf.string:
        return tf.cast(ids, tf.int64)
    hashes = tf.strings.to_hash_bucket_fast(ids, 2**63 - 1)
    return tf.where(ids == "", tf.cast(-1, tf.int64), hashes)
