"""Keras metrics for rankings."""

import re
from typing import Any

from rank4class_tf import _checks, _registry
from rank4class_tf.metrics.base import Metric, RankingMetric
from rank4class_tf.metrics.dataset import MeanAveragePrecision, SpearmanCorrelation
from rank4class_tf.metrics.gains import DCG, NDCG
from rank4class_tf.metrics.groups import ExpectedCalibrationError, MacroAverage
from rank4class_tf.metrics.hits import (
    AveragePrecisionAtK,
    BPref,
    PrecisionAtK,
    PropensityScoredNDCG,
    PropensityScoredPrecisionAtK,
    RecallAtK,
    TopKAccuracy,
    propensities,
)
from rank4class_tf.metrics.ranked_ids import RankedIds
from rank4class_tf.metrics.ranks import MRR, MeanRank, MedianRank

# The name of the same metric in retrieval, and Keras's name of its first cutoff.
HitRate = TopKAccuracy
_registry.register_name("metric", "accuracy", lambda k=1, **kw: TopKAccuracy(k, **kw))

__all__ = ["NDCG", "TopKAccuracy", "HitRate", "MRR", "PrecisionAtK", "RecallAtK"]
__all__ += ["AveragePrecisionAtK", "DCG", "BPref", "MeanRank", "MedianRank"]
__all__ += ["PropensityScoredPrecisionAtK", "PropensityScoredNDCG", "propensities"]
__all__ += ["MacroAverage", "ExpectedCalibrationError", "MeanAveragePrecision"]
__all__ += ["SpearmanCorrelation", "RankedIds", "get", "RankingMetric"]


def get(identifier: Any, **kwargs: Any) -> Metric:
    """Returns a metric by name, such as `"ndcg"`, or with a cutoff, `"ndcg_at_5"`.

    Args:
        identifier: a name, with `_at_<k>` for a cutoff; a serialized config; or a
            metric, which is returned as it is.
        **kwargs: constructor arguments, with a name only.

    Example:
        >>> metric = get("ndcg_at_5")
        >>> metric.k, metric.name
        (5, 'ndcg_at_5')
    """
    if isinstance(identifier, str):
        rule = "`identifier` must be written with its cutoff as in"
        example = identifier.replace("@", "_at_")
        _checks.require("@" not in identifier, f"{rule} {example!r}.", repr(identifier))
        if cutoff := re.fullmatch(r"(\w+)_at_(\d+)", identifier):
            rule = "`k` must not be given with a name that has a cutoff."
            _checks.require(
                "k" not in kwargs, rule, f"{identifier!r} and k={kwargs.get('k')!r}"
            )
            identifier = cutoff[1]
            kwargs["k"] = int(cutoff[2])
        if identifier == "hits" and "k" not in kwargs:
            raise ValueError(
                "`identifier` must have a cutoff, such as 'hits_at_5': TF-Ranking's "
                "'hits' counts all ranks. Received: 'hits'."
            )
    return _registry.get("metric", Metric, identifier, **kwargs)
