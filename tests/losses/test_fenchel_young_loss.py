"""What the classes of the projections check."""

import pytest

from rank4class_tf import losses


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="`regularizer` must be one of"):
        losses.FenchelYoungLoss("l1")
    with pytest.raises(ValueError, match="`alpha` must be a number unless"):
        losses.FenchelYoungLoss("entropy", alpha="adaptive")
    with pytest.raises(ValueError, match="`alpha` must be a number unless"):
        losses.FenchelYoungLoss(k=2, alpha="adaptive")
    with pytest.raises(ValueError, match="`alpha` must be a finite number > 0"):
        losses.FenchelYoungLoss(alpha=0)
    with pytest.raises(ValueError, match="`positive_reduction` must be one of"):
        losses.RankmaxLoss(positive_reduction="max")
    with pytest.raises(
        ValueError, match="`k` must be at most the number of items, 3. Received: k=4"
    ):
        losses.FenchelYoungLoss(k=4)([0], [[0.0, 1.0, 2.0]])
