"""Losses, heads and metrics by name."""

import pytest
import tensorflow as tf

import rank4class_tf as r4c


def test_metrics_by_the_names_of_their_results():
    for name, cls, k in (
        ("top_k_accuracy_at_5", r4c.metrics.TopKAccuracy, 5),
        ("ndcg", r4c.metrics.NDCG, None),
        ("bpref_at_5", r4c.metrics.BPref, 5),
    ):
        metric = r4c.metrics.get(name)
        assert (type(metric), metric.name, metric.k) == (cls, name, k)
    assert r4c.metrics.get("hit_rate_at_2").name == "top_k_accuracy_at_2"
    for name, message in (
        ("top_k_accuracy_at_0", "`k` must be a positive integer"),
        ("nonsense_at_3", "Received: 'nonsense_at_3'|Received: 'nonsense'"),
        ("ndcg@5", "cutoff as in 'ndcg_at_5'. Received: 'ndcg@5'"),
        ("hits", "'hits_at_5'"),
    ):
        with pytest.raises(ValueError, match=message):
            r4c.metrics.get(name)


def test_other_arguments_than_those_of_the_name_raise():
    assert r4c.losses.get("ordered_weighted_loss", kind="binary").kind == "binary"
    for name in ("spearman_loss", "rankmax_loss", "gumbel_approx_ndcg_loss"):
        with pytest.raises(TypeError, match="unexpected keyword argument 'foo'"):
            r4c.losses.get(name, foo=1)
    with pytest.raises(TypeError, match="missing .* 'num_classes'"):
        r4c.metrics.get("mean_average_precision")
    with pytest.raises(TypeError, match="unexpected keyword argument 'k'"):
        r4c.metrics.get("mean_rank_at_5")
    with pytest.raises(ValueError, match="`k` must not be given with a name that has a cutoff"):
        r4c.metrics.get("ndcg_at_5", k=3)


def test_objects_of_users_pass_through():
    class Loss(r4c.losses.RankingLoss):
        def compute(self, lists):
            return tf.zeros_like(lists.relevance[:, 0])

    loss, metric = Loss(), r4c.metrics.MacroAverage(r4c.metrics.MRR(), 6)
    assert r4c.losses.get(loss) is loss
    assert r4c.metrics.get(metric) is metric


@pytest.mark.parametrize(
    ("get", "known", "name", "meant"),
    [
        (r4c.losses.get, "rankmax_loss", "aprox_ndcg_loss", "approx_ndcg_loss"),
        (r4c.metrics.get, "top_k_accuracy", "hitrate_at_5", "hit_rate"),
        (r4c.layers.get_head, "latent_cross", "latentcross", "latent_cross"),
        (r4c.layers.get_sorter, "laplace", "laplac", "laplace"),
    ],
)
def test_unknown_names_list_the_known_and_suggest_the_meant(get, known, name, meant):
    with pytest.raises(ValueError, match=rf"{known}.*Received: 'nonsense'\.$"):
        get("nonsense")
    with pytest.raises(ValueError, match=f"Did you mean '{meant}'\\?$"):
        get(name)
    with pytest.raises(TypeError, match="Received: 3"):
        get(3)
    with pytest.raises(ValueError, match="Constructor arguments"):
        get({}, k=3)
