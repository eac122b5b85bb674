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
# Each runs the tests in two processes, one after the other, since what XLA has compiled stays in the
# memory of its process.
run_tests() {
  local part status ran=false failed=false
  for part in "tests/contract" "rank4class_tf tests --ignore=tests/contract"; do
    status=0
    # shellcheck disable=SC2086  # A part is several arguments.
    TF_USE_LEGACY_KERAS="$1" python -m pytest -o "cache_dir=.pytest_cache/keras$2" \
      --doctest-modules $part "${@:3}" || status=$?
    case "$status" in
      0) ran=true ;;
      5) ;; # The arguments may choose tests of the other part alone.
      *) failed=true ;;
    esac
  done
  "$ran" && ! "$failed"
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
