"""The argument `lambda_weights` of the pairwise losses."""

from tensorflow import keras

from rank4class_tf import _keras, ops

_keras.register(ops.NDCGLambdaWeights)


def check_lambda_weights(value):
    """Returns `value`, built if it is a config; raises unless it is None or `NDCGLambdaWeights`."""
    if isinstance(value, dict):
        value = keras.utils.deserialize_keras_object(value)
    if value is not None and not isinstance(value, ops.NDCGLambdaWeights):
        raise ValueError(
            f"`lambda_weights` must be None or `NDCGLambdaWeights`. Received: {value!r}."
        )
    return value
