"""Rankings already made, `RankedIds`, which metrics take in place of scores."""

import tensorflow as tf

from rank4class_tf import _checks, ops
from rank4class_tf._lists.labels import distinct_ids, in_rows
from rank4class_tf._tf.raising import checked, same_sizes
from rank4class_tf._tf.shapes import width_of
from rank4class_tf._types import Array, Tensor


class RankedIds(tf.experimental.BatchableExtensionType):
    r"""Each list's best items, as a recommender, search engine or index returns them.

    Metrics take them as `y_pred`, with the ids of the right items as `y_true`,
    `[batch]`, `[batch, P]` padded like these, or ragged. `rank4class_tf.evaluate` takes
    them from `model`, or in place of features. A right item that is not among the k ids
    is no hit. A metric needs a cutoff of at most k, since lower ranks are not known.

    Args:
        ids: `[batch, k]`, best first, different in each list: integers >= 0 padded with
            -1, or strings padded with `""`. Padding above an id counts as a wrong item.

    Example:
        >>> from rank4class_tf.metrics import RecallAtK
        >>> metric, right = RecallAtK(2), [["a", "d"], ["c", ""]]
        >>> metric.update_state(right, RankedIds([["b", "a", "d"], ["c", "", ""]]))
        >>> float(metric.result())  # (1 / 2 + 1 / 1) / 2
        0.75
    """

    ids: tf.Tensor

    def __init__(self, ids: Array):
        rule = (
            "`ids` must be [batch, k] integers padded with -1, or strings padded "
            "with ''."
        )
        try:
            ids = tf.convert_to_tensor(ids)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{rule} Received: {error}") from error
        self.ids = ids
        is_kind = ids.dtype.is_integer or ids.dtype == tf.string
        is_right = is_kind and ids.shape.rank != 0
        _checks.require(is_right, rule, f"{ids.dtype.name} of shape {ids.shape}")

    def ranks(self, y_true: Array) -> ops.Ranks:
        """`Ranks` of right items, float32; `class_ids` are ids or hashes of strings."""
        y_true = self._in_rows(y_true)
        ids = ids_as_integers(self.ids)
        right_ids = ids_as_integers(y_true)
        class_ids = distinct_ids(right_ids)  # Each id once, else -1.
        # An id is in one column at most, which [batch, P, k] comparisons find.
        num_ids = width_of(ids)
        is_equal = class_ids[..., tf.newaxis] == ids[:, tf.newaxis]
        column = tf.reduce_max(tf.where(is_equal, tf.range(num_ids), -1), axis=-1)
        is_hit = (column >= 0) & (class_ids >= 0)
        above = tf.where(is_hit, tf.cast(column, tf.float32), 0)

        above = self._checked(above, y_true, ids, right_ids)
        return ops.Ranks(
            above=above,
            # A hit ties with itself only, other ids with none: no hit.
            tied=tf.cast(is_hit, tf.float32),
            relevance=tf.cast(class_ids >= 0, tf.float32),
            num_items=None,  # Unknown.
            max_items=num_ids,
            class_ids=class_ids,
        )

    def _in_rows(self, y_true: Array) -> Tensor:
        """The ids of right items, `[batch, P]`, of the kind of these."""
        if isinstance(y_true, tf.RaggedTensor):
            y_true = y_true.to_tensor("" if y_true.dtype == tf.string else -1)
        y_true = in_rows(tf.convert_to_tensor(y_true))
        rule = (
            "`y_true` must have a row of ids for each list of `RankedIds`, [batch, k]."
        )
        received = f"shapes {y_true.shape} and {self.ids.shape}"
        _checks.require(y_true.shape.rank == self.ids.shape.rank == 2, rule, received)
        y_true = same_sizes(y_true, self.ids, rule)

        dtype = y_true.dtype
        kind = "integers"
        has_kind = dtype.is_integer
        if self.ids.dtype == tf.string:
            kind = "strings"
            has_kind = dtype == tf.string
        rule = f"`y_true` must hold {kind}, as `RankedIds` do."
        _checks.require(has_kind, rule, dtype.name)
        return y_true

    def _checked(
        self, x: Tensor, y_true: Tensor, ids: Tensor, right_ids: Tensor
    ) -> Tensor:
        """Returns `x`, and raises on running if ids or right ids are invalid."""
        rule = "`y_true` must hold ids >= 0, or -1 for padding"
        x = checked(x, right_ids < -1, y_true, rule)

        # More than two numbers that are all 0 or 1 are labels: ids would differ.
        is_binary = tf.equal(right_ids, 0) | tf.equal(right_ids, 1)
        is_label = tf.reduce_all(is_binary, axis=-1, keepdims=True)
        is_label &= tf.shape(right_ids)[1] > 2
        rule = (
            "`y_true` must hold ids of right items, not a label of 0 or 1 for each item"
        )
        x = checked(x, is_binary & is_label, y_true, rule)

        order = tf.argsort(ids, axis=1)
        rising = tf.gather(ids, order, batch_dims=1)
        later = rising[:, 1:]
        is_repeated = (later == rising[:, :-1]) & (later >= 0)
        is_wrong = tf.concat([rising[:, :1] < -1, is_repeated], axis=1)
        rule = "`ids` must hold different ids >= 0 in each list, or -1 for padding"
        in_order = tf.gather(self.ids, order, batch_dims=1)
        return checked(x, is_wrong, in_order, rule)


def ids_as_integers(ids: Tensor) -> Tensor:
    """Ids as int64; strings as 63-bit hashes, distinct in practice, and "" as -1."""
    if ids.dtype != tf.string:
        return tf.cast(ids, tf.int64)
    hashes = tf.strings.to_hash_bucket_fast(ids, 2**63 - 1)
    return tf.where(ids == "", tf.cast(-1, tf.int64), hashes)
