"""What TwoTower and ExtremeClassifier refuse, with an error that says why."""

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose
from tensorflow import keras

from rank4class_tf import layers, losses, metrics, models, optimizers

from ..refused import refused, refused_in_any_mode
from . import test_extreme_classifier as extreme
from . import two_towers as towers
from .two_towers import by_ids

N: int = towers.NUM_CANDIDATES
IDS: np.ndarray = towers.IDS
RNG = np.random.default_rng(0)
QUERIES = RNG.normal(size=(24, towers.FEATURES)).astype("float32")
FEATURES = RNG.normal(size=(N, towers.FEATURES)).astype("float32")
CANDIDATES: dict[str, np.ndarray] = {"id": IDS, "features": FEATURES}
OWN = {name: x[:24] for name, x in CANDIDATES.items()}
NAMELESS = {"features": FEATURES}
UNNAMED = {"features": FEATURES[:24]}
DATASET = tf.data.Dataset.from_tensor_slices(CANDIDATES).batch(7)
SPEC = tf.TensorSpec([None, towers.FEATURES])
ROWS = np.arange(24)
# What Keras's `fit` takes after `y` and before `class_weight`, by position.
BEFORE_CLASS_WEIGHT = None, 1, 0, None, 0.0, None, False
WEIGHTED = losses.SoftmaxLoss(class_weight={0: 2.0})


def tower(candidates=CANDIDATES, **options):
    return towers.make(candidates, **options)


def nameless():
    return tower(NAMELESS, candidate_id=None)


def of_ids(*ids):
    return tower({"id": np.array(ids), "features": FEATURES[: len(ids)]})


def with_rows():
    """An index of features that are integers."""
    model = models.TwoTower(*towers.towers_with_tables(), candidate_id="id")
    model.index({"id": IDS, "row": np.arange(N)})
    return model


def words():
    embedding = keras.layers.Embedding(N, towers.WIDTH)
    pooling = keras.layers.GlobalAveragePooling1D()
    encoder = keras.Sequential([keras.Input((2,), dtype="int64"), embedding, pooling])
    model = models.TwoTower(towers.towers()[0], encoder)
    model.compile("sgd", loss=losses.SoftmaxLoss())
    return model


def of_widths(*widths):
    inputs = keras.Input((3,))
    return models.TwoTower(
        *(keras.Model(inputs, keras.layers.Dense(n)(inputs)) for n in widths)
    )


def head():
    layer = layers.SampledScores(9)
    layer(tf.ones([2, 4]))
    return layer


def extreme_of(width, **options):
    return models.ExtremeClassifier(keras.layers.Dense(3), N, width, **options)


def fit(model, labels, **options):
    return model.fit(
        QUERIES[: len(tf.nest.flatten(labels)[0])], labels, verbose=0, **options
    )


NO_INDEX = r"`index\(candidates\)` must be called first"
KEY = "`candidate_id` must be a key of .*'id', features .'feat"
NO_IDS = "`candidate_id` must be given"
NO_INTEGERS = "must hold integers or strings"
SHAPE = r"`exclude` must have the shape \[batch, E\]"
NOT_OURS = "`loss` must be a loss of rank4class_tf.losses"
NO_CLASS = r"class ids in \[0, 40\).* \[40\]"
K = r"`k` must be in \[1, 40\]"
COLUMN = r"ids of the shape \[N\] or \[N, 1\]; .* Received: .*\(3, 2\)"
ERRORS = [
    (lambda: towers.make(temperature=0.0), "`temperature` must be a finite number > 0"),
    (lambda: towers.make(num_mined=0), "`num_mined` must be a positive integer"),
    (lambda: of_widths(8, 6), "must give encodings of one width"),
    (lambda: tower(None).top_k(QUERIES, 3), NO_INDEX),
    (lambda: tower(None).index(), NO_INDEX),
    (lambda: tower().top_k(QUERIES, 41), K),
    (lambda: tower().export_top_k("x", SPEC, k=41), f"{K}. Received: k=41"),
    (lambda: of_ids(1, 7, 7), "`candidates` must have different ids. Received: 7 more"),
    (lambda: of_ids(5, -1, 7), "`candidates` must have ids other than -1"),
    (lambda: of_ids([5, 6], [7, 8], [9, 10]), f"`candidates` must have {COLUMN}"),
    (lambda: of_ids(0.5, 1.5), f"`candidate_id` {NO_INTEGERS}"),
    (
        lambda: tower({"id": IDS[:3], "features": FEATURES}),
        "must have a row for each candidate",
    ),
    (lambda: tower(NAMELESS), KEY),
    (lambda: fit(by_ids(), np.arange(24.0)), NO_INTEGERS),
    (lambda: by_ids().ranks(QUERIES, ROWS * 1j), NO_INTEGERS),
    (
        lambda: with_rows().add_candidates({"id": [2000], "row": [1.5]}),
        "others, int64. .* float32",
    ),
    (
        lambda: tower(OWN).remove_candidates(IDS[[2, 30]]),
        f"in the index. Received: {IDS[30]}",
    ),
    (
        lambda: tower(OWN).remove_candidates(IDS[:24]),
        "`ids` must leave a candidate in the index. Received: all",
    ),
    (
        lambda: nameless().add_candidates(NAMELESS),
        "`candidates` must have ids to be added",
    ),
    (
        lambda: fit(tower(DATASET, num_random=4), OWN),
        "must be given the features, not a dataset",
    ),
    (
        lambda: fit(tower(None, candidate_id=None, memory_size=4), UNNAMED),
        f"{NO_IDS} with",
    ),
    (
        lambda: fit(tower(None, candidate_id=None, frequencies=True), UNNAMED),
        f"{NO_IDS} with",
    ),
    (lambda: nameless().ranks(QUERIES, NAMELESS), f"{NO_IDS} to rank"),
    (
        lambda: by_ids().fit(QUERIES, (ROWS, ROWS)),
        "`y` must have a part for each of the",
    ),
    (lambda: fit(words(), np.ones([24, 2], int)), f"{NO_IDS} where the features"),
    (lambda: words().index(np.ones([24, 2], int)), f"several integers, {NO_IDS}"),
    (
        lambda: towers.make(exclude="seen")._excluded(QUERIES, None),
        "`exclude` must be a key of",
    ),
    (lambda: by_ids().top_k(QUERIES, 3, ROWS), rf"{SHAPE}. Received: \(24,\)"),
    (lambda: by_ids().ranks(QUERIES, ROWS, ROWS), SHAPE),
    (lambda: head().top_k(tf.ones([2, 4]), 3, exclude=[1, 2]), SHAPE),
    (
        lambda: by_ids().top_k(QUERIES, 3, ROWS[:, None] > 2),
        f"`exclude` {NO_INTEGERS}.* bool",
    ),
    (
        lambda: by_ids().top_k(QUERIES, 3, [["a"]] * 24),
        "`exclude` must hold ids like .*, int",
    ),
    (
        lambda: fit(tower(), OWN, class_weight={0: 1.0}),
        "`class_weight` must be None.* `sample_we",
    ),
    (
        lambda: tower().fit(QUERIES, OWN, *BEFORE_CLASS_WEIGHT, {0: 1.0}),
        "`class_weight` must be None.* `sample_we",
    ),
    (
        lambda: tower().write_top_k("x", DATASET, k=0),
        "`k` must be a positive integer. Received: k=0",
    ),
    # The columns of a batch are no classes.
    (lambda: tower(loss=WEIGHTED), "`loss` must have no `class_"),
    (lambda: tower(loss="mse"), NOT_OURS),
    (
        lambda: tower(loss=losses.GumbelApproxNDCGLoss(), score_in=4),
        "no random .* `score_in`",
    ),
    # ExtremeClassifier
    (lambda: extreme_of(0), "`embedding_dim` must be a positive integer"),
    (
        lambda: extreme_of(5, num_sampled=9).top_k(QUERIES, 1),
        "encodings of embedding_dim=5",
    ),
    (lambda: extreme.make().top_k(QUERIES, np.int64(0)), K),
    (lambda: extreme.make().top_k(QUERIES, tf.constant(41)), K),
    (
        lambda: extreme.make().export_top_k("x", SPEC, k=0),
        "positive integer. Received: k=0",
    ),
    (lambda: extreme.make().export_top_k("x", SPEC, k=41), f"{K}. Received: k=41"),
    (
        lambda: extreme.make().export_top_k("x", SPEC, class_names=["a"]),
        "the 40 classes. .* 1 nam",
    ),
    (lambda: fit(extreme.compiled(), ROWS + 17), NO_CLASS),
    (lambda: extreme.compiled().evaluate(QUERIES, ROWS + 17, verbose=0), NO_CLASS),
    (lambda: fit(extreme.compiled(), np.eye(16)), "not a label for each class"),
    (
        lambda: extreme.make().scores(tf.ones([1, 6]), class_ids=[0], num_mined=13),
        "=13, num_sampled=12",
    ),
    # The loss sees places in a sample.
    (
        lambda: extreme.compiled(loss=WEIGHTED),
        r"`loss` must have no `class_weight`.* \{0: 2.0\}",
    ),
    (lambda: extreme.compiled(loss="sparse_categorical_crossentropy"), NOT_OURS),
    (lambda: extreme.compiled(loss=losses.MeanAveragePrecisionLoss()), NOT_OURS),
]


@pytest.mark.parametrize("call, message", ERRORS)
def test_errors(call, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with refused_in_any_mode(message):
        call()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("make", [towers.make, extreme.make])
def test_metrics_of_others_and_of_classes_are_refused(make):
    model = make()
    of_classes = metrics.MacroAverage(metrics.MRR(), 3)
    for argument in ("metrics", "weighted_metrics"):
        for metric in ("accuracy", of_classes, metrics.ExpectedCalibrationError()):
            for given in (
                [metric],
                {"output": metric},
                [[metrics.PrecisionAtK(1), metric]],
            ):
                with refused(f"`{argument}` must hold metrics of"):
                    model.compile("sgd", losses.SoftmaxLoss(), **{argument: given})


@pytest.mark.often("0", "nan")
@pytest.mark.parametrize("wrong", [0, -1, np.nan, np.inf])
def test_weights_of_negatives_are_positive(wrong):
    model = towers.make(negatives="others", negative_weight="weight", jit_compile=False)
    ids = np.array([[3, -1]] * 24)
    given = np.where(ids == -1, wrong, 2).astype("float32")  # Padding has any weight.

    def fitted(weight):
        others = {"id": ids, "features": FEATURES[ids], "weight": weight}
        return fit(model, {**OWN, "others": others}).history["loss"]

    assert np.isfinite(fitted(given)).all()
    for weight, rule in (
        (
            np.full(given.shape, wrong, "float32"),
            "`negative_weight` must hold finite numbers > 0",
        ),
        (given[:, :1], "the shape of the ids"),
    ):
        with refused_in_any_mode(rule):
            fitted(weight)


@pytest.mark.parametrize("dense", ["features", "weight"])
def test_all_of_ragged_candidates_is_ragged(dense):
    model = towers.make(negatives="others", negative_weight="weight", jit_compile=False)
    ids = np.array([[3, 4]] * 24)
    others = {"id": ids, "features": FEATURES[ids], "weight": np.ones(ids.shape)}
    for name in others.keys() - {dense}:
        others[name] = tf.RaggedTensor.from_tensor(others[name])
    data = tf.data.Dataset.from_tensors((QUERIES, {**OWN, "others": others}))
    with refused("must be ragged where ids are, weights too"):
        model.fit(data, verbose=0, shuffle=False)


def test_class_weight_of_several_classes():
    """Keras takes such labels for one-hot ones."""
    ids = np.stack([ROWS, np.where(ROWS % 2, 30, -1)], axis=1)
    weights = {class_id: float(class_id % 2) for class_id in range(N)}

    def fitted(*batch, class_weight=weights):
        model = extreme.make(num_sampled=None)
        model.compile(
            optimizers.RowwiseSGD(0.0), losses.SoftmaxLoss(), run_eagerly=True
        )
        return model.fit(
            *batch, class_weight=class_weight, shuffle=False, verbose=0
        ).history

    def dataset(*batch):
        return tf.data.Dataset.from_tensor_slices(batch).batch(4)

    fitted(QUERIES, ids, class_weight=None)
    for batch in (
        (QUERIES, ids),
        (dataset(QUERIES, ids),),
        ((x for x in [(QUERIES, ids)]),),
    ):
        with refused(r"come with class ids .* `loss\(class_weight=\)`"):
            fitted(*batch)
    with refused("`class_weight` must be a dict.* a loss takes a list"):
        fitted(QUERIES, ROWS, class_weight=list(weights.values()))
    with refused("`class_weight` must be a dict.* a loss takes a list"):
        extreme.make().fit(QUERIES, ROWS, *BEFORE_CLASS_WEIGHT, [1.0] * N)
    of_arrays = fitted(QUERIES, ROWS[:, None])
    of_dataset = fitted(dataset(QUERIES, ROWS))
    assert_allclose(of_dataset["loss"], of_arrays["loss"], rtol=1e-5)


@pytest.mark.parametrize("options", [{}, {"weight_decay": 0.1}, {"clipnorm": 1}])
def test_optimizers_that_write_to_all_rows_warn(options, recwarn):
    model = extreme.make()
    model.compile(
        keras.optimizers.SGD(0.1, **options), losses.SoftmaxLoss(), run_eagerly=True
    )
    fit(model, ROWS)
    found = [
        str(w.message)
        for w in recwarn
        if "`optimizer` should be one of" in str(w.message)
    ]
    assert bool(found) == bool(options) and all(
        "Received: SGD" in message for message in found
    )
