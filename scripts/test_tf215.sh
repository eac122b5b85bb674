#!/usr/bin/env bash
# Runs tests with TensorFlow 2.15, its own Keras 2 and TF-Ranking 0.5.5, which need Python 3.11, in an
# environment of their own. Arguments go to pytest: scripts/test_tf215.sh tests/losses
# Only sets up without any. What VENV, PYTHON and EXTRAS do stands in scripts/setup_env.sh.
set -euo pipefail
export VENV="${VENV:-.venv-tf2.15}" CONSTRAINTS=constraints-tf2.15.txt TF_RANKING=tfr215
source "$(dirname "${BASH_SOURCE[0]}")/setup_env.sh"
[ "$#" -gt 0 ] || exit 0
# Keras 2.15's own code warns on Python 3.11.
python -m pytest -o cache_dir=.pytest_cache/tf2.15 --doctest-modules \
  -W "ignore:non-integer arguments to randrange:DeprecationWarning" "$@"
