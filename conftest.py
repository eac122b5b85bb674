"""Leaves out modules that pytest cannot import here."""

import importlib.util

from rank4class_tf import tfr

collect_ignore_glob = []

if importlib.util.find_spec("apache_beam") is None:
    collect_ignore_glob.append("rank4class_tf/data/*_beam.py")

try:
    tfr.load()
except ImportError:
    # These modules import TF-Ranking; its tests skip and say why.
    collect_ignore_glob += ["rank4class_tf/tfr/*", "tests/tfr/pipelines.py"]
