"""What pytest leaves out where it cannot run."""

import importlib.util

from rank4class_tf import tfr

collect_ignore_glob = []

if importlib.util.find_spec("apache_beam") is None:
    collect_ignore_glob.append("rank4class_tf/data/elwc_beam.py")

try:
    tfr.load()
except ImportError:
    # Modules that import it; its tests skip with the reason.
    collect_ignore_glob += ["rank4class_tf/tfr/*", "tests/tfr/pipelines.py"]
