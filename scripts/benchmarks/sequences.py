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

import itertools

from scripts.benchmarks import harness

KERAS = "Keras"
LOSSES = ("softmax", "rankmax", "sampled softmax")
CAUSAL = ("GPT-2", "GPT-2 by blocks")
FORMS = (KERAS, *LOSSES, *CAUSAL)
MODE = "graph"
DOING = ("step", "padded step", "evaluate", "top_k")


def gpt2(form, classes, length, width):
    """keras-hub's GPT-2, or its backbone over the table of its words."""
    import keras_hub
    from tensorflow import keras

    from rank4class_tf import losses, models

    backbone = keras_hub.models.GPT2Backbone(
        classes,
        num_layers=2,
        num_heads=2,
        hidden_dim=width,
        intermediate_dim=4 * width,
        max_sequence_length=length,
    )
    if form == CAUSAL[0]:
        model = keras_hub.models.GPT2CausalLM(backbone, preprocessor=None)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    else:
        words = backbone.token_embedding
        model = models.ExtremeClassifier(backbone, words, width, None, normalize=False)
        loss = losses.SoftmaxLoss()
    model.compile(keras.optimizers.Adam(1e-3), loss)
    return model


def over_dense(form, classes, width):
    """One dense layer, and Keras's output layer or ours."""
    from tensorflow import keras

    from rank4class_tf import losses, metrics, models, optimizers

    inputs = keras.Input((None, width))
    encodings = keras.layers.Dense(width)(keras.layers.Masking()(inputs))
    if form == KERAS:
        scores = keras.layers.Dense(classes, use_bias=False)(encodings)
        model = keras.Model(inputs, scores)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(1e-3), loss)
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
        model = gpt2(form, classes, length, width)
    else:
        model = over_dense(form, classes, width)
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
        return {MODE: (harness.memory_status("VmHWM") - before) / 1e6}
    (taken,) = harness.best_times([call], seconds)
    return {MODE: {harness.CASE: taken / number}}


def parser():
    """The command line."""
    quick = {
        "classes": [500],
        "shapes": [(2, 8)],
        "width": 8,
        "seconds": 0.1,
        "forms": [KERAS, "softmax"],
    }
    result = harness.parser(
        __spec__, __doc__, quick, seconds=5.0, time_limit=900.0, memory_limit=20.0
    )
    result.add_values("--classes", int, [50_000], "how many")
    harness.add_shapes(result, "batch x positions", [(16, 256), (16, 1024)])
    result.add_value("--width", int, 128, "width of encodings and rows")
    result.add_names("--forms", FORMS, "rows")
    result.add_names("--doing", DOING, "what is timed")
    return result


def is_measured(doing, form):
    """Whether a form has a figure of its own."""
    if form == "sampled softmax":
        return "step" in doing  # Else it ranks all classes, as the other forms do.
    return form not in CAUSAL or doing == "step"


def cells(found, peer):
    """The time and the memory of a form, each beside that of its peer."""
    time = found.seconds(MODE)
    memory = found.memory.get(MODE)
    return [
        harness.number(time, 1e3, digits=0),
        harness.quotient(time, peer.seconds(MODE)),
        harness.number(memory, digits=0),
        harness.quotient(memory, peer.memory.get(MODE)),
    ]


def measured(args):
    """Yields a table for each number of classes and shape."""
    for classes, shape in itertools.product(args.classes, args.shapes):
        settings = {"classes": classes, "shape": shape, "width": args.width}
        rows = []
        for doing in args.doing:
            peer = harness.Figures({}, {})
            for form in args.forms:
                if not is_measured(doing, form):
                    continue
                found = harness.time_and_memory(
                    __spec__.name, args, doing=doing, form=form, **settings
                )
                if form in (KERAS, CAUSAL[0]):
                    peer = found
                rows.append([doing, form, *cells(found, peer)])
        head = ["", "form", "ms", "over peer", "MB", "over peer"]
        length = f"{shape[0]} × {shape[1]} positions"
        title = f"{classes:,} classes, {length}, d = {args.width}"
        yield harness.Table(title, head, rows, 4)


if __name__ == "__main__":
    harness.main(parser(), measure, measured)
