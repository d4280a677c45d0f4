#!/usr/bin/env bash
# Every check besides the tests. All of them run, so that one call shows all there is to mend; then 1 if any failed.
# The types of the program take as long as three times all else, on one processor; they are looked at beside the rest.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=.venv/bin
folders=()
for folder in src scripts tests examples benchmarks; do
    [[ -z $(find "$folder" -name '*.py' -print -quit 2>/dev/null) ]] || folders+=("$folder")
done

failed=()
check() {
    local name=$1
    shift
    printf '[check] %s\n' "$name" >&2
    "$@" || failed+=("$name")
}
types_said=$(mktemp)
$bin/mypy --strict >"$types_said" 2>&1 &
types=$!
# What runs beside a script does not hear Ctrl-C.
trap 'kill "$types" 2>/dev/null || true; rm -f "$types_said"' EXIT
types_hold() {
    local status=0
    wait "$types" || status=$?
    cat "$types_said" >&2
    return "$status"
}
no_conflicts() { ! git grep -nE '^(<{7}|>{7}) '; }
check "merged" no_conflicts # no marks of a merge that was not finished
check "ruff check" $bin/ruff check --quiet "${folders[@]}"
check "ruff format" $bin/ruff format --check --quiet "${folders[@]}"
# Another interpreter's code: no package of Relive, and typed for itself, for the oldest Python that mypy knows.
MYPYPATH=src/relive_inprocess check "mypy --strict in process" $bin/mypy --strict --config-file= --python-version 3.10 \
    -p relive_recorder
check "names in docstrings" $bin/python scripts/check_docstrings.py
check "import layers" $bin/lint-imports --no-logo
check "lock file" $bin/python scripts/lock_inputs.py --check
check "protobuf modules" bash scripts/proto.sh --check
check "generated pages" $bin/python scripts/generate_docs.py --check
check "docs build" bash scripts/docs.sh
check "mypy --strict" types_hold

if ((${#failed[@]})); then
    printf '[check] failed: %s\n' "$(IFS=,; echo "${failed[*]}" | sed 's/,/, /g')" >&2
    exit 1
fi
printf '[check] all passed\n' >&2
