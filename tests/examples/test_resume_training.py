import pathlib

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from examples import resume_training as example


def end(folder, epochs=3):
    model = example.main([f"--folder={folder}", f"--epochs={epochs}"])
    return [np.array(x) for x in model.get_weights()]


class Interrupted(Exception):
    """What ends a run before its time."""


def test_ends_the_same_after_interruptions(tmp_path, monkeypatch, capsys):
    """Once before a checkpoint is whole, and once with the newest one damaged."""
    expected = end(tmp_path / "whole")

    def fails(self):
        raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(tf.train.CheckpointManager, "save", fails)
        with pytest.raises(Interrupted):
            end(tmp_path / "broken")
    end(tmp_path / "broken", epochs=2)
    newest = pathlib.Path(tf.train.latest_checkpoint(tmp_path / "broken"))
    data = newest.with_name(f"{newest.name}.data-00000-of-00001")
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 1
    data.write_bytes(content)
    found = end(tmp_path / "broken")
    assert f"{newest.name} cannot be read: " in capsys.readouterr().out
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_array_equal(x, y)


def test_without_a_whole_checkpoint_there_is_an_error(tmp_path):
    end(tmp_path, epochs=1)
    for path in tmp_path.glob("*.index"):
        path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(tf.errors.OpError):
        end(tmp_path)


def test_what_is_cut_is_left_out_for_the_one_before(tmp_path):
    """TensorFlow's errors on a cut are of several types."""
    value = tf.Variable(np.arange(50.0))
    state = tf.train.Checkpoint(value=value)
    manager = tf.train.CheckpointManager(state, str(tmp_path), max_to_keep=2)
    for _ in range(2):
        newest = manager.save()
        value.assign(value + 1)
    for suffix in (".index", ".data-00000-of-00001"):
        path = pathlib.Path(newest + suffix)
        content = path.read_bytes()
        for size in range(0, len(content) - 1, 23):
            path.write_bytes(content[:size])
            value.assign(tf.zeros_like(value))
            example.restore(state, manager)
            np.testing.assert_array_equal(value, np.arange(50.0))
        path.write_bytes(content)


@pytest.mark.parametrize("content", [b"", b"no state", b"\xff"])
def test_a_damaged_list_of_checkpoints_costs_nothing(content, tmp_path, monkeypatch):
    expected = end(tmp_path, epochs=2)
    (tmp_path / "checkpoint").write_bytes(content)
    monkeypatch.setattr(keras.Model, "fit", None)  # All epochs are done.
    for x, y in zip(end(tmp_path, epochs=2), expected, strict=True):
        np.testing.assert_array_equal(x, y)


def test_a_first_checkpoint_that_is_not_whole_is_none(tmp_path, capsys):
    (tmp_path / "ckpt-1.index").write_bytes(b"cut")
    state = tf.train.Checkpoint(value=tf.Variable(1.0))
    example.restore(state, tf.train.CheckpointManager(state, str(tmp_path), max_to_keep=2))
    assert "ckpt-1 cannot be read: " in capsys.readouterr().out
    assert float(state.value) == 1


def test_another_model_is_an_error(tmp_path):
    end(tmp_path, epochs=1)
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3)])
    model.compile("adam", "mse")
    state = example.state_of(model, more=tf.Variable(0.0))
    manager = tf.train.CheckpointManager(state, str(tmp_path), max_to_keep=2)
    with pytest.raises((AssertionError, ValueError)):
        example.restore(state, manager)
