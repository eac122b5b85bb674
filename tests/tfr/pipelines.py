"""Small pipelines on lists with a pattern to learn.

Without TF-Ranking, an import of it skips.
"""

import dataclasses
import os
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import tfr
from rank4class_tf.data import elwc
from tests.tf_ranking import load_or_skip

_tfr: Any = load_or_skip()

CONTEXT_SPEC = {"features": tf.io.FixedLenFeature([4], tf.float32)}
EXAMPLE_SPEC = {"class_id": tf.io.FixedLenFeature([1], tf.int64, default_value=0)}
LABEL_SPEC = ("label", tf.io.FixedLenFeature([1], tf.float32, default_value=-1.0))
MASK = "mask"
NUM_CLASSES = 5


def make_lists(num_lists, seed=0):
    """Classification of four features: the context; all five classes: the examples."""
    features = np.random.default_rng(seed).normal(size=(num_lists, 4)).astype("float32")
    class_ids = (
        features @ np.random.default_rng(1).normal(size=(4, NUM_CLASSES))
    ).argmax(axis=1)
    return list(elwc.lists([(features, class_ids)], NUM_CLASSES))


def write_files(folder, num_lists=96):
    elwc.write(make_lists(num_lists), os.path.join(folder, "train"), num_shards=2)
    # As many files as the workers of a multi-worker strategy, which reads them by file.
    elwc.write(make_lists(64, seed=2), os.path.join(folder, "valid"), num_shards=2)


class ModelBuilder(_tfr.keras.model.AbstractModelBuilder):
    """A dot product of features and the class's embedding, for one or more outputs.

    Each model begins with the same weights, whatever was drawn before.
    """

    def __init__(self, tasks=None):
        self.tasks = tasks

    def build(self):
        keras.utils.set_random_seed(3)
        inputs = {
            "features": keras.Input((4,), name="features"),
            "class_id": keras.Input((None, 1), dtype=tf.int64, name="class_id"),
            MASK: keras.Input((None,), dtype=tf.bool, name=MASK),
        }

        def scores(name):
            classes = keras.layers.Embedding(NUM_CLASSES, 4)(inputs["class_id"][..., 0])
            outputs = keras.layers.Dot(axes=(1, 2))([inputs["features"], classes])
            return keras.layers.Activation("linear", name=name)(outputs)

        if self.tasks is None:
            return keras.Model(inputs, scores("scores"))
        return keras.Model(inputs, {task: scores(task) for task in self.tasks})


def dataset_hparams(folder, **changes):
    hparams = _tfr.keras.pipeline.DatasetHparams(
        train_input_pattern=os.path.join(folder, "train-*"),
        valid_input_pattern=os.path.join(folder, "valid-*"),
        train_batch_size=16,
        valid_batch_size=16,
        list_size=NUM_CLASSES,
    )
    return dataclasses.replace(hparams, **changes)


def in_order(builder):
    """`builder`, whose batches keep one order by a global seed; TF-Ranking's do not."""
    options = tf.data.Options()
    options.deterministic = True
    train, valid = builder.build_train_dataset, builder.build_valid_dataset
    builder.build_train_dataset = lambda: train().with_options(options)
    builder.build_valid_dataset = lambda: valid().with_options(options)
    return builder


def dataset_builder(folder, sample_weight_spec=None, **changes):
    """A `RankingDatasetBuilder` in order, for the files of `write_files`."""
    hparams = dataset_hparams(folder, **changes)
    specs = (CONTEXT_SPEC, EXAMPLE_SPEC, MASK, LABEL_SPEC)
    builder = tfr.RankingDatasetBuilder(
        *specs, hparams, sample_weight_spec=sample_weight_spec
    )
    return in_order(builder)


def hparams(folder, **changes):
    values = {
        "model_dir": os.path.join(folder, "model"),
        "loss": "softmax_loss",
        "num_epochs": 3,
        "steps_per_epoch": 6,
        "validation_steps": 4,
        "learning_rate": 0.1,
        "steps_per_execution": 1,
    }
    return _tfr.keras.pipeline.PipelineHparams(**{**values, **changes})


def history(pipeline, exports=False):
    """What Keras logs of a run, by recording it with a callback."""
    logs = []
    if not exports:
        pipeline.export_saved_model = lambda *args, **kwargs: None
    recorder = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, log: logs.append(log)
    )
    build = pipeline.build_callbacks
    pipeline.build_callbacks = lambda: [*build(), recorder]
    pipeline.train_and_validate()
    return logs
