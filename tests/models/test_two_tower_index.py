"""TwoTower: its index, what it finds there, and its evaluation."""

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from tensorflow import keras

import rank4class_tf
from rank4class_tf import _keras, evaluation, losses, metrics, models
from rank4class_tf._tf.checksums import checksums

from ..refused import refused
from ..rounding import assert_all_close, assert_same_sums
from ..small_models import served
from .two_towers import (
    FEATURES,
    IDS,
    NUM_CANDIDATES,
    WIDTH,
    by_ids,
    dense_scores,
    make,
    towers,
)


def test_top_k_is_exact(pairs, candidates, seen):
    model = make(normalize=False, temperature=0.1)
    model.index(candidates, batch_size=7)
    scores = dense_scores(model, pairs[0], candidates["features"])
    for exclude in (None, seen):
        is_left_out = exclude is not None and (IDS[None, :, None] == seen[:, None]).any(
            axis=2
        )
        expected = np.where(is_left_out, -np.inf, scores)
        values, ids = model.top_k(pairs[0], NUM_CANDIDATES, exclude=exclude)
        best = -np.sort(-expected, axis=1)
        named = np.where(np.isneginf(best), -1, IDS[np.argsort(-expected, axis=1)])
        assert_array_equal(ids, named)
        assert_allclose(values, best, rtol=1e-4, atol=1e-6)


def ranks_by_definition(model, pairs, candidates):
    scores = dense_scores(model, pairs[0], candidates["features"])
    columns = [IDS.tolist().index(i) for i in pairs[1]["id"]]
    return 1 + (scores > scores[np.arange(24), columns][:, None]).sum(axis=1)


@pytest.mark.keras2
def test_no_door_reads_a_stale_index(pairs, candidates, tmp_path):
    model = make(candidates, rate=5.0, metrics=[metrics.MRR()])
    path = tmp_path / "m.weights.h5"

    def best():
        return -np.sort(-dense_scores(model, pairs[0], candidates["features"]), axis=1)[
            :, :3
        ]

    def exported():
        model.export_candidates(tmp_path / "rows.npy")
        products = model.predict(pairs[0], verbose=0) @ np.load(tmp_path / "rows.npy").T
        scores = dense_scores(model, pairs[0], candidates["features"])
        return np.take_along_axis(scores, np.argsort(-products)[:, :3], axis=1)

    def exported_top_k():
        model.export_top_k(tmp_path / "served", tf.TensorSpec([None, FEATURES]), k=3)
        return served(tmp_path / "served", pairs[0])["scores"]

    def written():
        queries = tf.data.Dataset.from_tensor_slices(pairs[0]).batch(7)
        model.write_top_k(tmp_path, queries, np.int64(3))
        _, ids = model.top_k(pairs[0], 3)
        assert_array_equal(np.load(tmp_path / "candidate_ids.npy"), ids)
        return np.load(tmp_path / "scores.npy", mmap_mode="r")

    def added():
        model.add_candidates({k: v[:4] for k, v in candidates.items()})
        return model.top_k(pairs[0], 3)[0]

    def ranks():
        return ranks_by_definition(model, pairs, candidates)

    for found, expected in (
        (lambda: model.test_on_batch(*pairs)[1], lambda: np.mean(1 / ranks())),
        (lambda: model.ranks(*pairs).above[:, 0], lambda: ranks() - 1),
        *((door, best) for door in (exported, exported_top_k, written, added)),
        (lambda: model.top_k(pairs[0], 3)[0], best),
    ):
        for _ in range(3):
            model.train_on_batch(*pairs)
        assert_allclose(found(), expected(), rtol=1e-4)
    model.save_weights(path)
    model.set_weights(
        [w + 1 if w.dtype == np.float32 else w for w in model.get_weights()]
    )
    model.index()
    model.load_weights(path)
    assert_allclose(model.top_k(pairs[0], 3)[0], best(), rtol=1e-4)


def test_an_evaluator_measures_the_candidates_of_each_call(pairs, candidates):
    model = make(candidates, metrics=[metrics.MRR()])
    measure = evaluation.Evaluator(model, ["mrr"])
    few = np.unique([IDS.tolist().index(i) for i in pairs[1]["id"]])
    for rows in (slice(None), few):
        model.index({name: x[rows] for name, x in candidates.items()})
        expected = model.evaluate(*pairs, verbose=0, return_dict=True)["mrr"]
        assert measure.mean("mrr", pairs) == pytest.approx(expected, rel=1e-5)


def swap_two_rows(table):
    rows = tf.gather(table, [3, 5])
    table.assign(tf.tensor_scatter_nd_update(table, [[3], [5]], rows[::-1]))


def swap_two_numbers(table):
    first, second = (table[3, 0].numpy(), table[3, 1].numpy())
    table[3, :2].assign([second, first])


CHANGES = {
    "fit": lambda model, table: model.fit(np.ones([4, FEATURES]), np.arange(4)),
    "train_on_batch": lambda model, table: model.train_on_batch(
        np.ones([4, FEATURES]), np.arange(4)
    ),
    "set_weights": lambda model, table: model.set_weights(
        [w + 1 if w.dtype == np.float32 else w for w in model.get_weights()]
    ),
    "load_weights": lambda model, table: model.load_weights(model.older_weights),
    "assign": lambda model, table: table.assign(-table),
    "in a graph": lambda model, table: tf.function(
        lambda: table.assign_add(tf.ones_like(table))
    )(),
    "one number": lambda model, table: table[7, 2].assign(table[7, 2] + 1e-6),
    "rows of a sparse step": lambda model, table: table.scatter_update(
        tf.IndexedSlices(tf.ones([1, WIDTH]), [2])
    ),
    "swapped rows": lambda model, table: swap_two_rows(table),
    "swapped numbers": lambda model, table: swap_two_numbers(table),
}


@pytest.mark.keras2
@pytest.mark.parametrize("change", CHANGES)
def test_every_change_of_a_weight_is_noticed(change, tmp_path):
    model = by_ids()
    table = _keras.variable(model.candidate_encoder.weights[0])
    # Powers of two differ in few bits of their words.
    values = 2.0 ** np.random.default_rng(0).integers(-3, 3, table.shape)
    values[3, :2] = 1, 2
    table.assign(-values)
    model.older_weights = tmp_path / "older.weights.h5"
    model.save_weights(model.older_weights)
    table.assign(values)
    assert not model._index.is_current
    model.index()
    assert model._index.is_current
    calls = []
    encode = model._index.encode
    model._index.encode = lambda x: calls.append(1) or encode(x)
    CHANGES[change](model, table)
    model.top_k(np.ones([1, FEATURES]), 2)
    assert len(calls) == 1 and model._index.is_current


@pytest.mark.parametrize(
    "shape", [(), (3,), (0, 4), (7, 100_000), (2, 600_000), (600_000,)]
)
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "bool"])
def test_checksums_see_each_word(shape, dtype):
    """Also in weights that take several blocks, with a short last one."""
    weight = tf.Variable(np.zeros(shape), dtype=dtype)
    zeros = checksums([weight])
    assert zeros == checksums([weight])
    found = set()
    for place in {0, weight.shape.num_elements() // 2, -1} if np.prod(shape) else ():
        values = np.zeros(shape)
        values.reshape(-1)[place] = 1
        weight.assign(tf.cast(values, dtype))
        found.add(int(checksums([weight])[0]))
    places = min(weight.shape.num_elements(), 3)
    assert len(found - {int(zeros[0])}) == places


@pytest.mark.skipif(not _keras.KERAS_3, reason="Keras 2 has no such callback.")
def test_validation_ranks_candidates_of_the_weights_that_a_callback_swaps_in(
    pairs, candidates
):
    model = make(candidates)
    optimizer = keras.optimizers.SGD(5.0, use_ema=True, ema_momentum=0.9)
    model.compile(optimizer, losses.SoftmaxLoss(), metrics=[metrics.MRR()])
    expected = []

    class Definition(keras.callbacks.Callback):
        def on_test_end(self, logs=None):
            expected.append(np.mean(1 / ranks_by_definition(model, pairs, candidates)))

    callbacks = [Definition(), keras.callbacks.SwapEMAWeights()]
    fitted = model.fit(
        *pairs, epochs=3, verbose=0, validation_data=pairs, callbacks=callbacks
    )
    assert_allclose(fitted.history["val_mrr"], expected, rtol=1e-5)
    assert len(set(expected)) > 1
    found = model.evaluate(*pairs, verbose=0, callbacks=callbacks)[1]
    assert found == pytest.approx(expected[-1], rel=1e-5) and len(expected) == 4


@pytest.mark.keras2
def test_evaluate_takes_arguments_by_position_as_keras_does(pairs, candidates):
    model = make(candidates)
    model.compile("sgd", losses.SoftmaxLoss(), metrics=[metrics.MRR()])
    batches = []
    counter = keras.callbacks.LambdaCallback(
        on_test_batch_end=lambda batch, logs: batches.append(batch)
    )
    rest = (True,) if _keras.KERAS_3 else (10, 1, False, True)
    found = model.evaluate(*pairs, 8, 0, None, None, [counter], *rest)
    expected = model.evaluate(*pairs, batch_size=8, verbose=0, return_dict=True)
    assert batches == [0, 1, 2]
    assert found == pytest.approx(expected, rel=1e-6)


def assert_same(found, expected):
    """Scores and ids, but for the order of the sums of products."""
    for ours, theirs in zip(found, expected, strict=True):
        assert_same_sums(ours, theirs, WIDTH)


def as_dataset(candidates, of_dataset=True):
    return (
        tf.data.Dataset.from_tensor_slices(candidates).batch(7)
        if of_dataset
        else candidates
    )


@pytest.mark.keras2
@pytest.mark.parametrize("of_dataset", [False, True])
def test_candidates_are_added_changed_and_removed(of_dataset, pairs, candidates):
    """As if all had been indexed so, also after they are encoded again."""
    model = make(as_dataset({k: v[:30] for k, v in candidates.items()}, of_dataset))
    calls = []
    encode = model._index.encode
    model._index.encode = lambda x: calls.append(len(x["id"])) or encode(x)
    changed = {k: v[25:38].copy() for k, v in candidates.items()}
    changed["features"][:5] += 1
    model.add_candidates(changed)
    model.remove_candidates(IDS[[3, 27, 36]])
    assert calls == [13]  # Only these were encoded.
    model._index.encode = encode

    kept = np.setdiff1d(np.arange(38), [3, 27, 36])
    features = candidates["features"].copy()
    features[25:30] += 1
    expected = make({"id": IDS[kept], "features": features[kept]})
    for _ in range(2):
        assert_same(*(x.top_k(pairs[0], 35) for x in (model, expected)))
        model.index()
        expected.index()


@pytest.mark.parametrize("of_dataset", [False, True])
def test_added_ids_keep_their_value(of_dataset, pairs, candidates):
    model = make(as_dataset({**candidates, "id": IDS.astype(np.int32)}, of_dataset))
    # float64, as NumPy's are.
    new = [2001, 2**32 + 7]
    features = np.ones([1, FEATURES])
    model.add_candidates({"id": np.array(new[:1], np.int16), "features": features})
    model.add_candidates({"id": new[1:], "features": features.tolist()})
    assert set(model.top_k(pairs[0], 42)[1].numpy()[0]) == {*IDS, *new}
    rank = model.ranks(pairs[0][:1], {"id": np.array(new[1:])}).above.numpy()
    features = np.concatenate([candidates["features"], features])
    scores = dense_scores(model, pairs[0][:1], features)[0]
    assert rank == (scores > scores[-1]).sum()
    model.index()


def test_a_class_id_belongs_to_one_candidate(pairs, candidates):
    """Also after its removal: a metric may hold ranks from before and after it."""
    model = make(candidates)
    row = {name: x[:1] for name, x in candidates.items()}

    def added(new_id):
        candidate = {**row, "id": np.array([new_id])}
        model.add_candidates(candidate)
        return model.ranks(pairs[0][:1], candidate).class_ids.numpy().item()

    first = added(2001)
    assert first == NUM_CANDIDATES
    model.remove_candidates([2001])
    assert added(2002) == first + 1
    assert added(2002) == first + 1
    assert added(2003) == first + 2


def test_an_index_from_a_dataset_in_another_order_each_time(pairs, candidates):
    model = make()
    expected = make(candidates)
    model.index(tf.data.Dataset.from_tensor_slices(candidates).shuffle(40).batch(7))
    model.index()
    assert_same(*(x.top_k(pairs[0], 9) for x in (model, expected)))


def test_candidates_of_a_dataset_without_ids_keep_the_numbers_of_their_rows(
    pairs, candidates
):
    model = make(as_dataset({"features": candidates["features"]}), candidate_id=None)
    model.remove_candidates([0, 5])
    before = model.top_k(pairs[0], 9)
    model.index()
    assert_same(model.top_k(pairs[0], 9), before)


def test_a_dataset_that_gives_other_candidates_raises(candidates):
    parts = ([{k: v[:size] for k, v in candidates.items()}] for size in (30, 20))
    spec = {
        "id": tf.TensorSpec([None], tf.int64),
        "features": tf.TensorSpec([None, FEATURES]),
    }
    model = make(
        tf.data.Dataset.from_generator(lambda: next(parts), output_signature=spec)
    )
    with refused("gives the same candidates each time. Received: 20 of 30"):
        model.index()


def test_what_has_not_changed_is_not_encoded_again(pairs, candidates):
    model = make(candidates, metrics=[metrics.MRR()])
    calls = []
    index = model.index
    model.index = lambda: calls.append(1) or index()
    model.evaluate(*pairs, verbose=0)
    assert not calls
    model.fit(*pairs, validation_data=pairs, epochs=2, verbose=0)
    model.evaluate(*pairs, verbose=0)
    assert len(calls) == 2  # Once an epoch; the end of training changes nothing.


@pytest.mark.keras2
def test_as_many_candidates_are_encoded_at_once_as_the_user_said(pairs, candidates):
    """Also by what encodes them again, since memory may hold no more."""
    model = make()
    model.index(candidates, batch_size=16)
    encode = model._index.encode
    sizes = []

    def counting(features):
        sizes.append(len(features["id"]))
        return encode(features)

    model._index.encode = counting
    model.fit(*pairs, verbose=0)
    assert sizes == [16, 16, 8]
    model.index(batch_size=30)
    model.index()
    model.index(candidates)
    model.add_candidates(candidates)
    assert sizes[3:] == [30, 10] * 4


def some_metrics():
    recalls = (
        metrics.RecallAtK([1, 5]),
        metrics.RecallAtK(5, average="micro", name="micro"),
    )
    of_ranks = metrics.MRR(), metrics.MeanRank(), metrics.MedianRank()
    return [*recalls, metrics.NDCG(5), *of_ranks, metrics.AveragePrecisionAtK(10)]


def dense_metrics(scores, rows, exclude):
    result = {}
    for metric in some_metrics():
        metric.label_format = "ids"
        value = metric(rows, scores, None, exclude)
        result |= value if isinstance(value, dict) else {metric.name: value}
    return {name: float(value) for name, value in result.items()}


@pytest.mark.slow
@pytest.mark.parametrize("several, exclude", [(False, True), (True, False)])
def test_evaluates_and_serves_candidates(
    several, exclude, pairs, candidates, seen, rng, tmp_path
):
    queries = keras.Input((FEATURES,), name="features")
    encoder = keras.Model({"features": queries}, keras.layers.Dense(WIDTH)(queries))
    model = models.TwoTower(
        encoder, towers()[1], candidate_id="id", exclude="seen" if exclude else None
    )
    model.compile("sgd", loss=losses.SoftmaxLoss(), metrics=some_metrics())
    x = {"features": pairs[0], "seen": seen}
    y = pairs[1]
    if several:
        rows = np.stack(
            [rng.choice(NUM_CANDIDATES, 3, replace=False) for _ in range(24)]
        )
        y = {"id": np.where(rng.random((24, 3)) < 0.3, -1, IDS[rows])}
    places = {i: row for row, i in enumerate(IDS)} | {-1: -1}
    rows = np.vectorize(places.get)(y["id"].reshape([24, -1]))
    left = np.vectorize(lambda i: places.get(i, -1))(seen) if exclude else None
    model.index(candidates)
    scores = dense_scores(model, {"features": pairs[0]}, candidates["features"])
    results = model.evaluate(x, y, batch_size=7, verbose=0, return_dict=True)
    expected = dense_metrics(scores.astype("float32"), rows, left)
    assert set(results) - {"loss"} == set(expected)
    for name, value in expected.items():
        assert results[name] == pytest.approx(value, rel=1e-5), name
    assert np.isnan(results["loss"]) == several
    found = rank4class_tf.evaluate(
        model, (x, y), [m for m in some_metrics() if m.is_mean]
    )
    for name, estimate in found.estimates.items():
        assert estimate.value == pytest.approx(expected[name], rel=1e-5)
    spec = {"features": tf.TensorSpec([None, FEATURES], name="features")}
    if exclude:
        spec["seen"] = tf.TensorSpec([None, None], tf.int64, name="seen")
    model.export_top_k(tmp_path / "saved", spec, k=3)
    of_spec = {name: x[name] for name in spec}
    found = served(tmp_path / "saved", signature="top_k", **of_spec, k=4)
    best = model.top_k(x, 4)
    assert_array_equal(found["candidate_ids"], best[1])
    assert_allclose(found["scores"], best[0], rtol=1e-5)
    with refused("`exclude` must be None for a model that ranks all"):
        rank4class_tf.evaluate(model, (x, y), ["mrr"], exclude=lambda x: x["seen"])


@pytest.mark.keras2
def test_validation_in_fit_and_weights(pairs, candidates):
    model = make(
        candidates, metrics=[metrics.MRR()], weighted_metrics=[metrics.MeanRank()]
    )
    weight = np.arange(24.0)
    history = model.fit(*pairs, validation_data=(*pairs, weight), verbose=0).history
    assert set(history) == {"loss", "val_loss", "val_mrr", "val_mean_rank"}
    ranks = ranks_by_definition(model, pairs, candidates)
    assert history["val_mrr"][0] == pytest.approx(np.mean(1 / ranks), rel=1e-5)
    assert history["val_mean_rank"][0] == pytest.approx(
        np.average(ranks, weights=weight), rel=1e-5
    )


def test_an_id_that_is_not_in_the_index_shows_as_nan(pairs, candidates):
    some = {k: v[1:] for k, v in candidates.items()}
    model = make(some, metrics=[metrics.MRR(), metrics.MedianRank()])
    assert IDS[0] in pairs[1]["id"]
    assert np.isnan(model.evaluate(*pairs, verbose=0)[1:]).all()
    model.index(candidates)
    ranks = ranks_by_definition(model, pairs, candidates)
    found = model.evaluate(*pairs, verbose=0)[1:]
    assert found == pytest.approx([np.mean(1 / ranks), np.median(ranks)], rel=1e-5)


@pytest.mark.parametrize("row_splits", [tf.int32, tf.int64])
def test_ragged_candidates_have_the_ranks_of_padded_ones(pairs, candidates, row_splits):
    model = make(candidates, metrics=[metrics.MRR()])
    some = {k: v[1:] for k, v in candidates.items()}
    lengths = [2, 0, *[1, 3] * 11]
    ids = np.resize(IDS, sum(lengths))
    ragged = tf.RaggedTensor.from_row_lengths(ids, tf.cast(lengths, row_splits))
    padded = ragged.to_tensor(-1)
    for index in (candidates, some):  # The second lacks an id, whose ranks are NaN.
        model.index(index)
        found, expected = (model.ranks(pairs[0], {"id": x}) for x in (ragged, padded))
        assert_all_close(found[:4], expected[:4], 0)
    assert np.isnan(expected.above).any() and np.isfinite(expected.above).any()


def test_an_index_that_fails_leaves_the_older_one(pairs):
    model = by_ids()
    before = model.top_k(pairs[0], 3)
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
        model.index(np.arange(NUM_CANDIDATES + 9))  # The embedding is too small.
    assert_all_close(model.top_k(pairs[0], 3), before, 0)
    model.fit(pairs[0], np.arange(24), verbose=0)


def test_what_is_excluded_may_be_ragged_or_twice_or_strings(pairs, candidates):
    model = make(candidates)
    ragged = tf.RaggedTensor.from_row_lengths(IDS[[0, *[1, 2] * 22]], [1, 0, *[2] * 22])
    found, expected = (
        model.top_k(pairs[0], 3, ids) for ids in (ragged, ragged.to_tensor(-1))
    )
    assert_all_close(found, expected, 0)
    ranks = model.ranks(*pairs, exclude=np.tile(IDS[[3, 5, 3]], (24, 1)))
    assert_array_equal(ranks.num_items, np.full(24, NUM_CANDIDATES - 2))
    names = np.array(["", *(f"item {i}" for i in range(1, NUM_CANDIDATES))])
    model = make({**candidates, "id": names})
    excluded = tf.ragged.constant([["item 1"], [], *[["item 1", "item 2"]] * 22])
    _, found = model.top_k(pairs[0], NUM_CANDIDATES - 2, exclude=excluded)
    # Padding is no id.
    assert b"" in found[0].numpy() and b"item 1" in found[1].numpy()
    assert b"item 1" not in found[0].numpy()


def test_checksums_of_a_weight_of_unknown_shape():
    """As Keras 2's `TextVectorization` counts documents."""
    weight = tf.Variable([1.0, 2.0, 3.0], shape=(None,))
    (before,) = checksums([weight])
    weight.assign([2.0, 1.0, 3.0])
    (swapped,) = checksums([weight])
    weight.assign([1.0, 2.0, 3.0])
    assert int(before) == int(*checksums([weight])) != int(swapped)
