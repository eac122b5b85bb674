"""The bridge to TF-Ranking; the only part of this package that imports it, and only in `load`."""

from rank4class_tf.tfr._load import load

__all__ = ["load"]
