"""Faults at edges that users met: each with the right value, found independently."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose
from tensorflow import keras

import rank4class_tf as r4c
from rank4class_tf import _keras, layers, losses, metrics, models, optimizers
from rank4class_tf.data import elwc
from tests.contract import rows
from tests.refused import refused
from tests.small_models import linear, sequential

from .contract.tables import OPTIMIZERS
from .rounding import assert_all_close


def test_a_class_whose_positive_weighs_nothing_has_no_list():
    """The mean over classes is that of the lists without the item."""
    labels = np.array([[1, 1, 0], [0, 1, 0], [0, 1, 0]], "float32")
    scores = np.array([[3, 2, 1], [1, 3, 2], [1, 2, 3]], "float32")
    weights = np.array([[1, 0, 1], [1, 1, 1], [1, 1, 1]], "float32")
    metric = metrics.MacroAverage(metrics.MRR(label_format="relevance"), 3)
    metric.update_state(labels, scores, weights)
    # Class 0 has the list of rank 1; class 1 has those of rank 1 and 2.
    assert_allclose(metric.result(), (1 + (1 + 1 / 2) / 2) / 2, rtol=1e-6)
    without = metrics.MacroAverage(metrics.MRR(label_format="relevance"), 3)
    assert float(metric.result()) == float(
        without(np.where(weights > 0, labels, -1), scores)
    )

    model = sequential((3,), keras.layers.Activation("linear"))
    data = tf.data.Dataset.from_tensors((scores, labels, weights))
    found = r4c.evaluate(model, data, [metrics.MRR(label_format="relevance"), metric])
    assert found["macro_mrr"].value == pytest.approx((1 + (1 + 1 / 2) / 2) / 2)


# Optimizers of half precision.


@pytest.mark.keras2
@pytest.mark.parametrize("is_dense", [False, True], ids=["some rows", "all rows"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("rule", OPTIMIZERS)
def test_rows_of_half_precision_take_the_steps_of_float32(rule, dtype, is_dense):
    """Twenty steps of small gradients, whose squares are 0 in float16."""
    tables = {}
    for of_table in (dtype, "float32"):
        table = _keras.add_table(
            keras.layers.Layer(dtype=of_table), "rows", (4, 2), "zeros"
        )
        optimizer = OPTIMIZERS[rule]()
        optimizer.build([table])
        for step in range(20):
            values = tf.cast([[1e-3, -2e-3], [3e-3 * (step % 3), 1e-3]], of_table)
            gradient = tf.IndexedSlices(values, [1, 3], [4, 2])
            if is_dense:
                gradient = tf.convert_to_tensor(gradient)
            optimizer.apply_gradients([(gradient, table)])
        tables[of_table] = np.array(tf.cast(tf.convert_to_tensor(table), tf.float32))
    # Each of the steps rounds the row.
    rounding = 20 * np.finfo("float32").eps * (2**16 if dtype == "bfloat16" else 2**13)
    largest = np.abs(tables["float32"]).max()
    assert_allclose(tables[dtype], tables["float32"], rtol=0, atol=rounding * largest)
    assert np.any(tables[dtype])


OF_A_TEMPERATURE: list = [
    losses.SoftmaxLoss,
    losses.ApproxNDCGLoss,
    losses.ListMLELoss,
    losses.PairwiseLogisticLoss,
    layers.SigmoidSorter,
    layers.LaplaceSorter,
    losses.PairwiseSoftZeroOneLoss,
    losses.SigmoidCrossEntropyLoss,
    layers.SoftRankSorter,
    lambda t: two_tower(temperature=t),
]


@pytest.mark.parametrize("make", OF_A_TEMPERATURE)
def test_a_number_that_is_0_in_float32_raises(make):
    with refused(r"must be a finite number .*float32.*Received: .*1e-40"):
        make(1e-40)


# Two towers.


def two_tower(**options):
    queries = linear(2, 3)
    inputs = {
        "id": keras.Input((), dtype="int32", name="id"),
        "x": keras.Input((2,), name="x"),
    }
    candidates = keras.Model(inputs, keras.layers.Dense(3)(inputs["x"]))
    return models.TwoTower(queries, candidates, candidate_id="id", seed=1, **options)


def catalogue(ids):
    return {
        "id": np.array(ids, "int32"),
        "x": np.random.default_rng(1).normal(size=(len(ids), 2)),
    }


def test_propensities_are_those_of_the_candidates_when_rows_move():
    """They stay in the order in which `index` got the candidates."""
    model = two_tower()
    items = catalogue(range(4))
    model.compile(optimizers.RowwiseSGD(0.1), losses.SoftmaxLoss())
    model.index(items)
    metric = metrics.PropensityScoredPrecisionAtK(2, [0.1, 0.2, 0.4, 0.8])
    pairs = tf.data.Dataset.from_tensors((items["x"], items))
    first = r4c.evaluate(model, pairs, [metric]).values
    model.add_candidates({name: values[1:2] for name, values in items.items()})
    for name, values in r4c.evaluate(model, pairs, [metric]).values.items():
        assert_allclose(values, first[name], rtol=1e-6)


def in_pairs(options, several, excluded):
    """Parametrises by names of several options and, once a week, of each two."""
    params = [pytest.param(names, marks=pytest.mark.keras2) for names in several]
    pairs = sorted({*itertools.combinations(options, 2)} - {excluded, *several})
    params += [pytest.param(names, marks=pytest.mark.weekly) for names in pairs]
    return pytest.mark.parametrize("names", params, ids="+".join)


PAIRS = {
    "negatives": {"negatives": "others"},
    "weights": {"negatives": "others", "negative_weight": "weight"},
    "memory": {"memory_size": 4},
    "random": {"num_random": 2},
    "mined": {"num_mined": 2},
    "frequencies": {"frequencies": layers.CandidateFrequencies},
    "pieces": {"encode_in": 2, "score_in": 3},
}


SEVERAL = [
    ("negatives", "mined", "pieces"),
    ("weights", "memory", "random", "frequencies"),
]


@pytest.mark.slow
@in_pairs(PAIRS, SEVERAL, ("negatives", "weights"))
def test_options_of_two_towers_together_on_two_replicas(names, two_devices):
    """A step of two replicas is one of a single device."""
    options = {key: value for name in names for key, value in PAIRS[name].items()}
    items = catalogue(range(8))
    items["others"] = {
        "id": np.arange(100, 116, dtype="int32").reshape(8, 2),
        "x": np.random.default_rng(2).normal(size=(8, 2, 2)),
    }
    if "weights" in names:
        items["others"]["weight"] = (
            np.random.default_rng(3).uniform(1, 2, (8, 2)).astype("float32")
        )
    features = np.random.default_rng(4).normal(size=(8, 2)).astype("float32")
    results = []
    for strategy in (two_devices, tf.distribute.get_strategy()):
        keras.utils.set_random_seed(0)
        with strategy.scope():
            of_model = dict(options)
            if "frequencies" in of_model:
                of_model["frequencies"] = of_model["frequencies"](11)
            model = two_tower(**of_model)
            model.compile(keras.optimizers.SGD(0.1), losses.SoftmaxLoss())
        if "random" in names:  # Any draw is the same.
            same = catalogue(range(50, 53))
            same["x"][:] = 1.0
            model.index(same)
        data = tf.data.Dataset.from_tensors((features, items)).repeat(2)
        model.fit(data, shuffle=False, verbose=0)
        results.append(model.get_weights()[:2])
    assert_all_close(*results, 1e-4, 1e-6)


CLASSIFIER_PAIRS = {
    "bias": {"classes": lambda: layers.ClassTable(9, use_bias=True)},
    "encoded": {
        "classes": lambda: layers.EncodedClasses(np.eye(9, 3), keras.layers.Dense(3))
    },
    "cosine": {"normalize": True},
    "top": {
        "loss": lambda: losses.OrderedWeightedLoss(
            "pairwise", "hinge", losses.TopKWeights(2)
        )
    },
    "sampled": {"num_sampled": 4},
    "weights": {"weights": np.random.default_rng(3).uniform(1, 2, 8).astype("float32")},
    "several": {"labels": np.random.default_rng(4).integers(-1, 9, (8, 2))},
    "positions": {"features": np.random.default_rng(5).normal(size=(8, 3, 2))},
}


CLASSIFIER_SEVERAL = [
    ("bias", "cosine", "weights", "several"),
    ("sampled", "weights"),
    ("encoded", "top", "weights", "positions"),
]


@pytest.mark.slow
@in_pairs(CLASSIFIER_PAIRS, CLASSIFIER_SEVERAL, ("bias", "encoded"))
def test_options_of_all_classes_together_on_two_replicas(names, two_devices):
    """Two replicas' step is that of one device; samples differ, so they only train."""
    options = {
        key: value for name in names for key, value in CLASSIFIER_PAIRS[name].items()
    }
    features = options.get("features", np.random.default_rng(6).normal(size=(8, 2)))
    labels = options.get("labels", np.arange(8))
    weights = options.get("weights", np.ones(8, "float32"))
    if "positions" in names:
        labels = np.repeat(labels[:, None], 3, axis=1)
        weights = weights[:, None]
    results = []
    for strategy in (two_devices, tf.distribute.get_strategy()):
        keras.utils.set_random_seed(0)
        with strategy.scope():
            encoder = linear(*features.shape[1:], 3)
            num_sampled = options.get("num_sampled")
            normalize = options.get("normalize", False)
            classes = options.get("classes", lambda: 9)()
            model = models.ExtremeClassifier(
                encoder, classes, 3, num_sampled, normalize, seed=1
            )
            model.compile(
                keras.optimizers.SGD(0.1), options.get("loss", losses.SoftmaxLoss)()
            )
        before = model.get_weights()
        data = tf.data.Dataset.from_tensors((features, labels, weights)).repeat(2)
        model.fit(data, shuffle=False, verbose=0)
        results.append(model.get_weights())
    for two, one, first in zip(*results, before, strict=True):
        assert np.isfinite(two).all()
        if "sampled" not in names:
            assert_allclose(two, one, rtol=1e-4, atol=1e-6)
        elif two.dtype.kind == "f":
            assert np.abs(two - first).max() > 0


# Names and features.


def test_names_are_text_in_figures(tmp_path):
    names = ["cost $5 to $10", "_private", r"a_b^c \frac"]
    found = r4c.evaluate(None, (np.eye(3), [0, 1, 2]), ["mrr"])
    figures = [
        r4c.plots.hardest_classes(found, names),
        r4c.plots.confusion_at_k(found, 1, names),
        r4c.plots.rank_histogram({name: found for name in names}),
        r4c.plots.accuracy_by_k({name: found for name in names}),
    ]
    for index, figure in enumerate(figures):
        figure.savefig(tmp_path / f"{index}.png")
    legends = [figure.axes[0].get_legend() for figure in figures[2:]]
    assert all(len(legend.get_texts()) == 3 for legend in legends)


def test_boolean_features_in_elwc():
    message = tf.train.Example.FromString(
        elwc._example({"is_new": np.array([True, False])})
    )
    assert [*message.features.feature["is_new"].int64_list.value] == [1, 0]


# What a framework reads.


ABSTRACT = {layers.Interaction, layers.MLPInteraction, layers.Sorter}
# What a layer is called with; other layers get numbers `[2, 4]`. Classes are not
# called.
INPUTS: dict[type, list] = {
    layers.ClassEmbedding: [np.zeros([2, 4], "int32")],
    layers.HardNegativeMining: [np.ones([2, 4], "float32"), np.zeros(2, "int32")],
    layers.CrossBatchMemory: [np.ones([2, 4], "float32"), np.zeros(2, "int32")],
    layers.CandidateFrequencies: [np.zeros(4, "int32")],
    layers.ConvolutionalSorter: [np.ones([2, 100], "float32")],
    models.ExtremeClassifier: [np.ones([2, 3], "float32")],
    models.TwoTower: [np.ones([2, 3], "float32")],
}
for cls in (layers.RemoveAccidentalHits, layers.SamplingProbabilityCorrection):
    of_candidates = np.ones(
        4, "int32" if cls is layers.RemoveAccidentalHits else "float32"
    )
    INPUTS[cls] = [*INPUTS[layers.HardNegativeMining], of_candidates]
for cls in rows.public_classes(layers.Interaction):
    INPUTS[cls] = [[np.ones([2, 4], "float32"), np.ones([5, 4], "float32")]]
LAYERS = [
    x
    for x in rows.public_classes(keras.layers.Layer)
    if not issubclass(x, layers.Classes)
]
LAYERS = [cls for cls in LAYERS if cls not in ABSTRACT]


@pytest.mark.filterwarnings("ignore:.* has random weights")
@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "float64"])
@pytest.mark.parametrize("cls", LAYERS)
def test_layers_announce_the_dtypes_and_shapes_that_they_return(cls, policy):
    layer = cls(**rows.needed(cls), dtype=policy)
    values = INPUTS.get(cls, [np.ones([2, 4], "float32")])
    values = tf.nest.map_structure(tf.constant, values)
    if cls is layers.SparseDense:
        values = [tf.sparse.from_dense(values[0])]
    elif cls is layers.ExcludeItems:
        values = [[*values, np.zeros([2, 1], "int32")]]
    # Candidates have a known number of rows.
    known = isinstance(layer, layers.Interaction) or cls is layers.UniformNegatives

    def symbolic(x):
        sparse = isinstance(x, tf.SparseTensor)
        size = x.shape[0] if known or x.shape == (4,) else None
        return keras.Input(
            batch_shape=(size, *x.shape[1:]), dtype=x.dtype, sparse=sparse
        )

    announced = tf.nest.flatten(layer(*tf.nest.map_structure(symbolic, values)))
    for told, tensor in zip(announced, tf.nest.flatten(layer(*values)), strict=True):
        assert tf.as_dtype(told.dtype) == tensor.dtype
        assert tf.TensorShape(told.shape).is_compatible_with(tensor.shape)
        assert tf.TensorShape(told.shape)[1:] == tensor.shape[1:]


@pytest.mark.keras2
def test_a_model_is_compiled_with_the_class_of_a_loss():
    encoder = linear(2, 3)
    model = models.ExtremeClassifier(encoder, 9, 3, None)
    model.compile(optimizers.RowwiseSGD(0.1), loss=losses.SoftmaxLoss)
    model.fit(np.ones([2, 2], "float32"), np.array([0, 1]), verbose=0)
    assert isinstance(model.loss, losses.SoftmaxLoss)


class Captured(losses.RankingLoss):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.scale = tf.Variable(2.0)

    def compute(self, lists):
        sums = lists.sum_over_items(lambda s, p: self.scale * tf.nn.relu(s - p + 1))
        return lists.sum_of_positives(sums)


def test_a_variable_that_a_sum_captures_raises_with_its_remedy():
    labels = (np.random.default_rng(0).random((2, 300)) < 0.3).astype("float32")
    scores = tf.Variable(tf.zeros([2, 300]))
    loss = Captured()
    with refused(r"as a parameter"), tf.GradientTape() as tape:
        tape.gradient(loss(labels, scores), [scores, loss.scale])
