"""Learning rates by loss: the best rate of each loss relative to the best rate of softmax.

    python -m scripts.reproductions.learning_rates
    python -m scripts.reproductions.learning_rates --tasks digits goemotions --data-dir DIR

Tasks: `digits`, scikit-learn's images with a hidden layer of 128 units, and `goemotions`, a linear
model on the 1,000 most frequent words of 10,000 comments with one of 28 labels. There is no weight
decay. Every loss is trained at every rate of the same grid, in half decades, with Adam and with SGD
(momentum 0.9). The best rate has the highest mean NDCG@5 over the seeds on the validation part,
each run at its best epoch there; the tables report the test part. "Good rates" are those within .01
NDCG@5 of the best on the validation part. Finished runs are kept in `--out`.
"""

import functools
import pathlib
from collections.abc import Callable

import numpy as np

from rank4class_tf import _files, data, losses
from scripts.command_line import parser, seed
from scripts.reproductions import harness, noisy_labels
from scripts.reproductions.rare_classes import figures
from scripts.reproductions.stacked_training import Settings, Trainer
from scripts.tables import plus_minus, table

WORDS = 1000
NEARLY = 0.01
# Half decades. SGD needs higher rates, because gradients are smaller than the steps of Adam.
RATES = {"adam": 10 ** np.arange(-4, 0, 0.5), "sgd": 10 ** np.arange(-4, 1.1, 0.5)}
LOSSES: dict[str, Callable] = {
    "SoftmaxLoss": losses.SoftmaxLoss,
    "RankmaxLoss": losses.RankmaxLoss,
    "SparsemaxLoss": losses.SparsemaxLoss,
    "GeneralizedCrossEntropyLoss": losses.GeneralizedCrossEntropyLoss,
    "MeanSquaredLoss": losses.MeanSquaredLoss,
    "PairwiseLogisticLoss": losses.PairwiseLogisticLoss,
    "PairwiseHingeLoss": losses.PairwiseHingeLoss,
    "OrderedWeightedLoss": losses.OrderedWeightedLoss.crammer_singer,
    "WARPLoss": losses.WARPLoss,
    "ApproxNDCGLoss": losses.ApproxNDCGLoss,
    "ApproxMRRLoss": losses.ApproxMRRLoss,
}


def goemotions(data_dir):
    """Marks which of the most frequent words each comment contains."""
    splits = data.goemotions(data_dir, batch_size=10_000)
    parts = [
        [np.concatenate(a) for a in zip(*getattr(splits, part).as_numpy_iterator(), strict=True)]
        for part in ("train", "validation", "test")
    ]
    tokens = np.concatenate([tokens for tokens, _ in parts])
    features = np.zeros((len(tokens), WORDS), np.float32)
    rows, columns = np.nonzero((tokens > 0) & (tokens < WORDS))
    features[rows, tokens[rows, columns]] = 1
    ends = np.cumsum([len(ids) for _, ids in parts])
    return noisy_labels.Dataset(
        "goemotions",
        features,
        np.concatenate([ids for _, ids in parts]),
        lambda rng: (
            rng.permutation(ends[0])[:10_000],
            np.arange(ends[0], ends[1]),
            np.arange(ends[1], ends[2]),
        ),
        hidden=None,
        batch_size=128,
        epochs=10,
        rates=(),
        decays=(),
        smoothings=(),
        tuning_seeds=0,
    )


def ndcg(dataset, make_loss, optimizer, seeds):
    """NDCG@5 on the validation part and on the test part, lists `[rates, seeds]`."""
    right = np.eye(dataset.num_classes)
    problems = [noisy_labels.problem(dataset, right, seed) for seed in seeds]
    rates = RATES[optimizer]
    every = [problem for _ in rates for problem in problems]
    none = np.zeros(len(every))
    trainer = Trainer(
        noisy_labels.as_function(make_loss()),
        dataset.hidden,
        dataset.batch_size,
        dataset.epochs,
        optimizer,
    )
    task = noisy_labels.stack(dataset, every, None)
    best = trainer.train(task, Settings(np.repeat(rates, len(seeds)), none, none)).best
    found = []
    for part in (1, 2):
        rows = np.stack([problem.rows[part] for problem in every])
        scores = np.nan_to_num(trainer.scores(best, dataset.features, rows).numpy())
        values = [
            figures(s, problem.labels[part])["NDCG@5"]
            for s, problem in zip(scores, every, strict=True)
        ]
        found.append(np.reshape(values, (len(rates), len(seeds))).tolist())
    return {"ndcg": found}


def choice(found, softmax):
    """The places in the grid of the best rates of a loss and of softmax, on the validation part."""
    return (int(np.mean(of[0], axis=1).argmax()) for of in (found, softmax))


def row(name, found, softmax, rates):
    """The row of a loss: its best rate, the good rates, and NDCG@5 at its and at softmax's rate."""
    own, usual = choice(found, softmax)
    validation, test = np.array(found)
    mean = validation.mean(axis=1)
    good = rates[mean > mean.max() - NEARLY]
    interval = f"{good.min():.1g} to {good.max():.1g}"
    return [
        f"`{name}`",
        f"{rates[own]:.1g}",
        interval,
        plus_minus(test[own]),
        plus_minus(test[usual]),
    ]


def summary(found):
    """A row for each loss: its rate over softmax's, and how softmax's rate would change NDCG@5."""
    rows = []
    for loss in next(iter(found.values())):
        cells = []
        for of_setting in found.values():
            own, usual = choice(of_setting[loss], of_setting["SoftmaxLoss"])
            test = np.mean(of_setting[loss][1], axis=1)
            cells.append(f"{10 ** ((own - usual) / 2):.2g} ({test[usual] - test[own]:+.3f})")
        rows.append([f"`{loss}`", *cells])
    return table(["loss", *found], rows, len(found))


def main(argv=None):
    """Trains, tests and reports."""
    options = parser(__spec__, description=__doc__)
    options.add_argument("--tasks", nargs="+", choices=("digits", "goemotions"), default=["digits"])
    options.add_argument("--data-dir", help="where TensorFlow Datasets keeps its data")
    options.add_argument("--losses", nargs="+", choices=LOSSES, default=[*LOSSES])
    options.add_argument("--optimizers", nargs="+", choices=RATES, default=[*RATES])
    options.add_argument(
        "--seeds", type=seed, nargs="+", default=[0, 1, 2], help="seeds of the runs"
    )
    options.add_argument(
        "--out",
        type=pathlib.Path,
        default=pathlib.Path("out/learning_rates"),
        help="folder for the results",
    )
    args = options.parse_args(argv)
    found: dict[str, dict] = {}
    lines: list[str] = []
    for task in args.tasks:
        dataset = noisy_labels.digits() if task == "digits" else goemotions(args.data_dir)
        for optimizer in args.optimizers:
            of_setting = found[f"{task}, {optimizer}"] = {}
            for loss in dict.fromkeys(["SoftmaxLoss", *args.losses]):
                described = {
                    "task": task,
                    "optimizer": optimizer,
                    "loss": loss,
                    "seeds": args.seeds,
                }
                of_setting[loss] = harness.cached(
                    args.out / f"{task}-{optimizer}-{loss}.json",
                    described,
                    functools.partial(ndcg, dataset, LOSSES[loss], optimizer, args.seeds),
                )["ndcg"]
            rows = [
                row(loss, of_loss, of_setting["SoftmaxLoss"], RATES[optimizer])
                for loss, of_loss in of_setting.items()
            ]
            head = ["loss", "best rate", "good rates", "NDCG@5", "NDCG@5 at softmax's rate"]
            lines += [f"## {task}, {optimizer}", "", *table(head, rows, 4), ""]
    lines += [
        "## Best rate over softmax's (change of NDCG@5 at softmax's rate)",
        "",
        *summary(found),
    ]
    _files.write_text(args.out / "results.md", "\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
