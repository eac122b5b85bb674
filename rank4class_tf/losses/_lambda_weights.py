"""The argument `lambda_weights` of the pairwise losses."""

from rank4class_tf import _keras, ops

_keras.register(ops.NDCGLambdaWeights)


def check_lambda_weights(value: ops.NDCGLambdaWeights | None) -> ops.NDCGLambdaWeights | None:
    """Returns `value`; raises unless it is None or `NDCGLambdaWeights`."""
    if value is not None and not isinstance(value, ops.NDCGLambdaWeights):
        raise ValueError(
            f"`lambda_weights` must be None or `NDCGLambdaWeights`. Received: {value!r}."
        )
    return value
