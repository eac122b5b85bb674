"""The package from outside: its version, what an import brings, what it keeps."""

import configparser
import os
import pathlib
import re
import subprocess
import sys

import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

import rank4class_tf as r4c
from rank4class_tf import encoders

ROOT = pathlib.Path(__file__).resolve().parents[1]
SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg")


def test_there_is_one_version():
    assert SETUP["metadata"]["version"] == "attr: rank4class_tf.__version__"
    assert re.fullmatch(r"\d+\.\d+\.\d+", r4c.__version__)
    assert f"\nversion: {r4c.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_nothing_of_the_laboratory_is_in_the_package():
    assert SETUP["options.packages.find"]["include"] == "rank4class_tf*"
    imports = re.compile(
        r"^ *(?:from|import) (?:scripts|examples|tests)\b", re.MULTILINE
    )
    files = (ROOT / "rank4class_tf").rglob("*.py")
    assert not [path.name for path in files if imports.search(path.read_text())]


PROGRAM = """
import sys
from tensorflow import keras
keras.callbacks.Callback, keras.layers.Layer, keras.losses.Loss, keras.metrics.Metric
keras.Model, keras.optimizers.SGD, keras.optimizers.Adam
before = set(sys.modules)
import rank4class_tf
brought = {name.partition(".")[0] for name in set(sys.modules) - before}
assert brought - sys.stdlib_module_names == {"rank4class_tf"}, brought
rooms = {f"rank4class_tf.{name}" for name in ("callbacks", "data", "plots")}
assert not rooms & set(sys.modules)
print(rank4class_tf.data.elwc.write, dir(rank4class_tf.tfr))
heavy = ("tensorflow_datasets", "tensorflow_ranking", "apache_beam")
assert not set(heavy) & set(sys.modules), set(heavy) & set(sys.modules)
import rlcompleter
completer = rlcompleter.Completer(vars(rank4class_tf))
assert completer.complete("tfr.lo", 0).startswith("tfr.load")
has_pipelines = completer.complete("tfr.RankingPip", 0) is not None
assert has_pipelines == (sys.argv[1] == "pipelines")
"""


def test_an_import_is_light_and_names_complete():
    pipelines = "pipelines" if "RankingPipeline" in dir(r4c.tfr) else "none"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, pipelines],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "'load'" in done.stdout


def test_names_of_the_bridge_are_listed_where_they_work():
    try:
        usable = bool(r4c.tfr.load())
    except ImportError:
        usable = False
    # No module that it imports.
    assert set(dir(r4c.tfr)) == set(r4c.tfr.__all__ if usable else ["load"])


@pytest.mark.slow
@pytest.mark.skipif(tf.__version__ < "2.16", reason="TensorFlow 2.15 has Keras 2.")
@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_keras_on_another_backend(backend):
    environment = {**os.environ, "KERAS_BACKEND": backend, "TF_USE_LEGACY_KERAS": "0"}
    command = [sys.executable, "-c", "import rank4class_tf"]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, check=False
    )
    assert "Keras must run on TensorFlow: set KERAS_BACKEND" in done.stderr


SCORES = tf.constant([[2.0, 1.0, 0.5, -1.0, 0.2, 0.9], [0.0, 1.0, 0.5, 3.0, 0.1, 0.7]])
IDS = tf.constant([0, 2])


def test_what_changes_after_calls_counts():
    """Arguments, and a global that the code of a user reads."""
    factor = [1.0]

    class Mine(r4c.losses.RankmaxLoss):
        def compute(self, lists):
            return factor[0] * super().compute(lists)

    loss = Mine(class_weight=[1.0] * 6)
    dcg = r4c.metrics.DCG(3, gain=lambda relevance: relevance * factor[0])
    for _ in range(4):
        loss(IDS, SCORES)
        before = float(dcg(IDS, SCORES))
    factor[0] = 100.0
    loss.margin, loss.class_weight[0] = 3.0, 5.0
    other = r4c.losses.RankmaxLoss(margin=3.0, class_weight=[5.0] + [1.0] * 5)
    assert_allclose(loss(IDS, SCORES), 100 * other(IDS, SCORES), rtol=1e-6)
    dcg.reset_state()
    assert_allclose(dcg(IDS, SCORES), 100 * before, rtol=1e-5)


@pytest.mark.skipif(not r4c._keras.KERAS_3, reason="Keras 2 has no stateless metrics.")
def test_stateless_updates_repeat_and_leave_the_metric_as_it_is():
    metric = r4c.metrics.NDCG(5)
    start = [tf.convert_to_tensor(x) for x in metric.variables]
    expected = pytest.approx(float(metric(IDS, SCORES)), rel=1e-6)
    metric.reset_state()
    for _ in range(5):
        state = metric.stateless_update_state(start, IDS, SCORES)
        assert float(metric.stateless_result(state)) == expected
    assert float(metric(IDS, SCORES)) == expected


@pytest.mark.keras2
@pytest.mark.skipif(r4c._keras.KERAS_3, reason="Keras 3 has pretrained encoders.")
@pytest.mark.parametrize("encoder", [encoders.TextEncoder, encoders.ImageEncoder])
def test_pretrained_encoders_need_keras_3(encoder):
    with pytest.raises(ImportError, match="keras-hub, which works only with Keras 3"):
        encoder("a_preset")
