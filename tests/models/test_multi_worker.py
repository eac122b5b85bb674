"""Two workers end as one process does."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _keras, models
from tests import two_processes
from tests.models import workers
from tests.rounding import rounding

FAST = ["sampled", "all_in_shards"]


@pytest.mark.keras2
@pytest.mark.parametrize(
    "names",
    [
        pytest.param(FAST, id="fast"),
        pytest.param([x for x in workers.MODELS if x not in FAST], marks=pytest.mark.slow),
    ],
)
def test_two_workers_train_as_one_process(names, tmp_path):
    """History, evaluation, predictions and weights; the last batch of evaluation is uneven."""
    two_processes.run(tmp_path, "-m", "tests.models.workers", tmp_path / "worker", *names)
    results = [np.load(tmp_path / f"worker{index}.npz") for index in range(2)]
    for name in names:
        expected = workers.run(name, tf.distribute.get_strategy())
        if name == "uneven":  # Here weights are a part of the losses.
            for key in ("loss", "twice"):
                del expected[f"uneven, history of {key}"]
        for key, value in expected.items():
            if key.endswith("history of twice") and not _keras.KERAS_3:
                value = 2 * value  # No metric, so Keras 2 reports the sum over the workers.
            for of_worker in results:
                # Gradients sum over the examples of each worker first.
                close = rounding(workers.BATCH)
                np.testing.assert_allclose(
                    of_worker[key], value, rtol=close, atol=close, err_msg=key
                )


def test_two_devices_take_ragged_labels_and_an_uneven_first_batch(two_devices):
    """Batches of 2 + 1, with weights that make one device take the same steps."""
    found = []
    for strategy in (tf.distribute.get_strategy(), two_devices):
        keras.utils.set_random_seed(1)
        with strategy.scope():
            model = workers.own()
        train, _ = workers.data_of("uneven", strategy.num_replicas_in_sync)
        history = model.fit(train, epochs=2, shuffle=False, verbose=0).history
        found.append(history["mrr"])
    np.testing.assert_allclose(*found, rtol=1e-6)


def test_any_model_of_keras_may_be_one():
    class Row(models.MultiWorker, keras.Sequential):
        pass

    model = Row([keras.layers.Input((3,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse", metrics=["mae"])
    assert set(model.fit(np.ones([4, 3]), np.ones([4, 2]), verbose=0).history) == {"loss", "mae"}
