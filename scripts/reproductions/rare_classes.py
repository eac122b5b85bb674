"""Rare classes: measures whether logit adjustment helps averages over classes, on GoEmotions.

    python -m scripts.reproductions.noisy_labels --dataset goemotions --features features.npz \
        --preset FOLDER --data-dir data      # makes the file of features
    python -m scripts.reproductions.rare_classes --features features.npz

A linear model on frozen sentence features learns 10,000 comments with one of 28 labels. The most
frequent label has a third of them and the rarest a thousandth. Each loss has the same 12 settings
of rate and decoupled weight decay. The setting is chosen by macro NDCG@5 on the validation part,
with the first seed. The table has the mean and the standard deviation over the seeds on the test
part: averages over comments, and over classes ("macro").
"""

import json
import pathlib

import numpy as np

from rank4class_tf import _files, losses
from scripts.command_line import parser, positive, seed
from scripts.reproductions.noisy_labels import goemotions
from scripts.reproductions.stacked_training import Settings, Task, Trainer
from scripts.tables import plus_minus, table

RATES, DECAYS = (1e-3, 3e-3, 1e-2), (0.0, 0.3, 1.0, 3.0)


def losses_of(class_ids, num_classes):
    """Name -> loss, for the training labels."""
    prior = losses.class_prior(class_ids, num_classes)
    balanced = (1 / (num_classes * np.array(prior))).tolist()
    return {
        "softmax": losses.SoftmaxLoss(),
        "softmax, balanced `class_weight`": losses.SoftmaxLoss(class_weight=balanced),
        "softmax, `class_prior`": losses.SoftmaxLoss(class_prior=prior),
        "Rankmax": losses.RankmaxLoss(),
    }


def figures(scores, class_ids):
    """Top-1 and NDCG@5 over examples, and over classes."""
    own = np.take_along_axis(scores, class_ids[:, np.newaxis], axis=1)
    rank = 1 + (scores > own).sum(axis=1)
    values = {"Top-1": rank == 1, "NDCG@5": np.where(rank <= 5, 1 / np.log2(1 + rank), 0)}
    classes = np.unique(class_ids)
    return {name: float(v.mean()) for name, v in values.items()} | {
        f"macro {name}": float(np.mean([v[class_ids == c].mean() for c in classes]))
        for name, v in values.items()
    }


def train(dataset, loss, settings, seeds, part):
    """The figures of models on the validation or the test part, one dict per model."""
    splits = [dataset.split(np.random.default_rng([3, seed])) for seed in seeds]
    rows, validation = (np.stack([s[i] for s in splits]) for i in (0, 1))
    ids = dataset.class_ids
    task = Task(
        dataset.features,
        rows,
        ids[rows],
        validation,
        ids[validation],
        np.array(seeds),
        dataset.num_classes,
    )
    trainer = Trainer(
        lambda y, scores, _: loss.call(y, scores), None, dataset.batch_size, dataset.epochs
    )
    last = trainer.train(task, settings).last
    tested = np.stack([s[{"validation": 1, "test": 2}[part]] for s in splits])
    scores = trainer.scores(last, dataset.features, tested).numpy()
    return [figures(s, ids[r]) for s, r in zip(scores, tested, strict=True)]


def main(argv=None):
    """Trains, tests and reports."""
    options = parser(__spec__, description=__doc__)
    options.add_argument(
        "--features", type=pathlib.Path, required=True, help="file of features from noisy_labels"
    )
    options.add_argument(
        "--num-train", type=positive(int), default=10_000, help="number of training comments"
    )
    options.add_argument(
        "--out",
        type=pathlib.Path,
        default=pathlib.Path("out/rare_classes"),
        help="folder for the results",
    )
    options.add_argument(
        "--seeds", type=seed, nargs="+", default=[*range(8)], help="seeds of the runs"
    )
    args = options.parse_args(argv)
    dataset = goemotions(args.features, args.num_train)
    grid = np.array([(rate, decay) for rate in RATES for decay in DECAYS])
    learned = dataset.split(np.random.default_rng([3, args.seeds[0]]))[0]
    rows, found = [], {}
    for name, loss in losses_of(dataset.class_ids[learned], dataset.num_classes).items():
        tuning = Settings(grid[:, 0], grid[:, 1], np.zeros(len(grid)))
        tuned = train(dataset, loss, tuning, [args.seeds[0]] * len(grid), "validation")
        rate, decay = grid[np.argmax([f["macro NDCG@5"] for f in tuned])]
        chosen = Settings(*(np.full(len(args.seeds), v) for v in (rate, decay, 0.0)))
        runs = train(dataset, loss, chosen, args.seeds, "test")
        found[name] = {"rate": rate, "decay": decay, "runs": runs}
        rows.append([name, *(plus_minus([run[key] for run in runs]) for key in runs[0])])
    lines = table(["loss", *runs[0]], rows)
    args.out.mkdir(parents=True, exist_ok=True)
    _files.write_text(args.out / "rare_classes.json", json.dumps(found, indent=1))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
