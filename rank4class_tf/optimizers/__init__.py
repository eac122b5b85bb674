"""Keras optimizers that update only those rows of a table that a batch touches."""

from rank4class_tf.optimizers._rows import Rowwise
from rank4class_tf.optimizers.rowwise_adagrad import RowwiseAdagrad
from rank4class_tf.optimizers.rowwise_adam import RowwiseAdam
from rank4class_tf.optimizers.rowwise_sgd import RowwiseSGD

__all__ = ["Rowwise", "RowwiseAdagrad", "RowwiseAdam", "RowwiseSGD"]
