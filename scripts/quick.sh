#!/usr/bin/env bash
# An answer about the rooms that ROOM names (as below src/relive: "store", "agent/commits replay"; or a file: "native/front.c"), or
# that differ from the branch main, in under a minute: lint, then their tests in one process, those that failed last time first,
# until one fails or 35 s are over.
# Exit status: 0 if none of those that ran failed, and it is said how far they came; the whole room is `make test ARGS=tests/ROOM`.
# 3 if the time was over before one had run: that says nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=35

changed() {
    git diff --name-only "$(git merge-base HEAD main 2>/dev/null || echo HEAD)" --
    git ls-files --others --exclude-standard
}

# The tests of one file: those of the innermost room that has some.
tests_of() {
    local path=$1
    case $path in
    tests/real/* | tests/chaos/*) return ;; # live services and deaths: minutes, on purpose
    tests/support/*) return ;; # no tests, but what they share
    tests/*/*) path=${path#tests/} ;;
    tests/test_*.py) [[ ! -e $path ]] || echo "$path"; return ;;
    src/relive_inprocess/* | native/quick_abi3.c | native/crc32.h) path=inprocess/x ;;
    src/relive/*/*) path=${path#src/relive/} ;;
    src/relive/*.py) # of no room: errors.py has test_errors.py
        path=tests/test_$(basename "$path")
        [[ ! -e $path ]] || echo "$path"
        return
        ;;
    native/ring_library*) path=recording/x ;;
    native/relay_library*) path=proxies/x ;;
    native/page_tree.c) path=store/x ;;
    native/supervisor.c) path=agent/capsule/x ;;
    native/front.c) echo tests/watching/test_public_port.py; return ;;
    native/init* | native/enter.c) path=sandbox/x ;;
    native/*) path=checkpoint/x ;; # what CRIU and commits use
    benchmarks/*) path=benchmarks/x ;;
    examples/*) path=examples/x ;;
    *.md) echo tests/test_paths_in_docs.py; return ;;
    *) return ;;
    esac
    while path=$(dirname "$path") && [[ $path != . ]]; do
        if [[ -d tests/$path ]]; then
            echo "tests/$path"
            return
        fi
    done
}

rooms=()
if (($#)); then
    for room in "$@"; do
        if [[ -d tests/$room ]]; then
            rooms+=("tests/$room")
        elif found=$(tests_of "$room") && [[ -n $found ]]; then # a file, such as native/front.c
            rooms+=("$found")
        else
            printf 'Error: there are no tests in tests/%s.\nHint: a room is named as below src/relive, such as store or agent/commits.\n' "$room" >&2
            exit 2
        fi
    done
else
    readarray -t rooms < <(changed | while read -r path; do tests_of "$path"; done | sort -u)
fi
if ((${#rooms[@]} == 0)); then
    printf '[quick] nothing that has tests of a room differs from main; name one: make quick ROOM=store\n' >&2
    exit 0
fi

printf '[quick] lint and %s\n' "${rooms[*]}" >&2
.venv/bin/ruff check --quiet src tests
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
# Between two tests it ends by itself; a long test is interrupted a little later. SIGINT goes to pytest alone, which ends what
# its fixtures started and says what came of the others.
timeout --foreground -s INT $((seconds + 15)) .venv/bin/pytest -q -x -n0 --ff --session-timeout "$seconds" "${rooms[@]}" 2>&1 |
    tee "$log" || status=$?
# Interrupted while it ends, pytest prints no summary; then a letter in the rows of dots tells of a failure.
if ((status != 0)) && grep -qE 'session-timeout|KeyboardInterrupt' "$log" &&
    ! grep -qE '^(FAILED|ERROR) |^[.sx]*[FE][.sxFE]*( |$)' "$log"; then
    if ! grep -qE '^[.sx]+( |$)|[0-9]+ (passed|skipped|xfailed)' "$log"; then
        printf 'Error: the %s s were over before a test had run, so nothing is known of %s.\n' "$seconds" "${rooms[*]}" >&2
        printf 'Hint: the machine is busy, or the first test is long: name one file (make quick ROOM=...), or make test ARGS=tests/ROOM.\n' >&2
        exit 3
    fi
    printf '[quick] %s s are over; what ran until then did not fail. Whole rooms: make test ARGS=tests/ROOM\n' "$seconds" >&2
    exit 0
fi
exit "$status"
