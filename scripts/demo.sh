#!/usr/bin/env bash
# Sets up, trains every loss with every head on scikit-learn's digits, and says where the table and
# the plot are. Arguments go to the example: scripts/demo.sh --epochs 3 --loss rankmax_loss
# What VENV, PYTHON and EXTRAS do stands in scripts/setup_env.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup_env.sh"

python examples/classify_as_ranking.py --dataset digits --out out/digits "$@"
