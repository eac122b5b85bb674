"""DCG against scikit-learn, and with gains and discounts of a user."""

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

from rank4class_tf.metrics import DCG

from .results import result


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("k", [1, 3, 12, None])
def test_equals_scikit_learn(scores, relevance, k, ties):
    if ties:  # scikit-learn, too, averages over the orders of tied items.
        scores = np.floor(scores / 80)
    linear = result(DCG(k, gain="linear", dtype="float64"), relevance, scores)
    expected = sklearn_metrics.dcg_score(relevance, scores, k=k)
    np.testing.assert_allclose(linear, expected, rtol=1e-12)
    exponential = result(DCG(k, dtype="float64"), relevance, scores)
    expected = sklearn_metrics.dcg_score(2**relevance - 1, scores, k=k)
    np.testing.assert_allclose(exponential, expected, rtol=1e-12)


@pytest.mark.parametrize("bad", ["cubic", 3])
def test_discount_is_checked(bad):
    with pytest.raises(ValueError, match="`discount` must be one of"):
        DCG(discount=bad)


def test_a_gain_and_a_discount_of_a_user():
    metric = DCG(gain=lambda y: 10 * y, discount=lambda r: 1 / r**2)
    metric.update_state([[0.0, 2.0, 1.0]], [[3.0, 2.0, 1.0]])
    np.testing.assert_allclose(metric.result(), 20 / 2**2 + 10 / 3**2, rtol=1e-6)
