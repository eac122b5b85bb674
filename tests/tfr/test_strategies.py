"""Training under TF-Ranking's `strategy` hyperparameter."""

import json

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from tests import tf_ranking, two_processes

tf_ranking.load_or_skip()

from rank4class_tf import tfr  # noqa: E402
from tests.tfr import pipelines  # noqa: E402

pytestmark = [pytest.mark.keras2, pytest.mark.slow]


class TwoDevices(tf.distribute.MirroredStrategy):
    """What `MirroredStrategy()` is on a machine with two devices."""

    def __init__(self):
        # TensorFlow mixes up the collectives of several strategies in one process.
        reduction = tf.distribute.ReductionToOneDevice()
        super().__init__(["CPU:0", "CPU:1"], cross_device_ops=reduction)


def run(folder, **changes):
    """Trains on the validation lists, which are not shuffled; returns the logs."""
    builder = pipelines.dataset_builder(folder)
    builder.build_train_dataset = builder.build_valid_dataset
    values = {"loss": "rankmax_loss:0.5,softmax_loss:0.5", "optimizer": "sgd"}
    hparams = pipelines.hparams(folder, **values, steps_per_epoch=4, num_epochs=2, **changes)
    metrics = ["ndcg", "tfr.mrr"]
    pipeline = tfr.RankingPipeline(pipelines.ModelBuilder(), builder, hparams, metrics=metrics)
    keras.utils.set_random_seed(3)
    return pipelines.history(pipeline, exports=True)


def test_two_devices_train_as_one(tmp_path, monkeypatch):
    pipelines.write_files(str(tmp_path))
    one = run(str(tmp_path))
    monkeypatch.setattr(tf.distribute, "MirroredStrategy", TwoDevices)
    options = {"strategy": "MirroredStrategy", "export_best_model": True}
    two = run(str(tmp_path), model_dir=str(tmp_path / "two"), **options)
    for first, second in zip(one, two, strict=True):
        assert first == pytest.approx(second, rel=1e-5)
    export = tmp_path / "two" / "export"
    names = sorted(path.name for path in export.iterdir())
    assert names == ["best_model_by_metric", "latest_model"]
    model = keras.models.load_model(export / "latest_model")
    features, _ = next(iter(pipelines.dataset_builder(str(tmp_path)).build_valid_dataset()))
    assert np.isfinite(model.predict(features, verbose=0)).all()


_WORKER = """
import json, os, pathlib, sys
from tests.tfr import test_strategies
logs = test_strategies.run(sys.argv[1], strategy="MultiWorkerMirroredStrategy")
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
pathlib.Path(sys.argv[1], f"result{index}").write_text(json.dumps(logs))
"""


def test_two_processes_train_together(tmp_path):
    pipelines.write_files(str(tmp_path))
    two_processes.run(tmp_path, "-c", _WORKER, str(tmp_path))
    first, second = (json.loads((tmp_path / f"result{i}").read_text()) for i in range(2))
    assert len(first) == 2 and first == second  # Both see the result of all lists.
    assert first[1]["loss"] < first[0]["loss"]
    assert (tmp_path / "model" / "export" / "latest_model" / "saved_model.pb").exists()
