"""What helps rare classes: label shares in the loss, weights, Rankmax, a cosine head.

    rare="python -m scripts.reproductions.rare_classes"
    $rare --task banking77 --file FILE --imbalance 50
    $rare --task cities

With --imbalance R, the classes get fewer examples one after the other, down to 1 / R of
the first, and the test examples weigh as if theirs were as frequent. Settings are
chosen by the macro metric, the mean over classes.

Weights, the prior in the loss and the prior after training have the same strengths:
`class_weight, 0.5` weighs a class by the square root of 1 / frequency, `prior, 0.5` is
`SoftmaxLoss(class_prior=shares, prior_strength=0.5)`, and the last chooses one on
validation data. The file of `--csv` has the validation values, by which to choose one
for the others. The full size takes half an hour to two hours on two cores.
"""

import argparse
import functools

import numpy as np

from rank4class_tf import adjust_logits, layers, losses
from scripts.reproductions import tasks

WEIGHTS, PRIOR, STRENGTHS = "class_weight", "prior", (0.5, 1.0, 1.5)


def imbalanced(task: tasks.Task, ratio: float, seed: int = 0) -> tasks.Task:
    """The long-tailed task: class i keeps `ratio ** (-i / (n - 1))` of the most."""
    rng = np.random.default_rng(seed)
    ranks = rng.permutation(task.num_classes) / max(task.num_classes - 1, 1)
    most = np.bincount(task.y).max()
    return task.thinned([max(2, round(most * ratio**-rank)) for rank in ranks], rng)


def candidates(y: np.ndarray, number: int) -> dict:
    """The losses and heads for labels."""
    prior = losses.class_prior(y, number)
    found: dict = {"softmax": losses.SoftmaxLoss()}
    for strength in STRENGTHS:
        weights = np.array(prior) ** -strength
        weights /= weights[y].mean()
        loss = losses.SoftmaxLoss(class_weight=weights.tolist())
        found[f"{WEIGHTS}, {strength}"] = loss
    for strength in STRENGTHS:
        loss = losses.SoftmaxLoss(class_prior=prior, prior_strength=strength)
        found[f"{PRIOR}, {strength}"] = loss

    adjust = functools.partial(
        adjust_logits,
        class_prior=prior,
        metric="macro_ndcg_at_5",
        strengths=(0.0, *STRENGTHS),
    )
    found[f"{PRIOR} after training"] = ("softmax", adjust)
    found["Rankmax"] = losses.RankmaxLoss()
    found["cosine head"] = (losses.SoftmaxLoss(), layers.CosineHead(number))
    return found


def main(args: argparse.Namespace) -> None:
    """Compares them."""
    task = tasks.load(args.task, args.file, args.data_dir, args.hidden)
    test_weights: tuple[np.ndarray, ...] = ()
    if args.imbalance > 1:
        task = imbalanced(task, args.imbalance, args.thinning)
        shares = np.bincount(task.y) / np.bincount(task.test_y)
        test_weights = (shares[task.test_y].astype("float32"),)
    counts = np.bincount(task.y)
    print(f"{len(task.y)} examples, {counts.min()} to {counts.max()} a class.")
    tried = candidates(task.y, task.num_classes)
    if args.only_strengths:
        tried.pop("Rankmax")
        tried.pop("cosine head")
    metrics = [
        "top_k_accuracy_at_1",
        "ndcg_at_5",
        "macro_top_k_accuracy_at_1",
        "macro_ndcg_at_5",
    ]
    name = f"{args.task}, thinning {args.thinning}" if args.thinning else args.task
    columns = {"task": name, "imbalance": args.imbalance, "hidden": args.hidden}
    tasks.compare(task, args, tried, metrics, columns, test_weights=test_weights)


if __name__ == "__main__":
    parser = tasks.parser(__spec__, __doc__)
    parser.add_argument(
        "--imbalance", type=float, default=1.0, help="the most ÷ the fewest"
    )
    parser.add_argument(
        "--thinning", type=int, default=0, help="the seed of which class is rare"
    )
    parser.add_argument(
        "--only-strengths", action="store_true", help="no Rankmax, no cosine head"
    )
    main(parser.parse_args())
