"""How often is `try_out`'s verdict right? Repeated comparisons whose truth is known.

    python -m scripts.robustness.judge --repeats 12 --csv judge.csv

Four losses train linear models on eight Gaussian classes. Data are of four kinds: the
labels are clean, up to 40 % of them name the next class, up to 45 % are drawn, or the
examples are few. Each comparison has 200 validation and 1,000 test examples. The truth
is a loss's mean accuracy on 10,000 other examples over 20 seeds, tuned anew with each.
A design is a way to spend trainings: how many settings on how many seeds, whether all
candidates or only the best two are then tested, and on how many fresh seeds. A verdict
agrees with the truth if it takes a loss that is better, or takes none where none is
better by .02. "False" is the share of verdicts that take a loss which is not better.
"Stays" is the share that says Stay, and "missed" the share of these for which a loss
was better by more than `report.SMALL_GAIN`.

Another table has no gain at all: twelve candidates whose seeds and test examples are
drawn. The luck of a seed is its standard deviation ÷ that of the mean over the test
examples.

The first table has drawn times of two to five candidates and of their trainings, and a
budget of so many trainings on average, with which `try_out` plans.
"""

import itertools
import pathlib
import types
from typing import NamedTuple

import numpy as np

from rank4class_tf._intervals import Estimate
from rank4class_tf.trials import report, run
from scripts import command_line, tables

CLASSES = 8
WIDTH = 20
SETTINGS = 12
SEEDS = 20
STEPS = 60
STEPS_PER_EPOCH = 5
MONITOR = "accuracy"
KINDS = ("clean", "next class", "drawn", "few")
IDENTITY = np.eye(CLASSES, dtype=np.float32)


class Design(NamedTuple):
    """A way to spend trainings.

    Attributes:
        screened: seeds on which all settings of all candidates are tried.
        finalists: how many candidates are then tested; None tests all, on the seeds
            that tuned them, each seed with its own best setting.
        tested: seeds of the test.
    """

    screened: int
    finalists: int | None
    tested: int

    @property
    def cost(self):
        """How many trainings it takes; the baseline is tested beside the finalists."""
        screening = len(LOSSES) * SETTINGS * self.screened
        if self.finalists is None:
            return screening + len(LOSSES) * self.tested
        return screening + (self.finalists + 1) * self.tested


DESIGNS = {
    "every candidate tuned and tested on 3 seeds": Design(3, None, 3),
    "the same on 8 seeds": Design(8, None, 8),
    "2 seeds choose, the best two on 8 fresh ones": Design(2, 2, 8),
    "2 seeds choose, the best two on 3 fresh ones": Design(2, 2, 3),
    "1 seed chooses, the best two on 8 fresh ones": Design(1, 2, 8),
    "2 seeds choose, the best one on 8 fresh ones": Design(2, 1, 8),
}


def softmax(scores):
    """Probabilities along the last axis."""
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def cross_entropy(scores, right, factor):
    """The gradient of softmax cross-entropy by the scores; `right` is one-hot."""
    return softmax(scores) - right


def smoothed(scores, right, factor):
    """The gradient of cross-entropy with smoothed labels."""
    share = 0.1 * factor / (1 + 0.1 * (factor - 1))
    return softmax(scores) - (1 - share) * right - share / CLASSES


def generalized(scores, right, factor):
    """The gradient of generalised cross-entropy."""
    q = 0.7 * factor / (1 + 0.7 * (factor - 1))
    p = softmax(scores)
    return (p * right).sum(axis=-1, keepdims=True) ** q * (p - right)


def crammer_singer(scores, right, factor):
    """The gradient of the hinge loss of the highest other class."""
    others = np.where(right > 0, -np.inf, scores)
    violation = others.max(axis=-1) - (scores * right).sum(axis=-1) + factor[..., 0]
    return (IDENTITY[others.argmax(axis=-1)] - right) * (violation > 0)[..., np.newaxis]


LOSSES = (cross_entropy, smoothed, generalized, crammer_singer)


def examples(kind, rng):
    """Features and classes to train, validate, test, and to know the truth."""
    centers = rng.normal(size=(CLASSES, WIDTH)) * (1.1 if kind == "clean" else 1.3) / 2

    def draw(count):
        y = rng.integers(0, CLASSES, count)
        return (centers[y] + rng.normal(size=(count, WIDTH))).astype(np.float32), y

    x, y = draw(80 if kind == "few" else 300)
    drawn = rng.integers(0, CLASSES, len(y))
    wrong = {"next class": (y + 1) % CLASSES, "drawn": drawn}
    numbers = rng.random(len(y))
    most = 0.4 if kind == "next class" else 0.45
    is_wrong = numbers < rng.uniform(0.05, most)
    y = np.where(is_wrong, wrong.get(kind, y), y)
    return (x, y), draw(200), draw(1_000), draw(10_000)


def drawn_settings():
    """Rates, decays and factors of a loss's own setting, each `[SETTINGS, 1, 1]`."""
    low = np.log([1e-3, 1e-4, 0.25])
    high = np.log([1, 1, 4])
    cells = [np.random.default_rng(i).permutation(SETTINGS) for i in range(3)]
    places = (np.stack(cells, axis=1) + 0.5) / SETTINGS
    settings = np.exp(low + places * (high - low)).astype(np.float32)
    return settings.T[:, :, np.newaxis, np.newaxis]


def hits(weights, part):
    """Whether each example's highest score is that of its class."""
    x, y = part
    return np.matmul(x, weights).argmax(axis=-1) == y


def weights_after_epochs(gradient, x, right, weights):
    """Yields the weights of AdamW after each epoch, for all seeds and settings."""
    rate, decay, factor = drawn_settings()
    mean = np.zeros_like(weights)
    square = np.zeros_like(weights)
    for step in range(1, STEPS + 1):
        slope = gradient(np.matmul(x, weights), right, factor) / x.shape[2]
        slope = np.matmul(np.swapaxes(x, 2, 3), slope)
        mean = 0.9 * mean + 0.1 * slope
        square = 0.99 * square + 0.01 * slope**2
        scale = np.sqrt(square / (1 - 0.99**step)) + 1e-7
        weights = weights - rate * (mean / (1 - 0.9**step) / scale + decay * weights)
        if step % STEPS_PER_EPOCH == 0:
            yield weights


class Trained(NamedTuple):
    """What a loss reaches with each seed and setting.

    Attributes:
        validation: accuracies `[SEEDS, SETTINGS]`.
        test: `[SEEDS, SETTINGS, n]`, whether each test example is a hit.
        truth: accuracies on other examples, `[SEEDS, SETTINGS]`.
    """

    validation: np.ndarray
    test: np.ndarray
    truth: np.ndarray

    def true_mean(self):
        """The mean truth of the settings that validation chooses, one for each seed."""
        return self.truth[range(SEEDS), self.validation.argmax(axis=1)].mean()


def trained(gradient, data):
    """A loss, of its gradient, trained with all seeds and settings."""
    (x, y), validation, test, truth = data

    # A seed has its own sample of the examples and its own first weights.
    rngs = [np.random.default_rng(seed) for seed in range(SEEDS)]
    rows = np.stack([rng.integers(0, len(x), len(x)) for rng in rngs])
    x = x[rows][:, np.newaxis]
    right = IDENTITY[y[rows]][:, np.newaxis]
    start = np.stack([0.3 * rng.normal(size=(1, WIDTH, CLASSES)) for rng in rngs])
    start = np.repeat(start.astype(np.float32), SETTINGS, axis=1)

    best = np.full((SEEDS, SETTINGS), -1.0)
    best_weights = start
    for weights in weights_after_epochs(gradient, x, right, start):
        value = hits(weights, validation).mean(axis=-1)
        is_best = value > best
        best = np.where(is_best, value, best)
        best_weights = np.where(
            is_best[..., np.newaxis, np.newaxis], weights, best_weights
        )
    means = np.stack([hits(of_seed, truth).mean(axis=-1) for of_seed in best_weights])
    return Trained(best, hits(best_weights, test), means)


def verdict(means, tests):
    """What `try_out` says, from hits `[seeds, lists]` by name."""
    results = {}
    for name, of_test in tests.items():
        values = np.asarray(of_test, float)
        weights = np.ones(values.shape[1])
        of_seeds = [report.ListValues(x, weights, bounds=(0, 1)) for x in values]
        results[name] = [{MONITOR: of_seed} for of_seed in of_seeds]
    gains = report.gains(results)
    trials = []
    for name, of_test in tests.items():
        mean = Estimate(np.mean(of_test), 0, 1)
        trials.append(
            types.SimpleNamespace(name=name, values={MONITOR: mean}, gains=gains[name])
        )
    unfair = report.unfair(means, results, MONITOR)
    return report.TryOut(
        trials, MONITOR, len(means[0]), len(tests[0]), [], None, unfair
    )


class Judged(NamedTuple):
    """What a design takes, the number of a loss, and whether it says Stay."""

    takes: int
    stays: bool


def judged(of_losses, design, first_seed):
    """What a design says of trained losses; its seeds begin at `first_seed`."""
    seeds = (np.arange(design.screened + design.tested) + first_seed) % SEEDS
    screened, fresh = np.split(seeds, [design.screened])
    values = [loss.validation[screened] for loss in of_losses]
    means = {name: x.mean(axis=0) for name, x in enumerate(values)}
    tests = {}
    if design.finalists is None:
        for name, loss in enumerate(of_losses):
            tests[name] = loss.test[screened, values[name].argmax(axis=1)]
    else:
        for name, setting in report.finalists(means, design.finalists).items():
            tests[name] = of_losses[name].test[fresh, setting]
    said = verdict(means, tests)
    return Judged(said.best.name, said.verdict.startswith("Stay"))


def agreement(repeats):
    """A row per design: agreement, false verdicts, share of gains taken, trainings."""
    gains = []
    said = {name: [] for name in DESIGNS}
    for kind, repeat in itertools.product(KINDS, range(repeats)):
        data = examples(kind, np.random.default_rng([repeat, KINDS.index(kind)]))
        of_losses = [trained(gradient, data) for gradient in LOSSES]
        means = np.array([loss.true_mean() for loss in of_losses])
        gains.append(means - means[0])
        for name, design in DESIGNS.items():
            starts = range(0, SEEDS, 4)
            said[name].append([judged(of_losses, design, start) for start in starts])

    for name, design in DESIGNS.items():
        takes, stays = np.moveaxis(np.array(said[name]), -1, 0)
        shares = shares_of_verdicts(np.array(gains), takes, stays > 0)
        yield [name, *(f"{share:.3f}" for share in shares), str(design.cost)]


def shares_of_verdicts(gains, takes, says_stay):
    """How often a design agrees, is false, takes gains, says Stay and misses one.

    Args:
        gains: `[n, losses]`, the true gain over the first loss.
        takes: `[n, starts]`, the loss that is taken.
        says_stay: booleans of that shape.
    """
    most = gains.max(axis=1)
    is_other = takes > 0
    gained = np.take_along_axis(gains, takes, axis=1)
    agrees = np.where(is_other, gained > 0, most[:, np.newaxis] < 0.02)
    shares = [agrees.mean(), (is_other & (gained <= 0)).mean()]
    for low, high in ((0.02, 0.05), (0.05, 1)):
        of_gains = is_other[(most >= low) & (most < high)]
        shares.append(of_gains.mean() if of_gains.size else np.nan)
    missed = (most > report.SMALL_GAIN)[:, np.newaxis] & says_stay
    return [*shares, says_stay.mean(), missed.sum() / max(says_stay.sum(), 1)]


def false_alarms(repeats, candidates=12, lists=1_000):
    """A row per luck of seeds: share of verdicts that take one of equal candidates."""
    rng = np.random.default_rng(0)
    for luck in (0, 0.5, 1, 2, 4):
        alarms = 0
        for _ in range(repeats):
            of_seeds = rng.normal(size=(candidates, SETTINGS, 2))
            means = dict(enumerate(of_seeds.mean(axis=2)))
            tests = {}
            for name in report.finalists(means, 2):
                seeds = luck * 0.3 / np.sqrt(lists) * rng.normal(size=(8, 1))
                tests[name] = seeds + 0.3 * rng.normal(size=lists) / np.sqrt(2)
                tests[name] += 0.3 * rng.normal(size=(8, lists)) / np.sqrt(2)
            # The first is the baseline, 0.
            alarms += verdict(means, tests).best.name != 0
        yield [f"{luck:g}", f"{alarms / repeats:.3f}"]


def planned(rng, held):
    """Settings, seeds, and seconds ÷ budget of a call whose budget holds trainings."""
    count = rng.integers(2, 6)
    of_candidates = np.exp(0.5 * rng.normal(size=count))
    budget = held * of_candidates.mean()

    def seconds(names):
        return of_candidates[names] * np.exp(0.3 * rng.normal(size=len(names)))

    finalists = np.arange(min(count, 3))
    num_passes = 2 * SETTINGS
    spent = 0.0
    for index in range(1, num_passes + 1):
        spent += seconds(np.arange(count)).sum()
        more, seeds = run.affordable(
            budget - spent,
            pass_cost=spent / index,
            seed_cost=seconds(finalists).sum(),
            most_passes=num_passes - index,
            most_seeds=8,
            enough=2 * report.FEW_SETTINGS - index,
        )
        if more == 0 and index > 1:
            break
    for _ in range(seeds):
        spent += seconds(finalists).sum()
    return min(index, SETTINGS), seeds, spent / budget


def budgets(repeats):
    """A row per budget: shares without a verdict and far over it, medians."""
    for held in (10, 20, 30, 60, 120):
        rng = np.random.default_rng(0)
        settings, seeds, times = np.transpose(
            [planned(rng, held) for _ in range(repeats)]
        )
        has_none = (settings < 2) | (seeds < report.FEW_SEEDS)
        shares = [f"{x.mean():.3f}" for x in (has_none, times > 1.2)]
        medians = [f"{np.median(x):g}" for x in (settings, seeds)]
        yield [str(held), *shares, *medians]


def main(argv=None):
    """Prints the tables."""
    parser = command_line.Parser(__spec__, __doc__, {"repeats": 1, "null_repeats": 20})
    count = command_line.count
    parser.add_argument(
        "--repeats", type=count, default=12, help="data sets of each kind"
    )
    parser.add_argument(
        "--null-repeats", type=count, default=1_000, help="for the other tables"
    )
    parser.add_argument("--csv", type=pathlib.Path, help="a file for the first table")
    args = parser.parse_args(argv)

    print("With a budget of so many trainings:\n")
    head = ["trainings", "no verdict", "over 1.2 x budget", "settings", "seeds"]
    tables.show(head, [*budgets(args.null_repeats)], len(head))
    print("\nWithout any gain:\n")
    tables.show(["luck of a seed", "false"], [*false_alarms(args.null_repeats)], 1)
    print("\nWith gains:\n")
    head = ["design", "agrees", "false", "gains .02 to .05 taken", "above .05"]
    head += ["stays", "missed", "trainings"]
    tables.show(head, [*agreement(args.repeats)], len(head) - 1, args.csv)


if __name__ == "__main__":
    main()
