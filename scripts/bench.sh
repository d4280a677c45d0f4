#!/usr/bin/env bash
# Runs the measurements of benchmarks/, one program after the other, or those that the arguments name.
# They share the machine with nothing else, so nothing here runs side by side.
set -euo pipefail
cd "$(dirname "$0")/.."
shopt -s nullglob
programs=("$@")
(($#)) || programs=(benchmarks/[!_]*.py)
((${#programs[@]})) || { echo "Error: there is no benchmark in benchmarks yet." >&2; exit 1; }
for program in "${programs[@]}"; do
    printf '[bench] %s\n' "$program" >&2
    .venv/bin/python "$program"
done
