"""A Keras model of ragged lists, in the style of TF-Ranking's example of this name."""

import tensorflow as tf
import tensorflow_ranking as tfr
from tensorflow import keras

MASK = "example_list_mask"


def read(pattern):
    dataset = tfr.data.build_ranking_dataset(
        file_pattern=pattern,
        data_format=tfr.data.ELWC,
        batch_size=16,
        context_feature_spec={"query_tokens": tf.io.RaggedFeature(tf.string)},
        example_feature_spec={
            "document_tokens": tf.io.RaggedFeature(tf.string),
            "utility": tf.io.FixedLenFeature([], tf.float32, default_value=0.0),
        },
        mask_feature_name=MASK,
        num_epochs=1,
    )
    return dataset.map(with_ragged_labels)


def with_ragged_labels(inputs):
    labels = tf.ragged.boolean_mask(inputs.pop("utility"), inputs.pop(MASK))
    return inputs, labels


class Scorer(keras.Model):
    def __init__(self):
        super().__init__()
        self.lookup = keras.layers.StringLookup(vocabulary=["cat", "dog", "fish"])
        self.embedding = keras.layers.Embedding(4, 8)
        tower = keras.Sequential([keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
        self.tower = keras.layers.TimeDistributed(tower)

    def call(self, inputs):
        query = self.embedding(self.lookup(inputs["query_tokens"]))
        documents = self.embedding(self.lookup(inputs["document_tokens"]))
        documents = tf.reduce_mean(documents, axis=2)
        query = tf.expand_dims(tf.reduce_mean(query, axis=1), axis=1)
        both = tf.concat([tf.ones_like(documents) * query, documents], axis=2)
        return tf.squeeze(self.tower(both), axis=2)


model = Scorer()
model.compile(
    keras.optimizers.Adagrad(0.05),
    loss=tfr.keras.losses.ApproxNDCGLoss(ragged=True),
    metrics=[tfr.keras.metrics.NDCGMetric(topn=5, ragged=True)],
)
model.fit(read("train*"), epochs=2, validation_data=read("valid*"), verbose=0)
