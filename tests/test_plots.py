"""Figures show what the evaluation holds."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import rank4class_tf as r4c
from rank4class_tf import plots

pytest.importorskip("matplotlib")

# Ranks of the labels: 1, 2, 3, 1, and a list without a label.
SCORES = np.array([[3.0, 2, 1], [3, 2, 1], [3, 2, 1], [1, 2, 3], [1, 2, 3]], np.float32)
CLASS_IDS = np.array([0, 1, 2, 2, -1])
NAMES = ("ant", "bee", "cat")


@pytest.fixture(scope="module")
def evaluation():
    return r4c.evaluate(lambda x: x, (SCORES, CLASS_IDS), ["mrr"])


@pytest.mark.parametrize(
    ("scores", "labels", "exclude", "class_ids", "top_classes", "ranks"),
    [
        (SCORES, CLASS_IDS, None, CLASS_IDS, np.argsort(-SCORES), [1, 2, 3, 1, np.nan]),
        (  # Masked and excluded items have no place.
            [[1, 2, 3, 9], [4, 3, 2, 1], [2, 4, 3, 1]],
            np.array([[0, 1, 2, -1], [0, 0, 0, 0], [1, 0, 0, 0]], np.float32),
            [[-1], [0], [1]],
            [2, -1, 0],
            [[2, 1, 0, -1], [1, 2, 3, -1], [2, 0, 3, -1]],
            [1, np.nan, 2],
        ),
        (  # Infinities and NaN stand last.
            [[3, 1, -np.inf, 2, 5], [3, np.nan, 1, 2, np.nan]],
            np.array([[1, 0, 0, -1, -1], [1, 0, 0, 0, 0]], np.float32),
            None,
            [0, 0],
            [[0, 1, 2, -1, -1], [0, 3, 2, -1, -1]],
            [1, 1],
        ),
    ],
)
def test_what_an_evaluation_keeps(scores, labels, exclude, class_ids, top_classes, ranks):
    chosen = None if exclude is None else lambda x: exclude
    data = np.float32(scores), labels
    kept = r4c.evaluate(None, data, ["mrr"], exclude=chosen, batch_size=len(scores))
    np.testing.assert_array_equal(kept.class_ids, class_ids)
    np.testing.assert_array_equal(kept.top_classes, top_classes)
    np.testing.assert_array_equal(kept.ranks, ranks)


def test_batches_of_lists_of_other_lengths_and_labels_of_both_forms():
    batches = [([[1.0, 3.0, 2.0]], [[0.0, 1.0, 0.0]]), ([[1.0, 2.0]], [[1.0, 0.0]])]
    kept = r4c.evaluate(None, batches, ["mrr"])
    np.testing.assert_array_equal(kept.top_classes, [[1, 2, 0], [1, 0, -1]])
    np.testing.assert_array_equal(kept.ranks, [1, 2])
    multi_hot = np.array([[1, 0, 1, 0], [0, 1, 1, 1]], np.float32)
    for labels in (multi_hot, np.array([[0, 2, -1], [2, 1, 3]])):
        kept = r4c.evaluate(None, (np.zeros((2, 4)), labels), ["mrr"])
        np.testing.assert_array_equal(kept.class_ids, [2, 3])


def test_accuracy_by_k(evaluation):
    (axes,) = plots.accuracy_by_k(evaluation).axes
    assert axes.lines[0].get_ydata().tolist() == [0.5, 0.75, 1.0]
    (axes,) = plots.accuracy_by_k({"one": evaluation, "two": evaluation}, max_k=2).axes
    assert [line.get_label() for line in axes.lines] == ["one", "two"]
    assert axes.lines[1].get_ydata().tolist() == [0.5, 0.75]
    tied = r4c.evaluate(None, ([[1.0, 1.0]], [0]), ["mrr"])
    (axes,) = plots.accuracy_by_k(tied).axes
    assert axes.lines[0].get_ydata().tolist() == [0, 1]  # The mean rank is 1.5.


def test_rank_histogram_and_confusion(evaluation):
    (axes,) = plots.rank_histogram(evaluation, max_rank=2).axes
    assert [bar.get_height() for bar in axes.patches] == [2, 2]  # Rank 3 counts as "or below".
    axes, _ = plots.confusion_at_k(evaluation, k=1, class_names=NAMES).axes
    expected = [[1, 0, 0], [1, 0, 0], [0.5, 0, 0.5]]
    np.testing.assert_array_equal(axes.images[0].get_array(), expected)


@pytest.mark.parametrize("form", [tuple, tf.constant, lambda names: np.array(names, bytes)])
def test_hardest_classes(evaluation, form):
    (axes,) = plots.hardest_classes(evaluation, form(NAMES), count=2).axes
    # bee: 2; cat: the mean of 3 and 1, which stands behind it by its id.
    assert [bar.get_width() for bar in axes.patches] == [2, 2]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["bee", "cat"]


def test_callback_writes_what_tensorboard_shows(tmp_path):
    pytest.importorskip("tensorboard")
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(3)])
    model.compile("sgd", r4c.losses.SoftmaxLoss())
    wrong = r4c.callbacks.RankingTensorBoard(tmp_path, (SCORES, CLASS_IDS), class_names=["a"])
    with pytest.raises(ValueError, match="a name for each of the 3 classes. Received: 1 names"):
        model.fit(SCORES[:4], CLASS_IDS[:4], verbose=0, callbacks=[wrong])
    assert not list(tmp_path.iterdir())
    board = r4c.callbacks.RankingTensorBoard(tmp_path, (SCORES, CLASS_IDS), ["mrr"], NAMES, every=2)
    model.fit(SCORES[:4], CLASS_IDS[:4], epochs=3, verbose=0, callbacks=[board])
    (path,) = tmp_path.iterdir()
    tags = {}
    for record in tf.data.TFRecordDataset(str(path)):
        event = tf.compat.v1.Event.FromString(record.numpy())
        for value in event.summary.value:
            tags.setdefault(value.tag, []).append(event.step)
    pictures = ("accuracy_by_k", "rank_histogram", "hardest_classes", "confusion_at_k")
    names = {"ranking/mrr", "ranking/rank", *(f"ranking/{name}" for name in pictures)}
    assert tags == {name: [0, 2] for name in names}
