"""Each eager call reads arguments, variables and a user's code anew: nothing is kept."""

import numpy as np
import pytest
import tensorflow as tf

import rank4class_tf as r4c

SCORES = tf.constant([[2.0, 1.0, 0.5, -1.0, 0.2, 0.9], [0.0, 1.0, 0.5, 3.0, 0.1, 0.7]])
IDS = tf.constant([0, 2])


def test_an_argument_that_changes_after_calls():
    loss = r4c.losses.RankmaxLoss(class_weight=[1.0] * 6)
    for _ in range(4):
        loss(IDS, SCORES)
    loss.margin, loss.class_weight[0] = 3.0, 5.0
    other = r4c.losses.RankmaxLoss(margin=3.0, class_weight=[5.0] + [1.0] * 5)
    assert float(loss(IDS, SCORES)) == pytest.approx(float(other(IDS, SCORES)), rel=1e-6)


def test_a_temperature_of_probabilities_in_a_metric():
    def error(temperature):
        probabilities = r4c.layers.Probabilities(temperature=temperature)
        return r4c.metrics.ExpectedCalibrationError(probabilities=probabilities)

    metric, other = error(1.0), error(0.25)
    for _ in range(4):
        metric.update_state(IDS, SCORES)
    metric.reset_state()
    metric.probabilities.temperature = 0.25
    for each in (metric, other):
        each.update_state(IDS, SCORES)
    np.testing.assert_allclose(metric.result(), other.result(), rtol=1e-6)


def test_a_global_that_the_code_of_a_user_reads():
    factor = [1.0]

    class Mine(r4c.losses.RankingLoss):
        def compute(self, lists):
            return -factor[0] * lists.positive_scores[:, 0]

    loss, dcg = Mine(), r4c.metrics.DCG(3, gain=lambda relevance: relevance * factor[0])
    for _ in range(4):
        first = float(loss(IDS, SCORES))
        dcg.update_state(IDS, SCORES)
    before, factor[0] = float(dcg.result()), 100.0
    dcg.reset_state()
    dcg.update_state(IDS, SCORES)
    assert float(loss(IDS, SCORES)) == pytest.approx(100 * first, rel=1e-6)
    np.testing.assert_allclose(dcg.result(), 100 * before, rtol=1e-5)


def test_stateless_updates_repeat_and_leave_the_metric_as_it_is():
    metric = r4c.metrics.NDCG(5)
    start = [tf.convert_to_tensor(x) for x in metric.variables]
    metric.update_state(IDS, SCORES)
    expected = pytest.approx(float(metric.result()), rel=1e-6)
    metric.reset_state()
    for _ in range(5):
        state = metric.stateless_update_state(start, IDS, SCORES)
        assert float(metric.stateless_result(state)) == expected
    metric.update_state(IDS, SCORES)
    assert float(metric.result()) == expected
