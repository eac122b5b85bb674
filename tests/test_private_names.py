"""Private names of Keras and TensorFlow: all are listed, exist, and are called.

The package reads most of them by `rank4class_tf._tf.private`. Where this file fails
with newer versions, `NAMES` and `OVERRIDDEN` say what has gone.
"""

import ast
import enum
import importlib
import inspect
import pathlib
import pkgutil
import re

import pytest
import tensorflow as tf
from tensorflow import keras

import rank4class_tf as r4c
from rank4class_tf import losses, metrics, models, optimizers
from rank4class_tf._keras import KERAS_3, builds_symbolically
from rank4class_tf._tf.private import private
from rank4class_tf.layers import saved_shards

pytestmark = pytest.mark.keras2

ROOT = pathlib.Path(__file__).resolve().parents[1]
TREES = [ast.parse(x.read_text()) for x in (ROOT / "rank4class_tf").rglob("*.py")]
PRIVATE = re.compile(r"_[A-Za-z]\w*|__internal__")
MODULE = re.compile(r"(tensorflow\.python|keras\.src|tf_keras\.src)\b.*")


def dense():
    layer = keras.layers.Dense(2)
    layer.build((None, 3))
    return layer


def compiled():
    model = keras.Sequential([keras.Input((3,)), dense()])
    model.compile("sgd", "mse", metrics=["mae"])
    return model


def metrics_of_compiled():
    model = compiled()
    return model._compile_metrics if KERAS_3 else model.compiled_metrics


def optimizer(kind="Adam"):
    built = getattr(keras.optimizers, kind)(use_ema=True)
    built.build(dense().trainable_variables)
    return built


def masked():
    return keras.layers.Embedding(3, 2, mask_zero=True)(tf.constant([[1, 0]]))


def randomness():
    dropout = keras.layers.Dropout(0.5)
    dropout.build((None, 3))
    return dropout._random_generator


def spread(kind):
    return getattr(tf.distribute, kind)().extended


# The owner of each name, a module or a function that makes one; then the Keras that
# has it, if not both have.
NAMES = {
    "CONVERSION_RULES": ("tensorflow.python.autograph.core.config",),
    "DoNotConvert": ("tensorflow.python.autograph.core.config",),
    "GraphOrParentsInXlaContext": ("tensorflow.python.ops.control_flow_util",),
    "Trackable": ("tensorflow.python.trackable.base",),
    "__internal__": (lambda: tf,),
    "_accumulators": (lambda: optimizer("Adagrad"),),
    "_allow_sum_over_batch_size": (keras.losses.MeanSquaredError, 2),
    "_callable_losses": (dense, 2),
    "_compile_metrics": (compiled, 3),
    "_compute_current_learning_rate": (optimizer, 2),
    "_distribute_strategy": (compiled, 3),
    "_eager_losses": (compiled, 2),
    "_flatten_layers": (dense,),
    "_generator": (randomness, 2),
    "_get_variable_index": (optimizer, 3),
    "_id_in_cluster": (lambda: spread("MultiWorkerMirroredStrategy"),),
    "_in_multi_worker_mode": (lambda: spread("MirroredStrategy"),),
    "_inbound_nodes": (dense,),
    "_index_dict": (optimizer, 2),
    "_keras_mask": (masked,),
    "_model_variables_moving_average": (optimizer,),
    "_momentums": (optimizer,),
    "_noinline": ("tensorflow.python.eager.polymorphic_function.attributes",),
    "_non_trainable_variables": (dense, 3),
    "_non_trainable_weights": (dense, 2),
    "_random_generator": (lambda: keras.layers.Dropout(0.5), 2),
    "_seed_generators": (dense, 3),
    "_symbolic_build": (compiled, 3),
    "_track_trackable": (tf.Module,),
    "_tracker": (dense, 3),
    "_trainable": (lambda: tf.Variable(0.0),),
    "_user_metrics": (metrics_of_compiled,),
    "_user_weighted_metrics": (metrics_of_compiled,),
    "_var_key": (optimizer, 2),
    "_variables": (optimizer, 2),
    "_velocities": (optimizer,),
    "autograph": (lambda: tf.__internal__,),
    "config": ("tensorflow.python.autograph.core",),
    "in_symbolic_scope": ("keras.src.backend.common.symbolic_scope", 3),
}
MINE = 3 if KERAS_3 else 2
HERE = sorted(x for x, (_, *keras_of) in NAMES.items() if keras_of in ([], [MINE]))
# Names of TF-Ranking, which `tests/tfr` call, and strings that name nothing.
OTHERS = {
    "_context_feature_spec",
    "_example_feature_spec",
    "_mask_feature_name",
    "_at_",
    "_bias",
    "_kernel",
    # Of nodes in a file; without it, loading what is exported would warn in a test.
    "_gradient_op_type",
}

# Methods of this Keras that a class of ours overrides.
OPTIMIZER = {
    "_clip_gradients",
    "_overwrite_model_variables_with_average_value",
    "_update_model_variables_moving_average",
}
MODEL = {"_get_metrics_result_or_logs", "_make_function", "_maybe_symbolic_build"}
if not KERAS_3:
    OPTIMIZER |= {"_deduplicate_sparse_grad"}
    MODEL = {"_validate_and_get_metrics_result"}
CHECKPOINT = {"_restore_from_tensors", "_serialize_to_tensors"}


def is_of_self(node):
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def words_read(tree):
    """Attributes, and strings that may name one; not parts of other strings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            is_set = isinstance(node.ctx, ast.Store) and is_of_self(node)
            yield from [] if is_set else [node.attr]
        if not isinstance(node, ast.JoinedStr):
            children = ast.iter_child_nodes(node)
            texts = [x.value for x in children if isinstance(x, ast.Constant)]
            yield from (x for x in texts if isinstance(x, str))


def names_made(tree):
    """Names that the package itself gives: of functions, classes, variables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            is_ours = is_of_self(node) or node.attr.startswith("_rank4class_tf")
            yield from [node.attr] if is_ours else []


def names_asked_for(tree):
    """The names that `private` is called with."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "private":
            name = node.args[1]
            yield from [name.value] if isinstance(name, ast.Constant) else []


def all_of(find):
    return {name for tree in TREES for name in find(tree)}


def test_they_are_listed():
    words = all_of(words_read)
    private_words = {x for x in words if PRIVATE.fullmatch(x)}
    foreign = private_words - all_of(names_made) - {"_replace"}  # Of named tuples.
    found = foreign | all_of(names_asked_for)
    assert found - OTHERS == set(NAMES)


def test_their_modules_are_imported_in_one_place():
    imported = [
        ast.unparse(node)
        for tree in TREES
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert not [x for x in imported if re.search(r"\.python\b|keras\.src", x)]
    modules = {x for x in all_of(words_read) if MODULE.fullmatch(x)}
    assert modules <= {owner for owner, *_ in NAMES.values()}


@pytest.mark.parametrize("name", HERE)
def test_it_exists(name):
    owner = NAMES[name][0]
    name = {"_noinline": "NO_INLINE"}.get(name, name)
    private(owner if isinstance(owner, str) else owner(), name)


def test_a_name_that_is_gone():
    of_keras = getattr(keras, "__version__", 2)
    versions = f"TensorFlow {tf.__version__} with Keras {of_keras}"
    with pytest.raises(ImportError, match=f"`_gone`.*has no attribute.*{versions}"):
        private(dense(), "_gone")
    with pytest.raises(ImportError, match=f"`x`.*No module.*{versions}"):
        private("tensorflow.python.gone", "x")


def classes():
    """All classes of the package."""
    for module in pkgutil.walk_packages(r4c.__path__, "rank4class_tf."):
        if module.name.startswith("rank4class_tf.tfr."):
            continue  # Needs TF-Ranking.
        if module.name.endswith("_beam"):
            continue  # Needs Apache Beam.
        for x in vars(importlib.import_module(module.name)).values():
            # Python itself gives each enumeration private methods.
            is_class = isinstance(x, type) and not isinstance(x, enum.EnumType)
            if is_class and x.__module__.startswith("rank4class_tf"):
                yield x


def overridden(cls):
    """Private methods of a class that a base of Keras or TensorFlow has, too."""
    ours = set()
    foreign = set()
    for base in cls.__mro__:
        is_ours = base.__module__.startswith("rank4class_tf")
        names = [k for k, v in vars(base).items() if inspect.isfunction(v)]
        (ours if is_ours else foreign).update(filter(PRIVATE.fullmatch, names))
    return ours & foreign


def test_overridden_methods_are_listed():
    found = set().union(*map(overridden, classes()))
    assert found == OPTIMIZER | MODEL | CHECKPOINT


def recording(cls):
    """A subclass, and the set of the overridden methods that were called."""
    called = set()

    def recorder(name):
        def method(self, *args, **kwargs):
            called.add(name)
            return getattr(super(recorded, self), name)(*args, **kwargs)

        return method

    methods = {name: recorder(name) for name in overridden(cls)}
    recorded = type(f"Recording{cls.__name__}", (cls,), methods)
    return recorded, called


def test_keras_calls_the_methods_of_a_model():
    class Model(models.MultiWorker, keras.Sequential):
        pass

    recorded, called = recording(Model)
    model = recorded([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile("sgd", losses.SoftmaxLoss(), metrics=[metrics.MRR()])
    model.fit(tf.ones([4, 3]), tf.constant([0, 1, 0, 1]), verbose=0)
    assert called == MODEL
    if not KERAS_3:
        return
    called.clear()
    model.evaluate(tf.ones([4, 3]), tf.constant([0, 1, 0, 1]), verbose=0)
    assert called == MODEL


@pytest.mark.parametrize("kind", ["RowwiseAdam", "RowwiseAdagrad", "RowwiseSGD"])
def test_keras_calls_the_methods_of_an_optimizer(kind):
    recorded, called = recording(getattr(optimizers, kind))
    rule = recorded(0.1, use_ema=True, ema_overwrite_frequency=1, clipvalue=1.0)
    weight = tf.Variable([[1.0], [2.0]])
    rule.apply_gradients([(tf.IndexedSlices([[1.0]], [0], [2, 1]), weight)])
    assert called == OPTIMIZER


def test_tensorflow_calls_the_methods_of_a_checkpoint(tmp_path):
    recorded, called = recording(saved_shards.SavedShards)
    saved = tf.train.Checkpoint(shards=recorded(5, 2, 0, None))
    saved.restore(saved.save(tmp_path / "saved"))
    assert called == CHECKPOINT


@pytest.mark.skipif(not KERAS_3, reason="Keras 2 builds in graphs of functions.")
def test_the_graph_of_a_symbolic_build_is_known():
    seen = []

    class Look(keras.layers.Layer):
        def call(self, x):
            see = tf.function(lambda: seen.append(builds_symbolically()))
            see()
            seen.append(builds_symbolically())
            return x

    Look()(keras.Input((3,)))
    assert seen == [True, True]
    seen.clear()
    Look()(tf.ones([2, 3]))
    tf.function(Look())(tf.ones([2, 3]))
    assert set(seen) == {False}


def test_the_tested_versions_are_named():
    for file, packages in VERSIONS.items():
        constraints = (ROOT / file).read_text()
        for package in packages:
            (version,) = re.findall(rf"^{package}==(.*)$", constraints, re.MULTILINE)
            assert version in (ROOT / "README.md").read_text()
            assert version in (ROOT / "setup.cfg").read_text()


VERSIONS = {
    "constraints.txt": ["tensorflow", "keras", "tf_keras"],
    "constraints-tf2.15.txt": ["tensorflow"],
}
