"""`tfr.load`: TF-Ranking on any TensorFlow, or an error that says what to do."""

import importlib.metadata
import os
import subprocess
import sys

import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from rank4class_tf import _keras, tfr
from tests import pages, tf_ranking

from ..refused import warned

pytestmark = pytest.mark.keras2


@pytest.fixture
def loaded():
    return tf_ranking.load_or_skip()


@pytest.mark.skipif(not _keras.KERAS_3, reason="Keras 2 is active.")
def test_keras_3_is_refused():
    with pytest.raises(
        ImportError, match="TF_USE_LEGACY_KERAS=1 before TensorFlow is first"
    ):
        tfr.load()


def test_losses_and_metrics_of_tf_ranking_work(loaded):
    loss = loaded.keras.losses.SoftmaxLoss()([[1.0, 0.0]], [[0.0, 0.0]])
    assert_allclose(loss, tf.math.log(2.0), rtol=1e-6)
    assert tfr.load() is loaded
    with tf.Graph().as_default():
        value = loaded.metrics.eval_metric(
            loaded.metrics.mean_reciprocal_rank,
            labels=tf.constant([[0.0, 0.0, 1.0], [0.0, 1.0, 2.0]]),
            predictions=tf.constant([[1.0, 3.0, 2.0], [1.0, 2.0, 3.0]]),
        )
    assert value == pytest.approx((1 / 2 + 1) / 2)


@pytest.mark.skipif(_keras.KERAS_3, reason="needs Keras 2")
@pytest.mark.parametrize("version", ["0.5.2", "0.6.0", "1.0", None])
def test_other_versions_are_refused(version, monkeypatch):
    def found(name):
        if version is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(importlib.metadata, "version", found)
    message = (
        f">= 0.5.3 and < 0.6. Received: {version}" if version else "is not installed"
    )
    with pytest.raises(ImportError, match=f"TF-Ranking.*{message}"):
        tfr.load()


@pytest.mark.skipif(_keras.KERAS_3, reason="needs Keras 2")
@pytest.mark.skipif(
    tf.__version__ < "2.16", reason="this TensorFlow has no need of tf_keras"
)
def test_missing_tf_keras_is_named():
    program = "import sys; sys.modules['tf_keras'] = None; import rank4class_tf"
    environment = {
        **os.environ,
        "PYTHONPATH": str(pages.ROOT),
        "TF_USE_LEGACY_KERAS": "1",
    }
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert "ImportError: TensorFlow's Keras is not installed" in done.stderr


@pytest.mark.skipif(tf.__version__ >= "2.16", reason="this TensorFlow needs tf_keras")
def test_tf_keras_beside_tensorflow_2_15_is_warned_of(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    with warned("pip uninstall tf_keras"):
        tfr.load()


@pytest.mark.skipif(tf.__version__ < "2.16", reason="this TensorFlow has tf.estimator")
def test_the_stand_in_of_estimators_explains_itself(loaded):
    with pytest.raises(NotImplementedError, match="dropped estimators in 2.16"):
        tf.estimator.Estimator(model_fn=None)
    with pytest.raises(NotImplementedError, match="`tf.estimator.RunConfig` is gone"):
        tf.compat.v1.estimator.RunConfig()
    with pytest.raises(NotImplementedError, match="dropped estimators"):
        loaded.estimator.make_gam_ranking_estimator([], [], [1])
    assert tf.estimator.Estimator is tf.estimator.Estimator
    assert not hasattr(tf.estimator, "__path__")
    assert tf.estimator.ModeKeys.PREDICT == "infer"
    receiver_fn = loaded.data.build_ranking_serving_input_receiver_fn(
        loaded.data.ELWC,
        context_feature_spec=None,
        example_feature_spec={"x": tf.io.FixedLenFeature([1], tf.float32)},
    )
    with tf.Graph().as_default():
        assert receiver_fn().features["x"].shape.rank == 3
