r"""Projections on the (n, k)-simplex and their Fenchel-Young losses (Rankmax, section 2).

$$\Delta = \{x : \textstyle\sum_i x_i = k, \; 0 \le x_i \le 1\}, \qquad
p_\alpha(z) = \arg\min_{x \in \Delta} -\langle z, x \rangle + g(x) / \alpha$$

Since $p_\alpha(z) = p_1(\alpha z)$, everything is written for $\alpha = 1$.
"""

import numpy as np
import tensorflow as tf

from rank4class_tf.ops import _positives, _top
from rank4class_tf.ops._cap import cap
from rank4class_tf.ops._gather import gather
from rank4class_tf.ops._margin import violation

# How many of the largest scores are tried, beyond k, before all are looked at: of 15, 31 and 63 the
# fastest where few items are in the support, as in a trained model.
_TRIED = 15
# More steps than bisection needs in float64; Newton's takes about five.
_MAX_STEPS = 64


def euclidean_projection(scores, k=1, alpha=1.0):
    r"""Euclidean projection on the (n, k)-simplex.

    $$x_i = \min(1, \max(0, \alpha (z_i - \mu))), \qquad \textstyle\sum_i x_i = k$$

    Sparsemax is k = 1, $\alpha$ = 1. The Jacobian is exact: with F the items with $0 < x_i < 1$,
    $J v = \alpha \, 1_F (v - \mathrm{mean}_F v)$.

    Source: Rankmax, equation 8.

    Args:
        scores: `[batch, n]`; -inf marks an item that is not there.
        k: number of items to select, in [1, n]; a list of fewer items selects all of them.
        alpha: > 0, a scalar or `[batch]`; the larger, the closer to the k largest.

    Returns:
        `[batch, n]`, in [0, 1].

    Raises:
        ValueError: if `k` exceeds n.

    Example:
        >>> euclidean_projection([[2.0, 1.5, 0.0]]).numpy()  # mu = 1.25
        array([[0.75, 0.25, 0.  ]], dtype=float32)
    """

    @tf.custom_gradient
    def project(scores):
        x = _euclidean(scores, *_selection(scores, k))[0]

        def gradient(upstream):
            free = (x > 0) & (x < 1)
            count = tf.reduce_sum(tf.cast(free, x.dtype), axis=-1, keepdims=True)
            upstream = tf.where(free, upstream, tf.zeros_like(x))
            mean = tf.math.divide_no_nan(tf.reduce_sum(upstream, axis=-1, keepdims=True), count)
            return tf.where(free, upstream - mean, tf.zeros_like(x))

        return x, gradient

    return project(_scale(tf.convert_to_tensor(scores), alpha))


def entropy_projection(scores, k=1, alpha=1.0):
    r"""Entropy projection on the (n, k)-simplex.

    $$x_i = \min(1, e^{\alpha z_i} / Z), \qquad \textstyle\sum_i x_i = k$$

    Softmax is k = 1. The Jacobian is exact: with F the items with $x_i < 1$,
    $J v = \alpha \, x \, 1_F (v - \sum_F x_j v_j / \sum_F x_j)$.

    Source: Rankmax, section 2.2.

    Args:
        scores: `[batch, n]`; -inf marks an item that is not there.
        k: number of items to select, in [1, n]; a list of fewer items selects all of them.
        alpha: > 0, a scalar or `[batch]`, the inverse temperature.

    Returns:
        `[batch, n]`, in [0, 1].

    Raises:
        ValueError: if `k` exceeds n.

    Example:
        >>> entropy_projection([[9.0, 0.0, 0.0]], k=2).numpy()
        array([[1. , 0.5, 0.5]], dtype=float32)
    """

    @tf.custom_gradient
    def project(scores):
        x = _entropy(scores, *_selection(scores, k))[0]

        def gradient(upstream):
            free = tf.where(x < 1, x, tf.zeros_like(x))
            total = tf.reduce_sum(free, axis=-1, keepdims=True)
            mean = tf.reduce_sum(free * upstream, axis=-1, keepdims=True)
            return free * (upstream - tf.math.divide_no_nan(mean, total))

        return x, gradient

    return project(_scale(tf.convert_to_tensor(scores), alpha))


def separable_projection(scores, inverse_derivative, k=1, alpha=1.0):
    r"""Projection on the (n, k)-simplex for any separable regulariser $g(x) = \sum_i h(x_i)$.

    $$x_i = \min(1, \max(0, (h')^{-1}(\alpha (z_i - \mu)))), \qquad \textstyle\sum_i x_i = k$$

    The dual variable is found by bisection; a last Newton step gives the exact Jacobian.

    Source: Rankmax, Theorem 2(b).

    Args:
        scores: `[batch, n]`, all finite.
        inverse_derivative: $(h')^{-1}$, an increasing, differentiable function of tensors of any
            real numbers, onto an interval that holds (0, 1).
        k: number of items to select, in [1, n].
        alpha: > 0, a scalar or `[batch]`.

    Returns:
        `[batch, n]`, in [0, 1].

    Raises:
        ValueError: if `k` exceeds n.

    Example:
        >>> separable_projection([[2.0, 1.5, 0.0]], lambda u: u).numpy().round(6)
        array([[0.75, 0.25, 0.  ]], dtype=float32)
    """
    scores = _scale(tf.convert_to_tensor(scores), alpha)
    _check_k(scores, k)
    scores -= tf.stop_gradient(tf.reduce_max(scores, axis=-1, keepdims=True))

    def project(dual):
        raw = scores - dual
        x = inverse_derivative(raw)
        # Where x is cut it may have overflowed, and its slope must not count.
        is_free = (x > 0) & (x < 1)
        free = inverse_derivative(tf.where(is_free, raw, tf.zeros_like(raw)))
        return tf.where(is_free, free, tf.clip_by_value(tf.stop_gradient(x), 0, 1))

    def enough(dual):
        return tf.reduce_sum(project(dual), axis=-1, keepdims=True) >= k

    # The dual variable is bracketed by steps that double, then by halves.
    def widen(low, high, step):
        low = tf.where(enough(low), low, low - step)
        return low, tf.where(enough(high), high + step, high), step * 2

    def bracketed(low, high, step):
        del step
        return ~tf.reduce_all(enough(low) & ~enough(high))

    zero = tf.zeros_like(scores[:, :1])
    low, high, _ = tf.while_loop(
        bracketed, widen, (zero - 1, zero + 1, tf.ones([], scores.dtype)), maximum_iterations=100
    )

    def halve(low, high):
        middle = (low + high) / 2
        below = enough(middle)
        return tf.where(below, middle, low), tf.where(below, high, middle)

    low, high = tf.while_loop(lambda *_: True, halve, (low, high), maximum_iterations=_MAX_STEPS)
    dual = tf.stop_gradient((low + high) / 2)
    with tf.GradientTape() as tape:
        tape.watch(dual)
        surplus = tf.reduce_sum(project(dual), axis=-1, keepdims=True) - k
    slope = tf.stop_gradient(-tape.gradient(surplus, dual))
    return project(dual + tf.math.divide_no_nan(surplus, slope))


def fenchel_young_loss(scores, class_ids, relevance=None, regularizer="euclidean", k=1, alpha=1.0):
    r"""Fenchel-Young loss of the uniform distribution over the positives.

    $$\Omega^*(z) + \Omega(y) - \langle z, y \rangle, \qquad \Omega(x) = g(x) / \alpha, \qquad
    y_i = k / |Y| \text{ for } i \in Y$$

    with gradient $p_\alpha(z) - y$. A list of fewer than k positives selects as many items as it
    has positives, so that y lies on the simplex. Euclidean with k = 1, $\alpha$ = 1 is the
    Sparsemax loss, entropy with k = 1, $\alpha$ = 1 is softmax cross-entropy.

    Source: Rankmax, section 3.2; Blondel et al. 2020.

    Args:
        scores: `[batch, n]`; -inf marks an item that is not there.
        class_ids: `[batch, P]` integers, padded with -1.
        relevance: `[batch, P]`, > 0 for a positive; None means 1. The grade does not matter.
        regularizer: `"euclidean"`, $g = \frac{1}{2} \|x\|^2$, or `"entropy"`,
            $g = \sum_i x_i \log x_i$.
        k: number of items to select, in [1, n].
        alpha: > 0.

    Returns:
        `[batch]`, >= 0; 0 for a list without positives.

    Raises:
        ValueError: if `k` exceeds n.

    Example:
        >>> fenchel_young_loss([[0.0, 0.0]], [[0]]).numpy()  # p = (1/2, 1/2)
        array([0.25], dtype=float32)
    """
    scores = tf.convert_to_tensor(scores)
    class_ids = tf.cast(class_ids, tf.int32)
    positive = class_ids >= 0
    if relevance is not None:
        positive &= relevance > 0
    class_ids = tf.maximum(class_ids, 0)
    count = tf.reduce_sum(tf.cast(positive, tf.int32), axis=-1)
    has_positive = count[:, tf.newaxis] > 0
    conjugate_of = _euclidean_conjugate if regularizer == "euclidean" else _entropy_conjugate

    @tf.custom_gradient
    def loss(scores):
        top, kth, selected = _selection(scores, k, tf.maximum(count, 1))
        share = tf.cast(selected, scores.dtype) / tf.cast(tf.maximum(count, 1), scores.dtype)
        target = tf.where(positive, share[:, tf.newaxis], tf.zeros([], scores.dtype))
        # Relative to the k-th score, which the sum k of both sides cancels, no digits are lost.
        x, conjugate = conjugate_of(scores, top, kth, selected)
        own = gather(scores, class_ids) - kth
        own = tf.reduce_sum(tf.where(positive, target * own, tf.zeros_like(own)), axis=-1)
        mass = tf.cast(selected, scores.dtype)
        of_target = mass * (share / 2 if regularizer == "euclidean" else tf.math.log(share))
        value = tf.where(has_positive[:, 0], conjugate + of_target - own, tf.zeros_like(own))

        def gradient(upstream):
            upstream = upstream[:, tf.newaxis]
            items = tf.where(has_positive, x * upstream, tf.zeros([], x.dtype))
            return _top.add_columns(items, class_ids, -target * upstream)

        return value, gradient

    return loss(_scale(scores, alpha)) / alpha


def adaptive_fenchel_young_loss(scores, class_ids, relevance=None):
    r"""Fenchel-Young loss with the $\alpha_y$ of Rankmax (k = 1).

    $$\sum_y w_y \frac{\sum_{i \ne y} v_i^2 + R^2}{2 (1 + R)}, \qquad v_i = (z_i - z_y + 1)_+,
    \quad R = \sum_{i \ne y} v_i$$

    That is $\Omega^*(z) + \Omega(y) - z_y$ for $\Omega(x) = \|x\|^2 / (2 \alpha_y(z))$. It is
    convex, >= 0, and 0 exactly where the label is a margin of 1 above all others. Its gradient is
    that of the whole expression: with $\alpha_y$ held constant, $p(z) - y$ is not the gradient of
    any function.

    Source: the outlook of Rankmax, section 5, worked out.

    Args:
        scores: `[batch, n]`; -inf marks an item that is not there.
        class_ids: `[batch, P]` integers, padded with -1.
        relevance: `[batch, P]`, the weight of each positive; None means 1.

    Returns:
        `[batch]`, >= 0.

    Example:
        >>> adaptive_fenchel_young_loss([[0.0, 0.0]], [[0]]).numpy()  # (1 + 1) / (2 (1 + 1))
        array([0.5], dtype=float32)
    """
    lists = _positives.prepare(scores, class_ids, relevance)
    # The label itself adds 1 to both sums.
    total = lists.sum_over_differences(lambda d: violation(d, 1.0)) - 1
    squares = lists.sum_over_differences(lambda d: violation(d, 1.0) ** 2) - 1
    weighted = lists.relevance > 0
    total = tf.where(weighted, total, tf.zeros_like(total))
    squares = tf.where(weighted, squares, tf.zeros_like(squares))
    # total**2 / (1 + total), written so that it does not overflow.
    losses = (squares / (1 + total) + total * (total / (1 + total))) / 2
    return tf.reduce_sum(lists.relevance * losses, axis=-1)


def _check_k(scores, k):
    n = scores.shape[1]
    if n is not None and k > n:
        raise ValueError(f"`k` must be at most the number of items, {n}. Received: k={k}.")


def _scale(scores, alpha):
    if isinstance(alpha, float | int) and alpha == 1:
        return scores
    alpha = tf.cast(alpha, scores.dtype)
    return scores * (alpha if alpha.shape.rank == 0 else alpha[:, tf.newaxis])


def _selection(scores, k, limit=None):
    """The largest scores in falling order, the k-th `[batch, 1]`, and k per list `[batch]`.

    A list of fewer than k items, or a smaller `limit`, makes k smaller.
    """
    _check_k(scores, k)
    top, _ = _top.top_k(scores, k)
    selected = tf.reduce_sum(tf.cast(top != -float("inf"), tf.int32), axis=-1)
    selected = tf.maximum(selected if limit is None else tf.minimum(selected, limit), 1)
    return top, gather(top, selected[:, tf.newaxis] - 1), selected


def _euclidean(scores, top, kth, selected):
    """The Euclidean projection, and the scores relative to the k-th."""
    n, k = scores.shape[1], top.shape[1]
    total = tf.cast(selected, scores.dtype)[:, tf.newaxis]
    tried = k + _TRIED
    relative = scores - kth
    lowest = -tf.ones_like(kth)
    if n is None or n <= 2 * tried:
        threshold = _threshold(relative, total, lowest)
    else:
        # Those beyond the threshold are usually few. What they alone give is a lower bound, and
        # the threshold itself if nothing else is beyond it.
        largest = _top.top_k(scores, tried)[0] - kth
        bound = _threshold(largest, total, lowest)
        threshold = _threshold(relative, total, bound, found=largest[:, -1:] <= bound)
    return tf.clip_by_value(relative - threshold, 0, 1), relative


def _threshold(scores, total, low, found=None):
    r"""The $\tau$ in [low, 0] with $\sum_i \min(1, \max(0, z_i - \tau))$ = total.

    Newton's method, kept inside a bracket that bisection narrows: for k = 1 that is Michelot's
    iteration and ends after finitely many steps.
    """
    resolution = 2 * np.finfo(scores.dtype.as_numpy_dtype).eps
    found = tf.zeros_like(low, tf.bool) if found is None else found

    def step(low, high, threshold, found):
        x = tf.clip_by_value(scores - threshold, 0, 1)
        surplus = tf.reduce_sum(x, axis=-1, keepdims=True) - total
        free = tf.cast((x > 0) & (x < 1), x.dtype)
        slope = tf.reduce_sum(free, axis=-1, keepdims=True)
        low = tf.where(surplus >= 0, threshold, low)
        high = tf.where(surplus <= 0, threshold, high)
        # Without a slope the surplus is a whole number, and the step leaves the bracket.
        newton = threshold + surplus / tf.maximum(slope, 1)
        outside = (newton <= low) | (newton >= high)
        following = tf.where(outside, (low + high) / 2, newton)
        following = tf.where(found, threshold, following)
        # A NaN counts as found, so that it does not keep the others waiting.
        change = tf.abs(following - threshold)
        found |= (change <= resolution) | tf.math.is_nan(change)
        return low, high, following, found

    return tf.while_loop(
        lambda *state: ~tf.reduce_all(state[3]),
        step,
        (low, tf.zeros_like(low), low, found),
        maximum_iterations=_MAX_STEPS,
    )[2]


def _euclidean_conjugate(scores, top, kth, selected):
    x, relative = _euclidean(scores, top, kth, selected)
    # An item that is not there has x = 0; a NaN differs from 0 and shows.
    inner = tf.where(x == 0, tf.zeros_like(x), x * (relative - x / 2))
    return x, tf.reduce_sum(inner, axis=-1)


def _entropy(scores, top, kth, selected):
    r"""The entropy projection, $\log Z$ and how many items are cut, relative to the k-th score."""
    n = tf.cast(tf.shape(scores)[1], scores.dtype)
    # Any item above n + 1 times the k-th is cut; how far above does not matter.
    ceiling = tf.math.log(2 * n + 2)
    powers = tf.exp(tf.minimum(scores - kth, ceiling))
    top_powers = tf.exp(tf.minimum(top - kth, ceiling))
    all_but_top = tf.reduce_sum(tf.minimum(powers, 1), axis=-1) - tf.reduce_sum(
        tf.minimum(top_powers, 1), axis=-1
    )
    rest, cut = cap(top_powers, tf.nn.relu(all_but_top), selected)
    scale = rest / tf.cast(selected - cut, scores.dtype)
    return tf.minimum(powers / scale[:, tf.newaxis], 1), tf.math.log(scale), cut


def _entropy_conjugate(scores, top, kth, selected):
    x, log_scale, cut = _entropy(scores, top, kth, selected)
    is_cut = tf.range(tf.shape(top)[1]) < cut[:, tf.newaxis]
    of_cut = tf.reduce_sum(tf.where(is_cut, top - kth, tf.zeros_like(top)), axis=-1)
    return x, of_cut + tf.cast(selected - cut, x.dtype) * log_scale
