#!/usr/bin/env bash
# Sets up the environment and runs all checks: lint, format, types, then the tests and doctests under
# Keras 3, and the tests marked keras2 under Keras 2, in as many processes as there are cores.
#
#   scripts/test.sh --quick       lint, types and one representative of everything, in a minute
#   scripts/test.sh --slow        also what is marked slow, and the pages compiled by XLA; so does CI
#   scripts/test.sh --all         also TensorFlow 2.15
#   scripts/test.sh --weekly      also what is marked weekly, the numerical tests as other processors run
#                                 them, and the examples compiled by XLA; so does CI once a week
#   scripts/test.sh -k rankmax    other arguments go to pytest
#
#   KERAS    the Kerases to test with; default "3 2"
#
# scripts/setup_env.sh explains VENV, PYTHON and EXTRAS.
set -euo pipefail
scripts="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
part=""
case "${1:-}" in
  --quick | --slow | --all | --weekly)
    part="$1"
    shift
    ;;
esac
source "$scripts/setup_env.sh"

failed=()
check() {
  echo "== $*"
  "$@" || failed+=("$*")
}
# Python draws the order of a set anew in each process, and the processes must agree on the tests.
export PYTHONHASHSEED=0
printed="$(mktemp)"
trap 'rm -f "$printed"' EXIT
tests() {
  python -m pytest -n auto --dist worksteal "$@" < /dev/null | tee -a "$printed"
}
tests_of_keras() {
  echo "== Keras $1"
  local status=0
  TF_USE_LEGACY_KERAS="$((3 - $1))" tests -o "cache_dir=.pytest_cache/keras$1" "${@:2}" || status=$?
  # Status 5: the arguments select no test of this Keras.
  [ "$status" = 5 ] || chosen=yes
  [ "$status" = 0 ] || [ "$status" = 5 ] || failed+=("the tests of Keras $1")
}

chosen=""
slow="slow and not weekly"
[ "$part" != --weekly ] || slow=slow
check ruff check .
check ruff format --check .
check mypy
for keras in ${KERAS:-3 2}; do
  case "$part$keras" in
    --quick2) ;;
    --quick3)
      tests_of_keras 3 --quick -m "not slow" tests/contract tests/losses/test_formulas.py \
        tests/metrics/test_of_lists.py tests/data/test_formats.py tests/test_package.py \
        tests/models/test_extreme_classifier.py::test_evaluates_over_all_classes "$@"
      ;;
    *3)
      tests_of_keras 3 --doctest-modules -m "not slow" rank4class_tf tests "$@"
      # In processes of their own: what XLA compiles is never freed.
      if [ -n "$part" ]; then
        tests_of_keras 3 -m "$slow" tests/contract "$@"
        tests_of_keras 3 -m "$slow" tests/models tests/layers "$@"
        tests_of_keras 3 -m "$slow" tests --ignore tests/contract --ignore tests/models \
          --ignore tests/layers "$@"
      fi
      ;;
    --*2) tests_of_keras 2 -m "keras2 and ($slow or not slow)" tests "$@" ;;
    *2) tests_of_keras 2 -m "keras2 and not slow" tests "$@" ;;
  esac
done
[ -n "$chosen" ] || failed+=("no test was chosen")

case "$part" in
  --all | --weekly)
    check env VENV=.venv-tf2.15 PYTHON=python3.11 EXTRAS= bash "$scripts/test_tf215.sh" \
      -n auto --dist worksteal -m "keras2 and not slow" tests "$@"
    ;;
esac

# As on a GPU, where XLA is Keras's default: the pages, and once a week the examples.
case "$part" in
  --slow | --all) tests_of_keras 3 --xla tests/test_docs.py::test_examples_run "$@" ;;
  --weekly) tests_of_keras 3 --xla tests/test_docs.py::test_examples_run tests/examples "$@" ;;
esac

if [ "$part" = --weekly ]; then
  # Values and steps with the sums of other processors, which are in another order: oneDNN with AVX2
  # alone, and none. Processors without AVX cannot run TensorFlow.
  for setting in ONEDNN_MAX_CPU_ISA=AVX2 TF_ENABLE_ONEDNN_OPTS=0; do
    echo "== $setting"
    (
      export "$setting"
      tests -m "not slow" tests/ops tests/losses tests/metrics \
        tests/contract/test_{definitions,heads,sorters,steps}.py "$@"
    ) || failed+=("$setting")
  done
fi

if [ "${#failed[@]}" -gt 0 ]; then
  grep -E "^(FAILED|ERROR) " "$printed" || true
  printf 'Failed: %s\n' "${failed[@]}"
  exit 1
fi
echo "All checks passed."
