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


LOSSES = [
    LossCase("rankmax", r4c.losses.RankmaxLoss, extreme=1e30),
    LossCase("rankmax_margin", lambda **kw: r4c.losses.RankmaxLoss(margin=0.3, **kw)),
    LossCase("softmax", r4c.losses.SoftmaxLoss),
    LossCase("softmax_temperature", lambda **kw: r4c.losses.SoftmaxLoss(temperature=2.0, **kw)),
    LossCase("pairwise_logistic", r4c.losses.PairwiseLogisticLoss),
    LossCase("approx_ndcg", r4c.losses.ApproxNDCGLoss),
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
