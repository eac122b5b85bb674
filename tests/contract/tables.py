"""Tables of losses, sorters, metrics and optimizers that the contract tests run over.

A new object gets a row here and with it every test of its kind; heads have theirs in
`head_table.py`. `test_completeness.py` names public objects without a row.
"""

import dataclasses
import functools
import math
from collections.abc import Callable

import numpy as np
from tensorflow import keras

from rank4class_tf import layers, losses, metrics, ops, optimizers

from ..losses import oracles
from ..small_models import linear


@dataclasses.dataclass(frozen=True)
class LossCase:
    """A loss and what holds for it."""

    name: str
    loss: type
    # The loss of one list in NumPy, of its scores, labels, weights if `weighted`, and
    # `options`.
    oracle: Callable  # Of a random loss, the mean.
    options: dict = dataclasses.field(default_factory=dict)
    weighted: bool = False  # It takes weights of items.
    random: bool = False  # It draws random numbers.
    shift_invariant: bool = True  # Adding a constant to all scores changes nothing.
    extreme: float = 1e15  # The largest score for which value and gradient stay finite.
    # How far one score may be above the others without costing them digits.
    far: float = 2.0**26
    # A list without a positive has the loss of its definition, which needs none; of
    # others it is 0.
    counts_empty: bool = False

    def make(self, **kwargs):
        """Builds the loss; takes the keyword arguments that all losses share."""
        return self.loss(
            **self.options, **({"seed": 1} if self.random else {}), **kwargs
        )

    def definition(self, scores, labels, *weights):
        return self.oracle(scores, labels, *weights, **self.options)


def rows(loss, oracle, **of_each):
    """A function that makes rows of one loss, of their names and options or flags."""
    flags = {field.name for field in dataclasses.fields(LossCase)}

    def row(name, **given):
        of_row = {key: value for key, value in given.items() if key in flags}
        options = {key: value for key, value in given.items() if key not in flags}
        return LossCase(name, loss, oracle, options, **{**of_each, **of_row})

    return row


fenchel_young = rows(losses.FenchelYoungLoss, oracles.fenchel_young)
noisy = rows(losses.GeneralizedCrossEntropyLoss, oracles.generalized_cross_entropy)
rankmax = rows(losses.RankmaxLoss, oracles.rankmax)
warp = rows(losses.WARPLoss, oracles.warp)
softmax = rows(losses.SoftmaxLoss, oracles.softmax, weighted=True)
logistic = rows(losses.PairwiseLogisticLoss, oracles.pairwise_logistic, weighted=True)
hinge = rows(losses.PairwiseHingeLoss, oracles.pairwise_hinge, weighted=True)
zero_one = rows(
    losses.PairwiseSoftZeroOneLoss, oracles.pairwise_soft_zero_one, weighted=True
)
differences = rows(
    losses.PairwiseMeanSquaredLoss,
    oracles.pairwise_mean_squared,
    weighted=True,
    counts_empty=True,
)
ndcg = rows(losses.ApproxNDCGLoss, oracles.approx_ndcg, weighted=True)
mrr = rows(losses.ApproxMRRLoss, oracles.approx_mrr, weighted=True)
list_mle = rows(losses.ListMLELoss, oracles.list_mle, weighted=True)
unique = rows(losses.UniqueSoftmaxLoss, oracles.unique_softmax, weighted=True)
POINTWISE = {"weighted": True, "shift_invariant": False, "counts_empty": True}
squared = rows(losses.MeanSquaredLoss, oracles.mean_squared, **POINTWISE)
sigmoid = rows(
    losses.SigmoidCrossEntropyLoss, oracles.sigmoid_cross_entropy, **POINTWISE
)
with_noise = oracles.over_gumbel_noise
noisy_ndcg = rows(
    losses.GumbelApproxNDCGLoss, with_noise(oracles.approx_ndcg), random=True
)
noisy_mrr = rows(
    losses.GumbelApproxMRRLoss, with_noise(oracles.approx_mrr), random=True
)
mining = rows(
    losses.StochasticNegativeMiningLoss, oracles.stochastic_negative_mining, random=True
)
LAMBDA = losses.NDCGLambdaWeights


def above_one(margins):
    """A margin function that does not vanish, which missing items must not reach."""
    return 1 + ops.get_phi("logistic")(margins)


def ordered(kind, phi, weights):
    name = phi if isinstance(phi, str) else type(phi).__name__.lower()
    return rows(losses.OrderedWeightedLoss, oracles.ordered_weighted)(
        f"ordered_weighted_{kind}_{name}",
        kind=kind,
        phi=phi,
        rank_weights=weights,
        shift_invariant=kind == "pairwise",
        extreme=80.0 if phi == "exponential" else 1e15,
    )


LOSSES = [
    rankmax("rankmax", extreme=1e30),
    rankmax("rankmax_margin", margin=0.3),
    rankmax("rankmax_2", k=2, extreme=1e30),
    rankmax("rankmax_mean", k=3, positive_reduction="mean", extreme=1e30),
    LossCase("sparsemax", losses.SparsemaxLoss, oracles.fenchel_young),
    fenchel_young(
        "fenchel_young_euclidean", regularizer="euclidean", k=2, alpha=0.5, far=2.0**8
    ),
    fenchel_young("fenchel_young_entropy", regularizer="entropy"),
    fenchel_young("fenchel_young_entropy_3", regularizer="entropy", k=3, far=2.0**8),
    fenchel_young("fenchel_young_adaptive", alpha="adaptive", extreme=1e30),
    softmax("softmax"),
    noisy("generalized_cross_entropy", q=0.7),
    noisy("generalized_cross_entropy_1", q=1.0),
    softmax("softmax_mean", positive_reduction="mean"),
    softmax("softmax_temperature", temperature=2.0),
    logistic("pairwise_logistic"),
    logistic("pairwise_logistic_lambda", lambda_weights=LAMBDA(smooth_fraction=0.5)),
    hinge("pairwise_hinge"),
    hinge("pairwise_hinge_lambda", margin=2.0, lambda_weights=LAMBDA(top_k=3)),
    zero_one("pairwise_soft_zero_one"),
    differences("pairwise_mean_squared"),
    ndcg("approx_ndcg"),
    mrr("approx_mrr"),
    noisy_ndcg("gumbel_approx_ndcg", num_samples=3),
    noisy_mrr("gumbel_approx_mrr", num_samples=3),
    list_mle("list_mle"),
    unique("unique_softmax"),
    squared("mean_squared"),
    squared("mean_squared_rescaled", positive_weight=3.0, positive_target=2.0),
    sigmoid("sigmoid_cross_entropy"),
    ordered("pairwise", "hinge", losses.TopKWeights(3, tail=0.01)),
    ordered("pairwise", "logistic", losses.PowerLawWeights(0.5)),
    ordered("pairwise", "squared_hinge", losses.UniformWeights()),
    ordered("pairwise", "exponential", [3.0, 1.0]),
    ordered("binary", "hinge", losses.TopKWeights(2)),
    ordered("binary", "exponential", losses.UniformWeights()),
    ordered("pairwise", ops.Scaled("hinge", 3.0), losses.TopKWeights(1)),
    ordered(
        "binary", ops.Ramp(4.0), losses.StaircaseWeights([(1, 1.0), (3, 0.5)], tail=0.2)
    ),
    mining(
        "stochastic_negative_mining",
        num_sampled=3,
        rank_weights=losses.TopKWeights(2, 0.1),
    ),
    mining(
        "stochastic_negative_mining_binary",
        num_sampled=2,
        kind="binary",
        phi="exponential",
        rescale=False,
        rank_weights=losses.UniformWeights(),
        shift_invariant=False,
        extreme=80.0,
    ),
    warp("warp", rank_weights=losses.PowerLawWeights(1.0)),
    warp(
        "warp_sampled",
        rank_weights=[1.0, 0.5, 0.25],
        margin=2.0,
        num_trials=3,
        random=True,
    ),
]

# Options that no row above has: of the formula alone, so that only
# `test_definitions.py` runs them.
BINARY = {"num_sampled": 3, "kind": "binary", "phi": "logistic"}
OPTIONS = [
    rankmax("rankmax_2_margin", k=2, margin=2.5),
    fenchel_young("euclidean_3", k=3, alpha=2.0),
    fenchel_young("entropy_2", regularizer="entropy", k=2, alpha=0.3),
    softmax("softmax_smoothed", temperature=2.0, label_smoothing=0.3),
    noisy("generalized_cross_entropy_2", q=0.2),
    logistic("logistic_smoothed", temperature=0.5, label_smoothing=0.2),
    logistic(
        "logistic_smoothed_lambda", lambda_weights=LAMBDA(4, 0.3), label_smoothing=0.2
    ),
    hinge("hinge_smoothed", margin=0.7, label_smoothing=0.2),
    hinge("hinge_lambda_mart", margin=1.5, lambda_weights=LAMBDA(smooth_fraction=1.0)),
    zero_one("zero_one_smoothed", temperature=0.5, label_smoothing=0.2),
    zero_one("zero_one_lambda", lambda_weights=LAMBDA(4, 0.3)),
    sigmoid("gbce", positive_power=0.3),
    mrr("approx_mrr_3", temperature=0.3),
    ndcg("approx_ndcg_options", temperature=0.3, gain="linear", discount="reciprocal"),
    noisy_ndcg(
        "gumbel_options", num_samples=2, gumbel_temperature=0.8, temperature=0.3
    ),
    list_mle("list_mle_7", temperature=0.7),
    unique("unique_7", temperature=0.7),
    warp("warp_options", rank_weights=[1.0, 0.5, 0.25, 0.125], margin=0.3),
    mining("mining_binary", **BINARY, rank_weights=losses.TopKWeights(2)),
    *(
        ordered(kind, *phi_and_weights)
        for kind in ("pairwise", "binary")
        for phi_and_weights in (
            ("hinge", losses.TopKWeights(99)),
            ("squared_hinge", losses.StaircaseWeights([(1, 1.0), (3, 0.5)], 0.2)),
            ("logistic", np.array([1.0, 0.25])),
            ("exponential", losses.TopKWeights(2, tail=0.1)),
            ("ramp", [0.5, 2.0, 0.0, 1.0]),
            (above_one, losses.TopKWeights(2)),
            (above_one, losses.UniformWeights()),
        )
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

# One for each kind of loss: tests of the base class need no more.
KINDS = {"softmax", "pairwise_hinge_lambda", "warp_sampled", "ndcg"}

# One for each formula of a loss; the others differ from one of these in an option.
FORMULAS = {
    case.name for case in {case.loss: case for case in reversed(LOSSES)}.values()
}
FORMULAS |= REPRESENTATIVES | {
    "rankmax_2",
    "fenchel_young_entropy",
    "fenchel_young_adaptive",
}
FORMULAS |= {"pairwise_logistic_lambda", "ordered_weighted_pairwise_exponential"}
FORMULAS |= {
    "ordered_weighted_binary_hinge",
    "stochastic_negative_mining_binary",
    "softmax_mean",
}


@dataclasses.dataclass(frozen=True)
class SorterLossCase:
    """A loss on ranks of outputs, whose labels have a form of their own."""

    name: str
    make: Callable  # Takes the keyword arguments that all losses share.
    labels: Callable  # Makes the labels of eight examples from a generator.
    width: int = 8  # How many outputs an example has.


def _zeros_and_ones(rng):
    return rng.integers(0, 2, size=(8, 8))


SPEARMAN_OF_ITEMS = functools.partial(losses.SpearmanLoss, axis="items")
SORTER_LOSSES = [
    SorterLossCase(
        "spearman", losses.SpearmanLoss, lambda rng: rng.normal(size=(8, 1)), width=1
    ),
    SorterLossCase(
        "spearman_items", SPEARMAN_OF_ITEMS, lambda rng: rng.normal(size=(8, 8))
    ),
    SorterLossCase(
        "mean_average_precision", losses.MeanAveragePrecisionLoss, _zeros_and_ones
    ),
    SorterLossCase("rank_triplet", losses.RankTripletLoss, lambda rng: np.arange(8)),
]


@dataclasses.dataclass(frozen=True)
class SorterCase:
    """A sorter and what it promises."""

    name: str
    make: Callable  # Takes Keras's own keyword arguments.
    # It is a closed form: shifted scores have the same ranks, a higher score has no
    # worse rank, and the ranks of a list sum to d (d + 1) / 2.
    exact: bool = True
    equivariant: bool = True  # Permuted scores have permuted ranks.
    length: int | None = None  # The only length that it takes.


SORTERS = [
    SorterCase("laplace", lambda **kw: layers.LaplaceSorter(0.3, **kw)),
    SorterCase("sigmoid", lambda **kw: layers.SigmoidSorter(0.2, **kw)),
    SorterCase("soft_rank", lambda **kw: layers.SoftRankSorter(0.5, **kw)),
    SorterCase("set", layers.SetSorter.pretrained, exact=False),
    SorterCase(
        "recurrent", layers.RecurrentSorter.pretrained, exact=False, equivariant=False
    ),
    SorterCase(
        "convolutional", layers.ConvolutionalSorter.pretrained, False, False, length=100
    ),
]


@dataclasses.dataclass(frozen=True)
class MetricCase:
    """A metric and its definition in plain Python."""

    name: str
    make: Callable  # Takes the keyword arguments that all metrics share.
    # The metric of one list without ties: of the labels of the items in the order of
    # their ranks, and of the positive labels of all items, also of those that are never
    # a hit.
    value: Callable
    # The metric of several such lists, of their values and weights.
    combine: Callable = np.average
    # Ties count in expectation over their orders; else its docstring says how.
    ties: bool = True
    highest: int = 200  # The highest label for which float32 holds the metric.


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


def _mean_precision(ranked, positives, k=None):
    precisions = [
        _hits(ranked, r) / r for r, y in enumerate(ranked[:k], start=1) if y > 0
    ]
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
    """A metric, or its definition, at a cutoff."""
    return functools.partial(metric, k=k)


def _bpref(ranked, positives, k=None):
    right = len(positives)
    fewer = min(right, len(ranked) - right)
    above = [sum(y <= 0 for y in ranked[:i]) for i, y in enumerate(ranked[:k]) if y > 0]
    return sum(1 - (min(n, right) / fewer if fewer else 0) for n in above) / right


METRICS = [
    MetricCase("ndcg", metrics.NDCG, _ndcg),
    MetricCase("ndcg_2", _at(metrics.NDCG, 2), lambda r, p: _ndcg(r, p, 2)),
    MetricCase("top_1", metrics.TopKAccuracy, lambda r, p: min(1, _hits(r, 1))),
    MetricCase("top_3", _at(metrics.TopKAccuracy, 3), lambda r, p: min(1, _hits(r, 3))),
    MetricCase("precision_1", _at(metrics.PrecisionAtK, 1), lambda r, p: _hits(r, 1)),
    MetricCase(
        "precision_4", _at(metrics.PrecisionAtK, 4), lambda r, p: _hits(r, 4) / 4
    ),
    MetricCase("bpref", metrics.BPref, _bpref, ties=False),
    MetricCase(
        "bpref_3", _at(metrics.BPref, 3), lambda r, p: _bpref(r, p, 3), ties=False
    ),
    MetricCase(
        "recall_3", _at(metrics.RecallAtK, 3), lambda r, p: _hits(r, 3) / len(p)
    ),
    MetricCase("average_precision", metrics.AveragePrecisionAtK, _mean_precision),
    MetricCase(
        "average_precision_3",
        _at(metrics.AveragePrecisionAtK, 3),
        _at(_mean_precision, 3),
    ),
    MetricCase(
        "average_precision_2_over_all",
        lambda **kw: metrics.AveragePrecisionAtK(2, over_all_positives=True, **kw),
        lambda r, p: _mean_precision(r, p, 2) * min(2, len(p)) / len(p),
    ),
    MetricCase("mrr", metrics.MRR, lambda r, p: _reciprocal_rank(r)),
    MetricCase("mrr_3", _at(metrics.MRR, 3), lambda r, p: _reciprocal_rank(r, 3)),
    MetricCase("dcg_3", _at(metrics.DCG, 3), lambda r, p: _dcg(r, 3), highest=127),
    MetricCase(
        "linear_ndcg",
        functools.partial(metrics.NDCG, None, "linear", "reciprocal"),
        _linear_ndcg,
    ),
    MetricCase("mean_rank", metrics.MeanRank, lambda r, p: _first_rank(r)),
    MetricCase("median_rank", metrics.MedianRank, lambda r, p: _first_rank(r), _median),
]

# Metrics of the four columns of a dataset; they take the keyword arguments that both
# share.
DATASET_METRICS = {
    "mean_average_precision": lambda **kw: metrics.MeanAveragePrecision(4, **kw),
    "spearman_correlation": lambda **kw: metrics.SpearmanCorrelation(4, **kw),
}

OPTIMIZERS = {
    "sgd": lambda: optimizers.RowwiseSGD(0.1),
    "momentum": lambda: optimizers.RowwiseSGD(0.1, momentum=0.9, nesterov=True),
    "adagrad": optimizers.RowwiseAdagrad,
    "adam": optimizers.RowwiseAdam,
}


def _encoder():
    return linear(3, 4)


# What the arguments get that constructors need, by their names and made anew for each
# object.
_NUMBERS = {
    "classes": 2000,
    "embedding_dim": 4,
    "k": 2,
    "num_buckets": 7,
    "num_classes": 5,
    "num_groups": 5,
    "num_hard_negatives": 2,
    "num_sampled": 3,
    "size": 4,
    "units": 4,
}
NEEDED: dict[str, Callable] = {
    **{name: functools.partial(int, number) for name, number in _NUMBERS.items()},
    **dict.fromkeys(
        ["candidate_encoder", "encoder", "layer", "query_encoder"], _encoder
    ),
    "ids": lambda: [[2, 1]],
    "features": lambda: np.eye(5, 3, dtype="float32"),
    "interaction": layers.CosineInteraction,
    "losses": lambda: [losses.RankmaxLoss()],
    "metric": lambda: metrics.NDCG(2),
    "propensities": lambda: [0.5, 0.25, 1.0],
    "steps": lambda: [(1, 2.0)],
    "threshold": lambda: 0.5,
    "transition": lambda: [[0.75, 0.25], [0.5, 0.5]],
    "weights": lambda: [1.0],
}
# Classes that need others.
NEEDED_OF: dict[type, dict] = {
    layers.ClassEmbedding: {"classes": lambda: layers.ClassTable(5, 3)},
    layers.TiedClasses: {"layer": lambda: keras.layers.Embedding(5, 3)},
}
