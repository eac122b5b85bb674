#!/usr/bin/env bash
# Sets up the environment, then trains on scikit-learn's digits with wrong labels: 0, 20 or 40 % of the digits are
# labelled as a digit that looks similar. Compares five losses. Prints a table and the difference to softmax, and
# draws a picture. scripts/setup_env.sh explains VENV, PYTHON and EXTRAS.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup_env.sh"

# TensorFlow's messages about the machine are shown only if the program fails.
mkdir -p out
python examples/noisy_labels.py 2> out/demo.log || { cat out/demo.log >&2; exit 1; }
