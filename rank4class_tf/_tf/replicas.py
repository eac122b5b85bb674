"""Values that are shared by the replicas of a distribution strategy."""

import tensorflow as tf


def gathered(x: tf.Tensor) -> tf.Tensor:
    """The rows of all replicas, in their order, with gradients; x itself where there is one."""
    context = _context()
    return x if context is None else context.all_gather(x, axis=0)


def first_row(x: tf.Tensor) -> tf.Tensor:
    """Where the rows of this replica's x begin among those of `gathered(x)`, an int32 scalar."""
    context = _context()
    if context is None:
        return tf.constant(0)
    sizes = context.all_gather(tf.shape(x)[:1], axis=0)
    return tf.cumsum(sizes, exclusive=True)[context.replica_id_in_sync_group]


def _context():
    context = tf.distribute.get_replica_context()
    return context if context and context.num_replicas_in_sync > 1 else None
