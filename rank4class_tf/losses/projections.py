"""Losses from projections (`ops.projections`): Rankmax, Sparsemax, Fenchel-Young."""

from typing import Any

import tensorflow as tf

from rank4class_tf import _checks, _registry, ops
from rank4class_tf._tf.exact import divided, violation
from rank4class_tf._types import Changing, Tensor, WithGradient
from rank4class_tf.layers import Probabilities
from rank4class_tf.losses.base import PositivesLoss, RankingLoss, present
from rank4class_tf.ops.projections import cap, from_kth, lowest_in_support, scaled_by


def fenchel_young(
    lists: ops.Lists, regularizer: Any = "euclidean", k: int = 1, alpha: float = 1.0
) -> Tensor:
    """`FenchelYoungLoss` for a target that is uniform over the positives, `[batch]`."""
    regularizer = ops.get_regularizer(regularizer)
    is_positive = tf.cast(lists.is_positive, lists.dtype)
    count = tf.reduce_sum(is_positive, axis=-1)
    # A list with fewer positives than k selects as many items.
    limit = None if k == 1 else tf.maximum(tf.cast(count, tf.int32), 1)

    # Projection and target sum to k, so that a shift changes no loss.
    lists, highest = from_kth(scaled_by(lists, alpha), k, regularizer, limit)
    num_selected = tf.cast(highest.selected, lists.dtype)

    # To first order `conjugates` do not depend on the threshold, which needs no
    # gradient.
    threshold = tf.stop_gradient(regularizer.threshold(lists.constant(), highest))

    # The gradient of the conjugate is the projection (Danskin's theorem).
    @tf.custom_gradient
    def conjugate(scores: Tensor) -> WithGradient:
        def gradient(upstream: Tensor) -> Tensor:
            return upstream * regularizer.project(scores, threshold)

        return regularizer.conjugate(scores, threshold), gradient

    total = lists.sum(
        conjugate,
        tends_to_zero=regularizer.tends_to_zero,
        vanishes=regularizer.vanishes,
    )
    conjugates = num_selected * threshold[:, 0] + total

    target = num_selected / tf.maximum(count, 1)  # Of each positive.
    product = target * lists.sum_of_positives(lists.positive_scores, is_positive)
    losses = conjugates + count * regularizer.value(target) - product
    return divided(losses, alpha)


@_registry.register("loss")
class RankmaxLoss(PositivesLoss):
    r"""Cross-entropy of the Rankmax projection, which adapts to each positive.

    $$\ell(z, Y) = \sum_{y \in Y} -w_y \log \mathrm{Rankmax}(z, y)_y$$

    which for k = 1 is $\sum_y w_y (\log \sum_i (z_i - z_y + \eta)_+ - \log \eta)$.
    Items that score more than the margin $\eta$ below the positive, or below the k-th
    score if that is lower, have no gradient. The projection needs the positive, so
    unlabelled scores have no probabilities.

    Source: Kong et al. 2020, "Rankmax", equations 14 and 15, with margin $\eta$. For k
    = 1 the gradient is 1/S for each other item within the margin and -(s - 1)/S for y,
    where S is the inner sum and s the number of items in it; equation 16 prints -s/S
    for y, with which gradients do not add up to 0. Where several items tie at the k-th
    score $z_{[k]}$ and y is above it, only one of them gets the gradient of $z_{[k]}$.

    Args:
        k: number of items to select, in [1, n]; a list of fewer selects all of them,
            with loss 0.
        margin: $\eta$ > 0, a number or a scalar `tf.Variable`, which gets no gradient.
        positive_reduction: `"sum"` over the positives as above, or `"mean"`, which
            divides by $\sum_y w_y$.

    Example:
        >>> float(RankmaxLoss()([0], [[1.0, 0.5, 0.0]]))  # log(1 + 0.5)
        0.40546...
    """

    tunable = ("margin",)

    def __init__(
        self,
        k: int = 1,
        margin: Changing = 1.0,
        positive_reduction: str = "sum",
        **kwargs: Any,
    ):
        super().__init__(positive_reduction, **kwargs)
        self.k = _checks.positive_int("k", k)
        self.margin = _checks.changing("margin", margin, _checks.positive_float)

    def compute(self, lists: ops.Lists) -> Tensor:
        margin = present(self.margin, lists.dtype)

        # 1 over the projection of each positive, `[batch, P]`, before that is cut at 1.
        if self.k == 1:
            # The projection is a clipped ratio, which needs no search for a threshold.
            inverse = lists.sum_of_violations(margin) / margin
        else:
            # The level is the lower of z_y and z_[k].
            level, top, columns, selected = lowest_in_support(lists, self.k)
            selected = selected[:, tf.newaxis]
            tail = lists.without(columns).sum_of_violations(margin, level)
            top = violation(top[:, tf.newaxis] - level[..., tf.newaxis], margin)

            # Some of the k highest items are cut at 1; `rest` is the sum of the others.
            rest, num_cut = cap(top, tail, selected)
            num_left = tf.cast(selected - num_cut, lists.dtype)
            above_level = violation(lists.positive_scores - level, margin)
            inverse = rest / (num_left * above_level)

        # A NaN stays one.
        inverse = tf.where(inverse <= 1, tf.ones_like(inverse), inverse)
        return self.reduced(lists, tf.math.log(inverse))


@_registry.register("loss")
class SparsemaxLoss(RankingLoss):
    r"""Sparsemax loss: Fenchel-Young with the Euclidean projection on the simplex.

    $$\frac{1}{2} \sum_{j : z_j > \tau} (z_j^2 - \tau^2) - \langle z, y \rangle
    + \frac{1}{2} \|y\|^2$$

    with y uniform over the positives and $\tau$ such that $\sum_j (z_j - \tau)_+ = 1$.
    The gradient is sparse. The loss is 0 where a single label scores 1 above all
    others.

    Source: Martins & Astudillo 2016, "From Softmax to Sparsemax"; Rankmax, section 3.3.

    Example:
        >>> float(SparsemaxLoss()([0], [[0.0, 0.0]]))  # tau = -1/2
        0.25
    """

    searches_positives = False  # No pass over the items for each positive.

    @property
    def probabilities(self) -> Probabilities:
        return Probabilities(regularizer="euclidean")

    def compute(self, lists: ops.Lists) -> Tensor:
        return fenchel_young(lists)


@_registry.register("loss")
class FenchelYoungLoss(RankingLoss):
    r"""Fenchel-Young loss of a projection on the (n, k)-simplex.

    $$\Omega^*(z) + \Omega(y) - \langle z, y \rangle, \qquad
    \Omega(x) = g(x) / \alpha, \qquad
    y_i = k / |Y| \text{ for } i \in Y$$

    It is convex, and its gradient is the projection less y, $p_\alpha(z) - y$. A list
    of fewer than k positives selects as many items as it has positives, so that y lies
    on the simplex; grades of relevance do not matter. With k = 1 and $\alpha$ = 1,
    `"euclidean"` is the Sparsemax loss, and `"entropy"` is softmax cross-entropy.

    `alpha="adaptive"` takes the $\alpha_y$ of Rankmax, one for each positive, and
    weighs their losses by relevance. It is convex, and 0 only where the label is a
    margin of 1 above all others.

    $$\sum_y w_y \frac{\sum_{i \ne y} v_i^2 + R^2}{2 (1 + R)}, \qquad
    v_i = (z_i - z_y + 1)_+,
    \quad R = \sum_{i \ne y} v_i$$

    That is $\Omega^*(z) + \Omega(y) - z_y$ for $\Omega(x) = \|x\|^2 / (2 \alpha_y)$
    with $\alpha_y = 1 / (1 + R)$, which depends on z; the gradient of the loss includes
    that of R.

    Source: Blondel et al. 2020, "Learning with Fenchel-Young Losses"; Rankmax, section
    3.2, and what its section 5 suggests for `"adaptive"`.

    Args:
        regularizer: `"euclidean"`, $g = \frac{1}{2} \|x\|^2$, `"entropy"`,
            $g = \sum_i x_i \log x_i$, or an `ops.Regularizer`, which Keras must be able
            to serialize if the loss is to be saved.
        k: number of items to select, in [1, n].
        alpha: $\alpha$ > 0, or `"adaptive"` (euclidean with k = 1 only).

    Example:
        >>> float(FenchelYoungLoss("entropy")([1], [[0.0, 0.0]]))  # log(2), as softmax
        0.6931471...
    """

    def __init__(
        self,
        regularizer: Any = "euclidean",
        k: int = 1,
        alpha: float | str = 1.0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        ops.get_regularizer(regularizer)
        self.regularizer = regularizer
        self.k = _checks.positive_int("k", k)

        self.alpha: Any = alpha
        self.searches_positives = alpha == "adaptive"
        if self.searches_positives:
            is_right = regularizer == "euclidean" and k == 1
            rule = "`alpha` must be a number unless regularizer='euclidean' and k=1."
            _checks.require(is_right, rule, f"{alpha=}, {regularizer=}, {k=}")
        else:
            self.alpha = _checks.positive_float("alpha", alpha)

    @property
    def probabilities(self) -> Probabilities | None:
        """The projection; None for k > 1, and where it needs the label."""
        if self.k > 1 or self.alpha == "adaptive":
            return None
        return Probabilities(1 / self.alpha, self.regularizer)

    def compute(self, lists: ops.Lists) -> Tensor:
        if self.alpha != "adaptive":
            return fenchel_young(lists, self.regularizer, self.k, self.alpha)

        def hinge(difference: Tensor) -> Tensor:
            return violation(difference, 1.0)

        def square(s: Tensor, p: Tensor, inverse: Tensor) -> Tensor:
            # A square by itself might overflow where this does not.
            return hinge(s - p) * (inverse * hinge(s - p))

        # R and the sum of squares over 1 + R, first as constants. The label itself adds
        # 1 to both sums.
        constant = lists.constant()
        total = constant.sum_over_differences(hinge, tends_to_zero=True) - 1
        inverse = 1 / (1 + total)
        squares = constant.sum_over_items(
            square, positives=[inverse], tends_to_zero=True
        )
        squares -= inverse
        share = total * inverse
        losses = (squares + total * share) / 2

        # Classes in blocks allow only one sum with a gradient. So this one has the
        # slopes in both sums.
        by_square = inverse / 2
        by_total = share / 2 + by_square * (share - squares)

        def linear_terms(
            s: Tensor, p: Tensor, by_square: Tensor, by_total: Tensor
        ) -> Tensor:
            violated = hinge(s - p)
            return violated * (by_square * violated + by_total)

        linear = lists.sum_over_items(
            linear_terms, positives=[by_square, by_total], vanishes=True
        )
        losses += linear - tf.stop_gradient(linear)
        return lists.sum_of_positives(losses, lists.relevance)
