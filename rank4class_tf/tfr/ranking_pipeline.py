"""RankingPipeline."""

from typing import Any

from rank4class_tf.tfr import _load
from rank4class_tf.tfr.pipeline_mixin import PipelineMixin

_tfr: Any = _load.load()


class RankingPipeline(PipelineMixin, _tfr.keras.pipeline.ModelFitPipeline):
    """TF-Ranking's pipeline with the losses, heads and metrics of this package.

    It takes `PipelineHparams` as `SimplePipeline` and `MultiTaskPipeline` do, with more choices:

    - `loss`: a name of this package or of TF-Ranking (if both have it, this package's;
      `"tfr."` before a name asks for TF-Ranking's), a Keras loss, several with weights, as in
      `"rankmax_loss:0.7,softmax_loss:0.3"` or `[(loss, 0.7), (other_loss, 0.3)]`, or for several
      tasks a dict of these.
    - `optimizer`: a name, or a Keras optimiser, which is copied and keeps its own learning rate;
      `learning_rate`: a number or a Keras schedule.
    - `best_exporter_metric`: `"loss"` or one of `metrics`, such as `"ndcg_at_5"`; for several tasks
      `"task/ndcg_at_5"`. Set `best_exporter_metric_higher_better=True` if higher is better.

    Args:
        model_builder: an `AbstractModelBuilder` of TF-Ranking.
        dataset_builder: an `AbstractDatasetBuilder`, such as `RankingDatasetBuilder`.
        hparams: `PipelineHparams`.
        metrics: names (`"ndcg_at_5"`, `"tfr.mrr_at_10"`) or Keras metrics, which are copied. With
            several tasks, a list is for all of them, and a dict has a list for each.
        weighted_metrics: the metrics that use weights, if `hparams.use_weighted_metrics`; None
            means the same as `metrics`.
        tensorboard: whether to log for TensorBoard; None does so if it is installed.

    Raises:
        ImportError: if `tensorboard` is True without TensorBoard.
        ValueError: if a loss, metric or monitored metric is unknown (the error lists the known
            ones), or `automatic_reduce_lr` is set without a number as `learning_rate`. Before
            training, if a task's metric is monitored and the outputs do not have the names of the
            tasks.
        TypeError: if a loss or metric is neither a name nor a Keras object.

    Example:
        >>> pipeline = RankingPipeline(model_builder, dataset_builder, hparams)  # doctest: +SKIP
        >>> pipeline.train_and_validate()  # doctest: +SKIP
    """
