"""RankingDatasetBuilder."""

from typing import Any

from tensorflow import keras

from rank4class_tf.tfr import _load
from rank4class_tf.tfr.serving_signatures import ServingSignatures

_tfr: Any = _load.load()


class ServingMixin:
    """Exports `ServingSignatures`, for your own dataset builder.

    Put it before the builder: `class MyBuilder(ServingMixin, MultiLabelDatasetBuilder)`.
    """

    _context_feature_spec: Any
    _example_feature_spec: Any
    _mask_feature_name: Any

    def build_signatures(self, model: keras.Model) -> dict[str, Any]:
        """Builds the signatures of the exported model."""
        return ServingSignatures(
            model,
            context_feature_spec=self._context_feature_spec,
            example_feature_spec=self._example_feature_spec,
            mask_feature_name=self._mask_feature_name,
        )()


class RankingDatasetBuilder(ServingMixin, _tfr.keras.pipeline.SimpleDatasetBuilder):
    """TF-Ranking's `SimpleDatasetBuilder`; the model it exports has `ServingSignatures`."""
