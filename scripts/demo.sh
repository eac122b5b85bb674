#!/usr/bin/env bash
# Sets up, then trains scikit-learn's digits with labels that take a digit for one that looks alike: five losses
# at 0, 20 and 40 % wrong labels. It ends with a table, a picture and the difference to softmax.
# What VENV, PYTHON and EXTRAS do stands in scripts/setup_env.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup_env.sh"

# TensorFlow writes lines about the machine, which are shown only if the program fails.
mkdir -p out
python examples/noisy_labels.py 2> out/demo.log || { cat out/demo.log >&2; exit 1; }
