#!/usr/bin/env bash
# Runs the tests in all supported environments, each in a virtual environment of its own:
#
#   3.11, 3.12, 3.13   scripts/test.sh on that Python: current TensorFlow, Keras 3, and under Keras 2
#                      all tests, not only the ones marked keras2
#   tf2.15             TensorFlow 2.15 with its own Keras 2, and TF-Ranking 0.5.5, on Python 3.11
#   processors         the numerical tests as other processors would run them, on Python 3.11: oneDNN
#                      with the instructions of SSE41 and AVX2, with all of this processor, and without
#                      oneDNN. Each sums products in another order.
#
#   scripts/test_matrix.sh                          all of them
#   scripts/test_matrix.sh 3.12 tf2.15              some of them
#   scripts/test_matrix.sh 3.12=/opt/bin/python     with an interpreter that is not on PATH
#   scripts/test_matrix.sh -- -k rankmax            arguments for pytest
#
# Otherwise the interpreters are python3.11, python3.12 and python3.13 on PATH.
set -euo pipefail
scripts="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

rows=()
while [ "$#" -gt 0 ] && [ "$1" != "--" ]; do rows+=("$1"); shift; done
[ "$#" -eq 0 ] || shift
[ "${#rows[@]}" -gt 0 ] || rows=(3.11 3.12 3.13 tf2.15 processors)

numerical="tests/ops tests/losses tests/metrics tests/layers tests/models tests/contract"
run_as_processors() (
  source "$scripts/setup_env.sh"
  status=0
  for setting in ONEDNN_MAX_CPU_ISA=SSE41 ONEDNN_MAX_CPU_ISA=AVX2 ONEDNN_MAX_CPU_ISA=DEFAULT \
    TF_ENABLE_ONEDNN_OPTS=0; do
    echo "== $setting"
    # shellcheck disable=SC2086  # The tests are several arguments.
    env "$setting" python -m pytest -m "not slow" $numerical "$@" < /dev/null || status=1
  done
  exit "$status"
)

export XLA_FLAGS="${XLA_FLAGS-}"  # XLA optimizes here, as it does for users: see tests/conftest.py.
passed=() failed=() missing=()
for row in "${rows[@]}"; do
  name="${row%%=*}" version="${row%%=*}"
  case "$name" in tf2.15 | processors) version=3.11 ;; esac
  [[ "$version" =~ ^3\.1[123]$ ]] || { echo "Unknown row: $row" >&2; exit 2; }
  python="python$version"
  [ "$row" = "$name" ] || python="${row#*=}"
  echo "== $name ($python)"
  if ! "$python" -c "import sys; assert sys.version_info[:2] == (3, ${version#3.})" 2>/dev/null; then
    echo "No Python $version: $python. Name one: $name=/path/to/python" >&2
    missing+=("$name")
    continue
  fi
  export VENV=".venv-$name" PYTHON="$python"
  if [ "$name" = processors ]; then
    VENV=.venv-3.11  # The environment of that row.
    run_as_processors "$@" && passed+=("$name") || failed+=("$name")
  elif [ "$name" = tf2.15 ]; then
    bash "$scripts/test_tf215.sh" rank4class_tf tests "$@" && passed+=("$name") || failed+=("$name")
  else
    bash "$scripts/test.sh" -m "not slow" "$@" && passed+=("$name") || failed+=("$name")
  fi
done

echo "Passed: ${passed[*]:-none}. Failed: ${failed[*]:-none}. Not run, no Python: ${missing[*]:-none}."
[ "$((${#failed[@]} + ${#missing[@]}))" -eq 0 ]
