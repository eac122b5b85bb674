"""Each loss against its row's definition: value and gradient, for each formula option.

Blocks, padding and sorting set in at sizes that short lists do not reach. There a value
can be right and its gradient NaN, where a branch that `tf.where` leaves out is
infinite.
"""

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from .. import derivatives
from ..losses import oracles
from ..refused import refused
from .tables import FORMULAS, LOSSES, OPTIONS, REPRESENTATIVES

# Each size stands for a path: no negatives, one block, several blocks, a last block
# with padding, sorting, lists of up to 128 and of up to 256 items, which have paths
# less, and many blocks.
SIZES = [
    (1, 1),
    (2, 1),
    (17, 16),
    (40, 40),
    (70, 15),
    (100, 11),
    (200, 16),
    (300, 3),
    (300, 33),
    (129, 129),
    (257, 257),
    (1500, 6),
]
# An option changes only the formula, so a few sizes suffice. Random losses are compared
# with differences of the same draws at the first two; at the others they must be
# finite.
FEW_SIZES = [(17, 16), (300, 33), (1500, 6)]
# Ids have paths by the number of columns: one, two to four in long lists, and more.
SIZES_OF_IDS = [(1, 1), (40, 40), (100, 11), (300, 3), (200, 2), *FEW_SIZES]


def of(cases):
    return pytest.mark.parametrize("case", cases)


EVERY = [*LOSSES, *OPTIONS]
exact_losses = of([case for case in EVERY if not case.random])


def value_and_gradient(loss, labels, scores, *weights):
    """In float64; Keras's reduction is in float32."""

    def compute(scores):
        value, of_lists = loss.per_example(labels, scores, *weights)
        return value if of_lists is None else value * tf.cast(of_lists, value.dtype)

    return [x.numpy() for x in derivatives.value_and_gradient(compute, scores)]


def graded_lists(rng, n, grades):
    """Lists with grades, equal grades and masked items; the last has one positive."""
    labels = rng.integers(0, grades, (4, n)).astype(np.float64)
    labels[3] = 0
    labels[:, n // 2] = 1
    labels[0, :3] = -1
    labels[2, [0, n - 1]] = -1
    return labels, rng.normal(size=(4, n))


def assert_by_definition(
    found, definition, labels, scores, *weights, rtol=1e-10, atol=1e-10, of_slopes=1e-6
):
    for row, (value, gradient) in enumerate(zip(*found, strict=True)):
        there = labels[row] >= 0
        others = [x[row, there] for x in (labels, *weights)]

        def of_scores(s, others=others):
            return definition(s, *others)

        s = scores[row, there]
        assert_allclose(value, of_scores(s), rtol=rtol, atol=atol)
        slopes = oracles.gradient(of_scores, s)
        assert_allclose(gradient[there], slopes, rtol=1e-5, atol=of_slopes)
        assert not gradient[~there].any()


@exact_losses
@pytest.mark.parametrize("grades", [2, 5])
def test_grades_and_masks(case, grades, rng):
    labels, scores = graded_lists(rng, 9, grades)
    found = value_and_gradient(case.make(reduction="none"), labels, scores)
    assert_by_definition(found, case.definition, labels, scores)


@exact_losses
def test_tied_scores(case):
    """Gradients of those moving together: losses with a kink at ties have one, too."""
    scores = np.array([[0.5, 0.5, 0.5, -0.25, -0.25]])
    labels = np.array([[0.0, 1.0, 2.0, 1.0, 0.0]])
    value, gradient = value_and_gradient(case.make(reduction="none"), labels, scores)
    assert_allclose(value[0], case.definition(scores[0], labels[0]), rtol=1e-12)
    groups = np.array([scores[0] > 0, scores[0] < 0], np.float64)
    slopes = oracles.gradient(
        lambda x: case.definition(x @ groups, labels[0]), [0.5, -0.25]
    )
    assert_allclose(groups @ gradient[0], slopes, rtol=1e-6, atol=1e-8)


def relevance_of(ids, n, rng=None):
    """Relevance 1 of ids `[batch, P]`, or grades where there is a generator."""
    relevance = np.zeros((len(ids), n))
    for row, of_row in zip(relevance, ids, strict=True):
        positives = of_row[of_row >= 0]
        row[positives] = 1 if rng is None else rng.integers(1, 4, size=len(positives))
    return relevance


def rows(form, cases, sizes):
    """A few sizes, fast but for ids of options; of each formula also the others."""
    others = [size for size in sizes if size not in FEW_SIZES]
    later = pytest.mark.weekly if form == "ids" else pytest.mark.slow
    for case in cases:
        is_formula = case.name in FORMULAS
        name = f"{case.name}-{form}"
        marks = [later] * (form == "ids" and not is_formula)
        yield pytest.param(case, form, FEW_SIZES, id=name, marks=marks)
        if is_formula:
            yield pytest.param(case, form, others, id=f"{name}-others", marks=later)


OF_LISTS = [*rows("relevance", EVERY, SIZES), *rows("ids", LOSSES, SIZES_OF_IDS)]


@pytest.mark.filterwarnings("ignore:.*two scores or more")  # Some lists have one item.
@pytest.mark.often(*REPRESENTATIVES)
@pytest.mark.parametrize("case, form, sizes", OF_LISTS)
def test_short_and_long_lists(case, form, sizes):
    for n, num_positives in sizes:
        rng = np.random.default_rng(100 * n + num_positives)
        loss = case.make(reduction="none", label_format=form)
        if n < max(getattr(loss, "k", 1), 5 * case.random) or (
            case.random and num_positives > 99
        ):
            # k items are to be selected, or sampled, of n; noise by blocks takes
            # seconds.
            continue
        scores, direction = rng.normal(size=(2, 2, n))
        ids = np.stack([rng.permutation(n)[:num_positives] for _ in range(2)])
        ids[1, 1:][rng.random(num_positives - 1) < 0.5] = -1
        relevance = relevance_of(ids, n, None if form == "ids" else rng)
        labels = ids if form == "ids" else relevance

        def values(scores, labels=labels, relevance=relevance):
            if case.random:
                same = case.make(reduction="none", label_format=form)
                return value_and_gradient(same, labels, scores)[0]
            return [
                case.definition(*row) for row in zip(scores, relevance, strict=True)
            ]

        value, gradient = value_and_gradient(loss, labels, scores)
        where = f"n = {n}, P = {num_positives}"
        assert np.isfinite(value).all() and np.isfinite(gradient).all(), where
        if case.random and (n, num_positives) not in FEW_SIZES[:2]:
            continue
        assert_allclose(value, values(scores), rtol=1e-9, atol=1e-9, err_msg=where)
        step = 1e-6 * direction
        slope = np.subtract(values(scores + step), values(scores - step)) / 2e-6
        scale = 1 + np.abs(gradient).sum(axis=1)
        actual = (gradient * direction).sum(axis=1) / scale
        assert_allclose(actual, slope / scale, atol=2e-5, err_msg=where)


@of([case for case in LOSSES if case.weighted])
@pytest.mark.parametrize("n, grades", [(9, 2), (9, 5), (100, 3)])
def test_weights_of_items(case, n, grades, rng):
    labels, scores = graded_lists(rng, n, grades)
    weights = rng.choice([0.0, 0.5, 2.0, 7.0], labels.shape)
    found = value_and_gradient(case.make(reduction="none"), labels, scores, weights)
    assert_by_definition(found, case.definition, labels, scores, weights)


@of(
    [
        case
        for case in LOSSES
        if not case.weighted and not case.name.startswith("gumbel")
    ]
)
def test_other_losses_take_no_weights_of_items(case):
    with refused(r"no form with weights of items. Received: shape \(1, 2\)"):
        case.make()([[1.0, 0.0]], [[0.0, 0.0]], [[1.0, 2.0]])


@of([case for case in EVERY if case.random])
def test_random_losses_have_the_mean_of_their_draws(case, rng):
    draws = 20_000
    labels = np.array([0.0, 2, 0, 1, 0, 0, -1])
    scores = rng.normal(size=7)
    many = np.tile(labels, (draws, 1)), np.tile(scores, (draws, 1))
    drawn, gradients = value_and_gradient(case.make(reduction="none"), *many)

    def mean(s):
        return case.definition(s, labels[labels >= 0])

    six_errors = 6 * drawn.std() / draws**0.5
    assert six_errors > 0 and abs(drawn.mean() - mean(scores[labels >= 0])) < six_errors
    expected = np.append(oracles.gradient(mean, scores[labels >= 0]), 0)
    six_errors = 6 * gradients.std(axis=0) / draws**0.5
    assert (abs(gradients.mean(axis=0) - expected) < six_errors + 1e-9).all()
