"""Training under TF-Ranking's `strategy` hyperparameter."""

import json
import os
import pathlib
import socket
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from tests import tf_ranking

tf_ranking.load_or_skip()

from rank4class_tf import tfr  # noqa: E402
from tests.tfr import pipelines  # noqa: E402

pytestmark = pytest.mark.keras2

ROOT = pathlib.Path(__file__).resolve().parents[2]


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
    pipeline = tfr.RankingPipeline(
        pipelines.ModelBuilder(),
        builder,
        pipelines.hparams(folder, **values, steps_per_epoch=4, num_epochs=2, **changes),
        metrics=["ndcg", "tfr.mrr"],
    )
    logs = []
    recorder = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, log: logs.append(log))
    build = pipeline.build_callbacks
    pipeline.build_callbacks = lambda: [*build(), recorder]
    keras.utils.set_random_seed(3)
    pipeline.train_and_validate()
    return logs


@pytest.mark.slow
def test_two_devices_train_as_one(tmp_path, monkeypatch):
    pipelines.write_files(str(tmp_path))
    one = run(str(tmp_path))
    monkeypatch.setattr(tf.distribute, "MirroredStrategy", TwoDevices)
    two = run(
        str(tmp_path),
        strategy="MirroredStrategy",
        model_dir=str(tmp_path / "two"),
        export_best_model=True,
    )
    for first, second in zip(one, two, strict=True):
        assert first == pytest.approx(second, rel=1e-5)
    export = tmp_path / "two" / "export"
    names = sorted(path.name for path in export.iterdir())
    assert names == ["best_model_by_metric", "latest_model"]
    model = keras.models.load_model(export / "latest_model")
    features, _ = next(iter(pipelines.dataset_builder(str(tmp_path)).build_valid_dataset()))
    assert np.isfinite(model.predict(features, verbose=0)).all()


_WORKER = """
import json, sys
from tests.tfr import test_strategies
print(json.dumps(test_strategies.run(sys.argv[1], strategy="MultiWorkerMirroredStrategy")))
"""


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("localhost", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.mark.slow
def test_two_processes_train_together(tmp_path):
    pipelines.write_files(str(tmp_path))
    first, second = free_ports(2)
    cluster = {"chief": [f"localhost:{first}"], "worker": [f"localhost:{second}"]}
    workers = []
    for task in cluster:
        config = json.dumps({"cluster": cluster, "task": {"type": task, "index": 0}})
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CONFIG": config}
        workers.append(
            subprocess.Popen(
                [sys.executable, "-c", _WORKER, str(tmp_path)],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    try:
        ends = [worker.communicate(timeout=300) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    for worker, (_, errors) in zip(workers, ends, strict=True):
        assert worker.returncode == 0, errors[-3000:]
    first, second = (json.loads(out.splitlines()[-1]) for out, _ in ends)
    assert len(first) == 2 and first == second  # Both see the result of all lists.
    assert first[1]["loss"] < first[0]["loss"]
    assert (tmp_path / "model" / "export" / "latest_model" / "saved_model.pb").exists()
