"""What the tests of losses and of metrics share."""

import numpy as np
import pytest


@pytest.fixture
def scores(rng, request):
    """As many as the module says, `[BATCH, N]`."""
    return rng.normal(size=(request.module.BATCH, request.module.N)).astype(np.float32)
