"""Scores of classes as dot products, the best classes, and the ranks of given classes.

All classes are searched block by block, in one table or in shards (`shards.py`). The
loops over blocks are in `_tf/search.py` and `ops/blocks.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from rank4class_tf import _checks, _keras
from rank4class_tf._lists import labels as _labels
from rank4class_tf._lists.classes import ClassProducts
from rank4class_tf._tf import search
from rank4class_tf._tf.gather import within
from rank4class_tf._types import Array, Tensor, TensorPair
from rank4class_tf.layers.classes import Classes
from rank4class_tf.layers.shards import ShardedClassTable, Shards, TableShard
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

    def top_k(
        self, encodings: Array, k: int | Tensor, exclude: Array | None
    ) -> TensorPair:
        """The k highest scores and their ids, `[batch, k]`; -inf for an excluded id."""
        encodings, exclude = self._prepare(encodings, exclude)
        shards = _shards(self.classes)

        def search_all(encodings: Tensor, exclude: Tensor | None) -> TensorPair:
            def search_shard(shard: TableShard | _WholeTable) -> TensorPair:
                size = shard.last - shard.first
                score_block = self._block_scores(shard, encodings, exclude)
                num_best = min(k, size) if isinstance(k, int) else tf.minimum(k, size)
                block_size = search.search_block(encodings, size)
                scores, rows = search.top_k_by_blocks(
                    score_block, size, num_best, block_size
                )
                return scores, shard.first + rows

            return shards.search(search_shard, k)

        return shards.on_joined_batch(search_all, encodings, exclude)

    def ranks(
        self, encodings: Array, class_ids: Array, exclude: Array | None
    ) -> TensorPair:
        """How many classes score above and as high as ids, int32 `[batch, P]`."""
        encodings = tf.convert_to_tensor(encodings)
        num_classes = self.classes.num_classes
        class_ids, _ = _labels.padded_ids(
            class_ids, num_classes, encodings, "class_ids"
        )
        encodings, exclude = self._prepare(encodings, exclude)
        shards = _shards(self.classes)

        def count_all(
            encodings: Tensor, class_ids: Tensor, exclude: Tensor | None
        ) -> TensorPair:
            # First the scores of the ids, each from the shard that has its class.
            def score(shard: TableShard | _WholeTable) -> list[Tensor]:
                size = shard.last - shard.first
                rows, is_here = within(class_ids - shard.first, size)
                score_block = self._block_scores(shard, encodings)
                block_size = search.search_block(encodings, size)
                scores = blocks.scores_as_in_blocks(score_block, size, rows, block_size)
                tolerance = self.of(shard.table).rounding(encodings, rows)
                return [tf.where(is_here, x, 0.0) for x in (scores, tolerance)]

            scores, tolerance = shards.total(score)

            # Then every shard counts its classes that score higher, and other classes
            # that tie.
            def count(shard: TableShard | _WholeTable) -> list[Tensor]:
                score_block = self._block_scores(shard, encodings, exclude)
                size, rows = shard.last - shard.first, class_ids - shard.first
                block_size = search.search_block(encodings, size)
                return blocks.count_others_by_blocks(
                    score_block, size, rows, scores, block_size, tolerance
                )

            num_above, num_tied = shards.total(count)
            is_ranked = tf.cast((class_ids >= 0) & ~tf.math.is_nan(scores), tf.int32)
            return num_above * is_ranked, (num_tied + 1) * is_ranked

        return shards.on_joined_batch(count_all, encodings, class_ids, exclude)

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
            lambda column: _lengths(self.scaled(self.classes.rows(column))),
            tf.transpose(ids),
            fn_output_signature=tf.float32,
            parallel_iterations=1,
        )
        bound = (
            2
            * gamma(roundings)
            * _lengths(encodings)[:, tf.newaxis]
            * tf.transpose(lengths)
        )
        if biases is None:
            return bound
        return bound + 2 * gamma(2) * tf.abs(tf.cast(biases, tf.float32))

    def _prepare(
        self, encodings: Array, exclude: Array | None
    ) -> tuple[Tensor, Tensor | None]:
        """Returns scaled encodings, and the ids to leave out, `[batch, E]` or None."""
        encodings = self.scaled(encodings)
        if exclude is None:
            return encodings, None
        exclude = _checks.rows_of_ids("exclude", exclude, strings=False)
        num_classes = self.classes.num_classes
        excluded, encodings = _labels.padded_ids(
            exclude, num_classes, encodings, "exclude"
        )
        return encodings, excluded

    def _block_scores(
        self,
        shard: TableShard | _WholeTable,
        encodings: Tensor,
        exclude: Tensor | None = None,
    ) -> Callable[[Tensor], Tensor]:
        """A function from rows `[m]` of a shard to scores `[batch, m]`."""
        shard_scores = self.of(shard.table)
        # Rows of this shard; ids of other shards fall outside of it.
        if exclude is not None:
            exclude -= shard.first

        def score(rows: Tensor) -> Tensor:
            scores = shard_scores.without_gradient(encodings, rows)
            if exclude is None:
                return scores
            # An id that is excluded twice stays -inf; one of another block adds 0 to
            # column 0.
            columns, is_here = within(exclude - rows[0], tf.size(rows))
            penalties = tf.where(is_here, tf.constant(-float("inf"), scores.dtype), 0.0)
            return search.add_columns(scores, columns, penalties)

        return score


class _WholeTable:
    """Classes that are not divided, in the role of `Shards` and of its only shard."""

    def __init__(self, classes: Classes):
        self.first, self.last, self.table = 0, classes.num_classes, classes

    def on_joined_batch(self, function: Callable, *batch: Any) -> Any:
        return function(*batch)

    def search(self, function: Callable, k: int | Tensor) -> TensorPair:
        return function(self)

    def total(self, function: Callable) -> list[Tensor]:
        return function(self)


def _shards(classes: Classes) -> Shards | _WholeTable:
    return (
        classes.shards
        if isinstance(classes, ShardedClassTable)
        else _WholeTable(classes)
    )


def _lengths(rows: Tensor) -> Tensor:
    """The lengths of rows, `[...]`, even if their squares overflow."""
    largest = tf.reduce_max(tf.abs(rows), axis=-1)
    return largest * tf.norm(
        tf.math.divide_no_nan(rows, largest[..., tf.newaxis]), axis=-1
    )
