"""Keras layers: heads that score classes, layers for training and serving, and sorters."""

from rank4class_tf.layers.classes import ClassAttention, Classes, ClassTable, EncodedClasses
from rank4class_tf.layers.heads import (
    BilinearHead,
    ConcatHead,
    CosineHead,
    DotProductHead,
    Head,
    LatentCrossHead,
    get_head,
)
from rank4class_tf.layers.interactions import (
    BilinearInteraction,
    ConcatInteraction,
    CosineInteraction,
    DotProductInteraction,
    Interaction,
    LatentCrossInteraction,
    MLPInteraction,
    get_interaction,
)
from rank4class_tf.layers.learned_sorters import ConvolutionalSorter, RecurrentSorter, SetSorter
from rank4class_tf.layers.negatives import (
    CandidateFrequencies,
    CrossBatchMemory,
    HardNegativeMining,
    RemoveAccidentalHits,
    SamplingProbabilityCorrection,
    UniformNegatives,
)
from rank4class_tf.layers.sampled import SampledScores
from rank4class_tf.layers.serving import (
    ExcludeItems,
    PredictionSets,
    Probabilities,
    SparseDense,
    TopClasses,
)
from rank4class_tf.layers.shards import ShardedClassTable
from rank4class_tf.layers.sorters import (
    Companion,
    LaplaceSorter,
    SigmoidSorter,
    SoftRankSorter,
    Sorter,
    get_sorter,
)

__all__ = ["Head", "BilinearHead", "ConcatHead", "CosineHead", "DotProductHead", "LatentCrossHead"]
__all__ += ["SampledScores"]
__all__ += ["Interaction", "BilinearInteraction", "ConcatInteraction", "CosineInteraction"]
__all__ += ["DotProductInteraction", "LatentCrossInteraction", "MLPInteraction"]
__all__ += ["Classes", "ClassAttention", "ClassTable", "EncodedClasses", "ShardedClassTable"]
__all__ += ["CandidateFrequencies", "CrossBatchMemory", "HardNegativeMining"]
__all__ += ["RemoveAccidentalHits", "SamplingProbabilityCorrection", "UniformNegatives"]
__all__ += ["ExcludeItems", "PredictionSets", "Probabilities", "SparseDense", "TopClasses"]
__all__ += ["Sorter", "ConvolutionalSorter", "LaplaceSorter", "RecurrentSorter", "SetSorter"]
__all__ += ["SigmoidSorter", "SoftRankSorter", "Companion"]
__all__ += ["get_head", "get_interaction", "get_sorter"]
