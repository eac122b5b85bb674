"""Two towers with this package, keras-rs and TensorFlow Recommenders, on MovieLens.

    pip install keras-rs && pip install --no-deps tensorflow-recommenders
    python -m scripts.reproductions.retrieval_peers --zip ml-latest-small.zip --out out/peers

It uses the task, the towers, the optimizer and the batches of `retrieval.py`. Every model is
evaluated only by the encodings of its towers. Each library appears twice:

- `as its guide`: what its first retrieval example does. For TensorFlow Recommenders and keras-rs,
  this is a softmax over the inner products of a batch. The example of this package sets a
  temperature, counts how frequent films are, and draws 64 negatives from all of them;
- `all set`: cosines, a temperature, accidental hits masked, log-Q with the share of each film in
  training, and only the highest negatives of a batch if this is better.

`TwoTower` appears twice more: without any option, and with 512 negatives drawn from all films, an
option that the other libraries do not have.

The temperature, then the number of negatives, are chosen by NDCG@10 on the validation items, with a
seed that is not one of those reported; the epoch of each run is chosen in the same way. TensorFlow
Recommenders runs in a process with Keras 2. The time of a step is CPU time, in the fastest epoch.
Memory is the growth of the resident set in training. Lines of code are counted in the function that
makes the model. Each run is a file in `--out`; the table is `results.md`.
"""

import argparse
import inspect
import json
import pathlib
import time

import numpy as np

from scripts import command_line, tables
from scripts.benchmarks import harness as benchmarks

RATE = 0.01
TEMPERATURES = (0.1, 0.2, 0.5)
HARD = (None, 64)


def ours_without_options(towers, task, seed, temperature, hard):
    """A `TwoTower` with its defaults."""
    from rank4class_tf import losses, models

    model = models.TwoTower(*towers, candidate_id="id")
    return model, losses.SoftmaxLoss()


def ours_as_its_guide(towers, task, seed, temperature, hard):
    """The first example of `docs/retrieval.md`."""
    from rank4class_tf import layers, losses, models

    model = models.TwoTower(
        *towers,
        candidate_id="id",
        temperature=0.1,
        frequencies=layers.CandidateFrequencies(num_buckets=2 * len(task.films.ids)),
        num_random=64,
        seed=seed,
    )
    model.index(task.films.features(task.rated))
    return model, losses.SoftmaxLoss()


def ours_all_set(towers, task, seed, temperature, hard):
    """A `TwoTower` with the options that the other libraries have too."""
    from rank4class_tf import layers, losses, models

    frequencies = layers.CandidateFrequencies.from_counts(counts_by_id(task))
    model = models.TwoTower(
        *towers,
        candidate_id="id",
        temperature=temperature,
        frequencies=frequencies,
        num_mined=hard,
    )
    return model, losses.SoftmaxLoss()


def ours_drawn(towers, task, seed, temperature, hard):
    """The same, with negatives drawn from all films as well."""
    from rank4class_tf import layers, losses, models

    frequencies = layers.CandidateFrequencies.from_counts(counts_by_id(task))
    model = models.TwoTower(
        *towers,
        candidate_id="id",
        temperature=temperature,
        frequencies=frequencies,
        num_mined=hard,
        num_random=512,
        seed=seed,
    )
    model.index(task.films.features(task.rated))
    return model, losses.SoftmaxLoss()


def keras_rs_as_its_guide(towers, task, seed, temperature, hard):
    """The inner products of a batch and Keras's own loss."""
    import tensorflow as tf
    from tensorflow import keras

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.queries, self.films = towers

        def call(self, inputs):
            return self.queries(inputs)

        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            scores = tf.matmul(y_pred, self.films(features_of(y)), transpose_b=True)
            return super().compute_loss(x, tf.range(tf.shape(scores)[0]), scores)

    return Model(), keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def keras_rs_all_set(towers, task, seed, temperature, hard):
    """All layers that keras-rs has for this task."""
    import keras_rs
    import tensorflow as tf
    from tensorflow import keras

    share = tf.constant(share_by_number(task), tf.float32)

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.queries, self.films = towers
            self.hits = keras_rs.layers.RemoveAccidentalHits()
            self.correction = keras_rs.layers.SamplingProbabilityCorrection()
            self.mining = keras_rs.layers.HardNegativeMining(hard) if hard else None

        def call(self, inputs):
            return tf.math.l2_normalize(self.queries(inputs), axis=1)

        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            films = tf.math.l2_normalize(self.films(features_of(y)), axis=1)
            scores = tf.matmul(y_pred, films, transpose_b=True) / temperature
            labels = tf.eye(tf.shape(scores)[0])
            scores = self.correction(scores, tf.gather(share, y["row"]))
            scores = self.hits(scores, labels, y["id"])
            if self.mining is not None:
                scores, labels = self.mining(scores, labels)
            return super().compute_loss(x, labels, scores)

    return Model(), keras.losses.CategoricalCrossentropy(from_logits=True)


def tfrs_as_its_guide(towers, task, seed, temperature, hard):
    """TensorFlow Recommenders' retrieval task with its defaults."""
    import tensorflow_recommenders as tfrs

    class Model(tfrs.Model):
        def __init__(self):
            super().__init__()
            self.queries, self.films = towers
            self.task = tfrs.tasks.Retrieval()

        def compute_loss(self, inputs, training=False):
            x, y = inputs
            return self.task(self.queries(x), self.films(features_of(y)))

    return Model(), None


def tfrs_all_set(towers, task, seed, temperature, hard):
    """TensorFlow Recommenders' retrieval task with all its options."""
    import tensorflow as tf
    import tensorflow_recommenders as tfrs

    share = tf.constant(share_by_number(task), tf.float32)

    class Model(tfrs.Model):
        def __init__(self):
            super().__init__()
            self.queries, self.films = towers
            self.task = tfrs.tasks.Retrieval(
                temperature=temperature, remove_accidental_hits=True, num_hard_negatives=hard
            )

        def compute_loss(self, inputs, training=False):
            x, y = inputs
            return self.task(
                tf.math.l2_normalize(self.queries(x), axis=1),
                tf.math.l2_normalize(self.films(features_of(y)), axis=1),
                candidate_sampling_probability=tf.gather(share, y["row"]),
                candidate_ids=y["id"],
            )

    return Model(), None


MODELS = {
    "TensorFlow Recommenders, as its guide": tfrs_as_its_guide,
    "keras-rs, as its guide": keras_rs_as_its_guide,
    "rank4class_tf, without options": ours_without_options,
    "rank4class_tf, as its guide": ours_as_its_guide,
    "TensorFlow Recommenders, all set": tfrs_all_set,
    "keras-rs, all set": keras_rs_all_set,
    "rank4class_tf, all set": ours_all_set,
    "rank4class_tf, and drawn negatives": ours_drawn,
}


def features_of(y):
    """The input features of the film tower."""
    return {name: y[name] for name in ("number", "words", "genres", "decade")}


def share_by_number(task):
    """`[films]`, the share of each film among the training targets; counts are at least 1."""
    counts = np.bincount([user[end] for user, end in task.ends], minlength=len(task.films.ids))
    return np.maximum(counts, 1) / counts.sum()


def counts_by_id(task):
    """How often the film of each id is a training target."""
    rows = [user[end] for user, end in task.ends]
    return np.bincount(task.films.ids[rows])


def train(name, temperature, hard, seed, archive, epochs, width, batch_size):
    """Trains a model in this process and returns its figures."""
    import tensorflow as tf
    from tensorflow import keras

    from scripts.reproductions import retrieval, retrieval_task

    task = retrieval_task.load(pathlib.Path(archive), batch_size)
    keras.utils.set_random_seed(seed)
    towers = retrieval_task.towers(task.films, width)
    model, loss = MODELS[name](towers, task, seed, temperature, hard)
    model.compile(keras.optimizers.Adam(RATE), loss)
    row_of = np.zeros(task.films.ids.max() + 1, np.int32)
    row_of[task.films.ids] = np.arange(len(task.films.ids))
    row_of = tf.constant(row_of)
    batches = task.pairs(batch_size, seed)
    batches = batches.map(lambda x, y: (x, {**y, "row": tf.gather(row_of, y["id"])}))
    cosines = "all set" in name or name.startswith("rank4class_tf")
    features = features_of(task.films.features(task.rated))

    def figures(held_out):
        queries, _ = task.queries(held_out)
        parts = [
            tower.predict(x, batch_size=512, verbose=0)
            for tower, x in zip(towers, ({"history": queries["history"]}, features), strict=True)
        ]
        if cosines:
            parts = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in parts]
        return retrieval.figures(parts[0] @ parts[1].T, task, held_out)

    best, steps, before = None, [], benchmarks.reset_peak()
    for epoch in range(1, epochs + 1):
        start = time.process_time()
        model.fit(batches, epochs=1, shuffle=False, verbose=0)
        steps.append((time.process_time() - start) / len(batches) * 1e3)
        validation = figures(2)
        if (
            best is None
            or validation[retrieval.SELECT_BY] > best["validation"][retrieval.SELECT_BY]
        ):
            best = {"epoch": epoch, "validation": validation, "test": figures(1)}
        if epoch - best["epoch"] >= 2:
            break
    return {**best, "ms": min(steps), "MB": (benchmarks.memory_status("VmHWM") - before) / 1e6}


def is_tuned(name):
    """Whether a model has a temperature to choose."""
    return "guide" not in name and "without" not in name


def study(args):
    """Does all missing runs, each in its own process; yields each model with its runs."""
    from scripts.reproductions import harness

    def run(name, temperature, hard, seed):
        of_run = {"name": name, "temperature": temperature, "hard": hard, "seed": seed}
        names = ("epochs", "width", "batch_size")
        of_run |= {name: getattr(args, name) for name in names}
        file = "-".join(map(str, (name, temperature, hard, seed))).replace(" ", "_")

        def make():
            legacy = "1" if name.startswith("TensorFlow") else "0"
            environment = {**benchmarks.RETURN_MEMORY, "TF_USE_LEGACY_KERAS": legacy}
            settings = of_run | {"archive": str(args.zip), "memory_limit": 16.0}
            result = benchmarks.in_process(__spec__.name, settings, environment)
            if "error" in result:
                raise SystemExit(f"{name}: {result['error']}")
            return result

        return harness.cached(args.out / "runs" / f"{file}.json", of_run, make)

    for name in MODELS:
        best = 1.0, None
        if is_tuned(name):
            for choices in ([(t, HARD[0]) for t in TEMPERATURES], [(None, hard) for hard in HARD]):
                choices = [(t or best[0], hard) for t, hard in choices]
                tried = [run(name, *choice, args.tuning_seed) for choice in choices]
                best = choices[int(np.argmax([r["validation"]["ndcg_at_10"] for r in tried]))]
        yield name, best, [run(name, *best, seed) for seed in args.seeds]


def report(results):
    """The table."""
    lines = []
    for name, (temperature, hard), runs in results:
        of_runs = [
            tables.plus_minus([run["test"][key] for run in runs])
            for key in ("recall_at_10", "recall_at_100", "ndcg_at_10")
        ]
        code = [line.strip() for line in inspect.getsource(MODELS[name]).splitlines()]
        count = sum(bool(line) and not line.startswith(('"""', "#")) for line in code)
        time, memory = (f"{min(run[key] for run in runs):.0f}" for key in ("ms", "MB"))
        chosen = f"T = {temperature:g}, {hard or 'all'} negatives" if is_tuned(name) else ""
        lines.append([name, *of_runs, time, memory, str(count), chosen])
    head = ["model", "Recall@10", "Recall@100", "NDCG@10", "step, ms", "MB", "lines", "chosen"]
    return "\n".join(tables.table(head, lines)) + "\n"


def parse_args(argv=None) -> argparse.Namespace:
    """The command line."""
    parser = command_line.parser(__spec__, description=__doc__)
    count = command_line.positive(int)
    parser.add_argument("--zip", type=pathlib.Path, help="MovieLens's archive")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/peers"))
    parser.add_argument("--seeds", type=command_line.seed, nargs="+", default=[0, 1, 2])
    parser.add_argument("--tuning-seed", type=command_line.seed, default=100)
    parser.add_argument("--width", type=count, default=64)
    parser.add_argument("--epochs", type=count, default=8, help="maximum number of epochs")
    parser.add_argument("--batch-size", type=count, default=512)
    parser.add_argument("--child", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.child is None and args.zip is None:
        parser.error("--zip must be MovieLens's archive")
    return args


def main(argv=None):
    """Runs the study and writes the table after each model."""
    args = parse_args(argv)
    if args.child:
        benchmarks.answer(train, args.child)
        return
    from rank4class_tf import _files

    results = []
    for result in study(args):
        results.append(result)
        args.out.mkdir(parents=True, exist_ok=True)
        _files.write_text(args.out / "results.md", report(results))
    print(report(results))


if __name__ == "__main__":
    main()
