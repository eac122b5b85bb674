"""Two towers with several losses and sources of negatives, and other methods, on MovieLens.

    python -m scripts.reproductions.retrieval --zip ml-latest-small.zip --out out/retrieval

`retrieval_task.py` defines the task and the towers. The last film of each user by time is the
test item, and the one before it the validation item. For each user, all films of the archive that
the user has not rated before are ranked. All methods learn from the same users' films before these
two: the towers learn to predict at most the last 50 films of each user (`PAIRS`), each from the 50
before it; the other methods use all films. In the test, they read the validation film as the user's
last.

- `popularity`: how many users rated a film;
- `item-kNN`: the sum of the cosines with the user's films, of the nearest to each;
- `EASE`: Steck 2019, "Embarrassingly Shallow Autoencoders for Sparse Data";
- `autoencoder`: the user's films, half of them dropped, through a layer of the towers' width to a
  softmax over all films;
- towers with five losses, and with softmax and other choices of negatives.

Each method's settings (see `SETTINGS`) are chosen by NDCG@10 on the validation items, with the seed
`--tuning-seed`, which is not one of the seeds reported. The same metric chooses the epoch of each
run.
Each finished run is a file in `--out`; a second call resumes there. The table is `results.md`.
"""

import itertools
import pathlib
import zlib

import numpy as np
import tensorflow as tf
from tensorflow import keras

import rank4class_tf as r4c
from rank4class_tf import _files
from scripts import command_line, tables
from scripts.reproductions import harness, retrieval_task

COLUMNS = {
    "Recall@10": "recall_at_10",
    "Recall@100": "recall_at_100",
    "NDCG@10": "ndcg_at_10",
    "MRR": "mrr",
    "coverage@10": "coverage",
}
SELECT_BY = "ndcg_at_10"

LOSSES = {
    "softmax": r4c.losses.SoftmaxLoss,
    "Rankmax": r4c.losses.RankmaxLoss,
    "pairwise logistic": r4c.losses.PairwiseLogisticLoss,
    "Top-16 mining": lambda: r4c.losses.OrderedWeightedLoss(
        "pairwise", "hinge", r4c.losses.TopKWeights(16)
    ),
    "ApproxNDCG": r4c.losses.ApproxNDCGLoss,
}
TEMPERATURES = (0.05, 0.2, 0.5, 1.0)
# The rate is chosen after the temperature, which is chosen with the first rate.
LEARNING_RATES = (0.003, 0.001, 0.01, 0.03)
ALL_NEGATIVES = {"num_random": 512}
# Towers with softmax and other choices of negatives.
NEGATIVES = {
    "in the batch alone": {"num_random": 0, "log_q": False},
    "in the batch, log-Q": {"num_random": 0, "log_q": True},
    "in the batch and drawn": {"num_random": 512, "log_q": False},
    "and of earlier batches, log-Q": {"num_random": 512, "log_q": True, "memory_size": 2048},
}
SETTINGS = {
    "item-kNN": [{"neighbours": n, "shrink": s} for n in (5, 10, 20, 100) for s in (0, 10, 100)],
    "EASE": [{"l2": l2} for l2 in (10, 30, 100, 300, 1000, 3000)],
    "autoencoder": [{"learning_rate": rate} for rate in (1e-3, 3e-3, 1e-2)],
}


def interactions(task, held_out):
    """`[users, films]`, 1 for a film that the user rated before the held-out ones."""
    matrix = np.zeros([len(task.users), len(task.films.ids)], np.float32)
    for row, user in zip(matrix, task.users, strict=True):
        row[user[:-held_out]] = 1
    return matrix


def figures(scores, task, held_out):
    """The metrics of scores `[users, films]`, and the coverage."""
    _, rows = task.queries(held_out)
    scores = np.where(interactions(task, held_out) > 0, -np.inf, scores).astype(np.float32)
    measured = [r4c.metrics.RecallAtK([10, 100]), r4c.metrics.NDCG(10), r4c.metrics.MRR()]
    results = {}
    for metric in measured:
        metric.update_state(rows, scores)
        value = metric.result()
        results |= value if isinstance(value, dict) else {metric.name: value}
    best = np.argpartition(-scores, 9, axis=1)[:, :10]
    results["coverage"] = len(np.unique(best)) / scores.shape[1]
    return {name: float(results[name]) for name in COLUMNS.values()}


def popularity(learned):
    """A function of histories that scores films by how many users rated them."""
    return lambda histories: np.broadcast_to(learned.sum(axis=0), histories.shape)


def item_knn(learned, neighbours, shrink):
    """A function of histories that scores films by their cosines with the films of the user."""
    counts = learned.sum(axis=0)
    similar = learned.T @ learned
    similar /= np.sqrt(np.outer(counts, counts)) + shrink + 1e-9
    np.fill_diagonal(similar, 0)
    least = np.partition(similar, -neighbours, axis=1)[:, -neighbours, np.newaxis]
    similar[similar < least] = 0
    return lambda histories: histories @ similar


def ease(learned, l2):
    """A function of histories that scores films by EASE, with the inverse of a matrix of users."""
    learned = learned.astype(float)
    inverse = np.linalg.inv(learned @ learned.T + l2 * np.eye(len(learned)))
    half = inverse @ learned
    diagonal = 1 - np.sum(learned * half, axis=0)
    return lambda histories: histories - (histories - (histories @ learned.T) @ half) / diagonal


def autoencoder(task, learned, learning_rate, width, seed, epochs=200, every=5):
    """A function of histories that scores films by a network at its best epoch; and that epoch."""
    keras.utils.set_random_seed(seed)
    size = learned.shape[1]
    normal = keras.initializers.RandomNormal(stddev=0.05, seed=seed)
    model = keras.Sequential(
        [
            keras.layers.Input([size]),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(width, use_bias=False, kernel_initializer=normal),
            keras.layers.Dense(size, kernel_initializer=normal),
        ]
    )
    loss = r4c.losses.SoftmaxLoss(label_format="relevance")
    model.compile(keras.optimizers.Adam(learning_rate), loss=loss)

    def inputs(histories):
        return histories / np.sqrt(np.maximum(histories.sum(axis=1, keepdims=True), 1))

    def score(histories):
        return model.predict(inputs(histories), batch_size=128, verbose=0)

    histories = interactions(task, 2)
    _, best = harness.train_to_best(
        model,
        epochs,
        every,
        lambda epoch: model.fit(inputs(learned), learned, batch_size=128, verbose=0),
        lambda: figures(score(histories), task, 2),
        SELECT_BY,
        patience=30,
    )
    return score, best["epoch"]


def run_method(method, settings, task, seed, width):
    """Validation and test figures of one of the other methods."""
    learned, result = interactions(task, 2), {}
    if method == "autoencoder":
        score, result["epoch"] = autoencoder(task, learned, width=width, seed=seed, **settings)
    else:
        make = {"popularity": popularity, "item-kNN": item_knn, "EASE": ease}[method]
        score = make(learned, **settings)
    for part, held_out in (("validation", 2), ("test", 1)):
        result[part] = figures(score(interactions(task, held_out)), task, held_out)
    return result


def run_towers(loss, settings, task, seed, width, epochs, batch_size):
    """Validation and test figures of two towers."""
    keras.backend.clear_session()
    log_q = {"log_q": loss == "softmax"}  # It corrects a sum, which the other losses lack.
    options = {**ALL_NEGATIVES, **log_q, **settings}
    model = retrieval_task.build(task, LOSSES[loss](), width, seed=seed, **options)
    history = retrieval_task.train(model, task, epochs, batch_size, seed, verbose=0)
    result = {"epoch": int(np.argmax(history[f"val_{SELECT_BY}"])) + 1}
    for part, held_out in (("validation", 2), ("test", 1)):
        result[part] = retrieval_task.measure(model, task, held_out)
    return result | {"unrated": of_unrated(model, task)}


def of_unrated(model, task):
    """The ranks of the test films that do not occur in training, each for its user."""
    queries, rows = task.queries(1)
    users = np.flatnonzero(~task.rated[rows])
    if not len(users):
        return []
    films = {name: x[rows[users]] for name, x in task.films.features(task.rated).items()}
    ranks = model.ranks({name: tf.constant(x[users]) for name, x in queries.items()}, films)
    return (1 + ranks.above[:, 0]).numpy().tolist()


def plan(seeds, tuning_seed):
    """Name of a row -> lists of settings, one of each to choose, and seeds.

    Each choice uses the results of the choices before it. A method without random draws has one
    seed.
    """
    rows = {"popularity": ([], [tuning_seed])}
    rows |= {name: ([SETTINGS[name]], [tuning_seed]) for name in ("item-kNN", "EASE")}
    rows["autoencoder"] = ([SETTINGS["autoencoder"]], seeds)
    towers = [
        [{"temperature": t, "learning_rate": LEARNING_RATES[0]} for t in TEMPERATURES],
        [{"learning_rate": rate} for rate in LEARNING_RATES],
    ]
    rows |= {f"towers, {loss}": (towers, seeds) for loss in LOSSES}
    return rows


def number_of_data(task):
    """A number that identifies the films and the ratings of an archive."""
    films = task.films
    lengths = np.array([len(user) for user in task.users])
    arrays = (films.ids, films.words, films.genres, films.decades, lengths, *task.users)
    return zlib.crc32(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays))


def study(task, args):
    """Does all missing runs; yields each row with the runs of its seeds once they are done."""
    data = number_of_data(task)

    def run(row, settings, seed):
        of_run = {"row": row, "settings": settings, "seed": seed, "width": args.width}
        of_run |= {"epochs": args.epochs, "batch_size": args.batch_size, "data": data}
        parts = [row, *itertools.chain(*sorted(settings.items())), f"seed {seed}"]
        path = args.out / "runs" / ("-".join(map(str, parts)).replace(" ", "_") + ".json")

        def make():
            if row.startswith("towers"):
                loss = row.split(", ")[1]
                sizes = args.epochs, args.batch_size
                return run_towers(loss, settings, task, seed, args.width, *sizes)
            return run_method(row, settings, task, seed, args.width)

        return harness.cached(path, of_run, make)

    best = {}
    for row, (lists, seeds) in plan(args.seeds, args.tuning_seed).items():
        best[row] = {}
        for choices in lists:
            tried = [run(row, best[row] | choice, args.tuning_seed) for choice in choices]
            best[row] = max(tried, key=lambda r: r["validation"][SELECT_BY])["settings"]
        yield row, best[row], [run(row, best[row], seed) for seed in seeds]
    for name, settings in NEGATIVES.items():
        settings = best["towers, softmax"] | settings
        yield (
            f"softmax, negatives {name}",
            settings,
            [run("towers, softmax", settings, seed) for seed in args.seeds],
        )


def report(task, results):
    """The table, and a line on films that do not occur in training."""
    lines = []
    for row, settings, runs in results:
        cells = [row]
        for column in COLUMNS.values():
            values = [run["test"][column] for run in runs]
            cells.append(tables.plus_minus(values))
        chosen = ", ".join(f"{key}={value}" for key, value in settings.items()) or "–"
        epochs = [str(run["epoch"]) for run in runs if "epoch" in run]
        lines.append([*cells, chosen, ", ".join(epochs) or "–"])
    text = tables.table(["method", *COLUMNS, "settings", "epochs"], lines)
    text += [
        "",
        f"{len(task.users)} users, {len(task.films.ids):,} films. A row has one seed for each "
        "epoch it lists; a row without epochs draws nothing.",
    ]
    with_ranks = [
        (row, run["unrated"]) for row, _, runs in results for run in runs[:1] if run.get("unrated")
    ]
    text += ["", "Test films without a rating in training, for their users:", ""]
    text += tables.table(
        ["towers", "films", "median rank", "in the best 100"],
        [
            [row, str(len(ranks)), f"{np.median(ranks):,.0f}", str(sum(r <= 100 for r in ranks))]
            for row, ranks in with_ranks
        ],
    )
    return "\n".join(text) + "\n"


def parse_args(argv=None):
    """The command line."""
    parser = command_line.parser(__spec__, description=__doc__)
    count = command_line.positive(int)
    parser.add_argument("--zip", type=pathlib.Path, required=True, help="MovieLens's archive")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/retrieval"))
    parser.add_argument("--seeds", type=command_line.seed, nargs="+", default=[0, 1, 2])
    parser.add_argument("--tuning-seed", type=command_line.seed, default=100)
    parser.add_argument("--width", type=count, default=64)
    parser.add_argument(
        "--epochs", type=count, default=10, help="maximum number of epochs of the towers"
    )
    parser.add_argument("--batch-size", type=count, default=512)
    return parser.parse_args(argv)


def main(argv=None):
    """Runs the study and writes the table after each row."""
    args = parse_args(argv)
    task = retrieval_task.load(args.zip, args.batch_size)
    results = []
    for result in study(task, args):
        results.append(result)
        args.out.mkdir(parents=True, exist_ok=True)
        _files.write_text(args.out / "results.md", report(task, results))
    print(report(task, results))


if __name__ == "__main__":
    main()
