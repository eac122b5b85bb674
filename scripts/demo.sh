#!/usr/bin/env bash
# Sets up, then learns scikit-learn's digits from five images of each, with three seeds: every loss with
# two heads. It says what differs beyond noise, and where the table and the plot are. Arguments go to the
# program: scripts/demo.sh --seeds 0 --loss rankmax_loss
# What VENV, PYTHON and EXTRAS do stands in scripts/setup_env.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup_env.sh"

python -m scripts.reproductions.classify_as_ranking \
  --examples-per-class 5 --seeds 0 1 2 --head dot_product latent_cross --epochs 12 --out out/digits "$@"
