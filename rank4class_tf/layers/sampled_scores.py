"""SampledScores."""

import math
import warnings

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks, _files, _keras, ops
from rank4class_tf._lists import labels as _labels
from rank4class_tf._tf import top as _top
from rank4class_tf._tf.gather import gather
from rank4class_tf._tf.where import where
from rank4class_tf.layers._base import Head

# Up to so many shared negatives for each mined one, gradients through the product of all encodings
# and all negatives cost less than rows of its own for each example.
_NEGATIVES_PER_MINED = 64

_ROWS_WRITTEN_AT_ONCE = 65_536

# Of wider rows it costs less to scale their scores, which are fewer.
_WIDE = 256

# Up to so many, where each example has its own negatives, to seek as many more and leave out
# positives costs less than to mask them first.
_FEW_POSITIVES = 32

# Of fewer classes for each example, products of all numbers and sums take less time than einsum.
_FEW = 4

# As in `tf.math.l2_normalize`: shorter rows keep a length below 1.
_MOST_INVERSE_NORM = 1e6


# In a graph the steps reuse memory; eagerly, each would take that of a whole table.
@tf.function(
    input_signature=[
        tf.TensorSpec([None], tf.int32),
        tf.TensorSpec([2], tf.int32),
        tf.TensorSpec([], tf.float32),
    ]
)
def _uniform(shape, seed, limit):
    return tf.random.stateless_uniform(shape, seed, -limit, limit)


@tf.custom_gradient
def _unit(rows):
    """As `tf.math.l2_normalize` of each row; rows near zero have no gradient.

    The gradient takes a third of the operations.
    """
    inverse_norms = _inverse_norms(rows)
    unit = rows * inverse_norms

    def gradient(upstream):
        along = tf.reduce_sum(upstream * unit, axis=-1, keepdims=True)
        # A row near zero has no direction. Its gradient, times the cap, would outweigh those of
        # all others: one example without features would turn all encodings one way.
        capped = inverse_norms >= _MOST_INVERSE_NORM
        return tf.where(capped, 0.0, (upstream - along * unit) * inverse_norms)

    return unit, gradient


def _inverse_norms(rows):
    squares = tf.reduce_sum(tf.square(rows), axis=-1, keepdims=True)
    return tf.minimum(tf.math.rsqrt(squares), _MOST_INVERSE_NORM)


@_keras.register
class SampledScores(Head):
    r"""Dot products with class embeddings, for so many classes that a step scores only some.

    $$s_i = \frac{h}{\|h\|} \cdot \frac{c_i}{\|c_i\|}$$

    Called with encodings alone, it scores all classes, as any head. Called with encodings and
    class ids, it scores a class of each example and negatives: of `num_sampled` classes, drawn
    uniformly without replacement and anew at each call in training, those that are no class of the
    example. A mined call finds the `num_mined` highest of these without gradients and scores them
    again with gradients: its backward pass, and the rows of the table it touches, cost what
    `num_mined` classes cost. Of a shared sample not much larger than `num_mined`, it takes the
    gradient of all scores instead, where that costs less.

    Source: Reddi et al. 2019, "Stochastic Negative Mining for Learning with Large Output Spaces",
    algorithm 1 and section 5.

    Args:
        num_classes: number of classes K, >= 1.
        num_sampled: number of sampled classes B, >= 1. None means all. B >= K - 1 means all too,
            and warns.
        normalize: whether encodings and class embeddings are scaled to length 1.
        shared_negatives: whether one sample serves the whole batch, on all devices. Otherwise each
            example has its own, and memory is O(batch B d).
        seed: an int; None draws one from NumPy's global generator.
        **kwargs: Keras's own, such as `name`.

    Input: `[batch, d]`, and class ids `[batch]`, `[batch, 1]` or `[batch, P]` padded with -1. Of
    several ids one is drawn uniformly at each call; the others are no negatives.

    Output: `[batch, K]`, or with class ids `[batch, 1 + m]`: the score of the class, then of the
    negatives, which come from high to low where they are mined. -inf marks what is not there.

    Raises:
        ValueError: if a number is out of range, a class id does not exist (in graph mode the
            scores of the example are NaN), or `num_mined` exceeds the number of negatives.

    Example:
        >>> layer = SampledScores(num_classes=1_000_000, num_sampled=100)
        >>> encodings = tf.ones([2, 8])
        >>> layer(encodings, class_ids=[7, 8], num_mined=5).shape
        TensorShape([2, 6])
        >>> scores, class_ids = layer.top_k(encodings, k=3)
        >>> class_ids.shape
        TensorShape([2, 3])
    """

    def __init__(
        self,
        num_classes,
        num_sampled=None,
        normalize=True,
        shared_negatives=True,
        seed=None,
        **kwargs,
    ):
        super().__init__(num_classes, **kwargs)
        if num_sampled is not None:
            num_sampled = _checks.positive_int("num_sampled", num_sampled)
            if num_sampled >= self.num_classes - 1:
                warnings.warn(
                    "`num_sampled` is at least num_classes - 1, so all classes are scored. "
                    f"Received: num_sampled={num_sampled}, num_classes={self.num_classes}.",
                    stacklevel=2,
                )
        self.num_sampled = num_sampled
        self.normalize = normalize
        self.shared_negatives = shared_negatives
        self.seed = int(np.random.randint(2**31)) if seed is None else int(seed)

    @property
    def num_negatives(self):
        """How many classes a call with class ids scores besides the example's own."""
        if self.num_sampled is None or self.num_sampled >= self.num_classes - 1:
            return self.num_classes
        return self.num_sampled

    def build_head(self, width):
        """Creates the class embeddings, of length 1 or a little less, and the step counter."""
        self.class_embeddings = _keras.add_table(
            self, "class_embeddings", (self.num_classes, width), self._initial_embeddings
        )
        self.steps = _keras.add_counter(self, "steps")

    def _initial_embeddings(self, shape, dtype=None, **kwargs):
        del kwargs  # Keras 2 has more to say.
        limit = math.sqrt(3 / shape[-1])
        values = _uniform(list(shape), [self.seed, 1], limit)
        return tf.ensure_shape(tf.cast(values, dtype or tf.float32), shape)

    def call(self, inputs, class_ids=None, num_mined=None, training=None):
        """Scores all classes, or those of the examples and negatives.

        Args:
            inputs: encodings `[batch, d]`.
            class_ids: None, or the classes of each example.
            num_mined: None for all negatives, or how many of the highest, <= B.
            training: whether the next call draws other classes.
        """
        encodings = self._unit(tf.cast(inputs, tf.float32))
        if class_ids is None:
            return self._score(encodings, tf.range(self.num_classes))
        if num_mined is not None and num_mined > self.num_negatives:
            raise ValueError(
                "`num_mined` must not exceed the number of negatives. Received: "
                f"num_mined={num_mined}, num_sampled={self.num_sampled}, "
                f"num_classes={self.num_classes}."
            )
        return self._sampled(encodings, class_ids, num_mined, training)

    def _sampled(self, encodings, class_ids, num_mined, training):
        positives, invalid = _labels.padded_ids(class_ids, self.num_classes)
        positives = _labels.distinct_ids(positives)
        has_positive = tf.reduce_any(positives >= 0, axis=1, keepdims=True)
        step = tf.identity(_keras.variable(self.steps))
        if training:
            self.steps.assign_add(1)
        seed = ops.fold_in([self.seed, 0], step)
        own = self._draw_one(positives, seed)
        negatives = self._draw_negatives(tf.shape(positives)[0], seed)

        shared = negatives.shape.rank == 1
        all_count = num_mined is None or num_mined == self.num_negatives
        if all_count or shared and num_mined * _NEGATIVES_PER_MINED >= self.num_negatives:
            scores, _ = self._score_negatives(encodings, negatives, positives)
            if not all_count:
                highest, index = _top.top_k(tf.stop_gradient(scores), num_mined)
                # Where fewer are there, the search may point to one that is.
                scores = where(highest > -float("inf"), gather(scores, index), -float("inf"))
            of_own = self._score(encodings, own[:, tf.newaxis])
            of_own = where(has_positive, of_own, -float("inf"))
            scores = tf.concat([of_own, scores], axis=1)
        else:
            highest, mined = self._mine(encodings, negatives, positives, num_mined)
            scores = self._score(encodings, tf.concat([own[:, tf.newaxis], mined], axis=1))
            there = tf.concat([has_positive, highest > -float("inf")], axis=1)
            scores = where(there, scores, -float("inf"))
        return where(~invalid, scores, float("nan"))

    def _mine(self, encodings, negatives, positives, num_mined):
        """The highest scores of negatives, -inf where there are no more, and their classes."""
        encodings = tf.stop_gradient(encodings)
        num_positives = positives.shape[1]
        shared = negatives.shape.rank == 1
        if shared or num_positives is None or num_positives > _FEW_POSITIVES:
            scores, negatives = self._score_negatives(
                encodings, negatives, positives, gradient=False
            )
            highest, index = _top.top_k(scores, num_mined)
            return highest, tf.gather(negatives, index, batch_dims=negatives.shape.rank - 1)
        scores = self._score(encodings, negatives, gradient=False)
        sought = min(num_mined + num_positives, self.num_negatives)
        highest, index = _top.top_k(scores, sought)
        classes = tf.gather(negatives, index, batch_dims=1)
        is_positive = tf.reduce_any(classes[:, :, tf.newaxis] == positives[:, tf.newaxis], axis=2)
        highest = tf.where(is_positive, -float("inf"), highest)
        highest, index = tf.math.top_k(highest, num_mined)
        return highest, tf.gather(classes, index, batch_dims=1)

    def top_k(self, encodings, k):
        """Finds the k classes with the highest scores, in blocks of classes.

        Args:
            encodings: `[batch, d]`.
            k: in [1, K], an int or a scalar tensor.

        Returns:
            Scores and class ids, both `[batch, k]`, the best first.
        """
        if isinstance(k, int) and not 1 <= k <= self.num_classes:
            raise ValueError(f"`k` must be in [1, {self.num_classes}]. Received: k={k}.")
        return ops.top_k_by_blocks(self._scorer(encodings), self.num_classes, k)

    def ranks(self, encodings, class_ids):
        """Counts the classes above and the classes tied with given ones, in blocks of classes.

        Args:
            encodings: `[batch, d]`.
            class_ids: `[batch]`, `[batch, 1]` or `[batch, P]`, padded with -1.

        Returns:
            Two int32 tensors `[batch, P]`: how many classes score higher, and how many the same,
            the class itself counted. The rank is 1 + the first where there is no tie.
        """
        class_ids, _ = _labels.padded_ids(class_ids, self.num_classes)
        scores = self._score(self._unit(tf.cast(encodings, tf.float32)), tf.maximum(class_ids, 0))
        return ops.count_above_and_tied_by_blocks(
            self._scorer(encodings), self.num_classes, class_ids, scores
        )

    def export_embeddings(self, path):
        """Writes the class embeddings `[K, d]` to a NumPy file, block by block.

        Args:
            path: the file, for `np.load(path, mmap_mode="r")`. Its rows are float32, and of length
                1 where the layer scales them: inner products with them rank as the layer does. It
                gets its name when it is whole.

        Raises:
            OSError: if it cannot be written, as on a full disk; a file of that name stays then.
        """
        table = _keras.variable(self.class_embeddings)
        starts = range(0, self.num_classes, _ROWS_WRITTEN_AT_ONCE)
        ids = (tf.range(i, min(i + _ROWS_WRITTEN_AT_ONCE, self.num_classes)) for i in starts)
        blocks = (self._unit(tf.gather(table, rows)) for rows in ids)
        _files.write_rows(path, tuple(table.shape), blocks)

    def _scorer(self, encodings):
        encodings = self._unit(tf.cast(encodings, tf.float32))
        return lambda ids: self._score(encodings, ids, gradient=False)

    def _unit(self, rows):
        return _unit(rows) if self.normalize else rows

    def _score(self, encodings, ids, gradient=True):
        """Scores of classes that are shared `[m]`, or of each example's own `[batch, m]`."""
        rows = tf.gather(_keras.variable(self.class_embeddings), ids)
        if not gradient:
            rows = tf.stop_gradient(rows)
        scale_scores = self.normalize and not gradient and rows.shape[-1] > _WIDE
        if not scale_scores:
            rows = self._unit(rows)
        if ids.shape.rank == 1:
            scores = tf.matmul(encodings, rows, transpose_b=True)
        elif (ids.shape[1] or _FEW) < _FEW:
            scores = tf.reduce_sum(rows * tf.expand_dims(encodings, 1), axis=-1)
        else:
            scores = tf.einsum("bmd,bd->bm", rows, encodings)
        if scale_scores:
            scores *= _inverse_norms(rows)[..., 0]
        return scores

    def _draw_one(self, positives, seed):
        """One of the ids of each example, uniformly; 0 where there is none."""
        if positives.shape[1] != 1:
            draws = ops.uniform(tf.shape(positives), self._on_this_device(seed, 1))
            draws = tf.where(positives >= 0, draws, -1.0)
            positives = tf.gather(positives, tf.argmax(draws, axis=1), batch_dims=1)[:, tf.newaxis]
        return tf.maximum(positives[:, 0], 0)

    def _draw_negatives(self, batch, seed):
        """Class ids `[B]` shared by the batch, or `[batch, B]`."""
        if self.num_negatives == self.num_classes:
            return tf.range(self.num_classes)
        draw, size = ops.sample_distinct, self.num_negatives
        if self.shared_negatives:
            return draw(self.num_classes, size, seed)[0]
        return draw(self.num_classes, size, self._on_this_device(seed, 0), batch)

    def _on_this_device(self, seed, stream):
        """A seed for what must differ between the devices of a strategy."""
        replica = tf.distribute.get_replica_context()
        device = replica.replica_id_in_sync_group if replica else 0
        return ops.fold_in(ops.fold_in(seed, 1 + stream), device)

    def _score_negatives(self, encodings, negatives, positives, gradient=True):
        """Scores of negatives, -inf where one is a class of the example, and their class ids.

        The order of negatives of each example's own changes.
        """
        if negatives.shape.rank == 2:
            negatives = tf.sort(negatives)
            place = tf.minimum(tf.searchsorted(negatives, positives), self.num_negatives - 1)
            same = tf.gather(negatives, place, batch_dims=1) == positives
        else:
            place = positives
            if self.num_negatives < self.num_classes:
                # Where the first of its kind stands: of the negatives, all are.
                ids = tf.concat([negatives, tf.reshape(positives, [-1])], axis=0)
                first = tf.unique(ids).idx[self.num_negatives :]
                place = tf.reshape(first, tf.shape(positives))
            same = (place >= 0) & (place < self.num_negatives)
            place = tf.clip_by_value(place, 0, self.num_negatives - 1)
        scores = self._score(encodings, negatives, gradient)
        # An addition leaves the scores where they are in memory.
        scores = _top.add_columns(scores, place, tf.where(same, -float("inf"), 0.0))
        return scores, negatives
