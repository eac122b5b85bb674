"""The exported model, loaded and called in a new process that knows nothing but TensorFlow."""

import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from tests import tf_ranking

_tfr = tf_ranking.load_or_skip()

from rank4class_tf import tfr  # noqa: E402
from rank4class_tf.data import elwc  # noqa: E402
from tests.tfr import pipelines  # noqa: E402

pytestmark = pytest.mark.keras2

_PROGRAM = """
import sys
import numpy as np
import tensorflow as tf

model = tf.saved_model.load(sys.argv[1])
given = np.load(sys.argv[2], allow_pickle=True)
serialized = tf.constant(list(given["serialized"]))
tensors = {name: tf.constant(given[name]) for name in ("features", "class_id", "mask")}
call = model.signatures
results = {
    "predict": call[tf.saved_model.PREDICT_METHOD_NAME](serialized),
    "predict_tensors": call["predict_tensors"](**tensors),
}
for k in map(tf.constant, (3, 99)):
    inputs = {tf.saved_model.PREDICT_INPUTS: serialized, "k": k}
    results[f"top_k {int(k)}"] = call["top_k"](**inputs)
    results[f"top_k_tensors {int(k)}"] = call["top_k_tensors"](**tensors, k=k)
flat = {f"{n}/{key}": v.numpy() for n, values in results.items() for key, v in values.items()}
assert "rank4class_tf" not in sys.modules and "tensorflow_ranking" not in sys.modules
np.savez(sys.argv[3], **flat)
"""


def call_in_new_process(folder, export):
    """Calls all signatures on three lists of 5, 2 and 4 classes."""
    rows = [
        (context, examples[:size])
        for (context, examples), size in zip(pipelines.make_lists(3), [5, 2, 4], strict=True)
    ]
    elwc.write(rows, os.path.join(folder, "request"))
    (inputs,) = elwc.read(
        os.path.join(folder, "request*"), pipelines.CONTEXT_SPEC, pipelines.EXAMPLE_SPEC, 3
    )
    inputs = {name: value.numpy() for name, value in inputs.items()}
    given, got = os.path.join(folder, "given.npz"), os.path.join(folder, "got.npz")
    serialized = np.array([elwc.serialize(*row) for row in rows], object)
    np.savez(given, serialized=serialized, **inputs)
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, export, given, got], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return inputs, np.load(got)


def test_exported_model_in_a_new_process(tmp_path):
    folder = str(tmp_path)
    pipelines.write_files(folder)
    pipeline = tfr.RankingPipeline(
        pipelines.ModelBuilder(),
        pipelines.dataset_builder(folder),
        pipelines.hparams(folder, loss="rankmax_loss", num_epochs=1),
    )
    pipeline.train_and_validate()
    export = os.path.join(folder, "model", "export", "latest_model")
    inputs, got = call_in_new_process(folder, export)
    scores = keras.models.load_model(export).predict(inputs, verbose=0)
    for name in ("predict", "predict_tensors"):
        np.testing.assert_allclose(got[f"{name}/outputs"], scores, rtol=1e-6)
    masked = np.where(inputs["mask"], scores, -np.inf)
    for k, width in ((3, 3), (99, 5)):
        order = np.argsort(-masked, axis=1)[:, :width]
        best = np.take_along_axis(masked, order, axis=1)
        for name in (f"top_k {k}", f"top_k_tensors {k}"):
            expected = np.where(best > -np.inf, order, -1)
            np.testing.assert_array_equal(got[f"{name}/indices"], expected)
            np.testing.assert_allclose(got[f"{name}/scores"], best, rtol=1e-6)
        # The second list has two classes.
        assert (got[f"top_k {k}/indices"][1, 2:] == -1).all()


def test_several_tasks(tmp_path):
    model = pipelines.ModelBuilder(["click", "buy"]).build()
    signatures = tfr.ServingSignatures(
        model, pipelines.CONTEXT_SPEC, pipelines.EXAMPLE_SPEC, pipelines.MASK
    )()
    serialized = tf.constant([elwc.serialize(*row) for row in pipelines.make_lists(2)])
    best = signatures["top_k"](serialized, tf.constant(1))
    scores = signatures[tf.saved_model.PREDICT_METHOD_NAME](serialized)
    assert set(best) == {"click_indices", "click_scores", "buy_indices", "buy_scores"}
    for task in ("click", "buy"):
        np.testing.assert_array_equal(best[f"{task}_scores"][:, 0], scores[task].numpy().max(1))
        np.testing.assert_array_equal(best[f"{task}_indices"][:, 0], scores[task].numpy().argmax(1))


def test_ragged_models_have_the_serialized_signatures():
    spec = {"words": tf.io.RaggedFeature(tf.int64)}
    inputs = {
        "words": keras.Input((None, None), dtype=tf.int64, ragged=True, name="words"),
        "mask": keras.Input((None,), dtype=tf.bool, name="mask"),
    }
    total = tf.reduce_sum(inputs["words"], axis=-1).to_tensor(shape=tf.shape(inputs["mask"]))
    model = keras.Model(inputs, tf.cast(total, tf.float32))
    signatures = tfr.ServingSignatures(model, {}, spec, "mask")()
    assert "top_k" in signatures and "predict_tensors" not in signatures
    serialized = elwc.serialize({}, [{"words": [1, 2]}, {"words": [7]}])
    best = signatures["top_k"](tf.constant([serialized]), tf.constant(2))
    np.testing.assert_array_equal(best["indices"], [[1, 0]])
    np.testing.assert_array_equal(best["scores"], [[7.0, 3.0]])


def test_names_that_no_argument_can_have():
    """The tensors get others; a pipeline meets them at its end, when all is trained."""
    names = {"1": "arg_1", "k": "arg_k", "self": "arg_self", "doc-len": "doc_len", "mask": "mask"}
    inputs = {
        name: keras.Input((None,), dtype=tf.bool if name == "mask" else tf.float32, name=f"i{i}")
        for i, name in enumerate(names)
    }
    scores = keras.layers.Add()([x for name, x in inputs.items() if name != "mask"])
    model = keras.Model(inputs, scores)
    spec = {name: tf.io.FixedLenFeature([], tf.float32, 0.0) for name in names if name != "mask"}
    signatures = tfr.ServingSignatures(model, {}, spec, "mask")()
    rows = {name: tf.constant([[1.0, 3.0, 2.0]]) for name in spec}
    given = {names[name]: rows.get(name, tf.constant([[True, True, False]])) for name in names}
    found = signatures["top_k_tensors"](**given, k=tf.constant(2))
    np.testing.assert_array_equal(found["indices"], [[1, 0]])
    np.testing.assert_array_equal(signatures["predict_tensors"](**given)["outputs"], [[4, 12, 8]])
