"""SamplingSchedule."""

from typing import Any

from tensorflow import keras

from rank4class_tf import _checks, ops
from rank4class_tf.losses import OrderedLoss
from rank4class_tf.models.extreme_classifier import ExtremeClassifier


class SamplingSchedule(keras.callbacks.Callback):
    r"""Changes the sampling and mining of an `ExtremeClassifier` during training.

    The best number of sampled classes, and the best amount of mining, may differ between the start
    and the end of training. After each change, Keras compiles the training step again.

    Source: Reddi et al. 2019, "Stochastic Negative Mining for Learning with Large Output Spaces",
    section 6, as future work.

    Args:
        stages: a dict, the first epoch of a stage -> a pair of `num_sampled` and the `rank_weights`
            of the loss, such as `{0: (1024, TopKWeights(64)), 5: (4096, TopKWeights(1))}`. None as
            the second leaves the loss as it is.

    Raises:
        ValueError: if there is no stage 0, or an argument is out of range. When training begins, if
            the model is not an `ExtremeClassifier`, or the stages do not fit its loss.

    Example:
        >>> schedule = SamplingSchedule({0: (1024, None), 5: (4096, None)})
        >>> schedule.stage(3)
        (1024, None)
    """

    def __init__(self, stages: dict[int, tuple[int, Any]]) -> None:
        super().__init__()
        if not isinstance(stages, dict) or 0 not in stages:
            raise ValueError(
                f"`stages` must be a dict with a stage 0. Received: stages={stages!r}."
            )
        self.stages = {}
        for epoch, stage in stages.items():
            _checks.non_negative_int("epoch", epoch)
            if not isinstance(stage, tuple | list) or len(stage) != 2:
                raise ValueError(
                    "`stages` must hold pairs of num_sampled and rank_weights. "
                    f"Received: {stage!r} for epoch {epoch}."
                )
            num_sampled, rank_weights = stage
            if rank_weights is not None:
                rank_weights = ops.get_rank_weights(rank_weights)
            self.stages[epoch] = _checks.positive_int("num_sampled", num_sampled), rank_weights

    def stage(self, epoch: int) -> tuple[int, Any]:
        """The pair `num_sampled` and `rank_weights` of an epoch."""
        return self.stages[max(first for first in self.stages if first <= epoch)]

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Raises unless the stages fit the model, before it is trained."""
        if not isinstance(self.model, ExtremeClassifier):
            raise ValueError(
                f"`SamplingSchedule` is for an `ExtremeClassifier`. Received: {self.model!r}."
            )
        has_weights = any(rank_weights is not None for _, rank_weights in self.stages.values())
        if has_weights and not isinstance(self.model.loss, OrderedLoss):
            raise ValueError(
                "`stages` may hold weights only for a loss with `rank_weights`. "
                f"Received: stages={self.stages!r} and the loss {self.model.loss!r}."
            )

        weights = getattr(self.model.loss, "rank_weights", None)
        for epoch, (num_sampled, rank_weights) in sorted(self.stages.items()):
            weights = rank_weights or weights  # None leaves those of the stage before.
            leading = getattr(weights, "num_leading", None)
            all_classes = num_sampled >= self.model.classes.num_classes - 1
            if leading is not None and leading > num_sampled and not all_classes:
                raise ValueError(
                    "`stages` must sample at least as many classes as the loss has leading "
                    f"weights. Received: {num_sampled} classes and {weights} from epoch {epoch} on."
                )

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Sets the stage of this epoch; if it has changed, Keras traces the step again."""
        del logs
        num_sampled, rank_weights = self.stage(epoch)
        scores, loss = self.model.scores, self.model.loss
        same = rank_weights is None or rank_weights == loss.rank_weights
        if same and num_sampled == scores.num_sampled:
            return
        scores.num_sampled = num_sampled
        if rank_weights is not None:
            loss.rank_weights = rank_weights
        self.model.make_train_function(force=True)
        self.model.make_test_function(force=True)
