#!/bin/sh
# Make the virtual environment FOLDER, unless a whole one is there: venv.sh FOLDER MINOR, with a Python from 3.11 to
# 3.MINOR. $PYTHON names it; else the first of the PATH serves, else uv brings one.
# The mark FOLDER/.unfinished is there while this script, or envs/install.py, works. What a kill leaves half-made keeps it
# and is made anew.
set -eu
folder=$1 minor=$2

fits() { # PYTHON [MODULES]
  "$1" -c "import sys${2:+, $2}; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, $minor))" > /dev/null 2>&1
}

find_python() {
  for python in python3.11 python3.12 python3.13 python3.14 python3 python; do
    if fits "$python" venv,ensurepip; then return; fi
    if fits "$python"; then without=$(command -v "$python"); fi
  done
  return 1
}

bring_python() {
  echo "No Python from 3.11 to 3.$minor with its module venv is on the PATH: uv brings one."
  uv=$(command -v uv) || {
    for python in python3 python; do
      "$python" -m venv "$folder/uv" && "$folder/uv/bin/python" -m pip install --quiet "$(grep '^uv==' requirements.lock)" && break
    done > "$folder/uv.log" 2>&1 || return 1
    uv=$folder/uv/bin/uv
  }
  UV_PYTHON_INSTALL_BIN=0 "$uv" python install 3.12 >> "$folder/uv.log" 2>&1 && python=$("$uv" python find --python-preference only-managed 3.12)
}

fail() { # REASON
  cat >&2 << END
$1
A Python from 3.11 to 3.$minor with its module venv is needed: apt install python3-venv (Debian, Ubuntu), dnf install python3.12 (RHEL),
brew install python@3.13 (macOS), conda create -n cdpr python=3.12 (activate it); or name one: make PYTHON=/path/to/python ...
docs/how-to/install.md has more, also for machines without the internet.
END
  exit 2
}

mkdir -p "$folder"
if [ -e "$folder/.unfinished" ] || ! "$folder/bin/python" -m pip --version > /dev/null 2>&1; then
  touch "$folder/.unfinished"
  find "$folder/" -mindepth 1 -maxdepth 1 ! -name .unfinished -exec rm -rf {} +
  if [ -n "${PYTHON:-}" ]; then
    fits "$PYTHON" || fail "PYTHON=$PYTHON is no such Python."
    python=$PYTHON
  elif ! find_python && ! bring_python; then
    fail "${without:+"$without lacks its module venv, and "}uv could not bring a Python: $(tail -n 1 "$folder/uv.log")"
  fi
  "$python" -m venv "$folder" || fail "$python could not make an environment."
  rm -rf "$folder/uv" "$folder/.unfinished"
fi
