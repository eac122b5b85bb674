"""What the tests of losses and of metrics share."""

import numpy as np
import pytest


@pytest.fixture
def scores(normal, request):
    """As many as the module says, `[BATCH, N]`."""
    return normal(request.module.BATCH, request.module.N)


@pytest.fixture
def relevance(request):
    """Of four lists of six or more items: 1, 2, 3 and many positives, also graded."""
    labels = np.zeros((request.module.BATCH, request.module.N), "float32")
    labels[0, 4] = 1
    labels[1, [0, 3]] = 1, 2
    labels[2, [1, 4, 5]] = 1, 1, 3
    labels[3, :6] = 2, 0, 1, 3, 0, 1
    return labels
