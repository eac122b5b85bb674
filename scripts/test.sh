#!/usr/bin/env bash
# Sets up the environment and runs all checks: lint, types, then the tests and the doctests under
# Keras 3, and the tests marked keras2 under Keras 2. Arguments go to pytest: scripts/test.sh -k rankmax.
# Tests marked slow, such as short forms of the reproductions, run only with scripts/test.sh -m ""
#
#   scripts/test.sh --quick   lint, types and one representative of everything, in a minute
#
# scripts/setup_env.sh explains VENV, PYTHON and EXTRAS.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup_env.sh"

# Two parts run side by side. Each part runs several processes, one after the other, since a process
# can use only one version of Keras and keeps in memory what XLA has compiled. A line holds a version
# of Keras and the tests to run under it.
others="tests/ops tests/layers tests/losses tests/metrics tests/optimizers tests/scripts tests/data"
front="3 tests/contract
3 $others"
behind="2 tests
3 rank4class_tf tests --ignore=tests/contract $(printf -- '--ignore=%s ' $others)"
if [ "${1:-}" = --quick ]; then
  shift
  front="3 --quick tests/contract/test_completeness.py tests/contract/test_losses.py"
  front+=" tests/contract/test_metrics.py tests/contract/test_heads.py tests/contract/test_sorters.py"
  front+=" tests/ops/test_rankmax.py tests/losses/test_rankmax_loss.py tests/metrics/test_ndcg.py"
  front+=" tests/data/test_extreme.py tests/test_names.py"
  front+=" tests/models/test_extreme_classifier.py::test_evaluates_over_all_classes"
  behind=""
fi

results="$(mktemp -d)"
run_part() {
  local keras tests status marker="not slow"
  while read -r keras tests; do
    [ -n "$keras" ] || continue
    echo "== Keras $keras: $tests"
    [ "$keras" = 3 ] || marker="keras2 and not slow"
    status=0
    # shellcheck disable=SC2086  # The tests are several arguments.
    TF_USE_LEGACY_KERAS="$((3 - keras))" python -m pytest -o "cache_dir=.pytest_cache/keras$keras" \
      -m "$marker" --doctest-modules $tests "${@:2}" < /dev/null || status=$?
    marker="not slow"
    # Status 5: the arguments select no test of this part.
    case "$status" in
      0) touch "$results/chosen" ;;
      5) ;;
      *) touch "$results/chosen"; echo "Keras $keras: $tests" >> "$results/failed" ;;
    esac
  done <<< "$1"
}
check_types_and_run() {
  mypy || echo "mypy" >> "$results/failed"
  run_part "$@"
}
ruff check . || echo "ruff" >> "$results/failed"
set -m  # The part gets its own process group, so that its processes end with it.
check_types_and_run "$behind" "$@" > "$results/behind" 2>&1 &
behind_pid=$!
set +m
trap 'kill -- "-$behind_pid" 2>/dev/null || true; rm -rf "$results"' EXIT
run_part "$front" "$@"
wait "$behind_pid"
cat "$results/behind"

failed=()
[ -e "$results/chosen" ] || failed+=("no test was chosen")
if [ -e "$results/failed" ]; then mapfile -t -O "${#failed[@]}" failed < "$results/failed"; fi
if [ "${#failed[@]}" -gt 0 ]; then
  printf 'Failed: %s\n' "${failed[@]}"
  exit 1
fi
echo "All checks passed."
