"""Weights of the ordered negatives."""

import numpy as np
import pytest

from rank4class_tf import ops


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ops.TopKWeights(0), r"`k` must be a positive integer. Received: k=0\."),
        (lambda: ops.TopKWeights(2, tail=-1.0), "`tail` must hold finite numbers >= 0"),
        (lambda: ops.PowerLawWeights(0.0), "`exponent` must be a finite number > 0"),
        (lambda: ops.StaircaseWeights([(3, 1.0), (2, 0.5)]), "`steps` must hold"),
        (lambda: ops.StaircaseWeights([]), "`steps` must hold"),
        (lambda: ops.StaircaseWeights([(3, np.nan)]), "`steps` must hold finite numbers >= 0"),
        (lambda: ops.get_rank_weights([]), "`rank_weights` must be a list"),
        (lambda: ops.get_rank_weights("top"), "`rank_weights` must be a list"),
        (lambda: ops.get_rank_weights([[1.0]]), "`rank_weights` must be a list"),
        (lambda: ops.get_rank_weights([1.0, -1.0]), "`rank_weights` must hold finite numbers >= 0"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()
