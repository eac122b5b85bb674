"""How `TwoTower` searches its index: what users call between and after training.

The index is a `Catalogue` that Keras does not see. Queries and candidates are encoded here as in
training; what a step of training does with them is in `two_tower.py`.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _export, _files, _keras, ops
from rank4class_tf._lists import labels as _labels
from rank4class_tf._tf.raising import same_sizes
from rank4class_tf._types import Array, PathLike, Tensor, TensorPair
from rank4class_tf.models.base import RetrievalModel
from rank4class_tf.models.candidates import Reader, id_keys, known_to, of_key
from rank4class_tf.models.catalogue import Catalogue, arrays, fingerprint
from rank4class_tf.ops.blocks import unit_rows


class _CatalogueHolder:
    """Hides the catalogue from Keras, which would save its layers as a part of the model."""

    catalogue: Catalogue | None = None


class _EncodeBeforeTests(keras.callbacks.Callback):
    """Encodes what has changed once other callbacks have, such as those that swap weights."""

    def __init__(self, model: SearchModel):
        super().__init__()
        self.of = model

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        self.of._encode_what_changed()


class SearchModel(RetrievalModel):
    """Base of `TwoTower`, which has the arguments and the layers that are named here."""

    candidate_encoder: keras.layers.Layer
    exclude: str | None
    normalize: bool
    temperature: float
    _reader: Reader

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self._holder = _CatalogueHolder()

    def _encoded(self, encoder: Any, features: Any, training: bool | None) -> Tensor:
        """Encodings of features, in pieces where a step of training has them so."""
        raise NotImplementedError

    def index(
        self, candidates: Any = None, batch_size: int = 1024, in_shards: bool = False
    ) -> None:
        """Encodes all candidates; after an error an older index stays in use.

        A saved model does not include the index; `export_top_k` writes it.

        Args:
            candidates: features as in training, arrays or a dict or tuple of arrays, with a row for
                each candidate, whose ids differ; or a `tf.data.Dataset` of batches of them, of
                which only ids and encodings are kept; None to encode those of the last call again.
                Candidates need not occur in training.
            batch_size: how many candidates are encoded at once, >= 1; a dataset has its own.
            in_shards: whether each replica of a strategy holds only a part of the encodings, though
                one device must hold all of them once. With several machines, all workers must then
                search at the same time.
        """
        batch_size = _checks.positive_int("batch_size", batch_size)
        with self.distribute_strategy.scope():
            how = self._reader.ids, self._encode_candidates, batch_size
            if candidates is None:
                self._catalogue.encode(*how)
            else:
                self._search(Catalogue.of(arrays(candidates), *how, in_shards))
        self._catalogue.encoded_with = fingerprint(self.candidate_encoder)

    def add_candidates(self, candidates: Any) -> None:
        """Adds candidates to the index, given as features with ids, and encodes only these.

        A candidate whose id is already in the index replaces the old one.
        """
        candidates = arrays(candidates)
        ids = self._reader.ids(candidates)
        rule = "`candidates` must have ids to be added."
        _checks.require(ids is not None, rule, "candidate_id=None")
        self._encode_what_changed()
        with self.distribute_strategy.scope():
            rows = self._encode_candidates(candidates)
            self._search(self._catalogue.with_candidates(candidates, ids, rows))

    def remove_candidates(self, ids: Array) -> None:
        """Removes candidates from the index, by ids `[n]`, or without ids by rows of `index`."""
        with self.distribute_strategy.scope():
            self._search(self._catalogue.without(tf.convert_to_tensor(ids)))

    def top_k(self, queries: Any, k: int | Tensor, exclude: Array | None = None) -> TensorPair:
        """Finds the k candidates with the highest scores, in blocks of candidates.

        Args:
            queries: a batch of what the query encoder takes.
            k: in [1, N], an int or a scalar tensor.
            exclude: ids to leave out, `[batch, E]`; None for those of the key `exclude`, if any.
                Where fewer than k candidates are left, the score is -inf and the id -1 or "".

        Returns:
            Scores and candidate ids, both `[batch, k]`, the best first. If candidates have no ids,
            their rows in what `index` was given. Scores alike but for rounding come in any order.
        """
        self._encode_what_changed()
        excluded, encodings = self._excluded(queries, exclude), self._encode_queries(queries)
        scores, rows = self._catalogue.head.top_k(encodings, k, excluded)
        ids = self._catalogue.ids
        nothing = tf.constant("") if ids.dtype == tf.string else tf.cast(-1, ids.dtype)
        return scores, tf.where(rows < 0, nothing, tf.gather(ids, tf.maximum(rows, 0)))

    def write_top_k(self, path: PathLike, queries: tf.data.Dataset, k: int) -> None:
        """Writes the k candidates with the highest scores of very many queries.

        Args:
            path: a folder, which must exist. The method writes `scores.npy` and
                `candidate_ids.npy` there, both `[queries, k]`, for `np.load(file, mmap_mode="r")`;
                string ids are bytes. After an error older files stay.
            queries: a dataset of batches of what the query encoder takes.
            k: in [1, N].
        """
        self._encode_what_changed()
        ids = self._catalogue.ids.numpy()
        ids = ids.astype("S") if ids.dtype == object else ids
        best = tf.function(lambda of: self.top_k(of, k), reduce_retracing=True)
        files = os.path.join(path, "scores.npy"), os.path.join(path, "candidate_ids.npy")
        with (
            _files.appending_rows(files[0], (k,), np.dtype(np.float32)) as add_scores,
            _files.appending_rows(files[1], (k,), ids.dtype) as add_ids,
        ):
            for of_batch in queries:
                scores, found = best(of_batch)
                add_scores(scores.numpy())
                add_ids(found.numpy().astype(ids.dtype))

    def ranks(self, queries: Any, candidates: Any, exclude: Array | None = None) -> ops.Ranks:
        """Ranks given candidates among all, in blocks of candidates.

        Args:
            queries: a batch of what the query encoder takes.
            candidates: features of the candidate of each query; only the ids are read, which may be
                `[batch, P]`, integers padded with -1.
            exclude: as in `top_k`; a given candidate that is excluded has no rank.

        Returns:
            `ops.Ranks`, which metrics accept as labels: `metric.update_state(ranks, None)`. Scores
            that differ only by rounding tie. Those of a query with an id that is not in the index
            are NaN.
        """
        self._encode_what_changed()
        return self._ranks(self._encode_queries(queries), queries, candidates, exclude)

    def export_top_k(self, path: PathLike, queries_spec: Any, k: int | None = None) -> None:
        """Writes a SavedModel that finds the k candidates with the highest scores.

        It runs without this package, as in TensorFlow Serving, and has the signatures

        - `top_k(queries, k) -> scores, candidate_ids`, which fails unless k is in [1, N],
        - `serving_default(queries)`, the same for the `k` given here.

        Args:
            path: a folder. The SavedModel replaces an older one there once it is complete.
            queries_spec: `tf.TensorSpec`s of the query features, in the same structure.
            k: in [1, N]; None means 10, or N if that is less.
        """
        self._encode_what_changed()
        catalogue = self._catalogue

        def best(queries: Any, k: Array) -> dict[str, Tensor]:
            scores, candidate_ids = self.top_k(queries, k)
            return {"scores": scores, "candidate_ids": candidate_ids}

        if not self.built:
            tf.function(self).get_concrete_function(queries_spec)
        arguments = queries_spec, catalogue.size, k, None, [catalogue.head]
        _export.write_top_k(path, self, best, *arguments)

    def export_candidates(self, path: PathLike) -> None:
        """Writes the encodings of the index `[N, d]` to a NumPy file, for approximate search.

        `top_k` finds the candidates with the highest inner products with the output of `predict`.
        `examples/approximate_search.py` passes the file to FAISS.

        Args:
            path: the file, for `np.load(path, mmap_mode="r")`. It appears under its name only once
                it is complete; after an error an older file stays.
        """
        self._encode_what_changed()
        self._catalogue.head.export_embeddings(path)

    def fit(self, *args: Any, class_weight: None = None, **kwargs: Any) -> Any:
        """Trains as Keras does, then encodes the candidates again if `index` was called."""
        rule = "`class_weight` must be None: give each example its `sample_weight`."
        # Keras would read features as classes.
        _checks.require(class_weight is None, rule, class_weight)
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

    def evaluate(self, *args: Any, callbacks: Any = None, **kwargs: Any) -> Any:
        """Encodes what has changed and evaluates as Keras does, by ranks among all candidates.

        The metrics read only the ids of candidates. If a batch has several ids per query and not
        their features, the loss is NaN.
        """
        if isinstance(callbacks, keras.callbacks.CallbackList):  # That of `fit`.
            of_all = callbacks.callbacks
        else:
            self._encode_what_changed()
            callbacks = of_all = tf.nest.flatten([] if callbacks is None else callbacks)
        if not any(isinstance(each, _EncodeBeforeTests) for each in of_all):
            of_all.append(_EncodeBeforeTests(self))
        return super().evaluate(*args, callbacks=callbacks, **kwargs)

    def test_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        if self._holder.catalogue is not None:
            self._encode_what_changed()
        return super().test_on_batch(*args, **kwargs)

    def _search(self, catalogue: Catalogue) -> None:
        """Makes an encoded catalogue the index."""
        self._holder.catalogue = catalogue
        if _keras.KERAS_3 and catalogue.ids.dtype == tf.string:
            # XLA compiles no strings, and Keras asks a model only when it is compiled.
            self.supports_jit = self.jit_compile = False
        # Steps that Keras traced before read the old index.
        self.train_function = self.test_function = None

    def _encode_what_changed(self) -> None:
        """Encodes the candidates again if the weights of their encoder have changed."""
        # All that reads the index does this first; a graph cannot, and reads what is there.
        if not tf.executing_eagerly():
            return
        if self._catalogue.encoded_with != fingerprint(self.candidate_encoder):
            self.index()

    @property
    def _catalogue(self) -> Catalogue:
        if self._holder.catalogue is None:
            raise ValueError(
                "`index(candidates)` must be called first, to give the model all candidates."
            )
        return self._holder.catalogue

    def _scaled(self, encodings: Tensor) -> Tensor:
        encodings = tf.cast(encodings, tf.float32)
        return unit_rows(encodings) if self.normalize else encodings

    def _encode_queries(self, queries: Any) -> Tensor:
        return self._scaled(self(queries, training=False)) / self.temperature

    def _encode_candidates(self, features: Any, training: bool = False) -> Tensor:
        known = known_to(self.candidate_encoder, features, "candidates")
        return self._scaled(self._encoded(self.candidate_encoder, known, training))

    def _excluded(self, queries: Any, exclude: Array) -> Tensor | None:
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

    def _ranks_of_batch(self, x: Any, y: Any, y_pred: Tensor, dtype: tf.DType) -> ops.Ranks:
        return self._ranks(self._scaled(y_pred) / self.temperature, x, y, None)

    def _ranks(self, encodings: Tensor, queries: Any, candidates: Any, exclude: Array) -> ops.Ranks:
        catalogue = self._catalogue
        ids = self._reader.ids(candidates)
        if ids is None:
            rule = "`candidate_id` must be given to rank candidates, unless their features are ids."
            raise ValueError(f"{rule} Received: candidate_id=None, candidates={candidates!r}.")
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
