"""Losses, heads and metrics by name."""

import pytest
import tensorflow as tf

import rank4class_tf as r4c


def test_arguments_may_have_any_name():
    assert r4c.losses.get("ordered_weighted_loss", kind="binary").kind == "binary"


def test_metrics_by_the_names_of_their_results():
    assert type(r4c.metrics.get("top_k_accuracy_at_5")) is r4c.metrics.TopKAccuracy
    for name in ("top_k_accuracy_at_5", "ndcg_at_3", "recall_at_1", "mrr"):
        assert r4c.metrics.get(name).name == name
    assert r4c.metrics.get("hit_rate_at_2").name == "top_k_accuracy_at_2"
    assert r4c.metrics.get("bpref_at_5").name == "bpref_at_5"
    with pytest.raises(ValueError, match="`k` must be a positive integer"):
        r4c.metrics.get("top_k_accuracy_at_0")
    with pytest.raises(ValueError, match="Received: 'nonsense_at_3'|Received: 'nonsense'"):
        r4c.metrics.get("nonsense_at_3")


def test_cutoff_of_a_metric():
    assert r4c.metrics.get("ndcg_at_5").k == 5
    assert r4c.metrics.get("top_k_accuracy_at_3").k == 3
    assert r4c.metrics.get("ndcg").k is None
    assert r4c.metrics.get("precision_at_7").k == 7
    with pytest.raises(ValueError, match="`k` must be a positive integer"):
        r4c.metrics.get("ndcg_at_0")
    with pytest.raises(ValueError, match="cutoff as in 'ndcg_at_5'. Received: 'ndcg@5'"):
        r4c.metrics.get("ndcg@5")


@pytest.mark.parametrize(
    ("get", "known"),
    [
        (r4c.losses.get, "rankmax_loss"),
        (r4c.layers.get_head, "latent_cross"),
        (r4c.layers.get_sorter, "laplace"),
        (r4c.metrics.get, "top_k_accuracy"),
    ],
)
def test_unknown_names_list_the_known(get, known):
    with pytest.raises(ValueError, match=rf"{known}.*Received: 'nonsense'"):
        get("nonsense")
    with pytest.raises(TypeError, match="Received: 3"):
        get(3)
    with pytest.raises(ValueError, match="Constructor arguments"):
        get({}, k=3)


def test_other_arguments_than_those_of_the_name_raise():
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


def test_objects_pass_through():
    loss = r4c.losses.RankmaxLoss()
    assert r4c.losses.get(loss) is loss


@pytest.mark.parametrize(
    ("get", "name", "meant"),
    [
        (r4c.losses.get, "rankmax", "rankmax_loss"),
        (r4c.losses.get, "aprox_ndcg_loss", "approx_ndcg_loss"),
        (r4c.metrics.get, "hitrate_at_5", "hit_rate"),
        (r4c.layers.get_head, "latentcross", "latent_cross"),
    ],
)
def test_a_name_that_is_meant_is_suggested(get, name, meant):
    with pytest.raises(ValueError, match=f"Did you mean '{meant}'\\?$"):
        get(name)
    with pytest.raises(ValueError, match=r"Received: 'xyz'\.$"):
        get("xyz")
