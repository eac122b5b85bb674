"""Time and memory of the heads, compared with their plain forms and with `Dense`.

    python -m scripts.benchmarks.heads --shapes 64x1000x2048 --heads latent_cross plain_latent_cross

Each row times one head: its forward pass and the gradients of its weights and of the encodings. It
runs in a separate process and alternates with `keras.layers.Dense` for the same number of classes.
The best time of each is reported, so other work on the machine affects both equally. The plain
forms compute the formulas with `tf.einsum` over all pairs, and alternate with the head, too. Memory
is measured in a second process, as in `losses.py`: the growth of the resident set during one step,
which includes the gradients but not the weights.

To add a head, add a row to `CASES`.
"""

import functools

from scripts.benchmarks import harness

MLPS = ("latent_cross", "concat")
HEADS = ("dot_product", "cosine", "bilinear", *MLPS)


def by_name(name):
    """A head of this package; `units` are the widths of its hidden layers, if it has any."""

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
    """The formula of a head over all pairs, with the weights of the head."""

    def make(n, width, units):
        import tensorflow as tf

        head, variables = by_name(name)(n, width, units)

        def pairs(h, c):
            if name == "latent_cross":
                return h[:, tf.newaxis] * (1 + c), head.interaction.first[0]
            shape = [tf.shape(h)[0], n, width]
            both = [tf.broadcast_to(x, shape) for x in (h[:, tf.newaxis], c)]
            return tf.concat(both, axis=-1), tf.concat(head.interaction.first, axis=0)

        def score(h):
            c = tf.convert_to_tensor(head.classes.embeddings)
            if name == "cosine":
                h, c = (tf.math.l2_normalize(x, axis=1) for x in (h, c))
                return head.interaction.scale * tf.einsum("bd,nd->bn", h, c)
            if name == "bilinear":
                return tf.einsum("bd,de,ne->bn", h, head.interaction.kernel, c) + head.classes.bias
            if name == "dot_product":
                return tf.einsum("bd,nd->bn", h, c) + head.classes.bias
            hidden, kernel = pairs(h, c)
            first_bias, *biases = head.interaction.biases
            hidden = tf.einsum("bnd,du->bnu", hidden, kernel) + first_bias
            for kernel, bias in zip(head.interaction.kernels, biases, strict=True):
                hidden = tf.einsum("bnu,uv->bnv", tf.nn.relu(hidden), kernel) + bias
            return hidden[..., 0]

        return score, variables

    return make


CASES = {
    name: form
    for head in HEADS
    for name, form in ((head, by_name(head)), (f"plain_{head}", plain(head)))
}


def measure(name, shape, args):
    """Times of a head and of `Dense`, or the memory of the head, in this process."""
    import numpy as np
    import tensorflow as tf

    batch, n, width = shape
    rng = np.random.default_rng(0)
    encodings = tf.constant(rng.normal(size=(batch, width)), tf.float32)
    upstream = tf.constant(rng.normal(size=(batch, n)), tf.float32)

    def compiled(make, jit_compile):
        score, variables = make(n, width, tuple(args.units))

        def step(encodings):
            with tf.GradientTape() as tape:
                tape.watch(encodings)
                scores = score(encodings)
            gradients = tape.gradient(scores, [encodings, *variables], output_gradients=upstream)
            return scores, [tf.convert_to_tensor(gradient) for gradient in gradients]

        return harness.compiled(step, encodings, jit_compile=jit_compile)

    def calls(jit_compile):
        makers = [CASES[name], dense]
        if name.startswith("plain_"):
            makers.append(CASES[name.removeprefix("plain_")])
        return [functools.partial(compiled, make, jit_compile) for make in makers]

    return harness.by_mode(calls, args, ("", "_dense", "_own"))


def run(name, shape, args):
    """Measures one head: time and memory, each in a process of its own."""
    arguments = ["--heads", name, "--shapes", harness.shape_text(shape)]
    arguments += harness.options(args, "seconds", "memory_limit", "units")
    return harness.time_and_memory(__spec__.name, arguments, time_limit=args.time_limit)


def table(shape, results):
    """The Markdown table of one shape."""
    batch, n, width = shape
    head = ["head", "graph ms", "XLA ms", "graph ÷ Dense", "XLA ÷ Dense", "graph MB", "XLA MB"]
    head += ["ours faster, graph", "XLA"]
    modes = harness.MODES
    rows = []
    for name, result in results.items():
        cells = [harness.number(result.get(mode, result.get("error")), 1000) for mode in modes]
        cells += [harness.quotient(result.get(mode), result.get(f"{mode}_dense")) for mode in modes]
        cells += [harness.number(result.get(f"{mode}_memory"), digits=0) for mode in modes]
        cells += [harness.quotient(result.get(mode), result.get(f"{mode}_own")) for mode in modes]
        rows.append([name, *cells])
    return harness.Table(head, rows, f"{batch} × {n}, d = {width}")


def parse_args(argv=None):
    """The command line."""
    parser = harness.parser(__spec__, __doc__)
    harness.add_cases(parser, "--heads", "head", CASES, ["time", "memory"], 300.0, 16.0)
    parser.add_argument(
        "--shapes",
        nargs="+",
        type=harness.shape_of(3),
        default=[(32, 28, 768), (32, 1000, 512), (64, 1000, 2048), (32, 10_000, 512)],
        help="batch x n x d",
    )
    parser.add_argument(
        "--units", nargs="+", type=int, default=[256, 256], help="widths of the hidden layers"
    )
    return parser.parse_args(argv)


def main(argv=None):
    """Prints the tables."""
    args = parse_args(argv)
    if args.child:
        name, shape = args.heads[0], args.shapes[0]
        harness.answer(lambda: measure(name, shape, args), args.memory_limit)
        return
    tables = (
        table(shape, {name: run(name, shape, args) for name in args.heads}) for shape in args.shapes
    )
    harness.show(tables, args)


if __name__ == "__main__":
    main()
