"""Turns metrics into losses: average precision and recall at k, each in two lines.

    python examples/metric_as_loss.py

A metric has two forms. The exact form, in `rank4class_tf.metrics`, averages over tied
items and has no gradient. The soft form, such as `ops.soft_average_precision`, reads
soft ranks and has a gradient, so its negative is a loss. The program trains a
classifier of digits with two such losses and prints the exact metrics on the test
split.

It prints (the last digits depend on the processor):

    approx_ap_loss: average_precision 0.9685, loss -0.9561, recall_at_1 0.9472
    approx_recall_loss: average_precision 0.9688, loss -0.6007, recall_at_1 0.9472
"""

import argparse

from tensorflow import keras

from rank4class_tf import data, losses, metrics, ops


@keras.utils.register_keras_serializable()
class ApproxAPLoss(losses.MetricLoss):
    """Negative average precision with soft ranks."""

    def metric(self, ranks, lists):
        """The formula."""
        return ops.soft_average_precision(
            ranks, self.ranks_among_positives(lists), lists.relevance
        )


@keras.utils.register_keras_serializable()
class ApproxRecallLoss(losses.MetricLoss):
    """Negative recall at k with soft ranks and a soft cutoff."""

    def __init__(self, k=1, **kwargs):
        super().__init__(**kwargs)
        self.k = k

    def metric(self, ranks, lists):
        """The formula."""
        return ops.soft_recall(ranks, lists.relevance, self.k)


def train(loss, splits, epochs):
    """Trains a classifier and returns its metrics on the test split."""
    model = keras.Sequential(
        [
            keras.layers.Dense(64, "relu"),
            keras.layers.Dense(splits.num_classes),
        ]
    )
    model.compile(
        keras.optimizers.Adam(3e-3),
        loss=loss,
        metrics=[metrics.AveragePrecisionAtK(), metrics.RecallAtK(1)],
    )
    model.fit(splits.train, epochs=epochs, shuffle=False, verbose=0)
    return model.evaluate(splits.test, return_dict=True, verbose=0)


def main(argv=None):
    """Trains with both losses."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--epochs", type=int, default=10, help="epochs (default: %(default)s)"
    )
    args = parser.parse_args(argv)
    results = {}
    for loss in (ApproxAPLoss(), ApproxRecallLoss(k=1)):
        keras.utils.set_random_seed(0)
        results[loss.name] = train(loss, data.digits(), args.epochs)
        values = ", ".join(
            f"{name} {value:.4f}" for name, value in results[loss.name].items()
        )
        print(f"{loss.name}: {values}")
    return results


if __name__ == "__main__":
    try:
        main()
    except (
        ImportError
    ) as error:  # An extra that is not installed: the message says which.
        raise SystemExit(error) from None
