"""SetSorter."""

import itertools
from typing import Any

import tensorflow as tf

from rank4class_tf.layers import _learned_sorter
from rank4class_tf.layers._learned_sorter import LearnedSorter, count, dense_shapes
from rank4class_tf.ops.ranking.laplace_sort import laplace_ranks

# For soft ranks of standardised scores: at the highest temperature isolated items have a gradient,
# at the lowest the ranks are nearly exact.
_TEMPERATURES = (0.1, 0.03, 0.01, 0.003)


@_learned_sorter.register
class SetSorter(LearnedSorter):
    r"""A network on sets that has learned to correct soft ranks.

    $$f(s)_i = \pi_{T_2}(i) + \mathrm{N}\left([(A x_i) \odot c; x_i]\right), \qquad
    c = \frac{1}{d} \sum_j \mathrm{MLP}(x_j)$$

    with $x_i$ the sines and cosines of the standardised score and the differences of its soft
    ranks $\pi_T$ by the Laplace distribution at four temperatures (`LaplaceSorter`), and N a hidden
    layer with a linear shortcut. Ranks do not depend on the order of the items. Time is O(d log d).

    Source: DeepSets (Zaheer et al. 2017) in place of SoDeep's networks (Engilberge et al. 2019).

    Args:
        frequencies: how many sines, and how many cosines, are made from a score, >= 1.
        units: width of the network, >= 1.
        trainable: whether the weights are trained with the model that the sorter serves.
        **kwargs: arguments of Keras, such as `name`.

    Raises:
        ValueError: if `frequencies` or `units` is not a positive integer.

    Example:
        >>> sorter = SetSorter.pretrained()
        >>> sorter(tf.constant([[0.3, 0.1, 0.9, 0.5]])).numpy().round().astype(int)
        array([[3, 4, 1, 2]])
    """

    def __init__(
        self, frequencies: int = 16, units: int = 32, trainable: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(frequencies, units, trainable, **kwargs)

    @property
    def _num_features(self) -> int:
        """The features of the base and the differences of soft ranks."""
        return super()._num_features + len(_TEMPERATURES) - 1

    def _weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Name -> shape of each weight."""
        return {
            **dense_shapes("items", self._num_features, self.units),
            **dense_shapes("set", self.units, self.units),
            **self._decoder_shapes(self.units, self._num_features),
        }

    def _network(self, standardized: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
        """The formula."""
        ranks = [laplace_ranks(standardized, t, mask) for t in _TEMPERATURES]
        differences = [narrow - wide for wide, narrow in itertools.pairwise(ranks)]
        features = tf.concat(
            [self._features(standardized, mask), tf.stack(differences, axis=2)], axis=2
        )
        items = self._dense("set", tf.nn.relu(self._dense("items", features)))
        if mask is not None:
            items *= tf.cast(mask, tf.float32)[:, :, None]
        num_items = count(standardized, mask)[:, :, None]
        context = tf.reduce_sum(items, axis=1, keepdims=True) / num_items
        return ranks[1] + self._decode(features, context)
