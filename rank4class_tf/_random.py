"""Random state: a seed and a training step count, from which training resumes."""

from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

from rank4class_tf import _checks, _keras, ops
from rank4class_tf._types import Array, Tensor

STEP = (0, 1)  # A step of training adds this to a state.


def start_seed(seed: int | None) -> int:
    """The seed, in [0, 2**32); None draws one from NumPy's global generator."""
    return int(np.random.randint(2**31)) if seed is None else _checks.seed(seed)


def seed_of(state: Array) -> Tensor:
    """The seed of a state for stateless random operations, two int64."""
    seed, count = tf.unstack(tf.convert_to_tensor(state))
    return ops.fold_in(tf.stack([seed, tf.zeros_like(seed)]), count)


def add_state(layer: keras.layers.Layer, seed: int) -> Any:
    """Adds a state to a layer's weights."""
    return _keras.add_state(layer, "random_state", (2,), "int64", [seed, 0])


def step_seed(state: Any, training: bool | None) -> Tensor:
    """The seed of this layer call; the next call's differs only if this one trains."""
    seed = seed_of(_keras.variable(state))
    if training:
        state.assign_add(tf.constant(STEP, tf.int64))
    return seed


def replica_seed(seed: Array, stream: int) -> Tensor:
    """A seed differing between a strategy's replicas, and between `stream` numbers."""
    replica = tf.distribute.get_replica_context()
    replica_id = replica.replica_id_in_sync_group if replica else 0
    return ops.fold_in(ops.fold_in(seed, 1 + stream), replica_id)
