#!/usr/bin/env bash
# Sets up the environment and builds the pages of docs/; a warning is an error. Arguments go to
# sphinx-build. scripts/setup_env.sh explains VENV, PYTHON and EXTRAS.
set -euo pipefail
EXTRAS="${EXTRAS:-docs}"
source "$(dirname "${BASH_SOURCE[0]}")/setup_env.sh"

rm -rf docs/api  # What it makes of docs/api.md.
python -m sphinx --builder html --fresh-env --fail-on-warning --keep-going --quiet "$@" docs out/docs
echo "The pages are in $PWD/out/docs/index.html"
