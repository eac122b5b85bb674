"""Probabilities and prediction sets for a trained model, from validation examples."""

import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple, Self

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _keras
from rank4class_tf._batches import (
    Dataset,
    Scorer,
    batches,
    check_gives_scores,
    compiled_scores,
    one_output,
    scores_of,
)
from rank4class_tf._lists.batch import Batch
from rank4class_tf._lists.dense import dense_lists, fill_masked
from rank4class_tf._lists.labels import Labels, checked_ignore_class
from rank4class_tf._types import Tensor, TensorPair
from rank4class_tf.evaluation import Evaluator
from rank4class_tf.layers import PredictionSets, Probabilities
from rank4class_tf.ops.projections import entropy_projection

# We lower a threshold by this relative margin, about 100 units in float32's last place.
_ROUNDING_MARGIN = 1e-5


def calibrate(
    model: Scorer,
    dataset: Dataset,
    label_format: str | None = None,
    batch_size: int = 256,
    ignore_class: int | None = None,
) -> Probabilities:
    r"""Returns a softmax layer whose temperature fits a model's scores, for any loss.

    $$T = \arg\min_T -\sum_i w_i \log \mathrm{softmax}(s_i / T)_{y_i}$$

    The layer goes to the end of a model, or into `layers.TopClasses` or `conformalize`.
    The problem is convex in 1 / T, so the result is exact. Several positives share an
    example equally. The order of the classes stays the same, and so do all ranking
    metrics.

    If there is no best temperature, it warns and takes an end of scikit-learn's range:
    `e**-10` if all positives have the highest scores, so that a lower one always fits
    better, and `e**10` if the scores say nothing about the labels. It also warns if the
    `model.loss.probabilities` of a compiled model have a lower Brier score: use these.

    Source: Guo et al. 2017, "On Calibration of Modern Neural Networks", section 4.2.

    Args:
        model: a Keras model, or a function of TensorFlow operations, that maps features
            to scores `[batch, n]`; None if `dataset` has the scores.
        dataset: examples that the model was not trained on: batches
            `(features, labels)` or `(features, labels, sample_weight)`, or one such
            tuple of all examples.
        label_format: as in the losses.
        batch_size: examples per batch if `dataset` is a tuple of all examples, >= 1.
        ignore_class: as in the losses.

    Example:
        >>> scores, class_ids = tf.constant([[4.0, 0.0]] * 4), [0, 0, 0, 1]
        >>> probabilities = calibrate(None, (scores, class_ids))
        >>> probabilities(scores[:1]).numpy().round(4)  # right three times of four
        array([[0.75, 0.25]], dtype=float32)
    """
    batches_of_scores = _labelled_scores(
        model,
        dataset,
        label_format=label_format,
        batch_size=batch_size,
        ignore_class=ignore_class,
        logits=True,
    )
    examples = _Examples.of(batches_of_scores)
    scores, relevance, weights = examples
    counts = (weights[:, tf.newaxis] > 0) & (relevance > 0)
    rule = "`dataset` must have an example with a label and a weight."
    _checks.require(bool(tf.reduce_any(counts)), rule, "none")
    is_excluded = tf.reduce_any(counts & (scores == -math.inf), axis=-1)
    number = np.count_nonzero(is_excluded)
    rule = (
        "`model` must give right classes scores above -inf, which no temperature fits."
    )
    _checks.require(number == 0, rule, f"-inf in {number} of {len(weights)} examples")

    temperature = float(_best_temperature(scores, relevance, weights))
    is_number = not math.isnan(temperature)
    _checks.require(is_number, "`dataset` must have scores that are numbers.", "NaN")
    if temperature in _ENDS:
        temperature, reason = _ENDS[temperature]
        message = (
            f"No temperature is the best for these {len(weights)} examples: {reason}. "
            f"The layer has the temperature {temperature:.2g}, the end of the range."
        )
        warnings.warn(message, stacklevel=2)
    fitted_layer = Probabilities(temperature)

    of_loss = getattr(getattr(model, "loss", None), "probabilities", None)
    if of_loss is not None:
        fitted_score = examples.brier_score(fitted_layer)
        loss_score = examples.brier_score(of_loss)
        if loss_score < fitted_score:
            message = (
                "The loss's own probabilities are better than the fitted softmax. Use "
                f"`model.loss.probabilities`. Brier scores: {loss_score:.4f} and "
                f"{fitted_score:.4f}."
            )
            warnings.warn(message, stacklevel=2)
    return fitted_layer


class _Examples(NamedTuple):
    """Scores `[N, n]`, relevance `[N, n]` and weights `[N]`, float64."""

    scores: Tensor
    relevance: Tensor
    weights: Tensor

    @classmethod
    def of(cls, batches: Iterable[tuple[Labels, Tensor]]) -> Self:
        """Joins what `_labelled_scores` yields."""
        found = []
        for labels, weights in batches:
            lists = dense_lists(labels.scores, labels.class_ids, labels.relevance)
            found.append((labels.scores, lists.item_relevance(), weights))
        columns = zip(*found, strict=True)
        return cls(*[tf.cast(tf.concat(x, axis=0), tf.float64) for x in columns])

    def brier_score(self, layer: keras.layers.Layer) -> float:
        """The mean squared error of a layer's probabilities, summed over classes."""
        positives = tf.reduce_sum(self.relevance, axis=-1, keepdims=True)
        targets = tf.math.divide_no_nan(self.relevance, positives)
        weights = tf.where(positives[:, 0] > 0, self.weights, 0)
        errors = tf.cast(layer(self.scores), targets.dtype) - targets
        losses = tf.reduce_sum(tf.square(errors), axis=-1)
        total = tf.reduce_sum(weights * losses)
        return float(total / tf.reduce_sum(weights))


def conformalize(
    model: Scorer,
    dataset: Dataset,
    coverage: float = 0.95,
    method: str = "lac",
    probabilities: keras.layers.Layer | None = None,
    label_format: str | None = None,
    batch_size: int = 256,
    ignore_class: int | None = None,
) -> PredictionSets:
    """Returns a layer that predicts sets of classes with a guaranteed coverage.

    This is split conformal prediction. If the N examples of `dataset` and a new example
    are exchangeable, for instance drawn from one distribution, then the new example's
    set contains its right class with a probability of at least `coverage`, whatever the
    model. This holds on average over examples and datasets; for hard examples, or for
    one class, the probability may be lower. Fit neither the model nor `probabilities`
    to `dataset`. `layers.TopClasses` takes the layer too.

    Source: Vovk et al. 2005, "Algorithmic Learning in a Random World"; Angelopoulos &
    Bates 2021, "A Gentle Introduction to Conformal Prediction"; for the methods see
    `layers.PredictionSets`.

    Args:
        model: as for `calibrate`.
        dataset: batches `(features, labels)`, or one such tuple of all examples, with
            one positive each and no weights; at least c / (1 - c) examples for the
            coverage c.
        coverage: in (0, 1).
        method: `"lac"` for the smallest sets on average, `"aps"` for a coverage that
            depends less on how hard an example is.
        probabilities: a layer that maps scores to probabilities, such as that of
            `calibrate` on other examples; None means softmax. It changes the size of
            the sets, not the guarantee.
        label_format: as in the losses.
        batch_size: as for `calibrate`.
        ignore_class: as in the losses.

    Example:
        >>> scores = tf.math.log([[0.1, 0.9], [0.6, 0.4], [0.25, 0.75]])
        >>> sets = conformalize(None, (scores, [1, 1, 1]), coverage=0.75)
        >>> round(sets.threshold, 4)  # the ceil(4 * 0.75)-th highest
        0.4
        >>> sets(tf.math.log([[0.55, 0.45]])).numpy()
        array([[ True,  True]])
    """
    coverage = _checks.inner_fraction("coverage", coverage)
    sets = PredictionSets(0.0, method, probabilities)
    conformities = []
    examples = _labelled_scores(
        model,
        dataset,
        label_format=label_format,
        batch_size=batch_size,
        ignore_class=ignore_class,
        logits=isinstance(sets.probabilities, Probabilities),
    )
    for labels, weights in examples:
        num_positives = labels.num_positives.numpy()
        rule = "`dataset` must have one positive per example."
        _checks.require((num_positives == 1).all(), rule, num_positives)
        unweighted = bool(tf.reduce_all(weights == 1))
        rule = "`dataset` must have no weights."
        _checks.require(unweighted, rule, "weights other than 1")

        # Class ids are padded with -1, so that the right class is the highest.
        right_class = tf.reduce_max(labels.positives, axis=1, keepdims=True)
        conformity = sets.conformity(labels.scores)
        conformity = tf.gather(conformity, right_class, batch_dims=1)
        conformities.append(conformity[:, 0].numpy())

    values = np.concatenate(conformities)
    are_numbers = not np.isnan(values).any()
    _checks.require(are_numbers, "`model` must give scores that are numbers.", "NaN")
    threshold = _conformal_threshold(values, coverage)
    # The margin keeps a class at the threshold if XLA or another batch size rounds
    # differently.
    return PredictionSets(threshold * (1 - _ROUNDING_MARGIN), method, probabilities)


def adjust_logits(
    model: keras.Model,
    dataset: Dataset,
    class_prior: Sequence[float],
    metric: Any = "macro_top_k_accuracy_at_1",
    strengths: Sequence[float] = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5),
    batch_size: int = 256,
) -> keras.Model:
    r"""Returns a trained classifier that counts rare classes more, without retraining.

    $$s'_c = s_c - \tau \log \pi_c$$

    The strength $\tau$ is the one with the best `metric` on validation data, the lowest
    of several. After a softmax loss this comes to the same as
    `SoftmaxLoss(class_prior=, prior_strength=)`, and needs one training for all
    strengths. The layer `"class_prior"` at the end of the model holds the shifts;
    saving, `calibrate` and `export_top_k` keep it. A further call adds shifts of its
    own.

    Source: Menon et al. 2021, "Long-tail Learning via Logit Adjustment", section 4.1.

    Args:
        model: a Sequential or functional Keras model that maps features to scores
            `[batch, n]`.
        dataset: validation examples, as for `calibrate`.
        class_prior: $\pi$, a finite number > 0 for each class, such as
            `losses.class_prior(labels, n)`.
        metric: a metric that is a mean over lists, or its name. Its `higher_is_better`
            tells which value is the best. Give it the `ignore_class` of the loss.
        strengths: numbers >= 0 to choose $\tau$ from; 0 leaves the scores as they are.
        batch_size: examples per batch if `dataset` is a tuple of all examples, >= 1.

    Example:
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Rescaling(1.0)])
        >>> examples = [[2.0, 0.0], [2.0, 0.0], [1.0, 0.6]], [0, 0, 1]
        >>> adjusted = adjust_logits(model, examples, [0.7, 0.3])
        >>> adjusted.predict(np.array(examples[0]), verbose=0).argmax(axis=1).tolist()
        [0, 0, 1]
    """
    outputs = getattr(model, "outputs", None) or []
    rule = "`model` must be a Sequential or functional model of one output."
    _checks.require(len(outputs) == 1, rule, type(model).__name__)
    (output,) = outputs
    check_gives_scores(model)
    num_classes = output.shape[-1]
    prior = _checks.one_for_each_class(
        "class_prior",
        class_prior,
        lambda x: len(x) == num_classes and bool(((x > 0) & np.isfinite(x)).all()),
        f"a finite number > 0 for each of the {num_classes} classes",
    )
    batch_size = _checks.positive_int("batch_size", batch_size)
    strengths = sorted(_checks.non_negative_float("strengths", x) for x in strengths)
    _checks.require(bool(strengths), "`strengths` must have at least one.", strengths)
    if isinstance(dataset, Iterator):
        dataset = [*dataset]  # Each strength reads it.

    log_prior = np.log(np.asarray(prior, np.float32))
    best = _best_strength(model, dataset, log_prior, metric, strengths, batch_size)

    # An earlier call may have put a layer of this name at the end of the model.
    earlier = sum(layer.name.startswith("class_prior") for layer in model.layers)
    name = f"class_prior_{earlier}" if earlier else "class_prior"
    offset = (-best * log_prior).tolist()
    shift = keras.layers.Rescaling(1.0, offset, dtype="float32", name=name)
    # Keras 3 has no `input` of a Sequential that was never called.
    inputs = model.inputs if isinstance(model, keras.Sequential) else model.input
    return keras.Model(inputs, shift(output))


def _best_strength(
    model: keras.Model,
    dataset: Dataset,
    log_prior: np.ndarray,
    metric: Any,
    strengths: list[float],
    batch_size: int,
) -> float:
    """The strength whose shift has the best metric, the lowest of several."""
    # One graph measures all. A shift of float32 also takes scores of half precision.
    shift_now = tf.Variable(tf.zeros_like(log_prior), trainable=False)

    def shifted(features: Any) -> Tensor:
        scores = scores_of(model, features, logits=True)
        adjusted = tf.cast(scores, tf.float32) - shift_now
        return _keras.with_mask(adjusted, _keras.mask_of(scores))

    measure = Evaluator(shifted, [metric])
    rule = "`metric` must have one value, so one cutoff."
    _checks.require(len(measure.names) == 1, rule, ", ".join(measure.names))
    (name,) = measure.names

    def rank_of(strength: float) -> tuple[bool, float]:
        """Lowest for the best; a NaN is the worst, whatever the metric."""
        shift_now.assign(strength * log_prior)
        value = measure.mean(name, dataset, batch_size)
        return math.isnan(value), -value if measure.rising else value

    return min(strengths, key=rank_of)


# The ends of scikit-learn's range, which replace the temperatures 0 and infinity, and
# the reasons.
_ENDS = {
    0.0: (
        math.exp(-10),
        "all have their right classes at the top, so that a lower one always fits "
        "better, and probabilities are 0 or 1; more or harder examples may give others",
    ),
    math.inf: (
        math.exp(10),
        "right classes have no higher scores than others on average, so that a higher "
        "one always fits better, and all classes are equally likely",
    ),
}

# We search the inverse temperature between 2**-100 and 2**100, and find its log2 to
# within 2**-46.
_MAX_EXPONENT = 100.0
_NUM_BISECTIONS = 54


@tf.function(reduce_retracing=True)
def _best_temperature(scores: Tensor, relevance: Tensor, weights: Tensor) -> Tensor:
    """`calibrate`'s temperature; 0 or infinite if none is best, NaN for a NaN score."""
    # `calibrate` minimises a function that is convex in 1 / T and has the slope
    # $\sum_i w_i \langle z_i, \mathrm{softmax}(z_i / T) - y_i \rangle$, where the
    # positives share y equally. The slope grows with 1 / T, so we find its zero by
    # bisection.
    lists = dense_lists(fill_masked(scores), None, relevance)
    two = tf.constant(2.0, lists.dtype)
    weights = tf.where(tf.reduce_any(lists.is_positive, axis=-1), weights, 0)
    lists = lists.from_top()  # The highest score is 0.
    num_positives = tf.reduce_sum(tf.cast(lists.is_positive, lists.dtype), axis=-1)
    positive_total = lists.sum_of_positives(lists.positive_scores)
    positive_mean = tf.math.divide_no_nan(positive_total, num_positives)

    def slope(softmax_means: Tensor) -> Tensor:
        # From each list's mean score under its softmax. A list of weight 0 may have any
        # scores.
        differences = softmax_means - positive_mean
        return tf.reduce_sum(tf.math.multiply_no_nan(differences, weights))

    def bisect(low: Tensor, high: Tensor) -> TensorPair:
        middle = (low + high) / 2
        softmax = entropy_projection(lists, alpha=tf.pow(two, middle))
        is_falling = slope(tf.reduce_sum(lists.scores * softmax, axis=-1)) < 0
        return tf.where(is_falling, middle, low), tf.where(is_falling, high, middle)

    end = tf.constant(_MAX_EXPONENT, lists.dtype)
    low, high = tf.while_loop(
        lambda *_: True, bisect, (-end, end), maximum_iterations=_NUM_BISECTIONS
    )
    temperature = tf.pow(two, -(low + high) / 2)

    # If no temperature is the best, the slope keeps its sign. At T = 0 the softmax is 1
    # at the highest score; at an infinite T it is uniform.
    slope_at_0 = slope(tf.zeros_like(positive_mean))
    mean_scores = tf.reduce_sum(lists.scores, axis=-1) / tf.maximum(lists.num_items, 1)
    slope_at_infinity = slope(mean_scores)
    # Both are 0 if equal scores say nothing: then every temperature fits the same.
    temperature = tf.where(slope_at_0 <= 0, tf.zeros_like(two), temperature)
    temperature = tf.where(slope_at_infinity >= 0, two / 0, temperature)
    return tf.where(tf.math.is_nan(slope_at_infinity), slope_at_infinity, temperature)


def _conformal_threshold(conformity: np.ndarray, coverage: float) -> float:
    r"""The $\lceil (N + 1) c \rceil$-th highest of N values."""
    # A new example that is exchangeable with these reaches the threshold with a
    # probability of at least c, and of at most $c + 1 / (N + 1)$ if no two values are
    # equal. The coverage is read as an exact decimal, since 100 * 0.07 is above 7 in
    # floating point.
    exact = Fraction(str(coverage))
    num_examples = len(conformity)
    rank = math.ceil((num_examples + 1) * exact)
    min_examples = math.ceil(exact / (1 - exact))
    rule = f"`dataset` must have at least {min_examples} examples for {coverage=}."
    _checks.require(rank <= num_examples, rule, num_examples)
    return float(np.sort(conformity)[-rank])


def _labelled_scores(
    model: Scorer,
    dataset: Dataset,
    *,
    label_format: str | None,
    batch_size: int,
    ignore_class: int | None,
    logits: bool,
) -> Iterator[tuple[Labels, Tensor]]:
    """Yields each batch's labels, scores (-inf if masked) and weights `[batch]`."""
    batch_size = _checks.positive_int("batch_size", batch_size)
    ignore_class = checked_ignore_class(ignore_class, label_format)
    compiled = compiled_scores(model, logits)
    num_classes = None
    activation = "softmax" if logits else None
    for features, y_true, *sample_weight in batches(dataset, batch_size):
        y_true = one_output("`dataset` must give labels", y_true)
        scores = _keras.with_mask(*compiled(features))
        batch = Batch.of(
            y_true,
            scores,
            *sample_weight,
            label_format=label_format,
            ignore_class=ignore_class,
        )
        batch, _ = batch.counted()  # Padding is no example.
        # One batch may look like probabilities by chance, so that every batch must look
        # like them.
        activation = activation and _checks.function_behind(batch.labels.scores)
        labels = batch.labels
        scores = labels.scores
        number, width = scores.shape
        rule = "`model` must give scores of as many classes in each batch."
        received = f"{num_classes} and {width}"
        _checks.require(num_classes in (None, width), rule, received)
        num_classes = width

        if labels.mask is not None:
            scores = tf.where(labels.mask, scores, -float("inf"))
            labels = labels._replace(scores=scores)
        weights = batch.mean_weights()
        if weights is None:
            weights = tf.ones([])
        yield labels, tf.cast(weights, tf.float32) * tf.ones([number])
    has_batch = num_classes is not None
    _checks.require(has_batch, "`dataset` must have at least one batch.", "none")
    _checks.no_probabilities("model", activation)
