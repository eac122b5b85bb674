"""What the losses over ordered negatives share: their arguments."""

from collections.abc import Callable
from typing import Any

from rank4class_tf import _checks, _keras, ops
from rank4class_tf._types import TensorLike
from rank4class_tf.losses._base import RankingLoss

for _cls in (
    ops.ListedWeights,
    ops.PowerLawWeights,
    ops.Ramp,
    ops.Scaled,
    ops.StaircaseWeights,
    ops.TopKWeights,
    ops.UniformWeights,
):
    _keras.register(_cls)


class OrderedLoss(RankingLoss):
    """Base of the losses with a `kind`, a `phi` and `rank_weights`."""

    def __init__(
        self,
        kind: str = "pairwise",
        phi: str | Callable = "hinge",
        rank_weights: ops.RankWeights | TensorLike | None = None,
        **kwargs: Any,
    ) -> None:
        """Args shared by the losses over ordered negatives.

        Args:
            kind: `"pairwise"` or `"binary"`.
            phi: a margin function; see `ops.get_phi`.
            rank_weights: a `RankWeights` or a list of numbers; None means `TopKWeights(1)`.
            **kwargs: see `RankingLoss`.
        """
        super().__init__(**kwargs)
        self.kind = _checks.one_of("kind", kind, ops.KINDS)
        ops.get_phi(phi)
        self.phi = phi
        self.rank_weights = ops.get_rank_weights(
            ops.TopKWeights(1) if rank_weights is None else rank_weights
        )

    @property
    def formula(self) -> dict:
        """The arguments of the operation."""
        return {"kind": self.kind, "phi": self.phi, "rank_weights": self.rank_weights}
