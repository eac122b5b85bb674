"""Losses, heads and metrics by name."""

import pytest
import tensorflow as tf

import rank4class_tf as r4c
from rank4class_tf._registry import snake_case

BASES = {
    "GumbelNoise",
    "Head",
    "MetricLoss",
    "OrderedLoss",
    "RandomRankingLoss",
    "RankingLoss",
    "RankingMetric",
    "Sorter",
    "SorterLoss",
}


def public_classes(module, base):
    public = {name: getattr(module, name) for name in module.__all__}
    return [
        name
        for name, value in public.items()
        if isinstance(value, type) and issubclass(value, base) and name not in BASES
    ]


def test_every_loss_has_a_name():
    needed = {
        "ForwardCorrectionLoss": {"transition": [[0.9, 0.1], [0.2, 0.8]]},
        "StochasticNegativeMiningLoss": {"num_sampled": 2},
    }
    for name in public_classes(r4c.losses, r4c.losses.RankingLoss):
        loss = r4c.losses.get(snake_case(name), **needed.get(name, {}))
        assert type(loss).__name__ == name
    both = r4c.losses.get("weighted_sum_loss", losses=[loss], weights=[1.0])
    assert isinstance(both, r4c.losses.WeightedSumLoss)


def test_every_metric_has_a_name():
    of_a_metric = "MacroAverage"
    for name in set(public_classes(r4c.metrics, r4c.metrics.RankingMetric)) - {of_a_metric}:
        cutoff = "_at_5" if name.endswith("AtK") or name == "HitRate" else ""
        identifier = snake_case(name.removesuffix("AtK")) + cutoff
        assert type(r4c.metrics.get(identifier)) is getattr(r4c.metrics, name)


def test_arguments_may_have_any_name():
    assert r4c.losses.get("ordered_weighted_loss", kind="binary").kind == "binary"


def test_every_head_has_a_name():
    for name in public_classes(r4c.layers, r4c.layers.Head):
        head = r4c.layers.get_head(snake_case(name.removesuffix("Head")), classes=3)
        assert type(head).__name__ == name and head.num_classes == 3


def test_metrics_by_the_names_of_their_results():
    assert type(r4c.metrics.get("top_k_accuracy_at_5")) is r4c.metrics.TopKAccuracy
    for name in ("top_k_accuracy_at_5", "ndcg_at_3", "recall_at_1", "mrr"):
        assert r4c.metrics.get(name).name == name
    assert r4c.metrics.get("hit_rate_at_2").name == "top_k_accuracy_at_2"
    with pytest.raises(ValueError, match="`k` must be a positive integer"):
        r4c.metrics.get("top_k_accuracy_at_0")
    with pytest.raises(ValueError, match="Received: 'nonsense_at_3'|Received: 'nonsense'"):
        r4c.metrics.get("nonsense_at_3")


def test_every_sorter_has_a_name():
    for name in public_classes(r4c.layers, r4c.layers.Sorter):
        sorter = r4c.layers.get_sorter(snake_case(name.removesuffix("Sorter")))
        assert type(sorter).__name__ == name


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
        with pytest.raises(ValueError, match=rf"'{name}' takes other.*'foo'. Received: foo=1"):
            r4c.losses.get(name, foo=1)
    with pytest.raises(ValueError, match="'recall' takes other arguments.*'k'.*Received: none"):
        r4c.metrics.get("recall")
    with pytest.raises(ValueError, match="'mean_rank' takes other arguments.*Received: k=5"):
        r4c.metrics.get("mean_rank_at_5")
    with pytest.raises(ValueError, match="`k` must not be given beside a name with a cutoff"):
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
