"""ExtremeClassifier: its step, evaluation, and that it is a Keras model like others."""

import pickle

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from tensorflow import keras

from rank4class_tf import _keras, layers, losses, metrics, models, ops, optimizers
from rank4class_tf._tf import search
from rank4class_tf.layers import sampled

from ..refused import assert_refused, refused, refused_in_graph
from ..rounding import assert_all_close
from ..small_models import linear, served
from .two_towers import weights

NUM_CLASSES, WIDTH, FEATURES = 40, 6, 5


def make(num_sampled=12, seed=3, num_classes=NUM_CLASSES, **kwargs):
    keras.utils.set_random_seed(1)
    encoder = linear(FEATURES, WIDTH)
    return models.ExtremeClassifier(
        encoder, num_classes, WIDTH, num_sampled, seed=seed, **kwargs
    )


def top_k_mining(k):
    return losses.OrderedWeightedLoss("binary", "hinge", ops.TopKWeights(k))


def compiled(optimizer="RowwiseSGD", rate=0.1, loss=None, **kwargs):
    """A model, compiled to mine the hardest negative unless a loss is given."""
    of_model = {k: kwargs.pop(k) for k in ("metrics", "jit_compile") if k in kwargs}
    model = make(**kwargs)
    model.compile(
        getattr(optimizers, optimizer)(rate), loss or top_k_mining(1), **of_model
    )
    return model


@pytest.fixture
def data(rng, normal):
    """Features and 1 to 3 classes of each of 16 examples."""
    features = normal(16, FEATURES)
    class_ids = np.stack([rng.choice(NUM_CLASSES, 3, replace=False) for _ in range(16)])
    class_ids[rng.random((16, 3)) < 0.3] = -1
    class_ids[class_ids == np.arange(16)[:, None]] = -1
    class_ids[:, 0] = np.arange(16)
    return features, class_ids


@pytest.mark.slow
def test_an_example_without_features_does_not_drown_the_first_batch(normal):
    dense = normal(8, FEATURES)

    def steps(features):
        keras.utils.set_random_seed(1)
        inputs = keras.Input((FEATURES,), sparse=True)
        encoder = keras.Sequential([inputs, layers.SparseDense(WIDTH)])
        model = models.ExtremeClassifier(
            encoder, NUM_CLASSES, WIDTH, num_sampled=12, seed=3
        )
        model.compile(optimizers.RowwiseSGD(0.5), loss=losses.SoftmaxLoss())
        before = weights(model)[:2]
        batch = tf.sparse.from_dense(features), np.arange(len(features))
        model.fit(tf.data.Dataset.from_tensors(batch), shuffle=False, verbose=0)
        changes = zip(weights(model)[:2], before, strict=True)
        return [(now - then) * len(features) for now, then in changes]

    # The encoder learns from the others alone what it learns from the batch without the
    # example.
    with_empty = steps(np.concatenate([dense, np.zeros_like(dense[:1])]))
    without = steps(dense)
    assert all(change.any() for change in without)
    assert_all_close(with_empty, without, 1e-4, 1e-5)


def some_metrics():
    of_cutoffs = (
        metrics.PrecisionAtK([1, 3, 5]),
        metrics.RecallAtK([1, 3, 5]),
        metrics.NDCG([1, 5]),
    )
    return [
        *of_cutoffs,
        metrics.NDCG(name="ndcg_of_all"),
        metrics.MRR(),
        metrics.MeanRank(),
    ]


@pytest.mark.keras2
@pytest.mark.parametrize("form", ["one", "unknown_width"])
def test_evaluates_over_all_classes(form, data):
    features, class_ids = data
    class_ids = class_ids[:, 0] if form == "one" else class_ids
    model = make()
    of_model = some_metrics()
    model.compile(optimizers.RowwiseSGD(0.1), loss=top_k_mining(1), metrics=of_model)
    batches = tf.data.Dataset.from_tensor_slices((features, class_ids)).batch(5)
    if form == "unknown_width":
        widths = tf.constant([1, 2, 3])
        batches = batches.map(
            lambda x, y: (x, y[:, : tf.reduce_max(tf.where(y >= 0, widths, 0))])
        )
        assert batches.element_spec[1].shape[1] is None
    results = model.evaluate(batches, return_dict=True, verbose=0)
    assert of_model[0].label_format is None  # As it was given.

    scores = dense_scores(model, features)
    for metric in some_metrics():
        metric.label_format = "ids"
        value = metric(class_ids, scores)
        for key, expected in (
            value if isinstance(value, dict) else {metric.name: value}
        ).items():
            assert results[key] == pytest.approx(float(expected), rel=1e-6, abs=1e-6), (
                key
            )
    assert set(results) > {
        "loss",
        "precision_at_3",
        "ndcg_at_1",
        "ndcg_of_all",
        "mrr",
        "mean_rank",
    }


def dense_scores(model, features):
    encodings = model.predict(features, verbose=0)
    table = np.array(model.classes.embeddings)
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (encodings, table)]
    return unit[0] @ unit[1].T


@pytest.mark.keras2
def test_top_k_is_compiled_once_and_sees_what_changes(data, monkeypatch):
    model, traces = compiled(), []
    by_blocks = search.top_k_by_blocks

    def traced(*args):
        traces.append(1)
        return by_blocks(*args)

    monkeypatch.setattr(search, "top_k_by_blocks", traced)

    def check(model):
        _, ids = model.top_k(data[0], 3)
        best = np.argsort(-dense_scores(model, data[0]))[:, :3]
        np.testing.assert_array_equal(ids, best)

    check(model)
    before = model.classes.rows().numpy()
    model.fit(*data, verbose=0)
    assert (model.classes.rows().numpy() != before).any()
    check(model)
    model.classes.assign(before[::-1])
    check(model)
    assert len(traces) == 1
    model.classes.add(-before[:3])
    check(model)
    assert len(traces) == 2
    assert model.top_k(data[0], NUM_CLASSES + 3)[1].shape == (16, NUM_CLASSES + 3)
    # Saved, exported and copied as before.
    loaded = pickle.loads(pickle.dumps(model))
    check(loaded)
    check(models.ExtremeClassifier.from_config(model.get_config()))


@pytest.mark.slow
@pytest.mark.parametrize(
    "optimizer, loss, num_sampled",
    [
        # A larger epsilon, for Adam makes whole steps of the rounding of gradients that
        # cancel.
        (optimizers.RowwiseAdam(0.1, epsilon=1e-2), top_k_mining(1), 12),
        (optimizers.RowwiseAdagrad(0.1), losses.RankmaxLoss(), None),
    ],
    ids=["mined", "all classes"],
)
def test_two_devices_train_as_one(optimizer, loss, num_sampled, data, two_devices):
    features, class_ids = data
    # A sample draws one of several; these are rows that both devices touch.
    if num_sampled:
        class_ids = class_ids[:, 0] % 3

    def train(strategy):
        with strategy.scope():
            model = make(num_sampled)
            copy = type(optimizer).from_config(optimizer.get_config())
            model.compile(copy, loss, metrics=[metrics.PrecisionAtK(1)])
        options = {"batch_size": 8, "verbose": 0}
        history = model.fit(
            features, class_ids, epochs=3, shuffle=False, **options
        ).history
        return (
            weights(model),
            history["loss"],
            model.evaluate(features, class_ids, **options),
        )

    one = train(tf.distribute.get_strategy())
    two = train(two_devices)
    assert_all_close(two[0], one[0], 1e-4, 1e-5)
    assert_all_close(two[1:], one[1:], 1e-4)


@pytest.mark.slow
@pytest.mark.keras2
def test_resumes_where_it_was_saved(data, tmp_path):
    def train(model):
        model.fit(*data, batch_size=4, epochs=2, verbose=0, shuffle=False)
        return weights(model)

    model, other = (
        compiled("RowwiseAdagrad", metrics=[metrics.NDCG(5)]) for _ in range(2)
    )
    train(model)
    model.save(tmp_path / "m.keras")
    model.save_weights(tmp_path / "m.weights.h5")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    other.optimizer.build(other.trainable_variables)
    other.load_weights(tmp_path / "m.weights.h5")
    before, *both = (
        m.evaluate(*data, verbose=0, return_dict=True) for m in (model, loaded, other)
    )
    assert "ndcg_at_5" in before
    expected = train(model)
    for each, evaluated in zip((loaded, other), both, strict=True):
        assert evaluated == pytest.approx(before, rel=1e-6)
        assert_all_close(train(each), expected, 1e-6, 1e-7)


@pytest.mark.slow
def test_exports_top_k(data, tmp_path):
    """With names, and 10 classes unless a request or the argument says how many."""
    model = make(num_sampled=2)
    names = np.array([f"class {i}" for i in range(NUM_CLASSES)])
    spec = tf.TensorSpec([None, FEATURES], name="features")
    model.export_top_k(tmp_path / "saved", spec, class_names=names.tolist())
    path = tmp_path / "saved"
    for k, result in (
        (10, served(path, features=data[0])),
        (3, served(path, signature="top_k", features=data[0], k=3)),
    ):
        scores, ids = model.top_k(data[0], k)
        assert_array_equal(result["class_ids"], ids)
        assert_allclose(result["scores"], scores, rtol=1e-6)
        assert_array_equal(result["class_names"], names[ids].astype("S"))


def test_exported_classes_rank_as_the_model(data, tmp_path, monkeypatch):
    # The last block is shorter.
    monkeypatch.setattr(sampled, "_ROWS_WRITTEN_AT_ONCE", 16)
    model = make()
    model.export_classes(tmp_path / "classes.npy")
    products = model.predict(data[0], verbose=0) @ np.load(tmp_path / "classes.npy").T
    _, ids = model.top_k(data[0], 5)
    assert_array_equal(np.argsort(-products, axis=1)[:, :5], ids)


@pytest.mark.keras2
def test_changed_sampling_takes_effect(data):
    """As in the docs: a step is of a model made like that, also if traced before."""

    def train(num_sampled, k, changes):
        model = compiled(num_sampled=num_sampled, loss=top_k_mining(k))
        model.make_train_function()
        if changes:
            model.scores.num_sampled, model.loss.rank_weights = changes
            model.make_train_function(force=True)
        model.fit(*data, batch_size=16, verbose=0, shuffle=False)
        return weights(model)

    assert_all_close(train(6, 4, (20, ops.TopKWeights(1))), train(20, 1, None), 0)


def test_sample_weights_and_examples_without_a_class(data):
    features = data[0][:4]
    class_ids = np.array([[1], [2], [3], [-1]])
    model = compiled()

    def loss(weights):
        return model.evaluate(
            features, class_ids, 4, sample_weight=np.array(weights), verbose=0
        )

    singles = [loss(row) for row in np.eye(4)]
    assert singles[3] == 0 and min(singles[:3]) > 0
    expected = singles[0] + 2 * singles[1] + 0.5 * singles[2]
    assert loss([1.0, 2.0, 0.5, 7.0]) == pytest.approx(expected, rel=1e-5)


@pytest.mark.keras2
def test_mixed_precision(data, mixed_precision):
    model = compiled("RowwiseAdagrad", metrics=[metrics.PrecisionAtK(1)])
    assert np.isfinite(model.fit(*data, verbose=0).history["loss"]).all()
    assert model.classes.embeddings.dtype == "float32"
    assert np.isfinite(model.evaluate(*data, verbose=0)).all()


def test_bad_class_ids_show_as_nan_under_xla(data):
    ids = np.where(np.arange(16) == 5, NUM_CLASSES, np.arange(16))
    model = compiled(
        metrics=[metrics.MRR(), metrics.PrecisionAtK([1, 5])], jit_compile=True
    )
    assert np.isnan(
        list(model.evaluate(data[0], ids, verbose=0, return_dict=True).values())
    ).all()


@pytest.mark.parametrize(
    "loss", [losses.WARPLoss(ops.TopKWeights(2)), top_k_mining(100)]
)
def test_losses_that_get_the_scores_of_all_sampled_classes(loss, data):
    """One is not mined; the other reads more negatives than are drawn."""
    features = data[0]
    class_ids = data[1][:, 0]
    model = compiled(loss=loss)
    scores = model.scores(model(features), class_ids=class_ids, training=False)
    value = model.compute_loss(features, class_ids, model(features), training=False)
    assert_allclose(value, loss(np.zeros(16, int), scores), rtol=1e-5)


def test_labels_of_several_ranks(data):
    """Keras 3 relaxes shapes that change to an unknown rank."""
    model = compiled(metrics=[metrics.PrecisionAtK(1)])
    features = data[0]
    own = data[1][:, 0]
    expected = pytest.approx(model.evaluate(features, own, verbose=0))
    for labels in (own[:, None], np.stack([own, own], axis=1), own[:, None], own):
        assert model.evaluate(features, labels, verbose=0) == expected
    model.fit(features, own[:, None], verbose=0)
    with refused_in_graph("not a label for each class"):
        model.fit(features, np.eye(NUM_CLASSES, dtype=int)[own], verbose=0)


@pytest.mark.keras2
def test_optimizers_around_and_before_those_of_rows(data):
    model = make()
    optimizer = keras.mixed_precision.LossScaleOptimizer(optimizers.RowwiseAdagrad(0.1))
    model.compile(optimizer, loss=top_k_mining(1), run_eagerly=True)
    model.fit(*data, verbose=0)  # Without a warning.
    if not _keras.KERAS_3:  # One that builds nothing before it trains.
        model.compile(keras.optimizers.legacy.SGD(0.1), losses.SoftmaxLoss())
        with pytest.warns(UserWarning, match="Received: SGD"):
            model.fit(*data, verbose=0)


def test_a_diverged_model_has_no_hit(data):
    """All its scores are NaN, and none is above another."""
    of_all = [metrics.TopKAccuracy(1), metrics.NDCG(5), metrics.RecallAtK([1, 5])]
    model = compiled(loss=losses.SoftmaxLoss(), num_classes=1000, metrics=of_all)
    kernel = model.encoder.weights[0]
    kernel.assign(np.full(kernel.shape, np.nan, "float32"))
    found = model.evaluate(*data, return_dict=True, verbose=0)
    assert np.isnan(found.pop("loss"))
    assert set(found.values()) == {0.0}


@pytest.mark.keras2
@pytest.mark.parametrize("kind", ["table", "embedding"])
def test_a_configuration_alone_has_one_table_for_both_ends(kind):
    """Outside of a file Keras marks no layer as shared."""
    inputs = keras.Input((3,), dtype="int32")
    if kind == "table":
        words = layers.ClassTable(20, 4)
        embedded = layers.ClassEmbedding(words)(inputs)
    else:
        words = keras.layers.Embedding(20, 4)
        embedded = words(inputs)
    encoder = keras.Model(inputs, keras.layers.GlobalAveragePooling1D()(embedded))
    model = models.ExtremeClassifier(encoder, words, 4, None, normalize=False)
    copy = models.ExtremeClassifier.from_config(model.get_config())
    # Neither was called: the table, and the random state.
    copy.set_weights(model.get_weights())
    x = tf.constant([[3, 5, 3], [7, 0, 1]])
    assert_all_close(copy.top_k(x, 5), model.top_k(x, 5), 0)
    again = models.ExtremeClassifier.from_config(copy.get_config())
    assert len(again.get_weights()) == len(model.get_weights()) == 2


# Serving histories


ITEMS = 300
LOOKUPS: list = [(dtype, None) for dtype in ("uint8", "int16", "uint16", "int64")]
LOOKUPS += [("float32", None), ("float32", "mixed_float16")]


@pytest.mark.keras2
@pytest.mark.parametrize("dtype, policy", LOOKUPS)
@pytest.mark.parametrize("unknown_as_padding", [False, True])
def test_ids_of_any_dtype_are_looked_up(dtype, policy, unknown_as_padding):
    table = layers.ClassTable(5000, 2)
    table.build((None, 2))
    embedding = layers.ClassEmbedding(table, unknown_as_padding, dtype=policy)
    ids = np.array([[3, 255, 0], [7, 7, 0]])
    if dtype not in ("uint8", "int16"):
        ids[0, 1] = 4097  # No number of float16.
    if not dtype.startswith("u"):
        ids[1, 2] = -1
    given = tf.constant(ids.astype(dtype))
    expected = np.where((ids == -1)[..., None], 0, table.rows().numpy()[ids])
    expected = expected.astype(embedding.compute_dtype)
    found = embedding(given)
    assert_array_equal(found, expected)
    assert_array_equal(embedding.compute_mask(given), ids != -1)
    inputs = keras.Input((3,), dtype=dtype)
    assert_array_equal(keras.Model(inputs, embedding(inputs))(given), expected)


@pytest.mark.keras2
@pytest.mark.parametrize("unknown", [-2, -100, ITEMS, 2**40, np.nan, np.inf])
def test_ids_of_no_class(unknown):
    ids = np.array([[1.0, unknown], [2.0, -1.0]])
    ids = ids.astype("float32" if np.isfinite(unknown) is np.False_ else "int64")
    table = layers.ClassTable(ITEMS, 2)
    table.build((None, 2))
    embedding = layers.ClassEmbedding(table)
    rule = rf"`inputs` must hold class ids in \[0, {ITEMS}\), or -1 for padding"
    assert_refused(embedding, rule, ids)
    expected = np.zeros((2, 2, 2), "float32")
    expected[:, 0] = table.rows([1, 2])
    serving = layers.ClassEmbedding(table, unknown_as_padding=True)
    for compiled in (tf.function, lambda f: f):
        assert_array_equal(compiled(serving)(tf.constant(ids)), expected)
    assert serving.compute_mask(ids).tolist() == [[True, False]] * 2
    expected[0, 1] = np.nan
    under_xla = tf.function(embedding, jit_compile=True)(tf.constant(ids))
    assert_array_equal(under_xla, expected)


# The last history is empty, and of one all is unknown.
HISTORIES = [[5, 900, 7], [1, 2, 3], [-1, -1, -1], [4, -1, -1], [-7, 400, -1]]


def recommender(last, normalize=True):
    """Of items, whose encoder reads unknown ones as padding."""
    keras.utils.set_random_seed(2)
    table = layers.ClassTable(ITEMS, WIDTH)
    items = keras.Input((None,), dtype="int32")
    rows = layers.ClassEmbedding(table, unknown_as_padding=True)(items)
    encodings = keras.layers.GRU(WIDTH, return_sequences=last)(rows)
    encoder = keras.Model(items, encodings)
    return models.ExtremeClassifier(encoder, table, WIDTH, None, normalize)


def seen(items):
    return tf.where((items >= 0) & (items < ITEMS), items, -1)


@pytest.mark.slow
@pytest.mark.keras2
@pytest.mark.parametrize("last", [False, True])
def test_served_histories(last, tmp_path, caplog):
    """Only the known items of a history count; an empty one has no answer."""
    model = recommender(last)
    expected = np.full((len(HISTORIES), 4), -1)
    for row, history in zip(expected, HISTORIES, strict=True):
        known = [x for x in history if 0 <= x < ITEMS]
        if known:
            encoding = np.array(model.encoder(np.array([known])))
            encoding = encoding[0, -1] if last else encoding[0]
            table = model.classes.rows().numpy()
            cosines = table @ encoding / np.linalg.norm(table, axis=1)
            cosines[known] = -np.inf
            row[:] = np.argsort(-cosines)[:4]
    assert (expected == -1).all(axis=1).sum() == 2
    given = tf.constant(HISTORIES)
    scores, found = model.top_k(given, 4, last, exclude=seen)
    assert_array_equal(found, expected)
    assert_array_equal(scores == -np.inf, expected == -1)
    in_graph = tf.function(lambda x: model.top_k(x, 4, last, exclude=seen(x)))
    assert_array_equal(in_graph(given)[1], expected)

    path = tmp_path / "models" / "1"
    spec = tf.TensorSpec([None, None], tf.int32)
    names = [f"item {i}" for i in range(ITEMS)]
    model.export_top_k(path, spec, 4, names, last, exclude=seen)
    answer = served(path, given)
    assert_array_equal(answer["class_ids"], expected)
    assert answer["class_names"][2].numpy().tolist() == [b""] * 4
    assert "custom gradients" not in caplog.text
    with refused("`exclude` must be None or a function"):
        model.export_top_k(path, spec, 4, exclude=[[1]])


@pytest.mark.slow
@pytest.mark.keras2
def test_a_history_of_a_new_item_has_an_answer():
    """The encoder was padding what its table did not have when the model was made."""
    model = recommender(last=True)
    histories = tf.constant([[ITEMS], [ITEMS + 1]])
    assert_array_equal(model.top_k(histories, 2, last=True)[1], [[-1, -1]] * 2)
    model.classes.add(np.ones([1, WIDTH]))
    _, found = model.top_k(histories, 2, last=True)
    table = model.classes.rows().numpy()
    encoding = np.array(model.encoder(histories))[0, -1]
    cosines = table @ encoding / np.linalg.norm(table, axis=1)
    assert_array_equal(found, [np.argsort(-cosines)[:2], [-1, -1]])


@pytest.mark.keras2
def test_excluded_classes_at_all_positions_and_without_an_answer(normal):
    encoder = linear(None, FEATURES, 2)
    table = layers.ClassTable.from_rows(normal(5, 2), normal(5))
    model = models.ExtremeClassifier(encoder, table, 2, None, normalize=False)
    x = normal(3, 4, FEATURES)
    left_out = np.array([[0, 3, 4, -1], [2, 2, -1, -1], [0, 1, 2, 3]])
    products = np.array(model.encoder(x)) @ table.rows().numpy().T
    products += table.biases().numpy()
    np.put_along_axis(products[1], np.full((4, 1), 2), -np.inf, axis=1)
    products[0][:, [0, 3, 4]] = products[2][:, :4] = -np.inf
    expected = np.argsort(-products, axis=2)[..., :3]
    expected[np.take_along_axis(products, expected, axis=2) == -np.inf] = -1
    _, found = model.top_k(x, 3, exclude=left_out[:, np.newaxis])
    assert_array_equal(found, expected)
    last = model.top_k(x, 3, last=[3, 3, 3], exclude=left_out.tolist())
    assert_array_equal(last[1], expected[:, 3])
    with refused("`exclude` must hold integers"):
        model.top_k(x, 3, exclude=[[0.5]])
    # Zeros rank by the biases, if there are any.
    head = model.scores
    assert_array_equal(
        head.top_k(tf.zeros([1, 2]), 5)[1], [np.argsort(-table.biases().numpy())]
    )
    head = head.with_classes(layers.ClassTable.from_rows(table.rows()))
    head.build((None, 2))
    scores, ids = head.top_k(tf.zeros([1, 2]), 5)
    assert (scores.numpy() == -np.inf).all() and (ids.numpy() == -1).all()
