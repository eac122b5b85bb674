"""What Keras does with losses and masks."""

from typing import Any

import tensorflow as tf
from tensorflow import keras

from rank4class_tf._keras.version import KERAS_3
from rank4class_tf._tf.private import private
from rank4class_tf._types import Array, Tensor

# Losses: Keras 2 and 3 construct and reduce them differently. The one private name is
# of Keras 2, which changes no more.


class _PerExampleLosses(keras.losses.Loss):
    def call(self, y_true: Array, y_pred: Array) -> Array:
        del y_true
        return y_pred


def reduced(
    loss: keras.losses.Loss, losses: Tensor, sample_weight: Array | None
) -> Tensor:
    """Reduces the losses of examples, `[batch]`, as Keras reduces those of `loss`."""
    # Keras 3's `Loss` casts labels to float32 first, which changes class ids above
    # 2**24.
    if losses.shape == (0,) and loss.reduction != "none":
        return tf.reduce_sum(losses)  # Keras 3 would return the empty tensor.
    options = {"dtype": loss.dtype} if KERAS_3 else {}
    reducer = _PerExampleLosses(name=loss.name, reduction=loss.reduction, **options)
    share_permission_for_means(loss, reducer)
    return reducer(losses, losses, sample_weight)


def init_loss(
    loss: keras.losses.Loss, name: str, reduction: str | None, dtype: Any
) -> None:
    """Calls the constructor of Keras's loss; Keras 2 takes no dtype."""
    if KERAS_3:
        keras.losses.Loss.__init__(loss, name, standardize_reduction(reduction), dtype)
    else:
        keras.losses.Loss.__init__(loss, standardize_reduction(reduction), name)
        loss.dtype = dtype


def standardize_reduction(reduction: str | None) -> str | None:
    """Maps `reduction` to a name that this Keras knows; only Keras 2 has `"auto"`."""
    known: tuple[str, ...] = ("sum_over_batch_size", "sum", "none", "auto")
    known += ("mean", "mean_with_sample_weight") if KERAS_3 else ()
    name = "none" if reduction is None else reduction
    if name not in known:
        raise ValueError(
            f"`reduction` must be one of {known} or None. Received: {reduction!r}."
        )
    return "sum_over_batch_size" if KERAS_3 and name == "auto" else name


def as_losses(x: Tensor) -> Tensor:
    """Marks a tensor as losses of examples; as a loss's `y_pred` it is only reduced."""
    x = with_mask(tf.identity(x), mask_of(x))
    x._rank4class_tf_losses = True
    return x


def are_losses(x: Any) -> bool:
    """Whether `as_losses` made a tensor."""
    return getattr(x, "_rank4class_tf_losses", False)


def share_permission_for_means(
    outer: keras.losses.Loss, inner: keras.losses.Loss
) -> None:
    """Lets the loss `inner` take means under a strategy exactly where `outer` may."""
    # Keras 2 refuses `"sum_over_batch_size"` under a strategy but for the losses given
    # to `compile`, whose means it scales itself; a loss within such a loss is the same
    # case.
    if not KERAS_3:
        may = private(outer, "_allow_sum_over_batch_size")
        inner._allow_sum_over_batch_size = may


# Masks: Keras's layers attach them to tensors. Most tensors have none, so a Keras that
# names the attribute otherwise raises nothing here; only that test would fail.


def mask_of(x: Any) -> Tensor | None:
    """The mask that Keras's layers attach to a tensor, as booleans; None for none."""
    mask = getattr(x, "_keras_mask", None)
    return None if mask is None else tf.cast(mask, tf.bool)


def with_mask(x: Tensor, mask: Tensor | None) -> Tensor:
    """A tensor with a mask attached, which Keras's layers, losses and metrics read."""
    if mask is not None:
        x = tf.identity(x)
        x._keras_mask = mask
    return x


def mask_of_items(y_pred: Tensor) -> Tensor | None:
    """The mask `[batch, n]` of scores, False for an absent item."""
    mask = mask_of(y_pred)
    if mask is not None and not mask.shape.is_compatible_with(y_pred.shape):
        rule = "The mask that comes with `y_pred` must have its shape, [batch, n]."
        raise ValueError(
            f"{rule} Received: a mask of {mask.shape}, scores of {y_pred.shape}."
        )
    return mask


def weights_of_lists(sample_weight: Array, y_pred: Array) -> Array:
    """Weights `[batch]` where Keras 2 has multiplied them by the mask of the items."""
    mask = None if KERAS_3 else mask_of_items(y_pred)
    if mask is None:
        return sample_weight
    weights = tf.convert_to_tensor(sample_weight)
    num_items = tf.reduce_sum(tf.cast(mask, weights.dtype), axis=-1)
    return tf.math.divide_no_nan(tf.reduce_sum(weights, axis=-1), num_items)
