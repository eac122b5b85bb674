"""Wrong arguments of the package's functions and of figures: errors that name them."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import rank4class_tf as r4c
from rank4class_tf import evaluation, plots

from .refused import each_call, refused
from .small_models import linear, sequential

SCORES = np.random.default_rng(0).normal(size=(100, 6)).astype("float32")
IDS = np.arange(100) % 6
EYE = np.eye(3, dtype="float32")
STRANGERS = [
    r4c.models.ExtremeClassifier(keras.layers.Dense(3), 9, 3, num_sampled=4),
    sequential((4, 4, 1), keras.layers.Conv2D(2, 2)),
    linear(5, 4),
]


def calibrated(scores, labels, *weights):
    return r4c.calibrate(tf.identity, (np.array(scores), labels, *weights))


def conformal(scores=EYE, labels=(0, 1, 2), *weights, **options):
    return r4c.conformalize(
        tf.identity, (scores, np.array(labels), *weights), **options
    )


def evaluated(*dataset, metrics=("mrr",), **options):
    dataset = dataset or (SCORES, IDS)
    return r4c.evaluate(None, dataset, [*metrics], **options)


def of_metrics(metrics):
    return r4c.evaluate(None, (SCORES, IDS), metrics)


def exported(model, **options):
    return r4c.export_top_k(STRANGERS[model], "served", **options)


def tensorboard(dataset=(SCORES, IDS), **options):
    return r4c.callbacks.RankingTensorBoard("logs", dataset, **options)


OTHER_LABELS = "in the same order. Their labels differ"
TWO_WIDTHS = [(np.eye(n), range(n)) for n in (3, 4)]
DATASET = r"`dataset` must be `\(features, labels\)`"
ENCODINGS = "ExtremeClassifier gives encodings"
ONE = evaluated()
OTHER = evaluated(SCORES[::-1], IDS[::-1])
ENDLESS = tf.data.Dataset.from_tensor_slices((SCORES, IDS)).batch(10).repeat()


class ByIndex(keras.utils.Sequence):
    """Python's loops over it do not end."""

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return SCORES, IDS


def two_towers():
    items = keras.Sequential([keras.layers.Embedding(6, 3), keras.layers.Flatten()])
    model = r4c.models.TwoTower(keras.layers.Dense(3), items)
    model.index(np.arange(6))
    return model


def read_by(dataset):
    """Each function that reads batches, with this dataset for the argument it names."""
    return {
        "evaluate": (lambda: r4c.evaluate(None, dataset, ["mrr"]), "dataset"),
        "calibrate": (lambda: r4c.calibrate(tf.identity, dataset), "dataset"),
        "conformalize": (lambda: r4c.conformalize(tf.identity, dataset), "dataset"),
        "class_prior": (lambda: r4c.losses.class_prior(dataset, 6), "labels"),
        "propensities": (lambda: r4c.metrics.propensities(dataset, 6), "labels"),
        "index": (lambda: two_towers().index(dataset), "candidates"),
        "write_top_k": (lambda: two_towers().write_top_k(".", dataset, 2), "queries"),
        "elwc": (lambda: next(r4c.data.elwc.lists(dataset, 6)), "batches"),
    }


@pytest.mark.parametrize("name", read_by(ENDLESS))
def test_a_dataset_that_does_not_end(name):
    for dataset, rule in (
        (ENDLESS, "must end: call its `take`"),
        (ByIndex(), "must be a list of"),
    ):
        read, argument = read_by(dataset)[name]
        with refused(f"`{argument}` {rule}"):
            read()


ERRORS = [
    # Calibration and prediction sets
    (calibrated, "scores that are numbers", [[1.0, np.nan], [1.0, 2.0]], [0, 1]),
    (calibrated, "`dataset` must have an example with a label", EYE[:2], [-1, -1]),
    (
        calibrated,
        "`dataset` must have an example with a lab",
        EYE[:2],
        [0, 1],
        [0.0, 0.0],
    ),
    (calibrated, "`sample_weight` must be >= 0. .*-1.0", EYE[:2], [0, 0], [1.0, -1.0]),
    (evaluated, "must be >= 0", EYE[:2], [0, 0], [1.0, -1.0]),
    (r4c.calibrate, ENCODINGS, STRANGERS[0], (EYE, [0, 1, 2])),
    (r4c.calibrate, "at least one batch", tf.identity, []),
    (r4c.conformalize, "at least one batch", tf.identity, []),
    (
        r4c.calibrate,
        "as many classes in each batch. .*: 3 and 4",
        tf.identity,
        TWO_WIDTHS,
    ),
    (lambda: conformal(coverage=1.0), r"`coverage` must be a number in \(0, 1\)"),
    (conformal, "at least 19 examples for coverage=0.95. Received: 3"),
    (lambda: conformal(EYE, [0, 1, -1], coverage=0.5), "one positive per example"),
    (
        lambda: conformal(EYE, [0, 1, 2], [1.0, 2.0, 1.0], coverage=0.5),
        "must have no weights",
    ),
    (lambda: conformal(np.nan * EYE, coverage=0.5), "Received: NaN"),
    (lambda: conformal(method="raps"), "`method` must be one of"),
    # Evaluation
    (lambda: evaluated(confidence=1.0), "`confidence`"),
    (lambda: evaluated(seed=-1), "`seed`"),
    (lambda: evaluated(exclude=5), "`exclude` must be a function"),
    (lambda: evaluated(method="exact"), "`method`"),
    (lambda: evaluated(samples=0), "`samples`"),
    (lambda: evaluated(batch_size=0), "`batch_size` must be a positive integer"),
    (of_metrics, "different names", ["mrr", "mrr"]),
    (of_metrics, "means over lists", ["median_rank"]),
    (lambda: of_metrics([r4c.metrics.ExpectedCalibrationError()]), "means over lists"),
    (of_metrics, "must be a list", "mrr"),
    (evaluated, "as many labels as features.* 100 and 99", SCORES, IDS[:99]),
    (r4c.evaluate, DATASET, None, SCORES, ["mrr"]),
    (evaluated, DATASET, SCORES, IDS, IDS, IDS),
    (evaluated, "`dataset` must", SCORES, []),
    (evaluated, "`dataset` must", [SCORES, SCORES], IDS, 1.0),
    (r4c.evaluate, "at least one batch", None, [], ["mrr"]),
    (r4c.average, "at least one", []),
    (lambda: r4c.average([ONE, of_metrics(["ndcg"])]), "same metrics"),
    (
        lambda: r4c.average([ONE], confidence=1),
        r"`confidence` must be a number in \(0, 1\)",
    ),
    (r4c.average, OTHER_LABELS, [ONE, OTHER]),
    (r4c.compare, OTHER_LABELS, ONE, OTHER),
    (lambda: r4c.compare(ONE, of_metrics(["ndcg"])), "same metrics"),
    (lambda: r4c.compare(ONE, evaluated(SCORES, -np.ones(100, int))), "same lists"),
    (ONE.save, r"`path` must end in .csv", "ranks.xlsx"),
    (lambda: ONE[None], "one of: mrr"),
    (lambda: ONE["ndcg_at_0"], "one of: mrr"),
    (lambda: r4c.compare(ONE, ONE)["ndcg"], "must be one of: mrr. Received: 'ndcg'"),
    (evaluation.evaluate_retrieval, "`matches` must have one shape", np.zeros([2, 3])),
    (evaluation.evaluate_retrieval, "`matches` must hold a match", EYE, EYE > 1),
    (
        lambda: evaluation.evaluate_retrieval(EYE, -EYE.astype(int)),
        "`matches` must hold booleans",
    ),
    # Exports
    (lambda: exported(2, k=0), "`k` must be a positive integer. Received: k=0"),
    (lambda: exported(2, k=5), r"`k` must be in \[1, 4\]. Received: k=5"),
    (
        lambda: exported(2, class_names=["a"]),
        "each of the 4 classes. Received: 1 names",
    ),
    (
        lambda: exported(2, class_names=iter("abc")),
        "each of the 4 classes. Received: 3 names",
    ),
    (exported, ENCODINGS, 0),
    (exported, r"`model` must give scores \[batch, n\]", 1),
    # Figures
    (lambda: plots.accuracy_by_k(ONE, max_k=0), "`max_k` must be a positive integer"),
    (plots.accuracy_by_k, "`evaluations` must be an `Evaluation`, or a dict", {}),
    (lambda: plots.confusion_at_k(ONE, k=7), "`k` must be at most 6. Received: k=7"),
    (lambda: plots.confusion_at_k(r4c.average([ONE])), "must have `top_classes`"),
    (plots.hardest_classes, "Received: 1 names, none for class", ONE, ["a"]),
    (lambda: tensorboard(k=11), "`k` must be at most 10. Received: k=11"),
    (lambda: tensorboard(metrics=["nope"]), "must be the name of a known metric"),
    (lambda: tensorboard(metrics=["median_rank"]), "means over lists"),
    (tensorboard, "`dataset` must be readable again", iter([(SCORES, IDS)])),
]


@each_call(ERRORS)
def test_errors(call, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        (KeyError, ValueError, tf.errors.InvalidArgumentError), match=message
    ):
        call()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "call", [lambda f, data: r4c.evaluate(f, data, ["mrr"]), r4c.calibrate]
)
def test_one_of_several_outputs_must_be_chosen(call):
    for model, which in ((lambda x: {"a": x, "b": -x}, "'a'"), (lambda x: (x, -x), 0)):
        with refused(rf"(?s)must give the scores.*`lambda.*\[{which}\]`"):
            call(model, (SCORES, IDS))
    with refused(r"(?s)labels of one output.*`dataset.map.*y\['a'\]"):
        call(lambda x: x, (SCORES, {"a": IDS, "b": IDS}))


@pytest.mark.parametrize("function", ["softmax", "sigmoid"])
def test_probabilities_are_no_scores(tmp_path, function):
    rule = rf"(?s)scores, not.* of a {function}"
    model = sequential((4,), keras.layers.Dense(3, function))
    r4c.export_top_k(model, tmp_path / "served", 2)  # Their order is right.
    for arguments in (
        (r4c.layers.Probabilities(2.0),),
        (None, r4c.layers.PredictionSets(0.5)),
    ):
        with refused(rule):
            r4c.export_top_k(model, tmp_path / "served", 2, None, *arguments)
