"""Time and accuracy of sorters, next to public peers and `tf.sort` in the same run.

    python -m scripts.benchmarks.sorters --shapes 32x100 --sorters laplace torchsort

For each shape, every sorter runs in a separate process: its forward pass, also with the
gradient of the sum of squared ranks. It alternates with the forward pass of `tf.sort`.
The best time of each is reported, so other work on the machine affects them equally.
Accuracy is measured as in SoDeep: the mean error of the ranks divided by d on the lists
of `sodeep.py`, and the shares of items whose own slope vanishes or has the wrong sign.
A peer that exceeds `--memory-limit` or `--time-limit`, or that is not installed, is
reported as such.

Peers: torchsort (the SoftRank of Blondel et al. 2020 in C++, in PyTorch), of which only
the time is measured, and NeuralSort (Grover et al. 2019), which is written here.

Everything takes half an hour. `--quick` measures two sorters on few short lists.
"""

import os

from scripts.benchmarks import harness


def ours(identifier, **kwargs):
    """A sorter of this package, by name."""

    def make(size):
        del size
        from rank4class_tf import layers

        return layers.get_sorter(identifier, **kwargs)

    return make


def neural_sort(size):
    """NeuralSort: each rank's softmax over items, and the mean rank of each item."""
    import tensorflow as tf

    places = tf.range(1, size + 1, dtype=tf.float32)

    def ranks(scores):
        spread = tf.reduce_sum(tf.abs(scores[:, :, None] - scores[:, None, :]), axis=2)
        signs = (size + 1 - 2 * places)[:, None]
        logits = signs * scores[:, None, :] - spread[:, None, :]
        shares = tf.nn.softmax(logits, axis=2)
        totals = tf.reduce_sum(shares, axis=1)
        return tf.linalg.matvec(shares, places, transpose_a=True) / totals

    return ranks


def torchsort(size):
    """The public SoftRank in C++."""
    del size
    import torchsort

    return lambda scores: torchsort.soft_rank(-scores, regularization_strength=0.1)


# Name -> a function of the length of the lists, which returns a function from scores to
# ranks.
CASES = {
    "laplace": ours("laplace", temperature=0.1),
    "laplace_sharp": ours("laplace", temperature=0.01),
    "sigmoid": ours("sigmoid", temperature=0.1),
    "soft_rank": ours("soft_rank", regularization=0.1),
    "soft_rank_sharp": ours("soft_rank", regularization=0.01),
    "torchsort": torchsort,
    "neural_sort": neural_sort,
}
IN_TORCH = ("torchsort",)
NOT_TIMED = ("laplace_sharp", "soft_rank_sharp")  # Another temperature takes as long.


def measure(what, name, shape, lists, seconds):
    """The accuracy of a sorter, or its times, in this process."""
    function = CASES[name](shape[-1])
    if what == "time":
        return timed(function, name in IN_TORCH, shape, seconds)
    from scripts.reproductions import sodeep

    return sodeep.measure(function, [shape[-1]], lists)


def calls_of_torch(function, scores):
    """The forward pass of a sorter in PyTorch, and with the gradient."""
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

    return [forward, with_gradient]


def calls_of_tensorflow(function, scores, jit_compile):
    """The forward pass of a sorter in TensorFlow, and with the gradient."""
    import tensorflow as tf

    def gradient(scores):
        with tf.GradientTape() as tape:
            tape.watch(scores)
            ranks = function(scores)
            loss = tf.reduce_sum(ranks * ranks)
        return tape.gradient(loss, scores)

    inputs = tf.constant(scores)
    return [
        harness.compiled(step, inputs, jit_compile=jit_compile)
        for step in (function, gradient)
    ]


def timed(function, in_torch, shape, seconds):
    """Best times by mode, forward and with gradient, each next to that of `tf.sort`."""
    import numpy as np
    import tensorflow as tf

    scores = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
    if in_torch:
        calls = {"graph": calls_of_torch(function, scores)}
    else:
        calls = {
            mode: calls_of_tensorflow(function, scores, jit_compile)
            for mode, jit_compile in harness.MODES.items()
        }
    sort = harness.compiled(tf.sort, tf.constant(scores), jit_compile=False)
    result = {}
    for mode, of_mode in calls.items():
        times = harness.best_times([*of_mode, sort], seconds)
        result[mode] = dict(zip(("forward", "gradient", "sort"), times, strict=True))
    return result


def time_table(shape, results):
    """The table of the times of one shape."""
    head = [
        "sorter",
        "graph forward ÷ sort",
        "with gradient",
        "XLA forward ÷ sort",
        "with gradient",
    ]
    rows = []
    for name, result in results.items():
        row = [name]
        for mode in harness.MODES:
            times = result.get(mode)
            for what in ("forward", "gradient"):
                if times:
                    ratio = times[what] / times["sort"]
                    row.append(f"{ratio:.1f} ({1e3 * times[what]:.3g} ms)")
                else:
                    row.append(result.get("error", ""))
        rows.append(row)
    return harness.Table("{} × {}".format(*shape), head, rows)


def accuracy_table(length, results):
    """The table of the errors and slopes at one length."""
    head = ["sorter", "L1", "vanishing slopes", "wrong slopes", "median slope"]
    forms = {
        f"l1_{length}": ".4f",
        "vanishing_slopes": ".1%",
        "wrong_slopes": ".1%",
        "median_slope": ".3g",
    }
    rows = []
    for name, result in results.items():
        if "error" in result:
            cells = [result["error"], "", "", ""]
        else:
            cells = [format(result[key], form) for key, form in forms.items()]
        rows.append([name, *cells])
    return harness.Table(f"d = {length}", head, rows)


def parser():
    """The command line."""
    quick = {
        "sorters": ["laplace", "neural_sort"],
        "lengths": [10],
        "lists": 50,
        "shapes": [(2, 8)],
        "seconds": 0.05,
    }
    result = harness.parser(__spec__, __doc__, quick)
    result.add_names("--sorters", CASES, "rows")
    shapes = [(b, d) for b in (32, 512) for d in (10, 100, 1000, 10_000)]
    harness.add_shapes(result, "batch x d", shapes)
    lengths = "d of accuracies"
    result.add_argument(
        "--lengths", nargs="*", type=int, default=[10, 100, 1000], help=lengths
    )
    result.add_value("--lists", int, 10_000, "lists for the accuracy")
    return result


def measured(args):
    """Yields the tables."""

    def run(what, names, shape):
        settings = {"what": what, "shape": shape, "lists": args.lists}
        return {
            name: harness.run(__spec__.name, args, name=name, **settings)
            for name in names
        }

    names = [name for name in args.sorters if name not in IN_TORCH]
    for length in args.lengths:
        yield accuracy_table(length, run("accuracy", names, (1, length)))
    names = [name for name in args.sorters if name not in NOT_TIMED]
    for shape in args.shapes:
        yield time_table(shape, run("time", names, shape))


if __name__ == "__main__":
    harness.main(parser(), measure, measured)
