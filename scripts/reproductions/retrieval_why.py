"""Compares Rankmax and softmax in two-tower models with five kinds of negatives.

    python -m scripts.reproductions.retrieval_why --zip ml-latest-small.zip --out out/retrieval_why

It uses the task and the towers of `retrieval.py`. Both losses train with the same negatives:

- `batch`: the films of the other pairs of the batch, where a film is as frequent as its ratings;
- `batch and drawn`: also 512 films drawn from all;
- `with log-Q`: the same, with the scores corrected for how often a film is a negative;
- `drawn alone`: only the 512 drawn films, without the films of the batch;
- `all films`: every film is a negative of every query.

The temperature of each row is chosen by NDCG@10 on the validation items, with a seed that is not
one of those reported. It also sets the margin: Rankmax with margin 1 at temperature T reads the
films whose cosine is at most T below the cosine of the positive. Each finished run is a file in
`--out`; a second call resumes there. The table is `results.md`.
"""

import argparse
import pathlib

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _files
from scripts import command_line, tables
from scripts.reproductions import harness, retrieval, retrieval_task

LOSSES = ("softmax", "Rankmax")
NEGATIVES = {
    "batch": {"num_random": 0},
    "batch and drawn": {"num_random": 512},
    "with log-Q": {"num_random": 512, "log_q": True},
    "drawn alone": {"num_random": 512, "alone": True},
    "all films": {"num_random": 1_000_000, "alone": True},
}
TEMPERATURES = (0.05, 0.1, 0.2, 0.5, 1.0)


class DrawnAlone(keras.layers.Layer):
    """Replaces `RemoveAccidentalHits`, and masks the other candidates of the batch as well."""

    def call(self, scores, labels, candidate_ids):
        """Returns the scores, -inf where masked."""
        own = labels[:, tf.newaxis]
        hit = tf.gather(candidate_ids, own) == candidate_ids
        columns = tf.range(tf.shape(scores)[1])
        masked = (hit | (columns < tf.shape(scores)[0])) & (columns != own)
        return scores + tf.where(masked, -float("inf"), 0.0)


def run(loss, negatives, temperature, task, seed, args):
    """Validation and test figures of two towers, at the best epoch."""
    keras.backend.clear_session()
    options = {"log_q": False, **NEGATIVES[negatives]}
    alone = options.pop("alone", False)
    model = retrieval_task.build(
        task, retrieval.LOSSES[loss](), args.width, seed=seed, temperature=temperature, **options
    )
    if alone:
        model._remove_hits = DrawnAlone()
    history = retrieval_task.train(model, task, args.epochs, args.batch_size, seed, verbose=0)
    result = {"epoch": int(np.argmax(history[f"val_{retrieval.SELECT_BY}"])) + 1}
    for part, held_out in (("validation", 2), ("test", 1)):
        result[part] = retrieval_task.measure(model, task, held_out)
    return result


def study(task, args):
    """Does all missing runs; yields the names and the runs of each row once they are done."""
    data = retrieval.number_of_data(task)

    def cached(loss, negatives, temperature, seed):
        of_run = {"loss": loss, "negatives": negatives, "temperature": temperature, "seed": seed}
        of_run |= {"width": args.width, "epochs": args.epochs, "data": data}
        name = "-".join(map(str, (loss, negatives, temperature, seed))).replace(" ", "_")
        path = args.out / "runs" / f"{name}.json"
        return harness.cached(
            path, of_run, lambda: run(loss, negatives, temperature, task, seed, args)
        )

    for negatives in args.negatives:
        for loss in LOSSES:
            tried = [cached(loss, negatives, t, args.tuning_seed) for t in args.temperatures]
            best = max(tried, key=lambda r: r["validation"][retrieval.SELECT_BY])["temperature"]
            runs = [cached(loss, negatives, best, seed) for seed in args.seeds]
            yield negatives, loss, tried, best, runs


def report(results):
    """The table of test figures, and the table of validation figures by temperature."""
    columns, select = retrieval.COLUMNS, retrieval.SELECT_BY
    lines = [
        [
            negatives,
            loss,
            *(tables.plus_minus([r["test"][c] for r in runs]) for c in columns.values()),
            f"{best:g}",
            ", ".join(str(r["epoch"]) for r in runs),
        ]
        for negatives, loss, _, best, runs in results
    ]
    text = tables.table(["negatives", "loss", *columns, "temperature", "epochs"], lines)
    text += ["", "NDCG@10 on the validation, one seed:", ""]
    temperatures = [f"T = {r['temperature']:g}" for r in results[0][2]]
    lines = [
        [negatives, loss, *(f"{r['validation'][select]:.3f}" for r in tried)]
        for negatives, loss, tried, *_ in results
    ]
    return "\n".join(text + tables.table(["negatives", "loss", *temperatures], lines)) + "\n"


def parse_args(argv=None) -> argparse.Namespace:
    """The command line."""
    parser = command_line.parser(__spec__, description=__doc__)
    count, positive = command_line.positive(int), command_line.positive(float)
    parser.add_argument("--zip", type=pathlib.Path, required=True, help="MovieLens's archive")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/retrieval_why"))
    parser.add_argument("--negatives", nargs="+", choices=NEGATIVES, default=list(NEGATIVES))
    parser.add_argument("--temperatures", type=positive, nargs="+", default=list(TEMPERATURES))
    parser.add_argument("--seeds", type=command_line.seed, nargs="+", default=[0, 1, 2])
    parser.add_argument("--tuning-seed", type=command_line.seed, default=100)
    parser.add_argument("--width", type=count, default=64)
    parser.add_argument("--epochs", type=count, default=8, help="at most")
    parser.add_argument("--batch-size", type=count, default=512)
    return parser.parse_args(argv)


def main(argv=None):
    """Runs the study and writes the tables after each row."""
    args = parse_args(argv)
    task = retrieval_task.load(args.zip, args.batch_size)
    results = []
    for result in study(task, args):
        results.append(result)
        args.out.mkdir(parents=True, exist_ok=True)
        _files.write_text(args.out / "results.md", report(results))
    print(report(results))


if __name__ == "__main__":
    main()
