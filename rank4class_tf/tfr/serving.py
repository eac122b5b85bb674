"""Both ends of a TF-Ranking model: how it scores a list, and what its export serves."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import layers
from rank4class_tf._export import specs_of_arguments
from rank4class_tf._types import Tensor
from rank4class_tf.tfr import loading

_tfr: Any = loading.load()


class InteractionScorer(_tfr.keras.model.Scorer):
    r"""Scores a list by how its context and its examples interact, for `ModelBuilder`.

    $$s_i = f(h, c_i), \qquad h = \mathrm{encoder}(\mathrm{context}), \quad
    c_i = \mathrm{class\_encoder}(\mathrm{example}_i)$$

    f is an interaction: the dot product $c_i^\top h$, the latent cross
    $\mathrm{MLP}(h \odot (1 + c_i))$, $\mathrm{MLP}([h; c_i])$, or another. Zeros
    replace the features of a masked example, whose score is the lowest finite number of
    the scores' type.

    Source: Rank4Class, sections 3.2 and 4.2, where the examples are the classes.

    Args:
        encoder: a layer or function from the context to h, `[batch, d]`. It gets the
            feature if there is only one, otherwise a dict of them. Under a strategy it
            should be a function that makes its layers when it is called.
        class_encoder: the same from the examples to their embeddings, `[batch, n, d]`.
            An integer feature `[batch, n, 1]`, such as class ids, arrives as
            `[batch, n]`, so that it can be `keras.layers.Embedding(num_classes, d)`.
        interaction: the name of an interaction of `rank4class_tf.layers`, such as
            `"dot_product"`, `"latent_cross"` or `"concat"`, or your own subclass of
            `layers.Interaction`.
        tasks: names of several outputs, each with its own interaction, or None for one
            output.
        **kwargs: arguments of the interaction, such as `units` of the MLP.

    Example:
        >>> scorer = InteractionScorer(
        ...     keras.layers.Dense(8),
        ...     keras.layers.Embedding(5, 8),
        ...     "latent_cross",
        ...     units=(16,),
        ... )
        >>> mask = tf.constant([[True, True, False]])
        >>> class_ids = tf.constant([[[3], [1], [-1]]])
        >>> scorer({"x": tf.ones([1, 4])}, {"class_id": class_ids}, mask).shape
        TensorShape([1, 3])
    """

    def __init__(
        self,
        encoder: Callable,
        class_encoder: Callable,
        interaction: str | layers.Interaction | type = "latent_cross",
        tasks: Sequence[str] | None = None,
        **kwargs: Any,
    ):
        make: Callable = layers.get_interaction
        arguments = [interaction]
        if isinstance(interaction, type) and issubclass(
            interaction, layers.Interaction
        ):
            make = interaction
            arguments = []
        self._make_interaction = functools.partial(make, *arguments, **kwargs)
        self._make_interaction()  # Mistakes raise here, not in training.
        self._encoder = encoder
        self._class_encoder = class_encoder
        self._tasks = tasks

    def __call__(
        self, context_features: dict, example_features: dict, mask: Tensor
    ) -> Tensor | dict[str, Tensor]:
        def encode(encoder: Callable, features: dict[str, Tensor]) -> Tensor:
            is_single = len(features) == 1
            return encoder(next(iter(features.values())) if is_single else features)

        # Masked examples get zeros, and integers `[batch, n, 1]` lose their last axis.
        example_inputs = {}
        for name, value in example_features.items():
            if value.dtype.is_integer and value.shape.rank == 3 and value.shape[2] == 1:
                value = tf.squeeze(value, axis=2)
            ones = tf.ones([value.shape.rank - 2], tf.int32)
            shape = tf.concat([tf.shape(mask), ones], axis=0)
            is_valid = tf.reshape(mask, shape)
            example_inputs[name] = tf.where(is_valid, value, tf.zeros_like(value))
        encodings = encode(self._encoder, context_features)
        candidates = encode(self._class_encoder, example_inputs)

        def task_scores(task: str | None) -> Tensor:
            scores = self._make_interaction()([encodings, candidates])
            if scores.dtype != tf.float64:
                scores = tf.cast(scores, tf.float32)  # Mixed precision ends here.
            scores = tf.where(mask, scores, scores.dtype.min)
            # Keras names an output after the layer that makes it.
            options = {"dtype": scores.dtype, "name": task}
            return keras.layers.Activation("linear", **options)(scores)

        if self._tasks is None:
            return task_scores(None)
        return {task: task_scores(task) for task in self._tasks}


class ServingSignatures(_tfr.keras.saved_model.Signatures):
    """TF-Ranking's serving signatures, and more: plain tensors and the best items.

    - TF-Ranking's `tensorflow/serving/regress` takes serialized `tf.train.Example`s and
      gives a score each; `tensorflow/serving/predict` takes serialized
      `ExampleListWithContext`s and gives scores `[batch, n]`.
    - `top_k` takes the same and `k`, and gives `indices` and `scores`,
      `[batch, min(k, n)]`.
    - `predict_tensors` and `top_k_tensors` take the model's inputs and the mask as
      tensors.

    The tensors have the names of the inputs, changed as in
    `rank4class_tf.export_top_k`. If a list has fewer than k items, `indices` end with
    -1 and `scores` with -inf. For several tasks the outputs are `<task>_indices` and
    `<task>_scores`. Signatures of tensors need dense inputs.

    Args:
        model: a Keras model that takes a dict of features.
        context_feature_spec: name -> feature of the context.
        example_feature_spec: name -> feature of the examples.
        mask_feature_name: name of the mask among the model's inputs.

    Example:
        >>> signatures = ServingSignatures(model, {}, spec, "mask")()  # doctest: +SKIP
        >>> model.save("export", signatures=signatures)  # doctest: +SKIP
    """

    def __call__(self, serving_default: str = "regress") -> dict[str, Any]:
        """Returns signatures by name; the default is `"regress"` or `"predict"`."""
        signatures = super().__call__(serving_default)
        signatures["top_k"] = self.top_k_tf_function()
        inputs = self._model.input
        if all(isinstance(value.type_spec, tf.TensorSpec) for value in inputs.values()):
            tensors = {}
            for name in sorted(inputs):
                x = inputs[name]
                tensors[name] = tf.TensorSpec(x.shape, x.dtype, name)
            specs = dict(zip(tensors, specs_of_arguments(tensors), strict=True))
            k = tf.TensorSpec([], tf.int32, "k")

            def predict(features: dict[str, Any]) -> dict[str, Tensor]:
                scores = self._model(features, training=False)
                return self.normalize_outputs(tf.saved_model.PREDICT_OUTPUTS, scores)

            signatures["predict_tensors"] = tf.function(predict).get_concrete_function(
                specs
            )
            signatures["top_k_tensors"] = tf.function(self._best).get_concrete_function(
                specs, k
            )
        return signatures

    def top_k_tf_function(self) -> Callable:
        """Makes the function behind `top_k`."""
        lists = tf.TensorSpec([None], tf.string, tf.saved_model.PREDICT_INPUTS)

        @tf.function(input_signature=[lists, tf.TensorSpec([], tf.int32, "k")])
        def top_k(serialized_elwcs: Tensor, k: Tensor) -> dict[str, Tensor]:
            features = _tfr.data.parse_from_example_list(
                serialized_elwcs,
                context_feature_spec=self._context_feature_spec,
                example_feature_spec=self._example_feature_spec,
                mask_feature_name=self._mask_feature_name,
            )
            return self._best(features, k)

        return top_k

    def _best(self, features: dict[str, Any], k: Tensor) -> dict[str, Tensor]:
        """The k best unmasked items of each list."""
        outputs = self._model(features, training=False)
        mask = features[self._mask_feature_name]
        if not isinstance(outputs, dict):
            return _top_items(outputs, mask, k)
        result = {}
        for task, scores in outputs.items():
            for name, value in _top_items(scores, mask, k).items():
                result[f"{task}_{name}"] = value
        return result


def _top_items(scores: Tensor, mask: Tensor, k: Tensor) -> dict[str, Tensor]:
    k = tf.minimum(k, tf.shape(scores)[1])
    best, order = tf.math.top_k(tf.where(mask, scores, -float("inf")), k)
    is_unmasked = tf.gather(mask, order, batch_dims=1)
    return {"indices": tf.where(is_unmasked, order, -1), "scores": best}
