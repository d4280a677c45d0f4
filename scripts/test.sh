#!/usr/bin/env bash
# The whole test suite, or the part that the arguments name (they go to pytest). Set-up must have run.
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/setup/packages.sh test
exec .venv/bin/pytest "$@"
