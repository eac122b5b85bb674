#!/usr/bin/env bash
# Sets up and runs all checks: lint, types, then the tests and the doctests under Keras 3 and under
# Keras 2. Arguments go to pytest: scripts/test.sh -k rankmax. What is marked slow, such as short
# forms of the reproductions, is left out unless asked for: scripts/test.sh -m ""
# What VENV, PYTHON and EXTRAS do stands in scripts/setup_env.sh.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup_env.sh"

failed=()
ruff check . || failed+=("ruff")
mypy || failed+=("mypy")

# Two halves side by side, each a part after the other: a process can run only one Keras, and what XLA
# has compiled stays in the memory of its process. Keras 2 leaves out what has nothing of Keras; some
# of Keras 3 makes up for it. A line is a Keras and the tests to run under it.
others="tests/ops tests/layers tests/losses tests/metrics tests/optimizers tests/scripts tests/data"
first_half="3 tests/contract
3 rank4class_tf tests --ignore=tests/contract $(printf -- '--ignore=%s ' $others)"
second_half="2 tests/contract
2 rank4class_tf tests --ignore=tests/contract --ignore=rank4class_tf/ops --ignore=rank4class_tf/evaluation.py
3 $others"

results="$(mktemp -d)"
run_half() {
  local keras tests status
  while read -r keras tests; do
    echo "== Keras $keras: $tests"
    status=0
    # shellcheck disable=SC2086  # The tests are several arguments.
    TF_USE_LEGACY_KERAS="$((3 - keras))" python -m pytest -o "cache_dir=.pytest_cache/keras$keras" \
      -m "not slow" --doctest-modules $tests "${@:2}" < /dev/null || status=$?
    # 5: the arguments choose no test of this part.
    case "$status" in
      0) touch "$results/chosen" ;;
      5) ;;
      *) touch "$results/chosen"; echo "Keras $keras: $tests" >> "$results/failed" ;;
    esac
  done <<< "$1"
}
set -m  # A group of its own, so that its processes end with it.
run_half "$second_half" "$@" > "$results/second_half" 2>&1 &
second_pid=$!
set +m
trap 'kill -- "-$second_pid" 2>/dev/null || true; rm -rf "$results"' EXIT
run_half "$first_half" "$@"
wait "$second_pid"
cat "$results/second_half"

[ -e "$results/chosen" ] || failed+=("no test was chosen")
if [ -e "$results/failed" ]; then mapfile -t -O "${#failed[@]}" failed < "$results/failed"; fi
if [ "${#failed[@]}" -gt 0 ]; then
  printf 'Failed: %s\n' "${failed[@]}"
  exit 1
fi
echo "All checks passed."
