"""Wrong arguments of layers: errors that name them.

`test_completeness.py` has all wrong types.
"""

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from tensorflow import keras

from rank4class_tf import layers, losses, models, optimizers

from ..contract.head_table import ARRAY
from ..refused import each_call, refused

SCORES = tf.constant([[30.0, 10.0, 20.0]])
FIRST = tf.constant([0])
IDS = tf.constant([[7], [8]])
MASK = tf.constant([True, False])
FLOATS = tf.constant([1.0, 2.0])
ONES = tf.ones([2, 4])


def dense(**options):
    layer = keras.layers.Dense(5, **options)
    layer.build((None, 4))
    return layer


def table(layer=layers.ClassTable, width=4, **options):
    made = layer(5, width, **options)
    made.build((None, width))
    return made


def sampled(call, classes=30):
    layer = layers.SampledScores(classes, 5 if classes == 30 else None, seed=1)
    layer.build((None, 4))
    return call(layer)


def shards_in(folder, *files):
    for name in files:
        np.save(folder / name, np.zeros([5, 2], "float32"))
    return table(layers.ShardedClassTable).load_shards(folder)


def with_biases():
    return layers.ClassTable.from_rows(np.ones([2, 4]), np.ones(2))


def parts(scores, labels):
    """The same call of each part of retrieval training."""
    return {
        "hits": lambda: layers.RemoveAccidentalHits()(scores, labels, np.arange(9)),
        "log-Q": lambda: layers.SamplingProbabilityCorrection()(
            scores, labels, np.ones(9)
        ),
        "mining": lambda: layers.HardNegativeMining(2)(scores, labels)[0],
    }


def corrected(given):
    return layers.SamplingProbabilityCorrection()(SCORES, FIRST, given)


def hits(ids, scores=SCORES):
    return layers.RemoveAccidentalHits()(scores, FIRST, ids)


NINE = np.ones([2, 9])
BOTH = np.zeros([2, 2, 1], int)


def several(message, call, *arguments):
    """A case for each of some wrong arguments."""
    return [(lambda x=x: call(x), message) for x in arguments]


COUNTS, encoded = layers.CandidateFrequencies.from_counts, layers.EncodedClasses
DENSE = keras.layers.Dense(4)
COLUMNS = keras.layers.Reshape((3, 1))
CLIPPED = optimizers.RowwiseSGD(clipnorm=1.0)
ERRORS = [
    # Heads
    (
        lambda: layers.CosineHead.from_dense(dense()),
        "as a dot product: .*: CosineInteraction",
    ),
    *several(
        "a built Dense without activ",
        layers.DotProductHead.from_dense,
        keras.layers.Dense(3),
        dense(activation="relu"),
        3,
    ),
    (
        lambda: layers.DotProductHead(3, kernel_regularizer="l2"),
        r"`ClassTable\(regularizer=...\)`",
    ),
    (
        lambda: layers.CosineHead(layers.ClassTable(5, width=3))(ONES),
        "width 3, encodings of width",
    ),
    (layers.DotProductHead, "`num_classes` must be a positive integer", None),
    (lambda: layers.ConcatHead(5, units=()), "`units` must hold at least one width"),
    (
        lambda: layers.get_head("latent_cross", classes=5, units=64),
        "one width. .*: units=64",
    ),
    (
        lambda: layers.LatentCrossHead(5, units=(8, 0)),
        "`units` must be a positive integer. .*=0",
    ),
    (
        lambda: layers.LatentCrossHead(5, dropout=1),
        r"`dropout` must be a number in \[0, 1\)",
    ),
    # Classes
    (encoded, "`features` must have a row for each class", (ARRAY, ARRAY[:3]), DENSE),
    (
        lambda: encoded(ARRAY, COLUMNS).build((None, 4)),
        "`encoder` must map features of m classes",
    ),
    (
        lambda: encoded([[1]], DENSE).add([[0.5]]),
        "`features` must .* like the others, int32",
    ),
    (lambda: table().add([[1.0, 2.0]]), r"`rows` must have the shape \[m, 4\]"),
    (
        lambda: table().add(ONES, biases=[1.0] * 2),
        "`biases` must .*, and be None without `use_bi",
    ),
    (
        lambda: with_biases().add(ONES[:1], biases=FLOATS),
        r"`biases` must have the shape \[1\]",
    ),
    (layers.ClassTable.from_rows, "`rows` must have the shape", FLOATS),
    (lambda: table().to_table(0), "`block_size` must be a positive integer"),
    (
        lambda: sampled(lambda x: x.export_embeddings("x"), with_biases()),
        "must have no biases",
    ),
    # Shards
    (
        lambda: layers.ShardedClassTable(10, 2, keras.optimizers.SGD()),
        "optimizers.*: .*SGD",
    ),
    (layers.ShardedClassTable, "must have no `clipnorm`.*=1.0", 10, 2, CLIPPED),
    (
        lambda: table(layers.ShardedClassTable).assign(ONES),
        r"have the shape \(5, 4\).*\(2, 4\)",
    ),
    # Sampled scores
    (lambda: sampled(lambda x: x(ONES, class_ids=[1, -2])), r"class ids in \[0, 30\)"),
    (
        lambda: sampled(lambda x: x(ONES, class_ids=[1, 2], num_mined=6)),
        "=6, num_sampled=5",
    ),
    *several(
        "`num_mined` must be a positive integer",
        lambda wrong: sampled(lambda x: x(ONES, class_ids=[1, 2], num_mined=wrong)),
        0,
        -1,
        2.5,
    ),
    (
        lambda: sampled(lambda x: x.top_k(ONES, 31)),
        r"`k` must be in \[1, 30\]. Received: k=31",
    ),
    (
        lambda: layers.SampledScores(30, seed=2**32),
        r"`seed` must be an integer in \[0, 2\*\*32\)",
    ),
    (
        lambda: layers.SampledScores(9).top_k(ONES, 3),
        "`sampled_scores.*` must be built",
    ),
    (
        lambda: layers.SampledScores(9).ranks(ONES, [1, 2]),
        "`sampled_scores.*` must be built",
    ),
    # Parts of retrieval training
    (COUNTS, "`counts` must be integers >= 0", []),
    (
        lambda: COUNTS([1, 2])(np.array([[-1, 0], [1, 2]])),
        "`ids` must be below `num_.*2",
    ),
    *(
        (
            lambda wrong=wrong: COUNTS([1, wrong, -7]),
            f"`counts` must be .*: {wrong} among",
        )
        for wrong in (-1, 0.6, np.nan, np.inf)
    ),
    (COUNTS, "`counts` must be integers .* bool", np.ones([2], bool)),
    (lambda: layers.CandidateFrequencies(9)(MASK), "ids` must hold integers"),
    (lambda: layers.CrossBatchMemory(3)(ONES, FLOATS), "ids` must hold integers"),
    (hits, "ids` must hold integers", MASK, ONES[:1, :2]),
    (
        lambda: layers.CrossBatchMemory(4)(ONES, FIRST),
        "`ids` must have the shape .batch. of `enco",
    ),
    (
        lambda: layers.CrossBatchMemory(4)(ONES, IDS),
        "`ids` must have the shape .batch. of",
    ),
    *several(
        "`candidate_ids` must have the shape",
        lambda shape: hits(tf.ones(shape, tf.int32)),
        [1],
        [4],
        [2, 3],
        [],
        [1, 3, 1],
    ),
    *several(
        "`expected_counts` must have the shape",
        lambda shape: corrected(tf.ones(shape)),
        [1],
        [4],
        [2, 3],
        [],
    ),
    *(
        (call, "must hold the columns of the positives")
        for call in parts(NINE, BOTH).values()
    ),
    *(
        (call, r"`scores` must have the shape \[b")
        for call in parts(NINE[0], FIRST).values()
    ),
    # Layers of serving, and others
    (layers.Probabilities, "`temperature` must be a finite number > 0", 0),
    (lambda: layers.Probabilities(regularizer="l1"), "`regularizer` must be one of"),
    (layers.PredictionSets, r"`threshold` must be a number in \[0, 1\]", 1.5),
    (layers.PredictionSets, "`method` must be one of", 0.5, "raps"),
    (layers.PredictionSets, "`probabilities` must be a layer or None", 0.5, "lac", 2.0),
    (lambda: layers.TopClasses(4)(SCORES), r"`k` must be in \[1, 3\]. Received: k=4"),
    (
        lambda: layers.TopClasses(1, ["a"])(SCORES),
        "each of the 3 classes. Received: 1 names",
    ),
    *several(
        "`class_names` must be a list of names",
        lambda names: layers.TopClasses(1, names),
        "cat",
        b"cat",
        {"cat": 0},
        5,
    ),
    (lambda: layers.SparseDense(3).build((None, None)), "features known"),
    (lambda: layers.ExcludeItems()([ONES, MASK[:, tf.newaxis]]), "`exclude` must hold"),
    (
        lambda: layers.ExcludeItems()([ONES, tf.ones([2, 5], tf.bool)]),
        "`exclude` must hold",
    ),
    (layers.Companion, "`layer` must be a Keras layer", 3),
    (lambda: layers.Companion(DENSE)(ONES), "`layer` must be built"),
    *several(
        r"`inputs` must have a known number of rows, one for each candidate\. "
        "Received: shape",
        layers.UniformNegatives(3),
        tf.constant(1.0),
        keras.Input((2,)),
    ),
    (
        lambda: layers.BilinearHead(5).over_classes(ONES),
        "must be the dot product or the cosine",
    ),
    (
        lambda: layers.ConvolutionalSorter(6)(ONES),
        "`length` = 6 items; pad shorter ones and mask",
    ),
]


@each_call(ERRORS)
def test_errors(call, message):
    with refused(message):
        call()


def test_folders_that_lack_a_shard(tmp_path):
    with refused("must have files of rows"):
        shards_in(tmp_path)
    with refused("must have the rows from 0 on"):
        shards_in(tmp_path, "rows-5-10.npy")


@pytest.mark.parametrize("part", ["hits", "log-Q", "mining"])
def test_a_column_that_does_not_exist(part, normal, as_for_xla):
    scores = normal(4, 9)
    bad = np.array([3, 9, 0, 8])
    with refused(r"`labels` must hold class ids in \[0, 9\)"):
        parts(scores, bad)[part]()
    result = tf.function(lambda x, y: parts(x, y)[part]())(scores, bad).numpy()
    assert np.isnan(result[1]).any() and np.isfinite(result[[0, 2, 3]]).all()


@pytest.mark.parametrize("part", ["hits", "log-Q", "mining"])
@pytest.mark.parametrize("labels", [np.eye(9, dtype="f")[1:3], np.array([[1, 1]])])
def test_one_hot_labels_are_not_read_as_columns(part, labels, as_for_xla):
    scores = np.zeros([len(labels), 9], "float32")
    with refused("columns of the positives, each once, not one-hot"):
        parts(scores, labels)[part]()
    if labels.dtype.kind == "i":  # XLA cannot raise.
        result = tf.function(lambda x, y: parts(x, y)[part]())(scores, labels)
        assert np.isnan(result).any(axis=1).all()


@pytest.mark.parametrize("wrong", [30, -2, 2**32])
def test_excluded_ids_are_checked(wrong, as_for_xla):
    exclude = np.array([[wrong]] * 2)
    for call in (
        lambda x: x.top_k(ONES, 2, exclude),
        lambda x: x.ranks(ONES, [1, 2], exclude),
    ):
        with refused(r"`exclude` must hold class ids in \[0, 30\)"):
            sampled(call)
    call = tf.function(lambda layer, x: layer.top_k(ONES, 2, exclude=x)[0])
    assert np.isnan(sampled(lambda layer: call(layer, tf.constant(exclude)))).all()


def test_classes_stay_where_others_cannot_be_added():
    made = layers.ClassTable.from_rows(tf.ones([2, 2]), tf.ones([2]))
    for wrong in ({"rows": [["a", "b"]]}, {"rows": [[1.0, 2.0]], "biases": ["a"]}):
        with refused("must be numbers. Received"):
            made.add(**wrong)
    assert_array_equal(made.rows(), np.ones([2, 2]))
    assert_array_equal(made.biases(), np.ones(2))


def embedding(layer=keras.layers.Embedding, **options):
    made = layer(5, 4, **options)
    made.build((None,))
    return made


TIED = {
    "dense": dense,
    "embedding": embedding,
    "reversible": lambda: embedding(keras.layers.ReversibleEmbedding),
    "not tied": lambda: embedding(keras.layers.ReversibleEmbedding, tie_weights=False),
}


QUANTIZED = "`layer` must not be quantized"


@pytest.mark.often("int8")
@pytest.mark.parametrize("mode", ["int8", "int4"])
@pytest.mark.parametrize("kind", TIED)
def test_classes_of_a_layer_that_is_quantized_later(kind, mode):
    """The weights of such a layer are codes up to 127, not rows of classes."""
    layer = TIED[kind]()
    head = layers.DotProductHead(layer)
    words = layers.ClassEmbedding(layer)
    calls = [
        lambda: head(ONES),
        lambda: head.over_classes(ONES),
        lambda: words(FIRST),
        lambda: head.classes.rows([1, 2]),
        lambda: head.classes.biases(),
        lambda: head.classes.to_table(),
    ]
    for call in calls:
        call()
    layer.quantize(mode)
    for call in (*calls, lambda: layers.TiedClasses(layer)):
        with refused(f"{QUANTIZED}.*Received: '{mode}'"):
            call()
    if kind == "dense":
        with refused(QUANTIZED):
            layers.ClassTable.from_dense(layer)


@pytest.mark.slow
def test_a_quantized_model_has_no_codes_as_classes(tmp_path, normal):
    """`model.quantize` reaches the tied layer, unless `filters` leave it out."""
    x = normal(6, 4)
    y = np.array([0, 1] * 3)

    def made():
        keras.utils.set_random_seed(0)
        encoder = keras.Sequential(
            [keras.Input((4,)), keras.layers.Dense(4, name="encoder")]
        )
        model = models.ExtremeClassifier(
            encoder, embedding(name="words"), 4, 2, normalize=False
        )
        model.compile(optimizers.RowwiseSGD(), losses.SoftmaxLoss())
        return model

    model = made()
    calls = [
        lambda: model.top_k(x, 2),
        lambda: model.fit(x, y, verbose=0),
        lambda: model.evaluate(x, y, verbose=0),
        lambda: model.export_classes(tmp_path / "rows.npy"),
        lambda: model.export_top_k(tmp_path / "top", tf.TensorSpec([None, 4])),
    ]
    for call in calls:
        call()
    model.quantize("int8", filters=lambda layer: layer.name in ("encoder", "words"))
    for call in calls:
        with refused(QUANTIZED):
            call()

    model = made()
    before = np.array(model.encoder(x))
    model.quantize("int8", filters="encoder")
    encodings = np.array(model.encoder(x))
    assert 0 < np.abs(encodings - before).max() < 0.1
    scores = encodings @ np.array(model.classes.layer.embeddings).T
    expected = np.sort(scores, axis=1)[:, :-3:-1]
    assert_allclose(model.top_k(x, 2)[0], expected, rtol=1e-5)
