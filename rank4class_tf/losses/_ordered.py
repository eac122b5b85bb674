"""What the losses over ordered negatives share: their arguments, and how those are saved."""

from tensorflow import keras

from rank4class_tf import _checks, _keras, ops
from rank4class_tf.losses._base import RankingLoss
from rank4class_tf.ops.ordered_weighted import KINDS

for _cls in (
    ops.ListedWeights,
    ops.PowerLawWeights,
    ops.Ramp,
    ops.StaircaseWeights,
    ops.TopKWeights,
    ops.UniformWeights,
):
    _keras.register(_cls)


class OrderedLoss(RankingLoss):
    """Base of the losses with a `kind`, a `phi` and `weights`."""

    def __init__(self, kind="pairwise", phi="hinge", weights=None, **kwargs):
        """Args shared by the losses over ordered negatives.

        Args:
            kind: `"pairwise"` or `"binary"`.
            phi: a margin function; see `ops.get_phi`.
            weights: an `OrderedWeights` or a list of numbers; None means `TopKWeights(1)`.
            **kwargs: see `RankingLoss`.
        """
        super().__init__(**kwargs)
        self.kind = _checks.one_of("kind", kind, KINDS)
        self.phi = deserialized(phi)
        ops.get_phi(self.phi)
        self.weights = get_weights(weights, default=ops.TopKWeights(1))

    @property
    def formula(self):
        """The arguments of the operation."""
        return {"kind": self.kind, "phi": self.phi, "weights": self.weights}


def get_weights(weights, default):
    """Weights from an argument or a configuration."""
    return default if weights is None else ops.get_weights(deserialized(weights))


def deserialized(value):
    """An object from its configuration; anything else as it is."""
    return keras.utils.deserialize_keras_object(value) if isinstance(value, dict) else value
