r"""Margin functions $\varphi$: non-increasing, at least 1(u <= 0), and, except the ramp, convex."""

import dataclasses
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks, _config
from rank4class_tf._tf.exact import violation

# Beyond this limit the tangent continues exp(-u), so that it stays finite in float32.
_EXPONENTIAL_LIMIT = 80.0


def hinge(margins: tf.Tensor) -> tf.Tensor:
    r"""Hinge, $(1 - u)_+$.

    Example:
        >>> hinge(tf.constant([-1.0, 0.5, 2.0])).numpy()
        array([2. , 0.5, 0. ], dtype=float32)
    """
    return violation(-margins, 1.0)


def squared_hinge(margins: tf.Tensor) -> tf.Tensor:
    r"""Squared hinge, $(1 - u)_+^2$.

    Example:
        >>> squared_hinge(tf.constant([-1.0, 0.5, 2.0])).numpy()
        array([4.  , 0.25, 0.  ], dtype=float32)
    """
    return tf.square(violation(-margins, 1.0))


def logistic(margins: tf.Tensor) -> tf.Tensor:
    r"""Logistic, $\log_2(1 + e^{-u})$.

    Example:
        >>> logistic(tf.constant([0.0])).numpy()
        array([1.], dtype=float32)
    """
    return tf.math.softplus(-margins) / np.log(2.0)


def exponential(margins: tf.Tensor) -> tf.Tensor:
    r"""Exponential, $e^{-u}$; below u = -80 its tangent continues it.

    Example:
        >>> exponential(tf.constant([0.0, 1.0])).numpy()
        array([1.        , 0.36787945], dtype=float32)
    """
    excess = tf.nn.relu(-margins - _EXPONENTIAL_LIMIT)
    return tf.exp(-tf.maximum(margins, -_EXPONENTIAL_LIMIT)) * (1 + excess)


@dataclasses.dataclass(frozen=True)
class Ramp(_config.Configured):
    r"""Ramp, $1(u \le 0) + (1 - u / \rho) 1(0 < u \le \rho)$; bounded, hence not convex.

    Args:
        width: $\rho$ > 0.

    Raises:
        ValueError: if `width` is not a finite number > 0.

    Example:
        >>> Ramp(width=2.0)(tf.constant([-5.0, 1.0, 3.0])).numpy()
        array([1. , 0.5, 0. ], dtype=float32)
    """

    width: float = 1.0

    def __post_init__(self):
        object.__setattr__(self, "width", _checks.positive_float("width", self.width))

    def __call__(self, margins: tf.Tensor) -> tf.Tensor:
        """Applies the function to margins of any shape."""
        return 1 - tf.clip_by_value(margins / self.width, 0, 1)


@dataclasses.dataclass(frozen=True)
class Scaled(_config.Configured):
    r"""A margin function of scaled margins, $\varphi(s u)$.

    Scores of unit vectors lie in [-1, 1], where a binary hinge never acts, and a pairwise one only
    beyond a difference of 1; at the scale s they act at 1 / s.

    Args:
        phi: the name of $\varphi$; see `get_phi`.
        scale: s > 0.

    Raises:
        ValueError: if `phi` is not a name of a function or `scale` not a finite number > 0.

    Example:
        >>> Scaled("hinge", 4.0)(tf.constant([-0.5, 0.125, 0.25])).numpy()
        array([3. , 0.5, 0. ], dtype=float32)
    """

    phi: str
    scale: float

    def __post_init__(self):
        _checks.one_of("phi", self.phi, tuple(_BY_NAME))
        object.__setattr__(self, "scale", _checks.positive_float("scale", self.scale))

    def __call__(self, margins: tf.Tensor) -> tf.Tensor:
        """Applies the function to margins of any shape."""
        return _BY_NAME[self.phi](self.scale * margins)


_BY_NAME: dict[str, Callable] = {
    "hinge": hinge,
    "squared_hinge": squared_hinge,
    "logistic": logistic,
    "exponential": exponential,
    "ramp": Ramp(),
}


def get_phi(phi: str | Callable) -> Callable:
    r"""Returns a margin function by name.

    Args:
        phi: `"hinge"`, `"squared_hinge"`, `"logistic"`, `"exponential"`, `"ramp"` (of width 1), a
            `Ramp`, a `Scaled`, or any elementwise function of a tensor of margins. The bounds of
            the paper hold for a function that is non-increasing and at least 1 where the margin is
            <= 0.

    Returns:
        A function of a tensor of margins that is 0 at the margin of a masked item.

    Raises:
        ValueError: if `phi` is neither a known name nor callable.

    Example:
        >>> get_phi("hinge")(tf.constant([0.25])).numpy()
        array([0.75], dtype=float32)
    """
    if isinstance(phi, str) and phi in _BY_NAME:
        return _BY_NAME[phi]
    if isinstance(phi, Ramp | Scaled):
        return phi
    if callable(phi):
        return _without_masked(phi)
    raise ValueError(f"`phi` must be one of {sorted(_BY_NAME)} or callable. Received: {phi!r}.")


def _without_masked(phi):
    """The function, set to 0 at the huge margins of masked items."""

    def masked_phi(margins):
        near = margins < margins.dtype.max / 32
        values = phi(tf.where(near, margins, tf.zeros_like(margins)))
        return tf.where(near, values, tf.zeros_like(values))

    return masked_phi
