"""Scores of classes as dot products, the best classes, and the ranks of given classes.

All classes are searched block by block, in one table or in shards
(`table_shards.py`). The loops over blocks are in `_tf/search.py` and `ops/blocks.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from rank4class_tf import _checks, _keras
from rank4class_tf._lists import labels as _labels
from rank4class_tf._lists.classes import ClassProducts
from rank4class_tf._tf import search
from rank4class_tf._tf.gather import within
from rank4class_tf._tf.raising import replaced
from rank4class_tf._tf.shapes import num_rows
from rank4class_tf._types import Array, Function, Size, Tensor, TensorPair, Tensors
from rank4class_tf.layers.classes import Classes
from rank4class_tf.layers.shards import ShardedClassTable
from rank4class_tf.layers.table_shards import AllShards, OwnShard, TableShard
from rank4class_tf.ops import blocks


class ClassScores:
    """Scores encodings by dot products, of unit rows if `normalize`, and biases."""

    # Factors are rounded to the compute dtype of a layer, as those of Keras's `Dense`
    # are; sums, scores and gradients are float32.

    def __init__(
        self, classes: Classes, normalize: bool, compute_dtype: Any = tf.float32
    ):
        self.classes = classes
        self.normalize = normalize
        self.dtype = tf.as_dtype(compute_dtype)

    def scaled(self, rows: Tensor) -> Tensor:
        """Encodings or rows of classes in float32, of length 1 if `normalize`."""
        rows = tf.cast(rows, tf.float32)
        if self.normalize:
            rows = blocks.unit_rows(rows)
        return blocks.rounded(rows, self.dtype)

    def of(self, classes: Classes) -> ClassScores:
        """The same scores of other classes."""
        return ClassScores(classes, self.normalize, self.dtype)

    def without_gradient(self, encodings: Tensor, ids: Tensor) -> Tensor:
        """Scores as in a call with one tensor of ids; class rows get no gradient."""
        # `row_scores` scales rows: a step by blocks often has more examples than a row
        # has numbers.
        rows = tf.stop_gradient(tf.cast(self.classes.rows_of_step(ids)[0], tf.float32))
        rows = blocks.rounded(rows, self.dtype)
        products = blocks.cosines if self.normalize else blocks.dot_products
        scores = products(encodings, rows, self.dtype)
        biases = self.classes.biases(ids)
        return scores if biases is None else scores + tf.cast(biases, tf.float32)

    def __call__(self, encodings: Tensor, *ids: Tensor) -> list[Tensor]:
        """Scores of scaled encodings per ids tensor, `[m]` shared or `[batch, m]`."""
        rows = self.classes.rows_of_step(*ids)
        biases = self.classes.biases_of_step(*ids)
        return [self.row_scores(encodings, *x) for x in zip(rows, biases, strict=True)]

    def row_scores(
        self, encodings: Tensor, rows: Tensor, biases: Tensor | None = None
    ) -> Tensor:
        """Scores of classes by their rows, `[m, d]` or `[batch, m, d]`."""
        scores = blocks.dot_products(encodings, self.scaled(rows), self.dtype)
        return scores if biases is None else scores + tf.cast(biases, tf.float32)

    def over_classes(self, encodings: Tensor, scale: float = 1.0) -> ClassProducts:
        """The scores of all classes times a scale, not yet computed."""
        mask = _keras.mask_of(encodings)
        encodings = blocks.rounded(scale * self.scaled(encodings), self.dtype)
        return ClassProducts(
            encodings,
            self.classes.tables(),
            self.row_scores,
            self.classes.shard(),
            mask=mask,
        )

    def top_k(self, encodings: Array, k: Size, exclude: Array | None) -> TensorPair:
        """The k highest scores and their ids, `[batch, k]`; -inf for an excluded id."""
        encodings = self.scaled(encodings)
        exclude, encodings = self._excluded(exclude, encodings)

        def best(
            parts: _Parts, encodings: Tensor, exclude: Tensor | None
        ) -> TensorPair:
            queries = _Queries(self, encodings, exclude)
            return parts.search(lambda part: queries.top_k(part, k), k)

        return _on_parts(self.classes, best, encodings, exclude)

    def ranks(
        self, encodings: Array, class_ids: Array, exclude: Array | None = None
    ) -> TensorPair:
        """How many classes score above and as high as ids, int32 `[batch, P]`."""
        encodings = self.scaled(encodings)
        # NaN for an example with a bad id, where XLA compiles and so cannot raise.
        nan_or_0 = tf.zeros([num_rows(encodings)])
        class_ids, nan_or_0 = _labels.padded_ids(
            class_ids, self.classes.num_classes, nan_or_0, "class_ids"
        )
        exclude, nan_or_0 = self._excluded(exclude, nan_or_0)

        def count(
            parts: _Parts, encodings: Tensor, class_ids: Tensor, exclude: Tensor | None
        ) -> TensorPair:
            queries = _Queries(self, encodings, exclude)
            # First the scores of the ids, each from the shard that has its class.
            scores, tolerance = parts.total(
                lambda part: queries.scores_of(class_ids, part)
            )
            # Then every shard counts its classes that score higher, and other classes
            # that tie.
            above, tied = parts.total(
                lambda part: queries.counts(class_ids, scores, tolerance, part)
            )
            is_ranked = tf.cast((class_ids >= 0) & ~tf.math.is_nan(scores), tf.int32)
            return above * is_ranked, (tied + 1) * is_ranked

        above, tied = _on_parts(self.classes, count, encodings, class_ids, exclude)
        is_broken = tf.math.is_nan(nan_or_0)
        return replaced(above, is_broken, -1), replaced(tied, is_broken, -1)

    def rounding(self, encodings: Tensor, ids: Tensor) -> Tensor:
        r"""How far apart the scores of two equal rows may be, for ids `[batch, P]`."""

        # A processor may sum the products of one row in another order than those of the
        # next. In any order, a sum with n roundings is within gamma(n) |h| |c| of the
        # exact one, with u = 2**-24 and gamma(n) = n u / (1 - n u). Two such sums are
        # within twice as much. Higham 2002, "Accuracy and Stability of Numerical
        # Algorithms", section 3.1.
        def gamma(n: int | Tensor) -> float | Tensor:
            return n / (2**24 - n)

        biases = self.classes.biases(ids)
        # As many products as numbers, the bias, and one more for the rounding of this
        # bound.
        roundings = self.classes.width + 1 + (biases is not None)
        if self.normalize:
            # The sum of squares rounds too; its root halves the error. Then root and
            # division.
            roundings += self.classes.width // 2 + 3
        # One column at a time, so that no [batch, P, d] tensor appears.
        lengths = tf.map_fn(
            lambda column: _safe_lengths(self.scaled(self.classes.rows(column))),
            tf.transpose(ids),
            fn_output_signature=tf.float32,
            parallel_iterations=1,
        )
        bound = (
            2
            * gamma(roundings)
            * _safe_lengths(encodings)[:, tf.newaxis]
            * tf.transpose(lengths)
        )
        if biases is None:
            return bound
        return bound + 2 * gamma(2) * tf.abs(tf.cast(biases, tf.float32))

    def _excluded(
        self, exclude: Array | None, lists: Tensor
    ) -> tuple[Tensor | None, Tensor]:
        """The ids to leave out, `[batch, E]`; the lists are as in `padded_ids`."""
        if exclude is None:
            return None, lists
        exclude = _checks.rows_of_ids("exclude", exclude, strings=False)
        return _labels.padded_ids(exclude, self.classes.num_classes, lists, "exclude")


class _WholeTable:
    """Classes that are not divided: all parts, and the only one."""

    def __init__(self, classes: Classes):
        self.first = 0
        self.last = classes.num_classes
        self.table = classes

    def search(self, function: Callable, k: Size) -> TensorPair:
        return function(self)

    def total(self, function: Callable) -> Tensors:
        return function(self)


# Some classes [first, last) in a `table` of their own, and what asks all such parts.
_Part: TypeAlias = TableShard | _WholeTable
_Parts: TypeAlias = OwnShard | AllShards | _WholeTable


def _on_parts(classes: Classes, function: Callable, *batch: Tensor | None) -> Any:
    """Results for a batch of a function of the parts of classes and the batch."""
    if isinstance(classes, ShardedClassTable):
        return classes.shards.on_joined_batch(function, *batch)
    return function(_WholeTable(classes), *batch)


class _Queries(NamedTuple):
    """Scaled encodings, and what they ask of each part of the classes."""

    scores: ClassScores
    encodings: Tensor
    exclude: Tensor | None  # Ids `[batch, E]`, padded with -1.

    def top_k(self, part: _Part, k: Size) -> TensorPair:
        """The highest scores of a part and their ids, `[batch, at most k]`."""
        size = part.last - part.first
        num_best = min(k, size) if isinstance(k, int) else tf.minimum(k, size)
        scores, rows = search.top_k_by_blocks(
            self._score(part, self.exclude), size, num_best, self._block_size(part)
        )
        return scores, part.first + rows

    def scores_of(self, class_ids: Tensor, part: _Part) -> Tensors:
        """Scores of ids and their rounding, `[batch, P]`; 0 for ids of other parts."""
        size = part.last - part.first
        rows, is_here = within(class_ids - part.first, size)
        scores = blocks.scores_as_in_blocks(
            self._score(part, exclude=None), size, rows, self._block_size(part)
        )
        rounding = self.scores.of(part.table).rounding(self.encodings, rows)
        return [tf.where(is_here, x, 0.0) for x in (scores, rounding)]

    def counts(
        self, class_ids: Tensor, scores: Tensor, tolerance: Tensor, part: _Part
    ) -> TensorPair:
        """How many other classes of a part score above ids, and as high."""
        return blocks.count_others_by_blocks(
            self._score(part, self.exclude),
            part.last - part.first,
            class_ids - part.first,
            scores,
            self._block_size(part),
            tolerance,
        )

    def _block_size(self, part: _Part) -> Size:
        return search.search_block(self.encodings, part.last - part.first)

    def _score(self, part: _Part, exclude: Tensor | None) -> Function:
        """A function from rows `[m]` of a part to scores `[batch, m]`."""
        part_scores = self.scores.of(part.table)
        # Rows of this part; ids of others fall outside of it.
        if exclude is not None:
            exclude -= part.first

        def score(rows: Tensor) -> Tensor:
            scores = part_scores.without_gradient(self.encodings, rows)
            if exclude is None:
                return scores
            # An id that is excluded twice stays -inf; one of another block adds 0 to
            # column 0.
            columns, is_here = within(exclude - rows[0], tf.size(rows))
            penalties = tf.where(is_here, tf.constant(-float("inf"), scores.dtype), 0.0)
            return search.add_columns(scores, columns, penalties)

        return score


def _safe_lengths(rows: Tensor) -> Tensor:
    """The lengths of rows, `[...]`, even if their squares overflow."""
    largest = tf.reduce_max(tf.abs(rows), axis=-1)
    return largest * tf.norm(
        tf.math.divide_no_nan(rows, largest[..., tf.newaxis]), axis=-1
    )
