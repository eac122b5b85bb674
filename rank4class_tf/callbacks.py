"""Keras callbacks: `RankingTensorBoard`, which evaluates and draws during training."""

import io
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, plots
from rank4class_tf._batches import Dataset, check_gives_scores
from rank4class_tf._intervals import weighted_mean
from rank4class_tf._types import PathLike
from rank4class_tf.evaluation import NUM_TOP_CLASSES, Evaluator, Metrics, mean_metrics

__all__ = ["RankingTensorBoard"]


class RankingTensorBoard(keras.callbacks.Callback):
    """Shows in TensorBoard how models rank: curves, ranks, hardest classes, confusion.

    After an epoch it writes the metrics, the histogram of the labels' ranks, and the
    pictures of `rank4class_tf.plots`. `keras.callbacks.TensorBoard` writes the rest.

    Args:
        log_dir: TensorBoard's folder.
        dataset: what to evaluate on, as for `evaluate`.
        metrics: as for `evaluate`.
        class_names: a name for each class, for the pictures; None for the ids.
        k: cutoff of the confusion, in [1, 10]; lowered to the number of classes if
            these are fewer.
        every: evaluate after epochs 0, `every`, 2 `every`, and so on; >= 1.

    Example:
        >>> from rank4class_tf import data
        >>> digits = data.digits()
        >>> board = RankingTensorBoard(
        ...     "logs", digits.validation, class_names=digits.class_names
        ... )
        >>> # model.fit(digits.train, callbacks=[board])
    """

    def __init__(
        self,
        log_dir: PathLike,
        dataset: Dataset,
        metrics: Metrics = ("ndcg_at_5", "mrr"),
        class_names: Sequence[str] | None = None,
        k: int = 5,
        every: int = 1,
    ):
        super().__init__()
        needs = "RankingTensorBoard needs tensorboard and matplotlib"
        for module in ("matplotlib", "tensorboard"):
            _checks.imported(module, needs, "plots")
        rule = "`dataset` must be readable again in each epoch."
        _checks.require(not isinstance(dataset, Iterator), rule, type(dataset).__name__)
        mean_metrics(metrics)  # Raises now, not in the first epoch.
        self._dataset = dataset
        self._metrics = metrics
        self._class_names = class_names
        self._k = _checks.positive_int("k", k)
        self._every = _checks.positive_int("every", every)
        rule = f"`k` must be at most {NUM_TOP_CLASSES}."
        _checks.require(k <= NUM_TOP_CLASSES, rule, f"k={k}")
        self._log_dir = os.fspath(log_dir)

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        check_gives_scores(self.model)
        shape = getattr(self.model, "output_shape", None)
        num_classes = 0
        if isinstance(shape, tuple):
            num_classes = shape[-1] or 0
        if self._class_names is not None:
            rule = (
                f"`class_names` must have a name for each of the {num_classes} classes."
            )
            num_names = len(self._class_names)
            _checks.require(num_names >= num_classes, rule, f"{num_names} names")
        self._evaluator = Evaluator(self.model, self._metrics)
        self._writer = tf.summary.create_file_writer(self._log_dir)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if epoch % self._every:
            return
        evaluation = self._evaluator(self._dataset)
        with self._writer.as_default(step=epoch):
            for name, values in evaluation.values.items():
                mean = weighted_mean(values, evaluation.weights[name])
                tf.summary.scalar(f"ranking/{name}", mean)
            ranks = evaluation.ranks
            tf.summary.histogram("ranking/rank", ranks[~np.isnan(ranks)])
            k = min(self._k, evaluation.top_classes.shape[1])  # type: ignore[union-attr]
            names = self._class_names
            figures = {
                "accuracy_by_k": plots.accuracy_by_k(evaluation),
                "rank_histogram": plots.rank_histogram(evaluation),
                "hardest_classes": plots.hardest_classes(evaluation, names),
                "confusion_at_k": plots.confusion_at_k(evaluation, k, names),
            }
            for name, figure in figures.items():
                png = io.BytesIO()
                figure.savefig(png, format="png", dpi=90)
                image = tf.io.decode_png(png.getvalue(), channels=4)
                tf.summary.image(f"ranking/{name}", image[tf.newaxis])
        self._writer.flush()

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self._writer.close()
