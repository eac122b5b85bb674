"""What pytest leaves out where it cannot run."""

from rank4class_tf import tfr

collect_ignore_glob = []

try:
    tfr.load()
except ImportError:
    # The doctests of the bridge to TF-Ranking; its tests skip with the reason.
    collect_ignore_glob.append("rank4class_tf/tfr/*")
