"""Two workers end as one process does.

python -m tests.models.test_multi_worker FILE MODEL ... is one of them, and writes to a
file
"""

import sys

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose
from tensorflow import keras

from rank4class_tf import _keras, layers, losses, metrics, models, optimizers
from tests import two_processes
from tests.refused import refused
from tests.rounding import rounding
from tests.small_models import linear

pytestmark = pytest.mark.slow

CLASSES, DIM, BATCH = 40, 4, 8
RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(3 * BATCH, 6)).astype("float32")
IDS = RNG.integers(0, CLASSES, size=3 * BATCH)
CANDIDATES = RNG.normal(size=(CLASSES, 5)).astype("float32")
LEFT = 19  # Batches of 8, 8 and 3, the last of which is 2 + 1 on two workers.


def encoder():
    return linear(6, DIM)


class Own(models.MultiWorker, keras.Model):
    """A model that Keras builds, with a step of its own."""

    def __init__(self):
        super().__init__()
        self.hidden = keras.layers.Dense(8, "relu")
        self.head = layers.DotProductHead(CLASSES)

    def call(self, inputs):
        return self.head(self.hidden(inputs))

    def train_step(self, data):
        results = super().train_step(data)
        return {**results, "twice": 2 * results["loss"]}


def own():
    model = Own()
    model.compile(
        keras.optimizers.SGD(0.5), losses.SoftmaxLoss(), metrics=[metrics.MRR()]
    )
    return model


def classifier(num_sampled, in_shards=False):
    classes = CLASSES
    if in_shards:
        classes = layers.ShardedClassTable(
            CLASSES, DIM, optimizers.RowwiseAdagrad(0.1), seed=3
        )
    model = models.ExtremeClassifier(
        encoder(), classes, DIM, num_sampled, seed=3, normalize=False
    )
    of = [metrics.PrecisionAtK([1, 5])]
    model.compile(optimizers.RowwiseAdagrad(0.1), losses.SoftmaxLoss(), metrics=of)
    return model


def two_tower(in_shards=False):
    inputs = {"features": keras.Input((5,), name="features")}
    candidates = keras.Model(inputs, keras.layers.Dense(DIM)(inputs["features"]))
    model = models.TwoTower(
        encoder(), candidates, candidate_id="id", memory_size=12, num_random=6, seed=4
    )
    model.compile(
        keras.optimizers.SGD(0.5), losses.SoftmaxLoss(), metrics=[metrics.MRR()]
    )
    model.index({"id": np.arange(CLASSES), "features": CANDIDATES}, in_shards=in_shards)
    return model


MODELS = {
    "own": own,
    "sampled": lambda: classifier(10),
    "all": lambda: classifier(None),
    "sampled_in_shards": lambda: classifier(10, in_shards=True),
    "all_in_shards": lambda: classifier(None, in_shards=True),
    "two_tower": two_tower,
    "two_tower_in_shards": lambda: two_tower(in_shards=True),
    "uneven": own,
}


def data_of(name, num_workers):
    """What a model trains and is evaluated on."""
    if name == "uneven":
        # Each batch is 2 + 1 on two workers, from the first on, and labels are ragged.
        # Keras takes the mean of the workers' means, which on one device is a mean with
        # weights.
        labels = tf.RaggedTensor.from_row_lengths(np.arange(36) % CLASSES, [1, 2] * 12)
        weights = np.tile([0.75, 0.75, 1.5] if num_workers == 1 else [1.0] * 3, 8)
        train = tf.data.Dataset.from_tensor_slices((FEATURES, labels, weights)).batch(3)
        return train, train.map(lambda x, y, w: (x, y))
    labels = (
        {"id": IDS, "features": CANDIDATES[IDS]}
        if name.startswith("two_tower")
        else IDS
    )
    train = tf.data.Dataset.from_tensor_slices((FEATURES, labels))
    return train.batch(BATCH), train.take(LEFT).batch(BATCH)


def run(name, strategy):
    """Trains, evaluates and predicts; returns all that comes of it."""
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = MODELS[name]()
    train, evaluation = data_of(name, strategy.num_replicas_in_sync)
    plateau = keras.callbacks.ReduceLROnPlateau(
        "val_loss", 0.5, patience=1, min_delta=9.0
    )
    history = model.fit(
        train,
        validation_data=evaluation,
        epochs=3,
        shuffle=False,
        verbose=0,
        callbacks=[plateau],
    ).history
    evaluated = model.evaluate(evaluation, verbose=0, return_dict=True)
    result = {
        **{f"history of {key}": values for key, values in history.items()},
        **{f"evaluate: {key}": value for key, value in evaluated.items()},
        **{f"weight {i}": weight for i, weight in enumerate(model.get_weights())},
        "predict": model.predict(FEATURES[:LEFT], batch_size=BATCH, verbose=0),
    }
    if name.endswith("in_shards"):
        result["scores"], result["best"] = model.top_k(FEATURES[:3], 5)
    if name in ("sampled_in_shards", "all_in_shards"):
        result["rows"] = model.classes.rows()
        result["above"], _ = model.ranks(FEATURES[:3], IDS[:3])
    return {f"{name}, {key}": np.array(value) for key, value in result.items()}


@pytest.mark.keras2
def test_two_workers_train_as_one_process(tmp_path):
    """History, evaluation, predictions, weights; evaluation's last batch is uneven."""
    folder = tmp_path / "worker"
    two_processes.run(tmp_path, "-m", "tests.models.test_multi_worker", folder, *MODELS)
    results = [np.load(tmp_path / f"worker{index}.npz") for index in range(2)]
    for name in MODELS:
        expected = run(name, tf.distribute.get_strategy())
        if name == "uneven":  # Here weights are a part of the losses.
            for key in ("loss", "twice"):
                del expected[f"uneven, history of {key}"]
        for key, value in expected.items():
            if key.endswith("history of twice") and not _keras.KERAS_3:
                # No metric, so Keras 2 reports the sum over the workers.
                value = 2 * value
            for of_worker in results:
                # Gradients sum over the examples of each worker first.
                assert_allclose(
                    of_worker[key],
                    value,
                    rtol=rounding(BATCH),
                    atol=rounding(BATCH),
                    err_msg=key,
                )


def test_two_devices_take_ragged_labels_and_an_uneven_first_batch(two_devices):
    """Batches of 2 + 1, with weights that make one device take the same steps."""
    found = []
    for strategy in (tf.distribute.get_strategy(), two_devices):
        keras.utils.set_random_seed(1)
        with strategy.scope():
            model = own()
        train, _ = data_of("uneven", strategy.num_replicas_in_sync)
        found.append(
            model.fit(train, epochs=2, shuffle=False, verbose=0).history["mrr"]
        )
    assert_allclose(*found, rtol=1e-6)


@pytest.mark.filterwarnings(
    "ignore:Your input ran out of data"
)  # So says Keras of any generator.
def test_two_devices_evaluate_on_every_batch_of_a_generator_and_need_one(two_devices):
    with two_devices.scope():
        model = own()
    with refused("`x` must have at least one batch"):
        model.evaluate(
            tf.data.Dataset.from_tensor_slices((FEATURES[:0], IDS[:0])).batch(BATCH)
        )
    model.fit(FEATURES, IDS, batch_size=BATCH, verbose=0)
    expected = model.evaluate(FEATURES, IDS, batch_size=BATCH, verbose=0)
    batches = zip(np.split(FEATURES, 3), np.split(IDS, 3), strict=True)
    assert_allclose(
        model.evaluate((x for x in batches), verbose=0), expected, rtol=1e-6
    )


def test_any_model_of_keras_may_be_one():
    class Row(models.MultiWorker, keras.Sequential):
        pass

    model = Row([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse", metrics=["mae"])
    assert set(model.fit(np.ones([4, 3]), np.ones([4, 2]), verbose=0).history) == {
        "loss",
        "mae",
    }


if __name__ == "__main__":
    several = tf.distribute.MultiWorkerMirroredStrategy()
    results = [run(name, several) for name in sys.argv[2:]]
    all_results = {key: value for result in results for key, value in result.items()}
    np.savez(f"{sys.argv[1]}{several.cluster_resolver.task_id}.npz", **all_results)
