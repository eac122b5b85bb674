"""What losses share: `per_example` makes labels and scores `Lists` for `compute`."""

import inspect
import warnings
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _keras, _random, _registry
from rank4class_tf._lists.batch import Batch
from rank4class_tf._lists.blocked import losses_of_classes
from rank4class_tf._lists.classes import ClassProducts
from rank4class_tf._lists.dense import dense_lists, fill_masked, losses_of
from rank4class_tf._lists.labels import (
    WAYS_WITH_ONE_SCORE,
    Labels,
    check_label_format,
    checked_ignore_class,
    mean_weights,
)
from rank4class_tf._lists.lists import Lists
from rank4class_tf._tf.private import Trackable, private
from rank4class_tf._tf.raising import in_xla
from rank4class_tf._types import Array, Changing, Tensor, Weighted, WithGradient
from rank4class_tf.layers import Probabilities

# What each loss has warned of. No attribute says so, because a call changes no loss.
_WARNED: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


class RankingLoss(_registry.Configured, keras.losses.Loss):
    """Base of the losses; a subclass defines the formula and its configuration.

    **Labels** `y_true` are class ids (`[batch]`, `[batch, 1]`, `[batch, P]` padded with
    -1, or ragged) or relevance `[batch, n]`, where a negative entry masks the item.
    **Scores** `y_pred` are `[batch, n]`, or ragged with ragged relevance. They are not
    probabilities: the loss warns if the model ends in a softmax or a sigmoid. The
    result is one value per list, reduced by Keras. Masked items have no effect. A list
    without positives has a loss of 0 and a gradient of 0, unless the formula needs
    none, as in `SigmoidCrossEntropyLoss`. Losses that compare the scores of a list
    learn nothing from a single one, and warn.

    **Weights** `sample_weight` are a number, or those of the lists, `[batch]` or
    `[batch, 1]`. Item weights `[batch, n]` work as each loss describes, as in
    TF-Ranking; other losses raise an error.

    Args:
        label_format: `"ids"`, `"relevance"`, or None to tell them apart by static
            shapes: labels as wide as the scores (n > 1) are relevance. Ids `[batch, P]`
            of a floating dtype need `"ids"`.
        ignore_class: an id that is padding, as -1 is, such as 0 or PyTorch's -100; None
            means no other. Lists whose ids are all padding then leave the mean, as in
            Keras.
        max_positives: the most positives of a list of relevance labels, 1 for one-hot
            ones; None for no bound, which costs time and memory. A list with more
            raises, or is NaN under XLA.
        class_weight: the weight, >= 0, of each of the n classes, or a dict of some by
            their ids; others have 1. A list weighs `sum_i w_i y_i / sum_i y_i`, the
            mean of its classes, and 1 without positives. `class_weight` of Keras's
            `fit` would weigh ids `[batch, P]` by their position.
        reduction: `"sum_over_batch_size"`, `"sum"` or `"none"`; `"auto"` is the first.
            Keras 3 also has `"mean"` and `"mean_with_sample_weight"`.
        dtype: of the reduced loss, in Keras 3.

    Attributes:
        item_weights: `"formula"` if `compute` reads `lists.item_weights`, or sums by
            `lists.sum_of_positives`, which weighs by them; `"lists"` if they become the
            weight of a list, `sum_i w_i y_i / sum_i y_i`; None, the default, if they
            raise.
        searches_positives: whether `compute` takes a pass over the items for each
            positive, or sorts the positives. If not, it gets relevance of all items as
            it is.
        needs_positive: whether a list without positives has a loss of 0; if not,
            `compute` gives its loss, too.
        compares_items: whether `compute` compares the items of a list. If so, the loss
            warns where lists have a single item.
        takes_probabilities: whether `y_pred` may be probabilities, without a warning.
        num_mined: how many of the highest negatives `compute` reads, which a model may
            mine; None for all.
        by_class_id: the arguments with a number for each class. A model that scores
            only some classes in a step refuses them.
        tunable: the arguments, numbers > 0, of which `try_out` tunes the first that is
            not 0. The constructor takes a scalar `tf.Variable` in their place.
        is_random: whether the loss draws random numbers; see `RandomRankingLoss`.
    """

    item_weights: str | None = None
    searches_positives: bool = True
    needs_positive: bool = True
    compares_items: bool = True
    takes_probabilities: bool = False
    num_mined: int | None = None
    by_class_id: tuple[str, ...] = ("class_weight",)
    tunable: tuple[str, ...] = ()
    is_random: bool = False

    def __init__(
        self,
        *,
        label_format: str | None = None,
        ignore_class: int | None = None,
        max_positives: int | None = None,
        class_weight: Mapping[int, float] | Sequence[float] | None = None,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = None,
        dtype: Any = None,
    ):
        check_label_format(label_format)
        _checks.one_of("item_weights", self.item_weights, (None, "formula", "lists"))
        max_positives = _checks.positive_int_or_none("max_positives", max_positives)
        name = name or _registry.snake_case(type(self).__name__)
        _keras.init_loss(self, name, reduction, dtype)
        self.label_format = label_format
        self.ignore_class = checked_ignore_class(ignore_class, label_format)
        self.max_positives = max_positives
        self.class_weight = (
            None if class_weight is None else _checked_class_weight(class_weight)
        )

    @property
    def probabilities(self) -> Probabilities | None:
        """The layer from scores to probabilities of one right class, or None.

        If it is None, use `calibrate`.
        """
        return None

    def compute(self, lists: Lists) -> Tensor:
        """The formula: `Lists` -> `[batch]`; it may use Keras layers.

        The loss of a list depends only on that list; without positives, it must only be
        finite. A graph of long lists may hold the formula twice, for few and for many
        positives.
        """
        raise NotImplementedError

    def __call__(
        self, y_true: Array, y_pred: Array, sample_weight: Array | None = None
    ) -> Tensor:
        """The loss; weights are a scalar, `[batch]`, `[batch, 1]` or `[batch, n]`."""
        if not _keras.are_losses(y_pred):  # A model may have computed `per_example`.
            y_pred, sample_weight = self.per_example(y_true, y_pred, sample_weight)
        return _keras.reduced(self, y_pred, sample_weight)

    def call(self, y_true: Array, y_pred: Array) -> Tensor:
        return self.per_example(y_true, y_pred)[0]

    def per_example(
        self,
        y_true: Tensor,
        y_pred: Tensor,
        sample_weight: Tensor | None = None,
        ignores: bool = True,
    ) -> Weighted:
        """The loss of each list, `[batch]`, and the weights left for Keras's reduction.

        A model may pass `ClassProducts`, which make the scores of all classes. One that
        scores a sample, whose columns are no class ids, passes `ignores=False`, and -1
        in place of `ignore_class`. Scores of many positions have losses `[...]`, with
        the mask of the positions that count.
        """
        ignore_class = self.ignore_class
        if ignore_class is not None and not ignores:
            ignore_class = -1
        products = None
        num_classes = None
        outputs = y_pred
        if isinstance(y_pred, ClassProducts):
            products = y_pred
            num_classes = products.num_classes
            outputs = _keras.with_mask(products.encodings, products.mask)
        batch = Batch.of(
            y_true,
            outputs,
            sample_weight,
            num_classes=num_classes,
            label_format=self.label_format,
            ignore_class=ignore_class,
            max_positives=self.max_positives,
            item_weights=self.item_weights is not None and products is None,
            signed=True,
        )
        self._warn_of_scores(y_pred, batch.labels)

        positions = batch.positions
        weights = batch.list_weights
        if self.item_weights == "lists":
            weights = batch.mean_weights()
        if positions is None:
            return self._losses(batch, products), weights

        if products is None:
            losses = self._losses(batch, products)
        else:
            losses = self._losses_at_positions(batch, products)
        if weights is not None and weights.shape.rank == 1:
            weights = positions.unflat(weights)
        return _keras.with_mask(positions.unflat(losses), positions.mask), weights

    def _losses_at_positions(self, batch: Batch, products: ClassProducts) -> Tensor:
        """The losses over all classes of the rows of a batch of positions."""
        size = tf.shape(batch.labels.scores, tf.int64)[:1]
        places = None
        if not in_xla():  # XLA needs static shapes.
            # Only positions that count meet all classes. The others have a loss of 0.
            batch, places = batch.counted()
        products = products.with_encodings(batch.labels.scores)
        losses = self._losses(batch, products)
        return losses if places is None else tf.scatter_nd(places, losses, size)

    def _losses(self, batch: Batch, products: ClassProducts | None) -> Tensor:
        """The losses of lists, `[lists]`; over all classes, of encodings."""
        labels = batch.labels
        seed = self._draw_seed()
        compute = _keras.with_autograph_of_caller(self.compute)
        # A list that does not count has a loss of 0, whatever its scores are.
        counted = self._counted(batch)
        if products is not None:
            encodings = tf.where(counted[:, tf.newaxis], labels.scores, 0.0)
            losses = losses_of_classes(
                compute,
                products._replace(encodings=encodings),
                labels.class_ids,
                labels.relevance,
                seed,
            )
            return self._finished(losses, labels, counted, products.num_classes)

        filled = fill_masked(labels.scores, labels.mask, counted)
        if batch.item_weights is not None and self.item_weights == "formula":
            is_present = counted[:, tf.newaxis]
            if labels.mask is not None:
                is_present &= labels.mask
            item_weights = tf.where(is_present, batch.item_weights, 0)
            labels = labels._replace(item_weights=item_weights)

        # The formula gets the fewest columns that hold all positives, or all items as
        # columns.
        if self.searches_positives:
            losses = losses_of(compute, labels, filled, seed)
        else:
            columns = labels.class_ids, labels.relevance, labels.item_weights
            losses = compute(dense_lists(filled, *columns, seed))
        return self._finished(losses, labels, counted, labels.scores.shape[1])

    def _draw_seed(self) -> Tensor | None:
        """The seed of a batch, for its lists; None where nothing is random."""
        return None

    def _counted(self, batch: Batch) -> Tensor:
        """The lists that have a loss, `[lists]` booleans."""
        labels = batch.labels
        if self.needs_positive:
            return labels.has_positive
        counted = tf.equal(labels.value_if_empty, 0)
        if labels.mask is not None:
            counted &= tf.reduce_any(labels.mask, axis=-1)
        if batch.positions is not None:
            counted &= batch.positions.flat_mask
        return counted

    def _finished(
        self, losses: Tensor, labels: Labels, counted: Tensor, num_classes: int | None
    ) -> Tensor:
        """The losses `[lists]`, weighted by class; 0 or NaN for lists not counted."""
        is_right = losses.shape.rank in (None, 1)
        rule = "`compute` must return the losses [batch]."
        _checks.require(is_right, rule, f"shape {losses.shape}")

        if self.class_weight is not None:
            by_class = _weights_of_classes(self.class_weight, num_classes)
            weights = mean_weights(labels, tf.constant(by_class, losses.dtype))
            losses *= tf.where(labels.has_positive, weights, 1)
        value_if_empty = tf.cast(labels.value_if_empty, losses.dtype)
        return tf.raw_ops.Select(condition=counted, x=losses, y=value_if_empty)

    def _warn_of_scores(self, y_pred: Array | ClassProducts, labels: Labels) -> None:
        """Warns once of probabilities, or of single scores, if compared."""
        is_dense = not isinstance(y_pred, ClassProducts | tf.RaggedTensor)
        function = None
        if is_dense and not self.takes_probabilities:
            function = _checks.function_behind(y_pred)
        if function is not None:
            self._warn_once(
                "`y_pred` should hold scores, not probabilities. Received: the output "
                f"of a {function}, from which `{self.name}` learns less. Remove the "
                f"{function} from the model, and apply it to predictions if you need "
                "probabilities."
            )

        num_lists, num_items = labels.scores.shape
        if isinstance(y_pred, ClassProducts):
            num_items = y_pred.num_classes
        # Nothing is learned from an empty batch.
        is_single = num_items == 1 and num_lists != 0
        if (
            is_single
            and self.compares_items
            and not isinstance(y_pred, tf.RaggedTensor)
        ):
            self._warn_once(
                "`y_pred` should have two scores or more in a list, since "
                f"`{self.name}` compares them. Received: one, from which it learns "
                f"nothing: {WAYS_WITH_ONE_SCORE}."
            )

    def _warn_once(self, message: str) -> None:
        warned = _WARNED.setdefault(self, set())
        if message not in warned:
            warned.add(message)
            warnings.warn(message, stacklevel=3)


def _checked_class_weight(value: Any) -> list[float] | dict[int, float]:
    """Weights of all classes, a list, or of some, a dict, as plain numbers."""
    is_mapping = isinstance(value, Mapping)
    is_right = is_mapping or (not isinstance(value, str) and np.ndim(value) == 1)
    rule = (
        "`class_weight` must be a list of weights, or a dict from class ids to weights."
    )
    _checks.require(is_right, rule, repr(value))
    weights = value.values() if is_mapping else value
    weights = [_checks.non_negative_float("class_weight", weight) for weight in weights]
    if not is_mapping:
        return weights
    # In a file the ids are strings.
    ids = [int(i) if isinstance(i, str) and i.isdecimal() else i for i in value]
    ids = [_checks.non_negative_int("class_weight", class_id) for class_id in ids]
    return dict(zip(ids, weights, strict=True))


def _weights_of_classes(
    weights: list[float] | dict[int, float], num_classes: int | None
) -> np.ndarray:
    """The weights of all classes, `[num_classes]`; 1 where a dict has none."""
    rule = (
        "`class_weight` must hold a weight for each class that `y_pred` scores, or for "
        "ids of these."
    )
    if isinstance(weights, dict):
        size = num_classes or 0  # It may be unknown.
        received = f"weights of {[*weights]} for {num_classes} classes"
        _checks.require(max(weights, default=0) < size, rule, received)
        by_class = np.ones(size)
        for class_id, weight in weights.items():
            by_class[class_id] = weight
        return by_class

    received = f"{len(weights)} weights for {num_classes} classes"
    _checks.require(len(weights) == num_classes, rule, received)
    return np.array(weights)


class PositivesLoss(RankingLoss):
    """Base of losses that are a sum over the positives of a list, or its mean."""

    def __init__(self, positive_reduction: str = "sum", **kwargs: Any):
        super().__init__(**kwargs)
        known = ("sum", "mean")
        self.positive_reduction = _checks.one_of(
            "positive_reduction", positive_reduction, known
        )

    def reduced(self, lists: Lists, losses: Tensor) -> Tensor:
        """Sum or mean of positives' losses, `[batch, P]`, weighted by relevance."""
        total = lists.sum_of_positives(losses, lists.relevance)
        if self.positive_reduction == "sum":
            return total
        return tf.math.divide_no_nan(total, tf.reduce_sum(lists.relevance, axis=-1))


class UnsavedLayer:
    """Mixin that keeps a loss's layer out of the files of models compiled with it."""

    # Keras 3 saves every layer that `dir` of the loss names, and cannot load one that
    # the model also has. The loss's configuration or a `Companion` keeps the layer's
    # weights.
    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name not in ("ranker", "sorter")]


def present(
    value: Changing, dtype: tf.DType, with_gradient: bool = False
) -> float | Tensor:
    """The value in this step: a number, or a tensor of a dtype."""
    if not isinstance(value, tf.Variable):
        return value
    if not (with_gradient or tf.distribute.in_cross_replica_context()):
        # No tape sees this read. TensorFlow fails where one follows a variable into a
        # branch.
        value = tf.raw_ops.ReadVariableOp(resource=value.handle, dtype=value.dtype)
    value = tf.cast(value, dtype)
    return value if with_gradient else tf.stop_gradient(value)


class RandomRankingLoss(RankingLoss, Trackable):
    """Base of the losses that draw random numbers.

    `compute` draws by `lists.seed`, two int64 for stateless random operations;
    `ops.fold_in` makes other seeds from it. `lists.seed` depends on `seed`, the
    replica, and how many gradients were taken of the loss. So each step of training
    draws anew, and evaluation the same at each call.

    Keras saves the count of the gradients with a compiled model, in `.keras` and
    `.weights.h5` files, but not in Keras 2's SavedModel. In Keras 3
    `tf.train.Checkpoint` does not see a model's loss:
    `tf.train.Checkpoint(model=model, loss=model.loss)`.

    Args:
        seed: integer >= 0, with which losses draw the same, step by step; None for one
            from NumPy's global generator, which `keras.utils.set_random_seed` seeds.
    """

    is_random = True

    def __init__(self, *, seed: int | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self.seed = seed if seed is None else _checks.seed(seed)
        self._set_state([_random.start_seed(self.seed), 0])

    def _losses(self, batch: Batch, products: ClassProducts | None) -> Tensor:
        losses = super()._losses(batch, products)
        if not self.is_random:
            return losses
        state = self._state_here()

        # Only a step of training takes the gradient of the losses.
        @tf.custom_gradient
        def counted(losses: Tensor) -> WithGradient:
            def gradient(upstream: Tensor) -> Tensor:
                with tf.control_dependencies([state.assign_add(_random.STEP)]):
                    return tf.identity(upstream)

            return tf.identity(losses), gradient

        return counted(losses)

    def save_own_variables(self, store: Any) -> None:
        """Writes the seed and the count of the gradients, for Keras."""
        store["random_state"] = self._state.numpy()

    def load_own_variables(self, store: Any) -> None:
        """Reads them; without this loss, a model's file has none: nothing changes."""
        if "random_state" in store.keys():  # Not a dictionary.  # noqa: SIM118
            self._state.assign(np.array(store["random_state"]))

    def _draw_seed(self) -> Tensor | None:
        if not self.is_random:
            return None
        return _random.replica_seed(_random.seed_of(self._state_here()), 0)

    def _state_here(self) -> tf.Variable:
        """The state of this replica; all replicas count alike."""
        # A variable belongs to the strategy in whose scope it was made, and `compile`
        # takes a loss that was made before. So a call may replace this variable of a
        # loss, once.
        strategy = tf.distribute.get_strategy()
        created_here = strategy.extended.variable_created_in_scope(self._state)
        if strategy.num_replicas_in_sync > 1 and not created_here:
            with tf.init_scope():
                self._set_state(tf.convert_to_tensor(self._state))
        return self._state

    def _set_state(self, value: Array) -> None:
        self._state = tf.Variable(
            value,
            trainable=False,
            dtype=tf.int64,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            name="random_state",
        )
        track = private(self, "_track_trackable")
        track(self._state, "random_state", overwrite=True)


@_registry.register("loss")
class WeightedSumLoss(_registry.Configured, keras.losses.Loss):
    r"""Several losses of the same scores, added up as one loss.

    $$\ell(y, s) = \sum_j w_j \ell_j(y, s)$$

    Keras reads `compile(loss=[a, b])` as the losses of two outputs. A model with one
    output then silently trains with `a` only.

    Args:
        losses: Keras losses of any package, each reduced and weighted as it is by
            itself; they must share a reduction other than `"none"`.
        weights: a finite number >= 0 for each loss.

    Example:
        >>> from rank4class_tf.losses import RankmaxLoss, SoftmaxLoss
        >>> loss = WeightedSumLoss([SoftmaxLoss(), RankmaxLoss()], [0.5, 2.0])
        >>> float(loss([0], [[0.0, 0.0]]))  # 0.5 log(2) + 2 log(2)
        1.732867...
    """

    def __init__(
        self,
        losses: Sequence[Any],
        weights: Sequence[float],
        name: str = "weighted_sum_loss",
    ):
        for key, value in (("losses", losses), ("weights", weights)):
            if not isinstance(value, list | tuple):
                raise TypeError(f"`{key}` must be a list. Received: {key}={value!r}.")
        losses = [*losses]
        weights = [_checks.non_negative_float("weights", w) for w in weights]
        rule = "`weights` must hold a number for each of `losses`, at least one."
        received = f"{len(losses)} losses and {len(weights)} weights"
        _checks.require(0 < len(losses) == len(weights), rule, received)
        # Keras reduces each loss before the sum; "auto" is another name of the mean.
        same = {"auto": "sum_over_batch_size"}
        reductions = {same.get(loss.reduction, loss.reduction) for loss in losses}
        rule = "`losses` must share one reduction, 'sum' or 'sum_over_batch_size'."
        is_right = len(reductions) == 1 and "none" not in reductions
        _checks.require(is_right, rule, sorted(reductions))
        super().__init__(reduction=reductions.pop(), name=name)
        self.losses, self.weights = losses, weights

    def __call__(
        self, y_true: Array, y_pred: Array, sample_weight: Array | None = None
    ) -> Tensor:
        """The weighted sum of the losses, each with its own reduction and weights."""
        if _keras.are_losses(y_pred):  # A model may have computed `per_example`.
            return _keras.reduced(self, y_pred, sample_weight)
        for loss in self.losses:
            _keras.share_permission_for_means(self, loss)
        values = [loss(y_true, y_pred, sample_weight) for loss in self.losses]
        return tf.add_n(
            [w * value for w, value in zip(self.weights, values, strict=True)]
        )

    def call(self, y_true: Array, y_pred: Array) -> Tensor:
        return self(y_true, y_pred)

    @property
    def num_mined(self) -> int | None:
        """How many of the highest negatives the losses read, as in `RankingLoss`."""
        numbers = [loss.num_mined for loss in self.losses]
        return None if None in numbers else max(numbers)

    @property
    def ignore_class(self) -> int | None:
        """The id that all losses ignore, as in `RankingLoss`."""
        ignored = [loss.ignore_class for loss in self.losses]
        rule = "`ignore_class` must be the same for all of `losses`."
        _checks.require(len({*ignored}) == 1, rule, ignored)
        return ignored[0]

    def per_example(
        self,
        y_true: Array,
        y_pred: Array,
        sample_weight: Array | None = None,
        ignores: bool = True,
    ) -> Weighted:
        """As in `RankingLoss`, which all losses must be, with equal example weights."""
        parts = [
            loss.per_example(y_true, y_pred, sample_weight, ignores)
            for loss in self.losses
        ]
        losses, weights = zip(*parts, strict=True)
        total = tf.add_n([w * x for w, x in zip(self.weights, losses, strict=True)])
        return _keras.with_mask(total, _keras.mask_of(losses[0])), weights[0]

    def get_config(self) -> dict[str, Any]:
        losses = [keras.utils.serialize_keras_object(loss) for loss in self.losses]
        return {**super().get_config(), "losses": losses}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        # A folder that Keras 2 saved names Keras's losses without their module.
        known = {
            name: c for name, c in vars(keras.losses).items() if inspect.isclass(c)
        }
        losses = [_keras.deserialized(loss, known) for loss in config["losses"]]
        return cls(**{**config, "losses": losses})
