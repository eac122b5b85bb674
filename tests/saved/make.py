"""Writes this folder's models, by the code of the commit that is checked out.

`python -m tests.saved.make FOLDER` writes `*.keras` files, and to `answers.npz` what
the models answer. Those of this folder are of the commit
a89bd50f of November 2026, with Keras 3.15; `tests/test_files.py` loads them.
"""

import pathlib
import sys

import numpy as np
from tensorflow import keras

from rank4class_tf import layers, losses, metrics, models, optimizers

rng = np.random.default_rng(0)
FEATURES = rng.normal(size=(4, 3)).astype("float32")
CLASS_IDS = np.array([1, 4, 0, 2])
HISTORIES = np.array([[3, 1, -1], [0, 2, 4], [4, -1, -1], [2, 2, 2]])


def classifier():
    """A head, a loss and metrics whose options are not the default ones."""
    head = layers.LatentCrossHead(5, units=(4,), add_dot_product=True)
    model = keras.Sequential([keras.Input((3,)), head])
    loss = losses.OrderedWeightedLoss("pairwise", "logistic", losses.TopKWeights(2))
    model.compile(optimizers.RowwiseAdam(0.1), loss, metrics=[metrics.NDCG([1, 3])])
    return model


def served():
    """Probabilities at the end of a cosine head."""
    head = layers.CosineHead(5, scale=9.0)
    return keras.Sequential([keras.Input((3,)), head, layers.Probabilities(0.7)])


def next_item():
    """One table at both ends."""
    table = layers.ClassTable(5, 4)
    items = keras.Input((None,), dtype="int32")
    rows = layers.ClassEmbedding(table)(items)
    encoder = keras.Model(items, keras.layers.GRU(4, return_sequences=True)(rows))
    model = models.ExtremeClassifier(encoder, table, 4, num_sampled=2, seed=1)
    model.compile(optimizers.RowwiseAdagrad(0.1), losses.SoftmaxLoss(0.5))
    return model


MODELS = {"classifier": classifier, "served": served, "next_item": next_item}


def answers(name, model):
    """Scores, after a step of training if the model was compiled."""
    if name == "next_item":
        model.train_on_batch(HISTORIES, HISTORIES)
        return model.top_k(HISTORIES, 3, last=True)[0].numpy()
    if name == "classifier":
        model.train_on_batch(FEATURES, CLASS_IDS)
    return model.predict(FEATURES, verbose=0)


def main(folder):
    """Saves each model after a step, and what it answers after another one."""
    keras.utils.set_random_seed(0)
    found = {}
    for name, make in MODELS.items():
        model = make()
        answers(name, model)
        model.save(pathlib.Path(folder, f"{name}.keras"))
        found[name] = answers(name, model)
    np.savez(pathlib.Path(folder, "answers.npz"), **found)


if __name__ == "__main__":
    main(sys.argv[1])
