#!/usr/bin/env bash
# The whole test suite, or the part that the arguments name (they go to pytest). Set-up must have run.
# It runs on as many processes as this one may use processors, file by file; `.venv/bin/pytest FILE` runs in one.
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/setup/packages.sh test
bash scripts/setup/newer.sh
processes=$(nproc)
exec .venv/bin/pytest -n "$((processes < 4 ? processes : 4))" --dist loadfile --no-loadscope-reorder "$@"
