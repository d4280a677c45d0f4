#!/usr/bin/env bash
# .venv: exactly the packages of requirements.lock, each checked against its hash, and Relive itself, editable.
. "$(dirname "$0")/prelude.sh"

venv=$REPO/.venv
lock=$REPO/requirements.lock

is_new_enough() { "$1" -c 'import sys; raise SystemExit(sys.version_info < (3, 11))' 2>/dev/null; }
python=
# Debian's own first: it is the same on every machine, and the packages above bring its venv module.
for candidate in ${PYTHON:+"$PYTHON"} /usr/bin/python3 python3 python3.13 python3.12 python3.11; do
    command -v "$candidate" >/dev/null && is_new_enough "$candidate" || continue
    # The interpreter itself, not a shim of a version manager that may point elsewhere tomorrow.
    python=$("$candidate" -c 'import os, sys; print(os.path.realpath(sys.executable))')
    break
done
[[ -n $python ]] || fail "no Python 3.11 or newer was found" \
    "$(/usr/bin/env python3 --version 2>&1 | head -n 1) is what python3 stands for." \
    "Debian 12 has it (apt-get install python3 python3-venv); or name one: PYTHON=/path/to/python3.12 make setup."
version=$("$python" -c 'import platform; print(platform.python_version())')

# Where the venv was moved, or its interpreter replaced by another, it is begun anew.
home_key="$python $version $venv"
has() { [[ -r $venv/.stamp-$1 && $(<"$venv/.stamp-$1") == "$2" ]]; }
put() { printf '%s\n' "$2" >"$venv/.stamp-$1"; }
make_scratch
if ! has interpreter "$home_key" || ! "$venv/bin/python" -c '' 2>/dev/null; then
    say "making .venv with Python $version ($python)"
    run_logged "$SCRATCH/log" "$python" -m venv --clear "$venv" || fail "the virtual environment could not be made" \
        "$(tail_of "$SCRATCH/log" 6)" "On Debian, apt-get install python3-venv gives what is needed; df -h shows the disk."
    put interpreter "$home_key"
fi

pip=("$venv/bin/python" -m pip --disable-pip-version-check --no-input --quiet)
lock_key="$(sha256_of "$lock" "$0") $version"
if ! has lock "$lock_key"; then
    say "installing $(grep -c '^[a-zA-Z0-9]' "$lock") Python packages from requirements.lock (about a minute)"
    rm -f "$venv/.stamp-lock"
    # Only wheels: a package that has none for this machine would need compilers and time that nobody planned for.
    run_logged "$SCRATCH/log" "${pip[@]}" install --require-hashes --only-binary :all: -r "$lock" || fail \
        "the Python packages could not be installed" "$(grep -E 'ERROR|rror:' "$SCRATCH/log" | head -n 6)" \
        "Check the network and the disk (df -h $venv), then run make setup again; python3 --version must be 3.11 to 3.13."
    # What an older lock brought in would hide that the new one lacks it.
    "$venv/bin/python" - "$lock" >"$SCRATCH/extra" <<'PY'
import re, sys
from importlib.metadata import distributions
plain = lambda name: re.sub(r"[-_.]+", "-", name).lower()
locked = {plain(m[1]) for m in re.finditer(r"(?m)^([A-Za-z0-9][\w.-]*)==", open(sys.argv[1]).read())}
for found in {plain(d.name) for d in distributions()} - locked - {"pip", "relive", "setuptools"}:
    print(found)
PY
    [[ ! -s $SCRATCH/extra ]] || run_logged "$SCRATCH/log" "${pip[@]}" uninstall -y -r "$SCRATCH/extra" ||
        fail "packages of an older lock could not be removed" "$(tail_of "$SCRATCH/log")" "Delete .venv and run make setup."
    # It would import importlib.util at each start of Python, 6 of 16 ms; its packages are found without it (PEP 420).
    rm -f "$venv"/lib/python3.*/site-packages/PasteDeploy-*-nspkg.pth
    put lock "$lock_key"
fi

project_key=$(sha256_of "$REPO/pyproject.toml" "$0")
if ! has project "$project_key"; then
    rm -f "$venv/.stamp-project"
    run_logged "$SCRATCH/log" "${pip[@]}" install --no-deps --no-build-isolation --editable "$REPO" || fail \
        "Relive could not be installed into .venv" "$({ grep -E '^ *([A-Za-z.]+Error|ERROR)\b' "$SCRATCH/log" || cat "$SCRATCH/log"; } | tail -n 6)" \
        "Look at pyproject.toml; then run make setup again."
    put project "$project_key"
    say "relive is installed in .venv"
else
    say ".venv is up to date (Python $version)"
fi

# Where Python may write no bytecode by itself (PYTHONDONTWRITEBYTECODE, a folder of another user), every command, agent and
# proxy would compile all of Relive anew. Only what changed is compiled here.
"$venv/bin/python" -m compileall -q "$REPO/src" || fail "Relive's modules could not be compiled" \
    "The lines above name the module." "Mend it, or get it back with git checkout; then run make setup again."
