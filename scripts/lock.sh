#!/usr/bin/env bash
# Renews requirements.lock: the newest versions that pyproject.toml admits, for Python 3.11 and later, with hashes.
# Needs the network. The file names no package index, so each machine uses the one it is configured for.
set -euo pipefail
cd "$(dirname "$0")/.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
echo "[lock] fetching uv" >&2
.venv/bin/python -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install --quiet --disable-pip-version-check uv
echo "[lock] resolving" >&2
"$scratch/venv/bin/uv" pip compile pyproject.toml --group dev --universal --python-version 3.11 --generate-hashes \
    --no-emit-index-url --no-emit-find-links --no-header --upgrade --quiet -o "$scratch/lock"
{
    echo "# Written by 'make lock' from pyproject.toml; do not edit."
    .venv/bin/python scripts/lock_inputs.py
    cat "$scratch/lock"
} >"$scratch/requirements.lock"
if grep -n '://' "$scratch/requirements.lock"; then
    echo "Error: the lock would name an address (above), which would tie it to this machine." >&2
    exit 1
fi
cp "$scratch/requirements.lock" requirements.lock
echo "[lock] requirements.lock renewed; run make setup to install it" >&2
