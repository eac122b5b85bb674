"""Time and memory of output layers at positions of sequences, beside Keras's own form.

    taskset -c 0 python -m scripts.benchmarks.sequences

A step of `fit`, `evaluate` and `top_k` of a model that scores all classes at each
position: Keras's `Dense` with `SparseCategoricalCrossentropy` and Adam, and
`ExtremeClassifier` with losses of this package and `RowwiseAdam`. The encoder is one
dense layer, so that the output layer is what counts. `padded` leaves out the second
half of each sequence. `GPT-2` is keras-hub's `GPT2CausalLM` of two layers, with random
weights; beside it the same backbone over the table of its own words. Memory is the peak
of the process less what it had after the imports; it includes weights, moments and
data. Each figure has a process of its own.
"""

from scripts.benchmarks import harness

KERAS = "Keras"
LOSSES = ("softmax", "rankmax", "sampled softmax")
CAUSAL = ("GPT-2", "GPT-2 by blocks")
FORMS = (KERAS, *LOSSES, *CAUSAL)
DOING = ("step", "padded step", "evaluate", "top_k")


def compiled(form, classes, length, width):
    """A model to score classes at each position of encodings `[batch, time, width]`."""
    from tensorflow import keras

    from rank4class_tf import losses, metrics, models, optimizers

    of_keras = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    if form in CAUSAL:
        import keras_hub

        sizes = {"num_layers": 2, "num_heads": 2, "hidden_dim": width}
        sizes |= {"intermediate_dim": 4 * width, "max_sequence_length": length}
        backbone = keras_hub.models.GPT2Backbone(classes, **sizes)
        if form == CAUSAL[0]:
            model, loss = (
                keras_hub.models.GPT2CausalLM(backbone, preprocessor=None),
                of_keras,
            )
        else:
            words, loss = backbone.token_embedding, losses.SoftmaxLoss()
            model = models.ExtremeClassifier(
                backbone, words, width, None, normalize=False
            )
        model.compile(keras.optimizers.Adam(1e-3), loss)
        return model
    inputs = keras.Input((None, width))
    encodings = keras.layers.Dense(width)(keras.layers.Masking()(inputs))
    if form == KERAS:
        model = keras.Model(
            inputs, keras.layers.Dense(classes, use_bias=False)(encodings)
        )
        model.compile(keras.optimizers.Adam(1e-3), of_keras)
        return model
    sampled = 256 if form == "sampled softmax" else None
    encoder = keras.Model(inputs, encodings)
    model = models.ExtremeClassifier(
        encoder, classes, width, sampled, normalize=False, seed=0
    )
    loss = losses.RankmaxLoss() if form == "rankmax" else losses.SoftmaxLoss()
    model.compile(optimizers.RowwiseAdam(1e-3), loss, metrics=[metrics.NDCG(10)])
    return model


def call_of(doing, form, classes, batch, length, width):
    """A call to measure, and how many repetitions of the work it holds."""
    import numpy as np
    import tensorflow as tf

    rng = np.random.default_rng(0)
    x = rng.normal(size=(batch, length, width)).astype("float32")
    y = rng.integers(0, classes, (batch, length)).astype("int32")
    if doing == "padded step":
        x[:, length // 2 :] = 0
        # Keras has no id for padding; its mask leaves these positions out.
        y[:, length // 2 :] = 0 if form == KERAS else -1
    if form in CAUSAL:
        x = {"token_ids": y, "padding_mask": np.ones_like(y)}
    model = compiled(form, classes, length, width)
    if doing == "top_k":
        if form == KERAS:
            best = tf.function(lambda x: tf.math.top_k(model(x), 10))
        else:
            best = tf.function(lambda x: model.top_k(x, 10))
        return (lambda: best(x)[0].numpy()), 1
    data = tf.data.Dataset.from_tensors((x, y))
    if doing == "evaluate":
        return (lambda: model.evaluate(data, verbose=0)), 1
    steps = 3
    data = data.repeat(steps)
    return (lambda: model.fit(data, verbose=0, shuffle=False)), steps


def measure(what, doing, form, classes, shape, width, seconds):
    """The best seconds, or the peak of memory in MB, in this process."""
    import tensorflow as tf

    from rank4class_tf import models  # noqa: F401  # Imports are not counted.

    tf.config.threading.set_intra_op_parallelism_threads(1)
    before = harness.reset_peak()
    call, number = call_of(doing, form, classes, *shape, width)
    if what == "memory":
        call()
        return {"graph_memory": (harness.memory_status("VmHWM") - before) / 1e6}
    return {"graph": harness.best_times([call], seconds)[0] / number}


def parser():
    """The command line."""
    quick = {"classes": [500], "shapes": [(2, 8)], "width": 8, "seconds": 0.1}
    quick |= {"forms": [KERAS, "softmax"]}
    result = harness.parser(
        __spec__, __doc__, quick, 5.0, time_limit=900.0, memory_limit=20.0
    )
    result.add_argument(
        "--classes", type=int, nargs="+", default=[50_000], help="how many"
    )
    harness.add_shapes(result, "batch x positions", [(16, 256), (16, 1024)])
    result.add_argument(
        "--width", type=int, default=128, help="width of encodings and rows"
    )
    result.add_names("--forms", FORMS, "rows")
    result.add_names("--doing", DOING, "what is timed")
    return result


def measured(args):
    """Yields a table for each number of classes and shape."""
    for classes in args.classes:
        for shape in args.shapes:
            rows = []
            for doing in args.doing:
                peer = {}
                for form in args.forms:
                    if form == "sampled softmax" and doing in ("evaluate", "top_k"):
                        continue  # They rank all classes, as the other forms do.
                    if form in CAUSAL and doing != "step":
                        continue
                    of_case = {
                        "doing": doing,
                        "form": form,
                        "classes": classes,
                        "shape": shape,
                    }
                    of_case["width"] = args.width
                    found = harness.time_and_memory(__spec__.name, args, **of_case)
                    peer = found if form in (KERAS, CAUSAL[0]) else peer
                    row = [doing, form]
                    for key, factor in (("graph", 1e3), ("graph_memory", 1)):
                        row.append(
                            harness.number(
                                found.get(key, found.get("error")), factor, 0
                            )
                        )
                        row.append(harness.quotient(found.get(key), peer.get(key)))
                    rows.append(row)
            head = ["", "form", "ms", "over peer", "MB", "over peer"]
            title = (
                f"{classes:,} classes, {shape[0]} × {shape[1]} positions, d = "
                f"{args.width}"
            )
            yield harness.Table(title, head, rows, 4)


if __name__ == "__main__":
    harness.main(parser(), measure, measured)
