"""Models finding the best classes: exported, served without this package, converted."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from tensorflow import keras

import rank4class_tf as r4c
from rank4class_tf import layers, ops
from tests import pages
from tests.refused import refused, refused_in_graph

NAMES = ["zero", "one", "two", "three"]

PROGRAM = """
import sys

class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "rank4class_tf":
            raise ImportError(name)

sys.meta_path.insert(0, Refused())
import numpy as np
import tensorflow as tf

features = np.load(sys.argv[2])
signatures = tf.saved_model.load(sys.argv[1]).signatures
results = {
    "top_k": signatures["top_k"](features=tf.constant(features), k=tf.constant(3)),
    "serving_default": signatures["serving_default"](features=tf.constant(features)),
}
flat = {
    f"{n}/{key}": v.numpy()
    for n, values in results.items()
    for key, v in values.items()
}
flat = {k: v.astype("U") if v.dtype == object else v for k, v in flat.items()}
np.savez(sys.argv[3], **flat)
"""


def make():
    hidden = keras.layers.Dense(8, "relu")
    head = layers.LatentCrossHead(4)
    return keras.Sequential([keras.Input((5,)), hidden, head])


@pytest.fixture
def features(normal):
    return normal(6, 5)


PROBABILITIES = layers.Probabilities(0.5)
SETS = layers.PredictionSets(0.2)


def expected(model, features, k, names=True):
    layer = layers.TopClasses(k, NAMES if names else None, PROBABILITIES, SETS)
    return {name: np.asarray(value) for name, value in layer(model(features)).items()}


def assert_same(actual, wanted):
    assert actual.keys() == wanted.keys()
    for name, value in wanted.items():
        if name == "class_names":
            assert (
                np.asarray(actual[name]).astype("U").tolist()
                == value.astype("U").tolist()
            )
        else:
            assert_allclose(actual[name], value, rtol=1e-5)


@pytest.mark.slow
def test_served_in_a_new_process_without_the_package(features, tmp_path):
    model = make()
    r4c.export_top_k(model, tmp_path / "served", 2, NAMES, PROBABILITIES, SETS)
    np.save(tmp_path / "features.npy", features)
    paths = (tmp_path / name for name in ("served", "features.npy", "r"))
    command = [sys.executable, "-c", PROGRAM, *paths]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "r.npz") as arrays:
        for signature, k in (("top_k", 3), ("serving_default", 2)):
            got = {
                n.split("/")[1]: v for n, v in arrays.items() if n.startswith(signature)
            }
            assert_same(got, expected(model, features, k))


def exported(model, path, *arguments, **options):
    """The signatures of what is written."""
    r4c.export_top_k(model, path, *arguments, **options)
    return tf.saved_model.load(str(path)).signatures


@pytest.mark.keras2
def test_defaults_and_bad_requests(features, tmp_path):
    for _ in range(2):  # The second one replaces the first.
        signatures = exported(make(), tmp_path / "served")
    assert [path.name for path in tmp_path.iterdir()] == ["served"]
    features = tf.constant(features)
    result = signatures["serving_default"](features=features)
    assert result.keys() == {"scores", "class_ids"} and result["scores"].shape == (6, 4)
    for k in (0, 5):
        with refused_in_graph(r"`k` must be in \[1, 4\]"):
            signatures["top_k"](features=features, k=tf.constant(k))


def test_several_features(normal, tmp_path):
    """Dense and sparse ones, whose rows of indices may have any order."""
    words = keras.Input((5,), sparse=True, name="words")
    inputs = {"words": words, "size": keras.Input((1,), name="size")}
    scores = layers.SparseDense(4)(words)
    model = keras.Model(inputs, keras.layers.Add()([scores, inputs["size"]]))
    signatures = exported(model, tmp_path / "served", 2, NAMES, PROBABILITIES, SETS)
    sparse = tf.sparse.from_dense(np.eye(5, dtype="float32")[:3])
    order = [2, 0, 1]
    given = {"words": sparse, "size": tf.constant(normal(3, 1))}
    found = signatures["serving_default"](
        words_indices=tf.gather(sparse.indices, order),
        words_values=tf.gather(sparse.values, order),
        words_dense_shape=sparse.dense_shape,
        size=given["size"],
    )
    assert_same(found, expected(model, given, 2))


# What each input is called where it is served.
NAMES_SERVED = {
    "a": "a",
    "b_1": "b_1",
    "1": "arg_1",
    "doc-len": "doc_len",
    "user/id": "user_id",
    "a b": "a_b",
    "a.c": "a_c",
    "_x": "arg__x",
    "k": "arg_k",
    "self": "arg_self",
}


def test_names_that_no_argument_can_have(rng, tmp_path):
    values = {name: np.float32(rng.normal(size=(3, 2))) for name in NAMES_SERVED}
    specs = {name: tf.TensorSpec([None, 2], tf.float32, name) for name in values}

    class Sum(keras.Model):
        def call(self, inputs):
            return tf.add_n(
                [(i + 1) * inputs[name] for i, name in enumerate(NAMES_SERVED)]
            )

    served = exported(Sum(), tmp_path / "served", features_spec=specs, k=1)
    given = {served: tf.constant(values[name]) for name, served in NAMES_SERVED.items()}
    found = served["top_k"](**given, k=tf.constant(2))
    scores = sum((i + 1) * values[name] for i, name in enumerate(NAMES_SERVED))
    assert_allclose(found["scores"], -np.sort(-scores), rtol=1e-5)


def test_dtypes_are_those_that_the_layer_gives(features, tmp_path, mixed_precision):
    dense = keras.layers.Dense(2, use_bias=False, dtype="float64")
    model = keras.Sequential([keras.Input((1,), dtype="float64"), dense])
    dense.set_weights([np.array([[1, 1 + 1e-9]])])
    served = exported(model, tmp_path / "served", k=1)["serving_default"]
    found = served(features=tf.ones([1, 1], tf.float64))
    assert found["class_ids"].numpy() == 1 and found["scores"].dtype == tf.float64
    model = make()  # In half precision.
    served = exported(model, tmp_path / "served", 2, NAMES, PROBABILITIES, SETS)
    result = served["serving_default"](features=tf.constant(features))
    assert result["scores"].dtype == tf.float32
    assert_same(result, expected(model, features, 2))


def test_words_are_looked_up(tmp_path):
    """A lookup table is no variable."""
    inputs = keras.Input((1,), dtype="string")
    words = keras.layers.StringLookup(vocabulary=["a", "b"])
    encodings = keras.layers.Flatten()(keras.layers.Embedding(3, 4)(words(inputs)))
    model = keras.Model(inputs, keras.layers.Dense(4)(encodings))
    served = exported(model, tmp_path / "served", 2)["serving_default"]
    features = tf.constant([["b"], ["other"]])
    _, class_ids = tf.math.top_k(model(features), 2)
    assert_array_equal(served(features=features)["class_ids"], class_ids)


def test_a_model_without_symbolic_inputs(features, tmp_path):
    class Subclassed(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(4)

        def call(self, inputs):
            return self.dense(inputs)

    model = Subclassed()
    with refused("`features_spec` must be given"):
        r4c.export_top_k(model, tmp_path / "served")
    path = tmp_path / "models" / "1"  # As TensorFlow Serving has them.
    served = exported(
        model, path, 2, None, PROBABILITIES, SETS, tf.TensorSpec([None, 5])
    )
    found = served["serving_default"](features=tf.constant(features))
    assert_same(found, expected(model, features, 2, names=False))


@pytest.mark.keras2
def test_keras_exports_a_model_that_ends_in_the_layer(features, tmp_path):
    model = make()
    inputs = keras.Input((5,))
    outputs = layers.TopClasses(2, NAMES, PROBABILITIES, SETS)(model(inputs))
    served = keras.Model(inputs, outputs)
    served.export(
        tmp_path / "served", **({"verbose": False} if hasattr(keras, "ops") else {})
    )
    (name,) = served.input_names if hasattr(served, "input_names") else [inputs.name]
    signature = tf.saved_model.load(str(tmp_path / "served")).signatures[
        "serving_default"
    ]
    assert_same(
        signature(**{name: tf.constant(features)}), expected(model, features, 2)
    )


MISSING = "the extra `convert` is not installed"
TWICE = ops.Regularizer(lambda u: 2 * u, lambda x: x**2 / 4)
SPARSEMAX = layers.Probabilities(0.5, "euclidean")
LAYERS = {
    "softmax": layers.Probabilities(0.7),
    "sparsemax": SPARSEMAX,
    "own": layers.Probabilities(1.5, TWICE),
    "lac": layers.PredictionSets(0.2),
    "aps": layers.PredictionSets(0.2, "aps", SPARSEMAX),
    "top": layers.TopClasses(
        3, None, layers.Probabilities(2.0), layers.PredictionSets(0.3)
    ),
}


@pytest.fixture
def model():
    """Gives the scores of six classes, and what each layer makes of them."""
    keras.utils.set_random_seed(0)
    inputs = {"x": keras.Input((4,), name="x")}
    inputs["seen"] = keras.Input((2,), dtype="int32", name="seen")
    scores = layers.LatentCrossHead(6)(3 * keras.layers.Dense(5, "relu")(inputs["x"]))
    outputs = {name: layer(scores) for name, layer in LAYERS.items() if name != "top"}
    excluded = layers.ExcludeItems()([scores, inputs["seen"]])
    outputs |= {"scores_of_all": scores, "excluded": excluded} | LAYERS["top"](scores)
    return keras.Model(inputs, outputs)


def with_litert(model, features, path):
    interpreter = pytest.importorskip("ai_edge_litert.interpreter", reason=MISSING)
    model.export(path, verbose=False)
    content = tf.lite.TFLiteConverter.from_saved_model(str(path)).convert()
    return interpreter.Interpreter(model_content=content).get_signature_runner()(
        **features
    )


def with_onnx(model, features, path):
    convert = pytest.importorskip("tf2onnx.convert", reason=MISSING)
    runtime = pytest.importorskip("onnxruntime", reason=MISSING)
    specs = [
        tf.TensorSpec([None, *x.shape[1:]], x.dtype, name)
        for name, x in features.items()
    ]
    function = tf.function(lambda x, seen: model({"x": x, "seen": seen}), specs)
    names = function.get_concrete_function().structured_outputs
    convert.from_function(function, specs, output_path=str(path))
    return dict(
        zip(
            sorted(names),
            runtime.InferenceSession(path).run(None, features),
            strict=True,
        )
    )


@pytest.mark.slow
@pytest.mark.parametrize("run", [with_litert, with_onnx])
def test_every_layer_of_serving(run, model, normal, tmp_path):
    features = {
        "x": normal(5, 4),
        "seen": np.array([[0, -1], [-1, -1], [3, 1], [2, 2], [5, -1]], np.int32),
    }
    expected = model(features)
    sizes = np.count_nonzero(expected["sparsemax"], axis=1)
    assert sizes.min() < sizes.max()  # Else one would test little.
    found = run(model, features, tmp_path / "converted")
    assert found.keys() == expected.keys()
    lowest = np.finfo("float32").min  # What LiteRT has in place of -inf.
    for name, value in expected.items():
        value, converted = (
            np.maximum(np.float32(x), lowest) for x in (value, found[name])
        )
        assert_allclose(converted, value, rtol=0, atol=1e-6, err_msg=name)


@pytest.mark.slow
def test_the_page(tmp_path, monkeypatch):
    for module in ("ai_edge_litert", "tf2onnx", "onnxruntime"):
        pytest.importorskip(module, reason=MISSING)
    monkeypatch.chdir(tmp_path)
    page = pages.run("docs/serving.md", "python|python3")
    for found in (page["on_phone"], page["in_onnx"]):
        for name in ("probabilities", "class_ids"):
            assert_allclose(found[name], page["answer"][name], rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "dtype, fits",
    [("int8", True), ("uint8", True), ("int64", False), ("bool", False)],
)
def test_ids_of_a_spec_fit_into_the_input(dtype, fits, tmp_path):
    """Keras would cast them without a word."""
    inputs = keras.Input((3,), dtype="int32")
    rows = keras.layers.Embedding(300, 4)(inputs)
    model = keras.Model(inputs, keras.layers.Flatten()(rows))
    spec = tf.TensorSpec([None, 3], dtype)
    if fits:
        r4c.export_top_k(model, tmp_path / "m", 2, features_spec=spec)
        return
    with refused(f"into the int32 input. Received: {dtype}"):
        r4c.export_top_k(model, tmp_path / "m", 2, features_spec=spec)
