"""The table of all losses, heads and metrics that the contract tests run over.

A new object gets a row here and with it every test of its kind.
"""

import dataclasses
from collections.abc import Callable

import rank4class_tf as r4c


@dataclasses.dataclass(frozen=True)
class LossCase:
    """A loss and what holds for it.

    Attributes:
        name: id of the test.
        make: builds the loss; takes the keyword arguments that all losses share.
        shift_invariant: whether adding a constant to all scores changes nothing.
        extreme: the largest score for which value and gradient stay finite.
    """

    name: str
    make: Callable
    shift_invariant: bool = True
    extreme: float = 1e15


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
    LossCase("softmax", r4c.losses.SoftmaxLoss),
    LossCase("softmax_temperature", lambda **kw: r4c.losses.SoftmaxLoss(temperature=2.0, **kw)),
    LossCase("pairwise_logistic", r4c.losses.PairwiseLogisticLoss),
    LossCase("approx_ndcg", r4c.losses.ApproxNDCGLoss),
    ordered_weighted("hinge", r4c.losses.TopKWeights(3, tail=0.01)),
    ordered_weighted("logistic", r4c.losses.PowerLawWeights(0.5)),
    ordered_weighted("squared_hinge", r4c.losses.UniformWeights()),
    ordered_weighted("exponential", [3.0, 1.0], extreme=80.0),
    ordered_weighted("hinge", r4c.losses.TopKWeights(2), "binary"),
    ordered_weighted("exponential", r4c.losses.UniformWeights(), "binary", extreme=80.0),
    ordered_weighted(
        r4c.ops.Ramp(4.0), r4c.losses.StaircaseWeights([(1, 1.0), (3, 0.5)], tail=0.2), "binary"
    ),
]

HEADS = {
    "dot_product": lambda **kw: r4c.layers.DotProductHead(num_classes=5, **kw),
    "latent_cross": lambda **kw: r4c.layers.LatentCrossHead(num_classes=5, units=(6, 4), **kw),
    "concat": lambda **kw: r4c.layers.ConcatHead(num_classes=5, units=(6,), **kw),
}

METRICS = {
    "ndcg": r4c.metrics.NDCG,
    "ndcg_2": lambda **kw: r4c.metrics.NDCG(k=2, **kw),
    "top_1_accuracy": lambda **kw: r4c.metrics.TopKAccuracy(k=1, **kw),
    "top_3_accuracy": lambda **kw: r4c.metrics.TopKAccuracy(k=3, **kw),
}
