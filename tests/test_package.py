"""What the package is from outside: its version, and what an import of it brings."""

import configparser
import os
import pathlib
import re
import subprocess
import sys

import pytest

import rank4class_tf as r4c

ROOT = pathlib.Path(__file__).resolve().parents[1]


def test_there_is_one_version():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    assert setup["metadata"]["version"] == "attr: rank4class_tf.__version__"
    assert re.fullmatch(r"\d+\.\d+\.\d+", r4c.__version__)
    assert f"\nversion: {r4c.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_nothing_of_the_laboratory_is_in_the_package():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    assert setup["options.packages.find"]["include"] == "rank4class_tf*"
    imports = re.compile(r"^ *(?:from|import) (?:scripts|examples|tests)\b", re.MULTILINE)
    files = (ROOT / "rank4class_tf").rglob("*.py")
    assert not [path.name for path in files if imports.search(path.read_text())]


PROGRAM = """
import sys
from tensorflow import keras
keras.callbacks.Callback, keras.layers.Layer, keras.losses.Loss, keras.metrics.Metric, keras.Model
keras.optimizers.SGD, keras.optimizers.Adam
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
assert (completer.complete("tfr.RankingPip", 0) is not None) == (sys.argv[1] == "pipelines")
"""


def test_an_import_is_light_and_names_complete():
    pipelines = "pipelines" if "RankingPipeline" in dir(r4c.tfr) else "none"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, pipelines], capture_output=True, text=True
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


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_keras_on_another_backend(backend):
    environment = {**os.environ, "KERAS_BACKEND": backend, "TF_USE_LEGACY_KERAS": "0"}
    command = [sys.executable, "-c", "import rank4class_tf"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert "Keras must run on TensorFlow: set KERAS_BACKEND" in done.stderr
