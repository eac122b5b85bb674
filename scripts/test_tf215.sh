#!/usr/bin/env bash
# Runs tests in a separate environment with TensorFlow 2.15, its own Keras 2 and TF-Ranking 0.5.5,
# which need Python 3.11. Arguments go to pytest: scripts/test_tf215.sh tests/losses
# Without arguments, only sets up the environment. scripts/setup_env.sh explains VENV, PYTHON and EXTRAS.
set -euo pipefail
export VENV="${VENV:-.venv-tf2.15}"
export PYTHON="${PYTHON:-python3.11}"
export CONSTRAINTS=constraints-tf2.15.txt
export TF_RANKING=tfr215
source "$(dirname "${BASH_SOURCE[0]}")/setup_env.sh"
[ "$#" -gt 0 ] || exit 0
# The code of Keras 2.15 itself warns on Python 3.11.
python -m pytest -o cache_dir=.pytest_cache/tf2.15 --doctest-modules \
  -W "ignore:non-integer arguments to randrange:DeprecationWarning" "$@"
