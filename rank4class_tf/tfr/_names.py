"""Losses and metrics by name, of this package and of TF-Ranking."""

import copy
import re
from typing import Any

from tensorflow import keras

from rank4class_tf import _registry
from rank4class_tf import losses as our_losses
from rank4class_tf import metrics as our_metrics
from rank4class_tf.tfr import _load

_tfr: Any = _load.load()
_THEIRS = "tfr."
_KEYS = {
    "loss": _tfr.keras.losses.RankingLossKey,
    "metrics": _tfr.keras.metrics.RankingMetricKey,
}
# Classes of TF-Ranking that its own lookup by name does not have.
_CLASSES = {
    "click_em_loss": _tfr.keras.losses.ClickEMLoss,
    "mixture_em_loss": _tfr.keras.losses.MixtureEMLoss,
    "alpha_dcg": _tfr.keras.metrics.AlphaDCGMetric,
    "precision_ia": _tfr.keras.metrics.PrecisionIAMetric,
    "recall": _tfr.keras.metrics.RecallMetric,
}
# Metrics of TF-Ranking that read whole lists and take no cutoff.
_WITHOUT_CUTOFF = {"arp", "ordered_pair_accuracy"}

# A pipeline gives lists of scores, so losses on regressions and metrics of a dataset don't fit.
_LOSSES = _registry.known("loss", our_losses.RankingLoss)
_METRICS = _registry.known("metric", our_metrics.RankingMetric)


def build_loss(spec: Any, reduction: str) -> keras.losses.Loss:
    """Builds the loss that a pipeline's `loss` describes.

    Args:
        spec: a name (`"rankmax_loss"`, `"tfr.list_mle_loss"`), a Keras loss, several names with
            weights (`"rankmax_loss:0.7,softmax_loss:0.3"`), or a list of losses, or of pairs of a
            name or loss and its weight.
        reduction: the reduction of the losses that are built from names.
    """
    if isinstance(spec, str):
        parts = [_split_weight(part.strip()) for part in spec.split(",")]
    elif isinstance(spec, list | tuple):
        parts = [part if isinstance(part, tuple) else (part, 1.0) for part in spec]
        for part in parts:
            if len(part) != 2:
                raise ValueError(
                    f"`loss` must hold pairs of a loss and its weight. Received: {part}."
                )
    else:
        parts = [(spec, 1.0)]
    losses = [_build_one_loss(name, reduction) for name, _ in parts]
    weights = [weight for _, weight in parts]
    return losses[0] if weights == [1.0] else our_losses.WeightedSumLoss(losses, weights)


def build_metric(spec: Any, prefix: str) -> keras.metrics.Metric:
    """Builds a metric named `prefix` and then its own name.

    Args:
        spec: a name with an optional cutoff (`"ndcg_at_5"`, `"tfr.mrr_at_10"`) or a Keras metric,
            which is copied, since metrics must be created under the strategy in use.
        prefix: the beginning of the name.
    """
    if isinstance(spec, keras.metrics.Metric):
        metric = spec
    elif isinstance(spec, str):
        metric = _metric_by_name(spec)
    else:
        raise TypeError(f"`metrics` must hold names or Keras metrics. Received: {spec!r}.")
    config = _of_relevance(metric.get_config())
    return type(metric).from_config({**config, "name": prefix + metric.name})


def _of_relevance(config):
    """A metric's configuration whose labels, and those of a metric in it, are relevance."""
    if not isinstance(config, dict):
        return config
    config = {key: _of_relevance(value) for key, value in config.items()}
    if "label_format" in config:
        config["label_format"] = config["label_format"] or "relevance"
    return config


def _split_weight(text):
    """`"rankmax_loss:0.7"` -> `("rankmax_loss", 0.7)`."""
    name, colon, weight = text.partition(":")
    try:
        return name, float(weight) if colon else 1.0
    except ValueError:
        raise ValueError(
            "`loss` must be a name or 'name:weight,name:weight' with numbers for weights. "
            f"Received: {text!r}."
        ) from None


def _build_one_loss(spec, reduction):
    if isinstance(spec, our_losses.RankingLoss) and spec.label_format is None:
        # A copy by its config would not share what changes in training, such as annealing.
        spec = copy.copy(spec)
        spec.label_format = "relevance"
    if isinstance(spec, our_losses.WeightedSumLoss):
        spec = copy.copy(spec)
        spec.losses = [_build_one_loss(loss, reduction) for loss in spec.losses]
    if isinstance(spec, keras.losses.Loss):
        return spec
    if not isinstance(spec, str):
        raise TypeError(f"`loss` must be a name or a Keras loss. Received: {spec!r}.")
    ours, theirs = _source(spec, "loss", _LOSSES)
    if ours:
        return our_losses.get(ours, reduction=reduction, label_format="relevance")
    if theirs in _CLASSES:
        return _CLASSES[theirs](reduction=reduction, name=theirs)
    return _tfr.keras.losses.get(theirs, reduction=reduction, name=theirs)


def _metric_by_name(spec):
    name, at, cutoff = spec.partition("_at_")
    ours, theirs = _source(name, "metrics", _METRICS)
    if ours:
        return our_metrics.get(spec, label_format="relevance")
    if at and not re.fullmatch(r"[1-9]\d*", cutoff):
        raise ValueError(f"A cutoff must be a positive integer. Received: {spec!r}.")
    if at and theirs in _WITHOUT_CUTOFF:
        raise ValueError(f"`metrics` must name {theirs!r} without a cutoff. Received: {spec!r}.")
    topn = int(cutoff) if at else None
    label = theirs if topn is None else f"{theirs}_at_{topn}"
    if theirs in _CLASSES:
        return _CLASSES[theirs](name=label, topn=topn)
    return _tfr.keras.metrics.get(theirs, name=label, topn=topn)


def _source(name, argument, ours):
    """Tells who has a name: `(name, None)` if we do, `(None, name)` if TF-Ranking does."""
    base = keras.losses.Loss if argument == "loss" else keras.metrics.Metric
    theirs = {value for key, value in vars(_KEYS[argument]).items() if key.isupper()}
    theirs |= {key for key, value in _CLASSES.items() if issubclass(value, base)}
    if name in ours:
        return name, None
    bare = name.removeprefix(_THEIRS)
    if bare in theirs:
        return None, bare
    known = ", ".join([*sorted(ours), *(_THEIRS + key for key in sorted(theirs))])
    raise ValueError(f"`{argument}` must name one of: {known}. Received: {name!r}.")
