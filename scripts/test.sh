#!/usr/bin/env bash
# The whole test suite, or the part that the arguments name (they go to pytest). Set-up must have run.
# It runs file by file in two processes more than there are processors, at most four: a test of a live service waits for a third of
# its time.
# `.venv/bin/pytest FILE` runs in one.
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/setup/packages.sh test
bash scripts/setup/newer.sh
processors=$(nproc)
# In a fresh clone each process would rewrite the assertions of all test modules for itself, which takes 18 s of a processor.
[[ -d tests/__pycache__ ]] || find tests -name 'test_*.py' -print0 |
    xargs -0 -P "$processors" -n $((700 / processors)) timeout 120 .venv/bin/pytest --collect-only -qq -n0 >/dev/null 2>&1 || true
# CI judges a change: a test that fails there is run once more, at most five in all. Each is told with its traceback ("rerun" in the last
# line), since a test that fails at times is a defect to be mended.
again=()
[[ -z ${CI:-} ]] || again=(--reruns 1 --max-suite-reruns 5 --rerun-show-tracebacks)
# A worker that ended in a test is not replaced: pytest-xdist 3.8 would give the new one that test again, and wait for ever if it
# was the last of its file. After an hour the run is interrupted, and says what it knows.
exec timeout --signal=INT --kill-after=60 3600 \
    .venv/bin/pytest -n "$((processors < 2 ? processors + 2 : 4))" --dist loadfile --no-loadscope-reorder \
    --max-worker-restart 0 "${again[@]}" "$@"
