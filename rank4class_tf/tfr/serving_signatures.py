"""ServingSignatures."""

from typing import Any

import tensorflow as tf

from rank4class_tf._export import specs_of_arguments
from rank4class_tf.tfr import _load

_tfr: Any = _load.load()


class ServingSignatures(_tfr.keras.saved_model.Signatures):
    """TF-Ranking's serving signatures, and more: plain tensors and the best items.

    | signature | takes | gives |
    |---|---|---|
    | TF-Ranking's `regress` | serialized `tf.train.Example`s | a score each |
    | TF-Ranking's `predict` | serialized `ExampleListWithContext`s | scores `[batch, n]` |
    | `top_k` | the same and `k` | `indices` and `scores`, `[batch, min(k, n)]`, best first |
    | `predict_tensors` | the model's inputs as tensors, the mask among them | scores `[batch, n]` |
    | `top_k_tensors` | the same and `k` | as `top_k` |

    The tensors have the names of the inputs, changed where an argument cannot have that name: see
    `rank4class_tf.export_top_k`. If a list has fewer than k items, `indices` end with -1 and
    `scores` with -inf. For several tasks the outputs are `<task>_indices` and `<task>_scores`. A
    model with ragged or sparse inputs gets no signatures for tensors, since they cannot take these.

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
        """Returns the signatures by name.

        Args:
            serving_default: which signature is the default one, `"regress"` or `"predict"`.
        """
        signatures = super().__call__(serving_default)
        signatures["top_k"] = self.top_k_tf_function()
        inputs = self._model.input
        if all(isinstance(value.type_spec, tf.TensorSpec) for value in inputs.values()):
            given = {name: tf.TensorSpec(x.shape, x.dtype, name) for name, x in inputs.items()}
            specs = dict(zip(sorted(given), specs_of_arguments(given), strict=True))
            k = tf.TensorSpec([], tf.int32, "k")
            signatures["predict_tensors"] = self._predict_tensors.get_concrete_function(specs)
            signatures["top_k_tensors"] = self._top_k_tensors.get_concrete_function(specs, k)
        return signatures

    def top_k_tf_function(self) -> Any:
        """Makes the function behind `top_k`."""

        @tf.function(
            input_signature=[
                tf.TensorSpec([None], tf.string, tf.saved_model.PREDICT_INPUTS),
                tf.TensorSpec([], tf.int32, "k"),
            ]
        )
        def top_k(serialized_elwcs, k):
            features = _tfr.data.parse_from_example_list(
                serialized_elwcs,
                context_feature_spec=self._context_feature_spec,
                example_feature_spec=self._example_feature_spec,
                mask_feature_name=self._mask_feature_name,
            )
            return self._best(features, k)

        return top_k

    @tf.function
    def _predict_tensors(self, features):
        return self.normalize_outputs(
            tf.saved_model.PREDICT_OUTPUTS, self._model(features, training=False)
        )

    @tf.function
    def _top_k_tensors(self, features, k):
        return self._best(features, k)

    def _best(self, features, k):
        """The k best unmasked items of each list."""
        outputs = self._model(features, training=False)
        mask = features[self._mask_feature_name]
        if not isinstance(outputs, dict):
            return _best_of(outputs, mask, k)
        return {
            f"{task}_{name}": value
            for task, scores in outputs.items()
            for name, value in _best_of(scores, mask, k).items()
        }


def _best_of(scores, mask, k):
    nothing = tf.constant(-float("inf"), scores.dtype)
    k = tf.minimum(k, tf.shape(scores)[1])
    best, order = tf.math.top_k(tf.where(mask, scores, nothing), k)
    there = tf.gather(mask, order, batch_dims=1)
    return {"indices": tf.where(there, order, -1), "scores": best}
