"""`try_out`: a fair comparison, resumed, budgeted, and honest about chance."""

import functools
import json

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import rank4class_tf as r4c
from rank4class_tf import _intervals, layers, losses, models, optimizers
from rank4class_tf.trials import report, run

NUM_CLASSES = 4


@pytest.fixture
def data(rng):
    """Points around the corner of their class: to train, and to test."""
    y = rng.integers(0, NUM_CLASSES, 240).astype(np.int32)
    x = (np.eye(NUM_CLASSES)[y] + 0.4 * rng.normal(size=(240, NUM_CLASSES))).astype(np.float32)
    return (x[:170], y[:170]), (x[170:], y[170:])


def build(head):
    return keras.Sequential([keras.Input((NUM_CLASSES,)), head])


def try_out(data, candidates, **options):
    options = {"settings": 2, "seeds": 2, "epochs": 3, "verbose": False, **options}
    return r4c.try_out(build, data[0], 0.2, data[1], candidates, **options)


@pytest.mark.keras2
def test_the_table_says_what_was_tried(data, tmp_path):
    candidates = {
        "softmax": losses.SoftmaxLoss(),
        "smoothed": losses.SoftmaxLoss(label_smoothing=0.1),
        "rankmax": losses.RankmaxLoss(),
        "cosine": (losses.GeneralizedCrossEntropyLoss(), layers.CosineHead(NUM_CLASSES)),
        "svm": (losses.OrderedWeightedLoss.lee(), layers.CosineHead(NUM_CLASSES)),
        "keras": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    }
    names = ["top_k_accuracy_at_1", "macro_ndcg_at_2"]
    result = try_out(data, candidates, metrics=names, epochs=1)
    assert [trial.name for trial in result.trials] == list(candidates)
    assert result.num_settings == 2 and result.monitor == names[1]
    for trial in result.trials:
        assert len(trial.settings) == 2 and list(trial.values) == names
        for name in names:
            assert trial.values[name].low <= trial.values[name].value <= trial.values[name].high
    owns = [[*trial.settings[0]][2:] for trial in result.trials]
    assert owns == [["temperature"], ["label_smoothing"], ["margin"], ["q"], ["scale"], []]
    text = str(result)
    assert all(name in text for name in candidates) and text.endswith(result.verdict)
    assert "Each tried 2 settings for each of 2 seeds." in text and "Fewer than four" in text
    result.save(tmp_path / "tried.json")
    assert json.loads((tmp_path / "tried.json").read_text())["verdict"] == result.verdict
    assert result.plot(tmp_path / "tried.png").axes
    trial = result.trials[1]
    model = trial.build()
    assert float(model.optimizer.learning_rate) == pytest.approx(trial.settings[0]["learning_rate"])
    assert model.loss.label_smoothing == trial.settings[0]["label_smoothing"]
    model.fit(*data[0], verbose=0)
    model.save(tmp_path / "model.keras")


@pytest.mark.parametrize("loss", [losses.SoftmaxLoss, lambda: losses.WARPLoss(num_trials=2)])
def test_budgets_are_equal_and_a_cut_run_resumes(data, tmp_path, loss):
    candidates = {"a": loss(), "b": losses.RankmaxLoss()}
    whole = try_out(data, candidates, path=tmp_path / "whole")
    lines = (tmp_path / "whole").read_text().splitlines(keepends=True)
    tasks = [json.loads(line)[0] for line in lines[1:]]
    for name in candidates:
        assert sum(task.startswith(f"{name}/") for task in tasks) == 2 * 2 + 2
    for kept in (4, len(lines) - 1):
        path = tmp_path / f"cut{kept}"
        path.write_text("".join(lines[:kept]) + lines[kept][:9])  # Cut within a line.
        for a, b in zip(whole.trials, try_out(data, candidates, path=path).trials, strict=True):
            assert (a.values, a.gains, a.settings) == (b.values, b.gains, b.settings)
    (x, y), test = data
    linear = {"metrics": ["top_k_accuracy_at_1", r4c.metrics.NDCG(5, gain="linear")]}
    for others, examples, options in (
        ({"a": losses.RankmaxLoss(margin=2.0)}, data, {}),
        (candidates, ((x, y[::-1]), test), {}),
        (candidates, data, linear),  # Of the same names.
    ):
        with pytest.raises(ValueError, match="`path` must be new, or a file of this comparison"):
            try_out(examples, others, path=tmp_path / "whole", **options)


def test_more_time_for_a_kept_run_chooses_and_tests_anew(data, tmp_path):
    candidates = {"a": losses.SoftmaxLoss(), "b": losses.RankmaxLoss()}
    options = {"settings": 4, "seeds": 1}
    try_out(data, candidates, path=tmp_path / "kept", minutes=1e-6, **options)
    resumed = try_out(data, candidates, path=tmp_path / "kept", **options)
    whole = try_out(data, candidates, **options)
    for a, b in zip(whole.trials, resumed.trials, strict=True):
        assert (a.values, a.settings) == (b.values, b.settings)
    (tmp_path / "thesis").write_text("precious")
    with pytest.raises(ValueError, match="`path` must be new"):
        try_out(data, candidates, path=tmp_path / "thesis")
    assert (tmp_path / "thesis").read_text() == "precious"


def test_a_budget_takes_settings_from_all_and_there_is_a_dozen(data):
    candidates = {"a": losses.SoftmaxLoss(), "b": losses.RankmaxLoss()}
    assert try_out(data, candidates, settings=9, seeds=1, minutes=1e-3).num_settings == 1
    result = try_out(data, None, settings=1, seeds=1, epochs=1)
    assert len(result.trials) == 12 and result.trials[0].name == "softmax"


def test_a_candidate_compiles_once(data):
    traced = []

    class Counted(losses.SoftmaxLoss):
        def compute(self, lists):
            traced.append(self)
            return super().compute(lists)

    try_out(data, {"a": Counted()}, settings=3, batch_size=34)
    assert len(traced) == 1


def test_a_gain_that_is_there_is_found(data):
    bad = losses.SoftmaxLoss(class_weight=[0, 0, 1, 1])
    candidates = {"bad": bad, "good": losses.SoftmaxLoss()}
    result = try_out(data, candidates, settings=4, epochs=15)
    assert result.best.name == "good" and "Take good" in result.verdict
    alone = try_out(data, candidates, settings=4, epochs=15, seeds=1)
    assert "Stay with bad" in alone.verdict and "One seed" in str(alone)


def test_a_loss_that_is_not_finite_is_named(data):
    @keras.utils.register_keras_serializable("tests")
    class Broken(keras.losses.Loss):
        def call(self, labels, scores):
            return tf.reduce_sum(scores, axis=1) * float("nan")

    result = try_out(data, {"a": losses.SoftmaxLoss(), "b": Broken()})
    assert "b: in a seed, no setting had a finite loss" in str(result)
    assert "a: in a seed" not in str(result)


def test_forms_of_labels():
    ids, columns = np.array([[0, 3], [5, -1]]), np.array([[0.0], [4.0]])
    for labels, number in (
        (ids, 6), (columns, 5), (columns[:, 0], 5), (np.eye(7)[:2], 7),
        (np.eye(7, dtype=int)[:2], 7),
        (np.eye(7, dtype=bool)[:2], 7), (np.array([[0, 3, 3], [1, 0, 2]]), 3),
        (tf.ragged.constant([[1], [2, 8]]), 9),
    ):  # fmt: skip
        part = tf.data.Dataset.from_tensors((np.zeros((2, 1)), labels))
        assert run._num_classes("train", part, rank=2) == number
    # Of sequences, labels of one number for each position are ids.
    part = tf.data.Dataset.from_tensors((np.zeros((2, 3, 1)), np.array([[0, 3, 3], [1, 0, 2]])))
    assert run._num_classes("train", part, rank=3) == 4


def test_decay_is_tuned_where_the_optimizer_has_it(data):
    def sgd(head):
        model = build(head)
        model.compile(keras.optimizers.SGD(0.1))
        return model

    options = {"settings": 4, "seeds": 1, "epochs": 1, "verbose": False}
    result = r4c.try_out(sgd, data[0], 0.2, data[1], {"a": losses.SoftmaxLoss()}, **options)
    assert [*result.trials[0].settings[0]] == ["learning_rate", "temperature"]
    assert "decay" not in str(result)


def test_two_names_for_one_loss_draw_other_weights(data):
    result = try_out(data, {"a": losses.SoftmaxLoss(), "b": losses.SoftmaxLoss()}, epochs=1)
    assert result.trials[0].values != result.trials[1].values
    assert result.best is result.trials[0] and "Stay with a" in result.verdict


@pytest.mark.slow
def test_false_alarms_are_rare(rng):
    """In 100 comparisons of a loss with itself, on other data and other weights each time."""
    alarms = 0
    for run_number in range(100):
        y = rng.integers(0, NUM_CLASSES, 160).astype(np.int32)
        x = (np.eye(NUM_CLASSES)[y] + rng.normal(size=(160, NUM_CLASSES))).astype(np.float32)
        data = (x[:80], y[:80]), (x[80:], y[80:])
        names = (f"{run_number}, {name}" for name in "ab")
        result = try_out(data, {name: losses.SoftmaxLoss() for name in names}, seeds=3, epochs=2)
        alarms += result.best is not result.trials[0]
        # In the process of many tests, looking at all objects takes longer than the trainings.
        keras.backend.clear_session(free_memory=run_number % 20 == 0)
    assert alarms <= 5


def test_seeds_are_samples_beside_the_lists(rng):
    """Satterthwaite's interval covers the mean of seeds and lists together."""
    covered = {"both": 0, "lists": 0}
    for _ in range(500):
        differences = 0.1 * rng.normal(size=(3, 1)) + 0.5 * rng.normal(size=(1, 60))
        for name, sample in (("both", differences), ("lists", differences[:1])):
            mean = _intervals.mean_difference(sample, np.ones(60), 0.95)
            covered[name] += mean.low <= 0 <= mean.high
            assert (mean.p_value < 0.05) == (not mean.low <= 0 <= mean.high)
    assert covered["both"] >= 465 > covered["lists"]  # Three standard errors below 475.


def test_p_values_are_corrected():
    tests = {
        name: [{"mrr": [(np.arange(9) % 3 + shift).tolist(), [1.0] * 9, [0, 9]]}]
        for name, shift in {"first": 0, "a": 1, "b": 3, "c": 0}.items()
    }
    shifted = (np.full((1, 9), shift) for shift in (1, 3, 0))
    raw = [_intervals.mean_difference(x, np.ones(9), 0.95, 9).p_value for x in shifted]
    gains, expected = report.gains(tests), [3 * raw[1], max(3 * raw[1], 2 * raw[0]), 1.0]
    assert [gains[name]["mrr"].p_value for name in "bac"] == expected
    assert not gains["first"]


def test_settings_cover_their_ranges():
    settings = np.sort(np.log(run._draw_settings(10, seed=3)), axis=0)
    for values, ends in zip(settings.T, np.log(run._RANGES), strict=True):
        edges = np.linspace(*ends, 11)
        assert (edges[:-1] <= values).all() and (values <= edges[1:]).all()


def test_notes(data):
    settings = [{"learning_rate": 1.0 * i, "weight_decay": 10.0**-i} for i in range(5)]

    def done(values):
        pairs = zip(values, settings, strict=True)
        return [[report.Training(value, 1.0, setting) for value, setting in pairs]] * 3

    highest, middle = [settings[4]] * 3, [settings[2]] * 3
    notes = report.notes({"a": done(range(5))}, {"a": highest}, None, [])
    assert [*notes] == [
        "a: the best learning_rate is the highest that was tried.",
        "a: the best weight_decay is the lowest that was tried.",
    ]
    # The first reaches .9 with much decay, and .2 with little; the other .5.
    runs = {"a": done([0.9, 0.4, 0.3, 0.2, 0.1]), "b": done([0.5] * 5)}
    notes = functools.partial(report.notes, runs, {"a": middle, "b": middle}, 1.0)
    assert [*notes(["b"])] == ["b: its gain over a vanishes once a has its best weight decay."]
    assert [*notes([])] == []

    def short(head):
        return keras.Sequential([keras.Input((4,)), keras.layers.Rescaling(1e-3), head])

    options = {"settings": 1, "seeds": 1, "epochs": 1, "verbose": False}
    result = r4c.try_out(short, data[0], *data[1:] * 2, {"a": losses.SoftmaxLoss()}, **options)
    assert "encodings have a length of 0.00" in str(result)


def test_wrong_labels_are_estimated(rng):
    pytest.importorskip("cleanlab")
    y = rng.integers(0, NUM_CLASSES, 600)
    x = (np.eye(NUM_CLASSES)[y] + 0.2 * rng.normal(size=(600, NUM_CLASSES))).astype(np.float32)
    wrong = (y == 2) & (rng.random(600) < 0.4)
    labels = np.where(wrong, 3, y)
    data = (x[:500], labels[:500]), (x[500:], y[500:])
    result = try_out(data, {"a": losses.SoftmaxLoss()}, settings=4, epochs=15, noise="estimate")
    assert abs(result.noise["share"] - wrong[:500].mean()) < 0.03
    assert result.noise["concentration"] > 0.8
    assert result.noise["confusions"][0][:2] == (2, 3)
    assert "of the labels look wrong" in str(result)


def test_wrong_labels_are_estimated_for_a_loss_whose_probabilities_are_tuned(data):
    pytest.importorskip("cleanlab")
    candidates = {"a": losses.GeneralizedCrossEntropyLoss(), "b": losses.SoftmaxLoss()}
    assert 0 <= try_out(data, candidates, noise="estimate").noise["share"] <= 1


def test_what_is_tuned_keeps_the_rules_of_the_constructor(data, monkeypatch):
    """Four times the odds of .4 would be .73; the loss takes less than .5."""
    monkeypatch.setattr(run, "_RANGES", (*run._RANGES[:2], (3.9, 4.0)))
    candidates = {"a": losses.PairwiseLogisticLoss(label_smoothing=0.4)}
    (trial,) = try_out(data, candidates, settings=1, seeds=1, epochs=1).trials
    assert 0.4 < trial.settings[0]["label_smoothing"] < 0.5
    assert trial.build().loss.label_smoothing == trial.settings[0]["label_smoothing"]


def test_models_with_an_end_and_an_optimizer_of_their_own(rng):
    """Graded lists: one score an item."""

    def ranker():
        score = keras.Sequential([keras.layers.Dense(1), keras.layers.Flatten()])
        inputs = keras.Input((5, 3))
        model = keras.Model(inputs, score(inputs))
        model.compile(keras.optimizers.SGD(0.1))
        return model

    x = rng.normal(size=(60, 5, 3)).astype(np.float32)
    grades = np.clip(np.round(x[:, :, 0]), 0, 2).astype(np.float32)
    candidates = {"softmax": losses.SoftmaxLoss(), "ndcg": losses.ApproxNDCGLoss()}
    parts = [(x[i : i + 20], grades[i : i + 20]) for i in (0, 20, 40)]
    parts[0] = tf.data.Dataset.from_tensor_slices(parts[0]).batch(8)
    options = {"settings": 2, "seeds": 1, "epochs": 3, "verbose": False}
    result = r4c.try_out(ranker, *parts, candidates, ["ndcg_at_3"], **options)
    assert set(result.trials[0].values) == {"ndcg_at_3"}
    assert isinstance(result.trials[0].build().optimizer, keras.optimizers.SGD)


def test_arguments_are_checked(data):
    of_probabilities = keras.losses.SparseCategoricalCrossentropy()
    batches = tf.data.Dataset.from_tensor_slices(data[0]).batch(8)
    names = data[0][0], np.array(["a", "b"])[data[0][1] % 2]
    shared = keras.layers.Dense(3)
    table = layers.ShardedClassTable(4, 3, optimizers.RowwiseAdagrad())

    def with_shared(head):
        return keras.Sequential([keras.Input((4,)), shared, head])

    options = {"build": build, "train": data[0], "validation": 0.2, "test": data[1]}
    options |= {"candidates": {"a": losses.SoftmaxLoss()}, "verbose": False}
    for changes, message in (
        ({"settings": 0}, "`settings` must be a positive integer"),
        ({"monitor": "mrr"}, "`monitor` must be one of"),
        ({"monitor": "mean_rank", "metrics": ["mean_rank"]}, "`monitor` must be one of"),
        ({"noise": True}, "`noise` must be one of"),
        ({"candidates": {}}, "`candidates` must be a dict with at least one"),
        ({"minutes": 0}, "`minutes` must be"),
        ({"patience": 0}, "`patience` must be a positive integer"),
        ({"candidates": {"a": of_probabilities}}, "`candidates` must take scores"),
        ({"train": names}, "`train` must have labels that are numbers"),
        ({"train": batches.repeat()}, "`train` must be a dataset that ends"),
        ({"build": with_shared}, "`build` must make new layers at each call"),
        (
            {"build": lambda: models.ExtremeClassifier(shared, table, 3, None)},
            "`build` must use no `ShardedClassTable`",
        ),
        ({"train": batches}, "`validation` must be a share in"),
        ({"validation": 1.2}, "`validation` must be a share in"),
    ):
        with pytest.raises(ValueError, match=message):
            r4c.try_out(**{**options, **changes})
