"""`try_out`: a fair comparison, resumed, budgeted, and honest about chance."""

import functools
import json

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from tensorflow import keras

import rank4class_tf as r4c
from rank4class_tf import _intervals, layers, losses, models, optimizers
from rank4class_tf.trials import report, run
from rank4class_tf.trials.candidates import (
    RANGES,
    Candidate,
    Outcome,
    Training,
    draw_settings,
    source,
)
from rank4class_tf.trials.data import Data, num_outputs, read, select

from .refused import refused
from .small_models import sequential

NUM_CLASSES = 4


def points(rng, count, spread):
    """Points around the corners of their classes."""
    y = rng.integers(0, NUM_CLASSES, count).astype(np.int32)
    noise = spread * rng.normal(size=(count, NUM_CLASSES))
    return (np.eye(NUM_CLASSES)[y] + noise).astype(np.float32), y


@pytest.fixture
def data(rng):
    """Points around class corners; a fifth of the first part has the second's shape."""
    x, y = points(rng, 240, spread=0.4)
    return (x[:200], y[:200]), (x[200:], y[200:])


@pytest.fixture
def eagerly():
    """Runs functions without graphs, which take longer than the few calls here."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


def build(head):
    return sequential((NUM_CLASSES,), head)


def try_out(data, candidates, build=build, validation=0.2, **options):
    options = {"settings": 2, "seeds": 2, "epochs": 3, "verbose": False, **options}
    return r4c.try_out(build, data[0], validation, data[1], candidates, **options)


SHORT = {"settings": 1, "seeds": 1, "epochs": 1}


def seed_results(*values, bounds=(0, 1)):
    """The test of a candidate, from its values `[seeds][lists]`."""
    arrays = [np.asarray([*x], float) for x in values]
    return [{"mrr": report.ListValues(x, np.ones(len(x)), bounds)} for x in arrays]


def result_of(gains, values=None, num_seeds=8):
    """A result whose candidates have these gains and estimates by name."""
    trials = [
        report.Trial(name, 0.5, {}, 1.0, (values or {}).get(name, {}), gain, None)
        for name, gain in gains.items()
    ]
    return report.TryOut(trials, "mrr", 9, num_seeds, [], None, None)


def text_of(result):
    """The table as one line, wherever it broke its lines."""
    return " ".join(str(result).split())


@pytest.mark.slow
@pytest.mark.keras2
def test_the_table_says_what_was_tried(data, tmp_path):
    candidates = {
        "softmax": losses.SoftmaxLoss(),
        "smoothed": losses.SoftmaxLoss(label_smoothing=0.1),
        "cosine": (
            losses.GeneralizedCrossEntropyLoss(),
            layers.CosineHead(NUM_CLASSES),
        ),
        "svm": (losses.OrderedWeightedLoss.lee(), layers.CosineHead(NUM_CLASSES)),
        "keras": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    }
    names = ["top_k_accuracy_at_1", "macro_ndcg_at_2"]
    result = try_out(data, candidates, metrics=names, seeds=1, epochs=1, finalists=4)
    assert [trial.name for trial in result.trials] == list(candidates)
    assert (result.num_settings, result.num_seeds, result.monitor) == (2, 1, names[1])
    assert all(list(trial.values) == names for trial in result.trials)
    owns = [[*trial.setting][2:] for trial in result.trials]
    assert owns == [["temperature"], ["label_smoothing"], ["q"], ["scale"], []]
    text = text_of(result)
    assert all(name in text for name in candidates) and text.endswith(result.verdict)
    assert "Each tried 2 settings, judged by" in text and "trained on 1 seed." in text
    assert "Fewer than four" in text and "No verdict: 1 seed cannot" in text
    result.save(tmp_path / "tried.json")
    assert (
        json.loads((tmp_path / "tried.json").read_text())["verdict"] == result.verdict
    )
    assert result.plot(tmp_path / "tried.png").axes
    trial = result.trials[1]
    model = trial.build()
    assert_allclose(
        model.optimizer.learning_rate, trial.setting["learning_rate"], rtol=1e-6
    )
    assert model.loss.label_smoothing == trial.setting["label_smoothing"]
    model.fit(*data[0], verbose=0)
    model.save(tmp_path / "model.keras")


@pytest.mark.slow
def test_budgets_are_equal_and_a_cut_run_resumes(data, tmp_path):
    """Of random losses, alone and in a sum, by a run with less time and fewer seeds."""
    candidates = {"a": losses.WARPLoss(num_trials=2)}
    candidates["b"] = losses.WeightedSumLoss([losses.WARPLoss(num_trials=2)], [1.0])
    whole = try_out(data, candidates, path=tmp_path / "whole")
    _, *lines = (tmp_path / "whole").read_text().splitlines()
    tasks = [json.loads(line)[0] for line in lines]
    for name in candidates:
        assert sum(task.startswith(f"{name}/") for task in tasks) == 2 * 2 + 2
    try_out(data, candidates, path=tmp_path / "cut", minutes=1e-6, seeds=1)
    (tmp_path / "cut").write_text((tmp_path / "cut").read_text()[:-9])  # Within a line.
    resumed = try_out(data, candidates, path=tmp_path / "cut")
    for a, b in zip(whole.trials, resumed.trials, strict=True):
        assert (a.values, a.gains, a.setting) == (b.values, b.gains, b.setting)


def test_a_damaged_line_is_named(data, tmp_path, eagerly):
    """Within the file: a last line without its end is that of a killed run."""
    path = tmp_path / "kept"
    candidates = {"a": losses.SoftmaxLoss()}
    try_out(data, candidates, path=path, **SHORT)
    header, first, *rest = path.read_text().splitlines(keepends=True)
    for damaged in (first[:9] + "\n", "[1]\n"):
        path.write_text("".join([header, damaged, *rest]))
        with refused(r"line 2 of .*kept"):
            try_out(data, candidates, path=path, **SHORT)


def test_a_kept_run_is_never_that_of_other_data_or_candidates(data, tmp_path, eagerly):
    (x, y), test = data
    candidates = {"a": losses.SoftmaxLoss(), "b": losses.RankmaxLoss()}
    weights = y.astype("float32")
    columns = np.eye(NUM_CLASSES, dtype="float32")

    def build_of_two(head):
        inputs = {key: keras.Input((NUM_CLASSES,), name=key) for key in "uv"}
        return keras.Model(inputs, head(keras.layers.Add()([inputs["u"], inputs["v"]])))

    def run_with(train=(x, y, weights), candidates=candidates, **options):
        kept = {"path": tmp_path / "kept", "metrics": ["ndcg_at_5"]}
        options = {**kept, "validation": train, **SHORT, **options}
        return try_out([train] * 2, candidates, **options)

    def assert_another_run(*arguments, **changes):
        with refused("`path` must be new, or a file of this comparison"):
            run_with(*arguments, **changes)

    run_with()
    shifted = np.roll(y, 64)  # By a whole batch: the same batches in another order.
    for changes in (
        {"train": (x, shifted, weights)},
        {"train": (x, weights, y)},
        {"train": (x.astype(np.float64), y, weights)},
        {"train": (x[::-1], y[::-1], weights[::-1])},
        {
            "candidates": {
                "a": losses.RankmaxLoss(margin=2.0),
                "b": losses.RankmaxLoss(),
            }
        },
        {"candidates": dict([*candidates.items()][::-1])},
        {"metrics": [r4c.metrics.NDCG(5, gain="linear")]},  # Of one name.
        {"build": lambda head: build(head)},
        {"validation": [(x, shifted)]},
    ):
        assert_another_run(**changes)
    (tmp_path / "kept").unlink()
    other = x @ columns[::-1]
    run_with(({"u": x, "v": other}, y), build=build_of_two)
    assert_another_run(({"u": other, "v": x}, y), build=build_of_two)
    (tmp_path / "thesis").write_text("precious")
    with refused("`path` must be new"):
        try_out(data, candidates, path=tmp_path / "thesis")
    assert (tmp_path / "thesis").read_text() == "precious"


def test_a_source_is_that_of_what_a_function_was_made_with():
    def with_rate(head, rate=0.1):
        return build(head), rate

    class Builder:
        def __init__(self, rate):
            self.rate = rate

        def __call__(self, head):
            return build(head), self.rate

    def closure(rate):
        return lambda head: (build(head), rate)

    for make in (
        lambda rate: functools.partial(with_rate, rate=rate),
        Builder,
        closure,
    ):
        sources = [source(make(rate)) for rate in (0.1, 0.1, 0.5)]
        assert sources[0] == sources[1] != sources[2]


@pytest.mark.slow
def test_a_prior_after_training_costs_no_training(data, tmp_path):
    adjust = functools.partial(r4c.adjust_logits, class_prior=[0.7, 0.1, 0.1, 0.1])
    candidates = {"a": losses.SoftmaxLoss(), "adjusted": ("a", adjust)}
    options = {
        "metrics": ["mrr", "macro_top_k_accuracy_at_1"],
        "path": tmp_path / "kept",
        "validation": data[1],
        **SHORT,
    }
    result = try_out(data, candidates, **options)
    lines = [
        json.loads(line) for line in (tmp_path / "kept").read_text().splitlines()[1:]
    ]
    assert [key for key, _ in lines] == ["a/0/0", "a/1/0/test of ['a', 'adjusted']"]
    # By hand, with the model of the last training.
    owner = result.trials[1].build.func.__self__
    expected = r4c.evaluate(adjust(owner._model, data[1]), data[1], options["metrics"])
    tested = lines[-1][1]["adjusted"]
    for name in options["metrics"]:
        assert tested[1][name][0] == expected.values[name].tolist()
    assert tested[0][0] == pytest.approx(expected[options["metrics"][1]].value)
    assert tested[0][0] >= lines[-1][1]["a"][0][0]
    assert (
        try_out(data, candidates, **options).trials[1].values == result.trials[1].values
    )


def test_only_the_first_and_the_best_see_the_test_data(data, eagerly):
    """Two names for one loss draw other weights."""
    bad = losses.SoftmaxLoss(class_weight=[0, 0, 0, 1])
    candidates = {"bad": bad, "worse": bad, "good": losses.SoftmaxLoss()}
    result = try_out(data, candidates, settings=1, seeds=1, epochs=4, finalists=1)
    bad, worse, good = result.trials
    assert bad.validation != worse.validation
    assert bad.values and good.values and not worse.values and not worse.gains
    assert f"not tested; validation {worse.validation:.3f}" in text_of(result)
    assert result.plot().axes[0].get_yticklabels()[1].get_text() == "good"


@pytest.mark.slow
def test_a_budget_takes_settings_from_all_and_there_is_a_dozen(data, eagerly):
    candidates = {"a": "softmax_loss", "b": losses.RankmaxLoss()}
    result = try_out(data, candidates, settings=9, seeds=5, minutes=1e-3, epochs=1)
    assert (result.num_settings, result.num_seeds) == (2, 3)
    assert result.unfair is None
    assert "minutes=0.001 held 2 of 9 settings and 3 of 5 seeds." in result.notes
    result = try_out(data, None, metrics=["mrr"], batch_size=200, **SHORT)
    assert len(result.trials) == 12 and result.trials[0].name == "softmax"


def test_a_budget_holds_where_the_test_takes_longest(data, monkeypatch):
    """The test takes longer than a training; the first setting is best and longest."""
    clock = [0.0]

    def train(self, setting, seed, tested=()):
        seconds = 10.0 if setting["learning_rate"] == draw_settings(9)[0, 0] else 0.1
        clock[0] += seconds + 30 * len(tested)
        values = report.ListValues(np.full(40, 0.5), np.ones(40), (0, 1))
        test = dict.fromkeys(self.evaluate.names, values)
        return {self.name: Outcome(Training(seconds, seconds, seconds), test)}

    monkeypatch.setattr(Candidate, "run", train)
    monkeypatch.setattr(run.time, "monotonic", lambda: clock[0])
    candidates = {"a": losses.SoftmaxLoss(), "b": losses.RankmaxLoss()}
    for minutes, seeds, took in (
        (9, 6, None),
        (2, 3, "It took 4.4 minutes: minutes=2 was too"),
    ):
        clock[0] = 0.0
        result = try_out(data, candidates, settings=9, seeds=8, minutes=minutes)
        assert result.num_seeds == seeds and (
            took is not None or clock[0] <= 60 * minutes
        )
        assert any(
            note.startswith(took or "minutes=9 held 9 of 9") for note in result.notes
        )


def test_what_a_budget_affords():
    # A pass costs 10 s, a seed of the test 5 s.
    for left, expected in (
        (1000, (20, 8)),  # All that is wanted.
        (140, (10, 8)),  # Fewer settings: 140 s - 8 * 5 s.
        (95, (8, 3)),  # Not enough settings beside eight seeds, so fewer seeds.
        (12, (0, 3)),
        (-5, (0, 3)),  # Always three seeds: fewer allow no verdict.
    ):
        rest = run.affordable(
            left, pass_cost=10, seed_cost=5, most_passes=20, most_seeds=8, enough=7
        )
        assert rest == expected


def test_the_last_metric_that_rises_chooses():
    assert run._checked_monitor(None, ["mrr", "ndcg_at_5", "mean_rank"]) == "ndcg_at_5"


def test_a_parameter_that_no_factor_changes_keeps_its_default(data, eagerly):
    class Fixed(losses.SoftmaxLoss):
        def __init__(self, label_smoothing=0.1, **kwargs):
            if label_smoothing not in (0.0, 0.1):
                raise ValueError("No other value will do.")
            super().__init__(label_smoothing=label_smoothing, **kwargs)

        @classmethod
        def from_config(cls, config):
            if isinstance(config["label_smoothing"], tf.Variable):
                config = {**config, "label_smoothing": 0.1}
            return cls(**config)

    result = try_out(data, {"fixed": Fixed()}, seeds=1, epochs=1, settings=2)
    assert result.trials[0].setting["label_smoothing"] == 0.1


def test_a_candidate_compiles_once(data):
    traced = []

    class Counted(losses.SoftmaxLoss):
        def compute(self, lists):
            traced.append(self)
            return super().compute(lists)

    try_out(data, {"a": Counted()}, seeds=1, epochs=2, batch_size=32)
    assert len(traced) == 1


@pytest.mark.slow
def test_a_gain_that_is_there_is_found(data):
    bad = losses.SoftmaxLoss(class_weight=[0, 0, 1, 1])
    candidates = {"bad": bad, "good": losses.SoftmaxLoss()}
    result = try_out(data, candidates, epochs=6, seeds=3)
    assert result.best.name == "good" and "Take good" in result.verdict
    gain = result.trials[1].gains[result.monitor]
    assert gain.seeds_ahead == 3 and gain.detectable < gain.difference
    reason = "1 seed cannot tell luck from gain"
    alone = report.TryOut(result.trials, result.monitor, 2, 1, [], None, reason)
    assert alone.best.name == "bad" and "No verdict: 1 seed cannot" in alone.verdict


def test_a_loss_that_is_not_finite_is_named(data, eagerly):
    @keras.utils.register_keras_serializable("tests")
    class Broken(keras.losses.Loss):
        def call(self, labels, scores):
            return tf.reduce_sum(scores, axis=1) * float("nan")

    candidates = {"a": losses.SoftmaxLoss(), "b": Broken()}
    text = text_of(try_out(data, candidates, seeds=3, epochs=1))
    assert "b: no setting had a finite loss" in text and "a: no setting" not in text
    assert "No verdict: no rival had a finite loss." in text


def test_forms_of_labels():
    ids = np.array([[0, 3], [5, -1]])
    columns = np.array([[0.0], [4.0]])
    for labels, number in (
        (ids, 6), (columns, 5), (columns[:, 0], 5), (np.eye(7)[:2], 7),
        (np.eye(7, dtype=int)[:2], 7),
        (np.eye(7, dtype=bool)[:2], 7), (np.array([[0, 3, 3], [1, 0, 2]]), 3),
        (tf.ragged.constant([[1], [2, 8]]), 9),
    ):  # fmt: skip
        part = tf.data.Dataset.from_tensors((np.zeros((2, 1)), labels))
        assert num_outputs([read("train", part, rank=2)]) == number
    # Of sequences, labels of one number for each position are ids.
    part = tf.data.Dataset.from_tensors(
        (np.zeros((2, 3, 1)), np.array([[0, 3, 3], [1, 0, 2]]))
    )
    assert num_outputs([read("train", part, rank=3)]) == 4


RANKS = np.array([[1, 2, 3], [3, 1, 2], [2, 3, 1], [3, 2, 1]])


@pytest.mark.parametrize(
    "train, test, number",
    [
        (RANKS, RANKS, 3),  # As ids, each example would have all classes but 0.
        (RANKS, RANKS.argmax(axis=1), 3),
        (RANKS - 1, RANKS - 1, 3),
        (RANKS, RANKS + 1, 5),  # Three of five classes.
        (RANKS + 1, RANKS, 5),
        (RANKS[:1].repeat(4, 0), np.array([[1, 2, 3], [1, 2, -1]] * 2), 4),
        # In `train` alone a grade occurs twice in a row; the rows of `test` could be
        # class ids.
        (np.array([[0, 4, 4], [1, 0, 2]] * 2), np.array([[0, 4, 1], [1, 0, 2]] * 2), 3),
    ],
)
def test_relevance_or_class_ids(train, test, number):
    """All data tell together: a batch of class ids may look like rankings by chance."""
    for size in (1, 4):
        parts = [(np.ones([4, 2], "float32"), labels) for labels in (train, test)]
        parts = [tf.data.Dataset.from_tensor_slices(x).batch(size) for x in parts]
        assert num_outputs([read("train", part, rank=2) for part in parts]) == number


def test_decay_is_tuned_where_the_optimizer_has_it(data):
    """Labels may be a list."""
    (x, y), test = data

    def sgd(head):
        model = build(head)
        model.compile(keras.optimizers.SGD(0.1))
        return model

    options = {**SHORT, "settings": 4}
    result = try_out(
        ((x, y.tolist()), test), {"a": losses.SoftmaxLoss()}, sgd, **options
    )
    assert [*result.trials[0].setting] == ["learning_rate", "temperature"]
    assert "decay" not in text_of(result)


@pytest.mark.weekly
def test_false_alarms_are_rare(rng):
    """In 30 comparisons of a loss with itself, on other data and weights each time."""
    alarms = 0
    for run_number in range(30):
        x, y = points(rng, 160, spread=1.0)
        data = (x[:80], y[:80]), (x[80:], y[80:])
        names = (f"{run_number}, {name}" for name in "ab")
        result = try_out(
            data, {name: losses.SoftmaxLoss() for name in names}, seeds=3, epochs=2
        )
        alarms += result.best is not result.trials[0]
    assert alarms <= 2


@pytest.mark.slow
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
    shifts = {"first": 0, "a": 1, "b": 3, "c": 0}
    tests = {
        k: seed_results(np.arange(9) % 3 + x, bounds=(0, 9)) for k, x in shifts.items()
    }
    shifted = (np.full((1, 9), shift) for shift in (1, 3, 0))
    raw = [_intervals.mean_difference(x, np.ones(9), 0.95, 9).p_value for x in shifted]
    gains = report.gains(tests)
    expected = [3 * raw[1], max(3 * raw[1], 2 * raw[0]), 1.0]
    assert [gains[name]["mrr"].p_value for name in "bac"] == expected
    assert not gains["first"]


def results_of(gains, spread, rng, lists=400):
    """Tests of a first candidate and rivals with these true gains, in eight seeds."""
    noise = 0.1 * rng.normal(size=(len(gains) + 1, 8, lists)) + 0.5
    noise += spread * rng.normal(size=(len(gains) + 1, 8, 1))
    values = (x + mean for x, mean in zip(noise, [0.0, *gains], strict=True))
    return {name: seed_results(*x) for name, x in zip("abc", values, strict=False)}


def verdict_of(gains, spread, rng):
    tests = results_of(gains, spread, rng)
    values = {name: report.estimates(x) for name, x in tests.items()}
    return result_of(report.gains(tests), values)


def test_three_verdicts(rng):
    assert verdict_of([0.05, 0.0], 0.0, rng).verdict.startswith("Take b: +0.05")
    stay = verdict_of([-0.1, -0.2], 0.0, rng).verdict
    assert stay.startswith("Stay with a: a gain of 0.0") and stay.endswith(
        "would have shown."
    )
    undecided = verdict_of([0.08], 0.1, rng).verdict
    assert (
        undecided.startswith("Undecided: b +0.")
        and " of 8 seeds; more test" in undecided
    )


def test_stay_is_said_only_where_each_interval_leaves_out_its_own_gain():
    def verdict(*gains):
        rivals = {f"b{number}": {"mrr": gain} for number, gain in enumerate(gains)}
        return result_of({"first": {}, **rivals}).verdict

    near = report.Gain(0.02, 0.001, 0.039, 0.07, 0.03, 8)
    worse = report.Gain(-0.1, -0.11, -0.09, 0.01, 0.03, 2)
    assert verdict(worse) == "Stay with first: a gain of 0.030 in mrr would have shown."
    assert verdict(near, worse).startswith("Undecided: b0 +0.020")
    # What shows only gains above .03 has not shown that nothing is gained.
    noisy = report.Gain(-0.1, -0.2, 0.1, 1.0, 0.2, 2)
    undecided = "Undecided: b0 -0.100 (-0.200 to +0.100) in mrr, ahead in 2 of 8 seeds;"
    assert verdict(noisy) == f"{undecided} more test data or seeds would decide."


def test_a_gain_that_no_value_reaches_is_not_detectable():
    """The first candidate failed in one of three seeds, which shows nothing."""
    values = {"first": (0.9, 0.9, 0.1), "b": (0.95, 0.95, 0.95)}
    gains = report.gains(
        {k: seed_results(*([v] * 60 for v in x)) for k, x in values.items()}
    )
    assert gains["b"]["mrr"].detectable == np.inf and gains["b"]["mrr"].p_value > 0.05
    verdict = result_of(gains, num_seeds=3).verdict
    assert (
        verdict.startswith("Undecided: b +0.317") and "ahead in 3 of 3 seeds" in verdict
    )
    assert verdict.endswith(
        "; the test is too small to show any gain that is possible."
    )


def test_a_value_that_is_not_a_number_leaves_the_other_gains(rng):
    tests = results_of([0.05, 0.0], 0.0, rng)
    expected = report.gains(tests)["b"]["mrr"].p_value
    tests["c"][0]["mrr"].values[0] = float("nan")
    gains = report.gains(tests)
    assert (
        gains["b"]["mrr"].p_value == expected < 0.05 and gains["c"]["mrr"].p_value == 1
    )


@pytest.mark.slow
def test_a_detectable_gain_shows_four_times_of_five(rng):
    gains = (report.gains(results_of([0.0], 0.01, rng))["b"]["mrr"] for _ in range(50))
    detectable = np.mean([gain.detectable for gain in gains])
    shown = 0
    for _ in range(300):
        gain = report.gains(results_of([detectable], 0.01, rng))["b"]["mrr"]
        shown += gain.p_value < 0.05 and gain.difference > 0
    assert 0.72 <= shown / 300 <= 0.88  # 3.5 standard errors.


def test_forms_of_a_result(rng, tmp_path):
    result = verdict_of([0.05], 0.0, rng)

    def lines_with(number, name):
        long = f"{name} that is " + "very " * 20
        object.__setattr__(result.trials[number], "name", long)
        lines = str(result).splitlines()
        assert max(map(len, lines)) <= 100
        return lines

    _, _, rival, *_ = lines_with(1, "a rival with a <name>")
    assert rival.startswith("a rival with a <name> that is very")
    head, first, *_ = lines_with(0, "the first\nof a name")
    assert head.endswith("of a …  p") and first.startswith("the first of a name")
    # Weighted means of ones may round to more than one.
    weights = rng.random(97)
    ones = report.ListValues(np.ones(97), weights, (0, 1))
    tests = [{"m$\\frac{": ones}] * 3
    value = report.estimates(tests)["m$\\frac{"]
    assert value.low <= value.value <= value.high == 1
    trial = report.Trial("a$_", np.inf, {}, 1.0, {"m$\\frac{": value}, {}, None)
    odd = report.TryOut(
        [trial], "m$\\frac{", 9, np.int64(3), [], None, "a$_ has no rival"
    )
    odd.plot(tmp_path / "odd.png")
    odd.save(tmp_path / "odd.json")
    text = (tmp_path / "odd.json").read_text()
    # No JSON has infinite numbers, but Python's.
    saved = json.loads(text, parse_constant=pytest.fail)
    assert (saved["num_seeds"], saved["trials"][0]["validation"]) == (3, None)


def test_no_verdict_without_a_fair_comparison():
    values = {name: np.ones(5) for name in "ab"}

    def tests(seeds=8, lists=40):
        return dict.fromkeys("ab", seed_results(*[[0.5] * lists] * seeds))

    assert report.unfair(values, tests(), "mrr") is None
    infinite = np.full(5, -np.inf)
    for of_values, of_tests, reason in (
        (
            {name: x[:1] for name, x in values.items()},
            tests(),
            "one setting each is no tuning",
        ),
        (values, tests(seeds=1), "1 seed cannot tell luck from gain"),
        (values, tests(seeds=2), "2 seeds cannot tell luck from gain"),
        (values, tests(lists=29), "29 test examples cannot tell luck from gain"),
        (values, {"a": tests()["a"]}, "a has no rival"),
        ({**values, "a": infinite}, tests(), "a had no finite loss"),
        ({**values, "b": infinite}, tests(), "no rival had a finite loss"),
    ):
        assert report.unfair(of_values, of_tests, "mrr") == reason


def test_settings_cover_their_ranges():
    settings = np.sort(np.log(draw_settings(10)), axis=0)
    for values, ends in zip(settings.T, np.log(RANGES), strict=True):
        edges = np.linspace(*ends, 11)
        assert (edges[:-1] <= values).all() and (values <= edges[1:]).all()


def test_notes(data):
    settings = [{"learning_rate": 1.0 * i, "weight_decay": 10.0**-i} for i in range(5)]

    def notes(values, length=None, fresh=()):
        means = {name: np.array(x) for name, x in values.items()}
        return [
            *report.notes(dict.fromkeys(values, settings), means, dict(fresh), length)
        ]

    assert notes({"a": range(5)}) == [
        "a: the best learning_rate is the highest that was tried.",
        "a: the best weight_decay is the lowest that was tried.",
    ]
    # The first reaches .9 with some decay, and .2 with little; the other .5.
    vanishes = "b: its gain over a vanishes once a has its best weight decay."
    first, other = [0.3, 0.4, 0.9, 0.2, 0.1], [0.1, 0.4, 0.5, 0.1, 0.1]
    assert notes({"a": first, "b": other}, 1.0) == [vanishes]
    assert notes({"a": first, "b": [0.1, 0.1, 0.15, 0.1, 0.1]}, 1.0) == []
    failed = "a: 1 of 2 fresh seeds had no finite loss, and are tested as they began."
    assert notes({"a": first}, fresh={"a": [0.5, -np.inf]}) == [failed]
    diverged = [-np.inf, -np.inf, 0.2, 0.1, -np.inf]
    assert notes({"a": diverged}) == ["a: 3 of 5 settings had no finite loss."]

    def short(head):
        return sequential((4,), keras.layers.Rescaling(1e-3), head)

    result = try_out(data, {"a": losses.SoftmaxLoss()}, short, data[1], **SHORT)
    assert "encodings have a length of 0.00" in text_of(result)


def test_the_best_at_an_end_is_noted_where_values_rise_to_it(rng):
    """By chance the best of 12 is at an end in one of six, the best of four in half."""

    def share(count):
        settings = [{"learning_rate": float(i)} for i in range(count)]
        noted = 0
        for values in rng.random((1000, count)):
            noted += len([*report.notes({"a": settings}, {"a": values}, {}, None)])
        return noted / 1000

    assert share(12) < 0.08
    assert share(4) < 0.12


def test_rows_that_make_a_table_say_too_much(data):
    def notes(train, validation, test):
        return [*Data(train, validation, test).notes()]

    (x, y), test = data
    test_x, test_y = test
    assert notes((x, y), 0.2, test) == []
    assert notes((x[:150], y[:150]), (x[150:], y[150:]), test) == []
    both = np.concatenate([x, test_x[:7]]), np.concatenate([y, test_y[:7]])
    shared = "{} rows of `test` are in `train` or `validation`."
    for train, validation in ((both, 0.2), ((x, y), both)):
        assert notes(train, validation, test) == [shared.format(7)]
    twice = np.concatenate([test_x, test_x[:3]]), np.concatenate([test_y, test_y[:3]])
    assert notes((x, y), 0.2, twice) == ["3 rows of `test` are repeated."]
    often = np.repeat(x[:1], 5, axis=0), np.repeat(y[:1], 5)
    repeated = "4 rows of `test` are repeated."
    assert notes((x, y), 0.2, often) == [repeated, shared.format(5)]
    one_class = "`validation` has one class, by which nothing can be chosen."
    assert notes((x, y), (x[y == 1], y[y == 1]), test) == [one_class]
    # Of several inputs, all have to be alike; texts and sparse features.
    pairs = {"u": x, "v": x[::-1].copy()}, y
    assert notes(pairs, 0.2, ({"u": x[:9], "v": x[:9]}, y[:9])) == []
    nine = {key: of[:9] for key, of in pairs[0].items()}, y[:9]
    assert notes(pairs, 0.2, nine) == [shared.format(9)]
    texts = np.array([f"text {i}" for i in range(20)]), np.arange(20)
    assert notes(texts, 0.2, (texts[0][3:4], [3])) == [shared.format(1)]
    sparse = tf.sparse.from_dense(x), tf.sparse.from_dense(np.eye(NUM_CLASSES)[y])
    assert notes(sparse, sparse, sparse) == []


@pytest.mark.slow
def test_wrong_labels_are_estimated(rng):
    """By the probabilities of a loss, an argument of which is tuned."""
    pytest.importorskip("cleanlab")
    x, y = points(rng, 600, spread=0.2)
    wrong = (y == 2) & (rng.random(600) < 0.4)
    labels = np.where(wrong, 3, y)
    data = (x[:500], labels[:500]), (x[500:], y[500:])
    result = try_out(
        data,
        {"a": losses.GeneralizedCrossEntropyLoss(0.1)},
        settings=4,
        epochs=15,
        noise="estimate",
        class_names="abcd",
    )
    assert abs(result.noise["share"] - wrong[:500].mean()) < 0.03
    assert result.noise["concentration"] > 0.8
    assert result.noise["confusions"][0][:2] == ("c", "d")
    assert "of the labels look wrong" in text_of(result)


def test_what_is_tuned_keeps_the_rules_of_the_constructor(data, monkeypatch, eagerly):
    """Four times the odds of .4 would be .73; the loss takes less than .5."""
    ranges = (*RANGES[:2], (3.9, 4.0))
    monkeypatch.setattr("rank4class_tf.trials.candidates.RANGES", ranges)
    candidates = {"a": losses.PairwiseLogisticLoss(label_smoothing=0.4)}
    (trial,) = try_out(data, candidates, **SHORT).trials
    assert 0.4 < trial.setting["label_smoothing"] < 0.5
    assert trial.build().loss.label_smoothing == trial.setting["label_smoothing"]


def test_models_with_an_end_and_an_optimizer_of_their_own(normal):
    """Graded lists: one score an item."""

    def ranker():
        score = keras.Sequential([keras.layers.Dense(1), keras.layers.Flatten()])
        inputs = keras.Input((5, 3))
        model = keras.Model(inputs, score(inputs))
        model.compile(keras.optimizers.SGD(0.1))
        return model

    x = normal(60, 5, 3)
    grades = np.clip(np.round(x[:, :, 0]), 0, 2).astype("float32")
    candidates = {"softmax": losses.SoftmaxLoss(), "ndcg": losses.ApproxNDCGLoss()}
    train, validation, test = ((x[i : i + 20], grades[i : i + 20]) for i in (0, 20, 40))
    data = tf.data.Dataset.from_tensor_slices(train).batch(8), test
    result = try_out(
        data, candidates, ranker, validation, metrics=["ndcg_at_3"], **SHORT
    )
    assert set(result.trials[0].values) == {"ndcg_at_3"}
    assert isinstance(result.trials[0].build().optimizer, keras.optimizers.SGD)


def test_sparse_features_are_split_and_trained(data):
    sparse = pytest.importorskip("scipy.sparse")

    def build_sparse(head):
        return keras.Sequential([keras.Input((NUM_CLASSES,), sparse=True), head])

    dense = sparse.random(9, 4, 0.4, random_state=0).toarray()
    rows = np.array([5, 0, 8])
    (selected,) = select((tf.sparse.from_dense(dense),), rows)
    assert_array_equal(tf.sparse.to_dense(selected), dense[rows])
    parts = [(sparse.csr_matrix(x), y) for x, y in data]
    candidates = {"a": (losses.SoftmaxLoss(), layers.SparseDense(NUM_CLASSES))}
    result = try_out(parts, candidates, build_sparse, **{**SHORT, "epochs": 2})
    assert result.trials[0].validation > 0


def test_arguments_are_checked(data):
    (x, y), (test_x, test_y) = data
    loss = losses.SoftmaxLoss()
    of_probabilities = keras.losses.SparseCategoricalCrossentropy()
    batches = tf.data.Dataset.from_tensor_slices(data[0]).batch(8)
    names = x, np.array(["a", "b"])[y % 2]
    shared = keras.layers.Dense(3)
    table = layers.ShardedClassTable(4, 3, optimizers.RowwiseAdagrad())
    in_shards = {"build": lambda: models.ExtremeClassifier(shared, table, 3, None)}

    def with_shared(head):
        return sequential((4,), shared, head)

    def with_schedule(head):
        model = build(head)
        rate = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
        model.compile(keras.optimizers.SGD(rate))
        return model

    options = {
        "build": build,
        "train": data[0],
        "validation": 0.2,
        "test": data[1],
        "candidates": {"a": loss},
        "verbose": False,
    }
    for changes, message in (
        ({"settings": 0}, "`settings` must be a positive integer"),
        ({"monitor": "mrr"}, "`monitor` must be one of"),
        (
            {"monitor": "mean_rank", "metrics": ["mean_rank"]},
            "`metrics` must have one that is hi",
        ),
        (
            {"build": lambda head: None},
            "`build` must return a Keras model. Received: NoneType",
        ),
        ({"validation": 0.001}, "`validation` must leave at least one of 200 examples"),
        ({"test": batches.repeat()}, "`test` must end: call its `take`"),
        ({"noise": True}, "`noise` must be one of"),
        ({"candidates": {}}, "`candidates` must be a dict with at least one"),
        ({"minutes": 0}, "`minutes` must be"),
        ({"patience": 0}, "`patience` must be a positive integer"),
        ({"candidates": {"a": of_probabilities}}, "`candidates` must take scores"),
        ({"train": names}, "`train` must have labels that are numbers"),
        ({"train": batches.repeat()}, "`train` must end: call its `take`"),
        ({"build": with_shared}, "`build` must make new layers at each call"),
        (in_shards, "`build` must use no `ShardedClassTable`"),
        ({"train": batches}, "`validation` must be a share in"),
        ({"validation": 1.2}, "`validation` must be a share in"),
        (
            {"test": (test_x[:0], test_y[:0])},
            "`test` must have at least one batch",
        ),
        ({"test": (test_x[:, :3], test_y)}, "incompatible with the layer"),
        ({"test": iter(batches)}, "`test` is read many times: it must be arrays or a"),
        (
            {"test": {"a": loss}},
            "only `validation` may be a share.*Received: dict",
        ),
        ({"test": 0.2}, "only `validation` may be a share .* Received: float"),
        (
            {"test": (test_x + np.nan, test_y)},
            "`test` must have finite features",
        ),
        ({"class_names": ["a"]}, "`class_names` must have a name for each of"),
        (
            {"test": batches.shuffle(200)},
            "`test` must give its examples in the same order",
        ),
        (
            {"candidates": {"a": losses.SoftmaxLoss}},
            "`candidates` must map names to a loss",
        ),
        (
            {"candidates": {1: loss}},
            "`candidates` must map names to a loss",
        ),
        (
            {"candidates": {"a": ("b", len)}},
            r"`candidates\['a'\]\[0\]` must be one of \[\]",
        ),
        (
            {"train": (x[:0], y[:0])},
            "`train` must have at least one batch",
        ),
        (
            {"candidates": {"a": lambda y, x: x}},
            "`candidates` must map names to a loss",
        ),
        (
            {"validation": (test_x, np.full(40, -1))},
            "`validation` must have a positive label",
        ),
        (
            {"validation": (*data[1], np.zeros(40))},
            "`validation` must have a positive label",
        ),
        (
            {"build": with_schedule},
            "`build` must compile with a learning rate that is a number.*Exponential",
        ),
    ):
        with refused(message):
            r4c.try_out(**{**options, **changes})


def test_ids_as_wide_as_the_classes_raise():
    """Losses would read them as relevance: 0 a wrong class, 2 a right one."""
    labels = np.array([[0, 2, -1], [1, -1, -1], [2, 0, -1]])
    contents = [read("train", (np.ones((3, 2)), labels), rank=2)]
    with refused(r"must not have a column for each class"):
        num_outputs(contents)
    wider = np.pad(labels, [(0, 0), (0, 1)], constant_values=-1)
    assert num_outputs([read("train", (np.ones((3, 2)), wider), rank=2)]) == 3
