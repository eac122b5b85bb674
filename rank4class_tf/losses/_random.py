"""What random losses share: fresh noise at each step, the same in each run."""

from typing import Any

import numpy as np
import tensorflow as tf

from rank4class_tf import _checks, _random
from rank4class_tf._tf.eager import forget
from rank4class_tf._types import TensorLike
from rank4class_tf.losses._base import RankingLoss
from rank4class_tf.ops import fold_in


class RandomRankingLoss(RankingLoss, tf.__internal__.tracking.Trackable):
    """Base of the losses that draw random numbers.

    The draws are a function of the seed, the replica, and the count of the gradients that were
    taken of the loss. So each step of training has draws of its own, and evaluation, which takes no
    gradient, draws the same at each call and moves nothing.

    The count is a part of what Keras saves of a compiled model: `.keras` files, `.weights.h5` files
    and the callbacks that write them; not of Keras 2's SavedModel. In Keras 3 `tf.train.Checkpoint`
    does not see a model's loss: `tf.train.Checkpoint(model=model, loss=model.loss)`.
    """

    def __init__(self, *, seed: int | None = None, **kwargs: Any) -> None:
        """Args shared by the random losses.

        Args:
            seed: non-negative integer, or None for one from NumPy's global generator, which
                `keras.utils.set_random_seed` seeds.
            **kwargs: see `RankingLoss`.
        """
        super().__init__(**kwargs)
        self.seed = seed if seed is None else _checks.seed(seed)
        self._seed: tf.Tensor | None = None
        self._set_state(_random.start(_random.start_seed(self.seed)))

    @property
    def is_random(self) -> bool:
        """Whether the loss, as it is configured, draws numbers."""
        return True

    def next_seed(self) -> tf.Tensor:
        """The seed of this batch for stateless random operations, two int64.

        It is the same in each call of `compute` for a batch. `ops.fold_in` makes others of it.
        """
        return self._draw_seed() if self._seed is None else self._seed

    def call(
        self, y_true: TensorLike, y_pred: TensorLike, item_weights: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Computes the loss of each list, `[batch]`."""
        if not self.is_random:
            return super().call(y_true, y_pred, item_weights)
        self._seed = self._draw_seed()
        try:
            return self._counted(super().call(y_true, y_pred, item_weights))
        finally:
            self._seed = None

    def _compute_chunk(self, lists, chunk):
        if chunk is None or self._seed is None:
            return super()._compute_chunk(lists, chunk)
        seed, self._seed = self._seed, fold_in(self._seed, chunk)
        try:
            return super()._compute_chunk(lists, chunk)
        finally:
            self._seed = seed

    def save_own_variables(self, store: Any) -> None:
        """Writes the seed and the count, for Keras."""
        store["random_state"] = self._state.numpy()

    def load_own_variables(self, store: Any) -> None:
        """Reads them; a file of a model without this loss has none, and changes nothing."""
        if "random_state" in store.keys():  # Not a dictionary.  # noqa: SIM118
            self._state.assign(np.array(store["random_state"]))

    def _draw_seed(self):
        return _random.on_this_device(_random.seed_of(self._state_here()), 0)

    def _counted(self, losses):
        """The losses; whoever takes their gradient makes a step."""
        state = self._state_here()

        @tf.custom_gradient
        def counted(losses):
            def gradient(upstream):
                with tf.control_dependencies([state.assign_add(_random.STEP)]):
                    return tf.identity(upstream)

            return tf.identity(losses), gradient

        return counted(losses)

    def _state_here(self):
        """The state, which each replica of a strategy has for itself, and counts in step."""
        strategy = tf.distribute.get_strategy()
        created_here = strategy.extended.variable_created_in_scope(self._state)
        if strategy.num_replicas_in_sync > 1 and not created_here:
            # A loss that was made outside of the scope moves into it.
            with tf.init_scope():
                self._set_state(tf.convert_to_tensor(self._state))
        return self._state

    def _set_state(self, value):
        forget(self)  # Graphs hold the state that was.
        self._state = tf.Variable(
            value,
            trainable=False,
            dtype=tf.int64,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            name="random_state",
        )
        self._track_trackable(self._state, "random_state", overwrite=True)
