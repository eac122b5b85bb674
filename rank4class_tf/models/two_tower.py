"""TwoTower."""

import os
from typing import Any

import tensorflow as tf

from rank4class_tf import _checks, _export, _keras, ops
from rank4class_tf._lists import labels as _labels
from rank4class_tf._tf import replicas
from rank4class_tf._tf.raising import check, same_sizes
from rank4class_tf._types import TensorLike
from rank4class_tf.layers import (
    CandidateFrequencies,
    CrossBatchMemory,
    HardNegativeMining,
    RemoveAccidentalHits,
    SamplingProbabilityCorrection,
    UniformNegatives,
)
from rank4class_tf.metrics import ExpectedCalibrationError, MacroAverage, RankingMetric
from rank4class_tf.models._base import RetrievalModel
from rank4class_tf.models._catalogue import Catalogue, id_keys
from rank4class_tf.ops.classes.interactions import unit_rows


@_keras.register
class TwoTower(RetrievalModel):
    r"""Retrieval by two encoders, of queries and of candidates, trained by any ranking loss.

    $$s_{ij} = \frac{1}{T} \frac{q_i}{\|q_i\|} \cdot \frac{c_j}{\|c_j\|}$$

    Fit it on pairs `(query_features, candidate_features)`. In a step, the list of a query has its
    own candidate, the positive, and as negatives

    - the candidates of the other queries of the batch, on all devices of a strategy,
    - those of earlier batches, with `memory_size`,
    - candidates drawn from all, with `num_random`.

    A negative with the id of the positive is masked. `frequencies` corrects the scores for the
    share of frequent candidates among the negatives. The loss gets the whole list or only its
    highest negatives: as many as the loss reads, or `num_mined`. Each of these steps is also a
    layer: `CrossBatchMemory`, `RemoveAccidentalHits`, `CandidateFrequencies`,
    `SamplingProbabilityCorrection`, `HardNegativeMining`.

    `index(candidates)` gives the model all candidates. `top_k`, `ranks` and `evaluate` then rank
    all of them, in blocks, exactly. `fit`, `evaluate` and `load_weights` encode them again; after
    `set_weights` or a checkpoint, call `index()`. The model itself maps the features of queries to
    encodings, for `predict`. Towers may share layers. Keras cannot load a `.keras` file of such
    towers, since it makes two layers of one; use `save_weights` and `load_weights`.

    Source: Yi et al. 2019, "Sampling-Bias-Corrected Neural Modeling for Large Corpus Item
    Recommendations"; Yang et al. 2020, "Mixed Negative Sampling for Learning Two-tower Neural
    Networks in Recommendations", for the negatives drawn from all.

    Args:
        query_encoder: a layer or model, features of queries -> `[batch, d]`.
        candidate_encoder: a layer or model, features of candidates -> `[batch, d]`.
        candidate_id: the key of the candidates' ids, integers or strings (which XLA does not
            compile, and which Keras 3's `fit` takes as tensors or as arrays of objects), in their
            features. None if the features are the ids, or if candidates have no ids: then all
            candidates of a batch count as different.
        exclude: None, or the key, in the features of queries, of candidate ids `[batch, E]` that
            `top_k`, `ranks` and `evaluate` leave out, such as those seen already. Integers are
            padded with -1, strings with any string that is not an id.
        normalize: whether encodings are scaled to length 1.
        temperature: T > 0.
        frequencies: None, or a `CandidateFrequencies` for the log-Q correction. It is for a softmax
            with the temperature here, not in the loss.
        memory_size: how many candidates of earlier batches are negatives, >= 0.
        num_random: how many candidates drawn from all are negatives, >= 0; it needs `index` before
            `fit`.
        num_mined: None for as many of the highest negatives as the loss reads, or how many, >= 1.
        seed: of the draws, an int; None draws one from NumPy's global generator.
        **kwargs: Keras's own, such as `name`.

    Raises:
        ValueError: if a number is out of range. From `fit`, if candidates have no ids and
            `frequencies` or `memory_size` needs them.

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
        self.num_mined = None if num_mined is None else _checks.positive_int("num_mined", num_mined)
        # Scores keep their precision under mixed precision.
        self._remove_hits = RemoveAccidentalHits()
        self._correct = SamplingProbabilityCorrection()
        self._memory = CrossBatchMemory(memory_size) if memory_size else None
        self._random = UniformNegatives(num_random, seed) if num_random else None
        if self._random is not None:
            seed = self._random.seed
        self.seed = None if seed is None else _checks.seed(seed)
        self._holder = _CatalogueHolder()
        of_candidates = _keras.symbolic_inputs(candidate_encoder)
        _check_widths(query_encoder, candidate_encoder)
        for layer in (self._remove_hits, self._correct, self._random, frequencies):
            if layer is not None and not layer.built:
                layer.build(None)
        if self._memory is not None and of_candidates is not None:
            self._memory.build((None, candidate_encoder.output_shape[-1]))
        self._build_by(query_encoder)

    def build(self, input_shape: Any) -> None:
        """Does nothing, since the encoders build themselves."""
        self.built = True

    def call(self, inputs: Any, training: bool | None = None) -> tf.Tensor:
        """Maps features of queries to encodings `[batch, d]`."""
        return self.query_encoder(_known(self.query_encoder, inputs), training=training)

    def index(self, candidates: Any = None, batch_size: int = 1024) -> None:
        """Encodes all candidates.

        A saved model does not have the index; `export_top_k` writes it.

        Args:
            candidates: features as in training, arrays or a dict or tuple of arrays, with a row
                for each candidate; None to encode those of the last call again. Training need not
                have seen them.
            batch_size: candidates that are encoded at once, >= 1.

        Raises:
            ValueError: if numbers of rows differ, an id occurs twice or is -1, or there are no
                candidates.
        """
        batch_size = _checks.positive_int("batch_size", batch_size)
        if candidates is not None:
            self._holder.catalogue = Catalogue(candidates, self._ids(candidates))
            if _keras.KERAS_3 and self._catalogue.ids.dtype == tf.string:
                # XLA compiles no strings, and Keras asks a model only when it is compiled.
                self.supports_jit = self.jit_compile = False
            # Steps that Keras traced before read the old index.
            self.train_function = self.test_function = None
        with self.distribute_strategy.scope():
            self._catalogue.encode(self._encode_candidates, batch_size)

    def top_k(
        self, queries: Any, k: int | tf.Tensor, exclude: TensorLike | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Finds the k candidates with the highest scores, in blocks of candidates.

        Args:
            queries: a batch of what the query encoder takes.
            k: in [1, N], an int or a scalar tensor.
            exclude: ids to leave out, `[batch, E]`; None for those of the key `exclude`, if any.
                Where fewer than k are left, the last have the score -inf.

        Returns:
            Scores and candidate ids, both `[batch, k]`, the best first. Without ids, the numbers of
            rows in the index.
        """
        catalogue = self._catalogue
        encodings = self._encode_queries(queries)
        scores, rows = catalogue.head.top_k(encodings, k, self._excluded(queries, exclude))
        return scores, tf.gather(catalogue.ids, rows)

    def ranks(self, queries: Any, candidates: Any, exclude: TensorLike | None = None) -> ops.Ranks:
        """Ranks given candidates among all, in blocks of candidates.

        Args:
            queries: a batch of what the query encoder takes.
            candidates: features of the candidate of each query; only the ids are read, which may be
                `[batch, P]`, integers padded with -1.
            exclude: as in `top_k`; a given candidate that is excluded has no rank.

        Returns:
            `ops.Ranks`, which metrics take as labels: `metric.update_state(ranks, None)`.
            A query with an id that is not in the index has NaN for ranks.
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
            path: a folder. The SavedModel replaces an older one there when it is whole.
            queries_spec: `tf.TensorSpec`s of the features of queries, in their structure.
            k: in [1, N]; None means 10, or N if that is less.

        Raises:
            ValueError: if `k` is out of range, or `index` was not called.
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

        The candidates with the highest inner products with the encoding that `predict` gives are
        those of `top_k`. `examples/approximate_search.py` hands them to ScaNN.

        Args:
            path: the file, for `np.load(path, mmap_mode="r")`. It gets its name when it is whole.

        Raises:
            OSError: if it cannot be written, as on a full disk; a file of that name stays then.
            ValueError: if `index` was not called.
        """
        self._catalogue.head.export_embeddings(path)

    def fit(self, *args: Any, class_weight: None = None, **kwargs: Any) -> Any:
        """Trains as Keras does, then encodes the candidates again if `index` was called.

        Raises:
            ValueError: if there is a `class_weight`: Keras would take features for classes.
        """
        if class_weight is not None:
            raise ValueError(
                "`class_weight` must be None: give each example its `sample_weight`. "
                f"Received: {class_weight}."
            )
        history = super().fit(*args, **kwargs)
        if self._holder.catalogue is not None:
            self.index()
        return history

    def load_weights(self, *args: Any, **kwargs: Any) -> Any:
        """Loads weights as Keras does, then encodes the candidates again if `index` was called."""
        result = super().load_weights(*args, **kwargs)
        if self._holder.catalogue is not None:
            self.index()
        return result

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """Encodes all candidates again and evaluates as Keras does, by ranks among all of them.

        Where queries have several candidates, only their ids are read, and the loss is NaN.
        """
        self.index()
        return super().evaluate(*args, **kwargs)

    def _scores_of_step(
        self, y_pred: tf.Tensor, y: Any, training: bool
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Scores of the positive of each query and of negatives, and the positives' columns."""
        ids = self._ids(y)
        wrong = None  # Whether queries have several ids, if only the running graph knows.
        if ids is not None and ids.shape.rank is None:
            # Keras traced this for ids of several ranks. Only a single id of a query has a loss.
            rows = _labels.in_rows(ids)
            wrong = tf.fill(tf.shape(rows), tf.shape(rows)[1] != 1)
            if training:
                check(wrong, rows, "`y` must hold one id for each query in training")
            ids = rows[:, 0]
            y = ids if self.candidate_id is None else {**y, self.candidate_id: ids}
        several = ids is not None and ids.shape.rank != 1 and ids.shape[1:] != [1]
        if several and not training:
            # Evaluation reads only the ids. NaN goes through the compiled loss, as Keras 2 reports
            # what this has seen.
            batch = tf.shape(y_pred)[0]
            unknown = tf.fill([batch, 2], float("nan"))
            return unknown, tf.zeros([batch], tf.int32)
        if several and ids.shape.rank == 2:
            raise ValueError(
                "`candidate_id` must be given where the features of a candidate are several "
                "integers; in training a query has one candidate. Received: "
                f"candidate_id={self.candidate_id!r}, ids of shape {ids.shape}."
            )
        scores, labels = self._scores_of_lists(y_pred, y, ids, training)
        if wrong is not None:
            scores = tf.where(wrong[:, :1], float("nan"), scores)
        num_mined = self.num_mined or self._mined_by_loss()
        if num_mined is not None:
            scores, labels = HardNegativeMining(num_mined)(scores, labels)
        return scores, labels

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments."""
        names = (
            *("candidate_id", "exclude", "normalize", "temperature"),
            *("memory_size", "num_random", "num_mined", "seed"),
        )
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}

    def _check_metric(self, argument: str, metric: Any) -> None:
        """Raises unless a metric takes ranks and is one of queries."""
        super()._check_metric(argument, metric)
        if isinstance(metric, MacroAverage | ExpectedCalibrationError):
            raise ValueError(
                f"`{argument}` must hold metrics of queries, not of classes. Received: {metric!r}."
            )

    def _ranks_of_batch(
        self, x: Any, y: Any, y_pred: tf.Tensor, metrics: list[RankingMetric]
    ) -> ops.Ranks:
        """Ranks among all candidates of the index."""
        return self._ranks(self._scaled(y_pred) / self.temperature, x, y, None)

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

    def _encode_queries(self, queries):
        return self._scaled(self(queries, training=False)) / self.temperature

    def _encode_candidates(self, features, training=False):
        known = _known(self.candidate_encoder, features)
        return self._scaled(self.candidate_encoder(known, training=training))

    def _ids(self, features):
        """The ids among features of candidates; None if they have no ids."""
        if self.candidate_id is not None:
            return tf.convert_to_tensor(_of_key("candidate_id", self.candidate_id, features))
        if isinstance(features, (dict, tuple, list)):
            return None
        features = tf.convert_to_tensor(features)
        is_id = features.dtype.is_integer or features.dtype == tf.string
        return features if is_id and features.shape.rank in (None, 1, 2) else None

    def _scores_of_lists(self, encodings, features, ids, training):
        """Scores `[batch, n]`, -inf where masked, and the columns of the positives."""
        queries = self._scaled(encodings) / self.temperature
        rule = "`y` must have the features of a candidate for each query."
        own = same_sizes(self._encode_candidates(features, training), queries, rule)
        labels = replicas.first_row(own) + tf.range(tf.shape(own)[0])
        candidates = [replicas.gathered(own)]
        keys: list[Any] = []
        if ids is not None:
            keys = [replicas.gathered(id_keys(tf.reshape(ids, [-1])))]
        elif self.frequencies is not None or self._memory is not None:
            raise ValueError(
                "`candidate_id` must be given with `frequencies` or `memory_size`, unless the "
                f"features are ids. Received: candidate_id=None, features={features!r}."
            )
        draws = tf.cast(tf.shape(candidates[0])[0] - 1, tf.float32)
        if self.frequencies is not None:
            self.frequencies(keys[0], training=training)
        filled = None
        if self._memory is not None:
            kept, kept_keys, filled = self._memory(candidates[0], keys[0], training=training)
            candidates.append(kept)
            keys.append(kept_keys)
            draws += tf.reduce_sum(tf.cast(filled, tf.float32))
        share = 0.0
        if self._random is not None:
            catalogue = self._catalogue
            rows = self._random(catalogue.keys, training=training)
            candidates.append(self._encode_candidates(catalogue.rows(rows), training))
            if keys:
                keys.append(tf.gather(catalogue.keys, rows))
            share = rows.shape[0] / catalogue.size
        else:  # A batch of one example has no draws, and 0 no logarithm.
            draws = tf.maximum(draws, 1.0)
        scores = tf.matmul(queries, tf.concat(candidates, axis=0), transpose_b=True)
        if filled is not None:
            before = tf.ones(tf.shape(candidates[0])[:1], tf.bool)
            behind = tf.ones([tf.shape(scores)[1] - tf.size(before) - self.memory_size], tf.bool)
            filled = tf.concat([before, filled, behind], axis=0)
            scores = tf.where(filled, scores, -float("inf"))
        if keys:
            of_columns = tf.concat(keys, axis=0)
            scores = self._remove_hits(scores, labels, of_columns)
            if self.frequencies is not None:
                expected = draws * self.frequencies(of_columns, training=False) + share
                scores = self._correct(scores, labels, expected)
        if not scores.shape[1]:  # Without a query there may be no candidate, which losses need.
            missing = tf.cast(tf.shape(scores)[1] == 0, tf.int32)
            scores = tf.pad(scores, [[0, 0], [0, missing]])
        return scores, labels

    def _excluded(self, queries, exclude):
        """The rows `[batch, E]` of the index to leave out; None for none."""
        if exclude is None and self.exclude is not None:
            exclude = _of_key("exclude", self.exclude, queries)
        if isinstance(exclude, tf.RaggedTensor):
            # Padded as rows: of ids any may be one.
            rows = self._catalogue.places(exclude.flat_values, "exclude")
            return exclude.with_flat_values(rows).to_tensor(-1)
        if exclude is None:
            return None
        return self._catalogue.places(tf.convert_to_tensor(exclude), "exclude")

    def _ranks(self, encodings, queries, candidates, exclude):
        catalogue = self._catalogue
        ids = self._ids(candidates)
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
        return ops.Ranks(above, tied, relevance, num_items, tf.constant(catalogue.size))


class _CatalogueHolder:
    """Hides the catalogue from Keras, which would save its layers as a part of the model."""

    catalogue: Catalogue | None = None


def _of_key(argument, key, features):
    """What features have under the key that an argument of the constructor gave."""
    is_dict = isinstance(features, dict)
    if not is_dict or key not in features:
        received = sorted(features) if is_dict else type(features).__name__
        raise ValueError(
            f"`{argument}` must be a key of the features. "
            f"Received: {argument}={key!r}, features {received}."
        )
    return features[key]


def _known(encoder, features):
    """The features that an encoder with named inputs takes."""
    inputs = _keras.symbolic_inputs(encoder)
    if isinstance(features, dict) and isinstance(inputs, dict):
        return {name: features[name] for name in inputs}
    return features


def _check_widths(query_encoder, candidate_encoder):
    """Raises if both encoders are known to give encodings, and these have different widths."""
    shapes = [getattr(x, "output_shape", None) for x in (query_encoder, candidate_encoder)]
    widths = {shape[-1] for shape in shapes if isinstance(shape, tuple) and shape} - {None}
    if len(widths) > 1:
        raise ValueError(
            "`query_encoder` and `candidate_encoder` must give encodings of one width. "
            f"Received: output shapes {shapes[0]} and {shapes[1]}."
        )
