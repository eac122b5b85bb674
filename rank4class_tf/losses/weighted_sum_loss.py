"""WeightedSumLoss."""

import inspect
from collections.abc import Sequence
from typing import Any, Self

import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _keras, _registry
from rank4class_tf._types import TensorLike


@_registry.register("loss")
class WeightedSumLoss(keras.losses.Loss):
    r"""Several losses of the same scores, added up as one loss.

    $$\ell(y, s) = \sum_j w_j \ell_j(y, s)$$

    Keras reads `compile(loss=[a, b])` as the losses of two outputs. A model with one output then
    silently trains with `a` only.

    Args:
        losses: Keras losses, of this package, of TF-Ranking or your own. Each reduces and weights
            as it would on its own. They must share a reduction other than `"none"`.
        weights: a finite number >= 0 for each loss.
        name: name of the loss.

    Raises:
        ValueError: if `losses` is empty, the numbers of losses and weights differ, a weight is out
            of range, or the reductions are not as above.

    Example:
        >>> from rank4class_tf.losses import RankmaxLoss, SoftmaxLoss
        >>> loss = WeightedSumLoss([SoftmaxLoss(), RankmaxLoss()], [0.5, 2.0])
        >>> float(loss([0], [[0.0, 0.0]]))  # 0.5 log(2) + 2 log(2)
        1.732867...
    """

    def __init__(
        self,
        losses: Sequence[keras.losses.Loss],
        weights: Sequence[float],
        name: str = "weighted_sum_loss",
    ) -> None:
        for key, value in (("losses", losses), ("weights", weights)):
            if not isinstance(value, list | tuple):
                raise TypeError(f"`{key}` must be a list. Received: {key}={value!r}.")
        losses, weights = [*losses], [_checks.non_negative_float("weights", w) for w in weights]
        if not losses or len(losses) != len(weights):
            raise ValueError(
                "`weights` must hold a number for each of `losses`, at least one. "
                f"Received: {len(losses)} losses and {len(weights)} weights."
            )
        same = {"auto": "sum_over_batch_size"}  # Both names mean the same reduction.
        reductions = {same.get(loss.reduction, loss.reduction) for loss in losses}
        if len(reductions) > 1 or "none" in reductions:
            raise ValueError(
                "`losses` must share one reduction, 'sum' or 'sum_over_batch_size'. "
                f"Received: {sorted(reductions)}."
            )
        super().__init__(reduction=reductions.pop(), name=name)
        self.losses = losses
        self.weights = weights

    def __call__(
        self, y_true: TensorLike, y_pred: TensorLike, sample_weight: TensorLike | None = None
    ) -> tf.Tensor:
        """Computes the weighted sum of the losses, each with its own reduction and weights."""
        for loss in self.losses:
            _keras.pass_on_permission(self, loss)
        values = [loss(y_true, y_pred, sample_weight) for loss in self.losses]
        return tf.add_n(
            [weight * value for weight, value in zip(self.weights, values, strict=True)]
        )

    def call(self, y_true: TensorLike, y_pred: TensorLike) -> tf.Tensor:
        """Computes the weighted sum of the losses, without weights of examples."""
        return self(y_true, y_pred)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments."""
        losses = [keras.utils.serialize_keras_object(loss) for loss in self.losses]
        return {"losses": losses, "weights": self.weights, "name": self.name}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Builds the loss that `get_config` describes."""
        # A folder that Keras 2 saved names Keras's own losses without their module.
        known = {
            name: found for name, found in vars(keras.losses).items() if inspect.isclass(found)
        }
        losses = [_keras.deserialized(loss, known) for loss in config["losses"]]
        return cls(losses, config["weights"], config["name"])
