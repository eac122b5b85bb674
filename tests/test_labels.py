"""Labels of any dtype."""

import numpy as np
import pytest
import tensorflow as tf

import rank4class_tf as r4c

DTYPES: list[type] = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64]
DTYPES += [np.uint64, np.float16, np.float32, np.float64]


@pytest.fixture
def scores(rng):
    # More classes than the smallest dtypes count to.
    return rng.normal(size=(4, 1000)).astype(np.float32)


@pytest.mark.parametrize(
    ("dtype", "run_eagerly"),
    [*((dtype, True) for dtype in DTYPES), (np.int8, False), (np.uint64, False)],
)
@pytest.mark.parametrize("make", [r4c.losses.SoftmaxLoss, r4c.metrics.MRR])
def test_class_ids_and_relevance(make, dtype, run_eagerly, scores):
    ids = np.array([1, 0, 127, 100])
    ragged = tf.ragged.constant(ids[:, np.newaxis].tolist())
    for labels, forms in (
        (ids, (ids.astype(dtype), tf.cast(ragged, dtype))),
        (np.eye(4, 1000), (np.eye(4, 1000).astype(dtype),)),
    ):
        expected = make()(labels, scores)
        for y_true in forms:
            compute = make()
            value = compute if run_eagerly else tf.function(compute)
            np.testing.assert_array_equal(value(y_true, scores), expected)


@pytest.mark.parametrize("width", [3, 200, None])
def test_ids_count_once(width, scores, rng):
    ids = rng.integers(-1, 60, size=(4, width or 200))
    relevance = np.zeros(scores.shape)
    for list_, of_list in zip(relevance, ids, strict=True):
        list_[of_list[of_list >= 0]] = 1
    spec = tf.TensorSpec([None, width], tf.int64)
    loss = r4c.losses.SoftmaxLoss(label_format="ids", reduction="none")
    compute = tf.function(lambda y_true: loss(y_true, scores), input_signature=[spec])
    expected = r4c.losses.SoftmaxLoss(reduction="none")(relevance, scores)
    np.testing.assert_allclose(compute(ids), expected, rtol=1e-5)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if np.issubdtype(d, np.integer)])
def test_items_to_leave_out(dtype, scores):
    labels, exclude = np.array([1, 0, 5, 7]), np.array([[3, 4], [100, 3], [126, 127], [9, 8]])
    metric, expected = r4c.metrics.MRR(), r4c.metrics.MRR()
    expected.update_state(labels, scores, exclude=exclude)
    metric.update_state(labels, scores, exclude=exclude.astype(dtype))
    assert metric.result() == expected.result()


@pytest.mark.parametrize("exclude", [[[1]], [[True], [False], [False]], [[True] * 4] * 3])
def test_items_to_leave_out_of_other_lists_raise(exclude):
    scores = np.array([[1.0, 3.0, 2.0]] * 3, np.float32)
    with pytest.raises(ValueError, match=r"`exclude` must hold.*for scores of shape \(3, 3\)"):
        r4c.metrics.MRR().update_state([0, 1, 2], scores, exclude=exclude)
    with pytest.raises(ValueError, match="`exclude` must hold"):
        r4c.layers.ExcludeItems()([scores, np.array(exclude)])


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32, np.int16])
def test_ids_of_no_class_raise(dtype, scores):
    for bad in (1000, np.iinfo(dtype).max):
        with pytest.raises(ValueError, match=r"class ids in \[0, 1000\)"):
            r4c.losses.SoftmaxLoss()(np.array([1, bad, 0, 0], dtype), scores)


@pytest.mark.parametrize("make", [r4c.losses.SoftmaxLoss, r4c.metrics.MRR])
def test_weights_of_another_shape_raise(make, scores):
    labels = np.arange(4)
    for shape, message in [
        ((3,), "a weight for each example.*.3,. and .4, "),
        ((4, 7), "the shape of `y_pred`"),
    ]:
        with pytest.raises(ValueError, match=f"`sample_weight` .*{message}"):
            make()(labels, scores, sample_weight=np.ones(shape))


@pytest.mark.parametrize("make", [r4c.losses.SoftmaxLoss, r4c.metrics.MRR])
def test_other_tensors_raise(make):
    scores, labels = tf.constant([[1.0, 2.0]]), tf.constant([[0, 1]])
    with pytest.raises(ValueError, match="`y_pred` must be dense or ragged. Received: a SparseT"):
        make()(labels, tf.sparse.from_dense(scores))
    with pytest.raises(ValueError, match="`y_true` must be dense. Received: a SparseTensor"):
        make()(tf.sparse.from_dense(labels), scores)
    for dtype in (tf.string, tf.complex64):
        bad = tf.as_string(scores) if dtype == tf.string else tf.cast(scores, dtype)
        with pytest.raises(ValueError, match=f"`y_pred` must be numbers. Received: {dtype.name}"):
            make()(labels, bad)
        with pytest.raises(ValueError, match=f"`sample_weight` must be .* {dtype.name}"):
            make()(labels, scores, bad[:, 0])


@pytest.mark.parametrize("complex_first", [True, False])
@pytest.mark.parametrize(
    "make",
    [
        r4c.losses.SpearmanLoss,
        r4c.losses.MeanAveragePrecisionLoss,
        r4c.losses.RankTripletLoss,
        lambda: r4c.metrics.MeanAveragePrecision(2),
        lambda: r4c.metrics.SpearmanCorrelation(2),
    ],
)
def test_complex_numbers_of_datasets_raise(make, complex_first):
    pair = [np.array([[1, 0], [0, 1]], dtype) for dtype in (np.complex64, np.float32)]
    name = "y_true" if complex_first else "y_pred"
    with pytest.raises(ValueError, match=f"`{name}` must be numbers. Received: complex64"):
        made = make()
        getattr(made, "update_state", made)(*(pair if complex_first else pair[::-1]))


def test_labels_of_one_item_are_not_those_of_all_in_a_graph():
    """Where shapes are known only as it runs, they were spread over all items."""
    loss = r4c.losses.SoftmaxLoss(label_format="relevance", reduction="none")
    function = tf.function(loss, [tf.TensorSpec([None, None])] * 2)
    np.testing.assert_allclose(function([[1.0, 0.0]], [[0.0, 0.0]]), np.log([2.0]), rtol=1e-6)
    with pytest.raises(tf.errors.InvalidArgumentError, match="`y_true`"):
        function([[1.0]], [[0.0, 0.0]])


@pytest.mark.parametrize("wrong", [[np.nan, 1], [np.inf, 0], [-np.inf, 1], [3e38, 3e38]])
@pytest.mark.parametrize("in_graph", [False, True], ids=["eager", "graph"])
def test_relevance_is_finite_also_in_sum(wrong, in_graph):
    """The sum of a list tells; the error shows the label that is to blame."""
    rows = np.float32([[0, 1], wrong])
    loss = r4c.losses.SoftmaxLoss()
    compute = tf.function(loss) if in_graph else loss
    culprit = next(y for y in rows[1] if not abs(y) < 10)
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="also in sum") as raised:
        compute(rows, np.zeros([2, 2], np.float32))
    assert f"{culprit:.3g}"[:3] in str(raised.value).rpartition("Received")[2]


@pytest.mark.parametrize("make", [r4c.losses.SoftmaxLoss, r4c.metrics.MRR])
@pytest.mark.parametrize("label_format", ["ids", "relevance"])
def test_lists_of_no_items_raise(make, label_format):
    labels, scores = np.full([2, 0 if label_format == "relevance" else 1], -1.0), np.zeros([2, 0])
    rule = "`y_pred` must score at least one item"
    compute = make(label_format=label_format)
    with pytest.raises(ValueError, match=f"{rule}. Received: shape"):
        compute(labels, scores)
    compute = make(label_format=label_format)
    spec = tf.TensorSpec([None, None])
    graph = tf.function(lambda *args: compute(*args), input_signature=[spec, spec])
    with pytest.raises(tf.errors.InvalidArgumentError, match=rule):
        graph(tf.cast(labels, tf.float32), tf.cast(scores, tf.float32))


@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "xla"])
@pytest.mark.parametrize("form", ["ids", "relevance"])
@pytest.mark.parametrize("function", [r4c.losses.SoftmaxLoss, r4c.metrics.MRR])
def test_weights_whose_width_only_running_tells(function, form, jit_compile):
    labels = tf.eye(3, 4) if form == "relevance" else tf.range(3)[:, tf.newaxis]
    if function is r4c.metrics.MRR:
        per_list = function(label_format=form).per_list
        compute = lambda *batch: per_list(*batch)[1]  # noqa: E731
    else:
        compute = function(label_format=form, reduction="none")
    specs = [tf.TensorSpec([None, labels.shape[1]], labels.dtype), tf.TensorSpec([None, None])]
    step = tf.function(lambda *batch: compute(*batch), [*specs, specs[1]], jit_compile=jit_compile)
    scores, weights = tf.random.normal([3, 4]), tf.random.uniform([3, 4])
    for given in (weights, weights[:, :1]):
        expected = compute(labels, scores, given)
        np.testing.assert_allclose(step(labels, scores, given), expected, rtol=1e-6)
    # A width of two XLA would repeat to four.
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError)):
        step(labels, scores, weights[:, :2])


@pytest.mark.parametrize("form", ["ids", "relevance"])
def test_weights_of_items_of_a_list_without_positives_are_their_mean(form, rng):
    scores, weights = rng.normal(size=(2, 4)), rng.uniform(size=(2, 4))
    labels = np.array([[0, 1, 0, 0], [0, 0, -1, 0]])
    expected = [weights[0, 1], weights[1, [0, 1, 3]].mean()]
    exclude = None
    if form == "ids":
        labels, exclude = np.array([1, -1]), np.array([[-1], [2]])
    metric = r4c.metrics.NDCG(2, count_empty=True)
    values, found = metric.per_list(labels, scores, weights, exclude)
    np.testing.assert_allclose(found, expected)
    metric.update_state(labels, scores, weights, exclude)
    mean = np.average(values[:, 0], weights=expected)
    np.testing.assert_allclose(metric.result(), mean, rtol=1e-6)
    weights[1] = np.nan  # Of a list that does not count.
    metric = r4c.metrics.NDCG(2)
    metric.update_state(labels, scores, weights, exclude)
    np.testing.assert_allclose(metric.result(), values[0, 0], rtol=1e-6)


def test_integer_weights_keep_their_digits():
    weights = np.array([2**24 + 1, 1])
    _, found = r4c.metrics.MRR().per_list([0, 1], np.eye(2), weights)
    np.testing.assert_array_equal(found, weights)


@pytest.mark.parametrize("make", [r4c.losses.RankmaxLoss, lambda: r4c.metrics.NDCG().update_state])
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.eye(4, dtype=np.float32)[:2], "labels of 4 items and scores of 6"),
        (np.eye(4)[:2] > 0, "labels of 4 items and scores of 6"),
        (np.eye(4, dtype=int)[:2], "a list of 4 zeros and ones .* `y_pred` scores 6 items"),
        (np.array([["a", "b"]] * 2), "must be numbers"),
        (np.array(["a", "b"]), "must be numbers"),
        (tf.ragged.constant([[True], []]), "`y_true` must hold integers where it is ragged"),
    ],
)
def test_labels_that_are_none(make, labels, message):
    with pytest.raises(ValueError, match=message):
        make()(labels, np.zeros((2, 6), np.float32))


def test_floating_ids_need_a_format(scores):
    ids = np.array([[3.0, 4.0], [5.0, -1.0], [6.0, 7.0], [8.0, -1.0]])
    value = r4c.losses.SoftmaxLoss(label_format="ids")(ids, scores)
    np.testing.assert_array_equal(value, r4c.losses.SoftmaxLoss()(ids.astype(int), scores))
