"""What losses the models take."""

from typing import Any

from rank4class_tf.losses import RankingLoss


def check_loss(loss: Any, scored: str) -> None:
    """Raises unless a loss is of this package and reads nothing from the place of a class.

    Args:
        loss: what was compiled.
        scored: what the model scores in a step.
    """
    if not isinstance(loss, RankingLoss):
        raise ValueError(
            "`loss` must be a loss of rank4class_tf.losses, such as `SoftmaxLoss()`: the model "
            f"scores {scored}, in places that no other loss knows. Received: {loss!r}."
        )
    if loss.class_weight is not None:
        raise ValueError(
            f"`loss` must have no `class_weight`, since the model scores {scored}: "
            f"give each example its `sample_weight`. Received: {loss.class_weight}."
        )
