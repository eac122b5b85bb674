"""What random losses share: fresh noise at each call, the same in each run."""

import random
from typing import Any

import tensorflow as tf

from rank4class_tf import _checks, ops
from rank4class_tf.losses._base import RankingLoss


class RandomRankingLoss(RankingLoss):
    """Base of the losses that draw random numbers.

    A counter goes up with each call, in graph mode and under XLA too, and makes, with the seed and
    the replica, the seed of stateless random operations. The counter is no part of a saved model: a
    loss that is loaded starts anew, so give another `seed` when training resumes.
    """

    def __init__(self, *, seed: int | None = None, **kwargs: Any) -> None:
        """Args shared by the random losses.

        Args:
            seed: non-negative integer, or None for one from Python's `random`, which
                `keras.utils.set_random_seed` seeds.
            **kwargs: see `RankingLoss`.
        """
        super().__init__(**kwargs)
        self.seed = seed if seed is None else _checks.non_negative_int("seed", seed)
        self._start = random.getrandbits(62) if seed is None else self.seed
        self._seed: tf.Tensor | None = None
        # Replicas that do not share the variable count for themselves, in step.
        self._calls = tf.Variable(
            0,
            trainable=False,
            dtype=tf.int64,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )

    @property
    def is_random(self) -> bool:
        """Whether the loss, as it is configured, draws numbers."""
        return True

    def next_seed(self) -> tf.Tensor:
        """The seed of this batch for stateless random operations, two int64.

        It is the same in each call of `compute` for a batch. `ops.fold_in` makes others of it.
        """
        return self._draw_seed() if self._seed is None else self._seed

    def _prepared_compute(self):
        if not self.is_random:
            return self.compute
        seed = self._draw_seed()

        def compute(lists):
            self._seed = seed
            try:
                return self.compute(lists)
            finally:
                self._seed = None

        return compute

    def _draw_seed(self):
        call = self._calls.assign_add(1, read_value=True)
        seed = ops.fold_in([self._start, 0], call)
        context = tf.distribute.get_replica_context()
        replica = 0 if context is None else context.replica_id_in_sync_group
        return ops.fold_in(seed, tf.cast(replica, tf.int64))
