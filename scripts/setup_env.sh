# Sourced by the other scripts. Goes to the project's folder and activates a virtual environment
# with the project, its extras and its tools, at the versions of constraints.txt.
#
#   VENV     folder of the environment; default .venv
#   PYTHON   the Python (3.11 to 3.13) that creates it; default python3
#   EXTRAS   extras to install besides the usual ones, such as oracles
#   USUAL    the usual ones, for what needs fewer
#   TF_RANKING   the extra that installs TF-Ranking; default tfr
#   CONSTRAINTS   the file with the versions; default constraints.txt

cd "$(dirname "${BASH_SOURCE[0]}")/.."
VENV="${VENV:-.venv}"
constraints="${CONSTRAINTS:-constraints.txt}"
extras="${USUAL:-data,${TF_RANKING:-tfr},plots,test}${EXTRAS:+,$EXTRAS}"

[ -x "$VENV/bin/python" ] || "${PYTHON:-python3}" -m venv "$VENV"
source "$VENV/bin/activate"

# These determine what the environment holds; if they have not changed, it is up to date.
wanted="$({ pwd; echo "$extras"; cat setup.cfg "$constraints"; } | sha256sum)"
if [ "$(cat "$VENV/installed.sha256" 2>/dev/null)" != "$wanted" ]; then
  echo "Installing rank4class_tf[$extras] into $VENV"
  python -m pip install --quiet --disable-pip-version-check \
    --constraint "$constraints" --editable ".[$extras]"
  echo "$wanted" > "$VENV/installed.sha256"
fi
unset constraints extras wanted

export TF_CPP_MIN_LOG_LEVEL="${TF_CPP_MIN_LOG_LEVEL:-3}"  # errors only
