"""What losses, metrics, optimizers and `ops` say of arguments out of range.

`test_completeness.py` gives every argument values of wrong types.
"""

import numpy as np
import pytest
import tensorflow as tf

from rank4class_tf import losses, metrics, ops, optimizers

from ..refused import refused

NAN = float("nan")
ARRAY = [1.0, 1.0]
NOT_POSITIVE = [-1, NAN, float("inf"), "1", True]
SOFTMAX = losses.SoftmaxLoss()
NDCG = losses.ApproxNDCGLoss(reduction="sum")
MRR = metrics.MRR()
NO_MEANS = [
    "mrr",
    metrics.MedianRank(),
    metrics.ExpectedCalibrationError(),
    metrics.MacroAverage(MRR, 3),
    tf.keras.metrics.Mean(),
]
COUNT, LIST = "must be a positive integer", "must be a list"
POSITIVE, NONNEGATIVE = "must be a finite number > 0", "must be a finite number >= 0"
NUMBERS = "must hold finite numbers >= 0"
KIND, OF_CLASSES = "must be one of", "must hold class ids"
HALVES = {"probabilities": [[0.5, 0.5]]}
THREE = {"num_classes": 3}
RANKS = {"ranks": [[1.0]], "relevance": [[1.0]]}

# What is made, an argument, values out of its range, the rule; and other arguments.
WRONG = [
    (
        losses.SoftmaxLoss,
        "class_prior",
        [[0.5, 0.6], [1.0, 0], [ARRAY], [NAN, 1.0], "no"],
        "must",
    ),
    (losses.SoftmaxLoss, "prior_strength", [-0.5, NAN], "must be a finite number >= 0"),
    (
        losses.SoftmaxLoss,
        "prior_strength",
        [0.5],
        "must be 1 where `class_prior` is None",
    ),
    (losses.SoftmaxLoss, "positive_reduction", ["max"], KIND),
    (losses.SoftmaxLoss, "class_weight", [{0: -1.0}, {-1: 1.0}, {0.5: 1.0}], "must be"),
    (
        losses.SoftmaxLoss,
        "class_weight",
        [[1.0, NAN], {"cat": 2.0}, 2.0, "12"],
        "must be",
    ),
    (
        losses.SoftmaxLoss,
        "label_smoothing",
        [-0.1, 1.0, "much"],
        r"must be .* \[0, 1\)",
    ),
    (
        losses.SoftmaxLoss,
        "temperature",
        [tf.Variable(ARRAY)],
        "must be a scalar where it is a v",
    ),
    (losses.RankmaxLoss, "positive_reduction", ["max"], KIND),
    (losses.FenchelYoungLoss, "regularizer", ["l1"], KIND),
    (losses.FenchelYoungLoss, "alpha", [0], POSITIVE),
    (
        losses.FenchelYoungLoss,
        "alpha",
        ["adaptive"],
        "must be a number unless",
        {"k": 2},
    ),
    (
        losses.FenchelYoungLoss,
        "alpha",
        ["adaptive"],
        "must",
        {"regularizer": "entropy"},
    ),
    (
        losses.GeneralizedCrossEntropyLoss,
        "q",
        [0.0, 1.5, NAN, "1"],
        r"must be a .* in \(0, 1\]",
    ),
    (losses.GumbelApproxNDCGLoss, "num_samples", [0], COUNT),
    (losses.GumbelApproxNDCGLoss, "seed", [-1], "must be an integer in "),
    (losses.GumbelApproxNDCGLoss, "gumbel_temperature", [0], POSITIVE),
    (losses.OrderedWeightedLoss, "kind", ["listwise"], KIND),
    (losses.OrderedWeightedLoss, "phi", ["cosine"], KIND),
    (losses.OrderedWeightedLoss, "rank_weights", [3, [], "top", [[1.0]]], LIST),
    (losses.OrderedWeightedLoss, "rank_weights", [[1.0, -1.0]], NUMBERS),
    (losses.OrderedWeightedLoss.top_k_svm, "k", [0], COUNT),
    (losses.StochasticNegativeMiningLoss, "num_sampled", [0], COUNT),
    (
        losses.StochasticNegativeMiningLoss,
        "rank_weights",
        [ops.TopKWeights(4), [1.0] * 4],
        "must have at most num_sampled=3 leading weights",
        {"num_sampled": 3},
    ),
    (losses.WARPLoss, "margin", [0], POSITIVE),
    (losses.WARPLoss, "num_trials", [0], COUNT),
    (losses.NDCGLambdaWeights, "top_k", [0], COUNT),
    (
        losses.NDCGLambdaWeights,
        "smooth_fraction",
        [1.5],
        r"must be a number in \[0, 1\]",
    ),
    (losses.PairwiseHingeLoss, "lambda_weights", ["ndcg"], "must be None or"),
    (
        losses.PairwiseHingeLoss,
        "label_smoothing",
        [-0.1, 0.5, "much"],
        r"must be .* \[0, 0.5\)",
    ),
    (losses.SpearmanLoss, "sorter", [3], "must be None or a sorter"),
    (losses.SpearmanLoss, "axis", ["rows"], KIND),
    (losses.SpearmanLoss, "alignment", [-1], NONNEGATIVE),
    (losses.RankTripletLoss, "margin", [0], POSITIVE),
    (losses.WeightedSumLoss, "weights", [[]], "must .*at least one", {"losses": []}),
    (
        losses.WeightedSumLoss,
        "weights",
        [ARRAY],
        "must .* 1 losses and 2",
        {"losses": [SOFTMAX]},
    ),
    (losses.WeightedSumLoss, "weights", [[-1.0]], NONNEGATIVE, {"losses": [SOFTMAX]}),
    (
        losses.WeightedSumLoss,
        "losses",
        [[SOFTMAX, NDCG]],
        "must share one",
        {"weights": ARRAY},
    ),
    *(
        (losses.ForwardCorrectionLoss, "transition", [matrix], f"must .*{rule}")
        for matrix, rule in (
            ([[1.0, 0.0]], r"a square matrix\. Received: the shape \(1, 2\)"),
            ([[1.0, 0.0], [1.5, -0.5]], r"finite entries >= 0\. Received: -0\.5"),
            ([[1.0, 0.0], [NAN, 1.0]], r"finite entries >= 0\. Received: nan"),
            ([[1.0, 0.0], [0.5, 0.4]], r"rows that add up to 1\. Received: 0\.9"),
            ([[1.0, 0.0], [1.0, 0.0]], r"each column\. Received: a column of zeros, 1"),
            ("no", r"a matrix of numbers\. Received: 'no'"),
        )
    ),
    (
        losses.estimate_transition,
        "probabilities",
        [[0.5, 0.5]],
        "must",
        {"labels": [0]},
    ),
    (
        losses.estimate_transition,
        "probabilities",
        [np.zeros((0, 2))],
        "must",
        {"labels": []},
    ),
    (losses.estimate_transition, "labels", [[2], [-1], [0.0], [0, 1]], "must", HALVES),
    (losses.class_prior, "labels", [[0, 3], [-2], [0.5], [True]], OF_CLASSES, THREE),
    (
        losses.class_prior,
        "labels",
        [np.eye(4), np.eye(4, dtype=int)],
        OF_CLASSES,
        THREE,
    ),
    (losses.class_prior, "counts", [[], [1, -1], None], "must be"),
    (losses.class_prior, "counts", [[1]], "must be", {"labels": [0]}),
    (ops.soft_recall, "k", [-0.5, *NOT_POSITIVE], "must be", RANKS),
    (ops.soft_recall, "temperature", NOT_POSITIVE, "must be", RANKS | {"k": 1}),
    (ops.Ramp, "width", [0.0], POSITIVE),
    (ops.Scaled, "scale", [0.0], POSITIVE, {"phi": "hinge"}),
    (
        ops.Scaled,
        "phi",
        ["cosine"],
        "must be one of .*Received: phi='cosine'",
        {"scale": 1.0},
    ),
    (ops.TopKWeights, "k", [0], r"must be a positive integer. Received: k=0\."),
    (ops.TopKWeights, "tail", [-1.0], NUMBERS, {"k": 2}),
    (ops.PowerLawWeights, "exponent", [0.0], POSITIVE),
    (ops.StaircaseWeights, "steps", [[(3, 1.0), (2, 0.5)], []], "must hold"),
    (ops.StaircaseWeights, "steps", [[(3, NAN)]], NUMBERS),
    (metrics.NDCG, "k", [0, -1, 2.5, True, "5", [], [1, 1], [1, 0]], "must"),
    (metrics.PrecisionAtK, "k", [0, -1, 2.5, True, "5", [], [1, 1], [1, 0]], "must"),
    (metrics.TopKAccuracy, "k", [None], COUNT),
    (metrics.DCG, "discount", ["cubic", 3], KIND),
    (metrics.NDCG, "gain", ["cubic", 3], KIND),
    (metrics.RecallAtK, "average", ["weighted"], "must be", {"k": 3}),
    (metrics.ExpectedCalibrationError, "num_bins", [0], COUNT),
    (metrics.MeanAveragePrecision, "max_examples", [0], COUNT, {"num_classes": 4}),
    (
        metrics.MacroAverage,
        "metric",
        NO_MEANS,
        "must be a mean over lists",
        {"num_groups": 3},
    ),
    (metrics.MacroAverage, "num_groups", [0], COUNT, {"metric": MRR}),
    (metrics.propensities, "a", [0], POSITIVE, THREE | {"labels": [0, 1, 2]}),
    (metrics.propensities, "b", [0], POSITIVE, THREE | {"labels": [0, 1, 2]}),
    (
        metrics.propensities,
        "labels",
        [[0, 1]],
        "at least 3 examples. Received: 2",
        THREE,
    ),
    (metrics.propensities, "labels", [[0, 1, 3]], OF_CLASSES, THREE),
    (metrics.PropensityScoredNDCG, "k", [0], COUNT, {"propensities": [1.0]}),
    (
        metrics.PropensityScoredNDCG,
        "propensities",
        [[0.5, 0]],
        "must hold a number",
        {"k": 1},
    ),
    *(
        (make, "row_multiplier", [0, *NOT_POSITIVE], POSITIVE)
        for make in (
            optimizers.RowwiseSGD,
            optimizers.RowwiseAdagrad,
            optimizers.RowwiseAdam,
        )
    ),
    (optimizers.RowwiseAdam, "amsgrad", [True], "must be False"),
]
ROWS = [(*row[:4], row[4] if len(row) > 4 else {}) for row in WRONG]


@pytest.mark.parametrize("make, name, values, rule, others", ROWS)
def test_arguments_out_of_range(make, name, values, rule, others):
    for value in values:
        with refused(f"`{name}`.* {rule}"):
            make(**others, **{name: value})


OF_THREE_SCORES = [
    (
        losses.RankmaxLoss(4),
        "`k` must be at most the number of items, 3. Received: k=4",
    ),
    (
        losses.FenchelYoungLoss(k=4),
        "`k` must be at most the number of items, 3. Received: k=4",
    ),
    (
        losses.SoftmaxLoss(class_prior=[0.5, 0.5]),
        "`class_prior` must have a number.* 2 for 3",
    ),
    (
        losses.ForwardCorrectionLoss(np.eye(2)),
        "`transition` must .* 2 rows for 3 classes",
    ),
    (losses.RankTripletLoss(), "similarities"),
    (losses.SpearmanLoss(), "the shape of `y_pred`"),
    (
        metrics.PropensityScoredNDCG(1, [0.5, 1]).update_state,
        "`propensities` must .* 2 of them",
    ),
]


@pytest.mark.parametrize("use, message", OF_THREE_SCORES)
def test_arguments_that_the_scores_do_not_fit(use, message):
    with refused(message):
        use([0], [[0.0, 1.0, 2.0]])
