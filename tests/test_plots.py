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


def test_what_an_evaluation_keeps(evaluation):
    np.testing.assert_array_equal(evaluation.ranks, [1, 2, 3, 1, np.nan])
    np.testing.assert_array_equal(evaluation.class_ids, CLASS_IDS)
    np.testing.assert_array_equal(evaluation.top_classes, np.argsort(-SCORES, axis=1))


def test_what_an_evaluation_keeps_of_relevance_and_masks():
    labels = np.array([[0, 1, 2, -1], [0, 0, 0, 0], [1, 0, 0, 0]], np.float32)
    scores = np.array([[1, 2, 3, 9], [4, 3, 2, 1], [2, 4, 3, 1]], np.float32)
    kept = r4c.evaluate(
        lambda x: x, (scores, labels), ["mrr"], exclude=lambda x: [[-1], [0], [1]], batch_size=3
    )
    np.testing.assert_array_equal(kept.class_ids, [2, -1, 0])
    # Masked and excluded items have no place.
    np.testing.assert_array_equal(kept.top_classes, [[2, 1, 0, -1], [1, 2, 3, -1], [2, 0, 3, -1]])
    np.testing.assert_array_equal(kept.ranks, [1, np.nan, 2])


def test_top_classes_of_scores_that_are_not_finite():
    scores = np.array([[3, 1, -np.inf, 2, 5], [3, np.nan, 1, 2, np.nan]], np.float32)
    labels = np.array([[1, 0, 0, -1, -1], [1, 0, 0, 0, 0]], np.float32)
    kept = r4c.evaluate(lambda x: x, (scores, labels), ["mrr"])
    np.testing.assert_array_equal(kept.top_classes, [[0, 1, 2, -1, -1], [0, 3, 2, -1, -1]])


def test_class_ids_are_those_of_any_form_of_the_labels():
    scores, multi_hot = np.zeros((2, 4)), np.array([[1, 0, 1, 0], [0, 1, 1, 1]], np.float32)
    forms = multi_hot, np.array([[0, 2, -1], [2, 1, 3]])
    for labels in forms:
        kept = r4c.evaluate(lambda x: x, (scores, labels), ["mrr"])
        np.testing.assert_array_equal(kept.class_ids, [2, 3])


def test_batches_of_lists_of_other_lengths():
    batches = [([[1.0, 3.0, 2.0]], [[0.0, 1.0, 0.0]]), ([[1.0, 2.0]], [[1.0, 0.0]])]
    kept = r4c.evaluate(lambda x: x, batches, ["mrr"])
    np.testing.assert_array_equal(kept.top_classes, [[1, 2, 0], [1, 0, -1]])
    np.testing.assert_array_equal(kept.ranks, [1, 2])


def test_accuracy_by_k(evaluation):
    (axes,) = plots.accuracy_by_k(evaluation).axes
    assert axes.lines[0].get_ydata().tolist() == [0.5, 0.75, 1.0]
    (axes,) = plots.accuracy_by_k({"one": evaluation, "two": evaluation}, max_k=2).axes
    assert [line.get_label() for line in axes.lines] == ["one", "two"]
    assert axes.lines[1].get_ydata().tolist() == [0.5, 0.75]


def test_accuracy_by_k_of_ties():
    tied = r4c.evaluate(lambda x: x, ([[1.0, 1.0]], [0]), ["mrr"])
    (axes,) = plots.accuracy_by_k(tied).axes
    assert axes.lines[0].get_ydata().tolist() == [0, 1]  # The mean rank is 1.5.


def test_rank_histogram(evaluation):
    (axes,) = plots.rank_histogram(evaluation, max_rank=2).axes
    assert [bar.get_height() for bar in axes.patches] == [2, 2]  # Rank 3 counts as "or below".


def test_hardest_classes(evaluation):
    (axes,) = plots.hardest_classes(evaluation, NAMES, count=2).axes
    # bee: 2; cat: the mean of 3 and 1, which stands behind it by its id.
    assert [bar.get_width() for bar in axes.patches] == [2, 2]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["bee", "cat"]


def test_confusion(evaluation):
    axes, _ = plots.confusion_at_k(evaluation, k=1, class_names=NAMES).axes
    expected = [[1, 0, 0], [1, 0, 0], [0.5, 0, 0.5]]
    np.testing.assert_array_equal(axes.images[0].get_array(), expected)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda e: plots.accuracy_by_k(e, max_k=0), "`max_k` must be a positive integer"),
        (lambda e: plots.accuracy_by_k({}), "`evaluations` must be an `Evaluation`, or a dict"),
        (lambda e: plots.confusion_at_k(e, k=4), "`k` must be at most 3. Received: k=4"),
        (lambda e: plots.confusion_at_k(r4c.average([e])), "must have `top_classes`"),
        (lambda e: plots.hardest_classes(e, ["a"]), "Received: 1 names, none for class"),
    ],
)
def test_errors(evaluation, make, message):
    with pytest.raises(ValueError, match=message):
        make(evaluation)


def test_callback_writes_what_tensorboard_shows(tmp_path):
    pytest.importorskip("tensorboard")
    inputs = keras.Input((3,))
    model = keras.Model(inputs, keras.layers.Dense(3)(inputs))
    model.compile("sgd", r4c.losses.SoftmaxLoss())
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


def test_callback_counts_the_names_before_training(tmp_path):
    pytest.importorskip("tensorboard")
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(3)])
    model.compile("sgd", r4c.losses.SoftmaxLoss())
    board = r4c.callbacks.RankingTensorBoard(tmp_path, (SCORES, CLASS_IDS), class_names=["a"])
    with pytest.raises(ValueError, match="a name for each of the 3 classes. Received: 1 names"):
        model.fit(SCORES[:4], CLASS_IDS[:4], verbose=0, callbacks=[board])
    assert not list(tmp_path.iterdir())


def test_callback_refuses_what_an_evaluation_does_not_keep(tmp_path):
    pytest.importorskip("tensorboard")
    for arguments, message in (
        ({"k": 11}, "`k` must be at most 10. Received: k=11"),
        ({"metrics": ["nope"]}, "must be the name of a known metric"),
        ({"metrics": ["median_rank"]}, "means over lists"),
    ):
        with pytest.raises(ValueError, match=message):
            r4c.callbacks.RankingTensorBoard(tmp_path, (SCORES, CLASS_IDS), **arguments)


def test_callback_refuses_what_is_read_once(tmp_path):
    with pytest.raises(ValueError, match="`dataset` must be readable again"):
        r4c.callbacks.RankingTensorBoard(tmp_path, iter([(SCORES, CLASS_IDS)]))


def test_names_may_be_bytes_or_tensors(evaluation):
    for names in (np.array(NAMES, dtype=bytes), tf.constant(NAMES)):
        axes = r4c.plots.hardest_classes(evaluation, names).axes[0]
        assert {label.get_text() for label in axes.get_yticklabels()} <= set(NAMES)
