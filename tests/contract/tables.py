"""The tables of losses, sorters, metrics and optimizers that the contract tests run over.

A new object gets a row here and with it every test of its kind; heads have theirs in
`head_table.py`. `test_completeness.py` names public objects without a row.
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
from tensorflow import keras

import rank4class_tf as r4c

from ..losses import oracles


@dataclasses.dataclass(frozen=True)
class LossCase:
    """A loss and what holds for it.

    Attributes:
        name: id of the test.
        make: builds the loss; takes the keyword arguments that all losses share.
        shift_invariant: whether adding a constant to all scores changes nothing.
        extreme: the largest score for which value and gradient stay finite.
        random: whether the loss draws random numbers; `make` then gives it a seed.
        far: how far above the others a score may be without costing them digits.
        definition: the loss of one list in NumPy: takes the scores and the labels of its items.
            None where a test of `tests/losses` has it.
    """

    name: str
    make: Callable
    shift_invariant: bool = True
    extreme: float = 1e15
    random: bool = False
    far: float = 2.0**26
    definition: Callable | None = None


def ordered_weighted(phi, weights, kind="pairwise", **of_case):
    """A row for an ordered weighted loss."""
    return LossCase(
        f"ordered_weighted_{kind}_{phi if isinstance(phi, str) else type(phi).__name__.lower()}",
        lambda **kw: r4c.losses.OrderedWeightedLoss(kind, phi, weights, **kw),
        shift_invariant=kind == "pairwise",
        **of_case,
    )


LOSSES = [
    LossCase("rankmax", r4c.losses.RankmaxLoss, extreme=1e30),
    LossCase("rankmax_margin", lambda **kw: r4c.losses.RankmaxLoss(margin=0.3, **kw)),
    LossCase("rankmax_2", lambda **kw: r4c.losses.RankmaxLoss(k=2, **kw), extreme=1e30),
    LossCase(
        "rankmax_mean",
        lambda **kw: r4c.losses.RankmaxLoss(k=3, positive_reduction="mean", **kw),
        extreme=1e30,
    ),
    LossCase("sparsemax", r4c.losses.SparsemaxLoss),
    LossCase(
        "fenchel_young_euclidean",
        lambda **kw: r4c.losses.FenchelYoungLoss("euclidean", k=2, alpha=0.5, **kw),
        far=2.0**8,  # The value is a difference of sums of the k largest scores.
    ),
    LossCase("fenchel_young_entropy", lambda **kw: r4c.losses.FenchelYoungLoss("entropy", **kw)),
    LossCase(
        "fenchel_young_entropy_3",
        lambda **kw: r4c.losses.FenchelYoungLoss("entropy", k=3, **kw),
        far=2.0**8,
    ),
    LossCase(
        "fenchel_young_adaptive",
        lambda **kw: r4c.losses.FenchelYoungLoss(alpha="adaptive", **kw),
    ),
    LossCase("softmax", r4c.losses.SoftmaxLoss),
    LossCase("generalized_cross_entropy", r4c.losses.GeneralizedCrossEntropyLoss),
    LossCase(
        "generalized_cross_entropy_1",
        lambda **kw: r4c.losses.GeneralizedCrossEntropyLoss(q=1.0, **kw),
    ),
    LossCase("softmax_mean", lambda **kw: r4c.losses.SoftmaxLoss(positive_reduction="mean", **kw)),
    LossCase("softmax_temperature", lambda **kw: r4c.losses.SoftmaxLoss(temperature=2.0, **kw)),
    LossCase("pairwise_logistic", r4c.losses.PairwiseLogisticLoss),
    LossCase(
        "pairwise_logistic_lambda",
        lambda **kw: r4c.losses.PairwiseLogisticLoss(
            lambda_weights=r4c.losses.NDCGLambdaWeights(smooth_fraction=0.5), **kw
        ),
    ),
    LossCase("pairwise_hinge", r4c.losses.PairwiseHingeLoss),
    LossCase(
        "pairwise_hinge_lambda",
        lambda **kw: r4c.losses.PairwiseHingeLoss(
            margin=2.0, lambda_weights=r4c.losses.NDCGLambdaWeights(top_k=3), **kw
        ),
    ),
    LossCase("approx_ndcg", r4c.losses.ApproxNDCGLoss),
    LossCase("approx_mrr", r4c.losses.ApproxMRRLoss),
    LossCase(
        "gumbel_approx_ndcg",
        lambda **kw: r4c.losses.GumbelApproxNDCGLoss(num_samples=3, seed=1, **kw),
        random=True,
    ),
    LossCase(
        "gumbel_approx_mrr",
        lambda **kw: r4c.losses.GumbelApproxMRRLoss(num_samples=3, seed=1, **kw),
        random=True,
    ),
    LossCase("list_mle", r4c.losses.ListMLELoss),
    LossCase("unique_softmax", r4c.losses.UniqueSoftmaxLoss),
    LossCase("mean_squared", r4c.losses.MeanSquaredLoss, shift_invariant=False),
    LossCase(
        "mean_squared_rescaled",
        lambda **kw: r4c.losses.MeanSquaredLoss(3.0, 2.0, **kw),
        shift_invariant=False,
        definition=lambda scores, labels: oracles.mean_squared(scores, labels, 3.0, 2.0),
    ),
    ordered_weighted("hinge", r4c.losses.TopKWeights(3, tail=0.01)),
    ordered_weighted("logistic", r4c.losses.PowerLawWeights(0.5)),
    ordered_weighted("squared_hinge", r4c.losses.UniformWeights()),
    ordered_weighted("exponential", [3.0, 1.0], extreme=80.0),
    ordered_weighted("hinge", r4c.losses.TopKWeights(2), "binary"),
    ordered_weighted("exponential", r4c.losses.UniformWeights(), "binary", extreme=80.0),
    ordered_weighted(r4c.ops.Scaled("hinge", 3.0), r4c.losses.TopKWeights(1)),
    ordered_weighted(
        r4c.ops.Ramp(4.0), r4c.losses.StaircaseWeights([(1, 1.0), (3, 0.5)], tail=0.2), "binary"
    ),
    LossCase(
        "stochastic_negative_mining",
        lambda **kw: r4c.losses.StochasticNegativeMiningLoss(
            3, rank_weights=r4c.losses.TopKWeights(2, tail=0.1), seed=1, **kw
        ),
        random=True,
    ),
    LossCase(
        "stochastic_negative_mining_binary",
        lambda **kw: r4c.losses.StochasticNegativeMiningLoss(
            2, "binary", "exponential", r4c.losses.UniformWeights(), rescale=False, seed=1, **kw
        ),
        shift_invariant=False,
        extreme=80.0,
        random=True,
    ),
    LossCase("warp", r4c.losses.WARPLoss),
    LossCase(
        "warp_sampled",
        lambda **kw: r4c.losses.WARPLoss([1.0, 0.5, 0.25], 2.0, num_trials=3, seed=1, **kw),
        random=True,
    ),
]

# One for each path through the base: what the base does is tested with these alone.
REPRESENTATIVES = {
    "rankmax",
    "fenchel_young_entropy_3",
    "softmax",
    "pairwise_hinge_lambda",
    "approx_ndcg",
    "gumbel_approx_ndcg",
    "ordered_weighted_pairwise_hinge",
    "stochastic_negative_mining",
    "warp_sampled",
    "ndcg",
    "top_3",
    "average_precision_3",
    "median_rank",
}


@dataclasses.dataclass(frozen=True)
class SorterLossCase:
    """A loss on ranks of outputs, whose labels have a form of their own.

    Attributes:
        name: id of the test.
        make: builds the loss; takes the keyword arguments that all losses share.
        labels: makes the labels of eight examples from a generator.
        width: how many outputs an example has.
    """

    name: str
    make: Callable
    labels: Callable
    width: int = 8


SORTER_LOSSES = [
    SorterLossCase(
        "spearman", r4c.losses.SpearmanLoss, lambda rng: rng.normal(size=(8, 1)), width=1
    ),
    SorterLossCase(
        "spearman_items",
        lambda **kw: r4c.losses.SpearmanLoss(axis="items", **kw),
        lambda rng: rng.normal(size=(8, 8)),
    ),
    SorterLossCase(
        "mean_average_precision",
        r4c.losses.MeanAveragePrecisionLoss,
        lambda rng: rng.integers(0, 2, size=(8, 8)),
    ),
    SorterLossCase("rank_triplet", r4c.losses.RankTripletLoss, lambda rng: np.arange(8)),
]


@dataclasses.dataclass(frozen=True)
class SorterCase:
    """A sorter and what it promises.

    Attributes:
        name: id of the test.
        make: builds the sorter; takes Keras's own keyword arguments.
        exact: whether it is a closed form: shifted scores have the same ranks, a higher score has
            no worse rank, and the ranks of a list sum to d (d + 1) / 2.
        equivariant: whether permuted scores have permuted ranks.
        length: the only length that it takes; None for any.
    """

    name: str
    make: Callable
    exact: bool = True
    equivariant: bool = True
    length: int | None = None


SORTERS = [
    SorterCase("laplace", lambda **kw: r4c.layers.LaplaceSorter(0.3, **kw)),
    SorterCase("sigmoid", lambda **kw: r4c.layers.SigmoidSorter(0.2, **kw)),
    SorterCase("soft_rank", lambda **kw: r4c.layers.SoftRankSorter(0.5, **kw)),
    SorterCase("set", r4c.layers.SetSorter.pretrained, exact=False),
    SorterCase("recurrent", r4c.layers.RecurrentSorter.pretrained, exact=False, equivariant=False),
    SorterCase(
        "convolutional",
        r4c.layers.ConvolutionalSorter.pretrained,
        exact=False,
        equivariant=False,
        length=100,
    ),
]


@dataclasses.dataclass(frozen=True)
class MetricCase:
    """A metric and its definition in plain Python.

    Attributes:
        name: id of the test.
        make: builds the metric; takes the keyword arguments that all metrics share.
        value: the metric of one list without ties: takes the labels of the items in the order of
            their ranks, and the positive labels of all items, also of those that are never a hit.
        combine: the metric of several lists without ties: takes their values and weights.
        ties: whether ties count in expectation over their orders; where not, the docstring of the
            metric says how they count.
        highest: the highest label for which float32 holds the metric.
    """

    name: str
    make: Callable
    value: Callable
    combine: Callable = np.average
    ties: bool = True
    highest: int = 200


def _hits(ranked, k):
    return sum(y > 0 for y in ranked[:k])


def _dcg(labels, k=None):
    return sum((2**y - 1) / math.log2(1 + r) for r, y in enumerate(labels[:k], start=1))


def _ndcg(ranked, positives, k=None):
    return _dcg(ranked, k) / _dcg(sorted(positives, reverse=True), k)


def _linear_ndcg(ranked, positives):
    def dcg(labels):
        return sum(y / r for r, y in enumerate(labels, start=1))

    return dcg(ranked) / dcg(sorted(positives, reverse=True))


def _average_precision(ranked, positives, k=None):
    precisions = [_hits(ranked, r) / r for r, y in enumerate(ranked[:k], start=1) if y > 0]
    return sum(precisions) / min(len(ranked) if k is None else k, len(positives))


def _reciprocal_rank(ranked, k=None):
    return max((1 / r for r, y in enumerate(ranked[:k], start=1) if y > 0), default=0)


def _first_rank(ranked):
    return next((r for r, y in enumerate(ranked, start=1) if y > 0), len(ranked))


def _median(values, weights=None):
    weights = np.ones(len(values)) if weights is None else np.asarray(weights)
    order = np.argsort(values)
    share = np.cumsum(weights[order]) / np.sum(weights)
    middle = [order[np.argmax(share >= 0.5)], order[np.argmax(share > 0.5)]]
    return np.mean(np.asarray(values)[middle])


def _at(metric, k):
    return lambda **kw: metric(k=k, **kw)


def _bpref(ranked, positives, k=None):
    right = len(positives)
    fewer = min(right, len(ranked) - right)
    above = [sum(y <= 0 for y in ranked[:i]) for i, y in enumerate(ranked[:k]) if y > 0]
    return sum(1 - (min(n, right) / fewer if fewer else 0) for n in above) / right


METRICS = [
    MetricCase("ndcg", r4c.metrics.NDCG, _ndcg),
    MetricCase("ndcg_2", _at(r4c.metrics.NDCG, 2), lambda r, p: _ndcg(r, p, 2)),
    MetricCase("top_1", r4c.metrics.TopKAccuracy, lambda r, p: min(1, _hits(r, 1))),
    MetricCase("top_3", _at(r4c.metrics.TopKAccuracy, 3), lambda r, p: min(1, _hits(r, 3))),
    MetricCase("precision_1", _at(r4c.metrics.PrecisionAtK, 1), lambda r, p: _hits(r, 1)),
    MetricCase("precision_4", _at(r4c.metrics.PrecisionAtK, 4), lambda r, p: _hits(r, 4) / 4),
    MetricCase("bpref", r4c.metrics.BPref, _bpref, ties=False),
    MetricCase("bpref_3", _at(r4c.metrics.BPref, 3), lambda r, p: _bpref(r, p, 3), ties=False),
    MetricCase("recall_3", _at(r4c.metrics.RecallAtK, 3), lambda r, p: _hits(r, 3) / len(p)),
    MetricCase("average_precision", r4c.metrics.AveragePrecisionAtK, _average_precision),
    MetricCase(
        "average_precision_3",
        _at(r4c.metrics.AveragePrecisionAtK, 3),
        lambda r, p: _average_precision(r, p, 3),
    ),
    MetricCase(
        "average_precision_2_over_all",
        lambda **kw: r4c.metrics.AveragePrecisionAtK(2, over_all_positives=True, **kw),
        lambda r, p: _average_precision(r, p, 2) * min(2, len(p)) / len(p),
    ),
    MetricCase("mrr", r4c.metrics.MRR, lambda r, p: _reciprocal_rank(r)),
    MetricCase("mrr_3", _at(r4c.metrics.MRR, 3), lambda r, p: _reciprocal_rank(r, 3)),
    MetricCase("dcg_3", _at(r4c.metrics.DCG, 3), lambda r, p: _dcg(r, 3), highest=127),
    MetricCase(
        "linear_ndcg",
        lambda **kw: r4c.metrics.NDCG(gain="linear", discount="reciprocal", **kw),
        _linear_ndcg,
    ),
    MetricCase("mean_rank", r4c.metrics.MeanRank, lambda r, p: _first_rank(r)),
    MetricCase("median_rank", r4c.metrics.MedianRank, lambda r, p: _first_rank(r), _median),
]

# Metrics of the four columns of a dataset; they take the keyword arguments that both share.
DATASET_METRICS = {
    "mean_average_precision": lambda **kw: r4c.metrics.MeanAveragePrecision(4, **kw),
    "spearman_correlation": lambda **kw: r4c.metrics.SpearmanCorrelation(4, **kw),
}

OPTIMIZERS = {
    "sgd": lambda: r4c.optimizers.RowwiseSGD(0.1),
    "momentum": lambda: r4c.optimizers.RowwiseSGD(0.1, momentum=0.9, nesterov=True),
    "adagrad": r4c.optimizers.RowwiseAdagrad,
    "adam": r4c.optimizers.RowwiseAdam,
}


def _encoder():
    return keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(4)])


# What other public constructors are given where they need arguments.
OTHERS = [
    lambda: r4c.layers.CandidateFrequencies(7),
    lambda: r4c.layers.ClassAttention(5),
    lambda: r4c.layers.ClassTable(5),
    lambda: r4c.layers.Companion(_encoder()),
    lambda: r4c.layers.CrossBatchMemory(4),
    lambda: r4c.layers.EncodedClasses(np.eye(5, 3, dtype=np.float32), _encoder()),
    lambda: r4c.layers.HardNegativeMining(2),
    lambda: r4c.layers.PredictionSets(0.5),
    lambda: r4c.layers.SampledScores(2000),
    lambda: r4c.layers.ShardedClassTable(5),
    lambda: r4c.layers.SparseDense(4),
    lambda: r4c.layers.TopClasses(2),
    lambda: r4c.layers.UniformNegatives(3),
    lambda: r4c.losses.ForwardCorrectionLoss([[0.75, 0.25], [0.5, 0.5]]),
    lambda: r4c.losses.StaircaseWeights([(1, 2.0)]),
    lambda: r4c.losses.TopKWeights(2),
    lambda: r4c.losses.WeightedSumLoss([r4c.losses.RankmaxLoss()], [1.0]),
    lambda: r4c.metrics.MacroAverage(r4c.metrics.NDCG(2), 5),
    lambda: r4c.metrics.PropensityScoredNDCG(2, [0.5, 0.25, 1.0]),
    lambda: r4c.metrics.PropensityScoredPrecisionAtK(2, [0.5, 0.25, 1.0]),
    lambda: r4c.models.ExtremeClassifier(_encoder(), 2000, 4),
    lambda: r4c.models.TwoTower(_encoder(), _encoder()),
]
