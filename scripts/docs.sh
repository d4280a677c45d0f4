#!/usr/bin/env bash
# Builds the manual into build/site; a link to a page or heading that does not exist is an error.
set -euo pipefail
cd "$(dirname "$0")/.."
log=$(mktemp)
trap 'rm -rf "$log" .cache' EXIT
if ! NO_COLOR=1 .venv/bin/zensical build --strict --clean >"$log" 2>&1; then
    # Zensical ends a strict build with its own stack trace, which says nothing more.
    sed '/^Traceback /,$d' "$log" >&2
    printf '\nError: the manual was not built.\nHint: mend the pages named above; then run make docs.\n' >&2
    exit 1
fi
printf '[docs] built: %s\n' "$PWD/build/site/index.html" >&2
