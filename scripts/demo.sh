#!/usr/bin/env bash
# Sets up the environment, then compares four losses on scikit-learn's digits, of which 30 % are
# labelled as a digit that looks similar. Prints a table with a verdict and draws a picture. It takes
# three to five minutes with the installation. scripts/setup_env.sh explains VENV, PYTHON, EXTRAS.
set -euo pipefail
VENV="${VENV:-.venv-demo}"
USUAL=demo  # Half as large as the environment of the tests.
source "$(dirname "${BASH_SOURCE[0]}")/setup_env.sh"

# TensorFlow's messages about the machine are shown only if the program fails.
mkdir -p out
python examples/which_loss.py --picture out/which_loss.png 2> out/demo.log || {
  cat out/demo.log >&2
  exit 1
}
echo "The picture: out/which_loss.png"
