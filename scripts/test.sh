#!/usr/bin/env bash
# The whole test suite, or the part that the arguments name (they go to pytest). Set-up must have run.
# It runs on as many processes as this one may use processors, file by file; `.venv/bin/pytest FILE` runs in one.
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/setup/packages.sh test
bash scripts/setup/newer.sh
processes=$(nproc)
# A worker that ended in a test is not replaced: pytest-xdist 3.8 would give the new one that test again, and wait for ever if it
# was the last of its file. After an hour the run is interrupted, and says what it knows.
exec timeout --signal=INT --kill-after=60 3600 \
    .venv/bin/pytest -n "$((processes < 4 ? processes : 4))" --dist loadfile --no-loadscope-reorder \
    --max-worker-restart 0 "$@"
