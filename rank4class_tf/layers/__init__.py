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

__all__ = [
    "BilinearHead",
    "BilinearInteraction",
    "CandidateFrequencies",
    "ClassAttention",
    "ClassTable",
    "Classes",
    "Companion",
    "ConcatHead",
    "ConcatInteraction",
    "CosineHead",
    "CosineInteraction",
    "ConvolutionalSorter",
    "CrossBatchMemory",
    "DotProductHead",
    "DotProductInteraction",
    "EncodedClasses",
    "ExcludeItems",
    "HardNegativeMining",
    "Head",
    "LaplaceSorter",
    "Interaction",
    "LatentCrossHead",
    "LatentCrossInteraction",
    "MLPInteraction",
    "PredictionSets",
    "Probabilities",
    "RecurrentSorter",
    "RemoveAccidentalHits",
    "SampledScores",
    "SamplingProbabilityCorrection",
    "SetSorter",
    "ShardedClassTable",
    "SigmoidSorter",
    "SoftRankSorter",
    "Sorter",
    "SparseDense",
    "TopClasses",
    "UniformNegatives",
    "get_head",
    "get_sorter",
    "get_interaction",
]
