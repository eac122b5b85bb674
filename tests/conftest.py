"""Settings of all tests."""

import functools
import gc
import importlib.metadata
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Tests run compiled code only once or twice, so XLA need not optimise it. The flags of
# this version take two thirds of what is left; one that XLA does not know would end the
# process.
if importlib.metadata.version("tensorflow").startswith("2.21."):
    os.environ.setdefault(
        "XLA_FLAGS",
        "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
        "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1",
    )
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras
from tensorflow.python.eager import context

from rank4class_tf._tf import raising

# Graphs are many objects. To search all of them for garbage as often as Python does by
# default takes a seventh of the time of the tests.
gc.set_threshold(200_000, 50, 1000)

# The tests run in two processes, each with one core.
tf.config.threading.set_intra_op_parallelism_threads(1)

# Two devices on one machine, for the tests of distribution strategies.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * 2,
)

# TF-Ranking's programs run in processes of their own; keras-hub has only Keras 3.
collect_ignore = ["tfr/programs"]
if os.environ.get("TF_USE_LEGACY_KERAS") == "1":
    collect_ignore += ["encoders/presets.py", "encoders/test_encoders.py"]

# The rows of the contract that --quick runs.
QUICK = {
    "softmax",
    "spearman",
    "ndcg",
    "mean_average_precision",
    "sigmoid",
    "dot_product",
}


def pytest_addoption(parser):
    parser.addoption(
        "--quick", action="store_true", help="run a row of each table of the contract"
    )
    parser.addoption(
        "--xla", action="store_true", help="Keras 3 compiles as on a GPU, by default"
    )


@pytest.hookimpl(tryfirst=True)  # Before `-m` looks at the markers.
def pytest_collection_modifyitems(config, items):
    """Leaves out what `--quick` does; `base` and `often` mark all other cases."""
    for item in items:
        for often in item.iter_markers("often"):
            if not set(often.args) & set(item.callspec.id.split("-")):
                item.add_marker("slow")
        for base in item.iter_markers("base"):
            if item.callspec.params["case"].name not in base.args[0]:
                item.add_marker("weekly")
        if item.get_closest_marker("weekly"):
            item.add_marker("slow")
    quick = config.getoption("quick")
    chosen = [item for item in items if not quick or _is_quick(item)]
    config.hook.pytest_deselected(
        items=[item for item in items if item not in set(chosen)]
    )
    # Programs come first: each of their runs looks at all objects that the process has.
    items[:] = sorted(
        chosen, key=lambda item: item.path.parent.name not in ("scripts", "tests")
    )


def pytest_make_parametrize_id(val):
    """Rows, losses and dtypes are known by their names; Keras numbers layers."""
    name = getattr(val, "name", None)
    is_layer = isinstance(val, keras.layers.Layer)
    return name if isinstance(name, str) and not is_layer else None


def pytest_collection_finish():
    """Garbage collection never looks at what was imported before the first test."""
    gc.freeze()


def pytest_sessionfinish():
    """Nor does pytest look for garbage after the last test, which takes ten seconds."""
    gc.freeze()


def _is_quick(item):
    in_contract = item.path.parent.name == "contract" and hasattr(item, "callspec")
    return not in_contract or not QUICK.isdisjoint(item.callspec.id.split("-"))


@pytest.fixture(autouse=True, scope="module")
def _seeds_of_module():
    """Sets seeds, so that a module's fixtures draw the same whatever ran before."""
    keras.utils.set_random_seed(0)


@pytest.fixture(autouse=True)
def _seeds(monkeypatch):
    """Those of Python, NumPy, Keras and TensorFlow.

    With a new seed TensorFlow would forget all that it has compiled, a quarter of the
    time of the tests. Here it keeps that, so its stateful random operations go on; no
    test compares draws.
    """
    monkeypatch.setattr(
        context.pywrap_tfe, "TFE_ContextClearCaches", lambda handle: None
    )
    keras.utils.set_random_seed(0)


@pytest.fixture
def seen_gpu(monkeypatch):
    """Keras chooses XLA by the devices that TensorFlow lists."""
    listed = tf.config.list_physical_devices
    gpu = tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")

    def with_gpu(kind=None):
        if kind is None:
            return [*listed(), gpu]
        return [gpu] if kind == "GPU" else listed(kind)

    monkeypatch.setattr(tf.config, "list_physical_devices", with_gpu)


@pytest.fixture(autouse=True)
def _seen_gpu(request):
    if request.config.getoption("xla"):
        request.getfixturevalue("seen_gpu")


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def normal(rng):
    """Draws standard normal numbers of a shape, in float32."""
    return lambda *shape: rng.normal(size=shape).astype("float32")


@pytest.fixture
def reloaded(tmp_path):
    """A function that saves a model and returns the one that the file gives."""

    def load(model):
        model.save(tmp_path / "model.keras")
        return keras.models.load_model(tmp_path / "model.keras")

    return load


@pytest.fixture(params=["eager", "graph", "xla"])
def in_mode(request):
    """Makes a function one that runs eagerly, in a graph, or under XLA."""
    if request.param == "eager":
        return lambda function, *specs: function
    return functools.partial(tf.function, jit_compile=request.param == "xla")


@pytest.fixture(params=[False, True], ids=["graph", "xla"])
def jit_compile(request):
    return request.param


@pytest.fixture
def as_for_xla(monkeypatch):
    """Graphs as XLA gets them, where nothing can raise, without the time it takes."""
    monkeypatch.setattr(raising, "in_xla", lambda: True)


@pytest.fixture
def two_devices():
    """A MirroredStrategy on two logical devices."""
    # TensorFlow mixes up the collectives of several strategies in one process; this
    # needs none.
    reduction = tf.distribute.ReductionToOneDevice()
    return tf.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1"], cross_device_ops=reduction
    )


@pytest.fixture
def mixed_precision():
    if os.environ.get("ONEDNN_MAX_CPU_ISA", "DEFAULT") in ("SSE41", "AVX2"):
        # TensorFlow chooses by the flags of the processor: on one with AVX-512 it asks
        # oneDNN for a bfloat16 product, and the process aborts where oneDNN may not use
        # these instructions.
        pytest.skip(
            "With fewer instructions than the processor has, oneDNN has no bfloat16."
        )
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    yield
    keras.mixed_precision.set_global_policy("float32")
