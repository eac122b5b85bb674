"""Every public object has a row in contract tables, a name, and argument checks."""

import inspect
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf import _registry, layers, losses, metrics

from ..refused import refused
from . import rows

# What finds an object by its name.
GET: dict[str, Callable] = {
    "loss": losses.get,
    "metric": metrics.get,
    "head": layers.get_head,
    "interaction": layers.get_interaction,
    "sorter": layers.get_sorter,
}

# What holds for its kind holds for none of these, so that they have tests of their own.
WITHOUT_A_ROW = {
    "ExpectedCalibrationError": "It is of probabilities, not of ranks.",
    "ForwardCorrectionLoss": "Its matrix names the classes, which cannot be exchanged.",
    "MacroAverage": "It is what its metric is.",
    "PropensityScoredNDCG": (
        "Its propensities name the classes, which cannot be exchanged."
    ),
    "PropensityScoredPrecisionAtK": "The same.",
    "SampledScores": "It scores some of the classes.",
    "WeightedSumLoss": "It is what its losses are.",
}


@pytest.mark.parametrize("kind", rows.MAKERS)
def test_every_object_has_a_row(kind):
    made = {type(make()) for make in rows.MAKERS[kind]}
    missing = {cls.__name__ for cls in rows.concrete(kind) if cls not in made}
    missing -= WITHOUT_A_ROW.keys()
    assert not missing, "They need a row in tests/contract/tables.py or head_table.py."


@pytest.mark.parametrize("kind", GET)
def test_every_object_has_its_name(kind):
    for cls in rows.concrete(kind):
        if cls is not metrics.MacroAverage:  # It takes a metric.
            assert type(GET[kind](rows.name_of(cls, kind), **rows.needed(cls))) is cls


@pytest.mark.parametrize("kind", GET.keys() - {"sorter"})
def test_what_has_a_name_is_public(kind):
    assert set(_registry.registered_classes(kind, object).values()) <= set(
        rows.public_classes()
    )


class Unknown:
    """What no argument may be."""


# What Keras checks, with errors of its own.
OF_KERAS = ("autocast", "dtype", "learning_rate", "name", "trainable")
OF_KERAS_BY_ENDING = ("constraint", "initializer", "regularizer")

# What an annotation rules out, besides what no argument may be.
WRONG = {
    "bool": ["false", 2, np.array([True])],
    "float": [float("nan"), "1", True],
    "int": [1.5, -1, "1", True],
    "str": [3],
}


def parameters_of(cls):
    for name, parameter in list(inspect.signature(cls.__init__).parameters.items())[1:]:
        named = parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        if named and name not in OF_KERAS and not name.endswith(OF_KERAS_BY_ENDING):
            yield parameter


def wrong_values(parameter):
    annotation = parameter.annotation
    names = getattr(annotation, "__name__", str(annotation)).split(" | ")
    known = [WRONG[name] for name in WRONG if name in names]
    # An int is a number too, and a string may stand beside it.
    both = len(known) > 1
    values = [Unknown(), *([] if both or not known else known[0])]
    if parameter.name == "ignore_class":  # Any integer may be padding.
        values.remove(-1)
    return values


@pytest.mark.parametrize("cls", rows.public_classes())
def test_an_argument_that_is_wrong_is_named(cls):
    cls(**rows.needed(cls))
    for parameter in parameters_of(cls):
        for value in wrong_values(parameter):
            with pytest.raises((TypeError, ValueError), match=parameter.name):
                cls(**{**rows.needed(cls), parameter.name: value})
                pytest.fail(f"{parameter.name}={value!r} passes")


def test_metrics_by_the_names_of_their_results():
    for name, cls, k in (
        ("top_k_accuracy_at_5", metrics.TopKAccuracy, 5),
        ("ndcg", metrics.NDCG, None),
        ("bpref_at_5", metrics.BPref, 5),
    ):
        metric = metrics.get(name)
        assert (type(metric), metric.name, metric.k) == (cls, name, k)
    assert metrics.get("hit_rate_at_2").name == "top_k_accuracy_at_2"
    assert metrics.get("hits_at_5").k == 5
    cutoffs = [metrics.get("accuracy").k, metrics.get("accuracy_at_5").k]
    assert [*cutoffs, metrics.get("accuracy", k=3).k] == [1, 5, 3]
    for name, message in (
        ("top_k_accuracy_at_0", "`k` must be a positive integer"),
        ("nonsense_at_3", "Received: 'nonsense_at_3'|Received: 'nonsense'"),
        ("ndcg@5", "cutoff as in 'ndcg_at_5'. Received: 'ndcg@5'"),
        ("hits", "'hits_at_5'"),
    ):
        with refused(message):
            metrics.get(name)


def test_other_arguments_than_those_of_the_name_raise():
    assert losses.get("ordered_weighted_loss", kind="binary").kind == "binary"
    for name in ("spearman_loss", "rankmax_loss", "gumbel_approx_ndcg_loss"):
        with pytest.raises(TypeError, match="unexpected keyword argument 'foo'"):
            losses.get(name, foo=1)
    with pytest.raises(TypeError, match="missing .* 'num_classes'"):
        metrics.get("mean_average_precision")
    with pytest.raises(TypeError, match="unexpected keyword argument 'k'"):
        metrics.get("mean_rank_at_5")
    with refused("`k` must not be given with a name that has a cutoff"):
        metrics.get("ndcg_at_5", k=3)


def test_objects_of_users_pass_through():
    class Loss(losses.RankingLoss):
        def compute(self, lists):
            return tf.zeros_like(lists.relevance[:, 0])

    loss = Loss()
    metric = metrics.MacroAverage(metrics.MRR(), 6)
    assert losses.get(loss) is loss
    assert metrics.get(metric) is metric


@pytest.mark.parametrize(
    "get, known, name, meant",
    [
        (losses.get, "rankmax_loss", "aprox_ndcg_loss", "approx_ndcg_loss"),
        (metrics.get, "top_k_accuracy", "hitrate_at_5", "hit_rate"),
        (layers.get_head, "latent_cross", "latentcross", "latent_cross"),
        (layers.get_sorter, "laplace", "laplac", "laplace"),
    ],
)
def test_unknown_names_list_the_known_and_suggest_the_meant(get, known, name, meant):
    with refused(rf"{known}.*Received: 'nonsense'\.$"):
        get("nonsense")
    with refused(f"Did you mean '{meant}'\\?$"):
        get(name)
    with pytest.raises(TypeError, match="Received: 3"):
        get(3)
    with refused("Constructor arguments"):
        get({}, k=3)
