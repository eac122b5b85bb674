"""`TwoTower`: what `fit`, `evaluate` and the user call, and the lists of a step.

`candidates.py` reads the candidates of a batch, `catalogue.py` keeps those of the index, and
`base.py` has what is shared with `ExtremeClassifier`: how a step's loss and the ranks of an
evaluation reach Keras.
"""

import os
from typing import Any

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks, _export, _files, _keras, ops
from rank4class_tf._lists import labels as _labels
from rank4class_tf._tf import exchange
from rank4class_tf._tf.loops import in_pieces
from rank4class_tf._tf.raising import same_sizes
from rank4class_tf._types import TensorLike
from rank4class_tf.layers import (
    CandidateFrequencies,
    CrossBatchMemory,
    HardNegativeMining,
    RemoveAccidentalHits,
    SamplingProbabilityCorrection,
    UniformNegatives,
)
from rank4class_tf.losses import RandomRankingLoss
from rank4class_tf.metrics import RankingMetric
from rank4class_tf.models.base import RetrievalModel, encode_in_pieces
from rank4class_tf.models.candidates import Columns, Reader, id_keys, known_to, of_key
from rank4class_tf.models.catalogue import Catalogue, fingerprint
from rank4class_tf.ops.blocks import unit_rows


@_keras.register
class TwoTower(RetrievalModel):
    r"""Retrieval with an encoder of queries and one of candidates, trained by any ranking loss.

    $$s_{ij} = \frac{1}{T} \frac{q_i}{\|q_i\|} \cdot \frac{c_j}{\|c_j\|}$$

    Train it on pairs `(query_features, candidate_features)`. In a training step, each query has a
    list of candidates. Its own candidate is the positive. The negatives are

    - the candidates of the other queries of the batch, on all devices of a strategy,
    - the candidates of earlier batches, with `memory_size`,
    - random candidates from the index, with `num_random`,
    - your own negatives, which you pass with the pairs, with `negatives`.

    A query may have several candidates: ids `[batch, P]`, padded with -1, and features
    `[batch, P, ...]`, or both ragged (XLA cannot compile ragged ones). All of them are positives of
    one list.

    A negative with the id of a positive is masked. `frequencies` corrects the scores of popular
    candidates, which are negatives too often. The loss sees the whole list, or only the
    highest-scoring negatives: as many as it uses, or `num_mined`. Each of these steps is also
    available as a layer: `CrossBatchMemory`, `RemoveAccidentalHits`, `CandidateFrequencies`,
    `SamplingProbabilityCorrection`, `HardNegativeMining`.

    `index(candidates)` gives the model all candidates. `top_k`, `ranks` and `evaluate` then rank
    all of them exactly, in blocks. `fit`, `evaluate` and `load_weights` encode the candidates again
    if the weights of their encoder have changed. After `set_weights` or a checkpoint, call
    `index()`. Calling the model, or `predict`, maps the features of queries to encodings. Towers
    may share layers. A subclass may have its own layers and losses: see `extra_loss`.

    Source: Yi et al. 2019, "Sampling-Bias-Corrected Neural Modeling for Large Corpus Item
    Recommendations"; Yang et al. 2020, "Mixed Negative Sampling for Learning Two-tower Neural
    Networks in Recommendations", for the negatives drawn from all; Gao et al. 2021, "Scaling Deep
    Contrastive Learning Batch Size under Memory Limited Setup", for `encode_in`.

    Args:
        query_encoder: a layer or model, features of queries -> `[batch, d]`.
        candidate_encoder: a layer or model, features of candidates -> `[batch, d]`.
        candidate_id: the key, in the candidate features, of the candidate ids: integers or strings.
            XLA cannot compile strings, and Keras 3's `fit` accepts them as tensors or object
            arrays. None if the features are the ids, or if candidates have no ids; then all
            candidates of a batch count as different.
        exclude: None, or the key, in the query features, of candidate ids `[batch, E]` that
            `top_k`, `ranks` and `evaluate` leave out, such as those already seen. Integers are
            padded with -1, strings with any string that is not an id.
        normalize: whether encodings are scaled to length 1.
        temperature: T > 0. With cosines, a softmax learns little at 1: try 0.1 first.
        frequencies: None, or a `CandidateFrequencies` for the log-Q correction. Use it with a
            softmax, and set the temperature here, not in the loss. It needs ids, as does
            `memory_size`.
        memory_size: how many candidates of earlier batches are negatives, >= 0.
        num_random: how many random candidates from the index are negatives, >= 0. Call `index`
            before `fit`.
        num_mined: how many of the highest-scoring negatives the loss gets, >= 1; None for as many
            as it uses.
        negatives: None, or the key, in the candidate features, that holds the features of
            additional negatives, `[batch, H, ...]`, padded with the id -1, or ragged. They are
            negatives of all queries of the batch. The log-Q correction does not change their
            scores. They require a `candidate_id`. Evaluation does not need them.
        negative_weight: None, or the key, in the features of candidates or of `negatives`, of
            weights > 0, of the shape of the ids. In a softmax, a negative of weight w counts like
            w negatives: log w is added to its score.
        encode_in: None, or how many queries or candidates are encoded at once, >= 1, so that a
            large batch needs only the memory of one piece. The step is the same; the encoders run
            twice. Both runs use the same dropout (in Keras 2 only after
            `keras.backend.experimental.enable_tf_random_generator()`). A batch normalization sees
            one piece at a time. Encoders must not add activity losses.
        score_in: None, or how many queries are scored at once, >= 1, so that the `[batch, n]`
            scores of n candidates are never in memory at once. The step is the same. Not available
            for losses that draw random numbers.
        seed: an int, for the random draws; None draws one from NumPy's global generator.
        **kwargs: arguments of Keras, such as `name`.

    Example:
        >>> from tensorflow import keras
        >>> model = TwoTower(
        ...     keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(8)]),
        ...     keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(8)]),
        ... )
        >>> model.index(tf.random.normal([100, 3]))
        >>> scores, rows = model.top_k(tf.ones([2, 4]), k=5)
        >>> rows.shape
        TensorShape([2, 5])
    """

    _parts = ("query_encoder", "candidate_encoder", "frequencies")
    _scored = "the candidates of a batch"

    def __init__(
        self,
        query_encoder: Any,
        candidate_encoder: Any,
        *,
        candidate_id: str | None = None,
        exclude: str | None = None,
        normalize: bool = True,
        temperature: float = 1.0,
        frequencies: CandidateFrequencies | None = None,
        memory_size: int = 0,
        num_random: int = 0,
        num_mined: int | None = None,
        negatives: str | None = None,
        negative_weight: str | None = None,
        encode_in: int | None = None,
        score_in: int | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.query_encoder = _keras.checked_layer("query_encoder", query_encoder)
        self.candidate_encoder = _keras.checked_layer("candidate_encoder", candidate_encoder)
        self.candidate_id = _checks.string_or_none("candidate_id", candidate_id)
        self.exclude = _checks.string_or_none("exclude", exclude)
        self.normalize = _checks.flag("normalize", normalize)
        self.temperature = _checks.positive_float("temperature", temperature)
        if frequencies is not None:
            frequencies = _keras.checked_layer("frequencies", frequencies)
        self.frequencies = frequencies
        self.memory_size = _checks.non_negative_int("memory_size", memory_size)
        self.num_random = _checks.non_negative_int("num_random", num_random)
        self.num_mined = _positive_or_none("num_mined", num_mined)
        self.negatives = _checks.string_or_none("negatives", negatives)
        self.negative_weight = _checks.string_or_none("negative_weight", negative_weight)
        self.encode_in = _positive_or_none("encode_in", encode_in)
        self.score_in = _positive_or_none("score_in", score_in)
        if negatives is not None and candidate_id is None:
            raise ValueError("`candidate_id` must be given with `negatives`. Received: None.")
        # Scores keep their precision under mixed precision.
        self._remove_hits = RemoveAccidentalHits()
        self._correct = SamplingProbabilityCorrection()
        self._memory = CrossBatchMemory(memory_size) if memory_size else None
        self._random = UniformNegatives(num_random, seed) if num_random else None
        if self._random is not None:
            seed = self._random.seed
        self.seed = None if seed is None else _checks.seed(seed)
        self._reader = Reader(candidate_encoder, candidate_id, negatives, negative_weight)
        self._holder = _CatalogueHolder()
        _check_widths(query_encoder, candidate_encoder)
        for layer in (self._remove_hits, self._correct, self._random, frequencies):
            if layer is not None and not layer.built:
                layer.build(None)
        if self._memory is not None and _keras.symbolic_inputs(candidate_encoder) is not None:
            self._memory.build((None, candidate_encoder.output_shape[-1]))
        self._build_by(query_encoder)

    def build(self, input_shape: Any) -> None:
        self.built = True  # The encoders build themselves.

    def call(self, inputs: Any, training: bool | None = None) -> tf.Tensor:
        known = known_to(self.query_encoder, inputs, "x")
        return self._encoded(self.query_encoder, known, training)

    def index(
        self, candidates: Any = None, batch_size: int = 1024, in_shards: bool = False
    ) -> None:
        """Encodes all candidates.

        A saved model does not include the index; `export_top_k` writes it. If this method raises an
        error, an older index stays in use.

        Args:
            candidates: features as in training, arrays or a dict or tuple of arrays, with a row
                for each candidate, whose ids differ; or a `tf.data.Dataset` of batches of them, in
                which case only ids and encodings are kept in memory; None to encode the candidates
                of the last call again. Candidates need not occur in training.
            batch_size: how many candidates are encoded at once, >= 1; a dataset has its own.
            in_shards: whether each replica of a strategy holds only a part of the encodings, for a
                catalogue larger than a device. With several machines, all workers must then search
                the index at the same time.
        """
        batch_size = _checks.positive_int("batch_size", batch_size)
        with self.distribute_strategy.scope():
            how = self._reader.ids, self._encode_candidates, batch_size
            if candidates is None:
                self._catalogue.encode(*how)
            else:
                self._search(Catalogue.of(candidates, *how, in_shards))
        self._catalogue.encoded_with = fingerprint(self.candidate_encoder)

    def add_candidates(self, candidates: Any) -> None:
        """Adds candidates to the index, given as features with ids, and encodes only these.

        A candidate whose id is already in the index replaces the old one.
        """
        ids = self._reader.ids(candidates)
        if ids is None:
            raise ValueError("`candidates` must have ids to be added. Received: candidate_id=None.")
        with self.distribute_strategy.scope():
            rows = self._encode_candidates(candidates)
            self._search(self._catalogue.with_candidates(candidates, ids, rows))

    def remove_candidates(self, ids: TensorLike) -> None:
        """Removes candidates from the index, by ids `[n]`, or row numbers if they have no ids."""
        with self.distribute_strategy.scope():
            self._search(self._catalogue.without(tf.convert_to_tensor(ids)))

    def _search(self, catalogue):
        """Makes an encoded catalogue the index."""
        self._holder.catalogue = catalogue
        if _keras.KERAS_3 and catalogue.ids.dtype == tf.string:
            # XLA compiles no strings, and Keras asks a model only when it is compiled.
            self.supports_jit = self.jit_compile = False
        # Steps that Keras traced before read the old index.
        self.train_function = self.test_function = None

    def _encode_what_changed(self):
        """Encodes the candidates again if the weights of their encoder have changed."""
        if self._catalogue.encoded_with != fingerprint(self.candidate_encoder):
            self.index()

    def top_k(
        self, queries: Any, k: int | tf.Tensor, exclude: TensorLike | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Finds the k candidates with the highest scores, in blocks of candidates.

        Args:
            queries: a batch of what the query encoder takes.
            k: in [1, N], an int or a scalar tensor.
            exclude: ids to leave out, `[batch, E]`; None for those of the key `exclude`, if any.
                If fewer than k candidates are left, the last ones have the score -inf.

        Returns:
            Scores and candidate ids, both `[batch, k]`, the best first. If candidates have no ids,
            row numbers in the index. Candidates whose scores differ only by rounding may come in
            any order.
        """
        scores, rows = self._best(queries, k, exclude)
        return scores, tf.gather(self._catalogue.ids, rows)

    def _best(self, queries, k, exclude):
        excluded = self._excluded(queries, exclude)
        return self._catalogue.head.top_k(self._encode_queries(queries), k, excluded)

    def write_top_k(self, path: str | os.PathLike[str], queries: tf.data.Dataset, k: int) -> None:
        """Writes the k candidates with the highest scores of very many queries.

        Args:
            path: a folder, which must exist. The method writes `scores.npy` and
                `candidate_ids.npy` there, both `[queries, k]`, for `np.load(file, mmap_mode="r")`;
                string ids are bytes.
            queries: a dataset of batches of what the query encoder takes.
            k: in [1, N].

        Raises:
            OSError: if a file cannot be written; an existing file of that name stays unchanged.
        """
        ids = self._catalogue.ids.numpy()
        ids = ids.astype("S") if ids.dtype == object else ids
        best = tf.function(lambda of: self._best(of, k, None), reduce_retracing=True)
        files = os.path.join(path, "scores.npy"), os.path.join(path, "candidate_ids.npy")
        with (
            _files.appending_rows(files[0], (k,), np.dtype(np.float32)) as add_scores,
            _files.appending_rows(files[1], (k,), ids.dtype) as add_ids,
        ):
            for of_batch in queries:
                scores, rows = best(of_batch)
                add_scores(scores.numpy())
                add_ids(ids[rows.numpy()])

    def ranks(self, queries: Any, candidates: Any, exclude: TensorLike | None = None) -> ops.Ranks:
        """Ranks given candidates among all, in blocks of candidates.

        Args:
            queries: a batch of what the query encoder takes.
            candidates: features of the candidate of each query; only the ids are read, which may be
                `[batch, P]`, integers padded with -1.
            exclude: as in `top_k`; a given candidate that is excluded has no rank.

        Returns:
            `ops.Ranks`, which metrics accept as labels: `metric.update_state(ranks, None)`.
            Scores that differ only by rounding tie; see `SampledScores.ranks`. The ranks of a query
            with an id that is not in the index are NaN.
        """
        return self._ranks(self._encode_queries(queries), queries, candidates, exclude)

    def export_top_k(
        self, path: str | os.PathLike[str], queries_spec: Any, k: int | None = None
    ) -> None:
        """Writes a SavedModel that finds the k candidates with the highest scores.

        It runs without this package, as in TensorFlow Serving, and has the signatures

        - `top_k(queries, k) -> scores, candidate_ids`, which fails unless k is in [1, N],
        - `serving_default(queries)`, the same for the `k` given here.

        Args:
            path: a folder. The SavedModel replaces an older one there once it is complete.
            queries_spec: `tf.TensorSpec`s of the query features, in the same structure, such as a
                dict.
            k: in [1, N]; None means 10, or N if that is less.
        """
        catalogue = self._catalogue

        def best(queries, k):
            scores, candidate_ids = self.top_k(queries, k)
            return {"scores": scores, "candidate_ids": candidate_ids}

        if not self.built:
            tf.function(self).get_concrete_function(queries_spec)
        arguments = queries_spec, catalogue.size, k, None, [catalogue.head]
        _export.write_top_k(path, self, best, *arguments)

    def export_candidates(self, path: str | os.PathLike[str]) -> None:
        """Writes the encodings of the index `[N, d]` to a NumPy file, for approximate search.

        `top_k` finds the candidates with the highest inner products with the output of `predict`.
        `examples/approximate_search.py` passes the file to FAISS.

        Args:
            path: the file, for `np.load(path, mmap_mode="r")`. It appears under its name only once
                it is complete.

        Raises:
            OSError: if it cannot be written, as on a full disk; an existing file of that name stays
                unchanged.
        """
        self._catalogue.head.export_embeddings(path)

    def fit(self, *args: Any, class_weight: None = None, **kwargs: Any) -> Any:
        """Trains as Keras does, then encodes the candidates again if `index` was called."""
        if class_weight is not None:  # Keras would read features as classes.
            raise ValueError(
                "`class_weight` must be None: give each example its `sample_weight`. "
                f"Received: {class_weight}."
            )
        history = super().fit(*args, **kwargs)
        if self._holder.catalogue is not None:
            self._encode_what_changed()
        return history

    def load_weights(self, *args: Any, **kwargs: Any) -> Any:
        """Loads weights as Keras does, then encodes the candidates again if `index` was called."""
        result = super().load_weights(*args, **kwargs)
        if self._holder.catalogue is not None:
            self._encode_what_changed()
        return result

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """Encodes what has changed and evaluates as Keras does, by ranks among all candidates.

        The metrics read only the ids of candidates. If a batch has several ids per query and not
        their features, the loss is NaN.
        """
        self._encode_what_changed()
        return super().evaluate(*args, **kwargs)

    def extra_loss(
        self, queries: tf.Tensor, candidates: tf.Tensor, x: Any, y: Any, training: bool
    ) -> tf.Tensor | None:
        """Returns a second loss of a step, for subclasses; it is added to the retrieval loss.

        It may use layers that the subclass created after `super().__init__`, and update metrics
        that the subclass keeps as attributes. `examples/retrieval_and_rating.py` predicts ratings
        in this way.

        Args:
            queries: query encodings `[batch, d]`, as the encoder returns them.
            candidates: candidate encodings, `[batch, d]`, or `[batch, P, d]` if queries have
                several; padded places hold any numbers.
            x: the query features.
            y: the candidate features. If the candidate encoder has named inputs, this may hold
                further features, such as ratings.
            training: False in evaluation.

        Returns:
            A scalar, such as a mean over the batch; None for no second loss.
        """
        del queries, candidates, x, y, training
        return None

    def _scores_of_step(
        self, x: Any, y_pred: tf.Tensor, y: Any, training: bool
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Scores of the positives of each query and of negatives, and the positives' columns."""
        ids = self._reader.ids(y)
        if not training and not self._reader.has_features(y, ids):
            # Evaluation reads only the ids. NaN goes through the compiled loss, as Keras 2 reports
            # what this has seen.
            batch = tf.shape(y_pred)[0]
            unknown = tf.fill([batch, 2], float("nan"))
            return unknown, tf.zeros([batch], tf.int32)
        own = self._reader.candidates(y, ids, training)
        encodings = self._encoded(self.candidate_encoder, own.features, training)
        if encodings.shape.rank != 2:
            raise ValueError(
                "`candidate_encoder` must give encodings [batch, d] of the candidates in `y`. "
                f"Received: encodings of shape {encodings.shape}."
            )
        rule = "`y` must have the features of a candidate for each query."
        places = same_sizes(own.places, y_pred, rule)
        of_queries = tf.gather(encodings, tf.maximum(places, 0))
        extra = self.extra_loss(y_pred, of_queries, x, y, training)
        if extra is not None:
            _keras.add_loss(self, extra)
        encodings = self._scaled(encodings)
        labels = exchange.first_row(encodings) + places
        if own.several:
            labels = tf.where(places < 0, -1, labels)
        columns = self._columns(own, encodings, training)
        queries = self._scaled(y_pred) / self.temperature
        if own.wrong is not None:
            queries = tf.where(own.wrong[:, tf.newaxis], float("nan"), queries)
        if self.score_in is None:
            return self._lists(queries, labels, columns)
        return self._losses_of_lists(queries, labels, columns, self.score_in), None

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments."""
        names = (
            *("candidate_id", "exclude", "normalize", "temperature"),
            *("memory_size", "num_random", "num_mined"),
            *("negatives", "negative_weight", "encode_in", "score_in", "seed"),
        )
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}

    def _check_loss(self, loss):
        super()._check_loss(loss)
        if self.score_in is not None and isinstance(loss, RandomRankingLoss):
            raise ValueError(
                "`loss` must draw no random numbers with `score_in`, since all pieces of a batch "
                f"would draw the same. Received: {loss!r}."
            )

    def _ranks_of_batch(
        self, x: Any, y: Any, y_pred: tf.Tensor, metrics: list[RankingMetric]
    ) -> ops.Ranks:
        """Ranks among all candidates of the index."""
        return self._ranks(self._scaled(y_pred) / self.temperature, x, y, None)

    def _all_ranks(self, x: Any, y: Any, y_pred: tf.Tensor) -> ops.Ranks:
        """The same, which are all."""
        return self._ranks_of_batch(x, y, y_pred, [])

    @property
    def _catalogue(self):
        if self._holder.catalogue is None:
            raise ValueError(
                "`index(candidates)` must be called first, to give the model all candidates."
            )
        return self._holder.catalogue

    def _scaled(self, encodings):
        encodings = tf.cast(encodings, tf.float32)
        return unit_rows(encodings) if self.normalize else encodings

    def _encoded(self, encoder, features, training):
        if training and self.encode_in is not None and encoder.built:
            return encode_in_pieces(encoder, features, self.encode_in)
        return encoder(features, training=training)

    def _encode_queries(self, queries):
        return self._scaled(self(queries, training=False)) / self.temperature

    def _encode_candidates(self, features, training=False):
        known = known_to(self.candidate_encoder, features, "candidates")
        return self._scaled(self._encoded(self.candidate_encoder, known, training))

    def _columns(self, own, encodings, training):
        """The `Columns` of a step: the candidates of the batch, of the memory and of the index."""
        if own.keys is None and (self.frequencies is not None or self._memory is not None):
            raise ValueError(
                "`candidate_id` must be given with `frequencies` or `memory_size`, unless the "
                f"features are ids. Received: candidate_id=None, features={own.features!r}."
            )
        # Those of all replicas: positives, padding of positives, and the user's own negatives.
        of_batch = exchange.gathered(encodings)
        keys = None if own.keys is None else exchange.gathered(own.keys)
        is_own = None if own.is_own is None else exchange.gathered(own.is_own)
        has_gaps = own.several or is_own is not None
        there = keys != -1 if has_gaps else tf.ones(tf.shape(of_batch)[:1], tf.bool)
        draws = there if is_own is None else there & is_own
        parts = [(of_batch, keys, there)]
        if self.frequencies is not None:
            self.frequencies(tf.where(draws, keys, -1), training=training)
        num_draws = tf.math.count_nonzero(draws, dtype=tf.int32)
        if self._memory is not None:
            kept, kept_keys, filled = self._memory(of_batch, keys, training=training)
            parts.append((kept, kept_keys, filled & (kept_keys != -1)))
            num_draws += tf.math.count_nonzero(parts[-1][2], dtype=tf.int32)
        share = 0.0
        if self._random is not None:
            catalogue = self._catalogue
            rows = self._random(catalogue.keys, training=training)
            drawn = self._encode_candidates(catalogue.rows(rows), training)
            parts.append((drawn, tf.gather(catalogue.keys, rows), tf.ones(rows.shape, tf.bool)))
            share = rows.shape[0] / catalogue.size
        all_encodings, all_keys, all_there = (
            None if column[0] is None else tf.concat(column, axis=0)
            for column in zip(*parts, strict=True)
        )

        def with_others(of_batch, filler):
            """Values of the candidates of the batch, and one value for all others."""
            others = tf.fill([tf.size(all_there) - tf.size(of_batch)], filler)
            return tf.concat([of_batch, others], axis=0)

        rate = base = None
        if self.frequencies is not None:
            rate = self.frequencies(all_keys, training=False)
            base = tf.fill(tf.shape(rate), share)
            if is_own is not None:  # Negatives of one's own are no draws.
                is_draw = with_others(is_own, True)
                rate, base = tf.where(is_draw, rate, 0.0), tf.where(is_draw, base, 1.0)
        if own.weights is not None:
            weights = with_others(exchange.gathered(own.weights), 1.0)
            rate = tf.zeros_like(weights) if rate is None else rate / weights
            base = (1.0 if base is None else base) / weights
        if self._memory is None and not has_gaps:
            all_there = None
        return Columns(
            all_encodings, all_keys, all_there, tf.cast(num_draws, tf.float32), rate, base
        )

    def _lists(self, queries, labels, columns):
        """Scores `[batch, n]`, -inf where masked, and the columns of the positives."""
        several = labels.shape.rank == 2
        scores = tf.matmul(queries, columns.encodings, transpose_b=True)
        if columns.there is not None:
            scores = tf.where(columns.there, scores, -float("inf"))
        if columns.keys is not None:
            scores = self._remove_hits(scores, labels, columns.keys)
        if columns.rate is not None:
            own = tf.math.count_nonzero(labels >= 0, axis=1, keepdims=True) if several else 1
            draws = columns.draws - tf.cast(own, tf.float32)
            if self._random is None:  # A batch of one example has no draws, and 0 no logarithm.
                draws = tf.maximum(draws, 1.0)
            scores = self._correct(scores, labels, draws * columns.rate + columns.base)
        # A batch without a query may have no candidate, which losses need; and losses read labels
        # as wide as the scores as relevance, so that one more column tells ids apart.
        if several or not scores.shape[1]:
            fewest = tf.shape(labels)[1] if several else 0
            missing = tf.cast(tf.shape(scores)[1] <= fewest, tf.int32)
            fill = -float("inf") if several else 0.0
            scores = tf.pad(scores, [[0, 0], [0, missing]], constant_values=fill)
        num_mined = self.num_mined or self._mined_by_loss()
        if num_mined is not None:
            return HardNegativeMining(num_mined)(scores, labels)
        return scores, labels

    def _losses_of_lists(self, queries, labels, columns, size):
        """The losses of the examples, `size` lists at once."""

        def losses(labels, queries, encodings):
            scores, labels = self._lists(queries, labels, columns._replace(encodings=encodings))
            return self.loss.call(labels, scores)

        spec = tf.TensorSpec([size], tf.float32)
        return in_pieces(losses, labels, size, spec, [queries], [columns.encodings])

    def _excluded(self, queries, exclude):
        """The rows `[batch, E]` of the index to leave out; None for none."""
        if exclude is None and self.exclude is not None:
            exclude = of_key("exclude", self.exclude, queries)
        if exclude is None:
            return None
        exclude = _checks.rows_of_ids("exclude", exclude)
        if isinstance(exclude, tf.RaggedTensor):
            # Padded as rows: of ids any may be one.
            rows = self._catalogue.places(exclude.flat_values, "exclude")
            return exclude.with_flat_values(rows).to_tensor(-1)
        return self._catalogue.places(exclude, "exclude")

    def _ranks(self, encodings, queries, candidates, exclude):
        catalogue = self._catalogue
        ids = self._reader.ids(candidates)
        if ids is None:
            raise ValueError(
                "`candidate_id` must be given to rank candidates, unless their features are ids. "
                f"Received: candidate_id=None, candidates={candidates!r}."
            )
        rule = "`candidates` must have a row for each query."
        ids = same_sizes(_labels.in_rows(ids), encodings, rule)
        rows = catalogue.places(ids, "candidate_id")
        padded = (id_keys(ids) == -1) & (ids.dtype != tf.string)
        unknown = tf.reduce_any((rows < 0) & ~padded, axis=1, keepdims=True)
        excluded = self._excluded(queries, exclude)
        num_items = tf.fill(tf.shape(rows)[:1], tf.constant(catalogue.size, tf.float64))
        if excluded is not None:
            gone = tf.reduce_any(rows[:, :, tf.newaxis] == excluded[:, tf.newaxis], axis=2)
            rows = tf.where(gone, -1, rows)
            distinct = _labels.distinct_ids(excluded)
            num_items -= tf.math.count_nonzero(distinct >= 0, axis=1, dtype=tf.float64)
        rows = _labels.distinct_ids(rows)
        above, tied = catalogue.head.ranks(encodings, rows, excluded)
        nan = tf.constant(float("nan"), tf.float64)
        above = tf.where(unknown, nan, tf.cast(above, tf.float64))
        tied = tf.cast(tied, tf.float64)
        relevance = tf.cast((rows >= 0) | unknown, tf.float64)
        size = tf.constant(catalogue.size)
        return ops.Ranks(above, tied, relevance, num_items, size, class_ids=rows)


class _CatalogueHolder:
    """Hides the catalogue from Keras, which would save its layers as a part of the model."""

    catalogue: Catalogue | None = None


def _positive_or_none(name, value):
    return None if value is None else _checks.positive_int(name, value)


def _check_widths(query_encoder, candidate_encoder):
    """Raises if both encoders are known to give encodings, and these have different widths."""
    shapes = [getattr(x, "output_shape", None) for x in (query_encoder, candidate_encoder)]
    widths = {shape[-1] for shape in shapes if isinstance(shape, tuple) and shape} - {None}
    if len(widths) > 1:
        raise ValueError(
            "`query_encoder` and `candidate_encoder` must give encodings of one width. "
            f"Received: output shapes {shapes[0]} and {shapes[1]}."
        )
