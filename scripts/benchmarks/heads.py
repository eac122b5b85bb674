"""Time and memory of the heads, compared with their plain forms and with `Dense`.

    python -m scripts.benchmarks.heads --heads latent_cross plain_latent_cross

Each row times one head: its forward pass and the gradients of its weights and of the
encodings. It runs in a separate process and alternates with `keras.layers.Dense` for
the same number of classes. The best time of each is reported, so other work on the
machine affects both equally. The plain forms of two heads compute the formula over all
pairs with `tf.einsum`, and alternate with the head, too. Memory is measured in a second
process, as in `losses.py`: the growth of the resident set during one step, which
includes the gradients but not the weights. To add a head, add a row to `CASES`.

All heads at all shapes take three quarters of an hour. `--quick` times one head with
few classes.
"""

import functools

from scripts.benchmarks import harness

MLPS = ("latent_cross", "concat")
# What a head alternates with: Keras's layer, and the head itself for a plain form.
DENSE, OWN = "Dense", "own"


def by_name(name):
    """A head of this package; `units` are the widths of its hidden layers, if any."""

    def make(n, width, units):
        from rank4class_tf import layers

        arguments = {"units": units} if name in MLPS else {}
        head = layers.get_head(name, classes=n, **arguments)
        head.build((None, width))
        return head, head.trainable_variables

    return make


def dense(n, width, units):
    """`keras.layers.Dense`, with which all heads are compared."""
    del units
    from tensorflow import keras

    layer = keras.layers.Dense(n)
    layer.build((None, width))
    return layer, layer.trainable_variables


def plain(name):
    """The formula of a head with an MLP over all pairs, with the head's weights."""

    def make(n, width, units):
        import tensorflow as tf

        head, variables = by_name(name)(n, width, units)

        def score(h):
            c = tf.convert_to_tensor(head.classes.embeddings)
            if name == "latent_cross":
                hidden = h[:, tf.newaxis] * (1 + c)
                kernel = head.interaction.first[0]
            else:
                shape = [tf.shape(h)[0], n, width]
                both = [tf.broadcast_to(x, shape) for x in (h[:, tf.newaxis], c)]
                hidden = tf.concat(both, axis=-1)
                kernel = tf.concat(head.interaction.first, axis=0)
            first_bias, *biases = head.interaction.biases
            hidden = tf.einsum("bnd,du->bnu", hidden, kernel) + first_bias
            for kernel, bias in zip(head.interaction.kernels, biases, strict=True):
                hidden = tf.einsum("bnu,uv->bnv", tf.nn.relu(hidden), kernel) + bias
            return hidden[..., 0]

        return score, variables

    return make


CASES = {name: by_name(name) for name in ("dot_product", "cosine", "bilinear", *MLPS)}
CASES |= {f"plain_{name}": plain(name) for name in MLPS}


def measure(what, name, shape, units, seconds):
    """Times of a head and of `Dense`, or the memory of the head, in this process."""
    import numpy as np
    import tensorflow as tf

    batch, n, width = shape
    rng = np.random.default_rng(0)
    encodings = tf.constant(rng.normal(size=(batch, width)), tf.float32)
    upstream = tf.constant(rng.normal(size=(batch, n)), tf.float32)

    def compiled(make, jit_compile):
        score, variables = make(n, width, tuple(units))

        def step(encodings):
            with tf.GradientTape() as tape:
                tape.watch(encodings)
                scores = score(encodings)
            gradients = tape.gradient(
                scores, [encodings, *variables], output_gradients=upstream
            )
            return scores, [tf.convert_to_tensor(gradient) for gradient in gradients]

        return harness.compiled(step, encodings, jit_compile=jit_compile)

    makers = {harness.CASE: CASES[name], DENSE: dense}
    if name.startswith("plain_"):
        makers[OWN] = CASES[name.removeprefix("plain_")]

    def calls(jit_compile):
        return {
            name: functools.partial(compiled, make, jit_compile)
            for name, make in makers.items()
        }

    return harness.by_mode(calls, what, seconds)


def table(shape, results):
    """The table of one shape."""
    head = [
        "head",
        "graph ms",
        "XLA ms",
        "graph ÷ Dense",
        "XLA ÷ Dense",
        "graph MB",
        "XLA MB",
        "graph ÷ ours",
        "XLA ÷ ours",
    ]
    rows = []
    for name, found in results.items():
        row = [name]
        for mode in harness.MODES:
            row.append(harness.number(found.seconds(mode), 1e3))
        rows.append([*row, *found.over(DENSE), *found.megabytes(), *found.over(OWN)])
    return harness.Table("{} × {}, d = {}".format(*shape), head, rows)


def parser():
    """The command line."""
    quick = {
        "heads": ["plain_concat"],
        "shapes": [(4, 8, 16)],
        "units": [8],
        "seconds": 0.1,
    }
    result = harness.parser(
        __spec__, __doc__, quick, time_limit=300.0, memory_limit=16.0
    )
    result.add_names("--heads", CASES, "rows")
    default = [(32, 28, 768), (32, 1000, 512), (64, 1000, 2048), (32, 10_000, 512)]
    harness.add_shapes(result, "batch x n x d", default)
    result.add_values("--units", int, [256, 256], "hidden widths")
    return result


def measured(args):
    """Yields the table of each shape."""
    for shape in args.shapes:
        settings = {"shape": shape, "units": args.units}
        results = {
            name: harness.time_and_memory(__spec__.name, args, name=name, **settings)
            for name in args.heads
        }
        yield table(shape, results)


if __name__ == "__main__":
    harness.main(parser(), measure, measured)
