"""What pytest leaves out where it cannot run."""

from rank4class_tf import tfr

collect_ignore_glob = []

try:
    tfr.load()
except ImportError:
    # Modules that import it; its tests skip with the reason.
    collect_ignore_glob += ["rank4class_tf/tfr/*", "tests/tfr/pipelines.py"]
