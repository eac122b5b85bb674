"""The signatures of exported models."""

import os

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


def test_exported_model(tmp_path):
    """All signatures on three lists of 5, 2 and 4 classes."""
    folder = str(tmp_path)
    pipelines.write_files(folder)
    hparams = pipelines.hparams(folder, loss="rankmax_loss", num_epochs=1)
    dataset = pipelines.dataset_builder(folder)
    tfr.RankingPipeline(pipelines.ModelBuilder(), dataset, hparams).train_and_validate()
    rows = [
        (context, examples[:size])
        for (context, examples), size in zip(pipelines.make_lists(3), [5, 2, 4], strict=True)
    ]
    elwc.write(rows, tmp_path / "request")
    (inputs,) = elwc.read(
        tmp_path / "request*", pipelines.CONTEXT_SPEC, pipelines.EXAMPLE_SPEC, batch_size=3
    )
    serialized = tf.constant([elwc.serialize(*row) for row in rows])
    export = os.path.join(folder, "model", "export", "latest_model")
    call = tf.saved_model.load(export).signatures
    scores = keras.models.load_model(export).predict(inputs, verbose=0)
    for found in (
        call[tf.saved_model.PREDICT_METHOD_NAME](serialized),
        call["predict_tensors"](**inputs),
    ):
        np.testing.assert_allclose(found["outputs"], scores, rtol=1e-6)
    masked = np.where(inputs["mask"], scores, -np.inf)
    for k, width in ((3, 3), (99, 5)):
        order = np.argsort(-masked, axis=1)[:, :width]
        best = np.take_along_axis(masked, order, axis=1)
        of_k = {"k": tf.constant(k)}
        for found in (
            call["top_k"](**{tf.saved_model.PREDICT_INPUTS: serialized}, **of_k),
            call["top_k_tensors"](**inputs, **of_k),
        ):
            np.testing.assert_array_equal(found["indices"], np.where(best > -np.inf, order, -1))
            np.testing.assert_allclose(found["scores"], best, rtol=1e-6)
            assert (found["indices"].numpy()[1, 2:] == -1).all()  # The list has two classes.


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
