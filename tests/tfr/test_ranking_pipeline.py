"""RankingPipeline trains, evaluates, exports, resumes; all given by name or object."""

import contextlib
import json
import os

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from tensorflow import keras

import rank4class_tf as r4c
from rank4class_tf import tfr
from rank4class_tf.data import elwc
from tests import two_processes
from tests.refused import refused
from tests.tfr import pipelines
from tests.tfr.pipelines import _tfr, history

pytestmark = pytest.mark.keras2


@pytest.fixture
def folder(tmp_path):
    pipelines.write_files(str(tmp_path))
    return str(tmp_path)


def make_pipeline(
    folder,
    tasks=None,
    dataset=None,
    metrics=("ndcg_at_1", "ndcg"),
    of_pipeline=None,
    **changes,
):
    hparams = pipelines.hparams(folder, **changes)
    options = {"metrics": metrics} if of_pipeline is None else of_pipeline
    dataset = dataset or pipelines.dataset_builder(folder)
    return tfr.RankingPipeline(
        pipelines.ModelBuilder(tasks), dataset, hparams, **options
    )


def of_two_tasks(folder):
    specs = pipelines.CONTEXT_SPEC, pipelines.EXAMPLE_SPEC, pipelines.MASK
    labels = dict.fromkeys(["click", "buy"], pipelines.LABEL_SPEC)
    hparams = pipelines.dataset_hparams(folder)
    return _tfr.keras.pipeline.MultiLabelDatasetBuilder(*specs, labels, hparams)


def best_by(metric):
    direction = {"best_exporter_metric_higher_better": True}
    return {"export_best_model": True, "best_exporter_metric": metric, **direction}


def test_learns_by_the_steps_of_plain_keras(folder):
    """The loss of the first step, from the pipeline and by hand."""
    pipeline = make_pipeline(
        folder,
        loss="rankmax_loss:0.7,tfr.softmax_loss:0.3",
        steps_per_epoch=1,
        num_epochs=9,
    )
    dataset = pipelines.dataset_builder(folder).build_valid_dataset()
    pipeline._dataset_builder.build_train_dataset = lambda: dataset
    keras.utils.set_random_seed(3)
    logs = history(pipeline)
    names = {"loss", "metric/ndcg_at_1", "metric/ndcg"}
    assert set(logs[0]) == names | {f"val_{name}" for name in names}
    assert logs[-1]["val_metric/ndcg_at_1"] > max(0.4, logs[0]["val_metric/ndcg_at_1"])

    keras.utils.set_random_seed(3)
    features, labels = next(iter(dataset))
    scores = pipelines.ModelBuilder().build()(features).numpy().astype(np.float64)
    positive = (scores * labels.numpy()).sum(axis=1, keepdims=True)
    rankmax = np.log(np.maximum(scores - positive + 1, 0).sum(axis=1)).mean()
    softmax = (np.log(np.exp(scores).sum(axis=1)) - positive[:, 0]).mean()
    assert_allclose(logs[0]["loss"], 0.7 * rankmax + 0.3 * softmax, rtol=1e-5)


def test_objects_and_schedules(folder):
    """With lists of any length."""
    optimizer = keras.optimizers.Adagrad(
        keras.optimizers.schedules.ExponentialDecay(0.2, 6, 0.5)
    )
    several = [r4c.losses.SoftmaxLoss(), r4c.losses.RankmaxLoss(margin=2.0)]
    of_weights = r4c.losses.WeightedSumLoss(several, [0.5, 0.5])
    macro = r4c.metrics.MacroAverage(r4c.metrics.TopKAccuracy(1), 5)
    pipeline = make_pipeline(
        folder,
        loss=[(of_weights, 0.5), (_tfr.keras.losses.SoftmaxLoss(), 1.0)],
        optimizer=optimizer,
        learning_rate=None,
        metrics=[
            r4c.metrics.NDCG(3),
            _tfr.keras.metrics.MRRMetric(name="mrr", topn=2),
            macro,
        ],
        dataset=pipelines.dataset_builder(folder, list_size=None),
    )
    names = {"metric/ndcg_at_3", "val_metric/mrr", "metric/macro_top_k_accuracy_at_1"}
    assert set(history(pipeline)[0]) >= names
    assert isinstance(pipeline._optimizer, keras.optimizers.Adagrad)
    assert int(pipeline._optimizer.iterations) == 18
    # That of the last of 18 steps.
    assert_allclose(pipeline._optimizer.learning_rate, 0.2 * 0.5 ** (17 / 6), rtol=1e-6)
    assert int(optimizer.iterations) == 0  # A copy was used.


def test_schedule_with_an_optimizer_by_name(folder):
    schedule = keras.optimizers.schedules.ExponentialDecay(0.2, 6, 0.5)
    pipeline = make_pipeline(folder, learning_rate=schedule, num_epochs=1)
    history(pipeline)
    # By name, TF-Ranking's optimisers are Keras's older ones, which hand out the
    # schedule itself.
    rate = pipeline._optimizer.learning_rate(pipeline._optimizer.iterations)
    assert_allclose(rate, 0.2 * 0.5, rtol=1e-6)
    for wrong in (
        {"learning_rate": schedule},
        {"optimizer": keras.optimizers.SGD(schedule)},
    ):
        with refused("`automatic_reduce_lr` needs a number"):
            make_pipeline(folder, automatic_reduce_lr=True, **wrong)
    make_pipeline(folder, optimizer=keras.optimizers.SGD(0.1), automatic_reduce_lr=True)


def test_weights_of_items_train_as_in_tf_ranking(folder):
    weight_spec = ("weight", tf.io.FixedLenFeature([1], tf.float32, default_value=0.0))
    rows = pipelines.make_lists(32)
    for index, (_, examples) in enumerate(rows):
        for place, example in enumerate(examples):
            example["weight"] = 0.2 + (3 * index + place) % 7
    elwc.write(rows, os.path.join(folder, "weighted"))
    pattern = os.path.join(folder, "weighted*")
    dataset = pipelines.dataset_builder(
        folder,
        sample_weight_spec=weight_spec,
        train_input_pattern=pattern,
        valid_input_pattern=pattern,
    )
    changes = {"dataset": dataset, "use_weighted_metrics": True, "optimizer": "adam"}
    loss, metrics = "pairwise_logistic_loss", ["ndcg_at_3", "mrr"]
    ours = history(make_pipeline(folder, loss=loss, metrics=metrics, **changes))
    changes |= {"model_dir": os.path.join(folder, "theirs"), "loss": f"tfr.{loss}"}
    theirs = history(
        make_pipeline(folder, metrics=["tfr.ndcg_at_3", "tfr.mrr"], **changes)
    )
    # Adam's steps don't change with the factor between the two losses.
    for log, expected in zip(ours, theirs, strict=True):
        for name in ("val_metric/ndcg_at_3", "val_weighted_metric/ndcg_at_3"):
            assert log[name] == pytest.approx(expected[name], abs=1e-4)
        assert log["val_weighted_metric/mrr"] != log["val_metric/mrr"]


def test_multi_task(folder):
    options = {
        "tasks": ["click", "buy"],
        "dataset": of_two_tasks(folder),
        "loss": {
            "click": "rankmax_loss:0.5,softmax_loss",
            "buy": "tfr.pairwise_logistic_loss",
        },
        "loss_weights": {"click": 1.0, "buy": 2.0},
    }
    metrics = {"click": ["ndcg_at_1"], "buy": ["tfr.mrr"]}
    pipeline = make_pipeline(folder, metrics=metrics, **options, **best_by("buy/mrr"))
    log = history(pipeline, exports=True)[-1]
    assert {"val_click_metric/ndcg_at_1", "val_buy_metric/mrr", "click_loss"} <= set(
        log
    )
    assert_allclose(log["loss"], log["click_loss"] + 2 * log["buy_loss"], rtol=1e-5)
    assert os.path.isdir(
        os.path.join(folder, "model", "export", "best_model_by_metric")
    )
    with refused(r"for the tasks \['buy', 'click'\]"):
        make_pipeline(folder, metrics={"click": ["ndcg"]}, **options).build_metrics()


def test_outputs_of_other_names_raise_before_training(folder):
    """Keras logs `restore_list_metric/ndcg_at_1`, so nothing could be monitored."""

    class Builder(pipelines.ModelBuilder):
        def build(self):
            model = super().build()
            names = {task: f"restore_list_{task}" for task in model.output}
            outputs = {
                task: keras.layers.Lambda(lambda x: x, name=name)(model.output[task])
                for task, name in names.items()
            }
            return keras.Model(model.input, outputs)

    loss = dict.fromkeys(["click", "buy"], "softmax_loss")
    hparams = pipelines.hparams(folder, loss=loss, **best_by("buy/ndcg"))
    dataset = of_two_tasks(folder)
    pipeline = tfr.RankingPipeline(Builder([*loss]), dataset, hparams, metrics=["ndcg"])
    with refused(r"\['buy', 'click'\], where .*'restore_list_buy'"):
        pipeline.train_and_validate()


def test_exports_the_best_model(folder):
    """With a rate that destroys the model from epoch two on, the first is best."""
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([6], [0.1, -10.0])
    dataset = pipelines.dataset_builder(folder)
    logs = history(
        make_pipeline(
            folder,
            dataset=dataset,
            learning_rate=schedule,
            optimizer="sgd",
            **best_by("ndcg_at_1"),
        ),
        exports=True,
    )
    values = [log["val_metric/ndcg_at_1"] for log in logs]
    assert np.argmax(values) == 0 and values[0] > values[2]
    dataset = dataset.build_valid_dataset().take(4)
    for name, value in (
        ("best_model_by_metric", values[0]),
        ("latest_model", values[2]),
    ):
        model = keras.models.load_model(os.path.join(folder, "model", "export", name))
        found = model.evaluate(dataset, verbose=0, return_dict=True)["metric/ndcg_at_1"]
        assert found == pytest.approx(value)


def test_tensorboard_is_optional(folder, monkeypatch):
    pipeline = make_pipeline(folder, num_epochs=1)
    pipeline._tensorboard = False
    assert not any(
        isinstance(c, keras.callbacks.TensorBoard) for c in pipeline.build_callbacks()
    )
    history(make_pipeline(folder, num_epochs=1))
    assert os.path.exists(os.path.join(folder, "model", "train"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pip install tensorboard"):
        make_pipeline(folder, of_pipeline={"tensorboard": True})


def worse_by(metric, higher_better):
    direction = {"best_exporter_metric_higher_better": higher_better}
    return {
        "metrics": ["ndcg_at_1", "mean_rank"],
        "best_exporter_metric": metric,
        **direction,
    }


@pytest.mark.parametrize(
    "changes, error, message",
    [
        (
            {"loss": "spearman_loss"},
            ValueError,
            r"rankmax_loss.*tfr\.list_mle_loss.*'spearman_lo",
        ),
        ({"loss": "softmax_loss:much"}, ValueError, "'softmax_loss:much'"),
        ({"loss": 3}, TypeError, "Received: 3"),
        ({"loss": []}, ValueError, "at least one"),
        (
            {"loss": "softmax_loss:-1,rankmax_loss"},
            ValueError,
            "`weights` must be a finite number",
        ),
        ({"loss": "softmax_loss:nan"}, ValueError, "`weights` must be a finite number"),
        (
            {"loss": [("softmax_loss", "x")]},
            ValueError,
            "`weights` must be .*weights='x'",
        ),
        ({"loss": [("softmax_loss",)]}, ValueError, "`loss` must hold pairs"),
        (
            {"metrics": ["nonsense_at_3"]},
            ValueError,
            r"average_precision.*tfr\.mrr.*'nonsense'",
        ),
        (
            {"metrics": ["spearman_correlation"]},
            ValueError,
            "must name one of: average_precision",
        ),
        ({"metrics": ["tfr.mrr_at_0"]}, ValueError, "'tfr.mrr_at_0'"),
        ({"metrics": [3]}, TypeError, "Received: 3"),
        ({"metrics": "ndcg_at_5"}, TypeError, "`metrics` must be a list.*'ndcg_at_5'"),
        (
            {"metrics": ["ndcg", "tfr.ndcg"]},
            ValueError,
            "`metrics` must have different names",
        ),
        (
            {"of_pipeline": {"weighted_metrics": "mrr"}},
            TypeError,
            "`weighted_metrics` must be a l",
        ),
        (
            {"best_exporter_metric": "mrr"},
            ValueError,
            "loss, ndcg_at_1, .*. Received: 'mrr'",
        ),
        (worse_by("ndcg_at_1", False), ValueError, "must be True for 'ndcg_at_1'"),
        (worse_by("mean_rank", True), ValueError, "must be False for 'mean_rank'"),
        (worse_by("loss", True), ValueError, "must be False for 'loss'"),
    ],
)
def test_what_is_wrong_shows_when_it_is_built(folder, changes, error, message):
    with pytest.raises(error, match=message):
        make_pipeline(folder, **changes)


def test_the_best_model_by_each_name_of_a_metric(folder):
    several = r4c.metrics.NDCG([1, 5], name="list")
    metrics = [
        "top_k_accuracy_at_1",
        "tfr.mrr_at_3",
        several,
        r4c.metrics.TopKAccuracy([2, 3]),
    ]
    metrics.append(r4c.metrics.MacroAverage(r4c.metrics.NDCG([1, 2], name="list"), 8))

    def by(wanted):
        return make_pipeline(folder, metrics=metrics, num_epochs=1, **best_by(wanted))

    logs = history(by("macro_list_at_2"), exports=True)[-1]
    assert os.path.isdir(
        os.path.join(folder, "model", "export", "best_model_by_metric")
    )
    names = (
        "top_k_accuracy_at_1 tfr.mrr_at_3 list_at_5 macro_list_at_2 top_k_accuracy_at_3"
    )
    for wanted in names.split():
        key = f"val_metric/{wanted.removeprefix('tfr.')}"
        assert by(wanted)._monitored == key and key in logs


def test_a_users_own_pipeline(folder):
    class Plain(tfr.PipelineMixin, _tfr.keras.pipeline.SimplePipeline):
        pass

    class Mine(tfr.RankingPipeline):
        def build_metrics(self):
            return [*super().build_metrics(), keras.metrics.Mean("metric/mine")]

    given = pipelines.ModelBuilder(), pipelines.dataset_builder(folder)
    log = history(Plain(*given, pipelines.hparams(folder)))[0]
    assert set(log) >= {f"metric/ndcg_at_{k}" for k in (1, 5, 10)}
    pipeline = Mine(*given, pipelines.hparams(folder, best_exporter_metric="mine"))
    assert pipeline._monitored == "val_metric/mine"
    named = keras.metrics.MeanSquaredError(name="loss")
    pipeline = make_pipeline(folder, metrics=[named], best_exporter_metric="loss")
    assert pipeline._monitored == "val_loss"


def test_resumes_where_it_was_interrupted(folder):
    def run(stop_after):
        pipeline = make_pipeline(folder)
        epochs = []

        def record(epoch, logs):
            epochs.append(epoch)
            if epoch == stop_after:
                raise KeyboardInterrupt

        recorder = keras.callbacks.LambdaCallback(on_epoch_end=record)
        callbacks = pipeline.build_callbacks
        pipeline.build_callbacks = lambda: [*callbacks(), recorder]
        with contextlib.suppress(KeyboardInterrupt):
            pipeline.train_and_validate()
        return epochs, int(pipeline._optimizer.iterations)

    assert run(stop_after=1)[0] == [0, 1]
    assert run(stop_after=None) == ([2], 18)  # Steps of all three epochs.


def test_exported_model(folder, tmp_path):
    pipeline = make_pipeline(folder, of_pipeline={}, loss="rankmax_loss", num_epochs=1)
    pipeline.train_and_validate()
    lists = zip(pipelines.make_lists(3), [5, 2, 4], strict=True)
    rows = [(context, examples[:size]) for (context, examples), size in lists]
    elwc.write(rows, tmp_path / "request")
    specs = pipelines.CONTEXT_SPEC, pipelines.EXAMPLE_SPEC
    (inputs,) = elwc.read(tmp_path / "request*", *specs, batch_size=3)
    serialized = tf.constant([elwc.serialize(*row) for row in rows])
    export = os.path.join(folder, "model", "export", "latest_model")
    call = tf.saved_model.load(export).signatures
    scores = keras.models.load_model(export).predict(inputs, verbose=0)
    of_serialized = call[tf.saved_model.PREDICT_METHOD_NAME](serialized)
    for found in (of_serialized, call["predict_tensors"](**inputs)):
        assert_allclose(found["outputs"], scores, rtol=1e-6)
    masked = np.where(inputs["mask"], scores, -np.inf)
    for k, width in ((3, 3), (99, 5)):
        order = np.argsort(-masked, axis=1)[:, :width]
        best = np.take_along_axis(masked, order, axis=1)
        of_k = {"k": tf.constant(k)}
        of_serialized = call["top_k"](
            **{tf.saved_model.PREDICT_INPUTS: serialized}, **of_k
        )
        for found in (of_serialized, call["top_k_tensors"](**inputs, **of_k)):
            assert_array_equal(found["indices"], np.where(best > -np.inf, order, -1))
            assert_allclose(found["scores"], best, rtol=1e-6)
            assert (
                found["indices"].numpy()[1, 2:] == -1
            ).all()  # The list has two classes.


def test_several_tasks():
    model = pipelines.ModelBuilder(["click", "buy"]).build()
    specs = pipelines.CONTEXT_SPEC, pipelines.EXAMPLE_SPEC
    signatures = tfr.ServingSignatures(model, *specs, pipelines.MASK)()
    serialized = tf.constant([elwc.serialize(*row) for row in pipelines.make_lists(2)])
    best = signatures["top_k"](serialized, tf.constant(1))
    scores = signatures[tf.saved_model.PREDICT_METHOD_NAME](serialized)
    assert set(best) == {"click_indices", "click_scores", "buy_indices", "buy_scores"}
    for task in ("click", "buy"):
        assert_array_equal(best[f"{task}_scores"][:, 0], scores[task].numpy().max(1))
        assert_array_equal(
            best[f"{task}_indices"][:, 0], scores[task].numpy().argmax(1)
        )


def test_ragged_models_have_the_serialized_signatures():
    spec = {"words": tf.io.RaggedFeature(tf.int64)}
    words = keras.Input((None, None), dtype=tf.int64, ragged=True, name="words")
    mask = keras.Input((None,), dtype=tf.bool, name="mask")
    total = tf.reduce_sum(words, axis=-1).to_tensor(shape=tf.shape(mask))
    model = keras.Model({"words": words, "mask": mask}, tf.cast(total, tf.float32))
    signatures = tfr.ServingSignatures(model, {}, spec, "mask")()
    assert "top_k" in signatures and "predict_tensors" not in signatures
    serialized = elwc.serialize({}, [{"words": [1, 2]}, {"words": [7]}])
    best = signatures["top_k"](tf.constant([serialized]), tf.constant(2))
    assert_array_equal(best["indices"], [[1, 0]])
    assert_array_equal(best["scores"], [[7.0, 3.0]])


def run(folder, **changes):
    """Trains on the validation lists, which are not shuffled; returns the logs."""
    builder = pipelines.dataset_builder(folder)
    builder.build_train_dataset = builder.build_valid_dataset
    changes |= {"loss": "rankmax_loss:0.5,softmax_loss:0.5", "optimizer": "sgd"}
    changes |= {"steps_per_epoch": 4, "num_epochs": 2, "metrics": ["ndcg", "tfr.mrr"]}
    pipeline = make_pipeline(folder, dataset=builder, **changes)
    keras.utils.set_random_seed(3)
    return history(pipeline, exports=True)


@pytest.mark.slow
def test_two_devices_train_as_one(folder, tmp_path, monkeypatch, two_devices):
    one = run(folder)
    monkeypatch.setattr(tf.distribute, "MirroredStrategy", lambda: two_devices)
    two = run(
        folder,
        model_dir=str(tmp_path / "two"),
        strategy="MirroredStrategy",
        export_best_model=True,
    )
    for first, second in zip(one, two, strict=True):
        assert first == pytest.approx(second, rel=1e-5)
    export = tmp_path / "two" / "export"
    names = sorted(path.name for path in export.iterdir())
    assert names == ["best_model_by_metric", "latest_model"]
    model = keras.models.load_model(export / "latest_model")
    features, _ = next(iter(pipelines.dataset_builder(folder).build_valid_dataset()))
    assert np.isfinite(model.predict(features, verbose=0)).all()


_WORKER = """
import json, os, pathlib, sys
from tests.tfr import test_ranking_pipeline
logs = test_ranking_pipeline.run(sys.argv[1], strategy="MultiWorkerMirroredStrategy")
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
pathlib.Path(sys.argv[1], f"result{index}").write_text(json.dumps(logs))
"""


@pytest.mark.slow
def test_two_processes_train_together(folder, tmp_path):
    two_processes.run(tmp_path, "-c", _WORKER, folder)
    first, second = (
        json.loads((tmp_path / f"result{i}").read_text()) for i in range(2)
    )
    assert len(first) == 2 and first == second  # Both see the result of all lists.
    assert first[1]["loss"] < first[0]["loss"]
    # Without a task of the type `chief`, TF-Ranking gives each worker a folder.
    assert (tmp_path / "model/workertemp_0/export/latest_model/saved_model.pb").exists()
