#!/usr/bin/env bash
# Sets up and runs all checks: lint, types, then the tests and the doctests under Keras 3 and under
# Keras 2. Arguments go to pytest: scripts/test.sh -m "not slow"
# What VENV, PYTHON and EXTRAS do stands in scripts/setup_env.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup_env.sh"

failed=()
ruff check . || failed+=("ruff")
mypy || failed+=("mypy")

# A process can run only one Keras. Both run side by side; the second one's output follows below.
run_tests() {
  TF_USE_LEGACY_KERAS="$1" python -m pytest -o "cache_dir=.pytest_cache/keras$2" \
    --doctest-modules rank4class_tf tests "${@:3}"
}
keras2_log="$(mktemp)"
trap 'rm -f "$keras2_log"' EXIT
run_tests 1 2 "$@" > "$keras2_log" 2>&1 &
keras2_pid=$!
trap 'kill "$keras2_pid" 2>/dev/null || true; rm -f "$keras2_log"' EXIT

echo "== Tests under Keras 3"
run_tests 0 3 "$@" || failed+=("tests under Keras 3")
echo "== Tests under Keras 2 (TF_USE_LEGACY_KERAS=1)"
wait "$keras2_pid" || failed+=("tests under Keras 2")
cat "$keras2_log"

if [ "${#failed[@]}" -gt 0 ]; then
  printf 'Failed: %s\n' "${failed[@]}"
  exit 1
fi
echo "All checks passed."
