"""Time and accuracy of the sorters, compared with public peers and `tf.sort` in the same run.

    python -m scripts.benchmarks.sorters --shapes 32x100 --sorters laplace torchsort

For each shape, every sorter runs in a separate process: its forward pass, also with the gradient of
the sum of squared ranks. It alternates with the forward pass of `tf.sort`. The best time of each is
reported, so other work on the machine affects them equally. Accuracy is measured as in SoDeep: the
mean error of the ranks divided by d on the lists of `sorting.py`, and the shares of items whose own
slope vanishes or has the wrong sign. A peer that exceeds `--memory-limit` or `--time-limit`, or
that is not installed, is reported as such.

Peers: torchsort (the SoftRank of Blondel et al. 2020 in C++) and diffsort (sorting networks,
Petersen et al. 2021), both in PyTorch; NeuralSort (Grover et al. 2019), which is written here; and
fast_soft_sort, the authors' SoftRank, with numba, if its repository is on PYTHONPATH.
"""

import dataclasses
import os
from collections.abc import Callable

from scripts.benchmarks import harness


def ours(identifier, **kwargs):
    """A sorter of this package, by name."""

    def make(size):
        del size
        from rank4class_tf import layers

        return layers.get_sorter(identifier, **kwargs)

    return make


def neural_sort(temperature):
    """NeuralSort: each rank's softmax over items, and the mean rank of each item."""

    def make(size):
        import tensorflow as tf

        places = tf.range(1, size + 1, dtype=tf.float32)

        def ranks(scores):
            spread = tf.reduce_sum(tf.abs(scores[:, :, None] - scores[:, None, :]), axis=2)
            logits = (size + 1 - 2 * places)[:, None] * scores[:, None, :] - spread[:, None, :]
            shares = tf.nn.softmax(logits / temperature, axis=2)
            totals = tf.reduce_sum(shares, axis=1)
            return tf.linalg.matvec(shares, places, transpose_a=True) / totals

        return ranks

    return make


def torchsort(regularization):
    """The public SoftRank in C++."""

    def make(size):
        del size
        import torchsort

        return lambda scores: torchsort.soft_rank(-scores, regularization_strength=regularization)

    return make


def fast_soft_sort(regularization):
    """The SoftRank of its authors."""

    def make(size):
        del size
        from fast_soft_sort import pytorch_ops

        return lambda scores: pytorch_ops.soft_rank(
            scores, direction="DESCENDING", regularization_strength=regularization
        )

    return make


def diffsort(steepness):
    """An odd-even sorting network, with the Cauchy distribution."""

    def make(size):
        import diffsort
        import torch

        network = diffsort.DiffSortNet(
            "odd_even", size, steepness=steepness, distribution="cauchy", device=torch.device("cpu")
        )
        # It sorts in rising order; places count from 0.
        places = size - torch.arange(size, dtype=torch.float32)
        return lambda scores: network(scores)[1] @ places

    return make


@dataclasses.dataclass(frozen=True)
class Case:
    """A row of the table.

    Attributes:
        make: takes the length of the lists and returns a function from scores to ranks.
        in_torch: whether the function takes tensors of PyTorch.
        is_timed: whether it is timed; False if another setting of the same sorter takes as long.
    """

    make: Callable
    in_torch: bool = False
    is_timed: bool = True


CASES = {
    "laplace": Case(ours("laplace", temperature=0.1)),
    "laplace_sharp": Case(ours("laplace", temperature=0.01), is_timed=False),
    "sigmoid": Case(ours("sigmoid", temperature=0.1)),
    "soft_rank": Case(ours("soft_rank", regularization=0.1)),
    "soft_rank_sharp": Case(ours("soft_rank", regularization=0.01), is_timed=False),
    "torchsort": Case(torchsort(0.1), in_torch=True),
    "fast_soft_sort": Case(fast_soft_sort(0.1), in_torch=True),
    "diffsort": Case(diffsort(10.0), in_torch=True),
    "neural_sort": Case(neural_sort(1.0)),
}


def as_tensorflow(function):
    """Turns a function of PyTorch tensors into a function of TensorFlow tensors."""
    import tensorflow as tf
    import torch

    @tf.custom_gradient
    def ranks(scores):
        def forward(scores):
            return function(torch.tensor(scores.numpy())).numpy()

        def backward(scores, upstream):
            inputs = torch.tensor(scores.numpy(), requires_grad=True)
            outputs = function(inputs)
            return torch.autograd.grad(outputs, inputs, torch.tensor(upstream.numpy()))[0].numpy()

        def gradient(upstream):
            return tf.ensure_shape(
                tf.py_function(backward, [scores, upstream], tf.float32), scores.shape
            )

        value = tf.py_function(forward, [scores], tf.float32)
        return tf.ensure_shape(value, scores.shape), gradient

    return ranks


def accuracy(case, length, count):
    """L1 and slopes, measured with `sorting.measure`."""
    from scripts.reproductions import sorting

    function = case.make(length)
    if case.in_torch:
        function = as_tensorflow(function)
    return sorting.measure(function, [length], count)


def timed(case, batch, length, seconds):
    """The best times by mode, forward and with the gradient, each next to the time of `tf.sort`."""
    import numpy as np
    import tensorflow as tf

    scores = np.random.default_rng(0).uniform(-1, 1, (batch, length)).astype(np.float32)
    function = case.make(length)
    result = {}
    if case.in_torch:
        import torch

        # As many threads as TensorFlow may use.
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        inputs = torch.tensor(scores, requires_grad=True)

        def forward():
            with torch.no_grad():
                function(inputs)

        def with_gradient():
            ranks = function(inputs)
            torch.autograd.grad((ranks * ranks).sum(), inputs)

        calls = {"graph": (forward, with_gradient)}
    else:
        inputs = tf.constant(scores)

        def gradient(scores):
            with tf.GradientTape() as tape:
                tape.watch(scores)
                ranks = function(scores)
                loss = tf.reduce_sum(ranks * ranks)
            return tape.gradient(loss, scores)

        calls = {
            mode: [
                harness.compiled(f, inputs, jit_compile=jit_compile) for f in (function, gradient)
            ]
            for mode, jit_compile in harness.MODES.items()
        }
    sort = harness.compiled(lambda x: tf.sort(x, axis=1), tf.constant(scores), jit_compile=False)
    for mode, of_mode in calls.items():
        times = harness.best_times([*of_mode, sort], seconds)
        result[mode] = dict(zip(("forward", "gradient", "sort"), times, strict=True))
    return result


def run(what, name, shape, args):
    """Measures one case in a new process."""
    arguments = ["--child", what, "--sorters", name, "--shapes", harness.shape_text(shape)]
    arguments += harness.options(args, "seconds", "lists", "memory_limit")
    return harness.in_process(__spec__.name, arguments, time_limit=args.time_limit)


def ratio_cell(result, mode, what):
    """A time over that of `tf.sort`, and in milliseconds."""
    if mode not in result:
        return result.get("error", "")
    times = result[mode]
    return f"{times[what] / times['sort']:.1f} ({1e3 * times[what]:.3g} ms)"


def time_table(shape, results):
    """The Markdown table of the times of one shape."""
    head = ["sorter", "graph forward ÷ sort", "with gradient"]
    head += ["XLA forward ÷ sort", "with gradient"]
    columns = [(mode, what) for mode in harness.MODES for what in ("forward", "gradient")]
    rows = [[name, *(ratio_cell(result, *c) for c in columns)] for name, result in results.items()]
    return harness.Table(head, rows, "{} × {}".format(*shape))


def accuracy_table(length, results):
    """The Markdown table of the errors and slopes at one length."""
    head = ["sorter", "L1", "vanishing slopes", "wrong slopes", "median slope"]
    forms = {f"l1_{length}": ".4f", "vanishing_slopes": ".1%"}
    forms |= {"wrong_slopes": ".1%", "median_slope": ".3g"}
    rows = []
    for name, result in results.items():
        cells = [format(result[key], form) for key, form in forms.items() if key in result]
        rows.append([name, *(cells or [result["error"], "", "", ""])])
    return harness.Table(head, rows, f"d = {length}")


def parse_args(argv=None):
    """The command line."""
    parser = harness.parser(__spec__, __doc__)
    harness.add_cases(parser, "--sorters", "sorter", CASES, ["time", "accuracy"])
    parser.add_argument(
        "--shapes",
        nargs="*",
        type=harness.shape_of(2),
        default=[(b, d) for b in (32, 512) for d in (10, 100, 1000, 10_000)],
        help="batch x d, for the times",
    )
    parser.add_argument(
        "--lengths", nargs="*", type=int, default=[10, 100, 1000], help="d, for the accuracy"
    )
    parser.add_argument("--lists", type=int, default=10_000, help="lists for the accuracy")
    return parser.parse_args(argv)


def main(argv=None):
    """Prints the tables."""
    args = parse_args(argv)
    if args.child:
        case, (batch, length) = CASES[args.sorters[0]], args.shapes[0]
        measures = {
            "time": lambda: timed(case, batch, length, args.seconds),
            "accuracy": lambda: accuracy(case, length, args.lists),
        }
        harness.answer(measures[args.child], args.memory_limit)
        return

    def tables():
        for length in args.lengths:
            results = {n: run("accuracy", n, (1, length), args) for n in args.sorters}
            yield accuracy_table(length, results)
        for shape in args.shapes:
            names = [n for n in args.sorters if CASES[n].is_timed]
            results = {n: run("time", n, shape, args) for n in names}
            yield time_table(shape, results)

    harness.show(tables(), args)


if __name__ == "__main__":
    main()
