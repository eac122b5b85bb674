#!/usr/bin/env bash
# Builds sdist and wheel into dist/, checks them, installs the wheel into an empty environment and
# runs the examples of the docstrings, the pages and README from there, under both Kerases.
# Publishes nothing.
#
#   PYTHON   the Python 3.11 to 3.13 to use; default python3
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
project="$PWD"
# A folder on it that holds the project would be taken for the installed package.
unset PYTHONPATH
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
pip_options=(--quiet --disable-pip-version-check --constraint "$project/constraints.txt")

echo "== Building"
"${PYTHON:-python3}" -m venv "$work/tools"
"$work/tools/bin/python" -m pip install "${pip_options[@]}" build twine
rm -rf dist
# The wheel is built from the sdist, so a file that the sdist lacks is noticed here.
"$work/tools/bin/python" -m build --outdir dist > "$work/build.log" || {
  cat "$work/build.log"
  exit 1
}
"$work/tools/bin/python" -m twine check --strict dist/*

echo "== Installing the wheel"
"${PYTHON:-python3}" -m venv "$work/user"
wheel="$(echo "$project"/dist/*.whl)"
"$work/user/bin/python" -m pip install "${pip_options[@]}" "$wheel[data,plots,tfr]" pytest
# The project's folder is not on the path, so the installed package is what runs.
mkdir -p "$work/pages/tests"
cp -r docs README.md "$work/pages"
cp tests/pages.py "$work/pages/tests"
cd "$work"
export TF_CPP_MIN_LOG_LEVEL=3
file="$(user/bin/python -c 'import rank4class_tf; print(rank4class_tf.__file__)')"
installed="$(dirname "$file")"
case "$installed" in
  "$work"/*) ;;
  *)
    echo "Not the installed package: $installed" >&2
    exit 1
    ;;
esac
for legacy in 0 1; do
  echo "== Docstrings and pages, TF_USE_LEGACY_KERAS=$legacy"
  # This environment lacks Apache Beam and keras-hub, so files that need them are left out. Under
  # Keras 3, so are the files that need TF-Ranking.
  left_out=(--ignore-glob="$installed/data/*_beam.py" --ignore="$installed/encoders.py")
  [ "$legacy" = 1 ] || left_out+=(--ignore="$installed/tfr")
  TF_USE_LEGACY_KERAS="$legacy" user/bin/python -m pytest -q -p no:cacheprovider --rootdir "$work" \
    -o doctest_optionflags="ELLIPSIS NORMALIZE_WHITESPACE" --doctest-modules "$installed" "${left_out[@]}"
  TF_USE_LEGACY_KERAS="$legacy" user/bin/python pages/tests/pages.py
done
ls -l "$project/dist"
echo "Ready to upload: $project/dist"
