"""What is written is there whole or not at all, and models of every format are read."""

import gzip
import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from tensorflow import keras

from rank4class_tf import _files, _keras, data, evaluation, layers, losses, metrics, ops
from rank4class_tf.data import elwc
from rank4class_tf.layers import SampledScores
from scripts.robustness import faults

from .saved import make
from .small_models import linear

LIMIT = 65_536


def embeddings(path, size):
    layer = SampledScores(size // 16, num_sampled=2)
    layer.build((None, 4))
    layer.export_embeddings(path)


def lists(path, size):
    elwc.write(
        [({"query": np.zeros(size // 10, "float32")}, [])] * 3, path, num_shards=1
    )


def points(path, size):
    """Random numbers, which gzip can hardly pack."""
    values = np.random.default_rng(1).random((size // 200, 50))
    data.write_extreme_classification(
        path, [([0], list(range(50)), row) for row in values], 50, 1
    )


def evaluated(path, size):
    values = {"mrr": np.full(size // 10, 0.125)}
    evaluation.Evaluation({}, values, values, values["mrr"]).save(path)


# Each writes a file of about so many bytes.
WRITERS = {"e.npy": embeddings, "l": lists, "p.txt.gz": points, "v.csv": evaluated}


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_is_an_error_and_leaves_what_was_there(name, tmp_path):
    """By a limit of a file's size.

    Not in a fixture: what pytest writes to may be a longer file.
    """
    path = tmp_path / name
    final = pathlib.Path(f"{path}-00000-of-00001") if name == "l" else path
    error = "No space left on device|File too large"
    with faults.longest_file(LIMIT):
        with pytest.raises((OSError, tf.errors.OpError), match=error) as raised:
            WRITERS[name](path, 3 * LIMIT)
        assert name in str(raised.value)
        assert not list(tmp_path.iterdir())
        WRITERS[name](path, 2000)
        before = final.read_bytes()
        with pytest.raises((OSError, tf.errors.OpError), match=error):
            WRITERS[name](path, 3 * LIMIT)
        assert list(tmp_path.iterdir()) == [final]
        assert final.read_bytes() == before


@pytest.mark.parametrize("interruption", [RuntimeError, KeyboardInterrupt])
def test_there_is_no_file_before_it_is_whole(tmp_path, interruption):
    path = tmp_path / "a.npy"
    rows = np.float32([[1] * 3, [1] * 3, [2] * 3])

    with pytest.raises(interruption), _files.appending_rows(path, (3,)) as append:
        append(rows[:2])
        raise interruption
    assert not list(tmp_path.iterdir())
    with _files.appending_rows(path, (3,)) as append:
        append(rows[:2])
        assert not path.exists()
        append(tf.constant(rows[2:]))
    assert list(tmp_path.iterdir()) == [path]
    array = np.load(path, mmap_mode="r")
    assert_array_equal(array, rows)
    assert array.dtype == np.float32


def test_a_link_stays_and_its_file_is_replaced(tmp_path):
    (tmp_path / "there").mkdir()
    file = tmp_path / "there" / "a.txt"
    link = tmp_path / "link.txt"
    link.symlink_to(file)
    for text in ("old", "new"):
        _files.write_text(link, text)
        assert link.is_symlink() and file.read_text() == text
    assert os.listdir(tmp_path / "there") == ["a.txt"]
    _files.write_text(tmp_path / "new" / "folder" / "a.txt", "text")
    assert (tmp_path / "new" / "folder" / "a.txt").read_text() == "text"
    with pytest.raises(OSError, match="link.txt"):
        _files.write_text(link / "a.txt", "text")
    with (
        pytest.raises(FileNotFoundError, match="other.txt"),
        _files.replacing(tmp_path / "a.txt"),
    ):
        open(tmp_path / "other.txt")


def test_a_packed_file_holds_its_own_name(tmp_path):
    points(tmp_path / "p.txt.gz", 400)
    packed = (tmp_path / "p.txt.gz").read_bytes()
    assert b"p.txt\0" in packed and b"unfinished" not in packed
    assert gzip.decompress(packed).startswith(b"2 50 1\n")


def test_a_saved_model_is_replaced_as_a_whole(tmp_path):
    def save(path, value):
        module = tf.Module()
        module.value = tf.Variable(value)
        tf.saved_model.save(module, path)

    folder = tmp_path / "saved"
    for value in (1.0, 2.0):
        with _files.replacing_saved_model(folder) as temporary:
            save(temporary, value)
            assert folder.exists() == (value > 1)
        assert float(tf.saved_model.load(str(folder)).value) == value
        (folder / "notes.txt").write_text("mine")
    with pytest.raises(RuntimeError), _files.replacing_saved_model(folder) as temporary:
        save(temporary, 3.0)
        raise RuntimeError
    assert float(tf.saved_model.load(str(folder)).value) == 2.0
    assert (folder / "notes.txt").exists() and os.listdir(tmp_path) == ["saved"]


@pytest.mark.skipif(not _keras.KERAS_3, reason="Keras 2 reads no files of Keras 3.")
@pytest.mark.parametrize("name", make.MODELS)
def test_models_of_an_older_commit_are_read(name):
    """They answer as they did there, after one more step with the saved optimizer."""
    folder = pathlib.Path(make.__file__).parent
    model = keras.models.load_model(folder / f"{name}.keras")
    expected = np.load(folder / "answers.npz")[name]
    answers = make.answers(name, model)
    if name == "classifier":
        # The loss does not depend on a shift of all scores. The gradient of a shift is
        # only rounding, which differs by processor and which Adam scales up.
        answers, expected = (
            x - x.mean(axis=1, keepdims=True) for x in (answers, expected)
        )
    assert_allclose(answers, expected, rtol=1e-4, atol=1e-6)
    untrained = make.MODELS[name]()
    assert np.abs(make.answers(name, untrained) - expected).max() > 1e-2


CLASSES, FEATURES = 5, 4


def encoder():
    return linear(CLASSES, FEATURES)


def weighted():
    of_keras = keras.losses.CategoricalCrossentropy(from_logits=True)
    return losses.WeightedSumLoss([losses.RankmaxLoss(), of_keras], [1.0, 2.0])


# What is compiled, or the last layer.
OBJECTS = {
    "weights of ranks": lambda: losses.WARPLoss(ops.TopKWeights(2)),
    "sorter": lambda: losses.ApproxNDCGLoss(ranker=layers.LaplaceSorter()),
    "weighted sum": weighted,
    "metric": lambda: metrics.MacroAverage(metrics.NDCG(3), CLASSES),
    "probabilities": lambda: metrics.ExpectedCalibrationError(
        probabilities=layers.Probabilities()
    ),
    "encoded classes": lambda: layers.DotProductHead(
        layers.EncodedClasses(np.eye(CLASSES, dtype="float32"), encoder())
    ),
    "prediction sets": lambda: layers.PredictionSets(
        0.1, "lac", layers.Probabilities(2.0)
    ),
}


@pytest.mark.keras2
@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")
@pytest.mark.parametrize("suffix", [".keras", ".h5"] + [""] * (not _keras.KERAS_3))
@pytest.mark.parametrize("name", OBJECTS)
def test_saved_and_loaded(name, suffix, normal, tmp_path):
    held = OBJECTS[name]()
    model = keras.Sequential([keras.Input((FEATURES,))])
    if not isinstance(held, layers.Head):
        model.add(keras.layers.Dense(CLASSES))
    is_metric = isinstance(held, keras.metrics.Metric)  # In Keras 2 it is a layer too.
    if isinstance(held, keras.layers.Layer) and not is_metric:
        model.add(held)
    trains = name != "prediction sets"
    if trains:
        loss = held if isinstance(held, keras.losses.Loss) else losses.SoftmaxLoss()
        model.compile(
            "sgd", loss, metrics=[held] if is_metric else None, run_eagerly=True
        )
    features = normal(6, FEATURES)
    labels = tf.one_hot([0, 1, 2, 3, 4, 0], CLASSES)
    path = tmp_path / f"model{suffix}"
    model.save(path)
    loaded = keras.models.load_model(path)
    assert_array_equal(loaded(features), model(features))
    if trains:
        loaded.run_eagerly = True
        found, expected = (
            np.ravel(m.test_on_batch(features, labels)) for m in (loaded, model)
        )
        assert_allclose(found, expected, rtol=1e-5)
