"""The table of all heads and kinds of classes that the contract tests run over.

Each has five classes and takes encodings of four numbers.
"""

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import layers


@keras.utils.register_keras_serializable(package="tests")
class NegativeSquaredDistance(layers.Interaction):
    """A user's own interaction, with a weight."""

    def build_for(self, width, class_width):
        self.offset = self.add_weight(
            name="offset", shape=(width,), initializer="zeros"
        )

    def score_candidates(self, encodings, candidates, training=None):
        moved = encodings + self.offset
        return -tf.reduce_sum(tf.square(moved[:, tf.newaxis] - candidates), axis=-1)


WORDS = ["red fish", "green fish", "blue sea", "red sea", "fish"]
ARRAY = np.random.default_rng(1).normal(size=(5, 3)).astype("float32")


def words_encoder():
    words = ["red", "green", "blue", "sea", "fish"]
    vectors = keras.layers.TextVectorization(vocabulary=words, output_mode="multi_hot")
    return keras.Sequential([vectors, keras.layers.Dense(4)])


def pairs_encoder():
    array = keras.Input((3,), name="array")
    number = keras.Input((1,), name="number")
    both = keras.layers.Concatenate()([keras.layers.Dense(4)(array), number])
    return keras.Model({"array": array, "number": number}, keras.layers.Dense(4)(both))


def head(name, classes, **options):
    def make(**kwargs):
        made = classes() if callable(classes) else classes
        return layers.get_head(name, classes=made, **options, **kwargs)

    return make


HEADS = {
    "dot_product": head("dot_product", 5),
    "latent_cross": head("latent_cross", 5, units=(6, 4)),
    "concat": head("concat", 5, units=(6,)),
    "cosine": head("cosine", 5, scale=4.0),
    "bilinear": head("bilinear", lambda: layers.ClassTable(5, width=3)),
    "options": head(
        "latent_cross",
        lambda: layers.ClassTable(
            5, use_bias=True, initializer="he_normal", regularizer="l2"
        ),
        units=(6, 4),
        activation="gelu",
        add_dot_product=True,
        kernel_initializer="he_normal",
    ),
    "dropout": head("concat", 5, units=(6, 4), dropout=0.5, seed=1),
    "own_interaction": lambda **kwargs: layers.Head(
        5, NegativeSquaredDistance(), **kwargs
    ),
    "encoded_array": head(
        "concat",
        lambda: layers.EncodedClasses(ARRAY, keras.layers.Dense(3)),
        units=(6,),
    ),
    "encoded_strings": head(
        "latent_cross",
        lambda: layers.EncodedClasses(WORDS, words_encoder()),
        units=(6,),
    ),
    "encoded_dict": head(
        "dot_product",
        lambda: layers.EncodedClasses(
            {"array": ARRAY, "number": ARRAY[:, :1]}, pairs_encoder()
        ),
    ),
    "attention": head("dot_product", lambda: layers.ClassAttention(5, num_heads=2)),
}
