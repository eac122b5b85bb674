"""Keras layers: heads that score classes, layers for training or serving, sorters."""

from rank4class_tf.layers.classes import (
    ClassAttention,
    ClassEmbedding,
    Classes,
    ClassTable,
    EncodedClasses,
    TiedClasses,
)
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
from rank4class_tf.layers.learned_sorters import (
    ConvolutionalSorter,
    RecurrentSorter,
    SetSorter,
)
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
    "DotProductHead",
    "CosineHead",
    "BilinearHead",
    "LatentCrossHead",
    "ConcatHead",
]
__all__ += [
    "ClassTable",
    "EncodedClasses",
    "ClassAttention",
    "ShardedClassTable",
    "Classes",
]
__all__ += ["Head", "get_head", "TiedClasses", "ClassEmbedding"]
__all__ += [
    "SampledScores",
    "HardNegativeMining",
    "UniformNegatives",
    "CrossBatchMemory",
]
__all__ += [
    "RemoveAccidentalHits",
    "SamplingProbabilityCorrection",
    "CandidateFrequencies",
]
__all__ += [
    "Probabilities",
    "TopClasses",
    "PredictionSets",
    "ExcludeItems",
    "SparseDense",
]
__all__ += [
    "LaplaceSorter",
    "SoftRankSorter",
    "SigmoidSorter",
    "SetSorter",
    "RecurrentSorter",
]
__all__ += ["ConvolutionalSorter", "Companion", "Sorter", "get_sorter"]
__all__ += ["DotProductInteraction", "CosineInteraction", "BilinearInteraction"]
__all__ += ["LatentCrossInteraction", "ConcatInteraction", "MLPInteraction"]
__all__ += ["Interaction", "get_interaction"]
