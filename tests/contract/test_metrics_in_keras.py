"""What holds for every metric inside Keras's own loops, many of them in one model."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from tensorflow import keras

import rank4class_tf as r4c
from rank4class_tf import _keras

from ..small_models import linear
from .tables import METRICS, REPRESENTATIVES

pytestmark = [pytest.mark.keras2, pytest.mark.slow]

N = 6

FEW = [case for case in METRICS if case.name in REPRESENTATIVES]


@pytest.fixture
def features(normal):
    return normal(7, 3)


@pytest.fixture
def labels(rng):
    return rng.integers(0, N, 7)


def compiled_model(cases, **compile_args):
    model = linear(3, N)
    metrics = [case.make(name=case.name) for case in cases]
    metrics.append(r4c.metrics.NDCG(k=[1, 3], name="list"))
    model.compile("sgd", r4c.losses.SoftmaxLoss(), metrics=metrics, **compile_args)
    return model


@pytest.mark.parametrize("mode", ["graph", "xla", "eager", "mixed"])
def test_fit_and_evaluate(features, labels, mode, request):
    if mode == "mixed":
        request.getfixturevalue("mixed_precision")
    all_of_them = METRICS if _keras.KERAS_3 else FEW
    cases = {"graph": all_of_them, "xla": FEW[:2], "eager": FEW, "mixed": FEW}[mode]
    model = compiled_model(
        cases, jit_compile=mode == "xla", run_eagerly=mode == "eager"
    )
    if mode == "xla":  # Compiled anew for each batch size.
        features = features[:4]
        labels = labels[:4]
    options = {"batch_size": 4, "verbose": 0}
    history = model.fit(
        features, labels, validation_data=(features, labels), **options
    ).history
    assert {case.name for case in cases} | {"val_list_at_3"} <= set(history)
    logs = model.evaluate(features, labels, return_dict=True, **options)
    scores = model.predict(features, verbose=0)
    for case in cases:
        assert_allclose(logs[case.name], case.make()(labels, scores), rtol=1e-6)
    for k in (1, 3):
        metric = r4c.metrics.NDCG(k=k)
        assert_allclose(logs[f"list_at_{k}"], metric(labels, scores), rtol=1e-6)


@pytest.mark.skipif(not _keras.KERAS_3, reason="Keras 2 takes less for better.")
def test_callbacks_know_what_is_better(features, labels):
    model = compiled_model(FEW)
    stops = [keras.callbacks.EarlyStopping(f"val_{case.name}") for case in FEW]
    model.fit(
        features, labels, verbose=0, validation_data=(features, labels), callbacks=stops
    )
    for case, stop in zip(FEW, stops, strict=True):
        falls = isinstance(case.make(), (r4c.metrics.MeanRank, r4c.metrics.MedianRank))
        assert stop.monitor_op(0, 1) == falls, case.name


def test_excluded_items_of_a_model(features, labels):
    model = compiled_model(FEW)
    seen = np.stack(
        [(labels + 1) % N, np.where(labels > 2, (labels + 2) % N, -1)], axis=1
    )
    ids = keras.Input((2,), dtype="int32")
    inputs = keras.Input((3,))
    evaluated = keras.Model(
        [inputs, ids], r4c.layers.ExcludeItems()([model(inputs), ids])
    )
    metrics = [r4c.metrics.MRR(), r4c.metrics.PrecisionAtK([1, 3])]
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    evaluated.compile(loss=loss, metrics=metrics)
    logs = evaluated.evaluate([features, seen], labels, verbose=0, return_dict=True)
    for metric in (
        r4c.metrics.MRR(),
        r4c.metrics.PrecisionAtK(1),
        r4c.metrics.PrecisionAtK(3),
    ):
        metric.update_state(labels, model.predict(features, verbose=0), exclude=seen)
        assert_allclose(logs[metric.name], metric.result(), rtol=1e-6)
