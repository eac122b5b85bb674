"""Models that end in the layers of serving, converted to LiteRT (TFLite) and to ONNX."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import layers, ops
from tests import pages

MISSING = "the extra `convert` is not installed"
TWICE = ops.Regularizer(lambda u: 2 * u, lambda x: x**2 / 4)
SPARSEMAX = layers.Probabilities(0.5, "euclidean")
LAYERS = {
    "softmax": layers.Probabilities(0.7),
    "sparsemax": SPARSEMAX,
    "own": layers.Probabilities(1.5, TWICE),
    "lac": layers.PredictionSets(0.2),
    "aps": layers.PredictionSets(0.2, "aps", SPARSEMAX),
    "top": layers.TopClasses(3, None, layers.Probabilities(2.0), layers.PredictionSets(0.3)),
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
    """The outputs of the model in LiteRT."""
    interpreter = pytest.importorskip("ai_edge_litert.interpreter", reason=MISSING)
    model.export(path, verbose=False)
    content = tf.lite.TFLiteConverter.from_saved_model(str(path)).convert()
    return interpreter.Interpreter(model_content=content).get_signature_runner()(**features)


def with_onnx(model, features, path):
    """The outputs of the model in ONNX Runtime."""
    convert = pytest.importorskip("tf2onnx.convert", reason=MISSING)
    runtime = pytest.importorskip("onnxruntime", reason=MISSING)
    specs = [tf.TensorSpec([None, *x.shape[1:]], x.dtype, name) for name, x in features.items()]
    function = tf.function(lambda x, seen: model({"x": x, "seen": seen}), specs)
    names = function.get_concrete_function().structured_outputs
    convert.from_function(function, specs, output_path=str(path))
    return dict(zip(sorted(names), runtime.InferenceSession(path).run(None, features), strict=True))


@pytest.mark.parametrize("run", [with_litert, with_onnx])
def test_every_layer_of_serving(run, model, rng, tmp_path):
    features = {
        "x": rng.normal(size=(5, 4)).astype(np.float32),
        "seen": np.array([[0, -1], [-1, -1], [3, 1], [2, 2], [5, -1]], np.int32),
    }
    expected = model(features)
    sizes = np.count_nonzero(expected["sparsemax"], axis=1)
    assert sizes.min() < sizes.max()  # Else one would test little.
    found = run(model, features, tmp_path / "converted")
    assert found.keys() == expected.keys()
    lowest = np.finfo(np.float32).min  # What LiteRT has in place of -inf.
    for name, value in expected.items():
        value, converted = (np.maximum(np.float32(x), lowest) for x in (value, found[name]))
        np.testing.assert_allclose(converted, value, rtol=0, atol=1e-6, err_msg=name)


def test_the_page(tmp_path, monkeypatch):
    for module in ("ai_edge_litert", "tf2onnx", "onnxruntime"):
        pytest.importorskip(module, reason=MISSING)
    monkeypatch.chdir(tmp_path)
    page = pages.run("docs/serving.md", "python|python3")
    for found in (page["on_phone"], page["in_onnx"]):
        for name in ("probabilities", "class_ids"):
            np.testing.assert_allclose(found[name], page["answer"][name], rtol=0, atol=1e-6)
