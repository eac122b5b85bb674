"""Soft ranks of the positives."""

import tensorflow as tf

from rank4class_tf import _checks
from rank4class_tf._lists.dense import as_lists
from rank4class_tf._lists.lists import Lists
from rank4class_tf._types import TensorLike


def sigmoid_ranks(
    scores: TensorLike | Lists,
    class_ids: TensorLike | None = None,
    mask: TensorLike | None = None,
    *,
    temperature: float = 0.1,
) -> tf.Tensor:
    r"""Soft ranks of the positives.

    $$\pi(p) = 1 + \sum_{j \ne p} \sigma\left(\frac{s_j - s_p}{T}\right)$$

    Source: Qin et al. 2010; Rank4Class, equation 3, with $\alpha = 1 / T$.

    Args:
        scores: `[batch, n]`, or `Lists`, which hold the labels; -inf masks an item.
        class_ids: `[batch]` or `[batch, P]` integers, padded with -1.
        mask: `[batch, n]` booleans, False for a masked item; None if no item is masked.
        temperature: > 0. The smaller, the closer to the exact ranks, and the smaller the gradient
            of items that are far apart.

    Returns:
        `[batch, P]`, each in [1, n]; meaningless where padded.

    Example:
        >>> sigmoid_ranks([[3.0, 1.0, 2.0]], [[1, 0]], temperature=0.01).numpy()
        array([[3., 1.]], dtype=float32)
    """
    _checks.positive_or_tensor("temperature", temperature)
    lists = as_lists(scores, class_ids, mask=mask)
    # The item itself adds sigmoid(0) = 1/2 to the sum over all items. We multiply by 1 / T, since
    # dividing a masked item by T has an infinite slope in T, which forward mode turns into NaN.
    return 0.5 + lists.sum_over_differences(lambda d: tf.sigmoid(d * (1 / temperature)))


def sigmoid_ranks_among_positives(
    scores: TensorLike | Lists,
    class_ids: TensorLike | None = None,
    mask: TensorLike | None = None,
    *,
    temperature: float = 0.1,
) -> tf.Tensor:
    r"""Soft ranks of the positives among themselves.

    $$\pi_Y(p) = 1 + \sum_{q \in Y, q \ne p} \sigma\left(\frac{s_q - s_p}{T}\right)$$

    Args:
        scores: `[batch, n]`, or `Lists`, which hold the labels; -inf masks an item.
        class_ids: `[batch]` or `[batch, P]` integers, padded with -1.
        mask: `[batch, n]` booleans, False for a masked item; None if no item is masked.
        temperature: > 0.

    Returns:
        `[batch, P]`, each in [1, P]; meaningless where padded.

    Example:
        >>> sigmoid_ranks_among_positives([[3.0, 1.0, 2.0]], [[1, 0]], temperature=0.01).numpy()
        array([[2., 1.]], dtype=float32)
    """
    lists = as_lists(scores, class_ids, mask=mask)
    return sigmoid_ranks(lists.positives_only(), temperature=temperature)
