"""`TwoTower`: its arguments, and the candidate lists that a training step scores."""

import functools
import inspect
import os
from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _export, _files, _keras, layers, ops
from rank4class_tf._tf.exchange import Exchange
from rank4class_tf._tf.loops import Arguments, in_pieces
from rank4class_tf._tf.raising import same_sizes
from rank4class_tf._types import Array, Features, PathLike, Size, Tensor, TensorPair
from rank4class_tf.models.base import RetrievalModel, Scored, arguments_of_fit
from rank4class_tf.models.candidates import (
    Candidates,
    Reader,
    feature_at,
    inputs_for,
)
from rank4class_tf.models.catalogue import Catalogue, Index
from rank4class_tf.models.columns import Columns, Sources
from rank4class_tf.ops.blocks import unit_rows


class _EncodeBeforeTests(keras.callbacks.Callback):
    """Re-encodes candidates after other callbacks, such as those that swap weights."""

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        self.model.encode_what_changed()


@_keras.register
class TwoTower(RetrievalModel):
    r"""Retrieval with a query and a candidate encoder, trained by any ranking loss.

    $$s_{ij} = \frac{1}{T} \frac{q_i}{\|q_i\|} \cdot \frac{c_j}{\|c_j\|}$$

    Train it on pairs `(query_features, candidate_features)`. In a step each query has a
    list: its own candidate is the positive, and negatives are

    - the candidates of the other queries of the batch, on all devices of a strategy,
    - the candidates of earlier batches, with `memory_size`,
    - random candidates from the index, with `num_random`,
    - your own, which you pass with the pairs, with `negatives`.

    A query may have several candidates, all positives of one list: ids `[batch, P]`,
    padded with -1, and features `[batch, P, ...]`, or both ragged (not under XLA).

    A negative with the id of a positive is masked. `frequencies` corrects the scores of
    popular candidates, which are negatives too often. The loss sees the whole list, or
    only the highest negatives: as many as it uses, or `num_mined`. Each of these steps
    is also a layer.

    `index(candidates)` gives the model all candidates, which `top_k`, `ranks` and
    `evaluate` rank exactly, in blocks. What reads the index encodes them again if the
    weights of their encoder have changed. A graph of your own cannot: call `index()`
    before it, except after `fit` and `load_weights`. Calling the model, or `predict`,
    maps the features of queries to encodings. Towers may share layers. A subclass may
    have its own layers and losses: see `extra_loss`.

    Source: Yi et al. 2019, "Sampling-Bias-Corrected Neural Modeling for Large Corpus
    Item Recommendations"; Yang et al. 2020, "Mixed Negative Sampling for Learning
    Two-tower Neural Networks in Recommendations", for `num_random`; Gao et al. 2021,
    "Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup", for
    `encode_in`.

    Args:
        query_encoder: a layer or model, features of queries -> `[batch, d]`.
        candidate_encoder: a layer or model, features of candidates -> `[batch, d]`.
        candidate_id: the key, in the candidate features, of the candidate ids: integers
            or strings. XLA cannot compile strings, and Keras 3's `fit` accepts them as
            tensors or object arrays. None if the features are the ids, or if candidates
            have none and all differ.
        exclude: None, or the key, in the query features, of candidate ids `[batch, E]`
            that `top_k`, `ranks` and `evaluate` leave out, such as those already seen.
            Integers are padded with -1, strings with any string that is not an id.
        normalize: whether encodings are scaled to length 1.
        temperature: T > 0. None means 0.1 with `normalize`, since a softmax learns
            little from cosines at 1; else it means 1.
        frequencies: None, or a `CandidateFrequencies` for the log-Q correction. Use it
            with a softmax, set the temperature here, not in the loss, and give ids, as
            for `memory_size`.
        memory_size: how many candidates of earlier batches are negatives, >= 0.
        num_random: how many random candidates from the index are negatives, >= 0. Call
            `index` before `fit`.
        num_mined: how many of the highest negatives the loss gets, >= 1; None for what
            it uses.
        negatives: None, or the key, in the candidate features, of the features of
            negatives of all queries of the batch, `[batch, H, ...]`, padded with the id
            -1, or ragged. They need a `candidate_id` and get no log-Q correction;
            evaluation ignores them.
        negative_weight: None, or the key, in the features of candidates or of
            `negatives`, of weights w > 0, of the shape of the ids. log w is added to
            the score of a negative, which in a softmax counts like w negatives.
        encode_in: None, or how many queries or candidates are encoded at once, >= 1, so
            that a large batch needs only the memory of one piece. The step is the same;
            the encoders run twice, with the same dropout (in Keras 2 only after
            `keras.backend.experimental.enable_tf_random_generator()`). A batch
            normalization sees one piece at a time. Encoders must not add activity
            losses.
        score_in: None, or how many queries are scored at once, >= 1, to save memory.
            The step is the same. Losses that draw random numbers cannot have it.
        seed: an int, for the random draws; None draws one from NumPy's global
            generator.
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
    _scored = Scored.CANDIDATES

    def __init__(
        self,
        query_encoder: keras.layers.Layer,
        candidate_encoder: keras.layers.Layer,
        *,
        candidate_id: str | None = None,
        exclude: str | None = None,
        normalize: bool = True,
        temperature: float | None = None,
        frequencies: layers.CandidateFrequencies | None = None,
        memory_size: int = 0,
        num_random: int = 0,
        num_mined: int | None = None,
        negatives: str | None = None,
        negative_weight: str | None = None,
        encode_in: int | None = None,
        score_in: int | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        # The towers, and the ids among their features.
        self.query_encoder = _keras.checked_layer("query_encoder", query_encoder)
        self.candidate_encoder = _keras.checked_layer(
            "candidate_encoder", candidate_encoder
        )
        self.candidate_id = _checks.string_or_none("candidate_id", candidate_id)
        self.exclude = _checks.string_or_none("exclude", exclude)

        # The score of a query and a candidate.
        self.normalize = _checks.flag("normalize", normalize)
        if temperature is None:
            temperature = 0.1 if normalize else 1.0
        self.temperature = _checks.positive_float("temperature", temperature)
        if frequencies is not None:
            _keras.checked_layer("frequencies", frequencies)
        self.frequencies = frequencies

        # The negatives in the list of a query.
        self.memory_size = _checks.non_negative_int("memory_size", memory_size)
        self.num_random = _checks.non_negative_int("num_random", num_random)
        self.num_mined = _checks.positive_int_or_none("num_mined", num_mined)
        self.negatives = _checks.string_or_none("negatives", negatives)
        self.negative_weight = _checks.string_or_none(
            "negative_weight", negative_weight
        )

        # How much of a batch is in memory at once.
        self.encode_in = _checks.positive_int_or_none("encode_in", encode_in)
        self.score_in = _checks.positive_int_or_none("score_in", score_in)

        if negatives is not None and candidate_id is None:
            raise ValueError(
                "`candidate_id` must be given with `negatives`. Received: None."
            )
        _check_widths(query_encoder, candidate_encoder)

        self._add_layers(seed)
        # These are plain objects, which Keras neither tracks nor saves.
        self._reader = Reader(
            candidate_encoder, candidate_id, negatives, negative_weight
        )
        self._index = Index(
            candidate_encoder, self._encode_candidates, self._reader.ids
        )
        self._sources = Sources(self._index, frequencies, self._memory, self._random)
        self._build_parts()

    def _add_layers(self, seed: int | None) -> None:
        """Adds the layers between the encodings and the loss, and the seed."""
        # Scores keep their precision under mixed precision.
        self._remove_hits = layers.RemoveAccidentalHits()
        self._correct = layers.SamplingProbabilityCorrection()
        self._memory = self._random = None
        if self.memory_size:
            self._memory = layers.CrossBatchMemory(self.memory_size)
        if self.num_random:
            self._random = layers.UniformNegatives(self.num_random, seed)
            seed = self._random.seed
        self.seed = None if seed is None else _checks.seed(seed)

    def _build_parts(self) -> None:
        """Builds what can be built: a file or a checkpoint must find all weights."""
        # The order: layers of fixed shapes; the memory, as wide as the encodings of
        # candidates; last the model, which then counts as built.
        fixed = (self._remove_hits, self._correct, self._random, self.frequencies)
        for layer in fixed:
            if layer is not None and not layer.built:
                layer.build(None)
        encoder = self.candidate_encoder
        has_shape = _keras.symbolic_inputs(encoder) is not None
        if self._memory is not None and has_shape:
            self._memory.build((None, encoder.output_shape[-1]))
        self._build_by(self.query_encoder)

    def build(self, input_shape: tf.TensorShape | None) -> None:
        self.built = True  # The encoders build themselves.

    def call(self, inputs: Features, training: bool | None = None) -> Tensor:
        inputs = inputs_for(self.query_encoder, inputs, "x")
        return self._encoded(self.query_encoder, inputs, training)

    def index(
        self,
        candidates: Features | tf.data.Dataset | None = None,
        batch_size: int | None = None,
        in_shards: bool = False,
    ) -> None:
        """Encodes all candidates; after an error an older index stays in use.

        Candidates need not occur in training. A saved model lacks the index: see
        `export_top_k`.

        Args:
            candidates: features as in training, arrays or a dict or tuple of arrays,
                with a row for each candidate, whose ids differ; or a `tf.data.Dataset`
                of batches of them, of which only ids and encodings are kept; None to
                encode those of the last call again.
            batch_size: how many candidates are encoded at once, >= 1; None for as many
                as in the last call, and for 1024 in the first. A dataset has its own.
            in_shards: whether each replica of a strategy holds only a part of the
                encodings, though one device must hold all of them once. All workers
                must then search together.
        """
        batch_size = _checks.positive_int_or_none("batch_size", batch_size)
        with self.distribute_strategy.scope():
            if candidates is None:
                self._index.encode_again(batch_size)
                return
            candidates = _checks.dataset_that_ends("candidates", candidates)
            self._index.replace(candidates, batch_size, in_shards)
        self._read_new_index()

    def add_candidates(self, candidates: Features) -> None:
        """Adds candidates to the index, given as features and ids; encodes only these.

        As many are encoded at once as in the last call of `index`. A candidate whose id
        is already in the index replaces the old one.
        """
        self.encode_what_changed()
        with self.distribute_strategy.scope():
            self._index.add(candidates)
        self._read_new_index()

    def remove_candidates(self, ids: Array) -> None:
        """Drops indexed candidates by ids `[n]`, or without ids by rows of `index`."""
        with self.distribute_strategy.scope():
            self._index.remove(ids)
        self._read_new_index()

    def top_k(
        self, queries: Features, k: Size, exclude: Array | None = None
    ) -> TensorPair:
        """Finds the k candidates with the highest scores, in blocks of candidates.

        Args:
            queries: a batch of what the query encoder takes.
            k: in [1, N], an int or a scalar tensor.
            exclude: ids to leave out, `[batch, E]`; None for those of the key
                `exclude`, if any. Where fewer than k candidates are left, or the
                encoding of a query is zeros, the score is -inf and the id -1 or "".

        Returns:
            Scores and candidate ids, both `[batch, k]`, the best first. If candidates
            have no ids, their rows in what `index` was given. Scores alike but for
            rounding come in any order.
        """
        self.encode_what_changed()
        exclude = self._excluded(queries, exclude)
        encodings = self._scaled_queries(self(queries, training=False))
        return self._index.top_k(encodings, k, exclude)

    def write_top_k(self, path: PathLike, queries: tf.data.Dataset, k: int) -> None:
        """Writes the k candidates with the highest scores of very many queries.

        Args:
            path: a folder for `scores.npy` and `candidate_ids.npy`, both
                `[queries, k]`; string ids are bytes. After an error older files stay.
            queries: a dataset of batches of what the query encoder takes.
            k: in [1, N].
        """
        k = _checks.positive_int("k", k)
        queries = _checks.dataset_that_ends("queries", queries)
        self.encode_what_changed()
        # NumPy writes strings of a fixed size only.
        ids = self._index.catalogue.ids.numpy()
        id_type = ids.astype("S").dtype if ids.dtype == object else ids.dtype
        search = tf.function(lambda batch: self.top_k(batch, k), reduce_retracing=True)
        scores_file = os.path.join(path, "scores.npy")
        ids_file = os.path.join(path, "candidate_ids.npy")
        with (
            _files.appending_rows(scores_file, (k,)) as add_scores,
            _files.appending_rows(ids_file, (k,), id_type) as add_ids,
        ):
            for batch in queries:
                scores, found = search(batch)
                add_scores(scores.numpy())
                add_ids(found.numpy().astype(id_type))

    def ranks(
        self, queries: Features, candidates: Features, exclude: Array | None = None
    ) -> ops.Ranks:
        """Ranks given candidates among all, in blocks of candidates.

        Args:
            queries: a batch of what the query encoder takes.
            candidates: features of the candidate of each query; only the ids are read,
                which may be `[batch, P]`, integers padded with -1.
            exclude: as in `top_k`; a given candidate that is excluded has no rank.

        Returns:
            `ops.Ranks`, which metrics accept as labels:
            `metric.update_state(ranks, None)`. Scores that differ only by rounding tie.
            Those of a query with an id that is not in the index are NaN.
        """
        self.encode_what_changed()
        exclude = self._excluded(queries, exclude)
        encodings = self._scaled_queries(self(queries, training=False))
        return self._index.ranks(encodings, candidates, exclude)

    def export_top_k(
        self, path: PathLike, queries_spec: Features, k: int | None = None
    ) -> None:
        """Writes a SavedModel that finds the k candidates with the highest scores.

        It runs without this package, and has the signatures `top_k(queries, k)`, which
        fails unless k is in [1, N], and `serving_default(queries)`, with the outputs
        `scores, candidate_ids`.

        Args:
            path: a folder. The SavedModel replaces an older one there once it is
                complete.
            queries_spec: `tf.TensorSpec`s of the query features, in the same structure.
            k: in [1, N]; None means 10, or N if that is less.
        """
        _export.check_integer_specs("queries_spec", queries_spec, self.query_encoder)
        self.encode_what_changed()
        catalogue = self._index.catalogue

        def outputs(queries: Features, k: Size) -> dict[str, Tensor]:
            scores, ids = self.top_k(queries, k)
            return {"scores": scores, "candidate_ids": ids}

        _export.write_top_k(
            path,
            self,
            outputs,
            queries_spec,
            catalogue.size,
            k,
            None,
            # The graph reads it, and it is no part of the model.
            other_layers=[catalogue.head],
        )

    def export_candidates(self, path: PathLike) -> None:
        """Writes the index encodings `[N, d]` to a NumPy file, for approximate search.

        `top_k` finds the candidates with the highest inner products with the output of
        `predict`. `examples/approximate_search.py` passes the file to FAISS.

        Args:
            path: the file, which replaces an older one once it is complete;
                `np.load(path, mmap_mode="r")` reads it without loading all.
        """
        self.encode_what_changed()
        self._index.catalogue.head.export_embeddings(path)

    def fit(self, *args: Any, **kwargs: Any) -> Any:
        """Trains like Keras, then re-encodes the candidates if `index` was called."""
        class_weight = arguments_of_fit(self, *args, **kwargs).get("class_weight")
        rule = "`class_weight` must be None: give each example its `sample_weight`."
        # Keras would read features as classes.
        _checks.require(class_weight is None, rule, class_weight)
        history = super().fit(*args, **kwargs)
        if not self._index.is_empty:
            self.encode_what_changed()
        return history

    def load_weights(self, *args: Any, **kwargs: Any) -> Any:
        """Loads weights like Keras; re-encodes the candidates if `index` was called."""
        result = super().load_weights(*args, **kwargs)
        if not self._index.is_empty:
            self.encode_what_changed()
        return result

    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        verbose: Any = "auto",
        sample_weight: Any = None,
        steps: int | None = None,
        callbacks: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Evaluates like Keras, by ranks among all candidates, re-encoded if need be.

        The metrics read only the ids of candidates. If a batch has several ids per
        query and not their features, the loss is NaN.
        """
        if isinstance(callbacks, keras.callbacks.CallbackList):  # That of `fit`.
            self._add_encoding(callbacks.callbacks)
        else:
            self.encode_what_changed()
            callbacks = [] if callbacks is None else tf.nest.flatten(callbacks)
            self._add_encoding(callbacks)
        return super().evaluate(
            x, y, batch_size, verbose, sample_weight, steps, callbacks, *args, **kwargs
        )

    def _add_encoding(self, callbacks: list) -> None:
        # After those that change weights before a test.
        if not any(isinstance(x, _EncodeBeforeTests) for x in callbacks):
            last = _EncodeBeforeTests()
            last.set_model(self)
            callbacks.append(last)

    def test_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        if not self._index.is_empty:
            self.encode_what_changed()
        return super().test_on_batch(*args, **kwargs)

    def extra_loss(
        self,
        queries: Tensor,
        candidates: Tensor,
        x: Features,
        y: Features,
        training: bool,
    ) -> Tensor | None:
        """Returns a second loss of a step, for subclasses, added to the retrieval loss.

        It may use layers that the subclass created after `super().__init__`, and update
        metrics that the subclass keeps as attributes, as in
        `examples/retrieval_and_rating.py`.

        Args:
            queries: query encodings `[batch, d]`, as the encoder returns them.
            candidates: candidate encodings, `[batch, d]`, or `[batch, P, d]` if queries
                have several; padded positions hold any numbers.
            x: the query features.
            y: the candidate features; a dict may have more than the encoder takes, such
                as ratings.
            training: False in evaluation.
        """
        return None  # No second loss; else a scalar, such as a mean over the batch.

    # One step, in the order of what it calls: candidates, encodings, columns, scores,
    # losses.

    def _losses_of_step(
        self,
        x: Features,
        y_pred: Tensor,
        y: Features,
        sample_weight: Array | None,
        training: bool,
    ) -> tuple[Tensor, Array]:
        # Candidates are rows of features. Each query has the rows of its own.
        ids = self._reader.ids(y)
        if not training and not self._reader.has_features(y, ids):
            return self._unknown_losses(y_pred, sample_weight)
        candidates = self._reader.candidates(y, ids, training)
        encodings = self._encodings_of_step(candidates, training)
        rule = "`y` must have the features of a candidate for each query."
        rows = same_sizes(candidates.positive_rows, y_pred, rule)

        positives = tf.gather(encodings, tf.maximum(rows, 0))
        extra = self.extra_loss(y_pred, positives, x, y, training)
        if extra is not None:
            _keras.add_loss(self, extra)

        # All queries score the same columns: first the candidates of all replicas. A
        # label is the column of a positive.
        encodings = self._scaled(encodings)
        first_column = Exchange().first_row(encodings)
        labels = tf.where(rows < 0, -1, first_column + rows)
        columns = self._sources.columns(candidates, encodings, training)

        # The loss sees the scores of each query, without those that do not count.
        queries = self._scaled_queries(y_pred)
        if candidates.is_invalid is not None:
            is_invalid = candidates.is_invalid[:, tf.newaxis]
            queries = tf.where(is_invalid, float("nan"), queries)
        if self.score_in is not None:
            return self._losses_in_pieces(queries, labels, columns), sample_weight
        scores, labels = self._lists(queries, labels, columns)
        return self._compiled_losses(labels, scores, sample_weight)

    def _encodings_of_step(self, candidates: Candidates, training: bool) -> Tensor:
        encodings = self._encoded(self.candidate_encoder, candidates.features, training)
        rule = (
            "`candidate_encoder` must give encodings [batch, d] of the candidates "
            "in `y`."
        )
        is_right = encodings.shape.rank == 2
        _checks.require(is_right, rule, f"encodings of shape {encodings.shape}")
        return encodings

    def _encoded(
        self, encoder: keras.layers.Layer, features: Features, training: bool | None
    ) -> Tensor:
        if not training or self.encode_in is None or not encoder.built:
            return encoder(features, training=training)
        # The backward pass encodes each piece again. It draws the same random numbers,
        # and other state of the encoder changes once. The method is that of Gao et al.
        # 2021.
        width = getattr(encoder, "output_shape", (None,))[-1]
        spec = tf.TensorSpec([self.encode_in, width], encoder.compute_dtype)
        encode = functools.partial(encoder, training=True)
        states = _keras.states_of(encoder)
        return in_pieces(encode, Arguments(features), spec, states)

    def _encode_candidates(self, features: Features, training: bool = False) -> Tensor:
        inputs = inputs_for(self.candidate_encoder, features, "candidates")
        return self._scaled(self._encoded(self.candidate_encoder, inputs, training))

    def _scaled(self, encodings: Tensor) -> Tensor:
        encodings = tf.cast(encodings, tf.float32)
        return unit_rows(encodings) if self.normalize else encodings

    def _scaled_queries(self, encodings: Tensor) -> Tensor:
        return self._scaled(encodings) / self.temperature

    def _lists(self, queries: Tensor, labels: Tensor, columns: Columns) -> TensorPair:
        """Scores `[batch, n]`, -inf where masked, and the columns of the positives."""
        scores = tf.matmul(queries, columns.encodings, transpose_b=True)
        if columns.is_present is not None:
            scores = tf.where(columns.is_present, scores, -float("inf"))
        if columns.keys is not None:
            scores = self._remove_hits(scores, labels, columns.keys)
        if columns.expected is not None:
            num_draws = self._sources.num_draws(labels, columns)
            rate, base = columns.expected
            scores = self._correct(scores, labels, num_draws * rate + base)
        scores = _with_a_negative(scores, labels)
        num_mined = self.num_mined
        if num_mined is None and self.loss is not None:
            num_mined = self.loss.num_mined
        if num_mined is not None:
            return layers.HardNegativeMining(num_mined)(scores, labels)
        return scores, labels

    def _losses_in_pieces(
        self, queries: Tensor, labels: Tensor, columns: Columns
    ) -> Tensor:
        """The same losses, of `score_in` queries at once."""

        def piece_losses(labels: Tensor, queries: Tensor, encodings: Tensor) -> Tensor:
            in_piece = columns._replace(encodings=encodings)
            scores, labels = self._lists(queries, labels, in_piece)
            return self._compiled_losses(labels, scores, None)[0]

        spec = tf.TensorSpec([self.score_in], tf.float32)
        arguments = Arguments(labels, [queries], [columns.encodings])
        return in_pieces(piece_losses, arguments, spec)

    def _unknown_losses(
        self, queries: Tensor, sample_weight: Array | None
    ) -> tuple[Tensor, Array]:
        """NaN, for an evaluation that reads only ids."""
        # It goes through the compiled loss, since Keras 2 reports what that has seen.
        labels = tf.zeros(tf.shape(queries)[:1], tf.int32)
        unknown = tf.fill([tf.shape(queries)[0], 2], float("nan"))
        return self._compiled_losses(labels, unknown, sample_weight)

    # The index: what keeps it current, and the ranks that it gives to metrics.

    def encode_what_changed(self) -> None:
        """Encodes the candidates again if the weights of their encoder have changed."""
        # What reads the index calls this first; a graph cannot, and reads the older
        # encodings.
        if tf.executing_eagerly() and not self._index.is_current:
            self.index()

    def _read_new_index(self) -> None:
        """Makes Keras trace again the steps that read the older index."""
        if _keras.KERAS_3 and self._index.catalogue.ids.dtype == tf.string:
            # XLA compiles no strings, and Keras asks a model only when it is compiled.
            self.supports_jit = self.jit_compile = False
        self.train_function = self.test_function = None

    def _excluded(self, queries: Features, exclude: Array | None) -> Array | None:
        # The argument takes precedence over ids in the features of the queries.
        if exclude is None and self.exclude is not None:
            return feature_at("exclude", self.exclude, queries)
        return exclude

    def ranked_items(self) -> Catalogue:
        return self._index.catalogue

    def ranks_of_batch(
        self, x: Features, y: Features, y_pred: Tensor, dtype: tf.DType
    ) -> tuple[ops.Ranks, None]:
        queries = self._scaled_queries(y_pred)
        return self._index.ranks(queries, y, self._excluded(x, None)), None

    def get_config(self) -> dict[str, Any]:
        names = inspect.getfullargspec(TwoTower.__init__).kwonlyargs
        plain = {name: getattr(self, name) for name in names if name not in self._parts}
        return {**super().get_config(), **plain}

    def _check_loss(self, loss: keras.losses.Loss) -> None:
        super()._check_loss(loss)
        rule = (
            "`loss` must draw no random numbers with `score_in`, since all pieces of a "
            "batch would draw the same."
        )
        is_random = getattr(loss, "is_random", False)
        _checks.require(self.score_in is None or not is_random, rule, loss)


def _check_widths(*encoders: keras.layers.Layer) -> None:
    shapes = [getattr(encoder, "output_shape", None) for encoder in encoders]
    widths = {shape[-1] for shape in shapes if isinstance(shape, tuple) and shape}
    rule = "`query_encoder` and `candidate_encoder` must give encodings of one width."
    received = f"output shapes {shapes[0]} and {shapes[1]}"
    _checks.require(len(widths - {None}) <= 1, rule, received)


def _with_a_negative(scores: Tensor, labels: Tensor) -> Tensor:
    """Scores with one more column where a loss would lack one, or misread labels.

    An empty batch may lack a column. Labels that are as wide as the scores would be
    read as relevance.
    """
    several = labels.shape.rank == 2
    if not several and scores.shape[1]:
        return scores
    num_labels = tf.shape(labels)[1] if several else 0
    missing = tf.cast(tf.shape(scores)[1] <= num_labels, tf.int32)
    filler = -float("inf") if several else 0.0
    return tf.pad(scores, [[0, 0], [0, missing]], constant_values=filler)
