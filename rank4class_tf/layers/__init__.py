"""Keras layers: heads that score classes, layers for training and serving, and sorters."""

from rank4class_tf.layers.candidate_frequencies import CandidateFrequencies
from rank4class_tf.layers.classes import (
    ClassAttention,
    Classes,
    ClassTable,
    EncodedClasses,
    ShardedClassTable,
)
from rank4class_tf.layers.companion import Companion
from rank4class_tf.layers.convolutional_sorter import ConvolutionalSorter
from rank4class_tf.layers.cross_batch_memory import CrossBatchMemory
from rank4class_tf.layers.exclude_items import ExcludeItems
from rank4class_tf.layers.hard_negative_mining import HardNegativeMining
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
from rank4class_tf.layers.prediction_sets import PredictionSets
from rank4class_tf.layers.probabilities import Probabilities
from rank4class_tf.layers.recurrent_sorter import RecurrentSorter
from rank4class_tf.layers.remove_accidental_hits import RemoveAccidentalHits
from rank4class_tf.layers.sampled_scores import SampledScores
from rank4class_tf.layers.sampling_probability_correction import SamplingProbabilityCorrection
from rank4class_tf.layers.set_sorter import SetSorter
from rank4class_tf.layers.sorters import (
    LaplaceSorter,
    SigmoidSorter,
    SoftRankSorter,
    Sorter,
    get_sorter,
)
from rank4class_tf.layers.sparse_dense import SparseDense
from rank4class_tf.layers.top_classes import TopClasses
from rank4class_tf.layers.uniform_negatives import UniformNegatives

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
